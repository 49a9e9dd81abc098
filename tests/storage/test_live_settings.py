"""Settings that a partition follows: a codec of its own, and what changes while it lives."""

import random

import pytest
from memory_disk import MemoryDisk

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.log.appends import Origin
from odradek.storage.log.partition import Partition
from odradek.wire.compression import Compression
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import build_message
from odradek.wire.records import (
    Record,
    build_batch,
    iter_batches,
    iter_records,
    verify_crc,
)

NOW_MS = 1_700_000_000_000
TYPES = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
RECORDS = [Record(n, NOW_MS + n, b"k%d" % n, b"the same again " * 9) for n in range(20)]


def partition_with(**settings) -> Partition:
    store = LogStore(MemoryDisk(), ["data"])
    store.open(NOW_MS)
    return store.create("t", 0, bytes(16), LogConfig(**settings))


def stored(partition: Partition) -> list:
    """(header, bytes) of all batches."""
    partition.commit()
    data = partition.read(0, max_bytes=1 << 30).records.tobytes() if partition.log_end_offset else b""
    return [(header, data[at : at + header.size_bytes]) for at, header in iter_batches(data)]


def with_offsets(records, first):
    return [record._replace(offset=first + number) for number, record in enumerate(records)]


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", TYPES)
def test_a_batch_is_stored_in_the_topics_codec(source, target):
    partition = partition_with(compression_type=target)
    for number in range(3):  # the first of a segment goes another way than those that follow
        batch = build_batch(
            RECORDS, compression=source, producer_id=5, producer_epoch=0, base_sequence=20 * number
        )
        appended = partition.appends.append(batch, now_ms=NOW_MS)
        assert (appended.base_offset, appended.last_offset) == (20 * number, 20 * number + 19)
    for number, (header, kept) in enumerate(stored(partition)):
        verify_crc(kept, 0, header)
        assert header.compression == TYPES[target]
        assert list(iter_records(kept)) == with_offsets(RECORDS, 20 * number)
        assert (header.producer_id, header.base_sequence) == (5, 20 * number)
        assert header.max_timestamp == NOW_MS + 19


@pytest.mark.parametrize("source", list(Compression))
def test_a_batch_in_the_right_codec_keeps_its_bytes(source):
    (target,) = [name for name, codec in TYPES.items() if codec == source]
    batch = build_batch(RECORDS, compression=source)
    for compression_type in (target, "producer"):
        partition = partition_with(compression_type=compression_type)
        partition.appends.append(batch, now_ms=NOW_MS)
        ((_, kept),) = stored(partition)
        assert kept[16:] == batch[16:]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("target", TYPES)
def test_old_message_sets_are_stored_in_the_topics_codec(magic, target):
    partition = partition_with(compression_type=target)
    inner = b"".join(build_message(magic, offset=n, timestamp=NOW_MS, key=b"k", value=b"v") for n in range(3))
    partition.appends.append(inner, now_ms=NOW_MS, magic_limit=magic)
    ((header, kept),) = stored(partition)
    assert (header.compression, header.record_count) == (TYPES[target], 3)
    assert [record.value for record in iter_records(kept)] == [b"v"] * 3


def test_a_new_batch_in_an_old_request_is_packed_anew_too():
    partition = partition_with(compression_type="lz4")
    partition.appends.append(build_batch(RECORDS), now_ms=NOW_MS, magic_limit=1)
    ((header, kept),) = stored(partition)
    assert header.compression == Compression.LZ4
    assert list(iter_records(kept)) == RECORDS


