"""Compaction: what stays, what goes, when, and that a crash in the middle of it changes nothing for
readers.
"""

import errno
import itertools
from dataclasses import replace

import pytest
import stores
from memory_disk import MemoryDisk, PowerLost
from stores import NOW_MS

from odradek.storage.compaction._cleaning import SLOT_BYTES
from odradek.storage.compaction.cleaner import CleanerSettings, Cleaning
from odradek.storage.compaction.plan import CleanableSegment, plan_cleaning
from odradek.storage.compaction.run import CleanedGroup, cleaning_round
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.log.partition import Partition
from odradek.wire.compression import Compression
from odradek.wire.errors import KafkaError
from odradek.wire.records import BatchHeader, Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish
from tests.kit import compressed_forms
from tests.kit.collecting import collected

DAY_MS = 86_400_000
COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=600,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.01,
)


def open_store(disk: MemoryDisk) -> LogStore:
    return stores.open_store(disk, config_for=lambda topic: COMPACTED, new_id=lambda: "0" * 32)


@pytest.fixture
def store():
    return open_store(MemoryDisk())


@pytest.fixture
def partition(store):
    return store.create("t", 0, bytes(16), COMPACTED)


def append(partition: Partition, *pairs: tuple[bytes, bytes | None], **kwargs) -> None:
    records = [Record(place, NOW_MS + place, key, value) for place, (key, value) in enumerate(pairs)]
    partition.appends.append(build_batch(records, **kwargs), now_ms=NOW_MS)
    partition.commit()


def seal(partition: Partition) -> None:
    """Let what is there be compacted."""
    partition.log.roll(NOW_MS)
    partition.flush()


def clean(store: LogStore, now_ms: int = NOW_MS) -> None:
    while store.compact(now_ms, budget_bytes=100):
        pass


def batches_of(partition: Partition) -> list[tuple[BatchHeader, list[Record]]]:
    found = []
    offset = partition.log_start_offset
    while offset < partition.log_end_offset:
        data = memoryview(partition.read(offset, max_bytes=300).records.tobytes())
        if not data:
            break
        for position, header in iter_whole_batches(data):
            found.append((header, list(iter_records(data[position:]))))
            offset = header.last_offset + 1
    return found


def records_of(partition: Partition) -> list[tuple[int, bytes, bytes | None]]:
    return [(one.offset, one.key, one.value) for _, records in batches_of(partition) for one in records]


def test_of_every_key_the_latest_record_stays_at_its_offset(store, partition):
    for number in range(60):
        append(partition, (b"key%d" % (number % 7), b"value %d" % number))
    seal(partition)
    clean(store)
    assert records_of(partition) == [
        (number, b"key%d" % (number % 7), b"value %d" % number) for number in range(53, 60)
    ]
    assert partition.log_end_offset == 60


def test_the_active_segment_is_left_alone(store, partition):
    for number in range(5):
        append(partition, (b"key", b"%d" % number))
    clean(store)
    assert len(records_of(partition)) == 5


def test_a_batch_that_keeps_its_records_is_copied_as_the_same_bytes(store, partition):
    append(partition, (b"a", b"1"), (b"b", b"2"), compression=Compression.LZ4)
    before = partition.read(0, max_bytes=1000).records.tobytes()
    append(partition, (b"c", b"old"))
    append(partition, (b"c", b"new"))
    seal(partition)
    clean(store)
    assert partition.read(0, max_bytes=len(before)).records.tobytes() == before
    assert [key for _, key, _ in records_of(partition)] == [b"a", b"b", b"c"]


def test_a_batch_that_loses_records_keeps_its_offsets_and_compression(store, partition):
    append(partition, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), compression=Compression.ZSTD)
    append(partition, (b"c", b"4"), (b"a", b"5"))
    seal(partition)
    clean(store)
    (first, _), (second, _) = batches_of(partition)
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
    assert first.compression == Compression.ZSTD
    assert (second.base_offset, second.last_offset) == (3, 4)


