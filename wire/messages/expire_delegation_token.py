"""ExpireDelegationToken: end a delegation token, or set when it ends."""

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
class ExpireDelegationTokenRequest(Message, api_key=40, versions=(0, 2), flexible_since=2):
    hmac: bytes = on_wire(BYTES)
    """Secret of the delegation token."""
    expiry_time_period_ms: int = on_wire(INT64)
    """New time left to the token; below zero ends it at once."""


@dataclass(slots=True, kw_only=True)
class ExpireDelegationTokenResponse(Message, api_key=40, versions=(0, 2), flexible_since=2):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    expiry_timestamp_ms: int = on_wire(INT64)
    """When the token ends unless it is renewed."""
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