def text(size: int) -> bytes:
    """Words, by the dice: how hard a codec tries shows in how small they get."""
    dice = random.Random(1)
    words = [bytes(dice.choices(b"etaoinshrdlu", k=dice.randrange(2, 9))) for _ in range(300)]
    return b" ".join(dice.choices(words, k=size // 4))[:size]


TEXT = text(40_000)
OLD_SETS = [build_message(magic, timestamp=NOW_MS * magic or -1, key=None, value=TEXT) for magic in (0, 1)]


@pytest.mark.parametrize(
    ("magic_limit", "records"),
    [(2, build_batch([Record(0, NOW_MS, None, TEXT)])), *enumerate(OLD_SETS)],
    ids=["batch", "set of v0", "set of v1"],
)
# Of lz4's levels Kafka's default of 9 is the quick one.
@pytest.mark.parametrize(("codec", "quick", "thorough"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", 1, 19)])
def test_a_topics_level_says_how_hard_its_codec_tries(codec, quick, thorough, records, magic_limit):
    def config(level):
        return {"compression_type": codec, f"compression_{codec}_level": level}

    def append(partition):
        partition.appends.append(records, now_ms=NOW_MS, magic_limit=magic_limit)
        return stored(partition)[-1][0].size_bytes

    changing, steady = partition_with(**config(quick)), partition_with(**config(thorough))
    large, small = append(changing), append(steady)
    assert small < 0.97 * large
    # The level may change while the partition lives.
    changing.set_config(LogConfig(**config(thorough)))
    assert append(changing) == small
    changing.set_config(LogConfig(**config(quick)))
    assert append(changing) == large


def test_log_append_time_and_a_codec_go_together():
    partition = partition_with(compression_type="zstd", message_timestamp_type="LogAppendTime")
    partition.appends.append(build_batch(RECORDS, compression=Compression.GZIP), now_ms=NOW_MS + 500)
    ((header, kept),) = stored(partition)
    verify_crc(kept, 0, header)
    assert header.compression == Compression.ZSTD
    assert {record.timestamp for record in iter_records(kept)} == {NOW_MS + 500}


def test_coordinators_records_are_packed_anew_and_control_records_are_not():
    partition = partition_with(compression_type="gzip")
    partition.appends.append(build_batch(RECORDS), now_ms=NOW_MS, origin=Origin.COORDINATOR)
    partition.appends.append_marker(EndMarker(5, 0, 1, commit=True, transaction_version=1), now_ms=NOW_MS)
    assert [header.compression for header, _ in stored(partition)] == [Compression.GZIP, Compression.NONE]


def test_what_a_leader_sent_is_never_packed_anew():
    partition = partition_with(compression_type="gzip")
    partition.appends.append(build_batch(RECORDS), now_ms=NOW_MS, origin=Origin.REPLICATION)
    ((header, _),) = stored(partition)
    assert header.compression == Compression.NONE


def test_max_message_bytes_bounds_a_batch_as_it_came_and_as_it_is_stored():
    packed = build_batch(RECORDS, compression=Compression.ZSTD)
    plain = build_batch(RECORDS)
    assert len(packed) < len(plain)
    for settings, batch in (
        ({"compression_type": "uncompressed", "max_message_bytes": len(plain) - 1}, packed),
        ({"compression_type": "zstd", "max_message_bytes": len(plain) - 1}, plain),
    ):
        with pytest.raises(KafkaError) as caught:
            partition_with(**settings).appends.append(batch, now_ms=NOW_MS)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    fitting = partition_with(compression_type="uncompressed", max_message_bytes=len(plain))
    assert fitting.appends.append(packed, now_ms=NOW_MS).base_offset == 0


def test_segment_bytes_bounds_a_batch_as_it_is_stored():
    plain = build_batch(RECORDS)
    fitting = partition_with(compression_type="zstd", segment_bytes=len(plain) - 1)
    assert fitting.appends.append(plain, now_ms=NOW_MS).base_offset == 0
    tight = partition_with(compression_type="uncompressed", segment_bytes=len(plain) - 1)
    with pytest.raises(KafkaError) as caught:
        tight.appends.append(build_batch(RECORDS, compression=Compression.ZSTD), now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_batch_sent_again_is_known_again_although_it_was_packed_anew():
    partition = partition_with(compression_type="gzip")
    batch = build_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0)
    partition.appends.append(batch, now_ms=NOW_MS)
    assert partition.appends.append(batch, now_ms=NOW_MS).is_duplicate
    assert len(stored(partition)) == 1


def test_new_settings_count_from_the_next_append_on():
    partition = partition_with()
    plain = build_batch(RECORDS)
    partition.appends.append(plain, now_ms=NOW_MS)
    partition.appends.append(plain, now_ms=NOW_MS)
    partition.set_config(LogConfig(compression_type="lz4"))
    partition.appends.append(plain, now_ms=NOW_MS)
    partition.set_config(LogConfig(message_timestamp_type="LogAppendTime"))
    assert partition.appends.append(plain, now_ms=NOW_MS).log_append_time_ms == NOW_MS
    partition.set_config(LogConfig(max_message_bytes=len(plain) - 1))
    with pytest.raises(KafkaError):
        partition.appends.append(plain, now_ms=NOW_MS)
    for setting in ("before", "after"):
        early = NOW_MS + (10_000 if setting == "before" else -10_000)
        partition.set_config(LogConfig(**{f"message_timestamp_{setting}_max_ms": 5_000}))
        with pytest.raises(KafkaError) as caught:
            partition.appends.append(plain, now_ms=early)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    partition.set_config(LogConfig(flush_messages=1))
    assert partition.appends.append(plain, now_ms=NOW_MS).must_flush
    codecs = [header.compression for header, _ in stored(partition)]
    assert codecs == [Compression.NONE, Compression.NONE, Compression.LZ4, Compression.NONE, Compression.NONE]


def test_a_new_size_of_indexes_counts_for_the_segment_that_is_being_written():
    def config(entries):
        return {"index_interval_bytes": 0, "segment_index_bytes": 8 * entries}

    partition = partition_with(**config(10))

    def append(count):
        for _ in range(count):
            partition.appends.append(build_batch(RECORDS), now_ms=NOW_MS)
            partition.commit()
        return len(partition.log.segments)

    assert append(5) == 1
    partition.set_config(LogConfig(**config(4)))
    assert append(1) == 2
    partition.set_config(LogConfig(**config(6)))
    assert append(6) == 2
    assert append(1) == 3
