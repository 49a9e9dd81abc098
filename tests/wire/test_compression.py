"""Compression: every dialect is read, what is written is what Java writes, and no bomb goes off."""

import gzip
import random
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_python_codec

from odradek.wire.compression import Compression, compress, compression_named, decompress
from odradek.wire.errors import ErrorCode, KafkaError
from tests.tiers import examples

CODECS = list(Compression)
REAL_CODECS = CODECS[1:]
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def sample(size):
    return bytes(random.Random(size).choices(b"abcdefgh", k=size))


def refusal(*arguments, **options):
    with pytest.raises(KafkaError) as caught:
        decompress(*arguments, **options)
    return caught.value.code


@settings(max_examples=examples(50))
@given(st.sampled_from(CODECS), st.binary(max_size=2000), st.sampled_from([0, 1, 2]))
def test_what_is_compressed_is_read_back(compression, data, magic):
    assert decompress(compression, memoryview(compress(compression, data, magic=magic)), magic=magic) == data


@pytest.mark.parametrize("compression", REAL_CODECS)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 65 * 1024, 300_000])
def test_blocks_and_buffers_of_every_size(compression, size):
    data = sample(size)
    assert decompress(compression, compress(compression, data), size) == data


@pytest.mark.parametrize(
    ("compression", "levels"),
    [(Compression.GZIP, (1, 9)), (Compression.LZ4, (1, 9, 17)), (Compression.ZSTD, (-5, 1, 19))],
)
def test_every_level_is_read_back_and_the_highest_is_the_smallest(compression, levels):
    data = sample(100_000)
    sizes = []
    for level in levels:
        compressed = compress(compression, data, level)
        assert decompress(compression, compressed) == data
        sizes.append(len(compressed))
    assert sizes[-1] == min(sizes) < len(data)


def test_codecs_have_kafkas_names():
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [compression_named(name) for name in names] == CODECS
    with pytest.raises(ValueError, match="producer"):
        compression_named("producer")


# Dialects -------------------------------------------------------------------------------------------

