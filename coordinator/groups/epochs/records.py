"""The records of a group with epochs: its epoch, its target assignment, and what each member is, shall have
and has. Each type has classes of its own for them, which look alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.coordinator.groups.group import GroupRecord

Make = Callable[..., Any]
"""The class of a key or of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecords:
    """The records of one type. `target_value` and `current_value` are how the log has a target and what a
    member has; `target_of` and `current_of` read them."""

    epoch_key: Make
    epoch_value: Make
    member_key: Make
    target_epoch_key: Make
    target_epoch_value: Make
    target_key: Make
    target_value: Callable[[Any], Any]
    target_of: Callable[[Any], Any]
    current_key: Make
    current_value: Callable[[Any], Any]
    current_of: Callable[[Any], Any]

    def epoch(self, group_id: str, epoch: int, metadata_hash: int, **more: Any) -> GroupRecord:
        """The epoch of the group; `more` is what this type has beside it."""
        value = self.epoch_value(epoch=epoch, metadata_hash=metadata_hash, **more)
        return self.epoch_key(group_id=group_id), value

    def member(self, group_id: str, member_id: str, metadata: Any) -> GroupRecord:
        return self.member_key(group_id=group_id, member_id=member_id), metadata

    def target_epoch(self, group_id: str, epoch: int, now_ms: int = 0) -> GroupRecord:
        value = self.target_epoch_value(assignment_epoch=epoch, assignment_timestamp=now_ms)
        return self.target_epoch_key(group_id=group_id), value

    def target(self, group_id: str, member_id: str, target: Any) -> GroupRecord:
        return self.target_key(group_id=group_id, member_id=member_id), self.target_value(target)

    def current(self, group_id: str, member_id: str, current: Any) -> GroupRecord:
        return self.current_key(group_id=group_id, member_id=member_id), self.current_value(current)

    def tombstones(self, group_id: str, member_id: str) -> list[GroupRecord]:
        """The end of a member; what refers to something goes before it."""
        return [
            (self.current_key(group_id=group_id, member_id=member_id), None),
            (self.target_key(group_id=group_id, member_id=member_id), None),
            (self.member_key(group_id=group_id, member_id=member_id), None),
        ]

    def keys(self, group_id: str, member_ids: Collection[str], more: Iterable[Any]) -> list[Any]:
        """The keys of a group in the order in which Kafka deletes them; `more` is what this type has."""
        return [
            *(self.current_key(group_id=group_id, member_id=one) for one in member_ids),
            *(self.target_key(group_id=group_id, member_id=one) for one in member_ids),
            self.target_epoch_key(group_id=group_id),
            *(self.member_key(group_id=group_id, member_id=one) for one in member_ids),
            *more,
            self.epoch_key(group_id=group_id),
        ]


def epochs_of(listed: Any, member_epoch: int) -> Mapping[int, int]:
    """By partition, the epoch since when a member has it."""
    partitions, since = listed.partitions, listed.assignment_epochs
    if since is None or len(since) != len(partitions):
        # Brokers before 4.3 did not say; nothing older than the member's epoch is believed then.
        return dict.fromkeys(partitions, member_epoch)
    return dict(zip(partitions, since, strict=True))
