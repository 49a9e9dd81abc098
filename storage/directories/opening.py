"""Opening data directories and the partitions in them.

After a clean stop a partition's files are read at its first use. After any other stop the directory of each
partition is listed: fully flushed partitions (`durability.py`) are recovered at their first use, those
without records need no recovery, all others are recovered first. Interrupted operations are finished:
deletions continue, copies of moves are removed, the flush journal is replayed, and of two directories of one
partition one is kept.

A partition directory without a topic is entered into the table and not changed: not recovered, opened or
maintained until it is deleted, set aside or imported.
"""

from contextlib import suppress
from functools import partial

from odradek.storage import checkpoints
from odradek.storage.checkpoints import FIRST_DIRTY, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from odradek.storage.config import LONG_MAX
from odradek.storage.directories.data_directory import DataDirectory, Key
from odradek.storage.directories.places import (
    CLUSTER_METADATA,
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    Place,
    Places,
    is_aside,
    key_of,
    remove_with_files,
    topic_id_in,
)
from odradek.storage.log.durability import END_CHECKPOINTS, UNREAD_BYTES_MAX, EndCheckpoint
from odradek.storage.log.flush_journal import remove_files, replay
from odradek.storage.log.flushing import ZERO_UUID
from odradek.storage.log.log import Log
from odradek.storage.log.partition import Partition
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS
from odradek.storage.log.segment_file import FilePool
from odradek.storage.recovery.recovery import AfterCrash, Recovered, look_after_crash, open_log
from odradek.wire.record_layout import HEADER_SIZE_BYTES

_FOUND_AGAIN = "its content is found again in the logs."
_INSTEAD = {
    SCAN_CHECKPOINTS: "more is read in the logs.",
    END_CHECKPOINTS: "more is read in the logs.",
    HIGH_WATERMARKS: "the high watermarks of partitions with several replicas begin at the log starts.",
}


