"""FindCoordinator, classic groups and their offsets."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Iterable
from typing import Any

import pytest

from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side
from compat_tests.differential.members import Named, classic_situations, named
from compat_tests.differential.topics import id_of, new_topic
from compat_tests.kit.group_wire import commit_request
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
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

UNKNOWN_ID = bytes(range(16))

SUBSCRIPTION = struct.pack(">hii", 0, 0, -1)
"""A consumer's metadata: version 0, no topics, no user data. Kafka 4.3 reads it when a round of joins ends,
and never answers the joins of a group whose members send something else under the type `consumer`."""

INSTANCES_SINCE, TOPIC_IDS_SINCE = 7, 10
"""Versions of OffsetCommit from which on it names the member's instance, and topics by id."""

_numbers = itertools.count()


def new_group() -> str:
    return f"classic-{next(_numbers)}"


@pytest.fixture(autouse=True)
def _coordinators(pair: Pair) -> None:
    """Both have their offsets topic and have loaded it: an asynchronous step at first use."""
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


def join(
    group: str, member: str = "", *, protocol: str = "range", session_ms: int = 10_000, **more: Any
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        protocol_type=more.pop("protocol_type", "consumer"),
        protocols=more.pop("protocols", [JoinGroupRequestProtocol(name=protocol, metadata=SUBSCRIPTION)]),
        **more,
    )


def seen_member(side: Side, answer: Any) -> None:
    if answer.member_id:
        side.remember("member", answer.member_id)


def joined(pair: Pair, group: str, version: int, note: str = "first member") -> None:
    """A lone member, in generation 1, with its id remembered as `member`."""
    answers = pair.ask(lambda _: join(group), version, note, see=seen_member)
    if version >= 4:
        assert answers[0].error_code == 79
        pair.ask(lambda side: join(group, side["member"]), version, f"{note}, with its id", see=seen_member)


def commit(
    topic: str,
    group: str,
    offset: int = 5,
    *,
    topic_id: bytes = bytes(16),
    member: str = "",
    generation: int = -1,
    metadata: str | None = "note",
    partition: int = 0,
) -> OffsetCommitRequest:
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[one])],
    )


