"""Checks of every request before a screen sees it, and headers of every response.

A foreign `Host` gets 421: a page of another site, whose name was made to lead here (DNS rebinding), reaches
nothing. Addresses cannot be made to, so they are always right. A change has to come from a page of this
console: its `Origin` is the host that was asked.
"""

import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers would send the Origin "null" with forms then.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
PATH_CHARACTERS_MAX = 2_000
"""Longest path; what is long stands in the query."""
METHODS: Final = ("GET", "HEAD", "POST")


class Gate:
    """An ASGI middleware, around all else."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if not self._is_known(Headers(scope=scope).getlist("host")):
            refused = PlainTextResponse(
                "This console does not know itself by the name that was asked for; --host NAME tells it.\n",
                421,
            )
            await refused(scope, receive, send_with_headers)
        elif len(scope["path"]) > PATH_CHARACTERS_MAX:
            await PlainTextResponse("The address is too long.\n", 414)(scope, receive, send_with_headers)
        elif scope["method"] not in METHODS:
            await PlainTextResponse("Only GET and POST.\n", 405)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _is_known(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        name = host_name(hosts[0])
        return name is not None and (name == "localhost" or name in self._hosts or _is_address(name))


def host_name(host: str) -> str | None:
    """The name in a Host header, in lower case and without its port; None for one that is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    if parts.path or parts.query or parts.fragment or parts.username is not None or not parts.hostname:
        return None
    return parts.hostname


def is_own_origin(headers: Headers) -> bool:
    """Whether a browser sent this from a page of the host that it asks. The scheme is not compared: a proxy
    with TLS may stand before the console."""
    origin, host = headers.get("origin", ""), headers.get("host", "")
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and bool(host) and rest.lower() == host.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
