"""UnregisterBroker: remove the registration of a broker."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    Message,
    on_wire,
)


class UnregisterBrokerRequest(Message, api_key=64, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the broker."""


class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
