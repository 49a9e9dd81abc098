"""Fetches of replicas that are served without their handler (`server/cluster/_exchange.pyi`) need this of
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext, Waiting
    from odradek.apis.fetch_sessions import FetchSession, FetchSessionCache
    from odradek.apis.leadership import Leadership
    from odradek.apis.replicas import FetchingReplica
    from odradek.wire.messages.fetch import FetchResponse


class FetchHandler(Protocol):
    """Implemented by `apis/fetch.py`."""

    @property
    def leadership(self) -> Leadership: ...

    @property
    def sessions(self) -> FetchSessionCache: ...

    @property
    def max_bytes(self) -> int:
        """`fetch.max.bytes`"""

    def go_on(
        self,
        session: FetchSession,
        replica: FetchingReplica,
        context: RequestContext,
        max_bytes: int,
        wait_ms: int,
    ) -> FetchResponse | Waiting:
        """The response to a request of that session that has been noted in place, and may still wait so long.
        `context` is of an earlier request."""
