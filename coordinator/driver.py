"""Runs the group machines of this node: one for each partition of `__consumer_offsets` that it leads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from odradek.coordinator.cluster import ClusterView
from odradek.coordinator.commands import Command, ListGroupsReply
from odradek.coordinator.log import CoordinatorLog
from odradek.coordinator.settings import GroupSettings

__all__ = ["OFFSETS_TOPIC", "GroupCoordinator", "TimerHandle"]

OFFSETS_TOPIC = "__consumer_offsets"


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
"""asyncio's `loop.call_later`: seconds, function."""


class GroupCoordinator:
    """Every method is called on the event loop; nothing here blocks."""

    def __init__(
        self,
        *,
        node_id: int,
        settings: GroupSettings,
        open_log: Callable[[int], CoordinatorLog | None],
        clock_ms: Callable[[], int],
        call_later: CallLater,
        new_member_suffix: Callable[[], str],
    ) -> None:
        """`open_log(partition)` gives the log of a partition of `__consumer_offsets`, None while it has none.

        `new_member_suffix` makes the random part of a member id (a UUID in its text form).
        """

    def view_changed(self, view: ClusterView) -> None:
        """Take up the partitions that this node leads now, give up the others. Call with each new view."""

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that looks after a group."""

    def submit(self, group_id: str, command: Command) -> None:
        """Carry out a command. `command.ticket(answer)` is called once: perhaps before this returns."""

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> ListGroupsReply:
        """The groups of all machines of this node, at once."""

    def remove_topics(self, names: Collection[str]) -> None:
        """Forget the offsets of topics that have been deleted."""

    def close(self) -> None:
        """Give up every partition: what waits is answered with NOT_COORDINATOR."""
