# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The path of every request: bytes arrive, a frame gets its route, a remembered prefix or the handler answers it,
staged records are committed at the end of the turn, and the answer is sent.

- `Dispatcher` is the shared state of all connections of a broker: routes, clock, authorizer, meters, counters.
- `ReceiveBuffer`, `Requests` and `Responses` are the parts of a `server.network.connection.Connection`.
- `Turn` gathers the staged partitions of one round of the event loop.

Each of these has one place: principal and authorization (`Requests._read`), counters (`Route.count`), the
pause of a connection (`Requests.hold_back`), requests that may begin before an earlier answer
(`Requests._serve_frames`). Quotas are charged (`Charges`) where a request has been handled
(`Requests._handle`), where a late answer comes (`Responses.settle`), and for the three kinds of remembered
requests.
`_pipeline.pyi` has the types; `connection.py` has the promises.
"""

import logging
from collections import deque as _deque

from cpython.bytearray cimport PyByteArray_AsString
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from odradek.apis.access import (
    ALLOW_ALL as _ALLOW_ALL,
    NOTHING_REFUSED as _NOTHING_REFUSED,
    resources as _resources,
)
from odradek.apis.api import RequestContext as _RequestContext, Waiting as _Waiting
from odradek.apis.prefixes import AppendBatch as _AppendBatch, Ask as _Ask
from odradek.server.network.group_flush import Flushes as _Flushes
from odradek.wire.codec import decoder as _decoder, encoder as _encoder
from odradek.wire.errors import (
    ErrorCode as _ErrorCode,
    KafkaError as _KafkaError,
    MalformedMessage as _MalformedMessage,
)
from odradek.wire.frames import API_VERSIONS as _API_VERSIONS, skip_tags as _skip_tags
from odradek.wire.java_text import AS_JAVA as _AS_JAVA
from odradek.wire.prefixes import prefix_layout as _prefix_layout
from odradek.wire.response_errors import errors_of as _errors_of
from odradek.wire.throttle import (
    has_throttle_time as _has_throttle_time,
    throttle_position as _throttle_position,
)

cdef extern from "crc32c.h":
    uint64_t big_endian(const uint8_t *bytes, int size) nogil
    void put_big_endian(uint8_t *bytes, uint64_t value, int size) nogil

cdef extern from "prefix.h":
    enum:
        NUMBER_32
        NUMBER_64
        NO_TAGS
    int64_t read_varint(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end) nogil
    int64_t read_number(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end, int size) nogil
    int64_t read_text_size(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end, int step) nogil
    Py_ssize_t skip_prefix(
        const uint8_t *bytes, Py_ssize_t at, Py_ssize_t end, const uint8_t *steps, Py_ssize_t steps_size
    ) nogil

cdef extern from "batch_layout.h":
    enum:
        HEADER_SIZE_BYTES
        ATTRIBUTES_POSITION
        TRANSACTIONAL

cdef extern from "frame_layout.h":
    enum:
        FRAME_SIZE_BYTES
        FRAME_KEY_POSITION
        FRAME_CORRELATION_POSITION
        FRAME_CLIENT_ID_POSITION
        FRAME_HEAD_BYTES
        FRAME_LENGTH_MIN
        RESPONSE_CORRELATION_POSITION
        RESPONSE_HEAD_BYTES

cdef enum:
    BUFFER_SIZE = 4096
    BUFFER_GROWTH = 4
    # A larger receive buffer is given back as soon as its frame is served.
    BUFFER_KEPT_MAX = 2097152
    # Up to here one copy into one buffer is cheaper than a vector of buffers.
    JOINED_BYTES_MAX = 65536
    # Ready answers of one turn are written together; beyond this size they are written at once, to see
    # whether the client reads.
    WRITE_AT_ONCE_BYTES = 262144
    # A turn ends with the request that brings it to so many bytes. On ext4 a write of several megabytes cost
    # up to three times as much for each byte: they come from memory, not from a cache, and go to huge pages.
    TURN_BYTES_MAX = 524288
    PREFIX_BYTES_MAX = 1024
    KEY_HEAD_BYTES = 4
    ITEMS_MAX = 100
    BURST_MAX = 64
    REST_NOTHING = 0
    SASL_HANDSHAKE = 17
    # As in `apis/turn.py`.
    FLUSHED = 1
    REPLICATED = 2
    PATIENCE_BITS = 2
    ASK = 1
    APPEND = 2
    SUBMIT = 3
    # As in `apis/declaration.py`.
    CHARGED_WHEN_HANDLED = 1
    CHARGED_BY_HANDLER = 2
    NS_PER_MS = 1000000
    # Up to 1.024 us, 2.048 us, ... 68.7 s, and the rest.
    TIME_BUCKETS = 28
    NS_PER_PERCENT = 10000000

cdef int64_t NEVER_NS = 0x7FFFFFFFFFFFFFFF

BUFFER_BYTES = BUFFER_SIZE
_SESSION_MS_MAX = 10**12  # 30 years; in ns no overflow
WAITING_ANSWERS_MAX = 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
REMEMBERED_MAX = 50_000
"""Entries in the tables of all connections, and what these mean, which is a kilobyte each, or less."""
REMEMBERED_OF_CONNECTION_MAX = 10_000

_new_tuple = tuple.__new__
_logger = logging.getLogger("odradek.connection")
_turn_logger = logging.getLogger("odradek.turn")


cdef extern from *:
    int __builtin_clzll(unsigned long long value) nogil


cdef inline int _bucket_of(int64_t took_ns) noexcept nogil:
    """The first bucket ends at 1.024 us, each other one at twice the end of the one before."""
    cdef int place
    if took_ns < 1024:
        return 0
    place = 54 - __builtin_clzll(<unsigned long long> took_ns)
    return place if place < TIME_BUCKETS else TIME_BUCKETS - 1


cdef inline int64_t _now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


def monotonic_ms():
    return _now_ns() // NS_PER_MS


cdef class Turn:
    cdef list _followers
    cdef readonly object loop
    cdef object _newest
    cdef list _touched
    cdef readonly object flushes
    cdef readonly bint is_scheduled
    cdef readonly int64_t number
    cdef readonly dict staged
    cdef int64_t _staged_bytes
    cdef bint _is_ending

    def __init__(self, loop):
        self._followers = []
        self.loop = loop
        self._newest = None
        self._touched = []
        self.flushes = _Flushes(loop)
        self.is_scheduled = False
        self.number = 0
        self.staged = {}
        self._staged_bytes = 0
        self._is_ending = False

    @property
    def is_flushing(self):
        return self.flushes.is_busy

    @property
    def is_idle(self):
        return not self.is_scheduled and not self.flushes.is_busy

    def add(self, partition, done, int until):
        self._add(partition, done, until)

    cdef _add(self, partition, done, int until):
        waiting = self.staged.get(partition)
        if waiting is None:
            self.staged[partition] = [(done, until)]
            self._schedule()
        else:
            (<list> waiting).append((done, until))

    cdef _count(self, int64_t size_bytes):
        """Count a served request of so many bytes, and end the turn if that makes it too long.

        The end of a turn serves connections that were held. It ends no turn inside itself: many would nest.
        """
        if self.staged:
            self._staged_bytes += size_bytes
            if self._staged_bytes >= TURN_BYTES_MAX and not self._is_ending:
                self._end()

    def flush_in_background(self, partition):
        self.flushes.add_background(partition)

    def touch(self, sender):
        self._touch(sender)

    def follow(self, callback):
        self._followers.append(callback)
        if len(self._followers) == 1:
            self.loop.call_soon(self._call_followers)

    def end(self):
        self._end()

    def close(self):
        self.flushes.close()

    cdef _schedule(self):
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self._end_in_time)

    cdef _touch(self, sender):
        self._touched.append(sender)
        self._schedule()

    cpdef bint begin_alone(self, sender):
        """Whether the requests of `sender` are a turn of their own, which it ends by `end_alone`.

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

    cpdef end_alone(self):
        """Requests that staged nothing and wait for nothing do not count as a turn."""
        if self.staged or self._touched:
            self._end()
        else:
            self.is_scheduled = False

    cpdef forget(self, sender):
        if self._newest is sender:
            self._newest = None

    def _call_followers(self):
        cdef list followers
        self._end_in_time()
        followers = self._followers
        self._followers = []
        for callback in followers:
            try:
                callback()
            except Exception:
                _turn_logger.exception("callback after the end of a turn failed")

    def _end_in_time(self):
        if self.is_scheduled:
            self._end()

    cdef _end(self):
        cdef dict staged = self.staged
        cdef list touched
        cdef bint was_ending = self._is_ending
        self._is_ending = True
        self.is_scheduled = False
        self._staged_bytes = 0
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
        self._is_ending = was_ending

    cdef _commit(self, partition, list waiting):
        error = None
        try:
            partition.commit()
        except _KafkaError as refused:
            error = refused
        except Exception:
            _turn_logger.exception("commit of %s failed", partition)
            error = _KafkaError(_ErrorCode.KAFKA_STORAGE_ERROR)
        for done, until in waiting:
            try:
                if until and error is None:
                    self._wait_longer(partition, done, until)
                else:
                    done(error)
            except Exception:
                _turn_logger.exception("callback after commit failed")

    cdef _wait_longer(self, partition, done, int until):
        """First for the disk, then for the replicas, which fetch what is committed meanwhile."""
        if until & REPLICATED:
            done = _Replicating(self.loop, partition, done, until >> PATIENCE_BITS)
        if until & FLUSHED:
            self.flushes.add(partition, done)
        else:
            done(None)


