"""transaction_records (API transaction_records)."""

from dataclasses import dataclass

from odradek.wire.messages.log_records import LogRecord, RecordTypes
from odradek.wire.schema import (
    ALL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class TransactionLogKey(LogRecord, record_type=0, versions=(0, 0)):
    transactional_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class PartitionsSchema(Struct):
    topic: str = on_wire(STRING)
    partition_ids: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class TransactionLogValue(LogRecord, record_type=0, versions=(0, 1), flexible_since=1):
    producer_id: int = on_wire(INT64)
    previous_producer_id: int = on_wire(INT64, since=1, default=-1, tag=0)
    next_producer_id: int = on_wire(INT64, since=1, default=-1, tag=1)
    producer_epoch: int = on_wire(INT16)
    next_producer_epoch: int = on_wire(INT16, since=1, default=-1, tag=3)
    transaction_timeout_ms: int = on_wire(INT32)
    transaction_status: int = on_wire(INT8)
    transaction_partitions: list[PartitionsSchema] | None = on_wire(Array(PartitionsSchema), nullable=ALL)
    transaction_last_update_timestamp_ms: int = on_wire(INT64)
    transaction_start_timestamp_ms: int = on_wire(INT64)
    client_transaction_version: int = on_wire(INT16, since=1, tag=2)


_TYPES = RecordTypes(keys=(TransactionLogKey,), values=(TransactionLogValue,))
encode_key = _TYPES.encode_key
decode_key = _TYPES.decode_key
encode_value = _TYPES.encode_value
decode_value = _TYPES.decode_value
