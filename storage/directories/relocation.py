"""The moves of partitions between data directories that are under way; `moving.py` does one of them.

A failed or cancelled move leaves the partition in its old directory; the copy is removed. After a move the
old directory stays until the new one is flushed (also by a clean stop). Until then the old data directory
(`Place.old_home`) keeps its checkpoints of the partition, with a current log start: a start after a crash may
have to use the old directory. A move that a stop interrupts begins again with the next start.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.storage.checkpoints import LOG_STARTS, RECOVERY_POINTS
from odradek.storage.directories.data_directory import DataDirectory, Key
from odradek.storage.directories.places import DELETE_SUFFIX, FUTURE_SUFFIX, Place, Places
from odradek.storage.log.partition import Partition
from odradek.storage.throttle import Allowance
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

if TYPE_CHECKING:
    from odradek.storage.directories.moving import Move

PREFERENCES_MAX = 10_000


@dataclass(slots=True, eq=False, repr=False)
class _LeftBehind:
    """The old directory of a moved partition; it is removed when the new one is flushed up to an offset."""

    key: Key
    path: str
    home: DataDirectory
    partition: Partition
    end_offset: int


class Relocation:
    """See the module. `get` returns a loaded partition; `remove_later` removes a directory after a time in
    milliseconds.
    """

    def __init__(
        self,
        places: Places,
        get: Callable[[str, int], Partition | None],
        remove_later: Callable[[str, int], None],
    ) -> None:
        self.allowance = Allowance()
        self._places = places
        self._get = get
        self._remove_later = remove_later
        self._moves: dict[Key, Move] = {}
        self._abandoned: list[Move] = []
        self._moved: list[_LeftBehind] = []
        # The requested data directories of partitions that do not exist yet.
        self._preferred: dict[Key, DataDirectory] = {}

    def begin(self, topic: str, index: int, directory: str) -> None:
        """Move a partition to another data directory; one that does not exist yet is made there.

        Cancels a move to another directory. Refuses with KAFKA_STORAGE_ERROR while a directory is offline,
        and with REPLICA_NOT_AVAILABLE when the partition does not exist; the requested directory is kept for
        its creation.
        """
        from odradek.storage.directories.moving import Move  # few brokers have two directories

        key = (topic, index)
        places = self._places
        target = places.homes[directory]
        place = places.by_key.get(key)
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
        failed = next((home.path for home in places.homes.values() if home.failure is not None), None)
        if failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Nothing is moved while {failed} is offline.")
        partition = self._get(topic, index)
        assert partition is not None
        partition.availability.check_serving()
        future = f"{directory}/{place.name}.{places.new_id()}{FUTURE_SUFFIX}"
        self._moves[key] = Move(partition, target, future)

    def take_up(self, interrupted: dict[Key, DataDirectory]) -> None:
        """Begin the moves again that a stop has interrupted."""
        for key, home in interrupted.items():
            place = self._places.by_key.get(key)
            if place is None or place.home is home:
                continue
            try:
                self.begin(*key, home.path)
            except KafkaError:
                continue

    def take_preferred(self, key: Key) -> DataDirectory | None:
        """The requested data directory of a new partition; removes the request."""
        return self._preferred.pop(key, None)

    def moves(self) -> Iterator[tuple[str, str, int, int, int]]:
        """(new data directory, topic, index, bytes copied, remaining offsets) of partitions that are
        moved."""
        for (topic, index), move in self._moves.items():
            lag = move.partition.log_end_offset - move.end_offset
            yield move.target.path, topic, index, move.size_bytes, max(lag, 0)

    def is_moved(self, key: Key) -> bool:
        """Whether the partition is being moved."""
        return key in self._moves

    @property
    def has_moves(self) -> bool:
        """Whether `moving` has something to do."""
        return bool(self._moves or self._moved or self._abandoned)

    def moving(self, now_ms: int) -> Work[None]:
        """Continue the moves: copy, change over, remove the old directories. To be called after `begin`, and
        every second while `has_moves`. One such work at a time.
        """
        places = self._places
        places.now_ms = now_ms
        self.allowance.refill(now_ms)
        for key, move in list(self._moves.items()):
            if self._moves.get(key) is not move:
                continue
            try:
                yield from self._moving_one(key, move)
            except OSError as error:
                places.suspect(move.target.path, error)
                places.suspect(move.partition.directory.rpartition("/")[0], error)
                places.listener.move_failed(move.partition.name, move.target.path, str(error))
                if self._moves.get(key) is move:
                    self._abandoned.append(self._moves.pop(key))
        while self._abandoned:
            move = self._abandoned.pop()
            key = (move.partition.topic, move.partition.index)
            place = places.by_key.get(key)
            if place is None or move.target not in place.homes:
                move.target.forget(key)
            try:
                yield move.abandon
            except OSError as error:
                places.failed(move.target.path, error, f"Removing {move.future} failed: {error}")
        yield from self.leaving_behind()

    def leaving_behind(self) -> Work[set[DataDirectory]]:
        """Remove the old directories of the partitions that are flushed in the new ones. Returns the data
        directories with other old directories.
        """
        for left in list(self._moved):
            if self._can_go(left) and left in self._moved:
                yield from self._removing(left)
        return {left.home for left in self._moved}

    def _moving_one(self, key: Key, move: "Move") -> Work[None]:
        has_caught_up = yield from move.catching_up(self.allowance)
        place = self._places.by_key.get(key)
        if self._moves.get(key) is not move:
            return
        if place is None or place.partition is not move.partition or place.offline_because is not None:
            self._abandoned.append(self._moves.pop(key))
            return
        if not has_caught_up or place.old_home is not None:
            # The allowance is used up, or an older directory of the partition is still needed, which may be
            # the target.
            return
        # Before the directory gets its name: a start needs the log start.
        target = move.target
        for name, offsets in place.home.offsets.items():
            if key in offsets:
                target.offsets[name][key] = offsets[key]
        target.offsets[RECOVERY_POINTS][key] = move.synced_offset
        starts = target.offsets[LOG_STARTS]
        starts[key] = move.log_start_offset
        target.want()
        yield target.write
        if self._moves.get(key) is move and self._places.by_key.get(key) is place:
            self._change_over(key, place, move)

    def _change_over(self, key: Key, place: Place, move: "Move") -> None:
        """Complete a move, unless the partition is being flushed."""
        partition, gate = move.partition, self._places.gate
        old_path = place.path
        if partition.availability.is_broken:
            return
        partition.flushing.gate = gate
        try:
            with gate:
                if partition.flushing.is_running or not move.finish(f"{move.target.path}/{place.name}"):
                    return
        finally:
            partition.flushing.gate = None
        place.home.partition_count -= 1
        left = _LeftBehind(key, old_path, place.home, partition, partition.log_end_offset)
        place.home, place.old_home = move.target, place.home
        place.home.partition_count += 1
        del self._moves[key]
        self._moved.append(left)
        self._places.listener.moved(partition.name, move.target.path)

    def _can_go(self, left: _LeftBehind) -> bool:
        log = left.partition.log
        is_flushed = not log.durability.has_moved and log.durability.recovery_point >= left.end_offset
        return is_flushed and left.home.failure is None

    def _removing(self, left: _LeftBehind) -> Work[None]:
        path = self._put_aside(left)
        if path is None:
            return  # the next call tries again
        self._forget(left)
        try:
            # Before its files are removed: else a start might find the rest under the partition's name, and
            # choose it.
            yield partial(self._places.disk.sync_directory, left.home.path)
        except OSError as error:
            self._places.failed(left.home.path, error, f"Removing {left.path} failed: {error}")
            return
        self._remove_later(path, left.partition.config.file_delete_delay_ms)

    def clear_place(self, key: Key) -> None:
        """Remove the old directories of a partition now: a new partition of this name may need their
        paths."""
        for left in [one for one in self._moved if one.key == key]:
            path = self._put_aside(left)
            self._forget(left)
            if path is not None:
                self._remove_later(path, left.partition.config.file_delete_delay_ms)

    def _put_aside(self, left: _LeftBehind) -> str | None:
        """Rename an old directory; returns its new path, None after an error of the disk."""
        try:
            return self._places.rename_aside(left.home, left.path.rpartition("/")[2], DELETE_SUFFIX)
        except OSError as error:
            self._places.failed(left.home.path, error, f"Removing {left.path} failed: {error}")
            return None

    def _forget(self, left: _LeftBehind) -> None:
        self._moved.remove(left)
        left.home.forget(left.key)
        self._places.by_key[left.key].old_home = None
