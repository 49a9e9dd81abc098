"""Static members of groups with epochs (KIP-345, KIP-848): an instance id names the place of a member, which
outlives the process. A member leaves for a while, and the next one of its instance takes its place as it is.

Source: GroupMetadataManager.java of Kafka 4.4; the texts that clients are shown are Kafka's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from odradek.coordinator.effects import Effect
from odradek.coordinator.groups.epochs.group import AnyMember, EpochGroup
from odradek.coordinator.groups.epochs.membership import AnyChange, EpochMembership
from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, GroupRecord
from odradek.wire.errors import ErrorCode, KafkaError


class HasStaticMembers(Protocol):
    """A group that knows the places of its members."""

    static_members: dict[str, str]
    """Member id by instance id."""


AnyStaticGroup = TypeVar("AnyStaticGroup", bound=EpochGroup[Any, Any])


class StaticMembership(EpochMembership[AnyStaticGroup, AnyMember, AnyChange]):
    """A protocol whose members may be static."""

    def _check_admission(self, group: AnyStaticGroup, request: Any) -> None:
        """GROUP_MAX_SIZE_REACHED; not for a member that takes a place."""
        if _owner_id(group, request.instance_id) is None:
            super()._check_admission(group, request)

    def _change_for(self, group: AnyStaticGroup, request: Any, owned: Any) -> AnyChange:
        """UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID."""
        if request.member_epoch != JOIN_EPOCH:
            return super()._change_for(group, request, owned)
        member_id, instance_id = request.member_id, request.instance_id
        owner_id = _owner_id(group, instance_id)
        if owner_id is None:
            return self._joining(group, group.members.get(member_id), member_id, None)
        owner = group.members[owner_id]
        # One of the classic protocol cannot say that it leaves for a while.
        if not owner.is_classic and owner.current.member_epoch != LEAVE_FOR_A_WHILE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because "
                f"the instance id is owned by {owner_id} member.",
            )
        return self._joining(group, None, member_id, owner)

    def _member_of(self, group: AnyStaticGroup, request: Any) -> AnyMember:
        """UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        instance_id, member_id = request.instance_id, request.member_id
        if instance_id is None:
            return super()._member_of(group, request)
        owner_id = _owner_id(group, instance_id)
        if owner_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {owner_id}.",
            )
        member: AnyMember = group.members[owner_id]
        return member

    def _end(
        self, group: AnyStaticGroup, member: AnyMember, request: Any, now_ms: int, out: list[Effect]
    ) -> None:
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            away = group.records.current(group.group_id, member.member_id, self._while_away(member))
            self._store_all(group.group_id, [away], now_ms, out)
        else:
            super()._end(group, member, request, now_ms, out)

    # The policy

    def _joining(
        self, group: AnyStaticGroup, member: AnyMember | None, member_id: str, replaced: AnyMember | None
    ) -> AnyChange:
        """The change for a member that joins, in the place of `replaced` if there is one."""
        raise NotImplementedError

    def _while_away(self, member: AnyMember) -> Any:
        """The assignment of a member that leaves for a while: all that it had, without epochs."""
        raise NotImplementedError


def place_taken(
    group: EpochGroup[Any, Any], old: Any, member_id: str, target: Any, current: Any
) -> Sequence[GroupRecord]:
    """The records by which a static member that is back under a new id gets the place of the old one."""
    group_id, records = group.group_id, group.records
    return [
        *records.tombstones(group_id, old.member_id),
        records.member(group_id, member_id, old.metadata),
        records.target(group_id, member_id, target),
        records.current(group_id, member_id, current),
    ]


def _owner_id(group: Any, instance_id: str | None) -> str | None:
    known: HasStaticMembers = group
    return None if instance_id is None else known.static_members.get(instance_id)
