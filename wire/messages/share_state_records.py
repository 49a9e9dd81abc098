"""Keys and values of `__share_group_state` in Kafka's format (KIP-932).

A snapshot is the whole state of a share partition, an update what has changed since. A snapshot without a
value (a tombstone) deletes the state.
"""

from odradek.wire.messages.log_records import LogRecord, RecordTypes
from odradek.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Struct,
    on_wire,
)


class ShareSnapshotKey(LogRecord, record_type=0, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partition: int = on_wire(INT32)
    """Partition number."""


class ShareUpdateKey(LogRecord, record_type=1, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partition: int = on_wire(INT32)
    """Partition number."""


class StateBatch(Struct):
    first_offset: int = on_wire(INT64)
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    delivery_state: int = on_wire(INT8)
    """0 available, 2 acknowledged, 4 archived."""
    delivery_count: int = on_wire(INT16)
    """How often the records were delivered."""


class ShareSnapshotValue(LogRecord, record_type=0, versions=(0, 0), flexible_since=0):
    snapshot_epoch: int = on_wire(INT32)
    """Counts the snapshots of the share partition."""
    state_epoch: int = on_wire(INT32)
    """Counts how often the state was initialized or altered."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of the partition's leader."""
    start_offset: int = on_wire(INT64)
    """All records before this offset are done; -1: not known yet."""
    delivery_complete_count: int = on_wire(INT32, default=-1, tag=0)
    """Number of records from the start offset on that are acknowledged or archived, -1 if not known."""
    create_timestamp: int = on_wire(INT64)
    """Time of the last change that made a snapshot."""
    write_timestamp: int = on_wire(INT64)
    """Time when the snapshot was written, perhaps without a change."""
    state_batches: list[StateBatch] = on_wire(Array(StateBatch))
    """States of the records from the start offset on."""


class ShareUpdateValue(LogRecord, record_type=1, versions=(0, 0), flexible_since=0):
    snapshot_epoch: int = on_wire(INT32)
    """Epoch of the snapshot before."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of the partition's leader."""
    start_offset: int = on_wire(INT64)
    """All records before this offset are done; -1: as before."""
    delivery_complete_count: int = on_wire(INT32, default=-1, tag=0)
    """Number of records from the start offset on that are acknowledged or archived, -1 if not known."""
    state_batches: list[StateBatch] = on_wire(Array(StateBatch))
    """States that have changed."""


RECORDS = RecordTypes(keys=(ShareSnapshotKey, ShareUpdateKey), values=(ShareSnapshotValue, ShareUpdateValue))
encode_key = RECORDS.encode_key
decode_key = RECORDS.decode_key
encode_value = RECORDS.encode_value
decode_value = RECORDS.decode_value
