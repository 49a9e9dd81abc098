# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Produce requests that follow one another in a receive buffer, taken together; `produce_shortcut.py` says
what a request has to be to be taken.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "crc32c.h":
    uint64_t big_endian(const uint8_t *bytes, int size) nogil
    void put_big_endian(uint8_t *bytes, uint64_t value, int size) nogil

cdef enum:
    MOST = 64
    FIRST_VERSION = 9
    LAST_VERSION = 13
    FIRST_VERSION_WITH_IDS = 13
    FRAME_HEAD_BYTES = 14
    ONE = 2  # a compact array's length is written as length + 1
    BATCH_BYTES_MIN = 61
    TAGS_BYTES = 3
    ATTRIBUTES_POSITION = 22
    TRANSACTIONAL = 16

KNOWN_MAX = 10_000


cdef class ProducePrefix:
    """What one beginning of a request means, as long as the cluster's view stays the same.

    `frame` is the answer, with a correlation id of 0 and, from `offsets_at` on, three offsets of 0.
    `refuse(error, correlation_id)` makes the answer of a refusal. `has_id` says whether a transactional id is
    in it: only then the batch may be of a transaction.
    """

    cdef object log
    cdef object view
    cdef bytes frame
    cdef Py_ssize_t offsets_at
    cdef object refuse
    cdef object append
    cdef bint has_id
    cdef BurstPart part

    def __init__(self, log, view, bytes frame not None, Py_ssize_t offsets_at, refuse, bint has_id):
        self.log = log
        self.has_id = has_id
        self.view = view
        self.frame = frame
        self.offsets_at = offsets_at
        self.refuse = refuse
        self.append = log.append_ordinary


cdef class BurstPart:
    """What of a burst went to one partition: the turn calls it when that is committed, or has failed."""

    cdef Burst burst
    cdef ProducePrefix known
    cdef bint must_flush
    cdef object error

    def __call__(self, error):
        self.error = error
        if self.known.part is self:
            self.known.part = None
        self.burst._part_is_done()


cdef class Burst:
    """The answers to requests that came one after the other (see `apis.api.Shortcut`)."""

    cdef object _connection
    cdef list _parts
    cdef list _appended
    cdef int _correlation_ids[MOST]
    cdef int _pending
    cdef readonly int count
    cdef readonly Py_ssize_t end
    cdef readonly object parts
    cdef readonly Py_ssize_t size_bytes
    cdef public object waiting

    cdef _part_is_done(self):
        cdef BurstPart part
        self._pending -= 1
        if self._pending:
            return
        self.parts = (self._answers(),)
        self._parts = self._appended = None
        connection, self._connection = self._connection, None
        connection.answered(self)

    cdef bytes _answers(self):
        cdef BurstPart part
        cdef Py_ssize_t size_bytes = 0
        cdef Py_ssize_t frame_bytes
        cdef bytes answers
        cdef uint8_t *target
        cdef uint8_t *offsets
        cdef int i
        for i in range(self.count):
            part = self._parts[i]
            if part.error is not None:
                return self._answers_with_refusals()
            size_bytes += len(part.known.frame)
        answers = PyBytes_FromStringAndSize(NULL, size_bytes)
        self.size_bytes = size_bytes
        target = <uint8_t *> PyBytes_AsString(answers)
        for i in range(self.count):
            part = self._parts[i]
            frame_bytes = len(part.known.frame)
            _fill(target, part.known, self._correlation_ids[i], self._appended[i])
            target += frame_bytes
        return answers

    cdef bytes _answers_with_refusals(self):
        cdef BurstPart part
        cdef bytes answer
        cdef int i
        answers = []
        for i in range(self.count):
            part = self._parts[i]
            if part.error is not None:
                answers.append(part.known.refuse(part.error, self._correlation_ids[i]))
                continue
            answer = PyBytes_FromStringAndSize(NULL, len(part.known.frame))
            _fill(
                <uint8_t *> PyBytes_AsString(answer), part.known, self._correlation_ids[i], self._appended[i]
            )
            answers.append(answer)
        joined = b"".join(answers)
        self.size_bytes = len(joined)
        return joined


cdef _fill(uint8_t *target, ProducePrefix known, int correlation_id, object appended):
    cdef uint8_t *offsets = target + known.offsets_at
    memcpy(target, PyBytes_AsString(known.frame), len(known.frame))
    put_big_endian(target + 4, <uint32_t> correlation_id, 4)
    put_big_endian(offsets, <uint64_t> <int64_t> appended.base_offset, 8)
    put_big_endian(offsets + 8, <uint64_t> <int64_t> appended.log_append_time_ms, 8)
    put_big_endian(offsets + 16, <uint64_t> <int64_t> appended.log_start_offset, 8)


