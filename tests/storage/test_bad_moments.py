"""Two things at once, or one at the worst moment: what a hostile reader tried on the store."""

import errno
import os
import threading
from itertools import count

import pytest
from memory_disk import MemoryDisk
from promises import EVERY_OPERATION, World, history
from stores import NOW_MS, open_store

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.slices import Slice
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, iter_records
from odradek.wire.work import finish
from tests.tiers import NIGHTLY

TOPIC_ID = bytes(range(16))


def append(partition, *values: bytes, timestamp: int = NOW_MS) -> None:
    for value in values:
        partition.appends.append(build_batch([Record(0, timestamp, None, value)]), now_ms=NOW_MS)
    partition.commit()


def values_of(partition) -> list[tuple[int, bytes]]:
    found, offset = [], partition.log_start_offset
    while offset < partition.log_end_offset:
        data = partition.read(offset, max_bytes=1).records.tobytes()
        for record in iter_records(data):
            found.append((record.offset, record.value))
            offset = record.offset + 1
    return found


def test_a_store_that_was_refused_its_directory_marks_nothing_as_clean(tmp_path):
    """Else the next start would trust what the broker that has it left behind when it was killed."""
    directory = str(tmp_path / "data")
    first = open_store(OsDisk(), directory)
    append(first.create("events", 0, TOPIC_ID, LogConfig()), b"one")
    before = sorted(os.listdir(directory))
    second = LogStore(OsDisk(), [directory])
    with pytest.raises(Exception, match="in use"):
        second.open(NOW_MS)
    second.close(NOW_MS)
    assert sorted(os.listdir(directory)) == before
    first.close(NOW_MS)


def test_a_topic_with_the_longest_name_can_be_deleted(tmp_path):
    store = open_store(OsDisk(), str(tmp_path))
    name = "n" * 249
    store.create(name, 9999, TOPIC_ID, LogConfig())
    store.delete(name, 9999)
    (doomed,) = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert doomed.endswith("-delete")
    assert len(doomed) == 255
    store.close(NOW_MS)


def test_the_room_of_a_deleted_partition_is_given_back(tmp_path):
    """The file pool had its files open: their blocks stayed taken until a restart."""
    store = open_store(OsDisk(), str(tmp_path))
    partition = store.create("events", 0, TOPIC_ID, LogConfig(file_delete_delay_ms=0))
    append(partition, b"one")
    assert len(store.pool) == 1
    store.delete("events", 0)
    finish(store.maintaining(NOW_MS + 1))
    assert len(store.pool) == 0
    store.close(NOW_MS)


def test_a_flush_that_meets_the_retention_of_its_segments_is_no_failure():
    """The worker has the list of segments; their files are renamed before it opens the second."""
    disk = MemoryDisk()
    store = open_store(disk, open_files_max=1)
    partition = store.create("events", 0, TOPIC_ID, LogConfig(segment_bytes=200, retention_bytes=200))
    append(partition, *[b"v" * 50] * 6)
    append(store.create("other", 0, TOPIC_ID, LogConfig()), b"takes the only place in the file pool")
    worker = threading.Thread(target=partition.flush)
    first_is_synced, second_is_renamed = threading.Event(), threading.Event()
    second = "data/events-0/00000000000000000001.log.deleted"

    def meanwhile(operation: str, path: str) -> None:
        if operation == "sync" and threading.current_thread() is worker and not first_is_synced.is_set():
            first_is_synced.set()
            assert second_is_renamed.wait(10)
        elif operation == "rename" and path == second.replace(".log", ".index"):
            second_is_renamed.set()
            worker.join(10)

    append(partition, b"v" * 50)
    assert disk.exists("data/events-0/00000000000000000001.log")
    disk.fail = meanwhile
    worker.start()
    assert first_is_synced.wait(10)
    finish(store.maintaining(NOW_MS))
    worker.join(10)
    disk.fail = lambda operation, path: None
    assert partition.log_start_offset > 1
    assert partition.is_available
    append(partition, b"still there")


def test_a_slice_that_became_shorter_is_an_error_and_not_half_an_answer(tmp_path):
    store = open_store(OsDisk(), str(tmp_path))
    partition = store.create("events", 0, TOPIC_ID, LogConfig())
    for size_bytes in (100, 100_000):
        append(partition, b"v" * size_bytes)
        records = partition.read(partition.log_end_offset - 1, max_bytes=1).records
        assert isinstance(records, Slice)
        path = next((tmp_path / "events-0").glob("*.log"))
        content = path.read_bytes()
        os.truncate(path, 10)
        with pytest.raises(OSError, match=r"short|long|length|end"):
            records.buffers()
        path.write_bytes(content)
    store.close(NOW_MS)


