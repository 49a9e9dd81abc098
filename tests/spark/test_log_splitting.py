"""Large segments that several tasks share: the same rows, wherever they are cut."""

import os
import pathlib
import shutil
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.spark.log_files import LogFilesError, find_partitions, read_piece
from odradek.spark.log_filters import Narrowed
from odradek.spark.log_options import MAX_BYTES_PER_PARTITION, read_log_options
from odradek.spark.log_plan import batches_of, plan
from odradek.spark.options import OptionError
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.indexes import OffsetIndex
from odradek.storage.recovery.log_walk import batch_of, walk
from odradek.wire.compression import Compression
from odradek.wire.legacy_records import build_message, to_legacy
from odradek.wire.records import build_batch
from tests.storage.transacting import NOW_MS, Producer

EVERYTHING = {"columns": "offset,value,transactionState,producerId,codec"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
FROM_KAFKA = pathlib.Path(__file__).parent.parent / "storage" / "from_kafka"


def pieces_of(path, max_bytes=None, **options):
    if max_bytes is not None:
        options["maxBytesPerPartition"] = str(max_bytes)
    return plan(read_log_options({"path": str(path), **EVERYTHING, **options}), Narrowed())


def read(path, max_bytes=None, **options):
    """The rows of all pieces in their order."""
    taken = read_log_options({"path": str(path), **EVERYTHING, **options})
    return [
        tuple(row.values())
        for piece in pieces_of(path, max_bytes, **options)
        for batch in batches_of(taken, piece)
        for row in batch.to_pylist()
    ]


def bounds(start, end):
    """As options."""
    offsets = {"startingOffsets": start, "endingOffsets": end}
    return {name: f'{{"t":{{"0":{offset}}}}}' for name, offset in offsets.items()}


def log_files(path, suffix=".log"):
    return sorted(pathlib.Path(path).glob(f"*/*{suffix}"))


def whole_batches(path):
    """The batches of a log file, by a walk that reads every byte of it."""
    content = path.read_bytes()
    items = walk(lambda at, size: content[at : at + size], len(content), int(path.stem))
    return [batch_of(item) for item in items]


# Any log


plain = st.tuples(st.just("plain"), st.integers(1, 4), st.integers(0, 150), st.sampled_from(Compression))
sent = st.tuples(st.just("send"), st.integers(1, 3), st.integers(0, 150))
ended = st.tuples(st.just("end"), st.integers(1, 3), st.booleans())
steps = st.lists(st.one_of(plain, sent, ended), min_size=1, max_size=60)
settings_of_logs = st.tuples(st.sampled_from([700, 3000, 1 << 20]), st.sampled_from([1, 250, 1 << 20]))


def write(path, steps, segment_bytes, interval_bytes):
    config = LogConfig.from_mapping({"segment.bytes": segment_bytes, "index.interval.bytes": interval_bytes})
    store = LogStore(OsDisk(), [path], config_for=lambda topic: config)
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), config)
    producers = {number: Producer(partition, number) for number in (1, 2, 3)}
    begun = set()
    for count, (step, *what) in enumerate(steps):
        if step == "plain":
            records, size_bytes, codec = what
            values = [b"%d-%d" % (count, place) + b"x" * size_bytes for place in range(records)]
            batch = build_batch(
                [(place, NOW_MS + count, None, value, ()) for place, value in enumerate(values)],
                compression=codec,
            )
            partition.appends.append(batch, now_ms=NOW_MS)
            partition.commit()
        elif step == "send":
            producers[what[0]].send(b"%d" % count + b"y" * what[1])
            begun.add(what[0])
        elif what[0] in begun:
            producers[what[0]].end(commit=what[1])
            begun.discard(what[0])
    store.close(NOW_MS)


def compact(path, drawn):
    """Leaves out plain batches, so that offsets have gaps; indexes go, for their positions are wrong now."""
    for log in log_files(path):
        content, batches = log.read_bytes(), whole_batches(log)
        kept = [batch for batch in batches if batch.is_transactional or not drawn(st.booleans())]
        log.write_bytes(b"".join(content[batch.position : batch.end_position] for batch in kept))
    for index in log_files(path, "index"):
        index.unlink()


def set_room_aside(path):
    """As Kafka does in the indexes of a segment that it writes to."""
    for index in log_files(path, ".index") + log_files(path, ".timeindex"):
        index.write_bytes(index.read_bytes() + bytes(1200))


