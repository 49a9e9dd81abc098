"""All partitions under the data directories: opening, creating, deleting, background work, closing.

A partition's files are looked at when it is first asked for, so that a clean start takes as long with ten
thousand partitions as with ten. After any other stop than a clean one every partition that has records is
recovered in `open`.
The number of open segment files is bounded.

Each data directory holds `.lock`, three checkpoint files and `.kafka_cleanshutdown`, as Kafka's do. One
thread owns a store; only `Partition.flush` may run elsewhere.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import TYPE_CHECKING

from odradek.storage import checkpoints
from odradek.storage.config import CLEANING_STEP_BYTES, LogConfig
from odradek.storage.disk import Disk, Lock
from odradek.storage.group_log import GroupLog, remove_files, replay
from odradek.storage.partition import ZERO_UUID, Partition
from odradek.storage.producer_state import EXPIRATION_MS
from odradek.storage.recovery import base_offset_of, begin_log, needs_recovery, open_log
from odradek.storage.segment import LOG, FilePool, Segment
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.storage.cleaner import Cleaner
    from odradek.storage.log import Log

Key = tuple[str, int]

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FILE_NAME_BYTES_MAX = 255
CHECKPOINT_INTERVAL_MS = 60_000
"""Default of `log.flush.offset.checkpoint.interval.ms`."""
MANY_TO_CLOSE = 64
"""From so many changed partitions on one sync of the file system before theirs is cheaper."""
EFFORT_PER_MAINTENANCE = 256
EFFORT_OF_LOADING = 8


class DirectoryInUse(Exception):
    """Another broker, ours or Kafka's, has this data directory."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"The data directory {directory} is in use by another broker.")
        self.directory = directory


@dataclass(slots=True)
class _Place:
    """A partition on the disk: where, and the partition once it has been loaded."""

    directory: str
    name: str
    partition: Partition | None = None
    was_clean: bool = True
    """False: it is to be recovered when it is loaded."""

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"


def _default_config(topic: str) -> LogConfig:
    return LogConfig()


def _unknown_topic_id(topic: str, index: int) -> bytes | None:
    return None


def _not_told(topic: str, index: int, path: str) -> None:
    pass


def _new_id() -> str:
    return urandom(16).hex()