def test_a_tombstone_goes_after_delete_retention_and_not_before(store, partition):
    append(partition, (b"a", b"1"))
    append(partition, (b"a", None))
    append(partition, (b"b", b"2"))
    seal(partition)
    clean(store)
    assert records_of(partition) == [(1, b"a", None), (2, b"b", b"2")]
    assert batches_of(partition)[0][0].delete_horizon_ms == NOW_MS + DAY_MS

    append(partition, (b"c", b"3"))
    seal(partition)
    clean(store, NOW_MS + DAY_MS - 1)
    assert (1, b"a", None) in records_of(partition)
    append(partition, (b"d", b"3"))
    seal(partition)
    clean(store, NOW_MS + DAY_MS)
    assert [offset for offset, _, _ in records_of(partition)] == [2, 3, 4]


def test_the_last_batch_of_a_producer_stays_without_its_records(store, partition):
    append(partition, (b"a", b"1"), producer_id=9, producer_epoch=2, base_sequence=0)
    append(partition, (b"a", b"2"), producer_id=9, producer_epoch=2, base_sequence=1)
    append(partition, (b"a", b"3"))
    append(partition, (b"b", b"4"))
    seal(partition)
    clean(store)
    headers = [header for header, _ in batches_of(partition)]
    assert [(one.base_offset, one.record_count) for one in headers] == [(1, 0), (2, 1), (3, 1)]
    assert (headers[0].producer_id, headers[0].producer_epoch, headers[0].last_sequence) == (9, 2, 1)
    store.close(NOW_MS)
    for name in [name for name in store.disk.files if name.endswith(".snapshot")]:
        store.disk.remove(name)
    again = open_store(store.disk).get("t", 0)
    assert again.log.producers.producers[9].last_sequence == 1


def run(store: LogStore, begun: Cleaning, now_ms: int = NOW_MS) -> bool:
    """A whole round, as a driver does it; whether it came to its end."""
    work = cleaning_round(store.disk, begun.job, bytes(16))
    while True:
        try:
            event = next(work)
        except StopIteration as end:
            finish(store.cleaner.finish(begun, end.value.first_dirty))
            return True
        except OSError:
            finish(store.cleaner.abandon(begun))
            return False
        if isinstance(event, CleanedGroup) and not finish(store.cleaner.swap(begun, event, now_ms)):
            work.close()
            finish(store.cleaner.abandon(begun))
            return False


def next_round(store: LogStore, now_ms: int = NOW_MS, **settings) -> Cleaning | None:
    return finish(store.cleaner.next_round(now_ms, CleanerSettings(**settings)))


def test_a_key_too_many_for_the_map_is_left_to_the_next_round(store, partition):
    for round_number in range(2):
        for number in range(20):
            append(partition, (b"key%d" % number, b"%d" % round_number))
    seal(partition)
    first_dirty = 0
    rounds = 0
    while (begun := next_round(store, memory_bytes=8 * SLOT_BYTES)) is not None:
        assert run(store, begun)
        assert store.checkpointing.first_dirty_of(partition) == first_dirty + 7
        first_dirty += 7
        rounds += 1
        if first_dirty + 7 > 40:
            break
    assert rounds == 5
    clean(store)
    assert records_of(partition) == [(20 + number, b"key%d" % number, b"1") for number in range(20)]


def finish_with(work, at_pause):
    """As `finish`; `at_pause(number)` is called while the work waits."""
    result = None
    for number in itertools.count():
        try:
            step = work.send(result)
        except StopIteration as end:
            return end.value
        at_pause(number)
        result = None if step is None else step()


@pytest.mark.parametrize("pause", range(4))
def test_a_topic_that_is_deleted_in_a_pause_of_the_look_for_logs_disturbs_no_other(store, pause):
    partitions = [store.create(f"t{number}", 0, bytes(16), COMPACTED) for number in range(4)]
    for partition in partitions:
        append(partition, (b"key", b"old"))
        append(partition, (b"key", b"new"))
        seal(partition)
    left = partitions[0] if pause else partitions[1]
    deleted = []

    def delete(number):
        if number == pause:
            deleted.extend(one for one in partitions if one is not left)
            for partition in deleted:
                store.delete(partition.topic, 0)

    begun = finish_with(store.cleaner.next_round(NOW_MS, CleanerSettings()), delete)
    assert deleted
    assert begun is None or begun.partition is left


