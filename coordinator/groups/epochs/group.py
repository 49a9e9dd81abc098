"""One group with epochs (KIP-848): members, the epoch of the group, the epoch of its target assignment, and
what each member shall have and has.

This is data with its invariants; who may do what, and when, is decided by the membership of the type. What
survives a restart is written by `EpochGroup.apply` alone, from records that have just been appended or are
read back. The values in it are shared with these records and never changed in place. The rest (deadlines,
flags for the next heartbeat) is only here.

Source: ModernGroup.java of Kafka 4.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.epochs.records import EpochRecords
from odradek.coordinator.groups.group import CommitRequest, TypeOfGroup
from odradek.coordinator.groups.sessions import Session
from odradek.wire.errors import ErrorCode

NONE = ErrorCode.NONE
FIRST_EPOCH = 1
"""The epoch of a new group, and of its first target assignment, which is empty."""
MEMBER_EPOCHS_SINCE = 9
"""OffsetCommit version that a member of these protocols has to use at least."""
NO_EPOCHS: Mapping[int, int] = {}


class Current(Protocol):
    """Assignment of a member, and how far it has come."""

    @property
    def member_epoch(self) -> int: ...

    @property
    def previous_member_epoch(self) -> int: ...

    @property
    def is_revoking(self) -> bool:
        """Whether it has to give something up before its epoch moves on."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has its target of this epoch."""


Metadata = TypeVar("Metadata")
AnyCurrent = TypeVar("AnyCurrent", bound=Current)
Target = TypeVar("Target")


@dataclass(slots=True)
class EpochMember(Generic[Metadata, AnyCurrent]):
    member_id: str
    metadata: Metadata
    current: AnyCurrent
    session: Session = field(default_factory=Session, compare=False)

    @property
    def is_classic(self) -> bool:
        """Whether it uses the classic protocol, as members of a consumer group may."""
        return False


AnyMember = TypeVar("AnyMember", bound=EpochMember[Any, Any])


