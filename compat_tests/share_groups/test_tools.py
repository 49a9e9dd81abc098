"""Kafka's tools for share groups, of 4.3, against us and against Apache Kafka: what they write is compared,
but for what each broker makes up for itself (`groups/comparison.py`)."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import Message
from compat_tests.differential.harness import Side
from compat_tests.groups.comparison import CONSUMER_GROUPS, GROUPS, Both, Node
from compat_tests.share_groups.brokers import SETTINGS, alter_group, places
from odradek.embedding.embedded import Broker
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.tiers import rest_at_night

TOOLS = "org.apache.kafka.tools"
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
CONSOLE = f"{TOOLS}.consumer.ConsoleShareConsumer"
VERIFIABLE = f"{TOOLS}.VerifiableShareConsumer"
PERFORMANCE = f"{TOOLS}.ShareConsumerPerformance"
HOUR_MS = 3_600_000
NOW_MS = int(time.time() * 1000)
RECORDS, PARTITIONS = 20, 2
"""Of the topic that is read: records in each partition, half of them two hours old, half ten minutes."""
SECONDS = 40

_numbers = itertools.count()


def new_name(what: str) -> str:
    """The same on both brokers, so that what is said of it is the same, too."""
    return f"{what}-{next(_numbers)}"


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    settings = {**SETTINGS, "offsets.topic.num.partitions": 1}
    with (
        reference.Kafka(
            properties={name: str(value) for name, value in settings.items()}, host=shared_host()
        ) as kafka,
        Broker(process=True, options=settings) as odradek,
        Both(kafka.bootstrap_servers, odradek.bootstrap_servers, odradek.pid) as both,
    ):
        yield both


def timestamp_ms(number: int) -> int:
    return NOW_MS - (2 * HOUR_MS if number < RECORDS // 2 else HOUR_MS // 6) + number


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    return made_topic(both)


def made_topic(both: Both, partitions: int = PARTITIONS) -> str:
    name = new_name("read")
    messages = [
        Message(b"%d-%d" % (partition, number), partition=partition, timestamp_ms=timestamp_ms(number))
        for partition in range(partitions)
        for number in range(RECORDS)
    ]
    both.create_topic(name, partitions, messages)
    return name


@pytest.fixture(scope="module")
def single(both: Both) -> str:
    """With one partition: every member has it. Which of several a member has is each broker's affair."""
    return made_topic(both, 1)


def check(both: Both, main_class: str, *commands: tuple[str, ...]) -> None:
    found = both.compare(main_class, commands)
    assert not found, "\n" + "\n".join(found)


def read_some(both: Both, group: str, topic: str, count: int = RECORDS * PARTITIONS) -> None:
    """The group reads records from the earliest one, and accepts all."""
    both.each(lambda node: alter_group(node.bootstrap, group, {"share.auto.offset.reset": "earliest"}))
    arguments = ("--group", group, "--topic", topic, "--max-messages", f"{count}", "--timeout-ms", "20000")
    for node in both.nodes:
        said = node.run(CONSOLE, *arguments)
        assert f"Processed a total of {count} messages" in said.lines, (node.name, said)


def empty_group(both: Both, topic: str) -> str:
    """One that has read everything and has no members."""
    group = new_name("empty")
    read_some(both, group, topic)
    return group


def stable_group(both: Both, *topics: str) -> str:
    """Two members that have told which partitions they have, and say nothing more."""
    group = new_name("stable")

    def make(node: Node) -> None:
        for number in range(2):
            join(node.side, group, f"{group}-{number}", *topics)

    both.each(make)
    return group


def join(side: Side, group: str, member: str, *topics: str) -> None:
    asked = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, subscribed_topic_names=list(topics)
    )
    deadline = time.monotonic() + SECONDS
    epoch = 0
    # A broker makes the topic of the groups when it is first asked for a coordinator, and for nothing else.
    side.ask(FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4)
    while True:
        answer = side.ask(asked, 1, member)
        if answer.error_code == 0:
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            asked = ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
        assert time.monotonic() < deadline, (side.name, answer)
        time.sleep(0.05)


# -- kafka-share-groups