def test_long_keys_are_told_apart(store, partition):
    keys = [b"k" * length for length in (15, 16, 17, 500)]
    for key in keys:
        append(partition, (key, b"old"))
        append(partition, (key, b"new"))
    seal(partition)
    clean(store)
    assert records_of(partition) == [(2 * place + 1, key, b"new") for place, key in enumerate(keys)]


def test_a_read_that_began_before_the_cleaning_goes_on_after_it(store, partition):
    for number in range(10):
        append(partition, (b"key", b"%d" % number))
    seal(partition)
    waiting = partition.read(0, max_bytes=200).records
    size = len(waiting)
    clean(store)
    assert len(waiting.tobytes()) == size


def planned(segments, timestamps, first_dirty: int, *, log_start: int = 0, stable: int = 30, **settings):
    plan = plan_cleaning(
        segments,
        LogConfig(**settings),
        first_dirty=first_dirty,
        log_start_offset=log_start,
        last_stable_offset=stable,
        now_ms=NOW_MS,
        latest_timestamp_of=timestamps.__getitem__,
        first_timestamp_of=lambda place: timestamps[place] - 500,
    )
    return plan and (plan.first_dirty, plan.end_offset)


SEGMENTS = [CleanableSegment(0, 10, 900), CleanableSegment(10, 20, 100), CleanableSegment(20, 30, 100)]
TIMESTAMPS = [NOW_MS - 5000, NOW_MS - 4000, NOW_MS]


def test_what_is_too_young_or_clean_enough_is_not_due():
    assert planned(SEGMENTS, TIMESTAMPS, 0) == (0, 30)
    assert planned(SEGMENTS, TIMESTAMPS, 10) is None
    assert planned(SEGMENTS, TIMESTAMPS, 10, min_cleanable_dirty_ratio=0.1) == (10, 30)
    # More than the ratio, not as much: with 1 nothing is ever due by it.
    assert planned(SEGMENTS, TIMESTAMPS, 0, min_cleanable_dirty_ratio=1.0) is None
    assert planned(SEGMENTS, TIMESTAMPS, 30, min_cleanable_dirty_ratio=0.0) is None
    lag = {"min_cleanable_dirty_ratio": 0.05, "min_compaction_lag_ms": 1000}
    assert planned(SEGMENTS, TIMESTAMPS, 10, **lag) == (10, 20)
    assert planned(SEGMENTS, TIMESTAMPS, 20, **lag) is None


def test_what_has_waited_too_long_is_due_by_when_its_oldest_segment_began():
    assert planned(SEGMENTS, TIMESTAMPS, 10, max_compaction_lag_ms=4501) is None
    assert planned(SEGMENTS, TIMESTAMPS, 10, max_compaction_lag_ms=4499) == (10, 30)
    assert planned(SEGMENTS, TIMESTAMPS, 30, max_compaction_lag_ms=1) is None
    # A first record without a timestamp says nothing.
    assert planned(SEGMENTS, [0, 0, 0], 10, max_compaction_lag_ms=1) is None


def test_what_transactions_have_not_decided_is_left_alone():
    assert planned(SEGMENTS, TIMESTAMPS, 0, stable=29) == (0, 20)
    assert planned(SEGMENTS, TIMESTAMPS, 0, stable=20) == (0, 20)
    assert planned(SEGMENTS, TIMESTAMPS, 0, stable=9) is None


def test_a_checkpoint_outside_the_log_counts_as_the_logs_start():
    assert planned(SEGMENTS[1:], TIMESTAMPS[1:], 3, log_start=15) == (15, 30)
    assert planned(SEGMENTS, TIMESTAMPS, 31) == (0, 30)


def test_an_active_segment_is_rolled_before_its_records_have_waited_too_long():
    config = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000)
    assert config.roll_ms == 1000
    assert LogConfig(max_compaction_lag_ms=1000).roll_ms == LogConfig().segment_ms


