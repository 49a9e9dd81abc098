"""`preallocate`: room for a segment is set aside when it is made, and given back when it is sealed."""

import errno
import os

from memory_disk import MemoryDisk

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
MEGABYTE = 1 << 20
CONFIG = LogConfig(preallocate=True, segment_bytes=MEGABYTE)


def append(partition, size_bytes=100):
    partition.appends.append(build_batch([Record(0, NOW_MS, b"k", bytes(size_bytes))]), now_ms=NOW_MS)
    partition.commit()


def room(path):
    """(size, bytes on the disk) of each segment, the oldest first."""
    stats = [os.stat(path / name) for name in sorted(os.listdir(path)) if name.endswith(".log")]
    return [(one.st_size, one.st_blocks * 512) for one in stats]


def can_reserve(tmp_path):
    file = OsDisk().open(str(tmp_path / "probe"), create=True)
    try:
        file.reserve(MEGABYTE)
    except OSError:
        return False
    finally:
        file.close()
    return True


def test_a_segment_has_its_room_while_it_is_written_and_no_more_afterwards(tmp_path):
    held = MEGABYTE if can_reserve(tmp_path) else 0
    store = LogStore(OsDisk(), [str(tmp_path / "data")])
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), CONFIG, now_ms=NOW_MS)
    directory = tmp_path / "data" / "t-0"
    append(partition)
    ((size, on_disk),) = room(directory)
    assert size == partition.size_bytes < 1000
    assert on_disk >= held
    append(partition, 600_000)
    append(partition, 600_000)
    (first_size, first_on_disk), (_, second_on_disk) = room(directory)
    assert first_on_disk < first_size + 65_536
    assert second_on_disk >= held
    store.close(NOW_MS)
    assert all(on_disk < size + 65_536 for size, on_disk in room(directory))


def test_what_a_crash_left_set_aside_is_given_back_later(tmp_path):
    can_reserve(tmp_path)
    crashed = LogStore(OsDisk(), [str(tmp_path / "data")])
    crashed.open(NOW_MS)
    append(crashed.create("t", 0, bytes(16), CONFIG, now_ms=NOW_MS))
    crashed._unlock()
    store = LogStore(OsDisk(), [str(tmp_path / "data")], config_for=lambda topic: CONFIG)
    assert store.open(NOW_MS) == {}
    store.close(NOW_MS)
    assert all(on_disk < size + 65_536 for size, on_disk in room(tmp_path / "data" / "t-0"))


def test_a_disk_that_sets_nothing_aside_is_written_all_the_same():
    disk = MemoryDisk()
    disk.fail = lambda operation, path: errno.ENOSPC if operation == "reserve" else None
    store = LogStore(disk, ["data"])
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), CONFIG, now_ms=NOW_MS)
    append(partition, 600_000)
    append(partition, 600_000)
    assert partition.log_end_offset == 2


def test_it_is_asked_of_segments_made_after_it_was_set():
    asked = []
    disk = MemoryDisk()
    disk.fail = lambda operation, path: asked.append(path) if operation == "reserve" else None
    store = LogStore(disk, ["data"])
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), LogConfig(segment_bytes=MEGABYTE), now_ms=NOW_MS)
    append(partition, 600_000)
    partition.set_config(CONFIG)
    append(partition, 600_000)
    append(partition, 600_000)
    assert len(asked) == 2
    assert all(path.endswith((f"{1:020}.log", f"{2:020}.log")) for path in asked)
