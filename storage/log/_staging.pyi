"""The compiled parts of storage, each held by a class in Python: staged batches, producers, the append of an
ordinary batch, waits for the high watermark, and the first check of inherited batches."""

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from odradek.storage.log.batches import BatchMemory
from odradek.wire.errors import KafkaError

class Appended:
    """The response to one append. `log_append_time_ms` is -1 unless the topic has LogAppendTime."""

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
    """The end of a partition's active segment that is not flushed."""

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
        """Add the newest batch of this producer; a batch of another epoch removes the earlier ones."""
    def memory(self) -> Any:
        """The values that a batch changes, for `restore`."""
    def restore(self, memory: Any) -> None:
        """Restore the values of `memory`."""

class ProducerTable:
    """The producers of a partition, their transactions, and the undo of staged batches."""

    @property
    def producers(self) -> dict[int, ProducerEntry]: ...
    @property
    def verifications(self) -> dict[int, Any]:
        """Pending verifications of transactions, by producer id."""
    @property
    def open(self) -> dict[int, int]:
        """First offset -> producer id of the open transactions, without those whose marker is staged."""
    undo: list[tuple[int, ProducerEntry | None, Any]]
    """Newest last: (producer id, entry, its memory before); (producer id, entry before, None) if the entry
    was replaced; (producer id, None, None) if there was no entry."""
    @property
    def ended(self) -> list[tuple[int, int]]:
        """The transactions whose marker is staged: first offset, offset of the marker."""
    @property
    def unreplicated(self) -> list[tuple[int, int]]:
        """(first offset, offset of the marker) of transactions whose marker is in the log and not yet on all
        replicas; in the order of the markers."""
    is_replicated: bool
    """Whether there are other replicas: then a marker counts only when all of them have it."""
    order: deque[int] | None
    """The offsets of `open`, ascending; some may not be open any more. None before the first transaction: a
    deque takes more memory than the other fields together."""
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
        """Add a batch; a rollback removes it again."""
    def commit(self) -> None:
        """The staged batches are in the log."""

class SegmentExtent:
    """The numbers of a segment that its parts share and a commit changes."""

    base_offset: int
    size_bytes: int
    """The size of the committed batches."""
    inherited_bytes: int
    """The size of the batches of an earlier run; see `InheritedBatches`."""
    bytes_since_index: int
    first_timestamp_ms: int | None
    """The latest timestamp of the first batch, for rolling by time; None until it is read."""
    max_timestamp_ms: int | None
    """None until it is read; -1 when no batch has a timestamp."""
    max_timestamp_offset: int
    def __init__(self, base_offset: int, size_bytes: int) -> None: ...

class StagedSegment:
    """The bytes that one commit will write to one segment, and the segment's numbers afterwards."""

    segment: Any
    base_offset: int
    parts: list[Any]
    size_bytes: int
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    first_timestamp_ms: int | None
    roll_after_ms: int
    """A record with a later timestamp makes the log roll; below -1: not computed yet."""
    index_room: int
    index_entries: list[tuple[int, int, int, int]]
    """Last offset, position, latest timestamp so far, its offset."""
    snapshot: bytes | None
    def __init__(self, segment: Any, index_room: int) -> None: ...

class AppendBuffer:
    """The staged batches of a log. `log_end_offset` counts committed records, `next_offset` staged ones
    too."""

    log_end_offset: int
    next_offset: int
    durable_offset: int
    segment_bytes: int
    index_interval_bytes: int
    latest_epoch: int
    """The newest leader epoch of a committed or staged batch."""
    stage: StagedSegment
    full_segments: list[StagedSegment]
    """Stages of segments before `stage` that a commit will fill."""
    epochs: list[tuple[int, int]]
    """Leader epochs that begin with a staged batch: (epoch, first offset)."""
    aborted: list[tuple[StagedSegment, Any]]
    """Transactions whose abort is staged, each with the stage of its marker: (stage, transaction)."""
    is_cut_wanted: bool
    """Whether bytes of a failed commit after the segment's size have to be cut first."""
    is_changed: bool
    """Whether a clean stop has files to write."""
    hints: dict[int, tuple[Any, int]]
    older_hints: dict[int, tuple[Any, int]]
    """First offset -> (segment, position) of recent commits, for readers that continue at the end of their
    last read."""
    flushed_position: tuple[Any, int, int] | None
    """The active segment, the end of its bytes that are flushed (to the file or to the flush journal), and
    the flush epoch at the beginning of that flush; None before a flush. A flush runs in a thread of its own,
    and a new epoch could begin between its comparison and its write: so the reader of this field compares the
    epochs."""
    flush_epoch: int
    """Counts the rollbacks and renames of files that an earlier flush may have synced."""
    @property
    def producers(self) -> ProducerTable: ...
    def __init__(self, log_end_offset: int, producers: ProducerTable, durable_offset: int) -> None: ...
    def has_room(self, size_bytes: int, last_offset: int, timestamp: int) -> bool:
        """Whether the newest segment has room for a batch."""
    def put(
        self, batch: Any, first_offset: int, last_offset: int, max_timestamp: int, leader_epoch: int
    ) -> None:
        """Stage a batch for the newest segment, which must have room. A large batch must not change until the
        commit."""
    def committed(self) -> None:
        """All staged batches are in the log."""
    def written_from(self, offset: int, size_bytes_max: int) -> bytes | None:
        """For the watchers of a commit, while they are called: what it has written, if that begins at
        `offset` and is not larger. Else None."""
    def write(self, stage: StagedSegment) -> None:
        """Write the staged batches of one segment. Raises `OSError`."""
    def add_hint(self, segment: Any) -> None:
        """Note the position of the first staged batch, the segment's end, for readers that continue there."""
    def apply(self, stage: StagedSegment) -> None:
        """After the write: update the segment, and prepare the stage for the next commit."""
    def tail(self, size_bytes_max: int) -> Tail | None:
        """The committed bytes that are not flushed; the flush journal may write them instead of a `flush`.
        None if a `flush` is necessary."""
    def note_journaled(self, tail: Tail) -> None:
        """The flush journal has the tail: recovery will restore it."""

