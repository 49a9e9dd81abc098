"""RenewDelegationToken: extend the expiry of a delegation token."""

from odradek.wire.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    Message,
    on_wire,
)


class RenewDelegationTokenRequest(Message, api_key=39, versions=(0, 2), flexible_since=2):
    hmac: bytes = on_wire(BYTES, hidden=True)
    """Secret of the delegation token."""
    renew_period_ms: int = on_wire(INT64)
    """New time to the expiry of the token; -1 for the broker's default."""


class RenewDelegationTokenResponse(Message, api_key=39, versions=(0, 2), flexible_since=2):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    expiry_timestamp_ms: int = on_wire(INT64)
    """Expiry time of the token without a renewal."""
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
