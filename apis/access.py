"""What a client needs to be allowed for each API: one row an API. An API without a row is not served.

The connection knows its principal. `server/_pipeline.pyx` calls the authorizer once for every request, before
the handler, with the row of the API. Without an authorizer `AllowAll` allows everything.

A row names operations and types of resources, as Kafka does. `names` takes the names from the request;
without it only the handler knows them (the topics of a fetch session, all groups of a list).

Source: KafkaApis of Kafka 4.3, and the table of operations in Kafka's documentation ("Authorization and
ACLs").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType

Names = Callable[[Any], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Need:
    """One operation on resources of one type. `names(request)` returns their names, or the ids of topics."""

    operation: Operation
    resource_type: ResourceType
    names: Names | None = None
    is_quiet: bool = False
    """Whether a refusal alone means nothing, as something else may be enough: it is not logged."""


Needs = tuple[Need, ...]
Refused = frozenset[tuple[Operation, ResourceType, Any]]
NOTHING_REFUSED: Refused = frozenset()


class Requester(Protocol):
    """The client: a connection as an authorizer sees it."""

    principal: str
    peer_host: str
    granted: Any
    """For the authorizer alone: what it has told this connection. None when the principal changes."""


Resources = list[tuple[Operation, ResourceType, Any]]


class Authorizer(Protocol):
    """Decides whether a connection's principal may do something. A topic's id counts as the name that it
    stands for; one that stands for no topic is not refused, since the handler answers that it is unknown."""

    def refused(self, connection: Requester, needs: Needs, request: Any) -> Refused:
        """The part of `resources(needs, request)` that the connection's principal is not allowed."""

    def refused_of(self, connection: Requester, resources: Resources) -> Refused:
        """The part of `resources` that the connection's principal is not allowed."""

    def left_out(self, connection: Requester, resources: Resources) -> Refused:
        """As `refused_of`, for lists that omit what is refused and for fields with the allowed operations:
        the client did not name these resources, so a refusal is not logged."""

    def may_on_any(self, connection: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of this type with which the principal may do it."""


class AllowAll:
    """Without an authorizer every client may do everything, as in Kafka."""

    __slots__ = ()

    def refused(self, connection: Requester, needs: Needs, request: Any) -> Refused:
        return NOTHING_REFUSED

    def refused_of(self, connection: Requester, resources: Resources) -> Refused:
        return NOTHING_REFUSED

    def left_out(self, connection: Requester, resources: Resources) -> Refused:
        return NOTHING_REFUSED

    def may_on_any(self, connection: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return True


ALLOW_ALL = AllowAll()


def resources(needs: Needs, request: Any) -> Resources:
    """Everything that a request needs, as far as the request itself names it."""
    return [
        (need.operation, need.resource_type, name)
        for need in needs
        if need.names is not None
        for name in need.names(request)
    ]


def check_complete(needs: Mapping[int, Needs | None]) -> None:
    """RuntimeError when one of these APIs has no row; `needs` is by API key."""
    missing = sorted(key for key, row in needs.items() if row is None)
    if missing:
        raise RuntimeError(f"the APIs {missing} have no row in apis/access.py")


# Names that requests have


def _cluster(request: Any) -> Iterable[str]:
    return (CLUSTER_NAME,)


def _each(field: str, name: str = "", other_name: str = "") -> Names:
    """The items of a list: themselves, or their attribute `name`, or where that is empty `other_name`."""

    def names(request: Any) -> Iterable[Any]:
        items = getattr(request, field) or ()
        if not name:
            return items
        if not other_name:
            return [getattr(item, name) for item in items]
        return [getattr(item, name) or getattr(item, other_name) for item in items]

    return names


def _one(field: str) -> Names:
    """The value of a field; nothing where it is null."""

    def names(request: Any) -> Iterable[Any]:
        value = getattr(request, field)
        return () if value is None else (value,)

    return names


def _nested(outer: str, inner: str, name: str) -> Names:
    def names(request: Any) -> Iterable[Any]:
        return [getattr(item, name) for one in getattr(request, outer) for item in getattr(one, inner)]

    return names


def _either(first: Names, second: Names) -> Names:
    """The names that `first` and `second` find: requests of old and new versions differ."""

    def names(request: Any) -> Iterable[Any]:
        return [*first(request), *second(request)]

    return names


def _keys_of_type(key_type: int) -> Names:
    """Of FindCoordinator."""

    def names(request: Any) -> Iterable[str]:
        if request.key_type != key_type:
            return ()
        return request.coordinator_keys or (request.key,)

    return names


def _configs_of_type(*types: int, named: bool = True) -> Names:
    """For requests about settings. The settings of brokers belong to the cluster."""

    def names(request: Any) -> Iterable[str]:
        found = [one.resource_name for one in request.resources if one.resource_type in types]
        return found if named else [CLUSTER_NAME] * bool(found)

    return names


_TOPIC_CONFIG, _BROKER_CONFIG, _LOGGER_CONFIG, _METRICS_CONFIG, _GROUP_CONFIG = 2, 4, 8, 16, 32
_CLUSTER_CONFIGS = _configs_of_type(_BROKER_CONFIG, _LOGGER_CONFIG, _METRICS_CONFIG, named=False)

_OP, _RES = Operation, ResourceType


def _on_cluster(operation: Operation) -> Needs:
    return (Need(operation, _RES.CLUSTER, _cluster),)


def _group(operation: Operation, names: Names | None = None) -> Need:
    return Need(operation, _RES.GROUP, names or _one("group_id"))


def _topics(operation: Operation, names: Names | None) -> Need:
    return Need(operation, _RES.TOPIC, names)


def _transactional(operation: Operation, names: Names | None = None) -> Need:
    return Need(operation, _RES.TRANSACTIONAL_ID, names or _one("transactional_id"))


def _altering_configs() -> Needs:
    return (
        _topics(_OP.ALTER_CONFIGS, _configs_of_type(_TOPIC_CONFIG)),
        _group(_OP.ALTER_CONFIGS, _configs_of_type(_GROUP_CONFIG)),
        Need(_OP.ALTER_CONFIGS, _RES.CLUSTER, _CLUSTER_CONFIGS),
    )


def _fetched_topics(request: Any) -> Iterable[Any]:
    """Of OffsetFetch, where topics are named: null asks for all."""
    topics = [topic.name for topic in request.topics or ()]
    for group in request.groups:
        topics += [topic.name or topic.topic_id for topic in group.topics or ()]
    return topics


NEEDS: Mapping[int, Needs] = {
    # Records
    0: (
        _transactional(_OP.WRITE),
        _topics(_OP.WRITE, _each("topic_data", "name", "topic_id")),
    ),
    1: (_topics(_OP.READ, None),),  # a session knows topics that the request does not name
    2: (_topics(_OP.DESCRIBE, _each("topics", "name")),),
    21: (_topics(_OP.DELETE, _each("topics", "name")),),
    23: (_topics(_OP.DESCRIBE, _each("topics", "topic")),),
    61: (_topics(_OP.READ, _each("topics", "name")),),
    # Topics
    3: (_topics(_OP.DESCRIBE, None), _topics(_OP.CREATE, None)),
    19: (*_on_cluster(_OP.CREATE), _topics(_OP.CREATE, _each("topics", "name"))),
    20: (_topics(_OP.DELETE, _either(_each("topic_names"), _each("topics", "name", "topic_id"))),),
    37: (_topics(_OP.ALTER, _each("topics", "name")),),
    75: (_topics(_OP.DESCRIBE, None),),
    # Groups
    8: (_group(_OP.READ), _topics(_OP.READ, _each("topics", "name", "topic_id"))),
    9: (
        _group(_OP.DESCRIBE, lambda request: [one.group_id for one in request.groups] or [request.group_id]),
        _topics(_OP.DESCRIBE, _fetched_topics),
    ),
    10: (
        _group(_OP.DESCRIBE, _keys_of_type(0)),
        _transactional(_OP.DESCRIBE, _keys_of_type(1)),
    ),
    11: (_group(_OP.READ),),
    12: (_group(_OP.READ),),
    13: (_group(_OP.READ),),
    14: (_group(_OP.READ),),
    15: (_group(_OP.DESCRIBE, _each("groups")),),
    16: (*_on_cluster(_OP.DESCRIBE), _group(_OP.DESCRIBE, lambda _: ())),
    42: (_group(_OP.DELETE, _each("groups_names")),),
    47: (_group(_OP.DELETE), _topics(_OP.READ, _each("topics", "name"))),
    68: (_group(_OP.READ), _topics(_OP.DESCRIBE, _each("subscribed_topic_names"))),
    69: (_group(_OP.DESCRIBE, _each("group_ids")), _topics(_OP.DESCRIBE, None)),
    88: (_group(_OP.READ), _topics(_OP.DESCRIBE, None), _topics(_OP.CREATE, None)),
    89: (_group(_OP.DESCRIBE, _each("group_ids")), _topics(_OP.DESCRIBE, None)),
    # Transactions
    22: (_transactional(_OP.WRITE), Need(_OP.IDEMPOTENT_WRITE, _RES.CLUSTER, None)),
    24: (
        _transactional(
            _OP.WRITE,
            lambda request: (
                [one.transactional_id for one in request.transactions]
                or [request.v3_and_below_transactional_id]
            ),
        ),
        _topics(
            _OP.WRITE,
            _either(
                _each("v3_and_below_topics", "name"),
                _nested("transactions", "topics", "name"),
            ),
        ),
    ),
    25: (_transactional(_OP.WRITE), _group(_OP.READ)),
    26: (_transactional(_OP.WRITE),),
    27: _on_cluster(_OP.CLUSTER_ACTION),
    28: (
        _transactional(_OP.WRITE),
        _group(_OP.READ),
        _topics(_OP.READ, _each("topics", "name")),
    ),
    65: (_transactional(_OP.DESCRIBE, _each("transactional_ids")),),
    66: (_transactional(_OP.DESCRIBE, lambda _: ()),),
    # Settings
    32: (
        _topics(_OP.DESCRIBE_CONFIGS, _configs_of_type(_TOPIC_CONFIG)),
        _group(_OP.DESCRIBE_CONFIGS, _configs_of_type(_GROUP_CONFIG)),
        Need(_OP.DESCRIBE_CONFIGS, _RES.CLUSTER, _CLUSTER_CONFIGS),
    ),
    33: _altering_configs(),
    44: _altering_configs(),
    71: (),
    72: (),
    74: _on_cluster(_OP.DESCRIBE_CONFIGS),
    # The cluster
    34: _on_cluster(_OP.ALTER),
    35: _on_cluster(_OP.DESCRIBE),
    43: _on_cluster(_OP.ALTER),
    45: _on_cluster(_OP.ALTER),
    46: _on_cluster(_OP.DESCRIBE),
    55: _on_cluster(_OP.DESCRIBE),
    57: _on_cluster(_OP.ALTER),
    60: (Need(_OP.DESCRIBE, _RES.CLUSTER, None),),  # needed only for the list of operations
    64: _on_cluster(_OP.ALTER),
    80: _on_cluster(_OP.ALTER),
    81: _on_cluster(_OP.ALTER),
    # Security
    17: (),
    18: (),
    36: (),
    29: _on_cluster(_OP.DESCRIBE),
    30: _on_cluster(_OP.ALTER),
    31: _on_cluster(_OP.ALTER),
    38: (Need(_OP.CREATE_TOKENS, _RES.USER, None),),
    39: (),
    40: (),
    41: (Need(_OP.DESCRIBE, _RES.DELEGATION_TOKEN, None),),
    48: _on_cluster(_OP.DESCRIBE_CONFIGS),
    49: _on_cluster(_OP.ALTER_CONFIGS),
    50: _on_cluster(_OP.DESCRIBE),
    51: _on_cluster(_OP.ALTER),
}
