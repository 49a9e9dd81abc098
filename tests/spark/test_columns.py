"""Record batches as Arrow columns: the rows that `iter_records` gives, in the types of Spark's Kafka
source.
"""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.client_error import ClientError
from odradek.spark import _columns, columns
from odradek.spark.columns import COLUMNS, METADATA_COLUMNS, SCHEMA, ColumnBuilder, CorruptRecords, schema_of
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode
from odradek.wire.legacy_records import build_message, to_legacy
from odradek.wire.records import (
    HEADER_SIZE_BYTES,
    build_batch,
    end_txn_marker,
    iter_batches,
    iter_records,
    read_batch_header,
)
from tests.oracles import columns as oracle

BOTH = [_columns.RecordColumns, oracle.RecordColumns]
ALL = {"keys": True, "values": True, "offsets": True, "timestamps": True, "headers": True}


def builder(names=COLUMNS, **options):
    return ColumnBuilder(names, **{"topic": "t", "read_committed": False, **options})


def rows(built):
    """Everything that was gathered, as dictionaries; timestamps as microseconds."""
    found = []
    while (batch := built.take()) is not None:
        batch.validate(full=True)
        if "timestamp" in batch.schema.names:
            place = batch.schema.get_field_index("timestamp")
            batch = batch.set_column(place, "timestamp", batch.column(place).cast(pa.int64()))
        found += batch.to_pylist()
    return found


def gathered(buffer, names=COLUMNS, partition=3, aborted=(), open_from=None, **options):
    built = builder(names, **options)
    built.add(buffer, partition, aborted, open_from)
    return rows(built)


def values(found):
    return [row["value"] for row in found]


def expected_rows(buffer, partition=3):
    found = []
    for position, header in iter_batches(buffer):
        for record in iter_records(buffer[position : position + header.size_bytes]):
            headers = [{"key": name, "value": value} for name, value in record.headers]
            found.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "topic": "t",
                    "partition": partition,
                    "offset": record.offset,
                    "timestamp": 1000 * record.timestamp,
                    "timestampType": int(header.uses_log_append_time),
                    "headers": headers or None,
                }
            )
    return found


# Types


def test_the_columns_have_the_very_types_of_sparks_kafka_source():
    assert [(field.name, str(field.type), field.nullable) for field in SCHEMA] == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("topic", "string", True),
        ("partition", "int32", True),
        ("offset", "int64", True),
        ("timestamp", "timestamp[us, tz=UTC]", True),
        ("timestampType", "int32", True),
        ("headers", "list<element: struct<key: string, value: binary>>", True),
    ]


def test_an_arrow_batch_has_the_columns_that_were_named_in_that_order():
    built = builder(["offset", "codec", "key"])
    built.add(batch(b"a"), 0)
    assert built.take().schema == schema_of(["offset", "codec", "key"])
    assert builder(metadata=True).schema.names == [*COLUMNS, *METADATA_COLUMNS]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["value", "values"], "there is no column 'values': there are key, value, topic"),
        (["key", "key"], "the columns key, key have to be one or more, each once"),
        ([], r"the columns \(none\) have to be one or more"),
    ],
)
def test_columns_that_cannot_be_are_refused(names, sentence):
    with pytest.raises(ClientError, match=sentence):
        schema_of(names)


# Equality with iter_records, and with the oracle

