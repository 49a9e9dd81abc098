"""Members of groups made of single requests: states that no library would stay in."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compat_tests.differential.harness import CLOSED, NO_ANSWER, Side
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import streams_group_heartbeat as streams
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

LONG_MS = 600_000
"""Longer than any test: nothing times out."""
SECONDS = 30.0
TRY_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Parts = Mapping[str, Sequence[int]]
"""Topic -> partitions."""


def subscription(*topics: str) -> bytes:
    return encode(ConsumerProtocolSubscription(topics=list(topics)), 1)


def assignment(parts: Parts) -> bytes:
    told = [AssignedTopicPartitions(topic=name, partitions=list(numbers)) for name, numbers in parts.items()]
    return encode(ConsumerProtocolAssignment(assigned_partitions=told), 1)


def wait_for_coordinator(side: Side, group: str) -> None:
    """Until the group's coordinator answers, which at first use of the offsets topic takes a while."""
    deadline = time.monotonic() + SECONDS
    while True:
        found = side.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        if found not in (CLOSED, NO_ANSWER) and found.coordinators[0].error_code == 0:
            told = side.ask(DescribeGroupsRequest(groups=[group]), 5)
            if told not in (CLOSED, NO_ANSWER) and told.groups[0].error_code not in TRY_AGAIN:
                return
        assert time.monotonic() < deadline, (side.name, found)
        time.sleep(0.05)


