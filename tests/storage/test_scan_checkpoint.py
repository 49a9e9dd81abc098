"""After a crash a start reads what lies behind the scan checkpoint of a log, and finds the same as one that
reads all.

That no crash breaks a promise with scan checkpoints is what `test_power_loss.py` and `test_histories.py`
show, whose stores make them as often as they can.
"""

import errno
import random

import pytest
from memory_disk import MemoryDisk
from promises import latest
from stores import NOW_MS
from transacting import Producer, check_transactions

from odradek.storage.checkpoints import read_facts
from odradek.storage.config import LogConfig
from odradek.storage.directories.checkpointing import SCAN_CHECKPOINTS_PER_ROUND
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, LogStore
from odradek.storage.log.partition import Partition
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS, ScanCheckpoint
from odradek.wire.errors import KafkaError
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish

CONFIG = LogConfig(index_interval_bytes=500)
DIRECTORY = "data/t-0"
SEGMENT = f"{DIRECTORY}/{0:020d}"
TOPIC_ID = bytes(range(16))
LATER_MS = NOW_MS + CHECKPOINT_INTERVAL_MS


def opened(
    disk: MemoryDisk, now_ms: int = NOW_MS, *, interval_bytes: int = 1, config: LogConfig = CONFIG
) -> LogStore:
    """After a kill, too, which takes nothing that was written."""
    disk.held.clear()
    disk.bytes_read.clear()
    store = LogStore(
        disk,
        ["data"],
        config_for=lambda topic: config,
        scan_checkpoint_interval_bytes=interval_bytes,
        new_id=lambda: "0" * 32,
    )
    store.open(now_ms)
    store.create("t", 0, TOPIC_ID, config)
    return store


def partition_of(store: LogStore) -> Partition:
    partition = store.get("t", 0)
    assert partition is not None
    return partition


def append(partition: Partition, count: int, size_bytes: int = 100) -> None:
    """So many batches of a producer who numbers them."""
    entry = partition.log.producers.producers.get(7)
    sequence = 0 if entry is None else entry.last_sequence + 1
    for number in range(count):
        value = b"%d " % partition.log.next_offset * size_bytes
        batch = build_batch(
            [Record(0, NOW_MS + partition.log.next_offset % 50, b"k", value[:size_bytes])],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence + number,
        )
        partition.appends.append(batch, now_ms=NOW_MS)
    partition.commit()


def everything(partition: Partition) -> tuple:
    """What readers and producers can find out of a log."""
    data, offset = b"", partition.log_start_offset
    while offset < partition.high_watermark:
        some = partition.read(offset, max_bytes=1000).records.tobytes()
        whole = list(iter_whole_batches(memoryview(some)))
        offset = whole[-1][1].last_offset + 1
        data += some[: whole[-1][0] + whole[-1][1].size_bytes]
    producers = {one: latest(entry) for one, entry in partition.log.producers.producers.items()}
    times = [finish(partition.search.finding_timestamp(NOW_MS + later)) for later in range(0, 60, 7)]
    found = [
        next(iter_records(partition.read(one, max_bytes=1).records.tobytes())).offset
        for one in range(partition.log_start_offset, partition.high_watermark, 13)
    ]
    latest_time = finish(partition.search.finding_max_timestamp())
    check_transactions(partition)
    return partition.log_end_offset, data, producers, times, found, latest_time


def with_scan_checkpoint(count: int = 300, behind: int = 3) -> MemoryDisk:
    """A log that was flushed and has a scan checkpoint, and so many batches behind it."""
    disk = MemoryDisk()
    store = opened(disk)
    partition = partition_of(store)
    producer = Producer(partition, 9)
    producer.send(b"a")
    producer.end(commit=False)
    append(partition, count)
    partition.flush()
    finish(store.maintaining(LATER_MS))
    append(partition, behind)
    producer.send(b"b")
    producer.end(commit=False)
    return disk


def scan_checkpoint_of(disk: MemoryDisk):
    checkpoints = read_facts(disk, f"data/{SCAN_CHECKPOINTS}", ScanCheckpoint)
    return None if checkpoints is None else checkpoints.get(("t", 0))


def cost_of_start(disk: MemoryDisk) -> int:
    """Bytes that a start reads of the log and what is beside it."""
    opened(disk)
    return sum(size for path, size in disk.bytes_read.items() if path.startswith(DIRECTORY))


@pytest.mark.parametrize("count", [300, 3000])
def test_a_start_after_a_kill_reads_what_lies_behind_the_scan_checkpoint_and_not_what_is_before(count):
    disk = with_scan_checkpoint(count)
    size_bytes = len(disk.files[f"{SEGMENT}.log"].data)
    assert size_bytes > 170 * count
    cost = cost_of_start(disk)
    # What is behind it (900 bytes) three times over, what leads to it from the last index entry, and of the
    # indexes their ends, in looks of 8 and 12 KiB.
    assert cost < 12_000 + 2 * 20_480
    assert disk.bytes_read[f"{SEGMENT}.log"] < 8_000


