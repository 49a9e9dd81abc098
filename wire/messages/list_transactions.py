"""ListTransactions: every transaction that this broker coordinates."""

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


class ListTransactionsRequest(Message, api_key=66, versions=(0, 2), flexible_since=0):
    state_filters: list[str] = on_wire(Array(STRING))
    """Only transactions in these states; empty for all."""
    producer_id_filters: list[int] = on_wire(Array(INT64))
    """Only transactions of these producer ids; empty for all."""
    duration_filter: int = on_wire(INT64, since=1, default=-1)
    """Only transactions that have run for at least this many milliseconds, -1 for all."""
    transactional_id_pattern: str | None = on_wire(STRING, since=2, default=None, nullable=ALL)
    """Only transactional ids that match this pattern, null for all."""


class TransactionState(Struct):
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    transaction_state: str = on_wire(STRING)
    """State of the transaction by name."""


class ListTransactionsResponse(Message, api_key=66, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    unknown_state_filters: list[str] = on_wire(Array(STRING))
    """The unknown states in the request."""
    transaction_states: list[TransactionState] = on_wire(Array(TransactionState))
    """The transactions."""
