"""Requests of groups that are remembered get the handlers' answers, and have the same effects.

Two nodes live through the same story, one that remembers and one that does not: joins, commits, beats,
time-outs, topics that come and go, logs that fail, requests that are torn. Every answer is compared byte by
byte, every record and every deadline as well.
"""

import logging
import random

import pytest

from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.tiers import seeds
from tests.wired import Asker, from_prefix, wired

TOPICS = {"t": 3, "u": 2}
CLASSIC, CONSUMER = ("c0", "c1"), ("k0", "k1")
REPEATED = (HeartbeatRequest, ConsumerGroupHeartbeatRequest, OffsetFetchRequest, OffsetCommitRequest)
TORN = (HeartbeatRequest, OffsetFetchRequest, OffsetCommitRequest)
"""Another could become one for topics by a pattern, which nobody looks for here."""


HOSTS = ("192.0.2.7", "192.0.2.8")


class Side:
    """One of the two nodes. `answers` has, for each request, a function that gives its answer or None."""

    def __init__(self, node, is_quick):
        self.node = node
        self.asker = Asker(
            wired(
                node.apis,
                node.loop,
                lambda: node.loop.now_ms,
                lambda: node.machine.view,
                with_prefixes=is_quick,
            )
        )
        self.answers = []
        self.ask(request_frame(FindCoordinatorRequest(coordinator_keys=["c0"]), 4, 1, "me"))
        node.loop.turn()
        for name, count in TOPICS.items():
            node.create(name, count)

    def ask(self, frame, client=0):
        """Puts a frame to its API; what came of it is the last of `answers`."""
        answers = self.asker.ask(frame, HOSTS[client])

        def answer():
            came = answers()
            return came if came == "closed" else came[0] if came else None

        self.answers.append(answer)

    def taken(self, *requests):
        """How many of these requests were served by their prefix."""
        return [from_prefix(self.asker.connections, request.api_key) for request in requests]

    def group(self, group_id):
        """As its machine has it; None where there is none, also while it is loaded."""
        groups = self.node.groups
        machine = groups.partitions[groups.partition_of(group_id)].machine
        return None if machine is None else machine.groups.get(group_id)

    def state(self):
        """What a prefix could get wrong but for answers."""
        deadlines = {}
        for group_id in (*CLASSIC, *CONSUMER):
            group = self.group(group_id)
            for member_id, member in () if group is None else group.members.items():
                timed = member.session if isinstance(group, ConsumerGroup) else member
                deadlines[group_id, member_id] = timed.deadline_ms, timed.timer_at_ms
        records = {index: log.records for index, log in self.node.group_logs.items()}
        return deadlines, records