cdef class _Replicating:
    """Waits for the high watermark once the disk has it, not longer than `patience_ms` if that is not 0."""

    cdef object loop
    cdef object partition
    cdef object offset
    cdef object done
    cdef object timer
    cdef int patience_ms

    def __init__(self, loop, partition, done, int patience_ms):
        self.loop = loop
        self.partition = partition
        self.offset = partition.log_end_offset
        self.done = done
        self.timer = None
        self.patience_ms = patience_ms

    def __call__(self, error):
        if error is not None:
            self.settle(error)
            return
        self.partition.when_high_watermark(self.offset, self.settle)
        if self.done is not None and self.patience_ms:
            self.timer = self.loop.call_later(self.patience_ms / 1000, self.expire)

    def settle(self, error):
        """Once: whoever has timed out waits no more, and what comes later is of no use."""
        done, self.done = self.done, None
        timer, self.timer = self.timer, None
        self.partition = None
        if timer is not None:
            timer.cancel()
        if done is not None:
            done(error)

    def expire(self):
        self.timer = None
        self.partition.forget_high_watermark(self.offset, self.settle)
        self.settle(_KafkaError(_ErrorCode.REQUEST_TIMED_OUT))


cdef class Route:
    cdef readonly int api_key
    cdef readonly int api_version
    cdef uint32_t key_and_version
    cdef readonly str api_name
    cdef readonly str name
    cdef object served
    cdef public object handle
    cdef object decode
    cdef object encode
    cdef object errors_of
    cdef object needs
    cdef bint names_resources  # whether its requests do; else only the handler knows what a client needs
    cdef int charge  # when a request counts for quotas
    cdef bint has_throttle_time
    cdef int throttle_at  # in the frame of a remembered answer
    cdef object learn
    cdef bint is_of_connection
    cdef bint has_tagged_header
    cdef bint tags_answer
    cdef uint64_t overlaps[2]
    cdef bytes steps
    cdef const uint8_t *steps_start
    cdef Py_ssize_t steps_size
    cdef bytes item_steps
    cdef int rest
    cdef bint is_compact
    cdef int tags_after
    cdef readonly int64_t requests
    cdef readonly int64_t from_prefix
    cdef readonly int64_t bytes_in
    cdef readonly int64_t bytes_out
    cdef readonly int64_t nanoseconds
    cdef int64_t _times[TIME_BUCKETS]
    cdef readonly dict errors

    def __init__(self, int api_key, int api_version, served):
        api, prefix = served.api, served.prefix
        request, response = api.request, api.response
        self.api_key = api_key
        self.api_version = api_version
        self.key_and_version = <uint32_t> (api_key << 16 | api_version)
        self.api_name = request.__name__.removesuffix("Request")
        self.name = f"{request.__name__} v{api_version}"
        self.served = served
        self.handle = served.handle
        self.decode = _decoder(request, api_version)
        self.encode = _encoder(response, api_version)
        self.errors_of = _errors_of(response)
        self.needs = api.needs
        self.names_resources = any([need.names is not None for need in self.needs])
        self.charge = api.charge
        self.has_throttle_time = _has_throttle_time(response)
        self.throttle_at = 0
        self.has_tagged_header = request.is_flexible(api_version)
        # A client that does not know the broker's versions yet must be able to read the answer to
        # ApiVersions.
        self.tags_answer = self.has_tagged_header and api_key != _API_VERSIONS
        self.overlaps[0] = self.overlaps[1] = 0
        for overlapping in api.overlaps:
            key = overlapping.api_key
            assert 0 <= key < 128
            self.overlaps[key >> 6] |= <uint64_t> 1 << (key & 63)
        self.learn = None
        if prefix is not None and api_version in prefix.versions:
            if any([need.names is None for need in self.needs]):
                raise ValueError(f"{self.name} is not to be remembered: only its handler knows all its needs")
            layout = _prefix_layout(request, api_version, prefix.until)
            self.learn = prefix.learn
            self.throttle_at = _throttle_position(response, api_version)
            self.is_of_connection = prefix.is_of_connection
            self.steps = layout.steps
            self.steps_start = <const uint8_t *> PyBytes_AsString(self.steps)
            self.steps_size = len(self.steps)
            self.item_steps = layout.item_steps
            self.rest = layout.rest
            self.is_compact = layout.is_compact
            self.tags_after = layout.tags_after
        self.errors = {}

    cdef put_throttle_time(self, bytes frame, int wait_ms):
        """Into the frame of a remembered answer, if its version says it."""
        cdef int at = self.throttle_at
        if at:
            self.put_throttle_time_at(<uint8_t *> PyBytes_AsString(frame), len(frame), wait_ms)

    cdef put_throttle_time_at(self, uint8_t *frame, Py_ssize_t size_bytes, int wait_ms):
        cdef Py_ssize_t at = self.throttle_at
        if at < 0:
            at += size_bytes
        assert RESPONSE_HEAD_BYTES <= at <= size_bytes - 4
        put_big_endian(frame + at, <uint64_t> wait_ms, 4)

    cdef count(self, Py_ssize_t bytes_in, Py_ssize_t bytes_out, int64_t took_ns):
        self.requests += 1
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.nanoseconds += took_ns
        self._times[_bucket_of(took_ns)] += 1

    @property
    def times(self):
        return tuple([self._times[i] for i in range(TIME_BUCKETS)])

    cdef tuple answer(self, response, int correlation_id):
        """The response as buffers (the first holds length and header) and its size in bytes."""
        cdef list parts = [b""]
        cdef Py_ssize_t size_bytes = 0
        cdef uint8_t head[9]
        cdef int head_bytes = RESPONSE_HEAD_BYTES
        self.encode(response, parts)
        for part in parts:
            size_bytes += len(part)
        if self.tags_answer:
            head[RESPONSE_HEAD_BYTES] = 0
            head_bytes += 1
        size_bytes += head_bytes
        put_big_endian(head, <uint64_t> (size_bytes - FRAME_SIZE_BYTES), 4)
        put_big_endian(head + RESPONSE_CORRELATION_POSITION, <uint32_t> correlation_id, 4)
        parts[0] = PyBytes_FromStringAndSize(<char *> head, head_bytes)
        for code in self.errors_of(response):
            self.errors[code] = self.errors.get(code, 0) + 1
        return parts, size_bytes


