# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The compiled part of a partition's leader: what followers have (`FollowerState`), and their ordinary fetches
(`LedReplica`). `LeaderState` holds both, and decides everything else.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc

cdef enum:
    FOLLOWERS_MAX = 16

cdef int64_t UNKNOWN = -1
cdef int64_t NEVER = -(<int64_t> 1 << 62)
# Broker epoch of one that is not registered, or is fenced.
cdef int64_t NOT_LIVE = -2


cdef class FollowerState:
    cdef public int64_t log_end_offset
    cdef public int64_t log_start_offset
    cdef public object broker_epoch
    cdef public int64_t fetched_ms
    cdef public int64_t leader_end_offset
    cdef public int64_t caught_up_ms

    def __init__(self, int64_t caught_up_ms=NEVER):
        self.log_end_offset = self.log_start_offset = self.leader_end_offset = UNKNOWN
        self.broker_epoch = None
        self.fetched_ms = NEVER
        self.caught_up_ms = caught_up_ms

    def fetched(
        self, int64_t fetch_offset, int64_t log_start_offset, broker_epoch, int64_t leader_end_offset, int64_t now_ms
    ):
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._fetched(fetch_offset, leader_end_offset, now_ms)

    cdef void _fetched(self, int64_t fetch_offset, int64_t leader_end_offset, int64_t now_ms) noexcept:
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_offset:
            # It has now what the leader had at its last fetch: so it keeps up, under constant load too.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)
        self.fetched_ms = now_ms

    def is_caught_up(self, int64_t leader_end_offset, int64_t now_ms, int64_t lag_ms_max):
        return self._is_caught_up(leader_end_offset, now_ms, lag_ms_max)

    cdef bint _is_caught_up(self, int64_t leader_end_offset, int64_t now_ms, int64_t lag_ms_max) noexcept:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


