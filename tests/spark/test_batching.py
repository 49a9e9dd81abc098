"""Rows become record batches: read back by our reader and by a client's, placed where Kafka places them."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pyarrow = pytest.importorskip("pyarrow")

from kafka.partitioner.default import murmur2 as kafka_python_murmur2  # noqa: E402
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch  # noqa: E402

from odradek.spark import _batching  # noqa: E402
from odradek.spark.batching import Batches, RowsRefused  # noqa: E402
from odradek.wire.compression import Compression  # noqa: E402
from odradek.wire.records import iter_records, read_batch_header, validate_header, verify_crc  # noqa: E402
from tests.oracles import batching as oracle  # noqa: E402

BOTH = [_batching, oracle]
NOW_MS = 1_767_225_600_000
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
SCHEMA = pyarrow.schema(
    {
        "key": pyarrow.binary(),
        "value": pyarrow.binary(),
        "headers": HEADERS,
        "topic": pyarrow.string(),
        "partition": pyarrow.int32(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
    }
)
PARTITIONS = {"one": 1, "three": 3, "seven": 7}


def batches_of(*, module=_batching, **options):
    options.setdefault("now_ms", lambda: NOW_MS)
    return Batches(PARTITIONS.__getitem__, encoder=module.RecordEncoder, **options)


def taken_up(batches, *record_batches):
    """All that comes of the rows, as (topic, partition, batch)."""
    found = []
    for record_batch in record_batches:
        found += batches.add(record_batch)
    found += batches.drain()
    return [
        (
            one.topic,
            one.partition,
            one.batch(producer_id=7, producer_epoch=2, base_sequence=5, transactional=True),
        )
        for one in found
    ]


def read(batch):
    """The records of a batch that a broker takes from a client."""
    header = read_batch_header(batch)
    verify_crc(batch, 0, header)
    validate_header(header)
    assert header.size_bytes == len(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)
    assert header.is_transactional
    return list(iter_records(batch, header))


def rows(count, **columns):
    return pyarrow.record_batch(
        {name: pyarrow.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    ).slice(0, count)


ROW = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=20),
        "value": st.none() | st.binary(max_size=300),
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=9)}),
            max_size=3,
        ),
        "topic": st.sampled_from(sorted(PARTITIONS)),
        "partition": st.none() | st.just(0),
        "timestamp": st.none() | st.integers(-(10**15), 10**17),
    }
)


def expected_record(row):
    timestamp = NOW_MS if row["timestamp"] is None else row["timestamp"] // 1000
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return timestamp, row["key"], row["value"], headers


def expected_place(row):
    if row["partition"] is not None:
        return row["partition"]
    if row["key"] is None:
        return None
    return (kafka_python_murmur2(row["key"]) & 0x7FFFFFFF) % PARTITIONS[row["topic"]]


@settings(max_examples=60)
@given(
    table=st.lists(ROW, max_size=40),
    skipped=st.integers(0, 3),
    batch_bytes=st.sampled_from([100, 700, 100_000]),
)
def test_every_row_is_read_back_where_it_belongs(table, skipped, batch_bytes):
    whole = pyarrow.RecordBatch.from_pylist([{"topic": "one"}] * skipped + table, SCHEMA)
    results = []
    for module in BOTH:
        batches = batches_of(module=module, batch_bytes=batch_bytes)
        results.append(
            (taken_up(batches, whole.slice(skipped)), batches.rows, batches.checksum, batches.sample)
        )
    assert results[0] == results[1]
    found, count, _, sample = results[0]
    assert count == len(table)
    assert sample == sorted(set(sample))
    assert len(sample) <= min(32, len(table))
    left = [(row["topic"], expected_place(row), expected_record(row)) for row in table]
    for topic, partition, batch in found:
        records = read(batch)
        assert [record.offset for record in records] == list(range(len(records)))
        assert len(batch) <= batch_bytes or len(records) == 1
        for record in records:
            content = (record.timestamp, record.key, record.value, record.headers)
            place = next(
                index
                for index, row in enumerate(left)
                if row == (topic, partition, content) or row == (topic, None, content)
            )
            # Those of a partition come in order: whatever was jumped over belongs to another one.
            assert (topic, partition) not in [row[:2] for row in left[:place]]
            del left[place]
    assert left == []


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
def test_clients_read_every_codec(codec):
    table = rows(
        2000,
        key=[b"key-%d" % (n % 7) for n in range(2000)],
        value=[None if n % 9 == 0 else b"value %d " % n * 5 for n in range(2000)],
        headers=[[{"key": "h", "value": b"%d" % n}] if n % 3 else None for n in range(2000)],
    )
    found = taken_up(batches_of(topic="three", compression=codec), table)
    assert [place[:2] for place in found] == [("three", 0), ("three", 1), ("three", 2)]
    seen = []
    for _, partition, batch in found:
        for record in KafkaPythonBatch(bytes(batch)):
            assert (kafka_python_murmur2(record.key) & 0x7FFFFFFF) % 3 == partition
            seen.append((record.key, record.value, record.headers, record.timestamp))
        assert read_batch_header(batch).compression == codec
    numbers = range(2000)
    expected = [
        (
            b"key-%d" % (n % 7),
            None if n % 9 == 0 else b"value %d " % n * 5,
            [("h", b"%d" % n)] if n % 3 else [],
            NOW_MS,
        )
        for n in numbers
    ]
    assert sorted(seen, key=repr) == sorted(expected, key=repr)


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_keys_are_hashed_as_clients_do(key):
    for module in BOTH:
        assert module.murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_rows_without_a_key_stay_together_and_move_on():
    table = rows(900, value=[b"%0100d" % n for n in range(900)])
    found = taken_up(batches_of(topic="three", batch_bytes=10_061, sticky_start=4), table)
    places = [partition for _, partition, _ in found]
    assert places[:6] == [1, 2, 0, 1, 2, 0]
    assert all(len(batch) > 9_000 for _, _, batch in found[:-3])
    numbers = sorted(int(record.value) for _, _, batch in found for record in read(batch))
    assert numbers == list(range(900))


def test_the_checksum_is_of_the_rows_and_not_of_their_order():
    def checksum(table, **options):
        batches = batches_of(**options)
        taken_up(batches, *table.to_batches(max_chunksize=7))
        return batches.rows, batches.checksum, batches.sample

    table = pyarrow.table(
        {
            "key": pyarrow.array([b"k%d" % (n % 5) for n in range(50)]),
            "value": pyarrow.array([b"v%d" % n for n in range(50)]),
            "topic": pyarrow.array(["three" if n % 2 else "seven" for n in range(50)]),
        }
    )
    shuffled = table.take(pyarrow.array([(n * 7) % 50 for n in range(50)]))
    assert checksum(table) == checksum(shuffled) == checksum(table, batch_bytes=200, sticky_start=2)
    assert checksum(table) != checksum(table.slice(1))
    twice = pyarrow.concat_tables([table.slice(1), table.slice(1, 1)])
    assert checksum(twice) != checksum(table)
    assert checksum(table) != checksum(table, topic="one")
    swapped = table.rename_columns(["value", "key", "topic"])
    assert checksum(table) != checksum(swapped)
    placed = table.append_column("partition", pyarrow.array([0] * 50, pyarrow.int32()))
    assert checksum(table) != checksum(placed)


def test_large_and_text_columns_are_taken_as_bytes():
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000)
    table = pyarrow.record_batch(
        {
            "key": pyarrow.array(["schlüssel"], pyarrow.large_string()),
            "value": pyarrow.array([b"x" * 3_000_000], pyarrow.large_binary()),
            "headers": pyarrow.array(
                [[{"key": "a", "value": b"1"}]],
                pyarrow.large_list(
                    pyarrow.struct([("key", pyarrow.large_string()), ("value", pyarrow.large_binary())])
                ),
            ),
            "timestamp": pyarrow.array([when], pyarrow.timestamp("ns")),
            "offset": pyarrow.array([12]),
        }
    )
    ((_, _, batch),) = taken_up(batches_of(topic="one"), table)
    (record,) = read(batch)
    assert record.key == "schlüssel".encode()
    assert record.value == b"x" * 3_000_000
    assert record.headers == (("a", b"1"),)
    assert record.timestamp == int(when.replace(tzinfo=datetime.UTC).timestamp() * 1000)


def test_what_is_held_has_a_bound():
    encoders = []
    batches = Batches(
        PARTITIONS.__getitem__,
        encoder=lambda size: encoders.append(_batching.RecordEncoder(size)) or encoders[0],
        topic="seven",
        batch_bytes=1 << 20,
        memory_bytes=1 << 20,
    )
    value = b"x" * 10_000
    most = 0
    for _ in range(20):
        table = rows(100, key=[b"%d" % n for n in range(100)], value=[value] * 100)
        for _ in batches.add(table):
            pass
        most = max(most, encoders[0].held_bytes)
    assert most <= 1 << 20


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"partition": [0, 3]}, "a row names partition 3 of topic three, which has 3"),
        ({"partition": [0, -1]}, "a row names partition -1 of topic three"),
        ({"topic": ["three", None]}, "a row has null as its topic"),
        (
            {"headers": [None, [{"key": None, "value": b""}]]},
            "a row for topic three has a header without a key",
        ),
        ({"headers": [None, [None]]}, "a row for topic three has a header without a key"),
    ],
)
def test_a_row_that_cannot_be_a_record_is_refused(columns, sentence):
    columns = {"value": [b"a", b"b"], "topic": ["three", "three"], **columns}
    with pytest.raises(RowsRefused, match=sentence):
        list(batches_of().add(rows(2, **columns)))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"topic": pyarrow.array(["one"])}, None),
        ({}, 'the rows have no column "topic"'),
        (
            {"topic": pyarrow.array(["one"]), "timestamp": pyarrow.array([1])},
            'column "timestamp" has the type int64',
        ),
        (
            {"topic": pyarrow.array(["one"]), "headers": pyarrow.array([[1]])},
            'column "headers" has the type list',
        ),
        (
            {"topic": pyarrow.array(["one"]), "value": pyarrow.array([1.5])},
            'column "value" cannot be written',
        ),
    ],
)
def test_a_column_that_cannot_be_written_is_refused(columns, sentence):
    table = pyarrow.record_batch({"value": pyarrow.array([b"a"]), **columns})
    batches = batches_of()
    if sentence is None:
        assert [record.value for _, _, batch in taken_up(batches, table) for record in read(batch)] == [b"a"]
    else:
        with pytest.raises(RowsRefused, match=sentence):
            list(batches.add(table))
