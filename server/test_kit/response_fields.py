"""Fields of a response that a test wants to be others: `{"topics.partitions.leader_id": 2}`.

A path goes through lists and structs by the names of the protocol in snake_case. It is for each item of a
list, but for those that name another topic, partition, group or transactional id than the fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.named import values_of
from odradek.wire.messages import api_name
from odradek.wire.schema import Array, FieldSpec, Message, Primitive, Struct, copied_as, fields_of

_TYPES: dict[str, tuple[type, ...]] = {"bool": (bool,), "string": (str,), "float64": (int, float)}
"""Types of Python by those of the protocol; of all numbers else `int`."""
_NOT_SET = ("uuid", "bytes", "records")


def check_fields(response: type[Message], fields: Any) -> str | None:
    """A sentence, if a path leads to no field of this response, or the field cannot have the value."""
    if not isinstance(fields, Mapping) or not all(isinstance(path, str) for path in fields):
        raise TestKitError(f"response_fields is values by the paths of fields, not {fields!r}")
    for path, value in fields.items():
        struct: Any = response
        *ways, last = path.split(".")
        for name in ways:
            field = _field(struct, name)
            struct = None if field is None else _below(field)
            if struct is None:
                break
        field = None if struct is None else _field(struct, last)
        name = api_name(response.api_key)
        if field is None or _below(field) is not None:
            return f"the response of {name} has no field {path!r} that could have a value"
        if not _can_be(field, value):
            return f"{path} of the response of {name} cannot be {value!r}"
    return None


def set_fields(response: Message, fields: Mapping[str, Any], names: Mapping[str, Any]) -> Message:
    """A copy of the response with these values, where it is about what `names` has by kinds."""
    # A copy, as some parts of a response are in others, too (Metadata).
    own = copied_as(type(response), response)
    for path, value in fields.items():
        _set(type(response), own, path.split("."), (), value, names)
    return own


def _set(
    message: type[Message],
    struct: Any,
    path: list[str],
    lists: tuple[str, ...],
    value: Any,
    names: Mapping[str, Any],
) -> None:
    name, *rest = path
    if not rest:
        setattr(struct, name, value)
        return
    found, lists = getattr(struct, name), (*lists, name)
    for item in found if isinstance(found, list) else [] if found is None else [found]:
        known = values_of(message, item, lists)
        if all(names.get(kind, one) == one for kind, one in known.items()):
            _set(message, item, rest, lists, value, names)


def _field(struct: Any, name: str) -> FieldSpec | None:
    return next((field for field in fields_of(struct) if field.name == name), None)


def _below(field: FieldSpec) -> Any:
    """The struct that the field has, itself or in a list."""
    item = field.type.item if isinstance(field.type, Array) else field.type
    return item if isinstance(item, type) else None


def _can_be(field: FieldSpec, value: Any) -> bool:
    if value is None:
        return field.nullable is not None
    if isinstance(field.type, Array):
        return isinstance(value, list) and all(_is_of(field.type.item, one) for one in value)
    return _is_of(field.type, value)


def _is_of(primitive: Primitive | type[Struct], value: Any) -> bool:
    if not isinstance(primitive, Primitive) or primitive.name in _NOT_SET:
        return False
    if primitive.name == "bool":
        return isinstance(value, bool)
    if primitive.name in _TYPES:
        return isinstance(value, _TYPES[primitive.name]) and not isinstance(value, bool)
    bits = 8 * primitive.size_min
    low, high = (0, 1 << bits) if primitive.name.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < high