class DirectoryInUse(Exception):
    """Another broker, of Odradek or Kafka, has locked this data directory."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"The data directory {directory} is in use by another broker.")
        self.directory = directory


class Opening:
    """See the module. `interrupted_moves` has the target directory of each move that a stop interrupted."""

    def __init__(self, places: Places) -> None:
        self.was_clean = True
        self.unclean: list[str] = []
        """Directories with partitions, whose last stop was not clean."""
        self.recovered_count = 0
        """Partitions of these that have been recovered; others have no more than a flush has had."""
        self.restored_bytes = 0
        self.cut_bytes: dict[Key, int] = {}
        self.interrupted_moves: dict[Key, DataDirectory] = {}
        self._places = places

    def lock(self, home: DataDirectory) -> None:
        """Raises `DirectoryInUse`, and `OSError`; no error if this process has the lock already."""
        if home.lock is not None:
            return
        disk = self._places.disk
        disk.make_directory(home.path)
        try:
            home.lock = disk.lock(f"{home.path}/{checkpoints.LOCK}")
        except BlockingIOError:
            raise DirectoryInUse(home.path) from None

    def open_directory(self, home: DataDirectory) -> None:
        """Lock the directory, find its partitions, and recover them unless the last stop was clean. Raises as
        `lock`."""
        self.lock(home)
        disk, directory = self._places.disk, home.path
        clean = checkpoints.take_clean_shutdown(disk, directory)
        self.was_clean = self.was_clean and clean
        for damaged in home.read_checkpoints():
            self._places.listener.damage(
                f"{directory}/{damaged} is damaged: {_INSTEAD.get(damaged, _FOUND_AGAIN)}"
            )
        if clean:
            # Odradek removes this file at its start: another broker has used the directory since.
            remove_files(disk, directory)
        else:
            self.restored_bytes += replay(disk, directory, partial(_recovery_point_of, home))
        for name in disk.list(directory):
            self._look_at(home, name, clean=clean)
        found = {key for key, place in self._places.by_key.items() if place.home is home}
        if found and not clean:
            self.unclean.append(directory)
        home.keep_only(found)
        home.was_opened = True

    def _look_at(self, home: DataDirectory, name: str, *, clean: bool) -> None:
        places = self._places
        if is_aside(name, DELETE_SUFFIX):
            places.to_delete.append(f"{home.path}/{name}")
            return
        if is_aside(name, FUTURE_SUFFIX):
            self._drop_copy(home, name)
            return
        key = key_of(name)
        # The log of the cluster's metadata of a Kafka broker. It is no partition of a topic here.
        if key is None or key[0] == CLUSTER_METADATA:
            return
        place = Place(home, name)
        if key in places.by_key and not self._takes_the_place(key, place):
            return
        places.enter(key, place)
        if place.partition is not None:
            return
        if clean:
            end = home.end_checkpoints.get(key)
            place.was_clean = end is None or bool(end.was_closed)
        elif places.is_known(key):
            self._look_after_crash(key, place)
        else:
            # A partition without a topic is not changed.
            place.was_clean = False

    def _drop_copy(self, home: DataDirectory, name: str) -> None:
        """The copy of an interrupted move, of Odradek or Kafka: the move begins again."""
        key = key_of(name.rpartition(".")[0])
        if key is not None:
            remove_with_files(self._places.disk, f"{home.path}/{name}")
            self.interrupted_moves[key] = home

    def _takes_the_place(self, key: Key, second: Place) -> bool:
        """Decides between two directories of the same partition. The directory with the id of the known topic
        is kept; if both have it, one is the copy of a move: the longer one is kept. Both are recovered for
        the comparison: after a loss of power a file may have its length without its bytes. The other
        directory is removed if its records are part of the longer log, as after a move; else it is renamed
        and kept: an operator's copy, or written while the first was away.
        """
        places = self._places
        if not places.is_known(key):
            return False
        first = places.by_key[key]
        ids = [topic_id_in(places.disk, place.path) for place in (first, second)]
        is_part = False
        if ids[0] == ids[1]:
            second_stays = self._is_longer(key, second, first)
            is_part = _is_part(first, second) if second_stays else _is_part(second, first)
        else:
            second_stays = ids[1] == places.topic_id_for(*key)
        winner, loser = (second, first) if second_stays else (first, second)
        if second_stays:
            places.leave(key)
            first.home.forget(key)
        if loser.partition is not None:
            loser.partition.log.files.close()
        path = places.rename_aside(loser.home, loser.name, DELETE_SUFFIX if is_part else STRAY_SUFFIX)
        if is_part:
            remove_with_files(places.disk, path)
        elif ids[0] == ids[1]:
            places.listener.damage(
                f"{loser.path} and {winner.path} are the same partition with different records: the broker "
                f"uses the latter, which is longer; the former is kept as {path}."
            )
        else:
            places.listener.stray(*key, path)
        return second_stays

    def _is_longer(self, key: Key, second: Place, first: Place) -> bool:
        ends, cut_bytes = [], [self.cut_bytes.pop(key, 0), 0]
        for number, place in enumerate((first, second)):
            if place.partition is None:
                cut_bytes[number] = self.load(key, place, clean=False)
            assert place.partition is not None
            ends.append(place.partition.log_end_offset)
        second_stays = ends[1] > ends[0]
        if cut_bytes[second_stays]:
            self.cut_bytes[key] = cut_bytes[second_stays]
        return second_stays

    def _look_after_crash(self, key: Key, place: Place) -> None:
        places, end = self._places, self._usable_end_checkpoint(key, place.home)
        try:
            found = look_after_crash(places.disk, place.path, end)
            if found is AfterCrash.UNKNOWN:
                cut_bytes = self.load(key, place, clean=False)
                self.recovered_count += 1
                if cut_bytes:
                    self.cut_bytes[key] = cut_bytes
        except NotADirectoryError:
            # A file with the name of a partition.
            places.leave(key)
            return
        except OSError as error:
            place.home.probe()
            place.failure = f"{place.name} is offline: opening {place.path} failed: {error}"
            places.has_broken = True
            places.listener.offline(place.failure)
            places.suspect(place.home.path, error)
            return
        if found is AfterCrash.AS_FLUSHED:
            assert end is not None
            place.was_clean = False
            if end.was_closed:
                # Kept for a partition without a use until the next clean stop.
                place.home.end_checkpoints[key] = end._replace(was_closed=0)

    def _usable_end_checkpoint(self, key: Key, home: DataDirectory) -> EndCheckpoint | None:
        """The end checkpoint; None if there is none, it does not fit the recovery point, or a recovery would
        read much."""
        end = home.end_checkpoints.get(key)
        if end is None or not end.matches_checkpoint(home.offset(RECOVERY_POINTS, key)):
            return None
        scan_checkpoint = home.scan_checkpoints.get(key)
        is_in_segment = scan_checkpoint is not None and scan_checkpoint.base_offset == end.base_offset
        position = scan_checkpoint.position if scan_checkpoint is not None and is_in_segment else 0
        return end if end.size_bytes - position <= UNREAD_BYTES_MAX else None

    # One partition

    def load(self, key: Key, place: Place, *, clean: bool) -> int:
        """Open the log of a partition; returns the number of bytes cut from its end. Raises `OSError`."""
        recovered = self.open_log(self._places.pool, key, place, clean=clean)
        if self.settle_end_checkpoint(key, place.home, recovered.log):
            place.home.write()
        self.take_in(key, place, recovered)
        return recovered.cut_bytes

    def settle_end_checkpoint(self, key: Key, home: DataDirectory, log: Log) -> bool:
        """Compare an opened log with its end checkpoint. True: the log is shorter, and the end checkpoint has
        to be removed on the disk before the next append.
        """
        end = home.end_checkpoints.get(key)
        if end is None or log.log_end_offset > end.offset:
            return False
        if log.log_end_offset == end.offset:
            log.durability.mark_flushed_until(end.offset)
            return False
        del home.end_checkpoints[key]
        home.want()
        return True

    def open_log(self, pool: FilePool, key: Key, place: Place, *, clean: bool) -> Recovered:
        """May run in a worker thread with a pool of its own. Raises `OSError`."""
        home, config = place.home, self._places.config_for(key[0])
        recovery_point, end = home.offset(RECOVERY_POINTS, key), home.end_checkpoints.get(key)
        # The end of possible gaps by compaction. Ours makes none after the recovery point. Kafka's does: it
        # writes recovery points once a minute, and its broker may be killed before.
        gaps_until = home.offset(FIRST_DIRTY, key)
        if config.is_compacted and not home.knows_recovery_points:
            gaps_until = LONG_MAX
        return open_log(
            pool,
            place.path,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=home.offset(LOG_STARTS, key),
            now_ms=self._places.now_ms,
            gaps_until=gaps_until,
            may_skip=self._places.replicated_for(*key),
            producer_expiration_ms=self._places.producer_expiration_ms,
            scan_checkpoint=home.scan_checkpoints.get(key),
            end_checkpoint=end if end is not None and end.matches_checkpoint(recovery_point) else None,
        )

    def take_in(self, key: Key, place: Place, recovered: Recovered) -> None:
        """Give an opened log to the partition."""
        topic, index = key
        disk, listener = self._places.disk, self._places.listener
        topic_id = topic_id_in(disk, place.path)
        if recovered.damage is not None:
            listener.damage(recovered.damage)
        if recovered.scan_checkpoint is None:
            place.home.scan_checkpoints.pop(key, None)
        path = f"{place.path}/{checkpoints.PARTITION_METADATA}"
        if topic_id is None and disk.exists(path):
            listener.damage(f"{path} is damaged: {place.name} is used for the current topic of this name.")
            topic_id = self._places.topic_id_for(topic, index)
            if topic_id is not None:
                # On a full disk the next start writes it.
                with suppress(OSError):
                    checkpoints.write_partition_metadata(disk, path, topic_id)
        place.failure = None
        is_replicated = self._places.replicated_for(*key)
        place.partition = Partition(
            topic,
            index,
            topic_id or ZERO_UUID,
            recovered.log.config,
            recovered.log,
            log_start_offset=recovered.log_start_offset,
            high_watermark=place.home.offset(HIGH_WATERMARKS, key) if is_replicated else None,
            leader_epoch=max(recovered.log.leader_epochs.latest, self._places.leader_epoch_for(*key)),
            on_trouble=self._places.report_trouble,
        )


def _is_part(place: Place, of: Place) -> bool:
    """Whether the other log contains this one, by the last batch of this one."""
    assert place.partition is not None
    assert of.partition is not None
    end = place.partition.log_end_offset
    if end == place.partition.log_start_offset:
        return True
    return _header_of(place.partition.log, end - 1) == _header_of(of.partition.log, end - 1)


def _header_of(log: Log, offset: int) -> bytes:
    """The header, with the checksum, of the batch with this offset."""
    found = log.reader.locate(offset)
    return b"" if found is None else found[0].file.read(found[1], HEADER_SIZE_BYTES)


def _recovery_point_of(home: DataDirectory, name: str) -> int:
    key = key_of(name)
    return 0 if key is None else home.offset(RECOVERY_POINTS, key)