class EpochGroup(Generic[AnyMember, Target]):
    """A `Group`."""

    group_type: ClassVar[TypeOfGroup]
    protocol_type: ClassVar[str]
    offsets_may_expire: ClassVar[bool] = True
    """Offsets of topics without subscribers: subscriptions are always known."""
    empty_since_ms: ClassVar[None] = None
    records: ClassVar[EpochRecords]
    appliers: ClassVar[Mapping[type, Callable[[Any, Any, Any], bool]]]
    """The method for a record, by the class of its key; see `appliers_of`."""
    no_target: Target

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """When the target assignment was made; 0 when there is none, or an old record did not say."""
        self.members: dict[str, AnyMember] = {}
        """By member id, in the order of joining."""
        self.targets: dict[str, Target] = {}
        """By member id; none of a member that no assignment has counted."""
        # What does not survive a restart
        self.topics_may_have_changed = True
        """Topics may be others than those of `metadata_hash`: the next heartbeat compares them."""

    # What a group of any type can be asked

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def may_expire(self) -> bool:
        return True

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        epoch = self.assignment_epoch
        is_stable = all(member.current.is_reconciled_to(epoch) for member in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    def check_commit(self, request: CommitRequest, generation: int, version: int | None) -> ErrorCode:
        """UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, and where the epoch is not that of the member
        STALE_MEMBER_EPOCH, or for a classic member ILLEGAL_GENERATION. An older epoch may commit what the
        member has had since then (KIP-1251)."""
        epoch, in_transaction = generation, version is None
        if epoch < 0 and not self.members:
            return NONE
        if in_transaction and epoch == -1 and not request.member_id and request.group_instance_id is None:
            # Its producer knows no member.
            return NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version is not None and version < MEMBER_EPOCHS_SINCE and not member.is_classic:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.current.member_epoch:
            return NONE
        if epoch < member.current.member_epoch and self._owned_since(member, epoch, request):
            return NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check a fetch as a commit; an administrator names no member."""
        if member_id is None and member_epoch < 0:
            return NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.current.member_epoch:
            return NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_deletion(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else NONE

    def check_offset_deletion(self) -> ErrorCode:
        return NONE

    def is_subscribed_to(self, topic: str) -> bool:
        raise NotImplementedError

    def keys(self) -> list[Any]:
        return self.records.keys(self.group_id, self.members, self._more_keys())

    # More questions

    def target_of(self, member_id: str) -> Target:
        return self.targets.get(member_id, self.no_target)

    # Durable state

    def apply(self, key: Any, value: Any) -> bool:
        """Apply the record."""
        return self.appliers[key.__class__](self, key, value)

    def _apply_epoch(self, key: Any, value: Any) -> bool:
        if value is None:
            return False
        self.group_epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        return True

    def _apply_member(self, key: Any, value: Any) -> bool:
        member_id = key.member_id
        member = self.members.get(member_id)
        if value is not None:
            member = self._member(member_id) if member is None else member
            self._count(member, -1)
            member.metadata = value
            self._count(member, 1)
        elif member is not None:
            self._set_current(member, self.new_member(member_id).current)
            self._count(member, -1)
            del self.members[member_id]
            self.targets.pop(member_id, None)
            self._removed(member)
        return True

    def _apply_target_epoch(self, key: Any, value: Any) -> bool:
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
        return True

    def _apply_target(self, key: Any, value: Any) -> bool:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = self.records.target_of(value)
        return True

    def _apply_current(self, key: Any, value: Any) -> bool:
        member_id = key.member_id
        if value is not None:
            self._set_current(self._member(member_id), self.records.current_of(value))
        elif member_id in self.members:
            self._set_current(self.members[member_id], self.new_member(member_id).current)
        return True

    # Inside

    def _member(self, member_id: str) -> AnyMember:
        """A compacted log may have what a member has before who it is."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = self.new_member(member_id)
        return member

    def _owned_since(self, member: AnyMember, epoch: int, request: CommitRequest) -> bool:
        """Whether the member has had all that is committed since that epoch, or before."""
        for topic in request.topics:
            assigned, revoking = self._epochs_of(member, topic)
            for partition in topic.partitions:
                index = partition.partition_index
                since = assigned.get(index, revoking.get(index))
                if since is None or epoch < since:
                    return False
        return True

    # What the types differ in

    def new_member(self, member_id: str) -> AnyMember:
        """A member whose records have not been read yet."""
        raise NotImplementedError

    def _more_keys(self) -> Iterable[Any]:
        """The keys of what only this type has."""
        return ()

    def _count(self, member: AnyMember, change: int) -> None:
        """Add (1) or take away (-1) what a member's metadata adds to what is known of the group."""

    def _set_current(self, member: AnyMember, current: Any) -> None:
        member.current = current

    def _removed(self, member: AnyMember) -> None:
        """The member is in the group no more."""

    def _epochs_of(self, member: AnyMember, topic: Any) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """The epochs since when a member has the partitions of a topic, and has those that it gives up."""
        return NO_EPOCHS, NO_EPOCHS


def appliers_of(group_class: type[EpochGroup[Any, Any]]) -> dict[type, Callable[[Any, Any, Any], bool]]:
    """The entries of `appliers` that all types have."""
    records: Any = group_class.records
    return {
        records.epoch_key: group_class._apply_epoch,
        records.member_key: group_class._apply_member,
        records.target_epoch_key: group_class._apply_target_epoch,
        records.target_key: group_class._apply_target,
        records.current_key: group_class._apply_current,
    }


def metadata_hash(topics: Iterable[str], view: ClusterView) -> int:
    """A number that changes when one of these topics is created, deleted, or gets partitions.

    Signed, 64 bits, the same in every process; 0 when none of them exists.
    """
    digest, is_empty = hashlib.blake2b(digest_size=8), True
    for name in sorted(topics):
        topic = view.topics.get(name)
        if topic is not None:
            is_empty = False
            digest.update(topic.topic_id + len(topic.partitions).to_bytes(4, "big"))
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)
