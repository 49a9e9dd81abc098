"""Connections and writers as rows for the console.

Connections count their requests and bytes always. While somebody looks, marks are kept of these counts, a
step apart, so that rates are those of the last seconds; and what producers bring is counted by connection and
topic (`Dispatcher.produce_watch`). Both end some time after the last look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from odradek.server.network.connection import Connection
    from odradek.storage.log.partition import Partition
    from odradek.wire.messages.produce import ProduceRequest

ROWS_MAX = 1_000
"""Connections in one response, which takes some milliseconds: those that were used last."""
ENTRIES_MAX = 20_000
"""Pairs of a connection and a topic that are counted; others are not."""
PARTITIONS_MAX = 1_000
"""Partitions that one of these remembers."""


class Counts(NamedTuple):
    """Counters at a time in seconds."""

    at_s: float
    requests: int
    bytes_in: int
    bytes_out: int


@dataclass(slots=True)
class _Writer:
    """Traffic of a connection to a topic since `since_s`."""

    since_s: float
    size_bytes: int = 0
    partitions: set[int] = field(default_factory=set)
    marks: tuple[tuple[float, int], ...] = ()
    """Time and bytes of the last step, and of the one before."""

    def rate(self, now_s: float) -> float:
        """Bytes a second since the older mark."""
        at_s, size_bytes = self.marks[-1] if self.marks else (self.since_s, 0)
        return (self.size_bytes - size_bytes) / max(now_s - at_s, 0.5)


class Watch:
    """A `ProduceWatch`, and the marks of connections; for the event loop. `now_s` is a clock that does not
    jump; `name_of` gives the name of a topic's id, None: there is none."""

    def __init__(self, now_s: Callable[[], float], name_of: Callable[[bytes], str | None]) -> None:
        self._now_s, self._name_of = now_s, name_of
        self.began_s = now_s()
        self._writers: dict[tuple[Connection, str], _Writer] = {}
        self._marks: dict[Connection, tuple[Counts, ...]] = {}

    def saw_batch(self, connection: Connection, partition: Partition, size_bytes: int) -> None:
        self._count(connection, partition.topic, partition.index, size_bytes)

    def saw_request(self, connection: Connection, request: ProduceRequest) -> None:
        for topic in request.topic_data:
            name = topic.name or self._name_of(topic.topic_id)
            if name:
                for one in topic.partition_data:
                    self._count(connection, name, one.index, len(one.records or b""))

    def _count(self, connection: Connection, topic: str, partition: int, size_bytes: int) -> None:
        writer = self._writers.get((connection, topic))
        if writer is None:
            if len(self._writers) >= ENTRIES_MAX:
                return
            writer = self._writers[connection, topic] = _Writer(self._now_s())
        writer.size_bytes += size_bytes
        if len(writer.partitions) < PARTITIONS_MAX:
            writer.partitions.add(partition)

    def step(self, connections: Iterable[Connection]) -> None:
        """Marks the counts of these, and forgets all other connections."""
        now_s = self._now_s()
        before, self._marks = self._marks, {}
        for one in connections:
            self._marks[one] = (_counts(one, now_s), *before.get(one, ())[:1])
        for key in [key for key in self._writers if key[0] not in self._marks]:
            del self._writers[key]
        for writer in self._writers.values():
            writer.marks = ((now_s, writer.size_bytes), *writer.marks[:1])

    # Rows

    def connection_rows(self, connections: Iterable[Connection], now_ms: int) -> list[dict[str, Any]]:
        """A row for each, those that were used last first; at most `ROWS_MAX`."""
        now_s = self._now_s()
        newest = sorted(connections, key=lambda one: -one.requests.active_ms)[:ROWS_MAX]
        return [{**about(one), **self._rates(one, now_s, now_ms)} for one in newest]

    def _rates(self, one: Connection, now_s: float, now_ms: int) -> dict[str, Any]:
        now = _counts(one, now_s)
        marks = self._marks.get(one)
        before = marks[-1] if marks else Counts(now_s - (now_ms - one.connected_ms) / 1000, 0, 0, 0)
        passed_s = max(now.at_s - before.at_s, 0.5)
        return {
            "requests": now.requests,
            "idle_ms": max(0, now_ms - one.requests.active_ms),
            "requests_per_second": (now.requests - before.requests) / passed_s,
            "bytes_in_per_second": (now.bytes_in - before.bytes_in) / passed_s,
            "bytes_out_per_second": (now.bytes_out - before.bytes_out) / passed_s,
        }

    def writer_rows(self, topic: str, connections: Iterable[Connection]) -> list[dict[str, Any]]:
        """A row for each that has written to a topic, as far as that was seen or is remembered."""
        now_s = self._now_s()
        rows = []
        for one in connections:
            writer = self._writers.get((one, topic))
            partitions = {log.index for log in one.requests.remembered_partitions() if log.topic == topic}
            if writer is not None:
                partitions |= writer.partitions
            if partitions:
                rate = 0.0 if writer is None else writer.rate(now_s)
                rows.append({**about(one), "partitions": sorted(partitions), "bytes_per_second": rate})
        return rows[:ROWS_MAX]


def _counts(one: Connection, now_s: float) -> Counts:
    return Counts(now_s, one.requests.count, one.requests.bytes_in, one.responses.bytes_out)


def about(one: Connection) -> dict[str, Any]:
    """The client of a connection."""
    return {
        "client_id": one.requests.client_id,
        "software": one.client_software_name,
        "software_version": one.client_software_version,
        "host": one.peer_host,
        "port": one.peer_port,
        "principal": one.principal,
        "listener": one.listener_name,
        "connected_ms": one.connected_ms,
    }
