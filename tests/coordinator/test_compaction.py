"""Compaction of `__consumer_offsets`, wherever it has come to, changes nothing of what a log says.

The cleaner keeps the last record of each key, so a record may stand behind others that were written after
an earlier one of its key: what a group becomes must not depend on the order of records of different keys.
Tombstones go in the end, too.
"""

import random
from dataclasses import replace

import pytest

from odradek.coordinator.cluster.view import (
    ClusterView,
    PartitionView,
    TopicView,
)
from odradek.coordinator.effects import Append, Reply, SetTimer
from odradek.coordinator.group_machine import EXPIRE_OFFSETS, GroupMachine
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_EPOCH
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import ConsumerGroupMemberMetadataKey
from odradek.wire.schema import Message
from tests.coordinator import group_requests as requests
from tests.coordinator.stages.group_stage import subscription
from tests.coordinator.stages.migration_stage import MigrationStage
from tests.coordinator.stages.streams_stage import StreamsStage
from tests.coordinator.stages.streams_stage import durable_state as state_of_streams
from tests.kit.machine import replay_all
from tests.kit.transcript import rewrite
from tests.tiers import NIGHTLY

TOPICS = {"t": 4, "u": 3}
STEPS = 100


def view_of(topics):
    views = {
        name: TopicView(
            name,
            name.encode() * 16,
            tuple(PartitionView(index, 1, 0, (1,), (1,)) for index in range(count)),
        )
        for name, count in topics.items()
    }
    return ClusterView(topics=views, topic_names={one.topic_id: name for name, one in views.items()})


def compacted(log, end, *, keeps_tombstones):
    """The log when the cleaner has come to `end`."""
    last = {record[0]: number for number, record in enumerate(log[:end])}
    kept = [
        record
        for number, record in enumerate(log[:end])
        if last[record[0]] == number and (keeps_tombstones or record[1] is not None)
    ]
    return kept + log[end:]


def state_of(machine):
    """All that survives a restart."""
    groups = {}
    for group_id, group in machine.groups.items():
        if isinstance(group, ConsumerGroup):
            groups[group_id] = (
                group.group_epoch,
                group.metadata_hash,
                group.assignment_epoch,
                group.assigned_at_ms,
                {one.member_id: (one.metadata, one.current) for one in group.members.values()},
                group.static_members,
                group.targets,
                group.subscriptions.resolved,
                {topic_id: owners for topic_id, owners in group._owners.items() if owners},
                group.subscriptions.name_counts,
            )
        elif group.protocol_type is not None or machine.offsets.of_group(group_id):
            # A simple group that has lost its last offset goes with the next look at what has expired.
            assert isinstance(group, ClassicGroup)
            groups[group_id] = group.record(group.state_timestamp_ms or -1)
    offsets = {group_id: machine.offsets.of_group(group_id) for group_id in groups}
    return groups, {group_id: topics for group_id, topics in offsets.items() if topics}


