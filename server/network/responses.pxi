# The responses of a connection, in the order of its requests.

cdef enum:
    BURST_MAX = 64
    # Up to here one copy into one buffer is cheaper than a vector of buffers.
    JOINED_BYTES_MAX = 65536


cdef class Slot:
    """The place of one or more responses in the order of a connection."""

    cdef Responses line
    cdef Route route
    cdef int correlation_id
    cdef int count  # of responses
    cdef object parts  # None until it is ready
    cdef Py_ssize_t size_bytes  # of the memory that is held for it
    cdef Py_ssize_t request_bytes
    cdef int64_t began_ns
    cdef object meters  # of the client, if the response is to be charged
    cdef int64_t took_ns
    cdef int wait_ms  # what is said of it in the response
    cdef object waiting

    def deliver(self, response):
        self.waiting = None
        self.line.settle(self, response)

    def respond(self, list parts not None):
        self.waiting = None
        self.line.take_frame(self, parts)

    def follow(self, response):
        if isinstance(response, _Waiting):
            self.waiting = response
            response.on_complete(self.deliver)
        else:
            self.deliver(response)


cdef class BurstPart:
    """The part of a burst for one partition: the turn calls it when it is committed or has failed."""

    cdef Burst burst
    cdef Remembered remembered
    cdef object until
    cdef object error

    def __call__(self, error):
        self.error = error
        if self.remembered.part is self:
            self.remembered.part = None
        self.burst.part_is_done()


cdef class Burst(Slot):
    """The responses to consecutive batches, built when the last of their partitions is committed."""

    cdef list batch_parts
    cdef list appended
    cdef int correlation_ids[BURST_MAX]
    cdef int sizes[BURST_MAX]  # of the requests in bytes
    cdef int waits_ms[BURST_MAX]
    cdef int pending
    cdef int64_t turn_number

    cdef add(self, Turn turn, Remembered remembered, appended, int correlation_id, int wait_ms):
        cdef object until = remembered.until_flushed if appended.must_flush else remembered.until
        cdef BurstPart part = remembered.part
        if part is None or part.burst is not self or part.until is not until:
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
            self.parts = (self._frames(),)
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

    cdef bytes _frames(self):
        cdef BurstPart part
        cdef Py_ssize_t size_bytes = 0
        cdef bytes frames
        cdef uint8_t *target
        cdef int i
        for i in range(self.count):
            part = self.batch_parts[i]
            if part.error is not None:
                return self._frames_with_refusals()
            size_bytes += len(part.remembered.frame)
        frames = PyBytes_FromStringAndSize(NULL, size_bytes)
        target = <uint8_t *> PyBytes_AsString(frames)
        for i in range(self.count):
            part = self.batch_parts[i]
            self._fill(target, part.remembered, i)
            target += len(part.remembered.frame)
        return frames

    cdef bytes _frames_with_refusals(self):
        cdef BurstPart part
        cdef bytes frame
        cdef int i
        cdef list frames = []
        for i in range(self.count):
            part = self.batch_parts[i]
            if part.error is not None:
                refusal = part.remembered.refuse(part.error)
                refusal.throttle_time_ms = self.waits_ms[i]
                parts, _ = part.remembered.route.encode_frame(refusal, self.correlation_ids[i])
                frames += parts
                continue
            frame = PyBytes_FromStringAndSize(NULL, len(part.remembered.frame))
            self._fill(<uint8_t *> PyBytes_AsString(frame), part.remembered, i)
            frames.append(frame)
        return b"".join(frames)

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
            response = self.remembered.respond(self.items, reply)
            if self.meters is not None:
                self.wait_ms = self._charge()
            if type(response) is bytes:
                frame = _with_correlation_id(response, self.correlation_id)
                if self.wait_ms:
                    self.route.put_throttle_time(frame, self.wait_ms)
                self.parts = (frame,)
                self.size_bytes = len(<bytes> response)
            else:
                if self.wait_ms and self.route.has_throttle_time:
                    response.throttle_time_ms = self.wait_ms
                self.parts, self.size_bytes = self.route.encode_frame(response, self.correlation_id)
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
        return charges._charge_response(self, 0)


