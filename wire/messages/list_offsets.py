"""ListOffsets: find offsets by time, or the ends of a partition.

Version 0 lists several offsets before a time; from 1 on there is one offset with its time.
"""

from odradek.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class ListOffsetsPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    current_leader_epoch: int = on_wire(INT32, since=4, default=-1, ignorable=True)
    """The client's leader epoch, -1 for none; fences clients and brokers with old metadata."""
    timestamp: int = on_wire(INT64)
    """A time, or -1 latest, -2 earliest, -3 at the greatest time, -4 earliest local, -5 latest tiered, -6
    earliest to be tiered.
    """
    max_num_offsets: int = on_wire(INT32, until=0, default=1)
    """Limit of returned offsets."""


class ListOffsetsTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[ListOffsetsPartition] = on_wire(Array(ListOffsetsPartition))
    """Partitions of the request."""


class ListOffsetsRequest(Message, api_key=2, versions=(0, 11), flexible_since=6):
    replica_id: int = on_wire(INT32)
    """Id of the requesting broker, -1 for a consumer."""
    isolation_level: int = on_wire(INT8, since=2)
    """Isolation level: 0 read uncommitted, 1 read committed."""
    topics: list[ListOffsetsTopic] = on_wire(Array(ListOffsetsTopic))
    """Topics with the partitions of the request."""
    timeout_ms: int = on_wire(INT32, since=10, ignorable=True)
    """Time-out of reads from remote storage in ms."""


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    old_style_offsets: list[int] = on_wire(Array(INT64), until=0)
    """Offsets, newest first, as version 0 lists them."""
    timestamp: int = on_wire(INT64, since=1, default=-1)
    """Time of the record that was found, -1 if none was."""
    offset: int = on_wire(INT64, since=1, default=-1)
    """Offset of the record that was found, -1 if none was."""
    leader_epoch: int = on_wire(INT32, since=4, default=-1)
    """Leader epoch of the record that was found."""


class ListOffsetsTopicResponse(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[ListOffsetsPartitionResponse] = on_wire(Array(ListOffsetsPartitionResponse))
    """One result for each partition."""


class ListOffsetsResponse(Message, api_key=2, versions=(0, 11), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[ListOffsetsTopicResponse] = on_wire(Array(ListOffsetsTopicResponse))
    """One result for each topic."""