class Story:
    """The same for both sides; what is worth to be asked is looked up at the ordinary one."""

    def __init__(self, make_node, seed):
        self.rng = random.Random(seed)
        self.sides = [Side(make_node(), False), Side(make_node(), True)]
        self.ordinary, self.quick = self.sides
        self.number = 0

    # What happens

    def step(self):
        happens = self.rng.choices(
            (self.ask, self.turn, self.wait, self.change_topics, self.fail),
            (80, 12, 8, 0.5, 0.5),
        )[0]
        happens()
        self.compare()

    def ask(self):
        make = self.rng.choices(
            (self.beat, self.consumer_beat, self.fetch, self.commit, self.join, self.sync, self.leave),
            (20, 20, 15, 25, 5, 6, 2),
        )[0]
        request, versions = make()
        version = self.rng.choice(versions)
        self.number += 1
        client_id = self.rng.choices(("me", "ä", "", None), (20, 1, 1, 1))[0]
        try:
            frame = request_frame(request, version, self.number, client_id)
        except (ValueError, TypeError):
            return  # not to be said in this version
        if isinstance(request, TORN) and self.rng.random() < 0.1:
            frame = self.torn(frame)
        client = self.rng.random() < 0.05
        for side in self.sides:
            side.ask(frame, client)

    def torn(self, frame):
        """With another byte behind the correlation id."""
        at = self.rng.randrange(12, len(frame))
        value = self.rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, self.rng.randrange(256)))
        return frame[:at] + bytes([value]) + frame[at + 1 :]

    def turn(self):
        for side in self.sides:
            side.node.loop.turn()

    def wait(self):
        delay_ms = self.rng.choices((1, 500, 3_000, 12_000, 50_000), (2, 2, 10, 1, 0.3))[0]
        for side in self.sides:
            side.node.loop.advance(delay_ms)

    def change_topics(self):
        name = self.rng.choice(list(TOPICS))
        for side in self.sides:
            machine = side.node.machine
            if name in machine.view.topics:
                machine.delete_topics([name])
            else:
                side.node.create(name, TOPICS[name])

    def fail(self):
        """The logs refuse a few appends, and are loaded again."""
        for failure in (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), None):
            for side in self.sides:
                for log in side.node.group_logs.values():
                    log.failure = failure
            for _ in range(5):
                self.ask()
        self.turn()

    def compare(self):
        for side in self.sides:
            side.asker.connections.dispatcher.turn.end()
        ordinary, quick = ([answer() for answer in side.answers] for side in self.sides)
        assert ordinary == quick
        for side in self.sides:
            side.answers = [
                answer for answer, told in zip(side.answers, ordinary, strict=True) if told is None
            ]

    # What is asked

    def pick(self, group_ids):
        """A group's id, its state and one of its members, if it has any."""
        group_id = self.rng.choice(group_ids)
        group = self.ordinary.group(group_id)
        members = {} if group is None else group.members
        member_id = self.rng.choice(list(members)) if members else "nobody"
        return group_id, group, member_id, members.get(member_id)

    def mostly(self, value, *others):
        return value if self.rng.random() < 0.9 else self.rng.choice(others)

    def classic_member(self):
        group_id, group, member_id, member = self.pick(CLASSIC)
        generation = getattr(group, "generation", 1)
        return (
            self.mostly(group_id, "c1", "k0", "", "none"),
            self.mostly(generation, generation - 1, generation + 1, -1),
            self.mostly(member_id, "nobody", ""),
            self.mostly(getattr(member, "group_instance_id", None), None, "i0", "i9"),
        )

    def consumer_member(self):
        group_id, _, member_id, member = self.pick(CONSUMER)
        current = getattr(member, "current", None)
        epoch = 1 if current is None else current.member_epoch
        return (
            self.mostly(group_id, "c0", "k1", "", "none"),
            self.mostly(epoch, epoch - 1, epoch + 1, 0, -1),
            self.mostly(member_id, "nobody", ""),
            self.mostly(None, "i0"),
        )

    def beat(self):
        group_id, generation, member_id, instance_id = self.classic_member()
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return request, HeartbeatRequest.versions

    def consumer_beat(self):
        rng = self.rng
        group_id, epoch, member_id, instance_id = self.consumer_member()
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id
        )
        if rng.random() < 0.15:  # joins
            request.member_id, request.member_epoch = f"m{rng.randrange(3)}", 0
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = rng.choice((["t"], ["t", "u"]))
            request.topic_partitions = []
        elif rng.random() < 0.3:  # says that it has what it was given
            group = self.ordinary.group(group_id)
            member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
            assigned = {} if member is None else member.current.assigned
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in assigned.items()
            ]
        return request, ConsumerGroupHeartbeatRequest.versions

    def places(self):
        """Topics by name with partitions, which mostly exist."""
        names = self.mostly(["t"], ["u"], ["t", "u"], ["t", "none"], [])
        return {name: self.rng.sample(range(3), self.mostly(1, 0, 2, 3)) for name in names}

    def topic_id(self, name):
        topic = self.ordinary.node.machine.view.topics.get(name)
        return bytes(16) if topic is None else topic.topic_id

    def fetch(self):
        rng, places = self.rng, self.places()
        is_consumer = rng.random() < 0.3
        group_id, epoch, member_id, _ = self.consumer_member() if is_consumer else self.classic_member()
        if rng.random() < 0.5:
            topics = [OffsetFetchRequestTopic(name=name, partition_indexes=of) for name, of in places.items()]
            request = OffsetFetchRequest(group_id=group_id, topics=self.mostly(topics, None))
            return request, range(8)
        topics = [
            OffsetFetchRequestTopics(name=name, topic_id=self.topic_id(name), partition_indexes=of)
            for name, of in places.items()
        ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=self.mostly(topics, None))
        if is_consumer and rng.random() < 0.5:
            group.member_id, group.member_epoch = member_id, epoch
        request = OffsetFetchRequest(groups=[group] * self.mostly(1, 0, 2), require_stable=rng.random() < 0.3)
        return request, range(8, 11)

    def commit(self):
        rng = self.rng
        who = rng.choice((self.classic_member, self.classic_member, self.consumer_member))
        group_id, generation, member_id, instance_id = who()
        if rng.random() < 0.1:
            group_id, generation, member_id, instance_id = "simple", -1, "", None
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                topic_id=self.topic_id(name),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=rng.randrange(-1, 1 << 40),
                        committed_leader_epoch=rng.choice((-1, 0, 7)),
                        committed_metadata=self.mostly("", None, "ä", "x" * 200, "x" * 5_000),
                    )
                    for index in indexes
                ],
            )
            for name, indexes in self.places().items()
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=rng.choice((-1, -1, 5_000)),
            topics=topics,
        )
        return request, OffsetCommitRequest.versions

    def join(self):
        group_id, _, member_id, member = self.pick(CLASSIC)
        instance_id = self.rng.choice((None, None, "i0", "i1"))
        if self.rng.random() < 0.5:
            member_id, member = "", None
        request = JoinGroupRequest(
            group_id=group_id,
            member_id="" if member is None else member_id,
            group_instance_id=instance_id if member is None else getattr(member, "group_instance_id", None),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=5_000,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name="range", metadata=encode(ConsumerProtocolSubscription(topics=["t"]), 1)
                )
            ],
        )
        return request, (3, 3, 5, 9)

    def sync(self):
        group_id, group, member_id, member = self.pick(CLASSIC)
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=getattr(group, "generation", 1),
            member_id=member_id,
            group_instance_id=getattr(member, "group_instance_id", None),
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
        )
        return request, (2, 3, 4)

    def leave(self):
        group_id, _, member_id, _ = self.pick(CLASSIC)
        return LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)]), (3, 4, 5)


