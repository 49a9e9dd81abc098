"""Making the directories of partitions: chooses the data directory, and keeps an earlier directory of the
same name.

As in Kafka's LogManager a partition is made in the data directory with the fewest partitions. A directory
that is offline takes no partitions; a cordoned directory (`cordoned.log.dirs`) takes them only if all are
cordoned.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from odradek.storage import checkpoints
from odradek.storage.config import LogConfig
from odradek.storage.directories.data_directory import DataDirectory, Key
from odradek.storage.directories.places import (
    STRAY_SUFFIX,
    Place,
    Places,
    key_of,
    remove_with_files,
    topic_id_in,
)
from odradek.storage.log.log import Log
from odradek.storage.log.partition import Partition
from odradek.storage.recovery.recovery import begin_log, open_log


class Creating:
    """See the module. `take_preferred` returns the directory that a client has requested, once."""

    def __init__(self, places: Places, take_preferred: Callable[[Key], DataDirectory | None]) -> None:
        self._places = places
        self._take_preferred = take_preferred
        self.cordoned: frozenset[str] = frozenset()
        """Data directories that take no new partitions."""

    def cordon(self, directories: Iterable[str]) -> None:
        """Let these data directories take no new partitions."""
        self.cordoned = frozenset(directory.rstrip("/") for directory in directories)

    @property
    def has_uncordoned(self) -> bool:
        """Whether a data directory takes new partitions."""
        return not self.cordoned.issuperset(self._places.homes)

    def make(
        self, topic: str, index: int, topic_id: bytes, config: LogConfig, directory: str | None = None
    ) -> Partition:
        """Make a partition in `directory`. Without it: in the requested data directory, else in the one with
        the fewest partitions. If all directories are cordoned, it is made in the first one: the controller
        has decided before.

        Raises `OSError` when no directory can hold the partition.
        """
        failure = OSError("every data directory has failed")
        alive = [home for home in self._places.homes.values() if home.failure is None]
        uncordoned = [home for home in alive if home.path not in self.cordoned]
        homes = sorted(uncordoned, key=lambda home: home.partition_count) or alive[:1]
        preferred = self._take_preferred((topic, index))
        if directory is not None:
            homes = [self._places.homes[directory]]
        elif preferred is not None:
            homes.insert(0, preferred)
        for home in homes:
            if home.failure is not None:
                continue
            try:
                return self._make_in(home, topic, index, topic_id, config)
            except OSError as error:
                self._places.failed(
                    home.path, error, f"Creating {topic}-{index} in {home.path} failed: {error}"
                )
                failure = error
        raise failure

    def _make_in(
        self, home: DataDirectory, topic: str, index: int, topic_id: bytes, config: LogConfig
    ) -> Partition:
        places, key = self._places, (topic, index)
        place = Place(home, f"{topic}-{index}")
        self._forget_offsets(key)
        is_new = self._make_directory(place, topic_id)
        try:
            log = self._begin_log(place, topic_id, config, is_new=is_new)
        except OSError:
            if is_new:
                # On a full disk: nothing of it is worth keeping, and half of it is damage.
                with suppress(OSError):
                    remove_with_files(places.disk, place.path)
            raise
        place.partition = Partition(
            topic,
            index,
            topic_id,
            config,
            log,
            high_watermark=0 if places.replicated_for(topic, index) else None,
            leader_epoch=places.leader_epoch_for(topic, index),
            on_trouble=places.report_trouble,
        )
        places.enter(key, place)
        return place.partition

    def _begin_log(self, place: Place, topic_id: bytes, config: LogConfig, *, is_new: bool) -> Log:
        places = self._places
        checkpoints.write_partition_metadata(
            places.disk,
            f"{place.path}/{checkpoints.PARTITION_METADATA}",
            topic_id,
            directory_is_new=is_new,
        )
        if is_new:
            return begin_log(places.pool, place.path, config, places.now_ms)
        # The directory is left from a creation that a kill ended.
        return open_log(
            places.pool,
            place.path,
            config,
            clean=True,
            recovery_point=0,
            log_start_offset=0,
            now_ms=places.now_ms,
        ).log

    def _make_directory(self, place: Place, topic_id: bytes) -> bool:
        """Returns whether the directory is new. A directory of another topic is renamed and kept."""
        places = self._places
        if places.disk.make_directory(place.path):
            return True
        if topic_id_in(places.disk, place.path) in (None, topic_id):
            return False
        key = key_of(place.name)
        assert key is not None
        places.listener.stray(*key, places.rename_aside(place.home, place.name, STRAY_SUFFIX))
        return places.disk.make_directory(place.path)

    def _forget_offsets(self, key: Key) -> None:
        """Remove the checkpoint entries of an earlier topic of this name, on the disk too: a start after a
        crash would delete records before the earlier log start.
        """
        for home in self._places.homes.values():
            if home.forget(key) and home.failure is None:
                home.want()
                home.write()
