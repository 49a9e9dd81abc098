"""All partitions under the data directories: opening, creating, deleting, background work, closing.

A partition is opened at its first use, so that a clean start takes as long with ten thousand partitions as
with ten. After a crash `open` recovers the partitions with unflushed records. The number of open segment
files is bounded.

Each data directory has `.lock`, six checkpoint files and `.kafka_cleanshutdown`; all but two of the
checkpoints are Kafka's. A failed directory takes only its own partitions offline, at the start and later.
They come back when its disk works again (`failing_disks.py`, `rescan.py`); those of a directory that could
not be opened come back with the next start. One thread owns a store; only `Partition.flush` and the functions
that a `Work` yields may run in other threads.

`LogStore` starts and stops, and gets, creates and deletes partitions. Its parts have one story each:
- `places`: the table of partitions and their directories, without opening them;
- `opening`: a start, and opening a partition;
- `creating`: in which data directory a new partition is made;
- `upkeep`: retention, removing files, expiry of producers;
- `checkpointing`: the checkpoint files;
- `failing_disks`: directories and partitions that go offline and come back;
- `relocation`: moves between directories.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import urandom
from typing import TYPE_CHECKING, cast

from odradek.storage import checkpoints
from odradek.storage.config import CLEANING_STEP_BYTES, LogConfig
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.creating import Creating
from odradek.storage.directories.data_directory import DataDirectory, Key
from odradek.storage.directories.failing_disks import FailingDisks
from odradek.storage.directories.opening import DirectoryInUse, Opening
from odradek.storage.directories.places import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    Place,
    Places,
    StoreListener,
    default_config,
    first_leader_epoch,
    never_replicated,
    topic_id_in,
    unknown_topic_id,
)
from odradek.storage.directories.places import (
    FILE_NAME_BYTES_MAX as FILE_NAME_BYTES_MAX,
)
from odradek.storage.directories.places import (
    key_of as key_of,
)
from odradek.storage.directories.relocation import Relocation
from odradek.storage.directories.truncation import Truncation
from odradek.storage.directories.upkeep import Upkeep
from odradek.storage.disk import Disk
from odradek.storage.log.flush_journal import FlushJournal
from odradek.storage.log.flushing import ZERO_UUID
from odradek.storage.log.partition import Partition
from odradek.storage.log.producer_state import EXPIRATION_MS
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINT_INTERVAL_BYTES
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_file import FilePool
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.storage.compaction.cleaner import Cleaner
    from odradek.storage.directories.still import DirectoryStill
    from odradek.storage.log.log import Log

CHECKPOINT_INTERVAL_MS = 60_000
"""Default of `log.flush.offset.checkpoint.interval.ms`."""
MANY_TO_CLOSE = 64
"""From this number of changed partitions on, one sync of the file system is cheaper than a sync of each
file."""


def _new_id() -> str:
    return urandom(16).hex()


def _inconsistent(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} on the disk belongs to a topic with another id."
    )


class LogStore:
    """See the module. `config_for` returns the settings of a topic that is found on the disk, `topic_id_for`
    the id of a partition's topic or None, `leader_epoch_for` the lowest leader epoch of a partition (an
    emptied log may not have it). `replicated_for` returns whether a partition has other replicas: then its
    high watermark is read from the checkpoint, else it is the end of the log.

    When a directory with another topic id is loaded, it is renamed, as by Kafka's LogManager, an empty
    partition replaces it, and `listener.stray` is called. The calls of `maintaining` in
    `retention_interval_ms` reach each partition once. The checkpoint of log starts is written every
    `start_checkpoint_interval_ms`, the others every `checkpoint_interval_ms`. `new_lock` makes the locks
    between threads (`threading.Lock`).
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig] = default_config,
        topic_id_for: Callable[[str, int], bytes | None] = unknown_topic_id,
        leader_epoch_for: Callable[[str, int], int] = first_leader_epoch,
        replicated_for: Callable[[str, int], bool] = never_replicated,
        listener: StoreListener | None = None,
        open_files_max: int = 1024,
        new_id: Callable[[], str] = _new_id,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        start_checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        scan_checkpoint_interval_bytes: int = SCAN_CHECKPOINT_INTERVAL_BYTES,
        producer_expiration_ms: int = EXPIRATION_MS,
        retention_interval_ms: int = 0,
        new_lock: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.disk = disk
        self.directories = [directory.rstrip("/") for directory in directories]
        self.pool = FilePool(disk, open_files_max)
        self.flush_journals = [FlushJournal(disk, directory) for directory in self.directories]
        self.listener = StoreListener() if listener is None else listener
        homes = {path: DataDirectory(disk, path, new_lock()) for path in self.directories}
        self.places = Places(
            disk,
            self.pool,
            homes,
            config_for=config_for,
            topic_id_for=topic_id_for,
            leader_epoch_for=leader_epoch_for,
            replicated_for=replicated_for,
            listener=self.listener,
            new_id=new_id,
            gate=new_lock(),
            producer_expiration_ms=producer_expiration_ms,
        )
        self.opening = Opening(self.places)
        self.upkeep = Upkeep(
            self.places,
            self.get,
            retention_interval_ms=retention_interval_ms,
        )
        self.checkpointing = Checkpointing(
            self.places, checkpoint_interval_ms, start_checkpoint_interval_ms, scan_checkpoint_interval_bytes
        )
        self.failing_disks = FailingDisks(self.places, self.opening)
        self.relocation = Relocation(self.places, self.get, self.upkeep.remove_directory)
        self.creating = Creating(self.places, self.relocation.take_preferred)
        self._truncation = Truncation(
            self.places, lambda: self.flush_journals, self._is_compacting, self.upkeep.remove_segments
        )
        self.left_unclean: set[str] = set()
        """Directories that the last `close` could not mark as clean."""
        self.is_abandoned = False
        """Whether `close` leaves the directories as a kill would: nothing is flushed, written or marked."""
        self.broker_epoch = checkpoints.UNKNOWN_BROKER_EPOCH
        """The broker epoch of a node of a cluster, for the file of a clean stop (KIP-966)."""
        self._cleaner: Cleaner | None = None
        self._flushes_checked_ms: int | None = None

    # Opening and closing

    def lock(self) -> None:
        """Lock the directories for this process, so that files beside the logs can be read before `open`.
        Raises `DirectoryInUse`. A directory that cannot be used is skipped; `open` reports it.
        """
        try:
            for home in self.places.homes.values():
                try:
                    self.opening.lock(home)
                except OSError:
                    continue
        except DirectoryInUse:
            self._unlock()
            raise

    def open(self, now_ms: int) -> dict[Key, int]:
        """Lock the directories and find the partitions; after a crash recover those with unflushed records.

        Returns the number of unsound bytes cut from the ends of partitions. Raises `DirectoryInUse`, and
        `OSError` when no directory can be used; `FailingDisks.failures` has the unusable ones.
        """
        self.places.now_ms = now_ms
        self.checkpointing.begin(now_ms)
        try:
            for home in self.places.homes.values():
                try:
                    self.opening.open_directory(home)
                except OSError as error:
                    if all(
                        other is home or other.failure is not None for other in self.places.homes.values()
                    ):
                        raise
                    home.unlock()
                    self.failing_disks.fail(home, str(error))
        except BaseException:
            self._unlock()
            raise
        self.relocation.take_up(self.opening.interrupted_moves)
        return self.opening.cut_bytes

    def close(self, now_ms: int) -> None:
        """Flush everything, write snapshots, indexes and checkpoints, mark the stop as clean, unlock.

        A directory whose disk gives an error is not marked as clean, and the next start recovers it. Nothing
        is written to a directory that `open` could not open.
        """
        homes = [home for home in self.places.homes.values() if home.lock is not None]
        if not homes:
            return
        self.places.now_ms = now_ms
        if self._cleaner is not None:
            self._cleaner.close()
        if self.is_abandoned:
            self._leave()
            return
        self._close_many()
        unclean = {home.path for home in homes if home.failure is not None or not home.was_opened}
        for key, place in list(self.places.by_key.items()):
            try:
                if place.failure is not None:
                    unclean.add(place.home.path)
                elif place.partition is not None and place.home.failure is None:
                    self.checkpointing.close_one(key, place)
            except (KafkaError, OSError):
                unclean.add(place.home.path)
        finish(self.upkeep.removing_segments(None))
        # Without this, the next start would take such a directory for cleanly closed.
        unclean |= {home.path for home in finish(self.relocation.leaving_behind())}
        self.left_unclean = unclean
        for home in homes:
            self._close_directory(home, is_clean=home.path not in unclean)
        self._unlock()

    def _leave(self) -> None:
        for partition in self.places.loaded():
            partition.availability.end("is closed.")
            partition.log.files.close()
            partition.availability.fail_waiting()
        for journal in self.flush_journals:
            journal.close()
        self._unlock()

    def _close_directory(self, home: DataDirectory, *, is_clean: bool) -> None:
        """Write the checkpoints of a directory, unlock it, and mark the stop as clean if `is_clean` and the
        disk gives no error."""
        try:
            if home.failure is None and home.was_opened:
                finish(self.checkpointing.noting(home))
                home.write()
            for journal in self.flush_journals:
                if journal.directory != home.path:
                    continue
                if is_clean:
                    journal.discard()
                else:
                    journal.close()
            if is_clean:
                checkpoints.write_clean_shutdown(self.disk, home.path, self.broker_epoch)
        except OSError:
            self.left_unclean.add(home.path)

    def _close_many(self) -> None:
        """Before many partitions are closed: write their files and sync the file systems once. With a sync of
        each file, five per partition, the device would flush its cache each time.
        """
        places = [place for place in self.places.by_key.values() if place.home.failure is None]
        loaded = [place.partition for place in places if place.partition is not None]
        changed = [one.log for one in loaded if one.is_available and one.log.is_changed]
        if len(changed) < MANY_TO_CLOSE:
            return
        written: list[Log] = []
        for log in changed:
            try:
                log.write_down()
                written.append(log)
            except OSError:
                pass  # closing the partition meets the error again
        try:
            for home in self.places.homes.values():
                if home.failure is None:
                    self.disk.sync_file_system(home.path)
        except OSError:
            return
        for log in written:
            log.is_safe()

    def _unlock(self) -> None:
        for home in self.places.homes.values():
            home.unlock()

    # Partitions

    def create(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        config: LogConfig,
        *,
        leader_epoch: int = 0,
        is_replicated: bool | None = None,
        directory: str | None = None,
        now_ms: int | None = None,
    ) -> Partition:
        """The partition; a missing one is made, in `directory` if that is given. An existing one takes these
        settings. Without `is_replicated` a new partition uses `replicated_for`, and an existing one does not
        change.

        Refuses with INCONSISTENT_TOPIC_ID when it exists and belongs to another topic of the same name, with
        KAFKA_STORAGE_ERROR after an error of the disk.
        """
        if now_ms is not None:
            self.places.now_ms = now_ms
        try:
            self._check_before_adopting(topic, index, topic_id)
            partition = self.get(topic, index)
            if partition is None:
                partition = self.creating.make(topic, index, topic_id, config, directory)
            elif partition.topic_id != topic_id:
                self._adopt(partition, topic_id)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Creating {topic}-{index} failed: {error}"
            ) from error
        if partition.config is not config:
            partition.set_config(config)
        partition.follow_leader_epoch(leader_epoch)
        if is_replicated is not None:
            partition.set_replicated(is_replicated)
        return partition

    def _check_before_adopting(self, topic: str, index: int, topic_id: bytes) -> None:
        """Checks, before a directory is loaded and so perhaps changed, that it belongs to the topic and has a
        readable format.
        """
        place = self.places.by_key.get((topic, index))
        if place is None or place.partition is not None or place.offline_because is not None:
            return
        found_id = topic_id_in(self.disk, place.path)
        if found_id not in (None, topic_id):
            raise _inconsistent(place.name)
        if found_id is None:
            from odradek.storage.recovery.log_walk import begins_with_messages  # rare

            if begins_with_messages(self.disk, place.path):
                path = self.set_aside(topic, index)
                self.listener.damage(
                    f"{path} has messages of format v0 or v1, which a new topic cannot use: "
                    "run odradek import-log to import the directory under another name."
                )

    def _adopt(self, partition: Partition, topic_id: bytes) -> None:
        if partition.topic_id != ZERO_UUID:
            raise _inconsistent(partition.name)
        path = f"{partition.directory}/{checkpoints.PARTITION_METADATA}"
        checkpoints.write_partition_metadata(self.disk, path, topic_id)
        partition.adopt(topic_id)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, loaded if need be; None when it does not exist. KAFKA_STORAGE_ERROR when it cannot
        be read.
        """
        key = (topic, index)
        place = self.places.by_key.get(key)
        if place is None:
            return None
        if place.partition is None:
            if place.offline_because is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, place.offline_because)
            try:
                topic_id = self.places.topic_id_for(topic, index)
                if topic_id is not None and self.places.topic_id_of(topic, index) not in (None, topic_id):
                    self.listener.stray(topic, index, self.set_aside(topic, index))
                    config, home = self.places.config_for(topic), place.home.path
                    return self.creating.make(topic, index, topic_id, config, home)
                cut_bytes = self.opening.load(key, place, clean=place.was_clean)
                if cut_bytes:
                    self.listener.damage(
                        f"{place.path}: the last {cut_bytes} bytes were damaged and have been cut."
                    )
            except OSError as error:
                sentence = f"Opening {place.path} failed: {error}"
                self.places.failed(place.home.path, error, sentence)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence) from error
        return place.partition

    def partitions(self) -> Iterator[Partition]:
        """Every partition; loads those that are not loaded yet. Partitions that cannot be read are left
        out."""
        for topic, index in list(self.places.by_key):
            try:
                partition = self.get(topic, index)
            except KafkaError:
                continue
            if partition is not None:
                yield partition

    def delete(self, topic: str, index: int, *, sync: bool = True) -> None:
        """Delete a partition: its directory is renamed at once and removed after `file.delete.delay.ms`. No
        error if it does not exist. Without `sync` a loss of power may undo it, until `sync_directories`.

        In a failed directory it stays on the disk: the store forgets it, and refuses with
        KAFKA_STORAGE_ERROR.
        """
        key = (topic, index)
        place = self.places.by_key.get(key)
        if place is None:
            return
        to_delete = self._move_away(key, place, DELETE_SUFFIX, sync=sync)
        delay_ms = 0 if place.partition is None else place.partition.config.file_delete_delay_ms
        self.upkeep.remove_directory(to_delete, delay_ms, place.partition)

    def set_aside(self, topic: str, index: int) -> str:
        """Rename the directory of a partition without a topic, and keep it; returns the new path."""
        key = (topic, index)
        return self._move_away(key, self.places.by_key[key], STRAY_SUFFIX)

    def sync_directories(self) -> None:
        """Make deletions durable. May run in a worker thread. Raises `OSError`."""
        for home in self.places.homes.values():
            if home.failure is None:
                self.disk.sync_directory(home.path)

    def _move_away(self, key: Key, place: Place, suffix: str, *, sync: bool = True) -> str:
        """Rename a partition's directory, and remove the partition from the store."""
        path = place.path
        self.relocation.clear_place(key)
        error: OSError | str | None = place.home.failure
        # First, for a worker that tries to bring the partition back: another topic may get the path next.
        with self.places.gate:
            if error is None:
                try:
                    path = self.places.rename_aside(place.home, place.name, suffix)
                    if sync:
                        self.disk.sync_directory(place.home.path)
                except OSError as failed:
                    sentence = f"Renaming {place.path} failed: {failed}"
                    self.places.failed(place.home.path, failed, sentence)
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence) from failed
            self.places.leave(key)
        if place.partition is not None:
            place.partition.moved_to_deletion(path)
        place.home.forget(key)
        if error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} stays on its failed disk: {error}")
        return path

    # Background work

    def maintaining(self, now_ms: int) -> Work[None]:
        """Retention, removing what was deleted, checkpoints.

        With very many partitions each call takes only some, and even fewer of those that it has to load
        first. The store may change between the steps; one such work at a time.
        """
        self.places.now_ms = now_ms
        yield from self.upkeep.maintaining(now_ms)
        yield from self.checkpointing.writing_if_due(now_ms)
        yield from self._emptying_journals()

    def _emptying_journals(self) -> Work[None]:
        for journal in self.flush_journals:
            try:
                yield from journal.emptying()
            except OSError as error:
                sentence = f"Removing the flush journal of {journal.directory} failed: {error}"
                self.places.failed(journal.directory, error, sentence)

    def still(self, home: DataDirectory) -> "DirectoryStill":
        """See `still_of_directory`."""
        from odradek.storage.directories.still import still_of_directory  # for tests of users

        return still_of_directory(self.places, home, self.get)

    def flush_due(self, now_ms: int) -> list[Partition]:
        """The partitions that need a `flush` soon: a sealed segment is not on the disk yet, `flush.ms` is
        over or will be before the next call, a scan checkpoint waits for it, or the flush journal does.
        """
        previous_ms, self._flushes_checked_ms = self._flushes_checked_ms, now_ms
        if previous_ms is None or previous_ms > now_ms:
            previous_ms = now_ms  # the first call, or the clock was put back
        due = {
            partition: None
            for partition in self.places.loaded()
            if partition.is_available and partition.flushing.wants_flush(now_ms, previous_ms)
        }
        due |= dict.fromkeys(self.checkpointing.waiting_for_flush())
        for journal in self.flush_journals:
            due |= dict.fromkeys(cast(list[Partition], journal.to_flush()))
        return [partition for partition in due if partition.is_available]

    def truncating(self, partition: Partition, offset: int) -> Work[bool]:
        """Cut a log: the batch that holds `offset` and all later ones are removed. False if the log ends
        before. Staged batches are refused, and a high watermark after the new end is lowered. A log that
        begins after `offset` begins again there (`restarting`). Meanwhile appends are refused with
        KAFKA_STORAGE_ERROR, and for a moment reads.

        Refuses with KAFKA_STORAGE_ERROR when the partition is offline, or after an error of the disk, which
        takes it offline; with REASSIGNMENT_IN_PROGRESS while it is moved to another directory.
        """
        self._check_stays(partition)
        return (yield from self._truncation.truncating(partition, offset))

    def restarting(self, partition: Partition, offset: int) -> Work[None]:
        """Remove all records of a log; it begins again at `offset`, as does the high watermark, without
        producers and leader epochs. Otherwise as `truncating`. Kafka: `truncateFullyAndStartAt`.
        """
        self._check_stays(partition)
        yield from self._truncation.restarting(partition, offset)

    def _check_stays(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        place = self.places.by_key.get(key)
        if self.relocation.is_moved(key) or (place is not None and place.old_home is not None):
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"{partition.name} is being moved.")

    # Compaction

    def _is_compacting(self, partition: Partition) -> bool:
        return self._cleaner is not None and self._cleaner.is_swapping(partition)

    def compact(self, now_ms: int, budget_bytes: int = CLEANING_STEP_BYTES) -> bool:
        """One bounded step of compaction in this thread; True while there is more to do."""
        return self.cleaner.step(now_ms, budget_bytes)

    @property
    def compacted(self) -> tuple[float, int]:
        """Seconds that rounds of compaction took which are over, and bytes that they have read."""
        cleaner = self._cleaner
        return (0.0, 0) if cleaner is None else (cleaner.seconds, cleaner.bytes_read)

    @property
    def cleaner(self) -> "Cleaner":
        """The compaction of this store."""
        if self._cleaner is None:
            from odradek.storage.compaction.cleaner import Cleaner  # not needed to start

            self._cleaner = Cleaner(
                CompactionView(self.places, self.checkpointing, self.upkeep, self.relocation)
            )
        return self._cleaner


