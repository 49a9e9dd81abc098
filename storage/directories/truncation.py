"""Truncation: a follower removes all records from an offset on, as the leader of a later epoch requires; or
it removes all records, and its log begins again at the leader's log start.

It removes whole batches: the log ends before the batch that holds the offset, and this batch can be fetched
again. (Kafka's log reports an end within the batch, see `LocalLog.truncateTo`.) From its beginning on, staged
and new appends are refused with KAFKA_STORAGE_ERROR, and there are no flushes, retention, compaction or
moves. Readers are served until files are renamed; then they are refused, too. It waits until no flush is
under way, no block of the flush journal is being written and no compaction is swapping segments. A compaction
round over the old segments is abandoned. Copying and reading run in a worker. While the flush journal cannot
take the entry of step 2 the truncation is refused, before any change, and can be tried again.

The order of the steps is safe for a crash at any point:
1. The checkpoints on the disk are lowered to the new end, and the part of the last segment that stays is
   copied. Up to here an error, such as a full disk, is a refusal; later errors take the partition offline.
2. The flush journal gets an entry with the new end, so that a replay does not restore removed records.
3. The later segments are renamed for deletion, the last one first. The copy replaces the segment that holds
   the offset: readers have the old file mapped, and it must not shrink.
4. The log is opened as after a crash: indexes, transaction index, leader epochs and producers are rebuilt.
   The directory is synced, so that no snapshot of removed records comes back.

When all records are removed, nothing is copied, and the checkpoint of log starts gets the new start. The
leader epochs and the producer snapshots are removed before the segments: a crash may leave the old log
without them, and they are rebuilt from its batches. They must not remain beside the new log.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, cast

from odradek.storage.checkpoints import (
    FIRST_DIRTY,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
)
from odradek.storage.config import LONG_MAX
from odradek.storage.directories.places import Place, Places
from odradek.storage.disk import Disk, File, write_all
from odradek.storage.log.flush_journal import FlushJournal
from odradek.storage.log.log import Log
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment import Segment, segment_holding
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import LOG, SNAPSHOT
from odradek.storage.recovery.recovery import Recovered, open_log
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

COPY = ".log.tmp"
"""The next start removes files of this name that a crash left."""
COPIED_BYTES = 4_194_304
"""Bytes copied by one step in the worker."""
RENAMED_PER_STEP = 4


class Cut(NamedTuple):
    """The new end of a log: in the segment at `place`, which keeps the bytes before `position`."""

    place: int
    segment: Segment
    position: int
    end_offset: int

    @property
    def is_within(self) -> bool:
        """Whether that segment loses bytes."""
        return self.position < self.segment.size_bytes


class _Held:
    """A partition whose files are being changed by one operation; it may still be deleted at any time."""

    def __init__(self, places: Places, place: Place, partition: Partition) -> None:
        from odradek.storage.recovery.rescan import DiskWhileHeld  # few brokers ever cut a log

        self.place = place
        self.partition = partition
        self.directory = partition.directory
        self._places = places
        disk = DiskWhileHeld(places.disk, places.gate, lambda: self.is_held)
        self.disk = cast(Disk, disk)
        """The disk for a worker; its calls fail after a deletion."""

    @property
    def is_held(self) -> bool:
        return self._places.place_of(self.partition) is self.place

    def check(self) -> None:
        """Refuse with KAFKA_STORAGE_ERROR if the partition is deleted or offline."""
        availability = self.partition.availability
        if not self.is_held or availability.is_broken or not availability.is_paused:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.partition.failure)


class Truncation:
    """See the module. `is_compacting` returns whether segments of a partition are being swapped now."""

    def __init__(
        self,
        places: Places,
        journals: Callable[[], Sequence[FlushJournal]],
        is_compacting: Callable[[Partition], bool],
        remove_segments: Callable[[Sequence[Segment], int], None],
    ) -> None:
        self._places = places
        self._journals = journals
        self._is_compacting = is_compacting
        self._remove_segments = remove_segments

    def truncating(self, partition: Partition, offset: int) -> Work[bool]:
        """See `LogStore.truncating`."""
        doing = f"Truncating {partition.directory} to offset {offset}"
        with self._holding(partition, doing) as held:
            yield from self._waiting(held)
            partition.availability.refuse_staged()
            if offset >= partition.log_end_offset:
                return False
            self._check_journals(held)
            if offset < partition.log.bases[0]:
                yield from self._restarting(held, offset)
                return True
            cut = find_cut(partition.log, offset)
            _lower_checkpoints(held, cut.end_offset)
            yield held.place.home.write
            if cut.is_within:
                yield from _copying(held, cut.segment, cut.position)
            first_gone = partition.log.segments[cut.place + 1 :]
            end = (cut.segment.base_offset, cut.position, cut.end_offset)
            log_start_offset = min(partition.log_start_offset, cut.end_offset)
            yield from self._replacing(
                held, end, first_gone, cut.segment if cut.is_within else None, log_start_offset
            )
        return True

    def restarting(self, partition: Partition, offset: int) -> Work[None]:
        """See `LogStore.restarting`."""
        with self._holding(partition, f"Restarting {partition.directory} at offset {offset}") as held:
            yield from self._waiting(held)
            partition.availability.refuse_staged()
            yield from self._restarting(held, offset)

    def _restarting(self, held: _Held, offset: int) -> Work[None]:
        self._check_journals(held)
        key, home = (held.partition.topic, held.partition.index), held.place.home
        _lower_checkpoints(held, offset)
        home.offsets[LOG_STARTS][key] = offset
        home.want(LOG_STARTS)
        yield home.write
        log = held.partition.log
        # The flush journal has no entry of a segment of the new log.
        first_offset = min(offset, log.bases[0])
        yield partial(_remove_state, held.disk, held.directory)
        yield from self._replacing(held, (first_offset, 0, first_offset), log.segments, None, offset)

    # Step by step

    @contextmanager
    def _holding(self, partition: Partition, doing: str) -> Iterator[_Held]:
        """Lock the files of a partition for one operation. An error of the disk is a refusal; after the files
        were changed it also takes the partition offline.
        """
        place, availability = self._places.place_of(partition), partition.availability
        if place is None or not partition.is_available:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.failure)
        held = _Held(self._places, place, partition)
        availability.pause(f"{doing} is under way.")
        try:
            yield held
        except OSError as error:
            sentence = f"{doing} failed: {error}"
            if held.is_held and not availability.is_unreadable:
                partition.report_trouble(error, sentence)
            elif held.is_held:
                availability.take_offline(f"{doing} failed: {error}")
                sentence = partition.failure or sentence
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence) from error
        except BaseException as error:
            if held.is_held and availability.is_unreadable:
                availability.take_offline(f"{doing} did not end: {error!r}")
            raise
        finally:
            availability.resume()

    def _waiting(self, held: _Held) -> Work[None]:
        flushing = held.partition.flushing
        while (
            flushing.is_running
            or flushing.is_being_journaled
            or self._is_compacting(held.partition)
            or self._is_journal_writing(held)
        ):
            yield None
            held.check()

    def _check_journals(self, held: _Held) -> None:
        """Refuse before anything is changed where a replay of the flush journal would undo it."""
        for journal in self._journals_of(held):
            reason = journal.cut_refusal
            if reason is not None:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{held.directory} cannot be cut yet: {reason}"
                )

    def _journals_of(self, held: _Held) -> list[FlushJournal]:
        return [journal for journal in self._journals() if journal.directory == held.place.home.path]

    def _is_journal_writing(self, held: _Held) -> bool:
        return any(journal.is_writing for journal in self._journals_of(held))

    def _replacing(
        self,
        held: _Held,
        end: tuple[int, int, int],
        gone: Sequence[Segment],
        copied: Segment | None,
        log_start_offset: int,
    ) -> Work[None]:
        """Change the files. `end`: base offset of a segment, position in it and offset, for the flush
        journal; `gone`: the segments to remove; `copied`: the segment that its copy replaces.
        """
        held.check()
        while self._is_journal_writing(held):
            yield None
            held.check()
        self._check_journals(held)
        partition, log, disk = held.partition, held.partition.log, self._places.disk
        partition.availability.refuse_readers()
        for journal in self._journals_of(held):
            journal.cut(partition.flushing.identity, *end)
        deleted = []
        # The last one first: a crash leaves a log without a gap.
        for number, segment in enumerate(reversed(gone), 1):
            segment.paths.mark_deleted()
            deleted.append(segment)
            if number % RENAMED_PER_STEP == 0:
                yield None
                held.check()
        if copied is not None:
            disk.rename(_copy_path(copied), copied.paths.path(LOG))
        yield partial(disk.sync_directory, held.directory)
        held.check()
        log.files.close()
        recovered: Recovered = yield partial(self._open, held, end[2], log_start_offset)
        self._take_over(held, recovered)
        self._remove_segments(deleted, self._places.now_ms + partition.config.file_delete_delay_ms)

    def _open(self, held: _Held, end_offset: int, log_start_offset: int) -> Recovered:
        """In a worker."""
        partition, config = held.partition, held.partition.config
        recovered = open_log(
            FilePool(held.disk, 1),
            held.directory,
            config,
            clean=False,
            recovery_point=min(partition.log.durability.recovery_checkpoint, end_offset),
            log_start_offset=log_start_offset,
            now_ms=self._places.now_ms,
            gaps_until=LONG_MAX if config.is_compacted else 0,
            may_skip=partition.is_replicated,
            producer_expiration_ms=self._places.producer_expiration_ms,
            is_rescan=True,
        )
        recovered.log.durability.save_leader_epochs()
        held.disk.sync_directory(held.directory)
        return recovered

    def _take_over(self, held: _Held, recovered: Recovered) -> None:
        from odradek.storage.recovery.rescan import take_over  # as in `_Held`

        try:
            held.check()
        except KafkaError:
            recovered.log.files.close()
            raise
        take_over(recovered.log, self._places.pool)
        held.partition.availability.resume()
        held.partition.replace_log(recovered.log, recovered.log_start_offset)


def find_cut(log: Log, offset: int) -> Cut:
    """The new end of the log; `offset` is not before its first segment. Raises `OSError`."""
    place = segment_holding(log.bases, offset)
    assert place >= 0
    segment = log.segments[place]
    position, end_offset = 0, segment.base_offset
    for batch in segment.batches(segment.indexes.lookup(offset - 1)):
        if batch.last_offset >= offset:
            break
        position, end_offset = batch.end_position, batch.last_offset + 1
    return Cut(place, segment, position, end_offset)


def _lower_checkpoints(held: _Held, end_offset: int) -> None:
    """Lower the checkpoints of the partition to the new end; the next write puts them on the disk."""
    home, partition = held.place.home, held.partition
    key = (partition.topic, partition.index)
    home.offsets[RECOVERY_POINTS][key] = min(partition.log.durability.recovery_checkpoint, end_offset)
    home.offsets[HIGH_WATERMARKS][key] = min(partition.high_watermark, end_offset)
    if key in home.offsets[FIRST_DIRTY]:
        home.offsets[FIRST_DIRTY][key] = min(home.offsets[FIRST_DIRTY][key], end_offset)
    home.scan_checkpoints.pop(key, None)
    home.end_checkpoints.pop(key, None)
    home.want(RECOVERY_POINTS, HIGH_WATERMARKS, FIRST_DIRTY)


def _remove_state(disk: Disk, directory: str) -> None:
    """Remove leader epochs and producer snapshots durably. In a worker."""
    for name in disk.list(directory):
        if name == LEADER_EPOCHS or name.endswith(SNAPSHOT):
            disk.remove(f"{directory}/{name}")
    disk.sync_directory(directory)


def _copy_path(segment: Segment) -> str:
    return f"{segment.paths.path(LOG).removesuffix(LOG)}{COPY}"


def _copying(held: _Held, segment: Segment, size_bytes: int) -> Work[None]:
    """Write and flush a copy of the beginning of a segment."""
    disk, path = held.disk, _copy_path(segment)
    source = disk.open(segment.paths.path(LOG))
    try:
        copy = disk.open(path, create=True)
        try:
            copy.truncate(0)
            for position in range(0, size_bytes, COPIED_BYTES):
                yield partial(_copy, source, copy, position, min(COPIED_BYTES, size_bytes - position))
            yield copy.sync
        except OSError:
            disk.remove(path)
            raise
        finally:
            copy.close()
    finally:
        source.close()


def _copy(source: File, copy: File, position: int, size_bytes: int) -> None:
    """In a worker."""
    part = source.read(position, size_bytes)
    if len(part) < size_bytes:
        raise OSError(f"the segment has become shorter than {position + size_bytes} bytes")
    write_all(copy, position, [part], len(part))
