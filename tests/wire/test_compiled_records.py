"""The compiled part of `records`: right by itself, and alike to the oracle to the last refusal."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire import _records
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import (
    HEADER_SIZE_BYTES,
    Record,
    RecordTable,
    build_batch,
    build_keyed_batch,
    iter_whole_batches,
    rising_batches,
)
from tests.oracles import records as oracle
from tests.tiers import examples

BOTH = [_records, oracle]
LATEST = 2**63 - 1


def outcome(call, *arguments, **options):
    """What a call returned, or the code and text it refused with; anything else it raises is a failure."""
    try:
        return call(*arguments, **options)
    except KafkaError as error:
        return (error.code, error.message)


def sections(*records):
    return b"".join(varint(len(record)) + record for record in records)


def varint(value):
    raw = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes(out) + bytes([raw])


ZERO, NULL = varint(0), varint(-1)


def record(*, timestamp=ZERO, offset=ZERO, key=NULL, value=NULL, headers=ZERO):
    return b"\0" + timestamp + offset + key + value + headers


def table_of(result):
    return [list(column) for column in result]


# Each by itself -------------------------------------------------------------------------------------


def test_the_table_says_where_everything_is():
    headers = varint(2) + varint(1) + b"h" + varint(-1) + varint(0) + varint(2) + b"vv"
    data = sections(
        record(key=varint(3) + b"key", value=varint(0)),
        record(timestamp=varint(-5), offset=varint(300), value=varint(200) + bytes(200), headers=headers),
    )
    table = _records.scan_records(data, 2, 1000, 50)
    assert list(table.offsets) == [1000, 1300]
    assert list(table.timestamps) == [50, 45]
    assert list(table.key_sizes) == [3, -1]
    assert list(table.value_sizes) == [0, 200]
    assert data[table.key_positions[0] :].startswith(b"key")
    assert data[table.value_positions[1] : table.value_positions[1] + 200] == bytes(200)
    assert table.header_positions[0] == -1
    assert data[table.header_positions[1] :] == headers


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (varint(2**31 - 1), 2**31 - 1),
        (varint(-(2**31)), -(2**31)),
        (b"\x80\x00", 0),  # longer than it needs to be
        (b"\x82\x80\x80\x80\x00", 1),
        (b"\xff\xff\xff\xff\xff", None),  # no end within five bytes
        (b"\xfe\xff\xff\xff\x7f", 2**31 - 1),  # more than 32 bits: cut off, as Java does
    ],
)
def test_an_offset_delta_is_a_number_of_32_bits(encoded, value):
    result = outcome(_records.scan_records, sections(record(offset=encoded)), 1, 0, 0)
    if value is None:
        assert result[0] == ErrorCode.INVALID_RECORD
    else:
        assert list(result.offsets) == [value]


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (varint(2**63 - 1), 2**63 - 1),
        (varint(-(2**63)), -(2**63)),
        (b"\x80" * 9 + b"\x00", 0),
        (b"\x80" * 10 + b"\x00", None),
        (b"\xfe" + b"\xff" * 8 + b"\x7f", 2**63 - 1),
    ],
)
def test_a_timestamp_delta_is_a_number_of_64_bits(encoded, value):
    result = outcome(_records.scan_records, sections(record(timestamp=encoded)), 1, 0, 0)
    if value is None:
        assert result[0] == ErrorCode.INVALID_RECORD
    else:
        assert list(result.timestamps) == [value]


@pytest.mark.parametrize(("base", "delta"), [(1, 2**63 - 1), (-2, -(2**63))])
def test_a_timestamp_beyond_64_bits_is_refused(base, delta):
    code, _ = outcome(_records.scan_records, sections(record(timestamp=varint(delta))), 1, 0, base)
    assert code == ErrorCode.INVALID_RECORD


def test_an_offset_beyond_64_bits_is_refused():
    code, _ = outcome(_records.scan_records, sections(record(offset=varint(1))), 1, LATEST, 0)
    assert code == ErrorCode.INVALID_RECORD


def test_every_negative_size_is_null():
    table = _records.scan_records(sections(record(key=varint(-7), value=varint(-(2**31)))), 1, 0, 0)
    assert (list(table.key_sizes), list(table.value_sizes)) == ([-1], [-1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(7),
        sections(record())[:-1],
        sections(record()) + b"\0",
        sections(record() + b"\0"),
        sections(record(key=varint(1))),
        sections(record(key=varint(2**31 - 1))),
        sections(record(value=varint(5) + b"four")),
        sections(record(headers=varint(-1))),
        sections(record(headers=varint(2**31 - 1))),
        sections(record(headers=varint(1) + varint(-1) + varint(0))),
        sections(record(headers=varint(1) + varint(0))),
        sections(record(headers=varint(2) + varint(0) + varint(0))),
        varint(-1) + record(),
        varint(-(2**31)) + record(),
        varint(2**31 - 1) + record(),
        varint(6) + record(key=varint(1) + b"k"),
    ],
)
def test_records_that_lie_about_themselves_are_refused(data):
    code, _ = outcome(_records.scan_records, data, 1, 0, 0)
    assert code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 2, 2**31 - 1])
def test_a_wrong_record_count_is_refused_before_it_costs_memory(count):
    code, _ = outcome(_records.scan_records, sections(record()), count, 0, 0)
    assert code == ErrorCode.INVALID_RECORD


def test_a_survey_tells_the_timestamps_and_whether_a_key_is_missing():
    data = sections(
        record(timestamp=varint(5), key=varint(1) + b"k"),
        record(timestamp=varint(-3), offset=varint(1), key=varint(1) + b"k"),
    )
    assert _records.survey_records(memoryview(data), 2, 100) == (97, 105, False)
    assert _records.survey_records(sections(record()), 1, -1) == (-1, -1, True)


@pytest.mark.parametrize("offsets", [(1,), (0, 0), (0, 2), (1, 0), ()])
def test_a_survey_refuses_offsets_that_do_not_count_up(offsets):
    data = sections(*(record(offset=varint(offset)) for offset in offsets))
    code, _ = outcome(_records.survey_records, data, len(offsets), 0)
    assert code == ErrorCode.INVALID_RECORD
    assert _records.survey_if_sound(data, len(offsets), 0) is None


def test_no_records_are_no_bytes():
    assert table_of(_records.scan_records(b"", 0, 0, 0)) == [[]] * 7


def client_batch(**options):
    options.setdefault("base_offset", 0)
    return build_batch([Record(0, 5, b"k", b"v" * 100), Record(1, 9, None, None)], **options)


@pytest.mark.parametrize("size", [0, 5000, 200_000])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_clients_batch_is_read_from_any_buffer_and_position(size, kind):
    batch = build_batch([Record(0, 5, b"k", bytes(size))])
    frame = kind(b"abc" + bytes(batch) + b"more")
    header = _records.read_client_batch(frame, 3, len(batch))
    assert header == _records.read_batch_header(frame, 3)
    _records.verify_crc(frame, 3, header)
    assert (header.size_bytes, header.record_count, header.max_timestamp) == (len(batch), 1, 5)


def test_a_partition_gets_exactly_one_batch():
    batch = bytes(client_batch())
    code, _ = outcome(_records.read_client_batch, batch + batch, 0, 2 * len(batch))
    assert code == ErrorCode.INVALID_RECORD
    code, _ = outcome(_records.read_client_batch, batch + batch, 0, len(batch) - 1)
    assert code == ErrorCode.CORRUPT_MESSAGE
    code, _ = outcome(_records.read_client_batch, batch[:-1], 0, len(batch))
    assert code == ErrorCode.CORRUPT_MESSAGE
    code, _ = outcome(_records.read_client_batch, b"", 0, 0)
    assert code == ErrorCode.CORRUPT_MESSAGE


def test_zstd_needs_produce_7():
    batch = client_batch(compression=Compression.ZSTD)
    assert _records.read_client_batch(batch, 0, len(batch), 7).compression == Compression.ZSTD
    code, _ = outcome(_records.read_client_batch, batch, 0, len(batch), 6)
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_header_can_be_made_compared_and_changed():
    fields = (1, 61, 2, 2, 3, 0x58, 4, 5, 6, 7, 8, 2**31 - 1, 5)
    header = _records.BatchHeader(*fields)
    assert header == _records.BatchHeader(*fields)
    assert header != _records.BatchHeader(0, *fields[1:])
    assert header != fields
    assert repr(header) == repr(oracle.BatchHeader(*fields))
    assert (header.last_offset, header.last_sequence, header.delete_horizon_ms) == (5, 3, 5)
    assert header.is_transactional
    assert header.uses_log_append_time
    assert not header.is_control
    header.attributes = 0x21
    assert header.is_control
    assert (header.compression, header.delete_horizon_ms) == (1, None)


def read_records_of(module, data, count, base_offset, base_timestamp, attributes=0):
    header = module.BatchHeader(
        base_offset, 0, 0, 2, 0, attributes, count - 1, base_timestamp, 777, -1, -1, -1, count
    )
    return module.read_records(data, header)


def test_records_are_read_with_their_headers_and_times():
    headers = varint(2) + varint(1) + b"h" + varint(-1) + varint(1) + b"\xff" + varint(2) + b"vv"
    data = sections(record(key=varint(3) + b"key"), record(offset=varint(1), headers=headers))
    wanted = [
        Record(10, 50, b"key", None, ()),
        Record(11, 50, None, None, (("h", None), ("\udcff", b"vv"))),
    ]
    assert read_records_of(_records, data, 2, 10, 50) == wanted
    stamped = read_records_of(_records, data, 2, 10, 50, attributes=8)
    assert stamped == [record._replace(timestamp=777) for record in wanted]
    assert read_records_of(_records, b"", 0, 0, 0) == []


# Beside the oracle ----------------------------------------------------------------------------------

TINY = st.integers(-3, 5)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | TINY
BYTES = st.binary(max_size=4)


@st.composite
def sloppy_sections(draw):
    """Records whose numbers are mostly right."""
    records = []
    for _ in range(draw(st.integers(0, 3))):
        key, value, name = draw(BYTES), draw(BYTES), draw(BYTES)
        headers = (
            varint(draw(TINY)) if draw(st.booleans()) else varint(1) + varint(len(name)) + name + varint(-1)
        )
        body = record(
            timestamp=varint(draw(NUMBERS)),
            offset=varint(draw(NUMBERS)),
            key=varint(draw(TINY) if draw(st.booleans()) else len(key)) + key,
            value=varint(len(value)) + value,
            headers=headers,
        )
        records.append(varint(len(body) + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))) + body)
    return b"".join(records)


@settings(max_examples=examples(400))
@given(sloppy_sections() | st.binary(max_size=40), st.integers(-1, 4), NUMBERS, NUMBERS)
def test_the_oracle_scans_alike(data, count, base_offset, base_timestamp):
    results = [outcome(module.scan_records, data, count, base_offset, base_timestamp) for module in BOTH]
    if isinstance(results[0], RecordTable):
        results = [table_of(result) for result in results]
    assert results[0] == results[1]
    records = [outcome(read_records_of, module, data, count, base_offset, base_timestamp) for module in BOTH]
    assert records[0] == records[1]
    surveys = [outcome(module.survey_records, data, count, base_timestamp) for module in BOTH]
    assert surveys[0] == surveys[1]
    is_sound = len(surveys[0]) == 3
    assert _records.survey_if_sound(data, count, base_timestamp) == (surveys[0] if is_sound else None)


@settings(max_examples=examples(400))
@given(
    st.sampled_from(["B", "h", "i", "q"]),
    st.integers(0, HEADER_SIZE_BYTES),
    st.integers(-3, 5) | st.integers(),
    st.booleans(),
    st.sampled_from([-1, 0, 0, 0, 0, 0, 1]),
    st.integers(6, 7),
)
def test_the_oracle_reads_a_clients_batch_alike(kind, position, number, sealed, beyond, version):
    batch = client_batch(compression=Compression.ZSTD, producer_id=1, producer_epoch=0, base_sequence=0)
    size = struct.calcsize(kind)
    if position + size <= len(batch):
        batch[position : position + size] = (number % (1 << 8 * size)).to_bytes(size, "big")
    if sealed:
        reseal(batch)
    arguments = (bytes(batch), 0, len(batch) + beyond, version)
    results = [comparable(outcome(module.read_client_batch, *arguments)) for module in BOTH]
    assert results[0] == results[1]
    results = [comparable(outcome(module.read_batch_header, bytes(batch))) for module in BOTH]
    assert results[0] == results[1]
    results = [outcome(checksum_of, module, bytes(batch)[: len(batch) + min(beyond, 0)]) for module in BOTH]
    assert results[0] == results[1]


def checksum_of(module, batch):
    return module.verify_crc(batch, 0, module.read_batch_header(batch))


def reseal(batch):
    from crc32c import crc32c

    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))


def comparable(result):
    return result if isinstance(result, tuple) else repr(result)


KEYED_ROWS = st.lists(
    st.tuples(
        st.binary(max_size=200),
        st.none() | st.binary(max_size=200) | st.integers(0, 9000).map(bytes),
        st.integers(0, 2**45) | st.sampled_from([-1, 2**62]),
    ),
    min_size=1,
    max_size=80,
)


@settings(deadline=None)
@given(rows=KEYED_ROWS, producer=st.sampled_from([(-1, -1), (0, 0), (2**40, 32767)]))
def test_what_a_coordinator_writes_is_what_build_batch_makes_of_it(rows, producer):
    records = [Record(offset, timestamp, key, value) for offset, (key, value, timestamp) in enumerate(rows)]
    wanted = build_batch(
        records, producer_id=producer[0], producer_epoch=producer[1], transactional=producer[0] != -1
    )
    assert build_keyed_batch(rows, *producer) == wanted


@settings(max_examples=examples(200), deadline=None)
@given(
    gaps=st.lists(st.sampled_from([0, 0, 1, 7, -1]), min_size=1, max_size=8),
    epochs=st.lists(st.sampled_from([2, 2, 2, 3]), min_size=8, max_size=8),
    cut=st.integers(0, 800),
    bit=st.none() | st.integers(0, 8 * 23),
)
def test_batches_that_rise_are_found_as_by_a_walk_over_their_headers(gaps, epochs, cut, bit):
    content, offset = bytearray(), 10
    for gap, epoch in zip(gaps, epochs, strict=False):
        offset += gap
        content += build_batch([Record(offset, 0, b"k", b"v")], base_offset=offset, leader_epoch=epoch)
        offset += 1
    if bit is not None:
        content[bit // 8] ^= 1 << bit % 8
    content = bytes(content)[: len(content) - cut] if cut < len(content) else bytes(content)
    end, next_offset = 0, 10
    try:
        for _, header in iter_whole_batches(content):
            if header.leader_epoch > 2 or header.base_offset < next_offset:
                break
            end, next_offset = end + header.size_bytes, header.last_offset + 1
    except KafkaError:
        pass
    assert rising_batches(content, 10, 2) == (end, next_offset)
