"""Which error wins where two things are wrong in one request of a group: for every API of groups, pairs of
faults (at night every pair), and groups of every type. What is asked of a coordinator that is not there, and
of protocols that are switched off, is in `test_switched_off.py`.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.members import consumer_join, topic_of_groups
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.sharing import heartbeat as share_heartbeat
from compat_tests.differential.test_transactions import begun, identity, wait_for_coordinators
from compat_tests.differential.topics import id_of
from compat_tests.kit.group_wire import LONG_MS, WireMember, commit_request, form, subscription
from odradek.wire.messages import streams_group_heartbeat as streams
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.schema import Message
from tests.tiers import NIGHTLY

AT_ONCE = {"group.consumer.assignment.interval.ms": "0", "group.share.assignment.interval.ms": "0"}
PRODUCER = "the one that commits"
STRANGE = bytes(range(16))
"""A topic id that nobody has."""
STEP = 1 if NIGHTLY else 6
"""Of the pairs of faults, one of so many is tried."""

_numbers = itertools.count()


class Fault(NamedTuple):
    """Something wrong: in which part of the request, what, and how it gets there."""

    part: str
    what: str
    put: Callable[[Any], None]
    since: int = 0
    """Version from which on the request has the field."""

    def __str__(self) -> str:
        return f"{self.part} {self.what}"


def fault(path: str, *values: Any, since: int = 0) -> Iterator[Fault]:
    """One for each value that is put at a path of attributes and indexes (`topics.0.name`)."""
    *way, last = path.split(".")
    for value in values:

        def put(message: Any, value: Any = value) -> None:
            for step in way:
                message = message[int(step)] if step.isdecimal() else getattr(message, step)
            setattr(message, last, copy.deepcopy(value))

        yield Fault(path, repr(value)[:40], put, since)


def faults(*found: Iterable[Fault]) -> list[Fault]:
    return [one for some in found for one in some]


# -- groups in which things can be wrong


class World(NamedTuple):
    """A group of each side, and who is in it."""

    group: str
    topic: str
    member: str
    """Remembered by this name where it begins with `<`."""
    epoch: int
    instance: str | None

    def member_of(self, side: Side) -> str:
        return str(side[self.member[1:-1]]) if self.member.startswith("<") else self.member


def new_group() -> str:
    return f"ordered-{next(_numbers)}"


def absent(pair: Pair, topic: str) -> World:
    return World(new_group(), topic, "m1", 1, None)


def classic(pair: Pair, topic: str) -> World:
    return _classic(pair, topic, None)


def static(pair: Pair, topic: str) -> World:
    return _classic(pair, topic, "i")


def _classic(pair: Pair, topic: str, instance: str | None) -> World:
    group = new_group()
    for side in pair.sides:
        member = WireMember(side, group, "lone", subscription(topic), instance=instance)
        form([member], [{topic: [0]}])
        side.remember("lone", member.member_id)
    return World(group, topic, "<lone>", 1, instance)


def simple(pair: Pair, topic: str) -> World:
    group = new_group()
    pair.ask(lambda _: commit_request(group, {(topic, 0): 3}), 9, "offsets of no member")
    return World(group, topic, "", -1, None)


def consumers(pair: Pair, topic: str) -> World:
    group = new_group()
    told, _ = pair.ask(lambda _: consumer_join(group, "m1", topic), 1, "a consumer")
    return World(group, topic, "m1", told.member_epoch, None)


def application(pair: Pair, topic: str) -> World:
    group = new_group()
    told, _ = pair.ask(lambda _: streams_join(group, topic), 0, "a member of an application")
    return World(group, topic, "m1", told.member_epoch, None)


def sharers(pair: Pair, topic: str) -> World:
    """With a member that has no partitions: those come later, and the epoch with them."""
    group = new_group()
    told, _ = pair.ask(lambda _: share_heartbeat(group, "m1", 0, ["not-there"]), 1, "a share group")
    return World(group, topic, "m1", told.member_epoch, None)


def streams_join(group: str, topic: str) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m1",
        member_epoch=0,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=LONG_MS,
        topology=topology(topic),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )


def topology(*sources: str, **more: Any) -> streams.Topology:
    fields: dict[str, Any] = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
        **more,
    }
    one = streams.Subtopology(subtopology_id="0", source_topics=list(sources), **fields)
    return streams.Topology(epoch=1, subtopologies=[one])


Situation = Callable[[Pair, str], World]
SITUATIONS: list[Situation] = [absent, simple, classic, static, consumers, application, sharers]


# -- requests without a fault, and what can be wrong in them


def join(world: World, side: Side, version: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=world.group,
        member_id=world.member_of(side),
        group_instance_id=world.instance if version >= 5 else None,
        session_timeout_ms=LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(world.topic))],
    )


def sync(world: World, side: Side, version: int) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=world.group,
        generation_id=world.epoch,
        member_id=world.member_of(side),
        group_instance_id=world.instance if version >= 3 else None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def heartbeat(world: World, side: Side, version: int) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=world.group,
        generation_id=world.epoch,
        member_id=world.member_of(side),
        group_instance_id=world.instance if version >= 3 else None,
    )


def leave(world: World, side: Side, version: int) -> LeaveGroupRequest:
    member = world.member_of(side)
    if version < 3:
        return LeaveGroupRequest(group_id=world.group, member_id=member)
    return LeaveGroupRequest(
        group_id=world.group,
        members=[
            MemberIdentity(member_id=member, group_instance_id=world.instance),
            MemberIdentity(member_id="second"),
        ],
    )


def commit(world: World, side: Side, version: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="")
        for index in (0, 1)
    ]
    return OffsetCommitRequest(
        group_id=world.group,
        generation_id_or_member_epoch=world.epoch,
        member_id=world.member_of(side),
        group_instance_id=world.instance if version >= 7 else None,
        topics=[
            OffsetCommitRequestTopic(
                name=world.topic, topic_id=id_of(side, world.topic), partitions=partitions
            )
        ],
    )


def offset_fetch(world: World, side: Side, version: int) -> OffsetFetchRequest:
    if version < 8:
        topic = OffsetFetchRequestTopic(name=world.topic, partition_indexes=[0, 1])
        return OffsetFetchRequest(group_id=world.group, topics=[topic])
    topics = OffsetFetchRequestTopics(
        name=world.topic, topic_id=id_of(side, world.topic), partition_indexes=[0, 1]
    )
    group = OffsetFetchRequestGroup(
        group_id=world.group, member_id=world.member_of(side), member_epoch=world.epoch, topics=[topics]
    )
    return OffsetFetchRequest(groups=[group])


def offset_delete(world: World, side: Side, version: int) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    topic = OffsetDeleteRequestTopic(name=world.topic, partitions=partitions)
    return OffsetDeleteRequest(group_id=world.group, topics=[topic])


def txn_commit(world: World, side: Side, version: int) -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="")
        for index in (0, 1)
    ]
    who: dict[str, Any] = {}
    if version >= 3:
        who = {
            "generation_id_or_member_epoch": world.epoch,
            "member_id": world.member_of(side),
            "group_instance_id": world.instance,
        }
    return TxnOffsetCommitRequest(
        transactional_id=PRODUCER,
        group_id=world.group,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=world.topic, topic_id=id_of(side, world.topic), partitions=partitions
            )
        ],
        **identity(side, PRODUCER),
        **who,
    )


def consumer_joins(world: World, side: Side, version: int) -> ConsumerGroupHeartbeatRequest:
    return consumer_join(world.group, "m2", world.topic, server_assignor="range")


def consumer_beats(world: World, side: Side, version: int) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=world.group, member_id=world.member_of(side) or "m1", member_epoch=world.epoch
    )


def streams_joins(world: World, side: Side, version: int) -> StreamsGroupHeartbeatRequest:
    request = streams_join(world.group, world.topic)
    request.member_id = "m2"
    return request


def streams_beats(world: World, side: Side, version: int) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id=world.group,
        member_id=world.member_of(side) or "m1",
        member_epoch=world.epoch,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=-1,
    )


def share_joins(world: World, side: Side, version: int) -> ShareGroupHeartbeatRequest:
    return share_heartbeat(world.group, "m2", 0, ["not-there"])


def share_beats(world: World, side: Side, version: int) -> ShareGroupHeartbeatRequest:
    return share_heartbeat(world.group, world.member_of(side) or "m1", world.epoch)


class Case(NamedTuple):
    build: Callable[[World, Side, int], Any]
    faults: list[Fault]
    changes: bool = False
    """Whether a request that succeeds leaves another group behind."""


WRONG_GROUP = ("",)
WRONG_MEMBER = ("", "who")
WRONG_EPOCH = (-1, 0, 99)
WRONG_INSTANCE = ("", "another")
TASKS = [streams.TaskIds(subtopology_id="0", partitions=[0])]
STRANGE_TASKS = [streams.TaskIds(subtopology_id="9", partitions=[0])]
CHANGELOG = streams.TopicInfo(name="log", partitions=3, replication_factor=0, topic_configs=[])
OFFSETS = [streams.TaskOffset(subtopology_id="0", partition=0, offset=0)]
HEARTBEAT_FAULTS = faults(
    fault("group_id", "", " "),
    fault("member_id", " ", "who"),
    fault("member_epoch", -3, -2, -1, 99),
    fault("instance_id", "", " ", "another"),
    fault("rack_id", "", " "),
)
SHARE_HEARTBEAT_FAULTS = faults(
    fault("group_id", "", " "),
    fault("member_id", "", " ", "who", "m" * 37),
    fault("member_epoch", -3, -2, -1, 99),
    fault("rack_id", "", " "),
)
CASES = {
    "JoinGroup": Case(
        join,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("member_id", "who"),
            fault("group_instance_id", "another", since=5),
            fault("session_timeout_ms", 1, 2**31 - 1),
            fault("protocol_type", "", "other"),
            fault("protocols", [], [JoinGroupRequestProtocol(name="other", metadata=b"")]),
        ),
        changes=True,
    ),
    "SyncGroup": Case(
        sync,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("generation_id", *WRONG_EPOCH),
            fault("member_id", *WRONG_MEMBER),
            fault("group_instance_id", *WRONG_INSTANCE, since=3),
            fault("protocol_type", None, "", "other", since=5),
            fault("protocol_name", None, "", "other", since=5),
            fault("assignments", [SyncGroupRequestAssignment(member_id="who", assignment=b"x")]),
        ),
    ),
    "Heartbeat": Case(
        heartbeat,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("generation_id", *WRONG_EPOCH),
            fault("member_id", *WRONG_MEMBER),
            fault("group_instance_id", *WRONG_INSTANCE, since=3),
        ),
    ),
    "LeaveGroup": Case(
        leave,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("members.0.member_id", *WRONG_MEMBER, since=3),
            fault("members.0.group_instance_id", *WRONG_INSTANCE, since=3),
            fault("members.1.group_instance_id", "i", "another", since=3),
            fault("members", [], since=3),
        ),
        changes=True,
    ),
    "OffsetCommit": Case(
        commit,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("generation_id_or_member_epoch", *WRONG_EPOCH),
            fault("member_id", *WRONG_MEMBER),
            fault("group_instance_id", *WRONG_INSTANCE, since=7),
            fault("topics", []),
            fault("topics.0.topic_id", STRANGE, bytes(16), since=10),
            fault("topics.0.name", "", "not-there"),
            fault("topics.0.partitions", []),
            fault("topics.0.partitions.0.partition_index", -1, 99),
            fault("topics.0.partitions.0.committed_offset", -2),
            fault("topics.0.partitions.0.committed_metadata", None, "x" * 5_000),
        ),
    ),
    "OffsetFetch before 8": Case(
        offset_fetch,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("topics", []),
            fault("topics.0.name", "", "not-there"),
            fault("topics.0.partition_indexes", [], [-1, 99]),
        ),
    ),
    "OffsetFetch": Case(
        offset_fetch,
        faults(
            fault("groups", []),
            fault("groups.0.group_id", *WRONG_GROUP),
            fault("groups.0.member_id", None, "", "who", since=9),
            fault("groups.0.member_epoch", *WRONG_EPOCH, since=9),
            fault("groups.0.topics", None, []),
            fault("groups.0.topics.0.topic_id", STRANGE, bytes(16), since=10),
            fault("groups.0.topics.0.name", "", "not-there"),
            fault("groups.0.topics.0.partition_indexes", [], [-1, 99]),
        ),
    ),
    "OffsetDelete": Case(
        offset_delete,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("topics", []),
            fault("topics.0.name", "", "not-there"),
            fault("topics.0.partitions", []),
            fault("topics.0.partitions.0.partition_index", -1, 99),
        ),
    ),
    "TxnOffsetCommit": Case(
        txn_commit,
        faults(
            fault("group_id", *WRONG_GROUP),
            fault("transactional_id", "", "not-there"),
            fault("producer_id", -1, 2**62),
            fault("producer_epoch", -1, 99),
            fault("generation_id_or_member_epoch", *WRONG_EPOCH, since=3),
            fault("member_id", *WRONG_MEMBER, since=3),
            fault("group_instance_id", *WRONG_INSTANCE, since=3),
            fault("topics", []),
            fault("topics.0.name", "", "not-there"),
            fault("topics.0.topic_id", STRANGE, bytes(16), since=6),
            fault("topics.0.partitions", []),
            fault("topics.0.partitions.0.partition_index", -1, 99),
            fault("topics.0.partitions.0.committed_metadata", None, "x" * 5_000),
        ),
    ),
    "ConsumerGroupHeartbeat that joins": Case(
        consumer_joins,
        faults(
            HEARTBEAT_FAULTS,
            fault("member_id", "", since=1),
            fault("rebalance_timeout_ms", -1),
            fault("topic_partitions", None, [TopicPartitions(topic_id=STRANGE, partitions=[0])]),
            fault("subscribed_topic_names", None),
            fault("subscribed_topic_regex", "(", since=1),
            fault("server_assignor", "", "none"),
        ),
        changes=True,
    ),
    "ConsumerGroupHeartbeat": Case(
        consumer_beats,
        faults(
            HEARTBEAT_FAULTS,
            fault("member_id", "", since=1),
            fault("topic_partitions", [TopicPartitions(topic_id=STRANGE, partitions=[0])]),
            fault("server_assignor", "none"),
        ),
        changes=True,
    ),
    "ShareGroupHeartbeat that joins": Case(
        share_joins,
        faults(SHARE_HEARTBEAT_FAULTS, fault("subscribed_topic_names", None, [], [""], ["a b"])),
        changes=True,
    ),
    "ShareGroupHeartbeat": Case(
        share_beats,
        faults(SHARE_HEARTBEAT_FAULTS, fault("subscribed_topic_names", [], [""], ["a b"])),
        changes=True,
    ),
    "StreamsGroupHeartbeat that joins": Case(
        streams_joins,
        faults(
            HEARTBEAT_FAULTS,
            fault("member_id", ""),
            fault("rebalance_timeout_ms", -1),
            fault("active_tasks", None, TASKS),
            fault("standby_tasks", None, TASKS),
            fault("warmup_tasks", None, TASKS),
            fault(
                "topology",
                None,
                topology("__consumer_offsets"),
                topology("a/b"),
                topology("in", source_topic_regex=["a"]),
                topology("in", state_changelog_topics=[CHANGELOG]),
            ),
            fault("task_offsets", OFFSETS),
            fault("task_end_offsets", OFFSETS),
        ),
        changes=True,
    ),
    "StreamsGroupHeartbeat": Case(
        streams_beats,
        faults(
            HEARTBEAT_FAULTS,
            fault("member_id", ""),
            fault("active_tasks", TASKS, STRANGE_TASKS),
            fault("warmup_tasks", TASKS),
            fault("topology", topology("in"), topology("__consumer_offsets"), topology("a/b")),
            fault("task_offsets", OFFSETS),
            fault("task_end_offsets", OFFSETS),
        ),
        changes=True,
    ),
}


def combinations(
    known: list[Fault], version: int, situation: Situation, first: int = 0
) -> Iterator[tuple[Fault, ...]]:
    """None, each, and every two that are not in the same part nor in what the other takes away. By day every
    third of these pairs, from the `first` on; other pairs in each version."""
    there = [one for one in known if one.since <= version]
    if situation in (consumers, application):
        # Kafka trips over it.
        there = [one for one in there if str(one) != "groups.0.member_id None"]
    yield ()
    for one in there:
        yield (one,)
    pairs = [
        (one, other)
        for one, other in itertools.combinations(there, 2)
        if one.part != other.part and not other.part.startswith(f"{one.part}.")
    ]
    yield from pairs[(version + first) % STEP :: STEP]


def versions_of(pair: Pair, name: str, request: type[Message]) -> list[int]:
    """The newest, and the last before each version in which the request changed."""
    served = pair.versions(request)
    if name == "OffsetFetch before 8":
        return [version for version in (1, 2, 7) if version in served]
    wanted = {"JoinGroup": (3, 4, 9), "SyncGroup": (2, 4, 5), "Heartbeat": (2, 4), "LeaveGroup": (2, 3, 5)}
    wanted |= {"TxnOffsetCommit": (2, 3, 5), "OffsetCommit": (2, 6, 8, 9, 10), "OffsetFetch": (8, 9, 10)}
    return [version for version in wanted.get(name, served) if version in served]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """New ones: thousands of groups come of this. Of Kafka 4.3, whose order it is."""
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with pair_of(reference.CURRENT, {**settings, **AT_ONCE}) as pair:
        wait_for_coordinators(pair)
        begun(pair, PRODUCER)
        yield pair


def test_the_same_fault_wins_in_both(pair: Pair, name: str, situation: Situation) -> None:
    case = CASES[name]
    topic = topic_of_groups(pair, "ordered", 2)
    world = situation(pair, topic)
    request = type(case.build(world, pair.kafka, 3))
    with pair.collecting():
        for version in versions_of(pair, name, request):
            first = SITUATIONS.index(situation)
            for combination in combinations(case.faults, version, situation, first):
                if case.changes:
                    if not combination:
                        continue
                    world = situation(pair, topic)

                def build(side: Side) -> Any:
                    message = case.build(world, side, version)
                    for one in combination:
                        one.put(message)
                    return message

                note = f"{situation.__name__}: {', '.join(map(str, combination))}"
                pair.ask(build, version, note, see=seen)


def test_groups_of_every_kind_are_told_of_in_one_answer_alike(pair: Pair) -> None:
    """Those that are there, of the right type and of another, that are not, that have no name, that come
    twice; with the operations and without."""
    topic = topic_of_groups(pair, "ordered", 2)
    groups = [situation(pair, topic).group for situation in SITUATIONS]
    asked = [*groups, "", " ", groups[0], *groups[2::2], groups[5], "not-there"]
    for wants_operations in (False, True):
        for names in ([], asked, asked[::-1]):
            note = f"{len(names)}, operations {wants_operations}"
            for version in pair.versions(DescribeGroupsRequest):
                operations = wants_operations and version >= 3
                classic_ones = DescribeGroupsRequest(groups=names, include_authorized_operations=operations)
                pair.ask(lambda _: classic_ones, version, note)
            for request in (
                ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=wants_operations),
                ShareGroupDescribeRequest(group_ids=names, include_authorized_operations=wants_operations),
                StreamsGroupDescribeRequest(group_ids=names, include_authorized_operations=wants_operations),
            ):
                for version in pair.versions(type(request)):
                    pair.ask(lambda _: request, version, note)


def test_groups_of_every_kind_are_deleted_or_refused_alike(pair: Pair) -> None:
    topic = topic_of_groups(pair, "ordered", 2)
    for version in pair.versions(DeleteGroupsRequest):
        groups = [situation(pair, topic).group for situation in SITUATIONS]
        for names in ([], ["", " ", "not-there", *groups], [*groups, *groups]):
            pair.ask(lambda _: DeleteGroupsRequest(groups_names=names), version, str(len(names)))


def test_filters_of_the_list_of_groups_that_nobody_knows_are_taken_alike(pair: Pair) -> None:
    """A type or state that does not exist lists nothing, and is no error."""
    for states, types in itertools.product(([], ["none-such"], [""], ["DEAD", "x"]), repeat=2):
        for version in pair.versions(ListGroupsRequest):
            if (version < 4 and states) or (version < 5 and types) or not (states or types):
                continue
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            pair.ask(lambda _: request, version, f"{states} {types}")


def test_coordinators_of_every_kind_of_key_are_found_or_refused_alike(pair: Pair) -> None:
    for version in pair.versions(FindCoordinatorRequest):
        for kind, keys in itertools.product((-1, 0, 1, 2, 3), (["a"], [""], ["a:b"], ["a", "", "a"], [])):
            if version >= 4:
                request = FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
            elif len(keys) == 1 and (version >= 1 or kind == 0):
                request = FindCoordinatorRequest(key=keys[0], key_type=kind)
            else:
                continue
            pair.ask(lambda _: request, version, f"{kind} {keys}")


def seen(side: Side, answer: Any) -> None:
    """A member id that the broker has made up, and what Kafka keeps in a hash table."""
    member = getattr(answer, "member_id", None)
    if member and member not in ("m1", "m2", "who", " "):
        side.remember("new member", member)
    if isinstance(answer, OffsetFetchResponse):
        for group in answer.groups:
            group.topics.sort(key=lambda topic: (topic.name, side.plain(topic.topic_id, 0)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "situation" in metafunc.fixturenames:
        metafunc.parametrize("name", CASES)
        metafunc.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
