"""The hot parts of storage: what is staged, the short way of an ordinary batch to it, and the first look at
what an earlier run has written."""

from collections.abc import Callable
from typing import Any

from odradek.storage.log.batches import BatchMemory

class Appended:
    """The answer to one append. `log_append_time_ms` is -1 unless the topic has LogAppendTime."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def is_duplicate(self) -> bool: ...
    @property
    def must_flush(self) -> bool: ...
    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        is_duplicate: bool,
        must_flush: bool,
    ) -> None: ...

class Tail:
    """The end of a partition's active segment that no disk is known to have."""

    @property
    def base_offset(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def end_position(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def content(self) -> bytes: ...
    def __init__(
        self, base_offset: int, position: int, end_position: int, end_offset: int, content: bytes
    ) -> None: ...

class ProducerEntry:
    """One producer; `batches` is oldest first, at most five, all of the current epoch."""

    producer_epoch: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int
    def __init__(
        self,
        producer_epoch: int,
        last_timestamp: int,
        batches: tuple[BatchMemory, ...],
        coordinator_epoch: int = -1,
        current_txn_first_offset: int = -1,
    ) -> None: ...
    @property
    def batches(self) -> tuple[BatchMemory, ...]: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_data_offset(self) -> int: ...
    def remember(self, producer_epoch: int, batch: BatchMemory) -> None:
        """The batch is this producer's newest; one of another epoch makes it forget those before."""
    def memory(self) -> Any:
        """What a batch changes, for `restore`."""
    def restore(self, memory: Any) -> None:
        """As it was when `memory` was taken."""

class ProducerTable:
    """The producers of a partition, and what takes back the staging of their newest batches."""

    producers: dict[int, ProducerEntry]
    _verifications: dict[int, Any]
    """What is being asked about transactions, by producer id."""
    _undo: list[tuple[int, ProducerEntry | None, Any]]
    """Newest last: (producer id, entry, its memory before); (producer id, entry before, None) where there is
    another now; (producer id, None, None) where there was none."""
    _ended: list[int]
    """First offsets of the transactions whose end is staged."""
    def __init__(self) -> None: ...

class SegmentExtent:
    """The numbers of a segment that its parts share and a commit changes."""

    base_offset: int
    size_bytes: int
    """Of what is committed."""
    inherited_bytes: int
    """Of what an earlier run has left; see `InheritedBatches`."""
    bytes_since_index: int
    first_timestamp_ms: int | None
    """The latest timestamp of the first batch, for rolling by time; None until somebody reads it."""
    max_timestamp_ms: int | None
    """None until somebody reads it; -1 when no batch has a timestamp."""
    max_timestamp_offset: int
    def __init__(self, base_offset: int, size_bytes: int) -> None: ...

class StagedSegment:
    """What one commit will write to one segment, and what it will then know of it."""

    segment: Any
    base_offset: int
    parts: list[Any]
    size_bytes: int
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    first_timestamp_ms: int | None
    roll_after_ms: int
    """A record later than this makes the log roll; below -1 it has not been worked out."""
    index_room: int
    index_entries: list[tuple[int, int, int, int]]
    """Last offset, position, latest timestamp so far, its offset."""
    snapshot: bytes | None
    def __init__(self, segment: Any, index_room: int) -> None: ...

class LogStaging:
    """The part of a `Log` that staging and committing change or ask."""

    _changed: bool
    _cut_wanted: bool
    _full_segments: list[StagedSegment]
    _hints: dict[int, tuple[Any, int]]
    _older_hints: dict[int, tuple[Any, int]]
    _pending_epochs: list[tuple[int, int]]
    _staged_aborted: list[tuple[Any, Any]]
    """Transactions whose abort is staged, each with the stage of its marker: (stage, transaction)."""
    durable_offset: int
    log_end_offset: int
    _index_interval_bytes: int
    _latest_staged_epoch: int
    _segment_bytes: int
    _stage: StagedSegment
    _flushed_position: tuple[Any, int, int] | None
    """The active segment, how much of it is on the disk, here or in the flush journal, and the flush epoch
    when the flush that found it so began; None before a flush. That one runs in a thread of its own: were it
    to compare and then to write, a new epoch could begin in between, so whoever reads compares."""
    _flush_epoch: int
    """How often something has been taken back, or named anew, that a flush may have seen before."""
    next_offset: int
    producers: Any

class PartitionStaging:
    """The part of a `Partition` that takes ordinary batches."""

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
    def tail(self, size_bytes_max: int) -> Tail | None:
        """What is committed and on no disk; the flush journal may write it down instead of a `flush`. None
        when only a `flush` will do."""
    def note_journaled(self, tail: Tail) -> None:
        """The flush journal has it: recovery will find it, whatever becomes of the files."""
    def append_own(self, buffer: Any, now_ms: int) -> Appended | None:
        """`append_ordinary` of a batch of no transaction that a coordinator has made, whose records nobody
        has to look at."""
    def stage_own(self, batch: bytes, timestamp: int) -> bool:
        """Stage a batch of one record that was made here and judged; it gets the next offset. False, and
        nothing done, where there is more to it than that."""
    def append_ordinary(
        self, buffer: memoryview, start: int, end: int, now_ms: int, verified: Any = None
    ) -> Appended | None:
        """Stage the batch that is `buffer[start:end]`; None, and nothing done, if it is not ordinary.

        One that goes on in its producer's open transaction is, and so is the first of a known producer's
        transaction when `verified` vouches for it. Large batches are written from `buffer` at the commit,
        which must be as it is until then.
        """

class Stretch:
    """Whole batches that follow each other, as far as that has been looked at.

    `next_offset` is the least offset that the batch at `end` may have; `leader_epoch` that of the one before
    it, None when it is not known.
    """

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int | None: ...
    def __init__(self, start: int, end: int, next_offset: int, leader_epoch: int | None = None) -> None: ...
    def extend(
        self, read: Callable[[int, int], bytes], until: int, size_bytes: int, limit_offset: int
    ) -> None:
        """Look on until `end` is not before `until`, or in front of a batch that is damaged. Others wait, so
        it may end sooner, but not where it began."""
