"""CreateDelegationToken (key 38, versions 0 to 3), RenewDelegationToken (39, 0 to 2), ExpireDelegationToken
(40, 0 to 2) and DescribeDelegationToken (41, 0 to 3): temporary passwords for authenticated clients.

All listeners are plaintext, without authentication. On such a listener Kafka refuses these requests with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, with or without tokens.

Source: KafkaApis.allowTokenRequests of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from odradek.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from odradek.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext

FIRST_VERSION_WITH_OWNER = 3
NO_TIME_MS = -1


def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """The handler."""
    requester_type, _, requester_name = context.connection.principal.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=requester_type,
        principal_name=requester_name,
        issue_timestamp_ms=NO_TIME_MS,
        expiry_timestamp_ms=NO_TIME_MS,
        max_timestamp_ms=NO_TIME_MS,
        token_id="",
        hmac=b"",
    )
    if context.api_version >= FIRST_VERSION_WITH_OWNER:
        response.token_requester_principal_type = requester_type
        response.token_requester_principal_name = requester_name
        if request.owner_principal_type and request.owner_principal_name:
            response.principal_type = request.owner_principal_type
            response.principal_name = request.owner_principal_name
    return response


def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """The handler."""
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME_MS
    )


def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """The handler."""
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME_MS
    )


def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """The handler."""
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[]
    )
