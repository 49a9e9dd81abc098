"""CreateDelegationToken: make a token with which others can act for its owner."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class CreatableRenewers(Struct):
    principal_type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    principal_name: str = on_wire(STRING)
    """Name of the principal."""


@dataclass(slots=True, kw_only=True)
class CreateDelegationTokenRequest(Message, api_key=38, versions=(0, 3), flexible_since=2):
    owner_principal_type: str | None = on_wire(STRING, since=3, nullable=ALL)
    """Type of the owner; null for the caller."""
    owner_principal_name: str | None = on_wire(STRING, since=3, nullable=ALL)
    """Who shall own the token; null for the caller."""
    renewers: list[CreatableRenewers] = on_wire(Array(CreatableRenewers))
    """Who may renew the token besides its owner."""
    max_lifetime_ms: int = on_wire(INT64)
    """How long the token may live with all renewals; -1 for what the broker allows."""


@dataclass(slots=True, kw_only=True)
class CreateDelegationTokenResponse(Message, api_key=38, versions=(0, 3), flexible_since=2):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    principal_type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    principal_name: str = on_wire(STRING)
    """Name of the principal."""
    token_requester_principal_type: str = on_wire(STRING, since=3)
    """Type of who asked for the token."""
    token_requester_principal_name: str = on_wire(STRING, since=3)
    """Who asked for the token."""
    issue_timestamp_ms: int = on_wire(INT64)
    """When the token was made."""
    expiry_timestamp_ms: int = on_wire(INT64)
    """When the token ends unless it is renewed."""
    max_timestamp_ms: int = on_wire(INT64)
    """When the token ends for good."""
    token_id: str = on_wire(STRING)
    """Id of the token."""
    hmac: bytes = on_wire(BYTES)
    """Secret of the delegation token."""
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
