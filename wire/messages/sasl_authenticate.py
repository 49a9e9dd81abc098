"""SaslAuthenticate: carry the tokens of a SASL mechanism."""

from odradek.wire.schema import (
    ALL,
    BYTES,
    INT16,
    INT64,
    STRING,
    Message,
    on_wire,
)


class SaslAuthenticateRequest(Message, api_key=36, versions=(0, 2), flexible_since=2):
    auth_bytes: bytes = on_wire(BYTES, hidden=True)
    """One token of the SASL mechanism."""


class SaslAuthenticateResponse(Message, api_key=36, versions=(0, 2), flexible_since=2):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    auth_bytes: bytes = on_wire(BYTES, hidden=True)
    """One token of the SASL mechanism."""
    session_lifetime_ms: int = on_wire(INT64, since=1, ignorable=True)
    """Lifetime of the session in ms, after which the client has to authenticate again; 0 for no limit."""