cdef Py_ssize_t _size_of(list parts) except -1:
    cdef Py_ssize_t size_bytes = 0
    for part in parts:
        size_bytes += len(part)
    return size_bytes


cdef bytes _with_correlation_id(bytes frame, int correlation_id):
    cdef bytes response = PyBytes_FromStringAndSize(PyBytes_AsString(frame), len(frame))
    assert len(frame) >= RESPONSE_HEAD_BYTES
    put_big_endian(
        <uint8_t *> PyBytes_AsString(response) + RESPONSE_CORRELATION_POSITION, <uint32_t> correlation_id, 4
    )
    return response


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
    cdef readonly Py_ssize_t waiting_responses
    cdef readonly Py_ssize_t waiting_bytes
    cdef bint _is_touched
    cdef public bint is_full
    cdef public bint is_pacing
    cdef public bint is_closing
    cdef readonly int64_t bytes_out

    def __init__(self, owner, Dispatcher dispatcher):
        self.owner = owner
        self.dispatcher = dispatcher
        self.turn = dispatcher.turn
        self.transport = None
        self._slots = None
        self._newest = None
        self._ready = []
        self._ready_bytes = 0
        self.unanswered = self.waiting_responses = self.waiting_bytes = 0
        self._is_touched = self.is_full = self.is_pacing = self.is_closing = False
        self.bytes_out = 0

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
        """Whether a request may begin before the waiting responses."""
        return 0 <= api_key < 128 and self.overlaps[api_key >> 6] >> (api_key & 63) & 1

    cdef bint is_over_limit(self):
        return (
            self.waiting_responses >= self.dispatcher.waiting_responses_max
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
        """A ready response: written next, or after the waiting responses."""
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
        """A response that is not ready. Until then the request counts as its memory."""
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
        self.waiting_responses += slot.count

    # Waiting responses

    cdef settle(self, Slot slot, response):
        """A handler's response; None if the client expects none."""
        if self._slots is None:
            return  # the connection has closed
        slot.parts = ()
        self.unanswered -= 1
        self.waiting_bytes -= slot.size_bytes
        slot.size_bytes = 0
        if response is not None:
            try:
                slot.parts, slot.size_bytes = self.requests.charges.encode_frame(slot, response)
            except Exception:
                self.fail(slot.route.name)
            self.waiting_bytes += slot.size_bytes
        self.account(slot.route, slot.request_bytes, slot.size_bytes, slot.began_ns)
        self._touch_if_first(slot)

    cdef take_frame(self, Slot slot, list parts):
        """A response that is encoded already."""
        if self._slots is None:
            return  # the connection has closed
        self.waiting_bytes -= slot.size_bytes
        slot.parts = parts
        slot.size_bytes = _size_of(parts)
        self.account(slot.route, slot.request_bytes, slot.size_bytes, slot.began_ns)
        self.complete(slot)

    cdef complete(self, Slot slot):
        """The slot is ready."""
        if self._slots is None:
            return
        self.unanswered -= 1
        if len(self._slots) == 1 and self._slots[0] is slot and not self.is_closing and not self.requests.is_held:
            self._slots.popleft()
            self.waiting_responses -= slot.count
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
            self.waiting_responses -= slot.count
        if out:
            self.waiting_bytes -= out_bytes
            self._send(out, out_bytes)
        if self.is_closing:
            self.owner.close_when_answered()
        elif self.requests.is_held:
            self.requests.resume_if_possible()

    cdef write_ready(self):
        """Writes the responses that became ready without waiting."""
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
        self.bytes_out += size_bytes
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
        self.requests.end_exchange()
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