CLIENTS_ENCODERS = {
    "gzip of kafka-python": (Compression.GZIP, kafka_python_codec.gzip_encode),
    "snappy of kafka-python": (Compression.SNAPPY, kafka_python_codec.snappy_encode),
    "lz4 of kafka-python": (Compression.LZ4, kafka_python_codec.lz4_encode),
    "zstd of kafka-python": (Compression.ZSTD, kafka_python_codec.zstd_encode),
    "gzip of aiokafka": (Compression.GZIP, aiokafka_codec.gzip_encode),
    "snappy of aiokafka": (Compression.SNAPPY, aiokafka_codec.snappy_encode),
    "lz4 of aiokafka": (Compression.LZ4, aiokafka_codec.lz4_encode),
    "zstd of aiokafka": (Compression.ZSTD, aiokafka_codec.zstd_encode),
    "raw snappy of librdkafka": (Compression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "gzip in two members": (
        Compression.GZIP,
        lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    ),
    "zstd without content size": (
        Compression.ZSTD,
        lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
    ),
    "zstd in two frames": (
        Compression.ZSTD,
        lambda data: zstandard.compress(data[:9]) + zstandard.compress(data[9:]),
    ),
    "zstd as a stream": (
        Compression.ZSTD,
        lambda data: (stream := zstandard.ZstdCompressor().compressobj()).compress(data) + stream.flush(),
    ),
    "lz4 with every checksum": (
        Compression.LZ4,
        lambda data: lz4.frame.compress(data, block_linked=False, content_checksum=True, block_checksum=True),
    ),
}


@pytest.mark.parametrize("name", CLIENTS_ENCODERS)
@pytest.mark.parametrize("size", [1, 500, 200_000])
def test_what_clients_write_is_read(name, size):
    compression, encode = CLIENTS_ENCODERS[name]
    assert decompress(compression, encode(sample(size))) == sample(size)
    assert decompress(compression, encode(sample(size)), size) == sample(size)


@pytest.mark.parametrize("codec", [kafka_python_codec, aiokafka_codec])
@pytest.mark.parametrize("compression", REAL_CODECS)
def test_clients_read_what_is_written(codec, compression):
    decode = getattr(codec, f"{compression.name.lower()}_decode")
    assert bytes(decode(compress(compression, sample(200_000)))) == sample(200_000)


def test_snappy_is_framed_as_javas():
    compressed = compress(Compression.SNAPPY, sample(40_000))
    assert compressed == kafka_python_codec.snappy_encode(sample(40_000))
    assert compressed.startswith(XERIAL)


def test_lz4_blocks_are_independent_and_dependent_ones_are_refused():
    data = sample(200_000)
    info = lz4.frame.get_frame_info(compress(Compression.LZ4, data))
    assert not info["block_linked"]
    assert info["block_size"] == 64 * 1024
    assert info["content_size"] == 0
    assert refusal(Compression.LZ4, lz4.frame.compress(data, block_linked=True)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("store_size", [False, True])
def test_v0_takes_and_writes_the_historic_lz4_header_checksum(store_size):
    data = sample(1000)
    right = lz4.frame.compress(data, block_linked=False, store_size=store_size)
    position = 14 if store_size else 6
    broken = bytearray(right)
    broken[position] = historic_checksum(right[:position])
    assert broken != right
    assert decompress(Compression.LZ4, broken, magic=0) == data
    assert decompress(Compression.LZ4, right, magic=0) == data
    assert refusal(Compression.LZ4, broken, magic=1) == ErrorCode.CORRUPT_MESSAGE
    written = compress(Compression.LZ4, data, magic=0)
    assert written[6] == historic_checksum(written[:6])


def historic_checksum(header):
    """The second byte of XXH32 over magic number and descriptor, computed by the lz4 library itself.

    The library sums a frame's content when asked, and it puts that sum at the end.
    """
    content_sum = lz4.frame.compress(bytes(header), content_checksum=True)[-4:]
    return int.from_bytes(content_sum, "little") >> 8 & 0xFF


# Damage and bombs -----------------------------------------------------------------------------------


def bomb(compression, size):
    if compression == Compression.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
        return XERIAL + (struct.pack(">i", len(block)) + block) * (size >> 20)
    if compression == Compression.LZ4:
        return lz4.frame.compress(bytes(size), block_linked=False, store_size=False)
    return compress(compression, bytes(size))


@pytest.mark.parametrize("compression", REAL_CODECS)
@pytest.mark.parametrize("limit_bytes", [0, 1000, 1 << 20])
def test_a_bomb_is_refused_without_being_unpacked(compression, limit_bytes):
    small = bomb(compression, 32 << 20)
    decompress(compression, compress(compression, b"x"))  # the library's own first import is not the bomb's
    tracemalloc.start()
    try:
        assert refusal(compression, small, limit_bytes) == ErrorCode.MESSAGE_TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit_bytes + (4 << 20) + 4 * len(small)


@pytest.mark.parametrize("compression", REAL_CODECS)
def test_exactly_the_limit_is_not_too_large(compression):
    compressed = compress(compression, bytes(100_000))
    assert decompress(compression, compressed, 100_000) == bytes(100_000)
    assert refusal(compression, compressed, 99_999) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("length", [0x7FFF_FFFF, -1, -(2**31), 21])
def test_the_length_of_a_snappy_chunk_is_not_believed(length):
    """CVE-2023-34455: snappy-java allocated what it said."""
    data = XERIAL + struct.pack(">i", length) + bytes(20)
    decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"x"))
    tracemalloc.start()
    try:
        assert refusal(Compression.SNAPPY, data) == ErrorCode.CORRUPT_MESSAGE
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


