"""The table of all partitions on the disk and their directories, which the parts of a store share.

`Places` also has the disk, the pool of open files, the listener, and the last known time. It makes no
decisions. One thread owns it; `suspect` may be called in any thread.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from odradek.storage import checkpoints
from odradek.storage.config import LogConfig
from odradek.storage.directories.data_directory import DataDirectory, Key, is_failure
from odradek.storage.disk import NO_ROOM, Disk
from odradek.storage.log.flushing import ZERO_UUID
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import LOG, base_offset_of

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
_HEXADECIMAL = "0123456789abcdef"
FILE_NAME_BYTES_MAX = 255


class StoreListener:
    """Receives the events of a store. This class ignores them."""

    def stray(self, topic: str, index: int, path: str) -> None:
        """A directory of another topic, or a second directory of the same partition, was renamed to
        `path`."""

    def trouble(self) -> None:
        """`attending` has something to do. Called in any thread, and often."""

    def failed(self, path: str, sentence: str) -> None:
        """An operation in a data directory failed (for example on a full disk) and was refused, or will be
        tried again. Called in any thread, and often.
        """

    def offline(self, sentence: str) -> None:
        """A partition answers KAFKA_STORAGE_ERROR from now on; the sentence has the reason. `attending` tries
        to bring it back. Not called for the partitions of a failed directory. Called in any thread.
        """

    def still_offline(self, name: str, reason: str) -> None:
        """A partition could not be brought back; the next try is in RESCAN_PAUSE_MS."""

    def directory(self, path: str, failure: str | None) -> None:
        """A data directory has failed, or with None: it serves again."""

    def damage(self, sentence: str) -> None:
        """A file was damaged, and the store continues without it. In rare cases a log is cut; then the
        sentence names it.
        """

    def recovered(self, name: str, cut_bytes: int) -> None:
        """A partition is back; `cut_bytes` at its end were lost."""

    def moved(self, name: str, directory: str) -> None:
        """A partition was moved to another data directory."""

    def move_failed(self, name: str, directory: str, reason: str) -> None:
        """A move failed; the partition stays in its directory."""


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """A partition on the disk: its directory, and the partition once it is loaded, or the reason why it
    cannot be."""

    home: DataDirectory
    name: str
    partition: Partition | None = None
    was_clean: bool = True
    """False: the partition is recovered when it is loaded."""
    failure: str | None = None
    old_home: DataDirectory | None = None
    """The data directory before a move, while the old directory exists: a start may have to use it."""

    @property
    def homes(self) -> tuple[DataDirectory, ...]:
        """The data directories with a directory of the partition."""
        return (self.home,) if self.old_home is None else (self.home, self.old_home)

    @property
    def path(self) -> str:
        return f"{self.home.path}/{self.name}"

    @property
    def offline_because(self) -> str | None:
        if self.home.failure is not None:
            return f"{self.name} is offline: {self.home.path} has failed: {self.home.failure}"
        if self.partition is not None and self.partition.availability.is_broken:
            return self.partition.failure
        return self.failure


def default_config(topic: str) -> LogConfig:
    return LogConfig()


def unknown_topic_id(topic: str, index: int) -> bytes | None:
    return None


def first_leader_epoch(topic: str, index: int) -> int:
    return 0


def never_replicated(topic: str, index: int) -> bool:
    return False


class Places:
    """See the module. For `config_for`, `topic_id_for`, `leader_epoch_for` and `replicated_for` see
    `LogStore`.
    """

    def __init__(
        self,
        disk: Disk,
        pool: FilePool,
        homes: dict[str, DataDirectory],
        *,
        config_for: Callable[[str], LogConfig],
        topic_id_for: Callable[[str, int], bytes | None],
        leader_epoch_for: Callable[[str, int], int],
        replicated_for: Callable[[str, int], bool],
        listener: StoreListener,
        new_id: Callable[[], str],
        gate: AbstractContextManager[object],
        producer_expiration_ms: int,
    ) -> None:
        self.disk = disk
        self.pool = pool
        self.homes = homes
        self.by_key: dict[Key, Place] = {}
        self.config_for = config_for
        self.topic_id_for = topic_id_for
        self.leader_epoch_for = leader_epoch_for
        self.replicated_for = replicated_for
        self.listener = listener
        self.new_id = new_id
        self.gate = gate
        """Held while a partition's files change their path: other threads that work there have to wait."""
        self.producer_expiration_ms = producer_expiration_ms
        self.now_ms = 0
        self.has_broken = False
        """Whether there may be a partition to bring back."""
        # Directories that an earlier run has renamed for deletion and not removed yet.
        self.to_delete: list[str] = []
        # (path of a data directory, error of its disk) to be probed; added to in any thread.
        self.suspected: deque[tuple[str, str]] = deque()
        # (partition that goes on, the sentence) where a disk has refused something; added to in any thread.
        self.refused: deque[tuple[Key, str]] = deque()

    def enter(self, key: Key, place: Place) -> None:
        self.by_key[key] = place
        place.home.partition_count += 1

    def leave(self, key: Key) -> None:
        self.by_key.pop(key).home.partition_count -= 1

    def place_of(self, partition: Partition) -> Place | None:
        """The place of a partition; None if the store has another one of this name, or none."""
        place = self.by_key.get((partition.topic, partition.index))
        return place if place is not None and place.partition is partition else None

    def __contains__(self, key: Key) -> bool:
        return key in self.by_key

    def names(self) -> list[Key]:
        """(topic, index) of every partition, loaded or not."""
        return list(self.by_key)

    def loaded(self) -> Iterator[Partition]:
        """The partitions that were loaded since the start."""
        return (place.partition for place in list(self.by_key.values()) if place.partition is not None)

    def is_unopened(self, topic: str, index: int) -> bool:
        """Whether `LogStore.get` would read files."""
        place = self.by_key.get((topic, index))
        return place is not None and place.partition is None and place.offline_because is None

    def topic_id_of(self, topic: str, index: int) -> bytes | None:
        """The topic id in a partition's directory, without loading the partition; None when it has none."""
        place = self.by_key[topic, index]
        if place.partition is not None:
            topic_id = place.partition.topic_id
            return None if topic_id == ZERO_UUID else topic_id
        return topic_id_in(self.disk, place.path)

    def sizes(self) -> Iterator[tuple[str, str, int, int | None]]:
        """(data directory, topic, index, bytes of its segments) of every partition in a directory that is
        online, without loading any.

        None instead of the bytes after an error of the disk.
        """
        for (topic, index), place in list(self.by_key.items()):
            if place.home.failure is not None:
                continue
            size_bytes: int | None
            if place.partition is not None:
                size_bytes = place.partition.size_bytes
            else:
                try:
                    size_bytes = _segment_bytes_in(self.disk, place.path)
                except OSError:
                    size_bytes = None
            yield place.home.path, topic, index, size_bytes

    def offline(self) -> set[Key]:
        """The partitions that answer KAFKA_STORAGE_ERROR, as far as their names are known; the names in a
        directory that could not be opened are not.
        """
        return {key for key, place in self.by_key.items() if place.offline_because is not None}

    @property
    def has_unopened(self) -> bool:
        """Whether there is a data directory that could not be listed."""
        return not all(home.was_opened for home in self.homes.values())

    def is_known(self, key: Key) -> bool:
        """Whether a topic has the partition. A directory without a topic is not changed."""
        return self.topic_id_for is unknown_topic_id or self.topic_id_for(*key) is not None

    def suspect(self, directory: str, error: OSError) -> None:
        """Request a probe of a disk. In any thread."""
        if is_failure(error):
            self.suspected.append((directory, str(error)))
        self.listener.trouble()

    def failed(self, directory: str, error: OSError, sentence: str) -> None:
        """Request a probe and report the failed operation. In any thread."""
        self.listener.failed(directory, sentence)
        self.suspect(directory, error)

    def report_trouble(self, partition: Partition, error: OSError, sentence: str) -> None:
        """Called in the thread that met the error."""
        directory = partition.directory.rpartition("/")[0]
        if not partition.availability.is_broken and (error.errno in NO_ROOM or is_failure(error)):
            self.refused.append(((partition.topic, partition.index), sentence))
        if partition.availability.is_broken:
            self.has_broken = True
        if partition.availability.is_broken and sentence == partition.failure:
            self.listener.offline(sentence)
            self.suspect(directory, error)
        else:
            self.failed(directory, error, sentence)

    def rename_aside(self, home: DataDirectory, name: str, suffix: str) -> str:
        """Rename a partition's directory as Kafka does (`topic-0.<id>-delete`); returns its new path. Raises
        `OSError`.
        """
        ending = f".{self.new_id()}{suffix}"
        path = f"{home.path}/{name[: FILE_NAME_BYTES_MAX - len(ending)]}{ending}"
        self.disk.rename(f"{home.path}/{name}", path)
        return path


