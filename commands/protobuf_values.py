"""Protobuf messages as values of JSON: by a schema, or by the numbers of their fields.

    read_message(types.message("Order"), b"\\x08\\x01") == {"id": 1}
    read_fields(b"\\x08\\x01\\x12\\x02ab") == {"1": 1, "2": "ab"}

Fields have the names of the schema; what is not written is left out, and a field that the schema does not
have stands under its number. Bytes are {"base64": ...}. Timestamps and durations are texts; wrappers, and
`Struct` with its parts, are the values that they stand for. Source: the encoding, protobuf.dev.

Without a schema nothing tells what a field is: bytes are text if they are printable, a message if they read
as one, else base64; eight and four bytes are a floating-point number if that is one of a usual size.
"""

import base64
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from odradek.commands.protobuf_schema import Field, MessageType
from odradek.commands.values import TooMuch, finite

DEPTH_MAX = 64
FIELDS_MAX = 50_000
"""Most fields and elements of one content."""
GUESSED_NUMBER_MAX = 5_000
"""Greatest number of a field without a schema: bytes that are no message have larger ones."""
_VARINT, _FIXED64, _BYTES, _GROUP, _END, _FIXED32 = range(6)
_NUMBER_MAX = 2**29 - 1
_PACKED = {
    "fixed32": "<I",
    "sfixed32": "<i",
    "float": "<f",
    "fixed64": "<Q",
    "sfixed64": "<q",
    "double": "<d",
}
_TYPES = {
    **dict.fromkeys(("string", "bytes", "message", "map"), _BYTES),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), _FIXED32),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), _FIXED64),
    "group": _GROUP,
}
"""Wire type by kind of field; all others are varints."""


class NotProtobuf(Exception):
    """The content is no such message; says why."""


def read_message(kind: MessageType, content: bytes) -> Any:
    """The message; NotProtobuf."""
    try:
        return _Reader(content).message(kind, 0, len(content), 0)
    except TooMuch as error:
        raise NotProtobuf(str(error)) from None


def read_fields(content: bytes) -> dict[str, Any]:
    """The fields by their numbers, as far as that can be told; NotProtobuf, also if it is empty."""
    if not content:
        raise NotProtobuf("it is empty")
    try:
        return _Reader(content).guessed(0, len(content), 0)
    except TooMuch as error:
        raise NotProtobuf(str(error)) from None


def read_index(content: bytes, position: int) -> tuple[list[int], int]:
    """The numbers that lead to the message in its file, behind the id of Confluent's header, and the position
    after them; NotProtobuf. Source: the wire format in the documentation of Confluent's serializers."""
    reader = _Reader(content)
    count, position = reader.varint(position)
    count = _zigzag(count)
    if not 0 <= count <= DEPTH_MAX:
        raise NotProtobuf("the header names no message")
    path = []
    for _ in range(count):
        number, position = reader.varint(position)
        path.append(_zigzag(number))
    return path or [0], position


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