def test_a_commit_succeeds_while_no_more_files_can_be_opened():
    """The bytes are written; that the index cannot be looked at must not undo half of it."""
    disk = MemoryDisk()
    store = open_store(disk, open_files_max=1)
    config = LogConfig(index_interval_bytes=100)
    append(store.create("events", 0, TOPIC_ID, config), *[b"v" * 60] * 4)
    store.close(NOW_MS)
    store = open_store(disk, open_files_max=1)
    partition = store.create("events", 0, TOPIC_ID, config)
    append(store.create("other", 0, TOPIC_ID, LogConfig()), b"takes the only place in the file pool")
    disk.fail = lambda operation, path: errno.EIO if operation == "read" and "index" in path else None
    append(partition, *[b"w" * 60] * 4)
    disk.fail = lambda operation, path: None
    assert partition.log_end_offset == 8
    append(partition, b"last")
    assert [offset for offset, _ in values_of(partition)] == list(range(9))
    store.close(NOW_MS)
    assert len(values_of(open_store(disk).get("events", 0))) == 9


def test_a_failed_commit_is_taken_back_though_the_index_cannot_be_read():
    disk = MemoryDisk()
    store = open_store(disk, open_files_max=1)
    config = LogConfig(index_interval_bytes=100)
    append(store.create("events", 0, TOPIC_ID, config), *[b"v" * 60] * 4)
    store.close(NOW_MS)
    store = open_store(disk, open_files_max=1)
    partition = store.create("events", 0, TOPIC_ID, config)
    append(store.create("other", 0, TOPIC_ID, LogConfig()), b"takes the only place in the file pool")
    disk.fail = lambda operation, path: (
        errno.EIO if operation == "write" or (operation == "read" and "index" in path) else None
    )
    with pytest.raises(KafkaError) as failed:
        append(partition, b"lost")
    assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda operation, path: None
    append(partition, b"kept")
    assert values_of(partition)[-1] == (4, b"kept")


def test_an_empty_segment_that_a_failed_commit_left_hides_nothing_after_a_clean_stop():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("events", 0, TOPIC_ID, LogConfig(segment_bytes=400))
    append(partition, *[b"v" * 60] * 2)
    # The commit rolls, cannot write the new segment, and cannot take it back.
    disk.fail = lambda operation, path: (
        errno.EIO if operation == "remove" or (operation == "write" and "snapshot" in path) else None
    )
    with pytest.raises(KafkaError):
        append(partition, *[b"v" * 200] * 2)
    disk.fail = lambda operation, path: None
    append(partition, b"small")
    store.close(NOW_MS)
    partition = open_store(disk).get("events", 0)
    assert [offset for offset, _ in values_of(partition)] == [0, 1, 2]


def test_a_segment_that_a_failed_commit_takes_away_beside_a_flush_hides_nothing_after_a_power_loss():
    """The flush syncs the directory while the name is still there, so another one has to."""
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("events", 0, TOPIC_ID, LogConfig(segment_bytes=300))
    append(partition, b"first")
    partition.flush()
    discarded = "data/events-0/00000000000000000001.log"

    def meanwhile(operation: str, path: str) -> int | None:
        if (operation, path) == ("remove", discarded):
            partition.flush()
        return errno.ENOSPC if operation == "create" and path.endswith("2.log") else None

    disk.fail = meanwhile
    with pytest.raises(KafkaError):
        append(partition, b"refused" * 30, b"refused, for want of a second segment" * 3)
    disk.fail = lambda operation, path: None
    assert not disk.exists(discarded)
    append(partition, b"a", b"b")
    assert len(partition.log.segments) == 1
    partition.flush()
    finish(store.maintaining(NOW_MS + CHECKPOINT_INTERVAL_MS))
    for seed in range(20):
        again = open_store(disk.lose_power(seed)).get("events", 0)
        assert values_of(again) == [(0, b"first"), (1, b"a"), (2, b"b")]


def test_staging_needs_no_answer_from_the_disk():
    """To roll by time the log wants to see its first batch; an error there closed the client's connection."""
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("events", 0, TOPIC_ID, LogConfig(segment_ms=1000)), b"one")
    store.close(NOW_MS)
    partition = open_store(disk).create("events", 0, TOPIC_ID, LogConfig(segment_ms=1000))
    disk.fail = lambda operation, path: errno.EIO if operation == "read" else None
    append(partition, b"two")
    disk.fail = lambda operation, path: None
    append(partition, b"three")
    assert values_of(partition) == [(0, b"one"), (1, b"two"), (2, b"three")]


TAKES_ROOM = ("write", "create", "mkdir", "rename", "truncate", "sync")
"""What a full disk may refuse; a file system that puts off the choice of its blocks says so at the sync."""


