"""The declaration of an API, with which its module ends: all that others have to know of it.

    API = Api(
        HeartbeatRequest,
        HeartbeatResponse,
        make=lambda parts: Heartbeat(parts.node.groups),
        needs=(the_group(READ),),
    )

A module with several APIs ends with `APIS`, a tuple of them. `apis/table.py` finds a declaration by its key
when the first request comes; an extension gives its own to the broker (`server/extensions.py`). Versions are
those of the messages.

The class of a declaration says which roles serve the API, and so of which parts its handler may be made: an
`Api` is for brokers, a `SharedApi` for brokers and controllers, a `ControllerApi` (`controller/parts.py`) for
controllers. The table says the same without an import; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from odradek.apis.node import DecidingParts, NodeParts
from odradek.apis.refusals import ONE_CODE, Refusal, refusal_of_whole

if TYPE_CHECKING:
    from odradek.apis.access import Needs
    from odradek.apis.api import Handler, RequestContext
    from odradek.apis.node import HandlerParts
    from odradek.apis.prefixes import Prefix
    from odradek.wire.errors import ErrorCode
    from odradek.wire.schema import Message


class Forwarding(Enum):
    """Handling of requests that the controllers carry out, at a node of a cluster (`apis/forwarding.py`)."""

    NONE = 0
    """Serves them itself, as a node alone does."""
    AS_IT_COMES = 1
    """Forwards them before anything else. The controllers authorize them, with rules that the node may not
    have yet; so nothing is needed here, and `make` is called on a node alone only."""
    AFTER_CHECKS = 2
    """Checks them and forwards what is left: the handler does it, where the node has `forward`."""


class Charge(IntEnum):
    """When a request counts for the quotas of its client."""

    WITH_RESPONSE = 0
    """When the response is encoded."""
    WHEN_HANDLED = 1
    """When the handler returns, with the bytes of the request: others may begin before its response."""
    BY_HANDLER = 2
    """The handler charges for it, if it counts at all."""


Node = TypeVar("Node", bound=DecidingParts, contravariant=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Declaration(Generic[Node]):
    """An API: its messages, its handler, and what holds for each of its requests."""

    request: type[Message]
    response: type[Message]
    make: Callable[[HandlerParts[Node]], Handler]
    """Makes the handler of a node, `(request, context) -> response | Waiting | None`. A handler with an
    attribute `prefix` says how its requests repeat themselves, if they are worth remembering."""
    needs: Needs
    """Permissions that a client needs (`apis/access.py`). The pipeline asks the authorizer once for each
    request, before the handler, and gives the refused resources to the handler in its context."""
    overlaps: tuple[type[Message], ...] = ()
    """The requests that may begin on the same connection before this one is answered. Promise: each response
    is the same as if the client had waited for the one before it. Kafka keeps it by handling one request of a
    connection at a time; it reads the next one after it has sent the response, also after a long poll or a
    join, and after Produce with acks=0. So here are only those with which no client can see a difference, and
    which save time because they share one commit or one flush. (Kafka's protocol guide; SocketServer of Kafka
    4.3: a channel is muted until its response is sent.)"""
    changes: bool = False
    """Whether it changes topics, settings, groups, rules, quotas, users or tokens (`apis/audit.py`)."""
    forwarded: Forwarding = Forwarding.NONE
    refusal: Refusal = ONE_CODE
    """The form of a response that refuses all that a request names."""
    charge: Charge = Charge.WITH_RESPONSE

    @property
    def versions(self) -> range:
        """The served versions. Any other closes the connection, as in Kafka; ApiVersions gets error 35."""
        return self.request.versions

    def refuse(self, request: Message, version: int, code: ErrorCode) -> Any:
        """The response to a request of this version that refuses everything that it names."""
        return self.refusal.response(self.response, request, version, code)


class Api(Declaration[NodeParts]):
    """An API that brokers serve."""

    __slots__ = ()


class SharedApi(Declaration[DecidingParts]):
    """An API that brokers and controllers serve, with the same handler."""

    __slots__ = ()


AnyApi: TypeAlias = Declaration[Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Served:
    """An API with its handler of one node."""

    api: AnyApi
    handle: Handler
    prefix: Prefix[Any] | None = None
    last_version: int | None = None
    """The last version that is served; None: all that the API has."""

    @property
    def versions(self) -> range:
        """The served versions, of which ApiVersions tells."""
        versions = self.api.versions
        return versions if self.last_version is None else versions[: self.last_version - versions.start + 1]

    def handle_refused(self, request: Any, context: RequestContext) -> Any:
        """The response to a request of which something is refused: a refusal of all of it if any refused need
        `is_whole`, otherwise the handler's."""
        code = refusal_of_whole(self.api.needs, request, context)
        if code is None:
            return self.handle(request, context)
        return self.api.refuse(request, context.api_version, code)
