"""A partition: what may be appended to it, what has been, and what readers may see.

Appending goes in two steps. `append` judges and stages: offsets are assigned, sequence numbers checked, nothing is
written. `commit` writes all that was staged with one system call and wakes the readers. Between the two the caller
keeps the appended buffers as they are: large batches are written from them without a copy.

A sound v2 batch is stored as the same bytes, save for base offset and leader epoch, which its checksum leaves out
(and, in topics with LogAppendTime, timestamp and checksum). Of the records inside only those are looked at that a
promise needs: compacted topics (no null keys), `message.timestamp.before.max.ms`, batches of one record (their
framing), old formats. The header's latest timestamp stands for those of all records of a larger batch.

Not built yet: transactions. `last_stable_offset` is the high watermark, no transaction index is written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from crc32c import crc32c

from odradek.storage import batches as layout
from odradek.storage.batches import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, PREFIX, PREFIX_BYTES, SEQUENCE_MAX
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.disk import Buffer
from odradek.storage.log import Log
from odradek.storage.slices import EMPTY, Slice
from odradek.storage.validation import check_client_batch, check_legacy, rewritten_with_append_time
from odradek.wire.errors import ErrorCode, KafkaError

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_HEADER_UNPACK = HEADER.unpack_from
_PREFIX_PACK = PREFIX.pack
_EXTRAORDINARY = ~layout.COMPRESSION_MASK
ZERO_UUID = bytes(16)


class Origin(Enum):
    """Who appends: clients are checked in everything, coordinators own what they write, leaders assigned offsets."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Appended:
    """The answer to one append. `log_append_time_ms` is -1 unless the topic has LogAppendTime."""

    __slots__ = ("base_offset", "is_duplicate", "last_offset", "log_append_time_ms", "log_start_offset", "must_flush")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        is_duplicate: bool,
        must_flush: bool,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate
        self.must_flush = must_flush

    def __repr__(self) -> str:
        return f"Appended({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


@dataclass(slots=True)
class ReadResult:
    """`aborted` is for READ_COMMITTED: (producer id, first offset) of each aborted transaction in the range."""

    records: Slice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None = None


