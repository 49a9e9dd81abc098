"""`odradek.Cluster`: its nodes are killed, restarted, paused and cut off; nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

import odradek
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.conftest import EMBEDDED
from compat_tests.cluster.test_replication import Load, create, values_in

ALL = {1, 2, 3}
PARTITIONS = EMBEDDED["num.partitions"]
"""Of a topic that is made by itself: each node leads two."""
REPLICA_FETCH_WAIT_SECONDS = 0.5
"""replica.fetch.wait.max.ms"""
SECONDS = 90
"""Longer than any change takes on a busy machine."""


@pytest.fixture
def cluster(running: odradek.Cluster) -> Iterator[odradek.Cluster]:
    """As it was: each test leaves it so, also one that fails."""
    yield running
    running.heal()
    for node in running.nodes:
        if node.is_running and node.process.is_paused:
            node.resume()
    running.start()


def new_topic(cluster: odradek.Cluster, name: str, leader: int) -> str:
    """Returns when all replicas are in sync and the first of them leads."""
    create(cluster.node(leader).bootstrap_servers, name, [leader, *sorted(ALL - {leader})])
    wait_until(lambda: cluster.in_sync(name) == ALL, "all are in sync", seconds=SECONDS)
    assert cluster.leader_of(name).node_id == leader
    return name


def wait_for_isr(cluster: odradek.Cluster, topic: str, expected: set[int]) -> None:
    wait_until(lambda: cluster.in_sync(topic) == expected, f"in sync are {expected}", seconds=SECONDS)


def wait_for_other_leader(cluster: odradek.Cluster, topic: str, than: int) -> None:
    wait_until(lambda: cluster.leader_of(topic).node_id != than, "another leads", seconds=SECONDS)


def check_values(cluster: odradek.Cluster, topic: str, load: Load) -> None:
    """Each record that was acknowledged is there once, in order."""
    count = len(load.acknowledged)
    assert values_in(cluster.bootstrap_servers, topic, count) == [b"%d" % number for number in range(count)]


def test_topics_have_three_replicas_two_of_which_have_to_be_in_sync(cluster: odradek.Cluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.nodes[1].bootstrap_servers, acks="all") as producer:
        assert producer.send("by-itself", b"v").get(DEADLINE_SECONDS).offset == 0
    assert cluster.in_sync("by-itself") == ALL
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    topic = ConfigResource(ConfigResourceType.TOPIC, "by-itself", ["min.insync.replicas"])
    described = admin.describe_configs([topic], config_filter="all")
    assert described["topic"]["by-itself"]["min.insync.replicas"]["value"] == "2"
    assert {one["broker_id"] for one in admin.describe_cluster()["brokers"]} == ALL
    admin.close()


def test_idle_partitions_do_not_keep_records_of_another_from_the_followers(cluster: odradek.Cluster) -> None:
    """A follower asks for what comes after these records with its very next request. On a busy machine many
    take long; if the request waited for the idle partitions, all would."""
    took = []
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
        for place in range(2 * PARTITIONS + 21):
            began = time.monotonic()
            producer.send("many", b"v", partition=place % PARTITIONS).get(DEADLINE_SECONDS)
            took.append(time.monotonic() - began)
    quickest_quarter, *_ = statistics.quantiles(took[2 * PARTITIONS :])
    assert quickest_quarter < REPLICA_FETCH_WAIT_SECONDS / 2


@pytest.mark.parametrize("how", [pytest.param("kill", marks=pytest.mark.smoke), "stop"])
def test_a_leader_that_ends_is_followed_by_another_and_comes_back(cluster: odradek.Cluster, how: str) -> None:
    topic = new_topic(cluster, f"ended-{how}", 1)
    leader = cluster.leader_of(topic)
    address, pid = leader.bootstrap_servers, leader.pid
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
        getattr(leader, how)()
        assert (leader.is_running, leader.pid) == (False, None)
        assert cluster.leader_of(topic) is not leader
        load.wait_for_more()
        leader.start()
        assert leader.is_running
        assert leader.pid != pid
        assert leader.bootstrap_servers == address
        wait_for_isr(cluster, topic, ALL)
        load.wait_for_more()
    check_values(cluster, topic, load)


def test_a_paused_leader_that_wakes_up_leads_no_more_and_has_lost_nothing(cluster: odradek.Cluster) -> None:
    topic = new_topic(cluster, "paused", 2)
    leader = cluster.node(2)
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
        leader.pause()
        assert leader.is_running
        wait_for_other_leader(cluster, topic, 2)
        leader.resume()
        wait_for_isr(cluster, topic, ALL)
        load.wait_for_more()
    check_values(cluster, topic, load)


@pytest.mark.parametrize("direction", ["both", "to", "from"])
def test_a_follower_that_is_cut_off_from_its_leader_leaves_the_isr_and_comes_back(
    cluster: odradek.Cluster, direction: str
) -> None:
    """Whether its requests do not reach the leader, or the answers do not reach it."""
    topic = new_topic(cluster, f"follower-{direction}", 1)
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
        cluster.node(3).partition_from(1, direction=direction)  # type: ignore[arg-type]
        wait_for_isr(cluster, topic, {1, 2})
        load.wait_for_more()
        cluster.node(3).heal()
        wait_for_isr(cluster, topic, ALL)
    assert cluster.leader_of(topic).node_id == 1
    check_values(cluster, topic, load)


@pytest.mark.parametrize("direction", ["both", "to", "from"])
def test_a_leader_that_is_cut_off_is_replaced_and_acknowledges_nothing_that_is_lost(
    cluster: odradek.Cluster, direction: str
) -> None:
    """Clients reach it all the time: some wait for it, others have found the new leader. One that only hears
    is fenced as one that is only heard: a connection takes both."""
    topic = new_topic(cluster, f"leader-{direction}", 3)
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
        cluster.node(3).partition_from(1, 2, controllers=True, direction=direction)  # type: ignore[arg-type]
        wait_for_other_leader(cluster, topic, 3)
        with KafkaProducer(bootstrap_servers=cluster.node(1).bootstrap_servers, acks="all") as other:
            other.send(topic, b"other").get(DEADLINE_SECONDS)
        cluster.node(3).heal()
        wait_for_isr(cluster, topic, ALL)
        load.wait_for_more()
    count = len(load.acknowledged)
    found = values_in(cluster.bootstrap_servers, topic, count + 1)
    assert found.count(b"other") == 1
    found.remove(b"other")
    assert found == [b"%d" % number for number in range(count)]


def test_a_node_that_the_controllers_do_not_hear_is_fenced_and_comes_back(cluster: odradek.Cluster) -> None:
    topic = new_topic(cluster, "unheard", 2)
    node = cluster.node(2)
    node.partition_from(*cluster.controllers, direction="to")
    wait_for_other_leader(cluster, topic, 2)
    wait_for_isr(cluster, topic, {1, 3})
    node.heal()
    wait_for_isr(cluster, topic, ALL)


def test_a_cluster_that_stops_and_starts_has_its_records(cluster: odradek.Cluster) -> None:
    topic = new_topic(cluster, "stopped", 1)
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
    cluster.stop()
    assert not any(one.is_running for one in (*cluster.nodes, *cluster.controllers))
    cluster.start()
    assert cluster.is_running
    wait_for_isr(cluster, topic, ALL)
    check_values(cluster, topic, load)


def test_without_a_controller_clients_go_on(cluster: odradek.Cluster) -> None:
    topic = new_topic(cluster, "without-controller", 1)
    (controller,) = cluster.controllers
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
        controller.kill()
        load.wait_for_more()
        controller.start()
        wait_until(lambda: _can_create(cluster), "topics are made again", seconds=SECONDS)
        load.wait_for_more()
    check_values(cluster, topic, load)


def _can_create(cluster: odradek.Cluster) -> bool:
    with (
        contextlib.suppress(KafkaError),
        KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics({"after-controller": {"num_partitions": 1, "replication_factor": 3}})
    return cluster.in_sync("after-controller") == ALL


def test_a_directory_that_is_given_has_the_cluster_again(tmp_path: pathlib.Path) -> None:
    """One node and three controllers, one of which is killed."""
    arguments = {"nodes": 1, "controllers": 3, "data_dir": tmp_path, "options": EMBEDDED}
    with odradek.Cluster(**arguments) as cluster:  # type: ignore[arg-type]
        bootstrap = cluster.bootstrap_servers
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            producer.send("kept", b"one").get(DEADLINE_SECONDS)
        cluster.controllers[0].kill()
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            wait_until(lambda: _is_taken(producer, "another"), "a topic is made", seconds=SECONDS)
    with odradek.Cluster(**arguments) as cluster:  # type: ignore[arg-type]
        assert cluster.bootstrap_servers == bootstrap
        assert values_in(bootstrap, "kept", 1) == [b"one"]


def _is_taken(producer: KafkaProducer, topic: str) -> bool:
    try:
        producer.send(topic, b"v").get(5)
    except KafkaError:
        return False
    return True


def test_all_processes_end_with_the_program_however_that_ends(tmp_path: pathlib.Path) -> None:
    """Also a node that is paused."""
    program = """
        import os, signal, sys, odradek
        cluster = odradek.Cluster(nodes=2, data_dir=sys.argv[1]).start()
        cluster.nodes[0].pause()
        print(*(one.pid for one in (*cluster.nodes, *cluster.controllers)), cluster.links_pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        timeout=200,
    )
    assert result.returncode == -signal.SIGKILL
    pids = [int(text) for text in result.stdout.split()]
    assert len(pids) == 4
    wait_until(lambda: not any(map(_lives, pids)), "all have ended", seconds=SECONDS)