@pytest.mark.parametrize("seed", seeds(8, fast=2))
def test_both_ways_give_the_same_answers_records_and_deadlines(make_node, seed, caplog):
    caplog.set_level(logging.CRITICAL)  # the logs that fail are told of
    story = Story(make_node, seed)
    for number in range(1000):
        story.step()
        if number % 50 == 0:
            assert story.ordinary.state() == story.quick.state()
    story.turn()
    story.wait()
    story.compare()
    assert story.ordinary.state() == story.quick.state()
    assert not any(story.ordinary.taken(*REPEATED))
    assert all(taken > 3 for taken in story.quick.taken(*REPEATED)), story.quick.taken(*REPEATED)


# What is known in advance


@pytest.fixture
def side(make_node):
    """A node with a stable classic group `c0` of one member `x-0001` in generation 1, and a consumer group
    `k0` of one member `m` that has all of topic `t`."""
    side = Side(make_node(), True)
    protocol = JoinGroupRequestProtocol(
        name="range", metadata=encode(ConsumerProtocolSubscription(topics=["t"]), 1)
    )
    joins = JoinGroupRequest(
        group_id="c0",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=5_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    side.ask(request_frame(joins, 3, 1, "x"))
    side.node.loop.turn()
    syncs = SyncGroupRequest(group_id="c0", generation_id=1, member_id="x-0001")
    side.ask(request_frame(syncs, 2, 1, "x"))
    joins = ConsumerGroupHeartbeatRequest(
        group_id="k0",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    side.ask(request_frame(joins, 1, 1, "x"))
    side.node.loop.turn()
    return side


def told(side, request, version, client=0, client_id="x"):
    """The decoded answer, and whether its prefix served it."""
    before = sum(side.taken(*REPEATED))
    side.ask(request_frame(request, version, 5, client_id), client)
    side.node.loop.turn()
    answer = side.answers[-1]()
    return read_response(answer[4:], type(request), version)[1], sum(side.taken(*REPEATED)) - before == 1


BEAT = HeartbeatRequest(group_id="c0", generation_id=1, member_id="x-0001")


def consumer_beat(side, **fields):
    epoch = side.group("k0").members["m"].current.member_epoch
    return ConsumerGroupHeartbeatRequest(group_id="k0", member_id="m", member_epoch=epoch, **fields)


def commit(*indexes, metadata="", topics=1, **fields):
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index + 100, committed_metadata=metadata
        )
        for index in indexes
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(
        **{
            "group_id": "c0",
            "generation_id_or_member_epoch": 1,
            "member_id": "x-0001",
            "topics": [topic] * topics,
            **fields,
        }
    )


@pytest.mark.parametrize("version", HeartbeatRequest.versions)
def test_the_beats_of_a_member_are_served_by_their_prefix(side, version):
    for _ in range(3):
        side.node.loop.advance(3_000)
        answer, is_short = told(side, BEAT, version)
        assert (answer.error_code, is_short) == (0, True)
        assert side.group("c0").members["x-0001"].deadline_ms == side.node.loop.now_ms + 10_000


def test_a_member_that_is_heard_of_by_prefixes_alone_stays(side):
    for _ in range(20):
        side.node.loop.advance(6_000)
        assert told(side, BEAT, 4)[1]
    side.node.loop.advance(10_001)
    assert told(side, BEAT, 4)[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_beats_of_a_consumer_are_served_by_their_prefix_from_its_own_host_until_something_changes(side):
    assert told(side, consumer_beat(side), 1)[1]
    assert told(side, consumer_beat(side), 1)[1]
    # Where it is is written down, so that is a change; and then a change back.
    assert not told(side, consumer_beat(side), 1, client=1)[1]
    assert told(side, consumer_beat(side), 1, client=1)[1]
    assert not told(side, consumer_beat(side), 1, client=0)[1]
    assert told(side, consumer_beat(side), 1, client=0)[1]
    assert not told(side, consumer_beat(side), 1, client_id="y")[1]
    side.node.machine.delete_topics(["t"])
    answer, is_short = told(side, consumer_beat(side), 1)
    assert (answer.error_code, is_short) == (0, False)


def test_a_new_interval_is_told_with_the_next_beat(side):
    assert told(side, consumer_beat(side), 1)[0].heartbeat_interval_ms == 5_000
    side.node.group_settings.group_consumer_heartbeat_interval_ms = 7_000
    answer, is_short = told(side, consumer_beat(side), 1)
    assert (answer.heartbeat_interval_ms, is_short) == (7_000, True)


def test_what_would_have_to_wait_for_the_log_goes_to_the_handler(side):
    assert told(side, BEAT, 4)[1]
    before = side.taken(HeartbeatRequest)
    side.ask(request_frame(commit(0), 8, 1, "x"))
    side.ask(request_frame(BEAT, 4, 1, "x"))
    committed, beat = side.answers[-2:]
    assert (committed(), beat()) == (None, None)
    side.node.loop.turn()
    assert committed() is not None
    assert beat() is not None
    assert side.taken(HeartbeatRequest) == before


def fetch(version, *indexes, group_id="c0", **fields):
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(indexes))]
        return OffsetFetchRequest(group_id=group_id, topics=topics)
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(indexes), **fields)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[topic])])