class HighWatermark:
    """The offset up to which all replicas in sync have a partition's records, and the requests that wait for
    it."""

    @property
    def offset(self) -> int: ...
    def __init__(self, offset: int) -> None: ...
    def advance(self, offset: int) -> None:
        """Move it to `offset`, if it is before that."""
    def lower(self, offset: int, error: KafkaError) -> None:
        """The log was cut at `offset`: waits for later offsets get the error."""
    def when(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Call `done(None)` once it is at `offset` or later, perhaps at once; `done(error)` if it will not
        reach it."""
    def cancel(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Remove a `when` of that offset."""
    def fail(self, error: KafkaError) -> None:
        """The partition is closed, deleted or offline: all waits get the error."""
    def refuse(self, error: KafkaError | None) -> None:
        """Fail as `fail`; later waits get the error too, until `refuse(None)`."""
    @property
    def is_watched(self) -> bool: ...
    def watch(self, wake: Callable[[], None], at_log_end: bool) -> None: ...
    def unwatch(self, wake: Callable[[], None]) -> None: ...
    def start_moved(self) -> None:
        """The log begins later: those who watch its end are told of that too."""
    def wake(self) -> None:
        """Call all watchers."""

class Traffic:
    """Counts of the writes and reads of clients since a partition was opened here."""

    @property
    def records_in(self) -> int: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def produce_requests(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    @property
    def fetch_requests(self) -> int:
        """Requests that got records."""
    @property
    def failed_produce_requests(self) -> int: ...
    @property
    def failed_fetch_requests(self) -> int: ...
    def wrote(self, records: int, size_bytes: int) -> None:
        """Count one request."""
    def read(self, size_bytes: int) -> None:
        """Records of one request."""
    def refused_produce(self) -> None:
        """An append was refused."""
    def refused_fetch(self) -> None:
        """A read was refused."""

class Appender:
    """The fast append of a partition: stages ordinary batches, and commits them if a write is enough."""

    buffer: AppendBuffer
    log_start_offset: int
    leader_epoch: int
    failure: str | None
    is_replicated: bool
    """Whether there are other replicas: without them the high watermark is the end of the log."""
    inspects_records: bool
    log_append_time: bool
    recompresses: bool
    size_bytes_max: int
    ahead_ms_max: int
    flush_messages: int
    @property
    def high_watermark(self) -> HighWatermark: ...
    @property
    def traffic(self) -> Traffic: ...
    def __init__(
        self,
        buffer: AppendBuffer,
        commit_whole: Callable[[], None],
        commit_failed: Callable[[OSError], NoReturn],
        high_watermark: int | None = None,
    ) -> None:
        """`commit_whole` commits stages that are not plain, `commit_failed` takes all staged batches back and
        raises. `high_watermark` is for a partition with other replicas; None: there are none.
        """
    def commit(self) -> None:
        """Write the staged batches and make them visible to readers.

        After a failure no staged batch remains, in memory or on the disk, and KAFKA_STORAGE_ERROR is raised.
        Later appends may succeed, for example when a full disk has space again.
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
        """Stage the batch `buffer[start:end]`; None, without a change, if it is not ordinary.

        A batch in its producer's open transaction is ordinary, and so is the first batch of a known
        producer's transaction with a valid `verified`. Large batches are written from `buffer`, which must
        not change until the commit. The records of a coordinator's batch, which is in no transaction, are not
        checked.
        """
    def stage_leaders(self, buffer: Any, leader_epoch_max: int) -> int:
        """Stage the whole batches of a leader at the start of `buffer`; returns their size in bytes. Batches
        of a later leader epoch, and all after them, are left out, and so is an incomplete last batch.

        -1, without a change, if one of them is a marker, empty, or wrong. All are checked before the first is
        staged; less than all are staged if the log has to roll.
        """
    def offsets(self) -> tuple[int, int, int]:
        """Log start, log end and high watermark."""
    def survey_leaders(
        self, buffer: Any, start: int, end: int, leader_epoch_max: int
    ) -> tuple[int, int] | None:
        """The size in bytes of the whole batches of a leader at the start of `buffer[start:end]`, and the
        offset after them, if `append_leaders` can take them. Batches of a later leader epoch, and all after
        them, are left out, and so is an incomplete last batch.

        None if there are none, if one of them is a marker, empty, or wrong, if the log has to roll, if
        batches are staged already, or if a flush has to follow.
        """
    def append_leaders(self, buffer: Any, start: int, end: int) -> None:
        """Stage the batches `buffer[start:end]`, as `survey_leaders` has found them, and commit them. They
        keep their bytes, and are written from `buffer`. Raises as `commit`.
        """
    def appended(self, first_offset: int, log_append_time_ms: int) -> Appended:
        """The response for the batches staged from an offset on."""

class Stretch:
    """A range of whole batches that were checked.

    `next_offset` is the lowest offset that the batch at `end` may have; `leader_epoch` is the epoch of the
    batch before `end`, None if it is not known.
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
        """Check more batches, until `end` is not before `until` or a damaged batch follows. To keep the event
        loop free it may stop earlier, after at least one batch."""
