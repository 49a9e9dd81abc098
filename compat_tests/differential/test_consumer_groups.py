"""Groups of the consumer protocol (KIP-848): every answer, and every record written, beside Kafka's."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side
from compat_tests.differential.members import consumer_situations, is_listed, topic_of_groups
from compat_tests.differential.test_groups import commits_of_members
from compat_tests.differential.topics import id_of
from compat_tests.kit.group_wire import WireMember, form, subscription
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import group_records
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.group_records import GroupMetadataKey
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
    OffsetFetchRequestTopics,
)
from odradek.wire.records import iter_records, iter_whole_batches
from odradek.wire.schema import uuid_from_text

_numbers = itertools.count()
NEWEST = 1
TOLD_OTHERWISE = ("metadata_hash", "assignment_timestamp", "timestamp", "version", "current_state_timestamp")
"""Hashes of metadata are each broker's own, times are its clock's."""


def new_group() -> str:
    return f"consumers-{next(_numbers)}"


@pytest.fixture(autouse=True)
def _with_consumer_groups(pair: Pair) -> None:
    """Kafka 3.9 has an earlier form of the protocol, and serves it when asked to only."""
    if not pair.versions(ConsumerGroupHeartbeatRequest):
        pytest.skip("not served by this reference")
    for side in pair.sides:
        deadline = time.monotonic() + SECONDS
        pause = Pauses()
        while True:
            side.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            described = side.ask(DescribeGroupsRequest(groups=["g"]), 4)
            if described.groups[0].error_code == 0:
                break
            assert time.monotonic() < deadline, (side.name, described)
            pause()


def heartbeat(group: str, member: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)


def join(group: str, member: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [*topics], "topic_partitions": []}
    return heartbeat(group, member, 0, **{**fields, **more})


def owned(side: Side, **topics: list[int]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=id_of(side, name), partitions=partitions)
        for name, partitions in topics.items()
    ]


def records_of(side: Side, group: str) -> list[Any]:
    """All records of a group, as values that can be compared."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**30)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=2**30,
        topics=[FetchTopic(topic="__consumer_offsets", partitions=[partition])],
    )
    data = bytes(side.ask(request, 11).responses[0].partitions[0].records or b"")
    found = []
    for start, header in iter_whole_batches(data):
        if header.is_control:
            # The end of a transaction with offsets, of whatever test ran before.
            continue
        for record in iter_records(memoryview(data)[start : start + header.size_bytes]):
            key = group_records.decode_key(record.key)
            if getattr(key, "group_id", None) != group and key != GroupMetadataKey(group=group):
                continue
            value = None if record.value is None else group_records.decode_value(key, record.value)
            plain = side.plain(value, 0)
            if isinstance(plain, dict):
                for name in TOLD_OTHERWISE:
                    if plain.get(name):
                        plain[name] = "not 0"
                # A group that was a consumer group: ours has nobody lead one that is to rebalance, and says
                # what its members have, where Kafka's says what they were to have.
                plain.pop("leader", None)
                for member in plain.get("members", ()):
                    member.pop("assignment", None)
            found.append([type(key).__name__, side.plain(key, 0), plain])
    return found


def compare_records(pair: Pair, group: str) -> None:
    """In their order, but for that of the members within one assignment or deletion: Kafka keeps them in a
    hash table."""
    theirs, ours = (_with_sorted_members(records_of(side, group)) for side in pair.sides)
    names = [[(record[0], record[1].get("member_id")) for record in records] for records in (theirs, ours)]
    pair.compare(f"kinds of records of {group}", [str(names[0])], [str(names[1])])
    pair.compare(f"records of {group}", theirs, ours)


def _with_sorted_members(records: list[Any]) -> list[Any]:
    found: list[Any] = []
    for (kind, is_tombstone), grouped in itertools.groupby(records, key=lambda one: (one[0], one[2] is None)):
        run = list(grouped)
        if is_tombstone or kind == "ConsumerGroupTargetAssignmentMemberKey":
            run.sort(key=lambda record: str(record[1]))
        found += run
    return found


