# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The hot part of the short way of commits; see `offset_commit_shortcut.py`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from odradek.coordinator.groups.commands import CommitOffsets as _CommitOffsets, OffsetToCommit as _OffsetToCommit

cdef extern from "crc32c.h":
    uint64_t big_endian(const uint8_t *bytes, int size) nogil

cdef enum:
    API_KEY = 8
    FIRST_VERSION = 2
    LAST_VERSION = 10
    FIRST_VERSION_WITHOUT_RETENTION = 5
    FIRST_VERSION_WITH_EPOCHS = 6
    FIRST_VERSION_WITH_INSTANCES = 7
    FIRST_FLEXIBLE_VERSION = 8
    FIRST_VERSION_WITH_IDS = 10
    PARTITIONS_MAX = 100
    BEGINNING_BYTES_MAX = 512
    FRAME_HEAD_BYTES = 14
    QUESTION_POSITION = 12
    FRAME_BYTES_MIN = 8
    PLACE_BYTES = 12
    EPOCH_BYTES = 4
    TOPIC_ID_BYTES = 16
    ONE = 2  # a compact array's length is written as length + 1

cdef struct Reader:
    const uint8_t *bytes
    Py_ssize_t at  # may be beyond the end
    Py_ssize_t end

_new_tuple = tuple.__new__


cdef class Beginning:
    """What a request says before its partitions, as long as the cluster's view stays the same.

    The topic has the partitions from 0 to `partition_count`. `encode(partitions, errors)` gives the frame of
    an answer, with any correlation id.
    """

    cdef object view
    cdef int version
    cdef object group_id
    cdef object generation
    cdef object member_id
    cdef object group_instance_id
    cdef object retention_time_ms
    cdef object topic
    cdef object topic_id
    cdef Py_ssize_t partition_count
    cdef object _encode
    cdef list _answered
    cdef bytes _frame

    def __init__(
        self,
        view,
        int version,
        group_id,
        generation,
        member_id,
        group_instance_id,
        retention_time_ms,
        topic,
        topic_id,
        Py_ssize_t partition_count,
        encode,
    ):
        self.view = view
        self.version = version
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_time_ms = retention_time_ms
        self.topic = topic
        self.topic_id = topic_id
        self.partition_count = partition_count
        self._encode = encode
        self._answered = None
        self._frame = b""

    cdef bytes answer(self, list partitions, reply, const uint8_t *correlation_id):
        cdef list errors = reply.errors
        cdef bint has_errors = False
        cdef bytes frame
        cdef bytes answer
        for error in errors:
            if error:
                has_errors = True
                break
        if has_errors or partitions != self._answered:
            frame = self._encode(partitions, errors)
            if not has_errors:
                self._answered = partitions
                self._frame = frame
        else:
            frame = self._frame
        assert len(frame) >= FRAME_BYTES_MIN
        answer = PyBytes_FromStringAndSize(PyBytes_AsString(frame), len(frame))
        memcpy(<uint8_t *> PyBytes_AsString(answer) + 4, correlation_id, 4)
        return answer


cdef class Commit:
    """One request under way, and its answer (see `apis.api.Shortcut`); the ticket of its command."""

    cdef object _connection
    cdef Beginning _beginning
    cdef list _partitions
    cdef uint8_t _correlation_id[4]
    cdef bint is_lined_up
    cdef readonly int count
    cdef readonly Py_ssize_t end
    cdef readonly tuple parts
    cdef readonly Py_ssize_t size_bytes
    cdef public object waiting

    def __call__(self, reply):
        cdef bytes answer = self._beginning.answer(self._partitions, reply, self._correlation_id)
        self.parts = (answer,)
        self.size_bytes = len(answer)
        if self.is_lined_up:
            self._connection.answered(self)


