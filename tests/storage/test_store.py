"""The store: data directories, creation, deletion, checkpoints, laziness, flushing."""

import errno
import pathlib
from functools import partial

import pytest
import stores
from memory_disk import MemoryDisk, PowerLost
from stores import NOW_MS, offsets_of

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, MANY_TO_CLOSE, DirectoryInUse, LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.producer_state import decode_snapshot, encode_snapshot
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish

TOPIC_ID = bytes(range(16))


def open_store(disk, *directories: str, **kwargs) -> LogStore:
    return stores.open_store(disk, *directories, new_id=lambda: "0" * 32, **kwargs)


append = partial(stores.append, size_bytes=30)


def test_files_have_kafkas_names_and_formats(tmp_path):
    directory = tmp_path / "data"
    store = open_store(OsDisk(), str(directory))
    partition = store.create("orders", 0, TOPIC_ID, LogConfig(index_interval_bytes=150))
    partition.follow_leader_epoch(3)
    append(partition, producer_id=5, producer_epoch=1, base_sequence=0)
    append(partition, 3)
    store.close(NOW_MS)
    log = directory / "orders-0"
    # Their last lines end with blanks, which Kafka passes over.
    # Kafka reads two lines, and takes each byte behind the colon and blanks for a part of the value.
    lines = (log / "partition.metadata").read_text().split("\n")
    assert lines[:2] == ["version: 0", "topic_id: AAECAwQFBgcICQoLDA0ODw"]
    assert lines[2:] == [lines[-1]]
    assert not lines[-1].strip()
    assert (log / "leader-epoch-checkpoint").read_text().rstrip() == "0\n1\n3 0"
    assert (directory / "recovery-point-offset-checkpoint").read_text().rstrip() == "0\n1\norders 0 4"
    assert (directory / "replication-offset-checkpoint").read_text().rstrip() == "0\n1\norders 0 4"
    assert (directory / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (directory / ".kafka_cleanshutdown").exists()
    size = (log / "00000000000000000000.log").stat().st_size // 4
    assert (log / "00000000000000000000.index").read_bytes() == b"\0\0\0\x02" + (2 * size).to_bytes(4, "big")
    assert (log / "00000000000000000000.timeindex").read_bytes() == NOW_MS.to_bytes(8, "big") + bytes(4)
    (producer,) = decode_snapshot((log / "00000000000000000004.snapshot").read_bytes()).items()
    assert (producer[0], producer[1].producer_epoch, producer[1].last_sequence) == (5, 1, 0)


def test_kafkas_log_of_the_metadata_is_no_partition_and_stays():
    disk = MemoryDisk.of({"data/__cluster_metadata-0/00000000000000000000.log": b"of another program"})
    store = open_store(disk, "data")
    assert not store.places.by_key
    store.close(NOW_MS)
    assert disk.list("data/__cluster_metadata-0") == ["00000000000000000000.log"]


def test_a_directory_belongs_to_one_broker(tmp_path):
    directory = str(tmp_path / "data")
    first = open_store(OsDisk(), directory)
    with pytest.raises(DirectoryInUse, match="in use"):
        open_store(OsDisk(), directory)
    first.close(NOW_MS)
    open_store(OsDisk(), directory).close(NOW_MS)


def test_partitions_are_spread_over_the_directories():
    store = open_store(MemoryDisk(), "one", "two")
    for index in range(4):
        store.create("t", index, TOPIC_ID, LogConfig())
    assert sorted(directory for directory, *_ in store.places.sizes()) == ["one", "one", "two", "two"]


def test_creating_again_gives_what_is_there_unless_it_is_another_topics():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition)
    again = store.create("t", 0, TOPIC_ID, LogConfig(retention_ms=5))
    assert again is partition
    assert again.config.retention_ms == 5
    with pytest.raises(KafkaError) as refused:
        store.create("t", 0, bytes(reversed(TOPIC_ID)), LogConfig())
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_deleted_partition_is_out_of_sight_at_once_and_off_the_disk_later():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig(file_delete_delay_ms=1000))
    append(partition, 10)
    woken = []
    partition.watch(lambda: woken.append(True))
    waiting = partition.read(0, max_bytes=500).records
    store.delete("t", 0)
    assert woken
    assert store.get("t", 0) is None
    assert len(waiting.tobytes()) == len(waiting)
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    fresh = store.create("t", 0, bytes(16), LogConfig())
    assert fresh.log_end_offset == 0
    finish(store.maintaining(NOW_MS + 999))
    assert any("-delete/" in path for path in disk.files)
    finish(store.maintaining(NOW_MS + 1000))
    assert not any("-delete" in path for path in (*disk.files, *disk.directories))


