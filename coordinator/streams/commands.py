"""The commands of a group of the streams protocol (KIP-1071), and their replies; see `commands.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.streams.assignor import TaskAssignment
from odradek.coordinator.streams.topology import Status
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import StreamsGroupTopologyValue, Subtopology

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2
"""Of a static member; streams groups have none yet, as in Kafka 4.3."""


class UserEndpoint(NamedTuple):
    """Where a member answers interactive queries."""

    host: str
    port: int


@dataclass(slots=True)
class StreamsHeartbeat:
    """Join, stay, leave, and learn which tasks to run; None and -1 say that something has not changed."""

    ticket: Any
    group_id: str
    member_id: str
    """Chosen by the member."""
    member_epoch: int
    endpoint_epoch: int = -1
    """Of the endpoints that the member knows."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: StreamsGroupTopologyValue | None = None
    """Sent by a member that joins, and only then."""
    owned: TaskAssignment | None = None
    """The tasks that the member has."""
    process_id: str | None = None
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] | None = None
    shutdown_application: bool = False
    client_id: str = ""
    client_host: str = ""
    """As Kafka shows it: "/127.0.0.1"."""

    def refused(self, code: ErrorCode) -> StreamsHeartbeatReply:
        return StreamsHeartbeatReply(code)


class EndpointPartitions(NamedTuple):
    """The partitions that an endpoint serves, by topic."""

    endpoint: UserEndpoint
    active: list[tuple[str, list[int]]]
    standby: list[tuple[str, list[int]]]


@dataclass(slots=True)
class StreamsHeartbeatReply:
    error_code: ErrorCode
    error_message: str | None = None
    """None where the code says all."""
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: TaskAssignment | None = None
    """All tasks of the member; None when it has them already."""
    statuses: list[Status] = field(default_factory=list)
    endpoint_epoch: int = 0
    """Of `endpoints`; a group begins with 0."""
    endpoints: list[EndpointPartitions] | None = None
    """None when the member knows them already."""
    topics_to_create: Mapping[str, NewTopic] = field(default_factory=dict)
    """Internal topics that the application lacks; the request's handler creates them."""

    def refused(self, code: ErrorCode) -> StreamsHeartbeatReply:
        return StreamsHeartbeatReply(code)


class DescribedStreamsMember(NamedTuple):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: UserEndpoint | None
    client_tags: Mapping[str, str]
    assignment: TaskAssignment
    target_assignment: TaskAssignment


@dataclass(slots=True)
class DescribeStreamsGroup:
    ticket: Any
    group_id: str

    def refused(self, code: ErrorCode) -> StreamsGroupDescription:
        return StreamsGroupDescription(code, self.group_id)


@dataclass(slots=True)
class StreamsGroupDescription:
    error_code: ErrorCode
    group_id: str
    error_message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology_epoch: int = 0
    subtopologies: list[Subtopology] | None = None
    """With the numbers of partitions of internal topics where they are decided; None without a group."""
    members: list[DescribedStreamsMember] = field(default_factory=list)

    def refused(self, code: ErrorCode) -> StreamsGroupDescription:
        return StreamsGroupDescription(code, self.group_id)