small_bytes = st.none() | st.binary(max_size=40)
names_of_headers = st.text(max_size=8) | st.sampled_from(["", "traceparent", "ü"])
records_of_a_batch = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.integers(-(10**13), 10**13),
        small_bytes,
        small_bytes,
        st.lists(st.tuples(names_of_headers, small_bytes), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def log_of(batches):
    """Batches one after the other; the first number of a record is how far it is behind the one before it."""
    offset, log = 0, b""
    for gaps, codec, append_time in batches:
        records = []
        for gap, *rest in gaps:
            offset += gap
            records.append((offset, *rest))
        log += build_batch(records, compression=codec, log_append_time_ms=append_time)
    return log


logs = st.lists(
    st.tuples(records_of_a_batch, st.sampled_from(Compression), st.none() | st.integers(0, 10**13)),
    max_size=4,
).map(log_of)


@given(
    log=logs, names=st.sets(st.sampled_from(COLUMNS), min_size=1), bounds=st.tuples(*[st.integers(0, 99)] * 2)
)
def test_every_row_is_that_of_iter_records(log, names, bounds):
    start, end = bounds
    ordered = [name for name in COLUMNS if name in names]
    wanted = [
        {name: row[name] for name in ordered} for row in expected_rows(log) if start <= row["offset"] < end
    ]
    assert gathered(log, ordered, start=start, end=end) == wanted


@settings(max_examples=25)
@given(log=logs)
def test_what_is_cut_off_at_the_end_is_left_out(log):
    ends = [position + header.size_bytes for position, header in iter_batches(log)]
    cut = len(log) - 1
    whole = max([end for end in ends if end <= cut], default=0)
    assert gathered(log[:cut] if log else b"") == expected_rows(log[:whole])


@settings(max_examples=60)
@given(
    gaps=records_of_a_batch,
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
)
def test_the_oracle_takes_and_refuses_the_same(gaps, damage):
    log = log_of([(gaps, 0, None)])
    header = read_batch_header(log)
    section = bytearray(log[HEADER_SIZE_BYTES:])
    for place, value in damage:
        section[place % len(section)] = value
    outcomes = []
    for record_columns in BOTH:
        taking = record_columns(**ALL)
        outcomes.append(
            [
                taking.add_section(log[HEADER_SIZE_BYTES:], header, 0, 99, True),
                taking.add_section(section, header, 0, 99),
                taking.add_section(memoryview(section), header, 2, 50, True),
                taking.rows,
                taking.size_bytes,
                as_lists(taking.take()),
                taking.rows,
            ]
        )
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] is True


def values_of(rows, column):
    validity = pa.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, column.nulls).to_pylist()


def as_lists(taken):
    rows, headers = taken.rows, taken.headers
    return [
        values_of(rows, taken.keys),
        values_of(rows, taken.values),
        numbers(taken.offsets, "q", rows),
        numbers(taken.timestamps, "q", rows),
        numbers(headers.offsets, "i", rows + 1),
        values_of(headers.total, headers.names),
        values_of(headers.total, headers.values),
        headers.nulls,
    ]


def numbers(buffer, kind, count):
    return list(memoryview(buffer).cast("B").cast(kind)[:count])


def test_a_section_that_is_refused_leaves_what_was_there():
    good = build_batch([(index, 5, b"k" if index % 2 else None, None, [("h", None)]) for index in range(11)])
    bad = bytearray(good)
    bad[-1] = 8
    taking = _columns.RecordColumns(**ALL)
    for buffer, is_taken in ((good, True), (bad, False), (good, True), (bad, False)):
        header = read_batch_header(buffer)
        assert taking.add_section(memoryview(buffer)[HEADER_SIZE_BYTES:], header, 0, 99) is is_taken
    keys, found, *_, names, contents, nulls = as_lists(taking.take())
    assert keys == 2 * [b"k" if index % 2 else None for index in range(11)]
    assert found == [None] * 22
    assert (names, contents, nulls) == ([b"h"] * 22, [None] * 22, 0)


def test_a_count_that_lies_reserves_no_memory():
    header = read_batch_header(batch(b"a"))
    header.record_count = 2**31 - 1
    assert not _columns.RecordColumns(**ALL).add_section(batch(b"a")[HEADER_SIZE_BYTES:], header, 0, 99)


# What is left out


def batch(*contents, base_offset=0, **options):
    records = [(base_offset + index, 7, None, value, ()) for index, value in enumerate(contents)]
    return build_batch(records, **options)


def transactional(producer_id, *contents, base_offset):
    return batch(
        *contents,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=2,
        base_sequence=0,
        transactional=True,
        leader_epoch=4,
    )


def marker(producer_id, committed, base_offset):
    return end_txn_marker(
        committed=committed,
        producer_id=producer_id,
        producer_epoch=2,
        coordinator_epoch=0,
        timestamp=9,
        base_offset=base_offset,
    )


