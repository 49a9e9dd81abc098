"""InitProducerId (API 22)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest(Message, api_key=22, versions=(0, 5), flexible_since=2):
    transactional_id: str | None = on_wire(STRING, nullable=ALL)
    transaction_timeout_ms: int = on_wire(INT32)
    producer_id: int = on_wire(INT64, since=3, default=-1)
    producer_epoch: int = on_wire(INT16, since=3, default=-1)


@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse(Message, api_key=22, versions=(0, 5), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    error_code: int = on_wire(INT16)
    producer_id: int = on_wire(INT64, default=-1)
    producer_epoch: int = on_wire(INT16)
