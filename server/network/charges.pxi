# What requests come to in the quotas of a client; nothing of it is called while no client has a quota.

cdef enum:
    # As in `apis/declaration.py`.
    CHARGED_WHEN_HANDLED = 1
    CHARGED_BY_HANDLER = 2
    NS_PER_PERCENT = 10000000


cdef class Charges:
    """Charges of a connection's requests to the quotas of its client.

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
        """Meters of the principal and of the client id that a request names."""
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
            self._produce = None if found.produce is None else Credit(found.produce, self.dispatcher.monotonic_ms)
            self._request = None if found.request is None else Credit(found.request, self.dispatcher.monotonic_ms)
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
        a response the processor time does not count."""
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

    cdef tuple encode_frame(self, Slot slot, response):
        """The response as buffers, and its size in bytes. Without `slot.meters` it is not charged, but says
        `slot.wait_ms`. A handler may have said itself for how long its client has to wait."""
        cdef Route route = slot.route
        cdef int wait_ms
        cdef int64_t began_ns
        if slot.meters is None:
            if slot.wait_ms:
                response.throttle_time_ms = slot.wait_ms
            return route.encode_frame(response, slot.correlation_id)
        wait_ms = response.throttle_time_ms if route.has_throttle_time else 0
        if route.charge == CHARGED_BY_HANDLER:
            if wait_ms:
                self.requests.hold_back(wait_ms)
            return route.encode_frame(response, slot.correlation_id)
        wait_ms = self._charge_response(slot, wait_ms)
        if wait_ms and route.has_throttle_time:
            response.throttle_time_ms = wait_ms
        began_ns = _now_ns()
        encoded = route.encode_frame(response, slot.correlation_id)
        self.until_ns = _now_ns()
        slot.meters.record_request(self.until_ns - began_ns, self.dispatcher.monotonic_ms())
        return encoded

    cdef int _charge_response(self, Slot slot, int wait_ms) except -1:
        """The meters are those of the request, whatever client id the connection has named since."""
        cdef int request_wait_ms = slot.meters.charge_request(slot.took_ns, self.dispatcher.monotonic_ms())
        if request_wait_ms > wait_ms:
            wait_ms = request_wait_ms
        if wait_ms:
            self.requests.hold_back(wait_ms)
        return wait_ms


cdef class Credit:
    """One meter, and what a connection has used of it since the last charge."""

    cdef object meter
    cdef object monotonic_ms
    cdef double _credit
    cdef double _used
    cdef bint _is_first

    def __init__(self, meter, monotonic_ms):
        self.meter = meter
        self.monotonic_ms = monotonic_ms
        self._credit = self._used = 0
        self._is_first = True

    cdef int charge(self, double value) except -1:
        if self._is_first:
            self._is_first = False
            return self.meter.charge(value, self.monotonic_ms())
        if self._credit == 0:
            self._credit = self.meter.credit
        if self._used + value <= self._credit:
            self._used += value
            return 0
        self.settle()
        return self.meter.charge(value, self.monotonic_ms())

    cdef settle(self):
        if self._used:
            self.meter.record(self._used, self.monotonic_ms())
        self._credit = self._used = 0
        self._is_first = True
