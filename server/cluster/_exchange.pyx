# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The leader's side of a follower's fetches: requests of a session that is known are read in place, and their
responses written into the frame (`_exchange.pyi` has the promises).

A request names what has changed since the last one; a response has what is news. So there is a list of the
partitions where anything may be news: named by the request, grown, with another start or high watermark. All
others are where they were: the follower has the whole log, and has been told its offsets.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import logging

from odradek.storage.log.partition import READ_LOG_END as _READ_LOG_END
from odradek.storage.log.slices import WouldWait as _WouldWait
from odradek.wire.errors import KafkaError as _KafkaError

include "wire/layout.pxi"

cdef extern from "prefix.h":
    int64_t read_varint(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end) nogil

cdef extern from "frame_layout.h":
    enum:
        FRAME_SIZE_BYTES
        RESPONSE_CORRELATION_POSITION
        RESPONSE_HEAD_BYTES

cdef enum:
    # Replica id and broker epoch are one field from here on; later versions add tagged fields.
    FIRST_VERSION = 15
    LAST_VERSION = 18
    HEAD_BYTES = 21  # of the body up to the topics
    TOPIC_ID_BYTES = 16
    INDEX_BYTES = 4
    PLACE_BYTES = 20
    PARTITION_BYTES = 32  # of a requested partition, without tagged fields
    REPLICA_STATE_TAG = 1
    REPLICA_STATE_BYTES = 13
    # Of a response: throttle time, error code, session id.
    RESPONSE_BODY_BYTES = 10
    # Up to here a commit is copied for the response; more comes from the file.
    WRITTEN_BYTES_MAX = 131072
    # Up to so many bytes all records are copied into the frame; else the large ones are parts of their own.
    COPIED_BYTES_MAX = 65536
    LARGE_BYTES = 4096
    PARTITION_HEAD_BYTES = 35  # of a partition in a response, up to the size of its records

FIRST_VERSION_IN_PLACE = FIRST_VERSION
_logger = logging.getLogger("odradek.replication")


cdef struct Named:
    int64_t leader_epoch
    int64_t offset
    int64_t last_epoch
    int64_t log_start
    int64_t max_bytes


cdef class Fetched:
    """One partition of the session."""

    cdef Exchange exchange
    cdef object planned  # the session's own object
    cdef object led
    cdef object partition
    cdef object appender
    cdef bytes place
    cdef Named now
    cdef bint is_listed
    cdef bint is_named  # by the request that is being read
    cdef bytes written  # what the log has grown by, at `now.offset`
    cdef object records  # for the response that is being made
    cdef Py_ssize_t records_bytes
    cdef int64_t high_watermark
    cdef int64_t stable_offset
    cdef int64_t log_start_offset

    def note(self, bint has_grown):
        cdef Exchange exchange = self.exchange
        if not self.is_listed:
            self.led.kept_up(exchange.replica_id, self.now.offset, exchange.fetched_ms)
            self.is_listed = True
            exchange.listed.append(self)
        if has_grown and exchange.is_parked:
            self.written = self.appender.buffer.written_from(self.now.offset, WRITTEN_BYTES_MAX)
            exchange.touch()

    cdef _load(self):
        planned = self.planned
        self.now.leader_epoch = planned.current_leader_epoch
        self.now.offset = planned.fetch_offset
        self.now.last_epoch = planned.last_fetched_epoch
        self.now.log_start = planned.log_start_offset
        self.now.max_bytes = planned.max_bytes
        self.written = None

    cdef _take(self, Named *named):
        planned = self.planned
        if named.offset != self.now.offset:
            planned.fetch_offset = named.offset
            self.written = None
        if named.last_epoch != self.now.last_epoch:
            planned.last_fetched_epoch = named.last_epoch
        if named.leader_epoch != self.now.leader_epoch:
            planned.current_leader_epoch = named.leader_epoch
        if named.log_start != self.now.log_start:
            planned.log_start_offset = named.log_start
        if named.max_bytes != self.now.max_bytes:
            planned.max_bytes = named.max_bytes
        self.now = named[0]

    cdef bint _is_ordinary(self, view, Named *named) except -1:
        cdef Exchange exchange = self.exchange
        return self.appender.failure is None and self.led.is_ordinary(
            view, exchange.replica_id, exchange.broker_epoch, named.leader_epoch, named.offset, named.last_epoch,
            named.log_start,
        )

    cdef bint _has_records(self) except -1:
        return self.now.offset < <int64_t> self.appender.buffer.log_end_offset

    cdef bint _has_news(self) except -1:
        planned = self.planned
        return (
            <int64_t> planned.sent_high_watermark != <int64_t> self.appender.high_watermark.offset
            or <int64_t> planned.sent_log_start_offset != <int64_t> self.appender.log_start_offset
        )

    cdef Py_ssize_t _read(self, int64_t left_bytes, bint one_batch) except -1:
        """Size of the records for the response. Raises what only the handler can answer."""
        cdef int64_t limit = min(self.now.max_bytes, left_bytes)
        cdef bytes written = self.written
        self.records = None
        self.records_bytes = 0
        self.high_watermark = self.appender.high_watermark.offset
        self.stable_offset = self.partition.last_stable_offset
        self.log_start_offset = self.appender.log_start_offset
        if not self._has_records() or limit <= 0 and not one_batch:
            return 0
        if written is not None and len(written) <= limit:
            self.records = written
        else:
            found = self.partition.read(
                self.now.offset, max_bytes=max(limit, 0), isolation=_READ_LOG_END, minimum_one_batch=one_batch,
                prompt=True,
            ).records
            if not len(found):
                return 0
            if found.would_wait():
                raise _WouldWait(found.source, 0, len(found))
            (self.records,) = found.buffers()
        self.records_bytes = len(self.records)
        return self.records_bytes


