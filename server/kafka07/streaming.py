"""The bytes of a log in the form of Kafka 0.7, from any position on, in pieces.

A stream never waits for the disk in the event loop, and holds one piece at a time. Its bytes are the same
whenever they are read. What is gone from a compacted log is filled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from odradek.server.kafka07.positions import LogPositions, is_quick, reading, select
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.kafka07.served import Form, encode, encode_batch, filler, served_bytes, values_of
from odradek.wire.records import iter_whole_batches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.wire.record_layout import Buffer
    from odradek.wire.work import Work

PIECE_BYTES = 262_144
"""A piece is not much longer, unless one batch is."""
VALUES_AT_ONCE_MAX = 1024


def open_stream(positions: LogPositions, begin: int, size_bytes: int) -> Stream:
    """`size_bytes` from the position `begin` on, all of them counted and still in the log."""
    if positions.form is Form.WRAPPED:
        return WrappedStream(positions, begin, size_bytes)
    return PlainStream(positions, begin, size_bytes)


class Stream(ABC):
    """See the module."""

    def __init__(self, positions: LogPositions, begin: int, size_bytes: int) -> None:
        self._positions = positions
        self._begin = begin
        self._left_bytes = size_bytes

    def next_piece(self) -> Work[Buffer]:
        """Never empty; as long as there are bytes left. Refuses with KAFKA_STORAGE_ERROR what is not there
        any more."""
        piece = yield from self._more()
        self._begin += len(piece)
        self._left_bytes -= len(piece)
        return piece

    @abstractmethod
    def _more(self) -> Work[Buffer]:
        """The bytes from `_begin` on, some of those that are left."""

    def _missing(self) -> KafkaError:
        name = self._positions.log.name
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} has no record at position {self._begin}")


class PlainStream(Stream):
    """Stream of a log that is not compacted."""

    def __init__(self, positions: LogPositions, begin: int, size_bytes: int) -> None:
        super().__init__(positions, begin, size_bytes)
        entry = positions.entry_before(position=begin)
        self._offset, self._position = entry.offset, entry.position

    def _more(self) -> Work[Buffer]:
        while True:
            data = yield from reading(self._positions.log, self._offset)
            place = self._offset, self._position, self._begin, self._left_bytes
            make = partial(_plain, self._positions.form, data, *place)
            piece, offset, position = make() if is_quick(data) else (yield make)
            if piece:
                self._offset, self._position = offset, position
                return piece
            if offset == self._offset:
                raise self._missing()
            self._offset, self._position = offset, position


class WrappedStream(Stream):
    """Stream of a compacted log: each value that was counted, or a filler of its size."""

    def _more(self) -> Work[Buffer]:
        entry = self._positions.entry_before(position=self._begin)
        wanted = []
        wanted_bytes = 0
        for offset, size, position in islice(
            select(entry.values, self._begin, entry.position), VALUES_AT_ONCE_MAX
        ):
            wanted.append((offset, size, position))
            wanted_bytes += served_bytes(Form.WRAPPED, size)
            if wanted_bytes >= PIECE_BYTES:
                break
        if not wanted:
            raise self._missing()
        log = self._positions.log
        stored: dict[int, bytes] = {}
        offset, last_offset = max(wanted[0][0], log.log_start_offset), wanted[-1][0]
        while offset <= last_offset:
            data = yield from reading(log, offset)
            read = partial(_values_until, data, last_offset)
            values, next_offset = read() if is_quick(data) else (yield read)
            stored |= values
            if next_offset <= offset:
                break
            offset = next_offset
        make = partial(_wrapped, wanted, stored, self._begin, self._left_bytes)
        piece: Buffer = yield make
        return piece


def _plain(
    form: Form, data: memoryview, first_offset: int, position: int, begin: int, wanted_bytes: int
) -> tuple[bytes, int, int]:
    """Messages from the position `begin` on, to the end of a batch or for `wanted_bytes`; the first one at or
    after `first_offset` is at `position`. Then the place to go on: offset of a batch, and the position of its
    first message. May run in a worker thread.
    """
    parts: list[bytes] = []
    made_bytes = 0
    for at, header in iter_whole_batches(data):
        next_offset = header.last_offset + 1
        if next_offset <= first_offset:
            continue
        batch = data[at : at + header.size_bytes]
        part, size_bytes = encode_batch(
            form, batch, header, first_offset, max(begin - position, 0), wanted_bytes - made_bytes
        )
        if part:
            parts.append(part)
            made_bytes += len(part)
        following = position + size_bytes
        first_offset, position = next_offset, following
        if made_bytes >= min(PIECE_BYTES, wanted_bytes):
            break
    return b"".join(parts), first_offset, position


def _values_until(data: memoryview, last_offset: int) -> tuple[dict[int, bytes], int]:
    """The values of batches up to an offset, and the offset after the batches. May run in a worker thread."""
    found: dict[int, bytes] = {}
    next_offset = -1
    for at, header in iter_whole_batches(data):
        if header.base_offset > last_offset:
            return found, last_offset + 1
        for value in values_of(data[at : at + header.size_bytes], header):
            found[value.offset] = bytes(value.content)
        next_offset = header.last_offset + 1
    return found, next_offset


def _wrapped(
    wanted: list[tuple[int, int, int]], stored: Mapping[int, bytes], begin: int, wanted_bytes: int
) -> bytes:
    """May run in a worker thread."""
    parts = []
    for offset, size, _ in wanted:
        content = stored.get(offset)
        if content is not None and len(content) == size:
            parts.append(encode(Form.WRAPPED, content))
        else:
            parts.append(filler(served_bytes(Form.WRAPPED, size)))
    skipped_bytes = max(begin - wanted[0][2], 0)
    return b"".join(parts)[skipped_bytes : skipped_bytes + wanted_bytes]