TRANSACTIONS = b"".join(
    [
        batch(b"plain", base_offset=0),
        transactional(1, b"a1", b"a2", base_offset=1),
        transactional(2, b"b1", base_offset=3),
        marker(1, False, 4),
        transactional(1, b"a3", base_offset=5),
        marker(2, True, 6),
        marker(1, True, 7),
        transactional(3, b"c1", base_offset=8),
    ]
)
ABORTED = [(1, 1)]


def test_aborted_records_and_markers_are_left_out_for_a_reader_of_what_is_committed():
    read = gathered(TRANSACTIONS, aborted=ABORTED, read_committed=True)
    assert values(read) == [b"plain", b"b1", b"a3", b"c1"]
    everything = gathered(TRANSACTIONS, aborted=ABORTED)
    assert values(everything) == [b"plain", b"a1", b"a2", b"b1", b"a3", b"c1"]


def test_a_reader_that_starts_within_an_aborted_transaction_sees_none_of_it():
    within = TRANSACTIONS[len(batch(b"plain")) :]
    read = gathered(within, aborted=ABORTED, read_committed=True, start=2)
    assert values(read) == [b"b1", b"a3", b"c1"]


def test_the_batch_tells_of_its_producer_its_transaction_and_its_codec():
    log = TRANSACTIONS + batch(b"z", base_offset=9, compression=Compression.ZSTD)
    read = gathered(log, ["value", *METADATA_COLUMNS], aborted=ABORTED, open_from={3: 8})
    none = dict.fromkeys(METADATA_COLUMNS)
    of_a_producer = {**none, "producerEpoch": 2, "leaderEpoch": 4, "codec": "none"}
    assert read == [
        {**none, "value": b"plain", "codec": "none"},
        {**of_a_producer, "value": b"a1", "producerId": 1, "transactionState": "aborted"},
        {**of_a_producer, "value": b"a2", "producerId": 1, "transactionState": "aborted"},
        {**of_a_producer, "value": b"b1", "producerId": 2, "transactionState": "committed"},
        {**of_a_producer, "value": b"a3", "producerId": 1, "transactionState": "committed"},
        {**of_a_producer, "value": b"c1", "producerId": 3, "transactionState": "open"},
        {**none, "value": b"z", "codec": "zstd"},
    ]


def test_a_batch_without_records_gives_no_rows():
    empty = build_batch([], base_offset=4, last_offset_delta=2)
    assert values(gathered(empty + batch(b"a", base_offset=7))) == [b"a"]
    assert gathered(b"") == []


def test_batches_of_several_partitions_keep_theirs():
    built = builder(["partition", "value"])
    for partition in (5, 5, 2):
        built.add(batch(b"%d" % partition), partition)
    assert built.rows == 3
    assert rows(built) == [{"partition": number, "value": b"%d" % number} for number in (5, 5, 2)]
    assert (built.rows, built.take()) == (0, None)


# Odd ones


def test_names_of_headers_are_read_as_java_reads_them():
    names = ["plain", "\u00fc", "\udcff\udcfe", "x\udc80y"]
    log = build_batch([(0, 0, None, b"v", [(name, b"1") for name in names])], compression=Compression.LZ4)
    (row,) = gathered(log, ["headers", "codec"])
    assert [header["key"] for header in row["headers"]] == ["plain", "\u00fc", "\ufffd\ufffd", "x\ufffdy"]
    assert row["codec"] == "lz4"


