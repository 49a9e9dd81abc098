"""kafka-consumer-groups, kafka-groups and kafka-streams-groups of 4.3, against us and against Apache Kafka.

What they write is compared, but for what each broker makes up for itself (`comparison.MADE_UP`).
"""

from __future__ import annotations

import itertools
import pathlib
import time
from collections.abc import Iterator

import pytest

from compat_tests.clients import Message, wait_until
from compat_tests.groups.comparison import CONSUMER_GROUPS, GROUPS, STREAMS_GROUPS, Both, Node
from compat_tests.groups.conftest import both_brokers, serves
from compat_tests.kit.group_wire import (
    BeatingMember,
    BeatingThread,
    WireMember,
    commit,
    committed,
    form,
    kept_alive,
    settle,
    state_of,
    subscription,
    wait_for_coordinator,
    wait_for_state,
)
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

HOUR_MS = 3_600_000
NOW_MS = int(time.time() * 1000)
RECORDS = 40
"""In each partition: half of them two hours old, half of them ten minutes."""
PARTITIONS = 2

pytestmark = pytest.mark.xdist_group("beside-kafka")

_numbers = itertools.count()


def new_name(what: str) -> str:
    """The same on both brokers, so that what is said of it is the same, too."""
    return f"{what}-{next(_numbers)}"


