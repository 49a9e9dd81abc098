"""Reading many partitions at once: what arrives first comes first.

    reader = Reader(cluster, {("orders", 0): (0, 100), ("orders", 1): (7, None)}, read_committed=True)
    for fetched in reader:
        for header, kind, records in batches_of(fetched): ...  # of `stored_records`

One Fetch for all partitions of a broker is under way, also while its last response is used. Partitions take
turns: those that gave records are asked last in the next request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.client.client_error import ClientError, Disconnected, refusal
from odradek.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition, leader_of
from odradek.client.connection import Connection, Pending, answered
from odradek.client.fetching import BY_NAME_VERSION_MAX, FETCH_BYTES, WAIT_MS_MAX, OffsetsGone, whole_records
from odradek.client.patience import Patience
from odradek.wire.errors import ErrorCode, KafkaError, error_of, is_retriable
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.schema import ZERO_UUID

PARTITION_BYTES = 1 << 20
"""Bound of one partition in a response, so that none fills it alone; a larger first batch comes whole."""

Bounds = tuple[int, int | None]
"""The first offset and the one after the last; None: there is no last one."""


class PartitionRecords(NamedTuple):
    """Records of one partition in one response."""

    topic: str
    partition: int
    start: int
    """The offset that was wanted; the first batch may begin before it."""
    end: int | None
    buffer: memoryview
    """Whole batches, or messages of the formats v0 and v1."""
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of the aborted transactions among them; empty without read_committed."""
    next_offset: int


@dataclass(slots=True)
class _Sent:
    connection: Connection
    pending: Pending
    keys: list[TopicPartition]
    names: dict[bytes, str]
    """By topic id, of which newer responses speak."""
    began: float = field(default_factory=time.monotonic)

    def is_overdue(self, timeout_ms: int) -> bool:
        return time.monotonic() > self.began + timeout_ms / 1000


