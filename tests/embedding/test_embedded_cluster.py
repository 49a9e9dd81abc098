"""`odradek.Cluster` without a start: what is wrong is told in a sentence, and cuts are counted right.

`compat_tests/cluster/test_embedded.py` has the tests of clusters that run.
"""

import json
import socket

import pytest

import odradek
from odradek.config.properties import parse_properties
from odradek.embedding.apache_kafka import LIBS_VARIABLE

SILENT_JAVA = """#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "17.0.9"' >&2 ;;
  *StorageTool*) echo formatted ;;
  *) exec sleep 600 ;;
esac
"""
"""Formats nothing, and is a controller that answers nobody."""


@pytest.fixture
def silent_java(tmp_path, monkeypatch):
    for folder, name, text in (("bin", "java", SILENT_JAVA), ("libs", "kafka_2.13-4.1.0.jar", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
        (tmp_path / folder / name).chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv(LIBS_VARIABLE, str(tmp_path / "libs"))


@pytest.fixture
def make(tmp_path):
    clusters = []

    def make(**arguments):
        arguments.setdefault("data_dir", tmp_path / "cluster")
        clusters.append(odradek.Cluster(**arguments))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


def refusal(cluster):
    with pytest.raises(odradek.ClusterStartError) as refused:
        cluster.start()
    assert not any(one.is_running for one in (*cluster.nodes, *cluster.controllers))
    return str(refused.value)


def properties_of(folder):
    return parse_properties((folder / "server.properties").read_bytes())


def test_a_wrong_option_is_told_before_java_is_looked_for(make, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "Did you mean num.partitions?" in refusal(make(num_partition=4))
    assert "replica.lag.time.max.ms" in refusal(make(replica_lag_time_max_ms="soon"))
    assert refusal(make(controllers="kafka")).startswith(
        "Apache Kafka's controllers need Java 17 or later, and there is no java"
    )


@pytest.mark.parametrize(
    "arguments",
    [{"listeners": "PLAINTEXT://:9092"}, {"node_options": {2: {"listeners": "PLAINTEXT://:9092"}}}],
)
def test_what_a_cluster_sets_by_itself_is_refused(make, arguments):
    assert refusal(make(**arguments)) == (
        "odradek.Cluster sets listeners by itself: leave it out of the options"
    )


def test_options_of_a_node_that_is_not_there_are_refused(make):
    assert (
        refusal(make(nodes=2, node_options={3: {}})) == "node_options has node 3, and there are nodes 1 to 2"
    )


def test_a_cluster_without_a_node_or_a_controller_is_none():
    for arguments in ({"nodes": 0}, {"controllers": 0}):
        with pytest.raises(ValueError, match="one node and one controller at least"):
            odradek.Cluster(**arguments)
    with pytest.raises(ValueError, match="or a number of those, not 'zookeeper'"):
        odradek.Cluster(controllers="zookeeper")


def test_a_taken_port_is_told_in_a_sentence_and_nothing_is_left_running(make):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refusal(make(nodes=1, port=port))
    assert told == (
        f"node 1: listeners: 127.0.0.1:{port} (listener PLAINTEXT) is taken by another process; stop it or "
        "choose another port (0 picks a free one)."
    )


def test_controllers_that_do_not_answer_are_told_with_the_log(make, silent_java):
    told = refusal(make(nodes=1, controllers="kafka", start_timeout_s=2))
    assert told.startswith("controller 1001 was not ready within 2 s")


def test_each_member_has_its_properties_and_all_have_the_options(make, silent_java, tmp_path):
    cluster = make(
        nodes=3,
        controllers=2,
        num_partitions=5,
        options={"min.insync.replicas": 1},
        node_options={2: {"broker_rack": "b"}},
        start_timeout_s=0.1,
    )
    refusal(cluster)
    folder = tmp_path / "cluster"
    nodes = [properties_of(folder / f"node-{number}") for number in (1, 2, 3)]
    controllers = [properties_of(folder / f"controller-{number}") for number in (1001, 1002)]
    for properties in (*nodes, *controllers):
        assert properties["num.partitions"] == "5"
        assert properties["min.insync.replicas"] == "1"
        assert properties["group.initial.rebalance.delay.ms"] == "0"
        assert properties["default.replication.factor"] == "3"
    assert [properties.get("broker.rack") for properties in nodes] == [None, "b", None]
    assert [properties["node.id"] for properties in nodes] == ["1", "2", "3"]
    assert (
        len({properties["controller.quorum.bootstrap.servers"] for properties in (*nodes, *controllers)}) == 1
    )
    assert [node.data_dir for node in cluster.nodes] == [folder / f"node-{n}" / "data" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("nodes", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_replicas_are_as_many_as_the_nodes_allow(make, silent_java, tmp_path, nodes, replicas, in_sync):
    refusal(make(nodes=nodes, controllers=1, start_timeout_s=0.1))
    properties = properties_of(tmp_path / "cluster" / "node-1")
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert properties[f"{name}.replication.factor"] == replicas
    assert properties["min.insync.replicas"] == properties["transaction.state.log.min.isr"] == in_sync


def test_a_directory_keeps_the_id_and_the_ports_of_its_cluster(make, silent_java, tmp_path):
    first = make(nodes=2, controllers=1, start_timeout_s=0.1)
    refusal(first)
    second = make(nodes=2)
    assert second.cluster_id == first.cluster_id
    assert second.bootstrap_servers == first.bootstrap_servers
    assert json.loads((tmp_path / "cluster" / "cluster.json").read_text())["cluster_id"] == first.cluster_id
    with pytest.raises(
        odradek.ClusterStartError, match="has a cluster of 2 nodes and 1 controllers, not of 3 and 1"
    ):
        make(nodes=3)


def test_a_temporary_directory_goes_away():
    cluster = odradek.Cluster(nodes=1)
    assert cluster.data_dir.exists()
    cluster.close()
    assert not cluster.data_dir.exists()


def test_who_is_cut_off_from_whom(make):
    cluster = make(nodes=3)
    one, two, three = cluster.nodes
    (controller,) = cluster.controllers
    one.partition_from(two)
    assert cluster.cuts == {(1, 2), (2, 1)}
    one.partition_from(3, direction="to")
    two.partition_from(controllers=True, direction="from")
    assert cluster.cuts == {(1, 2), (2, 1), (1, 3), (1001, 2)}
    three.heal()
    assert cluster.cuts == {(1, 2), (2, 1), (1001, 2)}
    two.heal()
    assert cluster.cuts == set()
    two.partition_from(*cluster.nodes, controller)
    assert cluster.cuts == {(2, 1), (1, 2), (2, 3), (3, 2), (2, 1001), (1001, 2)}
    cluster.heal()
    assert cluster.cuts == set()


def test_nobody_is_cut_off_from_nobody(make):
    cluster = make(nodes=2)
    one, _ = cluster.nodes
    for others in ((), (one,), (3,)):
        with pytest.raises(ValueError, match="name other members of the cluster"):
            one.partition_from(*others)
    with pytest.raises(ValueError, match="direction is"):
        one.partition_from(2, direction="up")
    assert cluster.cuts == set()


def test_a_node_that_does_not_run_is_not_paused_and_leads_nothing(make):
    cluster = make(nodes=1)
    with pytest.raises(RuntimeError, match="node 1 does not run"):
        cluster.node(1).pause()
    with pytest.raises(TimeoutError, match="no node that runs leads orders-0 after 0 s"):
        cluster.leader_of("orders", timeout_s=0)
    assert cluster.in_sync("orders") == set()
    assert repr(cluster) == "<odradek.Cluster of 1 nodes, 0 of them running>"
    assert repr(cluster.nodes) == "[<Node 1 of odradek.Cluster, stopped>]"
    cluster.stop()  # harmless


def test_a_coordinator_is_that_of_one_group_or_transactional_id(make):
    cluster = make(nodes=2)
    with pytest.raises(ValueError, match="name a group or a transactional_id"):
        cluster.coordinator_of()
    with pytest.raises(ValueError, match="name a group or a transactional_id"):
        cluster.move_coordinator("shop", transactional_id="till", to=1)


def test_nothing_moves_in_a_cluster_that_does_not_run(make):
    cluster = make(nodes=2)
    with pytest.raises(KeyError):
        cluster.move_leader("orders", to=7)
    with pytest.raises(TimeoutError, match="nobody coordinates 'shop' after 0 s"):
        cluster.coordinator_of("shop", timeout_s=0)
