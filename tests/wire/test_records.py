"""Record batches v2: what is built is read back, by us and by the clients' readers, and damage is found."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import (
    CONTROL_COMMIT,
    HEADER_SIZE_BYTES,
    NO_SEQUENCE,
    EndTransactionMarker,
    Record,
    add_to_sequence,
    build_batch,
    end_txn_marker,
    iter_batches,
    iter_records,
    patch_batch,
    read_batch_header,
    read_end_txn_marker,
    set_log_append_time,
    set_max_timestamp,
    verify_crc,
)
from tests.tiers import examples

CODECS = list(Compression)
NAMES = st.text(max_size=8)
VALUES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-1, 2**62)


@st.composite
def record_lists(draw, min_size=1):
    """Ascending offsets, not always consecutive: compaction leaves gaps."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(min_size, 12))):
        records.append(Record(offset, draw(TIMESTAMPS), draw(VALUES), draw(VALUES), draw(HEADERS)))
        offset += draw(st.integers(1, 300))
    return records


def consecutive(count, base_offset=0):
    return [
        Record(
            base_offset + index,
            1_600_000_000_000 + 7 * index,
            None if index % 3 == 0 else b"key-%d" % index,
            None if index % 5 == 4 else b"value " * index,
            () if index % 2 else (("trace", b"\x00\x01"), ("trace", None), ("\N{SNOWMAN}", b"")),
        )
        for index in range(count)
    ]


def refusal(call, *arguments, **options):
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **options)
    return caught.value.code


# Round trips ----------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(record_lists(), st.sampled_from(CODECS), st.booleans())
def test_what_is_built_is_read_back(records, compression, transactional):
    batch = build_batch(
        records,
        compression=compression,
        producer_id=77,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        transactional=transactional,
        leader_epoch=5,
    )
    header = read_batch_header(batch)
    verify_crc(batch, 0, header)
    assert list(iter_records(batch)) == records
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.size_bytes == len(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (77, 3, 5)
    assert header.compression == compression
    assert header.is_transactional == transactional
    assert not header.is_control
    assert header.record_count == len(records)


def test_batches_follow_each_other_at_any_position():
    first, second = build_batch(consecutive(3)), build_batch(consecutive(2, base_offset=3))
    found = [(position, header.base_offset) for position, header in iter_batches(bytes(first + second))]
    assert found == [(0, 0), (len(first), 3)]
    padded = memoryview(b"xyz" + first)
    header = read_batch_header(padded, 3)
    verify_crc(padded, 3, header)
    assert list(iter_records(padded[3:])) == consecutive(3)


def test_header_names_that_are_no_utf8_survive_a_rebuild():
    batch = bytes(build_batch([Record(0, 0, None, None, (("name", b"x"),))])).replace(
        b"name", b"\xff\xfe\x80a"
    )
    assert build_batch(iter_records(batch))[61:] == batch[61:]


def test_a_compacted_batch_keeps_the_offsets_of_its_original():
    original = consecutive(10, base_offset=100)
    kept = [original[2], original[5]]
    batch = build_batch(
        kept, base_offset=100, last_offset_delta=9, delete_horizon_ms=123, max_timestamp=2**41
    )
    header = read_batch_header(batch)
    assert (header.base_offset, header.last_offset) == (100, 109)
    assert header.delete_horizon_ms == 123
    assert header.max_timestamp == 2**41
    assert list(iter_records(batch)) == kept


@pytest.mark.parametrize("compression", CODECS)
def test_an_empty_batch_is_a_header_that_holds_a_producers_place(compression):
    batch = build_batch(
        [],
        base_offset=7,
        last_offset_delta=4,
        compression=compression,
        producer_id=1,
        producer_epoch=0,
        base_sequence=9,
    )
    header = read_batch_header(batch)
    verify_crc(batch, 0, header)
    assert len(batch) == HEADER_SIZE_BYTES
    assert (header.last_offset, header.last_sequence, header.record_count) == (11, 13, 0)
    assert list(iter_records(batch)) == []


def test_records_out_of_order_are_a_mistake_of_ours():
    with pytest.raises(ValueError, match="out of order"):
        build_batch([Record(1, 0, None, b""), Record(1, 0, None, b"")])
    with pytest.raises(ValueError, match="out of order"):
        build_batch([Record(3, 0, None, b"")], base_offset=4)


def test_sequences_wrap_to_zero():
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 2, 3) == 1
    header = read_batch_header(
        build_batch(consecutive(3), producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    )
    assert header.last_sequence == 0
    assert read_batch_header(build_batch(consecutive(3))).last_sequence == NO_SEQUENCE


# The clients' own builders and readers --------------------------------------------------------------


def by_kafka_python(records, compression):
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def by_aiokafka(records, compression):
    builder = AiokafkaBuilder(2, compression, False, -1, -1, -1, 1 << 20)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


# gzip carries the writer's clock and level; in lz4 kafka-python writes the content size, which Java does not.
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.SNAPPY, Compression.ZSTD])
def test_a_batch_has_the_same_bytes_as_kafka_pythons(compression):
    records = consecutive(200)
    ours = build_batch(records, compression=compression)
    theirs = bytearray(by_kafka_python(records, compression))
    patch_batch(theirs, 0, 0, -1)  # kafka-python leaves leader epoch 0
    assert ours == theirs


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("build", [by_kafka_python, by_aiokafka])
def test_what_a_client_built_is_read(build, compression):
    records = consecutive(200)
    batch = build(records, compression)
    header = read_batch_header(batch)
    assert header.compression == compression
    verify_crc(batch, 0, header)
    assert list(iter_records(batch)) == records


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("reader", [KafkaPythonBatch, AiokafkaBatch])
def test_clients_read_what_we_built(reader, compression):
    records = consecutive(200, base_offset=1000)
    batch = reader(bytes(build_batch(records, compression=compression)))
    assert batch.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in batch]
    assert read == [tuple(record) for record in records]