@pytest.mark.parametrize("version", range(10))
def test_a_fetch_by_its_prefix_tells_the_newest_offset(side, version):
    for offset in (-1, 100, 7, 7):
        if offset != -1:
            request = commit(0)
            request.topics[0].partitions[0].committed_offset = offset
            assert told(side, request, 8)[1]
        answer, is_short = told(side, fetch(version, 0), version)
        topics = answer.topics if version < 8 else answer.groups[0].topics
        assert (topics[0].partitions[0].committed_offset, is_short) == (offset, True)


def test_a_topic_that_was_made_anew_has_none_of_the_old_ones_offsets(side):
    assert told(side, commit(0), 8)[1]
    for _ in range(2):
        topic_id = side.node.machine.view.topics["t"].topic_id
        answer, is_short = told(side, fetch(10, 0, topic_id=topic_id), 10)
        assert is_short
        assert answer.groups[0].topics[0].partitions[0].committed_offset == 100
    side.node.machine.delete_topics(["t"])
    gone, _ = told(side, fetch(10, 0, topic_id=topic_id), 10)
    assert gone.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topic_id = side.node.create("t", 3).topic_id
    answer, _ = told(side, fetch(10, 0, topic_id=topic_id), 10)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == -1


def test_what_is_asked_of_everything_or_of_several_groups_goes_to_the_handler(side):
    all_of_it = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="c0", topics=None)])
    two = OffsetFetchRequest(groups=[*fetch(9, 0).groups, *fetch(9, 1).groups])
    for request in (all_of_it, two):
        assert not told(side, request, 9)[1]


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize("metadata", ["", None, "where I was", "ä" * 60])
def test_commits_of_one_topic_are_served_by_their_prefix(side, version, metadata):
    for indexes in ((0,), (1,), (0, 1, 2), (0,)):
        request = commit(*indexes, metadata=metadata)
        if version >= 10:
            request.topics[0].topic_id = side.node.machine.view.topics["t"].topic_id
        answer, is_short = told(side, request, version)
        assert is_short
        assert [(one.partition_index, one.error_code) for one in answer.topics[0].partitions] == [
            (index, 0) for index in indexes
        ]
        fetched, _ = told(side, fetch(7, *indexes), 7)
        assert [(one.committed_offset, one.metadata) for one in fetched.topics[0].partitions] == [
            (index + 100, metadata or "") for index in indexes
        ]


