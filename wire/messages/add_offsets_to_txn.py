"""AddOffsetsToTxn (API 25)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnRequest(Message, api_key=25, versions=(0, 4), flexible_since=3):
    transactional_id: str = on_wire(STRING)
    producer_id: int = on_wire(INT64)
    producer_epoch: int = on_wire(INT16)
    group_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnResponse(Message, api_key=25, versions=(0, 4), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
