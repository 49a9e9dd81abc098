"""Permissions of clients: the needs that each API declares (`apis/declaration.py`).

The connection knows its principal. `server/network/requests.pxi` calls the authorizer once for every
request, before the handler, with the needs of the API, and gives the refused resources to the handler in its
context. Without an authorizer `AllowAll` allows everything.

A need names an operation and a type of resources, as Kafka does. `names` takes the names from the request;
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
        """The same part as from `refused_of`, for lists that omit what is refused and for fields with the
        allowed operations: the client did not name these resources, so a refusal is not logged."""

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


# Names that requests have


def the_cluster(request: Any) -> Iterable[str]:
    """The cluster's name, whatever is asked."""
    return (CLUSTER_NAME,)


def each(field: str, name: str = "", other_name: str = "") -> Names:
    """The items of a list: themselves, or their attribute `name`, or where that is empty `other_name`."""

    def names(request: Any) -> Iterable[Any]:
        items = getattr(request, field) or ()
        if not name:
            return items
        if not other_name:
            return [getattr(item, name) for item in items]
        return [getattr(item, name) or getattr(item, other_name) for item in items]

    return names


def only(field: str) -> Names:
    """The value of a field; nothing where it is null."""

    def names(request: Any) -> Iterable[Any]:
        value = getattr(request, field)
        return () if value is None else (value,)

    return names


# Needs that several APIs have


def on_cluster(operation: Operation, *, is_whole: bool = True) -> Need:
    """Need of an operation on the cluster: mostly all of the request needs it."""
    return Need(operation, ResourceType.CLUSTER, the_cluster, is_whole=is_whole)


def or_on_cluster(operation: Operation) -> Need:
    """Need that is enough where it is allowed; else the other needs of the API count."""
    return Need(operation, ResourceType.CLUSTER, the_cluster, is_quiet=True)


def on_groups(operation: Operation, names: Names) -> Need:
    """Need of an operation on groups; the handler refuses those that are not allowed."""
    return Need(operation, ResourceType.GROUP, names)


def the_group(operation: Operation) -> Need:
    """Need of an operation on the only group of the request."""
    return Need(operation, ResourceType.GROUP, only("group_id"), is_whole=True)


def on_topics(operation: Operation, names: Names | None, *, is_quiet: bool = False) -> Need:
    """Need of an operation on topics; `names` is None where only the handler knows them."""
    return Need(operation, ResourceType.TOPIC, names, is_quiet=is_quiet)


def on_transactional_ids(operation: Operation, names: Names, *, is_whole: bool = False) -> Need:
    """Need of an operation on transactional ids."""
    return Need(operation, ResourceType.TRANSACTIONAL_ID, names, is_whole=is_whole)


def the_transactional_id(operation: Operation) -> Need:
    """Need of an operation on the only transactional id of the request."""
    return on_transactional_ids(operation, only("transactional_id"), is_whole=True)
