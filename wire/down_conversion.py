"""Records for Fetch 0 to 3: stored batches as messages of formats v0 and v1, with the same sizes as in Kafka.

Kafka 3.9 fixes the size of a response before it converts the records: the bytes read from the log, or the
size of the first converted batch if that is more, so that every client progresses (KIP-283). The converted
messages are cut at this size, also within a message; if they are shorter, the rest is filled with the
beginning of a message that is longer than the rest. Clients ignore an incomplete message and fetch again
after the last whole one. This module makes the same bytes, except for the compression by another snappy
library, and as in Kafka it makes them while they are sent.

Three errors of Kafka are not copied. If the first batches of a read are left out (control batches, or all
records below the fetch offset), Kafka sends the next batch twice. It closes the connection within the
response if it has to fill more than 128 KiB after a batch that cannot be converted, and if a later batch is
damaged; here such a batch counts as one that cannot be converted.

Source: LazyDownConversionRecords.java and LazyDownConversionRecordsSend.java of Kafka 3.9.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct

from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression
from odradek.wire.errors import KafkaError
from odradek.wire.legacy_records import batch_to_legacy
from odradek.wire.record_layout import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, Buffer
from odradek.wire.work import Work, finish

CHUNK_BYTES = 128 * 1024
"""The bytes converted in one step. A batch that cannot be converted ends a step."""

QUICK_BATCH_BYTES_MAX = 16_384
"""Up to this size an uncompressed batch is converted faster here than in another thread."""

_OVERFLOW = Struct(">qi")


def down_convert(
    records: Buffer, magic: int, first_offset: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """The whole result of a `DownConversion`."""
    conversion = DownConversion(records, magic, first_offset, limit_bytes=limit_bytes)
    return finish(_converting_all(conversion))


def _converting_all(conversion: "DownConversion") -> Work[bytes]:
    yield from conversion.beginning()
    return (yield from conversion.rest())


class DownConversion:
    """The records of a fetch from `first_offset` on, with a possibly incomplete last batch, in the format
    `magic` (0, 1).

    The bytes come in parts of at most one chunk, to limit memory. Their size is known after `beginning`.
    `load(position, size_bytes)` is called in a worker thread before a range of `records` is read; None: all
    of them are in memory.
    """

    __slots__ = (
        "_first",
        "_first_offset",
        "_is_at_end",
        "_is_first_missing",
        "_limit_bytes",
        "_load",
        "_magic",
        "_position",
        "_view",
        "left_bytes",
    )

    def __init__(
        self,
        records: Buffer,
        magic: int,
        first_offset: int,
        *,
        load: Callable[[int, int], None] | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._view = memoryview(records)
        self._magic = magic
        self._first_offset = first_offset
        self._load = load
        self._limit_bytes = limit_bytes
        self._position = 0  # of the first batch not converted yet
        self._first: Buffer = b""
        self._is_first_missing = False
        self._is_at_end = False
        self.left_bytes = 0
        """The size of the parts that `next_piece` has not returned yet."""

    @property
    def kept_bytes(self) -> int:
        """The bytes in memory until the first part is made."""
        return len(self._first)

    def beginning(self) -> Work[None]:
        """Converts the first batch, which determines the total size.

        Refuses with UNSUPPORTED_COMPRESSION_TYPE when it is compressed with zstd, and with CORRUPT_MESSAGE or
        INVALID_RECORD when it is damaged.
        """
        self._first = yield from self._converting_first()
        if self._first:
            self.left_bytes = max(len(self._view), len(self._first))
        elif self._position:
            self.left_bytes = LOG_OVERHEAD_BYTES

    def forget_first(self) -> None:
        """Frees the converted first batch; it is converted again for the first part."""
        self._is_first_missing = bool(self._first)
        self._first = b""

    def next_piece(self) -> Work[Buffer]:
        """The next part, never empty.

        A batch that cannot be converted ends the messages without an error: the client gets the error when it
        fetches from this batch. The rest of the size is filled up.
        """
        assert self.left_bytes > 0
        piece = yield from self._more()
        if not piece:
            piece = _overflow(self.left_bytes)
        elif len(piece) > self.left_bytes:
            piece = memoryview(piece)[: self.left_bytes]
        self.left_bytes -= len(piece)
        return piece

    def rest(self) -> Work[bytes]:
        """All remaining bytes."""
        pieces = []
        while self.left_bytes:
            pieces.append((yield from self.next_piece()))
        return b"".join(pieces)

    def _more(self) -> Work[Buffer]:
        """The next messages; empty at their end."""
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            if self._is_first_missing:
                self._is_first_missing = False
                self._position = 0
                return (yield from self._converting_first())
            while not self._is_at_end:
                messages = yield from self._converting_chunk()
                if messages:
                    return messages
        except KafkaError:
            self._is_at_end = True
        return b""

    def _converting_first(self) -> Work[Buffer]:
        while not self._is_at_end:
            header = yield from self._reading_header(CHUNK_BYTES)
            if header is None:
                break
            messages = yield from self._converting(self._position, header)
            self._position += header.size_bytes
            if messages:
                return messages
        return b""

    def _converting_chunk(self) -> Work[Buffer]:
        batches: list[tuple[int, BatchHeader]] = []
        left_bytes = CHUNK_BYTES
        while left_bytes > 0:
            header = yield from self._reading_header(0 if batches else CHUNK_BYTES)
            if header is None or (batches and header.size_bytes > left_bytes):
                break
            batches.append((self._position, header))
            left_bytes -= header.size_bytes
            self._position += header.size_bytes
        messages = bytearray()
        for position, header in batches:
            messages += yield from self._converting(position, header)
        return messages

    def _reading_header(self, ahead_bytes: int) -> Work[BatchHeader | None]:
        """The header of the batch at the current position; None at the end or for an incomplete batch. With
        `ahead_bytes` these bytes, one more header, and the whole batch are loaded.
        """
        position = self._position
        left_bytes = len(self._view) - position
        header = None
        if left_bytes >= HEADER_SIZE_BYTES:
            loaded_bytes = min(ahead_bytes + HEADER_SIZE_BYTES, left_bytes)
            if ahead_bytes and self._load is not None:
                yield partial(self._load, position, loaded_bytes)
            header = read_batch_header(self._view, position)
            if header.size_bytes > left_bytes:
                header = None
            elif ahead_bytes and self._load is not None and header.size_bytes > loaded_bytes:
                yield partial(self._load, position + loaded_bytes, header.size_bytes - loaded_bytes)
        self._is_at_end = header is None
        return header

    def _converting(self, position: int, header: BatchHeader) -> Work[Buffer]:
        """Converts one batch, in a worker thread if it may take long."""
        work = partial(
            batch_to_legacy,
            self._view,
            position,
            header,
            self._magic,
            self._first_offset,
            limit_bytes=self._limit_bytes,
        )
        if header.size_bytes <= QUICK_BATCH_BYTES_MAX and header.compression == Compression.NONE:
            yield None
            return work()
        converted: Buffer = yield work
        return converted


def _overflow(left_bytes: int) -> bytes:
    """The beginning of a message that is longer than the rest of the response."""
    head = _OVERFLOW.pack(-1, max(left_bytes + 1, HEADER_SIZE_BYTES))
    size_bytes = min(left_bytes, CHUNK_BYTES)
    return head[:size_bytes] + bytes(max(size_bytes - len(head), 0))