def test_a_commit_is_refused_by_a_prefix_as_by_the_handler(side):
    refusals = {
        ErrorCode.ILLEGAL_GENERATION: commit(0, generation_id_or_member_epoch=2),
        ErrorCode.UNKNOWN_MEMBER_ID: commit(0, member_id="y"),
        ErrorCode.GROUP_ID_NOT_FOUND: commit(0, group_id="none"),
    }
    for code, request in refusals.items():
        for _ in range(2):
            answer, is_short = told(side, request, 9)
            assert ([one.error_code for one in answer.topics[0].partitions], is_short) == ([code], True)
    assert told(side, commit(0), 9)[0].topics[0].partitions[0].error_code == 0
    answer, is_short = told(side, commit(0, metadata="x" * 4097), 7)
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert (answer.topics[0].partitions[0].error_code, is_short) == (code, True)


def test_unusual_commits_go_to_the_handler(side):
    for request in (
        commit(),
        commit(0, topics=0),
        commit(0, topics=2),
        commit(3),
        commit(-1),
        commit(0, 3),
        commit(*range(3), *range(98)),
    ):
        assert not told(side, request, 9)[1]
    assert not told(side, commit(0), 0)[1]
    assert not told(side, commit(0), 1)[1]
    assert not told(side, commit(0), 9, client_id="c" * 1100)[1]


@pytest.mark.parametrize("version", [5, 9])
def test_a_torn_commit_gets_the_same_answer_as_without_a_memory(side, version):
    ordinary = Asker(
        wired(
            side.node.apis,
            side.node.loop,
            lambda: side.node.loop.now_ms,
            lambda: side.node.machine.view,
            with_prefixes=False,
        )
    )
    frame = request_frame(commit(0, 1, metadata="here"), version, 1, "x")
    for end in range(4, len(frame)):
        torn = (end - 4).to_bytes(4, "big", signed=True) + frame[4:end] + bytes(4096)
        came = [asker.ask(torn) for asker in (side.asker, ordinary)]
        side.node.loop.turn()
        quick, slow = (answers() for answers in came)
        assert quick == slow
