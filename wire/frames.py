"""A frame: int32 size, header, message. The version of the header follows from API and version.

Requests have header 1 (with the client id as a plain nullable string), flexible ones header 2, which adds
tagged fields at the end; responses have header 0 (the correlation id alone), flexible ones header 1. Only
ApiVersions responses always have header 0, so that a client can read the response to a version that the
broker does not support.
"""

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from odradek.wire._decoding import TAGS_MAX
from odradek.wire._source import read_uvarint
from odradek.wire.codec import decoder, encoder
from odradek.wire.errors import MalformedMessage
from odradek.wire.java_text import AS_JAVA
from odradek.wire.messages import find, flexible_since
from odradek.wire.schema import Buffer, Message

API_VERSIONS = 18

_HEADER = struct.Struct(">hhih")
_SIZE_AND_HEADER = struct.Struct(">ihhih")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
_CORRELATION_ID = struct.Struct(">i")

M = TypeVar("M", bound=Message)


@dataclass(slots=True, eq=False)
class RequestHeader:
    """The header of a request; a null client id is read as an empty one, as in Kafka."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str


def read_request_header(buffer: Buffer, position: int) -> tuple[RequestHeader, int]:
    """The header at `position`, after the size prefix, and the position of the request after it."""
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(buffer, position)
        position += 10
        client_id = ""
        if length > 0:
            end = position + length
            if end > len(buffer):
                raise MalformedMessage("the client id ends after the frame")
            client_id = str(buffer[position:end], "utf-8", AS_JAVA)
            position = end
        first_flexible = flexible_since(api_key)
        if first_flexible is not None and api_version >= first_flexible:
            position = skip_tags(buffer, position)
    except struct.error as error:
        raise MalformedMessage(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request with its size prefix, as a client sends it."""
    name = client_id.encode() if client_id is not None else b""
    length = len(name) if client_id is not None else -1
    parts: list[Any] = [name + b"\0" if message.is_flexible(version) else name]
    encoder(type(message), version)(message, parts)
    size = 10 + sum(map(len, parts))
    head = _SIZE_AND_HEADER.pack(size, message.api_key, version, correlation_id, length)
    return b"".join([head, *parts])


def response_parts(message: Message, version: int, correlation_id: int) -> list[Any]:
    """A whole response, as buffers in the order of sending.

    The first part has size prefix and header. A part that is no buffer is a record source with `len()` from
    the message; the size prefix includes it.
    """
    parts: list[Any] = []
    encoder(type(message), version)(message, parts)
    if len(parts) > 1 and not len(parts[-1]):
        parts.pop()
    tags = b"\0" if _has_flexible_header(message, version) else b""
    size = 4 + len(tags) + sum(map(len, parts))
    parts[0] = _SIZE_AND_CORRELATION_ID.pack(size, correlation_id) + tags + parts[0]
    return parts


PLACEHOLDERS = 0x0102030405060708, 0x1112131415161718, 0x2122232425262728
"""A placeholder for int64 fields of a template, to be filled in."""
PLACEHOLDER_32 = 0x31323334
"""A placeholder for one int32 field."""


class Template(NamedTuple):
    """A response frame with a correlation id of 0, and the position of the first placeholder. The others
    follow it directly."""

    frame: bytes
    position: int


def response_template(message: Message, version: int, placeholders: tuple[int, ...]) -> Template:
    """The template of a response that has `placeholders` in consecutive fields."""
    frame = b"".join(response_parts(message, version, 0))
    placed = b"".join(value.to_bytes(4 if value == PLACEHOLDER_32 else 8, "big") for value in placeholders)
    assert frame.count(placed) == 1
    return Template(frame, frame.index(placed))


def read_response(frame: Buffer, request_class: type[Message], version: int) -> tuple[int, Any]:
    """Correlation id and message of a response frame without its size prefix, for a request of that class."""
    response_class = find(request_class.api_key)[1]
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, 0)
        position = 4
        if _has_flexible_header(response_class, version):
            position = skip_tags(frame, position)
    except struct.error as error:
        raise MalformedMessage(f"response header: {error}") from error
    message, end = decoder(response_class, version)(frame, position)
    if end != len(frame):
        raise MalformedMessage(f"{len(frame) - end} bytes follow {response_class.__name__} version {version}")
    return correlation_id, message


def _has_flexible_header(response: Message | type[Message], version: int) -> bool:
    return response.api_key != API_VERSIONS and response.is_flexible(version)


def skip_tags(buffer: Buffer, position: int) -> int:
    """The end position of a header's tagged fields from `position` on; all are skipped."""
    try:
        # Each field takes at least two bytes, so a wrong count ends at the end of the frame.
        count, position = read_uvarint(buffer, position)
        if count > TAGS_MAX:
            raise MalformedMessage(f"there are {count}, and {TAGS_MAX} is the limit")
        for _ in range(count):
            _, position = read_uvarint(buffer, position)
            size, position = read_uvarint(buffer, position)
            position += size
            if position > len(buffer):
                raise IndexError("one is longer than the frame")
    except (IndexError, MalformedMessage) as error:
        raise MalformedMessage(f"the header's tagged fields: {error}") from None
    return position
