"""Share groups over a coordinator that is started anew at any time, while members come, go and change their
mind, topics come, grow and go, and the share coordinator is slow, refuses, or loses a question.

At every moment nobody is assigned what it does not subscribe to, or what has no state. When all is quiet,
each partition of each subscribed topic is with somebody, and every member knows it.
"""

import random

from odradek.coordinator.effects import Reply
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.commands import TopicsChanged
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.shares.groups.commands import DeleteStates, InitializeStates
from odradek.coordinator.shares.groups.group import ShareGroup
from odradek.coordinator.shares.state.persister import Refusal
from odradek.wire.errors import ErrorCode
from tests.coordinator import group_requests
from tests.coordinator.shares import share_requests
from tests.coordinator.stages.share_stage import durable_state, keys_of, view_of
from tests.kit.machine import MachineRun
from tests.kit.simulation import failures
from tests.tiers import NIGHTLY

NONE = ErrorCode.NONE
NAMES = ("a", "b", "c")
MEMBERS = tuple(f"m{number}" for number in range(5))
STEPS = 120
SEEDS = 150 if NIGHTLY else 40


class Member:
    """What a client knows."""

    def __init__(self, topics) -> None:
        self.topics = topics
        self.epoch = 0
        self.partitions: dict = {}
        self.says_all = False