DESCRIPTIONS = [
    (),
    ("--offsets",),
    ("--offsets", "--verbose"),
    ("--members",),
    ("--members", "--verbose"),
    ("--state",),
    ("--state", "--verbose"),
]


@pytest.mark.parametrize("state", ["Empty", "Stable", "Dead"])
def test_a_share_group_is_described_as_kafka_describes_it(
    both: Both, topic: str, single: str, state: str
) -> None:
    if state == "Empty":
        group = empty_group(both, topic)
    elif state == "Stable":
        group = stable_group(both, single)
    else:
        group = new_name("never-there")
    check(both, SHARE_GROUPS, *(("--describe", "--group", group, *more) for more in DESCRIPTIONS))


def test_share_groups_are_listed_as_kafka_lists_them(both: Both, topic: str, single: str) -> None:
    empty, stable = empty_group(both, topic), stable_group(both, single)
    check(
        both,
        SHARE_GROUPS,
        ("--list",),
        ("--list", "--state"),
        ("--list", "--state", "Stable"),
        ("--list", "--state", "empty,Dead"),
        ("--list", "--state", "PreparingRebalance"),
        ("--describe", "--all-groups", "--state"),
        ("--describe", "--all-groups", "--members"),
        ("--describe", "--all-groups", "--offsets"),
    )
    check(
        both,
        GROUPS,
        ("--list",),
        ("--list", "--share"),
        ("--list", "--consumer"),
        ("--list", "--group-type", "share"),
        ("--list", "--group-type", "classic"),
    )
    check(
        both,
        CONSUMER_GROUPS,
        ("--list",),
        ("--list", "--type", "share"),
        ("--describe", "--group", empty),
        ("--delete", "--group", stable),
    )


RESETS = {
    "to-datetime": (
        "--to-datetime",
        time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime((NOW_MS - HOUR_MS) / 1000)),
    ),
    "to-datetime after the end": ("--to-datetime", "2100-01-01T00:00:00.000"),
    "to-earliest": ("--to-earliest",),
    "to-latest": ("--to-latest",),
}
SCOPES = {
    "all-topics": lambda _: ("--all-topics",),
    "topic": lambda topic: ("--topic", topic),
    "partition": lambda topic: ("--topic", f"{topic}:1"),
}


@pytest.mark.parametrize("way", RESETS)
def test_offsets_are_reset_as_kafka_resets_them(both: Both, topic: str, way: str) -> None:
    group = empty_group(both, topic)
    for scope in SCOPES.values():
        command = ("--reset-offsets", "--group", group, *scope(topic), *RESETS[way])
        before = places(both.odradek.bootstrap, group, topic, PARTITIONS)
        check(both, SHARE_GROUPS, command, (*command, "--dry-run"))
        assert places(both.odradek.bootstrap, group, topic, PARTITIONS) == before
        check(both, SHARE_GROUPS, (*command, "--execute"), ("--describe", "--group", group))
    starts = [places(node.bootstrap, group, topic, PARTITIONS) for node in both.nodes]
    assert starts[0] == starts[1]


def test_a_group_that_was_never_there_gets_offsets(both: Both, topic: str) -> None:
    group = new_name("new")
    check(
        both,
        SHARE_GROUPS,
        ("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute"),
        ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--dry-run"),
        ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"),
        ("--describe", "--group", group),
        ("--describe", "--group", group, "--verbose"),
        ("--list",),
    )


def test_a_group_reads_on_from_where_it_was_reset(both: Both) -> None:
    topic = made_topic(both)
    group = empty_group(both, topic)
    reset = ("--reset-offsets", "--group", group, "--topic", f"{topic}:1", *RESETS["to-datetime"])
    check(both, SHARE_GROUPS, (*reset, "--execute"))
    read = ("--group", group, "--topic", topic, "--max-messages", f"{RECORDS // 2}", "--timeout-ms", "20000")
    check(both, CONSOLE, read)
    check(both, SHARE_GROUPS, ("--describe", "--group", group))


