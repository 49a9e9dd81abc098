# Which handler, codec and counters a request has, and what all connections of a broker share.

cdef extern from *:
    int __builtin_clzll(unsigned long long value) nogil

cdef enum:
    # Up to 1.024 us, 2.048 us, ... 68.7 s, and the rest.
    TIME_BUCKETS = 28

cdef int64_t NEVER_NS = 0x7FFFFFFFFFFFFFFF

WAITING_RESPONSES_MAX = 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
REMEMBERED_MAX = 50_000
"""Entries in the tables of all connections, and what these mean, which is a kilobyte each, or less."""
REMEMBERED_OF_CONNECTION_MAX = 10_000


cdef inline int _bucket_of(int64_t took_ns) noexcept nogil:
    """The first bucket ends at 1.024 us, each other one at twice the end of the one before."""
    cdef int place
    if took_ns < 1024:
        return 0
    place = 54 - __builtin_clzll(<unsigned long long> took_ns)
    return place if place < TIME_BUCKETS else TIME_BUCKETS - 1


cdef class Route:
    cdef readonly int api_key
    cdef readonly int api_version
    cdef uint32_t key_and_version
    cdef readonly str api_name
    cdef readonly str name
    cdef object own  # what is served without a test
    cdef object served
    cdef public object handle
    cdef object decode
    cdef object encode
    cdef object errors_of
    cdef object needs
    cdef bint names_resources  # whether its requests do; else only the handler knows what a client needs
    cdef int charge  # when a request counts for quotas
    cdef bint has_throttle_time
    cdef int throttle_at  # in the frame of a remembered response
    cdef object learn  # None: its requests are not remembered
    cdef object _learn
    cdef object _sent  # None: frames are sent as they are
    cdef bint is_of_connection
    cdef bint has_tagged_header
    cdef bint tags_response
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
        self.own = self.served = served
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
        # A client that does not know the broker's versions yet must be able to read the response to
        # ApiVersions.
        self.tags_response = self.has_tagged_header and api_key != _API_VERSIONS
        self.overlaps[0] = self.overlaps[1] = 0
        for overlapping in api.overlaps:
            key = overlapping.api_key
            assert 0 <= key < 128
            self.overlaps[key >> 6] |= <uint64_t> 1 << (key & 63)
        self.learn = self._learn = None
        if prefix is not None and api_version in prefix.versions:
            if any([need.names is None for need in self.needs]):
                raise ValueError(f"{self.name} is not to be remembered: only its handler knows all its needs")
            layout = _prefix_layout(request, api_version, prefix.until)
            self.learn = self._learn = prefix.learn
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

    def interpose(self, served):
        """Requests go to `served`, each by itself: none is answered by what is remembered. None: as ever."""
        self.served = self.own if served is None else served
        self.handle = self.served.handle
        self.learn = self._learn if served is None else None
        self._sent = None if served is None else served.sent

    cdef put_throttle_time(self, bytes frame, int wait_ms):
        """Into the frame of a remembered response, if its version says it."""
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

    cdef tuple encode_frame(self, response, int correlation_id):
        """The response as buffers (the first holds length and header) and its size in bytes."""
        cdef list parts = [b""]
        cdef Py_ssize_t size_bytes = 0
        cdef uint8_t head[9]
        cdef int head_bytes = RESPONSE_HEAD_BYTES
        self.encode(response, parts)
        for part in parts:
            size_bytes += len(part)
        if self.tags_response:
            head[RESPONSE_HEAD_BYTES] = 0
            head_bytes += 1
        size_bytes += head_bytes
        put_big_endian(head, <uint64_t> (size_bytes - FRAME_SIZE_BYTES), 4)
        put_big_endian(head + RESPONSE_CORRELATION_POSITION, <uint32_t> correlation_id, 4)
        parts[0] = PyBytes_FromStringAndSize(<char *> head, head_bytes)
        for code in self.errors_of(response):
            self.errors[code] = self.errors.get(code, 0) + 1
        if self._sent is not None:
            return self._sent(response, parts, size_bytes)
        return parts, size_bytes


cdef class Dispatcher:
    cdef readonly object routes
    cdef dict _found
    cdef readonly Turn turn
    cdef readonly object clock
    cdef object monotonic_ms
    cdef readonly object now_ms
    cdef object _current_view
    cdef public object authorizer
    cdef public object meters
    cdef public object timers
    cdef public object after_requests
    cdef public object produce_watch
    cdef int64_t _slow_ns
    cdef object _on_slow
    cdef public Py_ssize_t request_bytes_max
    cdef public Py_ssize_t waiting_responses_max
    cdef public Py_ssize_t waiting_bytes_max
    cdef public Py_ssize_t remembered_max
    cdef public Py_ssize_t remembered_of_connection_max
    cdef readonly Py_ssize_t remembered
    cdef object _view
    cdef int64_t _generation
    cdef dict shared  # of this generation

    def __init__(self, routes, Turn turn, clock, Py_ssize_t request_bytes_max, current_view):
        self.routes = routes
        self._found = routes.found
        self.turn = turn
        self.clock = clock
        self.now_ms = clock.now_ms
        self.monotonic_ms = clock.monotonic_ms
        self._current_view = current_view
        self.authorizer = _ALLOW_ALL
        self.meters = None
        self.timers = None
        self.after_requests = None
        self.produce_watch = None
        self._slow_ns = NEVER_NS
        self._on_slow = None
        self.request_bytes_max = request_bytes_max
        self.waiting_responses_max = WAITING_RESPONSES_MAX
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
