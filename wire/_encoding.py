"""Writes the source of encoders; `wire/codec.py` compiles it.

Byte strings are gathered in `out` and joined once. Large record batches, and those that are no buffers (a
storage slice), become a part of their own, so that a fetch copies no records.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from odradek.wire._source import SHORT_UVARINTS, Source, is_tagged, uvarint
from odradek.wire.schema import RECORDS, STRING, UUID, Array, FieldSpec, Primitive, Versioned, fields_of

COPIED_RECORDS_SIZE_MAX = 1024
"""Up to this size a copy of a batch is cheaper than one more buffer in the write."""


def write(cls: type[Versioned], version: int) -> tuple[str, dict[str, Any]]:
    """The source of `encode(message, parts)` and the names that it needs."""
    return _EncoderWriter(version, cls.is_flexible(version)).function(cls)


def string_length(length: int) -> bytes:
    """The compact prefix of a string, whose length has the limit of the older encoding."""
    if length > 0x7FFF:
        raise ValueError(f"a string of {length} bytes is too long")
    return uvarint(length + 1)


def missing(name: str) -> ValueError:
    return ValueError(f"{name} has a value, but this version has no such field")


def not_null(name: str) -> ValueError:
    return ValueError(f"{name} must not be null in this version")


class _EncoderWriter(Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.append = "append"
        self.run: list[tuple[str, str | None]] = []
        self.names.update(
            BUFFERS=(bytes, bytearray, memoryview),
            SHORT=SHORT_UVARINTS,
            missing=missing,
            not_null=not_null,
            pack=struct.pack,
            string_length=string_length,
            uvarint=uvarint,
        )

    def function(self, cls: type[Versioned]) -> tuple[str, dict[str, Any]]:
        with self.block("def encode(message, parts):"):
            with self.block("try:"):
                self.line("out = []")
                self.line("append = out.append")
                self.struct("message", cls)
                self.flush()
                self.line("parts.append(b''.join(out))")
            with self.block("except (struct_error, TypeError, ValueError, AttributeError) as error:"):
                where = f"{cls.__name__} version {self.version}"
                self.line(f"raise ValueError('{where}: ' + str(error)) from error")
        return self.text(), self.names

    # Runs of fixed width; a piece without expression is a zero byte.

    def flush(self) -> None:
        """Write the fields of the run."""
        if not self.run:
            return
        layout = ">" + "".join(code for code, _ in self.run)
        values = [value for _, value in self.run if value is not None]
        self.run = []
        if not values:
            self.line(f"{self.append}({bytes(len(layout) - 1)!r})")
            return
        pack = self.refer("pack_" + layout[1:].replace("?", "o"), _packer(layout))
        self.line(f"{self.append}({pack}({', '.join(values)}))")

    def length(self, code: str, length: str) -> None:
        """Write the length prefix of a value other than null."""
        if self.flexible:
            self.flush()
            long = f"string_length({length})" if code == "h" else f"uvarint({length} + 1)"
            self.line(f"{self.append}(SHORT[{length} + 1] if {length} < 127 else {long})")
        else:
            self.run.append((code, length))

    def null(self, code: str, name: str, nullable: bool) -> None:
        """The branch for None: null is a length of -1, compact 0."""
        with self.block("else:"):
            if not nullable:
                self.line(f"raise not_null({name!r})")
            elif self.flexible:
                self.line(f"{self.append}(b'\\0')")
            else:
                self.line(f"{self.append}({struct.pack('>' + code, -1)!r})")

    # Values.

    def value(self, source: str, name: str, wire_type: Any, nullable: bool) -> None:
        if isinstance(wire_type, Array):
            self.array(source, name, wire_type.item, nullable)
        elif not isinstance(wire_type, Primitive):
            self.nullable_struct(source, wire_type) if nullable else self.struct(source, wire_type)
        elif wire_type is UUID:
            # struct would pad or cut a wrong length.
            self.flush()
            value = self.fresh("uuid")
            self.line(f"{value} = {source}")
            with self.block(f"if len({value}) != 16:"):
                self.line(f"raise ValueError({name + ' is not 16 bytes'!r})")
            self.line(f"{self.append}({value})")
        elif wire_type.format is not None:
            self.run.append((wire_type.format, source))
        else:
            self.variable(source, name, wire_type, nullable)

    def variable(self, source: str, name: str, wire_type: Primitive, nullable: bool) -> None:
        code = "h" if wire_type is STRING else "i"
        value, length = self.fresh("value"), self.fresh("length")
        self.flush()
        self.line(f"{value} = {source}")
        with self.block(f"if {value} is not None:"):
            if wire_type is STRING:
                self.line(f"{value} = {value}.encode()")
            self.line(f"{length} = len({value})")
            self.length(code, length)
            self.flush()
            if wire_type is RECORDS:
                self.records(value, length)
            else:
                self.line(f"{self.append}({value})")
        self.null(code, name, nullable)

    def records(self, value: str, length: str) -> None:
        with self.block(f"if {length} <= {COPIED_RECORDS_SIZE_MAX} and isinstance({value}, BUFFERS):"):
            self.line(f"append({value})")
        with self.block("else:"):
            self.line("parts.append(b''.join(out))")
            self.line("out.clear()")
            self.line(f"parts.append({value})")

    def array(self, source: str, name: str, item: Any, nullable: bool) -> None:
        values, count = self.fresh("values"), self.fresh("count")
        self.flush()
        self.line(f"{values} = {source}")
        with self.block(f"if {values} is not None:"):
            self.line(f"{count} = len({values})")
            self.length("i", count)
            self.flush()
            if isinstance(item, Primitive) and item.format is not None and item is not UUID:
                self.line(f"{self.append}(pack('>%d{item.format}' % {count}, *{values}))")
            else:
                one = self.fresh("item")
                with self.block(f"for {one} in {values}:"):
                    self.value(one, name, item, False)
                    self.flush()
        self.null("i", name, nullable)

    # Structs.

    def nullable_struct(self, source: str, struct_class: Any) -> None:
        one = self.fresh("it")
        self.flush()
        self.line(f"{one} = {source}")
        with self.block(f"if {one} is None:"):
            self.line(f"{self.append}(b'\\xff')")
        with self.block("else:"):
            self.run.append(("b", "1"))
            self.struct(one, struct_class)
            self.flush()

    def struct(self, source: str, struct_class: Any) -> None:
        one = source
        if "." in source:
            one = self.fresh("it")
            self.line(f"{one} = {source}")
        tagged = []
        for spec in fields_of(struct_class):
            field = f"{one}.{spec.name}"
            if not spec.exists_in(self.version):
                if not spec.ignorable:
                    with self.block(f"if {self.is_set(field, spec)}:"):
                        self.line(f"raise missing({spec.name!r})")
            elif is_tagged(spec, self.version, self.flexible):
                tagged.append((field, spec))
            else:
                self.value(field, spec.name, spec.type, spec.null_allowed_in(self.version))
        if not self.flexible:
            return
        if tagged:
            self.tags(tagged)
        else:
            self.run.append(("x", None))

    def is_set(self, field: str, spec: FieldSpec) -> str:
        """An expression: does the field differ from its default?"""
        if spec.default is list:
            return f"{field} is None or len({field})"
        if spec.default is None:
            return f"{field} is not None"
        if isinstance(spec.default, type):
            default = self.refer(f"{spec.default.__name__}_default", spec.default())
            return f"{field} != {default}"
        return f"{field} != {spec.default!r}"

    def is_tag_set(self, field: str, spec: FieldSpec) -> str:
        is_struct = not isinstance(spec.type, Array | Primitive)
        if is_struct and not spec.null_allowed_in(self.version):
            default = self.refer(f"{spec.type.__name__}_default", spec.type())
            return f"{field} is not None and {field} != {default}"
        return self.is_set(field, spec)

    def tags(self, tagged: list[tuple[str, FieldSpec]]) -> None:
        """The tagged fields that have a value, in ascending order."""
        self.flush()
        conditions = [self.is_tag_set(field, spec) for field, spec in tagged]
        with self.block(f"if {' or '.join(f'({condition})' for condition in conditions)}:"):
            count, pieces = self.fresh("tags"), self.fresh("pieces")
            self.line(f"{count} = 0")
            self.line(f"{pieces} = []")
            for condition, (field, spec) in sorted(
                zip(conditions, tagged, strict=True), key=lambda pair: pair[1][1].tag or 0
            ):
                with self.block(f"if {condition}:"):
                    self.tagged_value(count, pieces, field, spec)
            self.line(f"{self.append}(uvarint({count}))")
            self.line(f"{self.append}(b''.join({pieces}))")
        with self.block("else:"):
            self.line(f"{self.append}(b'\\0')")

    def tagged_value(self, count: str, pieces: str, field: str, spec: FieldSpec) -> None:
        assert spec.tag is not None
        outer, inner, value = self.append, self.fresh("inner"), self.fresh("tagged")
        self.line(f"{inner} = []")
        self.append = f"{inner}.append"
        nullable = spec.null_allowed_in(self.version)
        if nullable and not isinstance(spec.type, Array | Primitive):
            # In a tagged field the marker of a nullable struct is a varint: 1 present, 0 null.
            with self.block(f"if {field} is None:"):
                self.line(f"{self.append}(b'\\0')")
            with self.block("else:"):
                self.line(f"{self.append}(b'\\1')")
                self.struct(field, spec.type)
                self.flush()
        else:
            self.value(field, spec.name, spec.type, nullable)
            self.flush()
        self.append = outer
        self.line(f"{value} = b''.join({inner})")
        self.line(f"{pieces} += ({uvarint(spec.tag)!r}, uvarint(len({value})), {value})")
        self.line(f"{count} += 1")


@cache
def _packer(layout: str) -> Callable[..., bytes]:
    return struct.Struct(layout).pack
