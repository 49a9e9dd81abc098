"""Kafka's tools for clusters: through a node of ours they say what they say through a broker of Kafka."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import threading
from typing import Any

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.sharing import NUMBERS
from compat_tests.cluster.test_replication import create, isr_of, partition
from compat_tests.cluster.test_throttles import fill
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.reference import CURRENT, kafka_tool, tool_command
from compat_tests.test_java_tools import Reassigning
from odradek.apis.fetch import FIRST_VERSION_WITH_REPLICA_STATE
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

TOOLS = "org.apache.kafka.tools"
CHANGING = (
    (r"(HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs): +-?\d+", r"\1: N"),
    (r"^(\d+ *\t\S+)\t\d+ +\t-?\d+ +\t\d+ +\t\d+ +", r"\1 NUMBERS"),
)
"""What is another number at each call, and what stands for it."""
SERVER = ("--bootstrap-server", "BOOTSTRAP")
REPLICA_IDS = {"the debugging consumer": -2, "a consumer": -1}


def run(bootstrap: str, main_class: str, *arguments: str) -> str:
    """What the tool prints. BOOTSTRAP stands for the address."""
    words = [bootstrap if word == "BOOTSTRAP" else word for word in arguments]
    text = kafka_tool(f"{TOOLS}.{main_class}", *words).stdout
    for pattern, stands_for in CHANGING:
        text = re.sub(pattern, stands_for, text, flags=re.MULTILINE)
    return text


def observers(text: str) -> list[dict[str, Any]]:
    """As `describe --status` names them."""
    (found,) = re.findall(r"CurrentObservers: +(.*)", text)
    return list(json.loads(found))


def of_members(text: str) -> str:
    """Without the observers that have left: the controllers forget them after minutes, perhaps just now."""
    lines = []
    for line in text.splitlines():
        if line.startswith("CurrentObservers:"):
            there = [one for one in observers(line) if one["id"] in NUMBERS.values()]
            line = f"CurrentObservers: {there}"
        if not re.match(r"\d+ *\t.*\tObserver", line) or int(line.split()[0]) in NUMBERS.values():
            lines.append(line)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def replicated(odradek: OdradekMember, kafka: KafkaMember) -> str:
    """A topic with a replica on both."""
    topic, both = "replicated", [odradek.node_id, kafka.node_id]
    create(odradek.bootstrap_servers, topic, both)
    wait_until(
        lambda: isr_of(odradek.bootstrap_servers, topic) == set(both),
        "both in sync",
        seconds=DEADLINE_SECONDS,
    )
    fill(odradek.bootstrap_servers, topic, 1_000_000)
    return topic


def test_the_quorum_is_described_as_through_kafka_and_our_node_is_an_observer(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    for what in ("--status", "--replication"):
        ours, theirs = (
            run(one.bootstrap_servers, "MetadataQuorumCommand", *SERVER, "describe", what)
            for one in (odradek, kafka)
        )
        assert of_members(ours) == of_members(theirs)
        if what == "--status":
            assert {one["id"] for one in observers(ours)} >= set(NUMBERS.values())
        else:
            (line,) = re.findall(rf"^{odradek.node_id} *\t.*$", ours, re.MULTILINE)
            assert line.split()[-1] == "Observer"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("cluster-id", "Cluster ID: "),
        ("list-endpoints", "127.0.0.1"),
        ("list-endpoints --include-fenced-brokers", "unfenced"),
    ],
)
def test_the_cluster_tool_says_what_it_says_through_kafka(
    odradek: OdradekMember, kafka: KafkaMember, words: str, shown: str
) -> None:
    ours, theirs = (
        run(one.bootstrap_servers, "ClusterTool", *words.split(), *SERVER) for one in (odradek, kafka)
    )
    assert ours == theirs
    assert shown in ours


def test_a_node_that_has_left_for_good_is_unregistered(
    controllers: Controllers, odradek: OdradekMember, kafka: KafkaMember
) -> None:
    with OdradekMember(controllers, 3) as leaving:
        for one in (odradek, kafka):
            listed = run(one.bootstrap_servers, "ClusterTool", "list-endpoints", *SERVER)
            assert str(leaving.port) in listed
        leaving.stop()
    words = ("list-endpoints", "--include-fenced-brokers")
    ours, theirs = (run(one.bootstrap_servers, "ClusterTool", *words, *SERVER) for one in (odradek, kafka))
    assert ours == theirs
    assert str(leaving.port) in ours
    told = run(odradek.bootstrap_servers, "ClusterTool", "unregister", "--id", "3", *SERVER)
    assert told == "Broker 3 is no longer registered.\n"
    for one in (odradek, kafka):
        wait_until(
            lambda one=one: (
                str(leaving.port) not in run(one.bootstrap_servers, "ClusterTool", *words, *SERVER)
            ),  # type: ignore[misc]
            "it is gone",
            seconds=DEADLINE_SECONDS,
        )


def described(text: str, topic: str) -> dict[int, list[dict[str, Any]]]:
    """What kafka-log-dirs says of the replicas of a topic, by broker."""
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    found = {}
    for broker in json.loads(line)["brokers"]:
        assert all(one["error"] is None for one in broker["logDirs"])
        replicas = [replica for one in broker["logDirs"] for replica in one["partitions"]]
        found[broker["broker"]] = [one for one in replicas if one["partition"] == f"{topic}-0"]
    return found


def test_the_log_directories_of_all_brokers_are_described(
    odradek: OdradekMember, kafka: KafkaMember, replicated: str
) -> None:
    for one in (odradek, kafka):
        text = run(one.bootstrap_servers, "LogDirsCommand", *SERVER, "--describe", "--topic-list", replicated)
        found = described(text, replicated)
        assert found.keys() >= {odradek.node_id, kafka.node_id}
        (ours,), (theirs,) = found[odradek.node_id], found[kafka.node_id]
        assert ours == theirs
        assert ours["size"] > 1_000_000
        assert (ours["offsetLag"], ours["isFuture"]) == (0, False)


def test_moves_are_planned_listed_and_cancelled_as_through_kafka(
    odradek: OdradekMember, kafka: KafkaMember, tmp_path: pathlib.Path
) -> None:
    outputs = []
    for one in (odradek, kafka):
        # Each moves its own topic from the other to itself, so slowly that it does not end.
        there = kafka if one is odradek else odradek
        topic = f"cancelled-{one.node_id}"
        create(one.bootstrap_servers, topic, [there.node_id])
        fill(one.bootstrap_servers, topic, 8_000_000)
        tool = Reassigning(one.bootstrap_servers, topic, CURRENT, tmp_path)
        plan = tool.plan(to="any", replicas=(one.node_id,))
        generated = tool(
            "--generate",
            "--topics-to-move-json-file",
            str(topics_file(tmp_path, topic)),
            "--broker-list",
            f"{one.node_id}",
        )
        told = [
            generated,
            tool("--execute", *plan, "--throttle", "1000"),
            tool("--list"),
            tool("--verify", *plan),
        ]
        found = partition(one.bootstrap_servers, topic)
        assert set(found.replica_nodes) == {odradek.node_id, kafka.node_id}
        told += [tool("--cancel", *plan), tool("--list"), tool("--verify", *plan)]
        found = partition(one.bootstrap_servers, topic)
        assert found.replica_nodes == [there.node_id]
        wait_until(
            lambda there=there, one=one, topic=topic: not (one.data_dir / f"{topic}-0").exists(),  # type: ignore[misc]
            "the replica is off the disk",
            seconds=DEADLINE_SECONDS,
        )
        text = "\n".join(told)
        for node, name in ((one, "HERE"), (there, "THERE")):
            text = re.sub(rf"(?<![\w.:-]){node.node_id}(?!\w|:|\.\d)", name, text)
            text = text.replace(str(node.data_dir), name)
        text = re.sub(r"(?<=brokers )\w+(,\w+)+", lambda found: ",".join(sorted(found[0].split(","))), text)
        outputs.append(text.replace(topic, "TOPIC"))
    ours, theirs = outputs
    for shown in ("Proposed partition reassignment", "is still in progress", "Successfully cancelled"):
        assert shown in ours
    assert ours == theirs


def topics_file(folder: pathlib.Path, topic: str) -> pathlib.Path:
    path = folder / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    return path


def test_replicas_are_verified_by_kafkas_tool(
    odradek: OdradekMember, kafka: KafkaMember, replicated: str, reversed_topic: str
) -> None:
    """It reads each replica as a debugging consumer, from the beginning, and compares what it got."""
    command = tool_command(
        f"{TOOLS}.ReplicaVerificationTool",
        "--broker-list",
        odradek.bootstrap_servers,
        "--topics-include",
        f"{replicated}|{reversed_topic}",
        "--time",
        "-2",
        "--report-interval-ms",
        "500",
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
        assert tool.stdout is not None
        lines: list[str] = []
        ending = threading.Timer(DEADLINE_SECONDS, tool.kill)
        ending.start()
        try:
            for line in tool.stdout:
                lines.append(line)
                if "max lag is 0 for partition" in line:
                    break
        finally:
            ending.cancel()
            tool.kill()
    assert re.search(r"max lag is 0 for partition \w+-0 at offset \d+ among 2 partitions", lines[-1]), lines
    assert not [line for line in lines if "match" in line], lines


def replicas_read(node: OdradekMember | KafkaMember, topic: str, replica_id: int, version: int) -> Any:
    """(error code, high watermark, records) of a fetch, and (error code, offset) of the latest offset."""
    side = Side("broker", node.bootstrap_servers)
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    topic_id = side.ask(wanted, 12).topics[0].topic_id
    by_name = version < FIRST_VERSION_WITH_REPLICA_STATE
    state = None if by_name else ReplicaState(replica_id=replica_id, replica_epoch=-1)
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        replica_id=replica_id if by_name else -1,
        replica_state=state,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
        rack_id="",
    )
    (data,) = side.ask(fetch, version).responses[0].partitions
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=0,
        topics=[ListOffsetsTopic(name=topic, partitions=[latest])],
    )
    (found,) = side.ask(offsets, 7).topics[0].partitions
    side.close()
    return data.error_code, data.high_watermark, bytes(data.records or b""), found.error_code, found.offset


@pytest.fixture(scope="module")
def reversed_topic(odradek: OdradekMember, kafka: KafkaMember) -> str:
    topic, both = "reversed", [kafka.node_id, odradek.node_id]
    create(kafka.bootstrap_servers, topic, both)
    wait_until(
        lambda: isr_of(kafka.bootstrap_servers, topic) == set(both), "both in sync", seconds=DEADLINE_SECONDS
    )
    fill(kafka.bootstrap_servers, topic, 500_000)
    return topic


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("reader", REPLICA_IDS)
def test_a_replica_is_read_as_it_is_by_whom_kafka_lets(
    odradek: OdradekMember,
    kafka: KafkaMember,
    replicated: str,
    reversed_topic: str,
    reader: str,
    version: int,
) -> None:
    """Of the leader and of the follower, by name and by topic id."""
    replica_id = REPLICA_IDS[reader]
    for ours, theirs in ((replicated, reversed_topic), (reversed_topic, replicated)):
        got = replicas_read(odradek, ours, replica_id, version)
        expected = replicas_read(kafka, theirs, replica_id, version)
        assert (got[0], got[3]) == (expected[0], expected[3])
        if ours == replicated:
            assert got[:2] == (0, 10)
    # The same topic, from the two replicas: a follower hears with its next request how far all have come.
    if reader == "the debugging consumer":
        wait_until(
            lambda: (
                replicas_read(odradek, replicated, -2, version)
                == replicas_read(kafka, replicated, -2, version)
            ),
            "both replicas are read alike",
            seconds=DEADLINE_SECONDS,
        )
