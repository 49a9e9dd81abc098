"""SaslHandshake (key 17, versions 0 and 1) and SaslAuthenticate (36, 0 to 2), on a listener without SASL.

Clients do not authenticate there, so the answer is ILLEGAL_SASL_STATE, as in Kafka, and the connection goes
on.

Source: KafkaApis.handleSaslHandshakeRequest and handleSaslAuthenticateRequest of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext


def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """The handler."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """The handler."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="This listener asks for no authentication, so there is none to go on with.",
        auth_bytes=b"",
    )
