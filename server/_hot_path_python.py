"""What happens for every request of a busy client: its bytes come in, what it staged is committed at the end
of the turn, its answer goes out. `server/turn.py` and `server/connection.py` are the rest, and say what is
promised; `_hot_path.pyx` is the compiled twin.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.overlaps import NONE
from odradek.apis.turn import Committable
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import Shortcut
    from odradek.server.connection import Registry
    from odradek.server.group_flush import Done, Flushes

turn_logger = logging.getLogger("odradek.turn")
connection_logger = logging.getLogger("odradek.connection")

BUFFER_BYTES = 4096
BUFFER_KEPT_BYTES_MAX = 2 * 1024 * 1024
"""A larger receive buffer is given back as soon as its frame is served."""
JOINED_BYTES_MAX = 64 * 1024
"""Up to here one copy into one buffer is cheaper than a vector of buffers."""


class Sender(Protocol):
    """A connection, as far as the turn knows it."""

    def send_ready(self) -> None: ...


class GatheredTurn:
    """What is staged in one turn of the event loop, and who sends at its end; see `server.turn.LoopTurn`."""

    __slots__ = (
        "_followers",
        "_loop",
        "_newest",
        "_touched",
        "flushes",
        "is_scheduled",
        "number",
        "staged",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, flushes: Flushes) -> None:
        self._loop = loop
        self._followers: list[Callable[[], object]] = []
        self._newest: Sender | None = None
        self._touched: list[Sender] = []
        self.flushes = flushes
        self.is_scheduled = False
        """Whether the turn has an end to come."""
        self.number = 0
        self.staged: dict[Committable, list[tuple[Done, bool]]] = {}

    def add(self, partition: Committable, done: Done, must_flush: bool) -> None:
        """`done` is called after this turn's commit, and with `must_flush` after the disk has it."""
        waiting = self.staged.get(partition)
        if waiting is None:
            self.staged[partition] = [(done, must_flush)]
            if not self.is_scheduled:
                self.is_scheduled = True
                self._loop.call_soon(self._end_in_time)
        else:
            waiting.append((done, must_flush))

    def begin_alone(self, sender: Sender) -> bool:
        """Whether the requests of `sender` shall be a turn of their own, which it ends by `end`.

        So it is when it sent the requests before these as well: then it seems to be the only one, and there
        is nobody to wait for. To go round through the event loop would only make its answer late.
        """
        if self._newest is not sender:
            self._newest = sender
            return False
        if self.is_scheduled:
            return False
        self.is_scheduled = True
        return True

    def forget(self, sender: Sender) -> None:
        """`sender` is gone."""
        if self._newest is sender:
            self._newest = None

    def touch(self, sender: Sender) -> None:
        """`sender.send_ready()` is called at the end of this turn; once per call, so ask once."""
        self._touched.append(sender)
        if not self.is_scheduled:
            self.is_scheduled = True
            self._loop.call_soon(self._end_in_time)

    def follow(self, callback: Callable[[], object]) -> None:
        """It is called when the loop has come round, behind the end of the turn that is then gathered:
        whoever else has something to do comes before it, and has its answer."""
        self._followers.append(callback)
        if len(self._followers) == 1:
            self._loop.call_soon(self._call_followers)

    def _call_followers(self) -> None:
        self._end_in_time()
        followers, self._followers = self._followers, []
        for callback in followers:
            try:
                callback()
            except Exception:
                turn_logger.exception("what follows a turn failed")

    def _end_in_time(self) -> None:
        if self.is_scheduled:
            self.end()

    def end(self) -> None:
        """Ends the turn now: the event loop does it, and the server's stop."""
        self.is_scheduled = False
        # Whatever a callback stages from here on belongs to the next turn.
        self.number += 1
        staged, self.staged = self.staged, {}
        for partition, waiting in staged.items():
            self._commit(partition, waiting)
        self.flushes.start()
        # A callback may touch connections while we send: those are for this turn as well.
        while self._touched:
            touched, self._touched = self._touched, []
            for sender in touched:
                try:
                    sender.send_ready()
                except Exception:
                    # The others still get their answers.
                    turn_logger.exception("sending answers failed")

    def _commit(self, partition: Committable, waiting: list[tuple[Done, bool]]) -> None:
        error = None
        try:
            partition.commit()
        except KafkaError as refused:
            error = refused
        except Exception:
            turn_logger.exception("commit of %s failed", partition)
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        for done, must_flush in waiting:
            if must_flush and error is None:
                self.flushes.add(partition, done)
                continue
            try:
                done(error)
            except Exception:
                turn_logger.exception("a callback after a commit failed")


