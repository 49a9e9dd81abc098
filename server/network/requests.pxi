# The frames of a connection: read, answered by what is remembered or by the handler, held back.

cdef enum:
    # Ready responses of one turn are written together; beyond this size they are written at once, to see
    # whether the client reads.
    WRITE_AT_ONCE_BYTES = 262144
    PREFIX_BYTES_MAX = 1024
    KEY_HEAD_BYTES = 4
    ITEMS_MAX = 100
    REST_NOTHING = 0
    PRODUCE = 0
    FETCH = 1
    SASL_HANDSHAKE = 17
    ASK = 1
    APPEND = 2
    SUBMIT = 3

_SESSION_MS_MAX = 10**12  # 30 years; in ns no overflow
_new_tuple = tuple.__new__


cdef class Remembered:
    """Meaning of a prefix: a kind of `apis/prefixes.py`, and the resources that a client needs for it.
    Connections share it. A connection has it in its own table only if the authorizer allowed its principal these
    resources in this generation; rules are a part of the view, so other rules begin another generation."""

    cdef int kind
    cdef Route route
    cdef dict resources
    cdef bytes key
    cdef const uint8_t *repeated  # in the key
    cdef Py_ssize_t repeated_bytes
    cdef object ask
    cdef bytes frame
    cdef Py_ssize_t position
    cdef object partition
    cdef object append
    cdef dict closed
    cdef bint is_transactional
    cdef object until
    cdef object until_flushed  # the same, and the disk
    cdef object refuse
    cdef object submit
    cdef object respond
    cdef tuple sample
    cdef object item_class
    cdef bytes places
    cdef BurstPart part

    def __init__(self, Route route, bytes key not None, learnt, dict resources):
        self.route = route
        self.resources = resources
        self.key = key
        self.repeated = <const uint8_t *> PyBytes_AsString(key) + KEY_HEAD_BYTES
        self.repeated_bytes = len(key) - KEY_HEAD_BYTES
        if type(learnt) is _Ask:
            self.kind = ASK
            self.ask = learnt.ask
            if learnt.template is not None:
                self._take_template(learnt.template, 20)
        elif type(learnt) is _AppendBatch:
            self.kind = APPEND
            self.partition = learnt.partition
            self.append = learnt.append
            self.closed = learnt.closed
            self.is_transactional = learnt.is_transactional
            self.until = learnt.until
            self.until_flushed = self.until._replace(flushed=True)
            self.refuse = learnt.refuse
            self._take_template(learnt.template, 24)
        else:
            self.kind = SUBMIT
            self.submit = learnt.submit
            self.respond = learnt.respond
            self.sample = tuple(learnt.sample)
            self.item_class = type(learnt.sample)
            assert all([0 <= place < len(self.sample) for place in learnt.places])
            self.places = bytes(learnt.places)

    cdef bint is_of(self, Route route, const uint8_t *frame, Py_ssize_t rest):
        return (
            self.route is route
            and self.repeated_bytes == rest - FRAME_CLIENT_ID_POSITION
            and not memcmp(frame + FRAME_CLIENT_ID_POSITION, self.repeated, self.repeated_bytes)
        )

    cdef _take_template(self, template, Py_ssize_t size_bytes):
        self.frame, self.position = template
        assert RESPONSE_HEAD_BYTES <= self.position <= len(self.frame) - size_bytes


