"""Truncation: everything at an offset and after it goes, as a leader of a later epoch wants it of a follower.

It goes by whole batches: the log ends before the batch that holds the offset, which can then be fetched anew.
(Kafka's log says an end within that batch, see `LocalLog.truncateTo`.) While it happens nothing else may
change the files. It waits until no flush is under way, no block is on its way to the flush journal and no
compaction is swapping segments. A compaction of the old segments comes to nothing: the log has others then.

A crash may come at any point. So it is done in this order:
1. The checkpoints on the disk stop vouching for what is going to be cut, and the part of the last segment
   that stays is copied. So far an error, such as a full disk, is a refusal; later ones take it offline.
2. The flush journal gets an entry that ends the log there, so that a replay does not put back what was cut.
3. The segments after it are renamed out of sight, the last one first. The copy takes the place of the one
   that holds the offset: readers have the old file mapped, and it must not shrink.
4. The log is opened anew as after a crash: indexes, transaction index, leader epochs and producers are made
   of what is left. The directory is synced, so that no snapshot of what was cut comes back.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek.storage.checkpoints import FIRST_DIRTY, RECOVERY_POINTS
from odradek.storage.config import LONG_MAX
from odradek.storage.directories.places import Place, Places
from odradek.storage.disk import Disk, write_all
from odradek.storage.log.flush_journal import FlushJournal
from odradek.storage.log.log import Log
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment import Segment, segment_holding
from odradek.storage.log.segment_paths import LOG
from odradek.storage.recovery.recovery import Recovered, open_log
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

COPY = ".log.tmp"
"""What a crash leaves under that name goes at the next start."""
COPIED_BYTES = 1_048_576


class Cut(NamedTuple):
    """Where a log is to end: in the segment at `place`, which keeps the bytes before `position`."""

    place: int
    segment: Segment
    position: int
    end_offset: int

    @property
    def is_within(self) -> bool:
        """Whether that segment loses something."""
        return self.position < self.segment.size_bytes


class Truncation:
    """See the module. `is_compacting` says whether segments of a partition are being swapped just now."""

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
        while self._is_busy(partition):
            yield None
        place = self._place_of(partition)
        partition.availability.refuse_staged()
        if offset >= partition.log_end_offset:
            return False
        try:
            cut = find_cut(partition.log, offset)
            self._lower_checkpoints(place, partition, cut)
            if cut.is_within:
                _copy(partition.log.files.disk, cut.segment, cut.position)
        except OSError as error:
            sentence = f"Truncating {partition.directory} to {offset} failed: {error}"
            partition.availability.on_trouble(error, sentence)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence) from error
        try:
            deleted, recovered = self._cut(place, partition, cut)
        except OSError as error:
            partition.availability.take_offline(f"truncating it to {offset} failed: {error}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.failure) from error
        partition.replace_log(recovered.log, recovered.log_start_offset)
        self._remove_segments(deleted, self._places.now_ms + partition.config.file_delete_delay_ms)
        return True

    def _is_busy(self, partition: Partition) -> bool:
        place = self._place_of(partition)
        return (
            partition.flushing.is_running
            or partition.flushing.is_being_journaled
            or self._is_compacting(partition)
            or any(journal.is_writing for journal in self._journals_of(place))
        )

    def _place_of(self, partition: Partition) -> Place:
        place = self._places.place_of(partition)
        if place is None or not partition.is_available:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.failure)
        return place

    def _journals_of(self, place: Place) -> list[FlushJournal]:
        return [journal for journal in self._journals() if journal.directory == place.home.path]

    def _lower_checkpoints(self, place: Place, partition: Partition, cut: Cut) -> None:
        home, key = place.home, (partition.topic, partition.index)
        home.offsets[RECOVERY_POINTS][key] = min(partition.log.durability.recovery_checkpoint, cut.end_offset)
        if key in home.offsets[FIRST_DIRTY]:
            home.offsets[FIRST_DIRTY][key] = min(home.offsets[FIRST_DIRTY][key], cut.end_offset)
        home.scan_checkpoints.pop(key, None)
        home.end_checkpoints.pop(key, None)
        home.want(RECOVERY_POINTS, FIRST_DIRTY)
        home.write()

    def _cut(self, place: Place, partition: Partition, cut: Cut) -> tuple[list[Segment], Recovered]:
        log = partition.log
        disk, directory = log.files.disk, log.files.directory
        for journal in self._journals_of(place):
            journal.cut(partition.flushing.identity, cut.segment.base_offset, cut.position, cut.end_offset)
        deleted = _mark_deleted(log.segments[cut.place + 1 :])
        if cut.is_within:
            disk.rename(_copy_path(cut.segment), cut.segment.paths.path(LOG))
        disk.sync_directory(directory)
        log.files.close()
        recovered = open_log(
            self._places.pool,
            directory,
            partition.config,
            clean=False,
            recovery_point=min(log.durability.recovery_checkpoint, cut.end_offset),
            log_start_offset=min(partition.log_start_offset, cut.end_offset),
            now_ms=self._places.now_ms,
            gaps_until=LONG_MAX if partition.config.is_compacted else 0,
            producer_expiration_ms=self._places.producer_expiration_ms,
            is_rescan=True,
        )
        recovered.log.durability.save_leader_epochs()
        disk.sync_directory(directory)
        return deleted, recovered


def find_cut(log: Log, offset: int) -> Cut:
    """Where the log has to end. Refuses with OFFSET_OUT_OF_RANGE what is before the first segment."""
    place = segment_holding(log.bases, offset)
    if place < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{log.files.directory} begins at {log.bases[0]}, after {offset}."
        )
    segment = log.segments[place]
    position, end_offset = 0, segment.base_offset
    for batch in segment.batches(segment.indexes.lookup(offset - 1)):
        if batch.last_offset >= offset:
            break
        position, end_offset = batch.end_position, batch.last_offset + 1
    return Cut(place, segment, position, end_offset)


def _mark_deleted(segments: Sequence[Segment]) -> list[Segment]:
    """The last one first: a crash leaves a log without a gap."""
    deleted = []
    for segment in reversed(segments):
        segment.paths.mark_deleted()
        deleted.append(segment)
    return deleted


def _copy_path(segment: Segment) -> str:
    return f"{segment.paths.path(LOG).removesuffix(LOG)}{COPY}"


def _copy(disk: Disk, segment: Segment, size_bytes: int) -> None:
    """Put a flushed copy of a segment's beginning beside it."""
    path = _copy_path(segment)
    copy = disk.open(path, create=True)
    try:
        copy.truncate(0)
        for position in range(0, size_bytes, COPIED_BYTES):
            part = segment.file.read(position, min(COPIED_BYTES, size_bytes - position))
            write_all(copy, position, [part], len(part))
        copy.sync()
    except OSError:
        disk.remove(path)
        raise
    finally:
        copy.close()
