"""The commands of a group machine and their replies: plain values, one pair per operation.

Each command has a `ticket`, which is in the `Reply`, too; for the runtime it is the function to call with the
reply. Every command gets exactly one reply. `command.refused(code)` and `reply.refused(code)` make a reply of
the same type with the error only: for commands that do not reach the machine (not the coordinator, still
loading, a log that failed).

The names follow the protocol's; `version` is the request's API version where behaviour depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from odradek.wire.schema import ZERO_UUID

NONE = ErrorCode.NONE


# --- Join ---


class OfferedProtocol(NamedTuple):
    """An assignment strategy of a member, in its order of preference."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member, for the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class Join:
    """Become a member, or join again. Answered when the rebalance completes (minutes, at worst)."""

    ticket: Any
    group_id: str
    member_id: str
    """Empty for a new member."""
    protocol_type: str
    protocols: list[OfferedProtocol]
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """-1 (version 0 has none) stands for the session timeout."""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    """As Kafka shows it: "/127.0.0.1"."""
    version: int = 9
    reason: str | None = None

    def refused(self, code: ErrorCode) -> JoinReply:
        return JoinReply(code, self.member_id)


@dataclass(slots=True)
class JoinReply:
    error_code: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    """None on errors; versions below 7 write an empty string instead."""
    leader: str = ""
    skip_assignment: bool = False
    members: list[JoinedMember] = field(default_factory=list)
    """Everybody, for the leader; empty for the others."""

    def refused(self, code: ErrorCode) -> JoinReply:
        return JoinReply(code, self.member_id)


# --- Sync ---


@dataclass(slots=True)
class Sync:
    """Get the assignment; the leader sends those of all members. Answered when the leader has sent them."""

    ticket: Any
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    """None (versions below 5) is not checked."""
    protocol_name: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)
    """Assignment by member id; empty from all but the leader."""

    def refused(self, code: ErrorCode) -> SyncReply:
        return SyncReply(code)


@dataclass(slots=True)
class SyncReply:
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

    def refused(self, code: ErrorCode) -> SyncReply:
        return SyncReply(code)


# --- Heartbeat ---


