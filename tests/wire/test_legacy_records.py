"""Message sets v0 and v1: read, converted and written as the old clients and Kafka 3.9 do."""

import contextlib
import struct

import kafka.codec
import lz4.frame
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaSet
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from odradek.wire.batch_validation import BatchRules, InvalidRecords
from odradek.wire.compression import Compression, compress
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import build_message, is_legacy, iter_messages, to_legacy, to_v2
from odradek.wire.records import (
    NO_TIMESTAMP,
    Record,
    build_batch,
    end_txn_marker,
    iter_records,
    read_batch_header,
    verify_crc,
)
from tests.tiers import examples

NOW = 1_700_000_000_000
LEGACY_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
KEYS_AND_VALUES = [(b"k", b"v"), (None, b"w" * 300), (b"", None), (None, None), (b"key", b"")]


def records(base_offset=0, pairs=KEYS_AND_VALUES):
    return [Record(base_offset + i, NOW - 1000 + 3 * i, key, value) for i, (key, value) in enumerate(pairs)]


def by_kafka_python(magic, compression, pairs=KEYS_AND_VALUES):
    builder = LegacyRecordBatchBuilder(magic, compression, 1 << 20)
    for record in records(pairs=pairs):
        builder.append(record.offset, record.timestamp, record.key, record.value)
    return bytes(builder.build())


class XXHash:
    """Stands in for the library that kafka-python wants for the lz4 of v0: lz4 sums frames with it too."""

    def xxh32(self, data):
        self.sum = lz4.frame.compress(bytes(data), content_checksum=True)[:-5:-1]
        return self

    def digest(self):
        return self.sum


@pytest.fixture(autouse=True)
def _lz4_of_v0(monkeypatch):
    monkeypatch.setattr(kafka.codec, "xxhash", XXHash())


def converted(message_set, **options):
    [batch] = to_v2(message_set, now_ms=NOW, **options)
    header = read_batch_header(batch)
    verify_crc(batch, 0, header)
    assert header.size_bytes == len(batch)
    return header, list(iter_records(batch))


def refusal(message_set, **options):
    with pytest.raises(KafkaError) as caught:
        to_v2(message_set, now_ms=NOW, **options)
    return caught.value.code


def wrapped(magic, inner, compression=Compression.GZIP, **options):
    value = compress(compression, inner, magic=magic)
    return build_message(magic, key=None, value=value, attributes=compression, **options)


# To v2 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", LEGACY_CODECS)
def test_a_producers_message_set_becomes_one_batch(magic, compression):
    message_set = by_kafka_python(magic, compression)
    assert is_legacy(message_set)
    header, read = converted(message_set, base_offset=40, leader_epoch=6)
    wanted = records(base_offset=40)
    if magic == 0:
        wanted = [record._replace(timestamp=NO_TIMESTAMP) for record in wanted]
    assert read == wanted
    assert header.compression == compression
    assert (header.base_offset, header.last_offset_delta, header.leader_epoch) == (40, 4, 6)
    assert header.max_timestamp == wanted[-1].timestamp
    assert not header.uses_log_append_time


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", LEGACY_CODECS)
def test_log_append_time_replaces_every_timestamp(magic, compression):
    header, read = converted(by_kafka_python(magic, compression), rules=BatchRules(log_append_time=True))
    assert header.uses_log_append_time
    assert {record.timestamp for record in read} == {NOW}


def test_the_topic_may_name_another_codec():
    header, read = converted(by_kafka_python(1, Compression.GZIP), compression=Compression.LZ4)
    assert header.compression == Compression.LZ4
    assert read == records()


def test_wrong_inner_offsets_are_replaced():
    inner = build_message(1, offset=7, timestamp=NOW, key=None, value=b"a")
    inner += build_message(1, offset=7, timestamp=NOW, key=None, value=b"b")
    _, read = converted(wrapped(1, inner, timestamp=NOW))
    assert [(record.offset, record.value) for record in read] == [(0, b"a"), (1, b"b")]


def test_a_wrapper_with_log_append_time_gives_its_timestamp_to_all():
    inner = build_message(1, timestamp=5, key=None, value=b"a")
    outer = build_message(
        1, timestamp=NOW, key=None, value=compress(Compression.GZIP, inner), attributes=Compression.GZIP | 8
    )
    _, read = converted(outer)
    assert [record.timestamp for record in read] == [NOW]
    assert refusal(outer, rules=BatchRules(log_append_time=True)) == ErrorCode.INVALID_TIMESTAMP


def test_an_empty_set_is_no_batch():
    assert to_v2(b"", now_ms=NOW) == []
    assert not is_legacy(b"")


def test_a_batch_is_not_legacy():
    assert not is_legacy(build_batch(records()))


# Refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_every_flipped_bit_behind_the_offset_is_refused(magic, compression):
    sound = by_kafka_python(magic, compression, KEYS_AND_VALUES[:1])
    for bit in range(8 * 8, 8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refusal(damaged) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD), bit


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_cut_within_a_message_is_refused(magic):
    sound = by_kafka_python(magic, Compression.NONE)
    ends = set(message_ends(sound))
    for end in range(1, len(sound)):
        if end in ends:
            assert len(list(iter_messages(sound[:end]))) == len([e for e in ends if e <= end])
        else:
            assert refusal(sound[:end]) == ErrorCode.CORRUPT_MESSAGE


def message_ends(message_set):
    end = 0
    while end < len(message_set):
        end += 12 + struct.unpack_from(">i", message_set, end + 8)[0]
        yield end


def test_lying_sizes_under_a_right_checksum_are_refused():
    for size in (-2, 3, 5, 6, 2**31 - 1):
        message = bytearray(build_message(1, key=b"kk", value=b"vv"))
        struct.pack_into(">i", message, 26, size)
        seal(message)
        assert refusal(message) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert refusal(wrapped(1, message)) == ErrorCode.UNKNOWN_SERVER_ERROR
        with pytest.raises(KafkaError) as refused:
            list(iter_messages(message))  # of a log: it is damaged
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_value_that_has_lost_its_end_is_refused():
    for size in (-7, 1):
        message = bytearray(build_message(1, key=None, value=b"vv"))
        struct.pack_into(">i", message, 30, size)
        seal(message)
        assert refusal(message) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("packs", [list, lambda message: wrapped(1, message)])
def test_timestamps_below_that_of_none_are_refused(packs):
    below, none = (build_message(1, timestamp=stamp, key=None, value=b"v") for stamp in (-2, -1))
    assert refusal(bytes(packs(below))) == ErrorCode.UNKNOWN_SERVER_ERROR
    converted(bytes(packs(none)))
    rules = BatchRules(log_append_time=True)  # though it would be replaced
    assert refusal(bytes(packs(below)), rules=rules) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_message_of_a_format_to_come_is_damaged_and_a_batch_out_of_place():
    first, second = (build_message(1, key=None, value=b"v" * 50) for _ in range(2))
    for magic, code in ((2, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)):
        message = bytearray(second)
        message[16] = magic
        seal(message)
        assert refusal(first + message) == code


def test_what_cannot_be_unpacked_is_refused_for_good():
    sound = compress(Compression.GZIP, build_message(1, key=None, value=b"x"))
    for value in (b"", b"not packed at all", sound[:-9]):
        message = build_message(1, key=None, value=value, attributes=Compression.GZIP)
        assert refusal(message) == ErrorCode.UNKNOWN_SERVER_ERROR


def seal(message):
    from zlib import crc32

    struct.pack_into(">I", message, 12, crc32(message[16:]))


def test_what_contradicts_itself_is_refused():
    plain = [build_message(magic, key=None, value=b"x") for magic in (0, 1)]
    gzip0, gzip1 = wrapped(0, plain[0]), wrapped(1, plain[1])
    assert refusal(plain[0] + plain[1]) == ErrorCode.INVALID_RECORD
    assert refusal(gzip1 + gzip1) == ErrorCode.INVALID_RECORD
    assert refusal(gzip1 + plain[1]) == ErrorCode.INVALID_RECORD
    assert refusal(wrapped(0, gzip0)) == ErrorCode.INVALID_RECORD
    assert refusal(wrapped(1, plain[0])) == ErrorCode.INVALID_RECORD
    assert refusal(wrapped(1, b"")) == ErrorCode.INVALID_RECORD
    assert refusal(wrapped(1, plain[1], Compression.ZSTD)) == ErrorCode.INVALID_RECORD
    assert refusal(plain[1] + bytes(build_batch(records()))) == ErrorCode.INVALID_RECORD
    assert refusal(build_message(1, key=None, value=None, attributes=1)) == ErrorCode.INVALID_RECORD
    assert refusal(wrapped(1, bytes(build_batch(records())))) == ErrorCode.INVALID_RECORD
    assert refusal(build_message(1, key=None, value=b"", attributes=6)) == ErrorCode.UNKNOWN_SERVER_ERROR
    shifted = build_message(1, offset=9, key=None, value=b"x")
    assert refusal(wrapped(1, shifted, offset=3)) == ErrorCode.INVALID_RECORD


def test_a_wrapped_message_with_a_wrong_checksum_is_refused():
    inner = bytearray(build_message(1, key=None, value=b"x"))
    inner[12] ^= 1
    assert refusal(wrapped(1, inner)) == ErrorCode.CORRUPT_MESSAGE


