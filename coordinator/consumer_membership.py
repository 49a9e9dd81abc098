"""Who is in a consumer group and what they work on (KIP-848). Being built: heartbeats are refused."""

from __future__ import annotations

from collections.abc import Callable

from odradek.coordinator.cluster import ClusterView
from odradek.coordinator.consumer_commands import (
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    Noted,
    TopicsMatched,
)
from odradek.coordinator.consumer_group import ConsumerGroup
from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.group import Group, Store
from odradek.coordinator.settings import GroupSettings
from odradek.wire.errors import ErrorCode

__all__ = ["ConsumerMembership"]

NONE = ErrorCode.NONE


class ConsumerMembership:
    """The consumer protocol over the groups of one machine. Each method adds its effects to `out`."""

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        new_member_suffix: Callable[[], str],
        topics: Callable[[], ClusterView],
        store: Store,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._new_member_id = new_member_suffix
        self._topics = topics
        self._store = store

    def heartbeat(self, command: ConsumerHeartbeat, now_ms: int, out: list[Effect]) -> None:
        out.append(Reply(command.ticket, command.refused(ErrorCode.UNSUPPORTED_VERSION)))

    def describe(self, command: DescribeConsumerGroup, now_ms: int, out: list[Effect]) -> None:
        out.append(Reply(command.ticket, command.refused(ErrorCode.GROUP_ID_NOT_FOUND)))

    def topics_matched(self, command: TopicsMatched, now_ms: int, out: list[Effect]) -> None:
        out.append(Reply(command.ticket, Noted(NONE)))

    def start(self, group: ConsumerGroup, now_ms: int, out: list[Effect]) -> None:
        """The group has been read from the log: its members may still be there; their sessions begin now."""

    def expire(
        self, group: ConsumerGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]
    ) -> None:
        """A timer of the group has rung."""

    def topics_changed(
        self, group: ConsumerGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        """To be looked at with the next heartbeat."""

    def refuse_waiting(self, group: ConsumerGroup, code: ErrorCode, out: list[Effect]) -> None:
        """Nobody ever waits: every heartbeat is answered at once."""
