"""A program that consumes, transforms and produces in transactions, and dies where it is told to.

    python -m compat_tests.transactions.loop LIBRARY BOOTSTRAP NAME INPUT OUTPUT PARTITIONS [PHASE]

It takes over the transactional id NAME, reads on where the group NAME has committed, and copies each value
with `done ` before it to the same partition of OUTPUT, a few a transaction. In its second transaction it
kills itself at PHASE, one of `PHASES`. Prints `finished` and ends when all partitions are read to their end.
"""

from __future__ import annotations

import os
import signal
import sys

from compat_tests.kit import telling
from compat_tests.transactions import libraries

PHASES = ("before-begin", "after-begin", "after-produce", "after-offsets", "after-commit")
"""Where it may die; in the commit itself it is killed from outside."""
DONE = b"done "


def run(
    library: str, bootstrap: str, name: str, source: str, target: str, partitions: int, die_at: str | None
) -> None:
    parts = libraries.load(library)
    producer = parts.producer(bootstrap, name)
    producer.open()
    # Only now is it known where the group stands: what another had begun is over.
    consumer = parts.source(bootstrap, name, [(source, number) for number in range(partitions)])
    count = 0

    def reached(phase: str) -> None:
        if count == 2 and phase == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    while (polled := consumer.poll()) is not None:
        (_, number), values, offset = polled
        count += 1
        reached("before-begin")
        producer.begin()
        reached("after-begin")
        for value in values:
            producer.send((target, number), DONE + value)
        producer.flush()
        reached("after-produce")
        producer.send_offsets(name, {(source, number): offset})
        reached("after-offsets")
        producer.commit()
        reached("after-commit")


def main(arguments: list[str]) -> None:
    library, bootstrap, name, source, target, partitions, *die_at = arguments

    def work() -> None:
        run(library, bootstrap, name, source, target, int(partitions), die_at[0] if die_at else None)
        print("finished")

    telling.end_with(work)


if __name__ == "__main__":
    main(sys.argv[1:])
