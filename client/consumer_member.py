"""A member of a group of the consumer protocol (KIP-848): the broker assigns, and heartbeats say it all.

Partitions that the broker takes away are given up before the next heartbeat; those that stay are read on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from odradek.client.client_error import ClientError, refusal
from odradek.client.member_settings import MemberSettings
from odradek.client.membership import ASSIGNED_MAX, LOST, Partitions
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.schema import Message

JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
INTERVAL_MS = 5_000
"""Interval of heartbeats, until the broker names one."""
INTERVALS_WITHOUT = 2
"""A member that has nothing so long after its join gets nothing: others have had time to give up theirs."""
UNKNOWN_AGAIN_MS = 1_000
"""A topic that is assigned may be unknown here for a moment; then it is looked up again."""

TopicIds = Callable[[Collection[str]], Mapping[bytes, str]]
"""The names of the topics by their ids, as the cluster has them now."""


class ConsumerMember:
    """A `Membership`; see there. `make_id` makes the id of the member, which it keeps."""

    def __init__(
        self,
        group: str,
        topics: Collection[str],
        settings: MemberSettings,
        topic_ids: TopicIds,
        make_id: Callable[[], str],
    ) -> None:
        self._group, self._topics, self._settings = group, sorted(topics), settings
        self._topic_ids = topic_ids
        self._names: dict[bytes, str] = {}
        self.member_id = make_id()
        self.epoch = -1
        self.target: Partitions | None = None
        self.is_lost = False
        self._assigned: Partitions = frozenset()
        self._assignment: list[TopicPartitions] | None = None
        """The broker's assignment, while a topic of it is not known here."""
        self._says_all = True
        """Whether the next heartbeat has all fields: the first one, and after a failure."""
        self._says_assigned = False
        self._may_be_there = False
        """Whether the group may know the member, answered or not."""
        self._interval_ms, self._next_ms = INTERVAL_MS, 0
        self._joined_ms: int | None = None
        self._now_ms = 0

    @property
    def is_settled(self) -> bool:
        if self._joined_ms is None or self.target is not None or self._assignment is not None:
            return False
        waited_ms = self._now_ms - self._joined_ms
        return bool(self._assigned) or waited_ms >= INTERVALS_WITHOUT * self._interval_ms

    # Asking

    def request(self, now_ms: int) -> Message | None:
        self._now_ms = now_ms
        if self.target is not None or self.is_lost or self.wait_ms(now_ms) > 0:
            return None
        if self._assignment is not None:
            self._translate(now_ms)
            if self.target is not None:
                return None
        self._next_ms = now_ms + self._interval_ms
        is_first = self.epoch < 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=JOINING if is_first else self.epoch,
            instance_id=self._settings.instance_id,
        )
        if self._says_all:
            request.rebalance_timeout_ms = self._settings.max_poll_interval_ms
            request.subscribed_topic_names = self._topics
            request.server_assignor = self._settings.remote_assignor
        if is_first:
            request.topic_partitions = []
        elif self._says_all or self._says_assigned:
            request.topic_partitions = self._owned()
        self._says_all = self._says_assigned = False
        self._may_be_there = True
        return request

    def wait_ms(self, now_ms: int) -> int:
        return self._next_ms - now_ms

    def response_ms(self, request: Message) -> int | None:
        return None

    def leaving(self, version_of: Callable[[type[Message]], int]) -> Message | None:
        if not self._may_be_there:
            return None
        is_static = self._settings.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=LEAVING_STATIC if is_static else LEAVING,
            instance_id=self._settings.instance_id,
        )

    def _owned(self) -> list[TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        numbers: dict[str, list[int]] = {}
        for topic, partition in sorted(self._assigned):
            numbers.setdefault(topic, []).append(partition)
        return [TopicPartitions(topic_id=ids[topic], partitions=of) for topic, of in numbers.items()]

    # Responses

    def take(self, response: Any, now_ms: int) -> None:
        code = error_of(response.error_code)
        if code in LOST:
            self.lose(code)
            return
        if code != ErrorCode.NONE:
            raise self._refused(code, response.error_message)
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        if self._joined_ms is None:
            self._joined_ms = now_ms
        self._interval_ms = max(1, response.heartbeat_interval_ms)
        self._next_ms = now_ms + self._interval_ms
        if response.assignment is not None:
            named = response.assignment.topic_partitions
            number = sum(len(one.partitions) for one in named)
            if number > ASSIGNED_MAX:
                raise ClientError(f"the broker assigns {number} partitions in group {self._group}")
            self._assignment = named
            self._translate(now_ms)

    def failed(self) -> None:
        self._says_all, self._next_ms = True, 0

    def lose(self, code: ErrorCode) -> None:
        """Gives up the epoch; the next heartbeat joins again as the same member, as in Java's client."""
        self.is_lost, self.target, self._assignment = True, None, None
        self.epoch, self._joined_ms, self._may_be_there = -1, None, False
        self._says_all, self._next_ms = True, 0

    def acknowledge(self, assigned: Partitions) -> None:
        """The next heartbeat, at once, says what the member has."""
        if self.target is not None:
            self._says_assigned, self._next_ms = True, 0
        self._assigned, self.target, self.is_lost = assigned, None, False

    def _translate(self, now_ms: int) -> None:
        """From ids of topics to names."""
        assert self._assignment is not None
        if any(one.topic_id not in self._names for one in self._assignment):
            self._names |= self._topic_ids(self._topics)
        known = [one for one in self._assignment if one.topic_id in self._names]
        self.target = frozenset(
            (self._names[one.topic_id], number) for one in known for number in one.partitions
        )
        if len(known) == len(self._assignment):
            self._assignment = None
        else:
            self._next_ms = now_ms + UNKNOWN_AGAIN_MS
            if self.target == self._assigned:
                self.target = None

    def _refused(self, code: ErrorCode, message: str | None) -> ClientError:
        if code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            return ClientError(
                f"another member of group {self._group} is there as group.instance.id "
                f"{self._settings.instance_id}",
                code,
            )
        return refusal(f"joining group {self._group}", code, message)
