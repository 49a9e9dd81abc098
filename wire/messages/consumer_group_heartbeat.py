"""ConsumerGroupHeartbeat: membership in a group of the consumer protocol (KIP-848)."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class TopicPartitions(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions=(0, 1), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Instance id of a static member; null for a dynamic member, or if it has not changed."""
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the client; null if it has none, or no change."""
    rebalance_timeout_ms: int = on_wire(INT32, default=-1)
    """Rebalance time-out of the member in ms; -1: no change."""
    subscribed_topic_names: list[str] | None = on_wire(Array(STRING), default=None, nullable=ALL)
    """Topics of the subscription by name; null in a heartbeat: no change."""
    subscribed_topic_regex: str | None = on_wire(STRING, since=1, default=None, nullable=ALL)
    """Pattern of the subscribed topics; null in a heartbeat: no change."""
    server_assignor: str | None = on_wire(STRING, default=None, nullable=ALL)
    """The member's preferred assignor; null for the broker's choice."""
    topic_partitions: list[TopicPartitions] | None = on_wire(
        Array(TopicPartitions), default=None, nullable=ALL
    )
    """Partitions that the member has; null if that has not changed."""


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = on_wire(Array(TopicPartitions))
    """Partitions by topic."""


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    member_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Id of the member, in the response to the first heartbeat."""
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    heartbeat_interval_ms: int = on_wire(INT32)
    """Interval of the member's heartbeats in ms."""
    assignment: Assignment | None = on_wire(Assignment, default=None, nullable=ALL)
    """The member's new assignment; null: no change."""