def timestamp_ms(number: int) -> int:
    return NOW_MS - (2 * HOUR_MS if number < RECORDS // 2 else HOUR_MS // 6) + number


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """A pair of its own: lists would show what others leave, and when that goes is each broker's affair."""
    yield from both_brokers()


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    name = new_name("read")
    messages = [
        Message(b"%d" % number, partition=partition, timestamp_ms=timestamp_ms(number))
        for partition in range(PARTITIONS)
        for number in range(RECORDS)
    ]
    both.create_topic(name, PARTITIONS, messages)
    return name


@pytest.fixture(scope="module")
def other_topic(both: Both) -> str:
    name = new_name("other")
    both.create_topic(name, 1, [Message(b"%d" % n, timestamp_ms=timestamp_ms(n)) for n in range(5)])
    return name


def check(both: Both, main_class: str, *commands: tuple[str, ...]) -> None:
    found = both.compare(main_class, commands)
    assert not found, "\n" + "\n".join(found)


def empty_group(both: Both, topic: str, *others: str) -> str:
    """One that has nothing but offsets."""
    group = new_name("offsets")
    offsets = {(topic, 0): 7, (topic, 1): 12, **{(other, 0): 3 for other in others}}
    both.each(lambda node: commit(node.side, group, offsets))
    return group


def stable_group(both: Both, topic: str) -> str:
    """Two members, one of them static, who have committed what they have."""
    group = new_name("stable")

    def make(node: Node) -> None:
        members = [
            WireMember(node.side, group, f"{group}-{number}", subscription(topic), instance=instance)
            for number, instance in enumerate((None, "always-there"))
        ]
        form(members, [{topic: [0]}, {topic: [1]}])
        for number, member in enumerate(members):
            if member.instance is None:
                who = {"member": member.member_id, "generation": member.generation}
                commit(node.side, group, {(topic, number): 30}, **who)

    both.each(make)
    return group


def rebalancing_group(both: Both, topic: str, state: str) -> str:
    """One that stays in the middle of a rebalance."""
    group = new_name(state.lower())

    def make(node: Node) -> None:
        first = WireMember(node.side, group, f"{group}-0", subscription(topic))
        if state == "PreparingRebalance":
            form([first], [{topic: [0, 1]}])
            second = WireMember(node.side, group, f"{group}-1", subscription(topic))
            second.get_id()
            second.ask_to_join()
            wait_for_state(node.side, group, state, 2)
        else:
            first.get_id()
            first.ask_to_join()
            first.take_join()
            wait_for_state(node.side, group, state, 1)

    both.each(make)
    return group


# -- list and describe


DESCRIPTIONS = [
    (),
    ("--offsets",),
    ("--offsets", "--verbose"),
    ("--members",),
    ("--members", "--verbose"),
    ("--state",),
    ("--state", "--verbose"),
]


@pytest.mark.parametrize("state", ["Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead"])
def test_a_group_is_described_as_kafka_describes_it(both: Both, topic: str, state: str) -> None:
    if state == "Empty":
        group = empty_group(both, topic)
    elif state == "Stable":
        group = stable_group(both, topic)
    elif state == "Dead":
        group = new_name("never-there")
    else:
        group = rebalancing_group(both, topic, state)
    check(both, CONSUMER_GROUPS, *(("--describe", "--group", group, *more) for more in DESCRIPTIONS))


def test_groups_are_listed_as_kafka_lists_them(both: Both, topic: str) -> None:
    empty_group(both, topic)
    stable_group(both, topic)
    rebalancing_group(both, topic, "PreparingRebalance")
    connect = new_name("connect")
    both.each(
        lambda node: form(
            [WireMember(node.side, connect, connect, b"opaque", protocol_type="connect")], [{topic: [0]}]
        )
    )
    check(
        both,
        CONSUMER_GROUPS,
        ("--list",),
        ("--list", "--state"),
        ("--list", "--type"),
        ("--list", "--state", "--type"),
        ("--list", "--state", "Stable"),
        ("--list", "--state", "empty,PreparingRebalance"),
        ("--list", "--state", "Dead"),
        ("--list", "--type", "classic"),
        ("--list", "--type", "consumer"),
        ("--list", "--type", "Classic", "--state", "stable"),
        ("--list", "--state", "no-such-state"),
        ("--list", "--type", "no-such-type"),
        ("--describe", "--all-groups"),
        ("--describe", "--all-groups", "--state"),
        ("--describe", "--all-groups", "--members"),
        ("--describe", "--group", connect),
    )
    check(
        both,
        GROUPS,
        ("--list",),
        ("--list", "--consumer"),
        ("--list", "--share"),
        ("--list", "--streams"),
        ("--list", "--protocol", "connect"),
        ("--list", "--group-type", "classic"),
        ("--list", "--group-type", "classic", "--protocol", "consumer"),
        ("--list", "--group-type", "consumer"),
        ("--list", "--group-type", "no-such-type"),
    )


def test_lag_follows_what_is_produced_and_committed(both: Both) -> None:
    topic = new_name("lag")
    both.create_topic(topic, 2)
    group = new_name("lagging")
    for number in range(4):
        messages = [Message(b"%d" % n, partition=n % 2, timestamp_ms=NOW_MS) for n in range(3 + number)]
        both.each(lambda node, messages=messages: node.client.produce(topic, messages))
        both.each(lambda node, number=number: commit(node.side, group, {(topic, number % 2): 2 * number}))
        check(both, CONSUMER_GROUPS, ("--describe", "--group", group))


# -- reset-offsets


RESETS = {
    "to-offset": ("--to-offset", "5"),
    "to-offset beyond the end": ("--to-offset", "5000"),
    "to-datetime": (
        "--to-datetime",
        time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime((NOW_MS - HOUR_MS) / 1000)),
    ),
    "by-duration": ("--by-duration", "PT1H"),
    "to-earliest": ("--to-earliest",),
    "to-latest": ("--to-latest",),
    "to-current": ("--to-current",),
    "shift-by, forward": ("--shift-by", "3"),
    "shift-by, back beyond the start": ("--shift-by", "-100"),
}
"""All but from-file, which has a test of its own."""
SCOPES = {
    "all-topics": lambda topic: ("--all-topics",),
    "topic": lambda topic: ("--topic", topic),
    "partitions": lambda topic: ("--topic", f"{topic}:1"),
}


