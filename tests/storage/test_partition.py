"""A partition on a real directory: what is appended, committed and read back."""

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.partition import Partition
from odradek.storage.store import LogStore
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, iter_batches, iter_records

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
        for position, _ in iter_batches(data)
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
    appended = partition.append(batch_of(b"a", b"b"), now_ms=NOW_MS)
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    assert partition.log_end_offset == 0
    assert len(partition.read(0, max_bytes=1000).records) == 0
    partition.commit()
    assert read_values(partition) == [(0, b"a"), (1, b"b")]
    assert partition.high_watermark == partition.log_end_offset == 2


def test_a_batch_is_stored_as_the_same_bytes_but_for_its_offset_and_epoch(partition):
    partition.leader_epoch = 7
    sent = batch_of(b"a")
    partition.append(batch_of(b"first"), now_ms=NOW_MS)
    partition.append(sent, now_ms=NOW_MS)
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
    partition.append(batch_of(b"a"), now_ms=NOW_MS)
    assert woken == []
    partition.commit()
    assert woken == [1]
    partition.unwatch(watcher)
    partition.append(batch_of(b"b"), now_ms=NOW_MS)
    partition.commit()
    assert woken == [1]


def test_a_read_out_of_range_is_refused_and_one_at_the_end_is_empty(partition):
    partition.append(batch_of(b"a"), now_ms=NOW_MS)
    partition.commit()
    assert len(partition.read(1, max_bytes=1000).records) == 0
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as refused:
            partition.read(offset, max_bytes=1000)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_gives_whole_batches_and_one_at_least(partition):
    for value in (b"a", b"b", b"c"):
        partition.append(batch_of(value), now_ms=NOW_MS)
    partition.commit()
    one = len(batch_of(b"a"))
    assert len(partition.read(0, max_bytes=2 * one + 1).records) == 2 * one
    assert len(partition.read(1, max_bytes=1).records) == one
    assert len(partition.read(1, max_bytes=1, minimum_one_batch=False).records) == 0
    assert read_values(partition, 1) == [(1, b"b"), (2, b"c")]


def test_everything_is_there_after_a_clean_stop(tmp_path):
    directory = str(tmp_path / "data")
    store = LogStore(OsDisk(), [directory])
    store.open(NOW_MS)
    partition = store.create("orders", 3, TOPIC_ID, LogConfig())
    for number in range(10):
        partition.append(batch_of(b"%d" % number), now_ms=NOW_MS)
    partition.commit()
    store.close(NOW_MS)
    again = LogStore(OsDisk(), [directory])
    assert again.open(NOW_MS) == {}
    assert again.was_clean
    partition = again.get("orders", 3)
    assert partition.topic_id == TOPIC_ID
    assert read_values(partition) == [(number, b"%d" % number) for number in range(10)]
    again.close(NOW_MS)
