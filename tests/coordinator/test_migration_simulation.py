"""Members of both protocols in one group that goes back and forth between them, by one seed.

Every member does what a real consumer does: one of the classic protocol joins, leads if told to, syncs, and
gives up everything before it joins again (`eager`) or only what it is told to (`cooperative`); one of the
consumer protocol has its heartbeats. They come, leave, and come back with the other protocol; the broker
starts anew at any moment. What counts is what they work on: never may two work on the same partition, for
nobody who is there is ever silent for as long as a session. Left alone, they share all partitions out in a
bounded time.
"""

import heapq
import itertools
import random

import pytest

from odradek.coordinator.effects import Append, CancelTimer, Reply, SetTimer
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.commands import Heartbeat, Join, Leave, LeavingMember, OfferedProtocol, Sync
from odradek.coordinator.groups.consumer_commands import ConsumerHeartbeat
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_protocol
from odradek.wire.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.coordinator.stages.group_stage import durable_state, topic_id, view_of_topics

PARTITIONS = 12
BUSY_MS, QUIET_MS = 60_000, 60_000
HEARTBEAT_MS = 500
SESSION_MS = 8_000
"""Ends only for members that have left before they knew their id."""
REBALANCE_MS = 20_000
NONE = ErrorCode.NONE


class World:
    def __init__(self, seed: int, flavour: str) -> None:
        self.random = random.Random(seed)
        self.flavour = flavour
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=300,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_max_session_timeout_ms=SESSION_MS,
            group_consumer_assignment_interval_ms=self.random.choice((0, 1_000)),
        )
        self.longest_calm_ms = self.random.choice((300, 1_500, 4_000))
        self.view = view_of_topics({"t": str(PARTITIONS)}, 1)
        self.numbers = itertools.count(1)
        self.now_ms = 0
        self.events: list = []
        self.log: list = []
        self.timers: dict = {}
        self.types: set[str] = set()
        self.members: list[Member] = []
        self.machine = self.new_machine()

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, lambda: str(next(self.numbers)), lambda: self.view)

    def at(self, delay_ms: int, action, *arguments) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.numbers), action, arguments))

    def run(self, until_ms: int) -> None:
        while self.events and self.events[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
            self.check_owners()
        self.now_ms = until_ms

    def send(self, command) -> None:
        self.at(self.random.randrange(1, 60), self.receive, command)

    def receive(self, command) -> None:
        self.carry_out(self.machine.handle(command, self.now_ms))
        group = self.machine.groups.get("g")
        if group is not None:
            self.types.add(group.group_type)

    def carry_out(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self.log += effect.records
            elif isinstance(effect, SetTimer):
                self.timers[effect.key] = number = next(self.numbers)
                self.at(max(effect.at_ms - self.now_ms, 0), self.ring, effect.key, number)
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            elif isinstance(effect, Reply):
                self.at(self.random.randrange(1, 60), effect.ticket, effect.value)

    def ring(self, key, number) -> None:
        if self.timers.get(key) == number:
            del self.timers[key]
            self.carry_out(self.machine.expire(key, self.now_ms))

    def restart(self) -> None:
        """The broker ends, answers whoever waits, and starts anew from its log."""
        before, *_ = durable_state(self.machine)
        self.carry_out(self.machine.refuse_waiting(ErrorCode.NOT_COORDINATOR))
        self.timers.clear()
        self.machine = self.new_machine()
        for key, value, _ in self.log:
            self.machine.replay(key, value)
        after, *_ = durable_state(self.machine)
        settled = {name: state for name, state in before.items() if state is not None}
        assert {name: after.get(name) for name in settled} == settled
        self.carry_out(self.machine.start(self.now_ms))

    def check_owners(self) -> None:
        owners: dict[int, Member] = {}
        for member in self.members:
            for partition in member.owned:
                other = owners.setdefault(partition, member)
                assert other is member, f"{self.now_ms}: {partition} of {other} and of {member}"

    def disturb(self) -> None:
        dice = self.random.random()
        here = [member for member in self.members if not member.is_leaving]
        if dice < 0.25 and len(here) < 6:
            self.members.append(self.random.choice((ClassicMember, NewMember))(self))
        elif dice < 0.5 and len(here) > 1:
            self.random.choice(here).leave()
        elif dice < 0.8 and here:
            # One step of a rolling upgrade, or of the way back.
            member = self.random.choice(here)
            member.leave()
            self.members.append((NewMember if isinstance(member, ClassicMember) else ClassicMember)(self))
        elif dice < 0.9:
            self.restart()
        if self.now_ms < BUSY_MS:
            self.at(self.random.randrange(10, self.longest_calm_ms), self.disturb)


class Member:
    def __init__(self, world: World) -> None:
        self.world = world
        self.name = f"m{next(world.numbers)}"
        self.member_id = ""
        self.owned: set[int] = set()
        self.is_leaving = False
        self.at(world.random.randrange(500), self.begin)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__} {self.name}"

    def at(self, delay_ms: int, action, *arguments) -> None:
        """Unless it is gone by then."""
        self.world.at(delay_ms, lambda: None if self.is_leaving else action(*arguments))

    def send(self, command_class, then, **fields) -> None:
        def take(answer) -> None:
            if not self.is_leaving:
                then(answer)

        self.world.send(command_class(ticket=take, group_id="g", **fields))

    def leave(self) -> None:
        self.is_leaving = True
        self.owned = set()
        self.say_goodbye()

    def begin(self) -> None:
        raise NotImplementedError

    def say_goodbye(self) -> None:
        raise NotImplementedError


class NewMember(Member):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.member_id, self.epoch = self.name, 0

    def begin(self) -> None:
        topics = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": REBALANCE_MS}
        self.send(
            ConsumerHeartbeat,
            self.told,
            member_id=self.member_id,
            member_epoch=self.epoch,
            owned=[(topic_id("t"), sorted(self.owned))] if self.owned else [],
            **(topics if self.epoch == 0 else {}),
        )

    def told(self, reply) -> None:
        if reply.error_code is NONE:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.owned = {index for _, indexes in reply.assignment for index in indexes}
        elif reply.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, set()
        else:
            assert reply.error_code in (ErrorCode.NOT_COORDINATOR,), reply
        self.at(HEARTBEAT_MS, self.begin)

    def say_goodbye(self) -> None:
        self.world.send(ConsumerHeartbeat(lambda reply: None, "g", self.member_id, -1))


class ClassicMember(Member):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.generation = -1
        self.protocol: str | None = None

    @property
    def is_eager(self) -> bool:
        return self.world.flavour == "eager"

    def begin(self) -> None:
        if self.is_eager:
            self.owned = set()
        owned = [TopicPartition(topic="t", partitions=sorted(self.owned))] if self.owned else []
        metadata = consumer_protocol.encode(
            ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned), 1
        )
        self.send(
            Join,
            self.joined,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[OfferedProtocol(self.world.flavour, metadata)],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def joined(self, reply) -> None:
        self.member_id = reply.member_id or self.member_id
        if reply.error_code is not NONE:
            return self.failed(reply.error_code)
        self.generation, self.protocol = reply.generation, reply.protocol_name
        assignments = {}
        if reply.leader == self.member_id and not reply.skip_assignment:
            claims = {
                member.member_id: {
                    index
                    for topic in consumer_protocol.decode_subscription(member.metadata).owned_partitions
                    for index in topic.partitions
                }
                for member in reply.members
            }
            assignments = {member_id: encoded(share) for member_id, share in shares(claims).items()}
        self.send(
            Sync,
            self.synced,
            generation=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=assignments,
        )
        return None

    def synced(self, reply) -> None:
        if reply.error_code is not NONE:
            return self.failed(reply.error_code)
        decoded = consumer_protocol.decode_assignment(reply.assignment) if reply.assignment else None
        topics = [] if decoded is None else decoded.assigned_partitions
        assigned = {index for topic in topics for index in topic.partitions}
        given_up, self.owned = self.owned - assigned, assigned
        self.at(1 if given_up else HEARTBEAT_MS, self.begin if given_up else self.beat)
        return None

    def beat(self) -> None:
        self.send(Heartbeat, self.beaten, generation=self.generation, member_id=self.member_id)

    def beaten(self, reply) -> None:
        if reply.error_code is NONE:
            self.at(HEARTBEAT_MS, self.beat)
        else:
            self.failed(reply.error_code)

    def failed(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned = set()
        else:
            assert code in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.MEMBER_ID_REQUIRED,
                ErrorCode.NOT_COORDINATOR,
            ), code
        self.at(20, self.begin)

    def say_goodbye(self) -> None:
        self.world.send(Leave(lambda reply: None, "g", [LeavingMember(self.member_id)]))


def encoded(partitions) -> bytes:
    topics = [AssignedTopicPartitions(topic="t", partitions=sorted(partitions))]
    return consumer_protocol.encode(ConsumerProtocolAssignment(assigned_partitions=topics), 1)


def shares(claims: dict[str, set[int]]) -> dict[str, set[int]]:
    """A cooperative assignor: nobody is given what another one still claims."""
    targets: dict[str, set[int]] = {member_id: set() for member_id in claims}
    most = -(-PARTITIONS // len(claims))
    claimed: dict[int, str] = {}
    for member_id, partitions in claims.items():
        for partition in sorted(partitions):
            claimed.setdefault(partition, member_id)
            if claimed[partition] == member_id and len(targets[member_id]) < most:
                targets[member_id].add(partition)
    rest = set(range(PARTITIONS)).difference(*targets.values())
    for partition in sorted(rest):
        fewest = min(targets, key=lambda member_id: len(targets[member_id]))
        if claimed.get(partition, fewest) == fewest:
            targets[fewest].add(partition)
        else:
            # In the next round, when it has been given up.
            targets[fewest].add(-partition - 1)
    return {member_id: {one for one in share if one >= 0} for member_id, share in targets.items()}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("flavour", ["eager", "cooperative"])
def test_nobody_works_on_what_another_one_has_whatever_protocols_they_speak(seed, flavour):
    world = World(seed, flavour)
    world.members = [ClassicMember(world) for _ in range(3)]
    world.at(3_000, world.disturb)
    world.run(BUSY_MS + QUIET_MS)
    here = [member for member in world.members if not member.is_leaving]
    assert sorted(index for member in here for index in member.owned) == list(range(PARTITIONS))
    group = world.machine.groups["g"]
    assert isinstance(group, ConsumerGroup) is any(isinstance(member, NewMember) for member in here)
    assert group.state_name == "Stable"
    assert world.types == {"classic", "consumer"}
