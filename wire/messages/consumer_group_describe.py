"""ConsumerGroupDescribe: state and members of groups of the consumer protocol (KIP-848)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeRequest(Message, api_key=69, versions=(0, 1), flexible_since=0):
    group_ids: list[str] = on_wire(Array(STRING))
    """Ids of the groups to describe."""
    include_authorized_operations: bool = on_wire(BOOL)
    """Whether to say what the caller may do."""


@dataclass(slots=True, kw_only=True)
class TopicPartitions(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


@dataclass(slots=True, kw_only=True)
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = on_wire(Array(TopicPartitions))
    """Partitions by topic."""


@dataclass(slots=True, kw_only=True)
class Member(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Name of a static member; null for a dynamic one."""
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the client, for reading from replicas near to it."""
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves for a while as a static member."""
    client_id: str = on_wire(STRING)
    """Client id from the member's header."""
    client_host: str = on_wire(STRING)
    """Address from which the member came."""
    subscribed_topic_names: list[str] = on_wire(Array(STRING))
    """Topics of the subscription by name; null in a heartbeat says that nothing changed."""
    subscribed_topic_regex: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Pattern of the subscribed topics; null in a heartbeat says that nothing changed."""
    assignment: Assignment = on_wire(Assignment)
    """What the member has now."""
    target_assignment: Assignment = on_wire(Assignment)
    """What the member shall have in the end."""
    member_type: int = on_wire(INT8, since=1, default=-1, ignorable=True)
    """0 classic, 1 consumer, -1 not known."""


@dataclass(slots=True, kw_only=True)
class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the error, null if there is none."""
    group_id: str = on_wire(STRING)
    """Id of the group."""
    group_state: str = on_wire(STRING)
    """State by name, such as Stable; Dead for a group that is not there."""
    group_epoch: int = on_wire(INT32)
    """Counts up when members or their subscriptions change."""
    assignment_epoch: int = on_wire(INT32)
    """The epoch of the target assignment."""
    assignor_name: str = on_wire(STRING)
    """The assignor that the group uses."""
    members: list[Member] = on_wire(Array(Member))
    """Members of the group."""
    authorized_operations: int = on_wire(INT32, default=-(2**31))
    """Bit set of the operations that the caller may do; the lowest number when not asked for."""


@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeResponse(Message, api_key=69, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
    """One description for each group."""
