"""DescribeDelegationToken (API 41)."""

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
class DescribeDelegationTokenOwner(Struct):
    principal_type: str = on_wire(STRING)
    principal_name: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenRequest(Message, api_key=41, versions=(0, 3), flexible_since=2):
    owners: list[DescribeDelegationTokenOwner] | None = on_wire(
        Array(DescribeDelegationTokenOwner), nullable=ALL
    )


@dataclass(slots=True, kw_only=True)
class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = on_wire(STRING)
    principal_name: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class DescribedDelegationToken(Struct):
    principal_type: str = on_wire(STRING)
    principal_name: str = on_wire(STRING)
    token_requester_principal_type: str = on_wire(STRING, since=3)
    token_requester_principal_name: str = on_wire(STRING, since=3)
    issue_timestamp: int = on_wire(INT64)
    expiry_timestamp: int = on_wire(INT64)
    max_timestamp: int = on_wire(INT64)
    token_id: str = on_wire(STRING)
    hmac: bytes = on_wire(BYTES)
    renewers: list[DescribedDelegationTokenRenewer] = on_wire(Array(DescribedDelegationTokenRenewer))


@dataclass(slots=True, kw_only=True)
class DescribeDelegationTokenResponse(Message, api_key=41, versions=(0, 3), flexible_since=2):
    error_code: int = on_wire(INT16)
    tokens: list[DescribedDelegationToken] = on_wire(Array(DescribedDelegationToken))
    throttle_time_ms: int = on_wire(INT32)
