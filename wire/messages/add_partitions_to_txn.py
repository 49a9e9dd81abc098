"""AddPartitionsToTxn (API 24)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = on_wire(STRING)
    producer_id: int = on_wire(INT64)
    producer_epoch: int = on_wire(INT16)
    verify_only: bool = on_wire(BOOL)
    topics: list[AddPartitionsToTxnTopic] = on_wire(Array(AddPartitionsToTxnTopic))


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnRequest(Message, api_key=24, versions=(0, 5), flexible_since=3):
    transactions: list[AddPartitionsToTxnTransaction] = on_wire(Array(AddPartitionsToTxnTransaction), since=4)
    v3_and_below_transactional_id: str = on_wire(STRING, until=3)
    v3_and_below_producer_id: int = on_wire(INT64, until=3)
    v3_and_below_producer_epoch: int = on_wire(INT16, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = on_wire(Array(AddPartitionsToTxnTopic), until=3)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    partition_error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult(Struct):
    name: str = on_wire(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = on_wire(
        Array(AddPartitionsToTxnPartitionResult)
    )


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnResult(Struct):
    transactional_id: str = on_wire(STRING)
    topic_results: list[AddPartitionsToTxnTopicResult] = on_wire(Array(AddPartitionsToTxnTopicResult))


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnResponse(Message, api_key=24, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16, since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = on_wire(Array(AddPartitionsToTxnResult), since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = on_wire(
        Array(AddPartitionsToTxnTopicResult), until=3
    )
