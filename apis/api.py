"""What an API is to the rest: messages, handler, the context of a request, an answer that comes later.

A handler is a plain function `handle(request, context)`. It returns the response message, or None when the
client expects no answer (Produce with acks=0), or a `Waiting`. It never blocks and starts no task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.access import NOTHING_REFUSED, Needs, Refused

if TYPE_CHECKING:
    from odradek.apis.prefixes import Prefix
    from odradek.apis.turn import WorkQueue
    from odradek.wire.schema import Message
    from odradek.wire.work import Work


logger = logging.getLogger("odradek.apis")


class ConnectionInfo(Protocol):
    """What a handler may know of, and write to, the connection that a request came over."""

    peer_host: str
    """Address of the client, without the port."""
    local_host: str
    """Address at which the client reached us (getsockname)."""
    local_port: int
    advertised_host: str
    """Where this client is to find this node: advertised.listeners of the connection's listener,
    or the local address when none is set. Metadata, FindCoordinator and DescribeCluster answer it."""
    advertised_port: int
    listener_name: str
    principal: str
    """`User:ANONYMOUS` until a client has proved another name."""
    client_software_name: str
    """Written by the ApiVersions handler from version 3 on (KIP-511); `unknown` before."""
    client_software_version: str

    def close(self, reason: str) -> None:
        """Closes the connection after one log line that says why; Produce with acks=0 has no other
        way to refuse."""


@dataclass(slots=True)
class RequestContext:
    """The request's header and surroundings. Handlers read it and keep no reference past their answer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    connection: ConnectionInfo
    now_ms: int
    """The clock when the request was read, milliseconds since 1970."""
    refused: Refused = NOTHING_REFUSED
    """What the client's principal is not allowed, of all that the request needs."""


class Waiting:
    """An answer that comes later: the handler makes it, keeps it, and calls `complete` once.

    `clean_up` runs when the peer is gone before the answer came: the place to unwatch partitions and to
    cancel timers. It does not run after `complete`.
    """

    __slots__ = ("_clean_up", "_deliver", "_response", "_settled")

    holds_back = False
    """Whether no later request may begin before this answer, not even one that may overlap its API. The
    answer comes when work of ours has ended, whatever the client does."""

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
        """For the connection: the peer is gone. Runs the handler's clean-up, once."""
        if self._settled:
            return
        self._settled = True
        self._deliver = None
        clean_up, self._clean_up = self._clean_up, None
        if clean_up is not None:
            clean_up()


class WorkAnswer(Waiting):
    """The answer of a request whose work may take many turns of the event loop.

    Later requests of the connection are served after it: they may count on what it has done. When the
    client goes, the work goes on.
    """

    __slots__ = ("_context",)

    holds_back = True

    def __init__(self, queue: WorkQueue, work: Work[Any], context: RequestContext) -> None:
        super().__init__()
        self._context = context
        queue.run(work, self.complete, self._failed)

    def _failed(self, error: Exception) -> None:
        """Refusals have become answers: this is a bug, and ends as one in a handler does."""
        logger.error(
            "API key %d version %d failed", self._context.api_key, self._context.api_version, exc_info=error
        )
        self._context.connection.close("internal error")
        self.complete(None)


class LatePart:
    """A part of an answer that is made while the answer is sent, piece by piece: its bytes are too many to
    exist all at once. How many they are is known before.

    `make` gives a work for each next piece, never an empty one, and of all of them `size_bytes`.
    """

    __slots__ = ("_is_making", "_left_bytes", "_make", "_queue")

    def __init__(self, queue: WorkQueue, make: Callable[[], Work[Any]], size_bytes: int) -> None:
        self._queue = queue
        self._make = make
        self._left_bytes = size_bytes
        self._is_making = False

    def __len__(self) -> int:
        """The bytes that have not been handed out yet."""
        return self._left_bytes

    def ask(self, deliver: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Has the next piece made, which `deliver` is called with: perhaps from within. Harmless while it is
        being made. After `failed` the answer cannot be sent to its end."""
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


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the list of what is served: nothing is advertised that is not here."""

    request: type[Message]
    response: type[Message]
    handle: Handler
    """`(request, context) -> response | Waiting | None`"""
    versions: range
    """Versions served. Any other closes the connection, as Kafka does; ApiVersions gets error 35 instead."""
    needs: Needs | None = None
    """What a client has to be allowed; an API for which nobody has said it is not served."""
    prefix: Prefix[Any] | None = None
    """What is remembered of its requests, where that is worth it."""
    overlaps: frozenset[int] = frozenset()
    """The API keys of later requests of the connection that may begin before this one is answered."""
