"""The four compressions of record batches, in all variants of Kafka's clients.

Data of any Kafka client is read; data is written in Java's formats (gzip without a time stamp, snappy in
Xerial framing, lz4 frames of independent blocks, zstd). For any input `decompress` needs at most
`limit_bytes` (and a few codec blocks) of memory. The codec libraries are imported on first use, so that a
broker that never decompresses a batch never loads them.

Sources: KIP-57 (lz4 header checksum), KIP-110 (zstd), KIP-390 (levels), the LZ4 frame format, the Xerial
stream format as `org.xerial.snappy.SnappyOutputStream` writes it.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from types import ModuleType

from odradek.wire.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview

# Above `socket.request.max.bytes` (100 MB): records that fit into an uncompressed request are not refused.
DEFAULT_LIMIT_BYTES = 128 << 20


class Compression(IntEnum):
    """The codec in the low three bits of a batch's attributes; 5 to 7 are undefined."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compression_named(name: str) -> Compression:
    """The codec by Kafka's name ("none", "gzip", "snappy", "lz4", "zstd"); ValueError for other names."""
    for compression in Compression:
        if compression.name.lower() == name:
            return compression
    raise ValueError(f"unknown compression {name!r}")


def compress(compression: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data` as one compressed block, as from Kafka's producer for the format `magic`.

    `level` is `compression.{gzip,lz4,zstd}.level`; None means Kafka's default. Snappy has no levels.
    """
    if compression == Compression.GZIP:
        return _compress_gzip(data, level)
    if compression == Compression.SNAPPY:
        return _compress_snappy(data)
    if compression == Compression.LZ4:
        return _compress_lz4(data, level, broken_checksum=magic == 0)
    if compression == Compression.ZSTD:
        return _compress_zstd(data, level)
    if compression == Compression.NONE:
        return bytes(data)
    raise ValueError(f"no compression has the number {compression}")


def decompress(
    compression: int, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, magic: int = 2
) -> bytes:
    """The decompressed content of `data`.

    Refuses with CORRUPT_MESSAGE damaged or incomplete data, with MESSAGE_TOO_LARGE data that decompresses to
    more than `limit_bytes`, and with UNSUPPORTED_COMPRESSION_TYPE an undefined codec number. `magic` 0
    accepts the wrong lz4 header checksum of clients before KIP-57.
    """
    decoder = _DECODERS.get(compression)
    if decoder is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {compression}")
    if compression == Compression.LZ4 and magic == 0:
        data = _with_right_lz4_checksum(data)
    return decoder(data, limit_bytes)


def _corrupt(codec: str, why: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec} data is damaged: {why}")


def _too_large(codec: str, limit_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{codec} data is larger than {limit_bytes} bytes when decompressed"
    )


def _as_it_is(data: Buffer, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise _too_large("uncompressed", limit_bytes)
    return bytes(data)


# gzip --------------------------------------------------------------------------------

_GZIP_WINDOW_BITS = 31  # 15, plus 16 for the gzip wrapper
_GZIP_MAGIC = b"\x1f\x8b\x08"  # with the only method
_GZIP_HEADER_BYTES = 10
_GZIP_FLAGS, _GZIP_EXTRA_FLAGS, _GZIP_SYSTEM = 3, 8, 9
_GZIP_CHECKSUM, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
_UNKNOWN_SYSTEM = 255  # as Java from version 16 on


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS
    )
    compressed = bytearray(compressor.compress(data) + compressor.flush())
    compressed[_GZIP_EXTRA_FLAGS] = 0
    compressed[_GZIP_SYSTEM] = _UNKNOWN_SYSTEM
    return bytes(compressed)


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    """All members. Bytes behind them that do not begin as one are passed over, as by Java: old clients in
    .NET and PHP send whole buffers. Seen with Kafka 4.3.1 (differential/test_compressed_data.py).
    """
    members = []
    room_bytes = limit_bytes
    while True:
        decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            # One byte more than the limit: 0 would mean no limit, and the additional byte shows an excess.
            member = decompressor.decompress(data, room_bytes + 1)
        except zlib.error as error:
            raise _corrupt("gzip", error) from None
        if len(member) > room_bytes:
            raise _too_large("gzip", limit_bytes)
        if not decompressor.eof:
            raise _corrupt("gzip", "it ends before its end mark")
        members.append(member)
        room_bytes -= len(member)
        data = decompressor.unused_data
        if not _has_gzip_header(data):
            return members[0] if len(members) == 1 else b"".join(members)


def _has_gzip_header(data: bytes) -> bool:
    """Whether it begins with a whole header of a member."""
    if len(data) < _GZIP_HEADER_BYTES or not data.startswith(_GZIP_MAGIC):
        return False
    flags, position = data[_GZIP_FLAGS], _GZIP_HEADER_BYTES
    if flags & _GZIP_EXTRA:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            end = data.find(b"\0", position)
            if end < 0:
                return False
            position = end + 1
    if flags & _GZIP_CHECKSUM:
        checksum = int.from_bytes(data[position : position + 2], "little")
        if checksum != zlib.crc32(data[:position]) & 0xFFFF:
            return False
        position += 2
    return position <= len(data)


# snappy --------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = Struct(">8sii")
_XERIAL_BLOCK_SIZE = Struct(">i")
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MOST_GROWTH = 22  # a copy of 64 bytes takes three bytes


def _snappy() -> ModuleType:
    import snappy

    module: ModuleType = snappy
    return module


def _compress_snappy(data: Buffer) -> bytes:
    snappy = _snappy()
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    """Xerial's framing if its header is present, otherwise one raw block (librdkafka, Go clients).

    As in `org.xerial.snappy.SnappyInputStream`, a stream may follow a stream, and less than a block size at
    the end is passed over. Seen with Kafka 4.3.1 (differential/test_compressed_data.py).
    """
    view = memoryview(data)
    if len(view) < _XERIAL_HEADER.size or view[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit_bytes, limit_bytes)
    blocks = []
    room_bytes = limit_bytes
    position = _XERIAL_HEADER.size
    while len(view) - position >= _XERIAL_BLOCK_SIZE.size:
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += _XERIAL_HEADER.size
            continue
        (size_bytes,) = _XERIAL_BLOCK_SIZE.unpack_from(view, position)
        position += 4
        if not 0 <= size_bytes <= len(view) - position:
            raise _corrupt("snappy", f"a block of {size_bytes} bytes where {len(view) - position} are left")
        block = _decompress_snappy_block(view[position : position + size_bytes], room_bytes, limit_bytes)
        blocks.append(block)
        room_bytes -= len(block)
        position += size_bytes
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, room_bytes: int, limit_bytes: int) -> bytes:
    size_bytes = _announced_snappy_size(block)
    if size_bytes > _SNAPPY_MOST_GROWTH * len(block):
        raise _corrupt("snappy", f"{len(block)} bytes cannot hold the {size_bytes} of their header")
    if size_bytes > room_bytes:
        raise _too_large("snappy", limit_bytes)
    try:
        content: bytes = _snappy().uncompress(bytes(block))
        return content
    except Exception as error:  # python-snappy's exception type depends on its version
        raise _corrupt("snappy", error) from None


def _announced_snappy_size(block: memoryview) -> int:
    size_bytes = 0
    for shift, byte in zip(range(0, 35, 7), block, strict=False):
        size_bytes |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size_bytes
    raise _corrupt("snappy", "the size in its header is invalid")


# lz4 --------------------------------------------------------------------------------

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS = 0x20
_LZ4_CONTENT_SIZE = 0x08
_LZ4_DEFAULT_LEVEL = 9  # Kafka's default, for which Java uses the fast compressor
_LZ4_FIRST_THOROUGH_LEVEL = 3


def _compress_lz4(data: Buffer, level: int | None, *, broken_checksum: bool) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        bytes(data),
        compression_level=0 if level in (None, _LZ4_DEFAULT_LEVEL) else max(level, _LZ4_FIRST_THOROUGH_LEVEL),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Java reads only independent blocks
        store_size=False,
    )
    return _with_lz4_checksum_over(frame, 0) if broken_checksum else frame


def _decompress_lz4(data: Buffer, limit_bytes: int) -> bytes:
    import lz4.frame

    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise _corrupt("lz4", "it is not a frame")
    if not data[4] & _LZ4_INDEPENDENT_BLOCKS:
        raise _corrupt("lz4", "its blocks depend on each other, which Java's consumers cannot read")
    decompressor = lz4.frame.LZ4FrameDecompressor()
    pieces = []
    room_bytes = limit_bytes
    piece_bytes = max(64 * 1024, 4 * len(data))
    try:
        while not decompressor.eof and room_bytes >= 0:
            # The library allocates its output limit: use growing limits, not the whole one.
            piece = decompressor.decompress(data, min(piece_bytes, room_bytes + 1))
            if not piece and not decompressor.eof and decompressor.needs_input:
                raise _corrupt("lz4", "it ends before its end mark")
            pieces.append(piece)
            room_bytes -= len(piece)
            piece_bytes *= 2
            data = b""
    except RuntimeError as error:
        raise _corrupt("lz4", error) from None
    if room_bytes < 0:
        raise _too_large("lz4", limit_bytes)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _with_right_lz4_checksum(frame: Buffer) -> Buffer:
    """A frame of message format v0 with the right checksum; its writers included the magic number in the
    sum."""
    if len(frame) < 7 or bytes(frame[:4]) != _LZ4_MAGIC:
        return frame
    return _with_lz4_checksum_over(frame, 4)


def _with_lz4_checksum_over(frame: Buffer, start: int) -> bytes:
    end = 14 if frame[4] & _LZ4_CONTENT_SIZE else 6
    patched = bytearray(frame)
    if end < len(patched):
        patched[end] = _xxh32_of_few(bytes(patched[start:end])) >> 8 & 0xFF
    return bytes(patched)


def _xxh32_of_few(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, as in the header of an lz4 frame."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    hashed = 374761393 + len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        hashed = hashed + int.from_bytes(data[start : start + 4], "little") * 3266489917 & mask
        hashed = (hashed << 17 | hashed >> 15) * 668265263 & mask
    for byte in data[whole:]:
        hashed = hashed + byte * 374761393 & mask
        hashed = (hashed << 11 | hashed >> 21) * 2654435761 & mask
    hashed = (hashed ^ hashed >> 15) * 2246822519 & mask
    hashed = (hashed ^ hashed >> 13) * 3266489917 & mask
    return hashed ^ hashed >> 16


# zstd --------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL = 3
# The largest growth: a block of four bytes can stand for 128 KiB of one byte.
_ZSTD_MOST_GROWTH = 32 * 1024
_ZSTD_LEAST_PIECE_BYTES = 64
_ZSTD_SMALL_LIMIT_BYTES = 1 << 20


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level).compress(data)


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    """Frames one after the other, with or without their content size (Java's streams have none)."""
    import zstandard

    view = memoryview(data)
    pieces: list[bytes] = []
    room_bytes = limit_bytes
    position = 0
    frame = None
    try:
        if limit_bytes <= _ZSTD_SMALL_LIMIT_BYTES:
            whole = _decompress_small_zstd(view, limit_bytes)
            if whole is not None:
                return whole
        while position < len(view):
            if frame is None:
                frame = zstandard.ZstdDecompressor().decompressobj()
            # The library has no limit, so it gets only as much input as can grow to the remaining size.
            end = position + max(_ZSTD_LEAST_PIECE_BYTES, room_bytes // _ZSTD_MOST_GROWTH)
            piece = frame.decompress(view[position:end])
            pieces.append(piece)
            room_bytes -= len(piece)
            if room_bytes < 0:
                raise _too_large("zstd", limit_bytes)
            position = min(end, len(view))
            if frame.eof:
                position -= len(frame.unused_data)
                frame = None
    except zstandard.ZstdError as error:
        raise _corrupt("zstd", error) from None
    if frame is not None or not pieces:
        raise _corrupt("zstd", "it ends before its end mark")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decompress_small_zstd(view: memoryview, limit_bytes: int) -> bytes | None:
    """One whole frame, into a buffer of the limit's size; None for other input. With a small limit the parts
    of the input would be very small.
    """
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    try:
        announced = zstandard.frame_content_size(view)  # 0: perhaps a skippable frame; -1: unknown
        if announced and announced <= limit_bytes:
            return decompressor.decompress(view, max_output_size=limit_bytes, allow_extra_data=False)
    except zstandard.ZstdError:
        pass  # too large, incomplete, damaged, or more than one frame
    if len(decompressor.stream_reader(view, read_across_frames=True).read(limit_bytes + 1)) > limit_bytes:
        raise _too_large("zstd", limit_bytes)
    return None


_DECODERS: dict[int, Callable[[Buffer, int], bytes]] = {
    Compression.NONE: _as_it_is,
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