cdef class Requests:
    cdef object owner
    cdef Dispatcher dispatcher
    cdef Turn turn
    cdef Responses responses
    cdef readonly ReceiveBuffer buffer
    cdef Route _route
    cdef dict _remembered
    cdef Remembered _newest
    cdef int64_t _generation
    cdef int64_t _began_ns  # the time when the present requests arrived, or the last handler ended
    cdef bytes _client_id_raw
    cdef readonly object client_id
    cdef readonly bint is_held
    cdef readonly bint is_gated
    cdef list _holds  # timers of periods in which it is held back
    cdef Charges charges
    cdef readonly bint is_suspended  # the frames are for another reader
    cdef bint _is_expired
    cdef int64_t _session_ends_ns  # as `_began_ns`; 0: never
    cdef public object active_ms
    cdef readonly object exchange
    cdef readonly int64_t count
    cdef readonly int64_t bytes_in

    def __init__(self, owner, Dispatcher dispatcher, Responses responses):
        self.owner = owner
        self.dispatcher = dispatcher
        self.turn = dispatcher.turn
        self.responses = responses
        responses.requests = self
        self.buffer = ReceiveBuffer(dispatcher.turn)
        self._route = None
        self._remembered = None
        self._newest = None
        self._generation = -1
        self._client_id_raw = None
        self.client_id = None
        self.is_held = self.is_gated = self.is_suspended = self._is_expired = False
        self._holds = []
        self.charges = Charges(self, dispatcher)
        self._session_ends_ns = 0
        self.active_ms = dispatcher.now_ms()
        self.exchange = None
        self.count = self.bytes_in = 0

    # The transport's side

    def get_buffer(self, sizehint):
        return self.buffer.room()

    def buffer_updated(self, Py_ssize_t nbytes):
        cdef bint is_alone
        self.buffer.filled += nbytes
        if self.is_held or self.responses.is_closing:
            return
        is_alone = self.turn.begin_alone(self.responses)
        try:
            self._serve()
        finally:
            if is_alone:
                self.turn.end_alone()
        if self.dispatcher.after_requests is not None:
            self.dispatcher.after_requests()

    def resume_if_possible(self):
        cdef Responses responses = self.responses
        cdef Dispatcher dispatcher = self.dispatcher
        if responses.is_closing or responses.is_full or responses.is_pacing or self.is_suspended or self._holds:
            return
        if (
            responses.waiting_bytes > dispatcher.waiting_bytes_max // 2
            or responses.waiting_responses > dispatcher.waiting_responses_max // 2
            or (self.is_gated and responses.unanswered)
        ):
            return
        self.is_held = self.is_gated = False
        self._serve()
        if not self.is_held and not responses.is_closing and responses.transport is not None:
            responses.transport.resume_reading()

    def hold_back(self, hold_ms):
        cdef list holds = self._holds
        if self.responses.is_closing:
            return

        def end():
            holds.remove(timer)
            if self.is_held:
                self.resume_if_possible()

        timer = self.dispatcher.timers.after(hold_ms, end)
        holds.append(timer)
        self._hold()

    @property
    def is_held_back(self):
        return bool(self._holds)

    cdef forget_holds(self):
        """The connection has closed."""
        for timer in self._holds:
            timer.cancel()
        self._holds = []

    def limit_session(self, lifetime_ms):
        self._session_ends_ns = 0
        if lifetime_ms is not None:
            self._session_ends_ns = _now_ns() + <int64_t> min(lifetime_ms, _SESSION_MS_MAX) * NS_PER_MS

    def clock_moved(self, int64_t by_ms):
        """The broker's clock was moved, not the time of the client: it has been silent no longer, but its
        login ends by that clock."""
        self.active_ms += by_ms
        if self._session_ends_ns:
            self._session_ends_ns = max(self._session_ends_ns - by_ms * NS_PER_MS, 1)

    def suspend(self):
        """Serves no more: whoever calls this reads the frames that follow, until `end_suspension`."""
        self.is_suspended = self.is_held = True

    def end_suspension(self):
        self.is_suspended = self.is_held = False
        if self.responses.is_closing:
            return
        if self._must_hold():
            self._hold()
        else:
            self._serve()

    cdef _hold(self):
        """Reads no more, until `resume_if_possible`."""
        if not self.is_held and not self.responses.is_closing:
            self.is_held = True
            if self.responses.transport is not None:
                self.responses.transport.pause_reading()

    cdef bint _must_hold(self):
        cdef Responses responses = self.responses
        if self.is_suspended or responses.is_full or responses.is_pacing:
            return True
        return len(self._holds) or responses.is_over_limit()

    # Frames

    cdef _serve(self):
        """Serves every whole frame of the buffer, until one may not begin."""
        cdef Responses responses = self.responses
        cdef ReceiveBuffer buffer = self.buffer
        self.active_ms = self.dispatcher.now_ms()
        self._began_ns = self.charges.until_ns = _now_ns()
        self._is_expired = 0 < self._session_ends_ns <= self._began_ns
        if self._remembered is not None:
            self._forget_what_is_old()
        try:
            self._serve_frames()
        except _MalformedMessage as error:
            self.owner.close(f"malformed {self._route.name}: {error}")
        except Exception:
            responses.fail("a request" if self._route is None else self._route.name)
        self.charges.settle()
        if self.turn.staged:
            buffer.pinned_turn = self.turn.number
        responses.write_ready()
        if not responses.is_closing:
            self._after_serving()

    cdef _serve_frames(self):
        cdef Dispatcher dispatcher = self.dispatcher
        cdef Responses responses = self.responses
        cdef ReceiveBuffer buffer = self.buffer
        cdef const uint8_t *content = <const uint8_t *> PyByteArray_AsString(buffer.content)
        cdef const uint8_t *head
        cdef Py_ssize_t length, end, size_bytes
        cdef uint32_t key_and_version
        cdef Route route
        while buffer.filled - buffer.start >= FRAME_HEAD_BYTES:
            head = content + buffer.start
            length = <int32_t> big_endian(head, FRAME_SIZE_BYTES)
            end = buffer.start + FRAME_SIZE_BYTES + length
            if not FRAME_LENGTH_MIN <= length <= dispatcher.request_bytes_max or end > buffer.filled:
                return
            key_and_version = <uint32_t> big_endian(head + FRAME_KEY_POSITION, 4)
            if responses.unanswered and not responses.may_begin(<int16_t> (key_and_version >> 16)):
                self.is_gated = True
                return
            if self._is_expired and key_and_version >> 16 != SASL_HANDSHAKE:
                self.owner.close_expired()
                return
            route = self._route
            if route is None or route.key_and_version != key_and_version:
                self._route = None  # making one may fail
                route = self._route = dispatcher.route(key_and_version)
            if route is not None:
                if self.exchange is not None and self._serve_exchange(route, head, end - buffer.start):
                    pass
                elif route.learn is None or not self._serve_remembered(route, head, end - buffer.start):
                    request, context = self._read(route, head, end - buffer.start)
                    self._handle(route, request, context, head, end - buffer.start)
            elif not self._refuse_route(key_and_version, head):
                return
            size_bytes = end - buffer.start
            buffer.start = end
            self.count += 1
            self.bytes_in += size_bytes
            # The end of the turn may serve other connections, and close this one.
            self.turn._count(size_bytes)
            if responses._ready_bytes > WRITE_AT_ONCE_BYTES:
                responses.write_ready()
            if responses.is_closing or self._must_hold():
                return

    cdef _after_serving(self):
        cdef ReceiveBuffer buffer = self.buffer
        cdef Py_ssize_t length
        if self.is_suspended:
            return
        if buffer.filled - buffer.start >= FRAME_SIZE_BYTES:
            length = buffer.frame_length(buffer.start)
            if not FRAME_LENGTH_MIN <= length <= self.dispatcher.request_bytes_max:
                self.owner.refuse_length(length)
                return
        if self.is_gated or self._must_hold():
            self._hold()

    cdef bint _refuse_route(self, uint32_t key_and_version, const uint8_t *head):
        """An API or version that is not served; False when that ends the connection."""
        cdef int correlation_id = <int32_t> big_endian(head + FRAME_CORRELATION_POSITION, 4)
        cdef int api_key = <int16_t> (key_and_version >> 16)
        if api_key == _API_VERSIONS:
            refusal = self.dispatcher.routes.refuse_version(correlation_id)
            self.responses.put([refusal], len(refusal))
            return True
        self.owner.close(f"API key {api_key} version {<int16_t> key_and_version} is not served")
        return False

    cdef tuple _read(self, Route route, const uint8_t *frame, Py_ssize_t size_bytes):
        """The decoded request and its context, with the principal and the refused resources."""
        cdef ReceiveBuffer buffer = self.buffer
        cdef Py_ssize_t body = FRAME_HEAD_BYTES + max(
            <int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2), 0
        )
        if body > size_bytes:
            raise _MalformedMessage("the client id is longer than the frame")
        client_id = self._read_client_id(frame)
        view = buffer.view[buffer.start : buffer.start + size_bytes]
        if route.has_tagged_header:
            if body < size_bytes and not frame[body]:
                body += 1
            else:
                body = _skip_tags(view, body)
        request, _ = route.decode(view[body:], 0)
        correlation_id = <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4)
        authorizer = self.dispatcher.authorizer
        refused = _NOTHING_REFUSED
        if route.names_resources:
            refused = authorizer.refused(self.owner, route.needs, request)
        return request, _RequestContext(
            route.api_key,
            route.api_version,
            correlation_id,
            client_id,
            self.owner,
            self.active_ms,
            refused,
            authorizer,
        )

    cdef _read_client_id(self, const uint8_t *frame):
        cdef int size_bytes = <int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2)
        if size_bytes <= 0:
            return None if size_bytes < 0 else ""
        raw = PyBytes_FromStringAndSize(<const char *> frame + FRAME_HEAD_BYTES, size_bytes)
        if raw != self._client_id_raw:
            self.client_id = raw.decode("utf-8", _AS_JAVA)
            self._client_id_raw = raw
        return self.client_id

    cdef _handle(self, Route route, request, context, const uint8_t *frame, Py_ssize_t size_bytes):
        cdef Responses responses = self.responses
        cdef Slot slot = None
        cdef Py_ssize_t response_bytes, body_bytes = 0
        if self.dispatcher.meters is not None:
            slot = _new_slot(route, context)
            slot.meters = self.charges.meters(frame)
            self.charges.settle()
            body_bytes = _body_bytes(route, frame, size_bytes)
        if context.refused:
            response = route.served.handle_refused(request, context)
        else:
            if self.dispatcher.produce_watch is not None and route.api_key == PRODUCE:
                self.dispatcher.produce_watch.saw_request(self.owner, request)
            response = route.handle(request, context)
        if slot is not None:
            slot.took_ns = self.charges.lap_ns()
            if route.charge == CHARGED_WHEN_HANDLED:
                slot.wait_ms = self.charges.charge_produce(body_bytes, slot.took_ns, request.acks != 0)
                slot.meters = None
        if response is None:
            responses.account(route, size_bytes, 0, self._began_ns)
        elif isinstance(response, _Waiting):
            if slot is None:
                slot = _new_slot(route, context)
            self._fill_slot(slot, route, size_bytes)
            slot.count = 1
            slot.waiting = response
            slot.size_bytes = size_bytes
            responses.wait(slot, response.holds_back)
            response.on_complete(slot.deliver)
        else:
            if slot is None:
                parts, response_bytes = route.encode_frame(response, context.correlation_id)
            else:
                parts, response_bytes = self.charges.encode_frame(slot, response)
            responses.account(route, size_bytes, response_bytes, self._began_ns)
            responses.put(parts, response_bytes)
        # A handler may take long, and may have changed the cluster.
        self._began_ns = _now_ns()
        if self._remembered is not None:
            self._forget_what_is_old()

    cdef _fill_slot(self, Slot slot, Route route, Py_ssize_t size_bytes):
        slot.line = self.responses
        slot.route = route
        slot.request_bytes = size_bytes
        slot.began_ns = self._began_ns

    # The fetches of a replica

    def begin_exchange(self, exchange):
        self.end_exchange()
        self.exchange = exchange

    cpdef end_exchange(self):
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.close()

    cdef bint _serve_exchange(self, Route route, const uint8_t *frame, Py_ssize_t size_bytes) except -1:
        """False, without any effect, if the handler has to answer."""
        cdef Responses responses = self.responses
        cdef Py_ssize_t start = self.buffer.start, response_bytes, body
        cdef Slot slot
        if route.api_key != FETCH or route.served is not route.own or self.dispatcher.meters is not None:
            return False
        body = FRAME_HEAD_BYTES + max(<int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2), 0)
        if body >= size_bytes or not route.tags_response or frame[body]:
            return False
        response = self.exchange.take(
            self.buffer.content,
            start + body + 1,
            start + size_bytes,
            route.api_version,
            <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4),
            self.active_ms,
        )
        if response is None:
            return False
        route.from_prefix += 1
        if response is not self.exchange:
            response_bytes = _size_of(response)
            responses.account(route, size_bytes, response_bytes, self._began_ns)
            responses.put(response, response_bytes)
            return True
        slot = Slot.__new__(Slot)
        self._fill_slot(slot, route, size_bytes)
        slot.correlation_id = <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4)
        slot.count = 1
        slot.waiting = response
        slot.size_bytes = size_bytes
        responses.wait(slot, False)
        response.wait(slot)
        return True

    # What is remembered

    cdef _forget_what_is_old(self):
        if self._generation != self.dispatcher.generation():
            self._remembered = self._newest = None

    cdef bint _serve_remembered(self, Route route, const uint8_t *frame, Py_ssize_t size_bytes) except -1:
        """False, without any effect, if the handler has to answer."""
        cdef Remembered remembered = self._newest
        cdef Py_ssize_t rest
        cdef bytes key
        if remembered is not None and remembered.route is route:
            # The same bytes end at the same place.
            rest = FRAME_CLIENT_ID_POSITION + remembered.repeated_bytes
            if (
                rest == size_bytes if route.rest == REST_NOTHING else rest < size_bytes
            ) and remembered.is_of(route, frame, rest):
                return self._serve_by(remembered, frame, rest, size_bytes)
        rest = FRAME_HEAD_BYTES + max(<int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2), 0)
        if rest > size_bytes:
            return False
        if route.rest == REST_NOTHING:
            rest = size_bytes
        else:
            rest = skip_prefix(frame, rest, size_bytes, route.steps_start, route.steps_size)
        if rest < 0 or rest > PREFIX_BYTES_MAX:
            return False
        key = _prefix_key(frame, rest)
        if self._remembered is not None:
            remembered = self._remembered.get(key)
            if remembered is not None:
                self._newest = remembered
                return self._serve_by(remembered, frame, rest, size_bytes)
        if self._take_shared(key):
            self._read_client_id(frame)
            return self._serve_by(self._newest, frame, rest, size_bytes)
        request, context = self._read(route, frame, size_bytes)
        learnt = None if context.refused else route.learn(request, context)
        if learnt is not None:
            remembered = Remembered(route, key, learnt, _resources(route.needs, request))
            self._remember(remembered)
            if not route.is_of_connection:
                self.dispatcher.share(remembered)
            if self._serve_by(self._newest, frame, rest, size_bytes):
                return True
        self._handle(route, request, context, frame, size_bytes)
        return True

    cdef bint _take_shared(self, bytes key) except -1:
        """Whether another connection has learnt the meaning of these bytes, and this one may use it, too."""
        cdef Dispatcher dispatcher = self.dispatcher
        cdef Remembered remembered
        dispatcher.generation()  # without it the prefixes of an older view would still be there
        remembered = dispatcher.shared.get(key)
        if remembered is None or dispatcher.authorizer.hidden(self.owner, remembered.resources):
            return False
        self._remember(remembered)
        return True

    cdef _remember(self, Remembered remembered):
        cdef Dispatcher dispatcher = self.dispatcher
        if dispatcher.remembered >= dispatcher.remembered_max:
            dispatcher.forget_prefixes()
        if self._remembered is None or self._generation != dispatcher.generation():
            self._remembered = {}
            self._generation = dispatcher.generation()
        elif len(self._remembered) >= dispatcher.remembered_of_connection_max:
            self.forget_prefixes()
            self._remembered = {}
        self._remembered[remembered.key] = remembered
        self._newest = remembered
        dispatcher.remembered += 1

    def remembered_partitions(self):
        cdef Remembered remembered
        found = []
        if self._remembered is not None and self._generation == self.dispatcher._generation:
            for remembered in self._remembered.values():
                if remembered.kind == APPEND:
                    found.append(remembered.partition)
        return found

    def forget_prefixes(self):
        if self._remembered is not None and self._generation == self.dispatcher._generation:
            self.dispatcher.remembered -= len(self._remembered)
        self._remembered = self._newest = None

    cdef bint _serve_by(
        self, Remembered remembered, const uint8_t *frame, Py_ssize_t rest, Py_ssize_t size_bytes
    ) except -1:
        if remembered.kind == APPEND:
            return self._append(remembered, frame, rest, size_bytes)
        if remembered.kind == ASK:
            return self._ask(remembered, frame, size_bytes)
        return self._submit(remembered, frame, rest, size_bytes)

    cdef bint _ask(self, Remembered remembered, const uint8_t *frame, Py_ssize_t size_bytes) except -1:
        cdef int correlation_id = <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4)
        cdef Route route = remembered.route
        cdef bytes response
        cdef int wait_ms
        try:
            found = remembered.ask()
        except _KafkaError:
            return False
        if found is None:
            return False
        if type(found) is bytes:
            response = _with_correlation_id(<bytes> found, correlation_id)
        else:
            response = _with_correlation_id(remembered.frame, correlation_id)
            _fill_numbers(<uint8_t *> PyBytes_AsString(response) + remembered.position, found)
        route.from_prefix += 1
        if self.dispatcher.meters is not None:
            self.charges.meters(frame)
            wait_ms = self.charges.charge_request(self.charges.lap_ns(), 0)
            if wait_ms:
                route.put_throttle_time(response, wait_ms)
        self.responses.account(route, size_bytes, len(response), self._began_ns)
        self.responses.put([response], len(response))
        return True

    cdef bint _append(
        self, Remembered remembered, const uint8_t *frame, Py_ssize_t rest, Py_ssize_t size_bytes
    ) except -1:
        cdef Responses responses = self.responses
        cdef Route route = remembered.route
        cdef Burst burst = None
        cdef int wait_ms = 0
        cdef int64_t batch_bytes = _read_size(route, frame, &rest, size_bytes)
        if batch_bytes <= HEADER_SIZE_BYTES or not _is_end(route, frame, rest + batch_bytes, size_bytes):
            return False
        # The flag is in the lower of the two bytes.
        if frame[rest + ATTRIBUTES_POSITION + 1] & TRANSACTIONAL and not remembered.is_transactional:
            return False
        if len(remembered.closed) and remembered.partition in remembered.closed:
            return False
        rest += self.buffer.start
        appended = remembered.append(self.buffer.view, rest, rest + batch_bytes, self.active_ms)
        if appended is None:
            return False
        if self.dispatcher.produce_watch is not None:
            self.dispatcher.produce_watch.saw_batch(self.owner, remembered.partition, batch_bytes)
        if type(responses._newest) is Burst:
            burst = <Burst> responses._newest
        if burst is None or burst.turn_number != self.turn.number or burst.count == BURST_MAX:
            burst = Burst.__new__(Burst)
            self._fill_slot(burst, route, 0)
            burst.batch_parts = []
            burst.appended = []
            burst.turn_number = self.turn.number
            responses.wait(burst, False)
        responses.waiting_responses += 1
        route.from_prefix += 1
        burst.request_bytes += size_bytes
        burst.sizes[burst.count] = size_bytes
        if self.dispatcher.meters is not None:
            self.charges.meters(frame)
            wait_ms = self.charges.charge_produce(
                _body_bytes(route, frame, size_bytes), self.charges.lap_ns(), True
            )
        burst.add(
            self.turn,
            remembered,
            appended,
            <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4),
            wait_ms,
        )
        return True

    cdef bint _submit(
        self, Remembered remembered, const uint8_t *frame, Py_ssize_t rest, Py_ssize_t size_bytes
    ) except -1:
        cdef Route route = remembered.route
        cdef Submission slot
        cdef list items = _read_items(remembered, frame, rest, size_bytes)
        if items is None:
            return False
        slot = Submission.__new__(Submission)
        self._fill_slot(slot, route, size_bytes)
        slot.remembered = remembered
        slot.items = items
        slot.correlation_id = <int32_t> big_endian(frame + FRAME_CORRELATION_POSITION, 4)
        slot.count = 1
        if self.dispatcher.meters is not None:
            slot.meters = self.charges.meters(frame)
        if not remembered.submit(items, slot):
            return False
        route.from_prefix += 1
        if slot.parts is not None:
            self.responses.account(route, size_bytes, slot.size_bytes, self._began_ns)
            self.responses.put(slot.parts, slot.size_bytes)
        else:
            slot.is_in_line = True
            if slot.meters is not None:
                slot.took_ns = self.charges.lap_ns()
            self.responses.wait(slot, False)
        return True