cdef class Exchange:
    cdef object _leadership
    cdef object _current_view
    cdef object _sessions
    cdef object _find
    cdef object _turn
    cdef object _timers
    cdef object _clock_ms
    cdef object _go_on
    cdef int64_t _max_bytes_max
    cdef readonly object session
    cdef object _replica
    cdef int64_t replica_id
    cdef int64_t broker_epoch
    cdef object _context
    cdef int _version
    cdef object _view  # where clients have to be authorized
    cdef int64_t _session_epoch
    cdef bint _is_usable
    cdef dict _members
    cdef list listed
    cdef int64_t fetched_ms
    # The request that is being read
    cdef list _named
    cdef Named *_values
    cdef Py_ssize_t _room
    cdef int64_t _max_wait_ms
    cdef int64_t _max_bytes
    cdef int _correlation_id
    # The request that waits
    cdef readonly bint is_parked
    cdef bint _is_touched
    cdef bint _is_for_handler
    cdef object _slot
    cdef int64_t _deadline_ms
    cdef object _timer

    def __init__(self, handler, find, turn, timers, clock_ms, session, replica):
        self._leadership = handler.leadership
        self._current_view = handler.leadership.current_view
        self._sessions = handler.sessions
        self._find = find
        self._turn = turn
        self._timers = timers
        self._clock_ms = clock_ms
        self._go_on = handler.go_on
        self._max_bytes_max = handler.max_bytes
        self.session = session
        self._replica = replica
        self.replica_id, self.broker_epoch, self._version = replica
        self._context = self._view = None
        self._is_usable = False
        self._session_epoch = -1
        self._members = {}
        self.listed = []
        self.fetched_ms = 0
        self._named = []
        self._values = NULL
        self._room = 0
        self.is_parked = self._is_touched = self._is_for_handler = False
        self._slot = self._timer = None

    def __dealloc__(self):
        free(self._values)

    # After a request that the handler has served

    def is_of(self, session, replica):
        return self.session is session and self._replica == replica

    def renew(self, context, view):
        """The session is as the handler has left it: everything may be news."""
        cdef Fetched member
        cdef dict before = self._members, members = {}
        cdef list listed = []
        cdef bytes place
        names = self._current_view().topic_names
        self._context, self._view = context, view
        self._session_epoch = self.session.epoch
        self._is_usable = FIRST_VERSION <= self._version <= LAST_VERSION
        for (topic_id, index), planned in self.session.partitions.items():
            place = topic_id + index.to_bytes(INDEX_BYTES, "big")
            member = before.pop(place, None)
            if member is not None and (member.led.is_ended or member.planned is not planned):
                member.led.leave(member)
                member = None
            if member is None:
                found = self._find((names.get(topic_id), index))
                if found is None:
                    self._is_usable = False
                    continue
                member = Fetched.__new__(Fetched)
                member.exchange, member.planned, member.place = self, planned, place
                member.led, member.partition = found
                member.appender = member.partition.appender
                member.led.join(member)
            member._load()
            member.is_listed = True
            members[place] = member
            listed.append(member)
        for member in before.values():
            member.led.leave(member)
        self._members, self.listed = members, listed

    def close(self):
        cdef Fetched member
        self.cancel()
        for member in self._members.values():
            member.led.leave(member)
        self._members, self.listed = {}, []
        self._is_usable = False

    # A request

    def take(self, object content, Py_ssize_t start, Py_ssize_t end, int version, int correlation_id, int64_t now_ms):
        cdef const uint8_t *body = <const uint8_t *> PyByteArray_AsString(content) + start
        cdef Fetched member
        cdef bint is_read
        if not self._is_usable or self.is_parked or version != self._version:
            return None
        if self._view is not None and self._view is not self._current_view():
            return None
        try:
            is_read = self._read_request(body, end - start)
            if not is_read or not self._are_ordinary() or not self._sessions.go_on(self.session, now_ms):
                return None
        finally:
            for member in self._named:
                member.is_named = False
        self._correlation_id = correlation_id
        self._session_epoch = self.session.epoch
        self._note()
        return self._look(self._max_wait_ms <= 0) or self

    cdef bint _read_request(self, const uint8_t *body, Py_ssize_t size_bytes) except -1:
        """Whether it is one of this session, and of this replica; fills `_named` and `_values`."""
        cdef Py_ssize_t at = HEAD_BYTES
        cdef int64_t topics, partitions, min_bytes
        cdef bytes place
        self._named = []
        if size_bytes < HEAD_BYTES:
            return False
        self._max_wait_ms = <int32_t> big_endian(body, 4)
        min_bytes = <int32_t> big_endian(body + 4, 4)
        self._max_bytes = min(<int64_t> <int32_t> big_endian(body + 8, 4), self._max_bytes_max)
        # A replica that does not wait, or waits for more than one byte, is left to the handler.
        if min_bytes != 1 or self._max_bytes < 1 or body[12]:
            return False
        if (
            <int32_t> big_endian(body + 13, 4) != <int64_t> self.session.id
            or <int32_t> big_endian(body + 17, 4) != self._session_epoch
            or self._session_epoch != <int64_t> self.session.epoch
        ):
            return False
        topics = read_varint(body, &at, size_bytes) - 1
        if topics < 0:
            return False
        for _ in range(topics):
            if size_bytes - at < TOPIC_ID_BYTES:
                return False
            place = PyBytes_FromStringAndSize(NULL, PLACE_BYTES)
            memcpy(PyBytes_AsString(place), body + at, TOPIC_ID_BYTES)
            at += TOPIC_ID_BYTES
            partitions = read_varint(body, &at, size_bytes) - 1
            if partitions < 0:
                return False
            for _ in range(partitions):
                if not self._read_partition(body, &at, size_bytes, place):
                    return False
            if at >= size_bytes or body[at]:
                return False
            at += 1
        # Nothing is forgotten, and the rack of a replica says nothing.
        if size_bytes - at < 2 or body[at] != 1 or body[at + 1] != 1:
            return False
        at += 2
        return self._read_replica(body, &at, size_bytes) and at == size_bytes

    cdef bint _read_partition(
        self, const uint8_t *body, Py_ssize_t *at, Py_ssize_t end, bytes topic
    ) except -1:
        cdef const uint8_t *field = body + at[0]
        cdef Fetched member
        cdef Named *named
        cdef Py_ssize_t count = len(self._named)
        cdef bytes place
        if end - at[0] <= PARTITION_BYTES:
            return False
        place = PyBytes_FromStringAndSize(PyBytes_AsString(topic), PLACE_BYTES)
        memcpy(PyBytes_AsString(place) + TOPIC_ID_BYTES, field, INDEX_BYTES)
        member = self._members.get(place)
        if member is None or member.is_named:
            return False
        if count == self._room:
            named = <Named *> realloc(self._values, (2 * count + 8) * sizeof(Named))
            if named == NULL:
                raise MemoryError
            self._values, self._room = named, 2 * count + 8
        named = self._values + count
        named.leader_epoch = <int32_t> big_endian(field + 4, 4)
        named.offset = <int64_t> big_endian(field + 8, 8)
        named.last_epoch = <int32_t> big_endian(field + 16, 4)
        named.log_start = <int64_t> big_endian(field + 20, 8)
        named.max_bytes = <int32_t> big_endian(field + 28, 4)
        at[0] += PARTITION_BYTES
        member.is_named = True
        self._named.append(member)
        return named.max_bytes >= 0 and _skip_tags(body, at, end)

    cdef bint _read_replica(self, const uint8_t *body, Py_ssize_t *at, Py_ssize_t end) except -1:
        """The tagged fields of the request: the replica, and the cluster's id perhaps."""
        cdef int64_t count = read_varint(body, at, end), tag, size_bytes
        cdef bint is_found = False
        for _ in range(count):
            tag = read_varint(body, at, end)
            size_bytes = read_varint(body, at, end)
            if tag < 0 or not 0 <= size_bytes <= end - at[0]:
                return False
            if tag == REPLICA_STATE_TAG:
                if (
                    size_bytes != REPLICA_STATE_BYTES
                    or <int32_t> big_endian(body + at[0], 4) != self.replica_id
                    or <int64_t> big_endian(body + at[0] + 4, 8) != self.broker_epoch
                    or body[at[0] + REPLICA_STATE_BYTES - 1]
                ):
                    return False
                is_found = True
            at[0] += size_bytes
        return is_found

    cdef bint _are_ordinary(self) except -1:
        """Partitions that are not in the list are as they were: there is nothing to be checked."""
        cdef Fetched member
        cdef Py_ssize_t count = 0
        view = self._current_view()
        for member in self._named:
            if not member._is_ordinary(view, self._values + count):
                return False
            count += 1
        for member in self.listed:
            if not member.is_named and not member._is_ordinary(view, &member.now):
                return False
        return True

    cdef _note(self):
        """Notes what the follower has, in all partitions as the request has left them."""
        cdef Fetched member
        cdef Py_ssize_t count = 0
        cdef int64_t now_ms = self._clock_ms()
        for member in self._named:
            if not member.is_listed:
                member.led.kept_up(self.replica_id, member.now.offset, self.fetched_ms)
                member.is_listed = True
                self.listed.append(member)
            member._take(self._values + count)
            count += 1
        self.fetched_ms = now_ms
        for member in self.listed[:]:
            self._fetched(member, now_ms)

    cdef _fetched(self, Fetched member, int64_t now_ms):
        cdef int64_t offset = member.led.fetched(self.replica_id, member.now.offset, now_ms)
        if offset > <int64_t> member.appender.high_watermark.offset:
            member.partition.advance_high_watermark(offset)
            member.led.tell(False)

    # The response

    cdef list _look(self, bint is_last):
        """The response; None while there are no records, or if only the handler can answer (`_is_for_handler`)."""
        cdef Fetched member
        cdef bint has_records = False
        cdef list listed = []
        for member in self.listed:
            if member._has_records():
                has_records = True
            elif not member._has_news():
                member.is_listed = False
                continue
            listed.append(member)
        self.listed = listed
        if not has_records and not is_last:
            return None
        try:
            return self._response()
        except (_KafkaError, _WouldWait, OSError):
            pass  # what is damaged, cold, or gone: the handler says it
        except Exception:
            _logger.exception("a response to replica %d failed, which is left to the handler", self.replica_id)
        self._is_for_handler = True
        return None

    cdef list _response(self):
        cdef Fetched member
        cdef int64_t left_bytes = self._max_bytes
        cdef bint one_batch = True
        cdef Py_ssize_t size_bytes
        cdef list told = [], listed = [], served = [], parts
        for member in self.listed:
            size_bytes = member._read(left_bytes, one_batch)
            if size_bytes:
                one_batch = False
                left_bytes = max(left_bytes - size_bytes, 0)
            if size_bytes or member._has_news():
                told.append(member)
        parts = _encoded(told, self._correlation_id, self.session.id)
        # As in KIP-227: who had records is the last in the next response.
        for member in self.listed:
            if member.records is not None:
                served.append(member)
            elif member._has_records():
                listed.append(member)
            else:
                member.is_listed = False
        for member in told:
            member.planned.sent_high_watermark = member.high_watermark
            member.planned.sent_log_start_offset = member.log_start_offset
            member.records = member.written = None
        self.listed = listed + served
        self._leadership.follower_fetches[self._version] += 1
        return parts

    # A request that waits

    def wait(self, slot):
        self._slot = slot
        self.is_parked = True
        self._deadline_ms = self.fetched_ms + self._max_wait_ms
        if self._is_for_handler:
            self._hand_over()
        elif self._timer is None:
            self._timer = self._timers.after(self._max_wait_ms, self._expire)

    cdef touch(self):
        if not self._is_touched:
            self._is_touched = True
            self._turn.touch(self)

    def send_ready(self):
        self._is_touched = False
        if self.is_parked:
            self._try(False)

    def _expire(self):
        cdef int64_t left_ms
        self._timer = None
        if not self.is_parked:
            return
        left_ms = self._deadline_ms - <int64_t> self._clock_ms()
        if left_ms > 0:
            self._timer = self._timers.after(left_ms, self._expire)
        else:
            self._try(True)

    cdef _try(self, bint is_last):
        cdef Fetched member
        cdef list parts = None
        view = self._current_view()
        for member in self.listed:
            if not member._is_ordinary(view, &member.now):
                self._is_for_handler = True
                break
        if not self._is_for_handler:
            parts = self._look(is_last)
        if parts is not None:
            slot, self._slot = self._slot, None
            self.is_parked = False
            slot.respond(parts)
        elif self._is_for_handler:
            self._hand_over()

    cdef _hand_over(self):
        """The rest of the wait is the handler's."""
        cdef int64_t left_ms = max(self._deadline_ms - <int64_t> self._clock_ms(), 0)
        cdef Fetched member
        for member in self.listed:
            member.written = None
        slot, self._slot = self._slot, None
        self.is_parked = self._is_for_handler = False
        slot.follow(self._go_on(self.session, self._replica, self._context, self._max_bytes, left_ms))

    def cancel(self):
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._slot = None
        self.is_parked = self._is_for_handler = False

    @property
    def holds_back(self):
        return False


