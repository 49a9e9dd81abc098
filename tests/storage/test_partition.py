"""A partition on a real directory: what is appended, committed and read back."""

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


def batch_of(*values: bytes, timestamp: int = NOW_MS, **kwargs) -> memoryview:
    records = [Record(place, timestamp + place, b"key", value) for place, value in enumerate(values)]
    return memoryview(build_batch(records, **kwargs))


def read_values(partition: Partition, offset: int = 0, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    """(offset, value) of what one read gives, from the offset on."""
    data = memoryview(partition.read(offset, max_bytes=max_bytes).records.tobytes())
    return [
        (record.offset, record.value)
        for position, _ in iter_whole_batches(data)
        for record in iter_records(data[position:])
        if record.offset >= offset
    ]


@pytest.fixture
def store(tmp_path):
    store = LogStore(OsDisk(), [str(tmp_path / "data")])
    store.open(NOW_MS)
    yield store
    store.close(NOW_MS)


@pytest.fixture
def partition(store):
    return store.create("orders", 0, TOPIC_ID, LogConfig())


def test_what_is_staged_is_seen_after_the_commit_and_not_before(partition):
    appended = partition.appends.append(batch_of(b"a", b"b"), now_ms=NOW_MS)
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    assert partition.log_end_offset == 0
    assert len(partition.read(0, max_bytes=1000).records) == 0
    partition.commit()
    assert read_values(partition) == [(0, b"a"), (1, b"b")]
    assert partition.high_watermark == partition.log_end_offset == 2


def test_a_batch_is_stored_as_the_same_bytes_but_for_its_offset_and_epoch(partition):
    partition.follow_leader_epoch(7)
    sent = batch_of(b"a")
    partition.appends.append(batch_of(b"first"), now_ms=NOW_MS)
    partition.appends.append(sent, now_ms=NOW_MS)
    partition.commit()
    stored = partition.read(1, max_bytes=1000).records.tobytes()
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[12:16] == (7).to_bytes(4, "big")
    assert stored[8:12] == bytes(sent[8:12])
    assert stored[16:] == bytes(sent[16:])


def test_watchers_are_woken_by_a_commit_until_they_leave(partition):
    woken = []
    wake = woken.append
    watcher = lambda: wake(partition.high_watermark)  # noqa: E731
    partition.watch(watcher)
    partition.appends.append(batch_of(b"a"), now_ms=NOW_MS)
    assert woken == []
    partition.commit()
    assert woken == [1]
    partition.unwatch(watcher)
    partition.appends.append(batch_of(b"b"), now_ms=NOW_MS)
    partition.commit()
    assert woken == [1]


def test_a_read_out_of_range_is_refused_and_one_at_the_end_is_empty(partition):
    partition.appends.append(batch_of(b"a"), now_ms=NOW_MS)
    partition.commit()
    assert len(partition.read(1, max_bytes=1000).records) == 0
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as refused:
            partition.read(offset, max_bytes=1000)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_is_cut_off_at_its_limit_but_not_within_its_first_batch(partition):
    for value in (b"a", b"b", b"c"):
        partition.appends.append(batch_of(value), now_ms=NOW_MS)
    partition.commit()
    one = len(batch_of(b"a"))
    everything = partition.read(0, max_bytes=1 << 20).records.tobytes()

    def read(offset, max_bytes, **options):
        return partition.read(offset, max_bytes=max_bytes, **options).records.tobytes()

    for offset in range(3):
        rest = everything[offset * one :]
        for max_bytes in range(len(everything) + 2):
            assert read(offset, max_bytes) == rest[: max(max_bytes, one)]
            assert read(offset, max_bytes, minimum_one_batch=False) == (
                rest[:max_bytes] if max_bytes >= min(one, len(rest)) else b""
            )
            assert read(offset, max_bytes, minimum_one_batch=False, cut_first_batch=True) == rest[:max_bytes]
    assert read_values(partition, 1, 2 * one - 1) == [(1, b"b")]
    with pytest.raises(KafkaError) as refused:
        partition.read(0, max_bytes=-1)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert read(3, -1) == b""


def test_a_read_from_within_a_batch_begins_with_that_batch(partition):
    partition.appends.append(batch_of(b"a", b"b", b"c"), now_ms=NOW_MS)
    partition.appends.append(batch_of(b"d"), now_ms=NOW_MS)
    partition.commit()
    everything = partition.read(0, max_bytes=1 << 20).records.tobytes()
    first = len(batch_of(b"a", b"b", b"c"))
    for offset in (1, 2):
        assert partition.read(offset, max_bytes=1).records.tobytes() == everything[:first]
        assert partition.read(offset, max_bytes=first + 5).records.tobytes() == everything[: first + 5]


def test_a_read_ends_with_its_segment_whatever_the_limit(store):
    size = len(batch_of(b"x" * 500))
    partition = store.create("segments", 0, TOPIC_ID, LogConfig(segment_bytes=2 * size))
    for number in range(6):
        partition.appends.append(batch_of(b"%d" % number * 500), now_ms=NOW_MS)
        if number % 2:
            partition.commit()  # the tail's place is remembered, and so read without a look at the index
    assert [segment.size_bytes for segment in partition.log.segments] == [2 * size] * 3
    for offset in range(6):
        left = size * (2 - offset % 2)
        for max_bytes in (1, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1, 1 << 20):
            records = partition.read(offset, max_bytes=max_bytes).records
            assert len(records) == min(left, max(max_bytes, size))
            assert records.tobytes()[:8] == offset.to_bytes(8, "big")


def test_a_log_whose_segments_never_grow_too_old_takes_what_comes(store):
    partition = store.create("orders", 2, TOPIC_ID, LogConfig(segment_ms=2**63 - 1))
    for timestamp in (NOW_MS, NOW_MS + 1, NOW_MS + 10**12):
        partition.appends.append(batch_of(b"a", timestamp=timestamp), now_ms=timestamp)
        partition.commit()
    assert partition.log.bases == [0]
    assert partition.log_end_offset == 3


def test_a_read_of_what_is_committed_ends_before_the_last_stable_offset(partition):
    for value in (b"a", b"b", b"c"):
        partition.appends.append(batch_of(value), now_ms=NOW_MS)
    partition.commit()
    one = len(batch_of(b"a"))
    log = partition.log
    for max_bytes, expected in ((1, one), (one + 9, one + 9), (3 * one, 2 * one)):
        assert len(log.reader.read(0, 2, max_bytes, True, False)) == expected
    assert len(log.reader.read(1, 2, one - 1, False, False)) == 0
    assert len(log.reader.read(2, 2, 3 * one, True, False)) == 0


def test_everything_is_there_after_a_clean_stop(tmp_path):
    directory = str(tmp_path / "data")
    store = LogStore(OsDisk(), [directory])
    store.open(NOW_MS)
    partition = store.create("orders", 3, TOPIC_ID, LogConfig())
    for number in range(10):
        partition.appends.append(batch_of(b"%d" % number), now_ms=NOW_MS)
    partition.commit()
    store.close(NOW_MS)
    again = LogStore(OsDisk(), [directory])
    assert again.open(NOW_MS) == {}
    assert again.opening.was_clean
    partition = again.get("orders", 3)
    assert partition.topic_id == TOPIC_ID
    assert read_values(partition) == [(number, b"%d" % number) for number in range(10)]
    again.close(NOW_MS)


def test_the_first_batch_of_a_producer_is_ordinary_and_forgotten_when_it_could_not_be_written(partition):
    def batch(sequence):
        return batch_of(b"v", producer_id=7, producer_epoch=3, base_sequence=sequence)

    for _ in range(2):  # with a log's first ones nothing is ordinary yet
        partition.appends.append(batch_of(b"of nobody"), now_ms=NOW_MS)
        partition.commit()
    producers = partition.log.producers.producers
    for sequence, offset in ((12, 2), (13, 3)):  # the first may be any
        appended = partition.appender.append_ordinary(batch(sequence), 0, len(batch(sequence)), NOW_MS)
        assert appended.base_offset == offset
    assert partition.appender.append_ordinary(batch(13), 0, len(batch(13)), NOW_MS) is None
    entry = producers[7]
    assert (entry.producer_epoch, entry.last_timestamp) == (3, NOW_MS)
    assert (entry.coordinator_epoch, entry.current_txn_first_offset) == (-1, -1)
    assert entry.batches == ((12, 12, 2, 2, NOW_MS), (13, 13, 3, 3, NOW_MS))
    partition.log.rollback()
    assert producers == {}
    assert partition.appends.append(batch(5), now_ms=NOW_MS).base_offset == 2
