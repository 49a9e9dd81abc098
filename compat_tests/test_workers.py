"""Apache Kafka's tools at a broker with workers: each is a broker of a cluster to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

import odradek
from compat_tests.reference import kafka_tool

TOOLS = "org.apache.kafka.tools"
TOPIC = "of-two-workers"
IDS = {1, 2}


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(workers=2, start_timeout_s=60) as broker:
        yield broker


def told(broker: odradek.Broker, tool: str, *arguments: str, check: bool = True) -> str:
    at = ("--bootstrap-server", broker.bootstrap_servers)
    words = (*arguments, *at) if tool == "ClusterTool" else (*at, *arguments)
    finished = kafka_tool(f"{TOOLS}.{tool}", *words, check=check)
    return finished.stdout + finished.stderr


def create(broker: odradek.Broker, topic: str, partitions: int, *, check: bool = True) -> str:
    arguments = ("--create", "--topic", topic, "--partitions", str(partitions))
    return told(broker, "TopicCommand", *arguments, check=check)


def test_partitions_are_led_by_all_workers(broker: odradek.Broker) -> None:
    create(broker, TOPIC, 4)
    described = told(broker, "TopicCommand", "--describe", "--topic", TOPIC)
    found = re.findall(r"Partition: (\d)\s+Leader: (\d)\s+Replicas: (\d)\s+.*?Isr: (\d)", described)
    assert [number for number, *_ in found] == ["0", "1", "2", "3"]
    assert all(leader == replica == in_sync for _, leader, replica, in_sync in found)
    assert {int(leader) for _, leader, *_ in found} == IDS


def test_each_worker_tells_its_directories(broker: odradek.Broker) -> None:
    *_, line = told(broker, "LogDirsCommand", "--describe").strip().splitlines()
    of_brokers = {
        one["broker"]: [directory["logDir"] for directory in one["logDirs"]]
        for one in json.loads(line)["brokers"]
    }
    assert set(of_brokers) == IDS
    (first,), (second,) = of_brokers[1], of_brokers[2]
    assert second == f"{first}.w1"


def test_the_first_worker_leads_the_quorum_and_the_other_one_follows(broker: odradek.Broker) -> None:
    assert re.search(r"LeaderId:\s+1\b", told(broker, "MetadataQuorumCommand", "describe", "--status"))
    rows = told(broker, "MetadataQuorumCommand", "describe", "--replication").splitlines()
    assert any(row.startswith("2") and row.rstrip().endswith("Observer") for row in rows), rows


def test_a_quota_of_changes_counts_for_all_workers_together(broker: odradek.Broker) -> None:
    quota, everybody = "controller_mutation_rate=1", ("--entity-type", "users", "--entity-default")
    told(broker, "ConfigCommand", "--alter", "--add-config", quota, *everybody)
    create(broker, "within", 50)
    refused = create(broker, "beyond", 50, check=False)
    assert "ThrottlingQuotaExceededException" in refused
    told(broker, "ConfigCommand", "--alter", "--delete-config", "controller_mutation_rate", *everybody)
    create(broker, "beyond", 50)
