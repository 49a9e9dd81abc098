"""AddOffsetsToTxn: make the offsets of a group part of a transaction."""

from odradek.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


class AddOffsetsToTxnRequest(Message, api_key=25, versions=(0, 4), flexible_since=3):
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    group_id: str = on_wire(STRING)
    """Id of the group."""


class AddOffsetsToTxnResponse(Message, api_key=25, versions=(0, 4), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