def _lives(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_leader_moves_to_the_node_that_a_test_wants(cluster: odradek.Cluster) -> None:
    topic = new_topic(cluster, "moves", 1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for number, node in enumerate([2, cluster.node(3), 1]):
            cluster.move_leader(topic, to=node)
            assert cluster.leader_of(topic) is (cluster.node(node) if isinstance(node, int) else node)
            assert producer.send(topic, b"%d" % number).get(DEADLINE_SECONDS).offset == number
    assert cluster.in_sync(topic) == ALL


def test_a_coordinator_moves_and_its_group_goes_on(cluster: odradek.Cluster) -> None:
    topic = new_topic(cluster, "moves-groups", 1)
    settings = {"bootstrap_servers": cluster.bootstrap_servers}
    with KafkaProducer(acks="all", **settings) as producer:
        producer.send(topic, b"v").get(DEADLINE_SECONDS)
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False, **settings
    )
    assert next(consumer).value == b"v"
    before = cluster.coordinator_of(topic)
    for node in (*(one for one in cluster.nodes if one is not before), before):
        cluster.move_coordinator(topic, to=node)
        assert cluster.coordinator_of(topic) is node
        consumer.commit()
    assert consumer.committed(TopicPartition(topic, 0)) == 1
    consumer.close()
    cluster.move_coordinator(transactional_id=topic, to=2)
    assert cluster.coordinator_of(transactional_id=topic).node_id == 2
