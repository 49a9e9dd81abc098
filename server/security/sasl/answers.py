"""The answers of the exchange that other APIs make: ApiVersions before authentication, and refusals.

A request in the middle of an authentication is refused in the form of its own response, where that has an
error code for the whole request, or one for each item that is known here. Another one gets no answer: its
connection closes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.apis.api import RequestContext
from odradek.apis.refusals import has_place_for_code, refuse
from odradek.wire.codec import decoder
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import API_VERSIONS, RequestHeader, response_parts
from odradek.wire.messages import find
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from odradek.server.connection import Connection
    from odradek.server.routes import Routes

__all__ = ["Answers"]


class Answers:
    """Of one connection; implements `exchange.Versions`."""

    def __init__(self, routes: Routes, connection: Connection) -> None:
        self._routes = routes
        self._connection = connection

    def answer(self, header: RequestHeader, frame: bytes, position: int) -> tuple[bytes, bool]:
        """See `exchange.Versions`."""
        api = self._routes.api(API_VERSIONS)
        if header.api_version not in api.versions:
            return self._routes.refuse_version(header.correlation_id), False
        request = _decoded(api.request, header.api_version, frame, position)
        connection = self._connection
        context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            connection,
            connection.requests.active_ms,
        )
        response = api.handle(request, context)
        return _encoded(response, header), response.error_code == ErrorCode.NONE

    def refusal(self, header: RequestHeader, frame: bytes, position: int, code: ErrorCode) -> bytes | None:
        """See `exchange.Versions`."""
        try:
            request_class, _ = find(header.api_key)
        except LookupError:
            raise MalformedMessage(f"there is no API {header.api_key}") from None
        if header.api_version not in request_class.versions:
            raise MalformedMessage(f"{request_class.__name__} has no version {header.api_version}")
        request = _decoded(request_class, header.api_version, frame, position)
        if not has_place_for_code(header.api_key, header.api_version):
            return None
        return _encoded(refuse(request, header.api_version, code), header)


def _decoded(request_class: Any, version: int, frame: bytes, position: int) -> Any:
    return decoder(request_class, version)(memoryview(frame), position)[0]


def _encoded(response: Message, header: RequestHeader) -> bytes:
    return b"".join(response_parts(response, header.api_version, header.correlation_id))