class World(MachineRun):
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shapes = {"a": (3, 1), "b": (1, 1)}
        """Number of partitions, and which topic of this name it is."""
        self.view = self.new_view()
        self.asked: list = []
        self.states: set = set()
        """Share partitions that the share coordinator has."""
        self.members: dict[str, Member] = {}
        self.replies: list = []
        super().__init__(now_ms=1_000)

    def new_settings(self) -> GroupSettings:
        return GroupSettings(group_share_assignment_interval_ms=self.random.choice((0, 700)))

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, lambda: "unused", lambda: self.view)

    def durable_state(self):
        return durable_state(self.machine)

    def new_view(self):
        return view_of(" ".join(f"{name}:{count}#{number}" for name, (count, number) in self.shapes.items()))

    # The driver

    def ask(self, request):
        return self.submit(group_requests.asked(request, "client"))

    def submit(self, command):
        self.replies = []
        super().submit(command)
        return self.replies[-1] if self.replies else None

    def carry_out(self, effects) -> None:
        for effect in effects:
            match effect:
                case InitializeStates() | DeleteStates():
                    self.asked.append(effect)
                case Reply():
                    self.replies.append(effect.response)
                case _:
                    self.take(effect)

    def ring(self) -> None:
        for key, at_ms in list(self.timers.items()):
            if at_ms <= self.now_ms and key[0] == "share-session":
                del self.timers[key]
                self.carry_out(self.machine.expire(key, self.now_ms))

    def restart(self) -> None:
        self.carry_out(self.reload())

    def compact(self) -> None:
        """Only the last record of each key is left, and no tombstone."""
        last = {key: (key, value, time) for key, value, time in self.log}
        self.log = [record for record in last.values() if record[1] is not None]
        self.random.shuffle(self.log)

    # What happens

    def beat(self, member_id: str) -> None:
        member = self.members[member_id]
        topics = sorted(member.topics) if member.epoch == 0 or member.says_all else None
        reply = self.ask(share_requests.beat("g", member_id, member.epoch, topics))
        if self.random.random() < 0.1:
            # The answer was lost: a client says all of itself then.
            member.says_all = True
            return
        if reply.error_code is not NONE:
            assert reply.error_code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            member.epoch, member.partitions = 0, {}
            return
        member.epoch, member.says_all = reply.member_epoch, False
        if reply.assignment is not None:
            assigned = share_requests.assigned_in(reply)
            member.partitions = {topic_id: frozenset(indexes) for topic_id, indexes in assigned.items()}

    def leave(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.epoch > 0:
            self.ask(share_requests.beat("g", member_id, -1))

    def answer(self, index: int) -> None:
        effect = self.asked.pop(index)
        kind = self.random.random()
        if kind < 0.1:
            return  # the answer never comes
        results = {}
        for key in keys_of(effect):
            if self.random.random() < 0.15:
                results[key] = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
                continue
            results[key] = Refusal(NONE)
            (self.states.add if isinstance(effect, InitializeStates) else self.states.discard)(key)
        effect.command.results = results
        self.submit(effect.command)

    def change_topics(self) -> None:
        name = self.random.choice(NAMES)
        count, number = self.shapes.get(name, (0, 0))
        kind = self.random.random()
        before = dict(self.shapes)
        if count == 0:
            self.shapes[name] = (self.random.randint(1, 3), self.now_ms)
        elif kind < 0.6:
            self.shapes[name] = (count + 1, number)
        elif kind < 0.8:
            del self.shapes[name]
        else:
            self.shapes[name] = (self.random.randint(1, 3), self.now_ms)
        self.view = self.new_view()
        if self.shapes != before:
            self.submit(TopicsChanged(frozenset({name})))

    def administer(self) -> None:
        kind = self.random.random()
        if kind < 0.4:
            self.ask(share_requests.alter("g", [("a", 0, 5)]))
        elif kind < 0.7:
            self.ask(share_requests.forget("g", ["a"]))
        else:
            self.ask(group_requests.delete("g"))

    def step(self) -> None:
        self.now_ms += self.random.randint(0, 2_000)
        self.ring()
        absent = [member_id for member_id in MEMBERS if member_id not in self.members]
        kind = self.random.random()
        if absent and kind < 0.12:
            self.members[self.random.choice(absent)] = Member(
                set(self.random.sample(NAMES, self.random.randint(1, 3)))
            )
        elif self.members and kind < 0.16:
            self.leave(self.random.choice(list(self.members)))
        elif self.members and kind < 0.19:
            # Without a word.
            del self.members[self.random.choice(list(self.members))]
        elif self.members and kind < 0.24:
            member = self.members[self.random.choice(list(self.members))]
            member.topics, member.says_all = set(self.random.sample(NAMES, self.random.randint(1, 3))), True
        elif kind < 0.30:
            self.change_topics()
        elif kind < 0.36:
            self.administer()
        elif kind < 0.42:
            self.restart()
        elif kind < 0.45:
            self.compact()
            self.restart()
        elif self.asked and kind < 0.6:
            self.answer(self.random.randrange(len(self.asked)))
        elif self.members:
            self.beat(self.random.choice(list(self.members)))
        self.check()

    def check(self) -> None:
        group = self.machine.groups.get("g")
        if not isinstance(group, ShareGroup):
            return
        initialized = group.states.initialized
        for member in group.members.values():
            subscribed = member.metadata.subscribed_topic_names
            for topic_id in member.current.partitions:
                # The id has the topic's name in it.
                assert topic_id.rstrip(b"\0").decode().partition("#")[0] in subscribed
        for one in group.members.values():
            if group.group_epoch == group.assignment_epoch == one.current.member_epoch:
                for topic_id, partitions in one.current.partitions.items():
                    if topic_id in self.view.topic_names:
                        assert partitions <= initialized[topic_id].partitions

    def settle(self) -> None:
        """Nothing happens any more but heartbeats, and the share coordinator does what it is asked."""
        self.random.random = lambda: 0.99  # type: ignore[method-assign]
        for _ in range(60):
            self.now_ms += 4_000
            self.ring()
            while self.asked:
                self.answer(0)
            for member_id in self.members:
                self.beat(member_id)


def test_all_is_read_when_all_is_quiet():
    assert failures(check_that_all_is_read, range(SEEDS)) == {}


def check_that_all_is_read(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    world.check()
    world.restart()
    group = world.machine.groups.get("g")
    assert set(group.members if isinstance(group, ShareGroup) else ()) == set(world.members)
    read: dict = {}
    for member_id, member in world.members.items():
        current = group.members[member_id].current
        assert (member.epoch, member.partitions) == (current.member_epoch, dict(current.partitions))
        assert group.members[member_id].metadata.subscribed_topic_names == sorted(member.topics)
        for topic_id, partitions in member.partitions.items():
            assert world.view.topic_names[topic_id] in member.topics
            read.setdefault(topic_id, set()).update(partitions)
    wanted = {
        topic.topic_id: set(range(len(topic.partitions)))
        for name, topic in world.view.topics.items()
        if any(name in member.topics for member in world.members.values())
    }
    assert read == wanted
    for topic_id, partitions in wanted.items():
        held = {key.partition for key in world.states if key.topic_id == topic_id}
        assert held >= partitions
