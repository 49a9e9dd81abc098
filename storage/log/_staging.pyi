"""The hot parts of storage, each held by a class in Python: what is staged for a log and what is known of its
producers, the short way of an ordinary batch, who waits for the high watermark, and the first look at what an
earlier run has written."""

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from odradek.storage.log.batches import BatchMemory
from odradek.wire.errors import KafkaError

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
    """The producers of a partition, their transactions, and what takes back the staging of their newest
    batches."""

    @property
    def producers(self) -> dict[int, ProducerEntry]: ...
    @property
    def verifications(self) -> dict[int, Any]:
        """What is being asked about transactions, by producer id."""
    @property
    def open(self) -> dict[int, int]:
        """First offset -> producer id of the open transactions, without those whose end is staged."""
    undo: list[tuple[int, ProducerEntry | None, Any]]
    """Newest last: (producer id, entry, its memory before); (producer id, entry before, None) where there is
    another now; (producer id, None, None) where there was none."""
    @property
    def ended(self) -> list[tuple[int, int]]:
        """The transactions whose end is staged: first offset, offset of the marker."""
    @property
    def unreplicated(self) -> list[tuple[int, int]]:
        """The same of those whose end is in the log and, as far as is known, not on all replicas; in the
        order of the markers."""
    is_replicated: bool
    """Whether there are other replicas, which have to have a marker before it counts."""
    order: deque[int] | None
    """The offsets of `open`, ascending, and among them some that are not open any more. None where no
    transaction has been open: a deque takes more memory than all else here."""
    def __init__(self, producers: dict[int, ProducerEntry] | None) -> None: ...
    def stage(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool = False,
    ) -> None:
        """Remember a batch, until further notice."""
    def commit(self) -> None:
        """What was staged is in the log."""

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

class AppendBuffer:
    """What is staged for a log. `log_end_offset` is committed, `next_offset` counts what is staged too."""

    log_end_offset: int
    next_offset: int
    durable_offset: int
    segment_bytes: int
    index_interval_bytes: int
    latest_epoch: int
    """The newest leader epoch of a batch, be it only staged."""
    stage: StagedSegment
    full_segments: list[StagedSegment]
    """Those before `stage` that a commit will fill."""
    epochs: list[tuple[int, int]]
    """Leader epochs that begin with a staged batch: (epoch, first offset)."""
    aborted: list[tuple[StagedSegment, Any]]
    """Transactions whose abort is staged, each with the stage of its marker: (stage, transaction)."""
    is_cut_wanted: bool
    """A cut that failed: the bytes after a segment's size are a failed commit's and have to go first."""
    is_changed: bool
    """Whether a clean stop has something to write."""
    hints: dict[int, tuple[Any, int]]
    older_hints: dict[int, tuple[Any, int]]
    """Where recent commits begin, for those who read on where they stopped: (segment, position)."""
    flushed_position: tuple[Any, int, int] | None
    """The active segment, how much of it is on the disk, here or in the flush journal, and the flush epoch
    when the flush that found it so began; None before a flush. That one runs in a thread of its own: were it
    to compare and then to write, a new epoch could begin in between, so whoever reads compares."""
    flush_epoch: int
    """How often something has been taken back, or named anew, that a flush may have seen before."""
    @property
    def producers(self) -> ProducerTable: ...
    def __init__(self, log_end_offset: int, producers: ProducerTable, durable_offset: int) -> None: ...
    def has_room(self, size_bytes: int, last_offset: int, timestamp: int) -> bool:
        """Whether a batch goes to the newest segment without a further thought."""
    def put(
        self, batch: Any, first_offset: int, last_offset: int, max_timestamp: int, leader_epoch: int
    ) -> None:
        """Stage a batch for the newest segment, where there has to be room. One that is large must not change
        until the commit."""
    def committed(self) -> None:
        """All that is staged is in the log."""
    def write(self, stage: StagedSegment) -> None:
        """Write what is staged for one segment. Raises `OSError`."""
    def add_hint(self, segment: Any) -> None:
        """The first staged batch will stand at the segment's end: whoever reads on finds it there."""
    def apply(self, stage: StagedSegment) -> None:
        """The bytes are in the file: have the segment know, and get the stage ready for the next commit."""
    def tail(self, size_bytes_max: int) -> Tail | None:
        """What is committed and on no disk; the flush journal may write it down instead of a `flush`. None
        when only a `flush` will do."""
    def note_journaled(self, tail: Tail) -> None:
        """The flush journal has it: recovery will find it, whatever becomes of the files."""

class HighWatermark:
    """Up to where a partition's records are on all replicas that count, and who waits for it to move."""

    @property
    def offset(self) -> int: ...
    def __init__(self, offset: int) -> None: ...
    def advance(self, offset: int) -> None:
        """It is at `offset` now, if it was before it."""
    def lower(self, offset: int, error: KafkaError) -> None:
        """The log ends at `offset` now: who waits for what is after it gets the error."""
    def when(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Call `done(None)` once it is at `offset` or after it, perhaps now; `done(error)` if it will not
        come there."""
    def cancel(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Forget a `when` of that offset."""
    def fail(self, error: KafkaError) -> None:
        """The partition goes away or offline: nobody need wait any more."""
    def refuse(self, error: KafkaError | None) -> None:
        """As `fail`, and who comes later gets the error too, until `refuse(None)`."""
    @property
    def is_watched(self) -> bool: ...
    def watch(self, wake: Callable[[], None], at_log_end: bool) -> None: ...
    def unwatch(self, wake: Callable[[], None]) -> None: ...
    def wake(self) -> None:
        """Have all who watch look again."""

class Appender:
    """The short way of a partition: takes ordinary batches, commits what needs no more than a write."""

    buffer: AppendBuffer
    log_start_offset: int
    leader_epoch: int
    failure: str | None
    is_replicated: bool
    """Whether there are other replicas: if there are none, the high watermark is where the log ends."""
    inspects_records: bool
    log_append_time: bool
    packs_anew: bool
    size_bytes_max: int
    ahead_ms_max: int
    flush_messages: int
    @property
    def high_watermark(self) -> HighWatermark: ...
    def __init__(
        self,
        buffer: AppendBuffer,
        commit_whole: Callable[[], None],
        commit_failed: Callable[[OSError], NoReturn],
        high_watermark: int | None = None,
    ) -> None:
        """`commit_whole` commits what is not plain, `commit_failed` takes all of it back and raises.
        `high_watermark` is for one of several replicas; None means that there are no others.
        """
    def commit(self) -> None:
        """Write what is staged and let readers see it.

        When that fails nothing staged remains, neither here nor on the disk, and KAFKA_STORAGE_ERROR is
        raised for all of it. The next append tries again: a full disk heals when there is room.
        """
    def committed(self) -> None:
        """The log has grown."""
    def append_ordinary(
        self,
        buffer: Any,
        start: int,
        end: int,
        now_ms: int,
        verified: Any = None,
        is_coordinators: bool = False,
    ) -> Appended | None:
        """Stage the batch that is `buffer[start:end]`; None, and nothing done, if it is not ordinary.

        One that goes on in its producer's open transaction is, and so is the first of a known producer's
        transaction when `verified` vouches for it. Large batches are written from `buffer` at the commit,
        which must be as it is until then. Of a coordinator's batch, which is in no transaction, nobody has to
        look at the records.
        """
    def appended(self, first_offset: int, log_append_time_ms: int) -> Appended:
        """The answer for what was staged from an offset on."""

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
