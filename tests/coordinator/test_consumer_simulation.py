"""Consumers of one group that come, die, lose requests and answers, over a machine that restarts at any time.

At no moment do two of them work on the same partition; when all is quiet, everybody has its share after a few
heartbeats. A client is as KIP-848 has it: it stops working on what it is not given any more before it says
so, and says everything again when it has not been answered.
"""

import heapq
import random

import pytest

from odradek.coordinator.effects import Append, CancelTimer, Reply, SetTimer
from odradek.coordinator.group_coordinator import changed_topics
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.consumer_commands import ConsumerHeartbeat, TopicsChanged
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from tests.coordinator.stages.group_stage import durable_state_of, view_of_topics

HEARTBEAT_MS = 5_000
LOST = 0.05


class Consumer:
    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.member_id = f"m{number}"
        self.instance_id = f"i{number}" if number % 4 == 0 else None
        self.epoch = 0
        self.works_on: set[tuple[bytes, int]] = set()
        self.shall_have: set[tuple[bytes, int]] = set()
        self.tells_all = True
        self.is_alive = True

    def beat(self) -> None:
        """Give up, say so, take what is given: as far as the answer arrives."""
        rng = self.world.rng
        if self.works_on - self.shall_have and rng.random() < 0.8:
            self.works_on &= self.shall_have
        says_all = self.tells_all or self.epoch == 0
        owned: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(self.works_on):
            owned.setdefault(topic_id, []).append(partition)
        command = ConsumerHeartbeat(
            None,
            "g",
            self.member_id,
            self.epoch,
            self.instance_id,
            None,
            20_000 if says_all else -1,
            self.world.names if says_all else None,
            None,
            None,
            list(owned.items()) if says_all or rng.random() < 0.7 else None,
        )
        reply = None if rng.random() < self.world.lost else self.world.ask(command)
        if reply is None or rng.random() < self.world.lost:
            self.tells_all = True
            return
        self.hear(reply)

    def hear(self, reply) -> None:
        self.tells_all = False
        if reply.error_code is not ErrorCode.NONE:
            # Whatever it had is somebody else's now. A static member that is taken for alive has to wait.
            assert reply.error_code in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
            ), reply
            self.epoch, self.works_on, self.shall_have = 0, set(), set()
            return
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.shall_have = {
                (topic_id, index) for topic_id, indexes in reply.assignment for index in indexes
            }
        # New partitions are taken when nothing is left to give up.
        if self.works_on <= self.shall_have:
            self.works_on = set(self.shall_have)

    def leave(self) -> None:
        """For good, or (static ones) for a while, under another id afterwards."""
        epoch = -1 if self.instance_id is None else -2
        self.works_on = set()
        if self.epoch > 0:
            command = ConsumerHeartbeat(None, "g", self.member_id, epoch, self.instance_id)
            self.world.ask(command)
        self.epoch, self.shall_have = 0, set()
        if epoch == -2:
            self.member_id += "'"


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.settings = GroupSettings(group_consumer_assignment_interval_ms=self.rng.choice((0, 1000)))
        self.names = ["t", "u"]
        self.now_ms = 1_000
        self.lost = LOST
        self.view = view_of_topics({"t": "7", "u": "3"}, 1)
        self.log: list = []
        self.timers: dict = {}
        self.heap: list = []
        self.machine = self.new_machine()
        self.consumers = [Consumer(self, number) for number in range(self.rng.randint(2, 9))]

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, str, lambda: self.view)

    def ask(self, command):
        replies = self.carry_out(self.machine.handle(command, self.now_ms))
        assert len(replies) == 1
        return replies[0]

    def carry_out(self, effects) -> list:
        replies = []
        for effect in effects:
            if isinstance(effect, Append):
                self.log += effect.records
            elif isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_ms
                heapq.heappush(self.heap, (effect.at_ms, effect.key))
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            elif isinstance(effect, Reply):
                replies.append(effect.value)
        return replies

    def pass_time(self, milliseconds: int) -> None:
        until_ms = self.now_ms + milliseconds
        while self.heap and self.heap[0][0] <= until_ms:
            at_ms, key = heapq.heappop(self.heap)
            if self.timers.get(key) == at_ms:
                del self.timers[key]
                self.now_ms = max(self.now_ms, at_ms)
                self.carry_out(self.machine.expire(key, self.now_ms))
        self.now_ms = until_ms

    def restart(self) -> None:
        before = self.machine.groups.get("g")
        self.machine = self.new_machine()
        for key, value, _ in self.log:
            self.machine.replay(key, value)
        after = self.machine.groups.get("g")
        assert (before is None) == (after is None)
        if isinstance(before, ConsumerGroup) and isinstance(after, ConsumerGroup):
            assert durable_state_of(after) == durable_state_of(before)
        self.timers.clear()
        self.carry_out(self.machine.start(self.now_ms))

    def grow(self) -> None:
        counts = {"t": str(self.rng.randint(7, 12)), "u": str(self.rng.randint(3, 5))}
        if self.rng.random() < 0.3:
            del counts["u"]
        before, self.view = self.view, view_of_topics(counts, self.view.version + 1)
        command = TopicsChanged(None, changed_topics(before, self.view))
        self.carry_out(self.machine.handle(command, self.now_ms))

    def check(self) -> None:
        group = self.machine.groups.get("g")
        working = [
            place for consumer in self.consumers for place in consumer.works_on if self.knows(consumer)
        ]
        assert len(working) == len(set(working))
        if isinstance(group, ConsumerGroup):
            held = [
                (topic_id, partition)
                for member in group.members.values()
                for topic_id, partitions in member.current.held().items()
                for partition in partitions
            ]
            assert len(held) == len(set(held))

    def knows(self, consumer: Consumer) -> bool:
        """Whether the group still counts on it: else its client's own clock has stopped it."""
        group = self.machine.groups.get("g")
        return isinstance(group, ConsumerGroup) and consumer.member_id in group.members


@pytest.mark.parametrize("seed", range(25))
def test_no_partition_is_worked_on_twice_and_a_quiet_group_converges(seed):
    world = World(seed)
    rng = world.rng
    for _ in range(300):
        world.pass_time(rng.randrange(0, 1_500))
        consumer, luck = rng.choice(world.consumers), rng.random()
        if luck < 0.80:
            consumer.beat()
        elif luck < 0.86:
            consumer.leave()
        elif luck < 0.90:
            # Killed: it comes back as somebody else, or never.
            consumer.works_on, consumer.shall_have, consumer.epoch = set(), set(), 0
            consumer.member_id, consumer.instance_id = consumer.member_id + "+", None
        elif luck < 0.95:
            world.restart()
        else:
            world.grow()
        world.check()
    world.lost = 0
    # Those who were killed time out first.
    for _ in range(14):
        for consumer in world.consumers:
            consumer.beat()
            world.check()
        world.pass_time(HEARTBEAT_MS)
    group = world.machine.groups["g"]
    assert group.state_name == "Stable"
    wanted = {
        (topic.topic_id, partition.index)
        for topic in world.view.topics.values()
        for partition in topic.partitions
    }
    assert {place for consumer in world.consumers for place in consumer.works_on} == wanted
    sizes = [len(consumer.works_on) for consumer in world.consumers]
    assert max(sizes) - min(sizes) <= 1
