"""Leaders and coordinators that really move, for a test on a node of a cluster: the faults `leader_moved` and
`coordinator_moved`, and `move_leader` of `odradek.Cluster`.

The controllers move them, ours or Kafka's, by the two requests that a client of administration would send:
the replicas with another one as the first (AlterPartitionReassignments), and an election of the preferred
leader (ElectLeaders). At the end of a fault the order is the former one, and its first replica leads again,
if it is in sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import NO_LEADER
from odradek.server.test_kit.fault_rules import Firing
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.named import GROUP, PARTITION, TOPIC, TRANSACTIONAL_ID
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.partitioner import partition_for

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView, PartitionView
    from odradek.server.test_kit.tested import Tested

MOVE_SECONDS = 30.0
"""Until the node knows of the other leader."""
LOOK_SECONDS = 0.01
STEP_SECONDS = 0.05
"""Until the controllers are asked for the next step, or for the same again."""
PREFERRED = 0
LEADER_MOVED, COORDINATOR_MOVED = "leader_moved", "coordinator_moved"
_TAKEN: Mapping[str, tuple[str, ...]] = {
    LEADER_MOVED: (TOPIC, PARTITION),
    COORDINATOR_MOVED: (GROUP, TRANSACTIONAL_ID),
}

_EACH_TIME = {"every": 1, "probability": 1.0, "seed": 0}
"""Values that say no more than that it fires each time."""


@dataclass(kw_only=True, eq=False)
class MoveFault(Firing):
    """A leader that has moved."""

    given: dict[str, Any]
    """Arguments that say what it is for."""
    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The order before."""

    def about(self) -> dict[str, Any]:
        return self.given


