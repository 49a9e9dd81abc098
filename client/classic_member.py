"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

It is eager, as Java's consumer with range: it gives up all partitions before it joins again. Source: the
protocol of Kafka's AbstractCoordinator and ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from odradek.client.client_error import ClientError, refusal
from odradek.client.member_settings import MemberSettings
from odradek.client.membership import ASSIGNED_MAX, LOST, PartitionCounts, Partitions
from odradek.client.range_assignor import Subscriber, assign_range
from odradek.wire.errors import ErrorCode, MalformedMessage, error_of
from odradek.wire.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.wire.schema import Message

JOIN_SLACK_MS = 5_000
"""Time that the response may take beyond the rebalance, as in Java's client."""
LEAVE_MANY_VERSION = 3
"""First version of LeaveGroup that names several members."""
METADATA_MS = 300_000
"""How often the leader looks for new partitions, as Java's metadata.max.age.ms."""
_STRATEGY = "range"
_PROTOCOL_VERSION = 0
"""Version of subscriptions and assignments: an eager member has nothing to say in the later fields."""


class ClassicMember:
    """A `Membership`; see there."""

    def __init__(
        self, group: str, topics: Collection[str], settings: MemberSettings, counts: PartitionCounts
    ) -> None:
        self._group, self._topics, self._settings = group, sorted(topics), settings
        self._counts = counts
        self.member_id = ""
        self.epoch = -1
        self.target: Partitions | None = None
        self.is_lost = False
        self._phase = "join"
        """join; sync; stable; revoke: partitions are given up before the next join."""
        self._assignments: list[SyncGroupRequestAssignment] = []
        """Assignments of all members, made by the leader."""
        self._next_ms = 0
        self._counted: dict[str, int] | None = None
        """Partition counts by topic that the leader's assignment used."""
        self._count_again_ms = 0

    @property
    def is_settled(self) -> bool:
        return self._phase == "stable" and self.target is None

    # Asking

    def request(self, now_ms: int) -> Message | None:
        if self._phase == "join":
            return self._join()
        if self._phase == "sync":
            return SyncGroupRequest(
                group_id=self._group,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self._settings.instance_id,
                protocol_type="consumer",
                protocol_name=_STRATEGY,
                assignments=self._assignments,
            )
        if self._phase == "revoke" or self.wait_ms(now_ms) > 0:
            return None
        if self._has_other_counts(now_ms):
            self._give_up()
            return None
        self._next_ms = now_ms + self._settings.heartbeat_interval_ms
        return HeartbeatRequest(
            group_id=self._group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._settings.instance_id,
        )

    def wait_ms(self, now_ms: int) -> int:
        return self._next_ms - now_ms if self._phase == "stable" else 0

    def response_ms(self, request: Message) -> int | None:
        if isinstance(request, JoinGroupRequest | SyncGroupRequest):
            return self._settings.max_poll_interval_ms + JOIN_SLACK_MS
        return None

    def leaving(self, version_of: Callable[[type[Message]], int]) -> Message | None:
        """A static member stays until its session ends, so that it finds its partitions after a restart."""
        if not self.member_id or self._settings.instance_id is not None:
            return None
        if version_of(LeaveGroupRequest) < LEAVE_MANY_VERSION:
            return LeaveGroupRequest(group_id=self._group, member_id=self.member_id, members=[])
        identity = MemberIdentity(member_id=self.member_id, reason="the consumer is being closed")
        return LeaveGroupRequest(group_id=self._group, member_id="", members=[identity])

    def _join(self) -> JoinGroupRequest:
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=_STRATEGY, metadata=encode(subscription, _PROTOCOL_VERSION))
            ],
        )

    # Responses

    def take(self, response: Any, now_ms: int) -> None:
        code = error_of(response.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._give_up()
        elif code in LOST:
            self.lose(code)
        elif code != ErrorCode.NONE:
            raise self._refused(code)
        elif isinstance(response, JoinGroupResponse):
            self._joined(response, now_ms)
        elif not isinstance(response, HeartbeatResponse):
            self._synced(response, now_ms)

    def failed(self) -> None:
        """The request is made again: a join with the same member id, as far as there is one."""
        if self._phase == "stable":
            self._next_ms = 0
        elif self._phase == "sync":
            self._phase = "join"

    def lose(self, code: ErrorCode) -> None:
        self.is_lost = True
        self.epoch = -1
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._phase, self.target = "revoke", None

    def acknowledge(self, assigned: Partitions) -> None:
        self.is_lost, self.target = False, None
        if self._phase == "revoke":
            self._phase = "join"

    def _give_up(self) -> None:
        self._phase, self.target = "revoke", frozenset()

    def _joined(self, response: JoinGroupResponse, now_ms: int) -> None:
        if response.protocol_name not in (_STRATEGY, None):
            raise ClientError(f"group {self._group} assigns by {response.protocol_name}, and not by range")
        self.member_id, self.epoch = response.member_id, response.generation_id
        self._phase, self._assignments, self._counted = "sync", [], None
        if response.leader == response.member_id:
            self._lead(response, now_ms)

    def _lead(self, response: JoinGroupResponse, now_ms: int) -> None:
        subscribers = [
            Subscriber(one.member_id, one.group_instance_id, self._subscribed(one.metadata))
            for one in response.members
        ]
        wanted = {topic for one in subscribers for topic in one.topics}
        self._counted = dict.fromkeys(wanted, 0) | dict(self._counts(wanted))
        self._count_again_ms = now_ms + METADATA_MS
        if not response.skip_assignment:
            self._assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(of_member))
                for member_id, of_member in assign_range(subscribers, self._counted).items()
            ]

    def _subscribed(self, metadata: bytes) -> list[str]:
        try:
            return decode_subscription(metadata).topics
        except MalformedMessage as error:
            raise ClientError(
                f"a member of group {self._group} subscribes with what is not a subscription ({error})"
            ) from None

    def _synced(self, response: Any, now_ms: int) -> None:
        partitions: set[tuple[str, int]] = set()
        try:
            # A member that the leader has left out has no bytes.
            named = decode_assignment(response.assignment).assigned_partitions if response.assignment else []
        except MalformedMessage as error:
            raise ClientError(
                f"the leader of group {self._group} sends what is not an assignment ({error})"
            ) from None
        for one in named:
            partitions.update((one.topic, number) for number in one.partitions)
        if len(partitions) > ASSIGNED_MAX:
            raise ClientError(f"the leader of group {self._group} assigns {len(partitions)} partitions")
        self.target, self._phase, self._assignments = frozenset(partitions), "stable", []
        self._next_ms = now_ms + self._settings.heartbeat_interval_ms

    def _has_other_counts(self, now_ms: int) -> bool:
        """Whether topics have got, or lost, partitions since the member has assigned them as the leader."""
        if self._counted is None or now_ms < self._count_again_ms:
            return False
        self._count_again_ms = now_ms + METADATA_MS
        return self._counted != dict.fromkeys(self._counted, 0) | dict(self._counts(self._counted))

    def _refused(self, code: ErrorCode) -> ClientError:
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return ClientError(
                f"group {self._group} has members that do not assign by range, or that are not consumers",
                code,
            )
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return ClientError(
                f"another member of group {self._group} has taken over as group.instance.id "
                f"{self._settings.instance_id}",
                code,
            )
        return refusal(f"joining group {self._group}", code)


def _assignment(of_member: dict[str, range]) -> bytes:
    topics = [AssignedTopicPartitions(topic=topic, partitions=[*of]) for topic, of in of_member.items()]
    return encode(ConsumerProtocolAssignment(assigned_partitions=topics), _PROTOCOL_VERSION)
