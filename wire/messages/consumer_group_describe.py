"""ConsumerGroupDescribe (API 69)."""

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
    include_authorized_operations: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class TopicPartitions(Struct):
    topic_id: bytes = on_wire(UUID)
    topic_name: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = on_wire(Array(TopicPartitions))


@dataclass(slots=True, kw_only=True)
class Member(Struct):
    member_id: str = on_wire(STRING)
    instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    member_epoch: int = on_wire(INT32)
    client_id: str = on_wire(STRING)
    client_host: str = on_wire(STRING)
    subscribed_topic_names: list[str] = on_wire(Array(STRING))
    subscribed_topic_regex: str | None = on_wire(STRING, default=None, nullable=ALL)
    assignment: Assignment = on_wire(Assignment)
    target_assignment: Assignment = on_wire(Assignment)
    member_type: int = on_wire(INT8, since=1, default=-1, ignorable=True)


@dataclass(slots=True, kw_only=True)
class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    group_id: str = on_wire(STRING)
    group_state: str = on_wire(STRING)
    group_epoch: int = on_wire(INT32)
    assignment_epoch: int = on_wire(INT32)
    assignor_name: str = on_wire(STRING)
    members: list[Member] = on_wire(Array(Member))
    authorized_operations: int = on_wire(INT32, default=-(2**31))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupDescribeResponse(Message, api_key=69, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
