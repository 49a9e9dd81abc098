"""What is checked of a produced batch: its header and every record inside."""

import pytest

from odradek.wire.batch_validation import (
    BatchRules,
    InvalidRecords,
    validate_batch,
    validate_header,
    validate_records,
)
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, read_batch_header

NOW = 1_700_000_000_000
HOUR = 3_600_000


def batch_of(*records, **options):
    options.setdefault("base_offset", 0)
    return build_batch([Record(*record) for record in records], **options)


def header_with(**fields):
    header = read_batch_header(batch_of((0, NOW, None, b"x"), (1, NOW, None, b"y")))
    for name, value in fields.items():
        setattr(header, name, value)
    return header


def refusal(call, *arguments, **options):
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **options)
    return caught.value


def test_a_sound_batch_passes():
    for compression in Compression:
        batch = batch_of((0, NOW, b"k", b"x"), (1, NOW + 5, b"k", b"y"), compression=compression)
        header = read_batch_header(batch)
        for rules in (BatchRules(), BatchRules(compacted=True), BatchRules(log_append_time=True)):
            assert validate_batch(batch, header, rules, NOW) == NOW + 5


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
        ({"record_count": 3}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 0}, ErrorCode.INVALID_RECORD),
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x30}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x40}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x10}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -2}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_header_that_no_client_may_send_is_refused(fields, code):
    validate_header(header_with())
    assert refusal(validate_header, header_with(**fields)).code == code


def test_producers_and_transactions_pass():
    validate_header(header_with(producer_id=0, producer_epoch=0, base_sequence=0))
    validate_header(header_with(producer_id=5, producer_epoch=9, base_sequence=2**31 - 1, attributes=0x10))


def test_zstd_needs_produce_7():
    zstd = header_with(attributes=4)
    validate_header(zstd, produce_version=7)
    code = refusal(validate_header, zstd, produce_version=6).code
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    validate_header(header_with(attributes=3), produce_version=3)


@pytest.mark.parametrize("compression", Compression)
def test_a_compacted_topic_names_the_records_without_a_key(compression):
    batch = batch_of((0, NOW, None, b"x"), (1, NOW, b"", b"y"), (2, NOW, None, None), compression=compression)
    header = read_batch_header(batch)
    validate_batch(batch, header, BatchRules(), NOW)
    error = refusal(validate_batch, batch, header, BatchRules(compacted=True), NOW)
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [0, 2]
    assert "key" in error.record_errors[0][1]


def test_timestamps_out_of_range_are_named_and_outweigh_missing_keys():
    batch = batch_of((0, NOW, None, b"x"), (1, NOW + HOUR + 1, b"k", b"y"), (2, -1, b"k", b""))
    header = read_batch_header(batch)
    error = refusal(validate_batch, batch, header, BatchRules(), NOW)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]
    error = refusal(validate_batch, batch, header, BatchRules(compacted=True), NOW)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]
    both = batch_of((0, NOW + HOUR + 1, None, b"x"))
    error = refusal(validate_batch, both, read_batch_header(both), BatchRules(compacted=True), NOW)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [0]
    assert validate_batch(batch, header, BatchRules(), NOW + 1) == NOW + HOUR + 1
    assert validate_batch(batch, header, BatchRules(log_append_time=True), NOW) == NOW + HOUR + 1


def test_old_timestamps_are_refused_where_the_topic_says_so():
    batch = batch_of((0, NOW, b"k", b"x"), (1, NOW - 5000, b"k", b"y"), (2, -1, b"k", b"y"))
    header = read_batch_header(batch)
    assert validate_batch(batch, header, BatchRules(timestamp_before_max_ms=5000), NOW) == NOW
    error = refusal(validate_batch, batch, header, BatchRules(timestamp_before_max_ms=4999), NOW)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]


def test_a_wrong_max_timestamp_is_reported():
    batch = batch_of((0, NOW, b"k", b"x"), (1, NOW - 9, b"k", b"y"), max_timestamp=NOW - 9)
    header = read_batch_header(batch)
    assert validate_batch(batch, header, BatchRules(), NOW) == NOW


def test_records_that_contradict_their_header_are_refused():
    gap = batch_of((0, NOW, b"k", b"x"), (2, NOW, b"k", b"y"))
    error = refusal(validate_records, gap, read_batch_header(gap), BatchRules(), NOW)
    assert error.code == ErrorCode.INVALID_RECORD
    batch = batch_of((0, NOW, b"k", b"x"), (1, NOW, b"k", b"y"))
    for count in (1, 3, 10**9):
        header = read_batch_header(batch)
        header.record_count = count
        error = refusal(validate_records, batch, header, BatchRules(), NOW)
        assert error.code == ErrorCode.INVALID_RECORD


def test_a_bomb_is_not_unpacked_for_validation():
    batch = batch_of((0, NOW, b"k", bytes(1 << 20)), compression=Compression.GZIP)
    header = read_batch_header(batch)
    error = refusal(validate_batch, batch, header, BatchRules(compacted=True), NOW, limit_bytes=1 << 16)
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE


# max.decompressed.message.bytes


@pytest.mark.parametrize("compression", Compression)
def test_a_record_of_a_compressed_batch_has_a_limit_without_its_size_in_front(compression):
    batch = batch_of((0, NOW, b"k", b"x"), (1, NOW, None, bytes(9_990)), compression=compression)
    header = read_batch_header(batch)
    assert validate_batch(batch, header, BatchRules(record_bytes_max=9_998), NOW) == NOW
    if compression == Compression.NONE:
        assert validate_batch(batch, header, BatchRules(record_bytes_max=10), NOW) == NOW
    else:
        error = refusal(validate_batch, batch, header, BatchRules(record_bytes_max=9_997), NOW)
        assert (error.code, type(error)) == (ErrorCode.INVALID_RECORD, KafkaError)
