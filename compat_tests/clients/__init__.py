"""What every client library can do, said the same way, so that one set of stories serves them all.

An adapter is thin: it drives the unmodified library by its own calls and waits for its own answers.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compat_tests.kit.working import Working

DEADLINE_SECONDS = 45.0
PATIENCE_SECONDS = 300.0
"""A wait for another program that is longer fails: ten times what a quiet machine needs, for a busy one."""
POLL_SECONDS = 0.1
FETCH_BYTES = 1 << 20
"""Of each partition at once, as the clients have it by default."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What a test asks to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = 0
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What a consumer got."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


class Member(Working):
    """A consumer in a group: polls in a thread of its own, commits what it got after each poll."""

    rebalancing: tuple[type[BaseException], ...] = ()
    """What the library raises when a commit comes in the middle of a rebalance."""
    session_timeout_ms = 45_000
    """Without a heartbeat the group waits so long for a member that will not come back."""
    patience_seconds = DEADLINE_SECONDS

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.assigned: frozenset[int] = frozenset()

    def leave(self) -> None:
        """Closes the consumer, which leaves the group; raises what went wrong in its thread."""
        try:
            self.stop()
        finally:
            self.assigned = frozenset()

    def _run(self) -> None:
        self.open()
        commit_pending = False
        while commit_pending or not self._ending.is_set():
            records = self.poll()
            self.records.extend(records)
            self.assigned = self.assignment()
            if records or commit_pending:
                commit_pending = not self.try_commit()
        self.close()

    def try_commit(self) -> bool:
        """Whether the commit got through; in the middle of a rebalance the broker rightly refuses it."""
        try:
            self.commit()
        except self.rebalancing:
            return False
        return True

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def poll(self) -> list[Record]:
        """Records that came within about POLL_SECONDS."""

    @abc.abstractmethod
    def assignment(self) -> frozenset[int]: ...

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


class Client(abc.ABC):
    """One library against one broker. `close` ends what it holds open."""

    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abc.abstractmethod
    def create_topic(self, topic: str, partitions: int) -> None: ...

    @abc.abstractmethod
    def produce(self, topic: str, messages: Sequence[Message], codec: str = "none") -> list[tuple[int, int]]:
        """Produces all with acks=all, waits for every answer; (partition, offset) of each, in their order."""

    @abc.abstractmethod
    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        count: int,
        *,
        fetch_bytes: int = FETCH_BYTES,
        reset: str = "earliest",
    ) -> list[Record]:
        """Assigns the partitions, seeks each to its start, and reads until `count` records came.

        `fetch_bytes` is the client's max.partition.fetch.bytes, `reset` its auto.offset.reset.
        """

    @abc.abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Offset of the first record at that time or later; None when there is none."""

    @abc.abstractmethod
    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...

    @abc.abstractmethod
    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]: ...

    @abc.abstractmethod
    def join(self, group: str, topic: str) -> Member:
        """A started member of the group, reading from the earliest offset where none is committed."""

    def close(self) -> None:  # noqa: B027
        """Nothing to end unless an adapter says so."""


def wait_until(
    claim: Callable[[], bool], what: str, members: Iterable[Member] = (), seconds: float = PATIENCE_SECONDS
) -> None:
    """Returns as soon as `claim` holds; fails with `what` when it still does not after `PATIENCE_SECONDS`, or
    `seconds` where that is more."""
    seconds = max(seconds, PATIENCE_SECONDS)
    deadline = time.monotonic() + seconds
    while not claim():
        for member in members:
            member.raise_failure()
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)
