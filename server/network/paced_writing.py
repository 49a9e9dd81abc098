"""Long responses are written in pieces, so that other connections are served in between.

For a client that reads fast enough, one system call would copy all 50 MB of a response and stop the event
loop for 10 ms. So a long response is not written within its request: one piece is written after each turn of
the event loop. A piece takes 30 us to copy while other connections are active, and doubles while they are
idle. Later responses of the same connection wait behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from time import perf_counter
from typing import Any, Protocol

from odradek.apis.api import LatePart

WRITE_BUFFER_HIGH_BYTES = 1024 * 1024
PIECE_BYTES_MAX = 1024 * 1024
"""Longer responses are written in pieces, up to this size in a turn of the event loop."""
PIECE_BYTES_MIN = 16 * 1024
"""Below this the call takes longer than the copying."""
PIECE_S = 0.00003
"""Limit for the copying of a piece while others are being served: each of them waits for one, and a small
piece only costs its reader one more call. Most are copied at two to four bytes a nanosecond
(`benchmarks.kernel_floor`), those of pages that the host has taken from its machine at half a byte."""
PIECE_SHARE = 0.2
"""Longer, this part of the time that the others' requests take, so that they do not stop the reader."""
PIECE_BYTES_PER_S = 2_000_000_000
"""At no more than this speed: what a socket has no room for only seems to be copied fast."""
OTHERS_IDLE_AFTER_S = 0.002
"""Others count as idle after this time without a request. That nobody came while one piece was copied says
nothing, even of thousands of requests a second."""


class Turn(Protocol):
    @property
    def number(self) -> int: ...

    def follow(self, callback: Callable[[], object]) -> None: ...


class PacedConnection(Protocol):
    """The connection as its writer sees it."""

    def abort(self, reason: str | None) -> None: ...

    def all_is_written(self) -> None:
        """All pieces are written."""


