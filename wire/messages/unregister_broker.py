"""UnregisterBroker (API 64)."""

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


@dataclass(slots=True, kw_only=True)
class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
