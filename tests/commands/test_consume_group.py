"""`odradek consume -g`: a member of a group, at a broker of ours; compat_tests has the same at others."""

import itertools
import signal
import threading
import time

import pytest

import odradek
from odradek.client.admin.groups import describe_groups, list_groups
from odradek.client.client_error import ClientError
from odradek.client.cluster import coordinator_of
from odradek.client.consumer_member import ConsumerMember
from odradek.client.group_member import GroupMember
from odradek.client.group_offsets import committed
from odradek.client.member_settings import MemberSettings
from odradek.client.settings import ClientSettings
from odradek.commands import record_printer
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.client.topics import ask, create_topic, produce

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker():
    """Members of the consumer protocol do not wait for heartbeats."""
    options = {
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.assignment.interval.ms": 0,
        "group.consumer.assignment.interval.ms": 0,
    }
    with odradek.Broker(options=options) as running:
        yield running


@pytest.fixture(params=["classic", "consumer"])
def protocol(request):
    return request.param


@pytest.fixture
def topic(cluster):
    return create_topic(cluster, 2, f"shared-{next(NUMBERS)}")


@pytest.fixture
def consume(odradek_command, topic, protocol):
    """Runs `consume` as a member of the group that has the name of the topic."""

    def ended(*arguments):
        options = (*arguments, "-f", "%s ", "-X", f"group.protocol={protocol}")
        return odradek_command("consume", topic, "-g", topic, *options)

    return ended


def members(cluster, group):
    ((described,), _) = describe_groups(cluster, [one for one in list_groups(cluster) if one.group == group])
    return described.members


def commits(cluster, group):
    return {number: at for (_, number), (at, _) in committed(cluster, group, None, is_stable=True).items()}


def remove_member(cluster, group, protocol):
    (one,) = members(cluster, group)
    request = LeaveGroupRequest(
        group_id=group, member_id="", members=[MemberIdentity(member_id=one.member_id)]
    )
    if protocol == "consumer":
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=one.member_id, member_epoch=-1)
    ask(cluster, coordinator_of("group", group), request)


def test_it_goes_on_where_the_group_was_and_leaves_in_the_end(consume, cluster, topic):
    produce(cluster, topic, 0, [b"%d" % number for number in range(10)])
    assert consume("-n", "3") == (0, "0 1 2 ", "")
    assert commits(cluster, topic) == {0: 3}
    assert members(cluster, topic) == []
    assert consume("--grep", "5", "-q") == (0, "5 ", "")
    assert commits(cluster, topic) == {0: 10}
    assert consume() == (0, "", "")
    produce(cluster, topic, 1, [b"10", b"11"])
    assert consume("-o", "stored", "--until", "1") == (0, "10 ", "")
    assert commits(cluster, topic) == {0: 10, 1: 1}
    assert consume("--follow", "-n", "1") == (0, "11 ", "")
    assert members(cluster, topic) == []


def test_where_the_group_has_no_commit_o_says_where_it_begins(consume, cluster, topic):
    produce(cluster, topic, 0, [b"old"])
    assert consume("-o", "end", "--exit") == (0, "", "")
    assert consume("-o", "beginning", "-X", "auto.offset.reset=latest") == (0, "old ", "")
    refused = consume("-X", "auto.offset.reset=none")
    assert refused.status == 1
    assert f"has no commit for topic {topic}, partition 1" in refused.err
    assert members(cluster, topic) == []


def test_members_share_what_there_is(consume, cluster, topic, protocol, broker):
    for number in range(2):
        produce(cluster, topic, number, [b"%d" % number])
    ended, assigned = threading.Event(), []
    other = GroupMember(
        ClientSettings(broker.bootstrap_servers),
        topic,
        [topic],
        MemberSettings(protocol=protocol),
        revoked=lambda partitions: None,
        lost=lambda partitions: None,
    )

    def stay():
        with other:
            while not ended.is_set():
                other.poll(int(time.monotonic() * 1000), 0.05)
                assigned.append(other.assigned)

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not assigned or len(assigned[-1]) < 2:
            assert time.monotonic() < deadline
        found = consume("--follow", "-n", "1")
    finally:
        ended.set()
        thread.join()
    assert found.status == 0
    number = int(found.out)
    assert commits(cluster, topic) == {number: 1}
    assert frozenset({(topic, 1 - number)}) in assigned
    assert consume().out == f"{1 - number} ", "what the other one had, it had not committed"


