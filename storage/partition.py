"""A partition: what may be appended to it, what has been, and what readers may see.

Appending goes in two steps. `append` judges and stages: offsets are assigned, sequence numbers checked,
nothing is written. `commit` writes all that was staged with one system call and wakes the readers. Between
the two the caller keeps the appended buffers as they are: large batches are written from them without a copy.

A sound v2 batch is stored as the same bytes, save for base offset and leader epoch, which its checksum leaves
out (and, in topics with LogAppendTime or with a wrong latest timestamp, that and the checksum; where a topic
has a codec of its own, it is packed anew). The records inside are looked at, decompressed where need be: what
is stored can be read by every consumer.

Not built yet: transactions. `last_stable_offset` is the high watermark, no transaction index is written.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from odradek.storage.batches import (
    HEADER,
    LOG_OVERHEAD_BYTES,
    PREFIX,
    PREFIX_BYTES,
    SEQUENCE_MAX,
    StoredBatch,
)
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.disk import Buffer
from odradek.storage.group_log import identity_of
from odradek.storage.log import Log
from odradek.storage.producer_state import EXPIRATION_MS
from odradek.storage.retention import segments_to_delete
from odradek.storage.segment import Segment
from odradek.storage.slices import EMPTY, FIRST_TOO_LARGE, Slice
from odradek.storage.staging import Appended, PartitionStaging
from odradek.storage.validation import (
    MAGIC_POSITION,
    check_client_batch,
    check_content,
    check_size,
    in_stored_codec,
    rules_of,
    segment_too_small,
    with_append_time,
)
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import (
    BatchHeader,
    iter_batches,
    read_batch_header,
    records_section,
    scan_records,
    verify_crc,
)
from odradek.wire.work import Work

if TYPE_CHECKING:
    from odradek.storage.cleaner import Plan

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_HEADER = HEADER.unpack_from
_PREFIX_PACK = PREFIX.pack
ZERO_UUID = bytes(16)
CODEC_MASK = 0b111
QUICK_BATCH_BYTES_MAX = 16_384
"""Up to here it costs less to look through a batch than to have another thread do it."""
PRODUCER_EXPIRY_INTERVAL_MS = 600_000
"""`producer.id.expiration.check.interval.ms`"""


class Origin(Enum):
    """Who appends: clients are checked in everything, coordinators own what they write, leaders assigned
    offsets.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


@dataclass(slots=True)
class ReadResult:
    """`aborted` is for READ_COMMITTED: (producer id, first offset) of each aborted transaction in the
    range; None where the first batch was over the limit, as Kafka says null there.
    """

    records: Slice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None = None


