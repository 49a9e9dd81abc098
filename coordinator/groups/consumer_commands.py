"""The commands of a group of the consumer protocol (KIP-848), and their replies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.wire.errors import ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2
"""Of a static member that is to be back before its session ends."""

OwnedPartitions = list[tuple[bytes, list[int]]]
"""Topic id and partitions, as a client lists them."""


@dataclass(slots=True)
class ConsumerHeartbeat:
    """Join, stay or leave; None and -1 stand for values that have not changed."""

    ticket: Any
    group_id: str
    member_id: str
    """Chosen by the member; in version 0 it may be empty, then the broker makes one."""
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    """Empty for none."""
    server_assignor: str | None = None
    owned: OwnedPartitions | None = None
    """The partitions that the member owns."""
    client_id: str = ""
    client_host: str = ""
    """As Kafka shows it: "/127.0.0.1"."""
    version: int = 1
    left_out: Callable[[Collection[str]], Collection[str]] | None = None
    """Which topics the client may not describe; None where it may describe all. Its patterns find none of
    them."""

    def refused(self, code: ErrorCode) -> ConsumerHeartbeatReply:
        return ConsumerHeartbeatReply(code)


@dataclass(slots=True)
class ConsumerHeartbeatReply:
    error_code: ErrorCode
    error_message: str | None = None
    """None where the code is enough."""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: list[tuple[bytes, list[int]]] | None = None
    """The whole assignment, by topic id; None when the member has it already."""

    def refused(self, code: ErrorCode) -> ConsumerHeartbeatReply:
        return ConsumerHeartbeatReply(code)


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str
    assignment: Mapping[bytes, list[int]]
    """All that it has, also partitions to give up, by topic id, of existing topics."""
    target_assignment: Mapping[bytes, list[int]]
    is_classic: bool = False
    """Whether it is a member of the classic protocol."""


@dataclass(slots=True)
class DescribeConsumerGroup:
    ticket: Any
    group_id: str

    def refused(self, code: ErrorCode) -> ConsumerGroupDescription:
        return ConsumerGroupDescription(code, self.group_id)


@dataclass(slots=True)
class ConsumerGroupDescription:
    error_code: ErrorCode
    group_id: str
    error_message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[DescribedConsumer] = field(default_factory=list)

    def refused(self, code: ErrorCode) -> ConsumerGroupDescription:
        return ConsumerGroupDescription(code, self.group_id)
