"""What a store does again and again: retention, removing the files of what is gone, expiry of producers.

Of very many partitions each round of retention takes some, so fast that all have had their turn in one
`retention_interval_ms`. Files that are out of sight stay until nobody can be reading them any more. Producers
expire at another pace, in the partitions that are loaded; those of the others expire when they are.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from odradek.storage.directories.data_directory import Key
from odradek.storage.directories.places import Places, remove_with_files
from odradek.storage.disk import Disk
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import DELETED, LOG
from odradek.wire.errors import KafkaError
from odradek.wire.work import Work

EFFORT_PER_MAINTENANCE = 256
EFFORT_OF_LOADING = 8
REMOVED_PER_STEP = 16
EXPIRIES_PER_STEP = 64
WRITTEN_MS = 5000
"""Most of what has not changed for so long is on the disk: segments are flushed when the next one begins."""


class Upkeep:
    """See the module. `get` gives a partition, loaded, or raises `KafkaError`."""

    def __init__(
        self,
        places: Places,
        get: Callable[[str, int], Partition | None],
        *,
        retention_interval_ms: int,
    ) -> None:
        self._places = places
        self._get = get
        self._retention_interval_ms = retention_interval_ms
        # (due, path of a directory, its partition) and (due, segment): removed once nobody can be reading
        # them.
        self._directories_to_delete: deque[tuple[int, str, Partition | None]] = deque()
        self._deleted_segments: deque[tuple[int, Segment]] = deque()
        self._turn: Iterator[Key] = iter(())
        self._last_turn_ms: int | None = None
        # Partitions that are due, times the interval: whole numbers, so that none is due a round late.
        self._due = 0
        self._late_expiries: list[Key] = []

    def maintaining(self, now_ms: int) -> Work[None]:
        """One round of retention; then remove what was deleted and is due."""
        effort = 0
        for key in self._next_keys(now_ms):
            if not self._places.is_known(key):
                continue
            effort += EFFORT_OF_LOADING if self._places.by_key[key].partition is None else 1
            yield from self._maintaining_one(key, now_ms)
            if effort >= EFFORT_PER_MAINTENANCE:
                break
            yield None
        yield from self.removing_deleted(now_ms)

    def _next_keys(self, now_ms: int) -> Iterator[Key]:
        """Go on where the last call stopped, so fast that all have had their turn in one interval, and once
        around at the most.
        """
        by_key, interval_ms = self._places.by_key, self._retention_interval_ms
        left = len(by_key)
        if interval_ms:
            passed_ms = interval_ms if self._last_turn_ms is None else max(now_ms - self._last_turn_ms, 0)
            self._due = min(self._due + left * passed_ms, left * interval_ms)
            self._last_turn_ms = now_ms
            left = self._due // interval_ms
        while left > 0:
            key = next(self._turn, None)
            if key is None:
                self._turn = iter(list(by_key))
                key = next(self._turn, None)
                if key is None:
                    return
            left -= 1
            if key in by_key:
                self._due -= interval_ms
                yield key

    def _maintaining_one(self, key: Key, now_ms: int) -> Work[None]:
        place = self._places.by_key[key]
        if place.offline_because is not None:
            return
        try:
            partition = self._get(*key)
            if partition is None or not partition.is_available:
                return
            delay_ms = partition.config.file_delete_delay_ms
            dropped = yield from partition.retention.maintaining(now_ms)
            self.remove_segments(dropped, now_ms + delay_ms)
        except OSError as error:
            # Maintenance tries again the next time.
            self._places.failed(place.home.path, error, f"Retention in {place.path} failed: {error}")
        except KafkaError:
            return

    def expiring_producers(self, now_ms: int, *, only_late: bool = False) -> Work[bool]:
        """Forget producers that have been silent for `producer_expiration_ms`, in the partitions that are
        loaded; the others do it when they are loaded. True: something is staged in some of them, whose turn
        is in the next call, or, with `only_late`, in a call for them alone.
        """
        by_key = self._places.by_key
        keys, self._late_expiries = self._late_expiries if only_late else list(by_key), []
        for number, key in enumerate(keys, 1):
            partition = by_key[key].partition if key in by_key else None
            if (
                partition is not None
                and partition.is_available
                and not partition.retention.expire_producers(now_ms, self._places.producer_expiration_ms)
            ):
                self._late_expiries.append(key)
            if number % EXPIRIES_PER_STEP == 0:
                yield None
        return bool(self._late_expiries)

    def remove_segments(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Remove the files of deleted segments at `due_ms`, when nobody can be reading them any more."""
        self._deleted_segments += [(due_ms, segment) for segment in segments]

    def remove_directory(self, path: str, delay_ms: int, partition: Partition | None = None) -> None:
        """Remove a partition's directory that is out of sight, in so many milliseconds; `partition` may still
        be read there.
        """
        self._directories_to_delete.append((self._places.now_ms + delay_ms, path, partition))

    def removing_deleted(self, now_ms: int) -> Work[None]:
        """Remove what was deleted and whose time has come; first what an earlier run has left."""
        left, self._places.to_delete = self._places.to_delete, []
        self._directories_to_delete.extendleft((now_ms, path, None) for path in left)
        yield from self.removing_segments(now_ms)
        for _ in range(len(self._directories_to_delete)):
            due_ms, path, partition = self._directories_to_delete.popleft()
            if due_ms > now_ms:
                self._directories_to_delete.append((due_ms, path, partition))
                continue
            if partition is not None:
                # An open file keeps its room on the disk.
                partition.log.files.close()
            yield partial(_remove_if_possible, self._places.disk, path, now_ms)

    def removing_segments(self, now_ms: int | None) -> Work[None]:
        """The same of segments alone; all of them when `now_ms` is None. The stop leaves no segment, whose
        partition the next start may not look at; directories may be thousands, and it finds them.
        """
        due: list[Segment] = []
        # Each looked at once: what is not due yet goes to the back.
        for _ in range(len(self._deleted_segments)):
            due_ms, segment = self._deleted_segments.popleft()
            if now_ms is not None and due_ms > now_ms:
                self._deleted_segments.append((due_ms, segment))
            else:
                due.append(segment)
        for start in range(0, len(due), REMOVED_PER_STEP):
            some = due[start : start + REMOVED_PER_STEP]
            for segment in some:
                segment.file.close()
            yield partial(_remove_segments, some, now_ms)
            for segment in some:
                # Whoever was late in reading has opened it again.
                segment.file.close()


def _remove_segments(segments: list[Segment], now_ms: int | None) -> None:
    for segment in segments:
        try:
            if now_ms is not None:
                _forget_if_written(segment.paths.disk, segment.paths.path(LOG), now_ms)
            segment.remove()
        except OSError:
            pass


def _remove_if_possible(disk: Disk, path: str, now_ms: int) -> None:
    try:
        for name in disk.list(path):
            if name.endswith((LOG, DELETED)) and LOG in name:
                _forget_if_written(disk, f"{path}/{name}", now_ms)
        remove_with_files(disk, path)
    except OSError:
        pass


def _forget_if_written(disk: Disk, path: str, now_ms: int) -> None:
    """Those who share a core with this thread would wait while a whole file's pages are freed; see
    `OsDisk.forget`.
    """
    try:
        is_written = now_ms - disk.modified_ms(path) > WRITTEN_MS
    except OSError:
        return
    if is_written:
        disk.forget(path)
