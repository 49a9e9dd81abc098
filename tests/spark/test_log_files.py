"""Segment files read without a broker: the rows that a consumer of the same log gets, and what files say
beside.
"""

import datetime
import os
import pathlib
import shutil
from dataclasses import dataclass
from typing import Any

import pytest

from odradek.spark.columns import CorruptRecords
from odradek.spark.log_files import LogFilesError, find_partitions, read_piece
from odradek.spark.log_filters import Narrowed, narrow
from odradek.spark.log_options import read_log_options
from odradek.spark.log_plan import batches_of, plan
from odradek.spark.options import OptionError
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.compression import Compression
from odradek.wire.legacy_records import to_legacy
from odradek.wire.records import build_batch
from tests.kit import compressed_forms
from tests.kit.collecting import collected
from tests.storage.transacting import Producer

FROM_KAFKA = pathlib.Path(__file__).parent.parent / "storage" / "from_kafka"
NOW_MS = 1_700_000_000_000
SMALL = LogConfig.from_mapping({"segment.bytes": 2000, "index.interval.bytes": 200})
KEYS_AND_VALUES = {"columns": "partition,offset,value"}


class Logs:
    """A data directory, written by a store that is closed before it is read."""

    def __init__(self, path):
        path.mkdir(exist_ok=True)
        self.path = str(path)
        self.store = LogStore(OsDisk(), [self.path], config_for=lambda topic: SMALL)
        self.store.open(NOW_MS)

    def partition(self, topic="t", index=0):
        return self.store.create(topic, index, bytes(16), SMALL)

    def close(self):
        self.store.close(NOW_MS)


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path / "data")


def append(partition, *values, timestamp=NOW_MS, **options):
    records = [(index, timestamp + index, b"k", value, ()) for index, value in enumerate(values)]
    appended = partition.appends.append(build_batch(records, **options), now_ms=NOW_MS)
    partition.commit()
    return appended.base_offset


def filled(logs, topic="t", partitions=1, batches=40):
    """Batches of 100 ms each, 10 ms between the records; (partition, offset, value) of each record."""
    expected = []
    for index in range(partitions):
        partition = logs.partition(topic, index)
        for number in range(batches):
            values = [b"%s-%d-%d-%d" % (topic.encode(), index, number, place) for place in range(3)]
            records = [
                (place, NOW_MS + 100 * number + 10 * place, None, v, ()) for place, v in enumerate(values)
            ]
            codec = list(Compression)[number % 5]
            base = partition.appends.append(
                build_batch(records, compression=codec), now_ms=NOW_MS
            ).base_offset
            partition.commit()
            expected += [(index, base + place, value) for place, value in enumerate(values)]
    logs.close()
    return expected


def read(path, narrowed=None, **options):
    """The rows, as tuples of what `columns` names."""
    taken = read_log_options({"path": str(path), **KEYS_AND_VALUES, **options})
    return [
        tuple(row.values())
        for piece in plan(taken, narrowed or Narrowed())
        for batch in batches_of(taken, piece)
        for row in batch.to_pylist()
    ]


def log_files(path, suffix=".log"):
    return sorted(pathlib.Path(path).glob(f"*/*{suffix}"))


# Everything, and parts


def test_every_record_is_a_row_whatever_its_codec_and_segment(logs):
    expected = filled(logs, partitions=2)
    assert len(log_files(logs.path)) > 4
    assert sorted(read(logs.path)) == expected
    assert sorted(read(f"{logs.path}/t-0,{logs.path}/t-1")) == expected


def test_there_is_one_piece_for_each_segment_and_only_for_those_with_what_is_wanted(logs):
    filled(logs)
    segments = len(log_files(logs.path))
    (partition,) = find_partitions([logs.path])
    assert len(partition.pieces(with_transactions=False)) == segments
    last = partition.segments[-1].base_offset
    assert [piece.start for piece in partition.pieces(last, with_transactions=False)] == [last]
    assert len(partition.pieces(0, last, with_transactions=False)) == segments - 1
    assert partition.pieces(5, 5, with_transactions=False) == []


