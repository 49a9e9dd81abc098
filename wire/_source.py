"""The common part of both code generators: lines with indentation, fresh names, and varints."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.wire.errors import MalformedMessage
from odradek.wire.schema import Array, FieldSpec, Primitive, fields_of

UVARINT_MAX = 0xFFFFFFFF


class Source:
    """Generated lines of Python, and the objects that they use by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._indent = 0
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def refer(self, stem: str, value: Any) -> str:
        """A name for `value` in the generated code; equal values share one."""
        for name, known in self.names.items():
            if known is value or (type(known) is type(value) is bytes and known == value):
                return name
        name = stem if stem not in self.names else self.fresh(stem)
        self.names[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def size_min(wire_type: Any, nullable: bool, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of this type takes in this version."""
    if isinstance(wire_type, Primitive):
        return wire_type.size_min if wire_type.format is not None or not flexible else 1
    if isinstance(wire_type, Array):
        return 1 if flexible else 4
    return 1 if nullable else struct_size_min(wire_type, version, flexible)


def struct_size_min(struct_class: Any, version: int, flexible: bool) -> int:
    total = 1 if flexible else 0
    for spec in fields_of(struct_class):
        if spec.exists_in(version) and not is_tagged(spec, version, flexible):
            total += size_min(spec.type, spec.null_allowed_in(version), version, flexible)
    return total


def is_tagged(spec: FieldSpec, version: int, flexible: bool) -> bool:
    return flexible and spec.is_tagged_in(version)


def uvarint(value: int) -> bytes:
    """An unsigned varint, low seven bits first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and its end position; IndexError at the end of the buffer."""
    first = buffer[position]
    return (first, position + 1) if first < 128 else finish_uvarint(buffer, position + 1, first)


def finish_uvarint(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, above 127, was read already."""
    value, shift = first & 127, 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint has more than five bytes")
    if value > UVARINT_MAX:
        raise MalformedMessage(f"the varint {value} has more than 32 bits")
    return value, position


SHORT_UVARINTS = tuple(uvarint(value) for value in range(128))
