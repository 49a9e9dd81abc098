"""How a member of a consumer group gets from its partitions to its target assignment (KIP-848).

Functions of values: no group, no time. A member first gives up what it shall not have; its epoch moves only
when it confirms that. Then it gets what is free, and waits for the rest. So no partition is ever owned
by two members, whatever they miss or repeat.

Source: CurrentAssignmentBuilder.java of Kafka 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; no topic without any."""
AssignmentEpochs = Mapping[bytes, Mapping[int, int]]
"""By topic id and partition, the member's epoch from which on it has the partition."""
OwnedPartitions = Sequence[tuple[bytes, Sequence[int]]]
"""The form in which a client lists the partitions that it owns."""


class MemberState(enum.IntEnum):
    """The value as in the log."""

    STABLE = 0
    """The member has the assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """Has to give up partitions before its epoch moves on."""
    UNRELEASED_PARTITIONS = 2
    """Waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """A state of a newer broker."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Assignment of a member."""

    state: MemberState = MemberState.STABLE
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assigned: AssignmentEpochs = field(default_factory=dict)
    revoking: AssignmentEpochs = field(default_factory=dict)
    """Partitions that it has to give up and may still use."""

    @property
    def is_revoking(self) -> bool:
        return self.state is MemberState.UNREVOKED_PARTITIONS

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def held(self) -> dict[bytes, list[int]]:
        """All partitions that it may use, in order."""
        return {
            topic_id: sorted({*self.assigned.get(topic_id, ()), *self.revoking.get(topic_id, ())})
            for topic_id in self.assigned.keys() | self.revoking.keys()
        }

    def at(
        self,
        state: MemberState,
        member_epoch: int,
        assigned: AssignmentEpochs,
        revoking: AssignmentEpochs,
    ) -> MemberAssignment:
        return MemberAssignment(state, member_epoch, self.member_epoch, assigned, revoking)


def reconcile(
    member: MemberAssignment,
    target: Assignment,
    target_epoch: int,
    owner_epoch_of: Callable[[bytes, int], int],
    owned_by_client: OwnedPartitions | None,
) -> MemberAssignment:
    """The next step of a member towards its target; the same object when there is none.

    `target` has only topics that the member subscribes to. `owner_epoch_of(topic id, partition)` is the epoch
    of the partition's owner, -1 without one. `owned_by_client` is what the member reports to own; None: as
    before. A member in a state UNKNOWN that owns nothing starts again; the caller has to refuse one that
    owns something (FENCED_MEMBER_EPOCH).
    """
    state = member.state
    if state is MemberState.STABLE and member.member_epoch == target_epoch:
        return member
    if state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned_by_client, member.revoking):
        return member
    epoch = target_epoch if state is MemberState.UNKNOWN else member.member_epoch
    return _next_step(member, epoch, target, target_epoch, owner_epoch_of, owned_by_client)


def without_topics(
    member: MemberAssignment, subscribed: Collection[bytes], owned_by_client: OwnedPartitions | None
) -> MemberAssignment:
    """The member without the topics (ids) that it no longer subscribes to; the same object when it has none.

    They are to be given up at once, without waiting for an assignment.
    """
    removed = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not removed:
        return member
    assigned = {
        topic_id: member.assigned[topic_id] for topic_id in member.assigned if topic_id not in removed
    }
    revoking = {topic_id: dict(partitions) for topic_id, partitions in member.revoking.items()}
    for topic_id in removed:
        revoking.setdefault(topic_id, {}).update(member.assigned[topic_id])
    if _still_owns(owned_by_client, revoking):
        return member.at(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoking)
    return member.at(member.state, member.member_epoch, assigned, member.revoking)


def _next_step(
    member: MemberAssignment,
    epoch: int,
    target: Assignment,
    target_epoch: int,
    owner_epoch_of: Callable[[bytes, int], int],
    owned_by_client: OwnedPartitions | None,
) -> MemberAssignment:
    assigned: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        kept = {partition: since for partition, since in partitions.items() if partition in wanted}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(partitions):
            revoking[topic_id] = {
                partition: since for partition, since in partitions.items() if partition not in wanted
            }
    if revoking and _still_owns(owned_by_client, revoking):
        return member.at(MemberState.UNREVOKED_PARTITIONS, epoch, assigned, revoking)
    state = MemberState.STABLE
    for topic_id, wanted in target.items():
        has: Mapping[int, int] = assigned.get(topic_id, {})
        own = member.revoking.get(topic_id, {})
        missing = [partition for partition in sorted(wanted) if partition not in has]
        # The partitions that the member itself was giving up are free: there is no other owner.
        free = [
            partition
            for partition in missing
            if partition in own or owner_epoch_of(topic_id, partition) == -1
        ]
        if len(free) < len(missing):
            state = MemberState.UNRELEASED_PARTITIONS
        if free:
            assigned.setdefault(topic_id, {}).update(dict.fromkeys(free, target_epoch))
    step = member.at(state, target_epoch, assigned, {})
    return member if step == member else step


def _still_owns(owned_by_client: OwnedPartitions | None, revoking: AssignmentEpochs) -> bool:
    """Whether the client has, or may still have, any of these."""
    if owned_by_client is None:
        return True
    for topic_id, partitions in owned_by_client:
        of_topic = revoking.get(topic_id)
        if of_topic is not None and any(partition in of_topic for partition in partitions):
            return True
    return False