@pytest.mark.parametrize("timestamp", [-1, 0, 2**63 // 1000, -(2**63) // 1000 + 1])
def test_timestamps_become_microseconds(timestamp):
    log = build_batch([(0, timestamp, None, b"v", ())])
    assert gathered(log, ["timestamp"]) == [{"timestamp": 1000 * timestamp}]


@pytest.mark.parametrize("timestamp", [2**63 // 1000 + 1, -(2**63) // 1000 - 1])
def test_a_timestamp_that_spark_cannot_have_is_refused_only_where_it_is_wanted(timestamp):
    log = build_batch([(4, timestamp, None, b"v", ())])
    with pytest.raises(
        CorruptRecords, match=f"offset 4 has the timestamp {timestamp}.*without the column"
    ) as caught:
        gathered(log)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert gathered(log, ["value", "offset"]) == [{"value": b"v", "offset": 4}]


def test_large_values_and_many_rows_come_in_several_arrow_batches(monkeypatch):
    monkeypatch.setattr(columns, "BATCH_ROWS", 3)
    built = builder(["offset"])
    built.add(b"".join(batch(b"a", b"b", base_offset=offset) for offset in range(0, 10, 2)), 0)
    assert built.rows == 4
    assert [built.take().num_rows for _ in range(3)] == [4, 4, 2]
    assert built.take() is None
    monkeypatch.setattr(columns, "BATCH_BYTES", 1 << 20)
    built = builder(["value"])
    large = random.Random(1).randbytes(1 << 20)
    built.add(batch(large) + batch(b"small") + batch(large), 0)
    assert built.size_bytes > 2 << 20
    assert [batch.column(0).to_pylist() for batch in iter(built.take, None)] == [[large], [b"small", large]]


# What is not sound


def refused(buffer, **options):
    with pytest.raises(CorruptRecords) as caught:
        gathered(buffer, **options)
    return caught.value


def test_a_wrong_checksum_is_refused_by_name():
    damaged = batch(b"a") + batch(b"b", base_offset=1)
    damaged[-1] ^= 1
    built = builder()
    with pytest.raises(
        CorruptRecords,
        match=r"topic t, partition 6, the batch at offset 1 cannot be read: the batch's checksum is",
    ) as caught:
        built.add(damaged, 6)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert values(rows(built)) == [b"a"]
    unchecked = batch(b"a")
    unchecked[17] ^= 1
    assert values(gathered(unchecked, check_crcs=False)) == [b"a"]


def test_records_that_are_not_sound_are_refused_whatever_the_checksum():
    damaged = batch(b"abc")
    damaged[HEADER_SIZE_BYTES] += 2
    error = refused(damaged, check_crcs=False)
    assert error.code == ErrorCode.INVALID_RECORD
    assert "a record ends 1 bytes after its batch" in str(error)


@pytest.mark.parametrize(("position", "value"), [(16, 3), (8, 0xFF)])
def test_what_no_format_has_is_refused(position, value):
    damaged = batch(b"abc")
    damaged[position] = value
    assert "which no format has" in str(refused(damaged))


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_what_unpacks_to_too_much_is_refused(codec, monkeypatch):
    monkeypatch.setattr(columns, "DEFAULT_LIMIT_BYTES", 100_000)
    bomb = batch(bytes(200_000), compression=codec)
    assert refused(bomb).code == ErrorCode.MESSAGE_TOO_LARGE
    assert values(gathered(batch(bytes(90_000), compression=codec))) == [bytes(90_000)]


def test_a_codec_that_nobody_has_and_packed_bytes_that_are_none_are_refused():
    unknown = batch(b"a")
    unknown[22] |= 7
    assert refused(unknown, check_crcs=False).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    damaged = batch(b"a", compression=Compression.ZSTD)[:HEADER_SIZE_BYTES] + b"is not zstd"
    damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
    assert refused(damaged, check_crcs=False).code == ErrorCode.CORRUPT_MESSAGE


# Formats v0 and v1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_rows_too(magic, codec):
    old = batch(b"a", b"b", b"c", base_offset=5, compression=codec)
    log = to_legacy(old, magic, 5) + batch(b"d", base_offset=8)
    read = gathered(log, ["offset", "value", "timestamp", "timestampType", "headers", "codec"], start=6)
    no_time = magic == 0
    assert read == [
        {
            "offset": offset,
            "value": value,
            "timestamp": -1000 if no_time and offset < 8 else 7000,
            "timestampType": -1 if no_time and offset < 8 else 0,
            "headers": None,
            "codec": codec.name.lower() if offset < 8 else "none",
        }
        for offset, value in [(6, b"b"), (7, b"c"), (8, b"d")]
    ]


def test_an_old_message_with_a_wrong_checksum_is_refused():
    damaged = bytearray(build_message(1, offset=3, timestamp=1, key=None, value=b"abc"))
    damaged[-1] ^= 1
    assert "offset 3 cannot be read: a message's checksum is" in str(refused(damaged))
