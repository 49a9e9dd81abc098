"""A cluster of ours in a ZooKeeper: each node is there, one writes for all, and old tools see what is so."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest

import odradek
from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import PATIENT, SESSION_MS, Looking
from compat_tests.zookeeper.sharing import PARTITIONS, ConsoleConsumers, Topic, has_come

VERSION = "0.10.2.2"
TOPICS = "kafka.admin.TopicCommand"
REASSIGN = "kafka.admin.ReassignPartitionsCommand"
IDS = {1, 2, 3}


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[odradek.Cluster]:
    in_zookeeper = {
        "zookeeper.connect": address,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        **PATIENT,
    }
    options = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with odradek.Cluster(3, options=options, node_options=dict.fromkeys(IDS, in_zookeeper)) as one:
        yield one


@pytest.fixture(autouse=True)
def all_nodes(cluster: odradek.Cluster, looking: Looking) -> Iterator[None]:
    """Each test finds all of them, and a writer."""
    for node in cluster.nodes:
        node.start()
    wait_until(lambda: registered(looking) == IDS and writer(looking) in IDS, "all are there")
    yield
    for node in cluster.nodes:
        node.start()


def registered(looking: Looking) -> set[int]:
    return set(map(int, looking.children("/brokers/ids")))


def writer(looking: Looking) -> int | None:
    """The node that writes for the cluster; None: there is none."""
    found = looking.json("/controller")
    return None if found is None else int(found["brokerid"])


def epoch(looking: Looking) -> int:
    return int(looking.read("/controller_epoch") or b"0")


def tool(address: str, main_class: str, words: str) -> str:
    arguments = ("--zookeeper", address, *words.split())
    return reference.kafka_tool(main_class, *arguments, version=VERSION).stdout


def state(looking: Looking, topic: str, index: int = 0) -> tuple[int, set[int]]:
    """The leader of a partition and its ISR; nobody leads what is not there."""
    found = looking.json(f"/brokers/topics/{topic}/partitions/{index}/state")
    return (-1, set()) if found is None else (int(found["leader"]), set(found["isr"]))


def are_so(cluster: odradek.Cluster, looking: Looking, topic: str) -> bool:
    """Whether ZooKeeper has the leaders and ISRs that clients are told."""
    return all(
        state(looking, topic, index)
        == (cluster.leader_of(topic, index).node_id, cluster.in_sync(topic, index))
        for index in range(PARTITIONS)
    )


@pytest.fixture
def topic(cluster: odradek.Cluster, looking: Looking) -> Topic:
    one = Topic(cluster.bootstrap_servers, topic_name("followed"), 3)
    wait_until(lambda: are_so(cluster, looking, one.name), "ZooKeeper has it")
    return one


def test_each_node_is_there_and_one_is_the_controller(cluster: odradek.Cluster, looking: Looking) -> None:
    owners = set()
    for node in cluster.nodes:
        found = looking.json(f"/brokers/ids/{node.node_id}")
        assert f"{found['host']}:{found['port']}" == node.bootstrap_servers
        owners.add(looking.client.exists(f"/brokers/ids/{node.node_id}").ephemeralOwner)
    assert len(owners) == 3, "each by a session of its own"
    assert looking.client.exists("/controller").ephemeralOwner in owners
    assert looking.json("/cluster/id")["id"] == cluster.cluster_id


def test_old_tools_make_topics_with_three_replicas(
    cluster: odradek.Cluster, address: str, looking: Looking
) -> None:
    topic = topic_name("made")
    tool(address, TOPICS, f"--create --topic {topic} --partitions {PARTITIONS} --replication-factor 3")
    wait_until(lambda: cluster.in_sync(topic, PARTITIONS - 1) == IDS, "the nodes have it")
    wait_until(lambda: are_so(cluster, looking, topic), "and ZooKeeper has leaders and ISRs")
    path = f"/brokers/topics/{topic}"
    assert looking.client.exists(path).version > 0, (
        "the tool's node is written over, and has always been there"
    )
    assert looking.client.exists(f"/config/topics/{topic}").czxid < looking.client.exists(path).czxid, (
        "so are settings"
    )
    tool(address, TOPICS, f"--alter --topic {topic} --config retention.ms=100000")
    wait_until(lambda: looking.children("/config/changes") == [], "the setting is taken")
    assert looking.json(f"/config/topics/{topic}")["config"] == {"retention.ms": "100000"}, "and stays"
    described = tool(address, TOPICS, f"--describe --topic {topic}")
    assert re.search(rf"PartitionCount:{PARTITIONS}\s+ReplicationFactor:3", described)
    tool(address, TOPICS, f"--delete --topic {topic}")
    wait_until(lambda: topic not in looking.children("/brokers/topics"), "it is gone")


def test_leaders_and_isrs_follow_kills(cluster: odradek.Cluster, looking: Looking, topic: Topic) -> None:
    killed = next(node for node in cluster.nodes if node.node_id != writer(looking))
    before = writer(looking), epoch(looking)
    killed.kill()
    left = IDS - {killed.node_id}
    wait_until(lambda: registered(looking) == left, "its session ends")
    wait_until(
        lambda: all(state(looking, topic.name, index)[1] == left for index in range(PARTITIONS)),
        "no ISR has it any more",
    )
    assert are_so(cluster, looking, topic.name)
    assert all(state(looking, topic.name, index)[0] in left for index in range(PARTITIONS))
    killed.start()
    wait_until(
        lambda: all(state(looking, topic.name, index)[1] == IDS for index in range(PARTITIONS)),
        "it is in all of them again",
    )
    assert (writer(looking), epoch(looking)) == before, "the same node has written it all"


@pytest.mark.nightly
def test_another_node_writes_after_a_clean_stop(
    cluster: odradek.Cluster, looking: Looking, topic: Topic
) -> None:
    before = writer(looking)
    assert before is not None
    another_writes_after(cluster.node(before).stop, cluster, looking, topic)


def test_another_node_writes_after_a_kill_of_the_controller(
    cluster: odradek.Cluster, looking: Looking, topic: Topic
) -> None:
    before = writer(looking)
    assert before is not None
    another_writes_after(cluster.node(before).kill, cluster, looking, topic)


def another_writes_after(
    end: Callable[[], object], cluster: odradek.Cluster, looking: Looking, topic: Topic
) -> None:
    """`end` is of the node that writes."""
    before, epoch_before = writer(looking), epoch(looking)
    assert before is not None
    left = IDS - {before}
    end()
    wait_until(lambda: writer(looking) in left, "another one is the controller")
    assert epoch(looking) > epoch_before
    wait_until(
        lambda: all(state(looking, topic.name, index)[1] == left for index in range(PARTITIONS)),
        "which tells that the ISRs have shrunk",
    )
    more = Topic(cluster.bootstrap_servers, topic_name("later"), 2)
    wait_until(lambda: are_so(cluster, looking, more.name), "and that there is another topic")
    cluster.node(before).start()
    wait_until(lambda: registered(looking) == IDS, "it is there again")
    wait_until(lambda: are_so(cluster, looking, topic.name), "all is so")


def test_a_partition_moves_by_the_old_tool(
    cluster: odradek.Cluster, address: str, looking: Looking, tmp_path: pathlib.Path
) -> None:
    topic = topic_name("moved")
    tool(address, TOPICS, f"--create --topic {topic} --replica-assignment 1:2")
    wait_until(lambda: state(looking, topic) == (1, {1, 2}), "it is there")
    file = tmp_path / "moves.json"
    move = {"topic": topic, "partition": 0, "replicas": [3, 2]}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    words = f"--reassignment-json-file {file}"
    assert "Successfully started" in tool(address, REASSIGN, f"{words} --execute")
    wait_until(lambda: looking.read("/admin/reassign_partitions") is None, "it has been carried out")
    wait_until(lambda: state(looking, topic)[1] == {2, 3}, "ZooKeeper has the new replicas")
    found = looking.json(f"/brokers/topics/{topic}")
    assert found["partitions"] == {"0": [3, 2]}
    assert (found["adding_replicas"], found["removing_replicas"]) == ({}, {})
    assert "completed successfully" in tool(address, REASSIGN, f"{words} --verify")
    tool(address, "kafka.admin.PreferredReplicaLeaderElectionCommand", "")
    wait_until(lambda: state(looking, topic) == (3, {2, 3}), "the first replica leads")


def test_the_node_of_a_move_stays_until_the_move_is_done(
    cluster: odradek.Cluster, address: str, looking: Looking, tmp_path: pathlib.Path
) -> None:
    """Old tools take it for the sign that partitions move."""
    topic = topic_name("waits")
    tool(address, TOPICS, f"--create --topic {topic} --replica-assignment 1:2")
    wait_until(lambda: state(looking, topic) == (1, {1, 2}), "it is there")
    cluster.node(3).kill()
    wait_until(lambda: registered(looking) == {1, 2} and writer(looking) in {1, 2}, "node 3 is gone")
    file = tmp_path / "moves.json"
    move = {"topic": topic, "partition": 0, "replicas": [3, 2]}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    words = f"--reassignment-json-file {file}"
    looking.client.create("/admin/reassign_partitions", file.read_bytes())
    path = f"/brokers/topics/{topic}"
    wait_until(lambda: looking.json(path)["adding_replicas"] == {"0": [3]}, "the move has begun")
    assert looking.json(path)["removing_replicas"] == {"0": [1]}
    assert "still in progress" in tool(address, REASSIGN, f"{words} --verify")
    before = writer(looking)
    looking.client.delete("/controller")
    wait_until(lambda: writer(looking) is not None, f"another election than that of {before}")
    assert looking.read("/admin/reassign_partitions") is not None
    cluster.node(3).start()
    wait_until(lambda: looking.read("/admin/reassign_partitions") is None, "the move is done")
    wait_until(lambda: state(looking, topic)[1] == {2, 3}, "ZooKeeper has the new replicas")
    assert looking.json(path)["partitions"] == {"0": [3, 2]}
    assert "completed successfully" in tool(address, REASSIGN, f"{words} --verify")


def test_an_old_consumer_reads_over_a_kill_of_a_leader(
    cluster: odradek.Cluster, address: str, looking: Looking, topic: Topic, tmp_path: pathlib.Path
) -> None:
    group = ConsoleConsumers(VERSION, address, looking, tmp_path)
    try:
        group.join("--topic", topic.name)
        topic.write()
        wait_until(has_come(topic, group), "all has come")
        cluster.leader_of(topic.name).kill()
        topic.write()
        wait_until(has_come(topic, group), "all has come from the leaders that are left")
        assert sorted(group.lines) == sorted(topic.written), "nothing twice"
    finally:
        group.end()