@settings(max_examples=80, deadline=None)
@given(
    steps=steps,
    of_log=settings_of_logs,
    left=st.sampled_from(["all", "room in indexes", "no offset indexes", "no indexes", "gaps"]),
    max_bytes=st.integers(1, 4000),
    data=st.data(),
)
def test_rows_are_the_same_wherever_segments_are_cut(steps, of_log, left, max_bytes, data):
    with tempfile.TemporaryDirectory() as path:
        write(path, steps, *of_log)
        if left == "gaps":
            compact(path, data.draw)
        elif left == "room in indexes":
            set_room_aside(path)
        else:
            gone = {"no offset indexes": (".index",), "no indexes": ("index", ".snapshot")}
            for suffix in gone.get(left, ()):
                for index in log_files(path, suffix):
                    index.unlink()
        assert not too_large(pieces_of(path, max_bytes), max_bytes)
        start = data.draw(st.integers(0, 60))
        for options in ({}, bounds(start, data.draw(st.integers(start, 120)))):
            for isolation in ({}, COMMITTED):
                whole = pieces_of(path, **options, **isolation)
                assert len(whole) == len({piece.path for piece in whole})
                expected = read(path, **options, **isolation)
                assert read(path, max_bytes, **options, **isolation) == expected


# How it is cut


def indexed_log(path, batches=64, size_bytes=100):
    """One segment, every batch of which has an entry in the index; gives the file."""
    steps = [("plain", 1, size_bytes, Compression.NONE)] * batches
    write(str(path), steps, 1 << 20, 1)
    (log,) = log_files(path)
    return log


@pytest.mark.parametrize("suffixes", [(), (".index",), (".index", ".timeindex")])
@pytest.mark.parametrize("max_bytes", [1, 172, 173, 400, 1000, 5000, 1 << 20])
def test_parts_are_as_large_as_they_may_be_and_no_larger(tmp_path, suffixes, max_bytes):
    log = indexed_log(tmp_path)
    for suffix in suffixes:
        log.with_suffix(suffix).unlink()
    batches, size = whole_batches(log), os.path.getsize(log)
    ends = [batch.end_position for batch in batches]
    pieces = pieces_of(tmp_path, max_bytes)
    begin = 0
    for piece in pieces:
        assert piece.position == begin
        fitting = [end for end in ends if begin < end <= begin + max_bytes]
        begin = max(fitting, default=next(end for end in ends if end > begin))
        assert piece.end_position == (None if begin == size else begin)
    assert begin == size
    assert [piece.is_last for piece in pieces] == [*[False] * (len(pieces) - 1), True]


@pytest.mark.parametrize("entries", [(), (0,), range(10), range(40), (0, 30, 31, 60), (62,)])
def test_what_the_index_does_not_know_is_cut_as_well(tmp_path, entries):
    """Of a segment that is being written the file may have the first entries only."""
    log = indexed_log(tmp_path)
    expected, pieces, index = read(tmp_path), pieces_of(tmp_path, 1000), log.with_suffix(".index")
    content = index.read_bytes()
    index.write_bytes(b"".join(content[8 * entry : 8 * entry + 8] for entry in entries))
    assert len(pieces) <= len(pieces_of(tmp_path, 1000)) <= len(pieces) + len(entries)
    assert not too_large(pieces_of(tmp_path, 1000), 1000)
    assert read(tmp_path, 1000) == expected


def too_large(pieces, max_bytes):
    """Those that have more than they may, and more than one batch."""
    return [
        piece
        for piece in pieces
        if (piece.end_position or os.path.getsize(piece.path)) - piece.position > max_bytes
        and sum(
            piece.position <= batch.position < (piece.end_position or os.path.getsize(piece.path))
            for batch in whole_batches(pathlib.Path(piece.path))
        )
        > 1
    ]


def test_an_index_that_leads_to_no_batch_is_left_alone(tmp_path):
    log = indexed_log(tmp_path)
    expected, pieces = read(tmp_path), pieces_of(tmp_path, 1000)
    index = OffsetIndex(0)
    for batch in whole_batches(log)[1:]:
        index.append(batch.last_offset, batch.position + 7)
    log.with_suffix(".index").write_bytes(index.encode())
    assert pieces_of(tmp_path, 1000) == pieces
    assert read(tmp_path, 1000) == expected


def test_a_range_is_cut_and_what_is_beside_it_is_not(tmp_path):
    log = indexed_log(tmp_path)
    for _ in ("with the index", "without"):
        assert len(pieces_of(tmp_path, 1000)) > 10
        for start in (0, 30, 60):
            assert len(pieces_of(tmp_path, 1000, **bounds(start, start + 4))) == 1
        assert len(pieces_of(tmp_path, 1000, **bounds(20, 40))) == 4
        log.with_suffix(".index").unlink(missing_ok=True)


