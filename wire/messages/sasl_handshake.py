"""SaslHandshake: agree on a SASL mechanism; it never became flexible."""

from odradek.wire.schema import (
    INT16,
    STRING,
    Array,
    Message,
    on_wire,
)


class SaslHandshakeRequest(Message, api_key=17, versions=(0, 1)):
    mechanism: str = on_wire(STRING)
    """Name of the SASL mechanism."""


class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1)):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    mechanisms: list[str] = on_wire(Array(STRING))
    """Every SASL mechanism of the listener, for the client to choose another."""
