"""What a client needs to be allowed for each API: one row an API. An API without a row is not served.

The connection knows its principal. `server/_pipeline.pyx` calls the authorizer once for every request, before
the handler, with the row of the API, and gives the refused resources to the handler in its context. Without
an authorizer `AllowAll` allows everything.

A row names operations and types of resources, as Kafka does. `names` takes the names from the request;
without it only the handler knows them (the topics of a fetch session, all groups of a list), and asks with
`RequestContext.refused_names`. A need that `is_whole` refuses the whole request (`apis/refusals.py`); all
others are matters of the handler. Where a request is forwarded to the controllers of a cluster, they
authorize it.

Source: KafkaApis of Kafka 4.3, and the table of operations in Kafka's documentation ("Authorization and
ACLs").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode

Names = Callable[[Any], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Need:
    """One operation on resources of one type. `names(request)` returns their names, or the ids of topics."""

    operation: Operation
    resource_type: ResourceType
    names: Names | None = None
    is_whole: bool = False
    """Whether a refusal of one of these resources refuses the whole request, before the handler is called. If
    not, the handler refuses."""
    is_quiet: bool = False
    """Whether a refusal alone means nothing, as something else may be enough: it is not logged."""


Needs = tuple[Need, ...]
Refused = frozenset[tuple[Operation, ResourceType, Any]]
NOTHING_REFUSED: Refused = frozenset()

CODES: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of a refused resource."""


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

    def is_known_to_allow(
        self, connection: Requester, operation: Operation, resource_type: ResourceType, names: Collection[Any]
    ) -> bool:
        """Whether the connection's principal may do this with all of them, as far as the connection was told
        before. False says nothing."""

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

    def is_known_to_allow(
        self, connection: Requester, operation: Operation, resource_type: ResourceType, names: Collection[Any]
    ) -> bool:
        return True

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


def _cluster_if_without(field: str) -> Names:
    """The cluster, where a field is null."""

    def names(request: Any) -> Iterable[str]:
        return (CLUSTER_NAME,) if getattr(request, field) is None else ()

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


def _on_cluster(operation: Operation, *, is_whole: bool = True) -> Needs:
    return (Need(operation, _RES.CLUSTER, _cluster, is_whole=is_whole),)


def _or_on_cluster(operation: Operation) -> Need:
    """Enough where it is allowed; else the other needs of the row count."""
    return Need(operation, _RES.CLUSTER, _cluster, is_quiet=True)


def _group(operation: Operation, names: Names) -> Need:
    return Need(operation, _RES.GROUP, names)


def _the_group(operation: Operation) -> Need:
    """The only group of the request."""
    return Need(operation, _RES.GROUP, _one("group_id"), is_whole=True)


def _topics(operation: Operation, names: Names | None, *, is_quiet: bool = False) -> Need:
    return Need(operation, _RES.TOPIC, names, is_quiet=is_quiet)


def _transactional(operation: Operation, names: Names | None = None, *, is_whole: bool = False) -> Need:
    return Need(operation, _RES.TRANSACTIONAL_ID, names or _one("transactional_id"), is_whole=is_whole)


def _altering_configs() -> Needs:
    return (
        _topics(_OP.ALTER_CONFIGS, _configs_of_type(_TOPIC_CONFIG)),
        _group(_OP.ALTER_CONFIGS, _configs_of_type(_GROUP_CONFIG)),
        Need(_OP.ALTER_CONFIGS, _RES.CLUSTER, _CLUSTER_CONFIGS),
    )


def _fetched_groups(request: Any) -> Iterable[str]:
    """Of OffsetFetch."""
    return [one.group_id for one in request.groups] or [request.group_id]


def _fetched_topics(request: Any) -> Iterable[Any]:
    """Of OffsetFetch, where topics are named: null asks for all."""
    topics = [topic.name for topic in request.topics or ()]
    for group in request.groups:
        topics += [topic.name or topic.topic_id for topic in group.topics or ()]
    return topics


def _transactional_ids(request: Any) -> Iterable[str]:
    """Of AddPartitionsToTxn before version 4; later ones are sent by brokers only. One of those that is empty
    needs no less."""
    return () if request.transactions else (request.v3_and_below_transactional_id,)


def _topics_of_share_groups(request: Any) -> Iterable[str]:
    """Of DescribeShareGroupOffsets, where topics are named: null asks for all."""
    return [topic.topic_name for group in request.groups for topic in group.topics or ()]


def _if_of_brokers(request: Any) -> Iterable[str]:
    """Of AddPartitionsToTxn from version 4 on."""
    return (CLUSTER_NAME,) if request.transactions else ()


def _share_group(request: Any) -> Iterable[str]:
    """Of ShareFetch and ShareAcknowledge. Without a group they are refused as senseless."""
    return () if request.group_id is None else (request.group_id,)


