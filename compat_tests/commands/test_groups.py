"""`odradek groups` says what the AdminClients of librdkafka and kafka-python and Kafka's own tool say."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.reference import kafka_tool
from compat_tests.stories import topic_name
from odradek.client.cluster import Cluster, coordinator_of
from odradek.client.settings import ClientSettings
from odradek.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)

Rows = list[dict[str, Any]]
Command = Callable[..., Rows]
OFFSETS = ("committed_offset", "end_offset", "lag")


@pytest.fixture
def client(bootstrap: str) -> KafkaPythonClient:
    return KafkaPythonClient(bootstrap)


@pytest.fixture
def topic(client: KafkaPythonClient) -> str:
    """Two partitions with ten records, of a minute ago and each a second after the one before, and a third
    without."""
    name = topic_name("groups")
    client.create_topic(name, 3)
    began = int(time.time() * 1000) - 60_000
    for partition in (0, 1):
        messages = [
            Message(value=b"v", partition=partition, timestamp_ms=began + 1000 * second)
            for second in range(10)
        ]
        client.produce(name, messages)
    return name


@contextlib.contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> Iterator[Any]:
    """In the group, with the partitions that it has."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "client.id": f"client-of-{group}",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])

    def has_all() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 3

    try:
        wait_until(has_all, "the member has its partitions")
        yield consumer
    finally:
        consumer.close()


def listed(admin: AdminClient) -> set[Any]:
    found = admin.list_consumer_groups().result(30)
    assert not found.errors
    return {(one.group_id, one.type.name.lower(), one.state.name.lower()) for one in found.valid}


def committed(admin: AdminClient, group: str) -> dict[Any, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(one.topic, one.partition): one.offset for one in future.result(30).topic_partitions}


def test_groups_are_those_of_the_admin_clients(
    rows: Command,
    admin: AdminClient,
    python_admin: KafkaAdminClient,
    client: KafkaPythonClient,
    topic: str,
    bootstrap: str,
    is_older: bool,
) -> None:
    names = [f"{topic}-{number}" for number in range(5)]
    for number, name in enumerate(names):
        client.commit(name, topic, {0: number, 1: 9})
    kind = "classic" if is_older else "consumer"
    with member(bootstrap, f"{topic}-new", topic, kind):
        mine = rows("groups", "list", f"{topic}-*")
        assert [row["group"] for row in mine] == [*names, f"{topic}-new"]
        told = {(row["group"], row["type"], row["state"].lower()) for row in mine}
        assert told == {one for one in listed(admin) if one[0].startswith(topic)}
        assert [row["type"] for row in mine] == ["classic"] * 5 + [kind]
        theirs = python_admin.list_groups()
        assert {(one["group_id"], one["group_state"]) for one in theirs if one["group_id"] in names} == {
            (row["group"], row["state"]) for row in mine[:5]
        }
        empty = rows("groups", "list", f"{topic}-*", "--state", "Empty", "--type", "classic")
        assert [row["group"] for row in empty] == names
        lagging = rows("groups", "list", f"{topic}-*", "--lagging", "9")
        assert [(row["group"], row["lag"]) for row in lagging] == [
            (names[0], 11),
            (names[1], 10),
            (names[2], 9),
        ]


