"""CreateDelegationToken (API 38)."""

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
    principal_name: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class CreateDelegationTokenRequest(Message, api_key=38, versions=(0, 3), flexible_since=2):
    owner_principal_type: str | None = on_wire(STRING, since=3, nullable=ALL)
    owner_principal_name: str | None = on_wire(STRING, since=3, nullable=ALL)
    renewers: list[CreatableRenewers] = on_wire(Array(CreatableRenewers))
    max_lifetime_ms: int = on_wire(INT64)


@dataclass(slots=True, kw_only=True)
class CreateDelegationTokenResponse(Message, api_key=38, versions=(0, 3), flexible_since=2):
    error_code: int = on_wire(INT16)
    principal_type: str = on_wire(STRING)
    principal_name: str = on_wire(STRING)
    token_requester_principal_type: str = on_wire(STRING, since=3)
    token_requester_principal_name: str = on_wire(STRING, since=3)
    issue_timestamp_ms: int = on_wire(INT64)
    expiry_timestamp_ms: int = on_wire(INT64)
    max_timestamp_ms: int = on_wire(INT64)
    token_id: str = on_wire(STRING)
    hmac: bytes = on_wire(BYTES)
    throttle_time_ms: int = on_wire(INT32)