cdef bint _skip_tags(const uint8_t *body, Py_ssize_t *at, Py_ssize_t end) noexcept:
    cdef int64_t count = read_varint(body, at, end), size_bytes
    if count < 0:
        return False
    for _ in range(count):
        if read_varint(body, at, end) < 0:
            return False
        size_bytes = read_varint(body, at, end)
        if not 0 <= size_bytes <= end - at[0]:
            return False
        at[0] += size_bytes
    return True


# A response

cdef inline Py_ssize_t _varint_bytes(uint64_t value) noexcept:
    cdef Py_ssize_t size = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *_put_unsigned(uint8_t *target, uint64_t value) noexcept:
    while value >= 128:
        target[0] = <uint8_t> (value & 127 | 128)
        target += 1
        value >>= 7
    target[0] = <uint8_t> value
    return target + 1


cdef list _encoded(list told, int correlation_id, int64_t session_id):
    """The frame: one part, but for large records, which are parts of their own."""
    cdef Fetched member
    cdef list runs = _by_topic(told), parts = []
    cdef Py_ssize_t head_bytes = RESPONSE_HEAD_BYTES + 1 + RESPONSE_BODY_BYTES + _varint_bytes(len(runs) + 1) + 1
    cdef Py_ssize_t own_bytes = head_bytes, records_bytes = 0, apart_bytes = 0, apart_from, start = 0
    cdef bytes frame
    cdef uint8_t *first
    cdef uint8_t *at
    for member in told:
        records_bytes += member.records_bytes
    apart_from = LARGE_BYTES if records_bytes > COPIED_BYTES_MAX else COPIED_BYTES_MAX + 1
    for run in runs:
        own_bytes += TOPIC_ID_BYTES + _varint_bytes(len(run) + 1) + 1
        for member in run:
            own_bytes += PARTITION_HEAD_BYTES + _varint_bytes(member.records_bytes + 1) + 1
            if member.records_bytes >= apart_from:
                apart_bytes += member.records_bytes
            else:
                own_bytes += member.records_bytes
    frame = PyBytes_FromStringAndSize(NULL, own_bytes)
    first = at = <uint8_t *> PyBytes_AsString(frame)
    put_big_endian(at, <uint64_t> (own_bytes + apart_bytes - FRAME_SIZE_BYTES), 4)
    put_big_endian(at + RESPONSE_CORRELATION_POSITION, <uint64_t> correlation_id, 4)
    at += RESPONSE_HEAD_BYTES
    at[0] = 0
    put_big_endian(at + 1, 0, 6)
    put_big_endian(at + 7, <uint64_t> session_id, 4)
    at = _put_unsigned(at + 1 + RESPONSE_BODY_BYTES, len(runs) + 1)
    for run in runs:
        member = run[0]
        memcpy(at, PyBytes_AsString(member.place), TOPIC_ID_BYTES)
        at = _put_unsigned(at + TOPIC_ID_BYTES, len(run) + 1)
        for member in run:
            at = _put_partition(at, member)
            if member.records_bytes >= apart_from:
                parts.append(frame[start : at - first])
                parts.append(member.records)
                start = at - first
            elif member.records_bytes:
                at = _copy(at, member.records, member.records_bytes)
            at[0] = 0
            at += 1
        at[0] = 0
        at += 1
    at[0] = 0
    assert at + 1 - first == own_bytes
    parts.append(frame[start:] if start else frame)
    return parts