def test_without_a_scan_checkpoint_all_of_the_segment_is_read():
    disk = with_scan_checkpoint(3000)
    disk.remove(f"data/{SCAN_CHECKPOINTS}")
    assert cost_of_start(disk) > len(disk.files[f"{SEGMENT}.log"].data)


def test_a_start_from_a_scan_checkpoint_comes_to_what_a_start_without_comes_to():
    disk = with_scan_checkpoint()
    disk.remove(f"data/{SCAN_CHECKPOINTS}")
    expected = everything(partition_of(opened(disk)))
    assert everything(partition_of(opened(with_scan_checkpoint()))) == expected
    # And it goes on, over another kill and a clean stop.
    disk = with_scan_checkpoint()
    for _ in range(3):
        store = opened(disk)
        append(partition_of(store), 20)
        expected = everything(partition_of(store))
        assert everything(partition_of(opened(disk))) == expected
        store = opened(disk)
        store.close(NOW_MS)
        assert everything(partition_of(opened(disk))) == expected


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".snapshot", SCAN_CHECKPOINTS])
@pytest.mark.parametrize("is_missing", [True, False])
def test_a_scan_checkpoint_that_lacks_a_file_or_finds_it_damaged_costs_a_whole_scan_and_nothing_else(
    kind, is_missing
):
    expected = everything(partition_of(opened(with_scan_checkpoint())))
    disk = with_scan_checkpoint()
    checkpoint = scan_checkpoint_of(disk)
    path = f"data/{SCAN_CHECKPOINTS}" if kind == SCAN_CHECKPOINTS else f"{SEGMENT}{kind}"
    if kind == ".snapshot":
        path = f"{DIRECTORY}/{checkpoint.offset:020d}{kind}"
    if is_missing:
        disk.remove(path)
    else:
        content = disk.files[path].data
        if kind in (".index", ".timeindex"):
            # The last entry that counts; the middle is looked at when somebody wants it.
            content[(checkpoint.index_count * 8 if kind == ".index" else checkpoint.time_count * 12) - 5] ^= (
                0x40
            )
        elif kind == ".txnindex":
            content[20] ^= 0x40
        else:
            content[len(content) // 2] ^= 1
    store = opened(disk)
    partition = partition_of(store)
    assert disk.bytes_read[f"{SEGMENT}.log"] > len(disk.files[f"{SEGMENT}.log"].data)
    assert everything(partition) == expected
    # The next scan checkpoint holds again.
    partition.flush()
    finish(store.maintaining(LATER_MS))
    cost_of_start(disk)
    assert disk.bytes_read[f"{SEGMENT}.log"] < 8_000
    assert everything(partition_of(opened(disk))) == expected


@pytest.mark.parametrize("seed", range(20))
def test_whatever_stands_behind_the_first_entries_of_an_index_is_not_believed(seed):
    """A roll writes the rest of both indexes without a sync; then the power goes."""
    expected = everything(partition_of(opened(with_scan_checkpoint())))
    disk, chance = with_scan_checkpoint(), random.Random(seed)
    for kind, entry_bytes in ((".index", 8), (".timeindex", 12), (".txnindex", 34)):
        content = disk.files[f"{SEGMENT}{kind}"].data
        checkpoint = scan_checkpoint_of(disk)
        count = {".index": checkpoint.index_count, ".timeindex": checkpoint.time_count}.get(
            kind, checkpoint.aborted_count
        )
        del content[count * entry_bytes :]
        content += chance.choice((bytes(50), chance.randbytes(50), bytes(content[:50]), bytes(7)))
    store = opened(disk)
    assert disk.bytes_read[f"{SEGMENT}.log"] < 8_000
    assert everything(partition_of(store)) == expected
    store.close(NOW_MS)
    assert everything(partition_of(opened(disk))) == expected


def test_a_log_that_has_grown_wants_a_flush_at_the_checkpoint_and_has_its_scan_checkpoint_after_it():
    disk = MemoryDisk()
    store = opened(disk, interval_bytes=10_000)
    partition = partition_of(store)
    append(partition, 30)
    finish(store.maintaining(LATER_MS))
    assert store.flush_due(LATER_MS) == []
    append(partition, 60)
    finish(store.maintaining(LATER_MS + 1))
    assert store.flush_due(LATER_MS + 1) == []
    finish(store.maintaining(LATER_MS + CHECKPOINT_INTERVAL_MS))
    pending_end = partition.log_end_offset
    assert store.flush_due(LATER_MS) == [partition]
    assert scan_checkpoint_of(disk) is None
    append(partition, 5)
    partition.flush()
    assert store.flush_due(LATER_MS) == []
    finish(store.maintaining(LATER_MS + CHECKPOINT_INTERVAL_MS + 1000))
    assert scan_checkpoint_of(disk).offset == pending_end
    # Nothing more until it has grown again.
    finish(store.maintaining(LATER_MS + 3 * CHECKPOINT_INTERVAL_MS))
    assert scan_checkpoint_of(disk).offset == pending_end
    assert store.flush_due(LATER_MS) == []


def test_while_something_is_staged_no_scan_checkpoint_is_begun():
    disk = MemoryDisk()
    store = opened(disk)
    partition = partition_of(store)
    append(partition, 10)
    partition.flush()
    partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v")]), now_ms=NOW_MS)
    finish(store.maintaining(LATER_MS))
    assert scan_checkpoint_of(disk) is None
    partition.commit()
    partition.flush()
    finish(store.maintaining(LATER_MS + 1000))
    assert scan_checkpoint_of(disk).offset == 11


def test_a_clean_stop_leaves_a_scan_checkpoint_for_those_who_are_killed_before_they_have_read_anything():
    disk = MemoryDisk()
    store = opened(disk)
    append(partition_of(store), 300)
    expected = everything(partition_of(store))
    store.close(NOW_MS)
    assert scan_checkpoint_of(disk).offset == 300
    for _ in range(2):
        store = LogStore(disk, ["data"], config_for=lambda topic: CONFIG)
        store.open(NOW_MS)
        disk.held.clear()  # killed: nobody had asked for the partition
    cost_of_start(disk)
    assert disk.bytes_read[f"{SEGMENT}.log"] < 8_000
    assert everything(partition_of(opened(disk))) == expected


def test_what_is_staged_at_a_clean_stop_is_refused_as_without_a_scan_checkpoint():
    store = opened(MemoryDisk())
    partition = partition_of(store)
    append(partition, 5)
    partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v")]), now_ms=NOW_MS)
    store.close(NOW_MS)
    with pytest.raises(KafkaError):
        partition.commit()


def test_a_round_makes_some_scan_checkpoints_and_leaves_the_others_to_the_next():
    disk = MemoryDisk()
    store = opened(disk)
    partitions = [
        store.create("t", index, TOPIC_ID, CONFIG) for index in range(SCAN_CHECKPOINTS_PER_ROUND + 3)
    ]
    for partition in partitions:
        append(partition, 1)
        partition.flush()
    finish(store.maintaining(LATER_MS))
    assert len(read_facts(disk, f"data/{SCAN_CHECKPOINTS}", ScanCheckpoint)) == SCAN_CHECKPOINTS_PER_ROUND
    finish(store.maintaining(LATER_MS + 1000))
    assert len(read_facts(disk, f"data/{SCAN_CHECKPOINTS}", ScanCheckpoint)) == len(partitions)


def test_the_snapshot_of_a_scan_checkpoint_goes_when_another_one_has_followed():
    config = LogConfig(segment_bytes=5000, index_interval_bytes=500)
    disk = MemoryDisk()
    store = opened(disk, config=config)
    partition = partition_of(store)
    for number in range(1, 12):
        append(partition, 7)
        partition.flush()
        finish(store.maintaining(LATER_MS + number * CHECKPOINT_INTERVAL_MS))
        snapshots = {int(path[-29:-9]) for path in disk.files if path.endswith(".snapshot")}
        assert snapshots <= {*partition.log.bases, scan_checkpoint_of(disk).offset}
    assert len(partition.log.segments) > 2


def test_a_topic_that_is_made_again_has_nothing_of_the_scan_checkpoints_before():
    disk = with_scan_checkpoint()
    store = opened(disk)
    store.delete("t", 0)
    store.create("t", 0, bytes(15) + b"!", CONFIG)
    assert scan_checkpoint_of(disk) is None


def test_an_index_that_is_made_anew_takes_the_place_of_the_one_of_a_scan_checkpoint():
    """In place, a loss of power could leave half of each."""
    for seed in range(40):
        disk = with_scan_checkpoint(100)
        store = opened(disk)
        partition = partition_of(store)
        segment = partition.log.active
        segment.indexes.rebuild(500)
        segment.save_indexes()
        survivor = disk.lose_power(seed)
        end_offset = partition.log.durability.recovery_point
        again = partition_of(opened(survivor))
        assert again.log_end_offset >= end_offset
        index = again.log.active.indexes.offset_index
        entries = [index.entry(place) for place in range(len(index))]
        ends = {batch.position: batch.last_offset for batch in again.log.active.batches()}
        assert all(ends[position] == offset for offset, position in entries)


def test_a_sync_that_fails_beside_the_log_takes_the_partition_offline():
    disk = MemoryDisk()
    store = opened(disk)
    partition = partition_of(store)
    append(partition, 50)
    partition.flush()
    expected = everything(partition)
    fails = [True]
    disk.fail = lambda operation, path: (
        (errno.EIO if operation == "sync" and path.endswith(".index") and fails.pop() else None)
        if fails
        else None
    )
    finish(store.maintaining(LATER_MS))
    assert partition.availability.is_broken
    assert scan_checkpoint_of(disk) is None
    finish(store.failing_disks.attending(LATER_MS))
    assert partition.is_available
    assert everything(partition) == expected
