# The bytes that a connection has received, and the room for the next ones.

cdef enum:
    BUFFER_SIZE = 4096
    BUFFER_GROWTH = 4
    # A larger receive buffer is given back as soon as its frame is served.
    BUFFER_KEPT_MAX = 2097152

BUFFER_BYTES = BUFFER_SIZE


cdef class ReceiveBuffer:
    cdef Turn turn
    cdef object content
    cdef object view
    cdef Py_ssize_t start  # position of the first unserved byte
    cdef Py_ssize_t filled  # the end of the received bytes
    cdef int64_t pinned_turn  # the turn in which bytes of it were staged
    cdef object spare  # the large buffer before this one; pinned in its own turn
    cdef int64_t spare_turn

    def __init__(self, Turn turn):
        self.turn = turn
        self.content = bytearray(BUFFER_SIZE)
        self.view = memoryview(self.content)
        self.start = self.filled = 0
        self.pinned_turn = self.spare_turn = -1
        self.spare = None

    @property
    def capacity(self):
        return len(self.content)

    @property
    def unserved_bytes(self):
        return self.filled - self.start

    cdef object room(self):
        if self.start == self.filled and self.pinned_turn != self.turn.number:
            if len(self.content) > BUFFER_KEPT_MAX:
                self._replace(BUFFER_SIZE)
            self.start = self.filled = 0
            return self.view
        return self._make_room()

    cdef object _make_room(self):
        """Room for the rest of the first frame, or for a few bytes; never over pinned bytes."""
        cdef Py_ssize_t start = self.start, filled = self.filled, capacity = len(self.content)
        cdef Py_ssize_t unserved = filled - start, wanted = BUFFER_SIZE, arrived
        if unserved >= FRAME_SIZE_BYTES:
            wanted = FRAME_SIZE_BYTES + self.frame_length(start)
        if filled < capacity and (not start or start + wanted <= capacity):
            return self.view[filled:]
        if wanted <= capacity and unserved < capacity:
            if self.pinned_turn != self.turn.number:
                self.content[:unserved] = self.content[start:filled]
            else:
                self._replace(capacity if capacity <= BUFFER_KEPT_MAX else wanted)
        else:
            # Growing by a factor costs one more copy of the frame in all; trusting its length would let
            # four bytes ask for 100 MB.
            arrived = max(unserved * BUFFER_GROWTH, BUFFER_SIZE)
            self._replace(max(min(wanted + BUFFER_SIZE, arrived), unserved + BUFFER_SIZE // 2))
        self.start = 0
        self.filled = unserved
        return self.view[unserved:]

    cdef _replace(self, Py_ssize_t capacity):
        """Continues in another buffer, which begins with the unserved bytes."""
        unserved = self.view[self.start : self.filled]
        spare, spare_turn = self.spare, self.spare_turn
        self.spare = None
        if BUFFER_SIZE < capacity <= len(self.content) <= BUFFER_KEPT_MAX:
            self.spare, self.spare_turn = self.content, self.pinned_turn
        if spare is None or len(spare) < capacity or spare_turn == self.turn.number:
            spare = bytearray(capacity)
        self.content = spare
        self.content[: len(unserved)] = unserved
        self.view = memoryview(spare)
        self.pinned_turn = -1

    cdef int32_t frame_length(self, Py_ssize_t position):
        return <int32_t> big_endian(<const uint8_t *> PyByteArray_AsString(self.content) + position, 4)

    def take_in(self, Py_ssize_t nbytes):
        self.filled += nbytes

    def take_frame(self, Py_ssize_t length_max):
        """The content of the first whole frame, as bytes, which is served then; None without one.

        For frames that are no requests. Raises MalformedMessage for a length that no frame may have.
        """
        cdef Py_ssize_t start = self.start, length
        if self.filled - start < FRAME_SIZE_BYTES:
            return None
        length = self.frame_length(start)
        if not 0 <= length <= length_max:
            raise _MalformedMessage(f"a frame of {length} bytes")
        start += FRAME_SIZE_BYTES
        if self.filled - start < length:
            return None
        self.start = start + length
        return bytes(self.view[start : start + length])

    def unserved_start(self, Py_ssize_t count):
        return bytes(self.view[self.start : min(self.start + count, self.filled)])

    def shrink(self):
        self.spare = None
        if (
            len(self.content) > BUFFER_SIZE
            and self.start == self.filled
            and self.pinned_turn != self.turn.number
        ):
            self._replace(BUFFER_SIZE)
            self.start = self.filled = 0
            self.spare = None

    def discard(self):
        """The connection has ended: nothing is read or served any more, also of an incomplete frame. Who still
        holds staged bytes keeps their buffer."""
        self.content = bytearray(0)
        self.view = memoryview(self.content)
        self.start = self.filled = 0
        self.spare = None
