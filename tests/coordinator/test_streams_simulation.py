"""Streams groups under random joins, deaths, lost and repeated heartbeats, growing topics and reloads: at no
moment do two members run a task, or a process have it twice, and a quiet group comes to rest."""

import random
from collections import Counter

import pytest

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Append, CancelTimer, Reply, SetTimer
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.consumer_commands import TopicsChanged
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.streams.assignor import TaskAssignment
from odradek.coordinator.streams.commands import StreamsHeartbeat, StreamsHeartbeatReply
from odradek.coordinator.streams.group import StreamsGroup
from odradek.wire.errors import ErrorCode
from tests.coordinator.stages.share_stage import view_of
from tests.coordinator.stages.streams_stage import durable_state, topology_of

STEPS = 250
ROUNDS_TO_REST = 12
"""Heartbeats of each member within which a quiet group is at rest."""
NOTHING = TaskAssignment()


class Client:
    """A member that does what it is told, at once."""

    def __init__(self, member_id: str, process_id: str) -> None:
        self.member_id, self.process_id = member_id, process_id
        self.epoch = 0
        self.tasks = NOTHING
        self.last: StreamsHeartbeat | None = None

    def heartbeat(self) -> StreamsHeartbeat:
        joins = self.epoch == 0
        self.last = StreamsHeartbeat(
            "a",
            "g",
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            topology=topology_of("counts") if joins else None,
            owned=self.tasks,
            process_id=self.process_id if joins else None,
        )
        return self.last

    def take(self, reply: StreamsHeartbeatReply) -> None:
        if reply.error_code is not ErrorCode.NONE:
            assert reply.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID), reply
            self.epoch, self.tasks = 0, NOTHING
            return
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.tasks = reply.assignment


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.settings = GroupSettings()
        self.settings.group_streams_initial_rebalance_delay_ms = self.chance.choice([0, 3000])
        self.settings.group_streams_num_standby_replicas = self.chance.choice([0, 1, 2])
        self.count = 4
        self.view = ClusterView()
        self.machine = self.new_machine()
        self.log: list = []
        self.timers: dict[tuple[str, ...], int] = {}
        self.now_ms = 1_000_000
        self.clients: dict[str, Client] = {}
        self.dead: set[str] = set()
        self.grow(4)
        self.carry_out(self.machine.start(self.now_ms))

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, lambda: "id", lambda: self.view)

    def carry_out(self, effects: list) -> list[StreamsHeartbeatReply]:
        replies = []
        for effect in effects:
            match effect:
                case Append():
                    self.log += effect.records
                case SetTimer():
                    self.timers[effect.key] = effect.at_ms
                case CancelTimer():
                    self.timers.pop(effect.key, None)
                case Reply():
                    replies.append(effect.value)
        return replies

    def grow(self, count: int) -> None:
        self.count = count
        self.view = view_of(f"in:{count} c:{count}")
        self.carry_out(self.machine.handle(TopicsChanged("b", frozenset({"in", "c"})), self.now_ms))

    def pass_time(self, milliseconds: int) -> None:
        until_ms = self.now_ms + milliseconds
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= until_ms]:
            at_ms, key = min(due)
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            self.carry_out(self.machine.expire(key, self.now_ms))
            self.check()
        self.now_ms = until_ms

    def beat(self, client: Client, *, is_answer_lost: bool = False) -> None:
        (reply,) = self.carry_out(self.machine.handle(client.heartbeat(), self.now_ms))
        if not is_answer_lost:
            client.take(reply)
        self.check()

    def step(self) -> None:
        chance = self.chance
        living = self.living()
        what = chance.random()
        if what < 0.06 or not living:
            number = len(self.clients)
            self.clients[f"m{number}"] = Client(f"m{number}", f"p{chance.randrange(6)}")
        elif what < 0.08:
            self.dead.add(chance.choice(living).member_id)
        elif what < 0.10:
            client = chance.choice(living)
            self.dead.add(client.member_id)
            leaving = client.heartbeat()
            leaving.member_epoch, leaving.topology, leaving.owned = -1, None, None
            self.carry_out(self.machine.handle(leaving, self.now_ms))
        elif what < 0.12:
            self.reload()
        elif what < 0.13 and self.count < 12:
            self.grow(self.count + 2)
        elif what < 0.15:
            self.pass_time(chance.randrange(30_000))
        elif what < 0.20 and (again := chance.choice(living).last) is not None:
            # The same once more, as when a connection breaks; nobody reads the answer.
            self.carry_out(self.machine.handle(again, self.now_ms))
        else:
            self.beat(chance.choice(living), is_answer_lost=chance.random() < 0.1)
        self.pass_time(chance.randrange(300))
        self.check()

    def rounds(self, count: int, pause_ms: int) -> None:
        for _ in range(count):
            for client in self.living():
                self.beat(client)
            self.pass_time(pause_ms)

    def living(self) -> list[Client]:
        return [client for name, client in self.clients.items() if name not in self.dead]

    def reload(self) -> None:
        before = durable_state(self.machine)
        self.machine = self.new_machine()
        for key, value, _ in self.log:
            self.machine.replay(key, value)
        assert durable_state(self.machine) == before
        self.timers.clear()
        self.carry_out(self.machine.start(self.now_ms))

    @property
    def group(self) -> StreamsGroup:
        group = self.machine.groups["g"]
        assert isinstance(group, StreamsGroup)
        return group

    def check(self) -> None:
        """Nobody runs what somebody else runs, as members know it and as the coordinator knows it."""
        if "g" not in self.machine.groups:
            return
        members = self.group.members
        known: Counter = Counter()
        believed: Counter = Counter()
        copies: Counter = Counter()
        for member_id, member in members.items():
            for held in (member.tasks.assigned, member.tasks.to_revoke):
                roles = (held.active, held.standby, held.warmup)
                for role in roles:
                    copies.update((member.metadata.process_id, *task) for task in tasks_of(role))
                known.update(tasks_of(held.active))
            believed.update(tasks_of(self.clients[member_id].tasks.active))
        assert max(known.values(), default=0) <= 1, known
        assert max(believed.values(), default=0) <= 1, believed
        assert max(copies.values(), default=0) <= 1, copies

    def is_at_rest(self) -> bool:
        running = Counter(task for client in self.living() for task in tasks_of(client.tasks.active))
        return self.group.state_name == "Stable" and running == Counter(
            ("0", partition) for partition in range(self.count)
        )


def tasks_of(role) -> list[tuple[str, int]]:
    return [(number, partition) for number, partitions in role.items() for partition in partitions]


@pytest.mark.parametrize("seed", range(6))
def test_no_task_has_two_owners_and_a_quiet_group_comes_to_rest(seed):
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.clients["last"] = Client("last", "p")
    # Those who are gone are given up; the others go on for as long as it takes.
    world.rounds(12, pause_ms=5_000)
    world.rounds(ROUNDS_TO_REST, pause_ms=1_000)
    assert world.is_at_rest(), world.group.state_name
