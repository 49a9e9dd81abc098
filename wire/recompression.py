"""Batches packed anew: `compression.type` of a topic may ask for another codec than the producer's.

A MB of text takes 3 ms to snappy or lz4, 11 ms to zstd and 36 ms to gzip (their default levels; 75 ms to lz4
at 17, 750 ms to zstd at 19), 1 to 5 ms more when it came packed: `storage/log/preparation.py` says what
of it is done in the event loop.

Source: `LogValidator.buildRecordsAndAssignOffsets` and `MemoryRecordsBuilder` of Kafka 4.3.
"""

from struct import Struct

from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression, compress
from odradek.wire.record_layout import ATTRIBUTES_POSITION, COMPRESSION_MASK, LENGTH_POSITION, Buffer
from odradek.wire.records import (
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    read_batch_header,
    records_section,
    set_max_timestamp,
)

__all__ = ["recompress"]

_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")


def recompress(
    batch: Buffer,
    header: BatchHeader,
    compression: int,
    level: int | None = None,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> bytearray:
    """The sound batch at the start of `batch`, whose header is `header`, with its records in another codec.

    Of the header only size, codec and checksum change: offsets, timestamps, producer and sequence stay, and
    so does each byte of the records when they are unpacked. Refuses as `records_section` does.
    """
    section = records_section(batch, header, limit_bytes)
    packed = section if compression == Compression.NONE else compress(compression, section, level)
    made = bytearray(memoryview(batch)[:HEADER_SIZE_BYTES])
    made += packed
    _LENGTH.pack_into(made, LENGTH_POSITION, len(made) - LOG_OVERHEAD_BYTES)
    _ATTRIBUTES.pack_into(made, ATTRIBUTES_POSITION, header.attributes & ~COMPRESSION_MASK | compression)
    # For the sake of the checksum.
    set_max_timestamp(made, 0, read_batch_header(made), header.max_timestamp)
    return made