def test_offsets_are_deleted_as_kafka_deletes_them(both: Both, topic: str) -> None:
    other = made_topic(both)
    group = empty_group(both, topic)
    read_some(both, group, other)
    missing = new_name("missing")
    check(
        both,
        SHARE_GROUPS,
        ("--delete-offsets", "--group", group, "--topic", missing),
        ("--delete-offsets", "--group", group, "--topic", topic, "--topic", missing),
        ("--describe", "--group", group),
        ("--delete-offsets", "--group", group, "--topic", topic),
        ("--delete-offsets", "--group", group, "--topic", other),
        ("--describe", "--group", group),
        ("--list", "--state"),
        ("--delete-offsets", "--group", missing, "--topic", topic),
        ("--delete-offsets", "--group", group),
    )
    # From the beginning again.
    read_some(both, group, topic)


def test_groups_are_deleted_as_kafka_deletes_them(both: Both, topic: str, single: str) -> None:
    empty, others = empty_group(both, topic), [empty_group(both, topic), empty_group(both, topic)]
    stable, missing = stable_group(both, single), new_name("missing")
    check(
        both,
        SHARE_GROUPS,
        ("--delete", "--group", missing),
        ("--delete", "--group", stable),
        ("--delete-offsets", "--group", stable, "--topic", single),
        ("--reset-offsets", "--group", stable, "--all-topics", "--to-earliest", "--execute"),
        ("--delete", "--group", empty),
        ("--describe", "--group", empty),
        ("--delete", "--group", others[0], "--group", others[1], "--group", missing, "--group", stable),
        ("--list",),
    )
    # Whoever reads anew by a deleted name begins anew.
    read_some(both, empty, topic)


# -- the consumers


def test_the_console_consumer_releases_and_rejects(both: Both) -> None:
    topic = made_topic(both, 1)
    group = new_name("console")
    read_some(both, group, topic, count=4)
    shown = [
        *("--group", group, "--topic", topic, "--timeout-ms", "20000"),
        *("--formatter-property", "print.delivery=true", "--formatter-property", "print.offset=true"),
    ]
    rest = RECORDS - 4
    check(
        both,
        CONSOLE,
        (*shown, "--max-messages", f"{rest}", "--release"),
        (*shown, "--max-messages", f"{rest}", "--reject"),
    )
    check(both, SHARE_GROUPS, ("--describe", "--group", group))


@pytest.mark.parametrize("mode", rest_at_night("sync", "auto", "async"))
def test_the_verifiable_consumer_sees_every_record(both: Both, mode: str) -> None:
    topic, group = made_topic(both), new_name("verifiable")
    told = [verified(node, topic, group, mode) for node in both.nodes]
    assert told[0] == told[1]
    assert told[1]["record_data"] == RECORDS * PARTITIONS


def verified(node: Node, topic: str, group: str, mode: str) -> Counter[str]:
    """How many events there were of each kind, and how many records they told of."""
    finished = reference.kafka_tool(
        VERIFIABLE,
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group-id", group, "--verbose"),
        *("--acknowledgement-mode", mode, "--max-messages", f"{RECORDS * PARTITIONS}"),
        *("--offset-reset-strategy", "earliest"),
    )
    told: Counter[str] = Counter()
    for event in map(json.loads, finished.stdout.splitlines()):
        told[event["name"]] += event.get("count", 1)
        if event["name"] == "offsets_acknowledged":
            assert event["success"], event
    return told


def test_the_performance_tool_counts_every_record(both: Both) -> None:
    topic, group = made_topic(both), new_name("performance")
    both.each(lambda node: alter_group(node.bootstrap, group, {"share.auto.offset.reset": "earliest"}))
    arguments = (
        "--topic",
        topic,
        "--group",
        group,
        "--num-records",
        f"{RECORDS * PARTITIONS}",
        "--threads",
        "2",
    )
    told = [node.run(PERFORMANCE, *arguments) for node in both.nodes]
    columns = [one.lines[0] for one in told]
    assert columns[0] == columns[1], told
    for one in told:
        row = dict(zip(one.lines[0].split(", "), one.lines[1].split(", "), strict=True))
        assert int(row["data.consumed.in.nMsg"]) == RECORDS * PARTITIONS, told
