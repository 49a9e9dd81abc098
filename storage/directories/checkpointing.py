"""Periodic checkpoints, which make the next start shorter: the checkpoint files of the data directories, scan
checkpoints of logs that have grown (`scan_checkpoint.py`), and end checkpoints of logs that are flushed to
their ends (`durability.py`).

Together with the checkpoint files, a scan checkpoint is begun for every log whose active segment has grown by
`scan_checkpoint_interval_bytes` since its last one. A pending checkpoint needs a flush (`waiting_for_flush`);
after this flush the files of the scan checkpoint are written and synced, and at last its line. So a start
after a crash reads, for each partition, the records since a second or two before the last checkpoint, and at
most the interval. A clean stop makes a scan checkpoint of every log for which it writes an index and a
snapshot.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from odradek.storage.checkpoints import FIRST_DIRTY, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from odradek.storage.directories.data_directory import CHECKPOINTS, DataDirectory, Key
from odradek.storage.directories.places import Place, Places
from odradek.storage.disk import SyncFailed
from odradek.storage.log.log import Log
from odradek.storage.log.partition import Partition
from odradek.storage.log.scan_checkpoint import PendingCheckpoint, ScanCheckpoint, is_due
from odradek.wire.errors import KafkaError
from odradek.wire.work import Work

NOTED_PER_STEP = 256
SCAN_CHECKPOINTS_PER_ROUND = 32
"""A tenth of a second: other work waits for the worker."""


class Checkpointing:
    """See the module. The store may change between the steps of a `Work`."""

    def __init__(
        self, places: Places, interval_ms: int, start_interval_ms: int, scan_checkpoint_interval_bytes: int
    ) -> None:
        self._interval_ms, self._last_ms = interval_ms, 0
        self._start_interval_ms, self._start_last_ms = start_interval_ms, 0
        self._places = places
        self._scan_checkpoint_interval_bytes = scan_checkpoint_interval_bytes
        # None where no pending checkpoint could be made yet.
        self._pending: dict[Key, PendingCheckpoint | None] = {}

    def begin(self, now_ms: int) -> None:
        """Start the intervals at `now_ms`: the files on the disk are current."""
        self._last_ms = self._start_last_ms = now_ms

    def writing_if_due(self, now_ms: int) -> Work[None]:
        """Write the checkpoints that are due, and the scan checkpoints that are ready. The checkpoint of log
        starts has an interval of its own (Kafka has a task for each).
        """
        is_due = now_ms - self._last_ms >= self._interval_ms
        names: list[str] = []
        if is_due:
            self._last_ms = now_ms
            names += [name for name in CHECKPOINTS if name != LOG_STARTS]
        if now_ms - self._start_last_ms >= self._start_interval_ms:
            self._start_last_ms = now_ms
            names.append(LOG_STARTS)
        if names:
            yield from self.writing(*names)
        if is_due:
            yield from self.wanting_scan_checkpoints()
        yield from self.making_scan_checkpoints()

    def writing(self, *names: str) -> Work[None]:
        """Write these checkpoints of all directories; without names, all checkpoints."""
        for home in self._places.homes.values():
            if home.failure is not None or not home.was_opened:
                continue
            yield from self.noting(home, *names)
            yield from self._writing(home)

    def _writing(self, home: DataDirectory) -> Work[None]:
        try:
            yield home.write
        except OSError as error:
            # The next start then reads more of the logs; the next call writes again.
            self._places.failed(home.path, error, f"Writing checkpoints in {home.path} failed: {error}")

    def noting(self, home: DataDirectory, *names: str) -> Work[None]:
        """Set these checkpoints of a directory to the current offsets; without names, all checkpoints."""
        by_key = self._places.by_key
        for number, (key, place) in enumerate(list(by_key.items()), 1):
            partition = place.partition
            if partition is not None and home in place.homes and by_key.get(key) is place:
                # The log start is kept even when the partition is offline: deleted records stay deleted.
                _note_start(key, place)
                is_known = not (partition.availability.is_broken or partition.availability.is_paused)
                if place.home is home and is_known:
                    home.offsets[RECOVERY_POINTS][key] = partition.log.durability.recovery_checkpoint
                    home.offsets[HIGH_WATERMARKS][key] = partition.high_watermark
                    _note_end_checkpoint(key, place)
            if number % NOTED_PER_STEP == 0:
                yield None
        home.want(*names)

    def writing_high_watermarks(self) -> Work[None]:
        """Write the high watermarks of partitions with several replicas: a start cannot find these in the
        logs. Kafka writes them each `replica.high.watermark.checkpoint.interval.ms`. Without such partitions
        nothing is written.
        """
        homes: dict[DataDirectory, None] = {}
        for number, (key, place) in enumerate(list(self._places.by_key.items()), 1):
            partition = place.partition
            if partition is not None and partition.is_replicated and partition.is_available:
                place.home.offsets[HIGH_WATERMARKS][key] = partition.high_watermark
                homes[place.home] = None
            if number % NOTED_PER_STEP == 0:
                yield None
        for home in homes:
            if home.failure is None and home.was_opened:
                home.want(HIGH_WATERMARKS)
                yield from self._writing(home)

    def close_one(self, key: Key, place: Place) -> None:
        """Close a partition; the next `noting` takes its offsets and checkpoints for the next start. Raises
        as `Partition.close`.
        """
        home, partition = place.home, place.partition
        assert partition is not None
        scan_checkpoint = partition.close(home.scan_checkpoints.get(key))
        if scan_checkpoint is None:
            home.scan_checkpoints.pop(key, None)
        else:
            home.scan_checkpoints[key] = scan_checkpoint
        _note_end_checkpoint(key, place)
        if key in home.end_checkpoints:
            home.end_checkpoints[key] = home.end_checkpoints[key]._replace(was_closed=1)

    def saving_starts(self, partitions: Iterable[Partition]) -> Work[list[Partition]]:
        """Write the current starts of these logs to the disk; returns the partitions for which that failed.
        Kafka writes them once a minute: there a crash may undo a DeleteRecords that was answered.
        """
        of_home: dict[DataDirectory, list[Partition]] = {}
        for partition in partitions:
            place = self._places.place_of(partition)
            if place is not None:
                _note_start((partition.topic, partition.index), place)
                for home in place.homes:
                    if home is place.home or home.failure is None:
                        of_home.setdefault(home, []).append(partition)
        for home in of_home:
            home.want(LOG_STARTS)
        failed = []
        for home, some in of_home.items():
            try:
                yield home.write
            except OSError as error:
                self._places.failed(home.path, error, f"Writing checkpoints in {home.path} failed: {error}")
                failed += some
        return failed

    def first_dirty_of(self, partition: Partition) -> int:
        """The offset up to which the partition has been compacted."""
        key = (partition.topic, partition.index)
        return self._places.by_key[key].home.offset(FIRST_DIRTY, key)

    def noting_first_dirty(self, partition: Partition, offset: int) -> Work[None]:
        """Note the offset up to which the partition is compacted, on the disk too. Raises `OSError`."""
        place = self._places.place_of(partition)
        if place is not None:
            place.home.offsets[FIRST_DIRTY][partition.topic, partition.index] = offset
            place.home.want(FIRST_DIRTY)
            yield place.home.write

    def noting_flushed(self, partition: Partition, end_offset: int) -> Work[bool]:
        """Whether everything before `end_offset` is flushed and the recovery point on the disk is not before
        it: compaction makes gaps, and recovery takes gaps after the recovery point for losses. Raises
        `OSError`. False before the flush (`LogStore.flush_due` names the partition): a flush here would block
        this thread, and might run at the same time as the flush of a worker.
        """
        place = self._places.place_of(partition)
        if place is None or partition.log.durability.recovery_checkpoint < end_offset:
            return False
        key = (partition.topic, partition.index)
        home = place.home
        if home.written(RECOVERY_POINTS, key) < end_offset:
            home.offsets[RECOVERY_POINTS][key] = partition.log.durability.recovery_checkpoint
            home.want(RECOVERY_POINTS)
            yield home.write
        return True

    # Scan checkpoints

    def wanting_scan_checkpoints(self) -> Work[None]:
        """Request scan checkpoints of the logs that have grown enough."""
        for number, (key, place) in enumerate(list(self._places.by_key.items()), 1):
            partition = place.partition
            if partition is not None and partition.is_available and place.home.failure is None:
                scan_checkpoint = place.home.scan_checkpoints.get(key)
                if is_due(partition.log.active, scan_checkpoint, self._scan_checkpoint_interval_bytes):
                    self._pending.setdefault(key, None)
            if number % NOTED_PER_STEP == 0:
                yield None

    def waiting_for_flush(self) -> Iterator[Partition]:
        """The partitions with a pending checkpoint that needs a flush."""
        for key, pending in self._pending.items():
            place = self._places.by_key.get(key)
            partition = None if place is None else place.partition
            if (
                partition is not None
                and pending is not None
                and partition.log.durability.recovery_point < pending.offset
            ):
                yield partition

    def making_scan_checkpoints(self) -> Work[None]:
        """Begin requested scan checkpoints, and write some of those that are flushed."""
        made: dict[DataDirectory, list[tuple[Log, ScanCheckpoint]]] = {}
        count = 0
        for key in list(self._pending):
            if count == SCAN_CHECKPOINTS_PER_ROUND:
                break
            place = self._places.by_key.get(key)
            partition = None if place is None else place.partition
            if place is None or partition is None or not partition.is_available:
                del self._pending[key]
                continue
            scan_checkpoint = yield from self._making_scan_checkpoint(key, place, partition)
            if (
                scan_checkpoint is None
                or self._places.by_key.get(key) is not place
                or not partition.is_available
            ):
                continue
            count += 1
            home, old = place.home, place.home.scan_checkpoints.get(key)
            home.offsets[RECOVERY_POINTS][key] = partition.log.durability.recovery_checkpoint
            home.scan_checkpoints[key] = scan_checkpoint
            of_home = made.setdefault(home, [])
            if old is not None and old.offset != scan_checkpoint.offset:
                of_home.append((partition.log, old))
        for home, followed in made.items():
            home.want(RECOVERY_POINTS)
            try:
                yield home.write
                for log, old in followed:
                    log.scan_checkpoints.forget(old)
            except OSError as error:
                self._places.failed(home.path, error, f"Writing checkpoints in {home.path} failed: {error}")

    def _making_scan_checkpoint(
        self, key: Key, place: Place, partition: Partition
    ) -> Work[ScanCheckpoint | None]:
        """None if the flush has not come yet, the segment is not active any more, or the disk has failed."""
        log, path = partition.log, place.path
        try:
            pending = self._pending[key]
            if pending is None:
                pending = self._pending[key] = log.scan_checkpoints.pending()
            if pending is not None and pending.segment is not log.active:
                # The next checkpoint makes a new one.
                del self._pending[key]
                return None
            if pending is None or log.durability.recovery_point < pending.offset:
                return None
            del self._pending[key]
            scan_checkpoint = log.scan_checkpoints.write(pending)
            if scan_checkpoint is not None:
                yield partial(log.scan_checkpoints.sync, pending)
        except SyncFailed as error:
            partition.availability.take_offline(f"flushing {path} failed: {error}")
            return None
        except (OSError, KafkaError) as error:
            if isinstance(error, OSError) and place.path == path and partition.is_available:
                self._places.failed(
                    place.home.path, error, f"Writing a scan checkpoint of {path} failed: {error}"
                )
            self._pending.pop(key, None)
            return None
        is_as_it_was = partition.log is log and place.path == path and pending.segment is log.active
        return scan_checkpoint if is_as_it_was else None


def _note_end_checkpoint(key: Key, place: Place) -> None:
    """An older end checkpoint stays valid for a log that has grown since."""
    assert place.partition is not None
    end, noted = place.partition.log.durability.end_checkpoint(), place.home.end_checkpoints
    if end is not None and (key not in noted or noted[key][:3] != end[:3]):
        noted[key] = end


def _note_start(key: Key, place: Place) -> None:
    partition = place.partition
    assert partition is not None
    if partition.availability.is_paused:
        return  # a restart at another offset may be under way
    for home in place.homes:
        starts = home.offsets[LOG_STARTS]
        if partition.log_start_offset > 0:
            # Also where the first segment begins there: after a crash the names of earlier segments may be
            # back.
            starts[key] = partition.log_start_offset
        else:
            starts.pop(key, None)