def test_requests_that_are_wrong_in_themselves(pair: Pair) -> None:
    wrong = {
        "nobody": join("g", ""),
        "blank": join("g", "  "),
        "no group": join("", "m"),
        "no instance": join("g", "m", instance_id=""),
        "no rack": join("g", "m", rack_id=" "),
        "no time": join("g", "m", rebalance_timeout_ms=-1),
        "no list": join("g", "m", topic_partitions=None),
        "a list": join("g", "m", topic_partitions=[TopicPartitions(topic_id=bytes(16), partitions=[0])]),
        "no subscription": join("g", "m", subscribed_topic_names=None),
        "a strange assignor": join("g", "m", server_assignor="sticky"),
        "an epoch too low": heartbeat("g", "m", -3),
        "away without a name": heartbeat("g", "m", -2),
        "nobody leaves": heartbeat("g", "", -1),
        "nobody stays": heartbeat("g", "", 4),
        "no such group": heartbeat("no such", "m", 4),
        "leaves no such group": heartbeat("no such", "m", -1),
        "away from no such group": heartbeat("no such", "m", -2, instance_id="i"),
    }
    for version in pair.versions(ConsumerGroupHeartbeatRequest):
        for note, request in wrong.items():
            if version == 0 and note in ("nobody", "blank"):
                continue
            theirs, ours = pair.ask(lambda _: request, version, note)
            assert theirs.error_message == ours.error_message


def test_a_member_without_an_id_is_given_one_of_the_same_form(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "nameless", 1)

    def see(side: Side, answer: Any) -> None:
        side.remember("member", answer.member_id)

    theirs, ours = pair.ask(lambda _: join(group, "", topic), 0, "joins", see=see)
    assert {len(uuid_from_text(one.member_id)) for one in (theirs, ours)} == {16}
    pair.ask(lambda side: heartbeat(group, side["member"], 2), 0, "is there")
    pair.ask(lambda side: heartbeat(group, side["member"], -1), 0, "leaves")


def test_a_group_from_the_first_member_to_the_last(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "whole", 4)
    ask = pair.ask
    ask(lambda _: join(group, "m1", topic), NEWEST, "m1 joins")
    ask(lambda _: heartbeat(group, "m1", 2), NEWEST, "m1 is there")
    ask(lambda side: heartbeat(group, "m1", 2, topic_partitions=owned(side, **{topic: [0, 1, 2, 3]})), NEWEST)
    ask(lambda _: join(group, "m1", topic), NEWEST, "m1 joins again")
    ask(lambda _: heartbeat(group, "m1", 3), NEWEST, "from the future")
    ask(lambda _: heartbeat(group, "m1", 1), NEWEST, "from the past")
    ask(lambda _: heartbeat(group, "m9", 2), NEWEST, "a stranger")
    ask(lambda _: join(group, "m2", topic), NEWEST, "m2 joins")
    ask(lambda _: heartbeat(group, "m2", 3), NEWEST, "m2 waits")
    ask(lambda _: heartbeat(group, "m1", 2), NEWEST, "m1 has to give up")
    for side in pair.sides:
        target = side.ask(ConsumerGroupDescribeRequest(group_ids=[group]), NEWEST).groups[0].members
        side.values["kept"] = {
            member.member_id: [p for t in member.target_assignment.topic_partitions for p in t.partitions]
            for member in target
        }
    describe = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    ask(lambda _: describe, NEWEST, "while m1 gives up")
    ask(lambda side: heartbeat(group, "m1", 2, topic_partitions=owned(side, **{topic: [0, 1, 2, 3]})), NEWEST)
    kept = pair.kafka["kept"]["m1"]
    ask(lambda side: heartbeat(group, "m1", 2, topic_partitions=owned(side, **{topic: kept})), NEWEST, "done")
    ask(lambda side: heartbeat(group, "m1", 2, topic_partitions=owned(side, **{topic: kept})), NEWEST, "lost")
    ask(lambda _: heartbeat(group, "m2", 3), NEWEST, "m2 gets it")
    ask(lambda _: heartbeat(group, "m2", 3), NEWEST, "m2 knows it")
    ask(lambda _: describe, NEWEST, "stable")
    is_listed(pair, group, "Consumer", "stable")
    ask(lambda _: DescribeGroupsRequest(groups=[group]), 6, "as a classic one")
    ask(lambda _: DescribeGroupsRequest(groups=[group]), 5, "as a classic one")
    ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 2, "with members")
    compare_records(pair, group)
    ask(lambda _: heartbeat(group, "m1", -1), NEWEST, "m1 leaves")
    ask(lambda _: heartbeat(group, "m1", -1), NEWEST, "m1 leaves again")
    ask(lambda _: describe, NEWEST, "without m1")
    ask(lambda _: heartbeat(group, "m2", 3), NEWEST, "m2 has all")
    ask(lambda _: heartbeat(group, "m2", -1), NEWEST, "m2 leaves")
    ask(lambda _: describe, NEWEST, "empty")
    compare_records(pair, group)
    ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 2)
    ask(lambda _: describe, NEWEST, "deleted")
    compare_records(pair, group)


