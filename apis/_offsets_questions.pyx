# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The compiled twin of `_offsets_questions_python`: the same names, arguments and results, and one test suite."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from odradek.wire.errors import KafkaError

cdef extern from "crc32c.h":
    uint64_t big_endian(const uint8_t *bytes, int size) nogil
    void put_big_endian(uint8_t *bytes, uint64_t value, int size) nogil

cdef enum:
    LIST_OFFSETS_KEY = 2
    FIRST_VERSION = 4
    LAST_VERSION = 11
    MOST = 64
    FRAME_HEAD_BYTES = 12
    QUESTION_BYTES_MAX = 256

KNOWN_MAX = 1000


cdef class Known:
    """See `_offsets_questions_python.Known`."""

    cdef object view
    cdef bytes frame
    cdef Py_ssize_t found_at
    cdef object look

    def __init__(self, view, bytes frame not None, Py_ssize_t found_at, look):
        assert 0 <= found_at <= len(frame) - 20
        self.view = view
        self.frame = frame
        self.found_at = found_at
        self.look = look


cdef class Answers:
    """See `_offsets_questions_python.Answers`."""

    cdef readonly int count
    cdef readonly Py_ssize_t end
    cdef readonly tuple parts
    cdef readonly Py_ssize_t size_bytes
    cdef public object waiting


cdef class Questions:
    """See `_offsets_questions_python.Questions`."""

    cdef object _learn
    cdef object _current_view
    cdef list _known

    def __init__(self, learn, current_view):
        self._learn = learn
        self._current_view = current_view
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
            return self._take(<const uint8_t *> view.buf, start, min(filled, view.len), frame_bytes_max)
        finally:
            PyBuffer_Release(&view)

    cdef Answers _take(
        self, const uint8_t *bytes_, Py_ssize_t start, Py_ssize_t filled, Py_ssize_t frame_bytes_max
    ):
        cdef const uint8_t *head
        cdef Py_ssize_t length, end
        cdef uint32_t version
        cdef int count = 0
        cdef bytes answer = None
        cdef list answers = None
        cdef Answers taken
        cdef Known known
        cluster = self._current_view()
        while filled - start >= FRAME_HEAD_BYTES and count < MOST:
            head = bytes_ + start
            length = <int> big_endian(head, 4)
            version = <uint32_t> big_endian(head + 6, 2)
            end = start + 4 + length
            if big_endian(head + 4, 2) != LIST_OFFSETS_KEY or version < FIRST_VERSION or version > LAST_VERSION:
                break
            if length > frame_bytes_max or end > filled:
                break
            if not 0 < end - start - FRAME_HEAD_BYTES <= QUESTION_BYTES_MAX:
                break
            known = self._find(
                <int> version,
                PyBytes_FromStringAndSize(
                    <const char *> head + FRAME_HEAD_BYTES, end - start - FRAME_HEAD_BYTES
                ),
                cluster,
            )
            if known is None:
                break
            try:
                found = known.look()
            except KafkaError:
                break
            if count:
                if answers is None:
                    answers = []
                answers.append(answer)
            answer = _filled(known, head + 8, found)
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

    cdef Known _find(self, int version, bytes question, object cluster):
        cdef dict questions = self._known[version]
        cdef Known known = questions.get(question)
        if known is None or known.view is not cluster:
            known = self._learn(version, question)
            if known is None:
                return None
            if len(questions) >= KNOWN_MAX:
                questions.clear()
            questions[question] = known
        return known


cdef bytes _filled(Known known, const uint8_t *correlation_id, tuple found):
    cdef Py_ssize_t size_bytes = len(known.frame)
    cdef bytes answer = PyBytes_FromStringAndSize(PyBytes_AsString(known.frame), size_bytes)
    cdef uint8_t *target = <uint8_t *> PyBytes_AsString(answer)
    cdef uint8_t *found_at = target + known.found_at
    cdef int64_t timestamp = found[0]
    cdef int64_t offset = found[1]
    cdef int64_t leader_epoch = found[2]
    memcpy(target + 4, correlation_id, 4)
    put_big_endian(found_at, <uint64_t> timestamp, 8)
    put_big_endian(found_at + 8, <uint64_t> offset, 8)
    put_big_endian(found_at + 16, <uint64_t> leader_epoch, 4)
    return answer
