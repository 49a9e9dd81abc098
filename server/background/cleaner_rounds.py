"""The rounds of the compaction process (`cleaner_process.py`).

It reads rounds from standard input and writes events to standard output, one JSON object a line;
`server/background/cleaner.py` has the other end. It knows directories and segments, no broker, no socket, no
lock: it reads sealed segments and writes `.cleaned` files; the broker puts them in place. It ends when its
input ends, so also with the broker, and removes incomplete files.

In: `{"job": {...}, "bytes_per_second": n}`; for the round under way `{"cancel": token}` and
`{"pace": token, "bytes_per_second": n}`. Out: `{"ready": true}` once, then for each
job, with its token, any number of `group` and at last one of `done`, `failed` and `cancelled`.
"""

from __future__ import annotations

import json
import os
import select
import time
import traceback
from dataclasses import asdict
from typing import Any

from odradek.storage.compaction.run import CleanedGroup, CleaningJob, CleaningOutcome, cleaning_round
from odradek.storage.disk import OsDisk
from odradek.storage.throttle import Throttle
from odradek.wire.errors import KafkaError

_READ_BYTES = 1 << 16


class Orders:
    """Messages of the broker, a line each."""

    def __init__(self, descriptor: int) -> None:
        self.is_over = False
        """The broker has ended, or has no more rounds."""
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._text = b""

    def next(self, patience_s: float | None) -> dict[str, Any] | None:
        """The next order within this time in seconds (None: no limit); None if there is none."""
        deadline_s = None if patience_s is None else time.monotonic() + patience_s
        while not self.is_over:
            line, mark, rest = self._text.partition(b"\n")
            if mark:
                self._text = rest
                order: dict[str, Any] = json.loads(line)
                return order
            left_ms = None if deadline_s is None else max(deadline_s - time.monotonic(), 0) * 1000
            if not self._poll.poll(left_ms):
                return None
            piece = os.read(self._descriptor, _READ_BYTES)
            self._text += piece
            self.is_over = not piece
        return None


class Teller:
    """Sends messages to the broker, a line each. OSError when it has ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, message: dict[str, Any]) -> None:
        text = memoryview(json.dumps(message).encode() + b"\n")
        while text:
            text = text[os.write(self._descriptor, text) :]


class _Cancelled(Exception):
    """The broker cancelled the round."""


def work(order: dict[str, Any], orders: Orders, teller: Teller) -> None:
    """One round, from its order to its last message."""
    job = CleaningJob.from_plain(order["job"])
    about = {"token": job.token}
    begun_s = time.monotonic()
    throttle = Throttle(order["bytes_per_second"], begun_s)
    running = cleaning_round(OsDisk(), job, os.urandom(16))
    try:
        while not orders.is_over:
            event = next(running)
            rest_s = 0.0
            if isinstance(event, CleanedGroup):
                teller.tell({**about, "group": asdict(event)})
            else:
                rest_s = throttle.add(event, time.monotonic())
            _rest(rest_s, job.token, orders, throttle)
    except StopIteration as end:
        outcome: CleaningOutcome = end.value
        teller.tell({**about, "done": asdict(outcome), "seconds": time.monotonic() - begun_s})
    except _Cancelled:
        running.close()
        teller.tell({**about, "cancelled": True})
    except BrokenPipeError:
        return
    except (OSError, KafkaError, MemoryError) as error:
        reason = getattr(error, "message", None) or str(error) or type(error).__name__
        teller.tell({**about, "failed": reason, "errno": getattr(error, "errno", None)})
    except Exception as error:
        traceback.print_exc()
        teller.tell({**about, "failed": f"{type(error).__name__}: {error}", "errno": None})
    finally:
        running.close()


def _rest(rest_s: float, token: str, orders: Orders, throttle: Throttle) -> None:
    """Take orders for this time in seconds; an order that changes the rate makes it longer or shorter."""
    until_s = time.monotonic() + rest_s
    while (order := orders.next(max(until_s - time.monotonic(), 0.0))) is not None:
        if order.get("cancel") == token:
            raise _Cancelled
        if order.get("pace") == token:
            now_s = time.monotonic()
            until_s = now_s + throttle.change(order["bytes_per_second"], now_s)


def serve() -> None:
    """Do rounds until there are no more orders."""
    # Only messages go to the broker's pipe; output of libraries goes to the log.
    messages = os.dup(1)
    os.dup2(2, 1)
    orders, teller = Orders(0), Teller(messages)
    try:
        teller.tell({"ready": True})
        while not orders.is_over:
            order = orders.next(None)
            if order is not None and "job" in order:
                work(order, orders, teller)
    except BrokenPipeError:
        pass