class WireMember:
    """On a connection of its own. `take_join` and `take_sync` wait for what was asked before."""

    def __init__(
        self, side: Side, group: str, name: str, metadata: bytes, *, instance: str | None = None, **more: Any
    ) -> None:
        self.side, self.group, self.name, self.instance = side, group, name, instance
        self._metadata, self._more = metadata, more
        self.member_id = ""
        self.generation = -1

    def _join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            member_id=self.member_id,
            group_instance_id=self.instance,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            protocol_type=self._more.get("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self._metadata)],
        )

    def get_id(self) -> None:
        """What a dynamic member's first join is for; a static one gets its id with the answer."""
        if self.instance is None:
            answer = self.side.ask(self._join_request(), 9, self.name)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
            self.member_id = answer.member_id

    def ask_to_join(self) -> None:
        self.side.request(self._join_request(), 9, self.name)

    def take_join(self) -> Any:
        answer = self.side.answer(JoinGroupRequest, 9, self.name)
        assert answer not in (CLOSED, NO_ANSWER), answer
        assert answer.error_code == 0, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def ask_to_sync(self, assignments: Mapping[str, bytes] | None = None) -> None:
        """The leader gives what each member id gets."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self._more.get("protocol_type", "consumer"),
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=one)
                for member_id, one in (assignments or {}).items()
            ],
        )
        self.side.request(request, 5, self.name)

    def take_sync(self) -> Any:
        answer = self.side.answer(SyncGroupRequest, 5, self.name)
        assert answer not in (CLOSED, NO_ANSWER), answer
        assert answer.error_code == 0, answer
        return answer

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int(self.side.ask(request, 4, self.name).error_code)

    def leave(self) -> None:
        who = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        answer = self.side.ask(LeaveGroupRequest(group_id=self.group, members=[who]), 5, self.name)
        assert answer.error_code == 0, answer


class BeatingMember:
    """One of the consumer protocol, on a connection of its own: it does what it is told with each heartbeat,
    unless it no longer `gives_up` anything."""

    def __init__(
        self, side: Side, group: str, member_id: str, *, instance: str | None = None, **joining: Any
    ) -> None:
        self.side = Side(side.name, f"{side.host}:{side.port}")
        self.group, self.member_id, self.instance = group, member_id, instance
        self.epoch = 0
        self.gives_up = True
        self._joining = {"rebalance_timeout_ms": LONG_MS, **joining}
        self._owned: list[TopicPartitions] = []

    @property
    def size(self) -> int:
        """How many partitions it has."""
        return sum(len(topic.partitions) for topic in self._owned)

    def beat(self) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            topic_partitions=self._owned,
            **(self._joining if self.epoch == 0 else {}),
        )
        answer = self.side.ask(request, 1)
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None and self.gives_up:
            self._owned = answer.assignment.topic_partitions
        return answer

    def leave(self) -> None:
        leaving = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=-1, instance_id=self.instance
        )
        answer = self.side.ask(leaving, 1)
        assert answer.error_code == 0, answer
        self.side.close()


class BeatingThread:
    """One of the streams protocol, whose application reads topics and keeps no state."""

    def __init__(self, side: Side, group: str, member_id: str, topics: Sequence[str]) -> None:
        self.side = Side(side.name, f"{side.host}:{side.port}")
        self.group, self.member_id = group, member_id
        self.epoch = 0
        self._topology = streams.Topology(
            epoch=0,
            subtopologies=[
                streams.Subtopology(
                    subtopology_id="0",
                    source_topics=list(topics),
                    source_topic_regex=[],
                    state_changelog_topics=[],
                    repartition_sink_topics=[],
                    repartition_source_topics=[],
                    copartition_groups=[],
                )
            ],
        )
        self._active: list[streams.TaskIds] = []

    @property
    def size(self) -> int:
        """How many tasks it runs."""
        return sum(len(of_subtopology.partitions) for of_subtopology in self._active)

    def beat(self) -> Any:
        joining = {
            "rebalance_timeout_ms": LONG_MS,
            "topology": self._topology,
            "process_id": f"process of {self.member_id}",
            "client_tags": [],
        }
        request = streams.StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=-1,
            active_tasks=self._active,
            standby_tasks=[],
            warmup_tasks=[],
            **(joining if self.epoch == 0 else {"rebalance_timeout_ms": -1}),
        )
        answer = self.side.ask(request, 0)
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self._active = answer.active_tasks
        return answer

    def leave(self) -> None:
        leaving = streams.StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=-1,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=-1,
        )
        answer = self.side.ask(leaving, 0)
        assert answer.error_code == 0, answer
        self.side.close()


Beating = BeatingMember | BeatingThread


def settle(members: Sequence[Beating], size: int, epoch: int) -> None:
    """Until all are in this epoch and have so much together; they join one after the other."""
    deadline = time.monotonic() + SECONDS
    while True:
        for member in members:
            member.beat()
        if {member.epoch for member in members} == {epoch} and sum(one.size for one in members) == size:
            return
        assert time.monotonic() < deadline, [(member.epoch, member.size) for member in members]
        time.sleep(0.05)


@contextlib.contextmanager
def kept_alive(members: Sequence[Beating]) -> Iterator[None]:
    """Heartbeats go on meanwhile, for their sessions are short."""
    is_over = threading.Event()
    failures: list[BaseException] = []

    def go_on() -> None:
        try:
            while not is_over.wait(0.3):
                for member in members:
                    member.beat()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=go_on, name="heartbeats")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert not failures, failures


def state_of(side: Side, group: str) -> tuple[str, int]:
    """State and number of members."""
    told = side.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]
    return told.group_state, len(told.members)


def wait_for_state(side: Side, group: str, state: str, members: int) -> None:
    deadline = time.monotonic() + SECONDS
    while (found := state_of(side, group)) != (state, members):
        assert time.monotonic() < deadline, (side.name, group, found)
        time.sleep(0.02)


def form(members: Sequence[WireMember], parts: Sequence[Parts]) -> None:
    """A stable group of these members, each with its part."""
    first, others = members[0], members[1:]
    wait_for_coordinator(first.side, first.group)
    for member in members:
        member.get_id()
    first.ask_to_join()
    first.take_join()
    if others:
        for member in others:
            member.ask_to_join()
        # All must have been heard before the first one's join ends the round.
        wait_for_state(first.side, first.group, "PreparingRebalance", len(members))
        first.ask_to_join()
        for member in members:
            member.take_join()
    told = {one.member_id: assignment(part) for one, part in zip(members, parts, strict=True)}
    first.ask_to_sync(told)
    first.take_sync()
    for member in others:
        member.ask_to_sync()
        member.take_sync()
    wait_for_state(first.side, first.group, "Stable", len(members))


def commit_request(
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str = "",
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), offset in offsets.items():
        one = OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=0,
            committed_metadata=metadata,
        )
        topics.setdefault(topic, []).append(one)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def commit(side: Side, group: str, offsets: Mapping[tuple[str, int], int], **who: Any) -> None:
    """As a consumer without a group does, unless `who` says otherwise."""
    wait_for_coordinator(side, group)
    answer = side.ask(commit_request(group, offsets, **who), 9)
    codes = {one.error_code for topic in answer.topics for one in topic.partitions}
    assert codes == {0}, answer


def committed(side: Side, group: str) -> dict[tuple[str, int], int]:
    """Everything that a group has committed."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = side.ask(request, 8).groups[0]
    assert answer.error_code == 0, answer
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in answer.topics
        for one in topic.partitions
    }
