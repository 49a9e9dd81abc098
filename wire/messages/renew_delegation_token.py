"""RenewDelegationToken (API 39)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class RenewDelegationTokenRequest(Message, api_key=39, versions=(0, 2), flexible_since=2):
    hmac: bytes = on_wire(BYTES)
    renew_period_ms: int = on_wire(INT64)


@dataclass(slots=True, kw_only=True)
class RenewDelegationTokenResponse(Message, api_key=39, versions=(0, 2), flexible_since=2):
    error_code: int = on_wire(INT16)
    expiry_timestamp_ms: int = on_wire(INT64)
    throttle_time_ms: int = on_wire(INT32)
