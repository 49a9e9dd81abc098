"""A high watermark that stands before the log end: who reads up to where, and what may leave the log."""

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.log.partition import READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import NOW_MS, append, offsets_of, open_store
from tests.storage.transacting import Producer

TOPIC_ID = b"1" * 16
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)
COUNTS = [1, 3, 2, 1, 1, 4, 2, 3, 1, 2, 2, 1]
ENDS = [sum(COUNTS[:place]) for place in range(len(COUNTS) + 1)]


def begun(config=SMALL, disk=None):
    disk = MemoryDisk() if disk is None else disk
    store = open_store(disk, config_for=lambda topic: config, replicated_for=lambda topic, index: True)
    return disk, store, store.create("t", 0, TOPIC_ID, config)


def filled(partition):
    for count in COUNTS:
        records = [
            Record(place, NOW_MS + partition.log.next_offset + place, b"k", b"v" * 30)
            for place in range(count)
        ]
        partition.appends.append(build_batch(records), now_ms=NOW_MS)
        partition.commit()


def read_from(partition, offset, isolation, max_bytes):
    """The offsets that a reader gets who goes on until there is no more."""
    found = []
    while True:
        data = partition.read(offset, max_bytes=max_bytes, isolation=isolation).records.tobytes()
        if not data:
            return found
        for position, header in iter_whole_batches(data):
            found += [one.offset for one in iter_records(memoryview(data)[position:]) if one.offset >= offset]
            offset = header.last_offset + 1


@pytest.mark.parametrize("max_bytes", [1, 200, 100_000])
@pytest.mark.parametrize("is_inherited", [False, True])
def test_each_reader_gets_all_up_to_its_end_and_nothing_after_it_whatever_segment_that_is_in(
    max_bytes, is_inherited
):
    disk, store, partition = begun()
    filled(partition)
    assert set(partition.log.bases) & set(ENDS[1:-1])
    if is_inherited:
        store.close(NOW_MS)
        _, _, partition = begun(disk=disk)
    for end in ENDS:
        partition.advance_high_watermark(end)
        assert partition.high_watermark == partition.last_stable_offset == end
        for offset in range(ENDS[-1] + 1):
            for isolation, until in (
                (READ_UNCOMMITTED, end),
                (READ_COMMITTED, end),
                (READ_LOG_END, ENDS[-1]),
            ):
                assert read_from(partition, offset, isolation, max_bytes) == list(range(offset, until))


def test_a_transaction_is_open_for_readers_until_its_marker_is_replicated():
    """Kafka keeps it among the unreplicated ones."""
    _, _, partition = begun()
    one, two = Producer(partition, 1), Producer(partition, 2)
    append(partition)
    one.send(b"a")
    two.send(b"b")
    two.end(commit=False)
    one.end(commit=True)
    append(partition)
    stable = []
    for high_watermark in range(8):
        partition.advance_high_watermark(high_watermark)
        stable.append(partition.last_stable_offset)
    assert stable == [0, 1, 1, 1, 1, 5, 6, 6]
    aborted = partition.read(0, max_bytes=10_000, isolation=READ_COMMITTED).aborted
    assert aborted == [(2, 2)]


def test_without_other_replicas_a_marker_counts_at_once():
    _, _, partition = begun()
    one = Producer(partition, 1)
    one.send(b"a")
    one.end(commit=True)
    partition.advance_high_watermark(1)
    assert partition.last_stable_offset == 0
    partition.set_replicated(False)
    assert partition.last_stable_offset == 2
    one.send(b"b")
    one.end(commit=True)
    assert partition.last_stable_offset == 4


def test_a_search_by_time_names_no_record_that_is_not_replicated():
    _, _, partition = begun()
    filled(partition)
    for end in ENDS:
        partition.advance_high_watermark(end)
        for offset in range(ENDS[-1] + 1):
            found = finish(partition.search.finding_timestamp(NOW_MS + offset))
            assert found == ((NOW_MS + offset, offset, 0) if offset < end else None)
        # The latest one of all is the last, as for Kafka, which then names none.
        latest = finish(partition.search.finding_max_timestamp())
        assert (latest is None) is (end < ENDS[-1])


@pytest.mark.parametrize("config", [{"retention_ms": 1}, {"retention_bytes": 0}])
def test_retention_takes_no_segment_with_a_record_that_is_not_replicated(config):
    _, store, partition = begun(LogConfig(segment_bytes=300, **config))
    append(partition, 20)
    bases = list(partition.log.bases)
    assert len(bases) > 4
    for high_watermark in (0, bases[1] - 1, bases[1], bases[3] + 1, 19, 20):
        partition.advance_high_watermark(high_watermark)
        finish(store.maintaining(NOW_MS + 10_000))
        expected = max(base for base in [*bases, 20 if high_watermark == 20 else 0] if base <= high_watermark)
        assert partition.log_start_offset == partition.log.bases[0] == expected
        assert partition.log_end_offset == 20
        assert offsets_of(partition) == list(range(expected, high_watermark))


def test_segments_are_rolled_and_flushed_though_nothing_is_replicated():
    disk, store, partition = begun(LogConfig(segment_bytes=300))
    append(partition, 20)
    assert len(partition.log.segments) > 4
    assert store.flush_due(NOW_MS) == [partition]
    partition.flush()
    assert store.flush_due(NOW_MS) == []
    for seed in range(5):
        _, _, again = begun(LogConfig(segment_bytes=300), disk.lose_power(seed))
        assert (again.high_watermark, again.log_end_offset) == (0, 20)


def test_compaction_takes_no_segment_with_a_record_that_is_not_replicated():
    config = LogConfig(
        segment_bytes=400, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    _, store, partition = begun(config)
    append(partition, 30)
    partition.flush()
    finish(store.checkpointing.writing())
    bases = list(partition.log.bases)
    for high_watermark in (0, bases[1] - 1, bases[2], bases[4] + 1, 30):
        partition.advance_high_watermark(high_watermark)
        while store.compact(NOW_MS + 1, budget_bytes=100_000):
            pass
        expected = max(base for base in bases if base <= high_watermark)
        assert store.checkpointing.first_dirty_of(partition) == expected
        assert read_from(partition, high_watermark, READ_LOG_END, 10_000) == list(range(high_watermark, 30))


def test_records_are_deleted_up_to_the_high_watermark_and_a_follower_goes_as_far_as_its_own():
    _, _, partition = begun()
    append(partition, 12)
    partition.advance_high_watermark(7)
    with pytest.raises(KafkaError) as refused:
        partition.retention.delete_records(8)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    starts = [partition.retention.follow_start(offset) for offset in (-1, 3, 2, 9)]
    assert starts == [0, 3, 3, 7]
    partition.advance_high_watermark(10)
    assert partition.retention.follow_start(9) == partition.log_start_offset == 9
    assert partition.log.leader_epochs.entries() == [(0, 9)]
    assert offsets_of(partition) == [9]


def test_a_follower_of_a_compacted_topic_starts_where_its_leader_does():
    _, _, partition = begun(LogConfig(cleanup_policy=frozenset({"compact"})))
    append(partition, 5)
    partition.advance_high_watermark(5)
    assert partition.retention.follow_start(3) == 3
