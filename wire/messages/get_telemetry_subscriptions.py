"""GetTelemetrySubscriptions: which metrics the broker wants from a client (KIP-714)."""

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
    """Id under which the client sends its metrics; zero asks for a new one."""


@dataclass(slots=True, kw_only=True)
class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    client_instance_id: bytes = on_wire(UUID)
    """Id under which the client sends its metrics; zero asks for a new one."""
    subscription_id: int = on_wire(INT32)
    """Changes when the broker wants other metrics."""
    accepted_compression_types: list[int] = on_wire(Array(INT8))
    """Compression types for the pushed metrics, best first."""
    push_interval_ms: int = on_wire(INT32)
    """How often to push."""
    telemetry_max_bytes: int = on_wire(INT32)
    """The largest push that the broker takes."""
    delta_temporality: bool = on_wire(BOOL)
    """True for differences since the last push, false for totals."""
    requested_metrics: list[str] = on_wire(Array(STRING))
    """Prefixes of the metrics to push; one empty text means all, an empty list none."""