def offset_fetch(
    version: int,
    group: str,
    topic: str | None,
    topic_id: bytes = bytes(16),
    partitions: tuple[int, ...] = (0, 1),
) -> OffsetFetchRequest:
    if version >= 8:
        topics = (
            None
            if topic is None
            else [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=list(partitions))]
        )
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    plain = (
        None if topic is None else [OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
    )
    return OffsetFetchRequest(group_id=group, topics=plain)


def test_coordinators_are_found_alike(pair: Pair) -> None:
    for version in pair.versions(FindCoordinatorRequest):
        if version >= 4:
            keys = ["one", "two", ""]
            pair.ask(lambda _: FindCoordinatorRequest(coordinator_keys=keys), version)
            pair.ask(
                lambda _: FindCoordinatorRequest(coordinator_keys=keys, key_type=9), version, "unknown type"
            )
        else:
            for key in ("one", ""):
                pair.ask(lambda _: FindCoordinatorRequest(key=key), version, f"key {key!r}")
            if version >= 1:
                pair.ask(lambda _: FindCoordinatorRequest(key="one", key_type=9), version, "unknown type")


@pytest.mark.smoke
def test_a_member_lives_alike_in_every_version_of_join(pair: Pair) -> None:
    for version in pair.versions(JoinGroupRequest):
        group = new_group()
        joined(pair, group, version)
        pair.ask(
            lambda side: SyncGroupRequest(
                group_id=group,
                generation_id=1,
                member_id=side["member"],
                assignments=[SyncGroupRequestAssignment(member_id=side["member"], assignment=b"all")],
            ),
            3,
            f"joined in v{version}",
        )
        for generation in (1, 2, 0):
            beat = lambda side: HeartbeatRequest(  # noqa: E731
                group_id=group,
                generation_id=generation,
                member_id=side["member"],
            )
            pair.ask(beat, 3, f"generation {generation}")
        pair.ask(lambda _: DescribeGroupsRequest(groups=[group]), 4, "a stable group")
        pair.ask(lambda side: join(group, side["member"]), version, "joins again", see=seen_member)
        pair.ask(
            lambda side: LeaveGroupRequest(group_id=group, member_id=side["member"]),
            1,
            "leaves",
        )
        pair.ask(lambda _: DescribeGroupsRequest(groups=[group]), 4, "an empty group")


@pytest.mark.smoke
def test_joins_are_refused_alike(pair: Pair) -> None:
    for version in pair.versions(JoinGroupRequest):
        group = new_group()
        pair.ask(lambda _: join("", "x"), version, "no group id")
        pair.ask(lambda _: join(group, session_ms=1), version, "session too short")
        pair.ask(lambda _: join(group, session_ms=10_000_000), version, "session too long")
        pair.ask(lambda _: join(group, "who-is-that"), version, "unknown member")
        pair.ask(lambda _: join(group, protocols=[]), version, "no protocols", see=seen_member)
        pair.ask(lambda _: join(group, protocol_type=""), version, "no type", see=seen_member)
        joined(pair, group, version)
        pair.ask(
            lambda _: join(group, protocol="other"),
            version,
            "another protocol",
            see=None,
        )
        pair.ask(
            lambda _: join(group, protocol_type="connect"),
            version,
            "another type",
        )


@pytest.mark.smoke
def test_every_version_of_the_members_requests_answers_alike(pair: Pair) -> None:
    group = new_group()
    joined(pair, group, 5)
    for version in pair.versions(SyncGroupRequest):
        for member, generation, note in [
            ("x", 1, "unknown member"),
            (None, 7, "wrong generation"),
            (None, 1, "sound"),
        ]:

            def sync(
                side: Side, member: str | None = member, generation: int = generation
            ) -> SyncGroupRequest:
                identity = side["member"] if member is None else member
                return SyncGroupRequest(
                    group_id=group,
                    generation_id=generation,
                    member_id=identity,
                    protocol_type="consumer" if version >= 5 else None,
                    protocol_name="range" if version >= 5 else None,
                    assignments=[SyncGroupRequestAssignment(member_id=identity, assignment=b"part")],
                )

            pair.ask(sync, version, note)
    for version in pair.versions(SyncGroupRequest):
        if version >= 5:
            pair.ask(
                lambda side: SyncGroupRequest(
                    group_id=group,
                    generation_id=1,
                    member_id=side["member"],
                    protocol_type="connect",
                    protocol_name="range",
                ),
                version,
                "another type",
            )
    for version in pair.versions(HeartbeatRequest):
        for name, generation, note in [
            (group, 1, "sound"),
            (group, 9, "wrong generation"),
            ("", 1, "no group"),
        ]:
            pair.ask(
                lambda side: HeartbeatRequest(
                    group_id=name,
                    generation_id=generation,
                    member_id=side["member"],
                ),
                version,
                note,
            )
        pair.ask(
            lambda _: HeartbeatRequest(group_id=group, generation_id=1, member_id="x"),
            version,
            "unknown member",
        )
    for version in pair.versions(DescribeGroupsRequest):
        for name in (group, "not-there", ""):
            pair.ask(
                lambda _: DescribeGroupsRequest(groups=[name], include_authorized_operations=version >= 3),
                version,
                name,
            )
    for version in pair.versions(ListGroupsRequest):
        if version >= 4:
            pair.ask(lambda _: ListGroupsRequest(states_filter=["PreparingRebalance"]), version, "none")
            pair.ask(lambda _: ListGroupsRequest(states_filter=["NoSuchState"]), version, "no such state")
        if version >= 5:
            pair.ask(lambda _: ListGroupsRequest(types_filter=["share"]), version, "none of that type")
    for version in pair.versions(LeaveGroupRequest):
        if version >= 3:
            request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="x")])
        else:
            request = LeaveGroupRequest(group_id=group, member_id="x")
        pair.ask(lambda _: request, version, "unknown member")
    for version in pair.versions(DeleteGroupsRequest):
        for name in (group, "not-there", ""):
            pair.ask(lambda _: DeleteGroupsRequest(groups_names=[name]), version, name)


