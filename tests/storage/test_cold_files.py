"""Nothing that is not in the system's memory is waited for where requests are served: of files that nobody
has touched a worker thread reads first whatever is asked of them.

The disk takes a file for cold until a worker has read anything of it, and refuses to be read by anyone else
before.
"""

from collections.abc import Callable

import pytest
from memory_disk import MemoryDisk, MemoryFile
from stores import NOW_MS, append, open_store

from odradek.storage.compaction.cleaner import CleanerSettings
from odradek.storage.compaction.plan import unread_of_plan
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.log.partition import READ_COMMITTED, READ_UNCOMMITTED
from odradek.storage.log.slices import WouldWait
from odradek.wire.records import iter_records
from odradek.wire.work import Work

COUNT = 40
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, min_cleanable_dirty_ratio=0.0)


class ColdFile(MemoryFile):
    _disk: "ColdDisk"

    def read(self, position, size_bytes):
        self._disk.touch(self._path)
        return super().read(position, size_bytes)

    def is_resident(self, position, size_bytes):
        return not self._disk.is_cold(self._path)


class ColdDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.warm: set[str] | None = None
        """None: all of them."""
        self.is_worker = False
        self.worker_calls = 0

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        return ColdFile(self, file._path, file._inode)

    def is_cold(self, path: str) -> bool:
        return self.warm is not None and path not in self.warm

    def touch(self, path: str) -> None:
        if self.is_cold(path):
            assert self.is_worker, f"{path} is waited for where requests are served"
            self.warm.add(path)

    def in_worker(self, function: Callable[[], object]) -> object:
        self.is_worker = True
        self.worker_calls += 1
        try:
            return function()
        finally:
            self.is_worker = False

    def done(self, work: Work) -> object:
        """All of a work, each function that it yields in a worker."""
        result = None
        while True:
            try:
                step = work.send(result)
            except StopIteration as end:
                return end.value
            result = None if step is None else self.in_worker(step)


def open_cold(disk: ColdDisk) -> LogStore:
    return open_store(disk, config_for=lambda topic: CONFIG)


@pytest.fixture
def disk():
    return ColdDisk()


@pytest.fixture(params=["after a clean stop", "after a kill"])
def store(disk, request):
    """With a log of some segments; timestamps go up by a second with each record."""
    store = open_cold(disk)
    partition = store.create("t", 0, bytes(15) + b"1", CONFIG)
    for number in range(COUNT):
        append(partition, timestamp=NOW_MS + number * 1000)
    partition.flush()
    assert len(partition.log.segments) > 4
    if request.param == "after a clean stop":
        store.close(NOW_MS)
    disk.held.clear()
    return open_cold(disk)


@pytest.fixture
def partition(disk, store):
    partition = store.get("t", 0)
    partition.flush()
    for segment in partition.log.segments:
        # As the pool of open files does with what was not used for long.
        segment.file.close()
    disk.warm = set()
    return partition


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_what_a_fetch_reads(disk, partition, isolation):
    found = []
    while len(found) < COUNT:
        try:
            result = partition.read(len(found), max_bytes=200, isolation=isolation, prompt=True)
        except WouldWait as miss:
            disk.in_worker(miss.load)
            continue
        if result.records.would_wait():
            disk.in_worker(result.records.load)
        found += [record.offset for record in iter_records(result.records.tobytes())]
    assert found == list(range(COUNT))
    # No more than one for the indexes of a segment, one for its headers, and one for what it answers with.
    assert disk.worker_calls <= 3 * len(partition.log.segments)


@pytest.mark.parametrize("number", [0, 1, 17, COUNT - 1])
def test_what_a_look_up_by_time_reads(disk, partition, number):
    timestamp, offset, _ = disk.done(partition.search.finding_timestamp(NOW_MS + number * 1000))
    assert (timestamp, offset) == (NOW_MS + number * 1000, number)


def test_what_a_look_up_of_the_latest_time_reads(disk, partition):
    timestamp, offset, _ = disk.done(partition.search.finding_max_timestamp())
    assert (timestamp, offset) == (NOW_MS + (COUNT - 1) * 1000, COUNT - 1)


@pytest.mark.parametrize(
    "settings", [{"min_compaction_lag_ms": 1000}, {"max_compaction_lag_ms": 1000, "min_compaction_lag_ms": 1}]
)
def test_what_a_plan_of_compaction_reads(disk, store, partition, settings):
    partition.set_config(LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=700, **settings))
    now_ms = NOW_MS + 2 * COUNT * 1000
    assert disk.done(store.cleaner.next_round(now_ms, CleanerSettings())) is not None
    assert unread_of_plan(partition.log, 0) == [], "the next look has nothing to read"


def test_of_what_is_clean_a_plan_reads_nothing(partition):
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=700, max_compaction_lag_ms=1000)
    partition.set_config(config)
    assert len(unread_of_plan(partition.log, 0)) == len(partition.log.segments) - 1
    assert unread_of_plan(partition.log, COUNT) == []


@pytest.mark.parametrize("renaming", ["doom", "change_suffix"])
def test_a_worker_finds_a_file_that_is_being_renamed(disk, partition, monkeypatch, renaming):
    disk.warm = None
    segment = partition.log.segments[0]
    content = segment.file.read(0, 200)
    segment.file.close()
    seen = []

    def look_and_rename(source, target, rename=disk.rename):
        rename(source, target)
        # Where a worker looks that has no file of the segment open yet.
        with segment.file.pinned() as file:
            seen.append(file.read(0, 200))

    monkeypatch.setattr(disk, "rename", look_and_rename)
    if renaming == "doom":
        segment.paths.mark_deleted()
    else:
        segment.change_suffix(".swap")
    assert len(seen) > 1
    assert set(seen) == {content}
    with segment.file.pinned() as file:
        assert file.read(0, 200) == content
