"""PushTelemetry: a client's metrics (KIP-714)."""

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


class PushTelemetryRequest(Message, api_key=72, versions=(0, 0), flexible_since=0):
    client_instance_id: bytes = on_wire(UUID)
    """Id of the client for its metrics; zero requests a new id."""
    subscription_id: int = on_wire(INT32)
    """Changes when the broker wants other metrics."""
    terminating: bool = on_wire(BOOL)
    """True for the client's last push."""
    compression_type: int = on_wire(INT8)
    """Compression type of the metrics."""
    metrics: bytes = on_wire(BYTES)
    """The metrics, in OpenTelemetry's protobuf form."""


class PushTelemetryResponse(Message, api_key=72, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
