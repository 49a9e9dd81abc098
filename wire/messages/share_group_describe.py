"""ShareGroupDescribe: state and members of share groups (KIP-932)."""

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


class ShareGroupDescribeRequest(Message, api_key=77, versions=(1, 1), flexible_since=0):
    group_ids: list[str] = on_wire(Array(STRING))
    """Ids of the groups to describe."""
    include_authorized_operations: bool = on_wire(BOOL)
    """Whether to return the operations for which the caller is authorised."""


class TopicPartitions(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = on_wire(Array(TopicPartitions))
    """Partitions by topic."""


class Member(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the client, to read from near replicas."""
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    client_id: str = on_wire(STRING)
    """Client id of the member's requests."""
    client_host: str = on_wire(STRING)
    """Host of the member."""
    subscribed_topic_names: list[str] = on_wire(Array(STRING))
    """Topics of the subscription by name; null in a heartbeat: no change."""
    assignment: Assignment = on_wire(Assignment)
    """The current assignment of the member."""


class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    group_id: str = on_wire(STRING)
    """Id of the group."""
    group_state: str = on_wire(STRING)
    """State by name, such as Stable; Dead for a group that does not exist."""
    group_epoch: int = on_wire(INT32)
    """Counts up when members or their subscriptions change."""
    assignment_epoch: int = on_wire(INT32)
    """The epoch of the target assignment."""
    assignor_name: str = on_wire(STRING)
    """The assignor that the group uses."""
    members: list[Member] = on_wire(Array(Member))
    """Members of the group."""
    authorized_operations: int = on_wire(INT32, default=-(2**31))
    """Bit set of the caller's authorised operations; the lowest int32 if not requested."""


class ShareGroupDescribeResponse(Message, api_key=77, versions=(1, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
    """One description for each group."""