def test_the_dirtiest_log_goes_first(store):
    partitions = {name: store.create(name, 0, bytes(16), COMPACTED) for name in "abc"}
    for name, old in (("a", 6), ("b", 1), ("c", 3)):
        for number in range(old):
            append(partitions[name], (b"key%d" % number, b"value"))
        seal(partitions[name])
    clean(store)
    for partition in partitions.values():
        append(partition, (b"key", b"value"))
        seal(partition)
    names = []
    while (begun := next_round(store)) is not None:
        names.append(begun.partition.topic)
        assert run(store, begun)
    assert names == ["b", "c", "a"]


def test_a_partition_has_one_round_at_a_time(store, partition):
    append(partition, (b"key", b"1"))
    seal(partition)
    begun = next_round(store)
    assert begun is not None
    assert next_round(store) is None
    finish(store.cleaner.abandon(begun))
    assert next_round(store) is not None


def test_a_round_comes_to_nothing_when_the_log_has_lost_a_segment_meanwhile(store):
    config = LogConfig(
        cleanup_policy=frozenset({"compact", "delete"}), segment_bytes=600, min_cleanable_dirty_ratio=0.01
    )
    partition = store.create("t", 0, bytes(16), config)
    for number in range(30):
        append(partition, (b"key", b"%d" % number))
    seal(partition)
    begun = next_round(store)
    partition.retention.delete_records(partition.log.segments[1].base_offset)
    finish(store.maintaining(NOW_MS))
    assert not run(store, begun)
    assert not store.cleaner.judge(begun, "it was there")
    assert store.checkpointing.first_dirty_of(partition) == 0
    assert not [name for name in store.disk.files if name.endswith((".cleaned", ".swap"))]
    clean(store)
    assert [value for _, _, value in records_of(partition)] == [b"29"]


@pytest.mark.parametrize(
    ("code", "is_left_alone"),
    [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EFBIG, False), (errno.EIO, True)],
)
def test_a_log_that_there_was_no_room_to_compact_is_compacted_later(store, partition, code, is_left_alone):
    append(partition, (b"key", b"1"))
    append(partition, (b"key", b"2"))
    seal(partition)
    begun = next_round(store)
    assert store.cleaner.judge(begun, "it did not work", code) is is_left_alone
    finish(store.cleaner.abandon(begun))
    assert (next_round(store) is None) is is_left_alone


def test_a_round_of_a_deleted_topic_touches_nothing_of_a_new_one_of_its_name(store, partition):
    for number in range(30):
        append(partition, (b"key", b"%d" % number))
    seal(partition)
    begun = next_round(store)
    work = cleaning_round(store.disk, begun.job, bytes(16))
    while not isinstance(event := next(work), CleanedGroup):
        pass
    swapping = store.cleaner.swap(begun, event, NOW_MS)
    # In the middle of putting it in place.
    sync = next(swapping)
    store.delete("t", 0)
    again = store.create("t", 0, bytes(15) + b"1", COMPACTED)
    append(again, (b"new", b"1"))
    before = {name: bytes(one.data) for name, one in store.disk.files.items() if name.startswith("data/t-0/")}
    sync()
    assert finish(swapping) is False
    work.close()
    finish(store.cleaner.abandon(begun))
    after = {name: bytes(one.data) for name, one in store.disk.files.items() if name.startswith("data/t-0/")}
    assert after == before
    finish(store.maintaining(NOW_MS + DAY_MS))
    assert records_of(again) == [(0, b"new", b"1")]


def a_group_that_waits(store: LogStore, partition: Partition) -> tuple[Cleaning, CleanedGroup]:
    """Of a round over a log that has a record that was not flushed."""
    for number in range(30):
        append(partition, (b"key", b"%d" % number))
    seal(partition)
    begun = next_round(store)
    assert begun is not None
    work = cleaning_round(store.disk, begun.job, bytes(16))
    while not isinstance(event := next(work), CleanedGroup):
        pass
    append(partition, (b"key", b"30"))
    return begun, event