@pytest.mark.smoke
def test_offsets_are_committed_and_fetched_alike(pair: Pair) -> None:
    for version in pair.versions(OffsetCommitRequest):
        topic, group = new_topic(pair, "commits", 2), new_group()

        def by_id(side: Side, build: Any, version: int = version, topic: str = topic) -> OffsetCommitRequest:
            request = build(topic)
            if version >= 10:
                for one in request.topics:
                    one.topic_id = id_of(side, topic)
            return request

        cases: list[tuple[str, Any]] = [
            ("sound", lambda name, g=group: commit(name, g)),
            ("null metadata", lambda name, g=group: commit(name, g, 7, metadata=None)),
            ("too much metadata", lambda name, g=group: commit(name, g, 9, metadata="x" * 5000)),
            ("no such partition", lambda name, g=group: commit(name, g, partition=55)),
            ("below zero", lambda name, g=group: commit(name, g, -3, partition=1)),
            ("unknown member", lambda name, g=group: commit(name, g, member="x", generation=1)),
            ("no group", lambda name: commit(name, "")),
        ]
        for note, build in cases:
            pair.ask(lambda side: by_id(side, build), version, note)
        if version < 10:
            pair.ask(lambda _: commit("not-there", group), version, "no such topic")
        else:
            pair.ask(lambda _: commit("", group, topic_id=UNKNOWN_ID), version, "no such topic id")
        for fetch_version in pair.versions(OffsetFetchRequest):
            note = f"committed in v{version}"
            pair.ask(
                lambda side: offset_fetch(
                    fetch_version,
                    group,
                    topic,
                    id_of(side, topic) if fetch_version >= 10 else bytes(16),
                ),
                fetch_version,
                note,
            )
            if fetch_version >= 2:
                pair.ask(lambda _: offset_fetch(fetch_version, group, None), fetch_version, f"all, {note}")
            pair.ask(
                lambda side: offset_fetch(
                    fetch_version,
                    "not-there",
                    topic,
                    id_of(side, topic) if fetch_version >= 10 else bytes(16),
                ),
                fetch_version,
                "no such group",
            )
        pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 1, "an empty group")


def by_partition(side: Side, answer: Any) -> None:
    """Kafka 3.9 has partitions in a hash table, by names that are others in every run."""
    for topic in answer.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)


def commits_of_members(pair: Pair, group: str, topic: str, cases: Iterable[Named], note: str) -> None:
    """Each in every version with an offset of its own, and what is committed after that."""
    for version in pair.versions(OffsetCommitRequest):
        for number, (what, member, generation, instance) in enumerate(cases):
            for partitions in ((0,), (1,), (0, 1)):
                offsets = {(topic, partition): 10 * number + len(partitions) for partition in partitions}

                def request(side: Side) -> OffsetCommitRequest:
                    built = commit_request(
                        group,
                        offsets,
                        member=named(side, member),
                        generation=generation,
                        instance=instance if version >= INSTANCES_SINCE else None,
                    )
                    if version >= TOPIC_IDS_SINCE:
                        built.topics[0].topic_id = id_of(side, topic)
                    return built

                pair.ask(request, version, f"{note}: {what}, partitions {partitions}", see=by_partition)
        pair.ask(lambda _: offset_fetch(7, group, topic), 7, f"{note}, committed in v{version}")