@pytest.mark.parametrize(("start", "end"), [(0, 120), (1, 2), (50, 71), (119, 500), (300, 400)])
@pytest.mark.parametrize("has_indexes", [True, False])
def test_a_range_of_offsets_is_what_lies_in_it(logs, start, end, has_indexes):
    expected = filled(logs)
    if not has_indexes:
        for path in log_files(logs.path, "index"):
            path.unlink()
    wanted = [row for row in expected if start <= row[1] < end]
    bounds = {"startingOffsets": f'{{"t":{{"0":{start}}}}}', "endingOffsets": f'{{"t":{{"0":{end}}}}}'}
    assert read(logs.path, **bounds) == wanted


def test_a_range_begins_at_an_indexed_position(logs):
    filled(logs)
    (partition,) = find_partitions([logs.path])
    segment = partition.segments[1]
    (piece, *_) = partition.pieces(segment.end_offset - 1, with_transactions=False)
    assert piece.path == segment.path
    assert 0 < piece.position < os.path.getsize(segment.path)


@pytest.mark.parametrize("has_indexes", [True, False])
@pytest.mark.parametrize(("first", "behind"), [(0, 10_000), (1, 2), (1010, 2011), (3920, 9999), (4000, 9999)])
def test_a_range_of_timestamps_is_from_the_first_record_of_each_to_before_the_other(
    logs, first, behind, has_indexes
):
    expected = filled(logs)
    if not has_indexes:
        for path in log_files(logs.path, "index"):
            path.unlink()
    times = [100 * number + 10 * place for number in range(40) for place in range(3)]
    start = next((place for place, time in enumerate(times) if time >= first), 120)
    end = next((place for place, time in enumerate(times) if time >= behind), 120)
    options = {"startingTimestamp": str(NOW_MS + first), "endingTimestamp": str(NOW_MS + behind)}
    assert read(logs.path, **options) == expected[start:end]


def test_topics_and_partitions_are_chosen_as_in_the_kafka_source(logs):
    for topic in ("orders", "returns", "__consumer_offsets"):
        for index in range(2):
            append(logs.partition(topic, index), topic.encode())
    logs.close()

    def chosen(**options):
        return sorted(set(read(logs.path, **{"columns": "topic,partition", **options})))

    both = [0, 1]
    assert chosen() == [(topic, index) for topic in ("orders", "returns") for index in both]
    assert chosen(subscribe="returns") == [("returns", index) for index in both]
    assert chosen(subscribePattern="o.*") == [("orders", index) for index in both]
    assert chosen(assign='{"orders":[1],"__consumer_offsets":[0]}') == [
        ("__consumer_offsets", 0),
        ("orders", 1),
    ]


def test_what_was_deleted_by_offset_is_not_shown(logs):
    partition = logs.partition()
    for number in range(10):
        append(partition, b"%d" % number)
    partition.retention.delete_records(7)
    logs.close()
    assert read(logs.path) == [(0, offset, b"%d" % offset) for offset in (7, 8, 9)]


def test_columns_are_those_of_the_kafka_source_and_of_the_batch(logs):
    partition = logs.partition()
    record = (0, NOW_MS, b"k", b"v", [("h", b"1")])
    partition.appends.append(build_batch([record], compression=Compression.LZ4), now_ms=NOW_MS)
    partition.commit()
    logs.close()
    options = read_log_options({"path": logs.path, "includeHeaders": "true"})
    (piece,) = plan(options, Narrowed())
    (batch,) = batches_of(options, piece)
    assert batch.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "timestamp": datetime.datetime.fromtimestamp(NOW_MS / 1000, datetime.UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}],
            "producerId": None,
            "producerEpoch": None,
            "transactionState": None,
            "codec": "lz4",
            "leaderEpoch": 0,
        }
    ]
    assert read_log_options({"path": "x", "includeMetadata": "false"}).columns == (
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    )


# Transactions


STATES = {"columns": "value,transactionState"}


