"""Reading a range of a partition: bytes as in the log, with the next request in flight meanwhile.

for records in Fetcher(cluster, "orders", 0, start, end, read_committed=True):
    builder.add(records.buffer, 0, records.aborted)
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from odradek.client.client_error import ClientError, Disconnected, refusal
from odradek.client.cluster import EARLIEST, LATEST, Cluster, Leader, leader_of
from odradek.client.connection import Connection, Pending
from odradek.client.patience import Patience
from odradek.wire.errors import ErrorCode, KafkaError, error_of, is_retriable
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.record_layout import (
    HEADER_SIZE_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
)
from odradek.wire.schema import ZERO_UUID

FETCH_BYTES = 4 << 20
"""The default size of a response; a larger first batch still comes whole."""
WAIT_MS_MAX = 500
"""How long the broker may wait for records before it sends an empty response."""
LOOK_AGAIN_MS = 5_000
"""After this time without a record the leader is looked up again: one that is cut off from the others keeps
what they have, and does not know."""
BY_NAME_VERSION_MAX = 12
"""From Fetch 13 on requests name topics by their ids."""

_OFFSET_AND_SIZE = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LEAST_BYTES = (LOG_OVERHEAD_BYTES + 14, LOG_OVERHEAD_BYTES + 22, HEADER_SIZE_BYTES)
"""By magic: the smallest message of the formats v0 and v1, and the smallest batch."""


class OffsetsGone(ClientError):
    """The log does not hold the offset `wanted`: it begins at `earliest` and ends before `latest`."""

    def __init__(self, topic: str, partition: int, wanted: int, earliest: int, latest: int) -> None:
        super().__init__(
            f"topic {topic}, partition {partition} has no offset {wanted} (any more): its log begins at "
            f"{earliest} and ends before {latest}; records were deleted (retention, DeleteRecords) or the "
            "topic was made anew",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.topic, self.partition = topic, partition
        self.wanted, self.earliest, self.latest = wanted, earliest, latest

    def __reduce__(self) -> Any:
        return type(self), (self.topic, self.partition, self.wanted, self.earliest, self.latest)


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The records of one Fetch: whole batches, from the one with the wanted offset."""

    buffer: memoryview
    """Batches, or messages of the formats v0 and v1; the first may begin before the wanted offset."""
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of the aborted transactions among them; empty without read_committed."""
    next_offset: int
    """The offset after the last record."""
    high_watermark: int


class Fetcher:
    """Iterates `FetchedRecords` of [start, end), once.

    Waits for records that are not readable yet, because the log, or (read_committed) its stable part, ends
    before `end`; ClientError after `patience_ms` without progress. `OffsetsGone` for deleted records.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        read_committed: bool,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._cluster = cluster
        self._target: Leader = leader_of(topic, partition)
        self._position, self._end = start, end
        self._read_committed = read_committed
        self._fetch_bytes = fetch_bytes
        self._patience = Patience(cluster.settings)
        self._next_look_ms = LOOK_AGAIN_MS
        self._under_way: tuple[Connection, Pending] | None = None

    @property
    def position(self) -> int:
        """The offset after the last yielded record."""
        return self._position

    def __iter__(self) -> Iterator[FetchedRecords]:
        while self._position < self._end:
            fetched = self._next()
            if fetched is None:
                continue
            self._position = fetched.next_offset
            self._renew()
            if self._position < self._end:
                self._send_ahead()
            yield fetched
            self._renew()

    def _renew(self) -> None:
        self._patience.renew()
        self._next_look_ms = LOOK_AGAIN_MS

    def _next(self) -> FetchedRecords | None:
        """The next records; None, after a pause, if the same request has to be sent again."""
        try:
            connection, pending = self._under_way or self._send()
            self._under_way = None
            whole = connection.receive(pending)
        except Disconnected as error:
            self._under_way = None
            self._try_again(error)
            return None
        response = self._only(whole)
        code = error_of(whole.error_code or response.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._gone()
        if code != ErrorCode.NONE:
            failure = refusal(f"fetching from {self._target}", code)
            if not is_retriable(code):
                raise failure
            self._try_again(failure)
            return None
        return self._taken(response)

    def _taken(self, response: Any) -> FetchedRecords | None:
        records = response.records if response.records is not None else b""
        try:
            buffer, next_offset = whole_records(memoryview(records))
        except KafkaError as error:
            raise ClientError(
                f"{self._target} answers for offset {self._position} with {error.message}", error.code
            ) from error
        if next_offset <= self._position:
            # The broker has waited already, so no pause is needed.
            waited_ms = self._patience.waited_ms()
            if waited_ms > self._cluster.settings.patience_ms:
                raise self._nothing_there(response)
            if waited_ms > self._next_look_ms:
                self._next_look_ms += LOOK_AGAIN_MS
                self._cluster.failed(self._target, ClientError(f"{self._target} gives nothing"))
            return None
        aborted = response.aborted_transactions if self._read_committed else None
        return FetchedRecords(
            buffer,
            tuple((one.producer_id, one.first_offset) for one in aborted or ()),
            next_offset,
            response.high_watermark,
        )

    def _send_ahead(self) -> None:
        try:
            self._under_way = self._send()
        except Disconnected as error:
            # The fetched records are yielded first; the next step meets the error again and waits.
            self._cluster.failed(self._target, error)

    def _send(self) -> tuple[Connection, Pending]:
        connection = self._cluster.connect(self._target, self._patience)
        topic, partition = self._target.topic, self._target.partition
        topic_id = self._cluster.topic_id(topic)
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=self._cluster.leader_epoch(topic, partition),
            fetch_offset=self._position,
            partition_max_bytes=self._fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=min(WAIT_MS_MAX, self._cluster.settings.request_timeout_ms // 2),
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=int(self._read_committed),
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
        )
        version_max = BY_NAME_VERSION_MAX if topic_id == ZERO_UUID else None
        return connection, connection.send(request, connection.version_of(FetchRequest, version_max))

    def _try_again(self, failure: ClientError) -> None:
        self._cluster.failed(self._target, failure)
        self._patience.pause(f"fetching from {self._target}", failure)

    def _only(self, response: Any) -> Any:
        """The requested partition."""
        index = self._target.partition
        found = [
            one for topic in response.responses for one in topic.partitions if one.partition_index == index
        ]
        if len(found) != 1:
            code = error_of(response.error_code)
            raise ClientError(f"{self._target} answers a Fetch without that partition ({code.name})", code)
        return found[0]

    def _gone(self) -> OffsetsGone:
        key = self._target.topic, self._target.partition
        earliest = self._cluster.list_offsets({key: EARLIEST})[key]
        latest = self._cluster.list_offsets({key: LATEST})[key]
        return OffsetsGone(*key, self._position, earliest, latest)

    def _nothing_there(self, response: Any) -> ClientError:
        seconds = self._cluster.settings.patience_ms / 1000
        what = "its log ends there"
        if self._read_committed and self._position < response.high_watermark:
            what = "a transaction is open from there on, and isolation.level is read_committed"
        return ClientError(
            f"{self._target} gave nothing from offset {self._position} on for {seconds:g} s, where "
            f"records up to {self._end} are wanted: {what}"
        )


def whole_records(buffer: memoryview) -> tuple[memoryview, int]:
    """The whole batches or messages in `buffer`, and the offset after them (-1 if there are none).

    Ends before an incomplete one, and before an impossible size or magic. If the first has such a size or
    magic: KafkaError(CORRUPT_MESSAGE).
    """
    position, next_offset, size_bytes = 0, -1, len(buffer)
    while size_bytes - position > MAGIC_POSITION:
        offset, length = _OFFSET_AND_SIZE.unpack_from(buffer, position)
        magic = buffer[position + MAGIC_POSITION]
        whole_bytes = LOG_OVERHEAD_BYTES + length
        if magic > MAGIC_V2 or whole_bytes < _LEAST_BYTES[magic]:
            if position:
                break
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a batch of {whole_bytes} bytes with the magic {magic}, which no format has",
            )
        if whole_bytes > size_bytes - position:
            break
        if magic == MAGIC_V2:
            offset += _LAST_OFFSET_DELTA.unpack_from(buffer, position + LAST_OFFSET_DELTA_POSITION)[0]
        next_offset = offset + 1
        position += whole_bytes
    return buffer[:position], next_offset
