"""Finds the end of the repeated part of a request, by the declaration of its class.

Requests of one client are often the same: a producer sends the same topic and partition before each batch, a
member sends the same heartbeat every few seconds. With `prefix_layout` the end of this part is found without
decoding it. Its bytes are the key of a result that was decoded before.

Only one shape has a layout: every array before the end has one item, and no struct has a tagged field. Other
requests have to be decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from odradek.wire.schema import (
    BYTES,
    INT32,
    INT64,
    RECORDS,
    STRING,
    Array,
    FieldSpec,
    Message,
    Primitive,
    Struct,
    fields_of,
)


class Step(IntEnum):
    """The steps of `wire/prefix.h`, with the same numbers."""

    FIXED = 0
    TEXT = 1
    NULLABLE_TEXT = 2
    COMPACT_TEXT = 3
    NULLABLE_COMPACT_TEXT = 4
    ONE = 5
    COMPACT_ONE = 6
    NO_TAGS = 7
    NUMBER_32 = 8
    NUMBER_64 = 9


class Rest(IntEnum):
    """The bytes after the repeated part."""

    NOTHING = 0
    RECORDS = 1
    """One field of records, and the ends of its enclosing structs."""
    ITEMS = 2
    """An array of structs of int32, int64 and text, and the ends of its enclosing structs."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrefixLayout:
    """The layout of one version of a request, to read it without decoding.

    `steps` leads from the first byte after the header's client id to the rest, `item_steps` through one item
    of an array. `tags_after` bytes of 0 follow the rest: the ends of structs without tagged fields.
    """

    steps: bytes
    rest: Rest
    is_compact: bool
    item_steps: bytes
    tags_after: int


def prefix_layout(request: type[Message], version: int, until: tuple[str, ...]) -> PrefixLayout:
    """The layout of `request` in `version`. `until` are the names of the fields on the path to the rest, as
    `("topic_data", "partition_data", "records")`; empty if the whole request is repeated.

    ValueError if the rest is of no known kind, or is not the last field of its structs.
    """
    is_flexible = request.is_flexible(version)
    if not until:
        return PrefixLayout(b"", Rest.NOTHING, is_flexible, b"", 0)
    steps = [(Step.NO_TAGS, 0)] if is_flexible else []
    struct: type[Struct] = request
    for depth, name in enumerate(until):
        field = _walk(struct, version, name, is_flexible, steps)
        if depth < len(until) - 1:
            assert isinstance(field.type, Array)
            assert isinstance(field.type.item, type)
            steps.append((Step.COMPACT_ONE if is_flexible else Step.ONE, 0))
            struct = field.type.item
    item_steps: list[tuple[Step, int]] = []
    if field.type is RECORDS:
        rest = Rest.RECORDS
    elif isinstance(field.type, Array) and isinstance(field.type.item, type):
        rest = Rest.ITEMS
        item_steps = _item_steps(field.type.item, version, is_flexible)
    else:
        raise ValueError(f"{request.__name__}.{name} is not a rest that can be read without decoding")
    tags_after = len(until) if is_flexible else 0
    return PrefixLayout(_encoded(steps), rest, is_flexible, _encoded(item_steps), tags_after)


def item_fields(request: type[Message], version: int, until: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the values of each item of `Rest.ITEMS`, in order."""
    struct: Any = request
    for name in until:
        struct = next(field for field in fields_of(struct) if field.name == name).type.item
    return tuple(field.name for field in _present(struct, version))


def _present(struct: Any, version: int) -> list[FieldSpec]:
    """The fields of this version that are not tagged."""
    return [
        field for field in fields_of(struct) if field.exists_in(version) and not field.is_tagged_in(version)
    ]


def _walk(
    struct: type[Struct], version: int, until: str, is_flexible: bool, steps: list[tuple[Step, int]]
) -> FieldSpec:
    """Adds the steps over the fields before `until`, which has to be the last field."""
    fields = _present(struct, version)
    if not fields or fields[-1].name != until:
        raise ValueError(f"{until} is not the last field of {struct.__name__} in version {version}")
    for field in fields[:-1]:
        steps.append(_step(field, version, is_flexible))
    return fields[-1]


def _step(field: FieldSpec, version: int, is_flexible: bool) -> tuple[Step, int]:
    wire_type = field.type
    if not isinstance(wire_type, Primitive) or wire_type in (BYTES, RECORDS):
        raise ValueError(f"{field.name} is neither a number nor a text")
    if wire_type is not STRING:
        return Step.FIXED, wire_type.size_min
    is_nullable = field.null_allowed_in(version)
    if is_flexible:
        return (Step.NULLABLE_COMPACT_TEXT if is_nullable else Step.COMPACT_TEXT), 0
    return (Step.NULLABLE_TEXT if is_nullable else Step.TEXT), 0


def _item_steps(struct: type[Struct], version: int, is_flexible: bool) -> list[tuple[Step, int]]:
    numbers = {INT32: Step.NUMBER_32, INT64: Step.NUMBER_64}
    steps: list[tuple[Step, int]] = []
    for field in _present(struct, version):
        if field.type in numbers:
            steps.append((numbers[field.type], 0))
        elif field.type is STRING:
            steps.append(_step(field, version, is_flexible))
        else:
            raise ValueError(f"{field.name} is neither an int32, an int64 nor a text")
    if is_flexible:
        steps.append((Step.NO_TAGS, 0))
    return steps


def _encoded(steps: list[tuple[Step, int]]) -> bytes:
    """Neighbours of fixed width become one step."""
    merged: list[tuple[Step, int]] = []
    for step, size in steps:
        if step is Step.FIXED and merged and merged[-1][0] is Step.FIXED and merged[-1][1] + size < 256:
            merged[-1] = (Step.FIXED, merged[-1][1] + size)
        else:
            merged.append((step, size))
    return bytes(byte for pair in merged for byte in pair)
