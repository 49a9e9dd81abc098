"""Requests and responses of Kafka 0.7.

A request has a type and then its fields; there is no version, no correlation id and no client id. Bytes
behind the fields are ignored, as 0.7 does. PRODUCE and MULTIPRODUCE have no response. A response has an error
code before its content.

| type | request | fields | content of the response |
|---|---|---|---|
| 0 | PRODUCE | topic, partition, message set | none |
| 1 | FETCH | topic, partition, position, size | bytes of the log |
| 2 | MULTIFETCH | int16 count, the fields of each FETCH | for each a whole response of FETCH, with its size |
| 3 | MULTIPRODUCE | int16 count, the fields of each PRODUCE | none |
| 4 | OFFSETS | topic, partition, time, most offsets | int32 count, int64 each |

Source: kafka.api, Utils.readShortString, MessageSetSend, MultiMessageSetSend and OffsetArraySend of 0.7.2.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from struct import Struct, pack
from struct import error as struct_error
from typing import NamedTuple

from odradek.wire.kafka07 import Unreadable

LATEST = -1
EARLIEST = -2
RANDOM_PARTITION = -1
"""The partition of a PRODUCE for which the broker chooses."""

_PARTITION_SIZE = Struct(">ii")
_PARTITION_OFFSET_SIZE = Struct(">iqi")
_HEAD = Struct(">ih")


class RequestType(IntEnum):
    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


class Error(IntEnum):
    """The error codes of 0.7. Its broker sends only the first four of them in a response: a client makes
    INVALID_MESSAGE and INVALID_FETCH_SIZE itself."""

    NONE = 0
    UNKNOWN = -1
    OFFSET_OUT_OF_RANGE = 1
    WRONG_PARTITION = 3
    INVALID_MESSAGE = 2
    INVALID_FETCH_SIZE = 4


class Produce(NamedTuple):
    topic: str | None
    partition: int
    messages: memoryview | bytes


class Fetch(NamedTuple):
    topic: str | None
    partition: int
    position: int
    """In bytes, since the beginning of the log."""
    size: int
    """At most so many bytes."""


class MultiFetch(NamedTuple):
    fetches: Sequence[Fetch]


class MultiProduce(NamedTuple):
    produces: Sequence[Produce]


class Offsets(NamedTuple):
    topic: str | None
    partition: int
    time: int
    """In milliseconds since 1970; or LATEST, or EARLIEST."""
    count_max: int


Request = Produce | Fetch | MultiFetch | MultiProduce | Offsets


def read_request(frame: bytes) -> Request:
    """The request in a frame, without the size before it. Its message sets are views of the frame. Raises
    `Unreadable` where the broker of 0.7 closes the connection."""
    reader = _Reader(frame)
    request_type = reader.int16()
    read = _READERS.get(request_type)
    if read is None:
        raise Unreadable(f"there is no request of type {request_type} in Kafka 0.7")
    return read(reader)


def encode_request(request: Request) -> bytes:
    """The frame of a request, with the size before it, as a client sends it."""
    if isinstance(request, MultiFetch):
        items: Sequence[Produce | Fetch | Offsets] = request.fetches
        request_type = RequestType.MULTIFETCH
    elif isinstance(request, MultiProduce):
        items, request_type = request.produces, RequestType.MULTIPRODUCE
    else:
        content = pack(">h", _TYPES[type(request)]) + _encoded(request)
        return pack(">i", len(content)) + content
    content = pack(">hh", request_type, len(items)) + b"".join(map(_encoded, items))
    return pack(">i", len(content)) + content


def response_head(content_bytes: int, error: Error = Error.NONE) -> bytes:
    """The beginning of a response, before so many bytes of content."""
    return _HEAD.pack(_HEAD.size - 4 + content_bytes, error)


def response_of_offsets(offsets: Sequence[int]) -> bytes:
    """The whole response to OFFSETS."""
    return response_head(4 + 8 * len(offsets)) + pack(f">i{len(offsets)}q", len(offsets), *offsets)


class _Reader:
    def __init__(self, frame: bytes) -> None:
        self._view = memoryview(frame)
        self._position = 0

    def int16(self) -> int:
        value: int = self.fields(_INT16)[0]
        return value

    def fields(self, layout: Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self._view, self._position)
        except struct_error:
            raise Unreadable("the request ends within a field") from None
        self._position += layout.size
        return values

    def content(self, size_bytes: int) -> memoryview:
        if not 0 <= size_bytes <= len(self._view) - self._position:
            left = len(self._view) - self._position
            raise Unreadable(f"a field of {size_bytes} bytes where the request has {left}")
        start, self._position = self._position, self._position + size_bytes
        return self._view[start : self._position]

    def topic(self) -> str | None:
        """None for a negative length. What is no UTF-8 is replaced, as in Java."""
        size_bytes = self.int16()
        return None if size_bytes < 0 else bytes(self.content(size_bytes)).decode("utf-8", "replace")

    def count(self) -> int:
        count = self.int16()
        if count < 0:
            raise Unreadable(f"{count} requests in one")
        return count


_INT16 = Struct(">h")


def _read_produce(reader: _Reader) -> Produce:
    topic = reader.topic()
    partition, size_bytes = reader.fields(_PARTITION_SIZE)
    return Produce(topic, partition, reader.content(size_bytes))


def _read_fetch(reader: _Reader) -> Fetch:
    return Fetch(reader.topic(), *reader.fields(_PARTITION_OFFSET_SIZE))


def _read_multi_fetch(reader: _Reader) -> MultiFetch:
    return MultiFetch([_read_fetch(reader) for _ in range(reader.count())])


def _read_multi_produce(reader: _Reader) -> MultiProduce:
    return MultiProduce([_read_produce(reader) for _ in range(reader.count())])


def _read_offsets(reader: _Reader) -> Offsets:
    return Offsets(reader.topic(), *reader.fields(_PARTITION_OFFSET_SIZE))


_READERS: dict[int, Callable[[_Reader], Request]] = {
    RequestType.PRODUCE: _read_produce,
    RequestType.FETCH: _read_fetch,
    RequestType.MULTIFETCH: _read_multi_fetch,
    RequestType.MULTIPRODUCE: _read_multi_produce,
    RequestType.OFFSETS: _read_offsets,
}
_TYPES = {Produce: RequestType.PRODUCE, Fetch: RequestType.FETCH, Offsets: RequestType.OFFSETS}


def _encoded(request: Produce | Fetch | Offsets) -> bytes:
    parts: Iterable[bytes]
    if isinstance(request, Produce):
        parts = (_PARTITION_SIZE.pack(request.partition, len(request.messages)), bytes(request.messages))
    else:
        parts = (_PARTITION_OFFSET_SIZE.pack(*request[1:]),)
    name = None if request.topic is None else request.topic.encode()
    head = pack(">h", -1) if name is None else pack(">h", len(name)) + name
    return head + b"".join(parts)