cdef class LedReplica:
    cdef readonly object key
    cdef readonly bint is_ended
    cdef object _state
    cdef object _log
    cdef object _unsaved
    cdef object _is_throttled
    cdef list _readers
    # What it has read of the state: other objects are in their place after each change.
    cdef object _view
    cdef object _in_sync
    cdef object _followers
    cdef object _buffer
    cdef list _known
    cdef int64_t *_ids  # of the followers, in the order of `_known`; then their epochs while they are live
    cdef int64_t *_live_epochs
    cdef uint32_t _isr
    cdef uint32_t _leaving  # brokers that are shutting down
    cdef Py_ssize_t _isr_size
    cdef int64_t _leader_epoch
    cdef bint _is_plain

    def __init__(self, state not None, log not None, unsaved not None, is_throttled not None):
        self.key = state.key
        self.is_ended = False
        self._state = state
        self._log = log
        self._unsaved = unsaved
        self._is_throttled = is_throttled
        self._readers = []
        self._view = self._in_sync = self._followers = self._buffer = None
        self._known = []
        self._is_plain = False
        self._ids = self._live_epochs = NULL

    def __dealloc__(self):
        free(self._ids)

    # What is known of the state

    cpdef bint is_plain(self, view) except -1:
        """Whether nothing is under way in this partition: no change of its ISR, no epoch that is not saved."""
        if self.is_ended or self.key in self._unsaved:
            return False
        if (
            view is not self._view
            or self._state.in_sync is not self._in_sync
            or self._state.followers is not self._followers
            or self._log.buffer is not self._buffer
        ):
            self._read_state(view)
        return self._is_plain

    cdef _read_state(self, view):
        cdef dict followers = self._state.followers
        cdef Py_ssize_t place = 0
        state = self._state
        self._view, self._in_sync, self._followers = view, state.in_sync, followers
        self._buffer = self._log.buffer
        isr, pending = state.in_sync
        self._leader_epoch = state.leader_epoch
        self._is_plain = (
            state.is_leading
            and pending is None
            and len(followers) <= FOLLOWERS_MAX
            and state.log.latest_epoch == state.leader_epoch
            and not self._is_throttled(self.key)
        )
        self._known = list(followers.values())
        self._isr_size = len(isr)
        self._isr = self._leaving = 0
        self._make_room(len(followers))
        if not self._is_plain:
            return
        for replica_id in followers:
            broker = state.brokers(replica_id)
            self._ids[place] = replica_id
            self._live_epochs[place] = NOT_LIVE
            if replica_id in isr:
                self._isr |= <uint32_t> 1 << place
            if broker is not None and not broker.is_fenced:
                self._live_epochs[place] = broker.epoch
                if broker.is_in_shutdown:
                    self._leaving |= <uint32_t> 1 << place
            place += 1

    cdef _make_room(self, Py_ssize_t count):
        cdef int64_t *room = <int64_t *> realloc(self._ids, (2 * count + 1) * sizeof(int64_t))
        cdef Py_ssize_t place
        if room == NULL:
            raise MemoryError
        self._ids, self._live_epochs = room, room + count
        for place in range(count):
            room[place] = UNKNOWN

    cdef Py_ssize_t _place_of(self, int64_t replica_id) noexcept:
        cdef Py_ssize_t place
        for place in range(len(self._known)):
            if self._ids[place] == replica_id:
                return place
        return -1

    # Fetches

    cpdef bint is_ordinary(
        self, view, int64_t replica_id, int64_t broker_epoch, int64_t leader_epoch, int64_t fetch_offset,
        int64_t last_fetched_epoch, int64_t log_start_offset,
    ) except -1:
        cdef FollowerState follower
        cdef Py_ssize_t place
        if not self.is_plain(view) or leader_epoch != self._leader_epoch:
            return False
        # The log has this epoch as its newest: it ends where the log does, so nothing diverges.
        if last_fetched_epoch >= 0 and last_fetched_epoch != leader_epoch:
            return False
        place = self._place_of(replica_id)
        if place < 0 or not self._isr >> place & 1:
            return False
        follower = self._known[place]
        if follower.broker_epoch is None or <int64_t> follower.broker_epoch != broker_epoch:
            return False
        if UNKNOWN < broker_epoch < self._live_epochs[place]:
            return False
        if follower.log_end_offset < 0 or follower.log_start_offset != log_start_offset:
            return False
        return self._log.log_start_offset <= fetch_offset <= <int64_t> self._buffer.log_end_offset

    cpdef int64_t fetched(self, int64_t replica_id, int64_t fetch_offset, int64_t now_ms) except -1:
        cdef FollowerState follower = self._known[self._place_of(replica_id)]
        follower._fetched(fetch_offset, self._buffer.log_end_offset, now_ms)
        return self.committed(now_ms)

    def appended(self, view, int64_t now_ms):
        return self.committed(now_ms) if self.is_plain(view) else None

    cpdef int64_t committed(self, int64_t now_ms) except -1:
        cdef FollowerState follower
        cdef int64_t end_offset = self._buffer.log_end_offset, offset = end_offset
        cdef int64_t high_watermark = self._log.high_watermark.offset
        cdef Py_ssize_t place
        for place in range(len(self._known)):
            follower = self._known[place]
            if follower.log_end_offset < offset and (
                self._isr >> place & 1 or self._is_joining(place, follower, end_offset, now_ms)
            ):
                offset = follower.log_end_offset
        if offset <= high_watermark or self.is_under_min_isr():
            return high_watermark
        return offset

    cpdef bint is_under_min_isr(self) except -1:
        cdef Py_ssize_t min_isr = self._state.settings.min_insync_replicas
        return self._isr_size < min(min_isr, len(self._known) + 1)

    cdef bint _is_joining(self, Py_ssize_t place, FollowerState follower, int64_t end_offset, int64_t now_ms) except -1:
        cdef int64_t epoch = self._live_epochs[place]
        if epoch == NOT_LIVE or self._leaving >> place & 1 or follower.broker_epoch is None:
            return False
        if <int64_t> follower.broker_epoch != UNKNOWN and <int64_t> follower.broker_epoch != epoch:
            return False
        return follower._is_caught_up(end_offset, now_ms, self._state.settings.replica_lag_time_max_ms)

    def kept_up(self, int64_t replica_id, int64_t offset, int64_t at_ms):
        cdef Py_ssize_t place = self._place_of(replica_id)
        cdef FollowerState follower
        if place >= 0 and self._state.followers is self._followers:
            follower = self._known[place]
            if follower.log_end_offset == offset and at_ms > follower.fetched_ms:
                follower._fetched(offset, offset, at_ms)

    # Those who read it

    def join(self, reader):
        self._readers.append(reader)

    def leave(self, reader):
        self._readers.remove(reader)

    def tell(self, bint has_grown):
        for reader in tuple(self._readers) if len(self._readers) > 1 else self._readers:
            reader.note(has_grown)

    def end(self):
        self.is_ended = True
        self.tell(True)
