"""DescribeShareGroupOffsets: the start offsets of share groups (KIP-932)."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = on_wire(
        Array(DescribeShareGroupOffsetsRequestTopic), nullable=ALL
    )
    """Topics with the partitions to describe."""


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions=(0, 1), flexible_since=0):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = on_wire(
        Array(DescribeShareGroupOffsetsRequestGroup)
    )
    """Groups to describe."""


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    start_offset: int = on_wire(INT64)
    """First offset that is not completely acknowledged."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of the leader, -1 if not known."""
    lag: int = on_wire(INT64, since=1, default=-1, ignorable=True)
    """Number of records left to consume, -1 if not known."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = on_wire(
        Array(DescribeShareGroupOffsetsResponsePartition)
    )
    """One result for each partition."""


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = on_wire(
        Array(DescribeShareGroupOffsetsResponseTopic)
    )
    """One result for each topic."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    groups: list[DescribeShareGroupOffsetsResponseGroup] = on_wire(
        Array(DescribeShareGroupOffsetsResponseGroup)
    )
    """One description for each group."""
