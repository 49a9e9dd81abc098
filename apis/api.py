"""The parts of a handler: the context of a request, a response that comes later.

A handler is a plain function `handle(request, context)`. It returns the response message, or None when the
client expects no response (Produce with acks=0), or a `Waiting`. It never blocks and starts no task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.apis.access import (
    ALLOW_ALL,
    NOTHING_REFUSED,
    Authorizer,
    Refused,
    need_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from odradek.apis.turn import WorkQueue
    from odradek.wire.acl_types import Operation, ResourceType
    from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse
    from odradek.wire.work import Work


logger = logging.getLogger("odradek.apis")
Item = TypeVar("Item")


class ConnectionInfo(Protocol):
    """The connection of a request, as far as a handler may read and change it."""

    peer_host: str
    """Address of the client, without the port."""
    peer_port: int
    local_host: str
    """Address at which the client reached us (getsockname)."""
    local_port: int
    advertised_host: str
    """The address of this node for this client: advertised.listeners of the connection's listener, or the
    local address when none is set. Metadata, FindCoordinator and DescribeCluster return it."""
    advertised_port: int
    listener_name: str
    principal: str
    """`User:ANONYMOUS` until a client has authenticated."""
    granted: Any
    """For the authorizer alone (`apis/access.py`)."""
    is_token: bool
    """Whether it has authenticated with a delegation token of `principal`."""
    client_software_name: str
    """Written by the ApiVersions handler from version 3 on (KIP-511); `unknown` before."""
    client_software_version: str

    def begin_reauthentication(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """A handshake of a client that has authenticated: the response, behind which SASL frames come; None
        where it cannot authenticate again."""

    def when_closed(self, callback: Callable[[Any], None]) -> None:
        """Calls `callback` once with this connection when it is closed, however often it was given."""

    def close(self, reason: str) -> None:
        """Closes the connection after one log line with the reason; Produce with acks=0 has no other way to
        refuse."""


@dataclass(slots=True, eq=False)
class RequestContext:
    """The request's header and connection. Handlers read it and keep no reference after their response."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    connection: ConnectionInfo
    now_ms: int
    """The clock when the request was read, milliseconds since 1970."""
    refused: Refused = NOTHING_REFUSED
    """The needed resources that the client's principal is not allowed."""
    authorizer: Authorizer = ALLOW_ALL
    """For resources that the request does not name."""
    is_forwarded: bool = False
    """Whether a broker has brought the request to this controller, in an Envelope."""

    def refuses(self, operation: Operation, resource_type: ResourceType, name: Any) -> bool:
        """Whether the client may not do this. Only for names that the API's needs take from the request;
        for a topic that it names by id, the id."""
        return bool(self.refused) and (operation, resource_type, name) in self.refused

    def refused_names(
        self, operation: Operation, resource_type: ResourceType, names: Collection[str]
    ) -> Collection[str]:
        """Refused ones among names that the client's request stands for. Each refusal is logged."""
        if self.authorizer is ALLOW_ALL:
            return ()
        needs = (need_of(operation, resource_type),)
        return {name for _, _, name in self.authorizer.refused(self.connection, needs, names)}

    def hidden_names(
        self, operation: Operation, resource_type: ResourceType, names: Collection[str]
    ) -> Collection[str]:
        """Refused ones among names that the client has not told: a list omits them."""
        if self.authorizer is ALLOW_ALL:
            return ()
        wanted = {(operation, resource_type): names}
        return {name for _, _, name in self.authorizer.hidden(self.connection, wanted)}