def test_members_and_commits_are_those_of_the_admin_client(
    rows: Command, admin: AdminClient, topic: str, bootstrap: str, protocol: str
) -> None:
    group = f"{topic}-group"
    with member(bootstrap, group, topic, protocol) as consumer:
        places = consumer.assignment()[:2]
        for place in places:
            place.offset = 4
        consumer.commit(offsets=places, asynchronous=False)
        wait_until(lambda: rows("groups", "list", group)[0]["state"] == "Stable", "the group is stable")
        (future,) = admin.describe_consumer_groups([group]).values()
        theirs = future.result(30)
        (one,) = theirs.members
        (mine,) = rows("groups", "describe", group, "--members")
        assert (mine["state"].lower(), mine["type"], mine["assignor"]) == (
            theirs.state.name.lower(),
            theirs.type.name.lower(),
            theirs.partition_assignor,
        )
        assert (mine["member_id"], mine["client_id"], mine["host"], mine["instance_id"]) == (
            one.member_id,
            one.client_id,
            one.host,
            one.group_instance_id,
        )
        assigned = {(part.topic, part.partition) for part in one.assignment.topic_partitions}
        assert {tuple(name.rsplit(":", 1)) for name in mine["partitions"]} == {
            (name, str(partition)) for name, partition in assigned
        }
        described = rows("groups", "describe", group)
        assert {(row["topic"], row["partition"]) for row in described} == assigned
        assert {row["member_id"] for row in described} == {one.member_id}
        with_commit = {
            (row["topic"], row["partition"]): row["committed_offset"]
            for row in described
            if row["committed_offset"] is not None
        }
        assert with_commit == committed(admin, group) != {}
        (without,) = (row for row in described if row["committed_offset"] is None)
        assert (without["lag"], without["lag_seconds"]) == (None, None)


def described_by_the_tool(bootstrap: str, group: str) -> dict[int, tuple[int, int, int]]:
    """Commit, end and lag of each partition."""
    run = kafka_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        bootstrap,
        "--describe",
        "--group",
        group,
    )
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith(group)]
    assert lines
    return {int(words[2]): (int(words[3]), int(words[4]), int(words[5])) for words in lines}


def test_lag_is_that_of_the_tool_of_kafka_and_exact(
    rows: Command, client: KafkaPythonClient, topic: str, bootstrap: str
) -> None:
    group = f"{topic}-group"
    client.commit(group, topic, {0: 4, 1: 10, 2: 0})
    began = time.time()
    found = rows("groups", "describe", group)
    assert {row["partition"]: tuple(row[key] for key in OFFSETS) for row in found} == described_by_the_tool(
        bootstrap, group
    )
    assert [tuple(row[key] for key in OFFSETS) for row in found] == [(4, 10, 6), (10, 10, 0), (0, 0, 0)]
    age = found[0]["lag_seconds"]
    assert 56 <= age <= 56 + 60
    assert [row["lag_seconds"] for row in found[1:]] == [0, 0]
    (later,) = rows("groups", "describe", group)[:1]
    assert 0 <= later["lag_seconds"] - age <= time.time() - began + 0.1, "it grows with the time"


def test_a_commit_past_the_end_is_no_lag(rows: Command, client: KafkaPythonClient, topic: str) -> None:
    group = f"{topic}-group"
    client.commit(group, topic, {0: 99})
    (row,) = rows("groups", "describe", group)
    assert [row[key] for key in (*OFFSETS, "lag_seconds")] == [99, 10, 0, 0]


def test_a_group_without_commits_is_there(rows: Command, topic: str, bootstrap: str) -> None:
    group = f"{topic}-group"
    with member(bootstrap, group, topic):
        found = rows("groups", "describe", group)
        assert [row["committed_offset"] for row in found] == [None] * 3
        assert [row["end_offset"] for row in found] == [10, 10, 0]
    wait_until(lambda: rows("groups", "list", group)[0]["state"] == "Empty", "the member has left")
    (row,) = rows("groups", "describe", group)
    assert {key: value for key, value in row.items() if value is not None} == {
        "group": group,
        "type": "classic",
        "state": "Empty",
    }
    (row,) = rows("groups", "list", group, "--lag")
    assert (row["partitions"], row["lag"]) == (0, None)


