"""Looks at a group from outside, as a tool with a web page does: state, members, committed offsets, lag.

Of a cluster it asks the coordinator, and the next one when that has moved; the lag is seen where that leads.
"""

from __future__ import annotations

from typing import Any

from compat_tests.differential.harness import CLOSED, NO_ANSWER, Side
from compat_tests.kit import readers
from compat_tests.kit.working import Working
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_protocol import decode_assignment
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

PAUSE_S = 0.1
CLASSIC_STATES = {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}
CONSUMER_STATES = {"Empty", "Assigning", "Reconciling", "Stable", "Dead"}
NOT_NOW = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
"""While a broker starts, and before the group is there."""


class Away(Exception):
    """The broker does not answer at the moment."""


class Observer(Working):
    """Asks ten times a second in a thread of its own; `faults` is what was seen and must not be."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        super().__init__()
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._partitions = list(range(partitions))
        self._committed: dict[int, int] = {}
        self.faults: list[str] = []
        self.went_back: list[str] = []
        """Committed offsets that did."""
        self.states: list[str] = []
        """Every state that was seen, without repetition."""
        self.last = ""
        """The members as last seen."""

    def committed(self) -> dict[int, int]:
        """As last seen."""
        return dict(self._committed)

    def _run(self) -> None:
        side: Side | None = None
        while not self._ending.wait(PAUSE_S):
            try:
                side = side or self._coordinator()
                self._look(side)
            except (OSError, Away):
                side = _closed(side)
            except Exception as error:  # a fault of the test is none of the broker's, but must be seen
                self.faults.append(f"{type(error).__name__}: {error}")
                break
        _closed(side)

    def _coordinator(self) -> Side:
        address = readers.coordinator_of(self._bootstrap, self._group)
        if address is None:
            raise Away
        return Side("broker", address)

    def _ask(self, side: Side, request: Any, version: int) -> Any:
        answer = side.ask(request, version)
        if answer in (CLOSED, NO_ANSWER):
            raise Away
        return answer

    def _look(self, side: Side) -> None:
        self._look_at_offsets(side)
        listed = self._ask(side, ListGroupsRequest(), 5)
        if listed.error_code in NOT_NOW:
            return
        for one in listed.groups:
            if one.group_id == self._group:
                if one.group_type == "consumer":
                    self._look_at_consumer_group(side)
                else:
                    self._look_at_classic_group(side)

    def _look_at_offsets(self, side: Side) -> None:
        wanted = [OffsetFetchRequestTopics(name=self._topic, partition_indexes=self._partitions)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group, topics=wanted)])
        told = self._ask(side, request, 8).groups[0]
        if told.error_code == ErrorCode.NOT_COORDINATOR:
            raise Away
        if told.error_code in NOT_NOW:
            return
        if told.error_code:
            self.faults.append(f"OffsetFetch: {ErrorCode(told.error_code).name}")
            return
        seen = {one.partition_index: one.committed_offset for one in told.topics[0].partitions}
        ends = self._ends(side)
        for number, offset in seen.items():
            if offset < self._committed.get(number, -1):
                self.went_back.append(f"partition {number} was at {self._committed[number]}, now at {offset}")
            if number in ends and offset > ends[number]:
                self.faults.append(f"the lag of partition {number} is {ends[number] - offset}")
        self._committed.update({number: offset for number, offset in seen.items() if offset >= 0})

    def _ends(self, side: Side) -> dict[int, int]:
        asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in self._partitions]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=asked)]
        )
        told = self._ask(side, request, 5).topics[0].partitions
        return {one.partition_index: one.offset for one in told if one.error_code == 0}

    def _look_at_classic_group(self, side: Side) -> None:
        told = self._ask(side, DescribeGroupsRequest(groups=[self._group]), 5).groups[0]
        if told.error_code in NOT_NOW or not self._note_state(told.group_state, CLASSIC_STATES):
            return
        parts = [
            frozenset(number for topic in decode_assignment(one.member_assignment).assigned_partitions
                      for number in topic.partitions)
            for one in told.members
            if one.member_assignment
        ]  # fmt: skip
        self._check_members(told.group_state, [one.member_id for one in told.members])
        names = [one.group_instance_id or one.member_id for one in told.members]
        self.last = f"{told.group_state}: {names}, {[sorted(part) for part in parts]}"
        given = [number for part in parts for number in part]
        # A cooperative assignor leaves out for a generation what has to change hands.
        if told.group_state == "Stable" and len(given) != len(set(given)):
            self.faults.append(f"Stable, with {parts} given out")

    def _look_at_consumer_group(self, side: Side) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[self._group])
        told = self._ask(side, request, 0).groups[0]
        if told.error_code in NOT_NOW or not self._note_state(told.group_state, CONSUMER_STATES):
            return
        parts = [
            frozenset(number for topic in one.assignment.topic_partitions for number in topic.partitions)
            for one in told.members
        ]
        self._check_members(told.group_state, [one.member_id for one in told.members])
        names = [one.instance_id or one.member_id for one in told.members]
        self.last = f"{told.group_state}: {names}, {[sorted(part) for part in parts]}"
        if told.group_state == "Stable":
            if sorted(number for part in parts for number in part) != self._partitions:
                self.faults.append(f"Stable, with {parts} given out")
            late = [one.member_id for one in told.members if one.member_epoch != told.group_epoch]
            if late:
                self.faults.append(f"Stable in epoch {told.group_epoch}, without {late}")

    def _note_state(self, state: str, states: set[str]) -> bool:
        if state not in states:
            self.faults.append(f"state {state!r}")
            return False
        if self.states[-1:] != [state]:
            self.states.append(state)
        return True

    def _check_members(self, state: str, members: list[str]) -> None:
        if (state == "Empty" and members) or (state == "Stable" and not members):
            self.faults.append(f"{state} with members {members}")


def _closed(side: Side | None) -> None:
    if side is not None:
        side.close()
