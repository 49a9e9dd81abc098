"""Parts of the test kit that stand between decoded requests and their handlers: they watch, change, refuse.

The route of an API is given another handler while somebody wants to see its requests, and its own one
afterwards: without a test a response that is encoded costs one question more, and a remembered one nothing.
Meanwhile no request of the API is served by what its connection remembers, so that each is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.declaration import AnyApi, Served

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.server.network.routes import Routes

Proceed = Callable[[Any, "RequestContext"], Any]
"""Serves the request as if there were no test: `response | Waiting | None`."""


class Interposer(Protocol):
    """Sees requests before their handlers, and what these return."""

    def serve(self, api: AnyApi, request: Any, context: RequestContext, proceed: Proceed) -> Any:
        """`response | Waiting | None`, as a handler; `proceed` goes on with the next one that is interposed,
        and at last with the handler, which refuses what the client is not allowed."""

    def sent(self, response: Any, parts: list[Any], size_bytes: int) -> tuple[list[Any], int]:
        """The frame of a response, as buffers and its size: all of it, or what is to be sent in its place."""


class Interposing:
    """Interposers, and the APIs at which each of them is."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._at: dict[Interposer, frozenset[int]] = {}

    def api(self, api_key: int) -> AnyApi:
        """The declaration of an API that is served."""
        return self._routes.served(api_key).api

    def handler(self, api_key: int) -> Any:
        """The handler of an API that is served, with nobody before it."""
        return self._routes.served(api_key).handle

    def put(self, interposer: Interposer, api_keys: Collection[int], *, before_others: bool = False) -> None:
        """Lets it see requests of these APIs from now on, and of no others. The first one that was put is the
        first to see a request, unless another one was put `before_others`."""
        before = self._at.get(interposer, frozenset())
        now = frozenset(api_keys)
        if before_others:
            self._at = {interposer: now, **self._at}
        self._at[interposer] = now
        for api_key in before ^ now:
            wanting = [one for one, keys in self._at.items() if api_key in keys]
            self._routes.interpose(api_key, partial(_Interposed, interposers=wanting) if wanting else None)


class _Interposed(Served):
    """An API with those who are interposed before its handler."""

    _interposers: tuple[Interposer, ...]

    def __init__(self, served: Served, interposers: Sequence[Interposer]) -> None:
        def last(request: Any, context: RequestContext) -> Any:
            return (served.handle_refused if context.refused else served.handle)(request, context)

        proceed: Proceed = last
        for interposer in reversed(interposers):
            proceed = _step(served.api, interposer, proceed)
        super().__init__(served.api, proceed)
        object.__setattr__(self, "_interposers", tuple(interposers))

    def handle_refused(self, request: Any, context: RequestContext) -> Any:
        return self.handle(request, context)

    def sent(self, response: Any, parts: list[Any], size_bytes: int) -> tuple[list[Any], int]:
        """The frame of a response, as those who are interposed want it."""
        for interposer in self._interposers:
            parts, size_bytes = interposer.sent(response, parts, size_bytes)
        return parts, size_bytes


def _step(api: AnyApi, interposer: Interposer, proceed: Proceed) -> Proceed:
    return lambda request, context: interposer.serve(api, request, context, proceed)
