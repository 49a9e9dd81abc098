# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The path of every request: bytes arrive, a frame gets its route, a remembered prefix or the handler answers it,
staged records are committed at the end of the turn, and the response is sent.

- `turn.pxi`: `Turn` gathers the staged partitions of one round of the event loop.
- `routes.pxi`: `Dispatcher` is the shared state of all connections of a broker: routes, clock, authorizer,
  meters, counters.
- `receive_buffer.pxi`, `requests.pxi`, `responses.pxi`: the parts of a `server.network.connection.Connection`.
- `charges.pxi`: what requests come to in quotas.

These files are included here and make one module, since the classes hold each other: a call from one file to
another is a call in C.

Each of these has one place: principal and authorization (`Requests._read`), counters (`Route.count`), the
pause of a connection (`Requests.hold_back`), requests that may begin before an earlier response
(`Requests._serve_frames`). Quotas are charged (`Charges`) where a request has been handled
(`Requests._handle`), where a late response comes (`Responses.settle`), and for the three kinds of remembered
requests.
`_pipeline.pyi` has the types; `connection.py` has the promises.
"""

import logging
from collections import deque as _deque

from cpython.bytearray cimport PyByteArray_AsString
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from odradek.apis.access import (
    ALLOW_ALL as _ALLOW_ALL,
    NOTHING_REFUSED as _NOTHING_REFUSED,
    resources as _resources,
)
from odradek.apis.api import RequestContext as _RequestContext, Waiting as _Waiting
from odradek.apis.prefixes import AppendBatch as _AppendBatch, Ask as _Ask
from odradek.apis.turn import COMMITTED as _COMMITTED
from odradek.server.network.group_flush import Flushes as _Flushes
from odradek.wire.codec import decoder as _decoder, encoder as _encoder
from odradek.wire.errors import (
    ErrorCode as _ErrorCode,
    KafkaError as _KafkaError,
    MalformedMessage as _MalformedMessage,
)
from odradek.wire.frames import API_VERSIONS as _API_VERSIONS, skip_tags as _skip_tags
from odradek.wire.java_text import AS_JAVA as _AS_JAVA
from odradek.wire.prefixes import prefix_layout as _prefix_layout
from odradek.wire.response_errors import errors_of as _errors_of
from odradek.wire.throttle import (
    has_throttle_time as _has_throttle_time,
    throttle_position as _throttle_position,
)

include "wire/layout.pxi"

cdef extern from "prefix.h":
    enum:
        NUMBER_32
        NUMBER_64
        NO_TAGS
    int64_t read_varint(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end) nogil
    int64_t read_number(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end, int size) nogil
    int64_t read_text_size(const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end, int step) nogil
    Py_ssize_t skip_prefix(
        const uint8_t *bytes, Py_ssize_t at, Py_ssize_t end, const uint8_t *steps, Py_ssize_t steps_size
    ) nogil

cdef extern from "frame_layout.h":
    enum:
        FRAME_SIZE_BYTES
        FRAME_KEY_POSITION
        FRAME_CORRELATION_POSITION
        FRAME_CLIENT_ID_POSITION
        FRAME_HEAD_BYTES
        FRAME_LENGTH_MIN
        RESPONSE_CORRELATION_POSITION
        RESPONSE_HEAD_BYTES

cdef enum:
    NS_PER_MS = 1000000

_logger = logging.getLogger("odradek.connection")
_turn_logger = logging.getLogger("odradek.turn")


cdef inline int64_t _now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


def monotonic_ms():
    return _now_ns() // NS_PER_MS


include "turn.pxi"
include "routes.pxi"
include "receive_buffer.pxi"
include "responses.pxi"
include "charges.pxi"
include "requests.pxi"