def test_offsets_of_members(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "offsets", 2)
    pair.ask(lambda _: join(group, "m1", topic), NEWEST)

    def commit(epoch: int, member: str = "m1", partition: int = 0, offset: int = 5) -> OffsetCommitRequest:
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        return OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])],
        )

    def fetch(epoch: int, member: str | None) -> OffsetFetchRequest:
        asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])
        one = OffsetFetchRequestGroup(group_id=group, topics=[asked], member_id=member, member_epoch=epoch)
        return OffsetFetchRequest(groups=[one])

    pair.ask(lambda _: commit(2), 9)
    pair.ask(lambda _: commit(2), 8, "an old version")
    pair.ask(lambda _: commit(1), 9, "an old epoch")
    pair.ask(lambda _: commit(3), 9, "a new epoch")
    pair.ask(lambda _: commit(2, "m9"), 9, "a stranger")
    pair.ask(lambda _: commit(-1, ""), 9, "an administrator")
    pair.ask(lambda _: fetch(2, "m1"), 9)
    pair.ask(lambda _: fetch(1, "m1"), 9, "an old epoch")
    pair.ask(lambda _: fetch(2, "m9"), 9, "a stranger")
    pair.ask(lambda _: fetch(-1, None), 9, "an administrator")
    pair.ask(lambda _: join(group, "m2", "elsewhere"), NEWEST, "m2 comes, and all have a new epoch")
    pair.ask(lambda _: heartbeat(group, "m1", 2), NEWEST)
    pair.ask(lambda _: commit(2, offset=7), 9, "an epoch from which on it has the partition")
    pair.ask(lambda _: commit(1, offset=8), 9, "one before")
    doomed = OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    pair.ask(lambda _: OffsetDeleteRequest(group_id=group, topics=[doomed]), 0, "in use")
    pair.ask(lambda _: heartbeat(group, "m1", -1), NEWEST)
    pair.ask(lambda _: OffsetDeleteRequest(group_id=group, topics=[doomed]), 0, "not in use")
    pair.ask(lambda _: heartbeat(group, "m2", -1), NEWEST)
    pair.ask(lambda _: commit(-1, ""), 9, "an administrator, while nobody is there")


def test_offsets_of_members_are_fenced_alike(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "fenced", 2)
    for note, cases in consumer_situations(pair, group, topic):
        commits_of_members(pair, group, topic, cases, note)


def test_static_members(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "static", 2)
    pair.ask(lambda _: join(group, "m1", topic, instance_id="i"), NEWEST)
    pair.ask(lambda _: join(group, "m2", topic, instance_id="i"), NEWEST, "taken")
    pair.ask(lambda _: join(group, "m1", topic, instance_id="i"), NEWEST, "taken by itself")
    pair.ask(lambda _: heartbeat(group, "m2", 2, instance_id="i"), NEWEST, "fenced")
    pair.ask(lambda _: heartbeat(group, "m1", 2, instance_id="j"), NEWEST, "unknown")
    pair.ask(lambda _: heartbeat(group, "m2", -2, instance_id="i"), NEWEST, "another goes")
    pair.ask(lambda _: heartbeat(group, "m1", -2, instance_id="i"), NEWEST, "goes for a while")
    describe = ConsumerGroupDescribeRequest(group_ids=[group])
    pair.ask(lambda _: describe, NEWEST, "while it is away")
    pair.ask(lambda _: heartbeat(group, "m1", 2, instance_id="i"), NEWEST, "the old one is still there")
    pair.ask(lambda _: join(group, "m3", topic, instance_id="i"), NEWEST, "back under another id")
    pair.ask(lambda _: describe, NEWEST, "back")
    pair.ask(lambda _: heartbeat(group, "m1", 2, instance_id="i"), NEWEST, "the old id")
    pair.ask(lambda _: heartbeat(group, "m3", -1, instance_id="i"), NEWEST, "goes for good")
    pair.ask(lambda _: describe, NEWEST, "gone")
    compare_records(pair, group)


def test_subscriptions_that_change(pair: Pair) -> None:
    group = new_group()
    first, second = topic_of_groups(pair, "first", 2), topic_of_groups(pair, "second", 2)
    pair.ask(lambda _: join(group, "m1"), NEWEST, "to nothing")
    pair.ask(lambda _: heartbeat(group, "m1", 1, subscribed_topic_names=[first, first]), NEWEST)
    pair.ask(lambda _: heartbeat(group, "m1", 2, server_assignor="range", rack_id="r"), NEWEST)
    pair.ask(lambda _: heartbeat(group, "m1", 2, subscribed_topic_names=[second]), NEWEST)
    pair.ask(lambda side: heartbeat(group, "m1", 2, topic_partitions=[]), NEWEST, "has given up")
    full = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [second]}
    pair.ask(
        lambda side: heartbeat(group, "m1", 3, topic_partitions=owned(side, **{second: [0]}), **full),
        NEWEST,
        "a full request",
    )
    pair.ask(lambda _: ConsumerGroupDescribeRequest(group_ids=[group]), NEWEST)
    compare_records(pair, group)