cdef class Bursts:
    """Takes what is ordinary at the front of a receive buffer; a `apis.api.Shortcut`.

    Of what is for a partition in `gates` nothing is.
    """

    cdef object _learn
    cdef object _current_view
    cdef object _add
    cdef dict _gates
    cdef list _known

    def __init__(self, learn, current_view, turn, dict gates not None):
        self._learn = learn
        self._current_view = current_view
        self._add = turn.add
        self._gates = gates
        self._known = [{} for _ in range(LAST_VERSION + 1)]

    def __call__(
        self,
        object buffer,
        Py_ssize_t start,
        Py_ssize_t filled,
        Py_ssize_t frame_bytes_max,
        object connection,
        object now_ms,
    ):
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            return self._take(
                buffer, <const uint8_t *> view.buf, start, min(filled, view.len), frame_bytes_max, connection,
                now_ms,
            )
        finally:
            PyBuffer_Release(&view)

    cdef Burst _take(
        self, object buffer, const uint8_t *bytes_, Py_ssize_t start, Py_ssize_t filled,
        Py_ssize_t frame_bytes_max, object connection, object now_ms,
    ):
        cdef Burst burst = None
        cdef BurstPart part
        cdef ProducePrefix known
        cdef const uint8_t *head
        cdef Py_ssize_t length, end, body, batch_start, batch_end
        cdef int client_id_bytes
        cdef uint32_t version
        cdef bint must_flush
        cluster = self._current_view()
        while filled - start >= FRAME_HEAD_BYTES:
            head = bytes_ + start
            length = <int> big_endian(head, 4)
            version = <uint32_t> big_endian(head + 4, 4)
            if version < FIRST_VERSION or version > LAST_VERSION:
                break
            end = start + 4 + length
            if length < FRAME_HEAD_BYTES or length > frame_bytes_max or end > filled:
                break
            client_id_bytes = <short> big_endian(head + 12, 2)
            body = start + FRAME_HEAD_BYTES + (client_id_bytes if client_id_bytes > 0 else 0)
            batch_start = batch_end = 0
            known = self._find(bytes_, body, end, <int> version, cluster, &batch_start, &batch_end)
            if known is None or (len(self._gates) and known.log in self._gates):
                break
            if bytes_[batch_start + ATTRIBUTES_POSITION] & TRANSACTIONAL and not known.has_id:
                break
            appended = known.append(buffer, batch_start, batch_end, now_ms)
            if appended is None:
                break
            if burst is None:
                burst = Burst.__new__(Burst)
                burst._connection = connection
                burst._parts = []
                burst._appended = []
            must_flush = appended.must_flush
            part = known.part
            if part is None or part.burst is not burst or part.must_flush != must_flush:
                part = BurstPart.__new__(BurstPart)
                part.burst = burst
                part.known = known
                part.must_flush = must_flush
                known.part = part
                burst._pending += 1
                self._add(known.log, part, must_flush)
            burst._parts.append(part)
            burst._appended.append(appended)
            burst._correlation_ids[burst.count] = <int> big_endian(head + 8, 4)
            burst.count += 1
            burst.end = start = end
            if burst.count == MOST:
                break
        return burst

    cdef ProducePrefix _find(
        self, const uint8_t *bytes_, Py_ssize_t body, Py_ssize_t end, int version, object cluster,
        Py_ssize_t *batch_start, Py_ssize_t *batch_end,
    ):
        cdef ProducePrefix known
        cdef const uint8_t *at = bytes_ + body
        cdef const uint8_t *after
        cdef Py_ssize_t position, id_bytes, size = 0
        cdef int shift = 0
        cdef dict known_beginnings
        cdef bytes beginning
        if end - body < BATCH_BYTES_MIN or at[0]:
            return None
        # The length of the transactional id and one; 0 where there is none.
        id_bytes = at[1]
        if id_bytes:
            if id_bytes == 1 or id_bytes >= 0x80:
                return None
            id_bytes -= 1
        if end - body - id_bytes < BATCH_BYTES_MIN or at[id_bytes + 8] != ONE:
            return None
        if version >= FIRST_VERSION_WITH_IDS:
            position = body + id_bytes + 30
        else:
            if at[id_bytes + 9] >= 0x80:
                return None
            position = body + id_bytes + 14 + at[id_bytes + 9]
        if end - position < BATCH_BYTES_MIN:
            return None
        beginning = PyBytes_FromStringAndSize(<const char *> at, position - body)
        while True:
            size |= <Py_ssize_t> (bytes_[position] & 0x7F) << shift
            position += 1
            if bytes_[position - 1] < 0x80:
                break
            shift += 7
            if shift > 28:
                return None
        batch_start[0] = position
        batch_end[0] = position + size - 1
        after = bytes_ + batch_end[0]
        if size <= BATCH_BYTES_MIN or batch_end[0] + TAGS_BYTES != end or after[0] | after[1] | after[2]:
            return None
        known_beginnings = self._known[version]
        known = known_beginnings.get(beginning)
        if known is None or known.view is not cluster:
            known = self._learn(version, beginning)
            if known is None:
                return None
            if len(known_beginnings) >= KNOWN_MAX:
                known_beginnings.clear()
            known_beginnings[beginning] = known
        return known