def with_transactions(logs):
    """Committed, aborted, plain, across each other, over several segments; one is left open."""
    partition = logs.partition()
    one, other, third = (Producer(partition, number) for number in (1, 2, 3))
    expected = []
    for turn in range(12):
        one.send(b"one %d" % turn * 9)
        append(partition, b"plain %d" % turn)
        other.send(b"other %d" % turn * 9)
        expected += [
            (b"one %d" % turn * 9, "aborted" if turn % 3 else "committed"),
            (b"plain %d" % turn, None),
            (b"other %d" % turn * 9, "committed"),
        ]
        one.end(commit=turn % 3 == 0)
        other.end(commit=True)
    third.send(b"third")
    append(partition, b"behind")
    one.send(b"one last")
    one.end(commit=False)
    return [*expected, (b"third", "open"), (b"behind", None), (b"one last", "aborted")]


def without_open(expected):
    before = expected[: next(place for place, (_, state) in enumerate(expected) if state == "open")]
    return [row for row in before if row[1] != "aborted"]


@pytest.mark.parametrize("left", ["everything", "no snapshots", "no indexes", "nothing but the log"])
def test_what_became_of_transactions_is_told_also_without_indexes(logs, left):
    expected = with_transactions(logs)
    logs.close()
    assert len(log_files(logs.path)) > 2
    gone = {"everything": (), "no snapshots": (".snapshot",), "no indexes": ("index",)}
    for suffix in gone.get(left, (".snapshot", "index")):
        for path in log_files(logs.path, suffix):
            path.unlink()
    assert read(logs.path, **STATES) == expected
    committed = {**STATES, "kafka.isolation.level": "read_committed"}
    assert read(logs.path, **committed) == without_open(expected)


def test_what_became_of_transactions_is_told_of_a_log_that_is_still_written(logs):
    expected = with_transactions(logs)
    assert read(logs.path, **STATES) == expected
    logs.close()


def test_a_range_within_a_transaction_knows_its_state(logs):
    expected = with_transactions(logs)
    logs.close()
    everything = read(logs.path, columns="offset,transactionState")
    assert [state for _, state in everything] == [state for _, state in expected]
    for offset, state in everything:
        bounds = {
            "startingOffsets": f'{{"t":{{"0":{offset}}}}}',
            "endingOffsets": f'{{"t":{{"0":{offset + 1}}}}}',
        }
        assert read(logs.path, columns="offset,transactionState", **bounds) == [(offset, state)]


@pytest.mark.parametrize("version", ["3.9", "4.3"])
def test_what_kafka_has_written_of_transactions_is_read(tmp_path, version):
    shutil.copytree(FROM_KAFKA / version, tmp_path / "t-0")
    rows = read(tmp_path, columns="offset,value,transactionState")
    for name in ("00000000000000000000.index", "00000000000000000002.index"):
        (tmp_path / "t-0" / name).touch()
    assert read(tmp_path, columns="offset,value,transactionState") == rows
    assert {state for _, _, state in rows} == {None, "committed", "aborted", "open"}
    committed = read(tmp_path, columns="offset,value", **{"kafka.isolation.level": "read_committed"})
    first_open = min(offset for offset, _, state in rows if state == "open")
    assert committed == [
        (offset, value) for offset, value, state in rows if offset < first_open and state != "aborted"
    ]


# Files as they are found


def test_a_segment_of_old_messages_is_read(tmp_path):
    (tmp_path / "t-0").mkdir()
    old = build_batch([(index, NOW_MS + index, None, b"old %d" % index, ()) for index in range(4)])
    new = build_batch([(4, NOW_MS + 4, None, b"new", ())])
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(to_legacy(old, 1, 0))
    (tmp_path / "t-0" / f"{4:020d}.log").write_bytes(new)
    assert [value for *_, value in read(tmp_path)] == [b"old 0", b"old 1", b"old 2", b"old 3", b"new"]
    late = {"startingTimestamp": str(NOW_MS + 2)}
    assert [value for *_, value in read(tmp_path, **late)] == [b"old 2", b"old 3", b"new"]


