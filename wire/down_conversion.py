"""Records for Fetch 0 to 3: stored batches as messages of formats v0 and v1, as many bytes as Kafka sends.

Kafka 3.9 promises the size of an answer before it converts what goes into it: the bytes that were read, or
those of the first batch once converted where that is more, so that every client gets on (KIP-283). What does
not fit is cut off, in the middle of a message too, and what is missing at the end is filled with the
beginning of a message that claims to be longer than what is left: clients wait for its rest and ask again
behind the last whole one. The same bytes come from here, save for how another snappy library packs them, and
as there they are made while they are sent.

Three slips are not taken over. Where the first batches of a read vanish (control batches, or all their
records are below the offset that was asked for), Kafka sends the first that stays twice; and it breaks the
connection off within the answer where more than 128 KiB are to be filled after a batch that cannot be
converted, and where a batch behind the first is damaged, which here counts as one that cannot be converted.

Source: LazyDownConversionRecords.java and LazyDownConversionRecordsSend.java of Kafka 3.9.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct

from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression
from odradek.wire.errors import KafkaError
from odradek.wire.legacy_records import batch_to_legacy
from odradek.wire.record_layout import Buffer
from odradek.wire.records import (
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    read_batch_header,
)
from odradek.wire.work import Work, finish

CHUNK_BYTES = 128 * 1024
"""The bytes that are converted in one step. A batch that cannot be converted ends the step before the
others."""

QUICK_BATCH_BYTES_MAX = 16_384
"""Up to here an uncompressed batch costs less than having another thread do it."""

_OVERFLOW = Struct(">qi")


def down_convert(
    records: Buffer, magic: int, first_offset: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """All of a `DownConversion` at once."""
    conversion = DownConversion(records, magic, first_offset, limit_bytes=limit_bytes)
    return finish(_converting_all(conversion))


def _converting_all(conversion: "DownConversion") -> Work[bytes]:
    yield from conversion.beginning()
    return (yield from conversion.rest())


class DownConversion:
    """The bytes of a fetch from `first_offset`, its last batch perhaps cut off, in the format `magic` (0, 1).

    They come piece by piece, each of them a chunk at most, so that no more of them need exist at once. Only
    after `beginning` is it known how many they are. `load(position, size_bytes)` is called, elsewhere, before
    a stretch of `records` is touched; None: all of it is in memory.
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
        self._position = 0  # of the first batch that has not been converted
        self._first: Buffer = b""
        self._is_first_missing = False
        self._is_at_end = False
        self.left_bytes = 0
        """The size of the pieces that `next_piece` has not returned yet."""

    @property
    def kept_bytes(self) -> int:
        """The bytes that are held until the first piece is made."""
        return len(self._first)

    def beginning(self) -> Work[None]:
        """Converts the first batch, by which the size of the whole is known.

        Refuses with UNSUPPORTED_COMPRESSION_TYPE when it is compressed with zstd, and with CORRUPT_MESSAGE or
        INVALID_RECORD when it is damaged.
        """
        self._first = yield from self._converting_first()
        if self._first:
            self.left_bytes = max(len(self._view), len(self._first))
        elif self._position:
            self.left_bytes = LOG_OVERHEAD_BYTES

    def forget_first(self) -> None:
        """Frees these bytes until the first piece is made, at the price of a second conversion."""
        self._is_first_missing = bool(self._first)
        self._first = b""

    def next_piece(self) -> Work[Buffer]:
        """The next piece, never empty.

        What cannot be converted ends it, and is not refused: the client will be told when it asks for that
        batch first. Its size has been promised, so it is filled up.
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
        """All that is left, at once."""
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
        """Of the batch at the present position; None at the end, where the last may be cut off.

        With `ahead_bytes` so much from there on is loaded, a header behind it, and the whole batch.
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
        """One batch, elsewhere if it may take long."""
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
    """The beginning of a message that is longer than what is left of the answer."""
    head = _OVERFLOW.pack(-1, max(left_bytes + 1, HEADER_SIZE_BYTES))
    size_bytes = min(left_bytes, CHUNK_BYTES)
    return head[:size_bytes] + bytes(max(size_bytes - len(head), 0))