cdef inline Py_ssize_t _body_bytes(Route route, const uint8_t *frame, Py_ssize_t size_bytes):
    """Size of a request without its header, which has no tagged fields."""
    cdef int client_id_bytes = <int16_t> big_endian(frame + FRAME_CLIENT_ID_POSITION, 2)
    return size_bytes - FRAME_HEAD_BYTES - max(client_id_bytes, 0) - route.has_tagged_header


cdef Slot _new_slot(Route route, context):
    cdef Slot slot = Slot.__new__(Slot)
    slot.route = route
    slot.correlation_id = context.correlation_id
    return slot


cdef bytes _prefix_key(const uint8_t *frame, Py_ssize_t end):
    """API, version, client id and all that is repeated: the frame up to `end` without size and correlation
    id."""
    cdef Py_ssize_t repeated = end - FRAME_CLIENT_ID_POSITION
    cdef bytes key = PyBytes_FromStringAndSize(NULL, KEY_HEAD_BYTES + repeated)
    cdef char *target = PyBytes_AsString(key)
    memcpy(target, frame + FRAME_KEY_POSITION, KEY_HEAD_BYTES)
    memcpy(target + KEY_HEAD_BYTES, frame + FRAME_CLIENT_ID_POSITION, repeated)
    return key


cdef inline int64_t _read_size(Route route, const uint8_t *frame, Py_ssize_t *at, Py_ssize_t end) noexcept:
    """A length in bytes or items; -1 or less for null, or for none."""
    return read_varint(frame, at, end) - 1 if route.is_compact else read_number(frame, at, end, 4)


