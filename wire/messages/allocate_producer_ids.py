"""AllocateProducerIds: a broker asks the controller for a block of producer ids (KIP-730)."""

from dataclasses import dataclass

from odradek.wire.schema import INT16, INT32, INT64, Message, on_wire


@dataclass(slots=True, kw_only=True)
class AllocateProducerIdsRequest(Message, api_key=67, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Broker that asks."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of that broker."""


@dataclass(slots=True, kw_only=True)
class AllocateProducerIdsResponse(Message, api_key=67, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the broker is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    producer_id_start: int = on_wire(INT64)
    """First id of the block."""
    producer_id_len: int = on_wire(INT32)
    """How many ids the block has."""