def test_what_was_staged_when_the_partition_went_away_is_not_acknowledged():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v")]), now_ms=NOW_MS)
    store.delete("t", 0)
    with pytest.raises(KafkaError):
        partition.commit()


def test_a_segment_is_rolled_by_the_records_time_and_not_while_nothing_is_appended():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, LogConfig(segment_ms=1000))
    for timestamp in (NOW_MS - 9000, NOW_MS - 8000, NOW_MS - 7999, NOW_MS):
        append(partition, timestamp=timestamp)
    assert partition.log.bases == [0, 2, 3]
    finish(store.maintaining(NOW_MS + 100_000))
    assert partition.log.bases == [0, 2, 3]
    append(partition, timestamp=NOW_MS + 100_000)
    assert partition.log.bases == [0, 2, 3, 4]
    partition.set_config(LogConfig(segment_ms=10_000))
    append(partition, timestamp=NOW_MS + 101_001)
    assert partition.log.bases == [0, 2, 3, 4]
    compacted = frozenset({"compact"})
    partition.set_config(LogConfig(cleanup_policy=compacted, segment_ms=10_000, max_compaction_lag_ms=500))
    append(partition, timestamp=NOW_MS + 101_002)
    assert partition.log.bases == [0, 2, 3, 4, 6]


def test_jitter_spreads_the_rolling_of_partitions_and_makes_none_later():
    store = open_store(MemoryDisk())
    waited_ms = []
    for index in range(20):
        config = LogConfig(segment_ms=1000, segment_jitter_ms=800)
        partition = store.create("t", index, TOPIC_ID, config)
        while len(partition.log.bases) == 1:
            append(partition, timestamp=NOW_MS + 50 * partition.log_end_offset)
        waited_ms.append(50 * (partition.log_end_offset - 1))
    assert 200 < min(waited_ms) < 450
    assert 750 < max(waited_ms) <= 1050
    assert len(set(waited_ms)) > 7


def test_a_deletion_that_was_interrupted_is_finished_at_the_start():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, LogConfig()))
    store.delete("t", 0)
    disk.held.clear()
    store = open_store(disk)
    assert store.places.names() == []
    finish(store.maintaining(NOW_MS))
    assert not any("-delete" in path for path in disk.directories)


@pytest.mark.parametrize("name", ["old-delete", "t-0.old-delete", "t-0.old-future", f".{'0' * 32}-delete"])
def test_a_directory_that_only_sounds_as_if_it_were_to_go_stays(name):
    disk = MemoryDisk()
    disk.make_directory("data")
    disk.make_directory(f"data/{name}")
    disk.open(f"data/{name}/somebody's", create=True).close()
    store = open_store(disk)
    finish(store.maintaining(NOW_MS))
    store.close(NOW_MS)
    assert disk.exists(f"data/{name}/somebody's")


def test_a_stop_waits_for_no_directory_that_is_out_of_sight_and_the_next_start_removes_it():
    disk = MemoryDisk()
    store = open_store(disk)
    for index in range(3):
        append(store.create("t", index, TOPIC_ID, LogConfig(file_delete_delay_ms=1000)))
        store.delete("t", index)
    store.close(NOW_MS)
    assert sum(path.endswith("-delete") for path in disk.directories) == 3
    store = open_store(disk)
    assert store.places.names() == []
    store.create("t", 0, TOPIC_ID, LogConfig())
    finish(store.maintaining(NOW_MS))
    assert not any("-delete" in path for path in (*disk.files, *disk.directories))
    assert store.places.names() == [("t", 0)]


