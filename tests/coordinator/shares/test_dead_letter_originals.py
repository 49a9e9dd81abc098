"""Originals of dead letters out of the bytes of a log, and the bytes of the letters."""

import pytest

from odradek.coordinator.shares.dead_letters.letters import (
    RECORDS_MAX,
    Cause,
    DeadLetter,
    LetterBatch,
    Template,
)
from odradek.coordinator.shares.dead_letters.originals import Originals
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.compression import Compression
from odradek.wire.records import build_batch

KEY = SharePartitionKey("g", bytes(16), 7)
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


def batch(first, *values, **more):
    rows = [(first + number, 0, b"k", value, [("h", b"x")]) for number, value in enumerate(values)]
    return bytes(build_batch(rows, **more))


def taken(originals):
    return {offset: value for offset, (_, value) in originals.found.items()}


@pytest.mark.parametrize("codec", CODECS)
def test_the_records_of_a_range_are_taken_wherever_batches_begin_and_end(codec):
    records = batch(0, b"a", b"b", b"c", compression=codec) + batch(5, b"f", b"g", compression=codec)
    originals = Originals(1, 5, 1_000)
    assert originals.take(records)
    assert originals.found == {1: (b"k", b"b"), 2: (b"k", b"c"), 5: (b"k", b"f")}
    assert (originals.is_complete, originals.next_offset) == (True, 6)


def test_reading_goes_on_where_the_bytes_end():
    records = batch(0, b"a", b"b") + batch(2, b"c")
    originals = Originals(0, 2, 1_000)
    assert originals.take(records[:-1])
    assert (taken(originals), originals.next_offset) == ({0: b"a", 1: b"b"}, 2)
    assert not originals.is_complete
    assert not originals.take(records[-5:]), "there is no whole batch"
    assert originals.take(batch(2, b"c"))
    assert originals.is_complete


def test_what_has_no_room_waits_and_what_never_has_any_is_passed_over():
    originals = Originals(0, 3, 100)
    assert originals.take(batch(0, b"v" * 60, b"v" * 200, b"v" * 60, b"v"))
    assert originals.found.keys() == {0}
    assert (originals.is_full, originals.next_offset) == (True, 2)
    rest = Originals(2, 3, 100)
    assert rest.take(batch(0, b"v" * 60, b"v" * 200, b"v" * 60, b"v"))
    assert rest.found.keys() == {2, 3}


def test_a_compressed_batch_that_is_too_large_is_passed_over():
    originals = Originals(0, 3, 100)
    assert originals.take(batch(0, b"v" * 500, b"w", compression=Compression.GZIP) + batch(2, b"x", b"y"))
    assert taken(originals) == {2: b"x", 3: b"y"}


def test_what_is_damaged_or_no_record_of_a_client_is_passed_over():
    damaged = bytearray(batch(0, b"a" * 30, compression=Compression.GZIP))
    damaged[70:] = bytes(len(damaged) - 70)
    control = batch(1, b"end", control=True, transactional=True, producer_id=5, producer_epoch=0)
    originals = Originals(0, 2, 1_000)
    assert originals.take(bytes(damaged) + control + batch(2, b"b"))
    assert taken(originals) == {2: b"b"}
    assert originals.is_complete


def test_offsets_that_compaction_has_removed_have_no_original():
    originals = Originals(0, 3, 1_000)
    assert originals.take(batch(9, b"later"))
    assert (originals.found, originals.is_complete) == ({}, True)


def test_letters_have_the_bytes_of_a_batch_that_is_built_of_their_records():
    letter = DeadLetter(40, 300, 12, Cause.DELIVERED_TOO_OFTEN)
    template = Template(KEY, "t\u00e4", letter)
    letters = LetterBatch(1 << 20)
    originals = {40: (b"key", None), 41: (None, b"value"), 42: (b"", b"v" * 300)}
    assert letters.add(template, 40, 300, originals) == 300

    def headers(offset):
        return [
            ("__dlq.errors.topic", "t\u00e4".encode()),
            ("__dlq.errors.partition", b"7"),
            ("__dlq.errors.offset", b"%d" % offset),
            ("__dlq.errors.group", b"g"),
            ("__dlq.errors.delivery.count", b"12"),
            ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
        ]

    rows = [
        (offset - 40, 123_456, *originals.get(offset, (None, None)), headers(offset))
        for offset in range(40, 301)
    ]
    built = bytes(build_batch(rows))
    assert letters.encoded(123_456) == built
    assert len(letters) == len(built)


def test_a_batch_has_a_limit_of_records():
    letters = LetterBatch(1 << 30)
    letter = DeadLetter(0, 5 * RECORDS_MAX, 1, Cause.REJECTED)
    assert letters.add(Template(KEY, "t", letter), 0, letter.last_offset) == RECORDS_MAX - 1
    assert letters.add(Template(KEY, "t", letter), RECORDS_MAX, letter.last_offset) == RECORDS_MAX - 1
