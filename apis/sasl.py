"""SaslHandshake (key 17, versions 0 and 1) and SaslAuthenticate (36, 0 to 2), as requests among others.

A client that has to authenticate does so before its first request (`server/security/sasl`), so here the
response is ILLEGAL_SASL_STATE, as in Kafka, and the connection goes on. A handshake in a session that ends
begins the authentication again (KIP-368).

Source: KafkaApis.handleSaslHandshakeRequest and handleSaslAuthenticateRequest of Kafka 4.3, and its
KafkaChannel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.declaration import SharedApi
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext


def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """The handler."""
    begun = context.connection.begin_reauthentication(request.mechanism, context.api_version)
    return begun or SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """The handler."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="There is no authentication to go on with.",
        auth_bytes=b"",
    )


APIS = (
    SharedApi(SaslHandshakeRequest, SaslHandshakeResponse, make=lambda parts: sasl_handshake, needs=()),
    SharedApi(
        SaslAuthenticateRequest, SaslAuthenticateResponse, make=lambda parts: sasl_authenticate, needs=()
    ),
)
