"""Names in requests (of topics, partitions, groups, transactional ids), and the places in responses that have
the error codes of these.

Both follow from the declarations of the messages: a field means what its name says in the list that it is in.
`docs/testing-apis.md` is the table of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.schema import (
    INT32,
    INT64,
    RECORDS,
    ZERO_UUID,
    Array,
    FieldSpec,
    Message,
    Struct,
    copied_as,
    fields_of,
)

TOPIC, TOPIC_ID, PARTITION = "topic", "topic_id", "partition"
GROUP, TRANSACTIONAL_ID = "group", "transactional_id"
KEY, RESOURCE = "key", "resource"
"""Key of FindCoordinator, and resource with configurations: responses name them so."""
KINDS = (TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID)
"""By which a fault chooses."""

_MEANINGS: Mapping[str, str] = {
    "topic": TOPIC,
    "topic_name": TOPIC,
    "topic_id": TOPIC_ID,
    "topic_names": TOPIC,
    "subscribed_topic_names": TOPIC,
    "group_id": GROUP,
    "group_ids": GROUP,
    "groups_names": GROUP,
    "transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "transactional_ids": TRANSACTIONAL_ID,
    "partition_index": PARTITION,
    "partition_indexes": PARTITION,
    "partition_id": PARTITION,
    "coordinator_keys": KEY,
    "key": KEY,
}
"""By the name of a field, wherever it is."""
_IN_LISTS: Mapping[tuple[str, str], str] = {
    **{
        (topics, "name"): TOPIC
        for topics in (
            *("topics", "topic_data", "topic_results", "v3_and_below_topics"),
            "results_by_topic_v3_and_below",
        )
    },
    **{
        (partitions, index): PARTITION
        for partitions in ("partitions", "partition_data", "partition_responses")
        for index in ("partition", "index")
    },
    # A list of numbers.
    ("topics", "partitions"): PARTITION,
    ("topic_partitions", "partitions"): PARTITION,
    ("v3_and_below_topics", "partitions"): PARTITION,
}
"""By the names of a list and of a field of its items."""
_OF_MESSAGES: Mapping[tuple[str, str], str] = {
    ("ProduceResponse", "responses.name"): TOPIC,
    ("CreatePartitionsResponse", "results.name"): TOPIC,
    ("DeleteTopicsResponse", "responses.name"): TOPIC,
    ("AlterPartitionReassignmentsResponse", "responses.name"): TOPIC,
    ("DescribeGroupsRequest", "groups"): GROUP,
}
"""Fields of single messages."""
_WITH_KEYS = ("FindCoordinatorRequest", "FindCoordinatorResponse")
_OF_KEY_TYPES = {0: GROUP, 1: TRANSACTIONAL_ID}
_OF_RESOURCES = {2: TOPIC, 32: GROUP}
_UNKNOWN = ("offset", "watermark", "epoch", "timestamp", "time_ms", "leader_id")
"""Ends of the names of numbers that Kafka's brokers answer with -1 beside an error."""
_ERRORS = ("error_code", "partition_error_code")


class Named(NamedTuple):
    """One thing that a message names, and where it is."""

    values: Mapping[str, Any]
    """By kinds, with those of what it is in."""
    path: tuple[tuple[str, int], ...]
    """A field and a position for each list on the way."""
    known: tuple[frozenset[str], ...]
    """The kinds that are known with each step of the path."""

    def up_to(self, kinds: frozenset[str]) -> Named:
        """The outermost thing around it, or itself, that has all of its own values of these kinds."""
        wanted = kinds & self.values.keys()
        for steps, known in enumerate(self.known, 1):
            if wanted <= known:
                values = {kind: value for kind, value in self.values.items() if kind in known}
                return Named(values, self.path[:steps], self.known[:steps])
        return self


class Place(NamedTuple):
    """Where a response has error codes: the lists on the way, and the kinds of what an item names."""

    lists: tuple[str, ...]
    kinds: frozenset[str]


def meaning_of(message: type[Message], path: tuple[str, ...], field: FieldSpec) -> str | None:
    """The kind of a field at the end of a path of lists; None for all others."""
    found = _OF_MESSAGES.get((message.__name__, ".".join((*path, field.name))))
    if found is None and path:
        found = _IN_LISTS.get((path[-1], field.name))
    found = found or _MEANINGS.get(field.name)
    return None if found == KEY and message.__name__ not in _WITH_KEYS else found


