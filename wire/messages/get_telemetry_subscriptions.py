"""GetTelemetrySubscriptions (API 71)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions=(0, 0), flexible_since=0):
    client_instance_id: bytes = on_wire(UUID)


@dataclass(slots=True, kw_only=True)
class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    client_instance_id: bytes = on_wire(UUID)
    subscription_id: int = on_wire(INT32)
    accepted_compression_types: list[int] = on_wire(Array(INT8))
    push_interval_ms: int = on_wire(INT32)
    telemetry_max_bytes: int = on_wire(INT32)
    delta_temporality: bool = on_wire(BOOL)
    requested_metrics: list[str] = on_wire(Array(STRING))
