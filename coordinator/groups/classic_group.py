"""One group of the classic protocol: its members, its state, and the table of what each state allows.

This is data with its invariants; `coordinator/groups/classic_membership.py` has the rules. Only
`ClassicGroup.apply` writes the state that survives a restart, from a `GroupMetadataValue` that has just been
appended or is read back. The rest (tickets that wait, votes, deadlines) is only here.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from odradek.coordinator.groups.group import CLASSIC, CommitRequest, TypeOfGroup
from odradek.coordinator.groups.record_codec import subscribed_topics
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL_TYPE = "consumer"
NONE = ErrorCode.NONE


class GroupState(enum.Enum):
    """The value is the name that DescribeGroups and ListGroups use."""

    EMPTY = "Empty"
    """No members; perhaps offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are called to join again; their joins wait."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All have joined; the leader works out the assignment, syncs wait."""
    STABLE = "Stable"
    """Each member has an assignment, or can get it by a sync."""
    DEAD = "Dead"
    """Deleted, or never there."""

    # By its name, which an enum has, it would be hashed in Python, for every commit.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class StateRules:
    """The error code of each request in a state, for members of the group."""

    comes_from: frozenset[GroupState]
    heartbeat: ErrorCode
    sync: ErrorCode
    commit: ErrorCode
    commit_keeps_session: bool
    delete: ErrorCode


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState

RULES = {
    _EMPTY: StateRules(
        comes_from=frozenset({_PREPARING}),
        heartbeat=ErrorCode.UNKNOWN_MEMBER_ID,
        sync=ErrorCode.UNKNOWN_MEMBER_ID,
        commit=NONE,
        commit_keeps_session=False,
        delete=NONE,
    ),
    _PREPARING: StateRules(
        comes_from=frozenset({_EMPTY, _COMPLETING, _STABLE}),
        heartbeat=ErrorCode.REBALANCE_IN_PROGRESS,
        sync=ErrorCode.REBALANCE_IN_PROGRESS,
        commit=NONE,  # the last chance to commit before partitions move
        commit_keeps_session=True,
        delete=ErrorCode.NON_EMPTY_GROUP,
    ),
    _COMPLETING: StateRules(
        comes_from=frozenset({_PREPARING}),
        heartbeat=NONE,  # clients start as soon as the join is answered
        sync=NONE,
        commit=ErrorCode.REBALANCE_IN_PROGRESS,
        commit_keeps_session=False,
        delete=ErrorCode.NON_EMPTY_GROUP,
    ),
    _STABLE: StateRules(
        comes_from=frozenset({_COMPLETING}),
        heartbeat=NONE,
        sync=NONE,
        commit=NONE,
        commit_keeps_session=True,
        delete=ErrorCode.NON_EMPTY_GROUP,
    ),
    _DEAD: StateRules(
        comes_from=frozenset(GroupState),
        heartbeat=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        sync=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        commit=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        commit_keeps_session=False,
        delete=ErrorCode.GROUP_ID_NOT_FOUND,
    ),
}


class OfferedProtocol(NamedTuple):
    """An assignment strategy of a member, in its order of preference."""

    name: str
    metadata: bytes