class Moves:
    """The moves of one node."""

    def __init__(self, server: Tested) -> None:
        self._server = server

    @property
    def are_possible(self) -> bool:
        """Whether there are controllers that could move anything."""
        return self._server.ask_controllers is not None

    async def move(
        self, number: int, given: dict[str, Any], often: Mapping[str, Any], others: Sequence[Firing]
    ) -> MoveFault:
        """The fault `number`: the leader has moved as often as is said. TestKitError: the arguments are
        wrong, it is moved by one of `others`, or nobody else could lead; nothing has changed then."""
        topic, index = self._place(given, often)
        for other in others:
            if isinstance(other, MoveFault) and (other.topic, other.partition) == (topic, index):
                raise TestKitError(
                    f"the leader of {topic}-{index} is moved by the fault {other.id}: remove that first"
                )
        before = self._found(topic, index)
        fault = MoveFault(
            id=number, given=given, topic=topic, partition=index, replicas=before.replicas, **often
        )
        try:
            for _ in range(fault.times or 1):
                await self._move_once(fault)
        except BaseException:
            if fault.fired or self._replicas(fault) != fault.replicas:
                await self.undo(fault)
            raise
        return fault

    async def lead(self, topic: str, index: int, node_id: int, timeout_s: float) -> None:
        """Has a node lead a partition: it becomes the first of the replicas, in place of the last one if it
        was none, and is elected once it is in sync. Returns when this node knows it. TestKitError: not within
        so many seconds, with what was said last."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        told = ""
        while True:
            now = self._server.cluster_view.partition(topic, index)
            if now is not None and now.leader == node_id:
                return
            try:
                await self._step(topic, index, node_id)
            except TestKitError as error:
                told = f": {error}"
            if asyncio.get_running_loop().time() > deadline:
                raise TestKitError(
                    f"node {node_id} does not lead {topic}-{index} after {timeout_s:g} s{told}"
                )
            await asyncio.sleep(STEP_SECONDS)

    async def _step(self, topic: str, index: int, node_id: int) -> None:
        """The next request to the controllers, if it is time for one."""
        now = self._found(topic, index)
        if now.replicas[0] != node_id:
            others = [one for one in now.replicas if one != node_id]
            await self._order(topic, index, [node_id, *others][: len(now.replicas)])
        elif node_id in self._able(now):
            await self._elect(topic, index)

    async def undo(self, fault: MoveFault) -> None:
        """The former order, and its first replica leads, if it is in sync. Nothing where the partition is
        gone or has other replicas by now. TestKitError: the controllers refuse, or do not answer."""
        now = self._server.cluster_view.partition(fault.topic, fault.partition)
        if now is None or set(now.replicas) != set(fault.replicas):
            return
        await self._reorder(fault, fault.replicas)
        preferred = fault.replicas[0]
        if preferred in self._able(now) and await self._elect(fault.topic, fault.partition):
            await self._until_led(fault, preferred)

    def _place(self, given: Mapping[str, Any], often: Mapping[str, Any]) -> tuple[str, int]:
        """Topic and partition. TestKitError: the arguments name none."""
        kind = LEADER_MOVED if LEADER_MOVED in given else COORDINATOR_MOVED
        wrong = [name for name in given if name not in (kind, *_TAKEN[kind])]
        wrong += [name for name, value in often.items() if value != _EACH_TIME.get(name, value)]
        if wrong:
            code = "NOT_LEADER_OR_FOLLOWER" if kind == LEADER_MOVED else "NOT_COORDINATOR"
            raise TestKitError(
                f"{kind} has no {wrong[0]} on a node of a cluster, where it moves for all: "
                f"error={code!r} only says so, to whom you want"
            )
        if kind == LEADER_MOVED:
            if TOPIC not in given or PARTITION not in given:
                raise TestKitError("leader_moved needs a topic and a partition on a node of a cluster")
            return given[TOPIC], given[PARTITION]
        if (GROUP in given) == (TRANSACTIONAL_ID in given):
            raise TestKitError("coordinator_moved needs a group or a transactional_id on a node of a cluster")
        name, key = (
            (OFFSETS_TOPIC, given[GROUP]) if GROUP in given else (TRANSACTIONS_TOPIC, given[TRANSACTIONAL_ID])
        )
        topic = self._server.cluster_view.topic(name)
        if topic is None:
            raise TestKitError(
                f"there is no {name} yet: the first client that looks for a coordinator makes it"
            )
        return name, partition_for(key, len(topic.partitions))

    def _found(self, topic: str, index: int) -> PartitionView:
        view = self._server.cluster_view
        found = view.partition(topic, index)
        if found is None:
            what = f"partition {topic}-{index}" if view.topic(topic) else f"topic {topic!r}"
            raise TestKitError(f"there is no {what}")
        if found.adding or found.removing:
            raise TestKitError(f"the replicas of {topic}-{index} are being moved: wait for the end of that")
        return found

    def _able(self, partition: PartitionView) -> list[int]:
        """Replicas that could lead, in their order from behind the leader on."""
        registrations = self._server.cluster_view.registrations
        order = sorted(partition.replicas)
        if partition.leader in order:
            place = order.index(partition.leader) + 1
            order = [*order[place:], *order[:place]]
        return [
            one
            for one in order
            if one in partition.isr
            and one in registrations
            and registrations[one].is_active
            and registrations[one].is_online(partition.directory_of(one))
        ]

    def _replicas(self, fault: MoveFault) -> tuple[int, ...]:
        partition = self._server.cluster_view.partition(fault.topic, fault.partition)
        return fault.replicas if partition is None else partition.replicas

    async def _move_once(self, fault: MoveFault) -> None:
        now = self._found(fault.topic, fault.partition)
        others = [one for one in self._able(now) if one != now.leader]
        name = f"{fault.topic}-{fault.partition}"
        if not others:
            leader = "no node" if now.leader == NO_LEADER else f"node {now.leader}"
            raise TestKitError(
                f"nobody else could lead {name}: {leader} leads it, and there is no other replica in sync"
            )
        target = others[0]
        await self._reorder(fault, (target, *(one for one in fault.replicas if one != target)))
        if not await self._elect(fault.topic, fault.partition):
            raise TestKitError(f"node {target} cannot lead {name}: it is not in sync any more")
        await self._until_led(fault, target)
        fault.seen += 1
        fault.fired += 1

    async def _reorder(self, fault: MoveFault, replicas: Sequence[int]) -> None:
        await self._order(fault.topic, fault.partition, replicas)
        await self._until(
            fault,
            lambda partition: partition.replicas == tuple(replicas),
            f"the order {', '.join(map(str, replicas))} of its replicas",
        )

    async def _order(self, topic: str, index: int, replicas: Sequence[int]) -> None:
        """Asks for these replicas in this order."""
        one = ReassignablePartition(partition_index=index, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=round(MOVE_SECONDS * 1000), topics=[ReassignableTopic(name=topic, partitions=[one])]
        )
        response = await self._ask(request)
        _check(response, [result for topic in response.responses for result in topic.partitions])

    async def _elect(self, topic: str, index: int) -> bool:
        """Whether the first replica leads, or will as soon as the node knows it."""
        request = ElectLeadersRequest(
            election_type=PREFERRED,
            topic_partitions=[TopicPartitions(topic=topic, partitions=[index])],
            timeout_ms=round(MOVE_SECONDS * 1000),
        )
        response = await self._ask(request)
        results = [one for topic in response.replica_election_results for one in topic.partition_result]
        if any(one.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE for one in results):
            return False
        _check(response, [one for one in results if one.error_code != ErrorCode.ELECTION_NOT_NEEDED])
        return True

    async def _ask(self, request: Any) -> Any:
        ask = self._server.ask_controllers
        assert ask is not None
        try:
            return await asyncio.wrap_future(ask(request))
        except ConnectionError as error:
            raise TestKitError(f"the controllers have not answered: {error}") from None

    async def _until_led(self, fault: MoveFault, leader: int) -> None:
        await self._until(fault, lambda partition: partition.leader == leader, f"node {leader} to lead it")

    async def _until(self, fault: MoveFault, is_so: Callable[[PartitionView], bool], wanted: str) -> None:
        """Waits until this node knows it; the others may know it a little later."""
        deadline = asyncio.get_running_loop().time() + MOVE_SECONDS
        while True:
            view: ClusterView = self._server.cluster_view
            partition = view.partition(fault.topic, fault.partition)
            if partition is None or is_so(partition):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise TestKitError(
                    f"{fault.topic}-{fault.partition}: waited {MOVE_SECONDS:g} s for {wanted}, and this node "
                    "does not know of it"
                )
            await asyncio.sleep(LOOK_SECONDS)


def _check(response: Any, results: Sequence[Any]) -> None:
    """TestKitError: the controllers refuse it."""
    for one in (response, *results):
        if one.error_code:
            why = f": {one.error_message}" if getattr(one, "error_message", None) else ""
            raise TestKitError(f"the controllers refuse it with {ErrorCode(one.error_code).name}{why}")