class Receiver:
    """The part of a connection that a request goes through which has a shortcut; `server.connection` has the
    rest, whose methods are called here for whatever is not like most."""

    __slots__ = (
        "_buffer",
        "_closing",
        "_filled",
        "_held",
        "_is_pacing",
        "_overlaps",
        "_pinned_turn",
        "_registry",
        "_shortcut",
        "_shortcut_overlaps",
        "_slots",
        "_start",
        "_touched",
        "_transport",
        "_turn",
        "_unanswered",
        "_view",
        "_waiting_answers",
        "_waiting_bytes",
        "_write_paused",
        "active_ms",
    )

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._turn: GatheredTurn = registry.turn
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # of the first byte that is not served yet
        self._filled = 0  # end of what has arrived
        self._pinned_turn = -1  # the turn in which bytes of the buffer were staged
        self._shortcut: Shortcut | None = None  # the one that the newest request went by
        self._shortcut_overlaps: frozenset[int] = NONE  # those of its API
        self._unanswered = 0  # slots whose answer is not ready
        self._overlaps: frozenset[int] = NONE  # API keys of requests that may begin all the same
        self._slots: deque[Any] | None = None  # of answers in the order of the requests, ready or not
        self._waiting_answers = 0
        self._waiting_bytes = 0
        self._touched = False
        self._held = False
        self._write_paused = False
        self._is_pacing = False  # a long answer is not all written, nor what comes behind it
        self._closing = False
        self.active_ms = registry.now_ms()

    if TYPE_CHECKING:  # what the connection adds

        def _serve(self) -> None: ...

        def _make_room(self) -> memoryview: ...

        def _replace_buffer(self, capacity: int) -> None: ...

        def _write_vector(self, parts: Sequence[Any]) -> None: ...

        def _resume_if_possible(self) -> None: ...

        def _close_when_answered(self) -> None: ...

        def _shortcut_failed(self) -> None: ...

    # Bytes come in

    def get_buffer(self, sizehint: int) -> memoryview:
        start = self._start
        if start == self._filled and self._pinned_turn != self._turn.number:
            if len(self._buffer) > BUFFER_KEPT_BYTES_MAX:
                self._replace_buffer(BUFFER_BYTES)
            self._start = self._filled = 0
            return self._view
        return self._make_room()

    def buffer_updated(self, nbytes: int) -> None:
        filled = self._filled = self._filled + nbytes
        if self._held or self._closing:
            return
        registry = self._registry
        shortcut = self._shortcut
        if shortcut is None or self._slots or self._write_paused:
            self._serve()
            registry.linger()
            return
        # What came before was for a shortcut: most likely so is this, and all of it.
        turn = self._turn
        is_alone = turn.begin_alone(self)
        try:
            now_ms = self.active_ms = registry.now_ms()
            answer = shortcut(self._view, self._start, filled, registry.request_bytes_max, self, now_ms)
            if answer is not None:
                self._start = answer.end
                if answer.parts is not None:
                    self._write(answer.parts, answer.size_bytes)
                else:
                    self._pinned_turn = turn.number
                    self._overlaps = self._shortcut_overlaps
                    self._stand_in_line(answer)
        except Exception:
            self._shortcut_failed()
            return
        finally:
            if is_alone:
                turn.end()
        if answer is None or answer.end != filled:
            self._serve()
        registry.linger()

    # Answers go out

    def _stand_in_line(self, slot: Any) -> None:
        """An answer that is not ready yet, behind those before it."""
        slots = self._slots
        if slots is None:
            slots = self._slots = deque()  # not before: 600 bytes for each idle connection
        slots.append(slot)
        self._waiting_answers += slot.count
        if slot.parts is None:
            self._unanswered += 1

    def answered(self, answer: Any) -> None:
        """A shortcut's answer is ready; it stands among the slots as one of them."""
        slots = self._slots
        if slots is None:
            return  # the peer is gone
        self._unanswered -= 1
        if len(slots) == 1 and slots[0] is answer and not self._closing and not self._held:
            slots.popleft()
            self._waiting_answers -= answer.count
            self._write(answer.parts, answer.size_bytes)
            return
        self._waiting_bytes += answer.size_bytes
        if not self._touched and slots[0] is answer:
            self._touched = True
            self._turn.touch(self)

    def send_ready(self) -> None:
        """Writes the answers whose turn has come; the turn calls it."""
        self._touched = False
        slots = self._slots
        if slots is None:
            return
        out: list[Any] = []
        out_bytes = 0
        while slots:
            slot = slots[0]
            if slot.parts is None:
                break
            slots.popleft()
            out += slot.parts
            out_bytes += slot.size_bytes
            self._waiting_answers -= slot.count
        if out:
            self._waiting_bytes -= out_bytes
            self._write(out, out_bytes)
        if self._closing:
            self._close_when_answered()
        elif self._held:
            self._resume_if_possible()

    def _write(self, parts: Sequence[Any], size_bytes: int) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if size_bytes <= JOINED_BYTES_MAX and not self._is_pacing:
            if len(parts) == 1 and type(parts[0]) is bytes:
                transport.write(parts[0])  # no copy
                return
            try:
                joined = b"".join(parts)
            except TypeError:
                pass  # one of the parts is a slice of a segment
            else:
                transport.write(joined)
                return
        self._write_vector(parts)