@pytest.mark.parametrize("way", RESETS)
def test_offsets_are_reset_as_kafka_resets_them(both: Both, topic: str, other_topic: str, way: str) -> None:
    for scope in SCOPES.values():
        group = empty_group(both, topic, other_topic)
        command = ("--reset-offsets", "--group", group, *scope(topic), *RESETS[way])
        before = committed(both.odradek.side, group)
        check(both, CONSUMER_GROUPS, (*command, "--dry-run"), (*command, "--dry-run", "--export"), command)
        for node in both.nodes:
            assert committed(node.side, group) == before, f"{node.name} did what it was only asked to plan"
        check(both, CONSUMER_GROUPS, (*command, "--execute"))
        assert committed(both.odradek.side, group) == committed(both.kafka.side, group)
        check(both, CONSUMER_GROUPS, ("--describe", "--group", group), (*command, "--execute", "--export"))
        assert committed(both.odradek.side, group) == committed(both.kafka.side, group)


def test_offsets_are_reset_from_a_file_that_was_exported(
    both: Both, topic: str, other_topic: str, tmp_path: pathlib.Path
) -> None:
    group = empty_group(both, topic, other_topic)
    plan = ("--reset-offsets", "--group", group, "--all-topics", "--shift-by", "2", "--dry-run", "--export")
    exported = both.odradek.run(CONSUMER_GROUPS, *plan)
    rows = [line for line in exported.lines if line.count(",") == 2]
    assert len(rows) == PARTITIONS + 1, exported
    path = tmp_path / "offsets.csv"
    path.write_text("\n".join(rows) + "\n")
    command = ("--reset-offsets", "--group", group, "--from-file", str(path))
    check(both, CONSUMER_GROUPS, (*command, "--dry-run"), (*command, "--dry-run", "--export"))
    check(both, CONSUMER_GROUPS, (*command, "--execute"))
    for node in both.nodes:
        assert committed(node.side, group) == {(topic, 0): 9, (topic, 1): 14, (other_topic, 0): 5}, node.name


def test_offsets_of_several_groups_are_reset_from_one_file(
    both: Both, topic: str, tmp_path: pathlib.Path
) -> None:
    groups = [empty_group(both, topic), empty_group(both, topic)]
    path = tmp_path / "offsets.csv"
    path.write_text("".join(f"{group},{topic},{n},{n + 1}\n" for group in groups for n in range(2)))
    of_groups = [word for group in groups for word in ("--group", group)]
    command = ("--reset-offsets", *of_groups, "--from-file", str(path))
    check(both, CONSUMER_GROUPS, (*command, "--dry-run"), (*command, "--execute", "--export"))
    for node, group in itertools.product(both.nodes, groups):
        assert committed(node.side, group) == {(topic, 0): 1, (topic, 1): 2}, node.name


def test_offsets_of_a_group_at_work_are_not_reset(both: Both, topic: str) -> None:
    group = stable_group(both, topic)
    reset = ("--reset-offsets", "--group", group, "--to-earliest")
    check(
        both,
        CONSUMER_GROUPS,
        (*reset, "--all-topics", "--execute"),
        (*reset, "--all-topics", "--dry-run"),
        (*reset, "--execute"),
        (*reset, "--topic", "no-such-topic", "--dry-run"),
    )
    unknown = new_name("never-there")
    reset = ("--reset-offsets", "--group", unknown, "--to-earliest")
    check(
        both,
        CONSUMER_GROUPS,
        (*reset, "--all-topics", "--dry-run"),
        (*reset, "--topic", topic, "--dry-run"),
        (*reset, "--topic", topic, "--execute"),
        (*reset, "--topic", "no-such-topic", "--dry-run"),
        ("--describe", "--group", unknown),
    )


# -- delete and delete-offsets


