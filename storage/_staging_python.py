"""The hot parts of storage in plain Python: what is staged, the short way of an ordinary batch to it, and the
first look at what an earlier run has written.

`_staging.pyx` is the compiled twin: the same names, arguments and results. `append_ordinary` stages one
batch, or returns None when anything about it is not ordinary; then nothing has happened and
`Partition.append` has to judge it. A twin may decline what the other takes: what comes out is the same.
"""

import struct
from collections.abc import Callable
from typing import Any

from odradek.storage.batches import (
    CHECKED_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    PREFIX,
    PREFIX_BYTES,
    SEQUENCE_MAX,
    TRANSACTIONAL,
)
from odradek.wire.checksums import crc32c
from odradek.wire.records import survey_if_sound

_HEADER = HEADER.unpack_from
_PREFIX_PACK = PREFIX.pack

BATCHES_KEPT = 5
"""As many batches of one producer may be in flight (`max.in.flight.requests.per.connection`)."""

# (first sequence, last sequence, first offset, last offset, timestamp)
BatchMemory = tuple[int, int, int, int, int]


class Appended:
    """The answer to one append. `log_append_time_ms` is -1 unless the topic has LogAppendTime."""

    __slots__ = (
        "base_offset",
        "is_duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "must_flush",
    )

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


class Tail:
    """The end of a partition's active segment that no disk is known to have."""

    __slots__ = ("base_offset", "content", "end_offset", "end_position", "position")

    def __init__(
        self, base_offset: int, position: int, end_position: int, end_offset: int, content: bytes
    ) -> None:
        self.base_offset = base_offset
        self.position = position
        self.end_position = end_position
        self.end_offset = end_offset
        self.content = content


class ProducerEntry:
    """One producer; `batches` is oldest first, at most five, all of the current epoch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
    )

    def __init__(
        self,
        producer_epoch: int,
        last_timestamp: int,
        batches: tuple[BatchMemory, ...],
        coordinator_epoch: int = -1,
        current_txn_first_offset: int = -1,
    ) -> None:
        self.producer_epoch = producer_epoch
        self.last_timestamp = last_timestamp
        self.batches = batches
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else -1

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1][3] if self.batches else -1

    def remember(self, producer_epoch: int, batch: BatchMemory) -> None:
        """The batch is this producer's newest; one of another epoch makes it forget those before."""
        batches = self.batches
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = (batch,)
        elif len(batches) < BATCHES_KEPT:
            self.batches = (*batches, batch)
        else:
            self.batches = (*batches[1:], batch)
        self.last_timestamp = batch[4]

    def memory(self) -> Any:
        """What a batch changes, for `restore`."""
        return self.producer_epoch, self.last_timestamp, self.batches, self.current_txn_first_offset

    def restore(self, memory: Any) -> None:
        """As it was when `memory` was taken."""
        self.producer_epoch, self.last_timestamp, self.batches, self.current_txn_first_offset = memory


class ProducerTable:
    """The producers of a partition, and what takes back the staging of their newest batches."""

    __slots__ = ("_ended", "_undo", "_verifications", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        # What is being asked about transactions, by producer id.
        self._verifications: dict[int, Any] = {}
        # Newest last: (producer id, entry, its memory before); (producer id, entry before, None) where there
        # is another now; (producer id, None, None) where there was none.
        self._undo: list[tuple[int, ProducerEntry | None, Any]] = []
        # First offsets of the transactions whose end is staged.
        self._ended: list[int] = []


class SegmentExtent:
    """What of a segment a commit changes."""

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "first_timestamp_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "size_bytes",
    )

    base_offset: int
    bytes_since_index: int
    first_timestamp_ms: int | None
    max_timestamp_ms: int | None
    max_timestamp_offset: int
    size_bytes: int