cdef class Commits:
    """Takes a commit at the front of a receive buffer; a `apis.api.Shortcut`.

    `submit(group_id, command)` is that of the coordinator. `learn(view, version, frame)` gives the
    `Beginning` of a whole frame, or None for what the ordinary way has to answer; up to `known_max` are
    remembered.
    """

    cdef object _current_view
    cdef object _submit
    cdef object _learn
    cdef Py_ssize_t _known_max
    cdef readonly dict beginnings

    def __init__(self, current_view, submit, learn, Py_ssize_t known_max):
        self._current_view = current_view
        self._submit = submit
        self._learn = learn
        self._known_max = known_max
        self.beginnings = {}

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

    cdef Commit _take(
        self,
        const uint8_t *bytes_,
        Py_ssize_t start,
        Py_ssize_t filled,
        Py_ssize_t frame_bytes_max,
        object connection,
    ):
        cdef const uint8_t *head = bytes_ + start
        cdef Py_ssize_t length
        cdef Py_ssize_t count = 0
        cdef int version, client_id_bytes
        cdef Reader reader
        cdef Beginning beginning
        cdef Commit commit
        cdef list offsets
        if filled - start < FRAME_HEAD_BYTES:
            return None
        length = <int32_t> big_endian(head, 4)
        version = <short> big_endian(head + 6, 2)
        if (
            <short> big_endian(head + 4, 2) != API_KEY
            or not FIRST_VERSION <= version <= LAST_VERSION
            or length > frame_bytes_max
            or length < FRAME_HEAD_BYTES - 4
            or start + 4 + length > filled
        ):
            return None
        client_id_bytes = <short> big_endian(head + QUESTION_POSITION, 2)
        reader.bytes = head
        reader.at = FRAME_HEAD_BYTES + max(client_id_bytes, 0)
        reader.end = 4 + length
        if version >= FIRST_FLEXIBLE_VERSION:
            count = _skip_flexible_beginning(&reader, version)
        else:
            count = _skip_plain_beginning(&reader, version)
        if not 0 < count <= PARTITIONS_MAX:
            return None
        if reader.at > reader.end or reader.at - QUESTION_POSITION > BEGINNING_BYTES_MAX:
            return None
        beginning = self._known(&reader, version)
        if beginning is None:
            return None
        commit = Commit.__new__(Commit)
        commit._partitions = []
        offsets = _read_offsets(&reader, count, beginning, commit._partitions)
        if offsets is None:
            return None
        commit._connection = connection
        commit._beginning = beginning
        memcpy(commit._correlation_id, head + 8, 4)
        commit.count = 1
        commit.end = start + 4 + length
        self._submit(
            beginning.group_id,
            _CommitOffsets(
                commit,
                beginning.group_id,
                beginning.generation,
                beginning.member_id,
                offsets,
                beginning.group_instance_id,
                beginning.retention_time_ms,
                version,
            ),
        )
        commit.is_lined_up = True
        return commit

    cdef Beginning _known(self, const Reader *reader, int version):
        """What the bytes up to where `reader` is mean."""
        cdef dict beginnings = self.beginnings
        cdef const char *question = <const char *> reader.bytes + QUESTION_POSITION
        cdef tuple key = (version, PyBytes_FromStringAndSize(question, reader.at - QUESTION_POSITION))
        cdef Beginning known = beginnings.get(key)
        cluster = self._current_view()
        if known is None or known.view is not cluster:
            known = self._learn(
                cluster, version, PyBytes_FromStringAndSize(question, reader.end - QUESTION_POSITION)
            )
            if known is None:
                return None
            if len(beginnings) >= self._known_max:
                beginnings.clear()
            beginnings[key] = known
        return known


cdef inline int _byte(Reader *reader) noexcept:
    """The next byte; -1 at the end."""
    if reader.at >= reader.end:
        return -1
    reader.at += 1
    return reader.bytes[reader.at - 1]


cdef inline int _short(Reader *reader) noexcept:
    """The next two bytes as a length; -2, which is none, at the end."""
    if reader.end - reader.at < 2:
        reader.at = reader.end
        return -2
    reader.at += 2
    return <short> big_endian(reader.bytes + reader.at - 2, 2)


cdef inline int64_t _int(Reader *reader) noexcept:
    """The next four bytes; -1 at the end."""
    if reader.end - reader.at < 4:
        reader.at = reader.end
        return -1
    reader.at += 4
    return <int32_t> big_endian(reader.bytes + reader.at - 4, 4)


