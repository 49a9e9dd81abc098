"""What Fetch 0 to 3 carry: stored batches as messages of the formats v0 and v1, as many bytes as Kafka sends.

Kafka 3.9 promises the size of an answer before it converts what goes into it: the bytes that were read, or
those of the first batch once converted where that is more, so that every client gets on (KIP-283). What does
not fit is cut off, in the middle of a message too, and what is missing at the end is filled with the
beginning of a message that claims to be longer than what is left: clients wait for its rest and ask again
behind the last whole one. The same bytes come from here, save for how another snappy library packs them.

Two slips are not taken over. Where the first batches of a read vanish (control batches, or all their records
are below the offset that was asked for), Kafka sends the first that stays twice; and where more than 128 KiB
are to be filled after a batch that cannot be converted, it breaks the connection off within the answer.

Source: LazyDownConversionRecords.java and LazyDownConversionRecordsSend.java of Kafka 3.9.
"""

from collections.abc import Iterator
from functools import partial
from struct import Struct

from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import batch_to_legacy
from odradek.wire.records import (
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    iter_whole_batches,
)
from odradek.wire.work import Work, finish

CHUNK_BYTES = 128 * 1024
"""So much is converted at once. It shows where a batch cannot be converted: the others do not come either."""

QUICK_BATCH_BYTES_MAX = 16_384
"""Up to here an uncompressed batch costs less than having another thread do it."""

_OVERFLOW = Struct(">qi")


def down_convert(
    records: Buffer, magic: int, first_offset: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """All of `down_converting` at once."""
    return finish(down_converting(records, magic, first_offset, limit_bytes=limit_bytes))


def down_converting(
    records: Buffer, magic: int, first_offset: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Work[bytes]:
    """The bytes of a fetch from `first_offset`, its last batch perhaps cut off, in the format `magic` (0, 1).

    Refuses with UNSUPPORTED_COMPRESSION_TYPE when the first batch is compressed with zstd, and with
    CORRUPT_MESSAGE or INVALID_RECORD what is damaged.
    """
    view = memoryview(records)
    batches = list(iter_whole_batches(view))
    if not batches:
        return b""
    convert = partial(_converting, view, magic, first_offset, limit_bytes)
    converted = bytearray()
    count = 0
    while not converted and count < len(batches):
        converted += yield from convert(*batches[count])
        count += 1
    size_bytes = max(len(view), len(converted)) if converted else LOG_OVERHEAD_BYTES
    for chunk in _chunks(batches[count:]):
        if len(converted) >= size_bytes:
            break
        messages = bytearray()
        try:
            for batch in chunk:
                messages += yield from convert(*batch)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                raise
            # The client will be told when it asks for that batch first.
            break
        converted += messages
    del converted[size_bytes:]
    while len(converted) < size_bytes:
        converted += _overflow(size_bytes - len(converted))
    return bytes(converted)


def _converting(
    view: memoryview, magic: int, first_offset: int, limit_bytes: int, position: int, header: BatchHeader
) -> Work[Buffer]:
    """One batch, elsewhere if it may take long."""
    work = partial(batch_to_legacy, view, position, header, magic, first_offset, limit_bytes=limit_bytes)
    if header.size_bytes <= QUICK_BATCH_BYTES_MAX and header.compression == Compression.NONE:
        yield None
        return work()
    return (yield work)


def _chunks(batches: list[tuple[int, BatchHeader]]) -> Iterator[list[tuple[int, BatchHeader]]]:
    chunk: list[tuple[int, BatchHeader]] = []
    left_bytes = CHUNK_BYTES
    for position, header in batches:
        if chunk and header.size_bytes > left_bytes:
            yield chunk
            chunk, left_bytes = [], CHUNK_BYTES
        chunk.append((position, header))
        left_bytes -= header.size_bytes
    if chunk:
        yield chunk


def _overflow(left_bytes: int) -> bytes:
    """The beginning of a message that is longer than what is left of the answer."""
    head = _OVERFLOW.pack(-1, max(left_bytes + 1, HEADER_SIZE_BYTES))
    size_bytes = min(left_bytes, CHUNK_BYTES)
    return head[:size_bytes] + bytes(max(size_bytes - len(head), 0))