def test_raw_snappy_that_announces_more_than_it_can_hold_is_refused():
    assert refusal(Compression.SNAPPY, b"\xff\xff\xff\x0f" + bytes(20)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("compression", REAL_CODECS)
def test_data_cut_short_is_refused(compression):
    compressed = compress(compression, sample(3000))
    for end in range(0, len(compressed), 7):
        assert refusal(compression, compressed[:end]) == ErrorCode.CORRUPT_MESSAGE, end
        assert refusal(compression, compressed[:end], 4000) == ErrorCode.CORRUPT_MESSAGE, end


@pytest.mark.parametrize("limit_bytes", [5000, 2 << 20])
def test_zstd_frames_that_are_to_be_skipped_are(limit_bytes):
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    frame = compress(Compression.ZSTD, sample(5000))
    assert decompress(Compression.ZSTD, skipped + frame, limit_bytes) == sample(5000)


@settings(max_examples=examples(150))
@given(st.sampled_from(CODECS), st.binary(max_size=300), st.data())
def test_garbage_is_refused_or_read_and_nothing_else(compression, noise, data):
    garbage = bytearray(compress(compression, sample(400)))
    position = data.draw(st.integers(0, len(garbage)))
    garbage[position : position + data.draw(st.integers(0, 8))] = noise
    for candidate in (bytes(garbage), noise):
        try:
            assert (
                len(decompress(compression, candidate, 10_000, magic=data.draw(st.integers(0, 2)))) <= 10_000
            )
        except KafkaError as error:
            allowed = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
            if error.code not in allowed:
                raise


def test_a_codec_without_a_meaning_is_refused():
    for number in (5, 6, 7):
        assert refusal(number, b"") == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


PLAIN = b"some records"


def gzip_member(data=PLAIN, *, flags=0, fields=b""):
    """With these fields of a header behind its first ten bytes."""
    member = bytearray(compress(Compression.GZIP, data))
    member[3] = flags
    return bytes(member[:10]) + fields + bytes(member[10:])


def header_checksum(member):
    return (zlib.crc32(member[:10]) & 0xFFFF).to_bytes(2, "little")


@pytest.mark.parametrize(
    "rest",
    [bytes(1), bytes(500), b"other bytes", b"\x1f\x8b", b"\x1f\x8b\x07" + bytes(20), gzip_member()[:9]],
)
def test_bytes_behind_gzip_data_that_begin_no_member_are_passed_over(rest):
    assert decompress(Compression.GZIP, gzip_member() + rest) == PLAIN


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (0, b""),
        (4, b"\x03\0abc"),
        (8, b"name\0"),
        (16, b"comment\0"),
        (2, header_checksum(gzip_member(flags=2))),
        (4 | 8 | 16, b"\x01\0aname\0comment\0"),
    ],
)
def test_a_member_behind_gzip_data_is_read_whatever_its_header_has(flags, fields):
    assert decompress(Compression.GZIP, gzip_member() + gzip_member(flags=flags, fields=fields)) == 2 * PLAIN


@pytest.mark.parametrize(("flags", "fields"), [(8, b""), (16, b"no end"), (2, b"\0\0"), (4, b"\xff\xff")])
def test_a_header_behind_gzip_data_that_is_not_whole_is_passed_over(flags, fields):
    rest = gzip_member(flags=flags)[:10] + fields
    assert decompress(Compression.GZIP, gzip_member() + rest) == PLAIN


def test_a_damaged_member_behind_gzip_data_is_damage():
    with pytest.raises(KafkaError, match="gzip data is damaged"):
        decompress(Compression.GZIP, gzip_member() + gzip_member()[:-1])


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0"])
def test_streams_of_snappy_behind_each_other_are_one_and_less_than_a_size_is_passed_over(rest):
    stream = compress(Compression.SNAPPY, PLAIN)
    assert (
        decompress(Compression.SNAPPY, stream + compress(Compression.SNAPPY, b"") + stream + rest)
        == 2 * PLAIN
    )


def test_a_block_of_snappy_without_bytes_is_damage():
    with pytest.raises(KafkaError, match="snappy data is damaged"):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, PLAIN) + bytes(4))