def test_a_clean_start_opens_no_partition_before_it_is_asked_for():
    disk = MemoryDisk()
    store = open_store(disk)
    for index in range(20):
        append(store.create("t", index, TOPIC_ID, LogConfig()))
    store.close(NOW_MS)
    opened = []
    disk.fail = lambda operation, path: opened.append(path) if ".log" in path else None
    store = open_store(disk)
    assert len(store.places.names()) == 20
    assert opened == []
    assert store.get("t", 7).log_end_offset == 1
    assert opened
    assert all("t-7/" in path for path in opened)


def test_after_a_kill_only_partitions_with_something_in_them_are_opened():
    disk = MemoryDisk()
    store = open_store(disk)
    for index in range(20):
        store.create("t", index, TOPIC_ID, LogConfig())
    append(store.get("t", 7), 3)
    disk.rename("data/t-9/00000000000000000000.log", "data/t-9/00000000000000000000.log.deleted")
    disk.held.clear()
    store = open_store(disk)
    assert sorted(partition.name for partition in store.places.loaded()) == ["t-7", "t-9"]
    assert store.get("t", 7).log_end_offset == 3
    assert store.get("t", 8).log_end_offset == 0
    assert store.get("t", 8).topic_id == TOPIC_ID
    append(store.get("t", 8))
    store.close(NOW_MS)
    assert open_store(disk).get("t", 8).log_end_offset == 1


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("is_clean", [False, True])
def test_the_first_flush_of_a_partition_makes_its_names_safe_however_often_it_was_opened_before(
    restarts, is_clean
):
    disk = MemoryDisk()
    store = open_store(disk)
    store.create("t", 0, TOPIC_ID, LogConfig())
    for _ in range(restarts):
        if is_clean:
            store.close(NOW_MS)
        disk.held.clear()
        store = open_store(disk)
    synced = []
    disk.fail = lambda operation, path: synced.append(path) if operation == "syncdir" else None
    partition = store.get("t", 0)
    append(partition)
    partition.flush()
    assert {"data", "data/t-0"} <= set(synced)
    del synced[:]
    append(partition)
    partition.flush()
    assert synced == []


def test_no_more_files_are_open_than_allowed():
    store = open_store(MemoryDisk(), open_files_max=5)
    partitions = [store.create("t", index, TOPIC_ID, LogConfig()) for index in range(20)]
    for _ in range(3):
        for partition in partitions:
            append(partition)
            assert len(store.pool) <= 5
    assert all(len(partition.read(0, max_bytes=10_000).records) for partition in partitions)


def test_every_index_snapshot_and_checkpoint_may_be_lost():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=1000, index_interval_bytes=100))
    append(partition, 40)
    append(partition, producer_id=1, producer_epoch=0, base_sequence=0)
    store.close(NOW_MS)
    for path in [path for path in disk.files if not path.endswith((".log", ".kafka_cleanshutdown"))]:
        disk.remove(path)
    partition = open_store(disk).create("t", 0, TOPIC_ID, LogConfig())
    assert partition.log_end_offset == 41
    assert len(partition.log.segments) > 3
    assert partition.log.producers.producers[1].last_sequence == 0
    assert finish(partition.search.finding_timestamp(NOW_MS)) == (NOW_MS, 0, 0)
    assert partition.read(20, max_bytes=1).records


def test_a_search_by_time_ends_at_a_record_over_the_limit_of_the_topic():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    values = [b"first", bytes(200), b"last"]
    records = [Record(n, NOW_MS + n, b"k", value) for n, value in enumerate(values)]
    partition.appends.append(build_batch(records, compression=Compression.GZIP), now_ms=NOW_MS)
    partition.commit()
    assert finish(partition.search.finding_max_timestamp()) == (NOW_MS + 2, 2, 0)
    partition.set_config(LogConfig(max_decompressed_message_bytes=100))
    assert finish(partition.search.finding_timestamp(NOW_MS)) == (NOW_MS, 0, 0)
    for search in (partition.search.finding_timestamp(NOW_MS + 2), partition.search.finding_max_timestamp()):
        with pytest.raises(KafkaError) as refused:
            finish(search)
        assert refused.value.code is ErrorCode.INVALID_RECORD