@cache
def kinds_named(message: type[Message]) -> frozenset[str]:
    """The kinds of what messages of this class name, in any version."""
    found = frozenset(_kinds_below(message, message, ()))
    return found | {GROUP, TRANSACTIONAL_ID} if KEY in found else found


def _kinds_below(message: type[Message], struct: type[Struct], path: tuple[str, ...]) -> Iterator[str]:
    for field in fields_of(struct):
        below = _struct_in(field)
        if below is not None:
            yield from _kinds_below(message, below, (*path, field.name))
            continue
        kind = meaning_of(message, path, field)
        if kind is not None:
            yield kind
        if field.name == "resource_name":
            yield from (TOPIC, GROUP, RESOURCE)


def named_in(message: Message) -> list[Named]:
    """All that a message names, from the first to the last. A thing within another one, such as a partition
    of a topic, has the values of both. One that names nothing by lists has one entry, for itself."""
    return list(_named_below(type(message), message, (), Named({}, (), ())))


def _named_below(
    message: type[Message], struct: Struct, lists: tuple[str, ...], around: Named
) -> Iterator[Named]:
    here, is_innermost = _with(around, values_of(message, struct, lists)), True
    for field in fields_of(type(struct)):
        if not isinstance(field.type, Array) or not _names_something(message, (*lists, field.name), field):
            continue
        kind = meaning_of(message, lists, field)
        for number, item in enumerate(getattr(struct, field.name) or ()):
            is_innermost = False
            step = Named(
                here.values, (*here.path, (field.name, number)), (*here.known, frozenset(here.values))
            )
            if isinstance(item, Struct):
                yield from _named_below(message, item, (*lists, field.name), step)
            elif kind is not None:
                yield _with(step, {kind: item, **_key_of(struct, kind, item)})
    if is_innermost:
        yield here


def _with(named: Named, values: Mapping[str, Any]) -> Named:
    """With more values, which are known with its last step."""
    found = {**named.values, **values}
    known = (*named.known[:-1], frozenset(found)) if named.known else ()
    return Named(found, named.path, known)


def _key_of(struct: Any, kind: str, item: Any) -> dict[str, Any]:
    """A group or a transactional id that FindCoordinator looks for."""
    other = _OF_KEY_TYPES.get(struct.key_type) if kind == KEY else None
    return {} if other is None else {other: item}


def values_of(message: type[Message], struct: Any, lists: tuple[str, ...]) -> dict[str, Any]:
    """Values of the single fields of a struct that name something."""
    found: dict[str, Any] = {}
    for field in fields_of(type(struct)):
        kind = None if isinstance(field.type, Array) else meaning_of(message, lists, field)
        value = None if kind is None else getattr(struct, field.name)
        if kind is not None and value not in (None, "", ZERO_UUID):
            found[kind] = value
            if hasattr(struct, "key_type"):
                found |= _key_of(struct, kind, value)
        elif field.name == "resource_name":
            name = struct.resource_name
            found[RESOURCE] = (struct.resource_type, name)
            if struct.resource_type in _OF_RESOURCES:
                found[_OF_RESOURCES[struct.resource_type]] = name
    return found


@cache
def _names_something(message: type[Message], path: tuple[str, ...], field: FieldSpec) -> bool:
    below = _struct_in(field)
    if below is None:
        return meaning_of(message, path[:-1], field) is not None
    return any(True for _ in _kinds_below(message, below, path))


def _struct_in(field: FieldSpec) -> type[Struct] | None:
    """The struct that a list has."""
    item = field.type.item if isinstance(field.type, Array) else None
    return item if isinstance(item, type) else None


# Errors in a response


@cache
def error_places(response: type[Message], version: int) -> tuple[Place, ...]:
    """The outermost first."""
    found = list(_places_below(response, response, version, (), frozenset()))
    return tuple(sorted(found, key=lambda place: len(place.lists)))


