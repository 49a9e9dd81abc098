"""How many bytes an old client gets, and what stands in them where messages do not fill them."""

import struct

import pytest

from odradek.wire.compression import Compression
from odradek.wire.down_conversion import CHUNK_BYTES, DownConversion, down_convert
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import to_legacy
from odradek.wire.records import Record, build_batch, end_txn_marker, patch_batch
from odradek.wire.work import finish
from tests.kit import compressed_forms
from tests.kit.collecting import collected

NOW = 1_700_000_000_000


def batches(*sizes, compression=Compression.NONE, first=0):
    """Batches of one record each, with values of these sizes."""
    built = [
        build_batch([Record(first + n, NOW, b"k", bytes([97 + n]) * size)], compression=compression)
        for n, size in enumerate(sizes)
    ]
    return built


def overflow(left_bytes):
    """The beginning of a message that is too long for what is left."""
    return (struct.pack(">qi", -1, max(left_bytes + 1, 61)) + bytes(left_bytes))[:left_bytes]


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_read_is_as_many_bytes_as_are_sent(magic):
    small, other = batches(10, 20)
    whole = small + other
    first, both = to_legacy(small, magic, 0), to_legacy(whole, magic, 0)
    for limit in range(len(small), len(whole) + 1):
        converted = both if limit == len(whole) else first
        padded = converted + overflow(limit - len(converted))
        assert down_convert(whole[:limit], magic, 0) == padded


def test_a_first_batch_that_grows_comes_whole_and_nothing_else():
    grows = build_batch([Record(n, NOW, None, b"") for n in range(100)])
    (other,) = batches(5, first=100)
    converted = to_legacy(grows, 1, 0)
    assert len(converted) > len(grows + other)
    assert down_convert(grows + other, 1, 0) == converted


def test_a_message_that_does_not_fit_is_cut_off():
    first, grows = batches(1000)[0], build_batch([Record(n, NOW, None, b"") for n in range(1, 100)])
    records = first + grows
    everything = to_legacy(records, 1, 0)
    assert len(everything) > len(records)
    assert down_convert(records, 1, 0) == everything[: len(records)]


def test_less_than_a_batch_is_nothing():
    (batch,) = batches(100)
    for limit in (0, 1, 11, 12, 60, 61, len(batch) - 1):
        assert down_convert(batch[:limit], 1, 0) == b""


def test_where_nothing_is_left_of_a_batch_there_is_room_for_one_too_long_message():
    (batch,) = batches(100)
    marker = end_txn_marker(
        committed=False, timestamp=NOW, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    for records, first_offset in ((batch, 1), (marker, 0), (batch + batch[:50], 7)):
        assert down_convert(records, 1, first_offset) == overflow(12)


def test_a_lot_to_fill_is_filled_with_more_than_one_beginning():
    (batch,) = batches(10)
    sealed = build_batch([Record(1, NOW, None, bytes(range(256)) * 1000)])
    cut = bytes(batch + sealed[:-1])
    converted = to_legacy(batch, 1, 0)
    left = len(cut) - len(converted)
    assert left > CHUNK_BYTES
    expected = converted + overflow(left)[:CHUNK_BYTES] + overflow(left - CHUNK_BYTES)
    assert down_convert(cut, 1, 0) == expected


def test_zstd_is_refused_at_the_front_and_ends_the_answer_behind_it():
    plain = batches(10, 20)
    (packed,) = batches(30, compression=Compression.ZSTD, first=2)
    with pytest.raises(KafkaError) as refused:
        down_convert(packed + plain[0], 1, 0)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    # The second plain batch is of the chunk that cannot be converted.
    records = plain[0] + plain[1] + packed
    first = to_legacy(plain[0], 1, 0)
    assert down_convert(records, 1, 0) == first + overflow(len(records) - len(first))


def test_a_chunk_that_can_be_converted_comes_before_one_that_cannot():
    plain = batches(10, CHUNK_BYTES - 200)
    (packed,) = batches(1000, compression=Compression.ZSTD, first=2)
    patch_batch(packed, 0, 2, 0)
    tail = batches(300, first=3)[0]
    records = plain[0] + plain[1] + tail + packed
    converted = to_legacy(plain[0] + plain[1], 1, 0)
    assert down_convert(records, 1, 0) == converted + overflow(len(records) - len(converted))


def pieces_of(conversion):
    pieces = []
    while conversion.left_bytes:
        pieces.append(bytes(finish(conversion.next_piece())))
    return pieces


SIZES = [100, 40_000, 50_000, 200_000, 60_000, 60_000, 5, 130_000, 300_000, 70_000]


def test_pieces_are_short_and_make_up_the_whole():
    records = b"".join(batches(*SIZES))
    conversion = DownConversion(records, 1, 0)
    finish(conversion.beginning())
    assert conversion.left_bytes == len(records)
    pieces = pieces_of(conversion)
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= 300_100  # a batch, or a chunk
    converted = to_legacy(records, 1, 0)
    assert b"".join(pieces) == converted + overflow(len(records) - len(converted))


@pytest.mark.parametrize("vanishing", [0, 1])
def test_a_first_piece_that_was_let_go_is_made_again(vanishing):
    records = b"".join(batches(*SIZES))
    conversion = DownConversion(records, 1, vanishing)
    finish(conversion.beginning())
    assert conversion.kept_bytes > 0
    conversion.forget_first()
    assert conversion.kept_bytes == 0
    assert b"".join(pieces_of(conversion)) == down_convert(records, 1, vanishing)


def test_nothing_is_touched_before_it_is_loaded():
    built = [*batches(*SIZES), build_batch([Record(10, NOW, None, bytes(99_999))])]
    stored = b"".join(built)
    memory = bytearray(b"\xff" * len(stored))
    loaded = []

    def load(position, size_bytes):
        assert 0 <= position <= position + size_bytes <= len(stored)
        loaded.append(size_bytes)
        memory[position : position + size_bytes] = stored[position : position + size_bytes]

    conversion = DownConversion(memory, 1, 0, load=load)
    finish(conversion.beginning())
    # The first batch and as much as is read along with it.
    assert sum(loaded) <= CHUNK_BYTES + 61
    assert b"".join(pieces_of(conversion)) == down_convert(stored, 1, 0)


def test_a_damaged_batch_behind_the_first_ends_the_answer_before_it():
    built = batches(10, CHUNK_BYTES - 200, 1000, 20)
    built[2][80] ^= 1
    records = b"".join(built)
    converted = to_legacy(built[0] + built[1], 1, 0)
    assert down_convert(records, 1, 0) == converted + overflow(len(records) - len(converted))
    with pytest.raises(KafkaError) as refused:
        down_convert(built[2] + built[3], 1, 2)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_data_of_each_form_are_converted_as_one_stream_is(magic):
    with collected() as failures:
        for name, batch, is_readable in compressed_forms.all_batches():
            codec = Compression[name.partition(",")[0].upper()]
            with failures.of(name):
                if codec is Compression.ZSTD or not is_readable:
                    # zstd is younger than the old formats.
                    with pytest.raises(KafkaError):
                        down_convert(batch, magic, 0)
                else:
                    plain = build_batch(compressed_forms.RECORDS, compression=codec)
                    converted = to_legacy(plain, magic, 0)
                    assert down_convert(batch, magic, 0)[: len(converted)] == converted