def read_anew_after_a_failed_flush(store: LogStore, partition: Partition) -> None:
    failing = iter([errno.EIO])
    store.disk.fail = lambda operation, path: next(failing, None) if operation == "sync" else None
    with pytest.raises(KafkaError):
        partition.flush()
    finish(store.failing_disks.attending(NOW_MS))
    assert partition.is_available


def test_what_was_cleaned_of_a_log_that_is_read_anew_replaces_nothing(store, partition):
    begun, group = a_group_that_waits(store, partition)
    read_anew_after_a_failed_flush(store, partition)
    assert finish(store.cleaner.swap(begun, group, NOW_MS)) is False
    finish(store.cleaner.abandon(begun))
    assert records_of(partition) == [(number, b"key", b"%d" % number) for number in range(31)]
    store.close(NOW_MS)
    again = open_store(store.disk)
    assert records_of(again.get("t", 0)) == [(number, b"key", b"%d" % number) for number in range(31)]
    clean(again)
    assert records_of(again.get("t", 0)) == [(29, b"key", b"29"), (30, b"key", b"30")]


def test_a_round_whose_files_went_when_the_log_was_read_anew_is_put_off(store, partition):
    begun, _ = a_group_that_waits(store, partition)
    read_anew_after_a_failed_flush(store, partition)
    finish(store.cleaner.abandon(begun))
    assert not store.cleaner.judge(begun, "a file is gone", errno.ENOENT)
    assert store.cleaner.uncleanable() == {}
    clean(store)
    assert records_of(partition)[0] == (29, b"key", b"29")


def test_a_round_over_a_partition_that_is_offline_is_put_off(store, partition):
    begun, _ = a_group_that_waits(store, partition)
    partition.availability.take_offline("its disk fails")
    finish(store.cleaner.abandon(begun))
    assert not store.cleaner.judge(begun, "a file is gone", errno.ENOENT)
    assert store.cleaner.uncleanable() == {}


def test_cleaned_files_that_somebody_has_removed_replace_nothing(store, partition):
    begun, group = a_group_that_waits(store, partition)
    begun.remove_files()
    assert finish(store.cleaner.swap(begun, group, NOW_MS)) is False
    assert partition.is_available
    assert records_of(partition) == [(number, b"key", b"%d" % number) for number in range(31)]


def test_two_compactions_in_a_row_keep_what_readers_of_each_have(store, partition):
    readers = []
    for number in range(2):
        for place in range(20):
            append(partition, (b"key%d" % place, b"%d" % number))
        seal(partition)
        readers.append(partition.read(0, max_bytes=200).records)
        # An answer under way of which nothing has been read; the pool has given the file up.
        partition.log.segments[0].file.close()
        clean(store, NOW_MS + number * 20_000)
        finish(store.maintaining(NOW_MS + number * 20_000))
    finish(store.maintaining(NOW_MS + 60_001))
    assert f"data/t-0/{0:020d}.log.deleted" not in store.disk.files
    assert len(readers[1].tobytes()) == 200
    finish(store.maintaining(NOW_MS + 80_001))
    assert not [name for name in store.disk.files if name.endswith(".deleted")]


def test_a_damaged_log_is_left_alone_and_named_and_the_others_go_on(store, partition):
    other = store.create("u", 0, bytes(16), COMPACTED)
    for one in (partition, other):
        for number in range(20):
            append(one, (b"key", b"%d" % number))
        seal(one)
    told: list[tuple[str, str]] = []
    store.cleaner.on_uncleanable = lambda name, reason: told.append((name, reason))
    file = store.disk.open(partition.log.segments[0].paths.path(".log"))
    file.write(70, [b"\xff"])
    clean(store)
    clean(store)
    assert list(store.cleaner.uncleanable()) == [("t", 0)]
    assert told == [("t-0", store.cleaner.uncleanable()["t", 0])]
    assert "00000000000000000000.log" in told[0][1]
    assert records_of(other) == [(19, b"key", b"19")]
    assert partition.is_available
    store.delete("t", 0)
    assert store.cleaner.uncleanable() == {}