@dataclass(slots=True)
class Heartbeat:
    ticket: Any
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None

    def refused(self, code: ErrorCode) -> HeartbeatReply:
        # While the group is being loaded no member can rejoin: the heartbeat succeeds, as in Kafka.
        return HeartbeatReply(NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


@dataclass(slots=True)
class HeartbeatReply:
    error_code: ErrorCode

    def refused(self, code: ErrorCode) -> HeartbeatReply:
        return HeartbeatReply(code)


# --- Leave ---


class LeavingMember(NamedTuple):
    """A member to remove: by its id, or by its instance id when `member_id` is empty (KIP-345)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@dataclass(slots=True)
class Leave:
    """Remove members. Versions below 3 name one; their only error is `members[0].error_code` of the answer
    unless the top-level one is set (`LeaveReply.single_error`)."""

    ticket: Any
    group_id: str
    members: list[LeavingMember]

    def refused(self, code: ErrorCode) -> LeaveReply:
        return LeaveReply(code)


@dataclass(slots=True)
class LeaveReply:
    error_code: ErrorCode
    members: list[LeftMember] = field(default_factory=list)
    """In the order of the request; empty when `error_code` is set."""

    @property
    def single_error(self) -> ErrorCode:
        """The one error code that versions 0 to 2 can carry."""
        if self.error_code is NONE and self.members:
            return self.members[0].error_code
        return self.error_code

    def refused(self, code: ErrorCode) -> LeaveReply:
        return LeaveReply(code)


# --- Offsets ---


class OffsetToCommit(NamedTuple):
    """One partition's position. The caller has checked that the topic exists and may be read."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    """None in the request counts as empty."""
    commit_timestamp_ms: int = -1
    """Only version 1 carries one; -1 stands for now."""
    topic_id: bytes = ZERO_UUID
    """Of the topic that has the name now; zero where the caller does not know it."""


@dataclass(slots=True)
class CommitOffsets:
    ticket: Any
    group_id: str
    generation: int
    """Below 0 for a consumer that manages its own partitions."""
    member_id: str
    offsets: list[OffsetToCommit]
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    """Versions 2 to 4; -1 stands for the broker's `offsets.retention.minutes`."""
    version: int = 9

    def refused(self, code: ErrorCode) -> CommitOffsetsReply:
        return CommitOffsetsReply([code] * len(self.offsets))


@dataclass(slots=True)
class CommitOffsetsReply:
    errors: list[ErrorCode]
    """One for each entry of `CommitOffsets.offsets`, in its order."""

    def refused(self, code: ErrorCode) -> CommitOffsetsReply:
        return CommitOffsetsReply([code] * len(self.errors))


@dataclass(slots=True)
class CommitTransactionalOffsets:
    """Commit offsets with a transaction: they count once its marker has come (`EndOffsets`). Answered with a
    `CommitOffsetsReply`. To be put to `GroupCoordinator.commit_in_transaction`.
    """

    ticket: Any
    group_id: str
    producer_id: int
    producer_epoch: int
    member_id: str
    """Empty, with a generation below 0, in versions below 3 and of a producer that knows no member."""
    generation: int
    group_instance_id: str | None
    offsets: list[OffsetToCommit]

    def refused(self, code: ErrorCode) -> CommitOffsetsReply:
        return CommitOffsetsReply([code] * len(self.offsets))


@dataclass(slots=True)
class EndOffsets:
    """A transaction is over: write its marker, and let the offsets that it wrote count or forget them. To be
    put to `GroupCoordinator.end_offsets`."""

    ticket: Any
    partition: int
    """Of `__consumer_offsets`."""
    marker: EndMarker

    def refused(self, code: ErrorCode) -> EndOffsetsReply:
        return EndOffsetsReply(code)


@dataclass(slots=True)
class EndOffsetsReply:
    error_code: ErrorCode

    def refused(self, code: ErrorCode) -> EndOffsetsReply:
        return EndOffsetsReply(code)


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int
    """-1 when there is none; that is no error."""
    leader_epoch: int
    metadata: str
    error_code: ErrorCode = NONE
    """UNSTABLE_OFFSET_COMMIT while a transaction is open that has written one."""


@dataclass(slots=True)
class FetchOffsets:
    """Read committed offsets of one group."""

    ticket: Any
    group_id: str
    partitions: list[tuple[str, int]] | None
    """(topic, partition) pairs; None for every partition that has an offset."""
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False
    """Leave out offsets that an open transaction is about to replace."""
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """By name, where the request names topics by id: offsets of an earlier topic of the name do not count."""

    def refused(self, code: ErrorCode) -> FetchOffsetsReply:
        return FetchOffsetsReply(code)


@dataclass(slots=True)
class FetchOffsetsReply:
    error_code: ErrorCode
    """Of the whole group; versions 0 and 1 repeat it for every requested partition."""
    offsets: list[FetchedOffset] = field(default_factory=list)
    """In the order of the request; grouped by topic when the request names no partitions."""

    def refused(self, code: ErrorCode) -> FetchOffsetsReply:
        return FetchOffsetsReply(code)


@dataclass(slots=True)
class DeleteOffsets:
    ticket: Any
    group_id: str
    partitions: list[tuple[str, int]]

    def refused(self, code: ErrorCode) -> DeleteOffsetsReply:
        return DeleteOffsetsReply(code)


@dataclass(slots=True)
class DeleteOffsetsReply:
    error_code: ErrorCode
    errors: list[ErrorCode] = field(default_factory=list)
    """One for each requested partition, in order; empty when `error_code` is set."""

    def refused(self, code: ErrorCode) -> DeleteOffsetsReply:
        return DeleteOffsetsReply(code)


@dataclass(slots=True)
class RemoveTopics:
    """Remove the offsets of deleted topics, in all groups of the machine."""

    ticket: Any
    topics: Mapping[str, bytes | None]
    """By name: the id of the topic that has the name now, whose offsets stay; None when there is none."""

    def refused(self, code: ErrorCode) -> RemoveTopicsReply:
        return RemoveTopicsReply(code)


@dataclass(slots=True)
class RemoveTopicsReply:
    error_code: ErrorCode

    def refused(self, code: ErrorCode) -> RemoveTopicsReply:
        return RemoveTopicsReply(code)


# --- Administration ---


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(slots=True)
class DescribeGroup:
    ticket: Any
    group_id: str

    def refused(self, code: ErrorCode) -> GroupDescription:
        return GroupDescription(code, self.group_id)


@dataclass(slots=True)
class GroupDescription:
    error_code: ErrorCode
    group_id: str
    error_message: str | None = None
    state: str = ""
    """As ListGroups names it; "Dead" for a group that does not exist (GROUP_ID_NOT_FOUND, which versions
    below 6 show as no error)."""
    protocol_type: str = ""
    protocol_name: str = ""
    members: list[DescribedMember] = field(default_factory=list)

    def refused(self, code: ErrorCode) -> GroupDescription:
        return GroupDescription(code, self.group_id)


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(slots=True)
class ListGroups:
    """List the groups of a machine; `GroupCoordinator` has `list_groups` for all machines of the node."""

    ticket: Any
    states: frozenset[str] = frozenset()
    """Wanted states in any case; empty for all."""
    types: frozenset[str] = frozenset()
    """Wanted types in any case; empty for all."""

    def refused(self, code: ErrorCode) -> ListGroupsReply:
        return ListGroupsReply(code)


@dataclass(slots=True)
class ListGroupsReply:
    error_code: ErrorCode
    groups: list[ListedGroup] = field(default_factory=list)

    def refused(self, code: ErrorCode) -> ListGroupsReply:
        return replace(self, error_code=code, groups=[])


@dataclass(slots=True)
class DeleteGroup:
    ticket: Any
    group_id: str

    def refused(self, code: ErrorCode) -> DeleteGroupReply:
        return DeleteGroupReply(code)


@dataclass(slots=True)
class DeleteGroupReply:
    error_code: ErrorCode

    def refused(self, code: ErrorCode) -> DeleteGroupReply:
        return DeleteGroupReply(code)


class Command(Protocol):
    """Whatever a group machine can be asked: what is here, and what only groups of one type are asked."""

    ticket: Any

    def refused(self, code: ErrorCode) -> Any:
        """The answer that says only `code`."""
