"""A member of a group as a process, so that it can be killed: it consumes, commits, and says what it does.

    python -m compat_tests.groups.member LIBRARY BOOTSTRAP GROUP TOPIC [NAME=VALUE ...]

Names: `assignor` (range, roundrobin, sticky, cooperative-sticky; of the new protocol the broker's uniform or
range), `protocol` (classic, consumer), `instance` (of a static member), `session_ms`. SIGTERM makes it leave.
Prints a line of JSON for each event, in the words of Kafka's VerifiableConsumer, so that one reader does for
both; a record is told before its offset is committed, and a partition's records before it is given away.
"""

from __future__ import annotations

import signal
import sys

from compat_tests.groups.libraries import load
from compat_tests.kit import telling

SETTINGS = {"assignor": "range", "protocol": "classic", "instance": "", "session_ms": "10000"}


def main(arguments: list[str]) -> None:
    library, bootstrap, group, topic, *pairs = arguments
    settings = {**SETTINGS, **dict(pair.split("=", 1) for pair in pairs)}
    telling.keep_the_output_for_events()
    program = load(library)(bootstrap, group, topic, settings)
    signal.signal(signal.SIGTERM, program.stop)
    telling.end_with(program.run)


if __name__ == "__main__":
    main(sys.argv[1:])
