"""Avro as values of JSON: a schema, and contents that it was written with.

    schema = parse_avro_schema('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}')
    read_avro(schema, b"\\x02") == {"a": 1}

What JSON has no form for: bytes are {"base64": ...}; decimals, dates, times and UUIDs are texts; NaN and the
infinities are the texts "NaN", "Infinity", "-Infinity". A value of a union is the value alone. Source: the
specification of Avro 1.12 (avro.apache.org). A content is read with the schema of its writer; there is no
reader's schema.

Not fastavro, which tests compare with: it has no bounds for the size and the depth of a message, and messages
are of people whom nobody knows.
"""

import base64
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from odradek.commands.values import TooMuch, finite

DEPTH_MAX = 64
"""Greatest depth of values in each other."""
VALUES_MAX = 50_000
"""Most values of one content: an array of nulls takes no bytes."""
NODES_MAX = 20_000
"""Most types in a schema."""
_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


class NotAvro(Exception):
    """The content was not written with this schema, or the schema is none; the text says why."""


Read = Callable[["_Reader", int], Any]
"""Reads at the position of the reader, at a depth."""
AvroSchema = Read


def parse_avro_schema(text: str, references: tuple[str, ...] = ()) -> AvroSchema:
    """The compiled schema; NotAvro. `references` are schemas whose names it uses, in their order."""
    parser = _Parser()
    try:
        for one in references:
            parser.type(json.loads(one), "", 0)
        return parser.type(json.loads(text), "", 0)
    except (ValueError, RecursionError) as error:
        raise NotAvro(f"the schema is not JSON ({error})") from None


def read_avro(schema: AvroSchema, content: bytes) -> Any:
    """The value; NotAvro for what was not written with the schema, and for what is larger than the bounds."""
    reader = _Reader(content)
    try:
        value = schema(reader, 0)
    except (IndexError, struct.error):
        raise NotAvro("it ends too early") from None
    except TooMuch as error:
        raise NotAvro(str(error)) from None
    if reader.position != len(content):
        raise NotAvro(f"{len(content) - reader.position} bytes are left behind the value")
    return value