cdef list _by_topic(list told):
    cdef Fetched member
    cdef list runs = [], run = None
    cdef bytes place = None
    for member in told:
        if place is None or place[:TOPIC_ID_BYTES] != member.place[:TOPIC_ID_BYTES]:
            run = []
            runs.append(run)
            place = member.place
        run.append(member)
    return runs


cdef uint8_t *_put_partition(uint8_t *at, Fetched member):
    memcpy(at, PyBytes_AsString(member.place) + TOPIC_ID_BYTES, INDEX_BYTES)
    put_big_endian(at + 4, 0, 2)
    put_big_endian(at + 6, <uint64_t> member.high_watermark, 8)
    put_big_endian(at + 14, <uint64_t> member.stable_offset, 8)
    put_big_endian(at + 22, <uint64_t> member.log_start_offset, 8)
    at[30] = 0  # no list of aborted transactions
    put_big_endian(at + 31, 0xFFFFFFFF, 4)  # no other replica is preferred
    return _put_unsigned(at + PARTITION_HEAD_BYTES, member.records_bytes + 1)


cdef uint8_t *_copy(uint8_t *at, object records, Py_ssize_t size_bytes) except NULL:
    cdef Py_buffer view
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    memcpy(at, view.buf, size_bytes)
    PyBuffer_Release(&view)
    return at + size_bytes
