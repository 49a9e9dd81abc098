"""UnregisterBroker: forget a broker that is gone for good."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class UnregisterBrokerRequest(Message, api_key=64, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the broker."""


@dataclass(slots=True, kw_only=True)
class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """More about the error, null if there is none."""