def test_commits_go_with_their_topic(
    rows: Command, client: KafkaPythonClient, admin: AdminClient, topic: str
) -> None:
    group, kept = f"{topic}-group", topic_name("kept")
    client.create_topic(kept, 1)
    client.commit(group, topic, {0: 4})
    client.commit(group, kept, {0: 0})
    rows("topics", "delete", topic)

    def only_what_is_left() -> bool:
        found = rows("groups", "describe", group)
        for row in found:
            if row["topic"] == topic:
                assert (row["committed_offset"], row["lag"] in (None, 6)) == (4, True)
        return [row["topic"] for row in found] == [kept]

    wait_until(only_what_is_left, "the commits have gone with the topic")
    assert committed(admin, group) == {(kept, 0): 0}


def test_seek_does_what_it_shows_and_not_in_a_dry_run(
    rows: Command, admin: AdminClient, topic: str, bootstrap: str, protocol: str
) -> None:
    group = f"{topic}-group"
    with member(bootstrap, group, topic, protocol) as consumer:
        places = consumer.assignment()
        for place in places:
            place.offset = {0: 5, 1: 2}.get(place.partition, 0)
        consumer.commit(offsets=places, asynchronous=False)
        assert rows("groups", "seek", group, "--to", "end", status=1) == []
        assert committed(admin, group) == {(topic, 0): 5, (topic, 1): 2, (topic, 2): 0}
    wait_until(lambda: rows("groups", "list", group)[0]["state"] == "Empty", "the member has left")
    for where, expected in (
        ("+3", [8, 5, 0]),
        ("-4", [4, 1, 0]),
        ("9999", [10, 10, 0]),
        ("start", [0, 0, 0]),
        ("-56500ms", [4, 4, 0]),
        ("7", [7, 7, 0]),
        ("end", [10, 10, 0]),
    ):
        before = committed(admin, group)
        planned = rows("groups", "seek", group, "--to", where, "--dry-run")
        assert committed(admin, group) == before
        done = rows("groups", "seek", group, "--to", where)
        if where.endswith("ms"):
            # Time goes on: what is now a second later may be so between the two.
            assert all(row["committed_offset"] >= 4 for row in done[:2])
        else:
            assert done == planned
            assert [row["committed_offset"] for row in done] == expected
        assert {(row["topic"], row["partition"]): row["committed_offset_before"] for row in done} == before
        after = {(row["topic"], row["partition"]): row["committed_offset"] for row in done}
        assert committed(admin, group) == after


def test_groups_and_commits_are_deleted_unless_in_use(
    rows: Command, admin: AdminClient, client: KafkaPythonClient, topic: str, bootstrap: str
) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        client.commit(name, topic, {0: 1, 1: 2, 2: 0})
    planned = rows("groups", "delete-offsets", names[0], f"{topic}:1", "--dry-run")
    assert [row["committed_offset_before"] for row in planned] == [2]
    assert len(committed(admin, names[0])) == 3
    assert rows("groups", "delete-offsets", names[0], f"{topic}:1")[0]["deleted"] is True
    assert committed(admin, names[0]) == {(topic, 0): 1, (topic, 2): 0}
    with member(bootstrap, names[2], topic):
        # The topic of a member.
        (row, *_) = rows("groups", "delete-offsets", names[2], f"{topic}:1", status=1)
        assert row["deleted"] is False
        assert len(committed(admin, names[2])) == 3
        rows("groups", "delete", f"{topic}-*", "--dry-run", status=1)
        assert {one[0] for one in listed(admin)}.issuperset(names)
        done = rows("groups", "delete", f"{topic}-*", "--yes", status=1)
        assert {row["group"]: row["deleted"] for row in done} == dict(
            zip(names, (True, True, False), strict=True)
        )
        assert [one[0] for one in listed(admin) if one[0] in names] == names[2:]
        assert len(committed(admin, names[2])) == 3


