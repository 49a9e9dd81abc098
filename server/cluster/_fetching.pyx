# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The ordinary exchange of a follower with one leader: a response of the session is judged where it was received,
its batches are appended, the high watermark moves, and the next request is made, with no object of either.

`ReplicaFetcher` is the machine, and has all state; this does what it would do, in the cases that are nearly all:
records and high watermarks of partitions that are fetched as they were asked for. A response with anything else
has no effect here, and goes to the machine: an error, a diverging epoch, a log start that moved, a partition that
is not asked for any more, markers, a segment that is full. So does each request that is to say more than where
logs end: partitions that are new, gone, delayed or throttled, a new session.
"""

from cpython.bytearray cimport PyByteArray_AsString
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from odradek.coordinator.replication.replica_fetcher import Phase as _Phase
from odradek.wire.frames import request_frame as _request_frame
from odradek.wire.messages.fetch import FetchRequest as _FetchRequest

include "wire/layout.pxi"

cdef enum:
    NS_PER_MS = 1000000
    FETCH_KEY = 1
    # In these a request says who fetches, by a tag, and a topic by its id.
    FIRST_VERSION = 15
    LAST_VERSION = 18
    SIZE_BYTES = 4
    RESPONSE_HEAD = 15
    PARTITION_HEAD = 30
    TOPIC_ID_BYTES = 16
    ASKED_BYTES = 33
    # A topic with one partition: its id, a count, the partition, tags.
    ASKED_TOPIC_BYTES = 64
    # All of a request but the client id and the topics; each count and length at its longest.
    REQUEST_BYTES = 96
    RECEIVE_BYTES = 65536
    # A larger buffer is given back after so many small responses.
    BUFFER_KEPT_BYTES = 2097152
    SMALL_MAX = 64

RESPONSE_BYTES_MAX = 1073741824
cdef int64_t _RESPONSE_BYTES_MAX = RESPONSE_BYTES_MAX
cdef object _FETCHING = _Phase.FETCHING


cdef struct Part:
    # Of one partition of a response: its batches, and the end of the log after them.
    Py_ssize_t start
    Py_ssize_t end
    int64_t next_offset
    int64_t high_watermark_before
    int64_t high_watermark
    bint is_news


cdef struct Cursor:
    const uint8_t *bytes_
    Py_ssize_t at
    Py_ssize_t end


cdef int64_t _varint(Cursor *cursor) noexcept nogil:
    """An unsigned number of up to five bytes; -1 where there is none."""
    cdef int64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end and shift < 35:
        byte = cursor.bytes_[cursor.at]
        cursor.at += 1
        value |= <int64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    return -1


cdef uint8_t *_put_varint(uint8_t *at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t> (value | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t> value
    return at + 1


cdef inline uint8_t *_put(uint8_t *at, int64_t value, int size) noexcept nogil:
    put_big_endian(at, <uint64_t> value, size)
    return at + size


cdef bint _is_zero(Cursor *cursor) noexcept nogil:
    """Whether the next byte is 0: no tagged fields."""
    if cursor.at >= cursor.end or cursor.bytes_[cursor.at]:
        return False
    cursor.at += 1
    return True


cdef class FetchExchange:
    """See the module. One request is under way at a time: `begin` makes the frame of one of the machine's.

    The protocol of a connection: whoever holds it sets `send`, and overrides `ended`, `other` and `broken`.
    Without a connection `judge` and `next_frame` do the same.
    """

    cdef readonly object fetcher
    cdef public object send
    cdef public object failed
    cdef readonly int32_t correlation_id
    cdef readonly int64_t sent_ns
    cdef readonly int64_t judged_count
    cdef readonly bint is_waiting
    cdef public dict failures
    cdef bytes _client_id
    cdef int _version
    cdef bint _may_judge
    cdef bint _may_go_on
    cdef list _taken
    cdef Part *_parts
    cdef Py_ssize_t _parts_room
    cdef uint8_t *_scratch
    cdef Py_ssize_t _scratch_room
    cdef object _content
    cdef object _view
    cdef Py_ssize_t _filled
    cdef bint _is_lent
    cdef int _small_count

    def __init__(self, fetcher, client_id, failed, failures=None):
        self.fetcher = fetcher
        self.send = None
        self.failed = failed
        self.failures = {} if failures is None else failures
        self._client_id = client_id.encode()
        self._taken = []
        self.correlation_id = 0
        self._set_buffer(RECEIVE_BYTES)

    def __dealloc__(self):
        free(self._parts)
        free(self._scratch)

    # Requests

    def begin(self, request, int version):
        """The frame of a request of the machine. What was received before may be written over from now on."""
        self._is_lent = False
        self._version = version
        self._may_judge = isinstance(request, _FetchRequest) and FIRST_VERSION <= version <= LAST_VERSION
        self._begin()
        return _request_frame(request, version, self.correlation_id, self._client_id.decode())

    cdef void _begin(self):
        cdef timespec now
        self.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
        self.is_waiting = True
        clock_gettime(CLOCK_MONOTONIC, &now)
        self.sent_ns = <int64_t> now.tv_sec * 1000000000 + now.tv_nsec

    def next_frame(self):
        """After a response was judged: the frame of the request that follows; None if the machine makes it."""
        cdef bytes frame = None
        cdef object session = self.fetcher.session
        cdef Py_ssize_t count = len(self._taken) // 3
        cdef dict unsettled = self.fetcher.unsettled
        # Any that is unsettled beside those of the response is for the machine.
        if (
            self._may_go_on and len(unsettled) == count and self._are_followed(count)
            and not <dict> self.fetcher.quota.throttled
        ):
            self._begin()
            frame = self._request(session, count)
            unsettled.clear()
        self._taken.clear()
        if frame is None:
            self.fetcher.carried_out()
        return frame

    cdef bint _are_followed(self, Py_ssize_t count) except -1:
        """Whether the partitions of the response are still fetched in the same leader epochs."""
        cdef dict by_id = self.fetcher.by_id
        cdef Py_ssize_t position
        for position in range(count):
            if by_id.get(self._taken[3 * position]) is not self._taken[3 * position + 1]:
                return False
        return True

    cdef bytes _request(self, object session, Py_ssize_t count):
        cdef object settings = self.fetcher.settings
        cdef int64_t partition_bytes_max = settings.partition_max_bytes
        cdef Py_ssize_t position, client_id_bytes = len(self._client_id)
        cdef Py_ssize_t topic_count = 0
        cdef object topic_id = None
        cdef uint8_t *at
        cdef Part *part
        self._make_scratch(REQUEST_BYTES + client_id_bytes + count * ASKED_TOPIC_BYTES)
        for position in range(count):
            part = self._parts + position
            part.is_news = self._settle(session, position, partition_bytes_max)
            if part.is_news and self._taken[3 * position][0] is not topic_id:
                topic_id = self._taken[3 * position][0]
                topic_count += 1
        at = self._scratch + SIZE_BYTES
        at = _put(at, FETCH_KEY, 2)
        at = _put(at, self._version, 2)
        at = _put(at, self.correlation_id, 4)
        at = _put(at, client_id_bytes, 2)
        memcpy(at, PyBytes_AsString(self._client_id), client_id_bytes)
        at += client_id_bytes
        at = _put(at, 0, 1)
        at = _put(at, settings.max_wait_ms, 4)
        at = _put(at, settings.min_bytes, 4)
        at = _put(at, settings.max_bytes, 4)
        at = _put(at, 0, 1)
        at = _put(at, session.id, 4)
        at = _put(at, session.epoch, 4)
        at = _put_varint(at, topic_count + 1)
        at = self._put_topics(at, count)
        # No forgotten topics, no rack, one tag: the state says who fetches.
        at = _put_varint(at, 1)
        at = _put_varint(at, 1)
        at = _put_varint(at, 1)
        at = _put_varint(at, 1)
        at = _put_varint(at, 13)
        at = _put(at, self.fetcher.node_id, 4)
        at = _put(at, self.fetcher.broker_epoch(), 8)
        at = _put(at, 0, 1)
        _put(self._scratch, (at - self._scratch) - SIZE_BYTES, SIZE_BYTES)
        return PyBytes_FromStringAndSize(<const char *> self._scratch, at - self._scratch)

    cdef bint _settle(self, object session, Py_ssize_t position, int64_t partition_bytes_max) except -1:
        """Note what the session asks for of this partition, as `ReplicaFetcher._settle` and the session do it.
        Returns whether it is news to the leader."""
        cdef object partition_id = self._taken[3 * position]
        cdef object one = self._taken[3 * position + 1]
        cdef object asked = self._taken[3 * position + 2]
        cdef object told = asked.partition, log = one.log
        cdef dict all_asked = session.asked
        cdef int64_t fetch_offset, log_start_offset
        # Always read from the log: a response without records cannot lose it (KAFKA-15510).
        cdef int64_t last_epoch = log.latest_epoch
        log_start_offset, fetch_offset, _ = <tuple> log.offsets()
        # What has changed last is the last.
        del all_asked[partition_id]
        all_asked[partition_id] = asked
        if (
            <int64_t> told.fetch_offset == fetch_offset
            and <int64_t> told.last_fetched_epoch == last_epoch
            and <int64_t> told.log_start_offset == log_start_offset
            and <int64_t> told.partition_max_bytes == partition_bytes_max
        ):
            return False
        told.fetch_offset = fetch_offset
        told.last_fetched_epoch = last_epoch
        told.log_start_offset = log_start_offset
        told.partition_max_bytes = partition_bytes_max
        session.held[partition_id] = told
        return True

    cdef uint8_t *_put_topics(self, uint8_t *at, Py_ssize_t count) except NULL:
        cdef Py_ssize_t position = 0, last, partition_count
        cdef object topic_id, told
        while position < count:
            if not self._parts[position].is_news:
                position += 1
                continue
            topic_id = self._taken[3 * position][0]
            partition_count = 0
            last = position
            while last < count and (not self._parts[last].is_news or self._taken[3 * last][0] is topic_id):
                partition_count += self._parts[last].is_news
                last += 1
            memcpy(at, PyBytes_AsString(topic_id), TOPIC_ID_BYTES)
            at = _put_varint(at + TOPIC_ID_BYTES, partition_count + 1)
            while position < last:
                if self._parts[position].is_news:
                    told = self._taken[3 * position + 2].partition
                    at = _put(at, told.partition, 4)
                    at = _put(at, told.current_leader_epoch, 4)
                    at = _put(at, told.fetch_offset, 8)
                    at = _put(at, told.last_fetched_epoch, 4)
                    at = _put(at, told.log_start_offset, 8)
                    at = _put(at, told.partition_max_bytes, 4)
                    at = _put(at, 0, 1)
                position += 1
            at = _put(at, 0, 1)
        return at

    cdef _make_scratch(self, Py_ssize_t size_bytes):
        cdef void *grown
        if size_bytes > self._scratch_room:
            grown = realloc(self._scratch, 2 * size_bytes)
            if grown == NULL:
                raise MemoryError
            self._scratch = <uint8_t *> grown
            self._scratch_room = 2 * size_bytes

    # Responses

    def judge(self, bytearray buffer not None, Py_ssize_t start, Py_ssize_t end):
        """Whether the response `buffer[start:end]`, a frame without its size, was an ordinary one. Then it is
        carried out, and `next_frame` is to be called; otherwise there was no effect."""
        return self._judge(buffer, start, end)

    cdef bint _judge(self, object buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef Cursor cursor
        cdef Py_ssize_t count
        cdef object session = self.fetcher.session
        cdef int64_t session_id
        self.is_waiting = False
        if not self._may_judge or end - start < RESPONSE_HEAD or <dict> self.fetcher.quota.throttled:
            return False
        cursor.bytes_ = <const uint8_t *> PyByteArray_AsString(buffer)
        cursor.at = start
        cursor.end = end
        if <int32_t> big_endian(cursor.bytes_ + start, 4) != self.correlation_id:
            return False
        # No tags of the header, any throttle time, no error.
        if cursor.bytes_[start + 4] or big_endian(cursor.bytes_ + start + 9, 2):
            return False
        session_id = <int32_t> big_endian(cursor.bytes_ + start + 11, 4)
        if not session_id or session_id != <int64_t> session.id or not session.epoch:
            return False
        cursor.at += RESPONSE_HEAD
        self._taken.clear()
        count = self._read_topics(buffer, &cursor, session)
        if count < 0 or cursor.at != end:
            self._taken.clear()
            return False
        # As `ReplicaFetchSession.answered`.
        session.epoch = 1 if <int64_t> session.epoch == 0x7FFFFFFF else <int64_t> session.epoch + 1
        self._carry_out(buffer, count)
        self.judged_count += 1
        return True

    cdef Py_ssize_t _read_topics(self, object buffer, Cursor *cursor, object session) except -2:
        """How many partitions the response has; -1 if it is not an ordinary one."""
        cdef int64_t topics = _varint(cursor) - 1
        cdef int64_t partitions
        cdef Py_ssize_t count = 0
        cdef bytes topic_id
        cdef bytes before = None
        cdef set seen = set() if topics > 1 else None
        if topics < 0:
            return -1
        self._may_go_on = True
        while topics:
            topics -= 1
            if cursor.end - cursor.at < TOPIC_ID_BYTES:
                return -1
            topic_id = PyBytes_FromStringAndSize(<const char *> cursor.bytes_ + cursor.at, TOPIC_ID_BYTES)
            cursor.at += TOPIC_ID_BYTES
            if seen is not None:
                if topic_id == before:
                    topic_id = before
                elif topic_id in seen:
                    self._may_go_on = False  # the machine joins what is apart
                before = topic_id
                seen.add(topic_id)
            partitions = _varint(cursor) - 1
            if partitions < 0:
                return -1
            while partitions:
                partitions -= 1
                if not self._read_partition(buffer, cursor, session, topic_id, count):
                    return -1
                count += 1
            if not _is_zero(cursor):
                return -1
        return count if _is_zero(cursor) else -1

    cdef bint _read_partition(
        self, object buffer, Cursor *cursor, object session, bytes topic_id, Py_ssize_t count
    ) except -1:
        """Whether it is an ordinary one, which is noted."""
        cdef const uint8_t *head = cursor.bytes_ + cursor.at
        cdef object one, asked, log, surveyed
        cdef tuple partition_id
        cdef Part *part
        cdef int64_t size_bytes, log_start_offset, log_end_offset, high_watermark
        if cursor.end - cursor.at < PARTITION_HEAD or big_endian(head + 4, 2):
            return False
        partition_id = (topic_id, <int32_t> big_endian(head, 4))
        cursor.at += PARTITION_HEAD
        # Aborted transactions: null, or none. Then a preferred replica, which a follower has no use for.
        if not 0 <= _varint(cursor) <= 1 or cursor.end - cursor.at < 4:
            return False
        cursor.at += 4
        size_bytes = _varint(cursor)
        if size_bytes < 0:
            return False
        size_bytes = max(size_bytes - 1, 0)
        if size_bytes >= cursor.end - cursor.at:
            return False
        one = (<dict> self.fetcher.by_id).get(partition_id)
        asked = (<dict> session.asked).get(partition_id)
        if one is None or asked is None or one.delayed_until_ms is not None:
            return False
        log = one.log
        log_start_offset, log_end_offset, high_watermark = <tuple> log.offsets()
        if not self.is_as_asked(one, asked.partition, log_end_offset):
            return False
        if count >= self._parts_room:
            self._make_parts(2 * count + 4)
        part = self._parts + count
        part.start = part.end = cursor.at
        part.next_offset = log_end_offset
        part.high_watermark_before = high_watermark
        part.high_watermark = <int64_t> big_endian(head + 6, 8)
        if size_bytes:
            surveyed = log.survey(buffer, cursor.at, cursor.at + size_bytes, one.leader_epoch)
            if surveyed is None:
                return False
            part.end += <Py_ssize_t> (<tuple> surveyed)[0]
            part.next_offset = (<tuple> surveyed)[1]
            cursor.at += size_bytes
        # The log start follows the leader's: that is for the machine, as segments go.
        if <int64_t> big_endian(head + 22, 8) > log_start_offset or not _is_zero(cursor):
            return False
        self._taken.append(partition_id)
        self._taken.append(one)
        self._taken.append(asked)
        return True

    cdef _make_parts(self, Py_ssize_t room):
        cdef void *grown = realloc(self._parts, room * sizeof(Part))
        if grown == NULL:
            raise MemoryError
        self._parts = <Part *> grown
        self._parts_room = room

    cdef _carry_out(self, object buffer, Py_ssize_t count):
        cdef object one, log
        cdef Py_ssize_t position
        cdef Part *part
        cdef dict unsettled = self.fetcher.unsettled, by_id = self.fetcher.by_id
        cdef int64_t high_watermark
        self._may_go_on = self._may_go_on and not unsettled
        for position in range(count):
            unsettled[self._taken[3 * position]] = None
        for position in range(count):
            part = self._parts + position
            one = self._taken[3 * position + 1]
            if by_id.get(self._taken[3 * position]) is not one:
                continue  # what came before has ended it
            log = one.log
            one.lag = max(part.high_watermark - part.next_offset, 0)
            high_watermark = self.high_watermark_of(part.high_watermark, part.next_offset)
            if part.start == part.end and high_watermark <= part.high_watermark_before:
                continue
            try:
                log.take(buffer, part.start, part.end, high_watermark)
            except Exception as error:
                self._may_go_on = False
                self.failed(one.key, error)
            else:
                if self.failures:
                    self.failures.pop(one.key, None)

    # Rules, apart so that a test can undo one

    cpdef bint is_as_asked(self, one, asked, int64_t log_end_offset) except -1:
        """See `ReplicaFetcher`: a response counts only for the log and the leader epoch of its request."""
        return (
            one.phase is _FETCHING
            and not one.is_busy
            and <int64_t> one.leader_epoch == <int64_t> asked.current_leader_epoch
            and log_end_offset == <int64_t> asked.fetch_offset
        )

    cpdef int64_t high_watermark_of(self, int64_t leaders, int64_t next_offset) except? -1:
        """The leader's, at most the end of the log."""
        return min(leaders, next_offset)

    # The connection

    def get_buffer(self, size_hint):
        if self._is_lent:
            # The leader sends what nobody has asked for: it must not change what is read.
            self._is_lent = False
            self._set_buffer(RECEIVE_BYTES)
        return self._view[self._filled :]

    def buffer_updated(self, Py_ssize_t size_bytes):
        cdef int64_t length
        self._filled += size_bytes
        if self._filled < SIZE_BYTES:
            return
        length = <int32_t> big_endian(<const uint8_t *> PyByteArray_AsString(self._content), SIZE_BYTES)
        if not self.is_waiting or not 0 <= length <= _RESPONSE_BYTES_MAX or self._filled > SIZE_BYTES + length:
            self.broken(None)
        elif self._filled < SIZE_BYTES + length:
            self._make_room(SIZE_BYTES + length)
        else:
            self._filled = 0
            try:
                self._take(length)
            except Exception as error:
                self.broken(error)

    cdef _take(self, int64_t length):
        if not self._judge(self._content, SIZE_BYTES, SIZE_BYTES + length):
            self._is_lent = True
            self.other(self._view[SIZE_BYTES : SIZE_BYTES + length])
            return
        frame = self.next_frame()
        if frame is None:
            self.ended()
        else:
            self.send(frame)
        if len(self._content) > BUFFER_KEPT_BYTES:
            self._small_count = self._small_count + 1 if length < RECEIVE_BYTES else 0
            if self._small_count > SMALL_MAX:
                self._set_buffer(RECEIVE_BYTES)

    cdef _set_buffer(self, Py_ssize_t capacity):
        self._content = bytearray(capacity)
        self._view = memoryview(self._content)
        self._small_count = 0

    cdef _make_room(self, int64_t size_bytes):
        """For a frame of that size, whose first bytes are here."""
        cdef object begun
        if size_bytes > len(self._content):
            begun = self._view[: self._filled]
            # A little more: the next one may be as large and a little larger.
            self._set_buffer(size_bytes + size_bytes // 8)
            self._view[: self._filled] = begun

    def ended(self):
        """A response was carried out, and the next request is the machine's."""
        raise NotImplementedError

    def other(self, frame):
        """A response for the machine; valid until `begin`."""
        raise NotImplementedError

    def broken(self, error):
        """The leader sends what is no response; or `error`, a bug."""
        raise NotImplementedError