def test_clean_stops_leave_one_snapshot_beside_those_of_the_segments():
    disk = MemoryDisk()
    for _ in range(5):
        store = open_store(disk)
        partition = store.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=500))
        append(partition, 3)
        store.close(NOW_MS)
    names = [path.rpartition("/")[2] for path in disk.files if path.endswith(".snapshot")]
    offsets = sorted(int(name.removesuffix(".snapshot")) for name in names)
    assert offsets[-1] == 15
    assert len([offset for offset in offsets if offset not in partition.log.bases]) <= 2


NEEDED = {"00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"}


def test_of_many_logs_those_that_are_read_sooner_than_files_about_them_get_none():
    disk = MemoryDisk()
    store = open_store(disk)
    count = MANY_TO_CLOSE
    for index in range(count):
        partition = store.create("t", index, TOPIC_ID, LogConfig())
        append(partition, 2, timestamp=NOW_MS + index)
        append(partition, producer_id=7, producer_epoch=1, base_sequence=5)
    snapshot = encode_snapshot(partition.log.producers.producers)
    store.close(NOW_MS)
    assert {name for index in range(count) for name in disk.list(f"data/t-{index}")} == NEEDED
    # Nor after a kill, where that is still so.
    open_store(disk)
    store = open_store(MemoryDisk.of({path: bytes(one.data) for path, one in disk.files.items()}))
    assert not store.opening.was_clean
    for index in range(count):
        partition = store.get("t", index)
        assert offsets_of(partition) == [0, 1, 2]
        assert partition.log.durability.recovery_point == 3
        assert encode_snapshot(partition.log.producers.producers) == snapshot
        assert finish(partition.search.finding_timestamp(NOW_MS + index)) == (NOW_MS + index, 0, 0)
        assert set(store.disk.list(partition.directory)) == NEEDED


@pytest.mark.parametrize(
    ("others", "count", "policy"),
    [(MANY_TO_CLOSE, 60, "delete"), (MANY_TO_CLOSE, 1, "compact"), (MANY_TO_CLOSE - 2, 1, "delete")],
)
def test_a_longer_log_one_that_may_miss_batches_of_its_producers_and_one_of_a_few_get_them(
    others, count, policy
):
    disk = MemoryDisk()
    store = open_store(disk)
    for index in range(others):
        append(store.create("t", index, TOPIC_ID, LogConfig()))
    partition = store.create("long", 0, TOPIC_ID, LogConfig(cleanup_policy=frozenset({policy})))
    append(partition, count - 1)
    append(partition, producer_id=7, producer_epoch=1, base_sequence=5)
    store.close(NOW_MS)
    snapshot = f"{partition.log_end_offset:020}.snapshot"
    assert set(disk.list("data/long-0")) == NEEDED | {f"{0:020}.index", f"{0:020}.timeindex", snapshot}


def test_indexes_that_are_there_are_brought_up_to_date_however_short_the_log():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, LogConfig(index_interval_bytes=1)))
    store.close(NOW_MS)
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, LogConfig()), timestamp=NOW_MS + 1000)
    store.close(NOW_MS)
    partition = open_store(disk).get("t", 0)
    assert finish(partition.search.finding_timestamp(NOW_MS + 1)) == (NOW_MS + 1000, 1, 0)
    assert disk.exists(f"data/t-0/{2:020}.snapshot")


