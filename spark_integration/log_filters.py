"""The topics, partitions, offsets and timestamps of a query's `where`, for the plan of a read.

Spark passes filters from PySpark 4.1 on, with `spark.sql.python.filterPushdown.enabled`. They are recognised
by the names of their classes, so that PySpark need not be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

_END_OF_ALL = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Narrowed:
    """The part of a table that filters leave; a missing bound does not restrict."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = _END_OF_ALL
    """Offsets of [start, end)."""
    first_timestamp_ms: int | None = None
    """Reading starts at the first record of this time or later; the records after it may be older."""

    def takes(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrow(filters: list[Any]) -> tuple[Narrowed, list[Any]]:
    """The part of a table that passes all filters, and the filters that Spark still has to apply."""
    narrowed, left = Narrowed(), []
    for one in filters:
        taken = _taken(narrowed, one)
        if taken is not None:
            narrowed = taken
        if taken is None or one.attribute == ("timestamp",):
            left.append(one)
    return narrowed, left


def _taken(narrowed: Narrowed, one: Any) -> Narrowed | None:
    """Narrowed by one more filter; None for a filter that is not understood."""
    attribute, kind = getattr(one, "attribute", None), type(one).__name__
    if attribute in (("topic",), ("partition",)):
        values = _values(one, kind, str if attribute == ("topic",) else int)
        return None if values is None else _among(narrowed, attribute[0], values)
    if attribute == ("offset",) and _is_number(one.value if hasattr(one, "value") else None):
        bound = _OFFSETS.get(kind)
        return None if bound is None else _between(narrowed, *bound(one.value))
    if attribute == ("timestamp",) and kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
        return _not_before(narrowed, one.value)
    return None


def _values(one: Any, kind: str, wanted: type) -> frozenset[Any] | None:
    values = (one.value,) if kind == "EqualTo" else one.value if kind == "In" else None
    if values is None or not all(type(value) is wanted for value in values):
        return None
    return frozenset(values)


def _among(narrowed: Narrowed, column: str, values: frozenset[Any]) -> Narrowed:
    if column == "topic":
        return replace(narrowed, topics=values if narrowed.topics is None else narrowed.topics & values)
    return replace(
        narrowed, partitions=values if narrowed.partitions is None else narrowed.partitions & values
    )


_OFFSETS: dict[str, Callable[[int], tuple[int, int]]] = {
    "EqualTo": lambda offset: (offset, offset + 1),
    "GreaterThan": lambda offset: (offset + 1, _END_OF_ALL),
    "GreaterThanOrEqual": lambda offset: (offset, _END_OF_ALL),
    "LessThan": lambda offset: (0, offset),
    "LessThanOrEqual": lambda offset: (0, offset + 1),
}


def _is_number(value: Any) -> bool:
    return type(value) is int


def _between(narrowed: Narrowed, start: int, end: int) -> Narrowed:
    return replace(narrowed, start=max(narrowed.start, start), end=min(narrowed.end, end))


def _not_before(narrowed: Narrowed, value: Any) -> Narrowed | None:
    # Without a time zone the session's zone counts, which is not known here.
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    first = (value - _EPOCH) // timedelta(milliseconds=1)
    known = narrowed.first_timestamp_ms
    return replace(narrowed, first_timestamp_ms=first if known is None else max(known, first))