def one_segment(tmp_path, content, base_offset=0):
    directory = tmp_path / "t-0"
    directory.mkdir(exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(content)
    return path


def batches(count, size_bytes=10):
    return [
        bytes(build_batch([(offset, NOW_MS, None, b"%d" % offset * size_bytes, ())]))
        for offset in range(count)
    ]


def test_the_end_of_a_log_may_be_torn_or_set_aside(tmp_path):
    whole = b"".join(batches(3))
    torn = bytes(build_batch([(3, NOW_MS, None, b"torn", ())]))
    for behind in (b"", torn[:5], torn[:40], torn[:-1], bytes(7), bytes(5000)):
        one_segment(tmp_path, whole + behind)
        assert [offset for _, offset, _ in read(tmp_path)] == [0, 1, 2]


def test_the_end_of_an_earlier_segment_may_not(tmp_path):
    first = batches(3)
    one_segment(tmp_path, build_batch([(3, NOW_MS, None, b"next", ())]), 3)
    path = one_segment(tmp_path, b"".join(first)[:-1])
    with pytest.raises(
        LogFilesError,
        match=rf"{path} of topic t, partition 0 is damaged at byte {len(first[0] + first[1])}: a batch of",
    ):
        read(tmp_path)


def test_damage_is_told_with_its_place_and_after_what_is_before_it(tmp_path):
    first = batches(3)
    path = one_segment(tmp_path, first[0] + b"x" * 100 + first[2])
    options = read_log_options({"path": str(tmp_path), "columns": "offset"})
    (piece,) = plan(options, Narrowed())
    rows = batches_of(options, piece)
    assert next(rows).to_pylist() == [{"offset": 0}]
    with pytest.raises(LogFilesError, match=f"{path} .*damaged at byte {len(first[0])}.*`odradek check`"):
        next(rows)


def test_a_wrong_checksum_is_told_and_may_be_overlooked(tmp_path):
    damaged = bytearray(b"".join(batches(2)))
    damaged[-2] ^= 1
    one_segment(tmp_path, damaged)
    with pytest.raises(CorruptRecords, match="topic t, partition 0, the batch at offset 1 cannot be read"):
        read(tmp_path)
    assert len(read(tmp_path, **{"kafka.check.crcs": "false"})) == 2


def test_a_batch_that_is_larger_than_what_is_read_at_a_time_comes_whole(tmp_path):
    large = batches(6, 1000)
    one_segment(tmp_path, b"".join(large))
    (partition,) = find_partitions([str(tmp_path)])
    (piece,) = partition.pieces(with_transactions=False)
    for read_bytes in (17, 61, 1500, 100_000):
        pieces = [bytes(records.buffer) for records in read_piece(piece, read_bytes)]
        assert b"".join(pieces) == b"".join(large)
    assert [bytes(records.buffer) for records in read_piece(piece, 1500)] == large


def test_other_files_and_directories_are_left_alone(logs):
    expected = filled(logs, batches=3)
    data = pathlib.Path(logs.path)
    for name in ("t-0.abc-delete", "t-0.def-future", "lost+found"):
        shutil.copytree(data / "t-0", data / name)
    for suffix in (".deleted", ".cleaned", ".swap"):
        (data / "t-0" / f"{7:020d}.log{suffix}").write_bytes(b"x" * 100)
    assert read(logs.path) == expected


# What cannot be


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "path is missing: call load"),
        ({"path": "{}", "subscribe": "orderz"}, "subscribe names topic orderz, .*: it has t"),
        ({"path": "{}", "assign": '{"t":[0,4]}'}, "assign names t-4, which path does not have: it has t"),
        ({"path": "{}/nowhere"}, "nowhere cannot be read: No such file or directory"),
        ({"path": "{}/empty"}, "empty has no partitions: name the data directory of a broker"),
        ({"path": "{}/odd"}, "odd has segments, but its name is not TOPIC-PARTITION"),
        ({"path": "{0},{0}/t-0"}, "topic t, partition 0 is in .* and in .*: name the directories of one"),
        ({"path": "{}", "columns": "value,codecs"}, "columns has 'codecs'; there are key, value, .*codec"),
        ({"path": "{}", "kafka.bootstrap.servers": "h:1"}, "files are read without a broker"),
        ({"path": "{}", "startingOffset": "1"}, "does not take the option startingOffset"),
        ({"path": "{}", "startingOffsets": '{"t":{"1":5}}'}, "startingOffsets must name every partition"),
    ],
)
def test_what_cannot_be_read_is_named(logs, options, sentence):
    filled(logs, batches=1)
    data = pathlib.Path(logs.path)
    (data / "empty").mkdir()
    shutil.copytree(data / "t-0", data / "odd")
    given = {name: value.format(logs.path) if name == "path" else value for name, value in options.items()}
    with pytest.raises((OptionError, LogFilesError), match=sentence):
        plan(read_log_options(given), Narrowed())


