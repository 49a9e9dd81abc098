"""Looks at two brokers with the same tool, until both show the same or one deadline is over.

A broker of Kafka takes a change a moment after its controller has answered. So a difference counts only when
it stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

LOOKING = {"--describe", "--list", "describe", "list"}
"""The words of commands that change nothing."""
SECONDS = 20.0
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0


def looks(command: Sequence[str]) -> Iterator[None]:
    """One round for a command that changes something. For one that looks: rounds for `SECONDS`, with pauses
    that grow; the caller leaves at the first round without a difference."""
    yield
    deadline, pause = time.monotonic() + SECONDS, SHORTEST_PAUSE
    while LOOKING.intersection(command) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        yield