class World:
    """Members of a consumer group, of a classic one and of none, and who deletes what they leave."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.view = view_of(TOPICS)
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=0,
            offsets_retention_ms=50_000,
            group_consumer_assignment_interval_ms=self.random.choice([0, 5_000]),
        )
        self.now_ms = 0
        self.log = []
        self.timers = {}
        self.members = {}
        self.classic_member = None
        self.machine = self.new_machine()
        self.take(self.machine.start(0))

    def new_machine(self):
        return GroupMachine(self.settings, lambda: f"{self.random.getrandbits(64):x}", lambda: self.view)

    def take(self, effects):
        """The answer, if there is one."""
        answer = None
        for effect in effects:
            if isinstance(effect, Append):
                self.log += effect.records
            elif isinstance(effect, Reply) and effect.ticket == "mine":
                answer = effect.response
            elif isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_ms
        return answer

    def ask(self, command, version=9):
        if isinstance(command, Message):
            command = requests.asked(command, "mine", version)
        return self.take(self.machine.handle(command, self.now_ms))

    def step(self):
        self.now_ms += self.random.randrange(1_000)
        members = [self.join, self.beat, self.beat, self.beat, self.subscribe, self.leave]
        others = [self.commit, self.clean_up, self.classic_round, self.expire]
        self.random.choice(members + others)()

    def some_topics(self):
        return self.random.sample(sorted(TOPICS), self.random.randrange(1, len(TOPICS) + 1))

    def some_member(self):
        return self.random.choice(sorted(self.members)) if self.members else None

    def heartbeat(self, member_id, epoch, **fields):
        answer = self.ask(requests.consumer_beat("g", member_id, epoch, **fields), 1)
        if answer.error_code is not ErrorCode.NONE or answer.member_epoch < 0:
            self.members.pop(member_id, None)
            return
        owned = self.members.get(member_id, (0, []))[1]
        if answer.assignment is not None:
            owned = [(one.topic_id, one.partitions) for one in answer.assignment.topic_partitions]
        self.members[member_id] = answer.member_epoch, owned

    def join(self):
        if len(self.members) < 4:
            fields = {"instance_id": self.random.choice([None, None, "i"]), "rebalance_timeout_ms": 60_000}
            member_id = f"m{self.random.randrange(6)}"
            self.heartbeat(
                member_id, JOIN_EPOCH, subscribed_topic_names=self.some_topics(), owned=[], **fields
            )

    def beat(self):
        if (member_id := self.some_member()) is not None:
            epoch, owned = self.members[member_id]
            self.heartbeat(member_id, epoch, owned=owned)

    def subscribe(self):
        if (member_id := self.some_member()) is not None:
            self.heartbeat(member_id, self.members[member_id][0], subscribed_topic_names=self.some_topics())

    def leave(self):
        if (member_id := self.some_member()) is not None:
            self.heartbeat(member_id, LEAVE_EPOCH)

    def commit(self):
        group_id = self.random.choice("gcs")
        member_id, epoch = "", -1
        if group_id == "g" and (one := self.some_member()) is not None:
            member_id, epoch = one, self.members[one][0]
        ids = {name: topic.topic_id for name, topic in self.view.topics.items()}
        offsets = [(topic, self.random.randrange(3), self.now_ms) for topic in self.some_topics()]
        self.ask(requests.commit(group_id, offsets, epoch, member_id, ids=ids))

    def clean_up(self):
        group_id = self.random.choice("gcs")
        if self.random.random() < 0.5:
            self.ask(requests.delete(group_id))
        else:
            self.ask(requests.delete_offsets(group_id, [("t", self.random.randrange(3))]))

    def classic_round(self):
        """A member comes and is given its share, or goes."""
        if self.classic_member is None:
            protocols = [("range", subscription("t"))]
            self.ask(requests.join("c", "", protocols, 1_000_000, 1_000_000), version=3)
            answer = self.take(self.machine.expire(("join", "c"), self.now_ms))
            self.classic_member = answer.member_id
            self.ask(requests.sync("c", answer.generation_id, answer.member_id))
        else:
            self.ask(requests.leave("c", self.classic_member))
            self.classic_member = None

    def expire(self):
        self.now_ms += self.random.choice([0, 60_000])
        due = [key for key, at_ms in self.timers.items() if at_ms <= self.now_ms and key[0] != "session"]
        for key in due:
            del self.timers[key]
            self.take(self.machine.expire(key, self.now_ms))
        self.take(self.machine.expire(EXPIRE_OFFSETS, self.now_ms))
        self.members = {
            member_id: known
            for member_id, known in self.members.items()
            if "g" in self.machine.groups and member_id in self.machine.groups["g"].members
        }

    def check(self):
        end = self.random.randrange(len(self.log) + 1)
        for keeps_tombstones in (True, False):
            machine = self.new_machine()
            replay_all(machine, compacted(self.log, end, keeps_tombstones=keeps_tombstones))
            assert state_of(machine) == state_of(self.machine), (end, keeps_tombstones)


@pytest.mark.parametrize("seed", range(12))
def test_a_compacted_log_says_what_the_whole_one_said(seed):
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        if world.random.random() < 0.2:
            world.check()
    world.check()


def test_nothing_is_left_of_dead_groups_and_members_when_their_tombstones_have_gone():
    world = World(0)
    for _ in range(60):
        world.step()
    while world.members:
        world.leave()
    if world.classic_member is not None:
        world.classic_round()
    for group_id in "gcs":
        world.ask(requests.delete(group_id))
    assert world.machine.groups == {}
    assert compacted(world.log, len(world.log), keeps_tombstones=False) == []


def test_a_members_assignment_outlives_a_change_of_its_subscription_in_a_compacted_log():
    """Its own record then stands behind that of its assignment."""
    world = World(0)
    world.heartbeat("m", JOIN_EPOCH, subscribed_topic_names=["t"], owned=[], rebalance_timeout_ms=60_000)
    member = world.machine.groups["g"].members["m"]
    assert member.current.assigned
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    effects = []
    assert world.machine.store("g", [(key, replace(member.metadata, client_id="new"))], 0, effects)
    world.take(effects)
    machine = world.new_machine()
    replay_all(machine, compacted(world.log, len(world.log), keeps_tombstones=True))
    assert machine.groups["g"].members["m"].current == member.current
    assert state_of(machine) == state_of(world.machine)


def replayed(stage, end, keeps_tombstones):
    machine = stage.new_machine()
    replay_all(machine, compacted(stage.log, end, keeps_tombstones=keeps_tombstones))
    return machine


def ends_of(log):
    """Where the cleaner may have come to; by day each third place, counted from the end."""
    return range(len(log), -1, -1 if NIGHTLY else -3)


def without_empty(offsets):
    return {group_id: topics for group_id, topics in offsets.items() if topics}


@pytest.mark.parametrize("path", StreamsStage.transcripts(), ids=lambda path: path.stem)
@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_a_compacted_log_says_of_streams_groups_what_the_whole_one_said(path, keeps_tombstones):
    stage = StreamsStage()
    rewrite(path, stage)
    groups, offsets = state_of_streams(stage.machine)
    for end in ends_of(stage.log):
        found = state_of_streams(replayed(stage, end, keeps_tombstones))
        assert (found[0], without_empty(found[1])) == (groups, without_empty(offsets)), end


@pytest.mark.parametrize("path", MigrationStage.transcripts(), ids=lambda path: path.stem)
@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_a_compacted_log_says_of_groups_that_migrate_what_the_whole_one_said(path, keeps_tombstones):
    stage = MigrationStage()
    rewrite(path, stage)
    expected = of_consumer_groups(stage.machine)
    for end in ends_of(stage.log):
        assert of_consumer_groups(replayed(stage, end, keeps_tombstones)) == expected, end


def of_consumer_groups(machine):
    """Without classic groups, which may be in a rebalance that no log tells of."""
    groups, offsets = state_of(machine)
    return {group_id: state for group_id, state in groups.items() if isinstance(state, tuple)}, offsets