# Patching -------------------------------------------------------------------------------------------


def test_a_place_in_the_log_leaves_the_checksum_as_it_was():
    batch = bytearray(b"..") + build_batch(consecutive(4))
    patch_batch(batch, 2, 5_000_000_000, 17)
    header = read_batch_header(batch, 2)
    verify_crc(batch, 2, header)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (5_000_000_000, 5_000_000_003, 17)
    assert [record.offset for record in iter_records(batch[2:])] == list(range(5_000_000_000, 5_000_000_004))


@pytest.mark.parametrize("compression", CODECS)
def test_log_append_time_is_every_records_timestamp(compression):
    batch = bytearray(b"..") + build_batch(consecutive(4), compression=compression)
    header = read_batch_header(batch, 2)
    set_log_append_time(batch, 2, header, 1_700_000_000_123)
    assert header == read_batch_header(batch, 2)
    verify_crc(batch, 2, header)
    assert header.uses_log_append_time
    assert {record.timestamp for record in iter_records(batch[2:])} == {1_700_000_000_123}
    assert {r.timestamp for r in KafkaPythonBatch(bytes(batch[2:]))} == {1_700_000_000_123}
    built = build_batch(consecutive(4), compression=compression, log_append_time_ms=1_700_000_000_123)
    assert built == batch[2:]


def test_a_wrong_max_timestamp_can_be_put_right():
    batch = build_batch(consecutive(4), max_timestamp=5)
    header = read_batch_header(batch)
    set_max_timestamp(batch, 0, header, 1_600_000_000_021)
    assert batch == build_batch(consecutive(4))
    assert header == read_batch_header(batch)


# Control records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_marker_says_how_the_transaction_ended(committed):
    batch = end_txn_marker(
        committed=committed,
        producer_id=9,
        producer_epoch=2,
        coordinator_epoch=31,
        timestamp=1234,
        base_offset=6,
    )
    header = read_batch_header(batch)
    verify_crc(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (9, 2, NO_SEQUENCE)
    [record] = iter_records(batch)
    assert read_end_txn_marker(record) == EndTransactionMarker(committed, 31)
    [theirs] = KafkaPythonBatch(bytes(batch))
    assert (theirs.commit, theirs.abort) == (committed, not committed)


def test_other_control_records_are_not_markers():
    assert read_end_txn_marker(Record(0, 0, b"\0\0\0\x02", b"\0\0")) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, None), (b"\0\0", b""), (b"\0\0\0\1", b"\0\0"), (b"\xff\xff\0\1", b"\0" * 6)]
)
def test_a_damaged_marker_is_refused(key, value):
    assert refusal(read_end_txn_marker, Record(0, 0, key, value)) == ErrorCode.INVALID_RECORD


def test_a_marker_of_a_later_version_is_read():
    record = Record(0, 0, b"\0\1\0\1more", b"\0\1\0\0\0\7more")
    assert CONTROL_COMMIT == 1
    assert read_end_txn_marker(record) == EndTransactionMarker(True, 7)


# Damage ---------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found_outside_of_what_the_broker_sets():
    sound = bytes(build_batch(consecutive(3)))
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit // 8 < 8 or 12 <= bit // 8 < 16:  # base offset and leader epoch, which the broker sets
            verify_crc(damaged, 0, read_batch_header(damaged))
        else:
            assert refusal(lambda batch: verify_crc(batch, 0, read_batch_header(batch)), damaged) == (
                ErrorCode.CORRUPT_MESSAGE
            )


@pytest.mark.parametrize("compression", CODECS)
def test_a_batch_cut_anywhere_is_refused(compression):
    sound = bytes(build_batch(consecutive(9), compression=compression))
    for end in range(1, len(sound)):
        assert refusal(list, iter_batches(sound[:end])) == ErrorCode.CORRUPT_MESSAGE
    for end in range(HEADER_SIZE_BYTES, len(sound)):
        header = read_batch_header(sound[:end])
        assert refusal(verify_crc, sound[:end], 0, header) == ErrorCode.CORRUPT_MESSAGE
        assert refusal(iter_records, sound[:end]) == ErrorCode.CORRUPT_MESSAGE
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_another_magic_is_refused(magic):
    batch = build_batch(consecutive(1))
    batch[16] = magic
    assert refusal(read_batch_header, batch) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_size_below_the_header_is_refused(length):
    batch = build_batch(consecutive(1))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    assert refusal(read_batch_header, batch) == ErrorCode.CORRUPT_MESSAGE


def test_records_may_be_plain_tuples_from_a_generator():
    rows = consecutive(3)
    assert build_batch(tuple(row) for row in rows) == build_batch(rows)
    assert build_batch(iter(()), last_offset_delta=4) == build_batch([], last_offset_delta=4)