def test_a_full_disk_puts_a_round_off_but_does_not_end_compaction(store, partition):
    for number in range(20):
        append(partition, (b"key%d" % number, b"1"))
    seal(partition)
    store.disk.room_bytes = sum(len(one.data) for one in store.disk.files.values()) + 100
    clean(store)
    assert store.cleaner.uncleanable() == {}
    assert not [name for name in store.disk.files if name.endswith(".cleaned")]
    store.disk.room_bytes = None
    clean(store)
    assert store.checkpointing.first_dirty_of(partition) == 20


def test_a_swap_that_the_disk_refuses_takes_the_partition_offline(store, partition):
    for number in range(20):
        append(partition, (b"key", b"%d" % number))
    seal(partition)
    store.disk.fail = lambda operation, path: 5 if operation == "rename" and "deleted" in path else None
    clean(store)
    assert not partition.is_available
    with pytest.raises(KafkaError):
        append(partition, (b"key", b"1"))
    store.disk.fail = lambda operation, path: None
    store.close(NOW_MS)
    again = open_store(store.disk).get("t", 0)
    assert records_of(again)[-1] == (19, b"key", b"19")


def history(disk: MemoryDisk, sent: list[tuple[bytes, bytes | None]], flushed: list[int]) -> LogStore:
    """Compact three times over, with a flush before each."""
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), COMPACTED)
    for number in range(60):
        pair = (b"key%d" % (number * number % 7), None if number % 11 == 3 else b"value %d" % number)
        sent.append(pair)
        append(partition, pair)
        if number % 20 == 19:
            partition.flush()
            flushed[0] = partition.log_end_offset
            clean(store, NOW_MS)
            finish(store.maintaining(NOW_MS + number * 60_000))
    return store


@pytest.mark.deep
def test_a_power_loss_at_every_operation_of_compaction_leaves_every_key_its_latest_value():
    disk = MemoryDisk()
    history(disk, [], [0])
    for operation in range(1, disk.operations + 1):
        sent: list[tuple[bytes, bytes | None]] = []
        flushed = [0]
        disk = MemoryDisk()
        disk.lose_power_at = operation
        with pytest.raises(PowerLost):
            history(disk, sent, flushed)
        store = open_store(disk.lose_power(operation))
        partition = store.get("t", 0)
        if partition is None:
            assert flushed[0] == 0
            continue
        end_offset = partition.log_end_offset
        assert end_offset >= flushed[0]
        found = records_of(partition)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        assert all(sent[offset] == (key, value) for offset, key, value in found)
        assert {key: value for _, key, value in found} == dict(sent[:end_offset])


def test_the_cleaner_leaves_to_others_what_is_not_flushed_yet():
    """Its own flush would block its thread, and two flushes at once write leader-epoch-checkpoint at once."""
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), COMPACTED)
    for _ in range(40):
        append(partition, (b"key", b"value"))
    during: list[bool] = []

    def meanwhile(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith("leader-epoch-checkpoint.tmp"):
            # A worker is in the middle of its flush.
            disk.fail = lambda operation, path: during.append(False) if operation == "sync" else None
            during.append(store.compact(NOW_MS))

    disk.fail = meanwhile
    partition.flush()
    disk.fail = lambda operation, path: None
    assert during[0] is False, "the cleaner began before the flush had ended"
    assert partition.is_available
    clean(store)
    assert len(records_of(partition)) < 40


def test_compressed_data_of_each_form_are_compacted():
    """The cleaner can read all that a broker takes."""
    store, batches = open_store(MemoryDisk()), compressed_forms.readable_batches()
    for number, (_, batch) in enumerate(batches):
        partition = store.create("t", number, bytes(16), replace(COMPACTED, segment_bytes=10_000))
        partition.appends.append(bytearray(batch), now_ms=NOW_MS)
        append(partition, (b"k0", b"new"), (b"k2", None))
        seal(partition)
    clean(store)
    first = compressed_forms.RECORDS
    expected = [(n, first[n].key, first[n].value) for n in (1, 3, 4)] + [(5, b"k0", b"new"), (6, b"k2", None)]
    with collected() as failures:
        for number, (name, _) in enumerate(batches):
            with failures.of(name):
                assert records_of(store.get("t", number)) == expected
