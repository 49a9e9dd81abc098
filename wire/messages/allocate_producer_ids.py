"""AllocateProducerIds: a broker requests a block of producer ids from the controller (KIP-730)."""

from odradek.wire.schema import INT16, INT32, INT64, Message, on_wire


class AllocateProducerIdsRequest(Message, api_key=67, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the requesting broker."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of this broker."""


class AllocateProducerIdsResponse(Message, api_key=67, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    producer_id_start: int = on_wire(INT64)
    """First id of the block."""
    producer_id_len: int = on_wire(INT32)
    """Number of ids in the block."""