def test_a_damaged_end_of_a_log_without_a_snapshot_is_not_cut_after_a_clean_stop():
    disk = MemoryDisk()
    store = open_store(disk)
    for index in range(MANY_TO_CLOSE):
        append(store.create("t", index, TOPIC_ID, LogConfig()), 3)
    store.close(NOW_MS)
    assert set(disk.list("data/t-0")) == NEEDED
    path = f"data/t-0/{0:020}.log"
    size_bytes = disk.size(path)
    # The length of the last of three batches that are alike.
    disk.files[path].data[size_bytes // 3 * 2 + 11] ^= 0x40
    partition = open_store(disk).get("t", 0)
    assert (partition.log_end_offset, disk.size(path)) == (3, size_bytes)
    append(partition)
    assert offsets_of(partition, 3) == [3]
    with pytest.raises(KafkaError):
        partition.read(2, max_bytes=1000)


def test_only_flush_messages_makes_an_append_wait_for_the_disk():
    store = open_store(MemoryDisk())
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")])
    lazy = store.create("lazy", 0, TOPIC_ID, LogConfig())
    assert not lazy.appends.append(batch, now_ms=NOW_MS).must_flush
    strict = store.create("strict", 0, TOPIC_ID, LogConfig(flush_messages=1))
    assert strict.appends.append(batch, now_ms=NOW_MS).must_flush
    third = store.create("third", 0, TOPIC_ID, LogConfig(flush_messages=3))
    assert [third.appends.append(batch, now_ms=NOW_MS).must_flush for _ in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    third.commit()
    third.flush()
    assert not third.appends.append(batch, now_ms=NOW_MS).must_flush


def test_a_failed_flush_takes_the_partition_offline():
    disk = MemoryDisk()
    partition = open_store(disk).create("t", 0, TOPIC_ID, LogConfig())
    append(partition)
    disk.fail = lambda operation, path: 5 if operation == "sync" else None
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            partition.flush()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for refuses in (
        lambda: append(partition),
        lambda: partition.read(0, max_bytes=1000),
        lambda: partition.retention.delete_records(0),
        lambda: finish(partition.search.finding_timestamp(0)),
        lambda: finish(partition.search.finding_max_timestamp()),
        partition.search.segments_written,
    ):
        with pytest.raises(KafkaError) as refused:
            refuses()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_sealed_segments_and_late_records_are_due_for_a_flush():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, LogConfig(flush_ms=1000))
    assert store.flush_due(NOW_MS) == []
    append(partition)
    assert store.flush_due(NOW_MS) == []
    assert store.flush_due(NOW_MS + 1000) == [partition]
    partition.flush()
    assert store.flush_due(NOW_MS + 2000) == []
    append(partition)
    partition.log.roll(NOW_MS)
    assert store.flush_due(NOW_MS + 2000) == [partition]


@pytest.mark.parametrize("flush_ms", [1000, 1500, 5000])
@pytest.mark.parametrize("appended_ms", [1, 500, 999])
def test_no_record_is_unflushed_for_longer_than_flush_ms_though_looks_are_a_second_apart(
    flush_ms, appended_ms
):
    store = open_store(MemoryDisk())
    store.flush_due(NOW_MS)
    partition = store.create("t", 0, TOPIC_ID, LogConfig(flush_ms=flush_ms))
    for _ in range(3):
        appended_at_ms = NOW_MS + appended_ms
        append(partition)
        look_ms = NOW_MS
        while partition not in store.flush_due(look_ms := look_ms + 1000):
            assert look_ms < appended_at_ms + flush_ms
        assert look_ms - appended_at_ms <= flush_ms
        assert look_ms - appended_at_ms > flush_ms - 2000, "and not at every look"
        partition.flush()
        assert store.flush_due(NOW_MS + 100_000) == []
        store.flush_due(NOW_MS)


def test_delete_records_moves_the_start_and_survives_the_next_checkpoint():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 5)
    assert partition.retention.delete_records(3) == 3
    assert partition.retention.delete_records(1) == 3
    with pytest.raises(KafkaError) as refused:
        partition.retention.delete_records(6)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    finish(store.maintaining(NOW_MS + CHECKPOINT_INTERVAL_MS))
    disk.held.clear()
    partition = open_store(disk).get("t", 0)
    assert (partition.log_start_offset, partition.log_end_offset) == (3, 5)
    assert partition.retention.delete_records(-1) == 5
    compacted = store.create("c", 0, TOPIC_ID, LogConfig(cleanup_policy=frozenset({"compact"})))
    with pytest.raises(KafkaError) as refused:
        compacted.retention.delete_records(0)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_a_view_of_a_mapped_segment_outlives_everything(tmp_path):
    store = open_store(OsDisk(), str(tmp_path / "data"), open_files_max=1)
    partition = store.create("t", 0, TOPIC_ID, LogConfig(file_delete_delay_ms=0))
    batch = build_batch([Record(0, NOW_MS, b"k", b"v" * 100_000)])
    partition.appends.append(batch, now_ms=NOW_MS)
    partition.commit()
    (view,) = partition.read(0, max_bytes=1).records.buffers()
    append(store.create("t", 1, TOPIC_ID, LogConfig()))
    partition.retention.delete_records(-1)
    partition.log.roll(NOW_MS)
    finish(store.maintaining(NOW_MS))
    store.delete("t", 0)
    finish(store.maintaining(NOW_MS))
    store.close(NOW_MS)
    assert not list(pathlib.Path(tmp_path / "data").glob("t-0*"))
    assert bytes(view[12 + 4 :]) == bytes(batch[16:])