class StagedSegment:
    """What one commit will write to one segment, and what it will then know of it."""

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "first_timestamp_ms",
        "index_entries",
        "index_room",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "parts",
        "roll_after_ms",
        "segment",
        "size_bytes",
        "snapshot",
    )

    def __init__(self, segment: Any, index_room: int) -> None:
        self.segment = segment
        self.base_offset: int = segment.base_offset
        self.parts: list[Any] = []
        self.size_bytes: int = segment.size_bytes
        self.bytes_since_index: int = segment.bytes_since_index
        self.max_timestamp_ms, self.max_timestamp_offset = segment.latest_timestamp()
        self.first_timestamp_ms: int | None = segment.first_timestamp_ms
        # A record later than this makes the log roll; below -1 it has not been worked out.
        self.roll_after_ms = -2
        self.index_room = index_room
        # (last offset, position, latest timestamp so far, its offset)
        self.index_entries: list[tuple[int, int, int, int]] = []
        self.snapshot: bytes | None = None


class LogStaging:
    """The part of a `Log` that staging and committing change or ask."""

    _changed: bool
    _cut_wanted: bool
    _full_segments: list[StagedSegment]
    _hints: dict[int, tuple[Any, int]]
    _older_hints: dict[int, tuple[Any, int]]
    _pending_epochs: list[tuple[int, int]]
    # Transactions whose abort is staged, each with the stage of its marker: (stage, transaction).
    _staged_aborted: list[tuple[Any, Any]]
    durable_offset: int
    log_end_offset: int
    _index_interval_bytes: int
    _latest_staged_epoch: int
    _segment_bytes: int
    _stage: StagedSegment
    # The active segment, how much of it is on the disk, here or in the group log, and how many doubts there
    # were when the flush that found it so began; None before a flush. That one runs in a thread of its own:
    # were it to compare and then to write, a doubt could come in between, so whoever reads compares.
    _vouched: tuple[Any, int, int] | None
    # How often something has been taken back, or named anew, that a flush may have seen before.
    _doubts: int
    next_offset: int
    producers: Any