cdef class Dispatcher:
    cdef readonly object routes
    cdef dict _found
    cdef readonly Turn turn
    cdef public object now_ms
    cdef object _current_view
    cdef public object authorizer
    cdef public object meters
    cdef public object timers
    cdef public object after_requests
    cdef int64_t _slow_ns
    cdef object _on_slow
    cdef public Py_ssize_t request_bytes_max
    cdef public Py_ssize_t waiting_answers_max
    cdef public Py_ssize_t waiting_bytes_max
    cdef public Py_ssize_t remembered_max
    cdef public Py_ssize_t remembered_of_connection_max
    cdef readonly Py_ssize_t remembered
    cdef object _view
    cdef int64_t _generation
    cdef dict shared  # of this generation

    def __init__(self, routes, Turn turn, now_ms, Py_ssize_t request_bytes_max, current_view):
        self.routes = routes
        self._found = routes.found
        self.turn = turn
        self.now_ms = now_ms
        self._current_view = current_view
        self.authorizer = _ALLOW_ALL
        self.meters = None
        self.timers = None
        self.after_requests = None
        self._slow_ns = NEVER_NS
        self._on_slow = None
        self.request_bytes_max = request_bytes_max
        self.waiting_answers_max = WAITING_ANSWERS_MAX
        self.waiting_bytes_max = WAITING_BYTES_MAX
        self.remembered_max = REMEMBERED_MAX
        self.remembered_of_connection_max = REMEMBERED_OF_CONNECTION_MAX
        self.remembered = 0
        self._view = None
        self._generation = 0
        self.shared = {}

    def watch_slow(self, int64_t slow_ns, on_slow):
        self._slow_ns = slow_ns
        self._on_slow = on_slow

    def forget_prefixes(self):
        self._generation += 1
        self.remembered = 0
        self.shared.clear()

    cdef share(self, Remembered remembered):
        if len(self.shared) >= self.remembered_max:
            self.shared.clear()
        self.shared[remembered.key] = remembered

    cdef Route route(self, uint32_t key_and_version):
        """None if that is not served."""
        route = self._found.get(key_and_version)
        return self.routes.resolve(key_and_version) if route is None else route

    cdef int64_t generation(self) except -1:
        """Counts the views. All that was remembered in an older one is forgotten."""
        view = self._current_view()
        if view is not self._view:
            self._view = view
            self.forget_prefixes()
        return self._generation