def _places_below(
    response: type[Message], struct: type[Struct], version: int, lists: tuple[str, ...], kinds: frozenset[str]
) -> Iterator[Place]:
    fields = [field for field in fields_of(struct) if field.exists_in(version)]
    single = {meaning_of(response, lists, field) for field in fields if not isinstance(field.type, Array)}
    kinds = kinds | {kind for kind in single if kind is not None}
    if any(field.name == "resource_name" for field in fields):
        kinds |= {RESOURCE}
    if any(field.name in _ERRORS for field in fields):
        yield Place(lists, kinds)
    for field in fields:
        below = _struct_in(field)
        if below is not None:
            yield from _places_below(response, below, version, (*lists, field.name), kinds)


def put_error(
    response: Message, place: Place, values: Mapping[str, Any], code: ErrorCode, version: int
) -> None:
    """Gives the response the error for one thing: in place of what it says about that now, or in addition.
    What it says besides the error is as by default."""
    struct: Any = response
    lists: tuple[str, ...] = ()
    for name in place.lists:
        items = getattr(struct, name)
        (field,) = [field for field in fields_of(type(struct)) if field.name == name]
        below = _struct_in(field)
        assert below is not None
        lists = (*lists, name)
        number = _position(type(response), items, lists, values)
        is_last = lists == place.lists
        if number is None or is_last:
            item = _blank(type(response), below, lists, values, version)
            if number is None:
                items.append(item)
            else:
                items[number] = item
            struct = item
        else:
            struct = items[number]
    for field in fields_of(type(struct)):
        if field.exists_in(version):
            if field.name in _ERRORS:
                setattr(struct, field.name, int(code))
            elif field.name == "error_message":
                setattr(struct, field.name, error_message(code))


def _position(
    response: type[Message], items: Iterable[Any], lists: tuple[str, ...], values: Mapping[str, Any]
) -> int | None:
    for number, item in enumerate(items):
        if _is_of(values_of(response, item, lists), values):
            return number
    return None


def _blank(
    response: type[Message],
    struct: type[Struct],
    lists: tuple[str, ...],
    values: Mapping[str, Any],
    version: int,
) -> Any:
    """An item that names `values`; all else is as by default, or unknown."""
    found: dict[str, Any] = {}
    for field in fields_of(struct):
        kind = None if isinstance(field.type, Array) else meaning_of(response, lists, field)
        if kind is not None and kind in values and field.exists_in(version):
            found[field.name] = values[kind]
        elif field.type in (INT32, INT64) and field.name.endswith(_UNKNOWN):
            found[field.name] = -1
        elif field.type is RECORDS:
            found[field.name] = b""  # clients take null for a response that cannot be read
        elif field.name in ("resource_type", "resource_name") and RESOURCE in values:
            found[field.name] = values[RESOURCE][field.name == "resource_name"]
    return struct(**found)


def ordered_as(response: Message, place: Place, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Puts the items of the lists of a place into the order of `wanted`; others come last."""
    _order(type(response), response, place.lists, 0, wanted)


def _order(
    response: type[Message],
    struct: Any,
    lists: tuple[str, ...],
    depth: int,
    wanted: Sequence[Mapping[str, Any]],
) -> None:
    if depth == len(lists):
        return
    items = getattr(struct, lists[depth])

    def place_of(item: Any) -> int:
        known = values_of(response, item, lists[: depth + 1])
        return next((number for number, values in enumerate(wanted) if _is_of(known, values)), len(wanted))

    items.sort(key=place_of)
    for item in items:
        _order(response, item, lists, depth + 1, wanted)


def _is_of(known: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether what an item names is among `values`."""
    return bool(known) and all(values.get(kind, value) == value for kind, value in known.items())


def without(request: Message, items: Iterable[Named]) -> Message:
    """A copy of the request without some of what it names; lists on the way that become empty go, too."""
    left = copied_as(type(request), request)
    for item in sorted(items, key=lambda one: [number for _, number in one.path], reverse=True):
        way: list[Any] = [left]
        for name, number in item.path[:-1]:
            way.append(getattr(way[-1], name)[number])
        for struct, (name, number) in zip(reversed(way), reversed(item.path), strict=True):
            del getattr(struct, name)[number]
            if getattr(struct, name):
                break
    return left
