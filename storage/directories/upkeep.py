"""The periodic work of a store: retention, removal of deleted files, expiry of producers.

With very many partitions each round of retention takes only some, and reaches all of them in one
`retention_interval_ms`. Files that are renamed for deletion stay until no reader can use them any more.
Producers expire at another interval, in loaded partitions; in other partitions they expire at the load.
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
"""After this time without a change most of a file is on the disk: segments are flushed when the next one
begins."""


class Upkeep:
    """See the module. `get` returns a loaded partition, or raises `KafkaError`."""

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
        # (due, path of a directory, its partition) and (due, segment): removed when they have no readers any
        # more.
        self._directories_to_delete: deque[tuple[int, str, Partition | None]] = deque()
        self._deleted_segments: deque[tuple[int, Segment]] = deque()
        self._turn: Iterator[Key] = iter(())
        self._last_turn_ms: int | None = None
        # Partitions that are due, times the interval: whole numbers, so that none is due a round late.
        self._due = 0
        self._late_expiries: list[Key] = []

    def maintaining(self, now_ms: int) -> Work[None]:
        """One round of retention; then removal of deleted files that are due."""
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

    def maintaining_all(self, now_ms: int) -> Work[None]:
        """Retention of every partition now, whenever it would be its turn; then as `maintaining`."""
        for key in list(self._places.by_key):
            if self._places.is_known(key):
                yield from self._maintaining_one(key, now_ms)
                yield None
        yield from self.removing_deleted(now_ms)

    def _next_keys(self, now_ms: int) -> Iterator[Key]:
        """Continues after the keys of the last call; reaches all partitions in one interval, and each at most
        once.
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
            # The next round tries again.
            self._places.failed(place.home.path, error, f"Retention in {place.path} failed: {error}")
        except KafkaError:
            return

    def expiring_producers(self, now_ms: int, *, only_late: bool = False) -> Work[bool]:
        """Remove producers without a batch for `producer_expiration_ms`, in the loaded partitions; the others
        do so when they are loaded. True: partitions with staged batches were left for the next call;
        `only_late` takes these alone.
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
        """Remove the files of deleted segments at `due_ms`, when they have no readers any more."""
        self._deleted_segments += [(due_ms, segment) for segment in segments]

    def remove_directory(self, path: str, delay_ms: int, partition: Partition | None = None) -> None:
        """Remove a renamed directory of a partition after `delay_ms`; `partition` may still be read there."""
        self._directories_to_delete.append((self._places.now_ms + delay_ms, path, partition))

    def removing_deleted(self, now_ms: int) -> Work[None]:
        """Remove deleted files that are due; first those of an earlier run."""
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
        """Remove deleted segments that are due; all when `now_ms` is None. A stop has to remove all, since
        the next start may not list their partitions. Directories are left, there may be thousands: the next
        start finds them.
        """
        due: list[Segment] = []
        # Each entry is checked once: entries that are not due yet go to the back.
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
                # A late reader may have opened the file again.
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
    """Threads on the same core would wait while all pages of a file are freed; see `OsDisk.forget`."""
    try:
        is_written = now_ms - disk.modified_ms(path) > WRITTEN_MS
    except OSError:
        return
    if is_written:
        disk.forget(path)
