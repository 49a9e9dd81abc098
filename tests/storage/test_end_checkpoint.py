"""After a crash a start recovers what no flush had all of; the rest waits until somebody asks for it.

That nothing is lost by that, however often nobody asks, is what `test_histories.py` shows.
"""

import errno
from dataclasses import replace

import pytest
from memory_disk import MemoryDisk
from stores import NOW_MS
from test_scan_checkpoint import CONFIG, DIRECTORY, LATER_MS, SEGMENT, TOPIC_ID, append, everything
from transacting import Producer

from odradek.storage.checkpoints import RECOVERY_POINTS, read_facts, read_offsets, write_offsets
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, LogStore, StoreListener
from odradek.storage.log import durability
from odradek.storage.log.durability import END_CHECKPOINTS, EndCheckpoint
from odradek.storage.log.partition import Partition
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS, ScanCheckpoint
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish

READ_SOONER = LogConfig()
"""So short a log that a clean stop leaves no index and no snapshot beside it."""
KINDS = {"short": (READ_SOONER, 5), "indexed": (CONFIG, 300)}


class Told(StoreListener):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def damage(self, sentence: str) -> None:
        self.sentences.append(sentence)


def started(
    disk: MemoryDisk, config: LogConfig = CONFIG, *, listener: StoreListener | None = None
) -> LogStore:
    """A store, after a kill as well; nobody has asked for a partition."""
    disk.held.clear()
    disk.bytes_read.clear()
    store = LogStore(
        disk, ["data"], config_for=lambda topic: config, new_id=lambda: "0" * 32, listener=listener
    )
    store.open(NOW_MS)
    return store


def partition_of(store: LogStore) -> Partition:
    partition = store.get("t", 0)
    assert partition is not None
    return partition


def bytes_read(disk: MemoryDisk) -> int:
    """Of the partition's files."""
    return sum(size for path, size in disk.bytes_read.items() if path.startswith(DIRECTORY))


def filled(kind: str = "indexed") -> tuple[MemoryDisk, LogStore, LogConfig]:
    config, count = KINDS[kind]
    disk = MemoryDisk()
    store = started(disk, config)
    partition = store.create("t", 0, TOPIC_ID, config)
    producer = Producer(partition, 9)
    producer.send(b"a")
    producer.end(commit=False)
    append(partition, count)
    return disk, store, config


