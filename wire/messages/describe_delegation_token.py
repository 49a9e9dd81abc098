"""DescribeDelegationToken: list delegation tokens."""

from odradek.wire.schema import (
    ALL,
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    principal_name: str = on_wire(STRING)
    """Name of the principal."""


class DescribeDelegationTokenRequest(Message, api_key=41, versions=(0, 3), flexible_since=2):
    owners: list[DescribeDelegationTokenOwner] | None = on_wire(
        Array(DescribeDelegationTokenOwner), nullable=ALL
    )
    """Only tokens of these owners, null for all."""


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    principal_name: str = on_wire(STRING)
    """Name of the principal."""


class DescribedDelegationToken(Struct):
    principal_type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    principal_name: str = on_wire(STRING)
    """Name of the principal."""
    token_requester_principal_type: str = on_wire(STRING, since=3)
    """Type of the principal that requested the token."""
    token_requester_principal_name: str = on_wire(STRING, since=3)
    """Name of the principal that requested the token."""
    issue_timestamp: int = on_wire(INT64)
    """Time of the token's creation."""
    expiry_timestamp: int = on_wire(INT64)
    """Expiry time of the token without a renewal."""
    max_timestamp: int = on_wire(INT64)
    """Largest lifetime of the token, as a time."""
    token_id: str = on_wire(STRING)
    """Id of the token."""
    hmac: bytes = on_wire(BYTES, hidden=True)
    """Secret of the delegation token."""
    renewers: list[DescribedDelegationTokenRenewer] = on_wire(Array(DescribedDelegationTokenRenewer))
    """Principals besides the owner that may renew the token."""


class DescribeDelegationTokenResponse(Message, api_key=41, versions=(0, 3), flexible_since=2):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    tokens: list[DescribedDelegationToken] = on_wire(Array(DescribedDelegationToken))
    """The tokens."""
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