cdef bint _skip_text(Reader *reader, bint is_null_allowed) noexcept:
    """Over a compact string of less than 127 bytes; False for any other."""
    cdef int size = _byte(reader)
    if size < (0 if is_null_allowed else 1) or size >= 0x80:
        return False
    reader.at += max(size - 1, 0)
    return True


cdef Py_ssize_t _skip_flexible_beginning(Reader *reader, int version) noexcept:
    """Where the first partition begins, and how many there are; no partition for anything unusual.

    Tagged fields of the header, group, generation, member, instance, number of topics, name or id, number.
    """
    cdef int count
    if _byte(reader) != 0 or not _skip_text(reader, False):
        return 0
    reader.at += 4
    if not _skip_text(reader, False) or not _skip_text(reader, True) or _byte(reader) != ONE:
        return 0
    if version >= FIRST_VERSION_WITH_IDS:
        reader.at += TOPIC_ID_BYTES
    elif not _skip_text(reader, False):
        return 0
    count = _byte(reader)
    return count - 1 if 0 < count < 0x80 else 0


cdef Py_ssize_t _skip_plain_beginning(Reader *reader, int version) noexcept:
    """As `_skip_flexible_beginning`, where lengths have two bytes and numbers four."""
    cdef int size = _short(reader)
    if size < 0:
        return 0
    reader.at += size + 4
    size = _short(reader)
    if size < 0:
        return 0
    reader.at += size
    if version >= FIRST_VERSION_WITH_INSTANCES:
        size = _short(reader)
        if size < -1:
            return 0
        reader.at += max(size, 0)
    elif version < FIRST_VERSION_WITHOUT_RETENTION:
        reader.at += 8
    if _int(reader) != 1:
        return 0
    size = _short(reader)
    if size < 0:
        return 0
    reader.at += size
    return _int(reader)


cdef list _read_offsets(Reader *reader, Py_ssize_t count, Beginning beginning, list partitions):
    """The partitions of a request to its end, and their indexes; None if that is not all, or not all exist.
    """
    cdef bint is_flexible = beginning.version >= FIRST_FLEXIBLE_VERSION
    cdef bint has_epochs = beginning.version >= FIRST_VERSION_WITH_EPOCHS
    cdef Py_ssize_t place_bytes = PLACE_BYTES + (EPOCH_BYTES if has_epochs else 0)
    cdef list offsets = []
    cdef const uint8_t *place
    cdef int64_t index, offset, leader_epoch
    cdef int text_bytes
    for _ in range(count):
        if reader.end - reader.at < place_bytes:
            return None
        place = reader.bytes + reader.at
        index = <int32_t> big_endian(place, 4)
        offset = <int64_t> big_endian(place + 4, 8)
        leader_epoch = <int32_t> big_endian(place + PLACE_BYTES, 4) if has_epochs else -1
        reader.at += place_bytes
        if not 0 <= index < beginning.partition_count:
            return None
        if is_flexible:
            text_bytes = _byte(reader)
            if not 0 <= text_bytes < 0x80:
                return None
            text_bytes -= 1
        else:
            text_bytes = _short(reader)
            if text_bytes < -1:
                return None
        metadata = ""
        if text_bytes > 0:
            if text_bytes > reader.end - reader.at:
                return None
            try:
                metadata = PyBytes_FromStringAndSize(
                    <const char *> reader.bytes + reader.at, text_bytes
                ).decode("utf-8")
            except UnicodeDecodeError:
                return None
            reader.at += text_bytes
        if is_flexible and _byte(reader) != 0:
            return None
        partitions.append(index)
        offsets.append(
            _new_tuple(
                _OffsetToCommit,
                (beginning.topic, index, offset, leader_epoch, metadata, -1, beginning.topic_id),
            )
        )
    # No tagged fields: of the topic, of the request.
    if is_flexible and (_byte(reader) != 0 or _byte(reader) != 0):
        return None
    return offsets if reader.at == reader.end else None
