"""PushTelemetry (API 72)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    UUID,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class PushTelemetryRequest(Message, api_key=72, versions=(0, 0), flexible_since=0):
    client_instance_id: bytes = on_wire(UUID)
    subscription_id: int = on_wire(INT32)
    terminating: bool = on_wire(BOOL)
    compression_type: int = on_wire(INT8)
    metrics: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class PushTelemetryResponse(Message, api_key=72, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
