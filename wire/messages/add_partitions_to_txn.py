"""AddPartitionsToTxn: make partitions part of a transaction.

Up to version 3 a client sends one transaction, from 4 on brokers send several.
"""

from odradek.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class AddPartitionsToTxnTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    verify_only: bool = on_wire(BOOL)
    """Whether to check that the partitions are in the transaction, and add none."""
    topics: list[AddPartitionsToTxnTopic] = on_wire(Array(AddPartitionsToTxnTopic))
    """Topics with the partitions to add."""


class AddPartitionsToTxnRequest(Message, api_key=24, versions=(0, 5), flexible_since=3):
    transactions: list[AddPartitionsToTxnTransaction] = on_wire(Array(AddPartitionsToTxnTransaction), since=4)
    """Transactions of a broker's request."""
    v3_and_below_transactional_id: str = on_wire(STRING, until=3)
    """Transactional id of the producer."""
    v3_and_below_producer_id: int = on_wire(INT64, until=3)
    """Id of the producer."""
    v3_and_below_producer_epoch: int = on_wire(INT16, until=3)
    """Epoch of the producer."""
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = on_wire(Array(AddPartitionsToTxnTopic), until=3)
    """Partitions to add, by topic."""


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    partition_error_code: int = on_wire(INT16)
    """Error code of the partition, 0 for none."""


class AddPartitionsToTxnTopicResult(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = on_wire(
        Array(AddPartitionsToTxnPartitionResult)
    )
    """One result for each partition."""


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    topic_results: list[AddPartitionsToTxnTopicResult] = on_wire(Array(AddPartitionsToTxnTopicResult))
    """One result for each topic."""


class AddPartitionsToTxnResponse(Message, api_key=24, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16, since=4, ignorable=True)
    """Error code, 0 for none."""
    results_by_transaction: list[AddPartitionsToTxnResult] = on_wire(Array(AddPartitionsToTxnResult), since=4)
    """One result for each transaction of a broker's request."""
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = on_wire(
        Array(AddPartitionsToTxnTopicResult), until=3
    )
    """One result for each topic, for a client's request."""
