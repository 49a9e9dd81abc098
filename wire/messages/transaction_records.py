"""Keys and values of `__transaction_state` in Kafka's format.

Version 1 of the value is written from transaction.version 1 on.
"""

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


class TransactionLogKey(LogRecord, record_type=0, versions=(0, 0)):
    transactional_id: str = on_wire(STRING)
    """The transactional id whose state the value holds."""


class PartitionsSchema(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partition_ids: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class TransactionLogValue(LogRecord, record_type=0, versions=(0, 1), flexible_since=1):
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    previous_producer_id: int = on_wire(INT64, since=1, default=-1, tag=0)
    """Producer id before the last one, -1 if there is none."""
    next_producer_id: int = on_wire(INT64, since=1, default=-1, tag=1)
    """Producer id that the next transaction will use, -1 if it stays."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    next_producer_epoch: int = on_wire(INT16, since=1, default=-1, tag=3)
    """Epoch that the next transaction will use, -1 if it stays."""
    transaction_timeout_ms: int = on_wire(INT32)
    """The coordinator aborts a transaction that takes longer."""
    transaction_status: int = on_wire(INT8)
    """0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort, 6 dead, 7
    fence.
    """
    transaction_partitions: list[PartitionsSchema] | None = on_wire(Array(PartitionsSchema), nullable=ALL)
    """Partitions in the transaction; null while it is empty."""
    transaction_last_update_timestamp_ms: int = on_wire(INT64)
    """Time of the last change of the state."""
    transaction_start_timestamp_ms: int = on_wire(INT64)
    """Begin of the transaction, -1 if none is open."""
    client_transaction_version: int = on_wire(INT16, since=1, tag=2)
    """Transaction version of the producer."""


RECORDS = RecordTypes(keys=(TransactionLogKey,), values=(TransactionLogValue,))
encode_key = RECORDS.encode_key
decode_key = RECORDS.decode_key
encode_value = RECORDS.encode_value
decode_value = RECORDS.decode_value