def test_pieces_know_the_aborted_transactions_that_reach_into_them_and_no_others(tmp_path):
    steps = []
    for number in range(30):
        steps += [("send", 1, 100), ("plain", 1, 100, Compression.NONE), ("end", 1, number % 2 == 0)]
    write(str(tmp_path), steps, 1 << 20, 1)
    pieces = pieces_of(tmp_path, 1500)
    assert len(pieces) > 5
    assert max(len(piece.aborted) for piece in pieces) < 8
    assert len({one for piece in pieces for one in piece.aborted}) == 15


def test_by_default_a_task_reads_128_mib(tmp_path):
    assert read_log_options({"path": "x"}).max_bytes_per_partition == MAX_BYTES_PER_PARTITION == 128 << 20
    indexed_log(tmp_path)
    assert len(pieces_of(tmp_path)) == 1


# Files as they are found


def old_messages(magic, codec):
    """Messages alone, and three in one."""
    content = b""
    for offset in range(0, 40, 4):
        records = [(place, NOW_MS, None, b"old %d" % place, ()) for place in range(offset, offset + 3)]
        content += to_legacy(build_batch(records, base_offset=offset, compression=codec), magic, offset)
        content += build_message(magic, offset=offset + 3, timestamp=NOW_MS, key=None, value=b"alone")
    return content


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_cut_between_them(tmp_path, magic, codec, has_index):
    (tmp_path / "t-0").mkdir()
    log = tmp_path / "t-0" / f"{0:020d}.log"
    new = b"".join(
        build_batch([(offset, NOW_MS, None, b"new", ())], base_offset=offset) for offset in (40, 41)
    )
    log.write_bytes(old_messages(magic, codec) + new)
    if has_index:
        index = OffsetIndex(0)
        for batch in whole_batches(log)[1:]:
            index.append(batch.last_offset, batch.position)
        log.with_suffix(".index").write_bytes(index.encode())
    expected = read(tmp_path)
    assert [offset for offset, *_ in expected] == list(range(42))
    for max_bytes in (1, 100, 300, 1000):
        assert len(pieces_of(tmp_path, max_bytes)) > 1
        assert read(tmp_path, max_bytes) == expected
        for start, end in ((1, 6), (2, 3), (17, 41)):
            inside = [row for row in expected if start <= row[0] < end]
            assert read(tmp_path, max_bytes, **bounds(start, end)) == inside


@pytest.mark.parametrize("version", ["3.9", "4.3"])
def test_what_kafka_has_written_is_cut(tmp_path, version):
    shutil.copytree(FROM_KAFKA / version, tmp_path / "t-0")
    for options in ({}, COMMITTED):
        expected = read(tmp_path, **options)
        for max_bytes in (1, 100, 500):
            assert read(tmp_path, max_bytes, **options) == expected
    assert len(pieces_of(tmp_path, 1)) > len(pieces_of(tmp_path))


def test_a_torn_end_is_the_last_pieces(tmp_path):
    log = indexed_log(tmp_path)
    expected = read(tmp_path)
    torn = bytes(build_batch([(64, NOW_MS, None, b"torn", ())], base_offset=64))
    for behind in (torn[:5], torn[:-1], bytes(5000)):
        with log.open("ab") as file:
            file.write(behind)
        assert read(tmp_path, 1000) == expected
        os.truncate(log, os.path.getsize(log) - len(behind))


def test_damage_is_told_by_the_task_that_has_it(tmp_path):
    log = indexed_log(tmp_path)
    damaged = whole_batches(log)[40]
    content = bytearray(log.read_bytes())
    content[damaged.position + 8 : damaged.position + 12] = b"\x7f\x7f\x7f\x7f"
    log.write_bytes(content)
    told = []
    for piece in pieces_of(tmp_path, 1000):
        try:
            for _ in read_piece(piece):
                pass
        except LogFilesError as error:
            told.append(str(error))
    (sentence,) = told
    assert f"damaged at byte {damaged.position}:" in sentence


def test_a_segment_that_goes_while_it_is_cut_is_named_by_its_task(tmp_path):
    log = indexed_log(tmp_path)
    (partition,) = find_partitions([str(tmp_path)])
    log.unlink()
    (piece,) = partition.pieces(with_transactions=False, max_bytes=1000)
    with pytest.raises(LogFilesError, match="cannot be opened: No such file"):
        list(read_piece(piece))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxBytesPerPartition": "0"}, "maxBytesPerPartition must be a whole number from 1"),
        ({"maxBytesPerPartition": "128m"}, "maxBytesPerPartition must be a whole number from 1"),
        ({"minPartitions": "4"}, "minPartitions: tasks are made by their bytes; .* use maxBytesPerPartition"),
        ({"maxRecordsPerPartition": "4"}, "tasks are made by their bytes; .* use maxBytesPerPartition"),
    ],
)
def test_what_cannot_be_is_named(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        read_log_options({"path": "x", **options})
