"""CreateDelegationToken: make a token with which other clients act as its owner."""

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


class CreatableRenewers(Struct):
    principal_type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    principal_name: str = on_wire(STRING)
    """Name of the principal."""


class CreateDelegationTokenRequest(Message, api_key=38, versions=(0, 3), flexible_since=2):
    owner_principal_type: str | None = on_wire(STRING, since=3, nullable=ALL)
    """Type of the owner; null for the caller."""
    owner_principal_name: str | None = on_wire(STRING, since=3, nullable=ALL)
    """Owner of the token; null for the caller."""
    renewers: list[CreatableRenewers] = on_wire(Array(CreatableRenewers))
    """Principals besides the owner that may renew the token."""
    max_lifetime_ms: int = on_wire(INT64)
    """Largest lifetime of the token with all renewals; -1 for the broker's limit."""


class CreateDelegationTokenResponse(Message, api_key=38, versions=(0, 3), flexible_since=2):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    principal_type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    principal_name: str = on_wire(STRING)
    """Name of the principal."""
    token_requester_principal_type: str = on_wire(STRING, since=3)
    """Type of the principal that requested the token."""
    token_requester_principal_name: str = on_wire(STRING, since=3)
    """Name of the principal that requested the token."""
    issue_timestamp_ms: int = on_wire(INT64)
    """Time of the token's creation."""
    expiry_timestamp_ms: int = on_wire(INT64)
    """Expiry time of the token without a renewal."""
    max_timestamp_ms: int = on_wire(INT64)
    """Largest lifetime of the token, as a time."""
    token_id: str = on_wire(STRING)
    """Id of the token."""
    hmac: bytes = on_wire(BYTES, hidden=True)
    """Secret of the delegation token."""
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
