"""The records of one heartbeat: the member as it now is, a new epoch of the group, a new target assignment,
and the member's step towards it.

A `MemberChange` gathers them with their values; nothing is in the group before they are stored. So a refusal
on the way leaves everything as it was. The records are in the order in which Kafka writes them.

Source: GroupMetadataManager.java and TargetAssignmentBuilder.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.epochs.group import EpochGroup, EpochMember, metadata_hash
from odradek.coordinator.groups.group import GroupRecord

AnyGroup = TypeVar("AnyGroup", bound=EpochGroup[Any, Any])


class MemberChange(Generic[AnyGroup]):
    """Changes that one command makes to the member `member_id`, who may be new (`member` is None)."""

    def __init__(self, group: AnyGroup, member: EpochMember[Any, Any] | None, member_id: str) -> None:
        self.group = group
        """The group as it was before; a new one is in no machine yet."""
        self.member_id = member_id
        self.is_new = member is None
        known = group.new_member(member_id) if member is None else member
        self.records: list[GroupRecord] = []
        self.before = known.metadata
        self.metadata = self.before
        self.current_before = known.current
        self.current = self.current_before
        self.target = group.target_of(known.member_id)
        self.group_epoch = group.group_epoch
        self.assignment_epoch = group.assignment_epoch
        self.topics_compared = False
        """The group's topics have been compared with its hash."""

    def update(self, metadata: Any) -> bool:
        """The member says this of itself now. False when it is the same again."""
        is_same = metadata is self.metadata or metadata == self.metadata
        if is_same and not self.is_new:
            return False
        self.records.append(self.group.records.member(self.group.group_id, self.member_id, metadata))
        self.metadata = metadata
        return True

    def compare_topics(self, topics: Iterable[str], view: ClusterView, is_reason: bool) -> None:
        """A new epoch of the group, if there `is_reason` for one or the topics have changed."""
        found = metadata_hash(topics, view)
        if is_reason or found != self.group.metadata_hash:
            self.raise_epoch(found)
        self.topics_compared = True

    def raise_epoch(self, found: int, **more: Any) -> None:
        """A new epoch of the group, with the hash of its topics."""
        self.group_epoch += 1
        self.records.append(self.group.records.epoch(self.group.group_id, self.group_epoch, found, **more))

    def assign(self, targets: Mapping[str, Any], now_ms: int) -> None:
        """A target for every member, for the group's epoch."""
        self.records += target_records(self.group, targets, self.group_epoch, now_ms)
        self.target = targets.get(self.member_id, self.group.no_target)
        self.assignment_epoch = self.group_epoch

    def move(self, current: Any) -> None:
        """The member's step towards its target."""
        if current is not self.current and current != self.current:
            self.current = current
            self.records.append(self.group.records.current(self.group.group_id, self.member_id, current))


def target_records(
    group: EpochGroup[Any, Any], targets: Mapping[str, Any], epoch: int, now_ms: int
) -> list[GroupRecord]:
    """Records of the news in a target assignment, and its epoch."""
    changed = []
    for member_id, target in targets.items():
        known = group.targets.get(member_id)
        if known is not target and known != target:
            changed.append(group.records.target(group.group_id, member_id, target))
    return [*changed, group.records.target_epoch(group.group_id, epoch, now_ms)]