class Partition:
    """See the module. One thread owns it; `flush` alone may run in another."""

    __slots__ = (
        "_failure",
        "_inspects_records",
        "_log_append_time",
        "_watchers",
        "config",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        config: LogConfig,
        log: Log,
        *,
        log_start_offset: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.log_start_offset = log_start_offset
        self.high_watermark = log.log_end_offset
        self._watchers: dict[Callable[[], None], None] = {}
        self._failure: str | None = None
        self.set_config(config)
        self._check_order()

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index} [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record. What is staged does not count."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where READ_COMMITTED ends: the high watermark, as long as there are no transactions."""
        return self.high_watermark

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def is_available(self) -> bool:
        return self._failure is None

    def set_config(self, config: LogConfig) -> None:
        """Take new topic settings, from the next append on."""
        self.config = config
        self._inspects_records = config.is_compacted or config.message_timestamp_before_max_ms < LONG_MAX
        self._log_append_time = config.uses_log_append_time
        self.log.set_config(config)

    def _check_order(self) -> None:
        assert 0 <= self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= self.log_end_offset, (
            f"{self!r}: high watermark {self.high_watermark}"
        )

    # Appending

    def append(
        self,
        records: Buffer,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        magic_limit: int = 2,
    ) -> Appended:
        """Judge `records` and stage them. Nothing is staged when this raises `KafkaError`.

        `magic_limit` is the record format of the request's version (Produce 0 and 1: 0; 2: 1; from 3 on: 2). Below 2
        message sets of the old formats are taken and converted; at 2 exactly one batch v2 is expected of a client.
        """
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)
        if type(records) is not memoryview:
            records = memoryview(records)
        if origin is not Origin.CLIENT or magic_limit < 2:
            return self._append_many(records, now_ms, origin, magic_limit)
        size_bytes = len(records)
        if size_bytes < HEADER_BYTES:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{size_bytes} bytes are too few for a record batch.")
        header = _HEADER_UNPACK(records)
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            last_offset_delta,
            _,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        ) = header
        # Everything at once that is true of an ordinary batch; what is not goes to where each thing is told apart.
        if (
            length != size_bytes - LOG_OVERHEAD_BYTES
            or magic != 2
            or base_offset
            or attributes & _EXTRAORDINARY
            or attributes > 4
            or record_count != last_offset_delta + 1
            or record_count < 2
            or size_bytes > self.config.max_message_bytes
            or size_bytes > self.config.segment_bytes
            or max_timestamp - now_ms > self.config.message_timestamp_after_max_ms
            or self._inspects_records
            or crc32c(records[21:]) != crc
        ):
            check_client_batch(records, header, self.config, now_ms, f"{self.topic}-{self.index}")
        if self._log_append_time:
            records, max_timestamp = rewritten_with_append_time(records, now_ms), now_ms
        log = self.log
        first_offset = log.next_offset
        last_offset = first_offset + last_offset_delta
        if producer_id >= 0:
            if base_sequence < 0:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"Producer {producer_id} sent the sequence number {base_sequence}."
                )
            last_sequence = base_sequence + last_offset_delta
            if last_sequence > SEQUENCE_MAX:
                last_sequence -= SEQUENCE_MAX + 1
            known = log.producers.check(producer_id, producer_epoch, base_sequence, last_sequence)
            if known is not None:
                return self._duplicate(known)
            log.producers.stage(
                producer_id, producer_epoch, base_sequence, last_sequence, first_offset, last_offset, max_timestamp
            )
        leader_epoch = self.leader_epoch
        log.stage(
            (_PREFIX_PACK(first_offset, length, leader_epoch), records[16:]),
            size_bytes,
            last_offset,
            max_timestamp,
            leader_epoch,
            now_ms,
        )
        return Appended(
            first_offset,
            last_offset,
            now_ms if self._log_append_time else -1,
            self.log_start_offset,
            False,
            last_offset - log.recovery_point >= self.config.flush_messages - 1,
        )

    def _duplicate(self, known: tuple[int, int, int, int, int]) -> Appended:
        _, _, first_offset, last_offset, timestamp = known
        return Appended(
            first_offset,
            last_offset,
            timestamp if self._log_append_time else -1,
            self.log_start_offset,
            True,
            last_offset >= self.log.recovery_point and self.config.flush_messages <= 1,
        )

    def _append_many(self, records: memoryview, now_ms: int, origin: Origin, magic_limit: int) -> Appended:
        """Old formats, and what coordinators and leaders append: any number of batches, all or none."""
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, check_legacy(records))

    def commit(self) -> None:
        """Write what is staged and let readers see it.

        When that fails nothing staged remains, neither here nor on the disk, and KAFKA_STORAGE_ERROR is raised for
        all of it. The next append tries again: a full disk heals when there is room.
        """
        log = self.log
        if log.next_offset == log.log_end_offset:
            return
        try:
            log.commit()
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Writing {log.directory} failed: {error}") from error
        end_offset = log.log_end_offset
        self.high_watermark = end_offset
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= end_offset
        if self._watchers:
            self._wake()

    def flush(self) -> None:
        """Return when everything committed so far will survive a loss of power. May run in a worker thread.

        After a failed flush nobody knows what the disk has: the partition answers KAFKA_STORAGE_ERROR from then on,
        until the next start has looked.
        """
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)
        try:
            self.log.flush()
        except OSError as error:
            self._failure = f"Flushing {self.log.directory} failed: {error}. The broker has to be restarted."
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure) from error

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: int = READ_UNCOMMITTED,
        minimum_one_batch: bool = True,
    ) -> ReadResult:
        """Whole batches, beginning with the one that holds `offset`, of `max_bytes` at most.

        With `minimum_one_batch` the first one comes even when it alone is larger (KIP-74). At the end the records are
        `EMPTY`. Refuses with OFFSET_OUT_OF_RANGE what is before the log's start or after its end.
        """
        log = self.log
        if offset < self.log_start_offset or offset > log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in the range of {self.topic}-{self.index}: "
                f"[{self.log_start_offset}, {log.log_end_offset}].",
            )
        end_offset = self.high_watermark if isolation == READ_UNCOMMITTED else self.last_stable_offset
        if offset >= end_offset:
            records = EMPTY
        else:
            try:
                records = log.read(offset, end_offset, max_bytes, minimum_one_batch)
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Reading {log.directory} failed: {error}") from error
        return ReadResult(
            records,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            None if isolation == READ_UNCOMMITTED else [],
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not after `epoch`; (-1, -1) when it is unknown (KIP-101, KIP-279)."""
        return self.log.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # Watching

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the high watermark or the last stable offset moves, or the partition goes away."""
        self._watchers[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Stop that; no error when it was not watching."""
        self._watchers.pop(wake, None)

    def _wake(self) -> None:
        for wake in tuple(self._watchers):
            wake()
