"""The commands of a share group (KIP-932), their replies, and what a group asks the share coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.coordinator.asked import NOBODY, Ticket
from odradek.coordinator.effects import Asking
from odradek.coordinator.share_groups.assignor import NO_PARTITIONS, SIMPLE, Partitions
from odradek.coordinator.share_state.persister import InitialState, Refusal, Results, SharePartitionKey
from odradek.wire.errors import ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


@dataclass(slots=True)
class ShareHeartbeat:
    """Join, stay, leave, and learn which partitions to read; None says that something has not changed."""

    ticket: Any
    group_id: str
    member_id: str
    """Chosen by the member."""
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: Sequence[str] | None = None
    client_id: str = ""
    client_host: str = ""
    """As Kafka shows it: "/127.0.0.1"."""

    def refused(self, code: ErrorCode) -> ShareHeartbeatReply:
        return ShareHeartbeatReply(code)


@dataclass(slots=True)
class ShareHeartbeatReply:
    error_code: ErrorCode
    error_message: str | None = None
    """None where the code says all."""
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """All partitions of the member; None when it knows them already."""

    def refused(self, code: ErrorCode) -> ShareHeartbeatReply:
        return ShareHeartbeatReply(code)


# Administration


@dataclass(slots=True)
class DescribeShareGroup:
    ticket: Any
    group_id: str

    def refused(self, code: ErrorCode) -> ShareGroupDescription:
        return ShareGroupDescription(code, self.group_id)


class DescribedShareMember(NamedTuple):
    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    assignment: Sequence[tuple[bytes, str, Sequence[int]]]
    """Id and name of a topic, and partitions."""


@dataclass(slots=True)
class ShareGroupDescription:
    error_code: ErrorCode
    group_id: str
    error_message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = SIMPLE
    members: list[DescribedShareMember] = field(default_factory=list)

    def refused(self, code: ErrorCode) -> ShareGroupDescription:
        return ShareGroupDescription(code, self.group_id)


@dataclass(slots=True)
class FindSharePartitions:
    """Which partitions have a state in the group."""

    ticket: Any
    group_id: str

    def refused(self, code: ErrorCode) -> SharePartitions:
        return SharePartitions(code)


@dataclass(slots=True)
class SharePartitions:
    error_code: ErrorCode
    partitions: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Nothing of a group that does not exist."""

    def refused(self, code: ErrorCode) -> SharePartitions:
        return SharePartitions(code)


@dataclass(slots=True)
class AlterShareOffsets:
    """Let an empty group, or a new one, begin at other offsets."""

    ticket: Any
    group_id: str
    offsets: Sequence[tuple[str, Mapping[int, int]]]
    """Name of a topic, and start offsets by partition."""

    def refused(self, code: ErrorCode) -> AlterShareOffsetsReply:
        return AlterShareOffsetsReply(code)


class AlteredTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: Mapping[int, Refusal]


@dataclass(slots=True)
class AlterShareOffsetsReply:
    error_code: ErrorCode
    error_message: str | None = None
    topics: Sequence[AlteredTopic] = ()
    """In the order of the command."""

    def refused(self, code: ErrorCode) -> AlterShareOffsetsReply:
        return AlterShareOffsetsReply(code)


@dataclass(slots=True)
class DeleteShareOffsets:
    """Let an empty group forget where it is in topics."""

    ticket: Any
    group_id: str
    topics: Sequence[str]

    def refused(self, code: ErrorCode) -> DeleteShareOffsetsReply:
        return DeleteShareOffsetsReply(code)


class DeletedTopic(NamedTuple):
    name: str
    topic_id: bytes
    refusal: Refusal


@dataclass(slots=True)
class DeleteShareOffsetsReply:
    error_code: ErrorCode
    error_message: str | None = None
    topics: Sequence[DeletedTopic] = ()

    def refused(self, code: ErrorCode) -> DeleteShareOffsetsReply:
        return DeleteShareOffsetsReply(code)


# What a group asks the share coordinator, and the command that brings the answer


@dataclass(slots=True)
class StatesInitialized:
    """What has become of an `InitializeStates`."""

    group_id: str
    answer: AlterShareOffsetsReply | None = None
    """What to tell whom the ticket belongs to, if nothing was refused; None: a heartbeat began it, and nobody
    waits."""
    ticket: Any = NOBODY
    asked_at_ms: int = 0
    """When that was; the answer to an earlier trial counts no more."""
    results: Results = field(default_factory=dict)

    def refused(self, code: ErrorCode) -> Any:
        return code if self.answer is None else self.answer.refused(code)


@dataclass(slots=True)
class InitializeStates(Asking):
    """Set up the state of share partitions, and submit a `StatesInitialized` with the results."""

    command: StatesInitialized
    states: Sequence[InitialState]


@dataclass(slots=True)
class StatesDeleted:
    """What has become of a `DeleteStates`."""

    group_id: str
    ticket: Any
    """Of the request that has asked for it."""
    asked_at_ms: int
    refused_topics: Sequence[DeletedTopic] | None
    """Those of a `DeleteShareOffsets` that were refused before; None where all of the group is to be
    deleted."""
    results: Results = field(default_factory=dict)

    def refused(self, code: ErrorCode) -> Any:
        is_of_client = isinstance(self.ticket, Ticket)
        return self.ticket.refused(code) if is_of_client else DeleteShareOffsetsReply(code)


@dataclass(slots=True)
class DeleteStates(Asking):
    """Delete the state of share partitions, and submit a `StatesDeleted` with the results."""

    command: StatesDeleted
    partitions: Sequence[SharePartitionKey]
