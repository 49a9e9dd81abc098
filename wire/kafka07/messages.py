"""Message sets of Kafka 0.7, as producers send them.

A message has a size before it, then magic 0 (CRC, payload) or magic 1 (attributes, CRC, payload). The CRC-32
is of the payload. Attributes name a codec: then the payload is a compressed message set. There are no keys,
no headers, no timestamps and no null.

A message that is cut at the end of a set is ignored, unless it is the first one. What 0.7 refuses raises
`Unreadable`; a set with a payload over the limit raises `TooLarge`, which 0.7 logs and drops. Whichever comes
first in the set counts. A set is checked as a whole before anything of it is stored. Compressed sets within
each other, which no client writes, have a limit here, as has what they decompress to.

Source: Message, ByteBufferMessageSet and CompressionUtils of 0.7.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression, compress, decompress
from odradek.wire.errors import KafkaError
from odradek.wire.kafka07 import Unreadable
from odradek.wire.record_layout import Buffer

SIZE_BYTES = 4
HEAD_BYTES = 10
"""Before the payload of a message of magic 1, with its size."""
CRC_BYTES = 4
MAGIC_0_BYTES, MAGIC_1_BYTES = 5, 6
CODEC_MASK = 3
NESTED_MAX = 4

_SIZE = Struct(">i").unpack_from
_CRC = Struct(">I").unpack_from
_MAGIC_0 = Struct(">iBI")
_MAGIC_1 = Struct(">iBBI")


class TooLarge(Exception):
    """A payload is larger than the broker takes: 0.7 drops the set, and keeps the connection."""


class Message(NamedTuple):
    """A message as it stands in a set."""

    codec: int
    payload: memoryview


def iter_messages(data: Buffer) -> Iterator[Message]:
    """The messages of a set, with their checksums checked; what is compressed stays so. Raises
    `Unreadable`."""
    view = memoryview(data)
    position, end = 0, len(view)
    while end - position >= SIZE_BYTES:
        (size_bytes,) = _SIZE(view, position)
        start = position + SIZE_BYTES
        following = start + size_bytes
        if size_bytes < 0 or following > end:
            if size_bytes >= 0 and position:
                return
            raise Unreadable(f"a message of {size_bytes} bytes where {end - start} are left")
        magic = view[start] if size_bytes else 0
        if magic > 1:
            raise Unreadable(f"there is no message of magic {magic} in Kafka 0.7")
        head_bytes = MAGIC_1_BYTES if magic else MAGIC_0_BYTES
        if size_bytes < head_bytes:
            raise Unreadable(f"a message of {size_bytes} bytes is shorter than its head")
        payload = view[start + head_bytes : following]
        if crc32(payload) != _CRC(view, start + head_bytes - CRC_BYTES)[0]:
            raise Unreadable(f"the checksum of a message of {size_bytes} bytes is wrong")
        yield Message(view[start + 1] & CODEC_MASK if magic else Compression.NONE, payload)
        position = following


def check_set(data: Buffer, payload_bytes_max: int, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
    """Raises `Unreadable` or `TooLarge`; see the module."""
    has_codec = False
    for message in iter_messages(data):
        if len(message.payload) > payload_bytes_max:
            raise TooLarge(f"a payload of {len(message.payload)} bytes is over {payload_bytes_max}")
        has_codec = has_codec or bool(message.codec)
    if has_codec:
        for message in iter_messages(data):
            for _ in payloads(message, limit_bytes):
                pass


def has_compressed(data: Buffer) -> bool:
    """Whether a message of a set is compressed, as far as the set can be read."""
    try:
        return any(message.codec for message in iter_messages(data))
    except Unreadable:
        return False


def payloads(message: Message, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[memoryview]:
    """The payloads of a message, more than one if it is compressed. All together decompress to no more than
    `limit_bytes`. Raises `Unreadable`."""
    return _unpacked(message, [limit_bytes], NESTED_MAX)


def encode_message(payload: Buffer, magic: int = 1, codec: int = Compression.NONE) -> bytes:
    """A message of `payload`, which with a codec is a compressed set."""
    if magic == 0:
        return _MAGIC_0.pack(MAGIC_0_BYTES + len(payload), 0, crc32(payload)) + bytes(payload)
    return _MAGIC_1.pack(MAGIC_1_BYTES + len(payload), 1, codec, crc32(payload)) + bytes(payload)


def encode_set(contents: list[bytes], magic: int = 1, codec: int = Compression.NONE) -> bytes:
    """A message set as a producer of 0.7 makes it."""
    whole = b"".join(encode_message(content, magic) for content in contents)
    return encode_message(compress(codec, whole), 1, codec) if codec else whole


def _unpacked(message: Message, room_bytes: list[int], nested_left: int) -> Iterator[memoryview]:
    if message.codec == Compression.NONE:
        yield message.payload
        return
    if message.codec not in (Compression.GZIP, Compression.SNAPPY):
        raise Unreadable(f"there is no codec {message.codec} in Kafka 0.7")
    if not nested_left:
        raise Unreadable("compressed sets within each other")
    try:
        inner = decompress(message.codec, message.payload, room_bytes[0])
    except KafkaError as error:
        raise Unreadable(f"a compressed set: {error}") from None
    room_bytes[0] -= len(inner)
    for one in iter_messages(inner):
        yield from _unpacked(one, room_bytes, nested_left - 1)
