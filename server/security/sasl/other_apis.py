"""The responses of the exchange that other APIs make: ApiVersions before authentication, and refusals.

A request in the middle of an authentication is refused in the form of its own response, where that has an
error code for the whole request, or one for each item that is known here. Another one gets no response: its
connection closes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.api import RequestContext
from odradek.apis.api_versions import ANY_NODE
from odradek.apis.refusals import ONE_CODE
from odradek.apis.table import MODULES, declared
from odradek.server.security.sasl.exchange import decoded, encoded
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import API_VERSIONS, RequestHeader
from odradek.wire.messages import api_name, find

if TYPE_CHECKING:
    from odradek.server.network.connection import Connection
    from odradek.server.network.routes import Routes


class OtherApis:
    """Responses to ApiVersions on one connection; implements `exchange.Versions`."""

    def __init__(self, routes: Routes, connection: Connection) -> None:
        self._routes = routes
        self._connection = connection

    def respond(self, header: RequestHeader, frame: bytes, position: int) -> tuple[bytes, bool]:
        """See `exchange.Versions`."""
        served = self._routes.served(API_VERSIONS)
        if header.api_version not in served.versions:
            return self._routes.refuse_version(header.correlation_id), False
        request = decoded(served.api.request, header, frame, position)
        if request.cluster_id is not None and request.node_id != ANY_NODE:
            # As in Kafka, who has not authenticated is not told which node this is.
            request.cluster_id, request.node_id = None, ANY_NODE
        connection = self._connection
        context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            connection,
            connection.requests.active_ms,
        )
        response = served.handle(request, context)
        return encoded(response, header), response.error_code == ErrorCode.NONE

    def check(self, header: RequestHeader) -> None:
        """See `exchange.Versions`."""
        if header.api_version not in self._routes.served(header.api_key).versions:
            raise MalformedMessage(f"{api_name(header.api_key)} {header.api_version} is not served")

    def refusal(self, header: RequestHeader, frame: bytes, position: int, code: ErrorCode) -> bytes | None:
        """See `exchange.Versions`."""
        try:
            request_class, response_class = find(header.api_key)
        except LookupError:
            raise MalformedMessage(f"there is no API {header.api_key}") from None
        request = decoded(request_class, header, frame, position)
        refusal = declared(header.api_key).refusal if header.api_key in MODULES else ONE_CODE
        if not refusal.has_place_for_code(response_class, header.api_version):
            return None
        return encoded(refusal.response(response_class, request, header.api_version, code), header)