class PartitionStaging:
    """The part of a `Partition` that takes ordinary batches."""

    __slots__ = (
        "_ahead_ms_max",
        "_failure",
        "_flush_messages",
        "_inspects_records",
        "_log_append_time",
        "_packs_anew",
        "_size_bytes_max",
        "_watchers",
        "high_watermark",
        "leader_epoch",
        "log",
        "log_start_offset",
    )

    _ahead_ms_max: int
    _failure: str | None
    _flush_messages: int
    _inspects_records: bool
    _log_append_time: bool
    _packs_anew: bool
    _size_bytes_max: int
    leader_epoch: int
    log: Any
    log_start_offset: int
    high_watermark: int
    _watchers: dict[Callable[[], None], None]

    def commit(self) -> None:
        """Write what is staged and let readers see it.

        When that fails nothing staged remains, neither here nor on the disk, and KAFKA_STORAGE_ERROR is
        raised for all of it. The next append tries again: a full disk heals when there is room.
        """
        self._commit_whole()

    def _commit_whole(self) -> None:
        raise NotImplementedError

    def tail(self, size_bytes_max: int) -> Tail | None:
        """What is committed and on no disk; the group log may write it down instead of a `flush`.

        That is as good as long as recovery finds it: all before it is in the partition's files, under names
        that survive. None when only a `flush` will do: a segment is new, it is more than `size_bytes_max`,
        or the partition is out of order.
        """
        log = self.log
        vouched = log._vouched
        segment = log._stage.segment
        if (
            vouched is None
            or vouched[0] is not segment
            or vouched[2] != log._doubts
            or self._failure is not None
        ):
            return None
        position = vouched[1]
        end_position = segment.size_bytes
        size_bytes = end_position - position
        if size_bytes > size_bytes_max:
            return None
        try:
            content = segment.file().read(position, size_bytes)
        except OSError:
            return None  # the flush will say it better
        if len(content) != size_bytes:
            return None
        return Tail(segment.base_offset, position, end_position, log.log_end_offset, content)

    def take_logged(self, tail: Tail) -> None:
        """The group log has it: recovery will find it, whatever becomes of the files."""
        log = self.log
        if tail.end_offset > log.durable_offset:
            log.durable_offset = tail.end_offset
        vouched = log._vouched
        if vouched is not None:
            segment, position, doubts = vouched
            if segment.base_offset == tail.base_offset and position < tail.end_position:
                log._vouched = (segment, tail.end_position, doubts)

    def append_own(self, buffer: Any, now_ms: int) -> Appended | None:
        """`append_ordinary` of what a coordinator has made, whose records nobody has to look at. The compiled
        twin takes a batch of no transaction; here the long way is as short."""
        return None

    def stage_own(self, batch: bytes, timestamp: int) -> bool:
        """Stage a batch of one record that was made here and judged; it gets the next offset. False, and
        nothing done, where there is more to it than that; here always, the long way is as short."""
        return False

    def append_ordinary(
        self, buffer: memoryview, start: int, end: int, now_ms: int, verified: Any = None
    ) -> Appended | None:
        """Stage the batch that is `buffer[start:end]`; None, and nothing done, if it is not ordinary.

        One that goes on in its producer's open transaction is, and so is the first of a known producer's
        transaction when `verified` vouches for it. Large batches are written from `buffer` at the commit,
        which must be as it is until then.
        """
        size_bytes = end - start
        if (
            size_bytes < HEADER_BYTES
            or self._inspects_records
            or self._log_append_time
            or self._failure is not None
        ):
            return None
        (
            base_offset, length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, base_sequence, record_count,
        ) = _HEADER(buffer, start)  # fmt: skip
        if (
            length != size_bytes - LOG_OVERHEAD_BYTES
            or magic != 2
            or base_offset
            or attributes & ~TRANSACTIONAL  # what is compressed has to be looked into; and what is special
            or (producer_id != -1 and (producer_id < 0 or producer_epoch < 0 or base_sequence < 0))
            or record_count != last_offset_delta + 1
            or record_count < 1
            or size_bytes > self._size_bytes_max
            or max_timestamp - now_ms > self._ahead_ms_max
        ):
            return None
        log = self.log
        first_offset = log.next_offset
        last_offset = first_offset + last_offset_delta
        entry = None
        is_first = False
        if producer_id >= 0:
            last_sequence = base_sequence + last_offset_delta
            entry = log.producers.producers.get(producer_id)
            # Of a producer that is not known any sequence will do.
            if last_sequence > SEQUENCE_MAX or (
                entry is not None
                and (
                    entry.producer_epoch != producer_epoch
                    or base_sequence != entry.last_sequence + 1
                    or (entry.current_txn_first_offset >= 0 and not attributes)
                )
            ):
                return None
            is_first = entry is not None and attributes != 0 and entry.current_txn_first_offset < 0
        # The first batch of a transaction needs a yes of its coordinator, and settles what was asked.
        if attributes:
            verification = log.producers._verifications.get(producer_id)
            if entry is None or is_first is (verification is None):
                return None
            if is_first and (
                verified is None
                or verified.verification is not verification
                or (entry.batches and base_sequence > verification.lowest_sequence)
            ):
                return None
        if crc32c(buffer[start + CHECKED_FROM : end]) != crc:
            return None
        survey = survey_if_sound(buffer[start + HEADER_BYTES : end], record_count, base_timestamp)
        if survey is None or survey[1] != max_timestamp:
            return None
        leader_epoch = self.leader_epoch
        parts = (_PREFIX_PACK(first_offset, length, leader_epoch), buffer[start + PREFIX_BYTES : end])
        log.stage(parts, size_bytes, first_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        if producer_id >= 0:
            # After the log, which may have rolled: its snapshot is of what came before this batch.
            batch = (base_sequence, last_sequence, first_offset, last_offset, max_timestamp)
            if entry is None:
                log.producers._undo.append((producer_id, None, None))
                log.producers.producers[producer_id] = ProducerEntry(producer_epoch, max_timestamp, (batch,))
            else:
                log.producers._undo.append((producer_id, entry, entry.memory()))
                entry.remember(producer_epoch, batch)
            if is_first:
                log.producers.open_transaction(producer_id, first_offset)
        return Appended(
            first_offset,
            last_offset,
            -1,
            self.log_start_offset,
            False,
            last_offset - log.durable_offset >= self._flush_messages - 1,
        )


# The first look at what an earlier run has written

_ORDER = struct.Struct(">qiibI2xi30xi").unpack_from
"""Base offset, length, leader epoch, magic, checksum, last offset delta, record count."""
_SMALL_BATCH_BYTES = 4096
_WINDOW_BYTES = 16_384
"""After a small batch so much is read at once; after a larger one the next header alone."""
BATCHES_PER_LOOK = 1000
BYTES_PER_LOOK = 1 << 20
"""Of what is read in a look: by then it has taken half a millisecond, compiled, and one in plain Python."""
READ_COST_BYTES = 4096
"""What a read costs beside its bytes."""


class Stretch:
    """Whole batches that follow each other, as far as that has been looked at.

    `next_offset` is the least offset that the batch at `end` may have; `leader_epoch` that of the one before
    it, None when it is not known.
    """

    __slots__ = ("end", "leader_epoch", "next_offset", "start")

    def __init__(self, start: int, end: int, next_offset: int, leader_epoch: int | None = None) -> None:
        self.start = start
        self.end = end
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch

    def extend(
        self, read: Callable[[int, int], bytes], until: int, size_bytes: int, limit_offset: int
    ) -> None:
        """Look on until `end` is not before `until`, or in front of a batch that is damaged. Others wait, so
        it may end sooner, but not where it began.

        This is about what the checksum leaves out: base offset, length, leader epoch, magic. A batch is taken
        when the one after it is in its place, too: offsets ascend (in the last one to less than
        `limit_offset`), and where some are missing, as in a compacted log, the batch in front of them has the
        right checksum. One whose base offset has grown is found by the next one, which is then too early.
        """
        begin = position = self.end
        next_offset, leader_epoch, crc = self.next_offset, self.leader_epoch, 0
        window, start, window_bytes = b"", 0, _WINDOW_BYTES
        spent_bytes = 0
        for _ in range(BATCHES_PER_LOOK):
            if self.end >= until or (spent_bytes >= BYTES_PER_LOOK and self.end > begin):
                return
            inside = position - start
            if position < size_bytes and inside + HEADER_BYTES > len(window):
                window, start, inside = read(position, min(window_bytes, size_bytes - position)), position, 0
                spent_bytes += READ_COST_BYTES + len(window)
                if len(window) < HEADER_BYTES:
                    return
            if position < size_bytes:
                header = _ORDER(window, inside)
            else:
                header = (limit_offset, 0, leader_epoch, 0, 0, 0, 0)
            base_offset, length, epoch, magic, next_crc, last_offset_delta, record_count = header
            if position > self.end:
                # Between the two is a batch that waits for what follows it.
                if base_offset < next_offset or not _is_between(self.leader_epoch, leader_epoch, epoch):
                    return
                if base_offset > next_offset:
                    spent_bytes += READ_COST_BYTES + position - self.end
                    if not _has_crc(read, self.end, position, crc):
                        return
                self.end, self.next_offset, self.leader_epoch = position, next_offset, leader_epoch
            if (
                position >= size_bytes
                or magic != 2
                or base_offset < next_offset
                or not 0 <= record_count <= last_offset_delta + 1
                or length < HEADER_BYTES - LOG_OVERHEAD_BYTES
                or position + length + LOG_OVERHEAD_BYTES > size_bytes
                or base_offset + last_offset_delta >= limit_offset
            ):
                return
            next_offset, leader_epoch, crc = base_offset + last_offset_delta + 1, epoch, next_crc
            position += length + LOG_OVERHEAD_BYTES
            window_bytes = _WINDOW_BYTES if length < _SMALL_BATCH_BYTES else HEADER_BYTES


def _has_crc(read: Callable[[int, int], bytes], position: int, end: int, crc: int) -> bool:
    content = read(position, end - position)
    return len(content) == end - position and crc32c(memoryview(content)[CHECKED_FROM:]) == crc


def _is_between(before: int | None, epoch: int | None, after: int | None) -> bool:
    """False for an epoch that leaves those of its neighbours, and comes back to them at once."""
    if before is None or epoch is None or after is None or before > after:
        return True
    return before <= epoch <= after