cdef class ReceiveBuffer:
    cdef Turn turn
    cdef object content
    cdef object view
    cdef Py_ssize_t start  # position of the first unserved byte
    cdef Py_ssize_t filled  # the end of the received bytes
    cdef int64_t pinned_turn  # the turn in which bytes of it were staged
    cdef object spare  # the large buffer before this one; pinned in its own turn
    cdef int64_t spare_turn

    def __init__(self, Turn turn):
        self.turn = turn
        self.content = bytearray(BUFFER_SIZE)
        self.view = memoryview(self.content)
        self.start = self.filled = 0
        self.pinned_turn = self.spare_turn = -1
        self.spare = None

    @property
    def capacity(self):
        return len(self.content)

    @property
    def unserved_bytes(self):
        return self.filled - self.start

    cdef object room(self):
        if self.start == self.filled and self.pinned_turn != self.turn.number:
            if len(self.content) > BUFFER_KEPT_MAX:
                self._replace(BUFFER_SIZE)
            self.start = self.filled = 0
            return self.view
        return self._make_room()

    cdef object _make_room(self):
        """Room for the rest of the first frame, or for a few bytes; never over pinned bytes."""
        cdef Py_ssize_t start = self.start, filled = self.filled, capacity = len(self.content)
        cdef Py_ssize_t unserved = filled - start, wanted = BUFFER_SIZE, arrived
        if unserved >= FRAME_SIZE_BYTES:
            wanted = FRAME_SIZE_BYTES + self.frame_length(start)
        if filled < capacity and (not start or start + wanted <= capacity):
            return self.view[filled:]
        if wanted <= capacity and unserved < capacity:
            if self.pinned_turn != self.turn.number:
                self.content[:unserved] = self.content[start:filled]
            else:
                self._replace(capacity if capacity <= BUFFER_KEPT_MAX else wanted)
        else:
            # Growing by a factor costs one more copy of the frame in all; trusting its length would let
            # four bytes ask for 100 MB.
            arrived = max(unserved * BUFFER_GROWTH, BUFFER_SIZE)
            self._replace(max(min(wanted + BUFFER_SIZE, arrived), unserved + BUFFER_SIZE // 2))
        self.start = 0
        self.filled = unserved
        return self.view[unserved:]

    cdef _replace(self, Py_ssize_t capacity):
        """Continues in another buffer, which begins with the unserved bytes."""
        unserved = self.view[self.start : self.filled]
        spare, spare_turn = self.spare, self.spare_turn
        self.spare = None
        if BUFFER_SIZE < capacity <= len(self.content) <= BUFFER_KEPT_MAX:
            self.spare, self.spare_turn = self.content, self.pinned_turn
        if spare is None or len(spare) < capacity or spare_turn == self.turn.number:
            spare = bytearray(capacity)
        self.content = spare
        self.content[: len(unserved)] = unserved
        self.view = memoryview(spare)
        self.pinned_turn = -1

    cdef int32_t frame_length(self, Py_ssize_t position):
        return <int32_t> big_endian(<const uint8_t *> PyByteArray_AsString(self.content) + position, 4)

    def take_in(self, Py_ssize_t nbytes):
        self.filled += nbytes

    def take_frame(self, Py_ssize_t length_max):
        """The content of the first whole frame, as bytes, which is served then; None without one.

        For frames that are no requests. Raises MalformedMessage for a length that no frame may have.
        """
        cdef Py_ssize_t start = self.start, length
        if self.filled - start < FRAME_SIZE_BYTES:
            return None
        length = self.frame_length(start)
        if not 0 <= length <= length_max:
            raise _MalformedMessage(f"a frame of {length} bytes")
        start += FRAME_SIZE_BYTES
        if self.filled - start < length:
            return None
        self.start = start + length
        return bytes(self.view[start : start + length])

    def unserved_start(self, Py_ssize_t count):
        return bytes(self.view[self.start : min(self.start + count, self.filled)])

    def shrink(self):
        self.spare = None
        if (
            len(self.content) > BUFFER_SIZE
            and self.start == self.filled
            and self.pinned_turn != self.turn.number
        ):
            self._replace(BUFFER_SIZE)
            self.start = self.filled = 0
            self.spare = None

    def discard(self):
        """The connection has ended: nothing is read or served any more, also of an incomplete frame. Who still
        holds staged bytes keeps their buffer."""
        self.content = bytearray(0)
        self.view = memoryview(self.content)
        self.start = self.filled = 0
        self.spare = None


cdef class Slot:
    """The place of one or more answers in the order of a connection."""

    cdef Responses line
    cdef Route route
    cdef int correlation_id
    cdef int count  # of answers
    cdef object parts  # None until it is ready
    cdef Py_ssize_t size_bytes  # of the memory that is held for it
    cdef Py_ssize_t request_bytes
    cdef int64_t began_ns
    cdef object meters  # of the client, if the answer is to be charged
    cdef int64_t took_ns
    cdef int wait_ms  # what is said of it in the answer
    cdef object waiting

    def deliver(self, response):
        self.waiting = None
        self.line.settle(self, response)


cdef class Remembered:
    """What a prefix means: one of the kinds of `apis/prefixes.py`, and the resources that a client needs for it.
    Connections share it. A connection has it in its own table only if the authorizer allowed its principal these
    resources in this generation; rules are a part of the view, so other rules begin another generation."""

    cdef int kind
    cdef Route route
    cdef list resources
    cdef bytes key
    cdef const uint8_t *repeated  # in the key
    cdef Py_ssize_t repeated_bytes
    cdef object ask
    cdef bytes frame
    cdef Py_ssize_t position
    cdef object partition
    cdef object append
    cdef dict closed
    cdef bint is_transactional
    cdef int until
    cdef object refuse
    cdef object submit
    cdef object respond
    cdef tuple sample
    cdef object item_class
    cdef bytes places
    cdef BurstPart part

    def __init__(self, Route route, bytes key not None, learnt, list resources):
        self.route = route
        self.resources = resources
        self.key = key
        self.repeated = <const uint8_t *> PyBytes_AsString(key) + KEY_HEAD_BYTES
        self.repeated_bytes = len(key) - KEY_HEAD_BYTES
        if type(learnt) is _Ask:
            self.kind = ASK
            self.ask = learnt.ask
            if learnt.template is not None:
                self._take_template(learnt.template, 20)
        elif type(learnt) is _AppendBatch:
            self.kind = APPEND
            self.partition = learnt.partition
            self.append = learnt.append
            self.closed = learnt.closed
            self.is_transactional = learnt.is_transactional
            self.until = learnt.until
            self.refuse = learnt.refuse
            self._take_template(learnt.template, 24)
        else:
            self.kind = SUBMIT
            self.submit = learnt.submit
            self.respond = learnt.respond
            self.sample = tuple(learnt.sample)
            self.item_class = type(learnt.sample)
            assert all([0 <= place < len(self.sample) for place in learnt.places])
            self.places = bytes(learnt.places)

    cdef bint is_of(self, Route route, const uint8_t *frame, Py_ssize_t rest):
        return (
            self.route is route
            and self.repeated_bytes == rest - FRAME_CLIENT_ID_POSITION
            and not memcmp(frame + FRAME_CLIENT_ID_POSITION, self.repeated, self.repeated_bytes)
        )

    cdef _take_template(self, template, Py_ssize_t size_bytes):
        self.frame, self.position = template
        assert RESPONSE_HEAD_BYTES <= self.position <= len(self.frame) - size_bytes


cdef class BurstPart:
    """The part of a burst for one partition: the turn calls it when it is committed or has failed."""

    cdef Burst burst
    cdef Remembered remembered
    cdef int until
    cdef object error

    def __call__(self, error):
        self.error = error
        if self.remembered.part is self:
            self.remembered.part = None
        self.burst.part_is_done()


cdef class Burst(Slot):
    """The answers to consecutive batches, built when the last of their partitions is committed."""

    cdef list batch_parts
    cdef list appended
    cdef int correlation_ids[BURST_MAX]
    cdef int sizes[BURST_MAX]  # of the requests in bytes
    cdef int waits_ms[BURST_MAX]
    cdef int pending
    cdef int64_t turn_number

    cdef add(self, Turn turn, Remembered remembered, appended, int correlation_id, int wait_ms):
        cdef int until = remembered.until | (FLUSHED if appended.must_flush else 0)
        cdef BurstPart part = remembered.part
        if part is None or part.burst is not self or part.until != until:
            part = BurstPart.__new__(BurstPart)
            part.burst = self
            part.remembered = remembered
            part.until = until
            remembered.part = part
            self.pending += 1
            turn._add(remembered.partition, part, until)
        self.batch_parts.append(part)
        self.appended.append(appended)
        self.correlation_ids[self.count] = correlation_id
        self.waits_ms[self.count] = wait_ms
        self.count += 1

    cdef part_is_done(self):
        cdef Responses line = self.line
        self.pending -= 1
        if self.pending:
            return
        try:
            self.parts = (self._answers(),)
        except Exception:
            self.parts = ()
            line.fail(self.route.name)
        self.size_bytes = sum([len(part) for part in self.parts])
        self._account()
        self.batch_parts = self.appended = None
        line.complete(self)

    cdef _account(self):
        """The batches may be of several routes: of versions of one API."""
        cdef int64_t took_ns = _now_ns() - self.began_ns
        cdef Remembered remembered
        cdef int i
        for i in range(self.count):
            remembered = (<BurstPart> self.batch_parts[i]).remembered
            remembered.route.count(self.sizes[i], len(remembered.frame), took_ns)
            if took_ns >= self.line.dispatcher._slow_ns:
                self.line.dispatcher._on_slow(
                    remembered.route, self.line.owner, took_ns, self.sizes[i], len(remembered.frame)
                )

    cdef bytes _answers(self):
        cdef BurstPart part
        cdef Py_ssize_t size_bytes = 0
        cdef bytes answers
        cdef uint8_t *target
        cdef int i
        for i in range(self.count):
            part = self.batch_parts[i]
            if part.error is not None:
                return self._answers_with_refusals()
            size_bytes += len(part.remembered.frame)
        answers = PyBytes_FromStringAndSize(NULL, size_bytes)
        target = <uint8_t *> PyBytes_AsString(answers)
        for i in range(self.count):
            part = self.batch_parts[i]
            self._fill(target, part.remembered, i)
            target += len(part.remembered.frame)
        return answers

    cdef bytes _answers_with_refusals(self):
        cdef BurstPart part
        cdef bytes answer
        cdef int i
        cdef list answers = []
        for i in range(self.count):
            part = self.batch_parts[i]
            if part.error is not None:
                refusal = part.remembered.refuse(part.error)
                refusal.throttle_time_ms = self.waits_ms[i]
                parts, _ = part.remembered.route.answer(refusal, self.correlation_ids[i])
                answers += parts
                continue
            answer = PyBytes_FromStringAndSize(NULL, len(part.remembered.frame))
            self._fill(<uint8_t *> PyBytes_AsString(answer), part.remembered, i)
            answers.append(answer)
        return b"".join(answers)

    cdef _fill(self, uint8_t *target, Remembered remembered, int i):
        cdef uint8_t *numbers = target + remembered.position
        appended = self.appended[i]
        memcpy(target, PyBytes_AsString(remembered.frame), len(remembered.frame))
        put_big_endian(target + RESPONSE_CORRELATION_POSITION, <uint32_t> self.correlation_ids[i], 4)
        put_big_endian(numbers, <uint64_t> <int64_t> appended.base_offset, 8)
        put_big_endian(numbers + 8, <uint64_t> <int64_t> appended.log_append_time_ms, 8)
        put_big_endian(numbers + 16, <uint64_t> <int64_t> appended.log_start_offset, 8)
        if self.waits_ms[i]:
            remembered.route.put_throttle_time_at(target, len(remembered.frame), self.waits_ms[i])


cdef class Submission(Slot):
    """Items that a coordinator has; the ticket of its command."""

    cdef Remembered remembered
    cdef list items
    cdef bint is_in_line

    def __call__(self, reply):
        cdef Responses line = self.line
        try:
            answer = self.remembered.respond(self.items, reply)
            if self.meters is not None:
                self.wait_ms = self._charge()
            if type(answer) is bytes:
                frame = _with_correlation_id(answer, self.correlation_id)
                if self.wait_ms:
                    self.route.put_throttle_time(frame, self.wait_ms)
                self.parts = (frame,)
                self.size_bytes = len(<bytes> answer)
            else:
                if self.wait_ms and self.route.has_throttle_time:
                    answer.throttle_time_ms = self.wait_ms
                self.parts, self.size_bytes = self.route.answer(answer, self.correlation_id)
        except Exception:
            self.parts, self.size_bytes = (), 0
            line.fail(self.route.name)
        if self.is_in_line:
            line.account(self.route, self.request_bytes, self.size_bytes, self.began_ns)
            line.complete(self)

    cdef int _charge(self) except -1:
        cdef Charges charges = self.line.requests.charges
        if not self.is_in_line:
            self.took_ns = charges.lap_ns()
        return charges._charge_answer(self, 0)


cdef bytes _with_correlation_id(bytes frame, int correlation_id):
    cdef bytes answer = PyBytes_FromStringAndSize(PyBytes_AsString(frame), len(frame))
    assert len(frame) >= RESPONSE_HEAD_BYTES
    put_big_endian(
        <uint8_t *> PyBytes_AsString(answer) + RESPONSE_CORRELATION_POSITION, <uint32_t> correlation_id, 4
    )
    return answer


cdef class Responses:
    cdef object owner
    cdef Dispatcher dispatcher
    cdef Turn turn
    cdef Requests requests
    cdef public object transport
    cdef object _slots
    cdef Slot _newest
    cdef list _ready
    cdef Py_ssize_t _ready_bytes
    cdef readonly Py_ssize_t unanswered
    cdef uint64_t overlaps[2]
    cdef readonly Py_ssize_t waiting_answers
    cdef readonly Py_ssize_t waiting_bytes
    cdef bint _is_touched
    cdef public bint is_full
    cdef public bint is_pacing
    cdef public bint is_closing

    def __init__(self, owner, Dispatcher dispatcher):
        self.owner = owner
        self.dispatcher = dispatcher
        self.turn = dispatcher.turn
        self.transport = None
        self._slots = None
        self._newest = None
        self._ready = []
        self._ready_bytes = 0
        self.unanswered = self.waiting_answers = self.waiting_bytes = 0
        self._is_touched = self.is_full = self.is_pacing = self.is_closing = False

    @property
    def is_empty(self):
        return not self._slots

    @property
    def is_write_paused(self):
        return self.is_full or self.is_pacing

    def waits_for_work(self):
        cdef Slot slot
        for slot in self._slots or ():
            if slot.waiting is not None and slot.waiting.holds_back:
                return True
        return False

    cdef bint may_begin(self, int api_key):
        """Whether a request may begin before the waiting answers."""
        return 0 <= api_key < 128 and self.overlaps[api_key >> 6] >> (api_key & 63) & 1

    cdef bint is_over_limit(self):
        return (
            self.waiting_answers >= self.dispatcher.waiting_answers_max
            or self.waiting_bytes >= self.dispatcher.waiting_bytes_max
        )

    cdef account(self, Route route, Py_ssize_t bytes_in, Py_ssize_t bytes_out, int64_t began_ns):
        """A request has been answered."""
        cdef int64_t took_ns = _now_ns() - began_ns
        route.count(bytes_in, bytes_out, took_ns)
        if took_ns >= self.dispatcher._slow_ns:
            self.dispatcher._on_slow(route, self.owner, took_ns, bytes_in, bytes_out)

    # Into the line

    cdef put(self, parts, Py_ssize_t size_bytes):
        """A ready answer: written next, or after the waiting answers."""
        cdef Slot slot
        if not self._slots:
            self._ready += parts
            self._ready_bytes += size_bytes
            return
        slot = Slot.__new__(Slot)
        slot.count = 1
        slot.parts = parts
        slot.size_bytes = size_bytes
        self.waiting_bytes += size_bytes
        self._line_up(slot)

    cdef wait(self, Slot slot, bint holds_back):
        """An answer that is not ready. Until then the request counts as its memory."""
        cdef uint64_t *overlaps = slot.route.overlaps
        if holds_back:
            self.overlaps[0] = self.overlaps[1] = 0
        elif not self.unanswered:
            self.overlaps[0], self.overlaps[1] = overlaps[0], overlaps[1]
        else:
            self.overlaps[0] &= overlaps[0]
            self.overlaps[1] &= overlaps[1]
        self.unanswered += 1
        self.waiting_bytes += slot.size_bytes
        self._line_up(slot)

    cdef _line_up(self, Slot slot):
        if self._slots is None:
            self._slots = _deque()
        self._slots.append(slot)
        self._newest = slot
        self.waiting_answers += slot.count

    # Waiting answers

    cdef settle(self, Slot slot, response):
        """A handler's answer; None if the client expects none."""
        if self._slots is None:
            return  # the connection has closed
        slot.parts = ()
        self.unanswered -= 1
        self.waiting_bytes -= slot.size_bytes
        slot.size_bytes = 0
        if response is not None:
            try:
                slot.parts, slot.size_bytes = self.requests.charges.answer(slot, response)
            except Exception:
                self.fail(slot.route.name)
            self.waiting_bytes += slot.size_bytes
        self.account(slot.route, slot.request_bytes, slot.size_bytes, slot.began_ns)
        self._touch_if_first(slot)

    cdef complete(self, Slot slot):
        """The slot is ready."""
        if self._slots is None:
            return
        self.unanswered -= 1
        if len(self._slots) == 1 and self._slots[0] is slot and not self.is_closing and not self.requests.is_held:
            self._slots.popleft()
            self.waiting_answers -= slot.count
            self._send(slot.parts, slot.size_bytes)
            return
        self.waiting_bytes += slot.size_bytes
        self._touch_if_first(slot)

    cdef _touch_if_first(self, Slot slot):
        if not self._is_touched and self._slots[0] is slot:
            self._is_touched = True
            self.turn._touch(self)

    cdef fail(self, str name):
        """Called while an error is handled that is a bug of the broker."""
        _logger.exception("%s from %s failed", name, self.owner.peer_host)
        self.owner.close(f"internal error in {name}")

    # Out

    def send_ready(self):
        cdef list out
        cdef Py_ssize_t out_bytes = 0
        cdef Slot slot
        self._is_touched = False
        slots = self._slots
        if slots is None:
            return
        out = []
        while slots:
            slot = slots[0]
            if slot.parts is None:
                break
            slots.popleft()
            out.extend(slot.parts)
            out_bytes += slot.size_bytes
            self.waiting_answers -= slot.count
        if out:
            self.waiting_bytes -= out_bytes
            self._send(out, out_bytes)
        if self.is_closing:
            self.owner.close_when_answered()
        elif self.requests.is_held:
            self.requests.resume_if_possible()

    cdef write_ready(self):
        """Writes the answers that became ready without waiting."""
        cdef list ready = self._ready
        cdef Py_ssize_t size_bytes = self._ready_bytes
        if ready:
            self._ready = []
            self._ready_bytes = 0
            self._send(ready, size_bytes)

    cdef _send(self, parts, Py_ssize_t size_bytes):
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if size_bytes <= JOINED_BYTES_MAX and not self.is_pacing:
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
        self.owner.write_vector(parts)

    def begin_closing(self):
        self.is_closing = True
        if self.transport is not None:
            self.turn._touch(self)
            if self._slots is None:
                self._slots = _deque()

    def forget(self):
        cdef Slot slot
        self.transport = None
        self.is_closing = True
        self.requests.forget_holds()
        slots, self._slots = self._slots, None
        self._newest = None
        for slot in slots or ():
            if slot.waiting is not None:
                waiting, slot.waiting = slot.waiting, None
                try:
                    waiting.cancel()
                except Exception:
                    _logger.exception("the clean-up of a request from %s failed", self.owner.peer_host)
        self.turn.forget(self)


cdef class Charges:
    """What a connection's requests come to in the quotas of its client.

    Of requests that arrived together only the first one is charged at once, and its meter asked how much more
    is within the quota (its credit). The others are charged together, as long as they are within it.
    """

    cdef Requests requests
    cdef Dispatcher dispatcher
    cdef object _meters  # of the newest client id and principal
    cdef object _client_id
    cdef object _principal
    cdef int64_t _generation
    cdef int64_t until_ns  # until when processor time has been charged
    cdef Credit _produce
    cdef Credit _request

    def __init__(self, Requests requests, Dispatcher dispatcher):
        self.requests = requests
        self.dispatcher = dispatcher
        self._meters = self._client_id = self._principal = None
        self._generation = -1
        self._produce = self._request = None

    cdef object meters(self, const uint8_t *frame):
        """Those of the principal and of the client id that a request names."""
        meters = self.dispatcher.meters
        client_id, principal = self.requests._read_client_id(frame), self.requests.owner.principal
        if (
            self._generation != meters.generation
            or self._client_id is not client_id
            or self._principal is not principal
        ):
            self.settle()
            self._meters = found = meters.of(principal, client_id)
            self._client_id, self._principal = client_id, principal
            self._generation = meters.generation
            self._produce = None if found.produce is None else Credit(found.produce)
            self._request = None if found.request is None else Credit(found.request)
        return self._meters

    cdef settle(self):
        """Charges what was within the credit."""
        if self._produce is not None:
            self._produce.settle()
        if self._request is not None:
            self._request.settle()

    cdef int64_t lap_ns(self):
        """The time since the last request of this connection was charged."""
        cdef int64_t now_ns = _now_ns(), took_ns = now_ns - self.until_ns
        self.until_ns = now_ns
        return took_ns

    cdef int charge_produce(self, Py_ssize_t body_bytes, int64_t took_ns, bint is_answered) except -1:
        """Records were appended. The client has to wait for so many milliseconds, and is held back. Without
        an answer the processor time does not count."""
        cdef int wait_ms = 0
        if self._produce is not None:
            wait_ms = self._produce.charge(body_bytes)
        if is_answered:
            return self.charge_request(took_ns, wait_ms)
        if wait_ms:
            self.requests.hold_back(wait_ms)
        return wait_ms

    cdef int charge_request(self, int64_t took_ns, int wait_ms) except -1:
        """The client has to wait for so many milliseconds, at least `wait_ms`, and is held back."""
        cdef int request_wait_ms
        if self._request is not None:
            request_wait_ms = self._request.charge(took_ns / <double> NS_PER_PERCENT)
            if request_wait_ms > wait_ms:
                wait_ms = request_wait_ms
        if wait_ms:
            self.requests.hold_back(wait_ms)
        return wait_ms

    cdef tuple answer(self, Slot slot, response):
        """The response as buffers, and its size in bytes. Without `slot.meters` it is not charged, but says
        `slot.wait_ms`. A handler may have said itself for how long its client has to wait."""
        cdef Route route = slot.route
        cdef int wait_ms
        cdef int64_t began_ns
        if slot.meters is None:
            if slot.wait_ms:
                response.throttle_time_ms = slot.wait_ms
            return route.answer(response, slot.correlation_id)
        wait_ms = response.throttle_time_ms if route.has_throttle_time else 0
        if route.charge == CHARGED_BY_HANDLER:
            if wait_ms:
                self.requests.hold_back(wait_ms)
            return route.answer(response, slot.correlation_id)
        wait_ms = self._charge_answer(slot, wait_ms)
        if wait_ms and route.has_throttle_time:
            response.throttle_time_ms = wait_ms
        began_ns = _now_ns()
        answer = route.answer(response, slot.correlation_id)
        self.until_ns = _now_ns()
        slot.meters.record_request(self.until_ns - began_ns, self.until_ns // NS_PER_MS)
        return answer

    cdef int _charge_answer(self, Slot slot, int wait_ms) except -1:
        """The meters are those of the request, whatever client id the connection has named since."""
        cdef int request_wait_ms = slot.meters.charge_request(slot.took_ns, _now_ns() // NS_PER_MS)
        if request_wait_ms > wait_ms:
            wait_ms = request_wait_ms
        if wait_ms:
            self.requests.hold_back(wait_ms)
        return wait_ms


cdef class Credit:
    """One meter, and what a connection has used of it since the last charge."""

    cdef object meter
    cdef double _credit
    cdef double _used
    cdef bint _is_first

    def __init__(self, meter):
        self.meter = meter
        self._credit = self._used = 0
        self._is_first = True

    cdef int charge(self, double value) except -1:
        if self._is_first:
            self._is_first = False
            return self.meter.charge(value, _now_ns() // NS_PER_MS)
        if self._credit == 0:
            self._credit = self.meter.credit
        if self._used + value <= self._credit:
            self._used += value
            return 0
        self.settle()
        return self.meter.charge(value, _now_ns() // NS_PER_MS)

    cdef settle(self):
        if self._used:
            self.meter.record(self._used, _now_ns() // NS_PER_MS)
        self._credit = self._used = 0
        self._is_first = True


cdef class Requests:
    cdef object owner
    cdef Dispatcher dispatcher
    cdef Turn turn
    cdef Responses responses
    cdef readonly ReceiveBuffer buffer
    cdef Route _route
    cdef dict _remembered
    cdef Remembered _newest
    cdef int64_t _generation
    cdef int64_t _began_ns  # the time when the present requests arrived, or the last handler ended
    cdef bytes _client_id_raw
    cdef readonly object client_id
    cdef readonly bint is_held
    cdef readonly bint is_gated
    cdef list _holds  # timers of periods in which it is held back
    cdef Charges charges
    cdef readonly bint is_suspended  # the frames are for another reader
    cdef bint _is_expired
    cdef int64_t _session_ends_ns  # as `_began_ns`; 0: never
    cdef public object active_ms

    def __init__(self, owner, Dispatcher dispatcher, Responses responses):
        self.owner = owner
        self.dispatcher = dispatcher
        self.turn = dispatcher.turn
        self.responses = responses
        responses.requests = self
        self.buffer = ReceiveBuffer(dispatcher.turn)
        self._route = None
        self._remembered = None
        self._newest = None
        self._generation = -1
        self._client_id_raw = None
        self.client_id = None
        self.is_held = self.is_gated = self.is_suspended = self._is_expired = False
        self._holds = []
        self.charges = Charges(self, dispatcher)
        self._session_ends_ns = 0
        self.active_ms = dispatcher.now_ms()

    # The transport's side

    def get_buffer(self, sizehint):
        return self.buffer.room()

    def buffer_updated(self, Py_ssize_t nbytes):
        cdef bint is_alone
        self.buffer.filled += nbytes
        if self.is_held or self.responses.is_closing:
            return
        is_alone = self.turn.begin_alone(self.responses)
        try:
            self._serve()
        finally:
            if is_alone:
                self.turn.end_alone()
        if self.dispatcher.after_requests is not None:
            self.dispatcher.after_requests()

    def resume_if_possible(self):
        cdef Responses responses = self.responses
        cdef Dispatcher dispatcher = self.dispatcher
        if responses.is_closing or responses.is_full or responses.is_pacing or self.is_suspended or self._holds:
            return
        if (
            responses.waiting_bytes > dispatcher.waiting_bytes_max // 2
            or responses.waiting_answers > dispatcher.waiting_answers_max // 2
            or (self.is_gated and responses.unanswered)
        ):
            return
        self.is_held = self.is_gated = False
        self._serve()
        if not self.is_held and not responses.is_closing and responses.transport is not None:
            responses.transport.resume_reading()

    def hold_back(self, hold_ms):
        cdef list holds = self._holds
        if self.responses.is_closing:
            return

        def end():
            holds.remove(timer)
            if self.is_held:
                self.resume_if_possible()

        timer = self.dispatcher.timers.after(hold_ms, end)
        holds.append(timer)
        self._hold()

    @property
    def is_held_back(self):
        return bool(self._holds)

    cdef forget_holds(self):
        """The connection has closed."""
        for timer in self._holds:
            timer.cancel()
        self._holds = []

    def limit_session(self, lifetime_ms):
        self._session_ends_ns = 0
        if lifetime_ms is not None:
            self._session_ends_ns = _now_ns() + <int64_t> min(lifetime_ms, _SESSION_MS_MAX) * NS_PER_MS

    def suspend(self):
        """Serves no more: whoever calls this reads the frames that follow, until `end_suspension`."""
        self.is_suspended = self.is_held = True

    def end_suspension(self):
        self.is_suspended = self.is_held = False
        if self.responses.is_closing:
            return
        if self._must_hold():
            self._hold()
        else:
            self._serve()

    cdef _hold(self):
        """Reads no more, until `resume_if_possible`."""
        if not self.is_held and not self.responses.is_closing:
            self.is_held = True
            if self.responses.transport is not None:
                self.responses.transport.pause_reading()

    cdef bint _must_hold(self):
        cdef Responses responses = self.responses
        if self.is_suspended or responses.is_full or responses.is_pacing:
            return True
        return len(self._holds) or responses.is_over_limit()

    # Frames

    cdef _serve(self):
        """Serves every whole frame of the buffer, until one may not begin."""
        cdef Responses responses = self.responses
        cdef ReceiveBuffer buffer = self.buffer
        self.active_ms = self.dispatcher.now_ms()
        self._began_ns = self.charges.until_ns = _now_ns()
        self._is_expired = 0 < self._session_ends_ns <= self._began_ns
        if self._remembered is not None:
            self._forget_what_is_old()
        try:
            self._serve_frames()
        except _MalformedMessage as error:
            self.owner.close(f"malformed {self._route.name}: {error}")
        except Exception:
            responses.fail("a request" if self._route is None else self._route.name)
        self.charges.settle()
        if self.turn.staged:
            buffer.pinned_turn = self.turn.number
        responses.write_ready()
        if not responses.is_closing:
            self._after_serving()

    cdef _serve_frames(self):
        cdef Dispatcher dispatcher = self.dispatcher
        cdef Responses responses = self.responses
        cdef ReceiveBuffer buffer = self.buffer
        cdef const uint8_t *content = <const uint8_t *> PyByteArray_AsString(buffer.content)
        cdef const uint8_t *head
        cdef Py_ssize_t length, end, size_bytes
        cdef uint32_t key_and_version
        cdef Route route
        while buffer.filled - buffer.start >= FRAME_HEAD_BYTES:
            head = content + buffer.start
            length = <int32_t> big_endian(head, FRAME_SIZE_BYTES)
            end = buffer.start + FRAME_SIZE_BYTES + length
            if not FRAME_LENGTH_MIN <= length <= dispatcher.request_bytes_max or end > buffer.filled:
                return
            key_and_version = <uint32_t> big_endian(head + FRAME_KEY_POSITION, 4)
            if responses.unanswered and not responses.may_begin(<int16_t> (key_and_version >> 16)):
                self.is_gated = True
                return
            if self._is_expired and key_and_version >> 16 != SASL_HANDSHAKE:
                self.owner.close_expired()
                return
            route = self._route
            if route is None or route.key_and_version != key_and_version:
                self._route = None  # making one may fail
                route = self._route = dispatcher.route(key_and_version)
            if route is not None:
                if route.learn is None or not self._serve_remembered(route, head, end - buffer.start):
                    request, context = self._read(route, head, end - buffer.start)
                    self._handle(route, request, context, head, end - buffer.start)
            elif not self._refuse_route(key_and_version, head):
                return
            size_bytes = end - buffer.start
            buffer.start = end
            # The end of the turn may serve other connections, and close this one.
            self.turn._count(size_bytes)
            if responses._ready_bytes > WRITE_AT_ONCE_BYTES:
                responses.write_ready()
            if responses.is_closing or self._must_hold():
                return

    cdef _after_serving(self):
        cdef ReceiveBuffer buffer = self.buffer
        cdef Py_ssize_t length
        if self.is_suspended:
            return
        if buffer.filled - buffer.start >= FRAME_SIZE_BYTES:
            length = buffer.frame_length(buffer.start)
            if not FRAME_LENGTH_MIN <= length <= self.dispatcher.request_bytes_max:
                self.owner.refuse_length(length)
                return
        if self.is_gated or self._must_hold():
            self._hold()

    cdef bint _refuse_route(self, uint32_t key_and_version, const uint8_t *head):
        """An API or version that is not served; False when that ends the connection."""
        cdef int correlation_id = <int32_t> big_endian(head + FRAME_CORRELATION_POSITION, 4)
        cdef int api_key = <int16_t> (key_and_version >> 16)
        if api_key == _API_VERSIONS:
            refusal = self.dispatcher.routes.refuse_version(correlation_id)
            self.responses.put([refusal], len(refusal))
            return True
        self.owner.close(f"API key {api_key} version {<int16_t> key_and_version} is not served")
        return False

    cdef tuple _read(self, Route route, const uint8_t *frame, Py_ssize_t size_bytes):
        """The decoded request and its context, with the principal and the refused resources."""
        cdef ReceiveBuffer buffer = self.buffer
        cdef Py_ssize_t body = FRAME_HEAD_BYTES + max(
            <int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2), 0
        )
        if body > size_bytes:
            raise _MalformedMessage("the client id is longer than the frame")
        client_id = self._read_client_id(frame)
        view = buffer.view[buffer.start : buffer.start + size_bytes]
        if route.has_tagged_header:
            if body < size_bytes and not frame[body]:
                body += 1
            else:
                body = _skip_tags(view, body)
        request, _ = route.decode(view[body:], 0)
        correlation_id = <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4)
        authorizer = self.dispatcher.authorizer
        refused = _NOTHING_REFUSED
        if route.names_resources:
            refused = authorizer.refused(self.owner, route.needs, request)
        return request, _RequestContext(
            route.api_key,
            route.api_version,
            correlation_id,
            client_id,
            self.owner,
            self.active_ms,
            refused,
            authorizer,
        )

    cdef _read_client_id(self, const uint8_t *frame):
        cdef int size_bytes = <int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2)
        if size_bytes <= 0:
            return None if size_bytes < 0 else ""
        raw = PyBytes_FromStringAndSize(<const char *> frame + FRAME_HEAD_BYTES, size_bytes)
        if raw != self._client_id_raw:
            self.client_id = raw.decode("utf-8", _AS_JAVA)
            self._client_id_raw = raw
        return self.client_id

    cdef _handle(self, Route route, request, context, const uint8_t *frame, Py_ssize_t size_bytes):
        cdef Responses responses = self.responses
        cdef Slot slot = None
        cdef Py_ssize_t answer_bytes, body_bytes = 0
        if self.dispatcher.meters is not None:
            slot = _new_slot(route, context)
            slot.meters = self.charges.meters(frame)
            self.charges.settle()
            body_bytes = _body_bytes(route, frame, size_bytes)
        if context.refused:
            answer = route.served.handle_refused(request, context)
        else:
            answer = route.handle(request, context)
        if slot is not None:
            slot.took_ns = self.charges.lap_ns()
            if route.charge == CHARGED_WHEN_HANDLED:
                slot.wait_ms = self.charges.charge_produce(body_bytes, slot.took_ns, request.acks != 0)
                slot.meters = None
        if answer is None:
            responses.account(route, size_bytes, 0, self._began_ns)
        elif isinstance(answer, _Waiting):
            if slot is None:
                slot = _new_slot(route, context)
            self._fill_slot(slot, route, size_bytes)
            slot.count = 1
            slot.waiting = answer
            slot.size_bytes = size_bytes
            responses.wait(slot, answer.holds_back)
            answer.on_complete(slot.deliver)
        else:
            if slot is None:
                parts, answer_bytes = route.answer(answer, context.correlation_id)
            else:
                parts, answer_bytes = self.charges.answer(slot, answer)
            responses.account(route, size_bytes, answer_bytes, self._began_ns)
            responses.put(parts, answer_bytes)
        # A handler may take long, and may have changed the cluster.
        self._began_ns = _now_ns()
        if self._remembered is not None:
            self._forget_what_is_old()

    cdef _fill_slot(self, Slot slot, Route route, Py_ssize_t size_bytes):
        slot.line = self.responses
        slot.route = route
        slot.request_bytes = size_bytes
        slot.began_ns = self._began_ns

    # What is remembered

    cdef _forget_what_is_old(self):
        if self._generation != self.dispatcher.generation():
            self._remembered = self._newest = None

    cdef bint _serve_remembered(self, Route route, const uint8_t *frame, Py_ssize_t size_bytes) except -1:
        """False, without any effect, if the handler has to answer."""
        cdef Remembered remembered = self._newest
        cdef Py_ssize_t rest
        cdef bytes key
        if remembered is not None and remembered.route is route:
            # The same bytes end at the same place.
            rest = FRAME_CLIENT_ID_POSITION + remembered.repeated_bytes
            if (
                rest == size_bytes if route.rest == REST_NOTHING else rest < size_bytes
            ) and remembered.is_of(route, frame, rest):
                return self._serve_by(remembered, frame, rest, size_bytes)
        rest = FRAME_HEAD_BYTES + max(<int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2), 0)
        if rest > size_bytes:
            return False
        if route.rest == REST_NOTHING:
            rest = size_bytes
        else:
            rest = skip_prefix(frame, rest, size_bytes, route.steps_start, route.steps_size)
        if rest < 0 or rest > PREFIX_BYTES_MAX:
            return False
        key = _prefix_key(frame, rest)
        if self._remembered is not None:
            remembered = self._remembered.get(key)
            if remembered is not None:
                self._newest = remembered
                return self._serve_by(remembered, frame, rest, size_bytes)
        if self._take_shared(key):
            self._read_client_id(frame)
            return self._serve_by(self._newest, frame, rest, size_bytes)
        request, context = self._read(route, frame, size_bytes)
        learnt = None if context.refused else route.learn(request, context)
        if learnt is not None:
            remembered = Remembered(route, key, learnt, _resources(route.needs, request))
            self._remember(remembered)
            if not route.is_of_connection:
                self.dispatcher.share(remembered)
            if self._serve_by(self._newest, frame, rest, size_bytes):
                return True
        self._handle(route, request, context, frame, size_bytes)
        return True

    cdef bint _take_shared(self, bytes key) except -1:
        """Whether another connection has learnt the meaning of these bytes, and this one may use it, too."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef Remembered remembered
        dispatcher.generation()  # without it the prefixes of an older view would still be there
        remembered = dispatcher.shared.get(key)
        if remembered is None or dispatcher.authorizer.refused_of(self.owner, remembered.resources):
            return False
        self._remember(remembered)
        return True

    cdef _remember(self, Remembered remembered):
        cdef Dispatcher dispatcher = self.dispatcher
        if dispatcher.remembered >= dispatcher.remembered_max:
            dispatcher.forget_prefixes()
        if self._remembered is None or self._generation != dispatcher.generation():
            self._remembered = {}
            self._generation = dispatcher.generation()
        elif len(self._remembered) >= dispatcher.remembered_of_connection_max:
            self.forget_prefixes()
            self._remembered = {}
        self._remembered[remembered.key] = remembered
        self._newest = remembered
        dispatcher.remembered += 1

    def forget_prefixes(self):
        if self._remembered is not None and self._generation == self.dispatcher._generation:
            self.dispatcher.remembered -= len(self._remembered)
        self._remembered = self._newest = None

    cdef bint _serve_by(
        self, Remembered remembered, const uint8_t *frame, Py_ssize_t rest, Py_ssize_t size_bytes
    ) except -1:
        if remembered.kind == APPEND:
            return self._append(remembered, frame, rest, size_bytes)
        if remembered.kind == ASK:
            return self._ask(remembered, frame, size_bytes)
        return self._submit(remembered, frame, rest, size_bytes)

    cdef bint _ask(self, Remembered remembered, const uint8_t *frame, Py_ssize_t size_bytes) except -1:
        cdef int correlation_id = <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4)
        cdef Route route = remembered.route
        cdef bytes answer
        cdef int wait_ms
        try:
            found = remembered.ask()
        except _KafkaError:
            return False
        if found is None:
            return False
        if type(found) is bytes:
            answer = _with_correlation_id(<bytes> found, correlation_id)
        else:
            answer = _with_correlation_id(remembered.frame, correlation_id)
            _fill_numbers(<uint8_t *> PyBytes_AsString(answer) + remembered.position, found)
        route.from_prefix += 1
        if self.dispatcher.meters is not None:
            self.charges.meters(frame)
            wait_ms = self.charges.charge_request(self.charges.lap_ns(), 0)
            if wait_ms:
                route.put_throttle_time(answer, wait_ms)
        self.responses.account(route, size_bytes, len(answer), self._began_ns)
        self.responses.put([answer], len(answer))
        return True

    cdef bint _append(
        self, Remembered remembered, const uint8_t *frame, Py_ssize_t rest, Py_ssize_t size_bytes
    ) except -1:
        cdef Responses responses = self.responses
        cdef Route route = remembered.route
        cdef Burst burst = None
        cdef int wait_ms = 0
        cdef int64_t batch_bytes = _read_size(route, frame, &rest, size_bytes)
        if batch_bytes <= HEADER_SIZE_BYTES or not _is_end(route, frame, rest + batch_bytes, size_bytes):
            return False
        # The flag is in the lower of the two bytes.
        if frame[rest + ATTRIBUTES_POSITION + 1] & TRANSACTIONAL and not remembered.is_transactional:
            return False
        if len(remembered.closed) and remembered.partition in remembered.closed:
            return False
        rest += self.buffer.start
        appended = remembered.append(self.buffer.view, rest, rest + batch_bytes, self.active_ms)
        if appended is None:
            return False
        if type(responses._newest) is Burst:
            burst = <Burst> responses._newest
        if burst is None or burst.turn_number != self.turn.number or burst.count == BURST_MAX:
            burst = Burst.__new__(Burst)
            self._fill_slot(burst, route, 0)
            burst.batch_parts = []
            burst.appended = []
            burst.turn_number = self.turn.number
            responses.wait(burst, False)
        responses.waiting_answers += 1
        route.from_prefix += 1
        burst.request_bytes += size_bytes
        burst.sizes[burst.count] = size_bytes
        if self.dispatcher.meters is not None:
            self.charges.meters(frame)
            wait_ms = self.charges.charge_produce(
                _body_bytes(route, frame, size_bytes), self.charges.lap_ns(), True
            )
        burst.add(
            self.turn,
            remembered,
            appended,
            <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4),
            wait_ms,
        )
        return True

    cdef bint _submit(
        self, Remembered remembered, const uint8_t *frame, Py_ssize_t rest, Py_ssize_t size_bytes
    ) except -1:
        cdef Route route = remembered.route
        cdef Submission slot
        cdef list items = _read_items(remembered, frame, rest, size_bytes)
        if items is None:
            return False
        slot = Submission.__new__(Submission)
        self._fill_slot(slot, route, size_bytes)
        slot.remembered = remembered
        slot.items = items
        slot.correlation_id = <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4)
        slot.count = 1
        if self.dispatcher.meters is not None:
            slot.meters = self.charges.meters(frame)
        if not remembered.submit(items, slot):
            return False
        route.from_prefix += 1
        if slot.parts is not None:
            self.responses.account(route, size_bytes, slot.size_bytes, self._began_ns)
            self.responses.put(slot.parts, slot.size_bytes)
        else:
            slot.is_in_line = True
            if slot.meters is not None:
                slot.took_ns = self.charges.lap_ns()
            self.responses.wait(slot, False)
        return True


cdef inline Py_ssize_t _body_bytes(Route route, const uint8_t *frame, Py_ssize_t size_bytes):
    """Of a request without its header, which has no tagged fields."""
    cdef int client_id_bytes = <int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2)
    return size_bytes - FRAME_HEAD_BYTES - max(client_id_bytes, 0) - route.has_tagged_header


cdef Slot _new_slot(Route route, context):
    cdef Slot slot = Slot.__new__(Slot)
    slot.route = route
    slot.correlation_id = context.correlation_id
    return slot


cdef bytes _prefix_key(const uint8_t *frame, Py_ssize_t end):
    """API, version, client id and all that is repeated: the frame up to `end` without size and correlation
    id."""
    cdef Py_ssize_t repeated = end - FRAME_CLIENT_ID_POSITION
    cdef bytes key = PyBytes_FromStringAndSize(NULL, KEY_HEAD_BYTES + repeated)
    cdef char *target = PyBytes_AsString(key)
    memcpy(target, frame + FRAME_KEY_POSITION, KEY_HEAD_BYTES)
    memcpy(target + KEY_HEAD_BYTES, frame + FRAME_CLIENT_ID_POSITION, repeated)
    return key


cdef inline int64_t _read_size(Route route, const uint8_t *frame, Py_ssize_t *at, Py_ssize_t end) noexcept:
    """A length in bytes or items; -1 or less for null, or for none."""
    return read_varint(frame, at, end) - 1 if route.is_compact else read_number(frame, at, end, 4)


cdef inline bint _is_end(Route route, const uint8_t *frame, int64_t at, Py_ssize_t end) noexcept:
    """Whether nothing follows but the ends of structs without tagged fields."""
    cdef Py_ssize_t i
    if at + route.tags_after != end:
        return False
    for i in range(at, end):
        if frame[i]:
            return False
    return True


cdef list _read_items(Remembered remembered, const uint8_t *frame, Py_ssize_t at, Py_ssize_t end):
    """The items of a request; None if they do not fill the rest of its frame."""
    cdef Route route = remembered.route
    cdef const uint8_t *steps = <const uint8_t *> PyBytes_AsString(route.item_steps)
    cdef const uint8_t *places = <const uint8_t *> PyBytes_AsString(remembered.places)
    cdef Py_ssize_t step, place, steps_size = len(route.item_steps)
    cdef int64_t count = _read_size(route, frame, &at, end), size
    cdef list items = [], values
    if not 0 < count <= ITEMS_MAX:
        return None
    for _ in range(count):
        values = list(remembered.sample)
        place = 0
        for step in range(0, steps_size, 2):
            if steps[step] == NUMBER_32:
                if end - at < 4:
                    return None
                value = <int32_t> big_endian(frame + at, 4)
                at += 4
            elif steps[step] == NUMBER_64:
                if end - at < 8:
                    return None
                value = <int64_t> big_endian(frame + at, 8)
                at += 8
            elif steps[step] == NO_TAGS:
                if at >= end or frame[at]:
                    return None
                at += 1
                continue
            else:
                size = read_text_size(frame, &at, end, steps[step])
                if size == -2:
                    return None
                value = ""
                if size > 0:
                    value = PyBytes_FromStringAndSize(<const char *> frame + at, size).decode("utf-8", _AS_JAVA)
                    at += size
            values[<Py_ssize_t> places[place]] = value
            place += 1
        items.append(_new_tuple(remembered.item_class, values))
    return items if _is_end(route, frame, at, end) else None


cdef _fill_numbers(uint8_t *target, tuple numbers):
    cdef int64_t timestamp = numbers[0], offset = numbers[1], leader_epoch = numbers[2]
    put_big_endian(target, <uint64_t> timestamp, 8)
    put_big_endian(target + 8, <uint64_t> offset, 8)
    put_big_endian(target + 16, <uint64_t> leader_epoch, 4)