class Reader:
    """Iterates `PartitionRecords` of the partitions, until each has come to its end; without an end for ever.

    ClientError after `patience_ms` in which nothing came that has to come. `skipped(topic, partition, wanted,
    earliest)` is told when records were deleted before they were read; without it that is `OffsetsGone`.
    `refused(topic, partition, error)` is told of a partition that the broker refuses, which is left out then;
    without it that is raised. `partition_bytes` is of one partition in a response, and may be changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        bounds: Mapping[TopicPartition, Bounds],
        *,
        read_committed: bool,
        skipped: Callable[[str, int, int, int], None] | None = None,
        refused: Callable[[str, int, ClientError], None] | None = None,
        partition_bytes: int = PARTITION_BYTES,
    ) -> None:
        self._cluster = cluster
        self._bounds = {
            key: (start, end) for key, (start, end) in bounds.items() if end is None or start < end
        }
        """Bounds that are left to read, in the order of the next request."""
        self._read_committed = read_committed
        self._skipped, self._refuse = skipped, refused
        self.partition_bytes = partition_bytes
        self._under_way: dict[Connection, _Sent] = {}
        self._patience = Patience(cluster.settings)
        self._failure: tuple[str, ClientError] | None = None

    def __iter__(self) -> Iterator[PartitionRecords]:
        while self._bounds:
            self._send_all()
            self._pause_after_failure()
            yield from self._received(self._answered())

    @property
    def is_done(self) -> bool:
        """Whether each partition has come to its end."""
        return not self._bounds

    def poll(self, timeout_s: float) -> Iterator[PartitionRecords]:
        """Records that come within the time, maybe none; for a caller that has other things to do."""
        self._send_all()
        self._pause_after_failure()
        waiting = {connection: sent.pending for connection, sent in self._under_way.items()}
        found = answered(waiting, timeout_s, in_time=True)
        yield from self._received([self._under_way[connection] for connection in found])
        self._check_overdue()

    def _received(self, responses: list[_Sent]) -> Iterator[PartitionRecords]:
        for sent in responses:
            del self._under_way[sent.connection]
            found = self._receive(sent)
            self._send_all()
            yield from found
            if found:
                self._patience.renew()

    # Asking

    def _send_all(self) -> None:
        """To each broker that is not asked yet, for its partitions."""
        asked = {key for sent in self._under_way.values() for key in sent.keys}
        wanted: dict[Connection, list[TopicPartition]] = {}
        for key in [*self._bounds]:
            if key in asked:
                continue
            try:
                connection = self._cluster.connect(leader_of(*key), self._patience)
            except Disconnected as error:
                self._failed(key, error)
                continue
            if connection not in self._under_way:
                wanted.setdefault(connection, []).append(key)
        for connection, keys in wanted.items():
            self._send(connection, keys)

    def _send(self, connection: Connection, keys: list[TopicPartition]) -> None:
        topics: dict[str, FetchTopic] = {}
        for topic, partition in keys:
            one = topics.get(topic)
            if one is None:
                one = FetchTopic(topic=topic, topic_id=self._cluster.topic_id(topic), partitions=[])
                topics[topic] = one
            one.partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=self._cluster.leader_epoch(topic, partition),
                    fetch_offset=self._bounds[topic, partition][0],
                    partition_max_bytes=self._bytes_of_each(len(keys)),
                )
            )
        request = FetchRequest(
            max_wait_ms=min(WAIT_MS_MAX, self._cluster.settings.request_timeout_ms // 2),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(self._read_committed),
            topics=[*topics.values()],
        )
        names = {one.topic_id: one.topic for one in topics.values()}
        try:
            version = connection.version_of(FetchRequest, BY_NAME_VERSION_MAX if ZERO_UUID in names else None)
            pending = connection.send(request, version)
        except Disconnected as error:
            for key in keys:
                self._failed(key, error)
            return
        self._under_way[connection] = _Sent(connection, pending, keys, names)

    def _bytes_of_each(self, partitions: int) -> int:
        is_alone = partitions == 1 and self.partition_bytes == PARTITION_BYTES
        return FETCH_BYTES if is_alone else self.partition_bytes

    def _answered(self) -> list[_Sent]:
        waiting = {connection: sent.pending for connection, sent in self._under_way.items()}
        timeout_s = self._cluster.settings.request_timeout_ms / 1000
        return [self._under_way[connection] for connection in answered(waiting, timeout_s)]

    def _check_overdue(self) -> None:
        """`receive`, which would find out, is not called before there is something to read."""
        for connection, sent in [*self._under_way.items()]:
            if sent.is_overdue(self._cluster.settings.request_timeout_ms):
                connection.close()
                del self._under_way[connection]
                for key in sent.keys:
                    self._failed(key, Disconnected(f"{connection.address} does not answer"))

    # Responses

    def _receive(self, sent: _Sent) -> list[PartitionRecords]:
        try:
            response = sent.connection.receive(sent.pending)
        except Disconnected as error:
            for key in sent.keys:
                self._failed(key, error)
            return []
        if response.error_code != ErrorCode.NONE:
            failure = refusal("Fetch", response.error_code)
            for key in sent.keys:
                self._refused(key, failure)
            return []
        found = []
        for topic in response.responses:
            name = topic.topic or sent.names.get(topic.topic_id, "")
            for one in topic.partitions:
                if (name, one.partition_index) in self._bounds:
                    taken = self._taken((name, one.partition_index), one)
                    found += [taken] if taken is not None else []
        if not found:
            self._check_waiting(sent.keys)
        return found

    def _taken(self, key: TopicPartition, response: Any) -> PartitionRecords | None:
        code = error_of(response.error_code)
        start, end = self._bounds[key]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip(key)
            return None
        if code != ErrorCode.NONE:
            self._refused(key, refusal(f"fetching from {leader_of(*key)}", code))
            return None
        try:
            buffer, next_offset = whole_records(memoryview(response.records or b""))
        except KafkaError as error:
            raise ClientError(
                f"{leader_of(*key)} answers for offset {start} with {error.message}", error.code
            ) from error
        if next_offset <= start:
            return None
        self._move(key, next_offset)
        aborted = (response.aborted_transactions or ()) if self._read_committed else ()
        places = tuple((one.producer_id, one.first_offset) for one in aborted)
        return PartitionRecords(*key, start, end, buffer, places, next_offset)

    def _move(self, key: TopicPartition, offset: int) -> None:
        """The partition is asked last from now on; not any more at its end."""
        _, end = self._bounds.pop(key)
        if end is None or offset < end:
            self._bounds[key] = offset, end

    def _skip(self, key: TopicPartition) -> None:
        """To the first offset that is left."""
        wanted = self._bounds[key][0]
        earliest = self._cluster.list_offsets({key: EARLIEST})[key]
        if self._skipped is None or earliest <= wanted:
            raise OffsetsGone(*key, wanted, earliest, self._cluster.list_offsets({key: LATEST})[key])
        self._skipped(*key, wanted, earliest)
        self._move(key, earliest)

    # Failures

    def _refused(self, key: TopicPartition, failure: ClientError) -> None:
        if failure.code is not None and is_retriable(failure.code):
            self._failed(key, failure)
        elif self._refuse is None:
            raise failure
        else:
            del self._bounds[key]
            self._refuse(*key, failure)

    def _failed(self, key: TopicPartition, failure: ClientError) -> None:
        self._cluster.failed(leader_of(*key), failure)
        self._failure = f"fetching from {leader_of(*key)}", failure

    def _pause_after_failure(self) -> None:
        if self._failure is not None:
            doing, failure = self._failure
            self._failure = None
            self._patience.pause(doing, failure)
            self._send_all()

    def _check_waiting(self, keys: list[TopicPartition]) -> None:
        """Records that are there by `end` have to come; the next ones may take their time."""
        due = [key for key in keys if key in self._bounds and self._bounds[key][1] is not None]
        if not due:
            self._patience.renew()
        elif self._patience.waited_ms() > self._cluster.settings.patience_ms:
            start, end = self._bounds[due[0]]
            raise ClientError(
                f"{leader_of(*due[0])} gave nothing from offset {start} on for "
                f"{self._cluster.settings.patience_ms / 1000:g} s, where records before {end} are wanted"
            )