def test_the_latest_timestamp_is_found_with_the_offset_of_its_record():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=300))
    assert finish(partition.search.finding_max_timestamp()) is None
    for timestamp in (5, 9, 7, 9, 3):
        records = [Record(0, timestamp - 1, b"k", b"v" * 50), Record(1, timestamp, b"k", b"v" * 50)]
        partition.appends.append(build_batch(records), now_ms=NOW_MS)
    partition.commit()
    assert finish(partition.search.finding_max_timestamp()) == (9, 3, 0)
    assert finish(partition.search.finding_timestamp(10)) is None


def filled(disk, count: int, **options) -> LogStore:
    store = open_store(disk, "one", "two", **options)
    for index in range(count):
        partition = store.create("t", index, TOPIC_ID, LogConfig())
        partition.follow_leader_epoch(2)
        append(partition, producer_id=index, producer_epoch=0, base_sequence=0)
    return store


@pytest.mark.parametrize("fails", [False, True])
def test_many_partitions_are_closed_by_one_sync_of_the_file_system_or_one_by_one(fails):
    disk = MemoryDisk()
    asked = []

    def look(operation, path):
        asked.append(operation)
        return errno.EIO if fails and operation == "syncfs" else None

    store = filled(disk, MANY_TO_CLOSE)
    disk.fail = look
    store.close(NOW_MS)
    assert asked.count("syncfs") == (1 if fails else 2)
    assert (asked.count("sync") > MANY_TO_CLOSE) == fails
    for seed in range(5):
        again = open_store(disk.lose_power(seed), "one", "two")
        assert again.opening.was_clean
        for index in range(MANY_TO_CLOSE):
            partition = again.get("t", index)
            assert (partition.log_end_offset, partition.log.leader_epochs.latest) == (1, 2)
            assert list(partition.log.producers.producers) == [index]


def test_no_more_is_synced_where_their_files_had_to_be_closed_meanwhile():
    """The indexes of a closed file are dropped before there is anything in them, and are made anew."""
    disk = MemoryDisk()
    asked = []
    store = filled(disk, MANY_TO_CLOSE, open_files_max=2)
    disk.fail = lambda operation, path: asked.append(operation)
    store.close(NOW_MS)
    assert asked.count("syncfs") == 2
    assert asked.count("sync") < MANY_TO_CLOSE


def test_power_that_goes_while_many_are_closed_costs_nothing_that_was_flushed():
    def at(operation: int) -> MemoryDisk:
        disk = MemoryDisk()
        store = filled(disk, MANY_TO_CLOSE)
        for partition in store.places.loaded():
            partition.flush()
            append(partition)
        disk.lose_power_at = disk.operations + operation
        try:
            store.close(NOW_MS)
        except PowerLost:
            return disk
        disk.lose_power_at = None
        return disk

    end = 8 * MANY_TO_CLOSE
    for operation in range(1, end, 61):
        disk = at(operation)
        again = open_store(disk.lose_power(operation), "one", "two")
        for index in range(MANY_TO_CLOSE):
            assert again.get("t", index).log_end_offset >= 1
