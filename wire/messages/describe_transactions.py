"""DescribeTransactions (API 65)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsRequest(Message, api_key=65, versions=(0, 0), flexible_since=0):
    transactional_ids: list[str] = on_wire(Array(STRING))


@dataclass(slots=True, kw_only=True)
class TopicData(Struct):
    topic: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class TransactionState(Struct):
    error_code: int = on_wire(INT16)
    transactional_id: str = on_wire(STRING)
    transaction_state: str = on_wire(STRING)
    transaction_timeout_ms: int = on_wire(INT32)
    transaction_start_time_ms: int = on_wire(INT64)
    producer_id: int = on_wire(INT64)
    producer_epoch: int = on_wire(INT16)
    topics: list[TopicData] = on_wire(Array(TopicData))


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsResponse(Message, api_key=65, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    transaction_states: list[TransactionState] = on_wire(Array(TransactionState))
