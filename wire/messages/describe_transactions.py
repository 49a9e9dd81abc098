"""DescribeTransactions: state of transactions by transactional id."""

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


class DescribeTransactionsRequest(Message, api_key=65, versions=(0, 0), flexible_since=0):
    transactional_ids: list[str] = on_wire(Array(STRING))
    """Transactional ids to describe."""


class TopicData(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class TransactionState(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    transaction_state: str = on_wire(STRING)
    """State of the transaction by name."""
    transaction_timeout_ms: int = on_wire(INT32)
    """The coordinator aborts a transaction that takes longer."""
    transaction_start_time_ms: int = on_wire(INT64)
    """Begin of the transaction, -1 if none is open."""
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    topics: list[TopicData] = on_wire(Array(TopicData))
    """Partitions in the open transaction."""


class DescribeTransactionsResponse(Message, api_key=65, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    transaction_states: list[TransactionState] = on_wire(Array(TransactionState))
    """The transactions."""