def fail_once(disk: MemoryDisk, number: int, code: int, spared: str = "map") -> list[tuple[str, str]]:
    """Let the disk's `number`th operation that can fail so do it; gives that operation once it has been.

    Mappings are `spared` where a number has to stay that of the operation that it was when it was found.
    """
    operations = count(1)
    failed: list[tuple[str, str]] = []

    def fail(operation: str, path: str) -> int | None:
        if operation == spared or (code == errno.ENOSPC and operation not in TAKES_ROOM):
            return None
        if next(operations) != number:
            return None
        failed.append((operation, path))
        return code

    disk.fail = fail
    return failed


def error_at(steps: list[tuple[str, int]], number: int, code: int, seed: int, spared: str = "map") -> bool:
    """A history on a disk whose `number`th operation fails, and what has to hold then; False when it has no
    such operation."""
    world = World(MemoryDisk())
    failed = fail_once(world.disk, number, code, spared)
    for step in steps:
        world.attempt(*step)
    world.disk.fail = lambda operation, path: None
    if not failed:
        return False
    world.attend()
    world.check(is_kill=True)
    world.run_all([("append", number), ("restart", number)])
    world.run_all([("append", number), ("append", number + 1), ("flush", number)])
    world.crash(seed + number)
    return True


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("seed", range(60 if NIGHTLY else 1))
def test_an_error_at_any_operation_loses_nothing_acknowledged_and_heals(seed, code):
    """Whatever fails once: the one code for it is answered, and when the disk has been looked at all that was
    acknowledged can be read, and the next append works; after a restart and a loss of power, too."""
    steps = history(seed, 40 if NIGHTLY else 14)
    number = next(number for number in count(1) if not error_at(steps, number, code, seed))
    assert number > len(steps)


PARTS = 4
"""One test would take longer than tests may."""


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("code", [errno.EIO, *([errno.ENOSPC] * NIGHTLY)])
def test_an_error_at_any_operation_of_the_history_that_has_them_all_loses_nothing_and_heals(code, part):
    numbers = count(1 + part, PARTS)
    number = next(one for one in numbers if not error_at(EVERY_OPERATION, one, code, 0, spared=""))
    assert number > 5 * len(EVERY_OPERATION)


@pytest.mark.parametrize(
    ("seed", "code", "number"),
    [
        # The sync of what a start puts back from the flush journal, beside what was not flushed.
        (3, errno.ENOSPC, 31),
        (5, errno.EIO, 187),
        # The sync of a log that a start cuts.
        (51, errno.EIO, 402),
        (51, errno.EIO, 406),
        # That of a flush; its partition is offline when a checkpoint is written.
        (59, errno.EIO, 24),
        # A log of which all is deleted knows its leader epoch from nobody but the cluster.
        (42, errno.EIO, 7),
    ],
)
def test_what_nights_have_found_stays_mended(seed, code, number):
    assert error_at(history(seed, 40), number, code, seed)


@pytest.mark.parametrize("seed", range(60 if NIGHTLY else 3))
def test_a_disk_that_is_full_for_a_while_loses_nothing_and_heals_without_a_restart(seed):
    world = World(MemoryDisk())
    for step in history(seed, 10):
        world.run(*step)
    used = sum(len(inode.data) for inode in world.disk.files.values())
    for place, step in enumerate(history(seed + 1000, 40)):
        world.disk.room_bytes = used + place * 20
        world.attempt(*step)
        world.check(is_kill=True)
    assert world.disk.failures
    world.disk.room_bytes = None
    world.run("append", seed)
    world.run("group_flush", seed)
    world.check(is_kill=True)
    world.crash(seed)


def test_what_a_failed_sync_may_have_lost_is_written_again_before_a_start_relies_on_it():
    """The kernel takes its pages for clean: they can be read until the machine stops, and the next sync would
    say that all is well."""
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("events", 0, TOPIC_ID, LogConfig())
    append(partition, b"one")
    partition.flush()
    append(partition, *[b"two" * 50] * 5)
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" and path.endswith(".log") else None
    with pytest.raises(KafkaError) as failed:
        partition.flush()
    assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda operation, path: None
    # Killed before anybody could look at the disk.
    disk.held.clear()
    partition = open_store(disk).create("events", 0, TOPIC_ID, LogConfig())
    assert len(values_of(partition)) == 6
    append(partition, b"three")
    partition.flush()
    for seed in range(20):
        assert len(values_of(open_store(disk.lose_power(seed)).get("events", 0))) == 7


def test_a_flush_that_a_full_disk_refused_can_be_repeated():
    """The log was synced; there was only no room for the epochs beside it."""
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("events", 0, TOPIC_ID, LogConfig())
    append(partition, b"one")
    disk.fail = lambda operation, path: errno.ENOSPC if "leader-epoch" in path else None
    with pytest.raises(KafkaError) as failed:
        partition.flush()
    assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda operation, path: None
    assert partition.is_available
    append(partition, b"two")
    partition.flush()
    for seed in range(20):
        assert len(values_of(open_store(disk.lose_power(seed)).get("events", 0))) == 2