def end_checkpoint_of(disk: MemoryDisk) -> EndCheckpoint | None:
    said = read_facts(disk, f"data/{END_CHECKPOINTS}", EndCheckpoint)
    assert said is not None
    return said.get(("t", 0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_after_a_kill_reads_nothing_of_what_a_clean_stop_has_closed(kind):
    disk, store, config = filled(kind)
    expected = everything(partition_of(store))
    store.close(NOW_MS)
    assert end_checkpoint_of(disk).was_closed
    started(disk, config)
    for _ in range(3):
        store = started(disk, config)
        assert store.places.is_unopened("t", 0)
        assert bytes_read(disk) == 0
    assert everything(partition_of(store)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_after_a_kill_reads_nothing_of_what_was_flushed_before_the_last_checkpoint(kind):
    disk, store, config = filled(kind)
    partition = partition_of(store)
    partition.flush()
    finish(store.maintaining(LATER_MS))
    expected = everything(partition)
    store = started(disk, config)
    assert store.places.is_unopened("t", 0)
    assert bytes_read(disk) == 0
    assert everything(partition_of(store)) == expected
    # Recovered or not: as long as nothing is added, the next start has nothing to read either.
    for number in range(1, 4):
        finish(store.maintaining(LATER_MS + number * CHECKPOINT_INTERVAL_MS))
        store = started(disk, config)
        assert store.places.is_unopened("t", 0)
        partition_of(store)


def test_checkpoints_with_the_names_of_an_earlier_build_are_ignored():
    disk, store, config = filled()
    expected = everything(partition_of(store))
    store.close(NOW_MS)
    disk.rename(f"data/{END_CHECKPOINTS}", "data/log-end-checkpoint")
    disk.rename(f"data/{SCAN_CHECKPOINTS}", "data/head-checkpoint")
    assert everything(partition_of(started(disk, config))) == expected


@pytest.mark.parametrize("is_flushed", [True, False])
def test_what_came_after_the_checkpoint_is_recovered_at_the_start(is_flushed):
    disk, store, config = filled()
    partition = partition_of(store)
    partition.flush()
    finish(store.maintaining(LATER_MS))
    append(partition, 1)
    if is_flushed:
        partition.flush()
    expected = everything(partition)
    store = started(disk, config)
    assert not store.places.is_unopened("t", 0)
    assert everything(partition_of(store)) == expected


def test_only_the_partitions_that_have_something_unflushed_are_opened():
    disk = MemoryDisk()
    store = started(disk)
    partitions = [store.create("t", index, TOPIC_ID, CONFIG) for index in range(20)]
    for partition in partitions:
        append(partition, 3)
    store.close(NOW_MS)
    store = started(disk)
    for index in (4, 17):
        partition = store.get("t", index)
        assert partition is not None
        append(partition, 1)
    store = started(disk)
    assert [index for index in range(20) if not store.places.is_unopened("t", index)] == [4, 17]
    assert [partition.log_end_offset for partition in store.partitions()].count(4) == 2


def test_a_log_that_was_rolled_and_a_file_that_says_that_a_sync_has_failed_are_looked_at():
    for name in (f"{300:020d}.log", "sync-failed", f"{0:020d}.log.swap"):
        disk, store, config = filled()
        store.close(NOW_MS)
        started(disk, config)
        disk.open(f"{DIRECTORY}/{name}", create=True).close()
        assert not started(disk, config).places.is_unopened("t", 0), name


def test_where_the_recovery_point_says_something_else_the_log_is_looked_at():
    for recovery_point in (0, 200, 400):
        disk, store, config = filled()
        store.close(NOW_MS)
        started(disk, config)
        path = f"data/{RECOVERY_POINTS}"
        assert read_offsets(disk, path)["t", 0] == end_checkpoint_of(disk).offset
        write_offsets(disk, path, {("t", 0): recovery_point})
        assert not started(disk, config).places.is_unopened("t", 0), recovery_point


def test_a_recovery_that_reads_much_does_not_wait(monkeypatch):
    disk, store, config = filled()
    partition = partition_of(store)
    partition.flush()
    finish(store.maintaining(LATER_MS))
    size_bytes = end_checkpoint_of(disk).size_bytes
    for limit_bytes, waits in ((size_bytes, True), (size_bytes - 1, False)):
        monkeypatch.setattr("odradek.storage.directories.opening.UNREAD_BYTES_MAX", limit_bytes)
        assert started(disk, config).places.is_unopened("t", 0) is waits
    # Of what is before a scan checkpoint nothing is read.
    monkeypatch.undo()
    disk, store, config = filled()
    store.close(NOW_MS)
    started(disk, config)
    monkeypatch.setattr("odradek.storage.directories.opening.UNREAD_BYTES_MAX", 0)
    assert started(disk, config).places.is_unopened("t", 0)
    assert durability.UNREAD_BYTES_MAX > 0


def test_a_recovery_that_has_waited_reads_nothing_before_the_scan_checkpoint_and_syncs_nothing():
    disk, store, config = filled()
    store.close(NOW_MS)
    said = read_facts(disk, f"data/{SCAN_CHECKPOINTS}", ScanCheckpoint)
    assert said is not None
    scan_checkpoint, end = said["t", 0], end_checkpoint_of(disk)
    assert (scan_checkpoint.base_offset, scan_checkpoint.position, scan_checkpoint.offset) == end[:3]
    started(disk, config)
    store = started(disk, config)
    synced: list[str] = []
    disk.fail = lambda operation, path: synced.append(path) if operation.startswith("sync") else None
    partition_of(store)
    assert synced == []
    # What leads from the last index entry to the end.
    assert disk.bytes_read[f"{SEGMENT}.log"] < 8_000 < scan_checkpoint.position


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_what_a_loss_of_power_has_left_behind_the_index_of_a_stop_is_not_believed(kind):
    """Nobody asks for the partition until a clean stop: it was not recovered, and the next start knows."""
    entry = bytes(8) if kind == ".index" else (NOW_MS + 10**9).to_bytes(8, "big") + (299).to_bytes(4, "big")
    disk, store, config = filled()
    expected = everything(partition_of(store))
    store.close(NOW_MS)
    started(disk, config)
    disk.files[f"{SEGMENT}{kind}"].data += entry
    store = started(disk, config)
    assert store.places.is_unopened("t", 0)
    store.close(NOW_MS)
    assert not end_checkpoint_of(disk).was_closed
    for _ in range(2):
        store = started(disk, config)
        assert store.opening.was_clean
        store.close(NOW_MS)
    assert everything(partition_of(started(disk, config))) == expected


def test_a_log_that_has_become_shorter_than_its_end_gives_that_up_before_it_goes_on():
    disk, store, config = filled()
    partition = partition_of(store)
    partition.flush()
    finish(store.maintaining(LATER_MS))
    # Where the next batch begins can be found no more.
    disk.files[f"{SEGMENT}.log"].data[8] ^= 0x40
    told = Told()
    store = started(disk, config, listener=told)
    assert store.places.is_unopened("t", 0)
    assert partition_of(store).log_end_offset == 0
    assert any("bytes were damaged and have been cut" in sentence for sentence in told.sentences)
    assert end_checkpoint_of(disk) is None
    assert not started(disk, config).places.is_unopened("t", 0)


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("place", "bit"), [(3, 4), (23, 4), (23, 7), (26, 0)])
def test_a_log_goes_on_where_a_clean_stop_says_it_ended_whatever_its_last_batch_says(
    kind, policy, place, bit
):
    """Its base offset or its last offset's delta has changed, which sent the log's end anywhere."""
    disk, store, config = filled(kind)
    config = replace(config, cleanup_policy=frozenset({policy}))
    log = partition_of(store).log
    offset, position = log.log_end_offset, log.reader.locate(log.log_end_offset - 1)[1]
    store.close(NOW_MS)
    disk.files[f"{SEGMENT}.log"].data[position + place] ^= 1 << bit
    told = Told()
    store = started(disk, config, listener=told)
    partition = partition_of(store)
    assert partition.log_end_offset == offset
    assert told.sentences == [
        f"The last batches of {SEGMENT}.log are damaged; the log continues at offset {offset}."
    ]
    append(partition, 1)
    store.close(NOW_MS)
    partition = partition_of(started(disk, config))
    assert partition.log_end_offset == offset + 1
    assert len(partition.read(offset, max_bytes=1000).records) > 0


def test_a_damaged_checkpoint_of_ends_is_told_and_costs_a_recovery():
    disk, store, config = filled()
    expected = everything(partition_of(store))
    store.close(NOW_MS)
    started(disk, config)
    content = disk.files[f"data/{END_CHECKPOINTS}"].data
    content[len(content) // 2] ^= 1
    told = Told()
    store = started(disk, config, listener=told)
    assert told.sentences == [f"data/{END_CHECKPOINTS} is damaged: more is read in the logs."]
    assert not store.places.is_unopened("t", 0)
    assert everything(partition_of(store)) == expected
    store.close(NOW_MS)
    started(disk, config)
    assert started(disk, config).places.is_unopened("t", 0)


def test_a_topic_that_is_made_again_has_nothing_of_the_ends_before():
    disk, store, config = filled()
    store.close(NOW_MS)
    store = started(disk, config)
    store.delete("t", 0)
    store.create("t", 0, bytes(15) + b"!", config)
    assert end_checkpoint_of(disk) is None


def test_an_end_is_written_again_only_when_it_has_changed():
    disk, store, config = filled()
    store.close(NOW_MS)
    written = end_checkpoint_of(disk)
    store = started(disk, config)
    partition_of(store)
    before = disk.files[f"data/{END_CHECKPOINTS}"]
    finish(store.maintaining(LATER_MS))
    assert disk.files[f"data/{END_CHECKPOINTS}"] is before
    append(partition_of(store), 1)
    finish(store.maintaining(LATER_MS + CHECKPOINT_INTERVAL_MS))
    # Of what is not flushed there is no end, and the one before stays true.
    assert end_checkpoint_of(disk) == written
    partition_of(store).flush()
    finish(store.maintaining(LATER_MS + 2 * CHECKPOINT_INTERVAL_MS))
    assert end_checkpoint_of(disk).offset == written.offset + 1
    assert not end_checkpoint_of(disk).was_closed


def test_a_disk_that_does_not_answer_when_the_partition_is_asked_for_is_asked_again():
    disk, store, config = filled()
    expected = everything(partition_of(store))
    store.close(NOW_MS)
    started(disk, config)
    store = started(disk, config)
    disk.fail = lambda operation, path: errno.EIO if path == f"{SEGMENT}.log" else None
    with pytest.raises(KafkaError) as refused:
        store.get("t", 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.failing_disks.needs_attention
    disk.fail = lambda operation, path: None
    assert everything(partition_of(store)) == expected
