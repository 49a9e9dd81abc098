"""Kafka Streams 4.4 with `group.protocol=streams` (KIP-1071): a word count over two instances, of which one
is killed and the broker restarted in the middle; and what Kafka's tools tell of such a group.

`--broker=kafka` runs the same against Apache Kafka.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest

from compat_tests import reference
from compat_tests.brokers import ApacheBroker, OdradekBroker
from compat_tests.clients import wait_until
from compat_tests.reference import kafka_tool
from compat_tests.streams.word_count import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    PARTITIONS,
    WORDS,
    Application,
    WordCount,
)
from odradek.client.admin.groups import list_groups
from odradek.client.admin.topologies import describe_topologies
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.commands.topologies import topology_lines
from odradek.config.option_list import DESCRIPTIONS_IN_MEMORY
from odradek.wire.partitioner import partition_for

TOOLS = "org.apache.kafka.tools"
STREAMS_GROUPS = f"{TOOLS}.streams.StreamsGroupCommand"
GROUPS = f"{TOOLS}.GroupsCommand"
OPTIONS = {
    "group.streams.min.session.timeout.ms": 3000,
    "group.streams.session.timeout.ms": 6000,
    "group.streams.min.heartbeat.interval.ms": 500,
    "group.streams.heartbeat.interval.ms": 1000,
    "group.streams.initial.rebalance.delay.ms": 500,
    "group.streams.topology.description.plugin.class": DESCRIPTIONS_IN_MEMORY,
}
"""Time-outs short enough to wait for, and a store of descriptions."""


@pytest.fixture
def quick_broker(request: pytest.FixtureRequest) -> Iterator[OdradekBroker | ApacheBroker]:
    """A broker for one test, at which members are missed soon unless the test says otherwise."""
    options = OPTIONS | getattr(request, "param", {})
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(properties={name: str(value) for name, value in options.items()}) as kafka:
            yield ApacheBroker(kafka)
    else:
        make: Callable = request.getfixturevalue("odradek_broker_factory")
        yield OdradekBroker(make(options=options))


@pytest.fixture
def application(
    quick_broker: OdradekBroker | ApacheBroker, request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[Application]:
    guarantee = getattr(request, "param", AT_LEAST_ONCE)
    application = Application(quick_broker, reference.CURRENT, tmp_path, guarantee)
    yield application
    for run in application.runs:
        run.kill()


def streams_groups(application: Application, *arguments: str) -> str:
    command = (STREAMS_GROUPS, "--bootstrap-server", application.broker.bootstrap, *arguments)
    return kafka_tool(*command).stdout


def topology_of(application: Application) -> str:
    return streams_groups(application, "--describe", "--topology", "--group", application.id)


def dumped_types(broker: OdradekBroker | ApacheBroker, group_id: str) -> set[str]:
    """The types of the group's own records in the log, as Kafka's tool decodes them."""
    partition = partition_for(group_id, 50)
    logs = sorted((broker.data_dir / f"__consumer_offsets-{partition}").glob("*.log"))
    files = ",".join(map(str, logs))
    told = kafka_tool(f"{TOOLS}.DumpLogSegments", "--offsets-decoder", "--files", files).stdout
    keys = [json.loads(text) for text in re.findall(r"key: (\{.*?\}\}) payload:", told)]
    return {key["type"] for key in keys if key["data"].get("groupId") == group_id}


def state_of(application: Application) -> str:
    told = streams_groups(application, "--describe", "--state", "--group", application.id)
    return told.split()[-2]


@pytest.mark.parametrize("application", [AT_LEAST_ONCE, EXACTLY_ONCE], indirect=True)
def test_two_instances_share_the_tasks_and_outlive_a_kill_and_a_restart_of_the_broker(
    application: Application,
) -> None:
    application.write(60)
    first = application.start("one", "group.protocol=streams", "application.server=127.0.0.1:10001")
    first.wait_until_running()
    application.wait_until_counted()
    assert {word: first.count(word) for word in WORDS} == application.expected

    second = application.start("two", "group.protocol=streams", "application.server=127.0.0.1:10002")
    second.wait_until_running()
    application.write(60)
    application.wait_until_counted()

    # The broker goes and comes back under both of them; then one of them goes for good.
    application.broker.crash_and_restart()
    application.write(60)
    application.wait_until_counted()
    second.kill()
    application.write(60)
    application.wait_until_counted()
    wait_until(lambda: state_of(application) == "Stable", "the group is stable")
    wait_until(
        lambda: {word: first.count(word) for word in WORDS} == application.expected, "all state has moved"
    )
    first.stop()
    assert application.counted() == dict(application.expected)

    topics = application.internal_topics()
    assert topics[f"{application.id}-counts-changelog"] == "compact"
    assert topics[f"{application.id}-words-repartition"] == "delete"


def group_epoch(application: Application) -> int:
    told = streams_groups(application, "--describe", "--state", "--verbose", "--group", application.id)
    names, values = (line.split() for line in told.splitlines() if line.strip())
    return int(dict(zip(names, values, strict=False))["GROUP-EPOCH"])


@pytest.mark.parametrize("quick_broker", [{"group.streams.session.timeout.ms": 60_000}], indirect=True)
def test_static_members_come_back_to_their_tasks(application: Application) -> None:
    """From Kafka 4.4 on: who is away for a while keeps its place, and the group its epoch."""

    def start(name: str) -> WordCount:
        return application.start(name, "group.protocol=streams", f"group.instance.id={name}")

    application.write(60)
    first, second = start("one"), start("two")
    for run in (first, second):
        run.wait_until_running()
    application.wait_until_counted()
    wait_until(lambda: state_of(application) == "Stable", "the group is stable")
    epoch = group_epoch(application)

    second.stop()
    back = start("two")
    back.wait_until_running()
    application.write(60)
    application.wait_until_counted()
    wait_until(lambda: state_of(application) == "Stable", "the group is stable again")
    assert group_epoch(application) == epoch


def test_kafkas_tools_list_describe_dump_and_delete_streams_groups(
    application: Application, quick_broker: OdradekBroker | ApacheBroker
) -> None:
    application.write(30)
    run = application.start("state", "group.protocol=streams")
    run.wait_until_running()
    application.wait_until_counted()
    wait_until(lambda: state_of(application) == "Stable", "the group is stable")

    assert application.id in streams_groups(application, "--list").split()
    listed = streams_groups(application, "--list", "--state")
    assert [application.id, "Stable"] in [line.split() for line in listed.splitlines()]
    command = (
        GROUPS,
        "--bootstrap-server",
        application.broker.bootstrap,
        "--list",
        "--group-type",
        "streams",
    )
    told = kafka_tool(*command).stdout
    assert [application.id, "Streams", "streams"] in [line.split() for line in told.splitlines()]

    members = streams_groups(application, "--describe", "--members", "--verbose", "--group", application.id)
    assert "ACTIVE: 0:[0,1,2]; 1:[0,1,2]; TARGET-ACTIVE: 0:[0,1,2]; 1:[0,1,2];" in members
    offsets = streams_groups(application, "--describe", "--offsets", "--group", application.id)
    rows = [line.split() for line in offsets.splitlines() if application.input in line]
    assert len(rows) == PARTITIONS

    wait_until(lambda: "Topologies:" in topology_of(application), "the topology is described")
    told = topology_of(application)
    for line in (
        "   Sub-topology: 0",
        f"    Source: KSTREAM-SOURCE-0000000000 (topics: [{application.input}])",
        "   Sub-topology: 1",
        "(stores: [counts])",
    ):
        assert line in told
    with Cluster(ClientSettings(application.broker.bootstrap)) as cluster:
        listed = [one for one in list_groups(cluster) if one.group == application.id]
        (topology,), refused = describe_topologies(cluster, listed)
    assert not refused
    assert (
        "\n".join(topology_lines(topology.subtopologies)).strip() == told[told.index("Topologies:") :].strip()
    )

    assert dumped_types(quick_broker, application.id) == {"17", "19", "20", "21", "22", "23"}

    run.stop()
    wait_until(lambda: state_of(application) == "Empty", "all have left")
    told = streams_groups(application, "--delete", "--group", application.id, "--delete-all-internal-topics")
    assert "Error" not in told
    assert application.id not in streams_groups(application, "--list").split()