@dataclass(slots=True)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[OfferedProtocol]
    assignment: bytes = b""
    is_new: bool = False
    """Without a response to its first join: it does not know its id, so it cannot send heartbeats."""
    join_ticket: Any = None
    """Ticket of the join that waits for a response; None without one."""
    sync_ticket: Any = None
    deadline_ms: int = 0
    """When the session ends, unless the member sends a heartbeat."""
    timer_at_ms: int | None = None
    """When the session's timer will ring; heartbeats move only the deadline."""

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Collection[str]) -> str:
        """Its most preferred protocol among those that all members know."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class ProtocolCounts:
    """How many members offer each protocol."""

    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, protocols: Iterable[OfferedProtocol]) -> None:
        self._count(protocols, 1)

    def remove(self, protocols: Iterable[OfferedProtocol]) -> None:
        self._count(protocols, -1)

    def clear(self) -> None:
        self._counts.clear()

    def has_common(self, protocols: Iterable[OfferedProtocol], member_count: int) -> bool:
        """Whether all members offer one of these."""
        return any(self._counts.get(name, 0) == member_count for name, _ in protocols)

    def select(self, members: Collection[Member]) -> str:
        """The protocol with most votes among those that all offer; in a tie, the first one voted for."""
        candidates = {name for name, count in self._counts.items() if count == len(members)}
        votes: dict[str, int] = {}
        for member in members:
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: Iterable[OfferedProtocol], change: int) -> None:
        counts = self._counts
        for name in {name for name, _ in protocols}:
            counts[name] = counts.get(name, 0) + change


@dataclass(slots=True)
class Subscriptions:
    """The topics of all members, for the offsets that must not expire."""

    topics: frozenset[str] | None = frozenset()
    """None when they cannot be known."""
    is_current: bool = field(default=False, compare=False)
    """`topics` is of the present members and their present metadata."""

    def set_unknown(self) -> None:
        self.topics, self.is_current = None, True

    def read(self, metadata: Iterable[bytes]) -> None:
        self.set_unknown()
        topics: set[str] = set()
        # Most members of a group offer the very same bytes. They are read once and not kept:
        # a thousand subscriptions to ten thousand topics would be a thousand times as much.
        for one in set(metadata):
            subscribed = subscribed_topics(one)
            if subscribed is None:
                return
            topics |= subscribed
        self.topics = frozenset(topics)


@dataclass(slots=True)
class ClassicGroup:
    """A `Group`; without a record of its own (`protocol_type` None) one that only keeps offsets."""

    group_type: ClassVar[TypeOfGroup] = CLASSIC
    may_expire: ClassVar[bool] = True
    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    """None before the first join: a simple group, which only keeps offsets."""
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int | None = None
    """When the durable state was reached; None if an old record does not have it."""
    members: dict[str, Member] = field(default_factory=dict)
    """By member id, in the order of joining."""
    static_members: dict[str, str] = field(default_factory=dict)
    """Member id by instance id."""
    pending_members: dict[str, int] = field(default_factory=dict)
    """Ids that have not joined yet, with the time when they expire."""
    pending_sync: set[str] = field(default_factory=set)
    """Members of this generation that have not fetched their assignment."""
    is_unled: bool = False
    """Its members have had no leader yet: they were in a group of another type."""
    awaiting_join_count: int = 0
    new_member_added: bool = False
    """A member joined during the initial delay, which extends it."""
    initial_delay_ms: int = 0
    initial_remaining_ms: int | None = None
    """How much the initial delay may still grow; None when there is none."""
    protocol_counts: ProtocolCounts = field(default_factory=ProtocolCounts)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)

    # Questions

    @property
    def rules(self) -> StateRules:
        return RULES[self.state]

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def has_all_members_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_members

    @property
    def is_initial_rebalance(self) -> bool:
        return self.state is _PREPARING and self.previous_state is _EMPTY

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of any member; members may send any number."""
        return max([0, *(member.rebalance_timeout_ms for member in self.members.values())])

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when the instance has a newer member id."""
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Iterable[OfferedProtocol]) -> bool:
        """Whether a member with these protocols could be one of the group."""
        if self.state is _EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        if protocol_type != self.protocol_type:
            return False
        return self.protocol_counts.has_common(protocols, len(self.members))

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of the topic are in use; assumed where the subscription cannot be known."""
        if self.subscriptions.topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscriptions.topics

    # Of a group of any type

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is _EMPTY

    @property
    def offsets_may_expire(self) -> bool:
        """Topics of a simple group, of an empty one, and of a stable one whose subscriptions are known."""
        if self.protocol_type is None or self.state is _EMPTY:
            return True
        return self.uses_consumer_protocol and self.state is _STABLE and self.subscriptions.topics is not None

    @property
    def empty_since_ms(self) -> int | None:
        """None for a simple group, too, which was never anything else."""
        is_empty = self.protocol_type is not None and self.state is _EMPTY
        return self.state_timestamp_ms if is_empty else None

    def check_commit(self, request: CommitRequest, generation: int, version: int | None) -> ErrorCode:
        """May refuse with UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.

        In a transaction, a commit without member and generation (versions below 3) is good while the group
        has members, and during a rebalance: the transaction has begun before it.
        """
        member_id, instance_id, in_transaction = request.member_id, request.group_instance_id, version is None
        if generation < 0 and self.state is _EMPTY:
            return NONE
        if generation < 0 and not member_id and instance_id is None:
            # An administrator, while the group has members.
            return NONE if in_transaction else ErrorCode.UNKNOWN_MEMBER_ID
        code = self.check_member(member_id, instance_id)
        if code is not NONE:
            return code
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return NONE if in_transaction else self.rules.commit

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return NONE

    def check_deletion(self) -> ErrorCode:
        return self.rules.delete

    def check_offset_deletion(self) -> ErrorCode:
        """The offsets that members use are known for the consumer protocol only."""
        return NONE if self.uses_consumer_protocol else self.rules.delete

    def keys(self) -> list[Any]:
        return [GroupMetadataKey(group=self.group_id)]

    # Changes of what does not survive

    def transition(self, state: GroupState) -> None:
        assert self.state in RULES[state].comes_from, (self.group_id, self.state, state)
        self.previous_state = self.state
        self.state = state

    def add(self, member: Member) -> None:
        if not self.members:
            self.protocol_counts.clear()
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        if member.join_ticket is not None:
            self.awaiting_join_count += 1
        self.protocol_counts.add(member.protocols)
        self.subscriptions.is_current = False
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Take a member, or a pending one, out; its tickets need replies before."""
        self.pending_members.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.sync_ticket is None
        if member.join_ticket is not None:
            self.awaiting_join_count -= 1
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self.protocol_counts.remove(member.protocols)
        self.subscriptions.is_current = False
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> Member:
        """Give the instance a new member id; the old one is fenced from now on."""
        old_member_id = self.static_members[group_instance_id]
        self.members = {
            new_member_id if member_id == old_member_id else member_id: member
            for member_id, member in self.members.items()
        }
        member = self.members[new_member_id]
        assert member.join_ticket is None
        assert member.sync_ticket is None
        member.member_id = new_member_id
        # It is no new member: its session does not end while it waits for a response.
        member.is_new = False
        self.static_members[group_instance_id] = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def update(self, member: Member, protocols: list[OfferedProtocol]) -> None:
        self.protocol_counts.remove(member.protocols)
        member.protocols = protocols
        self.protocol_counts.add(protocols)
        self.subscriptions.is_current = False

    def set_join_ticket(self, member: Member, ticket: Any) -> Any:
        """The join waits; returns the ticket of an earlier join that waited, which needs a response."""
        earlier = self.take_join_ticket(member)
        member.join_ticket = ticket
        self.awaiting_join_count += 1
        return earlier

    def take_join_ticket(self, member: Member) -> Any:
        """The ticket of the waiting join, which waits no more; None when no join waits."""
        ticket = member.join_ticket
        if ticket is not None:
            member.join_ticket = None
            self.awaiting_join_count -= 1
        return ticket

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else take the first one that has; False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is None:
            joined = (member.member_id for member in self.members.values() if member.join_ticket is not None)
            leader = next(joined, None)
            if leader is None:
                return False
            self.leader = leader
        return True

    def begin_generation(self) -> None:
        """All who will join have joined: settle on a protocol and wait for the leader."""
        self.transition(_COMPLETING)
        self.generation += 1
        self.protocol = self.protocol_counts.select(self.members.values())
        self._read_subscriptions()
        self.initial_remaining_ms = None
        self.is_unled = False
        self.pending_sync = set(self.members)

    # Durable state

    def record(
        self, state_timestamp_ms: int, assignments: dict[str, bytes] | None = None
    ) -> GroupMetadataValue:
        """The group as the log should know it, with these assignments or those that the members have."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment if assignments is None else assignments.get(member_id, b""),
                )
                for member_id, member in self.members.items()
            ],
        )

    def apply(self, key: Any, value: Any) -> bool:
        """Take over the record; members that are here already keep what no record holds."""
        if value is None:
            self.transition(_DEAD)
            return False
        self._become(value)
        return True

    # Inside

    def _become(self, record: GroupMetadataValue) -> None:
        known = self.members
        # So it is in the record that ends the rebalance for which they were read.
        are_current = (
            self.subscriptions.is_current
            and (self.protocol_type or "", self.protocol) == (record.protocol_type, record.protocol)
            and _have_same_subscriptions(known, record)
        )
        self.previous_state = self.state
        self.state = _STABLE if record.members else _EMPTY
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = record.protocol
        self.leader = record.leader
        self.is_unled = bool(record.members) and record.leader is None
        self.state_timestamp_ms = (
            None if record.current_state_timestamp == -1 else record.current_state_timestamp
        )
        self.initial_remaining_ms = None
        self.members, self.static_members = {}, {}
        self.protocol_counts.clear()
        self.awaiting_join_count = 0
        for member_record in record.members:
            self.add(_member_of(member_record, record.protocol or "", known.get(member_record.member_id)))
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)
        self.pending_sync &= self.members.keys()
        if are_current:
            self.subscriptions.is_current = True
        else:
            self._read_subscriptions()

    def _read_subscriptions(self) -> None:
        if self.uses_consumer_protocol:
            self.subscriptions.read(member.metadata(self.protocol) for member in self.members.values())
        else:
            self.subscriptions.set_unknown()


def _have_same_subscriptions(members: dict[str, Member], record: GroupMetadataValue) -> bool:
    return len(members) == len(record.members) and all(
        one.member_id in members and members[one.member_id].metadata(record.protocol) == one.subscription
        for one in record.members
    )


def _member_of(record: MemberMetadata, protocol: str, known: Member | None) -> Member:
    if known is None or known.metadata(protocol) != record.subscription:
        protocols = [OfferedProtocol(protocol, record.subscription)]
    else:
        protocols = known.protocols
    member = known if known is not None else _new_member(record, protocols)
    member.protocols = protocols
    member.rebalance_timeout_ms = _rebalance_timeout_ms(record)
    member.session_timeout_ms = record.session_timeout
    member.assignment = record.assignment
    return member


def _new_member(record: MemberMetadata, protocols: list[OfferedProtocol]) -> Member:
    return Member(
        member_id=record.member_id,
        group_instance_id=record.group_instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(record),
        session_timeout_ms=record.session_timeout,
        protocols=protocols,
    )


def _rebalance_timeout_ms(record: MemberMetadata) -> int:
    timeout_ms = record.rebalance_timeout
    return record.session_timeout if timeout_ms == -1 else timeout_ms