class LogStore:
    """See the module. `config_for` gives the settings of a topic that is found on the disk, `topic_id_for`
    the id of the topic that a partition belongs to, None when there is none.

    A directory that says another id when it is loaded is set aside, as by Kafka's LogManager, an empty
    partition takes its place, and `on_stray(topic, index, new path)` is called.
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig] = _default_config,
        topic_id_for: Callable[[str, int], bytes | None] = _unknown_topic_id,
        on_stray: Callable[[str, int, str], None] = _not_told,
        open_files_max: int = 1024,
        new_id: Callable[[], str] = _new_id,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        producer_expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self.disk = disk
        self.directories = [directory.rstrip("/") for directory in directories]
        self.pool = FilePool(disk, open_files_max)
        self.group_logs = [GroupLog(disk, directory) for directory in self.directories]
        self.was_clean = True
        self.restored_bytes = 0
        self._config_for = config_for
        self._topic_id_for = topic_id_for
        self._on_stray = on_stray
        self._new_id = new_id
        self._checkpoint_interval_ms = checkpoint_interval_ms
        self.producer_expiration_ms = producer_expiration_ms
        self._places: dict[Key, _Place] = {}
        self._locks: list[Lock] = []
        self._now_ms = 0
        self._recovery_points: dict[Key, int] = {}
        self._log_starts: dict[Key, int] = {}
        self._high_watermarks: dict[Key, int] = {}
        self._first_dirty: dict[Key, int] = {}
        self._cleaner: Cleaner | None = None
        self._written: dict[str, dict[Key, int]] = {}
        self._last_checkpoint_ms = 0
        # (due, path of a directory, its partition) and (due, segment): removed once nobody can be reading
        # them.
        self._doomed_directories: deque[tuple[int, str, Partition | None]] = deque()
        self._doomed_segments: deque[tuple[int, Segment]] = deque()
        # How many partitions each directory has.
        self._counts = dict.fromkeys(self.directories, 0)
        self._turn: Iterator[Key] = iter(())

    # Opening and closing

    def open(self, now_ms: int) -> dict[Key, int]:
        """Lock the directories and find the partitions; recover them unless the last stop was clean.

        Returns of which partitions how many bytes at the end were not sound and have been cut. Raises
        `DirectoryInUse`, and `OSError` for a directory that cannot be used.
        """
        self._now_ms = self._last_checkpoint_ms = now_ms
        cut_bytes: dict[Key, int] = {}
        try:
            for directory in self.directories:
                self._open_directory(directory, cut_bytes)
        except BaseException:
            self._unlock()
            raise
        return cut_bytes

    def _open_directory(self, directory: str, cut_bytes: dict[Key, int]) -> None:
        disk = self.disk
        disk.make_directory(directory)
        try:
            self._locks.append(disk.lock(f"{directory}/{checkpoints.LOCK}"))
        except BlockingIOError:
            raise DirectoryInUse(directory) from None
        clean = checkpoints.take_clean_shutdown(disk, directory)
        self.was_clean = self.was_clean and clean
        self._recovery_points |= checkpoints.read_offsets(disk, f"{directory}/{checkpoints.RECOVERY_POINTS}")
        self._log_starts |= checkpoints.read_offsets(disk, f"{directory}/{checkpoints.LOG_STARTS}")
        self._high_watermarks |= checkpoints.read_offsets(disk, f"{directory}/{checkpoints.HIGH_WATERMARKS}")
        self._first_dirty |= checkpoints.read_offsets(disk, f"{directory}/{checkpoints.FIRST_DIRTY}")
        if clean:
            # Not ours, else it were gone: another broker has had the directory since.
            remove_files(disk, directory)
        else:
            self.restored_bytes += replay(disk, directory, self._recovery_point_of)
        for name in disk.list(directory):
            if name.endswith(DELETE_SUFFIX):
                finish(self._removing_directory(f"{directory}/{name}"))
                continue
            key = key_of(name)
            if key is None:
                continue
            if key in self._places:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{name} is in two data directories: {self._places[key].directory} and {directory}.",
                )
            place = _Place(directory, name)
            self._enter(key, place)
            if clean:
                continue
            if not self._is_known(key):
                # Nobody has asked for it to be touched.
                place.was_clean = False
                continue
            try:
                cut = self._load(key, place, clean=False) if needs_recovery(disk, place.path) else 0
            except NotADirectoryError:
                # Somebody's file, with a name like that of a partition.
                self._leave(key)
                continue
            if cut:
                cut_bytes[key] = cut

    def _is_known(self, key: Key) -> bool:
        """Whether a topic has the partition. A directory that no topic has is left as it is."""
        return self._topic_id_for is _unknown_topic_id or self._topic_id_for(*key) is not None

    def _recovery_point_of(self, name: str) -> int:
        key = key_of(name)
        return 0 if key is None else self._recovery_points.get(key, 0)

    def _load(self, key: Key, place: _Place, *, clean: bool) -> int:
        topic, index = key
        config = self._config_for(topic)
        recovered = open_log(
            self.pool,
            place.path,
            config,
            clean=clean,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, 0),
            now_ms=self._now_ms,
        )
        topic_id = checkpoints.read_partition_metadata(
            self.disk, f"{place.path}/{checkpoints.PARTITION_METADATA}"
        )
        place.partition = Partition(
            topic,
            index,
            topic_id or ZERO_UUID,
            config,
            recovered.log,
            log_start_offset=recovered.log_start_offset,
            leader_epoch=max(recovered.log.leader_epochs.latest, 0),
        )
        return recovered.cut_bytes

    def close(self, now_ms: int) -> None:
        """Flush everything, write snapshots, indexes and checkpoints, mark the stop as clean, unlock.

        Where the disk does not play along the mark is left out, and the next start recovers. A store that
        `open` refused has no directory of its own: nothing is written.
        """
        if not self._locks:
            return
        self._now_ms = now_ms
        clean = True
        if self._cleaner is not None:
            self._cleaner.close()
        self._write_down()
        for partition in list(self.loaded()):
            try:
                partition.close()
            except (KafkaError, OSError):
                clean = False
        finish(self._removing_doomed(None))
        try:
            self._write_checkpoints()
            for group_log in self.group_logs:
                if clean:
                    group_log.discard()
                else:
                    group_log.close()
            if clean:
                for directory in self.directories:
                    checkpoints.write_clean_shutdown(self.disk, directory)
        except OSError:
            pass
        self._unlock()

    def _write_down(self) -> None:
        """Where many partitions are to be closed: writes what their closing would write and syncs the file
        systems. At a sync of each file, five a partition, the device flushes its cache each time, whether
        there is something in it or not.
        """
        changed = [one.log for one in self.loaded() if one.is_available and one.log.is_changed]
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
            for directory in self.directories:
                self.disk.sync_file_system(directory)
        except OSError:
            return
        for log in written:
            log.is_safe()

    def _unlock(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

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
        try:
            partition = self.get(topic, index)
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
        name = f"{topic}-{index}"
        directory = self._emptiest_directory()
        place = _Place(directory, name)
        is_new = self.disk.make_directory(place.path)
        checkpoints.write_partition_metadata(
            self.disk,
            f"{place.path}/{checkpoints.PARTITION_METADATA}",
            topic_id,
            directory_is_new=is_new,
        )
        key = (topic, index)
        # What an earlier topic of this name left in the checkpoints is not about this one.
        for offsets in self._offsets():
            offsets.pop(key, None)
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
        place.partition = Partition(topic, index, topic_id, config, log)
        self._enter(key, place)
        return place.partition

    def _adopt(self, partition: Partition, topic_id: bytes) -> None:
        if partition.topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{partition.name} on the disk belongs to a topic with another id.",
            )
        path = f"{partition.log.directory}/{checkpoints.PARTITION_METADATA}"
        checkpoints.write_partition_metadata(self.disk, path, topic_id)
        partition.adopt(topic_id)

    def _offsets(self) -> tuple[dict[Key, int], ...]:
        return self._recovery_points, self._log_starts, self._high_watermarks, self._first_dirty

    def _emptiest_directory(self) -> str:
        return min(self.directories, key=lambda directory: self._counts[directory])

    def _enter(self, key: Key, place: _Place) -> None:
        self._places[key] = place
        self._counts[place.directory] += 1

    def _leave(self, key: Key) -> None:
        self._counts[self._places.pop(key).directory] -= 1

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, loaded if need be; None when there is none. KAFKA_STORAGE_ERROR when it cannot
        be read.
        """
        place = self._places.get((topic, index))
        if place is None:
            return None
        if place.partition is None:
            try:
                topic_id = self._topic_id_for(topic, index)
                if topic_id is not None and self.topic_id_of(topic, index) not in (None, topic_id):
                    self._on_stray(topic, index, self.set_aside(topic, index))
                    return self._make(topic, index, topic_id, self._config_for(topic))
                self._load((topic, index), place, clean=place.was_clean)
            except OSError as error:
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
        """(data directory, topic, index, bytes of its segments) of every partition, without loading any.

        None instead of the bytes where the disk does not answer.
        """
        for (topic, index), place in list(self._places.items()):
            size_bytes: int | None
            if place.partition is not None:
                size_bytes = place.partition.size_bytes
            else:
                try:
                    size_bytes = self._bytes_on_disk(place.path)
                except OSError:
                    size_bytes = None
            yield place.directory, topic, index, size_bytes

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
        for directory in self.directories:
            self.disk.sync_directory(directory)

    def _move_away(self, key: Key, place: _Place, suffix: str, *, sync: bool = True) -> str:
        """Rename a partition's directory as Kafka does (`topic-0.<id>-delete`), and forget the partition."""
        ending = f".{self._new_id()}{suffix}"
        path = f"{place.directory}/{place.name[: FILE_NAME_BYTES_MAX - len(ending)]}{ending}"
        try:
            self.disk.rename(place.path, path)
            if sync:
                self.disk.sync_directory(place.directory)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Renaming {place.path} failed: {error}"
            ) from error
        self._leave(key)
        if place.partition is not None:
            place.partition.moved_to_deletion(path)
        for offsets in self._offsets():
            offsets.pop(key, None)
        return path

    def topic_id_of(self, topic: str, index: int) -> bytes | None:
        """What a partition's directory says of its topic's id, without loading it; None when it says
        nothing.
        """
        place = self._places[topic, index]
        if place.partition is not None:
            topic_id = place.partition.topic_id
            return None if topic_id == ZERO_UUID else topic_id
        try:
            return checkpoints.read_partition_metadata(
                self.disk, f"{place.path}/{checkpoints.PARTITION_METADATA}"
            )
        except OSError:
            return None

    def _removing_directory(self, path: str) -> Work[None]:
        for name in self.disk.list(path):
            self.disk.remove(f"{path}/{name}")
            yield None
        self.disk.remove_directory(path)

    # Background work

    def maintain(self, now_ms: int) -> None:
        """`maintaining` here and now."""
        finish(self.maintaining(now_ms))

    def maintaining(self, now_ms: int) -> Work[None]:
        """Retention, rolling by time, expiry of producers, checkpoints, removing what was deleted.

        Of very many partitions each call takes some; those that nobody has asked for are loaded for it,
        fewer still. Anything may happen to the store between the steps; one such work at a time.
        """
        self._now_ms = now_ms
        effort = 0
        for key in self._next_keys():
            if not self._is_known(key):
                continue
            effort += EFFORT_OF_LOADING if self._places[key].partition is None else 1
            self._maintain_one(key, now_ms)
            if effort >= EFFORT_PER_MAINTENANCE:
                break
            yield None
        yield from self._removing_doomed(now_ms)
        if now_ms - self._last_checkpoint_ms >= self._checkpoint_interval_ms:
            self._last_checkpoint_ms = now_ms
            try:
                self._write_checkpoints()
            except OSError:
                # The next start then reads more of the logs; the time after the next it may be written.
                pass

    def _next_keys(self) -> Iterator[Key]:
        """Go on where the last call stopped, and once around at the most."""
        left = len(self._places)
        while left > 0:
            key = next(self._turn, None)
            if key is None:
                self._turn = iter(list(self._places))
                key = next(self._turn)
            left -= 1
            if key in self._places:
                yield key

    def _maintain_one(self, key: Key, now_ms: int) -> None:
        try:
            partition = self.get(*key)
            if partition is None or not partition.is_available:
                return
            delay_ms = partition.config.file_delete_delay_ms
            self._doomed_segments += [
                (now_ms + delay_ms, segment)
                for segment in partition.maintain(now_ms, self.producer_expiration_ms)
            ]
        except (OSError, KafkaError):
            # A disk in trouble is reported by those who write to it; maintenance tries again next time.
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
        """Whether this is still the partition of its name."""
        place = self._places.get((partition.topic, partition.index))
        return place is not None and place.partition is partition

    def first_dirty_of(self, partition: Partition) -> int:
        """How far the partition has been compacted."""
        return self._first_dirty.get((partition.topic, partition.index), 0)

    def noting_first_dirty(self, partition: Partition, offset: int) -> Work[None]:
        """Note how far the partition is compacted now, on the disk, too. Raises `OSError`."""
        self._first_dirty[partition.topic, partition.index] = offset
        yield from self._writing_checkpoint(checkpoints.FIRST_DIRTY, self._first_dirty)

    def vouching_for(self, partition: Partition, end_offset: int) -> Work[bool]:
        """Whether the recovery point is behind what is going to have gaps: recovery takes gaps after it for
        losses. It has to be so on the disk. Raises `OSError`.

        What has not been flushed yet (`flush_due` names it) is nothing to vouch for: a flush here would block
        this thread, and might meet that of a worker.
        """
        if partition.log.recovery_checkpoint < end_offset or not self.is_held(partition):
            return False
        key = (partition.topic, partition.index)
        path = f"{self._places[key].directory}/{checkpoints.RECOVERY_POINTS}"
        if self._written.get(path, {}).get(key, 0) < end_offset:
            for one in self.loaded():
                self._recovery_points[one.topic, one.index] = one.log.recovery_checkpoint
            yield from self._writing_checkpoint(checkpoints.RECOVERY_POINTS, self._recovery_points)
        return True

    def remove_later(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Remove the files of segments that are out of sight, when nobody can be reading them any more."""
        self._doomed_segments += [(due_ms, segment) for segment in segments]

    def _writing_checkpoint(self, name: str, offsets: dict[Key, int]) -> Work[None]:
        """Write one of the checkpoints of every directory, each in a worker thread."""
        for directory in self.directories:
            path = f"{directory}/{name}"
            here = self._offsets_in(directory, offsets)
            if self._written.get(path) != here:
                yield partial(checkpoints.write_offsets, self.disk, path, here)
                self._written[path] = here

    def _offsets_in(self, directory: str, offsets: dict[Key, int]) -> dict[Key, int]:
        return {
            key: offsets[key]
            for key, place in self._places.items()
            if place.directory == directory and key in offsets
        }

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
        # Each looked at once: what is not due yet goes to the back.
        for _ in range(len(self._doomed_segments)):
            due_ms, segment = self._doomed_segments.popleft()
            if now_ms is not None and due_ms > now_ms:
                self._doomed_segments.append((due_ms, segment))
                continue
            try:
                segment.remove()
            except OSError:
                pass
            yield None
        for _ in range(len(self._doomed_directories)):
            due_ms, path, partition = self._doomed_directories.popleft()
            if now_ms is not None and due_ms > now_ms:
                self._doomed_directories.append((due_ms, path, partition))
                continue
            if partition is not None:
                # An open file keeps its room on the disk.
                partition.log.release_files()
            try:
                yield from self._removing_directory(path)
            except OSError:
                pass

    def _write_checkpoints(self) -> None:
        for key, place in self._places.items():
            partition = place.partition
            if partition is None:
                continue
            self._recovery_points[key] = partition.log.recovery_checkpoint
            self._high_watermarks[key] = partition.high_watermark
            if partition.log_start_offset > partition.log.segments[0].base_offset:
                self._log_starts[key] = partition.log_start_offset
            else:
                self._log_starts.pop(key, None)
        for directory in self.directories:
            for name, offsets in (
                (checkpoints.RECOVERY_POINTS, self._recovery_points),
                (checkpoints.HIGH_WATERMARKS, self._high_watermarks),
                (checkpoints.LOG_STARTS, self._log_starts),
                (checkpoints.FIRST_DIRTY, self._first_dirty),
            ):
                self._write_checkpoint(f"{directory}/{name}", directory, offsets)

    def _write_checkpoint(self, path: str, directory: str, offsets: dict[Key, int]) -> None:
        here = self._offsets_in(directory, offsets)
        if self._written.get(path) != here:
            checkpoints.write_offsets(self.disk, path, here)
            self._written[path] = here


def key_of(name: str) -> Key | None:
    """Topic and partition of a directory's name; None when it is not the name of a partition."""
    topic, dash, index = name.rpartition("-")
    return (topic, int(index)) if dash and topic and index.isdigit() else None
