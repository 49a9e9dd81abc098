"""Writes the source of decoders; `wire/codec.py` compiles it.

A run combines neighbouring fields of fixed width, with a length prefix at its end, into one `unpack_from`.
Lengths are checked against the remaining bytes before objects are made.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from odradek.wire._source import (
    Source,
    finish_uvarint,
    is_tagged,
    read_uvarint,
    size_min,
)
from odradek.wire.errors import MalformedMessage
from odradek.wire.java_text import AS_JAVA
from odradek.wire.schema import (
    BYTES,
    RECORDS,
    STRING,
    UUID,
    Array,
    FieldSpec,
    Primitive,
    Versioned,
    fields_of,
)

STRING_SIZE_MAX = 0x7FFF

ITEMS_MAX = 1_000_000
"""The limit of objects in all arrays of one message. A frame of 100 MB could have thirty million of the
smallest structs, for 4 GB of memory; with this limit, far above the use of clients, it is below 200 MB."""

COLLECTION_MAX = 1_000_000
"""The limit of items in one array, as in Kafka."""
TAGS_MAX = 10_000
"""The limit of tagged fields of one struct, as in Kafka."""


def write(cls: type[Versioned], version: int) -> tuple[str, dict[str, Any]]:
    """The source of `decode(buffer, position)` and the names that it needs."""
    return _DecoderWriter(version, cls.is_flexible(version)).function(cls)


class _DecoderWriter(Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.reads_records = False
        self.makes_items = False
        self.names.update(
            MalformedMessage=MalformedMessage,
            finish_uvarint=finish_uvarint,
            new=object.__new__,
            read_uvarint=read_uvarint,
            unpack_from=struct.unpack_from,
        )

    def function(self, cls: type[Versioned]) -> tuple[str, dict[str, Any]]:
        with self.block("def decode(buffer, position):"):
            with self.block("try:"):
                self.line("size = len(buffer)")
                start = len(self.lines)
                self.struct("message", cls)
                self.flush()
                if self.makes_items:
                    self.lines.insert(start, f"        room = {ITEMS_MAX}")
                if self.reads_records:
                    wrap = "        view = buffer if type(buffer) is memoryview else memoryview(buffer)"
                    self.lines.insert(start, wrap)
                self.line("return message, position")
            with self.block("except (struct_error, IndexError, ValueError, OverflowError) as error:"):
                where = f"{cls.__name__} version {self.version}"
                self.line(f"raise MalformedMessage('{where}: ' + str(error)) from error")
        return self.text(), self.names

    def malformed(self, text: str) -> None:
        self.line(f"raise MalformedMessage({text!r})")

    # Runs of fixed width.

    def flush(self) -> None:
        """Write the read of the run's fields."""
        if not self.run:
            return
        layout = ">" + "".join(code for code, _ in self.run)
        targets = [target for _, target in self.run]
        self.run = []
        if layout == ">B":
            self.line(f"{targets[0]} = buffer[position]")
            self.line("position += 1")
            return
        unpack = self.refer("unpack_" + layout[1:].replace("?", "o"), _unpacker(layout))
        tail = "," if len(targets) == 1 else ""
        self.line(f"{', '.join(targets)}{tail} = {unpack}(buffer, position)")
        self.line(f"position += {struct.calcsize(layout)}")

    def length(self, code: str, limit: int | None = None) -> str:
        """Write the read of a length prefix into a new name; below zero is null."""
        name = self.fresh("length")
        self.run.append(("B" if self.flexible else code, name))
        self.flush()
        if self.flexible:
            with self.block(f"if {name} > 127:"):
                self.line(f"{name}, position = finish_uvarint(buffer, position, {name})")
                if limit is not None:
                    with self.block(f"if {name} > {limit + 1}:"):
                        self.malformed("a string is too long")
            self.line(f"{name} -= 1")
        return name

    def null_or_malformed(self, target: str, name: str, nullable: bool) -> None:
        with self.block("else:"):
            if nullable:
                self.line(f"{target} = None")
            else:
                self.malformed(f"{name} must not be null")

    # Values.

    def value(self, target: str, name: str, wire_type: Any, nullable: bool) -> None:
        if isinstance(wire_type, Array):
            self.array(target, name, wire_type.item, nullable)
        elif not isinstance(wire_type, Primitive):
            self.nullable_struct(target, wire_type) if nullable else self.struct(target, wire_type)
        elif wire_type.format is not None:
            self.run.append((wire_type.format, target))
        else:
            self.variable(target, name, wire_type, nullable)

    def variable(self, target: str, name: str, wire_type: Primitive, nullable: bool) -> None:
        is_string = wire_type is STRING
        length = self.length("h" if is_string else "i", STRING_SIZE_MAX if is_string else None)
        with self.block(f"if {length} >= 0:"):
            self.line(f"end = position + {length}")
            with self.block("if end > size:"):
                self.malformed(f"{name} ends after the message")
            if wire_type is RECORDS:
                self.reads_records = True
                self.line(f"{target} = view[position:end]")
            elif wire_type is BYTES:
                self.line(f"{target} = bytes(buffer[position:end])")
            else:
                self.line(f"{target} = str(buffer[position:end], 'utf-8', {AS_JAVA!r})")
            self.line("position = end")
        self.null_or_malformed(target, name, nullable)

    def array(self, target: str, name: str, item: Any, nullable: bool) -> None:
        count = self.length("i")
        with self.block(f"if {count} >= 0:"):
            least = size_min(item, False, self.version, self.flexible)
            assert least > 0, f"items of {name} may be empty: their count would have no bound"
            with self.block(f"if {count} * {least} > size - position:"):
                self.malformed(f"{name} has more items than fit in the message")
            with self.block(f"if {count} > {COLLECTION_MAX}:"):
                self.malformed(f"{name} has more than {COLLECTION_MAX} items")
            if isinstance(item, Primitive) and item.format is not None:
                self.fixed_items(target, count, item)
            else:
                self.varied_items(target, name, count, item)
        self.null_or_malformed(target, name, nullable)

    def fixed_items(self, target: str, count: str, item: Primitive) -> None:
        if item is UUID:
            ids = f"range(position, position + 16 * {count}, 16)"
            self.line(f"{target} = [bytes(buffer[start : start + 16]) for start in {ids}]")
        else:
            self.line(f"{target} = list(unpack_from('>%d{item.format}' % {count}, buffer, position))")
        self.line(f"position += {item.size_min} * {count}")

    def varied_items(self, target: str, name: str, count: str, item: Any) -> None:
        self.makes_items = True
        self.line(f"room -= {count}")
        with self.block("if room < 0:"):
            self.malformed(f"the message has more than {ITEMS_MAX} items")
        items, one = self.fresh("items"), self.fresh("item")
        self.line(f"{target} = {items} = []")
        with self.block(f"for _ in range({count}):"):
            self.value(one, name, item, False)
            self.flush()
            self.line(f"{items}.append({one})")

    # Structs.

    def nullable_struct(self, target: str, struct_class: Any) -> None:
        marker = self.fresh("marker")
        self.run.append(("b", marker))
        self.flush()
        with self.block(f"if {marker} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.struct(target, struct_class)
            self.flush()

    def struct(self, target: str, struct_class: Any) -> None:
        one = self.fresh("it") if "." in target else target
        self.line(f"{one} = new({self.refer(struct_class.__name__, struct_class)})")
        if one != target:
            self.line(f"{target} = {one}")
        tagged, retired = [], []
        for spec in fields_of(struct_class):
            field = f"{one}.{spec.name}"
            if not spec.exists_in(self.version):
                self.line(f"{field} = {self.default(spec)}")
                if spec.tag is not None:
                    retired.append(spec.tag)
            elif is_tagged(spec, self.version, self.flexible):
                self.line(f"{field} = {self.default(spec)}")
                tagged.append((field, spec))
            else:
                self.value(field, spec.name, spec.type, spec.null_allowed_in(self.version))
        if self.flexible:
            self.tags(tagged, retired)

    def default(self, spec: FieldSpec) -> str:
        if spec.default is list:
            return "[]"
        if isinstance(spec.default, type):
            return f"{self.refer(spec.default.__name__, spec.default)}()"
        return repr(spec.default)

    def tags(self, tagged: list[tuple[str, FieldSpec]], retired: list[int]) -> None:
        count = self.fresh("tags")
        self.run.append(("B", count))
        self.flush()
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, position = finish_uvarint(buffer, position, {count})")
                with self.block(f"if {count} > {TAGS_MAX}:"):
                    self.malformed(f"a struct has more than {TAGS_MAX} tagged fields")
            with self.block(f"for _ in range({count}):"):
                tag, end = self.fresh("tag"), self.fresh("tag_end")
                self.line(f"{tag}, position = read_uvarint(buffer, position)")
                self.line(f"{end}, position = read_uvarint(buffer, position)")
                self.line(f"{end} += position")
                with self.block(f"if {end} > size:"):
                    self.malformed("a tagged field ends after the message")
                self.known_tags(tag, end, tagged, retired)

    def known_tags(self, tag: str, end: str, tagged: list[tuple[str, FieldSpec]], retired: list[int]) -> None:
        """Read the tags of this version, refuse those of other versions (as Kafka does), skip unknown
        tags."""
        word = "if"
        for field, spec in tagged:
            with self.block(f"{word} {tag} == {spec.tag}:"):
                self.tagged_value(field, spec)
                with self.block(f"if position != {end}:"):
                    self.malformed(f"{spec.name} does not have the size in its tag")
            word = "elif"
        if retired:
            with self.block(f"{word} {tag} in {tuple(retired)}:"):
                self.malformed("a tagged field does not exist in this version")
            word = "elif"
        if word == "if":
            self.line(f"position = {end}")
        else:
            with self.block("else:"):
                self.line(f"position = {end}")

    def tagged_value(self, field: str, spec: FieldSpec) -> None:
        nullable = spec.null_allowed_in(self.version)
        if nullable and not isinstance(spec.type, Array | Primitive):
            # In a tagged field the marker of a nullable struct is a varint: 1 present, 0 null.
            present = self.fresh("present")
            self.line(f"{present}, position = read_uvarint(buffer, position)")
            with self.block(f"if {present} == 0:"):
                self.line(f"{field} = None")
            with self.block("else:"):
                self.struct(field, spec.type)
                self.flush()
        else:
            self.value(field, spec.name, spec.type, nullable)
            self.flush()


@cache
def _unpacker(layout: str) -> Callable[[Any, int], tuple[Any, ...]]:
    return struct.Struct(layout).unpack_from