def test_a_segment_that_was_deleted_meanwhile_is_named(logs):
    filled(logs, batches=1)
    options = read_log_options({"path": logs.path})
    (piece,) = plan(options, Narrowed())
    pathlib.Path(piece.path).unlink()
    with pytest.raises(LogFilesError, match=r"cannot be opened: No such file .* for every worker"):
        list(batches_of(options, piece))


# Filters


@dataclass(frozen=True)
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class In(EqualTo):
    pass


@dataclass(frozen=True)
class GreaterThan(EqualTo):
    pass


@dataclass(frozen=True)
class GreaterThanOrEqual(EqualTo):
    pass


@dataclass(frozen=True)
class LessThan(EqualTo):
    pass


@dataclass(frozen=True)
class LessThanOrEqual(EqualTo):
    pass


@dataclass(frozen=True)
class IsNotNull:
    attribute: tuple[str, ...]


TIME = datetime.datetime.fromtimestamp(NOW_MS / 1000, datetime.UTC)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([EqualTo(("topic",), "a")], lambda row: row[0] == "a"),
        ([In(("topic",), ("a", "c")), IsNotNull(("topic",))], lambda row: row[0] == "a"),
        ([EqualTo(("partition",), 1)], lambda row: row[1] == 1),
        ([In(("partition",), (0, 7))], lambda row: row[1] == 0),
        ([GreaterThan(("offset",), 5), LessThan(("offset",), 9)], lambda row: 5 < row[2] < 9),
        ([GreaterThanOrEqual(("offset",), 5), LessThanOrEqual(("offset",), 9)], lambda row: 5 <= row[2] <= 9),
        ([EqualTo(("offset",), 4), EqualTo(("topic",), "b")], lambda row: row[0] == "b" and row[2] == 4),
        ([EqualTo(("topic",), "a"), EqualTo(("topic",), "b")], lambda row: False),
        (
            [GreaterThanOrEqual(("timestamp",), TIME + datetime.timedelta(milliseconds=250))],
            lambda row: row[2] >= 9,
        ),
        ([GreaterThan(("timestamp",), TIME + datetime.timedelta(days=1))], lambda row: False),
    ],
)
def test_what_a_query_asks_for_narrows_the_plan(logs, filters, kept):
    filled(logs, "a", 2, 5)
    logs = Logs(pathlib.Path(logs.path))
    filled(logs, "b", 2, 5)
    narrowed, left = narrow(filters)
    assert left == [one for one in filters if one.attribute == ("timestamp",) or isinstance(one, IsNotNull)]
    columns = {"columns": "topic,partition,offset"}
    assert sorted(read(logs.path, narrowed, **columns)) == sorted(
        row for row in read(logs.path, **columns) if kept(row)
    )


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), 1.5),
        EqualTo(("offset",), True),
        EqualTo(("topic",), None),
        In(("partition",), (1, None)),
        GreaterThan(("timestamp",), datetime.datetime(2026, 1, 1)),
        LessThan(("timestamp",), TIME),
        EqualTo(("headers", "key"), "x"),
    ],
)
def test_a_filter_that_says_nothing_to_us_is_left_to_spark(one):
    assert narrow([one]) == (Narrowed(), [one])


def test_compressed_data_of_each_form_are_rows(logs):
    batches = compressed_forms.readable_batches()
    for index, (_, batch) in enumerate(batches):
        partition = logs.partition(index=index)
        partition.appends.append(bytearray(batch), now_ms=NOW_MS)
        partition.commit()
    logs.close()
    expected = [(one.offset, one.key, one.value) for one in compressed_forms.RECORDS]
    with collected() as failures:
        for index, (name, _) in enumerate(batches):
            with failures.of(name):
                assert read(f"{logs.path}/t-{index}", columns="offset,key,value") == expected
