"""Streams groups (KIP-1071): heartbeats, sound and unsound, descriptions, and offsets with member epochs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from compat_tests.differential.harness import SECONDS, Pair, Pauses
from compat_tests.differential.members import Named, is_listed, of_epochs, of_member
from compat_tests.differential.test_groups import commits_of_members
from compat_tests.differential.test_transactions import offsets_of_members, wait_for_coordinators
from compat_tests.differential.topics import new_topic
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

GROUP_RESOURCE, SET = 32, 0
SHORTEST_INTERVAL_MS = 5_000
"""That the broker allows between heartbeats."""
WATCHED = "streams-watched"
"""A group whose settings say how far the coordinator has come."""
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _served(pair: Pair) -> None:
    """Both serve streams groups, and have loaded their offsets topic."""
    if not pair.versions(StreamsGroupHeartbeatRequest):
        pytest.skip("this release has no streams groups")
    for side in pair.sides:
        deadline = time.monotonic() + SECONDS
        pause = Pauses()
        while True:
            found = side.ask(FindCoordinatorRequest(coordinator_keys=["group-0"]), 4)
            if found.coordinators[0].error_code == 0:
                described = side.ask(DescribeGroupsRequest(groups=["group-0"]), 4)
                if described.groups[0].error_code == 0:
                    break
            assert time.monotonic() < deadline, (side.name, found)
            pause()


def new_group(pair: Pair, **settings: str) -> str:
    """A group that assigns tasks at once."""
    number = next(_numbers)
    group = f"streams-{number}"
    set_configs(pair, group, initial_rebalance_delay_ms="0", assignment_interval_ms="0", **settings)
    # Kafka's coordinator takes them up a little later, one change after the other: so it has them when it
    # works by those of a group that were set after them.
    interval_ms = SHORTEST_INTERVAL_MS + 1 + number
    set_configs(pair, WATCHED, heartbeat_interval_ms=str(interval_ms))
    for side in pair.sides:
        deadline = time.monotonic() + SECONDS
        beat = join(WATCHED, "m", subtopology("0", ["none"]))
        pause = Pauses()
        while side.ask(beat, 0).heartbeat_interval_ms != interval_ms:
            assert time.monotonic() < deadline, side.name
            pause()
    return group


def set_configs(pair: Pair, group: str, **settings: str) -> None:
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[
            AlterableConfig(name=f"streams.{name.replace('_', '.')}", config_operation=SET, value=value)
            for name, value in settings.items()
        ],
    )
    pair.ask(lambda _: IncrementalAlterConfigsRequest(resources=[resource]), 1, "settings of a group")


def subtopology(number: str, sources: list[str], **more: Any) -> Subtopology:
    fields: dict[str, Any] = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
        **more,
    }
    return Subtopology(subtopology_id=number, source_topics=sources, **fields)


def internal(name: str, partitions: int = 0) -> TopicInfo:
    configs = [KeyValue(key="cleanup.policy", value="compact")]
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=configs)


def join(group: str, member: str, *subtopologies: Subtopology, **more: Any) -> StreamsGroupHeartbeatRequest:
    fields: dict[str, Any] = {
        "member_epoch": 0,
        "endpoint_information_epoch": -1,
        "rebalance_timeout_ms": 600_000,
        "topology": Topology(epoch=more.pop("epoch", 1), subtopologies=list(subtopologies)),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": f"process of {member}",
        "client_tags": [],
        **more,
    }
    return StreamsGroupHeartbeatRequest(group_id=group, member_id=member, **fields)


def stay(group: str, member: str, epoch: int, **more: Any) -> StreamsGroupHeartbeatRequest:
    fields = {"rebalance_timeout_ms": -1, "endpoint_information_epoch": -1, **more}
    return StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)


def has(*partitions: int, number: str = "0", standby: tuple[int, ...] = ()) -> dict[str, list[TaskIds]]:
    """Tasks that a member says it has."""

    def ids(these: tuple[int, ...]) -> list[TaskIds]:
        return [TaskIds(subtopology_id=number, partitions=list(these))] if these else []

    return {"active_tasks": ids(partitions), "standby_tasks": ids(standby), "warmup_tasks": []}


def ask(pair: Pair, request: StreamsGroupHeartbeatRequest, note: str, version: int = 0, **more: Any) -> int:
    """The epoch that the member is told."""
    return int(pair.ask(lambda _: request, version, note, **more)[1].member_epoch)


def describe(pair: Pair, group: str, note: str, version: int = 0) -> None:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    pair.ask(lambda _: request, version, note)


def test_a_member_alone_joins_stays_and_leaves(pair: Pair) -> None:
    topic = new_topic(pair, "streams", 3)
    group = new_group(pair)
    plain = subtopology("0", [topic])
    epoch = ask(pair, join(group, "m", plain), "the first member")
    describe(pair, group, "of one member")
    is_listed(pair, group, "streams", "stable")
    ask(pair, stay(group, "m", epoch), "nothing new")
    ask(pair, stay(group, "m", epoch, **has(0, 1, 2)), "with its tasks")
    for note, wrong in {
        "an epoch to come": stay(group, "m", epoch + 1),
        "an old epoch": stay(group, "m", epoch - 2),
        "a stranger": stay(group, "n", epoch),
        "no group": stay(f"no-{group}", "m", 1),
        "no such task": stay(group, "m", epoch, **has(3)),
        "no such subtopology": stay(group, "m", epoch, **has(0, number="7")),
        "a static member": replace(stay(group, "m", epoch), instance_id="i"),
        "a static member that leaves": replace(stay(group, "m", -2), instance_id="i"),
        "an epoch that there is not": stay(group, "m", -3),
        "a new topology": join(group, "n", plain, epoch=2),
        "another topology": join(group, "n", subtopology("1", [topic])),
        "a stranger leaves": stay(group, "n", -1),
        "no group to leave": stay(f"no-{group}", "m", -1),
    }.items():
        ask(pair, wrong, note)
    # It says that it has less than it was given, so it has not heard of it; Kafka does not tell it again.
    answers = [side.ask(stay(group, "m", epoch, **has()), 0) for side in pair.sides]
    assert [answer.active_tasks for answer in answers] == [None, has(0, 1, 2)["active_tasks"]]
    ask(pair, join(group, "m", plain), "it joins again")
    pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 2, "not empty")
    ask(pair, stay(group, "m", -1), "it leaves")
    describe(pair, group, "empty")
    pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 2, "empty")
    describe(pair, group, "deleted")


@pytest.mark.parametrize(
    ("note", "changes"),
    [
        ("no member", {"member_id": ""}),
        ("no group", {"group_id": ""}),
        ("no instance", {"instance_id": ""}),
        ("no rack", {"rack_id": ""}),
        ("no time-out", {"rebalance_timeout_ms": -1}),
        ("no list of tasks", {"active_tasks": None}),
        ("tasks", {"standby_tasks": [TaskIds(subtopology_id="0", partitions=[0])]}),
        ("no topology", {"topology": None}),
        ("a static member", {"instance_id": "i"}),
        ("a topology later", {"member_epoch": 1}),
    ],
)
def test_joins_that_make_no_sense(pair: Pair, note: str, changes: dict[str, Any]) -> None:
    ask(pair, replace(join("streams-wrong", "m", subtopology("0", ["none"])), **changes), note)


@pytest.mark.parametrize(
    ("note", "parts"),
    [
        ("no sources", [subtopology("0", [])]),
        ("a pattern", [subtopology("0", [], source_topic_regex=["a.*"])]),
        ("an internal topic of Kafka", [subtopology("0", ["__consumer_offsets"])]),
        ("an illegal name", [subtopology("0", ["a b"])]),
        ("a changelog with a width", [subtopology("0", ["a"], state_changelog_topics=[internal("c", 2)])]),
        ("nobody writes", [subtopology("0", ["IN"], repartition_source_topics=[internal("streams-r")])]),
        (
            "a circle",
            [
                subtopology(
                    "0",
                    [],
                    repartition_source_topics=[internal("streams-r")],
                    repartition_sink_topics=["streams-q"],
                ),
                subtopology(
                    "1",
                    [],
                    repartition_source_topics=[internal("streams-q")],
                    repartition_sink_topics=["streams-r"],
                ),
            ],
        ),
    ],
)
def test_topologies_that_nothing_could_make_right(pair: Pair, note: str, parts: list[Subtopology]) -> None:
    topic = new_topic(pair, "streams", 1)
    named = [
        replace(part, source_topics=[topic if name == "IN" else name for name in part.source_topics])
        for part in parts
    ]
    group = new_group(pair)
    ask(pair, join(group, "m", *named), note)
    describe(pair, group, f"after {note}")


def test_internal_topics_come_and_then_tasks(pair: Pair) -> None:
    topic = new_topic(pair, "streams", 2)
    group = new_group(pair)
    counts = subtopology("0", [topic], state_changelog_topics=[internal(f"{group}-c-changelog")])
    epoch = ask(pair, join(group, "m", counts), "without the changelog")

    def has_tasks(answer: Any) -> bool:
        return answer.error_code != 0 or answer.status == []

    epoch = ask(pair, stay(group, "m", epoch), "until the changelog is there", settle=has_tasks)
    describe(pair, group, "with its changelog")
    ask(pair, stay(group, "m", epoch, **has(0, 1)), "at work")


def test_source_topics_that_are_missing_or_do_not_fit(pair: Pair) -> None:
    wide, narrow = new_topic(pair, "streams", 3), new_topic(pair, "streams", 2)
    group = new_group(pair)
    ask(pair, join(group, "m", subtopology("0", [wide, "no-such-topic", "nor-this"])), "missing")
    describe(pair, group, "missing")
    group = new_group(pair)
    both = CopartitionGroup(source_topics=[0, 1], source_topic_regex=[], repartition_source_topics=[])
    joined = subtopology("0", [wide, narrow], copartition_groups=[both])
    ask(pair, join(group, "m", joined), "not copartitioned")
    describe(pair, group, "not copartitioned")
    group = new_group(pair)
    fixed = CopartitionGroup(source_topics=[0], source_topic_regex=[], repartition_source_topics=[0])
    parts = [
        subtopology("0", [wide], repartition_sink_topics=[f"{group}-r-repartition"]),
        subtopology(
            "1",
            [narrow],
            repartition_source_topics=[internal(f"{group}-r-repartition", 5)],
            copartition_groups=[fixed],
        ),
    ]
    ask(pair, join(group, "m", *parts), "a repartition topic of another width")
    group = new_group(pair)
    ask(
        pair,
        join(group, "m", subtopology("0", [wide], state_changelog_topics=[internal(narrow)])),
        "an internal topic of another width",
    )


def test_a_task_goes_from_one_member_to_the_other(pair: Pair) -> None:
    topic = new_topic(pair, "streams", 1)
    group = new_group(pair)
    plain = subtopology("0", [topic])
    epoch = ask(pair, join(group, "m", plain), "the first member")
    ask(pair, join(group, "n", plain), "the second member")
    describe(pair, group, "of two members")
    epoch = ask(pair, stay(group, "m", epoch, **has(0)), "goes on")
    ask(pair, stay(group, "m", -1), "the first one leaves")
    is_listed(pair, group, "streams", "assigning")
    epoch = ask(pair, stay(group, "n", epoch, **has()), "the second one has it")
    describe(pair, group, "of the second member")
    stopping = replace(stay(group, "n", epoch, **has(0)), shutdown_application=True)
    ask(pair, stopping, "all shall stop")
    ask(pair, join(group, "o", plain), "a third member is told")


def test_standbys_and_endpoints(pair: Pair) -> None:
    topic = new_topic(pair, "streams", 1)
    changelog = new_topic(pair, "streams-changelog", 1)
    group = new_group(pair, num_standby_replicas="1")
    counts = subtopology("0", [topic], state_changelog_topics=[internal(changelog)])
    first = replace(join(group, "m", counts), user_endpoint=Endpoint(host="one", port=1))
    ask(pair, first, "the first member")
    ask(pair, stay(group, "m", 2, endpoint_information_epoch=0), "knows its endpoint")
    second = replace(join(group, "n", counts), user_endpoint=Endpoint(host="two", port=2))
    ask(pair, second, "the second member keeps a copy")
    describe(pair, group, "with a standby")
    ask(pair, stay(group, "m", 2, endpoint_information_epoch=1, **has(0)), "the first one hears of it")
    ask(pair, stay(group, "m", -1), "the first one leaves")
    epoch = ask(pair, stay(group, "n", 3, **has(standby=(0,))), "its copy becomes active")
    ask(pair, stay(group, "n", epoch, **has(0)), "runs the task")
    describe(pair, group, "without a standby")
    ask(pair, join(group, "m", counts), "the first one is back, and keeps a copy")


@pytest.mark.parametrize("version", [0, 1])
def test_static_members_come_and_go_alike(pair: Pair, version: int) -> None:
    """Members of Kafka Streams with `group.instance.id` (KIP-1071)."""
    if version not in pair.versions(StreamsGroupHeartbeatRequest):
        pytest.skip("this release has no such version")
    topic = new_topic(pair, "streams-static", 2)
    group = new_group(pair)
    plain = subtopology("0", [topic])

    def beat(request: StreamsGroupHeartbeatRequest, note: str, instance: str | None = "i") -> int:
        return ask(pair, replace(request, instance_id=instance), note, version)

    epoch = beat(join(group, "m", plain), "the first process")
    beat(stay(group, "m", epoch, **has(0, 1)), "with its tasks")
    describe(pair, group, "of a static member", version)
    for note, wrong, instance in (
        ("another process while it is there", join(group, "n", plain), "i"),
        ("a dynamic member of its id", join(group, "m", plain), None),
        ("no instance", stay(group, "m", epoch), None),
        ("another instance", stay(group, "m", epoch), "j"),
        ("an instance without a member", stay(group, "n", epoch), "j"),
        ("another's instance", stay(group, "n", epoch), "i"),
        ("an old epoch", stay(group, "m", epoch - 1), "i"),
        ("an epoch to come", stay(group, "m", epoch + 1), "i"),
        ("leaves for a while without an instance", stay(group, "m", -2), None),
        ("another leaves for a while in its place", stay(group, "n", -2), "i"),
        ("another leaves in its place", stay(group, "n", -1), "i"),
        ("an unknown instance leaves for a while", stay(group, "m", -2), "j"),
        ("an unknown instance leaves", stay(group, "m", -1), "j"),
    ):
        beat(wrong, note, instance)
    describe(pair, group, "after all that was refused", version)
    beat(stay(group, "m", -2), "it leaves for a while")
    describe(pair, group, "while it is away", version)
    beat(stay(group, "m", epoch), "it beats all the same")
    epoch = beat(join(group, "n", plain), "the next process")
    beat(stay(group, "n", epoch, **has(0, 1)), "it has the tasks")
    beat(stay(group, "m", epoch), "the first process is not gone")
    describe(pair, group, "of the next process", version)
    beat(stay(group, "n", -2), "the next one leaves for a while, too")
    epoch = beat(join(group, "o", plain, rack_id="elsewhere"), "one that is elsewhere")
    describe(pair, group, "of the one elsewhere", version)
    beat(stay(group, "o", epoch, **has(0, 1)), "with its tasks")
    beat(join(group, "o", plain, rack_id="elsewhere"), "it joins again")
    beat(join(group, "d", plain), "a dynamic member", None)
    beat(stay(group, "d", -1), "the dynamic member leaves", None)
    beat(stay(group, "o", -1), "the static one leaves for good")
    describe(pair, group, "empty", version)
    beat(join(group, "p", plain), "its place is free")


def test_tags_that_members_lack_are_told_alike(pair: Pair) -> None:
    """Only version 1 has the status: older clients do not know it."""
    if 1 not in pair.versions(StreamsGroupHeartbeatRequest):
        pytest.skip("this release has no such status")
    topic = new_topic(pair, "streams-tags", 1)
    group = new_group(pair, num_standby_replicas="1", rack_aware_assignment_tags="zone,rack")
    plain = subtopology("0", [topic])
    tagged = {
        "neither": [],
        "one": [KeyValue(key="zone", value="a")],
        "the other": [KeyValue(key="rack", value="1")],
        "an empty one": [KeyValue(key="zone", value=""), KeyValue(key="rack", value="1")],
        "others": [KeyValue(key="Zone", value="a"), KeyValue(key="color", value="red")],
        "both and more": [KeyValue(key=key, value="a") for key in ("rack", "color", "zone")],
    }
    for version in (1, 0):
        for note, tags in tagged.items():
            epoch = ask(pair, join(group, "m", plain, client_tags=tags), f"{note}, joins", version)
            ask(pair, stay(group, "m", epoch, **has(0)), f"{note}, stays", version)
            ask(pair, stay(group, "m", epoch, client_tags=tags), f"{note}, once more", version)
            describe(pair, group, note, version)
            ask(pair, stay(group, "m", -1), f"{note}, leaves", version)


def test_copies_are_kept_where_tags_differ(pair: Pair) -> None:
    if 1 not in pair.versions(StreamsGroupHeartbeatRequest):
        pytest.skip("Kafka 4.3 does not look at them")
    topic, changelog = new_topic(pair, "streams-zones", 1), new_topic(pair, "streams-zones-changelog", 1)
    group = new_group(pair, num_standby_replicas="1", rack_aware_assignment_tags="zone")
    counts = subtopology("0", [topic], state_changelog_topics=[internal(changelog)])

    def of_zone(zone: str) -> dict[str, Any]:
        return {"client_tags": [KeyValue(key="zone", value=zone)]}

    epoch = ask(pair, join(group, "m", counts, **of_zone("a")), "the first member, in a", 1)
    ask(pair, stay(group, "m", epoch, **has(0)), "it has the task", 1)
    ask(pair, join(group, "n", counts, **of_zone("a")), "another in a", 1)
    ask(pair, join(group, "o", counts, **of_zone("b")), "one in b", 1)
    describe(pair, group, "of three members in two zones", 1)


def test_offsets_go_by_member_epochs(pair: Pair) -> None:
    topic = new_topic(pair, "streams", 2)
    group = new_group(pair)
    epoch = ask(pair, join(group, "m", subtopology("0", [topic])), "the first member")

    def commit(member: str, member_epoch: int, note: str, version: int = 9) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=member_epoch,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        pair.ask(lambda _: request, version, note)

    def fetch(member: str | None, member_epoch: int, note: str) -> None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        asked = OffsetFetchRequestGroup(
            group_id=group, member_id=member, member_epoch=member_epoch, topics=topics
        )
        pair.ask(lambda _: OffsetFetchRequest(groups=[asked]), 9, note)

    commit("m", epoch, "its epoch")
    commit("m", epoch + 1, "an epoch to come")
    commit("m", epoch - 1, "an epoch before it had the task")
    commit("n", epoch, "a stranger")
    commit("", -1, "from outside")
    commit("m", epoch, "an old version", 8)
    fetch("m", epoch, "its epoch")
    fetch("m", epoch + 1, "an epoch to come")
    fetch("n", epoch, "a stranger")
    fetch(None, -1, "from outside")


def situations(pair: Pair, group: str, topic: str) -> Iterator[tuple[str, list[Named]]]:
    """Brings a group of up to two members from one state to the next: (state, whom to name in commits there).

    `topic` has two partitions.
    """
    plain = subtopology("0", [topic])
    for side in pair.sides:
        side.values.update(m="m", n="n")
    first = ask(pair, join(group, "m", plain), "the first member")
    moving = stay(group, "m", first, rack_id="elsewhere", **has(0, 1))
    epoch = ask(pair, moving, "has both tasks, and moves")
    assert epoch > first
    yield "stable", [*of_member("m", epoch), *of_epochs("m", epoch)]
    second = ask(pair, join(group, "n", plain), "the second member")
    yield "waits for its task", [*of_member("m", epoch), *of_member("n", second)]
    told, _ = pair.ask(lambda _: stay(group, "m", epoch, **has(0, 1)), 0, "has to give one up")
    (kept,) = told.active_tasks
    yield "gives up a task", [*of_member("m", epoch), *of_epochs("m", epoch)]
    moved = ask(pair, stay(group, "m", epoch, **has(*kept.partitions)), "has given it up")
    assert moved > epoch
    ask(pair, stay(group, "n", second, **has()), "gets its task")
    yield "each has a task", [*of_epochs("m", moved + 1), *of_epochs("n", moved + 1)]
    ask(pair, stay(group, "n", -1), "the second member leaves")
    regained = ask(pair, stay(group, "m", moved, **has(*kept.partitions)), "has both again, one since before")
    assert regained > moved
    yield "has a task since before, and one anew", of_epochs("m", regained + 1)
    ask(pair, stay(group, "m", -1), "the first member leaves")
    yield "empty", of_member("m", regained)


@pytest.mark.parametrize("commit", [commits_of_members, offsets_of_members])
def test_offsets_of_members_are_fenced_alike(
    pair: Pair, commit: Callable[[Pair, str, str, Iterable[Named], str], None]
) -> None:
    """Plainly and in transactions."""
    wait_for_coordinators(pair)
    group, topic = new_group(pair), new_topic(pair, "streams-fenced", 2)
    for note, cases in situations(pair, group, topic):
        commit(pair, group, topic, cases, note)
