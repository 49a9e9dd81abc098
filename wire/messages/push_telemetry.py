"""PushTelemetry: a client's metrics (KIP-714)."""

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
    """Id under which the client sends its metrics; zero asks for a new one."""
    subscription_id: int = on_wire(INT32)
    """Changes when the broker wants other metrics."""
    terminating: bool = on_wire(BOOL)
    """True for the client's last push."""
    compression_type: int = on_wire(INT8)
    """How the metrics are compressed."""
    metrics: bytes = on_wire(BYTES)
    """The metrics, in OpenTelemetry's protobuf form."""


@dataclass(slots=True, kw_only=True)
class PushTelemetryResponse(Message, api_key=72, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