class PacedWriter:
    """Writes the long responses of one connection, made with the first of them."""

    __slots__ = (
        "_bytes_per_s",
        "_connection",
        "_is_following",
        "_measured_turn",
        "_others_seen_s",
        "_piece_bytes",
        "_transport",
        "_turn",
        "_unsent",
        "_written_s",
        "is_full",
    )

    def __init__(
        self, turn: Turn, transport: asyncio.Transport, connection: PacedConnection, *, is_full: bool
    ) -> None:
        self._turn = turn
        self._transport = transport
        self._connection = connection
        self._unsent: deque[Any] = deque()
        self._is_following = False  # the next turn writes a piece
        self._piece_bytes = PIECE_BYTES_MIN
        self._bytes_per_s = float(PIECE_BYTES_PER_S)  # at which the last pieces were copied
        self._measured_turn = -1  # the turn's number when the last piece was measured
        self._others_seen_s = 0.0
        self._written_s = 0.0
        self.is_full = is_full
        """The transport's buffer is full."""

    @property
    def unsent_bytes(self) -> int:
        return sum(map(len, self._unsent))

    def write(self, buffers: list[Any]) -> bool:
        """Writes a response, or begins to. False when pieces of it are left, or of one before it."""
        if self._unsent:
            self._unsent.extend(buffers)
            return False
        self._measure()
        if sum(map(len, buffers)) <= 2 * self._piece_bytes and LatePart not in map(type, buffers):
            self._write_lines(buffers)
            return True
        self._unsent.extend(buffers)
        self._is_following = True
        self._turn.follow(self._begin)
        return False

    def go_on(self) -> None:
        """The transport's buffer has room again."""
        self._measure()
        self._write_piece()

    def forget(self) -> None:
        """The connection closed."""
        self._unsent.clear()

    def take_ready(self) -> Iterator[Any]:
        """The rest that is ready, for a last write, without parts that are still to be made."""
        unsent, self._unsent = self._unsent, deque()
        return takewhile(lambda part: type(part) is not LatePart, unsent)

    def _write_lines(self, buffers: Iterable[Any]) -> None:
        transport = self._transport
        transport.writelines(buffers)
        if not self.is_full and transport.get_write_buffer_size() > WRITE_BUFFER_HIGH_BYTES:
            # The `writelines` of asyncio's own transport does not look at its limits (Python 3.12, 3.13):
            # setting them does.
            transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    # How much may be written now

    def _measure(self, others_took_s: float = 0.0) -> None:
        """Little when somebody's requests have just ended a turn, and twice as much as last time when none
        have for a while. Responses that are written where they were asked for end none: consumers that catch
        up beside each other do not count."""
        number, now_s = self._turn.number, perf_counter()
        if number != self._measured_turn:
            fair_bytes = round(max(PIECE_S, PIECE_SHARE * others_took_s) * self._bytes_per_s)
            self._measured_turn = number
            self._others_seen_s = now_s
            self._piece_bytes = min(max(fair_bytes, PIECE_BYTES_MIN), PIECE_BYTES_MAX)
        elif now_s - self._others_seen_s >= OTHERS_IDLE_AFTER_S:
            self._piece_bytes = min(2 * self._piece_bytes, PIECE_BYTES_MAX)

    def _note_speed(self, size_bytes: int, took_s: float) -> None:
        if size_bytes < PIECE_BYTES_MIN:
            return  # that is the speed of the call
        bytes_per_s = size_bytes / max(took_s, 1e-9)
        self._bytes_per_s = min((self._bytes_per_s + bytes_per_s) / 2, PIECE_BYTES_PER_S)

    # One piece

    def _write_piece(self) -> None:
        """Some of what is unsent, and the rest later: in the next turn, or when the client has taken enough
        of it."""
        try:
            self._try_to_write_piece()
        except Exception as error:
            self._connection.abort(f"cannot send the rest of an answer: {error}")

    def _try_to_write_piece(self) -> None:
        unsent = self._unsent
        if not unsent or self.is_full or self._transport.is_closing():
            return
        piece, size_bytes, late = self._next_piece()
        if piece:
            began_s = perf_counter()
            self._write_lines(piece)
            self._note_speed(size_bytes, perf_counter() - began_s)
        if late is not None:
            # One piece of it is made ahead of the client.
            late.ask(self._take_piece, self._fail_to_make_piece)
        elif unsent:
            self._go_on_next_turn()
        else:
            self._connection.all_is_written()

    def _next_piece(self) -> tuple[list[Any], int, LatePart | None]:
        """Takes as much as may be written now, up to a part that has to be made first."""
        unsent = self._unsent
        piece: list[Any] = []
        size_bytes = 0
        while unsent and size_bytes < self._piece_bytes:
            if type(unsent[0]) is LatePart:
                return piece, size_bytes, unsent[0]
            buffer = unsent.popleft()
            room_bytes = self._piece_bytes - size_bytes
            if len(buffer) > room_bytes:
                view = memoryview(buffer)
                buffer = view[:room_bytes]
                unsent.appendleft(view[room_bytes:])
            piece.append(buffer)
            size_bytes += len(buffer)
        return piece, size_bytes, None

    def _take_piece(self, piece: Any) -> None:
        unsent = self._unsent
        if not unsent:
            return  # the peer is gone
        if not len(unsent[0]):
            unsent.popleft()
        unsent.appendleft(piece)
        self._go_on_next_turn()

    def _fail_to_make_piece(self, error: Exception) -> None:
        if self._unsent:
            self._connection.abort(f"cannot make the rest of an answer: {error}")

    # When

    def _begin(self) -> None:
        """Not within the request: other connections would wait for both."""
        self._is_following = False
        self._go_on_next_turn()

    def _go_on_next_turn(self) -> None:
        if not self._is_following:
            self._is_following = True
            self._written_s = perf_counter()
            self._turn.follow(self._write_next_piece)

    def _write_next_piece(self) -> None:
        self._is_following = False
        self._measure(perf_counter() - self._written_s)
        self._write_piece()