# Contents ---------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.position, self.left = content, 0, VALUES_MAX

    def count(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooMuch(f"it has more than {VALUES_MAX:,} values")
        if depth > DEPTH_MAX:
            raise TooMuch(f"it has more than {DEPTH_MAX} levels")

    def long(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self.content[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise NotAvro("a number has more than 64 bits")

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.content) - self.position:
            raise NotAvro("it ends too early")
        taken = self.content[self.position : self.position + size]
        self.position += size
        return taken

    def unpack(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]


def _null(reader: _Reader, depth: int) -> None:
    reader.count(depth)


def _boolean(reader: _Reader, depth: int) -> bool:
    byte = reader.take(1)[0]
    if byte > 1:
        raise NotAvro("a boolean is neither 0 nor 1")
    return byte == 1


def _long(reader: _Reader, depth: int) -> int:
    reader.count(depth)
    return reader.long()


def _int(reader: _Reader, depth: int) -> int:
    number = _long(reader, depth)
    if not -(2**31) <= number < 2**31:
        raise NotAvro("an int has more than 32 bits")
    return number


def _float(reader: _Reader, depth: int) -> Any:
    return finite(reader.unpack("<f"))


def _double(reader: _Reader, depth: int) -> Any:
    return finite(reader.unpack("<d"))


def _raw(reader: _Reader, depth: int) -> bytes:
    reader.count(depth)
    return reader.take(reader.long())


def _bytes(reader: _Reader, depth: int) -> Any:
    return _coded(_raw(reader, depth))


def _string(reader: _Reader, depth: int) -> str:
    try:
        return _raw(reader, depth).decode()
    except UnicodeDecodeError:
        raise NotAvro("a string is not UTF-8") from None


def _coded(content: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(content).decode()}


_READS: Mapping[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


# Schemas ----------------------------------------------------------------------------------------------


class _Parser:
    """Makes functions of types; `_named` are the types with a name."""

    def __init__(self) -> None:
        self._named: dict[str, Read] = {}
        self._nodes = 0

    def type(self, found: Any, namespace: str, depth: int) -> Read:
        self._nodes += 1
        if self._nodes > NODES_MAX or depth > DEPTH_MAX:
            raise NotAvro("the schema is too large")
        if isinstance(found, str):
            return self._name(found, namespace)
        if isinstance(found, list):
            return _union([self.type(one, namespace, depth + 1) for one in found])
        if not isinstance(found, dict) or "type" not in found:
            raise NotAvro(f"the schema has {str(found)[:60]!r}, which is not a type")
        kind = found["type"]
        if kind in ("record", "error"):
            return self._record(found, namespace, depth)
        if kind == "enum":
            return self._keep(found, namespace, _enum([*map(str, _list(found, "symbols"))]))
        if kind == "array":
            return _array(self.type(found.get("items"), namespace, depth + 1))
        if kind == "map":
            return _map(self.type(found.get("values"), namespace, depth + 1))
        if kind == "fixed":
            return self._keep(found, namespace, _fixed(found))
        if isinstance(kind, str) and kind in _PRIMITIVE:
            return _logical(kind, found) or _READS[kind]
        return self.type(kind, namespace, depth + 1)

    def _name(self, name: str, namespace: str) -> Read:
        if name in _PRIMITIVE:
            return _READS[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = full if full in self._named else name
        if known not in self._named:
            raise NotAvro(f"the schema has the type {name[:80]!r}, which it does not declare")
        # A type may be used inside itself, before it is made.
        return self._named[known]

    def _keep(self, found: Mapping[str, Any], namespace: str, read: Read) -> Read:
        self._named[_full_name(found, namespace)] = read
        return read

    def _record(self, found: Mapping[str, Any], namespace: str, depth: int) -> Read:
        full = _full_name(found, namespace)
        fields: list[tuple[str, Read]] = []

        def read(reader: _Reader, depth: int) -> dict[str, Any]:
            reader.count(depth)
            return {name: one(reader, depth + 1) for name, one in fields}

        self._named[full] = read
        inside = full.rpartition(".")[0]
        for field in _list(found, "fields"):
            if not isinstance(field, dict) or "type" not in field:
                raise NotAvro(f"the record {full} has a field without a type")
            fields.append((str(field.get("name", "")), self.type(field["type"], inside, depth + 1)))
        return read


def _full_name(found: Mapping[str, Any], namespace: str) -> str:
    name = found.get("name")
    if not isinstance(name, str) or not name:
        raise NotAvro("the schema has a type without a name")
    space = found.get("namespace", namespace)
    return name if "." in name or not isinstance(space, str) or not space else f"{space}.{name}"


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise NotAvro(f"the schema has a type without {name}")
    return value


def _union(types: list[Read]) -> Read:
    def read(reader: _Reader, depth: int) -> Any:
        reader.count(depth)
        number = reader.long()
        if not 0 <= number < len(types):
            raise NotAvro(f"a union of {len(types)} types has none with the number {number}")
        return types[number](reader, depth + 1)

    return read


def _enum(symbols: list[str]) -> Read:
    def read(reader: _Reader, depth: int) -> str:
        reader.count(depth)
        number = reader.long()
        if not 0 <= number < len(symbols):
            raise NotAvro(f"an enum of {len(symbols)} symbols has none with the number {number}")
        return symbols[number]

    return read


def _blocks(reader: _Reader) -> Any:
    """Numbers of items, block after block."""
    while count := reader.long():
        if count < 0:
            reader.long()  # the size in bytes, for who skips it
            count = -count
        yield count


def _array(item: Read) -> Read:
    def read(reader: _Reader, depth: int) -> list[Any]:
        reader.count(depth)
        found = []
        for count in _blocks(reader):
            for _ in range(count):
                reader.count(depth)
                found.append(item(reader, depth + 1))
        return found

    return read


def _map(value: Read) -> Read:
    def read(reader: _Reader, depth: int) -> dict[str, Any]:
        reader.count(depth)
        found = {}
        for count in _blocks(reader):
            for _ in range(count):
                key = _string(reader, depth)
                found[key] = value(reader, depth + 1)
        return found

    return read


def _fixed(found: Mapping[str, Any]) -> Read:
    size = found.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise NotAvro("the schema has a fixed type without a size")
    whole: int = size
    as_value = _of_bytes(found, whole) or _coded

    def read(reader: _Reader, depth: int) -> Any:
        reader.count(depth)
        return as_value(reader.take(whole))

    return read


# Logical types: of what is not known, or out of range, the type below it counts ---------------------------


def _logical(kind: str, found: Mapping[str, Any]) -> Read | None:
    name = found.get("logicalType")
    if kind == "bytes":
        as_value = _of_bytes(found, None)
        return None if as_value is None else lambda reader, depth: as_value(_raw(reader, depth))
    if kind not in ("int", "long") or not isinstance(name, str):
        return None
    read, as_text = _READS[kind], _of_number(name)
    if as_text is None:
        return None

    def read_text(reader: _Reader, depth: int) -> Any:
        number = read(reader, depth)
        try:
            return as_text(number)
        except (OverflowError, ValueError):
            return number

    return read_text


def _of_bytes(found: Mapping[str, Any], size: int | None) -> Callable[[bytes], Any] | None:
    name = found.get("logicalType")
    if name == "decimal":
        scale = found.get("scale", 0)
        if isinstance(scale, int) and 0 <= scale <= 1_000:
            return lambda content: _decimal(content, scale)
    if name == "uuid" and size == 16:
        return lambda content: "-".join(
            content.hex()[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
        )
    if name == "duration" and size == 12:
        return lambda content: dict(
            zip(("months", "days", "milliseconds"), struct.unpack("<III", content), strict=True)
        )
    return None


def _decimal(content: bytes, scale: int) -> Any:
    # Longer ones take quadratic time to be written in tens.
    if len(content) > 200:
        return _coded(content)
    sign, digits, _ = Decimal(int.from_bytes(content, "big", signed=True)).as_tuple()
    return f"{Decimal((sign, digits, -scale)):f}"


def _of_number(name: str) -> Callable[[int], str] | None:
    if name == "date":
        return lambda number: (date(1970, 1, 1) + timedelta(days=number)).isoformat()
    base, _, unit = name.rpartition("-")
    per_second = _PER_SECOND.get(unit)
    if per_second is None:
        return None
    digits = len(str(per_second)) - 1
    if base == "time":
        return lambda number: _time(number, per_second, digits)
    if base in ("timestamp", "local-timestamp"):
        zone = "Z" if base == "timestamp" else ""
        return lambda number: _timestamp(number, per_second, digits) + zone
    return None


def _timestamp(number: int, per_second: int, digits: int) -> str:
    seconds, rest = divmod(number, per_second)
    whole = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{whole}.{rest:0{digits}}"


def _time(number: int, per_second: int, digits: int) -> str:
    seconds, rest = divmod(number, per_second)
    if not 0 <= seconds < 86_400:
        raise ValueError(number)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:0{digits}}"