@pytest.mark.usefixtures("newer")
def test_a_member_of_a_streams_group_has_the_partitions_of_its_tasks(
    rows: Command, topic: str, bootstrap: str, client: KafkaPythonClient
) -> None:
    group = f"{topic}-group"
    client.commit(group, topic, {0: 3})
    rows("groups", "delete", group)
    subtopology = Subtopology(
        subtopology_id="0",
        source_topics=[topic],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="member-of-streams",
        member_epoch=0,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="one",
        client_tags=[],
    )
    with Cluster(ClientSettings(bootstrap)) as cluster:
        answer = cluster.ask(coordinator_of("group", group), request)
        assert answer.error_code == 0, answer

        def has_all() -> bool:
            told = cluster.ask(
                coordinator_of("group", group),
                StreamsGroupHeartbeatRequest(
                    group_id=group,
                    member_id="member-of-streams",
                    member_epoch=answer.member_epoch,
                    endpoint_information_epoch=-1,
                ),
            )
            answer.member_epoch = max(answer.member_epoch, told.member_epoch)
            return len(rows("groups", "describe", group)) == 3

        wait_until(has_all, "the member has its tasks")
    found = rows("groups", "describe", group)
    assert [(row["topic"], row["partition"], row["type"]) for row in found] == [
        (topic, partition, "streams") for partition in range(3)
    ]
    assert {row["member_id"] for row in found} == {"member-of-streams"}
    assert [row["end_offset"] for row in found] == [10, 10, 0]


@pytest.mark.usefixtures("newer")
def test_a_share_group_has_where_its_records_begin(rows: Command, topic: str, bootstrap: str) -> None:
    group, members = f"{topic}-group", ("AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB")
    coordinator = coordinator_of("group", group)
    with Cluster(ClientSettings(bootstrap)) as cluster:
        epochs = dict.fromkeys(members, 0)

        def beat(member_id: str, epoch: int) -> None:
            request = ShareGroupHeartbeatRequest(
                group_id=group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=[topic]
            )
            answer = cluster.ask(coordinator, request)
            assert answer.error_code == 0, answer
            epochs[member_id] = answer.member_epoch

        def have_all() -> bool:
            for member_id in members:
                beat(member_id, epochs[member_id])
            found = rows("groups", "describe", group)
            return {row["member_id"] for row in found} == {*members} and len(found) == 3

        wait_until(have_all, "the members have their partitions")
        # Nobody has fetched yet.
        assert {row["committed_offset"] for row in rows("groups", "describe", group)} == {None}
        shown = rows("groups", "describe", group, "--members")
        assert sorted(name for row in shown for name in row["partitions"]) == [
            f"{topic}:{n}" for n in range(3)
        ]
        assert [row["deleted"] for row in rows("groups", "delete", group, status=1)] == [False]
        for member_id in members:
            beat(member_id, -1)
        places = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)]
        wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=places)
        cluster.ask(coordinator, AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted]))
    (row, *_) = rows("groups", "describe", group)
    assert [row[key] for key in ("type", "state", "partition", *OFFSETS)] == ["share", "Empty", 0, 4, 10, 6]
    assert 56 <= row["lag_seconds"] < 120
    for where, expected in (("end", [10, 10, 0]), ("start", [0, 0, 0]), ("3", [3, 3, 0])):
        done = rows("groups", "seek", group, "--to", where, "--topics", topic)
        assert [row["committed_offset"] for row in done] == expected
        found = {row["partition"]: row["committed_offset"] for row in rows("groups", "describe", group)}
        assert found == dict(enumerate(expected))
    assert [row["committed_offset"] for row in rows("groups", "seek", group, "--to", "+1")] == [4, 4, 0]
    rows("groups", "delete-offsets", group, f"{topic}:1", status=1)
    forgotten = rows("groups", "delete-offsets", group, topic)
    assert [(row["committed_offset_before"], row["deleted"]) for row in forgotten] == [
        (4, True), (4, True), (0, True),
    ]  # fmt: skip
    assert [row for row in rows("groups", "describe", group) if row["topic"] is not None] == []
    assert rows("groups", "delete", group) == [{"group": group, "deleted": True}]
