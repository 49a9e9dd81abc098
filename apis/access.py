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
from functools import cache
from typing import Any, Protocol

from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode

Names = Callable[[Any], Iterable[Any]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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


Resources = Mapping[tuple[Operation, ResourceType], Collection[Any]]
"""Names of resources, or ids of topics, by operation and type."""
ANY = None
"""In place of a name: whichever resource of the type is allowed."""


class Authorizer(Protocol):
    """Decides what a connection's principal may do. A topic's id counts as the name that it stands for; one
    that stands for no topic is not refused, since the handler says that it is unknown."""

    def refused(self, connection: Requester, needs: Needs, request: Any) -> Refused:
        """The part of `resources(needs, request)` that is not allowed. Each refusal is logged."""

    def hidden(self, connection: Requester, resources: Resources) -> Refused:
        """The part of `resources` that is not allowed. Not logged: no request names these resources, a list
        omits them, or a field says what is allowed."""


class AllowAll:
    """Without an authorizer every client may do everything, as in Kafka."""

    __slots__ = ()

    def refused(self, connection: Requester, needs: Needs, request: Any) -> Refused:
        return NOTHING_REFUSED

    def hidden(self, connection: Requester, resources: Resources) -> Refused:
        return NOTHING_REFUSED


ALLOW_ALL = AllowAll()


def resources(needs: Needs, request: Any) -> Resources:
    """Everything that a request needs, as far as the request itself names it."""
    named: dict[tuple[Operation, ResourceType], list[Any]] = {}
    for need in needs:
        if need.names is not None:
            named.setdefault((need.operation, need.resource_type), []).extend(need.names(request))
    return named


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


def themselves(names: Collection[Any]) -> Collection[Any]:
    """The names that a handler asks about, in place of a request."""
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


@cache
def need_of(operation: Operation, resource_type: ResourceType) -> Need:
    """Need with names that only the handler knows."""
    return Need(operation, resource_type, themselves)
