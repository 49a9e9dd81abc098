"""All partitions under the data directories: opening, creating, deleting, background work, closing.

A partition's files are looked at when it is first asked for, so that a clean start takes as long with ten
thousand partitions as with ten. After any other stop than a clean one every partition that has records is
recovered in `open`.
The number of open segment files is bounded.

Each data directory holds `.lock`, four checkpoint files and `.kafka_cleanshutdown`, as Kafka's do. One that
fails takes only its own partitions offline, at the start and later; they come back when its disk answers
again (`attending`, `rescan.py`), those of a directory that could not be opened with the next start. One
thread owns a store; only `Partition.flush` and what a `Work` hands out may run elsewhere.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import TYPE_CHECKING

from odradek.storage import checkpoints
from odradek.storage.checkpoints import FIRST_DIRTY, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from odradek.storage.config import CLEANING_STEP_BYTES, LONG_MAX, LogConfig
from odradek.storage.data_directory import DataDirectory, Key, is_failure
from odradek.storage.disk import Disk
from odradek.storage.group_log import GroupLog, remove_files, replay
from odradek.storage.partition import ZERO_UUID, Partition
from odradek.storage.producer_state import EXPIRATION_MS, EXPIRY_INTERVAL_MS
from odradek.storage.recovery import Recovered, base_offset_of, begin_log, needs_recovery, open_log
from odradek.storage.segment import LOG, FilePool, Segment
from odradek.storage.throttle import Allowance
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.storage.cleaner import Cleaner
    from odradek.storage.log import Log
    from odradek.storage.moving import Move

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
FILE_NAME_BYTES_MAX = 255
CHECKPOINT_INTERVAL_MS = 60_000
"""Default of `log.flush.offset.checkpoint.interval.ms`."""
MANY_TO_CLOSE = 64
"""From so many changed partitions on one sync of the file system before theirs is cheaper."""
EFFORT_PER_MAINTENANCE = 256
EFFORT_OF_LOADING = 8
NOTED_PER_STEP = 256
REMOVED_PER_STEP = 16
PREFERENCES_MAX = 10_000
RESCAN_PAUSE_MS = 5_000
"""After a rescan that the disk did not let happen."""


class DirectoryInUse(Exception):
    """Another broker, ours or Kafka's, has this data directory."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"The data directory {directory} is in use by another broker.")
        self.directory = directory


@dataclass(slots=True)
class _Place:
    """A partition on the disk: where, and the partition once it has been loaded, or why it cannot be."""

    home: DataDirectory
    name: str
    partition: Partition | None = None
    was_clean: bool = True
    """False: it is to be recovered when it is loaded."""
    failure: str | None = None

    @property
    def path(self) -> str:
        return f"{self.home.path}/{self.name}"

    @property
    def offline_because(self) -> str | None:
        if self.home.failure is not None:
            return f"{self.name} is offline: {self.home.path} has failed: {self.home.failure}"
        if self.partition is not None and self.partition.is_broken:
            return self.partition.failure
        return self.failure


@dataclass(slots=True)
class _LeftBehind:
    """The old directory of a partition that has been moved; it goes when the new one is flushed so far."""

    key: Key
    path: str
    home: DataDirectory
    partition: Partition
    end_offset: int


def _default_config(topic: str) -> LogConfig:
    return LogConfig()


def _unknown_topic_id(topic: str, index: int) -> bytes | None:
    return None


class StoreListener:
    """What a store tells whoever runs it. This one does nothing with it."""

    def stray(self, topic: str, index: int, path: str) -> None:
        """A directory that was another topic's, or a second one of the same partition, is now at `path`."""

    def trouble(self) -> None:
        """`attending` has something to do. In any thread, and often."""

    def directory(self, path: str, failure: str | None) -> None:
        """A data directory has failed, or (None) serves again."""

    def damage(self, sentence: str) -> None:
        """A file was not as it had been written; nothing is cut for that, and the store goes on."""

    def recovered(self, name: str, cut_bytes: int) -> None:
        """A partition is back; so many bytes at its end were lost."""

    def moved(self, name: str, directory: str) -> None:
        """A partition lies in another data directory now."""

    def move_failed(self, name: str, directory: str, reason: str) -> None:
        """A partition stays where it is."""


def _new_id() -> str:
    return urandom(16).hex()