NEEDS: Mapping[int, Needs] = {
    # Records
    0: (
        _transactional(_OP.WRITE),  # if there is a transactional batch
        _topics(_OP.WRITE, _each("topic_data", "name", "topic_id")),
    ),
    1: (  # a session knows topics that the request does not name; a replica needs the cluster instead
        _topics(_OP.READ, None),
        Need(_OP.CLUSTER_ACTION, _RES.CLUSTER),
    ),
    2: (_topics(_OP.DESCRIBE, _each("topics", "name")),),
    21: (_topics(_OP.DELETE, _each("topics", "name")),),
    23: (_or_on_cluster(_OP.CLUSTER_ACTION), _topics(_OP.DESCRIBE, _each("topics", "topic"))),
    61: (_topics(_OP.READ, _each("topics", "name")),),
    # Topics
    3: (_topics(_OP.DESCRIBE, None), _topics(_OP.CREATE, None)),
    19: (
        _or_on_cluster(_OP.CREATE),
        _topics(_OP.CREATE, _each("topics", "name")),
        _topics(_OP.DESCRIBE_CONFIGS, _each("topics", "name"), is_quiet=True),
    ),
    20: (_or_on_cluster(_OP.DELETE), _topics(_OP.DESCRIBE, None), _topics(_OP.DELETE, None)),
    37: (_topics(_OP.ALTER, _each("topics", "name")),),
    75: (_topics(_OP.DESCRIBE, None),),
    # Groups
    8: (_the_group(_OP.READ), _topics(_OP.READ, _each("topics", "name", "topic_id"))),
    9: (_group(_OP.DESCRIBE, _fetched_groups), _topics(_OP.DESCRIBE, _fetched_topics)),
    10: (
        _group(_OP.DESCRIBE, _keys_of_type(0)),
        _transactional(_OP.DESCRIBE, _keys_of_type(1)),
        Need(_OP.CLUSTER_ACTION, _RES.CLUSTER, lambda request: [CLUSTER_NAME] * (request.key_type == 2)),
    ),
    11: (_the_group(_OP.READ),),
    12: (_the_group(_OP.READ),),
    13: (_the_group(_OP.READ),),
    14: (_group(_OP.READ, _one("group_id")),),
    15: (_group(_OP.DESCRIBE, _each("groups")),),
    16: (_or_on_cluster(_OP.DESCRIBE), _group(_OP.DESCRIBE, lambda _: ())),
    42: (_group(_OP.DELETE, _each("groups_names")),),
    47: (_the_group(_OP.DELETE), _topics(_OP.READ, _each("topics", "name"))),
    68: (
        _group(_OP.READ, _one("group_id")),
        _topics(_OP.DESCRIBE, _each("subscribed_topic_names")),
    ),
    69: (_group(_OP.DESCRIBE, _each("group_ids")), _topics(_OP.DESCRIBE, None)),
    88: (_group(_OP.READ, _one("group_id")), _topics(_OP.DESCRIBE, None), _topics(_OP.CREATE, None)),
    89: (_group(_OP.DESCRIBE, _each("group_ids")), _topics(_OP.DESCRIBE, None)),
    # Share groups
    76: (
        _group(_OP.READ, _one("group_id")),
        _topics(_OP.DESCRIBE, _each("subscribed_topic_names")),
    ),
    77: (_group(_OP.DESCRIBE, _each("group_ids")), _topics(_OP.DESCRIBE, None)),
    90: (
        _group(_OP.DESCRIBE, _each("groups", "group_id")),
        _topics(_OP.DESCRIBE, _topics_of_share_groups),
    ),
    91: (_group(_OP.READ, _one("group_id")), _topics(_OP.READ, _each("topics", "topic_name"))),
    92: (_group(_OP.DELETE, _one("group_id")), _topics(_OP.READ, _each("topics", "topic_name"))),
    78: (_group(_OP.READ, _share_group), _topics(_OP.READ, None)),
    79: (_group(_OP.READ, _share_group), _topics(_OP.READ, None)),
    # Transactions
    22: (
        _transactional(_OP.WRITE, is_whole=True),
        Need(_OP.IDEMPOTENT_WRITE, _RES.CLUSTER, _cluster_if_without("transactional_id"), is_quiet=True),
    ),
    24: (
        Need(_OP.CLUSTER_ACTION, _RES.CLUSTER, _if_of_brokers, is_whole=True),
        _transactional(_OP.WRITE, _transactional_ids, is_whole=True),
        _topics(_OP.WRITE, _each("v3_and_below_topics", "name")),
    ),
    25: (_transactional(_OP.WRITE, is_whole=True), _the_group(_OP.READ)),
    26: (_transactional(_OP.WRITE, is_whole=True),),
    27: (_or_on_cluster(_OP.ALTER), Need(_OP.CLUSTER_ACTION, _RES.CLUSTER, _cluster)),
    28: (
        _transactional(_OP.WRITE, is_whole=True),
        _the_group(_OP.READ),
        _topics(_OP.READ, _each("topics", "name")),
    ),
    65: (_transactional(_OP.DESCRIBE, _each("transactional_ids")), _topics(_OP.DESCRIBE, None)),
    66: (_transactional(_OP.DESCRIBE, lambda _: ()),),
    # States of share groups, for brokers
    83: _on_cluster(_OP.CLUSTER_ACTION),
    84: _on_cluster(_OP.CLUSTER_ACTION),
    85: _on_cluster(_OP.CLUSTER_ACTION),
    86: _on_cluster(_OP.CLUSTER_ACTION),
    87: _on_cluster(_OP.CLUSTER_ACTION),
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
    29: _on_cluster(_OP.DESCRIBE, is_whole=False),  # a senseless one of these ends the connection first
    30: _on_cluster(_OP.ALTER, is_whole=False),
    31: _on_cluster(_OP.ALTER, is_whole=False),
    38: (Need(_OP.CREATE_TOKENS, _RES.USER, None),),
    39: (),
    40: (),
    41: (
        Need(_OP.DESCRIBE, _RES.DELEGATION_TOKEN, None),
        Need(_OP.DESCRIBE_TOKENS, _RES.USER, None),
    ),
    48: _on_cluster(_OP.DESCRIBE_CONFIGS),
    49: _on_cluster(_OP.ALTER_CONFIGS),
    50: _on_cluster(_OP.DESCRIBE),
    51: _on_cluster(_OP.ALTER),
}
