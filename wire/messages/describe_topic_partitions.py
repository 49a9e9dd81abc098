"""DescribeTopicPartitions: topics with their partitions, page by page."""

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class TopicRequest(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""


class Cursor(Struct):
    topic_name: str = on_wire(STRING)
    """Topic to begin with."""
    partition_index: int = on_wire(INT32)
    """Partition of that topic to begin with."""


class DescribeTopicPartitionsRequest(Message, api_key=75, versions=(0, 0), flexible_since=0):
    topics: list[TopicRequest] = on_wire(Array(TopicRequest))
    """Topics to describe."""
    response_partition_limit: int = on_wire(INT32, default=2000)
    """Limit of returned partitions; the cursor is the begin of the next page."""
    cursor: Cursor | None = on_wire(Cursor, default=None, nullable=ALL)
    """The begin of the page; null for the first topic."""


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    partition_index: int = on_wire(INT32)
    """Partition number."""
    leader_id: int = on_wire(INT32)
    """Broker that leads, -1 for none."""
    leader_epoch: int = on_wire(INT32, default=-1, ignorable=True)
    """Epoch of the leader, -1 if not known."""
    replica_nodes: list[int] = on_wire(Array(INT32))
    """Brokers with a replica, the preferred leader first."""
    isr_nodes: list[int] = on_wire(Array(INT32))
    """Brokers whose replicas are in sync."""
    eligible_leader_replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL)
    """Replicas outside of the in-sync set that may become leader without loss."""
    last_known_elr: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL)
    """The last known replicas that could become leader without loss."""
    offline_replicas: list[int] = on_wire(Array(INT32), ignorable=True)
    """Brokers whose replicas are not available."""


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    name: str | None = on_wire(STRING, nullable=ALL)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID, ignorable=True)
    """Id of the topic, zero if not known."""
    is_internal: bool = on_wire(BOOL, ignorable=True)
    """Whether it is one of the broker's own topics."""
    partitions: list[DescribeTopicPartitionsResponsePartition] = on_wire(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    """Partitions of the topic."""
    topic_authorized_operations: int = on_wire(INT32, default=-(2**31))
    """Bit set of the caller's authorised operations on the topic; the lowest int32 if not requested."""


class DescribeTopicPartitionsResponse(Message, api_key=75, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[DescribeTopicPartitionsResponseTopic] = on_wire(Array(DescribeTopicPartitionsResponseTopic))
    """Topics with their partitions."""
    next_cursor: Cursor | None = on_wire(Cursor, default=None, nullable=ALL)
    """The begin of the next page; null after the last one."""
