"""What a client's records go through before the log is asked: at once or elsewhere, with the same result."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_disk import MemoryDisk

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.wire.batch_validation import RECORD_ERRORS_MAX, InvalidRecords, TakesLong
from odradek.wire.checksums import crc32c
from odradek.wire.compression import Compression, compress
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import build_message
from odradek.wire.records import HEADER_SIZE_BYTES, Record, build_batch
from tests.tiers import examples

NOW_MS = 1_700_000_000_000
PLAIN = LogConfig()
STAMPED = LogConfig(message_timestamp_type="LogAppendTime")


def partition_with(config=PLAIN):
    store = LogStore(MemoryDisk(), ["data"])
    store.open(NOW_MS)
    return store.create("t", 0, bytes(16), config, now_ms=NOW_MS)


def batch(size, compression=Compression.NONE, **options):
    return build_batch([Record(0, NOW_MS, b"k", b"v" * size)], compression=compression, **options)


def message_set(size, codec=Compression.NONE):
    messages = build_message(1, key=b"k", value=b"v" * size, timestamp=NOW_MS)
    if codec:
        messages = build_message(
            1, key=None, value=compress(codec, messages, magic=1), timestamp=NOW_MS, attributes=codec
        )
    return messages


def appends_promptly(partition, records, magic_limit=2):
    try:
        partition.appends.append(records, now_ms=NOW_MS, magic_limit=magic_limit, prompt=True)
    except TakesLong:
        return False
    return True


def stored_in(codec, **level):
    return LogConfig(compression_type=codec, **level)


@pytest.mark.parametrize(
    ("config", "records", "is_quick"),
    [
        (PLAIN, batch(100_000, Compression.GZIP), True),
        (PLAIN, batch(131_000, Compression.SNAPPY), True),
        (PLAIN, batch(140_000, Compression.GZIP), False),
        (PLAIN, batch(140_000, Compression.ZSTD), False),
        (PLAIN, batch(5_000_000, Compression.ZSTD), False),
        (STAMPED, batch(100_000), True),
        (STAMPED, batch(140_000), False),
        (stored_in("gzip"), batch(8000), True),
        (stored_in("gzip"), batch(8300), False),
        (stored_in("gzip"), batch(8000, Compression.LZ4), True),
        (stored_in("gzip"), batch(8300, Compression.LZ4), False),
        (stored_in("gzip"), batch(100_000, Compression.GZIP), True),
        (stored_in("gzip", compression_gzip_level=9), batch(2000), False),
        (stored_in("gzip", compression_gzip_level=1), batch(8000), True),
        (stored_in("lz4"), batch(60_000), True),
        (stored_in("lz4"), batch(70_000), False),
        (stored_in("lz4", compression_lz4_level=17), batch(2000), False),
        (stored_in("zstd"), batch(32_000), True),
        (stored_in("zstd"), batch(33_000), False),
        (stored_in("zstd", compression_zstd_level=19), batch(900), True),
        (stored_in("zstd", compression_zstd_level=19), batch(2000), False),
        (stored_in("snappy"), batch(60_000), True),
        (stored_in("uncompressed"), batch(100_000, Compression.LZ4), True),
        (stored_in("uncompressed"), batch(140_000, Compression.LZ4), False),
    ],
)
def test_what_takes_less_than_a_millisecond_is_quick(config, records, is_quick):
    partition = partition_with(config)
    assert appends_promptly(partition, records) is is_quick
    assert partition.log.has_staged is is_quick


def sections(record: bytes, count: int) -> bytes:
    """A batch whose records section is `record` so many times, with offsets that count up."""
    empty = build_batch([Record(0, NOW_MS, b"", b"")])
    records = b"".join(
        varint(len(body)) + body
        for body in (record.replace(b"OFFSET", varint(number)) for number in range(count))
    )
    content = bytearray(empty[:HEADER_SIZE_BYTES] + records)
    content[8:12] = (len(content) - 12).to_bytes(4, "big")
    content[23:27] = (count - 1).to_bytes(4, "big")
    content[57:61] = count.to_bytes(4, "big")
    content[17:21] = crc32c(memoryview(content)[21:]).to_bytes(4, "big")
    return bytes(content)


def varint(number: int) -> bytes:
    coded, out = number << 1, bytearray()
    while coded >= 0x80:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes((*out, coded))


NO_KEY_NO_VALUE = b"\x00\x00OFFSET\x01\x01\x00"
MANY_HEADERS = b"\x00\x00OFFSET\x01\x01" + varint(30_000) + 30_000 * b"\x00\x01"


@pytest.mark.parametrize(
    "records",
    [
        sections(NO_KEY_NO_VALUE, 14_000)[:-1] + b"\x02",  # the last one has a header more than there is
        sections(MANY_HEADERS[:-1], 1),
        sections(NO_KEY_NO_VALUE.replace(b"OFFSET", b"\x02"), 14_000),
    ],
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_what_is_wrong_with_many_records_is_found_out_elsewhere(records, codec):
    """By plain Python: it would keep the event loop for 30 ms."""
    content = bytearray(records[:HEADER_SIZE_BYTES] + compress(codec, records[HEADER_SIZE_BYTES:]))
    content[8:12] = (len(content) - 12).to_bytes(4, "big")
    content[21:23] = int(codec).to_bytes(2, "big")
    content[17:21] = crc32c(memoryview(content)[21:]).to_bytes(4, "big")
    partition = partition_with()
    assert not appends_promptly(partition, bytes(content))
    assert not partition.log.has_staged
    with pytest.raises(KafkaError) as refused:
        partition.appends.preparing(bytes(content), now_ms=NOW_MS)()
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_many_records_that_break_a_rule_are_named_elsewhere_and_not_all_of_them():
    partition = partition_with(LogConfig(cleanup_policy=frozenset({"compact"})))
    records = sections(NO_KEY_NO_VALUE, 14_000)
    assert not appends_promptly(partition, records)
    with pytest.raises(InvalidRecords) as refused:
        partition.appends.preparing(records, now_ms=NOW_MS)()
    assert [index for index, _ in refused.value.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert refused.value.message.startswith("14000 records are refused")


@pytest.mark.parametrize("records", [sections(NO_KEY_NO_VALUE, 14_000), sections(MANY_HEADERS, 1)])
def test_many_sound_records_are_looked_at_at_once(records):
    partition = partition_with(STAMPED)
    assert appends_promptly(partition, records)
    assert partition.log.has_staged


@pytest.mark.parametrize(
    ("records", "is_quick"),
    [
        (message_set(4000), True),
        (message_set(4100), False),
        (message_set(10, Compression.GZIP), False),
    ],
)
def test_few_bytes_of_an_old_format_are_quick_and_unpacking_them_is_not(records, is_quick):
    partition = partition_with()
    assert appends_promptly(partition, records, magic_limit=1) is is_quick


def in_halves(partition, records, magic_limit):
    prepared = partition.appends.preparing(records, now_ms=NOW_MS, magic_limit=magic_limit)()
    return partition.appends.append(prepared, now_ms=NOW_MS)


def outcome(partition, append):
    try:
        appended = append()
        told = [
            getattr(appended, name)
            for name in ("base_offset", "last_offset", "log_append_time_ms", "is_duplicate", "must_flush")
        ]
    except KafkaError as error:
        told = [error.code]
    partition.commit()
    return told, partition.log.active.file.read(0, partition.log.active.size_bytes)


SIZES = st.sampled_from([0, 10, 3000, 70_000, 140_000])
CODECS = st.sampled_from(list(Compression))


@st.composite
def requests(draw):
    """Records as a client may send them, and the newest format that its request has."""
    if draw(st.booleans()):
        codec = draw(CODECS.filter(lambda one: one is not Compression.ZSTD))
        records = bytearray(message_set(draw(SIZES), codec))
        magic_limit = 1
    else:
        records = batch(draw(SIZES), draw(CODECS), producer_id=3, producer_epoch=0, base_sequence=0)
        magic_limit = draw(st.sampled_from([0, 1, 2]))
    if draw(st.integers(0, 3)) == 0:
        records[draw(st.integers(0, len(records) - 1))] ^= draw(st.integers(1, 255))
    if draw(st.integers(0, 5)) == 0:
        records = records[: draw(st.integers(0, len(records)))]
    if draw(st.integers(0, 5)) == 0:
        records += records[: draw(st.integers(0, len(records)))]
    return bytes(records), magic_limit


@settings(max_examples=examples(150), deadline=None)
@given(
    requests(),
    st.sampled_from(["producer", "uncompressed", "gzip", "zstd", "lz4", "snappy"]),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
)
def test_an_append_in_halves_is_the_same_as_a_whole_one(request, compression_type, timestamp_type):
    records, magic_limit = request
    config = LogConfig(
        compression_type=compression_type, message_timestamp_type=timestamp_type, max_message_bytes=100_000
    )
    whole, halved = partition_with(config), partition_with(config)
    assert outcome(
        whole, lambda: whole.appends.append(records, now_ms=NOW_MS, magic_limit=magic_limit)
    ) == outcome(halved, lambda: in_halves(halved, records, magic_limit))


def test_a_partition_that_was_closed_meanwhile_takes_nothing():
    partition = partition_with()
    prepared = partition.appends.preparing(batch(10), now_ms=NOW_MS)()
    partition.close()
    with pytest.raises(KafkaError) as raised:
        partition.appends.append(prepared, now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_segments_that_became_smaller_meanwhile_are_too_small():
    partition = partition_with()
    prepared = partition.appends.preparing(batch(1000), now_ms=NOW_MS)()
    partition.set_config(replace(PLAIN, segment_bytes=500))
    with pytest.raises(KafkaError) as raised:
        partition.appends.append(prepared, now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert not partition.log.has_staged