def test_a_bomb_in_a_wrapper_is_refused():
    inner = build_message(1, key=None, value=bytes(1 << 20))
    assert refusal(wrapped(1, inner), limit_bytes=1 << 16) == ErrorCode.MESSAGE_TOO_LARGE


def test_the_topics_rules_hold_for_old_formats():
    with pytest.raises(InvalidRecords) as caught:
        to_v2(by_kafka_python(1, Compression.GZIP), now_ms=NOW, rules=BatchRules(compacted=True))
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    for compression, named in ((Compression.GZIP, [3, 4]), (Compression.NONE, [0])):
        with pytest.raises(InvalidRecords) as caught:
            to_v2(by_kafka_python(1, compression), now_ms=NOW - 3_600_000 - 994)
        assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in caught.value.record_errors] == named


@settings(max_examples=examples(200))
@given(
    st.sampled_from([0, 1]),
    st.sampled_from(LEGACY_CODECS),
    st.integers(0, 400),
    st.binary(max_size=12),
    st.integers(0, 12),
    st.booleans(),
)
def test_garbage_is_refused_or_read_and_nothing_else(magic, compression, position, noise, cut, sealed):
    garbage = bytearray(
        build_message(1, key=None, value=b"x" * 9)
        if compression == Compression.NONE
        else wrapped(magic, build_message(magic, key=b"k", value=b"x" * 50) * 3, compression)
    )
    garbage[position : position + cut] = noise
    if sealed and len(garbage) > 16:
        seal(garbage)
    with contextlib.suppress(KafkaError):
        to_v2(garbage, now_ms=NOW, limit_bytes=10_000)


# To v0 and v1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", LEGACY_CODECS)
@pytest.mark.parametrize("log_append_time_ms", [None, NOW + 5])
def test_old_consumers_read_what_was_stored(magic, compression, log_append_time_ms):
    stored = records(base_offset=500)
    batch = build_batch(stored, compression=compression, log_append_time_ms=log_append_time_ms)
    message_set = to_legacy(batch, magic, 500)
    for record, theirs in zip(stored, read_by_kafka_python(message_set), strict=True):
        assert (theirs.offset, theirs.key, theirs.value) == (record.offset, record.key, record.value)
        if magic == 1:
            assert theirs.timestamp == (log_append_time_ms or record.timestamp)
            assert theirs.timestamp_type == (0 if log_append_time_ms is None else 1)


def read_by_kafka_python(message_set):
    sets = MemoryRecords(message_set)
    while sets.has_next():
        yield from sets.next_batch()


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_aiokafka_reads_our_wrappers(compression):
    stored = records(base_offset=500)
    message_set = to_legacy(build_batch(stored, compression=compression), 1, 500)
    read = [(r.offset, r.timestamp, r.key, r.value) for r in AiokafkaSet(bytearray(message_set), 1)]
    assert read == [tuple(record[:4]) for record in stored]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_have_the_same_bytes_as_kafka_pythons(magic):
    assert to_legacy(build_batch(records()), magic, 0) == by_kafka_python(magic, Compression.NONE)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", LEGACY_CODECS)
def test_there_and_back_again(magic, compression):
    stored = records()
    batch = build_batch(stored, compression=compression)
    header, read = converted(to_legacy(batch, magic, 0))
    assert header.compression == compression
    assert [record[2:] for record in read] == [record[2:] for record in stored]
    if magic == 1:
        assert read == stored


def test_only_uncompressed_records_below_the_first_offset_are_left_out():
    plain = build_batch(records(base_offset=10))
    assert [message.offset for message in iter_messages(to_legacy(plain, 1, 13))] == [13, 14]
    assert to_legacy(plain, 1, 15) == b""
    compressed = build_batch(records(base_offset=10), compression=Compression.GZIP)
    assert to_legacy(compressed, 1, 13) == to_legacy(compressed, 1, 10)


def test_gaps_of_compaction_stay():
    kept = [records(base_offset=10)[index] for index in (1, 4)]
    for compression in LEGACY_CODECS:
        batch = build_batch(kept, base_offset=10, last_offset_delta=9, compression=compression)
        message_set = to_legacy(batch, 1, 0)
        assert [theirs.offset for theirs in read_by_kafka_python(message_set)] == [11, 14]


def test_control_batches_headers_and_empty_batches_vanish():
    marker = end_txn_marker(
        committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW, base_offset=1
    )
    with_header = build_batch([Record(0, NOW, b"k", b"v", (("h", b"x"),))])
    empty = build_batch([], base_offset=2, compression=Compression.GZIP)
    assert to_legacy(bytes(with_header + marker + empty), 1, 0) == to_legacy(
        build_batch([Record(0, NOW, b"k", b"v")]), 1, 0
    )


def test_zstd_is_refused():
    with pytest.raises(KafkaError) as caught:
        to_legacy(build_batch(records(), compression=Compression.ZSTD), 1, 0)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