class Partition(PartitionStaging):
    """See the module. One thread owns it; `flush` alone may run in another."""

    __slots__ = (
        "_dropped_staged",
        "_identity",
        "_last_expiry_ms",
        "_rules",
        "config",
        "index",
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
        self._identity: bytes | None = None
        self.log = log
        self.leader_epoch = leader_epoch
        self.log_start_offset = log_start_offset
        self.high_watermark = log.log_end_offset
        self._watchers = {}
        self._failure: str | None = None
        # Deleted or closed with something staged: its commit has to fail.
        self._dropped_staged = False
        self._last_expiry_ms = 0
        self.set_config(config)
        self._check_order()

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index} [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

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
        # What is to be packed anew does not go the short way either: that takes uncompressed batches alone.
        self._inspects_records = (
            config.is_compacted
            or config.message_timestamp_before_max_ms < LONG_MAX
            or config.codec not in (None, Compression.NONE)
        )
        self._log_append_time = config.uses_log_append_time
        self._rules = rules_of(config)
        self._size_bytes_max = min(config.max_message_bytes, config.segment_bytes)
        self._ahead_ms_max = config.message_timestamp_after_max_ms
        self._flush_messages = config.flush_messages
        self.log.set_config(config)

    def _check_order(self) -> None:
        assert (
            0
            <= self.log_start_offset
            <= self.last_stable_offset
            <= self.high_watermark
            <= self.log_end_offset
        ), f"{self!r}: high watermark {self.high_watermark}"

    # Appending

    def append(
        self, records: Buffer, *, now_ms: int, origin: Origin = Origin.CLIENT, magic_limit: int = 2
    ) -> Appended:
        """Judge `records` and stage them. Nothing is staged when this raises `KafkaError`.

        `magic_limit` is the record format of the request: 0 in Produce 0 and 1, 1 in Produce 2, else 2. Below
        2 message sets of the old formats are converted; at 2 exactly one batch v2 is expected of a client.
        """
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)
        if type(records) is not memoryview:
            records = memoryview(records)
        if origin is not Origin.CLIENT or magic_limit < 2:
            return self._append_many(records, now_ms, origin, magic_limit)
        appended = self.append_ordinary(records, 0, len(records), now_ms)
        if appended is not None:
            return appended
        records = check_client_batch(records, self.config, self._rules, now_ms, self.name)
        size_bytes = len(records)
        (
            _, length, _, _, _, _, last_offset_delta, _, max_timestamp, producer_id, producer_epoch,
            base_sequence, _,
        ) = _HEADER(records)  # fmt: skip
        if self._log_append_time:
            records, max_timestamp = with_append_time(records, now_ms), now_ms
        log = self.log
        first_offset = log.next_offset
        last_offset = first_offset + last_offset_delta
        if producer_id >= 0:
            last_sequence = base_sequence + last_offset_delta
            if last_sequence > SEQUENCE_MAX:
                last_sequence -= SEQUENCE_MAX + 1
            known = log.producers.check(producer_id, producer_epoch, base_sequence, last_sequence)
            if known is not None:
                return self._duplicate(known)
        leader_epoch = self.leader_epoch
        parts = (_PREFIX_PACK(first_offset, length, leader_epoch), records[PREFIX_BYTES:])
        log.stage(parts, size_bytes, first_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        if producer_id >= 0:
            # After the log, which may have rolled: its snapshot is of what came before this batch.
            log.producers.stage(
                producer_id,
                producer_epoch,
                base_sequence,
                last_sequence,
                first_offset,
                last_offset,
                max_timestamp,
            )
        return Appended(
            first_offset,
            last_offset,
            now_ms if self._log_append_time else -1,
            self.log_start_offset,
            False,
            last_offset - log.durable_offset >= self._flush_messages - 1,
        )

    def _duplicate(self, known: tuple[int, int, int, int, int]) -> Appended:
        log = self.log
        _, _, first_offset, last_offset, timestamp = known
        return Appended(
            first_offset,
            last_offset,
            timestamp,  # Kafka tells it here, whatever the topic's timestamp type
            self.log_start_offset,
            True,
            last_offset >= log.durable_offset
            and log.next_offset - log.durable_offset >= self._flush_messages,
        )

    def _append_many(self, records: memoryview, now_ms: int, origin: Origin, magic_limit: int) -> Appended:
        """Old formats, and what coordinators and leaders append: any number of batches, all or none."""
        config = self.config
        if magic_limit < 2 and len(records) == 0:
            # An old client's empty message set is nothing to append, and no error in Kafka either.
            return Appended(-1, -1, -1, self.log_start_offset, False, False)
        if magic_limit < 2 and len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < 2:
            batches = self._converted(records, now_ms)
        else:
            batches = [(records[at : at + header.size_bytes], header) for at, header in iter_batches(records)]
            if not batches:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"No records came for {self.name}.")
            if origin is Origin.CLIENT and len(batches) > 1:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"More than one record batch came for {self.name}."
                )
            batches = [self._checked(batch, header, origin, now_ms) for batch, header in batches]
        size_bytes = sum(len(batch) for batch, _ in batches)
        if size_bytes > config.segment_bytes:
            raise segment_too_small(size_bytes, config, self.name)
        if origin is Origin.CLIENT and len(batches) == 1 and batches[0][1].producer_id >= 0:
            header = batches[0][1]
            known = self.log.producers.check(
                header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
            )
            if known is not None:
                return self._duplicate(known)
        return self._stage_many(batches, now_ms, origin)

    def _converted(self, records: memoryview, now_ms: int) -> list[tuple[memoryview, BatchHeader]]:
        """A message set of format 0 or 1, checked, as batches v2."""
        from odradek.wire.legacy_records import to_v2  # only the oldest clients pay for it

        config = self.config
        check_size(len(records), config, self.name)
        converted = to_v2(
            records, now_ms=now_ms, rules=self._rules, compression=config.codec, level=config.codec_level
        )
        batches = [memoryview(batch) for batch in converted]
        for batch in batches:
            check_size(len(batch), config, self.name)
        return [(batch, read_batch_header(batch)) for batch in batches]

    def _checked(
        self, batch: memoryview, header: BatchHeader, origin: Origin, now_ms: int
    ) -> tuple[memoryview, BatchHeader]:
        if origin is Origin.REPLICATION:
            verify_crc(batch, 0, header)
            return batch, header
        check_size(header.size_bytes, self.config, self.name)
        verify_crc(batch, 0, header)
        if origin is Origin.CLIENT:
            batch = check_content(batch, header, self._rules, now_ms)
        elif header.producer_id >= 0:
            self.log.producers.check_epoch(header.producer_id, header.producer_epoch)
        if header.is_control:
            return batch, header
        stored = in_stored_codec(batch, header, self.config, self.name)
        return stored, header if stored is batch else read_batch_header(stored)

    def _stage_many(
        self, batches: list[tuple[memoryview, BatchHeader]], now_ms: int, origin: Origin
    ) -> Appended:
        log = self.log
        if origin is Origin.REPLICATION:
            self._check_replicated_offsets(batches)
        stamps = self._log_append_time and origin is not Origin.REPLICATION
        base_offset = log.next_offset
        for batch, header in batches:
            first_offset = header.base_offset if origin is Origin.REPLICATION else log.next_offset
            leader_epoch = header.leader_epoch if origin is Origin.REPLICATION else self.leader_epoch
            max_timestamp = header.max_timestamp
            if stamps:
                batch, max_timestamp = with_append_time(batch, now_ms), now_ms
            last_offset = first_offset + header.last_offset_delta
            prefix = _PREFIX_PACK(first_offset, header.size_bytes - LOG_OVERHEAD_BYTES, leader_epoch)
            log.stage(
                (prefix, batch[PREFIX_BYTES:]),
                header.size_bytes,
                first_offset,
                last_offset,
                max_timestamp,
                leader_epoch,
                now_ms,
            )
            if header.producer_id >= 0 and not header.is_control:
                log.producers.stage(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    first_offset,
                    last_offset,
                    max_timestamp,
                )
        return Appended(
            base_offset,
            log.next_offset - 1,
            now_ms if stamps else -1,
            self.log_start_offset,
            False,
            log.next_offset - log.durable_offset >= self.config.flush_messages,
        )

    def _check_replicated_offsets(self, batches: list[tuple[memoryview, BatchHeader]]) -> None:
        expected = self.log.next_offset
        for _, header in batches:
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self.name} cannot append offset {header.base_offset} after {expected - 1}.",
                )
            expected = header.last_offset + 1

    def _commit_whole(self) -> None:
        """`commit`, with all that it may have to do."""
        log = self.log
        if log.next_offset == log.log_end_offset:
            if self._dropped_staged:
                self._dropped_staged = False
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)
            return
        try:
            log.commit()
        except OSError as error:
            self._commit_failed(error)
        end_offset = log.log_end_offset
        self.high_watermark = end_offset
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= end_offset
        if self._watchers:
            self._wake()

    def _commit_failed(self, error: OSError) -> NoReturn:
        self.log.rollback()
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"Writing {self.log.directory} failed: {error}"
        ) from error

    def flush(self) -> None:
        """Return when everything committed so far will survive a loss of power. May run in a worker thread,
        but in one thread at a time.

        After a failed flush nobody knows what the disk has: the partition answers KAFKA_STORAGE_ERROR
        from then on, until the next start has looked.
        """
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)
        try:
            self.log.flush()
        except OSError as error:
            # Not `take_offline`: waking is for the thread that owns the partition.
            self._failure = f"Flushing {self.log.directory} failed: {error}. The broker has to be restarted."
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure) from error

    @property
    def directory(self) -> str:
        return self.log.directory

    @property
    def identity(self) -> bytes:
        """How the group log names it; empty when nothing on the disk says whose partition it is."""
        if self._identity is None:
            self._identity = b"" if self.topic_id == ZERO_UUID else identity_of(self.topic_id, self.name)
        return self._identity

    def adopt(self, topic_id: bytes) -> None:
        """It belongs to that topic; `partition.metadata` says so."""
        self.topic_id = topic_id
        self._identity = None
        self.log.forget_vouched()

    @property
    def is_deleted(self) -> bool:
        return self.log.active.deleted

    # Life of the log

    def maintain(self, now_ms: int, producer_expiration_ms: int = EXPIRATION_MS) -> list[Segment]:
        """Roll by time, apply retention, forget old producers. Returns segments to remove from the disk
        in a while.
        """
        log = self.log
        if log.has_staged:
            return []
        if log.should_roll(now_ms):
            log.roll(now_ms)
        if now_ms - self._last_expiry_ms >= PRODUCER_EXPIRY_INTERVAL_MS:
            self._last_expiry_ms = now_ms
            log.producers.expire(now_ms, producer_expiration_ms)
        return self._apply_retention(now_ms)

    def _apply_retention(self, now_ms: int) -> list[Segment]:
        log = self.log
        count = segments_to_delete(
            log.facts(),
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        if count == 0:
            return []
        dropped = log.drop_segments(count, now_ms)
        if log.segments[0].base_offset > self.log_start_offset:
            self._start_at(log.segments[0].base_offset)
        return dropped

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self.log.leader_epochs.truncate_start(offset)
        self._check_order()

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset` (-1: the high watermark); returns where it starts now.

        Segments before it go with the next `maintain`. Refuses with OFFSET_OUT_OF_RANGE what is after the
        high watermark, with POLICY_VIOLATION in topics that are compacted only.
        """
        if not self.config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.name} are compacted; its cleanup.policy has no delete.",
            )
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at {self.high_watermark}; {offset} is not in it.",
            )
        if offset > self.log_start_offset:
            self._start_at(offset)
        return self.log_start_offset

    def plan_cleaning(self, now_ms: int, first_dirty: int) -> "Plan | None":
        """Whether this log is due for compaction; `first_dirty` is how far it has been compacted."""
        if not self.config.is_compacted or self._failure is not None:
            return None
        from odradek.storage.cleaner import plan_log  # not needed to start

        return plan_log(
            self.log,
            first_dirty=first_dirty,
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            now_ms=now_ms,
        )

    def wants_flush(self, now_ms: int) -> bool:
        """Whether sealed segments are not on the disk yet, or records have waited for `flush.ms`."""
        log = self.log
        if log.has_unsafe_indexes:
            return True
        if log.recovery_point >= log.log_end_offset:
            return False
        if log.recovery_point < log.active.base_offset:
            return True
        return (
            log.durable_offset < log.log_end_offset and log.unflushed_for_ms(now_ms) >= self.config.flush_ms
        )

    def close(self) -> None:
        """Flush and close; see `Log.close`. What is staged is forgotten. Watchers are woken."""
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)
        self._failure = f"{self.name} is closed."
        self._dropped_staged = self.log.has_staged
        self.log.close()
        self._wake()

    def take_offline(self, reason: str) -> None:
        """The files are not what we believe: answer KAFKA_STORAGE_ERROR to appends until the next start."""
        self._failure = f"{reason} The broker has to be restarted."
        self._wake()

    def moved_to_deletion(self, directory: str) -> None:
        """The partition's directory is now `directory` and will soon be gone: refuse appends, wake the
        watchers.
        """
        self._failure = f"{self.name} has been deleted."
        self._dropped_staged = self.log.has_staged
        self.log.rollback()
        self.log.move_to(directory)
        self._wake()

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: int = READ_UNCOMMITTED,
        minimum_one_batch: bool = True,
        cut_first_batch: bool = False,
    ) -> ReadResult:
        """`max_bytes` of a segment, beginning with the batch that holds `offset`; fewer where it ends.

        As in Kafka the last batch is cut off where the limit is: `wire.records.iter_whole_batches` is for
        who cannot use that. The first one comes whole or not at all: with `minimum_one_batch` even when it
        alone is larger than the limit (KIP-74). `cut_first_batch` cuts that one, too: before Fetch 3 the
        limit was hard. At the end the records are `EMPTY`. Refuses with OFFSET_OUT_OF_RANGE what is before
        the log's start or after its end, and a limit below zero with UNKNOWN_SERVER_ERROR, as Kafka does.
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
        elif max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{max_bytes} bytes cannot be read.")
        else:
            try:
                records = log.read(offset, end_offset, max_bytes, minimum_one_batch, cut_first_batch)
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"Reading {log.directory} failed: {error}"
                ) from error
        return ReadResult(
            records,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            None if isolation == READ_UNCOMMITTED or records is FIRST_TOO_LARGE else [],
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not after `epoch`; (-1, -1) when it is unknown
        (KIP-101, KIP-279).
        """
        return self.log.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def finding_timestamp(self, timestamp_ms: int) -> Work[tuple[int, int, int] | None]:
        """(timestamp, offset, leader epoch) of the first record with `timestamp_ms` or later; None when there
        is none.

        Only what READ_UNCOMMITTED sees is looked at. Refuses with KAFKA_STORAGE_ERROR when the disk does
        not answer.
        """
        with self._reading():
            start_offset = self.log_start_offset
            while True:
                found = yield from self.log.finding_timestamp(timestamp_ms, start_offset)
                if found is None:
                    return None
                segment, batch = found
                look = partial(_first_record_at, segment, batch, timestamp_ms, start_offset)
                is_quick = batch.size_bytes <= QUICK_BATCH_BYTES_MAX and not batch.attributes & CODEC_MASK
                first = look() if is_quick else (yield look)
                if first is not None:
                    timestamp, offset = first
                    return None if offset >= self.high_watermark else (timestamp, offset, batch.leader_epoch)
                # The header promised more than its records hold: look on behind it.
                start_offset = batch.last_offset + 1

    def finding_max_timestamp(self) -> Work[tuple[int, int, int] | None]:
        """(timestamp, offset, leader epoch) of the first record with the latest timestamp of all; None
        when empty.
        """
        with self._reading():
            latest = -1
            for segment in list(self.log.segments):
                latest = max(latest, segment.latest_timestamp()[0])
                yield None
            return (yield from self.finding_timestamp(latest)) if latest >= 0 else None

    def segments_written(self) -> list[tuple[int, int]]:
        """(base offset, when its file was last written in ms) of every segment.

        Refuses with KAFKA_STORAGE_ERROR when the disk does not answer.
        """
        with self._reading():
            return [(segment.base_offset, segment.modified_ms()) for segment in self.log.segments]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Reading {self.log.directory} failed: {error}"
            ) from error

    # Watching

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the high watermark or the last stable offset moves, or the partition goes
        away.
        """
        self._watchers[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Stop that; no error when it was not watching."""
        self._watchers.pop(wake, None)

    def _wake(self) -> None:
        for wake in tuple(self._watchers):
            wake()


def _first_record_at(
    segment: Segment, batch: StoredBatch, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record in a batch that is neither older nor before `start_offset`. May
    run in a worker thread; of a large batch nothing in it keeps the others from running.
    """
    with segment.pinned() as file:
        data = memoryview(file.read(batch.position, batch.size_bytes))
    header = read_batch_header(data)
    if header.record_count == 0:
        return None  # compaction leaves such batches
    section = records_section(data, header)
    table = scan_records(section, header.record_count, header.base_offset, header.base_timestamp)
    for offset, timestamp in zip(table.offsets, table.timestamps, strict=True):
        if header.uses_log_append_time:
            timestamp = header.max_timestamp
        if timestamp >= timestamp_ms and offset >= start_offset:
            return timestamp, offset
    return None