class _Reader:
    """Reads ranges of the content; positions are arguments."""

    def __init__(self, content: bytes) -> None:
        self._content, self._left = content, FIELDS_MAX

    def varint(self, position: int) -> tuple[int, int]:
        """A number of 64 bits without a sign, and the position after it."""
        number, shift = 0, 0
        while True:
            if position >= len(self._content):
                raise NotProtobuf("it ends too early")
            byte = self._content[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFFFFFFFFFFFFFF, position
            shift += 7
            if shift > 63:
                raise NotProtobuf("a number has more than 64 bits")

    def _count(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooMuch(f"it has more than {FIELDS_MAX:,} fields")
        if depth > DEPTH_MAX:
            raise TooMuch(f"it has more than {DEPTH_MAX} levels")

    def _tag(self, position: int, end: int, depth: int) -> tuple[int, int, int]:
        """Number and wire type of a field, and the position after them."""
        self._count(depth)
        tag, position = self.varint(position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= _NUMBER_MAX or wire > _FIXED32:
            raise NotProtobuf("it has a field that cannot be")
        return number, wire, position

    def _span(self, wire: int, number: int, position: int, end: int, depth: int) -> tuple[int, int, int]:
        """Where the value begins and ends, and the position after it; a group has its end behind it."""
        if wire == _VARINT:
            after = self.varint(position)[1]
            start, stop = position, after
        elif wire == _BYTES:
            size, start = self.varint(position)
            stop = after = start + size
        elif wire == _GROUP:
            start, (stop, after) = position, self._group_end(number, position, end, depth)
        elif wire in (_FIXED64, _FIXED32):
            start, stop = position, position + (8 if wire == _FIXED64 else 4)
            after = stop
        else:
            raise NotProtobuf("a group ends that has not begun")
        if after > end:
            raise NotProtobuf("it ends too early")
        return start, stop, after

    def _group_end(self, number: int, position: int, end: int, depth: int) -> tuple[int, int]:
        while position < end:
            inner, wire, after = self._tag(position, end, depth + 1)
            if wire == _END:
                if inner != number:
                    raise NotProtobuf("a group ends that has not begun")
                return position, after
            position = self._span(wire, inner, after, end, depth + 1)[2]
        raise NotProtobuf("a group has no end")

    # With a schema

    def message(self, kind: MessageType, position: int, end: int, depth: int) -> Any:
        """The message in a range."""
        found: dict[str, Any] = {}
        while position < end:
            number, wire, position = self._tag(position, end, depth)
            start, stop, position = self._span(wire, number, position, end, depth)
            field = kind.fields.get(number)
            if field is None:
                _add(found, str(number), self._guess(wire, start, stop, depth))
            elif field.kind == "map":
                self._entry(found.setdefault(field.name, {}), field, wire, start, stop, depth)
            elif wire == _TYPES.get(field.kind, _VARINT):
                value = self._value(field, start, stop, depth)
                if field.is_repeated:
                    found.setdefault(field.name, []).append(value)
                else:
                    found[field.name] = value
            elif wire == _BYTES and field.is_repeated and field.kind not in ("string", "bytes", "message"):
                found.setdefault(field.name, []).extend(self._packed(field, start, stop, depth))
            else:
                raise NotProtobuf(f"the field {field.name} has another type")
        convert = _WELL_KNOWN.get(kind.name)
        return found if convert is None else convert(found)

    def _value(self, field: Field, start: int, stop: int, depth: int) -> Any:
        kind = field.kind
        if kind in ("message", "group"):
            assert field.message is not None
            return self.message(field.message, start, stop, depth + 1)
        content = self._content
        if kind in _PACKED:
            return finite(struct.unpack_from(_PACKED[kind], content, start)[0])
        if kind == "string":
            try:
                return content[start:stop].decode()
            except UnicodeDecodeError:
                raise NotProtobuf(f"the field {field.name} is not UTF-8") from None
        if kind == "bytes":
            return _coded(content[start:stop])
        return _number(field, self.varint(start)[0])

    def _packed(self, field: Field, start: int, stop: int, depth: int) -> list[Any]:
        layout, found, position = _PACKED.get(field.kind), [], start
        while position < stop:
            self._count(depth)
            if layout is not None:
                after = position + struct.calcsize(layout)
                if after > stop:
                    raise NotProtobuf("it ends too early")
                found.append(self._value(field, position, after, depth))
            else:
                number, after = self.varint(position)
                if after > stop:
                    raise NotProtobuf("it ends too early")
                found.append(_number(field, number))
            position = after
        return found

    def _entry(
        self, found: dict[str, Any], field: Field, wire: int, start: int, stop: int, depth: int
    ) -> None:
        assert field.value is not None
        if wire != _BYTES:
            raise NotProtobuf(f"the field {field.name} has another type")
        entry = MessageType("", {1: Field("key", 1, field.key), 2: field.value})
        pair = self.message(entry, start, stop, depth + 1)
        key = pair.get("key", "" if field.key == "string" else False if field.key == "bool" else 0)
        text = str(key).lower() if isinstance(key, bool) else str(key)
        found[text] = pair["value"] if "value" in pair else _default(field.value)

    # Without one

    def guessed(self, position: int, end: int, depth: int) -> dict[str, Any]:
        """The fields in a range by their numbers."""
        found: dict[str, Any] = {}
        while position < end:
            number, wire, after = self._tag(position, end, depth)
            if number > GUESSED_NUMBER_MAX or wire == _GROUP:
                raise NotProtobuf("it has a field that is not usual")
            start, stop, position = self._span(wire, number, after, end, depth)
            _add(found, str(number), self._guess(wire, start, stop, depth))
        return found

    def _guess(self, wire: int, start: int, stop: int, depth: int) -> Any:
        content = self._content[start:stop]
        if wire == _VARINT:
            return self.varint(start)[0]
        if wire == _FIXED64:
            return _usual(struct.unpack("<d", content)[0]) or struct.unpack("<Q", content)[0]
        if wire == _FIXED32:
            return _usual(struct.unpack("<f", content)[0]) or struct.unpack("<I", content)[0]
        if wire == _GROUP:
            return _coded(content)
        text = _printable(content)
        if text is not None:
            return text
        try:
            return self.guessed(start, stop, depth + 1)
        except NotProtobuf:
            return _coded(content)


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    """A field that comes again makes a list."""
    if name not in found:
        found[name] = value
    elif isinstance(found[name], _Several):
        found[name].append(value)
    else:
        found[name] = _Several([found[name], value])


class _Several(list[Any]):
    """Values of a field that came more than once."""


def _usual(number: float) -> float | None:
    is_usual = math.isfinite(number) and 1e-9 <= abs(number) <= 1e15
    return number if is_usual else None


def _printable(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", "").replace("\t", "").isprintable() else None


def _coded(content: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(content).decode()}


def _number(field: Field, number: int) -> Any:
    kind = field.kind
    if kind == "bool":
        return bool(number)
    if kind in ("uint64", "uint32"):
        return number if kind == "uint64" else number & 0xFFFFFFFF
    if kind in ("sint64", "sint32"):
        return _zigzag(number if kind == "sint64" else number & 0xFFFFFFFF)
    bits = 64 if kind == "int64" else 32
    number &= (1 << bits) - 1
    signed = number - (1 << bits) if number >> (bits - 1) else number
    if field.enum is not None:
        return field.enum.names.get(signed, signed)
    return signed


def _default(field: Field) -> Any:
    """The value of an entry of a map that has none."""
    if field.kind == "message":
        convert = _WELL_KNOWN.get(field.message.name) if field.message else None
        return {} if convert is None else convert({})
    if field.enum is not None:
        return field.enum.names.get(0, 0)
    empty: Mapping[str, Any] = {
        "string": "",
        "bytes": _coded(b""),
        "bool": False,
        "double": 0.0,
        "float": 0.0,
    }
    return empty.get(field.kind, 0)


# Google's types ---------------------------------------------------------------------------------------


def _timestamp(found: dict[str, Any]) -> Any:
    seconds, nanos = found.get("seconds", 0), found.get("nanos", 0)
    try:
        whole = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return found
    if not 0 <= nanos < 10**9:
        return found
    return whole.replace(tzinfo=None).isoformat() + _fraction(nanos) + "Z"


def _duration(found: dict[str, Any]) -> Any:
    seconds, nanos = found.get("seconds", 0), found.get("nanos", 0)
    if abs(nanos) >= 10**9:
        return found
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _fraction(nanos: int) -> str:
    if not nanos:
        return ""
    digits = 3 if nanos % 1_000_000 == 0 else 6 if nanos % 1_000 == 0 else 9
    return f".{nanos:09}"[: digits + 1]


def _any_value(found: dict[str, Any]) -> Any:
    """One of the members of `Value`."""
    if not found:
        return None
    name, value = next(iter(found.items()))
    return None if name == "null_value" else value


_NOTHING = {
    **dict.fromkeys(("Double", "Float"), 0.0),
    **dict.fromkeys(("Int64", "UInt64", "Int32", "UInt32"), 0),
    "Bool": False,
    "String": "",
    "Bytes": _coded(b""),
}


def _wrapped(kind: str) -> Callable[[dict[str, Any]], Any]:
    return lambda found: found.get("value", _NOTHING[kind])


_WELL_KNOWN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Duration": _duration,
    "google.protobuf.FieldMask": lambda found: ",".join(found.get("paths", [])),
    "google.protobuf.Struct": lambda found: found.get("fields", {}),
    "google.protobuf.Value": _any_value,
    "google.protobuf.ListValue": lambda found: found.get("values", []),
    **{f"google.protobuf.{kind}Value": _wrapped(kind) for kind in _NOTHING},
}
