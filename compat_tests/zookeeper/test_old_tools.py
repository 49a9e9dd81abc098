"""The tools of Kafka 0.8.2 to 2.8 that know ZooKeeper alone: what they write takes effect in the broker."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

import odradek
from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking
from tests.tiers import rest_at_night

TOPICS = "kafka.admin.TopicCommand"
VERSIONS = rest_at_night("0.8.2.2", "0.9.0.1", "0.10.2.2", "2.8.2")
SECONDS = 60


class Tool:
    """The tools of one release."""

    def __init__(self, version: str, address: str) -> None:
        self.version = version
        self._address = address

    def __call__(self, main_class: str, words: str, *, has_address: bool = True) -> str:
        address = ("--zookeeper", self._address) if has_address else ()
        finished = reference.kafka_tool(
            main_class, *address, *words.split(), version=self.version, timeout_seconds=SECONDS
        )
        return finished.stdout


@pytest.fixture(params=VERSIONS)
def tool(request: pytest.FixtureRequest, address: str, broker: odradek.Broker) -> Tool:
    return Tool(request.param, address)


@pytest.fixture
def admin(broker: odradek.Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def partitions(admin: AdminClient, topic: str) -> int:
    """How many the broker has; 0: no such topic."""
    found = admin.list_topics(timeout=SECONDS).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def setting(admin: AdminClient, topic: str, name: str) -> str | None:
    (future,) = admin.describe_configs([ConfigResource("topic", topic)]).values()
    value: str | None = future.result(SECONDS)[name].value
    return value


def test_a_topic_is_made_listed_described_changed_and_deleted(
    tool: Tool, admin: AdminClient, looking: Looking
) -> None:
    topic = topic_name("made")
    words = f"--create --topic {topic} --partitions 2 --replication-factor 1 --config retention.ms=100000"
    assert "Created topic" in tool(TOPICS, words)
    wait_until(lambda: partitions(admin, topic) == 2, "the broker has it")
    assert setting(admin, topic, "retention.ms") == "100000"
    assert topic in tool(TOPICS, "--list").split()

    described = tool(TOPICS, f"--describe --topic {topic}")
    assert re.search(
        r"PartitionCount:\s*2\s+ReplicationFactor:\s*1\s+Configs:\s*retention.ms=100000", described
    )
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 2

    tool(TOPICS, f"--alter --topic {topic} --partitions 5")
    wait_until(lambda: partitions(admin, topic) == 5, "it has grown")
    wait_until(
        lambda: len(re.findall("Leader: 1", tool(TOPICS, f"--describe --topic {topic}"))) == 5,
        "each partition has a leader in ZooKeeper, too",
    )
    tool(TOPICS, f"--alter --topic {topic} --config retention.ms=200000 --config max.message.bytes=5000")
    wait_until(lambda: setting(admin, topic, "retention.ms") == "200000", "the setting has changed")
    assert setting(admin, topic, "max.message.bytes") == "5000"
    tool(TOPICS, f"--alter --topic {topic} {delete_config(tool)} max.message.bytes")
    wait_until(lambda: setting(admin, topic, "max.message.bytes") != "5000", "and is gone")
    assert setting(admin, topic, "retention.ms") == "200000"

    assert "marked for deletion" in tool(TOPICS, f"--delete --topic {topic}")
    wait_until(lambda: partitions(admin, topic) == 0, "the broker has it no more")
    wait_until(lambda: topic not in looking.children("/brokers/topics"), "nor has ZooKeeper")
    assert looking.read(f"/config/topics/{topic}") is None
    assert topic not in looking.children("/admin/delete_topics")


def delete_config(tool: Tool) -> str:
    return "--deleteConfig" if tool.version == "0.8.1" else "--delete-config"


def test_what_clients_change_is_seen_by_the_tool(tool: Tool, broker: odradek.Broker) -> None:
    topic = topic_name("ours")
    run = lambda *words: subprocess.run(  # noqa: E731
        [sys.executable, "-m", "odradek", "topics", *words, "-b", broker.bootstrap_servers], check=True
    )
    run("create", topic, "-p", "3", "-c", "retention.bytes=7777")
    wait_until(
        lambda: "retention.bytes=7777" in tool(TOPICS, f"--describe --topic {topic}"), "the tool describes it"
    )
    run("delete", topic)
    wait_until(lambda: topic not in tool(TOPICS, "--list").split(), "the tool lists it no more")


def test_what_makes_no_sense_is_refused_in_the_log_and_goes(
    tool: Tool, admin: AdminClient, looking: Looking
) -> None:
    """The tool itself finds nothing wrong: it writes, and the broker that is named does not exist."""
    topic = topic_name("elsewhere")
    looking.client.create(f"/brokers/topics/{topic}", b'{"version":1,"partitions":{"0":[77]}}')
    wait_until(lambda: topic not in looking.children("/brokers/topics"), "it goes")
    unlikely = (
        b'{"version":2,"entity_path":"topics/\\u0000","partitions":[{"topic":"\\ud800","partition":0}]}'
    )
    simple = (b"", b"nonsense", b"[]", b'{"version":1,"partitions":{"1":[1]}}', b'{"partitions":7}')
    for nonsense in (*simple, unlikely):
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            looking.client.create(path, nonsense)
            wait_until(lambda path=path: looking.read(path) is None, f"{nonsense!r} goes")
        looking.client.create(f"/brokers/topics/{topic}", nonsense)
        wait_until(lambda: topic not in looking.children("/brokers/topics"), f"{nonsense!r} goes")
        looking.client.create("/config/changes/config_change_", nonsense, sequence=True)
        wait_until(lambda: not looking.children("/config/changes"), f"{nonsense!r} goes")
    assert partitions(admin, topic) == 0
    assert tool(TOPICS, "--list") is not None


@pytest.fixture
def topic(broker: odradek.Broker, admin: AdminClient) -> str:
    name = topic_name("moved")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "odradek",
            "topics",
            "create",
            name,
            "-p",
            "2",
            "-b",
            broker.bootstrap_servers,
        ],
        check=True,
    )
    return name


def test_replicas_are_reassigned_and_leaders_elected(
    tool: Tool, topic: str, looking: Looking, tmp_path: pathlib.Path
) -> None:
    """On one node, to the replica that is there already."""
    wait_until(lambda: looking.read(f"/brokers/topics/{topic}/partitions/1/state") is not None, "it is there")
    file = tmp_path / "moves.json"
    moves = [{"topic": topic, "partition": index, "replicas": [1]} for index in range(2)]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    words = f"--reassignment-json-file {file}"
    tool("kafka.admin.ReassignPartitionsCommand", f"{words} --execute")
    wait_until(lambda: looking.read("/admin/reassign_partitions") is None, "it has been carried out")
    verified = tool("kafka.admin.ReassignPartitionsCommand", f"{words} --verify")
    assert len(re.findall(r"completed successfully|is complete\.", verified)) == 2, verified
    if tool.version < "1":
        tool("kafka.admin.PreferredReplicaLeaderElectionCommand", "")
        wait_until(lambda: looking.read("/admin/preferred_replica_election") is None, "leaders were elected")