def test_topics_that_grow_and_vanish(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "growing", 1)
    pair.ask(lambda _: join(group, "m1", topic), NEWEST)
    more = CreatePartitionsTopic(name=topic, count=3, assignments=None)

    def moved(epoch: int) -> Any:
        return lambda answer: answer.member_epoch > epoch or answer.error_code != 0

    for side in pair.sides:
        side.ask(CreatePartitionsRequest(topics=[more], timeout_ms=30_000), 2)
    pair.ask(lambda _: heartbeat(group, "m1", 2), NEWEST, "grown", settle=moved(2))
    for side in pair.sides:
        side.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5)
    pair.ask(
        lambda _: heartbeat(group, "m1", 3), NEWEST, "vanished", settle=lambda a: a.assignment is not None
    )
    pair.ask(lambda _: heartbeat(group, "m1", 3, topic_partitions=[]), NEWEST, "given up", settle=moved(3))
    pair.ask(lambda _: ConsumerGroupDescribeRequest(group_ids=[group]), NEWEST)
    compare_records(pair, group)


def test_subscriptions_by_pattern(pair: Pair) -> None:
    group = new_group()
    topic = topic_of_groups(pair, "by-pattern", 2)
    bad = {"subscribed_topic_regex": "by-pattern-(", "subscribed_topic_names": None}
    theirs, _ = pair.ask(lambda _: join(group, "m1", **bad), NEWEST, "no expression")
    assert theirs.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    good = {"subscribed_topic_regex": "by-pat+ern-.*", "subscribed_topic_names": None}
    pair.ask(lambda _: join(group, "m1", **good), NEWEST, "not resolved yet")
    deadline = time.monotonic() + SECONDS
    for side in pair.sides:
        pause = Pauses()
        while side.ask(heartbeat(group, "m1", 1), NEWEST).member_epoch == 1:
            assert time.monotonic() < deadline, side.name
            pause()
    pair.ask(lambda _: heartbeat(group, "m1", 2), NEWEST, "resolved")
    describe = ConsumerGroupDescribeRequest(group_ids=[group])
    pair.ask(lambda _: describe, NEWEST)
    pair.ask(lambda _: join(group, "m2", **good), NEWEST, "another with the same")
    pair.ask(lambda _: heartbeat(group, "m1", 2, subscribed_topic_regex=""), NEWEST, "m1 wants nothing")
    pair.ask(lambda _: heartbeat(group, "m2", -1), NEWEST, "the last one with it goes")
    pair.ask(lambda _: describe, NEWEST)
    assert topic
    compare_records(pair, group)


def test_a_classic_group_that_is_empty_becomes_a_consumer_group(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "simple", 1)
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    commit = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])]
    )
    pair.ask(lambda _: commit, 8)
    is_listed(pair, group, "classic", "Empty")
    pair.ask(lambda _: heartbeat(group, "m1", 3), NEWEST, "not one yet")
    pair.ask(lambda _: join(group, "m1", topic), NEWEST)
    pair.ask(lambda _: ConsumerGroupDescribeRequest(group_ids=[group, "", "none"]), NEWEST)
    compare_records(pair, group)


def test_a_group_with_members_changes_its_protocol_and_back(pair: Pair) -> None:
    group, topic = new_group(), topic_of_groups(pair, "converted", 2)
    classics = {}
    for side in pair.sides:
        member = classics[side.name] = WireMember(side, group, "classic", subscription(topic))
        form([member], [{topic: [0, 1]}])
        side.remember("classic", member.member_id)
    by_pattern = {"subscribed_topic_regex": topic.replace("e", "[e]")}
    told, _ = pair.ask(lambda _: join(group, "m1", topic, **by_pattern), NEWEST, "m1 upgrades the group")
    # Topics are found beside the requests. A heartbeat before that would write one more record.
    pair.ask(
        lambda _: ConsumerGroupDescribeRequest(group_ids=[group]),
        NEWEST,
        "with the topics of the pattern",
        settle=lambda answer: answer.groups[0].group_epoch > told.member_epoch,
    )
    pair.ask(lambda _: heartbeat(group, "m1", told.member_epoch), NEWEST, "m1 has the new epoch")
    pair.ask(lambda _: ConsumerGroupDescribeRequest(group_ids=[group]), NEWEST, "of both protocols")
    compare_records(pair, group)
    pair.ask(lambda _: heartbeat(group, "m1", -1), NEWEST, "m1 leaves, and the group is a classic one")
    compare_records(pair, group)
    for member in classics.values():
        member.leave()
    compare_records(pair, group)
