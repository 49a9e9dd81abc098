"""Stored records as messages of Kafka 0.7, whose sizes are the positions of its consumers.

A message has the value of a record and nothing else: a key, headers and the time have no place there, and a
null value is an empty payload. Control records are no messages. The size of a message follows from the size
of the value alone, so a position never depends on how a batch is compressed.

There are three forms:

- PLAIN, for logs whose records stay until they are deleted from the front: a message without compression.
- MAGIC_0, the same for clients that know only the messages of Kafka 0.6. They know no compression, so there
  is no such form of a compacted log.
- WRAPPED, for compacted logs: a gzip message with one inner message, in stored blocks, so that its size is
  known too. Where a record has gone, `filler` has the same size: a gzip message with an empty set, whose
  header has a comment of the missing length. Consumers pass over it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from odradek.wire._records import BatchHeader
from odradek.wire.compression import Compression
from odradek.wire.kafka07.messages import HEAD_BYTES, encode_message
from odradek.wire.record_layout import Buffer
from odradek.wire.records import records_section, scan_records

_GZIP_HEAD = b"\x1f\x8b\x08%c\0\0\0\0\0\xff"
_WITH_COMMENT = 16
_GZIP_BYTES = 18
"""Head and tail."""
_EMPTY_BLOCK = b"\x03\0"
_BLOCK_BYTES_MAX = 0xFFFF
_BLOCK = Struct("<BHH")
_TAIL = Struct("<II")
_FILLER_BYTES_MIN = HEAD_BYTES + _GZIP_BYTES + len(_EMPTY_BLOCK) + 1
"""With an empty comment. It is less than any record has in the WRAPPED form."""


class Form(IntEnum):
    PLAIN = 0
    WRAPPED = 1
    MAGIC_0 = 2


_HEAD_BYTES = {Form.PLAIN: HEAD_BYTES, Form.WRAPPED: HEAD_BYTES, Form.MAGIC_0: HEAD_BYTES - 1}


class Value(NamedTuple):
    """A stored record, as far as 0.7 can have it."""

    offset: int
    content: memoryview


def values_of(batch: Buffer, header: BatchHeader) -> Iterator[Value]:
    """The data records of a batch at the start of `batch`; nothing of a control batch. Refuses with
    CORRUPT_MESSAGE or INVALID_RECORD."""
    if header.is_control or header.record_count == 0:
        return
    section = memoryview(records_section(batch, header))
    table = scan_records(section, header.record_count, header.base_offset, header.base_timestamp)
    for offset, position, size in zip(table.offsets, table.value_positions, table.value_sizes, strict=True):
        yield Value(offset, section[position : position + size] if size > 0 else section[:0])


def served_bytes_of_batch(form: Form, batch: Buffer, header: BatchHeader, first_offset: int) -> int:
    """The size of all messages of a batch from `first_offset` on, not WRAPPED. Refuses as `values_of`."""
    return encode_batch(form, batch, header, first_offset, 0, 0)[1]


def encode_batch(
    form: Form,
    batch: Buffer,
    header: BatchHeader,
    first_offset: int,
    skipped_bytes: int,
    wanted_bytes: int,
) -> tuple[bytes, int]:
    """Messages of a batch from `first_offset` on, not WRAPPED: up to `wanted_bytes` after `skipped_bytes`,
    and the size of all of them. Refuses as `values_of`."""
    if header.is_control or header.record_count == 0:
        return b"", 0
    section = records_section(batch, header)
    table = scan_records(section, header.record_count, header.base_offset, header.base_timestamp)
    places, sizes = table.value_positions, table.value_sizes
    if first_offset > header.base_offset:
        first = bisect_left(table.offsets, first_offset)
        places, sizes = places[first:], sizes[first:]
    head_bytes, magic = _HEAD_BYTES[form], 0 if form is Form.MAGIC_0 else 1
    # A null counts as -1.
    nulls = sum(1 for size in sizes if size < 0) if min(sizes, default=0) < 0 else 0
    total_bytes = head_bytes * len(sizes) + sum(sizes) + nulls
    if wanted_bytes <= 0 or total_bytes <= skipped_bytes:
        return b"", total_bytes
    parts: list[bytes] = []
    position, end = 0, skipped_bytes + wanted_bytes
    before_bytes = 0
    for place, size in zip(places, sizes, strict=True):
        following = position + head_bytes + (size if size > 0 else 0)
        if following > skipped_bytes:
            if not parts:
                before_bytes = skipped_bytes - position
            parts.append(encode_message(section[place : place + size] if size > 0 else b"", magic))
            if following >= end:
                break
        position = following
    return b"".join(parts)[before_bytes : before_bytes + wanted_bytes], total_bytes


def served_bytes(form: Form, value_bytes: int) -> int:
    """The size of the message of a value of this size."""
    plain = _HEAD_BYTES[form] + value_bytes
    if form is not Form.WRAPPED:
        return plain
    return HEAD_BYTES + _GZIP_BYTES + _BLOCK.size * -(-plain // _BLOCK_BYTES_MAX) + plain


def encode(form: Form, content: Buffer) -> bytes:
    """The message of a value."""
    message = encode_message(content, magic=0 if form is Form.MAGIC_0 else 1)
    if form is not Form.WRAPPED:
        return message
    parts = [_GZIP_HEAD % 0]
    for start in range(0, len(message), _BLOCK_BYTES_MAX):
        block = message[start : start + _BLOCK_BYTES_MAX]
        is_last = start + len(block) == len(message)
        parts += (_BLOCK.pack(is_last, len(block), len(block) ^ 0xFFFF), block)
    parts.append(_TAIL.pack(crc32(message), len(message)))
    return encode_message(b"".join(parts), codec=Compression.GZIP)


def filler(size_bytes: int) -> bytes:
    """A message of this size, which is at least that of an empty value in the WRAPPED form, without
    content."""
    comment = b"-" * (size_bytes - _FILLER_BYTES_MIN)
    stream = _GZIP_HEAD % _WITH_COMMENT + comment + b"\0" + _EMPTY_BLOCK + _TAIL.pack(0, 0)
    return encode_message(stream, codec=Compression.GZIP)