def _segment_bytes_in(disk: Disk, path: str) -> int:
    return sum(
        disk.size(f"{path}/{name}") for name in disk.list(path) if base_offset_of(name, LOG) is not None
    )


def topic_id_in(disk: Disk, path: str) -> bytes | None:
    """The topic id in a partition's directory; None if there is none."""
    try:
        return checkpoints.read_partition_metadata(disk, f"{path}/{checkpoints.PARTITION_METADATA}")
    except OSError:
        return None


def remove_with_files(disk: Disk, path: str) -> None:
    """Remove a partition's directory. Raises `OSError`."""
    for name in disk.list(path):
        disk.remove(f"{path}/{name}")
    disk.remove_directory(path)


def is_aside(name: str, suffix: str) -> bool:
    """Whether a directory has a name of this kind from Odradek or Kafka (`topic-0.<id>-delete`). An
    operator's `old-delete` must not be removed.
    """
    stem, _, id_ = name.removesuffix(suffix).rpartition(".")
    return name.endswith(suffix) and bool(stem) and len(id_) == 32 and not id_.strip(_HEXADECIMAL)


CLUSTER_METADATA = "__cluster_metadata"
"""The name of Kafka's own log of the metadata."""


def key_of(name: str) -> Key | None:
    """Topic and partition of a directory's name; None if it is not the name of a partition."""
    topic, dash, index = name.rpartition("-")
    return (topic, int(index)) if dash and topic and index.isdecimal() else None
