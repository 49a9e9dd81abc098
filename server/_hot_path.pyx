# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""What happens for every request of a busy client: its bytes come in, what it staged is committed at the end
of the turn, its answer goes out. `turn.py` and `connection.py` are the rest, and say what is promised."""

import logging
from collections import deque as _deque

from odradek.apis.overlaps import NONE as _NONE
from odradek.wire.errors import ErrorCode as _ErrorCode, KafkaError as _KafkaError

cdef enum:
    # A larger receive buffer is given back as soon as its frame is served.
    KEPT_BYTES_MAX = 2097152
    # Up to here one copy into one buffer is cheaper than a vector of buffers.
    JOINED_BYTES_MAX = 65536

BUFFER_BYTES = 4096
BUFFER_KEPT_BYTES_MAX = KEPT_BYTES_MAX

_turn_logger = logging.getLogger("odradek.turn")


cdef class GatheredTurn:
    """What is staged in one turn of the event loop, and who sends at its end; see `server.turn.LoopTurn`."""

    cdef list _followers
    cdef object _loop
    cdef object _newest
    cdef list _touched
    cdef public object flushes
    cdef public bint is_scheduled
    cdef public long long number
    cdef public dict staged

    def __init__(self, loop, flushes):
        self._followers = []
        self._loop = loop
        self._newest = None
        self._touched = []
        self.flushes = flushes
        self.is_scheduled = False
        self.number = 0
        self.staged = {}

    def add(self, partition, done, bint must_flush):
        waiting = self.staged.get(partition)
        if waiting is None:
            self.staged[partition] = [(done, must_flush)]
            if not self.is_scheduled:
                self.is_scheduled = True
                self._loop.call_soon(self._end_in_time)
        else:
            (<list> waiting).append((done, must_flush))

    def begin_alone(self, sender):
        if self._newest is not sender:
            self._newest = sender
            return False
        if self.is_scheduled:
            return False
        self.is_scheduled = True
        return True

    def forget(self, sender):
        if self._newest is sender:
            self._newest = None

    def touch(self, sender):
        self._touch(sender)

    cdef _touch(self, sender):
        self._touched.append(sender)
        if not self.is_scheduled:
            self.is_scheduled = True
            self._loop.call_soon(self._end_in_time)

    def follow(self, callback):
        self._followers.append(callback)
        if len(self._followers) == 1:
            self._loop.call_soon(self._call_followers)

    def _call_followers(self):
        cdef list followers
        self._end_in_time()
        followers = self._followers
        self._followers = []
        for callback in followers:
            try:
                callback()
            except Exception:
                _turn_logger.exception("what follows a turn failed")

    def _end_in_time(self):
        if self.is_scheduled:
            self._end()

    def end(self):
        self._end()

    cdef _end(self):
        cdef dict staged = self.staged
        cdef list touched
        self.is_scheduled = False
        self.number += 1
        if staged:
            self.staged = {}
            for partition, waiting in staged.items():
                self._commit(partition, waiting)
        self.flushes.start()
        while self._touched:
            touched = self._touched
            self._touched = []
            for sender in touched:
                try:
                    sender.send_ready()
                except Exception:
                    _turn_logger.exception("sending answers failed")

    cdef _commit(self, partition, list waiting):
        error = None
        try:
            partition.commit()
        except _KafkaError as refused:
            error = refused
        except Exception:
            _turn_logger.exception("commit of %s failed", partition)
            error = _KafkaError(_ErrorCode.KAFKA_STORAGE_ERROR)
        for done, must_flush in waiting:
            if must_flush and error is None:
                self.flushes.add(partition, done)
                continue
            try:
                done(error)
            except Exception:
                _turn_logger.exception("a callback after a commit failed")


cdef class Receiver:
    """The part of a connection that a request goes through which has a shortcut; `server.connection` has the
    rest, whose methods are called here for whatever is not like most."""

    cdef public object _registry
    cdef public GatheredTurn _turn
    cdef public object _transport
    cdef public object _buffer
    cdef public object _view
    cdef public Py_ssize_t _start
    cdef public Py_ssize_t _filled
    cdef public long long _pinned_turn
    cdef public object _shortcut
    cdef public object _shortcut_overlaps
    cdef public Py_ssize_t _unanswered
    cdef public object _overlaps
    cdef public object _slots
    cdef public Py_ssize_t _waiting_answers
    cdef public Py_ssize_t _waiting_bytes
    cdef public bint _touched
    cdef public bint _held
    cdef public bint _write_paused
    cdef public bint _is_pacing
    cdef public bint _closing
    cdef public object active_ms

    def __init__(self, registry):
        self._registry = registry
        self._turn = registry.turn
        self._transport = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._filled = 0
        self._pinned_turn = -1
        self._shortcut = None
        self._shortcut_overlaps = _NONE
        self._unanswered = 0
        self._overlaps = _NONE
        self._slots = None
        self._waiting_answers = 0
        self._waiting_bytes = 0
        self._touched = False
        self._held = False
        self._write_paused = False
        self._is_pacing = False
        self._closing = False
        self.active_ms = registry.now_ms()

    def get_buffer(self, sizehint):
        if self._start == self._filled and self._pinned_turn != self._turn.number:
            if len(self._buffer) > KEPT_BYTES_MAX:
                self._replace_buffer(BUFFER_BYTES)
            self._start = self._filled = 0
            return self._view
        return self._make_room()

    def buffer_updated(self, Py_ssize_t nbytes):
        cdef Py_ssize_t filled
        cdef bint is_alone
        self._filled += nbytes
        filled = self._filled
        if self._held or self._closing:
            return
        registry = self._registry
        shortcut = self._shortcut
        if shortcut is None or self._slots or self._write_paused:
            self._serve()
            registry.linger()
            return
        is_alone = self._turn.begin_alone(self)
        try:
            now_ms = self.active_ms = registry.now_ms()
            answer = shortcut(self._view, self._start, filled, registry.request_bytes_max, self, now_ms)
            if answer is not None:
                self._start = answer.end
                parts = answer.parts
                if parts is not None:
                    self._send(parts, answer.size_bytes)
                else:
                    self._pinned_turn = self._turn.number
                    self._overlaps = self._shortcut_overlaps
                    self._line_up(answer)
        except Exception:
            self._shortcut_failed()
            return
        finally:
            if is_alone:
                self._turn._end()
        if answer is None or answer.end != filled:
            self._serve()
        registry.linger()

    def _stand_in_line(self, slot):
        self._line_up(slot)

    cdef _line_up(self, slot):
        if self._slots is None:
            self._slots = _deque()
        self._slots.append(slot)
        self._waiting_answers += slot.count
        if slot.parts is None:
            self._unanswered += 1

    def answered(self, answer):
        slots = self._slots
        if slots is None:
            return
        self._unanswered -= 1
        if len(slots) == 1 and slots[0] is answer and not self._closing and not self._held:
            slots.popleft()
            self._waiting_answers -= answer.count
            self._send(answer.parts, answer.size_bytes)
            return
        self._waiting_bytes += answer.size_bytes
        if not self._touched and slots[0] is answer:
            self._touched = True
            self._turn._touch(self)

    def send_ready(self):
        cdef list out
        cdef Py_ssize_t out_bytes = 0
        self._touched = False
        slots = self._slots
        if slots is None:
            return
        out = []
        while slots:
            slot = slots[0]
            parts = slot.parts
            if parts is None:
                break
            slots.popleft()
            out.extend(parts)
            out_bytes += slot.size_bytes
            self._waiting_answers -= slot.count
        if out:
            self._waiting_bytes -= out_bytes
            self._send(out, out_bytes)
        if self._closing:
            self._close_when_answered()
        elif self._held:
            self._resume_if_possible()

    def _write(self, parts, Py_ssize_t size_bytes):
        self._send(parts, size_bytes)

    cdef _send(self, parts, Py_ssize_t size_bytes):
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if size_bytes <= JOINED_BYTES_MAX and not self._is_pacing:
            if len(parts) == 1 and type(parts[0]) is bytes:
                transport.write(parts[0])
                return
            try:
                joined = b"".join(parts)
            except TypeError:
                pass
            else:
                transport.write(joined)
                return
        self._write_vector(parts)