@pytest.mark.smoke
def test_offsets_of_members_are_fenced_alike(pair: Pair) -> None:
    topic, group = new_topic(pair, "fenced", 2), new_group()
    for note, cases in classic_situations(pair, group, topic):
        commits_of_members(pair, group, topic, cases, note)


def several(
    group: str, topics: list[tuple[str, bytes, tuple[int, ...]]], version: int
) -> tuple[OffsetCommitRequest, OffsetFetchRequest]:
    """A commit and a fetch of partitions of several topics, given by name and id."""
    commit = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=index + 5,
                        committed_leader_epoch=index,
                        committed_metadata=None,
                    )
                    for index in indexes
                ],
            )
            for name, topic_id, indexes in topics
        ],
    )
    fetch = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(indexes))
                    for name, topic_id, indexes in topics
                ],
            )
        ]
    )
    return commit, fetch


def test_what_does_not_exist_stands_alike_among_what_does(pair: Pair) -> None:
    for version in (9, 10):
        if version not in pair.versions(OffsetCommitRequest):
            continue
        one, other, group = new_topic(pair, "mixed", 2), new_topic(pair, "mixed", 2), new_group()

        def asked(side: Side) -> Any:
            topics = [(one, (0, 7, 1)), ("not-there", (0, 1)), (other, (1, 0))]
            known = {one: id_of(side, one), other: id_of(side, other)}
            with_ids = [(name, known.get(name, UNKNOWN_ID), indexes) for name, indexes in topics]
            return several(group, with_ids, version)

        pair.ask(lambda side: asked(side)[0], version, "known and unknown")
        pair.ask(lambda side: asked(side)[1], version, "known and unknown")


def test_offsets_are_deleted_alike(pair: Pair) -> None:
    if 0 not in pair.versions(OffsetDeleteRequest):
        return
    topic, other = new_topic(pair, "deleted", 2), new_topic(pair, "deleted", 1)

    def delete(note: str, group: str, *topics: tuple[str, tuple[int, ...]]) -> None:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                )
                for name, indexes in topics
            ],
        )
        pair.ask(lambda _: request, 0, note)

    delete("no such group", "nobody", (topic, (0,)))
    delete("no such group and topic", "nobody", ("not-there", (0,)))
    delete("no group", "", (topic, (0,)))
    simple = new_group()
    for index in (0, 1):
        pair.ask(lambda _: commit(topic, simple, partition=index), 9, "of a simple group")
    delete("known and unknown", simple, (topic, (0, 7)), ("not-there", (0,)), (other, (0,)))
    delete("nothing", simple)
    pair.ask(lambda _: offset_fetch(9, simple, None), 9, "what is left")

    subscription = struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)
    for protocol_type, note in (("consumer", "subscribed"), ("connect", "of another protocol")):
        group = new_group()
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription)]

        def build(side: Side, member: str = "") -> JoinGroupRequest:
            return join(group, member, protocols=protocols, protocol_type=protocol_type)

        pair.ask(build, 4, "first member", see=seen_member)
        pair.ask(lambda side: build(side, side["member"]), 4, "first member, with its id", see=seen_member)

        def sync(side: Side) -> SyncGroupRequest:
            assignment = SyncGroupRequestAssignment(member_id=side["member"], assignment=b"")
            return SyncGroupRequest(
                group_id=group, member_id=side["member"], generation_id=1, assignments=[assignment]
            )

        pair.ask(sync, 3, "first member")
        for name in (topic, other):
            pair.ask(lambda side: commit(name, group, member=side["member"], generation=1), 9, note)
        delete(note, group, (topic, (0, 1)), (other, (0,)), ("not-there", (0,)))
        for name in (topic, other):
            pair.ask(lambda _: offset_fetch(9, group, name), 9, f"what is left, {note}")
        pair.ask(
            lambda side: LeaveGroupRequest(
                group_id=group, members=[MemberIdentity(member_id=side["member"])]
            ),
            3,
            note,
        )
        delete(f"{note}, empty", group, (topic, (0,)), (other, (0,)))
