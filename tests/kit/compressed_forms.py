"""Compressed records in other forms than one stream: bytes behind the end, several members or frames, empty
ones. Kafka's producers of old clients make some of them, and Kafka's broker, consumers and cleaner read them.
compat_tests/differential/test_compressed_data.py asks Kafka about each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from odradek.wire.checksums import crc32c
from odradek.wire.compression import Compression, compress
from odradek.wire.records import Record, build_batch

HEADER_BYTES, LENGTH_POSITION, CRC_POSITION, ATTRIBUTES_POSITION = 61, 8, 17, 21
LENGTH_FROM = 12
CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
XERIAL_HEADER_BYTES = 16
SKIPPABLE_FRAME = struct.pack("<II", 0x184D2A50, 4) + b"skip"
"""Both lz4 and zstd have it."""
UNREADABLE = {
    Compression.GZIP: {"twice", "the end is missing", "a frame to skip before it"},
    Compression.SNAPPY: {
        *("zeros behind it", "many zeros behind it", "other bytes behind it", "twice", "the end is missing"),
        *("a frame to skip behind it", "a frame to skip before it", "a block of no bytes behind it"),
    },
    # Of several frames the first one counts.
    Compression.LZ4: {
        *("two of them", "an empty one before it", "the end is missing", "a frame to skip before it"),
    },
    Compression.ZSTD: {
        *("zeros behind it", "one zero behind it", "many zeros behind it", "other bytes behind it"),
        *("twice", "the end is missing"),
    },
}
"""The forms in which Kafka finds no records, or more than the header says."""
NOW_MS = 1_700_000_000_000
RECORDS = [Record(n, NOW_MS + n, b"k%d" % n, b"value %d " % n * 10) for n in range(5)]


def forms(codec: Compression, records: bytes) -> Iterator[tuple[str, bytes]]:
    """The name of each form, and the section of a batch in it."""
    whole, middle = compress(codec, records), len(records) // 2
    first, second = compress(codec, records[:middle]), compress(codec, records[middle:])
    empty = compress(codec, b"")
    yield "as it is", whole
    yield "zeros behind it", whole + bytes(8)
    yield "one zero behind it", whole + bytes(1)
    yield "many zeros behind it", whole + bytes(1_000)
    yield "other bytes behind it", whole + b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c"
    yield "two of them", first + second
    yield "an empty one behind it", whole + empty
    yield "an empty one before it", empty + whole
    yield "twice", whole + whole
    yield "the end is missing", whole[:-1]
    yield "a frame to skip behind it", whole + SKIPPABLE_FRAME
    yield "a frame to skip before it", SKIPPABLE_FRAME + whole
    if codec is Compression.SNAPPY:
        yield "blocks of two", first + second[XERIAL_HEADER_BYTES:]
        yield "an empty block behind it", whole + struct.pack(">i", 1) + b"\0"
        yield "a block of no bytes behind it", whole + struct.pack(">i", 0)


def with_section(plain: bytes, codec: Compression, section: bytes) -> bytes:
    """The batch with these compressed records instead of its own."""
    made = bytearray(plain[:HEADER_BYTES] + section)
    struct.pack_into(">h", made, ATTRIBUTES_POSITION, codec)
    struct.pack_into(">i", made, LENGTH_POSITION, len(made) - LENGTH_FROM)
    struct.pack_into(">I", made, CRC_POSITION, crc32c(bytes(made[ATTRIBUTES_POSITION:])))
    return bytes(made)


def readable_batches() -> list[tuple[str, bytes]]:
    """Name and batch of `RECORDS` of each codec and form that can be read."""
    return [(name, batch) for name, batch, is_readable in all_batches() if is_readable]


def all_batches() -> list[tuple[str, bytes, bool]]:
    """Name and batch of each form, and whether it can be read."""
    plain = bytes(build_batch(RECORDS))
    return [
        (f"{codec.name.lower()}, {name}", with_section(plain, codec, section), name not in UNREADABLE[codec])
        for codec in CODECS
        for name, section in forms(codec, plain[HEADER_BYTES:])
    ]
