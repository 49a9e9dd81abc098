"""Requests in which an element of an array comes twice: made of plain values, and sent to both brokers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from compat_tests.differential.harness import SECONDS, Pair, Side
from odradek.wire.messages import find
from odradek.wire.schema import Array, FieldSpec, Message, Struct, fields_of

Values = dict[str, Any]
"""A struct as names and values; what is left out has its default, what its version lacks is left out."""

Other = Values | Callable[[Side, Values], Values]
"""What to replace in an element, so that it means the same thing and says something else of it."""


@dataclasses.dataclass
class Case:
    """A request that is sound, with something in every array, and what its effects are seen by."""

    asked: Callable[[Side], Values]
    after: Callable[[], None] = lambda: None
    see: Callable[[Side, Any], None] | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """`prepare(pair, version)` makes a case for each request; `arrays` says which arrays of it are doubled
    (`topics.partitions`) and with what else: the paths of all rows of an API are those of its schema.
    """

    api_key: int
    prepare: Callable[[Pair, int], Case]
    arrays: dict[str, list[Other]]
    first_version: int = 0
    seconds: float = SECONDS
    """To wait for an answer; fewer where Kafka often gives none."""


def arrays_of(struct: type[Struct], before: tuple[FieldSpec, ...] = ()) -> Iterator[tuple[FieldSpec, ...]]:
    """Every array in a struct, nested ones too, as the fields that lead to it."""
    for spec in fields_of(struct):
        way = (*before, spec)
        inner = spec.type
        if isinstance(inner, Array):
            yield way
            inner = inner.item
        if isinstance(inner, type):
            yield from arrays_of(inner, way)


def path_of(way: Sequence[FieldSpec]) -> str:
    return ".".join(spec.name for spec in way)


def message(api_key: int, values: Values, version: int) -> Message:
    made = _struct(find(api_key)[0], values, version)
    assert isinstance(made, Message)
    return made


def _struct(struct: type[Struct], values: Values, version: int) -> Struct:
    specs = {spec.name: spec for spec in fields_of(struct)}
    assert values.keys() <= specs.keys(), (struct.__name__, values.keys() - specs.keys())
    return struct(
        **{
            name: _value(specs[name].type, value, version)
            for name, value in values.items()
            if specs[name].exists_in(version)
        }
    )


def _value(kind: Any, value: Any, version: int) -> Any:
    if isinstance(kind, Array) and value is not None:
        return [_value(kind.item, item, version) for item in value]
    if isinstance(value, dict):
        return _struct(kind, value, version)
    return value


def variants(items: list[Any], others: Sequence[Other], side: Side) -> Iterator[tuple[str, list[Any]]]:
    """The array with its first element a second time: the same, and with other contents."""
    first, *rest = items
    yield "twice", [first, first, *rest]
    if rest:
        yield "once more at the end", [first, *rest, first]
    for number, other in enumerate(others):
        changed = {**first, **(other(side, first) if callable(other) else other)}
        yield f"other contents {number} at the end", [first, *rest, changed]
        yield f"other contents {number} first", [changed, *rest, first]


def doubled(values: Values, path: str, others: Sequence[Other], side: Side) -> list[tuple[str, Values]]:
    """The request in every variant of the array; of several at that path the first that has elements."""
    made = []
    names = path.split(".")
    count = len(list(variants(_array(copy.deepcopy(values), names)[0], others, side)))
    for number in range(count):
        one = copy.deepcopy(values)
        array, holder = _array(one, names)
        note, holder[names[-1]] = list(variants(array, others, side))[number]
        made.append((note, one))
    return made


def _array(values: Values, names: Sequence[str]) -> tuple[list[Any], Values]:
    """The array at a path, and what holds it."""
    holders = [values]
    for name in names[:-1]:
        inner = [holder.get(name) or [] for holder in holders]
        holders = [one for some in inner for one in (some if isinstance(some, list) else [some])]
    for holder in holders:
        if holder.get(names[-1]):
            return holder[names[-1]], holder
    raise AssertionError(f"nothing at {'.'.join(names)}")


def compare_doubles(pair: Pair, row: Row) -> None:
    """Asks both sides every variant, in the first and the last version that has the array."""
    __tracebackhide__ = True
    with pair.collecting() as found:
        _compare_doubles(pair, row, found)


def _compare_doubles(pair: Pair, row: Row, found: list[str]) -> None:
    request, _ = find(row.api_key)
    for way in arrays_of(request):
        path = path_of(way)
        if path not in row.arrays:
            continue
        served = [
            version
            for version in pair.versions(request)
            if version >= row.first_version and all(spec.exists_in(version) for spec in way)
        ]
        for version in sorted({*served[:1], *served[-1:]}):
            number = 0
            while True:
                case = row.prepare(pair, version)
                made = {side: doubled(case.asked(side), path, row.arrays[path], side) for side in pair.sides}
                note = made[pair.kafka][number][0]
                before = len(found)
                pair.ask(
                    lambda side: message(row.api_key, made[side][number][1], version),  # noqa: B023
                    version,
                    f"{path}: {note}",
                    see=case.see,
                    any_order=True,
                    seconds=row.seconds,
                )
                case.after()
                # What differs afterwards is a consequence of this request.
                found[before:] = [
                    line if f"({path}: " in line else f"after {path}, {note}: {line}"
                    for line in found[before:]
                ]
                number += 1
                if number == len(made[pair.kafka]):
                    break
