# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Requests that follow one another in a receive buffer and are answered at once.

Clients ask word for word the same again and again (where does this log end, am I still a member, what is
committed), so a request is looked up as bytes, from its client id to its end. `questions.py` says what is
remembered of it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from odradek.wire.errors import KafkaError

cdef extern from "crc32c.h":
    uint64_t big_endian(const uint8_t *bytes, int size) nogil
    void put_big_endian(uint8_t *bytes, uint64_t value, int size) nogil

cdef enum:
    MOST = 64
    FRAME_HEAD_BYTES = 12
    MOST_BYTES = 512
    FOUND_BYTES = 20
    FRAME_BYTES_MIN = 8

QUESTION_BYTES_MAX = MOST_BYTES


cdef class CachedQuery:
    """What one question means, as long as the cluster's view stays the same, and from this host only if one
    is given.

    `look()` gives the answer, a whole frame with a correlation id of 0; or three numbers (int64, int64,
    int32) that go, one behind the other, to `found_at` of `frame`, which is such a frame. Where it gives None
    or refuses with KafkaError the ordinary way has to answer.
    """

    cdef object view
    cdef object look
    cdef object host
    cdef bytes frame
    cdef Py_ssize_t found_at

    def __init__(self, view, look, host=None, bytes frame not None=b"", Py_ssize_t found_at=0):
        assert not frame or 0 <= found_at <= len(frame) - FOUND_BYTES
        self.view = view
        self.look = look
        self.host = host
        self.frame = frame
        self.found_at = found_at


cdef class Answers:
    """The answers to questions that came one after the other, ready (see `apis.api.Shortcut`)."""

    cdef readonly int count
    cdef readonly Py_ssize_t end
    cdef readonly tuple parts
    cdef readonly Py_ssize_t size_bytes
    cdef public object waiting


cdef class Questions:
    """Answers what it knows at the front of a receive buffer; a `apis.api.Shortcut`.

    For requests of one API in `versions`, of which up to `known_max` are remembered. `learn(version,
    question, connection)` gives a `CachedQuery`, or None for what the ordinary way has to answer.
    """

    cdef int _api_key
    cdef int _first_version
    cdef int _last_version
    cdef Py_ssize_t _known_max
    cdef object _learn
    cdef object _current_view
    cdef list _known

    def __init__(self, int api_key, versions, learn, current_view, Py_ssize_t known_max):
        assert versions.step == 1 and 0 <= versions.start < versions.stop
        self._api_key = api_key
        self._first_version = versions.start
        self._last_version = versions.stop - 1
        self._learn = learn
        self._current_view = current_view
        self._known_max = known_max
        self._known = [{} for _ in range(versions.stop)]

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
                <const uint8_t *> view.buf, start, min(filled, view.len), frame_bytes_max, connection
            )
        finally:
            PyBuffer_Release(&view)

    cdef Answers _take(
        self,
        const uint8_t *bytes_,
        Py_ssize_t start,
        Py_ssize_t filled,
        Py_ssize_t frame_bytes_max,
        object connection,
    ):
        cdef const uint8_t *head
        cdef Py_ssize_t length, end
        cdef int version
        cdef int count = 0
        cdef bytes answer = None
        cdef list answers = None
        cdef Answers taken
        cdef CachedQuery known
        cluster = self._current_view()
        while filled - start >= FRAME_HEAD_BYTES and count < MOST:
            head = bytes_ + start
            length = <int> big_endian(head, 4)
            version = <short> big_endian(head + 6, 2)
            end = start + 4 + length
            if <short> big_endian(head + 4, 2) != self._api_key:
                break
            if not self._first_version <= version <= self._last_version:
                break
            if length > frame_bytes_max or end > filled:
                break
            if not 0 < end - start - FRAME_HEAD_BYTES <= MOST_BYTES:
                break
            known = self._find(
                version,
                PyBytes_FromStringAndSize(
                    <const char *> head + FRAME_HEAD_BYTES, end - start - FRAME_HEAD_BYTES
                ),
                cluster,
                connection,
            )
            if known is None:
                break
            try:
                found = known.look()
            except KafkaError:
                break
            if found is None:
                break
            if count:
                if answers is None:
                    answers = []
                answers.append(answer)
            answer = _answer(known, found, head + 8)
            count += 1
            start = end
        if not count:
            return None
        if answers is not None:
            answers.append(answer)
            answer = b"".join(answers)
        taken = Answers.__new__(Answers)
        taken.count = count
        taken.end = start
        taken.parts = (answer,)
        taken.size_bytes = len(answer)
        return taken

    cdef CachedQuery _find(self, int version, bytes question, object cluster, object connection):
        cdef dict questions = self._known[version]
        cdef CachedQuery known = questions.get(question)
        if (
            known is None
            or known.view is not cluster
            or (known.host is not None and known.host != connection.peer_host)
        ):
            known = self._learn(version, question, connection)
            if known is None:
                return None
            if len(questions) >= self._known_max:
                questions.clear()
            questions[question] = known
        return known


cdef bytes _answer(CachedQuery known, object found, const uint8_t *correlation_id):
    cdef bytes frame = <bytes> found if type(found) is bytes else known.frame
    cdef bytes answer = PyBytes_FromStringAndSize(PyBytes_AsString(frame), len(frame))
    cdef uint8_t *target = <uint8_t *> PyBytes_AsString(answer)
    assert len(frame) >= FRAME_BYTES_MIN
    memcpy(target + 4, correlation_id, 4)
    if frame is not found:
        _fill(target + known.found_at, found)
    return answer


cdef _fill(uint8_t *target, tuple found):
    cdef int64_t timestamp = found[0]
    cdef int64_t offset = found[1]
    cdef int64_t leader_epoch = found[2]
    put_big_endian(target, <uint64_t> timestamp, 8)
    put_big_endian(target + 8, <uint64_t> offset, 8)
    put_big_endian(target + 16, <uint64_t> leader_epoch, 4)
