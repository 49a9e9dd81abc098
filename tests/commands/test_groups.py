"""`odradek groups` at a broker of ours; compat_tests has it at others, with members of other clients."""

import itertools
import json
import time

import pytest

import odradek
import odradek.client.admin.lag as lag
from odradek.client import group_offsets
from odradek.client.admin import groups as admin
from odradek.client.admin.configs import Change, Operation, Resource, ResourceKind, alter_configs
from odradek.client.cluster import Cluster, coordinator_of
from odradek.client.connection import Connection
from odradek.client.settings import ClientSettings
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.client.topics import (
    Transactions,
    create_topic,
    delete_records,
    delete_topic,
    produce,
)

_numbers = itertools.count()
SECOND_MS = 1000


def now_ms():
    return int(time.time() * 1000)


def new_group():
    return f"group-{next(_numbers)}"


def committed(cluster, offsets, group=None):
    """A new group with these commits, by (topic, partition)."""
    group = group or new_group()
    group_offsets.commit(cluster, group, {key: (offset, "") for key, offset in offsets.items()})
    return group


def joined(cluster, group):
    """A classic member, which stays until its session is over."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    # Before version 4 the first answer is membership.
    answer = cluster.ask(coordinator_of("group", group), request, version_max=3)
    assert answer.error_code == 0
    return answer.member_id


@pytest.fixture
def groups(odradek_command):
    """The rows of `odradek groups`."""

    def rows(*arguments, status=0):
        ended = odradek_command("groups", *arguments, "--output", "json")
        assert ended.status == status, ended.err
        return ended.rows

    return rows


def test_lag_is_exact_at_rest(groups, cluster):
    topic = create_topic(cluster, partitions=4)
    for partition in (0, 1, 2):
        produce(cluster, topic, partition, [b"v"] * 10, timestamp=now_ms())
    group = committed(cluster, {(topic, 0): 3, (topic, 1): 10, (topic, 2): 99, (topic, 3): 0})
    rows = groups("describe", group)
    keys = ("topic", "partition", "committed_offset", "start_offset", "end_offset", "lag")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        (topic, 0, 3, 0, 10, 7),
        (topic, 1, 10, 0, 10, 0),
        (topic, 2, 99, 0, 10, 0),  # past the end
        (topic, 3, 0, 0, 0, 0),
    ]
    assert [row["lag_seconds"] for row in rows[1:]] == [0.0, 0.0, 0.0]
    assert {(row["group"], row["type"], row["state"], row["member_id"]) for row in rows} == {
        (group, "classic", "Empty", None)
    }
    (listed,) = groups("list", group, "--lag")
    assert (listed["lag"], listed["partitions"]) == (7, 4)


def test_lag_in_seconds_is_the_age_of_the_next_record(groups, cluster):
    topic = create_topic(cluster, partitions=3)
    began = now_ms()
    # One batch whose records are some milliseconds apart; then one ten minutes later.
    produce(cluster, topic, 0, [b"v"] * 5000, timestamp=began - 900 * SECOND_MS)
    produce(cluster, topic, 0, [b"v"] * 3, timestamp=began - 300 * SECOND_MS)
    produce(cluster, topic, 1, [b"v" * 50_000] * 3, timestamp=began - 60 * SECOND_MS)
    produce(cluster, topic, 2, [b"v" * 50_000] * 3, timestamp=began - 30 * SECOND_MS)
    places = {
        (topic, 0): 0,
        (topic, 1): 1,
        (topic, 2): 2,
    }
    near, far, middle = (committed(cluster, {**places, (topic, 0): offset}) for offset in (5000, 0, 4000))
    rows = groups("describe", near, far, middle)
    age = (now_ms() - began) / 1000
    seconds = {(row["group"], row["partition"]): row["lag_seconds"] for row in rows}
    expected = {near: 300, far: 900, middle: 896}
    for group, first in expected.items():
        for partition, least in ((0, first), (1, 60 - 0.001), (2, 30 - 0.002)):
            assert least <= seconds[group, partition] <= least + age + 0.01, (group, partition)


def test_deleted_records_are_not_looked_for(groups, cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"v"] * 10, timestamp=now_ms() - 900 * SECOND_MS)
    produce(cluster, topic, 0, [b"v"] * 10, timestamp=now_ms() - 60 * SECOND_MS)
    delete_records(cluster, topic, 0, 10)
    (row,) = groups("describe", committed(cluster, {(topic, 0): 2}))
    assert (row["start_offset"], row["end_offset"], row["lag"]) == (10, 20, 18)
    assert 59 < row["lag_seconds"] < 90
    delete_records(cluster, topic, 0, 20)
    (row,) = groups("describe", row["group"])
    assert (row["lag"], row["lag_seconds"]) == (18, 0.0)


def test_the_marker_of_a_transaction_is_lag_but_no_record_to_come(groups, cluster):
    topic = create_topic(cluster)
    transactions = Transactions(cluster, f"t-{new_group()}")
    transactions.write(topic, 0, [b"v"] * 3)
    group = committed(cluster, {(topic, 0): 3})
    assert [(row["end_offset"], row["lag"], row["lag_seconds"]) for row in groups("describe", group)] == [
        (3, 0, 0.0)
    ]
    transactions.end(True)
    (row,) = groups("describe", group)
    assert (row["end_offset"], row["lag"], row["lag_seconds"]) == (4, 1, 0.0)
    produce(cluster, topic, 0, [b"v"], timestamp=now_ms() - 60 * SECOND_MS)
    (row,) = groups("describe", group)
    assert row["lag"] == 2
    assert 60 <= row["lag_seconds"] < 90


def test_many_groups_and_partitions_need_few_requests(groups, cluster, monkeypatch):
    topic = create_topic(cluster, partitions=30)
    for partition in range(30):
        produce(cluster, topic, partition, [b"v"] * 3, timestamp=now_ms())
    prefix = new_group()
    names = {f"{prefix}.{number}" for number in range(100)}
    for name in names:
        committed(cluster, {(topic, partition): 1 for partition in range(30)}, name)
    sent, send = [], Connection.send

    def counted(self, request, version, **options):
        sent.append(type(request).__name__)
        return send(self, request, version, **options)

    monkeypatch.setattr(Connection, "send", counted)
    rows = groups("describe", f"{prefix}.*")
    assert len(rows) == 3000
    assert {row["lag"] for row in rows} == {2}
    assert len(sent) < 20, sent
    sent.clear()
    listed = groups("list", f"{prefix}.*", "--lagging", "60")
    assert ({row["group"] for row in listed}, {row["lag"] for row in listed}) == (names, {60})
    assert groups("list", f"{prefix}.*", "--lagging", "61") == []
    assert len(sent) < 24, sent


def test_lists_are_filtered_by_state_type_and_lag_the_worst_first(groups, cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"v"] * 10, timestamp=now_ms())
    prefix = new_group()
    for number, offset in enumerate((9, 2, 5)):
        committed(cluster, {(topic, 0): offset}, f"{prefix}-{number}")
    joined(cluster, f"{prefix}-9")
    pattern = f"{prefix}-*"
    assert [row["group"][-1] for row in groups("list", pattern)] == ["0", "1", "2", "9"]
    assert [row["group"][-1] for row in groups("list", pattern, "--state", "empty")] == ["0", "1", "2"]
    assert groups("list", pattern, "--type", "consumer") == []
    lagging = groups("list", pattern, "--lagging", "5")
    assert [(row["group"][-1], row["lag"]) for row in lagging] == [("1", 8), ("2", 5)]
    by_lag = groups("list", pattern, "--lag")
    assert [(row["group"][-1], row["lag"]) for row in by_lag] == [("1", 8), ("2", 5), ("0", 1), ("9", None)]


def test_a_group_without_commits_is_a_row_without_a_topic(groups, odradek_command, cluster):
    group = new_group()
    member = joined(cluster, group)
    (row,) = groups("describe", group)
    assert (row["group"], row["topic"], row["lag"], row["member_id"]) == (group, None, None, member)
    shown = odradek_command("groups", "describe", group).out.splitlines()
    assert shown[0].endswith("classic, 1 member, no commits")
    assert member in shown[2]


def test_commits_for_a_topic_that_is_gone_have_no_end(groups, cluster, monkeypatch):
    """The broker deletes them with the topic; a moment before that they are there."""
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"v"] * 3, timestamp=now_ms())
    group = committed(cluster, {(topic, 0): 1, (create_topic(cluster), 0): 0})
    describe, gone = lag.describe_topics, []

    def without(cluster, topics):
        if not gone:
            delete_topic(cluster, topic)
            gone.append(topic)
        return describe(cluster, topics)

    monkeypatch.setattr(lag, "describe_topics", without)
    rows = {row["topic"]: row for row in groups("describe", group)}
    assert len(rows) == 2
    assert {key for key, value in rows[topic].items() if value is None} >= {
        "start_offset",
        "end_offset",
        "lag",
        "lag_seconds",
    }
    assert rows[topic]["committed_offset"] == 1


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        ("start", [4, 0]),
        ("end", [14, 3]),
        ("7", [7, 3]),
        ("1", [4, 1]),
        ("1000", [14, 3]),
        ("+2", [8, 3]),
        ("-1", [5, 1]),
        ("-5", [4, 0]),
        ("-45s", [14, 0]),
        ("@{time}", [9, 0]),
        ("2100-01-01", [14, 3]),
    ],
)
def test_seek_shows_what_it_then_does(groups, cluster, where, offsets):
    topic, began = create_topic(cluster, partitions=3), now_ms()
    produce(cluster, topic, 0, [b"v"] * 14, timestamp=began - 60 * SECOND_MS)
    delete_records(cluster, topic, 0, 4)
    produce(cluster, topic, 1, [b"v"] * 3, timestamp=began)
    group = committed(cluster, {(topic, 0): 6, (topic, 1): 2})
    where = where.format(time=began - 60 * SECOND_MS + 9)
    planned = groups("seek", group, "--to", where, "--dry-run")
    keys = ("partition", "committed_offset_before", "committed_offset")
    assert [tuple(row[key] for key in keys) for row in planned] == [(0, 6, offsets[0]), (1, 2, offsets[1])]
    assert [row["committed_offset"] for row in groups("describe", group)] == [6, 2]
    assert groups("seek", group, "--to", where) == planned
    described = groups("describe", group)
    assert [row["committed_offset"] for row in described] == offsets
    assert [row["lag"] for row in described] == [row["lag"] for row in planned]


def test_seek_moves_only_what_is_named(groups, odradek_command, cluster):
    first, second = create_topic(cluster, partitions=2), create_topic(cluster)
    for topic, partition in ((first, 0), (first, 1), (second, 0)):
        produce(cluster, topic, partition, [b"v"] * 5, timestamp=now_ms())
    group = committed(cluster, {(first, 0): 1, (second, 0): 1})

    def commits():
        rows = groups("describe", group)
        return {(row["topic"], row["partition"]): row["committed_offset"] for row in rows}

    groups("seek", group, "--to", "3", "--topics", f"{first}:0")
    assert commits() == {(first, 0): 3, (second, 0): 1}
    moved = groups("seek", group, "--to", "start", "--topics", first, second)
    assert [row["committed_offset_before"] for row in moved] == [3, None, 1]
    assert commits() == {(first, 0): 0, (first, 1): 0, (second, 0): 0}
    new = new_group()
    ended = odradek_command("groups", "seek", new, "--to", "end")
    assert (ended.status, ended.err) == (
        1,
        f"odradek: group {new} does not exist; with --topics it would be made\n",
    )
    assert len(groups("seek", new, "--to", "end", "--topics", first)) == 2
    assert [row["lag"] for row in groups("describe", new)] == [0, 0]
    # What has no commit cannot be moved from it; the rest is.
    group = committed(cluster, {(first, 0): 1})
    (row,) = groups("seek", group, "--to", "+1", "--topics", first, status=1)
    assert (row["partition"], row["committed_offset"]) == (0, 2)


def test_a_group_in_use_is_refused_with_who_is_in_it(odradek_command, groups, cluster):
    topic = create_topic(cluster)
    unused, used = committed(cluster, {(topic, 0): 0}), committed(cluster, {(topic, 0): 0})
    joined(cluster, used)
    sentence = f"odradek: group {used} is in use, so it stays as it is; stop its 1 member first: odradek at "
    for arguments in (
        ["seek", used, "--to", "end"],
        ["seek", used, "--to", "end", "--dry-run"],
        ["delete", used, "--dry-run"],
        ["delete", used],
    ):
        ended = odradek_command("groups", *arguments)
        assert ended.status == 1
        assert ended.err.startswith(sentence), ended.err
        assert len(ended.err.splitlines()) == 1
    rows = groups("delete", used, unused, status=1)
    assert {row["group"]: row["deleted"] for row in rows} == {used: False, unused: True}
    assert [row["group"] for row in groups("list", used, unused)] == [used]


def test_groups_and_commits_are_deleted_not_so_in_a_dry_run(groups, odradek_command, cluster):
    topics = [create_topic(cluster, partitions=2) for _ in range(2)]
    group = committed(cluster, {(topic, partition): 0 for topic in topics for partition in (0, 1)})

    def commits():
        return [(row["topic"], row["partition"]) for row in groups("describe", group)]

    every = commits()
    assert len(every) == 4
    named = [topics[0], f"{topics[1]}:1"]
    planned = groups("delete-offsets", group, *named, "--dry-run")
    assert [(row["topic"], row["partition"]) for row in planned] == [*every[:2], every[3]]
    assert not any(row["deleted"] for row in planned)
    assert commits() == every
    done = groups("delete-offsets", group, *named)
    assert all(row["deleted"] for row in done)
    assert commits() == [every[2]]
    ended = odradek_command("groups", "delete-offsets", group, topics[0])
    assert (ended.status, ended.err) == (1, f"odradek: group {group} has no commit for {topics[0]}\n")
    assert groups("delete", group, "--dry-run") == [{"group": group, "deleted": False}]
    assert len(groups("list", group)) == 1
    assert groups("delete", group) == [{"group": group, "deleted": True}]
    assert groups("list", group) == []


@pytest.mark.parametrize("arguments", [["describe"], ["describe", "--members"], ["delete"]])
def test_a_group_that_is_not_there_is_told_and_the_others_are_done(odradek_command, cluster, arguments):
    group = committed(cluster, {(create_topic(cluster), 0): 0})
    ended = odradek_command("groups", *arguments, "nobody", group, "--output", "json")
    assert (ended.status, ended.err) == (1, "odradek: group nobody does not exist\n")
    assert [row["group"] for row in ended.rows] == ([] if "--members" in arguments else [group])


class Enough(Exception):
    """Of watching."""


def test_watch_shows_it_again_and_again(odradek_command, cluster, monkeypatch, capsys):
    topic = create_topic(cluster)
    group = committed(cluster, {(topic, 0): 0})
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        produce(cluster, topic, 0, [b"v"], timestamp=now_ms())

    monkeypatch.setattr("odradek.commands.groups.time.sleep", pause)
    ended = odradek_command("groups", "describe", group, "--watch", "0.5", "--output", "jsonl")
    assert (ended.status, pauses) == (130, [0.5] * 3)
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert [row["lag"] for row in rows] == [0, 1, 2]
    assert rows[0]["timestamp_ms"] <= rows[2]["timestamp_ms"]


def test_a_group_that_moves_to_another_coordinator_is_found_there(groups, cluster, monkeypatch):
    """As the answer to ListGroups is older than those that follow."""
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"v"] * 3, timestamp=now_ms())
    group = committed(cluster, {(topic, 0): 1})
    list_groups = admin.list_groups

    def elsewhere(cluster):
        return [
            admin.ListedGroup(one.group, one.type, one.state, one.protocol_type, 77)
            for one in list_groups(cluster)
        ]

    monkeypatch.setattr("odradek.commands.group_changes.list_groups", elsewhere)
    (row,) = groups("describe", group)
    assert row["lag"] == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["describe", "nobody"], "group nobody does not exist"),
        (["describe", "nobody*"], "no group matches nobody*"),
        (["describe", "nobody", "--watch"], "group nobody does not exist"),
        (["delete", "nobody"], "group nobody does not exist"),
        (["delete-offsets", "nobody", "t"], "group nobody does not exist"),
        (["list", "--lagging", "many"], "--lagging is 'many': it has to be a whole number"),
        (["seek", "nobody", "--to", "soon"], "--to soon is not understood: start, end, an offset"),
        (["seek", "nobody", "--to", "stored"], "--to stored is not understood"),
        (["seek", "nobody", "--to", "5:9"], "--to 5:9 is not understood"),
        (["seek", "nobody", "--to", "end", "--topics", "nowhere"], "topic nowhere does not exist"),
        (["describe", "nobody", "--watch", "0"], "--watch is '0': it has to be a number of seconds above 0"),
        (
            ["describe", "nobody", "--watch", "--output", "json"],
            "--watch has no end, so its --output is table or jsonl",
        ),
    ],
)
def test_a_fault_is_one_sentence_and_status_1(odradek_command, arguments, sentence):
    ended = odradek_command("groups", *arguments)
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: {sentence}"), ended.err
    assert len(ended.err.splitlines()) == 1


def test_names_of_groups_in_every_language(groups, cluster):
    topic = create_topic(cluster)
    for name in ("группа", "組", "a b", "x\ty", "ñ/ü:1"):
        committed(cluster, {(topic, 0): 0}, name)
        assert [row["group"] for row in groups("describe", name)] == [name]
    listed = cluster.ask(1, ListGroupsRequest()).groups
    assert sorted(one.group_id for one in listed) == [row["group"] for row in groups("list")]


def test_lag_is_told_to_a_user_who_may_not_read_the_records(run):
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:nobody",
    }
    with (
        odradek.Broker(options=options) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
    ):
        hidden, open_topic = create_topic(cluster), create_topic(cluster)
        for topic in (hidden, open_topic):
            produce(cluster, topic, 0, [b"v"] * 10, timestamp=now_ms() - 60 * SECOND_MS)
        group = committed(cluster, {(hidden, 0): 4, (open_topic, 0): 4})
        connection = ("-b", broker.bootstrap_servers)
        rule = ("--principal", "User:ANONYMOUS", "--operation", "describe", "--topic", hidden)
        added = run("acls", "add", *rule, *connection)
        assert added.status == 0, added.err
        rows = run("groups", "describe", group, *connection, "--output", "json").rows
        found = {row["topic"]: (row["end_offset"], row["lag"], row["lag_seconds"]) for row in rows}
        assert found[hidden] == (10, 6, None)
        assert found[open_topic][:2] == (10, 6)
        assert 60 <= found[open_topic][2] < 100


def test_the_heading_of_a_share_group_names_its_dead_letter_queue(odradek_command, cluster):
    group = new_group()
    topic = create_topic(cluster)
    beat = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=[topic]
    )
    assert cluster.ask(coordinator_of("group", group), beat).error_code == 0
    assert "dead letters" not in odradek_command("groups", "describe", group).out
    change = Change("errors.deadletterqueue.topic.name", Operation.SET, "dlq.parcels")
    alter_configs(cluster, Resource(ResourceKind.GROUP, group), [change])
    heading = odradek_command("groups", "describe", group).out.splitlines()[0]
    assert heading.endswith(", dead letters go to dlq.parcels")