class LogStore:
    """See the module. `config_for` gives the settings of a topic that is found on the disk, `topic_id_for`
    the id of the topic that a partition belongs to, None when there is none.

    A directory that says another id when it is loaded is set aside, as by Kafka's LogManager, an empty
    partition takes its place, and `listener.stray` is told. The calls of `maintaining` in
    `retention_interval_ms` go round once. `new_lock` makes what keeps threads apart (`threading.Lock`).
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig] = _default_config,
        topic_id_for: Callable[[str, int], bytes | None] = _unknown_topic_id,
        listener: StoreListener | None = None,
        open_files_max: int = 1024,
        new_id: Callable[[], str] = _new_id,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        producer_expiration_ms: int = EXPIRATION_MS,
        producer_expiry_interval_ms: int = EXPIRY_INTERVAL_MS,
        retention_interval_ms: int = 0,
        new_lock: Callable[[], AbstractContextManager] = nullcontext,
    ) -> None:
        self.disk = disk
        self.directories = [directory.rstrip("/") for directory in directories]
        self.pool = FilePool(disk, open_files_max)
        self.group_logs = [GroupLog(disk, directory) for directory in self.directories]
        self.was_clean = True
        self.restored_bytes = 0
        self.listener = StoreListener() if listener is None else listener
        self._config_for = config_for
        self._topic_id_for = topic_id_for
        self._new_id = new_id
        self._checkpoint_interval_ms = checkpoint_interval_ms
        self.producer_expiration_ms = producer_expiration_ms
        self.producer_expiry_interval_ms = producer_expiry_interval_ms
        self._retention_interval_ms = retention_interval_ms
        self._homes = {path: DataDirectory(disk, path, new_lock()) for path in self.directories}
        self._places: dict[Key, _Place] = {}
        self._now_ms = 0
        self._cleaner: Cleaner | None = None
        self._last_checkpoint_ms = 0
        # (due, path of a directory, its partition) and (due, segment): removed once nobody can be reading
        # them.
        self._doomed_directories: deque[tuple[int, str, Partition | None]] = deque()
        self._doomed_segments: deque[tuple[int, Segment]] = deque()
        self._turn: Iterator[Key] = iter(())
        self._last_turn_ms: int | None = None
        self._due_partitions = 0.0
        # (path of a data directory, what its disk said) that are to be looked at; added to in any thread.
        self._suspected: deque[tuple[str, str]] = deque()
        self._has_broken = False
        self._rescan_after_ms = 0
        self._moves: dict[Key, Move] = {}
        self.move_allowance = Allowance()
        self._abandoned: list[Move] = []
        self._moved: list[_LeftBehind] = []
        self._interrupted_moves: dict[Key, DataDirectory] = {}
        # Where partitions are to be made that somebody has asked to move before they were there.
        self._preferred: dict[Key, DataDirectory] = {}
        self._gate = new_lock()

    # Opening and closing

    def open(self, now_ms: int) -> dict[Key, int]:
        """Lock the directories and find the partitions; recover them unless the last stop was clean.

        Returns of which partitions how many bytes at the end were not sound and have been cut. Raises
        `DirectoryInUse`, and `OSError` when no directory can be used; see `failures` for those that cannot.
        """
        self._now_ms = self._last_checkpoint_ms = now_ms
        cut_bytes: dict[Key, int] = {}
        try:
            for home in self._homes.values():
                try:
                    self._open_directory(home, cut_bytes)
                except OSError as error:
                    if all(other is home or other.failure is not None for other in self._homes.values()):
                        raise
                    home.unlock()
                    self._fail(home, str(error))
        except BaseException:
            self._unlock()
            raise
        self._take_up_moves()
        return cut_bytes

    def _open_directory(self, home: DataDirectory, cut_bytes: dict[Key, int]) -> None:
        disk, directory = self.disk, home.path
        disk.make_directory(directory)
        try:
            home.lock = disk.lock(f"{directory}/{checkpoints.LOCK}")
        except BlockingIOError:
            raise DirectoryInUse(directory) from None
        clean = checkpoints.take_clean_shutdown(disk, directory)
        self.was_clean = self.was_clean and clean
        for damaged in home.read_checkpoints():
            self.listener.damage(
                f"{directory}/{damaged} is damaged: what it said is found again in the logs."
            )
        if clean:
            # Not ours, else it were gone: another broker has had the directory since.
            remove_files(disk, directory)
        else:
            self.restored_bytes += replay(disk, directory, partial(_recovery_point_of, home))
        for name in disk.list(directory):
            if name.endswith(DELETE_SUFFIX):
                _remove_with_files(disk, f"{directory}/{name}")
                continue
            if name.endswith(FUTURE_SUFFIX):
                self._drop_copy(home, name)
                continue
            key = key_of(name)
            if key is None:
                continue
            place = _Place(home, name)
            if key in self._places and not self._takes_the_place(key, place):
                continue
            self._enter(key, place)
            if clean:
                continue
            if self._is_known(key):
                self._recover(key, place, cut_bytes)
            else:
                # Nobody has asked for it to be touched.
                place.was_clean = False
        for offsets in home.offsets.values():
            for key in [
                key for key in offsets if key not in self._places or self._places[key].home is not home
            ]:
                del offsets[key]
        home.was_opened = True

    def _is_known(self, key: Key) -> bool:
        """Whether a topic has the partition. A directory that no topic has is left as it is."""
        return self._topic_id_for is _unknown_topic_id or self._topic_id_for(*key) is not None

    def _drop_copy(self, home: DataDirectory, name: str) -> None:
        """Of a move that was interrupted, ours or Kafka's: it begins anew."""
        key = key_of(name.rpartition(".")[0])
        if key is not None:
            _remove_with_files(self.disk, f"{home.path}/{name}")
            self._interrupted_moves[key] = home

    def _takes_the_place(self, key: Key, second: _Place) -> bool:
        """Two directories have the same partition. That of the topic which is known stays; of two that both
        are the topic's, one is the copy that a move between directories left: the longer one stays.
        """
        if not self._is_known(key):
            return False
        first = self._places[key]
        ids = [_topic_id_in(self.disk, place.path) for place in (first, second)]
        if ids[0] == ids[1]:
            second_stays = self._extent(second) > self._extent(first)
        else:
            second_stays = ids[1] == self._topic_id_for(*key)
        loser = first if second_stays else second
        if second_stays:
            self._leave(key)
            first.home.forget(key)
            if first.partition is not None:
                first.partition.log.release_files()
        suffix = DELETE_SUFFIX if ids[0] == ids[1] else STRAY_SUFFIX
        path = self._rename_aside(loser, suffix)
        if suffix == DELETE_SUFFIX:
            _remove_with_files(self.disk, path)
        else:
            self.listener.stray(*key, path)
        return second_stays

    def _extent(self, place: _Place) -> tuple[int, int]:
        """Where the last segment of a partition begins, and its bytes."""
        names = self.disk.list(place.path)
        base = max(
            (offset for name in names if (offset := base_offset_of(name, LOG)) is not None), default=-1
        )
        return base, self.disk.size(f"{place.path}/{base:020d}{LOG}") if base >= 0 else 0

    def _recover(self, key: Key, place: _Place, cut_bytes: dict[Key, int]) -> None:
        try:
            cut = self._load(key, place, clean=False) if needs_recovery(self.disk, place.path) else 0
        except NotADirectoryError:
            # Somebody's file, with a name like that of a partition.
            self._leave(key)
            return
        except OSError as error:
            place.home.probe()
            self._cannot_open(place, error)
            return
        if cut:
            cut_bytes[key] = cut

    def _cannot_open(self, place: _Place, error: OSError) -> None:
        place.failure = f"{place.name} is offline: opening {place.path} failed: {error}"
        self._has_broken = True
        self._suspect(place.home.path, error)

    def _load(self, key: Key, place: _Place, *, clean: bool) -> int:
        recovered = self._opened(self.pool, key, place, clean=clean)
        self._take_in(key, place, recovered)
        return recovered.cut_bytes

    def _opened(self, pool: FilePool, key: Key, place: _Place, *, clean: bool) -> Recovered:
        config = self._config_for(key[0])
        # Up to where compaction may have made gaps, as far as that is known when the recovery point is lost.
        gaps_until = 0
        if not place.home.is_vouched:
            gaps_until = LONG_MAX if config.is_compacted else place.home.offset(FIRST_DIRTY, key)
        return open_log(
            pool,
            place.path,
            config,
            clean=clean,
            recovery_point=place.home.offset(RECOVERY_POINTS, key),
            log_start_offset=place.home.offset(LOG_STARTS, key),
            now_ms=self._now_ms,
            gaps_until=gaps_until,
            producer_expiration_ms=self.producer_expiration_ms,
        )

    def _take_in(self, key: Key, place: _Place, recovered: Recovered) -> None:
        topic, index = key
        topic_id = _topic_id_in(self.disk, place.path)
        if recovered.damage is not None:
            self.listener.damage(recovered.damage)
        path = f"{place.path}/{checkpoints.PARTITION_METADATA}"
        if topic_id is None and self.disk.exists(path):
            self.listener.damage(f"{path} is damaged: {place.name} is taken for one of the topic of today.")
        place.failure = None
        place.partition = Partition(
            topic,
            index,
            topic_id or ZERO_UUID,
            recovered.log.config,
            recovered.log,
            log_start_offset=recovered.log_start_offset,
            leader_epoch=max(recovered.log.leader_epochs.latest, 0),
            on_trouble=self._told_of_trouble,
        )

    def close(self, now_ms: int) -> None:
        """Flush everything, write snapshots, indexes and checkpoints, mark the stop as clean, unlock.

        A directory whose disk does not play along is not marked, and the next start recovers. Of one that
        `open` was refused nothing is written.
        """
        homes = [home for home in self._homes.values() if home.lock is not None]
        if not homes:
            return
        self._now_ms = now_ms
        if self._cleaner is not None:
            self._cleaner.close()
        self._write_down()
        unclean = {home.path for home in homes if home.failure is not None or not home.was_opened}
        for place in list(self._places.values()):
            try:
                if place.failure is not None:
                    unclean.add(place.home.path)
                elif place.partition is not None and place.home.failure is None:
                    place.partition.close()
            except (KafkaError, OSError):
                unclean.add(place.home.path)
        finish(self._removing_doomed(None))
        for home in homes:
            self._close_directory(home, is_clean=home.path not in unclean)
        self._unlock()

    def _close_directory(self, home: DataDirectory, *, is_clean: bool) -> None:
        """Where the disk does not play along the mark is left out."""
        try:
            if home.failure is None and home.was_opened:
                finish(self._noting(home))
                home.write()
            for group_log in self.group_logs:
                if group_log.directory != home.path:
                    continue
                if is_clean:
                    group_log.discard()
                else:
                    group_log.close()
            if is_clean:
                checkpoints.write_clean_shutdown(self.disk, home.path)
        except OSError:
            pass

    def _write_down(self) -> None:
        """Where many partitions are to be closed: writes what their closing would write and syncs the file
        systems. At a sync of each file, five a partition, the device flushes its cache each time, whether
        there is something in it or not.
        """
        places = [place for place in self._places.values() if place.home.failure is None]
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
                pass  # its own close will say so
        try:
            for home in self._homes.values():
                if home.failure is None:
                    self.disk.sync_file_system(home.path)
        except OSError:
            return
        for log in written:
            log.is_safe()

    def _unlock(self) -> None:
        for home in self._homes.values():
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
        now_ms: int | None = None,
    ) -> Partition:
        """The partition, made if it is not there. One that is there takes the settings given.

        Refuses with INCONSISTENT_TOPIC_ID when it is there and belongs to another topic of the same name,
        with KAFKA_STORAGE_ERROR when the disk does not answer.
        """
        if now_ms is not None:
            self._now_ms = now_ms
        partition = self.get(topic, index)
        try:
            if partition is None:
                partition = self._make(topic, index, topic_id, config)
            elif partition.topic_id != topic_id:
                self._adopt(partition, topic_id)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Creating {topic}-{index} failed: {error}"
            ) from error
        if partition.config is not config:
            partition.set_config(config)
        partition.leader_epoch = max(partition.leader_epoch, leader_epoch)
        return partition

    def _make(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> Partition:
        """In the emptiest directory that can be written, as Kafka's LogManager, or where it is wanted."""
        failure = OSError("every data directory has failed")
        homes = sorted(self._homes.values(), key=lambda home: home.partition_count)
        preferred = self._preferred.pop((topic, index), None)
        for home in homes if preferred is None else [preferred, *homes]:
            if home.failure is not None:
                continue
            try:
                return self._make_in(home, topic, index, topic_id, config)
            except OSError as error:
                self._suspect(home.path, error)
                failure = error
        raise failure

    def _make_in(
        self, home: DataDirectory, topic: str, index: int, topic_id: bytes, config: LogConfig
    ) -> Partition:
        key = (topic, index)
        place = _Place(home, f"{topic}-{index}")
        self._forget_offsets(key)
        is_new = self._make_directory(place, topic_id)
        checkpoints.write_partition_metadata(
            self.disk,
            f"{place.path}/{checkpoints.PARTITION_METADATA}",
            topic_id,
            directory_is_new=is_new,
        )
        if is_new:
            log = begin_log(self.pool, place.path, config, self._now_ms)
        else:
            # Left behind by a creation that failed half-way.
            log = open_log(
                self.pool,
                place.path,
                config,
                clean=True,
                recovery_point=0,
                log_start_offset=0,
                now_ms=self._now_ms,
            ).log
        partition = Partition(topic, index, topic_id, config, log, on_trouble=self._told_of_trouble)
        place.partition = partition
        self._enter(key, place)
        return partition

    def _make_directory(self, place: _Place, topic_id: bytes) -> bool:
        """Whether there was none. One of another topic that is in the way is kept beside it."""
        if self.disk.make_directory(place.path):
            return True
        if _topic_id_in(self.disk, place.path) in (None, topic_id):
            return False
        key = key_of(place.name)
        assert key is not None
        self.listener.stray(*key, self._rename_aside(place, STRAY_SUFFIX))
        return self.disk.make_directory(place.path)

    def _forget_offsets(self, key: Key) -> None:
        """What an earlier topic of this name left in the checkpoints is not about the one to come. On the
        disk neither: a start after a kill would cut off what is before the other's log start.
        """
        for home in self._homes.values():
            if home.forget(key) and home.failure is None:
                home.want()
                home.write()

    def _adopt(self, partition: Partition, topic_id: bytes) -> None:
        if partition.topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{partition.name} on the disk belongs to a topic with another id.",
            )
        path = f"{partition.log.directory}/{checkpoints.PARTITION_METADATA}"
        checkpoints.write_partition_metadata(self.disk, path, topic_id)
        partition.adopt(topic_id)

    def _enter(self, key: Key, place: _Place) -> None:
        self._places[key] = place
        place.home.partition_count += 1

    def _leave(self, key: Key) -> None:
        self._places.pop(key).home.partition_count -= 1

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, loaded if need be; None when there is none. KAFKA_STORAGE_ERROR when it cannot
        be read.
        """
        key = (topic, index)
        place = self._places.get(key)
        if place is None:
            return None
        if place.partition is None:
            if place.offline_because is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, place.offline_because)
            try:
                topic_id = self._topic_id_for(topic, index)
                if topic_id is not None and self.topic_id_of(topic, index) not in (None, topic_id):
                    self.listener.stray(topic, index, self.set_aside(topic, index))
                    return self._make(topic, index, topic_id, self._config_for(topic))
                self._load(key, place, clean=place.was_clean)
            except OSError as error:
                self._suspect(place.home.path, error)
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"Opening {place.path} failed: {error}"
                ) from error
        return place.partition

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def names(self) -> list[Key]:
        """(topic, index) of every partition, loaded or not."""
        return list(self._places)

    def loaded(self) -> Iterator[Partition]:
        """The partitions that have been asked for since the start."""
        return (place.partition for place in list(self._places.values()) if place.partition is not None)

    def partitions(self) -> Iterator[Partition]:
        """Every partition; loads what is not loaded yet. Those that cannot be read are left out."""
        for topic, index in list(self._places):
            try:
                partition = self.get(topic, index)
            except KafkaError:
                continue
            if partition is not None:
                yield partition

    def sizes(self) -> Iterator[tuple[str, str, int, int | None]]:
        """(data directory, topic, index, bytes of its segments) of every partition in a directory that
        serves, without loading any.

        None instead of the bytes where the disk does not answer.
        """
        for (topic, index), place in list(self._places.items()):
            if place.home.failure is not None:
                continue
            size_bytes: int | None
            if place.partition is not None:
                size_bytes = place.partition.size_bytes
            else:
                try:
                    size_bytes = self._bytes_on_disk(place.path)
                except OSError:
                    size_bytes = None
            yield place.home.path, topic, index, size_bytes

    def _bytes_on_disk(self, path: str) -> int:
        """Of the segments of a partition's directory."""
        return sum(
            self.disk.size(f"{path}/{name}")
            for name in self.disk.list(path)
            if base_offset_of(name, LOG) is not None
        )

    def delete(self, topic: str, index: int, *, sync: bool = True) -> None:
        """Delete a partition: out of sight at once, off the disk after `file.delete.delay.ms`. No error
        if unknown. Without `sync` a loss of power may undo it, until `sync_directories`.

        In a directory that has failed it stays on the disk: it is forgotten, and KAFKA_STORAGE_ERROR says so.
        """
        key = (topic, index)
        place = self._places.get(key)
        if place is None:
            return
        doomed = self._move_away(key, place, DELETE_SUFFIX, sync=sync)
        delay_ms = 0 if place.partition is None else place.partition.config.file_delete_delay_ms
        self._doomed_directories.append((self._now_ms + delay_ms, doomed, place.partition))

    def set_aside(self, topic: str, index: int) -> str:
        """Take a partition that is nobody's out of the way without losing it; returns its directory's new
        path.
        """
        key = (topic, index)
        return self._move_away(key, self._places[key], STRAY_SUFFIX)

    def sync_directories(self) -> None:
        """Make what was deleted stay so. May run in a worker thread. Raises `OSError`."""
        for home in self._homes.values():
            if home.failure is None:
                self.disk.sync_directory(home.path)

    def _move_away(self, key: Key, place: _Place, suffix: str, *, sync: bool = True) -> str:
        """Rename a partition's directory as Kafka does (`topic-0.<id>-delete`), and forget the partition."""
        path = place.path
        for left in [one for one in self._moved if one.key == key]:
            # Now: a new partition of that name may be made where it is.
            self._remove_left_behind(left)
        error: OSError | str | None = place.home.failure
        if error is None:
            try:
                path = self._rename_aside(place, suffix)
                if sync:
                    self.disk.sync_directory(place.home.path)
            except OSError as failed:
                self._suspect(place.home.path, failed)
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"Renaming {place.path} failed: {failed}"
                ) from failed
        self._leave(key)
        if place.partition is not None:
            place.partition.moved_to_deletion(path)
        place.home.forget(key)
        if error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} stays, its disk has failed: {error}")
        return path

    def _rename_aside(self, place: _Place, suffix: str) -> str:
        ending = f".{self._new_id()}{suffix}"
        path = f"{place.home.path}/{place.name[: FILE_NAME_BYTES_MAX - len(ending)]}{ending}"
        self.disk.rename(place.path, path)
        return path

    def topic_id_of(self, topic: str, index: int) -> bytes | None:
        """What a partition's directory says of its topic's id, without loading it; None when it says
        nothing.
        """
        place = self._places[topic, index]
        if place.partition is not None:
            topic_id = place.partition.topic_id
            return None if topic_id == ZERO_UUID else topic_id
        return _topic_id_in(self.disk, place.path)

    def saving_starts(self, partitions: Iterable[Partition]) -> Work[list[Partition]]:
        """Put on the disk where these logs start now; returns those of which that failed.

        Kafka writes them once a minute: what DeleteRecords has answered, a kill may undo there.
        """
        of_home: dict[DataDirectory, list[Partition]] = {}
        for partition in partitions:
            key = (partition.topic, partition.index)
            place = self._places.get(key)
            if place is not None and place.partition is partition:
                self._note_start(key, place)
                of_home.setdefault(place.home, []).append(partition)
        for home in of_home:
            home.want(LOG_STARTS)
        failed = []
        for home, some in of_home.items():
            try:
                yield home.write
            except OSError as error:
                self._suspect(home.path, error)
                failed += some
        return failed

    # Moves between directories

    def begin_move(self, topic: str, index: int, directory: str) -> None:
        """Let a partition, or one that is made later, lie in another data directory.

        Ends a move to anywhere else. Refuses with KAFKA_STORAGE_ERROR while a directory is offline, and with
        REPLICA_NOT_AVAILABLE when there is no such partition; when there will be, it is made there.
        """
        from odradek.storage.moving import Move  # few brokers have two directories

        key = (topic, index)
        target = self._homes[directory]
        place = self._places.get(key)
        move = self._moves.get(key)
        if place is not None and place.offline_because is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, place.offline_because)
        if move is not None:
            if move.target is target:
                return
            self._abandoned.append(self._moves.pop(key))
        if place is None:
            if len(self._preferred) < PREFERENCES_MAX:
                self._preferred[key] = target
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"There is no {topic}-{index} here yet.")
        if place.home is target:
            return
        if self.failures:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Nothing is moved while {next(iter(self.failures))} is offline.",
            )
        partition = self.get(topic, index)
        assert partition is not None
        future = f"{directory}/{place.name}.{self._new_id()}{FUTURE_SUFFIX}"
        self._moves[key] = Move(partition, target, future)

    def moves(self) -> Iterator[tuple[str, str, int, int, int]]:
        """(new data directory, topic, index, bytes copied, offsets to go) of partitions that are moved."""
        for (topic, index), move in self._moves.items():
            lag = move.partition.log_end_offset - move.end_offset
            yield move.target.path, topic, index, move.size_bytes, max(lag, 0)

    @property
    def has_moves(self) -> bool:
        """Whether `moving` has something to do."""
        return bool(self._moves or self._moved or self._abandoned)

    def moving(self, now_ms: int) -> Work[None]:
        """Go on with the moves: copy, change over, remove what has been left. After `begin_move`, and every
        second while there are any. One such work at a time.
        """
        self._now_ms = now_ms
        self.move_allowance.refill(now_ms)
        for key, move in list(self._moves.items()):
            if self._moves.get(key) is not move:
                continue
            try:
                yield from self._moving_one(key, move)
            except OSError as error:
                self._suspect(move.target.path, error)
                self._suspect(move.partition.directory.rpartition("/")[0], error)
                self.listener.move_failed(move.partition.name, move.target.path, str(error))
                if self._moves.get(key) is move:
                    self._abandoned.append(self._moves.pop(key))
        while self._abandoned:
            move = self._abandoned.pop()
            move.target.forget((move.partition.topic, move.partition.index))
            try:
                yield move.abandon
            except OSError as error:
                self._suspect(move.target.path, error)
        for left in list(self._moved):
            self._leave_behind(left)

    def _moving_one(self, key: Key, move: "Move") -> Work[None]:
        has_caught_up = yield from move.catching_up(self.move_allowance)
        place = self._places.get(key)
        if self._moves.get(key) is not move:
            return
        if place is None or place.partition is not move.partition or place.offline_because is not None:
            self._abandoned.append(self._moves.pop(key))
            return
        if not has_caught_up:
            return  # more is allowed later
        # There before the directory has its name: no start may miss where the log begins.
        target = move.target
        for name, offsets in place.home.offsets.items():
            if key in offsets:
                target.offsets[name][key] = offsets[key]
        target.offsets[RECOVERY_POINTS][key] = move.synced_offset
        starts = target.offsets[LOG_STARTS]
        starts[key] = move.log_start_offset
        target.want()
        yield target.write
        if self._moves.get(key) is move and self._places.get(key) is place:
            self._change_over(key, place, move)

    def _change_over(self, key: Key, place: _Place, move: "Move") -> None:
        """Let the partition lie where it is moved to, unless it is being flushed."""
        partition = move.partition
        old_path = place.path
        if partition.is_broken or any(left.key == key for left in self._moved):
            return  # the place before this one is still needed, and may be the one to come
        partition.gate = self._gate
        try:
            with self._gate:
                if partition.is_flushing or not move.finish(f"{move.target.path}/{place.name}"):
                    return
        finally:
            partition.gate = None
        place.home.partition_count -= 1
        place.home.forget(key)
        left = _LeftBehind(key, old_path, place.home, partition, partition.log_end_offset)
        place.home = move.target
        place.home.partition_count += 1
        del self._moves[key]
        self._moved.append(left)
        self.listener.moved(partition.name, move.target.path)

    def _leave_behind(self, left: "_LeftBehind") -> None:
        """Remove the old directory of a partition once the new one has been flushed, or is gone."""
        place = self._places.get(left.key)
        log = left.partition.log
        if (
            place is not None
            and place.partition is left.partition
            and (log.is_in_unsafe_place or log.recovery_point < left.end_offset)
        ):
            return
        self._remove_left_behind(left)

    def _remove_left_behind(self, left: _LeftBehind) -> None:
        self._moved.remove(left)
        ending = f".{self._new_id()}{DELETE_SUFFIX}"
        name = left.path.rpartition("/")[2]
        path = f"{left.home.path}/{name[: FILE_NAME_BYTES_MAX - len(ending)]}{ending}"
        try:
            self.disk.rename(left.path, path)
        except OSError as error:
            # The next start finds two of them, and keeps the longer one.
            self._suspect(left.home.path, error)
            return
        delay_ms = left.partition.config.file_delete_delay_ms
        self._doomed_directories.append((self._now_ms + delay_ms, path, None))

    def _take_up_moves(self) -> None:
        """Begin the moves anew that a stop has interrupted."""
        for key, home in self._interrupted_moves.items():
            place = self._places.get(key)
            if place is None or place.home is home:
                continue
            try:
                self.begin_move(*key, home.path)
            except KafkaError:
                continue
        self._interrupted_moves.clear()

    # Disks that fail

    @property
    def failures(self) -> dict[str, str]:
        """Why data directories are offline, by their paths."""
        return {home.path: home.failure for home in self._homes.values() if home.failure is not None}

    @property
    def has_unopened(self) -> bool:
        """Whether there is a data directory of which nobody knows what it holds."""
        return not all(home.was_opened for home in self._homes.values())

    def offline(self) -> set[Key]:
        """The partitions that answer KAFKA_STORAGE_ERROR. Those of a directory whose names could never be
        read are not among them.
        """
        return {key for key, place in self._places.items() if place.offline_because is not None}

    @property
    def needs_attention(self) -> bool:
        """Whether `attending` has something to do."""
        return (
            self._has_broken
            or bool(self._suspected)
            or any(home.failure is not None and home.was_opened for home in self._homes.values())
        )

    def _told_of_trouble(self, partition: Partition, error: OSError) -> None:
        """In the thread that met it."""
        if partition.is_broken:
            self._has_broken = True
        self._suspect(partition.directory.rpartition("/")[0], error)

    def _suspect(self, directory: str, error: OSError) -> None:
        """Have a disk looked at. In any thread."""
        if is_failure(error):
            self._suspected.append((directory, str(error)))
        self.listener.trouble()

    def attending(self, now_ms: int) -> Work[None]:
        """Look at the disks that gave errors, take directories offline whose disk does not answer, bring
        back what can be brought back. Soon after `listener.trouble`, and every second while there is a need.
        """
        self._now_ms = now_ms
        suspected: dict[str, str] = {}
        while self._suspected:
            path, said = self._suspected.popleft()
            suspected.setdefault(path, said)
        for home in self._homes.values():
            if home.path in suspected or (home.failure is not None and home.was_opened):
                yield from self._probing(home, suspected.get(home.path, ""))
        if self._has_broken and now_ms >= self._rescan_after_ms:
            self._has_broken = False
            for key, place in list(self._places.items()):
                if place.home.failure is None and place.offline_because is not None:
                    yield from self._bringing_back(key, place)

    def _probing(self, home: DataDirectory, said: str) -> Work[None]:
        try:
            yield home.probe
        except OSError as error:
            if home.failure is None:
                self._fail(home, said or str(error))
        else:
            if home.failure is not None:
                home.failure = None
                self._has_broken = True
                self.listener.directory(home.path, None)

    def _fail(self, home: DataDirectory, reason: str) -> None:
        home.failure = reason
        for place in self._places.values():
            if place.home is home and place.partition is not None:
                place.partition.take_offline(f"{home.path} has failed: {reason}", is_told=True)
        self.listener.directory(home.path, reason)

    def _bringing_back(self, key: Key, place: _Place) -> Work[None]:
        from odradek.storage.rescan import rescan, take_over  # not needed while all is well

        partition = place.partition
        if partition is None:
            look = partial(self._opened, FilePool(self.disk, 1), key, place, clean=False)
        else:
            # For whoever waits for it, and since a flush in its thread has only said so.
            partition.take_offline("its disk has failed", is_told=True)
            if partition.is_flushing:
                self._has_broken = True
                return
            look = partial(
                rescan,
                partition.log,
                partition.config,
                topic_id=partition.topic_id,
                log_start_offset=partition.log_start_offset,
                now_ms=self._now_ms,
                producer_expiration_ms=self.producer_expiration_ms,
            )
        try:
            recovered: Recovered = yield look
        except OSError as error:
            self._has_broken = True
            self._rescan_after_ms = self._now_ms + RESCAN_PAUSE_MS
            self._suspect(place.home.path, error)
            return
        if self._places.get(key) is not place or place.home.failure is not None:
            recovered.log.release_files()
            self._has_broken = True
            return
        take_over(recovered.log, self.pool)
        if partition is None:
            self._take_in(key, place, recovered)
        else:
            partition.reopen(recovered.log, recovered.log_start_offset)
        self.listener.recovered(place.name, recovered.cut_bytes)

    # Background work

    def maintain(self, now_ms: int) -> None:
        """`maintaining` here and now."""
        finish(self.maintaining(now_ms))

    def maintaining(self, now_ms: int) -> Work[None]:
        """Retention, expiry of producers, checkpoints, removing what was deleted.

        Of very many partitions each call takes some; those that nobody has asked for are loaded for it,
        fewer still. Anything may happen to the store between the steps; one such work at a time.
        """
        self._now_ms = now_ms
        effort = 0
        for key in self._next_keys(now_ms):
            if not self._is_known(key):
                continue
            effort += EFFORT_OF_LOADING if self._places[key].partition is None else 1
            yield from self._maintaining_one(key, now_ms)
            if effort >= EFFORT_PER_MAINTENANCE:
                break
            yield None
        yield from self._removing_doomed(now_ms)
        if now_ms - self._last_checkpoint_ms >= self._checkpoint_interval_ms:
            self._last_checkpoint_ms = now_ms
            yield from self._checkpointing()

    def _next_keys(self, now_ms: int) -> Iterator[Key]:
        """Go on where the last call stopped, so fast that all have had their turn in one interval, and once
        around at the most.
        """
        left = len(self._places)
        if self._retention_interval_ms:
            due = float(left)
            if self._last_turn_ms is not None:
                due = left * max(now_ms - self._last_turn_ms, 0) / self._retention_interval_ms
            self._due_partitions = min(self._due_partitions + due, left)
            self._last_turn_ms = now_ms
            left = int(self._due_partitions)
        while left > 0:
            key = next(self._turn, None)
            if key is None:
                self._turn = iter(list(self._places))
                key = next(self._turn, None)
                if key is None:
                    return
            left -= 1
            if key in self._places:
                self._due_partitions -= 1
                yield key

    def _maintaining_one(self, key: Key, now_ms: int) -> Work[None]:
        place = self._places[key]
        if place.offline_because is not None:
            return
        try:
            partition = self.get(*key)
            if partition is None or not partition.is_available:
                return
            delay_ms = partition.config.file_delete_delay_ms
            dropped = yield from partition.maintaining(
                now_ms, self.producer_expiration_ms, self.producer_expiry_interval_ms
            )
            for segment in dropped:
                self._doomed_segments.append((now_ms + delay_ms, segment))
        except OSError as error:
            # Maintenance tries again the next time.
            self._suspect(place.home.path, error)
        except KafkaError:
            return

    def clean(self, now_ms: int, budget_bytes: int = CLEANING_STEP_BYTES) -> bool:
        """One bounded step of compaction here and now; True while there is more to do."""
        return self.cleaner.step(now_ms, budget_bytes)

    @property
    def cleaner(self) -> "Cleaner":
        """What compaction is to be done, under way and impossible: see there."""
        if self._cleaner is None:
            from odradek.storage.cleaner import Cleaner  # not needed to start

            self._cleaner = Cleaner(self)
        return self._cleaner

    def new_token(self) -> str:
        """A part of the name of files that nobody else writes to."""
        return self._new_id()[:8]

    def is_held(self, partition: Partition) -> bool:
        """Whether this is still the partition of its name, and stays where it is."""
        key = (partition.topic, partition.index)
        place = self._places.get(key)
        return place is not None and place.partition is partition and key not in self._moves

    def first_dirty_of(self, partition: Partition) -> int:
        """How far the partition has been compacted."""
        key = (partition.topic, partition.index)
        return self._places[key].home.offset(FIRST_DIRTY, key)

    def noting_first_dirty(self, partition: Partition, offset: int) -> Work[None]:
        """Note how far the partition is compacted now, on the disk, too. Raises `OSError`."""
        key = (partition.topic, partition.index)
        place = self._places.get(key)
        if place is not None and place.partition is partition:
            place.home.offsets[FIRST_DIRTY][key] = offset
            place.home.want(FIRST_DIRTY)
            yield place.home.write

    def vouching_for(self, partition: Partition, end_offset: int) -> Work[bool]:
        """Whether the recovery point is behind what is going to have gaps: recovery takes gaps after it for
        losses. It has to be so on the disk. Raises `OSError`.

        What has not been flushed yet (`flush_due` names it) is nothing to vouch for: a flush here would block
        this thread, and might meet that of a worker.
        """
        if partition.log.recovery_checkpoint < end_offset or not self.is_held(partition):
            return False
        key = (partition.topic, partition.index)
        home = self._places[key].home
        if home.written(RECOVERY_POINTS, key) < end_offset:
            home.offsets[RECOVERY_POINTS][key] = partition.log.recovery_checkpoint
            home.want(RECOVERY_POINTS)
            yield home.write
        return True

    def remove_later(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Remove the files of segments that are out of sight, when nobody can be reading them any more."""
        self._doomed_segments += [(due_ms, segment) for segment in segments]

    def flush_due(self, now_ms: int) -> list[Partition]:
        """The partitions that want a `flush` soon: sealed segments not on the disk yet, or `flush.ms` is
        over.
        """
        return [
            partition
            for partition in self.loaded()
            if partition.is_available and partition.wants_flush(now_ms)
        ]

    def _removing_doomed(self, now_ms: int | None) -> Work[None]:
        """Remove what was deleted and whose time has come; all of it when `now_ms` is None."""
        due: list[Segment] = []
        # Each looked at once: what is not due yet goes to the back.
        for _ in range(len(self._doomed_segments)):
            due_ms, segment = self._doomed_segments.popleft()
            if now_ms is not None and due_ms > now_ms:
                self._doomed_segments.append((due_ms, segment))
            else:
                due.append(segment)
        for start in range(0, len(due), REMOVED_PER_STEP):
            some = due[start : start + REMOVED_PER_STEP]
            for segment in some:
                segment.close()
            yield partial(_remove_segments, some)
            for segment in some:
                # Whoever was late in reading has opened it again.
                segment.close()
        for _ in range(len(self._doomed_directories)):
            due_ms, path, partition = self._doomed_directories.popleft()
            if now_ms is not None and due_ms > now_ms:
                self._doomed_directories.append((due_ms, path, partition))
                continue
            if partition is not None:
                # An open file keeps its room on the disk.
                partition.log.release_files()
            yield partial(_remove_if_possible, self.disk, path)

    # Checkpoints

    def _checkpointing(self) -> Work[None]:
        for home in self._homes.values():
            if home.failure is not None or not home.was_opened:
                continue
            yield from self._noting(home)
            try:
                yield home.write
            except OSError as error:
                # The next start then reads more of the logs; the time after the next it may be written.
                self._suspect(home.path, error)

    def _noting(self, home: DataDirectory) -> Work[None]:
        """Have the checkpoints of a directory say how things are."""
        for number, (key, place) in enumerate(list(self._places.items()), 1):
            partition = place.partition
            is_here = place.home is home and self._places.get(key) is place
            if is_here and partition is not None and not partition.is_broken:
                home.offsets[RECOVERY_POINTS][key] = partition.log.recovery_checkpoint
                home.offsets[HIGH_WATERMARKS][key] = partition.high_watermark
                self._note_start(key, place)
            if number % NOTED_PER_STEP == 0:
                yield None
        home.want()

    def _note_start(self, key: Key, place: _Place) -> None:
        partition = place.partition
        assert partition is not None
        starts = place.home.offsets[LOG_STARTS]
        if partition.log_start_offset > 0:
            # Where the first segment begins there, too: the names of those before it may yet come back.
            starts[key] = partition.log_start_offset
        else:
            starts.pop(key, None)

    def _write_checkpoints(self) -> None:
        finish(self._checkpointing())


def _recovery_point_of(home: DataDirectory, name: str) -> int:
    key = key_of(name)
    return 0 if key is None else home.offset(RECOVERY_POINTS, key)


def _topic_id_in(disk: Disk, path: str) -> bytes | None:
    try:
        return checkpoints.read_partition_metadata(disk, f"{path}/{checkpoints.PARTITION_METADATA}")
    except OSError:
        return None


def _remove_segments(segments: list[Segment]) -> None:
    for segment in segments:
        try:
            segment.remove()
        except OSError:
            pass


def _remove_if_possible(disk: Disk, path: str) -> None:
    try:
        _remove_with_files(disk, path)
    except OSError:
        pass


def _remove_with_files(disk: Disk, path: str) -> None:
    for name in disk.list(path):
        disk.remove(f"{path}/{name}")
    disk.remove_directory(path)


def key_of(name: str) -> Key | None:
    """Topic and partition of a directory's name; None when it is not the name of a partition."""
    topic, dash, index = name.rpartition("-")
    return (topic, int(index)) if dash and topic and index.isdigit() else None
