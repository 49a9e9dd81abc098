"""Share groups (KIP-932): heartbeats, sound and unsound, descriptions, their offsets, their settings, and
what the APIs of all groups say about them."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compat_tests.differential.harness import Pair
from compat_tests.differential.members import (
    consumer_join,
    is_listed,
    settle_coordinator,
    topic_of_groups,
)
from compat_tests.differential.share_state import wait_for_coordinator
from compat_tests.differential.sharing import (
    ACCEPT,
    RELEASE,
    Member,
    alter_offsets,
    beat,
    delete_offsets,
    describe,
    describe_offsets,
    describe_offsets_request,
    heartbeat,
    join,
    new_group,
    readers,
    set_group,
    until,
    without_partitions,
)
from compat_tests.differential.test_records import batch, produce
from compat_tests.differential.topics import metadata_of, new_topic
from compat_tests.kit.group_wire import commit_request
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_groups import ListGroupsRequest
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
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUP_RESOURCE, SET = 32, 0
UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_OR_PARTITION = -1, 3
SIZE_MAX = 200
"""Of a share group, by default."""


@pytest.fixture(autouse=True)
def _served(pair: Pair) -> None:
    if not pair.versions(ShareGroupHeartbeatRequest):
        pytest.skip("this release has no share groups")
    settle_coordinator(pair)


def group_of(pair: Pair, topic: str, partitions: int = 1) -> str:
    """A group with a member that has the topic, and that assigns at once."""
    group = new_group()
    for side in pair.sides:
        wait_for_coordinator(side, topic)
    set_group(pair, group, assignment_interval_ms="0")
    join(pair, group, "m", topic, partitions=partitions)
    return group


def test_a_member_alone_joins_stays_and_leaves(pair: Pair) -> None:
    topic = new_topic(pair, "shares", 3)
    for side in pair.sides:
        wait_for_coordinator(side, topic)
    group = new_group()
    set_group(pair, group, assignment_interval_ms="0")
    describe(pair, group, note="nobody is left")
    beat(pair, heartbeat(group, "m", 0, [topic]), "joins")
    describe(pair, group, note="has joined")
    epoch = join(pair, group, "m", topic, partitions=3)
    describe(pair, group, note="has its partitions", operations=True)
    is_listed(pair, group, "share", "Stable")
    beat(pair, heartbeat(group, "m", epoch), "nothing new")
    beat(pair, heartbeat(group, "m", epoch, [topic]), "the same topics")
    beat(pair, heartbeat(group, "m", epoch, [topic, topic]), "the same topic twice")
    beat(pair, heartbeat(group, "m", epoch, rack_id="r"), "has moved")
    beat(pair, heartbeat(group, "m", epoch - 1), "the epoch before")
    for note, wrong in {
        "an epoch to come": heartbeat(group, "m", epoch + 1),
        "an old epoch": heartbeat(group, "m", epoch - 2),
        "epoch -2": heartbeat(group, "m", -2),
        "epoch -3": heartbeat(group, "m", -3),
        "a stranger": heartbeat(group, "n", epoch),
        "a stranger leaves": heartbeat(group, "n", -1),
        "no group": heartbeat(f"no-{group}", "m", 1),
        "no group to leave": heartbeat(f"no-{group}", "m", -1),
        "no name of a group": heartbeat("", "m", epoch),
        "a blank for a group": heartbeat(" ", "m", 1),
        "no member": heartbeat(group, "", epoch),
        "no member joins": heartbeat(group, "", 0, [topic]),
        "a blank for a member": heartbeat(group, " ", epoch),
        "a long member": heartbeat(group, "m" * 37, epoch),
        "a long member joins": heartbeat(group, "m" * 37, 0, [topic]),
        "no topics at first": heartbeat(group, "n", 0),
        "an empty list at first": heartbeat(group, "n", 0, []),
        "an empty list": heartbeat(group, "m", epoch, []),
        "no rack": heartbeat(group, "m", epoch, rack_id=""),
        "a blank for a rack": heartbeat(group, "m", epoch, rack_id=" "),
        "an illegal topic": heartbeat(group, "m", epoch, ["a b"]),
    }.items():
        beat(pair, wrong, note)
        describe(pair, group, note=f"after: {note}")
    epoch = beat(pair, heartbeat(group, "m", 0, [topic]), "joins again")
    beat(pair, heartbeat(group, "m", epoch), "goes on")
    beat(pair, heartbeat(group, "m", -1), "leaves")
    describe(pair, group, note="empty")
    is_listed(pair, group, "share", "Empty")


def test_partitions_are_shared_alike(pair: Pair) -> None:
    topic, other = new_topic(pair, "shares", 4), new_topic(pair, "shares", 2)
    group = group_of(pair, topic, 4)
    epochs = {}

    def changes(member: str, epoch: int, note: str, topics: list[str] | None = None) -> None:
        request, told = heartbeat(group, member, epoch, topics), f"{member} {note}"
        epochs[member] = beat(pair, request, told, see=without_partitions)
        describe(pair, group, note=told, see=without_partitions)

    for member in ("n", "o", "p", "q", "r"):
        changes(member, 0, "joins", [topic])
    changes("m", 0, "reads another topic, too", [topic, other])
    for member in ("n", "o"):
        changes(member, -1, "leaves")
    changes("p", epochs["p"], "reads both", [other, topic])
    changes("q", epochs["q"], "reads nothing", ["not-there"])
    for member in ("m", "p", "q", "r"):
        changes(member, 0, "joins again", [topic])
    for member in ("m", "p", "q", "r"):
        changes(member, epochs[member], "goes on")


def test_topics_come_grow_and_go_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shares", 1)
    group = group_of(pair, topic)
    grown = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    pair.ask(lambda _: CreatePartitionsRequest(topics=[grown], timeout_ms=30_000), 3, "grown")
    for side in pair.sides:
        until(side, lambda: metadata_of(topic), 12, lambda answer: len(answer.topics[0].partitions) == 3)
    join(pair, group, "m", topic, partitions=3)
    describe(pair, group, note="of three partitions")
    describe_offsets(pair, (group, None), note="of three partitions")
    gone = DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
    pair.ask(lambda _: gone, 5, "deleted")
    for side in pair.sides:
        until(side, lambda: metadata_of(topic), 12, lambda answer: answer.topics[0].error_code == 3)
    join(pair, group, "m", topic, partitions=0)
    describe(pair, group, note="of a deleted topic")
    describe_offsets(pair, (group, None), note="of a deleted topic")
    describe_offsets(pair, (group, {topic: [0, 1]}), note="of a deleted topic by name")


def test_a_group_has_its_size(pair: Pair) -> None:
    group = new_group()
    for side in pair.sides:
        for number in range(SIZE_MAX):
            answer = side.ask(heartbeat(group, f"m{number}", 0, ["none"]), 1)
            assert answer.error_code == 0, (side.name, number, answer)
    beat(pair, heartbeat(group, "late", 0, ["none"]), "one too many")
    pair.ask(lambda _: heartbeat(group, "m7", 0, ["none"]), 1, "one that is there")
    beat(pair, heartbeat(group, "m7", -1), "leaves")
    pair.ask(lambda _: heartbeat(group, "late", 0, ["none"]), 1, "there is room")


def test_groups_are_described_or_refused_alike(pair: Pair) -> None:
    topic = topic_of_groups(pair, "shares")
    group = group_of(pair, topic)
    classic, consumers = new_group(), new_group()
    pair.ask(lambda _: commit_request(classic, {(topic, 0): 3}), 9, "a classic group")
    pair.ask(lambda _: consumer_join(consumers, "m", topic), 1, "a group of consumers")
    names = [group, classic, consumers, "", " ", "not-there", group]
    for operations in (False, True):
        for asked in ([], names, names[::-1], *([one] for one in names)):
            describe(pair, *asked, note=str(asked), operations=operations)
    for version in pair.versions(DescribeGroupsRequest):
        pair.ask(lambda _: DescribeGroupsRequest(groups=names), version, "as classic ones")
    for version in pair.versions(ConsumerGroupDescribeRequest):
        pair.ask(lambda _: ConsumerGroupDescribeRequest(group_ids=names), version, "as consumers")
    for name in (classic, consumers):
        beat(pair, heartbeat(name, "s", 0, [topic]), "joins a group of another type")
        beat(pair, heartbeat(name, "s", 1), "stays in a group of another type")
        beat(pair, heartbeat(name, "s", -1), "leaves a group of another type")


def test_a_share_group_is_no_other_group(pair: Pair) -> None:
    topic = topic_of_groups(pair, "shares")
    group = group_of(pair, topic)
    pair.ask(lambda _: consumer_join(group, "c", topic), 1, "a consumer joins")
    stays = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=1)
    pair.ask(lambda _: stays, 1, "a consumer stays")
    beats = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    pair.ask(lambda _: beats, 4, "a classic member stays")
    pair.ask(lambda _: commit_request(group, {(topic, 0): 3}), 9, "commits an offset")
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    for topics in (None, [asked]):
        of_group = OffsetFetchRequestGroup(group_id=group, topics=topics)
        for version in (8, 9):
            pair.ask(lambda _: OffsetFetchRequest(groups=[of_group]), version, f"reads {topics}")
    place = OffsetDeleteRequestPartition(partition_index=0)
    named = OffsetDeleteRequestTopic(name=topic, partitions=[place])
    pair.ask(lambda _: OffsetDeleteRequest(group_id=group, topics=[named]), 0, "deletes an offset")
    for types, states in (([], []), (["share"], []), (["SHARE"], ["stable"]), (["classic"], [])):
        request = ListGroupsRequest(types_filter=types, states_filter=states)
        plain = [
            [side.plain(one, 5) for one in side.ask(request, 5).groups if one.group_id == group]
            for side in pair.sides
        ]
        pair.compare(f"ListGroups {types} {states}", *plain)
    pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 2, "not empty")
    beat(pair, heartbeat(group, "m", -1), "leaves")
    pair.ask(lambda _: consumer_join(group, "c", topic), 1, "a consumer joins the empty group")
    pair.ask(lambda _: commit_request(group, {(topic, 0): 3}), 9, "commits to the empty group")
    describe_offsets(pair, (group, None), note="not deleted")
    pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group, group]), 2, "empty, twice")
    describe(pair, group, note="deleted")
    describe_offsets(pair, (group, None), (group, {topic: [0]}), note="deleted")
    pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 2, "again")
    pair.ask(lambda _: consumer_join(group, "c", topic), 1, "a consumer joins under the name")


def test_offsets_are_described_alike(pair: Pair) -> None:
    topic, other = topic_of_groups(pair, "shares", 2), topic_of_groups(pair, "shares")
    version = pair.versions(ProduceRequest)[-1]
    for index in (0, 1):
        pair.ask(lambda side, index=index: produce(side, topic, batch(4), partition=index), version, "filled")
    group = readers(pair, topic, 2)
    consumers = new_group()
    pair.ask(lambda _: consumer_join(consumers, "m", topic), 1, "a group of consumers")
    one = Member(pair, group)

    def see(note: str) -> None:
        for asked in (
            None,
            {topic: [0, 1]},
            {topic: [1, 0]},
            {},
            {other: [0], topic: [0]},
            {"not-there": [0, 7], "": [0]},
        ):
            describe_offsets(pair, (group, asked), note=f"{note}: {asked}")

    see("nothing read")
    one.fetch((topic, 0), note="read")
    see("read")
    one.acknowledge({(topic, 0): [(1, 2, [ACCEPT]), (3, 3, [RELEASE])]}, "some are done")
    see("some are done")
    one.acknowledge({(topic, 0): [(0, 0, [ACCEPT])]}, "all but the last are done")
    see("all but the last are done")
    for name in (consumers, "", " ", "not-there"):
        # Kafka trips over partitions of a group without a name, or with a blank one.
        for asked in (None, {topic: [0, 1]}, {}) if name.strip() else (None, {}):
            describe_offsets(pair, (name, asked), note=f"{name!r} {asked}")
    describe_offsets(pair, note="no groups")
    describe_offsets(pair, (group, None), ("not-there", None), (consumers, {topic: [1]}), note="several")
    one.close()


def test_offsets_are_altered_alike(pair: Pair) -> None:
    topic, other = topic_of_groups(pair, "shares", 2), topic_of_groups(pair, "shares")
    version = pair.versions(ProduceRequest)[-1]
    pair.ask(lambda side: produce(side, topic, batch(4)), version, "filled")
    group = readers(pair, topic, 2)
    consumers, classic = new_group(), new_group()
    pair.ask(lambda _: consumer_join(consumers, "m", topic), 1, "a group of consumers")
    pair.ask(lambda _: commit_request(classic, {(topic, 0): 3}), 9, "a classic group")

    def alter(name: str, *topics: Any, note: str) -> None:
        pair.ask(lambda _: alter_offsets(name, *topics), 0, note)
        describe_offsets(pair, (name, None), note=f"after: {note}")
        describe(pair, name, note=f"after: {note}")

    alter(group, (topic, {0: 1}), note="not empty")
    beat(pair, heartbeat(group, "m", -1), "leaves")
    alter(group, (topic, {0: 1}), note="one")
    alter(group, (topic, {0: 2, 1: 0}), note="both")
    alter(group, (topic, {0: 99, 1: -1}), note="behind the end, and -1")
    alter(group, (topic, {0: -2, 1: -7}), note="below 0")
    alter(group, (topic, {2: 0, 2**31 - 1: 0, 0: 3}), note="partitions that are not there")
    alter(group, ("not-there", {0: 0}), (topic, {0: 1}), ("", {0: 1}), note="topics that are not there")
    alter(group, (other, {0: 0}), note="a topic that nobody read")
    alter(group, (topic, {0: 1}), (topic, {0: 2, 1: 2}), note="a topic twice")
    alter(group, (topic, {}), note="no partitions")
    alter(group, note="no topics")
    alter(new_group(), (topic, {0: 2}), note="a new group")
    alter(new_group(), note="a new group without topics")
    alter(new_group(), ("not-there", {0: 0}), note="a new group of a topic that is not there")
    for name in ("", " ", consumers, classic):
        alter(name, (topic, {0: 0}), note=repr(name))
        alter(name, note=f"{name!r}, no topics")
    reader = Member(pair, group)
    alter(group, (topic, {0: 2}), note="where somebody will read")
    answers = reader.fetch((topic, 0), note="from there")
    assert answers[1].responses[0].partitions[0].acquired_records[0].first_offset == 2
    reader.close()


def test_offsets_are_deleted_alike(pair: Pair) -> None:
    topic, other, unread = (topic_of_groups(pair, "shares", 2) for _ in range(3))
    version = pair.versions(ProduceRequest)[-1]
    pair.ask(lambda side: produce(side, topic, batch(4)), version, "filled")
    group = readers(pair, topic, 2)
    join(pair, group, "m", topic, other, partitions=4)
    consumers = new_group()
    pair.ask(lambda _: consumer_join(consumers, "m", topic), 1, "a group of consumers")
    reader = Member(pair, group)
    reader.fetch((topic, 0), note="reads")
    reader.acknowledge({(topic, 0): [(0, 1, [ACCEPT])]}, "some are done")
    reader.close()

    def delete(name: str, *topics: str, note: str) -> None:
        pair.ask(lambda _: delete_offsets(name, *topics), 0, note)
        describe_offsets(pair, (name, None), note=f"after: {note}")

    delete(group, topic, note="not empty")
    beat(pair, heartbeat(group, "m", -1), "leaves")
    delete(group, note="no topics")
    delete(group, "not-there", "", note="topics that are not there")
    delete(group, unread, note="a topic that nobody read")
    delete(group, topic, topic, "not-there", unread, note="one that was read, twice, and others")
    delete(group, topic, note="again")
    delete(group, other, topic, note="the other")
    for name in ("", " ", "not-there", consumers):
        delete(name, topic, note=repr(name))
        delete(name, note=f"{name!r}, no topics")
    join(pair, group, "m", topic, partitions=2)
    describe_offsets(pair, (group, None), note="read again")


def test_partitions_below_0_are_refused_by_both(pair: Pair) -> None:
    """Kafka trips over them, and refuses the whole; as it does where a topic is named without partitions."""
    topic = new_topic(pair, "shares")
    group = readers(pair, topic)
    beat(pair, heartbeat(group, "m", -1), "leaves")
    theirs, ours = (side.ask(alter_offsets(group, (topic, {-1: 0, 0: 0})), 0) for side in pair.sides)
    assert theirs.error_code == UNKNOWN_SERVER_ERROR
    codes = {one.partition_index: one.error_code for one in ours.responses[0].partitions}
    assert (ours.error_code, codes) == (0, {-1: UNKNOWN_TOPIC_OR_PARTITION, 0: 0})
    asked = describe_offsets_request((group, {topic: [-1, 0]}))
    theirs, ours = (side.ask(asked, 1) for side in pair.sides)
    assert theirs.groups[0].error_code == UNKNOWN_SERVER_ERROR
    assert [one.start_offset for one in ours.groups[0].topics[0].partitions] == [-1, 0]
    theirs, ours = (side.ask(describe_offsets_request((group, {topic: []})), 1) for side in pair.sides)
    assert theirs.groups[0].error_code == UNKNOWN_SERVER_ERROR
    assert (ours.groups[0].error_code, ours.groups[0].topics[0].partitions) == (0, [])


@pytest.mark.nightly
def test_partitions_that_are_not_there_have_no_offsets(pair: Pair) -> None:
    """At night: Kafka asks its share coordinator for half a minute."""
    topic = new_topic(pair, "shares")
    group = readers(pair, topic)
    asked = describe_offsets_request((group, {topic: [1, 7]}))
    pair.ask(lambda _: asked, 1, "partitions that are not there", seconds=60)


SETTINGS_OF_GROUPS = {
    "share.session.timeout.ms": ["45000", "60000", "44999", "60001", "x"],
    "share.heartbeat.interval.ms": ["5000", "15000", "4999", "15001"],
    "share.record.lock.duration.ms": ["15000", "60000", "14999", "60001"],
    "share.delivery.count.limit": ["2", "10", "1", "11"],
    "share.partition.max.record.locks": ["100", "4000", "99", "4001"],
    "share.assignment.interval.ms": ["0", "15000", "-1", "15001"],
    "share.isolation.level": ["read_committed", "read_uncommitted", "READ_COMMITTED", ""],
    "share.renew.acknowledge.enable": ["true", "false", "FALSE", "maybe"],
    "share.auto.offset.reset": [
        "earliest", "latest", "EARLIEST", "none", "by_duration", "by_duration:", "by_duration:PT1H",
        "by_duration:P1D", "by_duration:P1DT2H3M4.5S", "by_duration:-PT1H", "by_duration:PT0S",
        "by_duration:P1W", "by_duration:pt1h", "by_duration:1h", "by_duration:PT-1H", "BY_DURATION:PT1H",
    ],
    "share.no.such": ["1"],
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS_OF_GROUPS)
def test_settings_of_share_groups_are_taken_or_refused_alike(pair: Pair, name: str) -> None:
    for value in (*SETTINGS_OF_GROUPS[name], None):
        configs = [AlterableConfig(name=name, config_operation=SET, value=value)]
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=new_group(), configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        for dry in (True, False):
            pair.ask(lambda _, dry=dry: replace(request, validate_only=dry), 1, f"{value!r}, dry {dry}")


def test_no_groups_are_described_alike(pair: Pair) -> None:
    for version in pair.versions(ShareGroupDescribeRequest):
        pair.ask(lambda _: ShareGroupDescribeRequest(group_ids=[]), version, "none")
