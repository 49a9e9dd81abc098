"""EndTxn (API 26)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible_since=3):
    transactional_id: str = on_wire(STRING)
    producer_id: int = on_wire(INT64)
    producer_epoch: int = on_wire(INT16)
    committed: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    producer_id: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    producer_epoch: int = on_wire(INT16, since=5, default=-1, ignorable=True)
