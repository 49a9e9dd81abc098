"""ListTransactions (API 66)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
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
class ListTransactionsRequest(Message, api_key=66, versions=(0, 2), flexible_since=0):
    state_filters: list[str] = on_wire(Array(STRING))
    producer_id_filters: list[int] = on_wire(Array(INT64))
    duration_filter: int = on_wire(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = on_wire(STRING, since=2, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class TransactionState(Struct):
    transactional_id: str = on_wire(STRING)
    producer_id: int = on_wire(INT64)
    transaction_state: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class ListTransactionsResponse(Message, api_key=66, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    unknown_state_filters: list[str] = on_wire(Array(STRING))
    transaction_states: list[TransactionState] = on_wire(Array(TransactionState))