def test_groups_are_deleted_as_kafka_deletes_them(both: Both, topic: str) -> None:
    empty, busy, unknown = empty_group(both, topic), stable_group(both, topic), new_name("never-there")
    another = empty_group(both, topic)
    check(
        both,
        CONSUMER_GROUPS,
        ("--delete", "--group", busy),
        ("--delete", "--group", unknown),
        ("--delete", "--group", empty),
        ("--delete", "--group", empty),
        ("--delete", "--group", another, "--group", busy, "--group", unknown),
        ("--describe", "--group", empty),
        ("--describe", "--group", another, "--offsets"),
        ("--describe", "--group", busy, "--state"),
    )
    for node in both.nodes:
        assert state_of(node.side, empty) == ("Dead", 0), node.name
        assert committed(node.side, another) == {}, node.name


def test_offsets_are_deleted_as_kafka_deletes_them(both: Both, topic: str, other_topic: str) -> None:
    empty, busy, unknown = (
        empty_group(both, topic, other_topic),
        stable_group(both, topic),
        new_name("never-there"),
    )
    check(
        both,
        CONSUMER_GROUPS,
        ("--delete-offsets", "--group", busy, "--topic", topic),
        ("--delete-offsets", "--group", busy, "--topic", other_topic),
        ("--delete-offsets", "--group", unknown, "--topic", topic),
        ("--delete-offsets", "--group", empty, "--topic", "no-such-topic"),
        ("--delete-offsets", "--group", empty, "--topic", f"{topic}:1"),
        ("--delete-offsets", "--group", empty, "--topic", f"{topic}:77"),
        ("--describe", "--group", empty),
        ("--delete-offsets", "--group", empty, "--topic", topic, "--topic", other_topic),
        ("--describe", "--group", empty),
    )
    for node in both.nodes:
        assert committed(node.side, empty) == {}, node.name
        assert committed(node.side, busy) == {(topic, 0): 30}, node.name


def test_expressions_are_validated(both: Both) -> None:
    expressions = ("orders-.*", "orders-(a|b", "[", "a{2,1}", r"\d+", "(?<=x)y", "")
    check(both, CONSUMER_GROUPS, *(("--validate-regex", one) for one in expressions))


# -- groups of the new protocols


@pytest.fixture
def _consumer_groups(both: Both) -> None:
    if not serves(both.odradek.bootstrap, ConsumerGroupHeartbeatRequest.api_key):
        pytest.skip("the broker does not serve the consumer protocol")


@pytest.mark.usefixtures("_consumer_groups")
def test_a_group_of_the_new_protocol_is_described_as_kafka_describes_it(both: Both, topic: str) -> None:
    group = new_name("new-protocol")
    joining = {"subscribed_topic_names": [topic], "server_assignor": "range"}

    def make(node: Node) -> list[BeatingMember]:
        wait_for_coordinator(node.side, group)
        members = [
            BeatingMember(node.side, group, f"{group}-0", **joining),
            BeatingMember(node.side, group, f"{group}-1", instance="always-there", **joining),
        ]
        settle(members, PARTITIONS, epoch=3)
        for number, member in enumerate(members):
            who = {"member": member.member_id, "generation": member.epoch, "instance": member.instance}
            commit(node.side, group, {(topic, number): 11}, **who)
        return members

    members = [member for node in both.nodes for member in make(node)]
    commands = [("--describe", "--group", group, *more) for more in DESCRIPTIONS]
    with kept_alive(members):
        check(both, CONSUMER_GROUPS, *commands)
        check(
            both,
            CONSUMER_GROUPS,
            ("--list", "--type", "consumer", "--state"),
            ("--list", "--state", "stable", "--type"),
            ("--delete", "--group", group),
            ("--delete-offsets", "--group", group, "--topic", topic),
            ("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute"),
        )
        check(both, GROUPS, ("--list", "--group-type", "consumer"), ("--list", "--consumer"))
    for member in members:
        member.leave()
    check(both, CONSUMER_GROUPS, *commands, ("--delete", "--group", group), commands[0])