class CompactionView:
    """The interface of a store for compaction (`Cleanable`)."""

    def __init__(
        self, places: Places, checkpointing: Checkpointing, upkeep: Upkeep, relocation: Relocation
    ) -> None:
        self._places = places
        self._checkpointing = checkpointing
        self._upkeep = upkeep
        self._relocation = relocation

    @property
    def disk(self) -> Disk:
        return self._places.disk

    def loaded(self) -> Iterable[Partition]:
        return self._places.loaded()

    def is_held(self, partition: Partition) -> bool:
        """Whether the store still has this partition, and does not move it."""
        is_there = self._places.place_of(partition) is not None
        return is_there and not self._relocation.is_moved((partition.topic, partition.index))

    def first_dirty_of(self, partition: Partition) -> int:
        return self._checkpointing.first_dirty_of(partition)

    def noting_first_dirty(self, partition: Partition, offset: int) -> Work[None]:
        return self._checkpointing.noting_first_dirty(partition, offset)

    def noting_flushed(self, partition: Partition, end_offset: int) -> Work[bool]:
        """See `Checkpointing.noting_flushed`; False for a partition that is not held."""
        if not self.is_held(partition):
            return False
        return (yield from self._checkpointing.noting_flushed(partition, end_offset))

    def remove_later(self, segments: Sequence[Segment], due_ms: int) -> None:
        self._upkeep.remove_segments(segments, due_ms)

    def new_token(self) -> str:
        """A unique part of file names."""
        return self._places.new_id()[:8]