cdef inline bint _is_end(Route route, const uint8_t *frame, int64_t at, Py_ssize_t end) noexcept:
    """Whether nothing follows but the ends of structs without tagged fields."""
    cdef Py_ssize_t i
    if at + route.tags_after != end:
        return False
    for i in range(at, end):
        if frame[i]:
            return False
    return True


cdef list _read_items(Remembered remembered, const uint8_t *frame, Py_ssize_t at, Py_ssize_t end):
    """The items of a request; None if they do not fill the rest of its frame."""
    cdef Route route = remembered.route
    cdef const uint8_t *steps = <const uint8_t *> PyBytes_AsString(route.item_steps)
    cdef const uint8_t *places = <const uint8_t *> PyBytes_AsString(remembered.places)
    cdef Py_ssize_t step, place, steps_size = len(route.item_steps)
    cdef int64_t count = _read_size(route, frame, &at, end), size
    cdef list items = [], values
    if not 0 < count <= ITEMS_MAX:
        return None
    for _ in range(count):
        values = list(remembered.sample)
        place = 0
        for step in range(0, steps_size, 2):
            if steps[step] == NUMBER_32:
                if end - at < 4:
                    return None
                value = <int32_t> big_endian(frame + at, 4)
                at += 4
            elif steps[step] == NUMBER_64:
                if end - at < 8:
                    return None
                value = <int64_t> big_endian(frame + at, 8)
                at += 8
            elif steps[step] == NO_TAGS:
                if at >= end or frame[at]:
                    return None
                at += 1
                continue
            else:
                size = read_text_size(frame, &at, end, steps[step])
                if size == -2:
                    return None
                value = ""
                if size > 0:
                    value = PyBytes_FromStringAndSize(<const char *> frame + at, size).decode("utf-8", _AS_JAVA)
                    at += size
            values[<Py_ssize_t> places[place]] = value
            place += 1
        items.append(_new_tuple(remembered.item_class, values))
    return items if _is_end(route, frame, at, end) else None


cdef _fill_numbers(uint8_t *target, tuple numbers):
    cdef int64_t timestamp = numbers[0], offset = numbers[1], leader_epoch = numbers[2]
    put_big_endian(target, <uint64_t> timestamp, 8)
    put_big_endian(target + 8, <uint64_t> offset, 8)
    put_big_endian(target + 16, <uint64_t> leader_epoch, 4)