@pytest.mark.usefixtures("_consumer_groups")
def test_a_group_that_waits_for_partitions_is_described_as_kafka_describes_it(both: Both, topic: str) -> None:
    """What members have and what they shall have are two things then, and so are their epochs."""
    group = new_name("reconciling")
    joining = {"subscribed_topic_names": [topic], "server_assignor": "range"}

    def make(node: Node) -> list[BeatingMember]:
        wait_for_coordinator(node.side, group)
        first = BeatingMember(node.side, group, f"{group}-0", **joining)
        settle([first], PARTITIONS, epoch=2)
        first.gives_up = False
        second = BeatingMember(node.side, group, f"{group}-1", **joining)
        wait_until(
            lambda: (first.beat(), second.beat())[1].member_epoch == first.epoch + 1,
            f"the second member of {group} has an epoch",
        )
        return [first, second]

    members = [member for node in both.nodes for member in make(node)]
    with kept_alive(members):
        check(both, CONSUMER_GROUPS, *(("--describe", "--group", group, *more) for more in DESCRIPTIONS))
        check(both, CONSUMER_GROUPS, ("--list", "--state", "reconciling", "--type"))
    for member in members:
        member.leave()


@pytest.mark.usefixtures("_streams_groups")
def test_a_streams_group_with_members_is_described_as_kafka_describes_it(
    both: Both, other_topic: str
) -> None:
    group = new_name("application")

    def make(node: Node) -> list[BeatingThread]:
        wait_for_coordinator(node.side, group)
        # The one that is there first has the only task, and keeps it.
        threads = [BeatingThread(node.side, group, f"{group}-{number}", [other_topic]) for number in range(2)]
        settle(threads[:1], 1, epoch=2)
        settle(threads, 1, epoch=3)
        who = {"member": threads[0].member_id, "generation": threads[0].epoch}
        commit(node.side, group, {(other_topic, 0): 3}, **who)
        return threads

    threads = [thread for node in both.nodes for thread in make(node)]
    of_group = [
        ("--describe", "--group", group, *more, *verbose)
        for more in ((), ("--members",), ("--offsets",), ("--state",))
        for verbose in ((), ("--verbose",))
    ]
    reset = ("--reset-offsets", "--group", group, "--all-input-topics", "--to-earliest")
    with kept_alive(threads):
        check(both, STREAMS_GROUPS, *of_group, ("--list", "--state"), ("--list", "--state", "Stable"))
        check(both, STREAMS_GROUPS, (*reset, "--dry-run"), ("--delete", "--group", group))
        check(both, GROUPS, ("--list", "--streams"), ("--list", "--group-type", "streams"))
        check(both, CONSUMER_GROUPS, ("--describe", "--group", group))
    for thread in threads:
        thread.leave()
    check(both, STREAMS_GROUPS, *of_group, (*reset, "--dry-run"), (*reset, "--execute"), of_group[0])
    check(
        both,
        STREAMS_GROUPS,
        ("--delete-offsets", "--group", group, "--input-topic", other_topic),
        of_group[0],
        ("--delete", "--group", group),
        of_group[0],
    )


@pytest.fixture
def _streams_groups(both: Both) -> None:
    if not serves(both.odradek.bootstrap, StreamsGroupHeartbeatRequest.api_key):
        pytest.skip("the broker does not serve streams groups")


@pytest.mark.usefixtures("_streams_groups")
def test_streams_groups_are_listed_and_described_as_kafka_does(both: Both) -> None:
    check(
        both,
        STREAMS_GROUPS,
        ("--list",),
        ("--list", "--state"),
        ("--list", "--state", "Stable"),
        ("--describe", "--all-groups"),
        ("--describe", "--group", "never-there"),
        ("--describe", "--group", "never-there", "--members"),
        ("--describe", "--group", "never-there", "--state"),
        ("--delete", "--group", "never-there"),
    )
