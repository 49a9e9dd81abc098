"""What happens for every request of a busy client: its bytes come in, what it staged is committed at the end
of the turn, its answer goes out."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from odradek.apis.api import Shortcut
from odradek.apis.turn import Committable
from odradek.server.connection import Registry
from odradek.server.group_flush import Done, Flushes

BUFFER_BYTES: int
BUFFER_KEPT_BYTES_MAX: int
"""A larger receive buffer is given back as soon as its frame is served."""

class Sender(Protocol):
    """A connection, as far as the turn knows it."""

    def send_ready(self) -> None: ...

class GatheredTurn:
    """What is staged in one turn of the event loop, and who sends at its end; see `server.turn.LoopTurn`."""

    flushes: Flushes
    is_scheduled: bool
    """Whether the turn has an end to come."""
    number: int
    staged: dict[Committable, list[tuple[Done, bool]]]
    def __init__(self, loop: asyncio.AbstractEventLoop, flushes: Flushes) -> None: ...
    def add(self, partition: Committable, done: Done, must_flush: bool) -> None:
        """`done` is called after this turn's commit, and with `must_flush` after the disk has it."""
    def begin_alone(self, sender: Sender) -> bool:
        """Whether the requests of `sender` shall be a turn of their own, which it ends by `end`.

        So it is when it sent the requests before these as well: then it seems to be the only one, and there
        is nobody to wait for. To go round through the event loop would only make its answer late.
        """
    def forget(self, sender: Sender) -> None:
        """`sender` is gone."""
    def touch(self, sender: Sender) -> None:
        """`sender.send_ready()` is called at the end of this turn; once per call, so ask once."""
    def follow(self, callback: Callable[[], object]) -> None:
        """It is called when the loop has come round, behind the end of the turn that is then gathered:
        whoever else has something to do comes before it, and has its answer."""
    def end(self) -> None:
        """Ends the turn now: the event loop does it, and the server's stop."""

class Receiver:
    """The part of a connection that a request goes through which has a shortcut; `server.connection` has the
    rest, whose methods are called here for whatever is not like most."""

    _registry: Registry
    _turn: GatheredTurn
    _transport: asyncio.Transport | None
    _buffer: bytearray
    _view: memoryview
    _start: int
    """Of the first byte that is not served yet."""
    _filled: int
    """End of what has arrived."""
    _pinned_turn: int
    """The turn in which bytes of the buffer were staged."""
    _shortcut: Shortcut | None
    """The one that the newest request went by."""
    _shortcut_overlaps: frozenset[int]
    _unanswered: int
    """Slots whose answer is not ready."""
    _overlaps: frozenset[int]
    """API keys of requests that may begin all the same."""
    _slots: deque[Any] | None
    """Of answers in the order of the requests, ready or not; None before the first."""
    _waiting_answers: int
    _waiting_bytes: int
    _touched: bool
    _held: bool
    _write_paused: bool
    _is_pacing: bool
    """A long answer is not all written, nor what comes behind it."""
    _closing: bool
    active_ms: int
    def __init__(self, registry: Registry) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def _stand_in_line(self, slot: Any) -> None:
        """An answer that is not ready yet, behind those before it."""
    def answered(self, answer: Any) -> None:
        """A shortcut's answer is ready; it stands among the slots as one of them."""
    def send_ready(self) -> None:
        """Writes the answers whose turn has come; the turn calls it."""
    def _write(self, parts: Sequence[Any], size_bytes: int) -> None: ...