def during_the_output(monkeypatch, happens):
    """`happens` when the records of a response are printed, with the value of the first."""
    plain = record_printer.batches_of

    def batches_of(fetched, **options):
        for batch in plain(fetched, **options):
            happens(batch.records[0].value)
            yield batch

    monkeypatch.setattr(record_printer, "batches_of", batches_of)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_commits_what_was_printed_and_leaves(consume, cluster, topic, monkeypatch, number, status):
    produce(cluster, topic, 0, [b"a", b"b"])

    def happens(value):
        if value == b"c":
            signal.raise_signal(number)
        produce(cluster, topic, 1, [b"c"])

    during_the_output(monkeypatch, happens)
    assert consume("--follow") == (status, "a b ", "")
    assert commits(cluster, topic) == {0: 2}
    assert members(cluster, topic) == []


def test_after_a_failure_only_what_was_written_is_committed(consume, cluster, topic, monkeypatch):
    produce(cluster, topic, 0, [b"a"])

    def happens(value):
        if value == b"b":
            raise ClientError("the rest cannot be read")
        produce(cluster, topic, 1, [b"b"])

    during_the_output(monkeypatch, happens)
    assert consume("--follow") == (1, "a ", "odradek: the rest cannot be read\n")
    assert commits(cluster, topic) == {0: 1}
    assert members(cluster, topic) == []


def test_a_commit_that_is_refused_is_told(consume, cluster, topic, protocol, monkeypatch):
    """No heartbeat comes first: the commit learns that the member was removed."""

    def happens(value):
        remove_member(cluster, topic, protocol)
        monkeypatch.setattr(ConsumerMember, "wait_ms", lambda member, now_ms: 60_000)

    produce(cluster, topic, 0, [b"a"])
    during_the_output(monkeypatch, happens)
    refused = consume("-n", "1")
    assert (refused.status, refused.out) == (1, "a ")
    assert refused.err.startswith(f"odradek: group {topic} has gone on without this member (")
    assert commits(cluster, topic) == {}


def test_records_of_lost_partitions_come_again(consume, cluster, topic, protocol, monkeypatch):
    """The member is removed while it prints, finds out with its next heartbeat, and joins again."""
    produce(cluster, topic, 0, [b"a"])
    removed = []

    def happens(value):
        if not removed:
            removed.append(value)
            remove_member(cluster, topic, protocol)

    during_the_output(monkeypatch, happens)
    options = ["-X", "heartbeat.interval.ms=1"] if protocol == "classic" else []
    monkeypatch.setattr("odradek.commands.group_reading.COMMIT_S", 0.0)
    found = consume("--follow", "-n", "2", *options)
    assert (found.status, found.out) == (0, "a a ")
    assert "what was printed since the last commit may come again" in found.err
    assert commits(cluster, topic) == {0: 1}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-o", "8"), "-o may be beginning or end"),
        (("-o", "-1h"), "-o may be beginning or end"),
        (("-o", "+2"), "-o may be beginning or end"),
        (("-p", "0"), "-p is not for -g"),
    ],
)
def test_what_the_group_decides_is_a_usage_error(odradek_command, topic, arguments, why):
    refused = odradek_command("consume", topic, "-g", "g", *arguments)
    assert (refused.status, refused.out) == (2, "")
    assert why in refused.err
    refused = odradek_command("consume", f"{topic}:0", "-g", "g")
    assert (refused.status, f"{topic}:0 names a partition" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("group.protocol=share", "group.protocol"),
        ("partition.assignment.strategy=roundrobin", "by range alone"),
        ("session.timeout.ms=5", "smaller than session.timeout.ms"),
        ("session.timeout.ms=86400000", "INVALID_SESSION_TIMEOUT"),
    ],
)
def test_options_of_the_member_are_checked(odradek_command, topic, option, why):
    refused = odradek_command("consume", topic, "-g", "g", "-X", option)
    assert (refused.status, refused.out) == (1, "")
    assert why in refused.err


def test_options_of_a_member_are_of_no_use_without_a_group(odradek_command, topic):
    option = ("-X", "session.timeout.ms=9000")
    assert "session.timeout.ms is not used here" in odradek_command("consume", topic, *option).err
    assert odradek_command("consume", topic, "-g", topic, *option) == (0, "", "")


def test_topics_of_patterns_and_those_that_are_missing(odradek_command, cluster, topic):
    other = create_topic(cluster, 1, f"{topic}-other")
    produce(cluster, topic, 1, [b"a"])
    produce(cluster, other, 0, [b"b"])
    found = odradek_command("consume", f"{topic}*", "-g", topic)
    assert sorted(found.out.split()) == ["a", "b"]
    refused = odradek_command("consume", topic, "nowhere", "-g", topic)
    assert (refused.status, refused.err) == (1, "odradek: topic nowhere does not exist\n")
