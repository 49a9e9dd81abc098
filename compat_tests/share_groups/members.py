"""Share consumers of several libraries, each in a program of its own that speaks the same lines of text.

The programs are `ShareDriver.java`, `confluent_driver.py` and `polyglot/go/franz_share`.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from compat_tests import reference
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaProgram, Program
from tools import environment

HERE = pathlib.Path(__file__).parent
JAVA = ("4.4.0", "4.3.1", "4.2.1", "4.1.2")
"""The last releases of the lines whose client has share consumers of version 1 of the protocol or later."""
LIBRDKAFKA, FRANZ = "librdkafka", "franz-go"
CONTROLLED = (*JAVA, LIBRDKAFKA)
"""Those that poll, commit and call back when they are told to. franz-go fetches and sends by itself."""
COMMIT_MS = 20_000
POLL_MS = 500
SECONDS = 40.0

ACCEPT, RELEASE, REJECT, RENEW = "ACCEPT", "RELEASE", "REJECT", "RENEW"

_numbers = itertools.count()


class Where(NamedTuple):
    """A record."""

    topic: str
    partition: int
    offset: int


class Delivery(NamedTuple):
    """A record as a consumer got it. `count` is its delivery count."""

    where: Where
    count: int
    key: str
    value: str


class Verdict(NamedTuple):
    """What a callback was told of one acknowledgement. `error` is None if it was taken."""

    where: Where
    error: str | None


def program_of(library: str, bootstrap: str) -> Program:
    """One that is ready to open consumers."""
    if library == LIBRDKAFKA:
        return Program([sys.executable, str(HERE / "confluent_driver.py"), bootstrap])
    if library == FRANZ:
        return Program(
            [str(environment.go_programs(HERE.parent / "polyglot" / "go") / "franz_share"), bootstrap]
        )
    class_path = reference.client_class_path(library)
    return JavaProgram(compile_java(class_path, HERE / "ShareDriver.java"), "ShareDriver", bootstrap)


class ShareMember:
    """One consumer of a program. Raises JavaFailure with what its library says."""

    def __init__(
        self, program: Program, group: str, *topics: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.name = f"member-{next(_numbers)}"
        self._program = program
        pairs = [f"{name}={value}" for name, value in (settings or {}).items()]
        program.ask("open", self.name, group, ",".join(topics), *pairs)

    def poll(self, patience_ms: int = POLL_MS) -> list[Delivery]:
        fields = (line.split("\t") for line in self._program.ask("poll", self.name, patience_ms))
        return [
            Delivery(Where(topic, int(partition), int(offset)), int(count), key, value)
            for topic, partition, offset, count, key, value in fields
        ]

    def poll_until(
        self, count: int, *, each: Callable[[list[Delivery]], object] = lambda _: None
    ) -> list[Delivery]:
        """At least so many records. `each` is called after each poll that brought some."""
        got: list[Delivery] = []
        deadline = time.monotonic() + SECONDS
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} records: {got[-5:]}"
            if more := self.poll():
                got += more
                each(more)
        return got

    def acknowledge(self, deliveries: Iterable[Delivery], kind: str = ACCEPT) -> None:
        self.acknowledge_each((one, kind) for one in deliveries)

    def acknowledge_each(self, pairs: Iterable[tuple[Delivery, str]]) -> None:
        lines = ["\t".join([*map(str, one.where), kind]) for one, kind in pairs]
        self._program.ask("acknowledge", self.name, len(lines), lines=lines)

    def commit(self, patience_ms: int = COMMIT_MS) -> dict[tuple[str, int], str | None]:
        """Waits for the answers; the error of each partition, None if all was taken."""
        fields = (line.split("\t") for line in self._program.ask("commit-sync", self.name, patience_ms))
        return {
            (topic, int(partition)): None if error == "-" else error for topic, partition, error in fields
        }

    def commit_async(self) -> None:
        self._program.ask("commit-async", self.name)

    def told(self) -> list[Verdict]:
        """What the callback was told since the last call."""
        return [_verdict(line) for line in self._program.ask("told", self.name)]

    def told_until(self, count: int) -> list[Verdict]:
        """Polls until the callback knows at least so much; what it polls must be nothing."""
        told: list[Verdict] = self.told()
        deadline = time.monotonic() + SECONDS
        while len(told) < count:
            assert time.monotonic() < deadline, told
            assert self.poll(100) == []
            told += self.told()
        return told

    def wake(self) -> None:
        self._program.ask("wake", self.name)

    def lock_timeout(self) -> str:
        return self._program.ask("lock-timeout", self.name)[0]

    def unsubscribe(self) -> None:
        self._program.ask("unsubscribe", self.name)

    def close(self) -> list[Verdict]:
        """Leaves the group; what the callback was told by the end."""
        return [_verdict(line) for line in self._program.ask("close", self.name, COMMIT_MS)]


def _verdict(line: str) -> Verdict:
    topic, partition, offset, error = line.split("\t")
    return Verdict(Where(topic, int(partition), int(offset)), None if error == "-" else error)