class Waiting:
    """A response that comes later: the handler makes it, keeps it, and calls `complete` once.

    `clean_up` runs when the connection closes before the response: the place to unwatch partitions and to
    cancel timers. It does not run after `complete`.
    """

    __slots__ = ("_clean_up", "_deliver", "_response", "_settled")

    holds_back = False
    """Whether no later request may begin before this response, not even one of an API that may overlap. Such
    a response depends on work of the broker only, not on the client."""

    def __init__(self, clean_up: Callable[[], None] | None = None) -> None:
        self._clean_up = clean_up
        self._deliver: Callable[[Any], None] | None = None
        self._response: Any = None
        self._settled = False

    @property
    def settled(self) -> bool:
        """True once completed or cancelled."""
        return self._settled

    def complete(self, response: Any) -> None:
        """Hands over the response message; None sends nothing. Harmless after `cancel`."""
        if self._settled:
            return
        self._settled = True
        self._clean_up = None
        deliver = self._deliver
        if deliver is None:
            self._response = response
        else:
            self._deliver = None
            deliver(response)

    def on_complete(self, deliver: Callable[[Any], None]) -> None:
        """For the connection: `deliver(response)` is called once; at once if the response is there."""
        if self._settled:
            response, self._response = self._response, None
            deliver(response)
        else:
            self._deliver = deliver

    def cancel(self) -> None:
        """For the connection: it was closed. Runs the handler's clean-up, once."""
        if self._settled:
            return
        self._settled = True
        self._deliver = None
        clean_up, self._clean_up = self._clean_up, None
        if clean_up is not None:
            clean_up()


class HeldBack(Waiting):
    """The response to a request that later ones of its connection must not overtake."""

    __slots__ = ()

    holds_back = True

    def leave_to(self, response: Waiting) -> None:
        """Waits for `response` from now on."""
        if self.settled:
            response.cancel()
        else:
            self._clean_up = response.cancel
            response.on_complete(self.complete)


class WorkResponse(Waiting):
    """The response to a request whose work may take many turns of the event loop.

    Later requests of the connection are served after it: they may rely on its result. The work goes on when
    the connection closes.
    """

    __slots__ = ("_context",)

    holds_back = True

    def __init__(
        self,
        queue: WorkQueue,
        work: Work[Any],
        context: RequestContext,
        clean_up: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(clean_up)
        self._context = context
        queue.run(work, self._done, self._failed)

    def _done(self, response: Any) -> None:
        """The work has ended."""
        self.complete(response)

    def _failed(self, error: Exception) -> None:
        """Refusals became responses before: this is a bug, and is treated as a bug in a handler."""
        logger.error(
            "API key %d version %d failed", self._context.api_key, self._context.api_version, exc_info=error
        )
        self._context.connection.close("internal error")
        self.complete(None)


class LatePart:
    """A part of a response that is made while the response is sent, piece by piece, since it is too large for
    memory. Its size is known before.

    `make` returns a work for the next piece. No piece is empty; all together have `size_bytes`.
    """

    __slots__ = ("_is_making", "_left_bytes", "_make", "_queue")

    def __init__(self, queue: WorkQueue, make: Callable[[], Work[Any]], size_bytes: int) -> None:
        self._queue = queue
        self._make = make
        self._left_bytes = size_bytes
        self._is_making = False

    def __len__(self) -> int:
        """The number of bytes that were not delivered yet."""
        return self._left_bytes

    def ask(self, deliver: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Makes the next piece and calls `deliver` with it, perhaps before this returns. No effect while a
        piece is being made. After `failed` the response cannot be completed."""
        if self._is_making:
            return
        assert self._left_bytes > 0

        def done(piece: Any) -> None:
            self._is_making = False
            self._left_bytes -= len(piece)
            assert self._left_bytes >= 0
            deliver(piece)

        self._is_making = True
        self._queue.run(self._make(), done, failed)


Handler = Callable[[Any, RequestContext], Any]


def split(
    context: RequestContext, items: Iterable[Item], is_refused: Callable[[Item], bool]
) -> tuple[list[Item], list[Item]]:
    """The refused items and the others, each in their order."""
    refused: list[Item] = []
    if not context.refused:
        return refused, list(items)
    allowed: list[Item] = []
    for item in items:
        (refused if is_refused(item) else allowed).append(item)
    return refused, allowed
