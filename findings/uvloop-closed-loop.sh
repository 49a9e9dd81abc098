#!/bin/sh
# uvloop 0.23.0 and asyncio of Python 3.11 to 3.14, a program that handles SIGINT and SIGTERM on its loop.
# Once the loop does not run any more, `remove_signal_handler` of uvloop does nothing and returns False, and `close`
# does not undo the handlers either: the closed loop keeps both signals, and nobody ever hears of them.
# One would guess that it is as with asyncio: both undo the handlers, whether the loop runs or not.
# For users of a broker: a program that ran a server on its main thread with asyncio.Runner or run_until_complete, and
# goes on after it, cannot be ended by Ctrl-C or SIGTERM from then on; only SIGKILL ends it.
# Source: seen; https://docs.python.org/3/library/asyncio-eventloop.html#unix-signals describes asyncio's.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet uvloop==0.23.0

cat > "$work/expected" <<'END'
asyncio: removed [True, True], closed: False; afterwards they end the program: [True, True]
asyncio: removed [], closed: True; afterwards they end the program: [True, True]
uvloop: removed [False, False], closed: False; afterwards they end the program: [False, False]
uvloop: removed [], closed: True; afterwards they end the program: [False, False]
END

cat > "$work/signals.py" <<'END'
import asyncio
import signal

import uvloop

SIGNALS = (signal.SIGINT, signal.SIGTERM)
USUAL = (signal.default_int_handler, signal.SIG_DFL)


async def serve():
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, print)


for name, make in (("asyncio", asyncio.new_event_loop), ("uvloop", uvloop.new_event_loop)):
    for closes in (False, True):
        loop = make()
        loop.run_until_complete(serve())
        removed = [] if closes else [loop.remove_signal_handler(number) for number in SIGNALS]
        if closes:
            loop.close()
        ends = [signal.getsignal(number) == usual for number, usual in zip(SIGNALS, USUAL)]
        print(f"{name}: removed {removed}, closed: {closes}; afterwards they end the program: {ends}")
        for number, usual in zip(SIGNALS, USUAL):
            signal.signal(number, usual)
END

"$work/venv/bin/python" "$work/signals.py" > "$work/seen"
diff "$work/expected" "$work/seen"
cat "$work/seen"
