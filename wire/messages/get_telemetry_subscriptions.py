"""GetTelemetrySubscriptions: the metrics that the broker requests from a client (KIP-714)."""

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


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions=(0, 0), flexible_since=0):
    client_instance_id: bytes = on_wire(UUID)
    """Id of the client for its metrics; zero requests a new id."""


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    client_instance_id: bytes = on_wire(UUID)
    """Id of the client for its metrics; zero requests a new id."""
    subscription_id: int = on_wire(INT32)
    """Changes when the broker wants other metrics."""
    accepted_compression_types: list[int] = on_wire(Array(INT8))
    """Compression types for the pushed metrics, best first."""
    push_interval_ms: int = on_wire(INT32)
    """Interval of the pushes in ms."""
    telemetry_max_bytes: int = on_wire(INT32)
    """The largest size of a push in bytes."""
    delta_temporality: bool = on_wire(BOOL)
    """True for differences since the last push, false for totals."""
    requested_metrics: list[str] = on_wire(Array(STRING))
    """Prefixes of the metrics to push; one empty text means all, an empty list none."""
