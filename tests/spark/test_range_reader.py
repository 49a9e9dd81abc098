"""One task: a range becomes Arrow batches that are bounded, and what is lost is said or passed over."""

import os
import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from odradek.client.client_error import ClientError
from odradek.spark import range_reader
from odradek.spark.offsets import OffsetRange
from odradek.spark.options import COLUMNS, read_options
from odradek.spark.range_reader import BATCH_BYTES, BATCH_ROWS, PIECE_BYTES, DataLoss, pieces, read_range
from odradek.wire.compression import Compression
from odradek.wire.records import build_batch
from tests.client.topics import Transactions, create_topic, delete_records, delete_topic, produce


@pytest.fixture
def read(cluster):
    """Arrow batches of a range of partition 0."""

    def batches(topic, start, end, **options):
        least = {"kafka.bootstrap.servers": cluster.settings.bootstrap_servers, "subscribe": topic}
        return read_range(OffsetRange(topic, 0, start, end), read_options(least | options, is_stream=False))

    return batches


def column(batches, name="value"):
    return [value for batch in batches for value in batch.column(name).to_pylist()]


def values(numbers):
    return [b"%d" % number for number in numbers]


def test_a_range_is_read_from_its_start_to_its_end(cluster, read):
    topic = create_topic(cluster)
    for start in range(0, 40, 10):
        produce(cluster, topic, 0, values(range(start, start + 10)))
    batches = list(read(topic, 5, 33))
    assert column(batches) == values(range(5, 33))
    assert column(batches, "offset") == list(range(5, 33))
    assert {*column(batches, "topic")} == {topic}
    assert list(read(topic, 7, 7)) == []


def test_columns_come_in_the_order_in_which_they_were_asked_for(cluster, read):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"a"])
    (batch,) = read(topic, 0, 1, columns="offset,value")
    assert batch.schema.names == ["offset", "value"]


def test_the_types_are_exactly_what_spark_takes_them_for(cluster, read):
    """Spark looks at the names of the first batch only, and reads the bytes as the types that it expects."""
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"a"])
    (batch,) = read(topic, 0, 1, includeHeaders="true")
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert [(field.name, field.type) for field in batch.schema] == [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", header))),
    ]
    assert batch.schema.names == [*COLUMNS]


def test_rows_and_bytes_of_an_arrow_batch_are_bounded(cluster, read):
    topic = create_topic(cluster)
    many = 2 * BATCH_ROWS + 1
    produce(cluster, topic, 0, [b"x"] * many, compression=Compression.ZSTD)
    large = [os.urandom(900_000) for _ in range(3)]
    for value in large:
        produce(cluster, topic, 0, [value])
    # Small in the log, and more than a batch may have when it is unpacked.
    wide = [bytes([number]) * (BATCH_BYTES // 3) for number in range(8)]
    produce(cluster, topic, 0, wide, compression=Compression.ZSTD)
    batches = list(read(topic, 0, many + len(large) + len(wide), columns="value"))
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    assert all(batch.nbytes <= BATCH_BYTES or batch.num_rows == 1 for batch in batches)
    assert column(batches) == [b"x"] * many + large + wide


def test_pieces_are_whole_batches_and_all_of_them():
    small = [bytes(build_batch([(0, 0, None, b"v" * size, ())])) for size in (10, 2000, 10)]
    huge = bytes(build_batch([(0, 0, None, bytes(PIECE_BYTES), ())]))
    buffer = memoryview(b"".join([*small, huge, *small]))
    assert list(map(bytes, pieces(buffer))) == [b"".join(small) + huge, b"".join(small)]
    assert list(pieces(memoryview(b""))) == []


def test_what_is_gone_ends_the_task_or_is_passed_over(cluster, read):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, values(range(20)))
    produce(cluster, topic, 0, values(range(20, 40)))
    delete_records(cluster, topic, 0, 25)
    with pytest.raises(DataLoss, match=f"topic {topic}, partition 0 .* failOnDataLoss") as lost:
        list(read(topic, 10, 35))
    assert str(pickle.loads(pickle.dumps(lost.value))) == str(lost.value)
    assert column(read(topic, 10, 35, failOnDataLoss="false")) == values(range(25, 35))
    assert list(read(topic, 0, 20, failOnDataLoss="false")) == []
    # To begin where the log does is no loss.
    assert column(read(topic, 25, 40)) == values(range(25, 40))


def test_what_was_read_before_a_loss_in_the_middle_is_kept(cluster, read, monkeypatch):
    monkeypatch.setattr(range_reader, "BATCH_ROWS", 10)
    topic = create_topic(cluster)
    for number in range(400):
        produce(cluster, topic, 0, values([number]))
    small = {"kafka.max.partition.fetch.bytes": "1024"}
    failing, going_on = read(topic, 0, 400, **small), read(topic, 0, 400, failOnDataLoss="false", **small)
    begun = [next(failing)], [next(going_on)]
    delete_records(cluster, topic, 0, 390)
    with pytest.raises(DataLoss):
        begun[0].extend(failing)
    begun[1].extend(going_on)
    before = [value for value in column(begun[1]) if int(value) < 390]
    assert before == values(range(len(before)))
    assert 0 < len(before) < 390
    assert column(begun[1])[len(before) :] == values(range(390, 400))


def test_a_topic_that_was_made_anew_has_lost_what_lay_behind_its_end(cluster, read):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, values(range(3)))
    with pytest.raises(DataLoss):
        list(read(topic, 10, 20))
    assert list(read(topic, 10, 20, failOnDataLoss="false")) == []


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_gone_is_lost_or_passed_over(cluster, fails):
    topic = create_topic(cluster)
    delete_topic(cluster, topic)
    least = {"kafka.bootstrap.servers": cluster.settings.bootstrap_servers, "subscribe": topic}
    options = read_options(least | {"failOnDataLoss": str(fails)}, is_stream=False)
    impatient = replace(options, settings=replace(options.settings, unknown_topic_ms=50))
    batches = read_range(OffsetRange(topic, 0, 0, 20), impatient)
    if fails:
        with pytest.raises(DataLoss, match=topic):
            list(batches)
    else:
        assert list(batches) == []


def test_only_what_is_committed_is_read_if_that_is_asked_for(cluster, read):
    topic = create_topic(cluster)
    one, other = Transactions(cluster, f"{topic}-one"), Transactions(cluster, f"{topic}-other")
    one.write(topic, 0, [b"aborted"])
    other.write(topic, 0, [b"committed"])
    one.end(False)
    other.end(True)
    one.write(topic, 0, [b"next"])
    one.end(True)
    end = 6
    committed = {"kafka.isolation.level": "read_committed"}
    assert column(read(topic, 0, end, **committed)) == [b"committed", b"next"]
    assert column(read(topic, 0, end)) == [b"aborted", b"committed", b"next"]


def test_no_broker_is_said_in_one_sentence():
    least = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "kafka.default.api.timeout.ms": "100",
    }
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:1"):
        list(read_range(OffsetRange("t", 0, 0, 1), read_options(least, is_stream=False)))
