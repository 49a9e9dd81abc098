"""What members of one protocol may do in a group of the other: by every `group.consumer.migration.policy`,
in both directions, for dynamic and static members, in groups with members and without."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.members import consumer_join, settle_coordinator, topic_of_groups
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.topics import id_of
from compat_tests.kit.group_wire import LONG_MS, WireMember, form, subscription
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.consumer_protocol import ConsumerProtocolAssignment, encode
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.schema import uuid_from_text

POLICIES = ["disabled", "upgrade", "downgrade", "bidirectional"]

JOIN_VERSIONS = (3, 5, 9)
MEMBERS_MAX = 3
"""The last that needs no id, the first with instances, the newest."""

OWN_IDS = ("m1", "who")
"""That members bring with them."""

_numbers = itertools.count()


@pytest.fixture(scope="module", params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pair(policy: str) -> Iterator[Pair]:
    settings = {
        "group.consumer.migration.policy": policy,
        "offsets.topic.num.partitions": "1",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.max.size": str(MEMBERS_MAX),
    }
    with pair_of(reference.CURRENT, settings) as pair:
        settle_coordinator(pair)
        yield pair


def new_group() -> str:
    return f"migrating-{next(_numbers)}"


# -- requests


def join(group: str, topic: str, member: str = "", **more: Any) -> JoinGroupRequest:
    metadata = subscription(topic)
    fields = {
        "session_timeout_ms": LONG_MS,
        "rebalance_timeout_ms": LONG_MS,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=metadata)],
        **more,
    }
    return JoinGroupRequest(group_id=group, member_id=member, **fields)


def beat(group: str, member: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)


def seen(side: Side, answer: Any) -> None:
    if answer.member_id not in ("", *OWN_IDS):
        side.remember("joined", answer.member_id)


def compare_state(pair: Pair, group: str, note: str) -> None:
    """What the group is now, by all that tell of it; Kafka tells only what it has committed."""
    for request, version in (
        (DescribeGroupsRequest(groups=[group]), 6),
        (ConsumerGroupDescribeRequest(group_ids=[group]), 1),
    ):
        (ours,) = pair.odradek.ask(request, version).groups

        def is_committed(answer: Any) -> bool:
            (theirs,) = answer.groups
            return (theirs.error_code, theirs.group_state) == (ours.error_code, ours.group_state)

        pair.ask(lambda _: request, version, note, settle=is_committed)
    for side in pair.sides:
        listed = side.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5)
        side.values["listed"] = [
            (one.protocol_type, one.group_state, one.group_type)
            for one in listed.groups
            if one.group_id == group
        ]
    pair.compare(f"{group} in the list ({note})", pair.kafka["listed"], pair.odradek["listed"])


# -- groups of both types, before somebody of the other protocol comes


def consumer_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    request = consumer_join(group, "m1", topic, instance_id=instance)
    pair.ask(
        lambda _: request,
        1,
        "m1 makes a consumer group",
        see=lambda side, answer: side.values.update(epoch=answer.member_epoch),
    )


def empty_consumer_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    consumer_group(pair, group, topic, instance)
    pair.ask(lambda _: beat(group, "m1", -1, instance_id=instance), 1, "m1 leaves it")


def streams_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m1",
        member_epoch=0,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=LONG_MS,
        topology=Topology(epoch=1, subtopologies=[]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )
    pair.ask(lambda _: request, 0, "m1 makes a streams group")


def empty_streams_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    streams_group(pair, group, topic, instance)
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m1",
        member_epoch=-1,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=-1,
    )
    pair.ask(lambda _: request, 0, "m1 leaves it")


def no_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    """Nobody has asked for it yet."""


def classic_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    for side in pair.sides:
        member = WireMember(side, group, "lone", subscription(topic), instance=instance)
        form([member], [{topic: [0, 1]}])
        side.remember("lone", member.member_id)


def empty_classic_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    classic_group(pair, group, topic, instance)
    pair.ask(
        lambda side: LeaveGroupRequest(
            group_id=group, members=[MemberIdentity(member_id=side["lone"], group_instance_id=instance)]
        ),
        5,
        "the classic member leaves",
    )


def simple_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])]
    )
    pair.ask(lambda _: request, 8, "offsets without a group")


def connect_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    for side in pair.sides:
        member = WireMember(side, group, "lone", b"", instance=instance, protocol_type="connect")
        form([member], [{topic: [0, 1]}])
        side.remember("lone", member.member_id)


def custom_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    """Whose leader gives out data of its own, which the conversion cannot carry over."""
    told = ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"own")
    _with_assignment(pair, group, topic, instance, encode(told, 1))


def malformed_group(pair: Pair, group: str, topic: str, instance: str | None) -> None:
    _with_assignment(pair, group, topic, instance, b"\0")


def _with_assignment(pair: Pair, group: str, topic: str, instance: str | None, told: bytes) -> None:
    for side in pair.sides:
        member = WireMember(side, group, "lone", subscription(topic), instance=instance)
        member.get_id()
        member.ask_to_join()
        member.take_join()
        member.ask_to_sync({member.member_id: told})
        member.take_sync()
        side.remember("lone", member.member_id)


Situation = Callable[[Pair, str, str, str | None], None]
OF_CONSUMERS = [consumer_group, empty_consumer_group, streams_group, empty_streams_group, no_group]
OF_CLASSICS = [classic_group, empty_classic_group, simple_group, connect_group, custom_group, malformed_group]


def _named(situation: Situation) -> str:
    return situation.__name__


@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
@pytest.mark.parametrize("situation", OF_CONSUMERS, ids=_named)
def test_classic_members_join_alike(pair: Pair, situation: Situation, instance: str | None) -> None:
    """With and without ids, as members of their own, in the place of the one that is there, and wrong."""
    topic = topic_of_groups(pair, "wanted", 2)
    other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
    cases: list[tuple[str, dict[str, Any]]] = [
        ("anew", {}),
        ("with an id of its own", {"member": "who"}),
        ("with the id of the one there", {"member": "m1"}),
        ("another type", {"protocol_type": "connect"}),
        ("another type, with an id", {"protocol_type": "connect", "member": "who"}),
        ("no protocols", {"protocols": []}),
        ("an unread subscription", {"protocols": other}),
        ("a session too short", {"session_timeout_ms": 1}),
        ("no group", {"group": ""}),
    ]
    instances = dict.fromkeys((None, instance, "another"))
    for instance_id, (what, changes) in itertools.product(instances, cases):
        for version in JOIN_VERSIONS:
            if version < 5 and instance_id is not None:
                continue
            if not changes and instance_id is None and situation is no_group:
                continue
            group = new_group()
            situation(pair, group, topic, instance)
            fields: dict[str, Any] = {"group": group, "topic": topic, "group_instance_id": instance_id}
            request = join(**{**fields, **changes})
            note = f"{what}, instance {instance_id}"
            pair.ask(lambda _: request, version, note, see=seen)
            compare_state(pair, group, note)


def test_a_full_group_takes_back_who_has_a_place_alike(pair: Pair) -> None:
    topic = topic_of_groups(pair, "wanted", 2)
    for instance, member, leaves in itertools.product(
        (None, "i", "another"), ("", "m1", "who"), (False, True)
    ):
        for request in (
            join("", topic, member, group_instance_id=instance),
            consumer_join("", "m4", topic, instance_id=instance),
        ):
            request.group_id = group = new_group()
            consumer_group(pair, group, topic, "i")
            for number in range(2, MEMBERS_MAX + 1):
                pair.ask(lambda _: consumer_join(group, f"m{number}", topic), 1, "there are more")
            if leaves:
                pair.ask(lambda _: beat(group, "m1", -2, instance_id="i"), 1, "m1 leaves for a while")
            note = f"{type(request).__name__}: instance {instance}, member {member!r}, m1 has left: {leaves}"
            pair.ask(lambda _: request, 9 if isinstance(request, JoinGroupRequest) else 1, note, see=seen)
            compare_state(pair, group, note)


@pytest.mark.parametrize("situation", [*OF_CONSUMERS, empty_classic_group, simple_group], ids=_named)
def test_joins_without_a_subscription_are_answered_alike(pair: Pair, situation: Situation) -> None:
    """Joins of the type `consumer` with nothing, half a subscription, or a wrong length or version."""
    topic = topic_of_groups(pair, "wanted", 2)
    whole = subscription(topic)
    for metadata in (b"", b"\0", whole[:-1], whole[:2] + b"\x7f\xff\xff\xff", b"\xff\xff" + whole[2:]):
        for version in JOIN_VERSIONS:
            group = new_group()
            situation(pair, group, topic, None)
            protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]

            def request(side: Side, member: str = "") -> JoinGroupRequest:
                return join(group, topic, member, protocols=protocols)

            note = f"metadata {metadata!r}"
            answers = pair.ask(request, version, note, see=seen)
            if answers[0].error_code == ErrorCode.MEMBER_ID_REQUIRED:
                pair.ask(
                    lambda side: request(side, side["joined"]), version, f"{note}, with its id", see=seen
                )
            compare_state(pair, group, note)


@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
@pytest.mark.parametrize("situation", OF_CLASSICS, ids=_named)
def test_consumers_join_alike(pair: Pair, situation: Situation, instance: str | None) -> None:
    topic = topic_of_groups(pair, "wanted", 2)
    for instance_id in dict.fromkeys((None, instance, "another")):
        cases = [
            ("joins", 0, {}),
            ("joins with a strange assignor", 0, {"server_assignor": "none"}),
            ("is there", 1, {}),
            ("leaves", -1, {}),
        ]
        for what, epoch, changes in cases:
            group = new_group()
            situation(pair, group, topic, instance)
            if epoch:
                request = beat(group, "m1", epoch, instance_id=instance_id, **changes)
            else:
                request = consumer_join(group, "m1", topic, instance_id=instance_id, **changes)
            note = f"{what}, instance {instance_id}"
            theirs, ours = pair.ask(lambda _: request, 1, note)
            if theirs.error_message is not None:
                pair.compare(f"{note}, in words", [theirs.error_message], [ours.error_message])
            compare_state(pair, group, note)


@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
def test_a_group_of_both_protocols_goes_on_alike(pair: Pair, policy: str, instance: str | None) -> None:
    """A classic member comes to a consumer, as far as the policy lets it, and the consumer goes: by leaving,
    or because a classic one takes its static place."""
    topic = topic_of_groups(pair, "shared", 2)
    for takes_place in (False, True) if instance else (False,):
        group = new_group()
        consumer_group(pair, group, topic, instance)
        epoch = pair.kafka["epoch"]
        pair.ask(lambda _: join(group, topic), 9, "asks for an id", see=seen)
        first = pair.ask(lambda side: join(group, topic, side.values.get("joined", "")), 9, "joins with it")[
            0
        ]
        if first.error_code != 0:
            continue

        def sync(side: Side) -> SyncGroupRequest:
            return SyncGroupRequest(
                group_id=group,
                generation_id=first.generation_id,
                member_id=side["joined"],
                protocol_type="consumer",
                protocol_name="range",
                assignments=[],
            )

        def heartbeat(side: Side) -> HeartbeatRequest:
            return HeartbeatRequest(
                group_id=group, generation_id=first.generation_id, member_id=side["joined"]
            )

        pair.ask(sync, 5, "syncs, and has nothing yet")
        told, _ = pair.ask(lambda _: beat(group, "m1", epoch), 1, "m1 is to give up a part")
        kept = told.assignment.topic_partitions[0].partitions

        def has_given_up(side: Side) -> ConsumerGroupHeartbeatRequest:
            return beat(
                group,
                "m1",
                epoch,
                topic_partitions=[TopicPartitions(topic_id=id_of(side, topic), partitions=kept)],
            )

        pair.ask(has_given_up, 1, "m1 has given it up")
        pair.ask(heartbeat, 4, "the classic member is to join again")
        pair.ask(lambda side: join(group, topic, side["joined"]), 9, "joins again")
        pair.ask(sync, 5, "syncs, and has a part")
        if takes_place:
            pair.ask(
                lambda _: join(group, topic, group_instance_id=instance),
                9,
                "a classic member takes the consumer's place",
                see=lambda side, answer: side.remember("second", answer.member_id),
            )
        else:
            pair.ask(lambda _: beat(group, "m1", -1, instance_id=instance), 1, "the consumer leaves")
        compare_state(pair, group, f"afterwards, place taken: {takes_place}")
        theirs, ours = pair.kafka.ask(heartbeat(pair.kafka), 4), pair.odradek.ask(heartbeat(pair.odradek), 4)
        if policy == "upgrade" and not takes_place:
            # Nobody sends heartbeats that would have the parts of the consumer given out again: in Kafka they
            # are nobody's until somebody joins.
            assert (theirs.error_code, ours.error_code) == (0, ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            pair.compare("is still there", theirs.error_code, ours.error_code)
        pair.ask(sync, 5, "syncs again")


def test_ids_that_are_given_out_have_the_form_of_kafkas(pair: Pair) -> None:
    topic, group = topic_of_groups(pair, "wanted"), new_group()
    consumer_group(pair, group, topic, None)
    for side in pair.sides:
        answer = side.ask(join(group, topic), 9)
        if answer.member_id:
            assert len(uuid_from_text(answer.member_id)) == 16, side.name
