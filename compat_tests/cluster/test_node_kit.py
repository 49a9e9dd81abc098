"""The test kit on the nodes of `odradek.Cluster`: faults, also leaders and coordinators that really move; the
clock, requests and waits of one node. What a node cannot know it refuses in a sentence."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

import odradek
from compat_tests.clients import wait_until
from compat_tests.cluster.test_replication import Load, create, values_in
from odradek.embedding.embedded_cluster import Node
from odradek.server.test_kit.kit import TestKitError
from tests.tiers import NIGHTLY

ALL = {1, 2, 3}
SECONDS = 90
"""Longer than any change takes on a busy machine."""


OPTIONS = {
    # Nobody leaves the ISR, or leads no more, since the machine is busy.
    "broker.session.timeout.ms": 30_000,
    "replica.lag.time.max.ms": 20_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@pytest.fixture(scope="module", params=["odradek", "kafka"] if NIGHTLY else ["odradek"])
def running(request: pytest.FixtureRequest) -> Iterator[odradek.Cluster]:
    with odradek.Cluster(nodes=3, controllers=request.param, options=OPTIONS) as started:
        yield started


@pytest.fixture
def cluster(running: odradek.Cluster) -> Iterator[odradek.Cluster]:
    """As it was: each test leaves it so, also one that fails."""
    yield running
    running.start()
    for node in running.nodes:
        node.faults.clear()
        node.requests.stop()


def new_topic(cluster: odradek.Cluster, name: str, replicas: list[int]) -> Node:
    """The leader, once all replicas are in sync."""
    create(cluster.node(replicas[0]).bootstrap_servers, name, replicas)
    wait_until(lambda: cluster.in_sync(name) == set(replicas), "all are in sync", seconds=SECONDS)
    leader = cluster.leader_of(name)
    assert leader.node_id == replicas[0]
    return leader


def refusal(call: object, *arguments: object, **keywords: object) -> str:
    assert callable(call)
    with pytest.raises(TestKitError) as refused:
        call(*arguments, **keywords)
    return str(refused.value)


class PythonLoad:
    """A producer of kafka-python with acks=all that goes on, one record after the other."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=0)
        self._topic = topic
        self._ending = threading.Event()
        self.acknowledged: list[bytes] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                value = b"%d" % len(self.acknowledged)
                self._producer.send(self._topic, value, partition=0).get(SECONDS)
                self.acknowledged.append(value)
        except BaseException as error:
            self.failure = error

    def wait_for_more(self) -> None:
        target = len(self.acknowledged) + 5
        wait_until(
            lambda: self.failure is not None or len(self.acknowledged) >= target,
            "records are acknowledged",
            seconds=SECONDS,
        )
        assert self.failure is None

    def __enter__(self) -> PythonLoad:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._thread.join()
        self._producer.close()


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_producers_go_on_without_a_loss_while_the_leader_moves_and_comes_back(
    cluster: odradek.Cluster, client: str
) -> None:
    topic = f"moved-under-{client}"
    leader = new_topic(cluster, topic, [1, 2, 3])
    make = Load if client == "confluent" else PythonLoad
    with make(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
        with leader.faults.add(leader_moved=True, topic=topic, partition=0) as fault:
            assert fault.fired == 1
            assert cluster.leader_of(topic).node_id == 2
            load.wait_for_more()
        assert cluster.leader_of(topic).node_id == 1
        load.wait_for_more()
        assert leader.faults.all()[-1]["fired"] == 1
        with leader.faults.add(leader_moved=True, topic=topic, partition=0, times=3):
            # From 1 to 2, to 3, and to 1.
            assert cluster.leader_of(topic).node_id == 1
            load.wait_for_more()
        load.wait_for_more()
    assert cluster.leader_of(topic).node_id == 1
    count = len(load.acknowledged)
    assert values_in(cluster.bootstrap_servers, topic, count) == [b"%d" % one for one in range(count)]


def test_a_former_leader_refuses_what_comes_to_it(cluster: odradek.Cluster) -> None:
    """The client that has not heard of it learns it from the broker, as ever."""
    leader = new_topic(cluster, "refused-by-the-former", [2, 3, 1])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    told: list[object] = []

    def send() -> None:
        producer.produce("refused-by-the-former", b"v", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(SECONDS) == 0

    send()
    leader.requests.record()
    with leader.faults.add(leader_moved=True, topic="refused-by-the-former", partition=0):
        send()
        refused = leader.wait_for.request(api="Produce", topic="refused-by-the-former", timeout=SECONDS)
        response = refused[0].response
        assert response is not None
        code = response["responses"][0]["partition_responses"][0]["error_code_name"]
        assert code == "NOT_LEADER_OR_FOLLOWER"
        assert cluster.leader_of("refused-by-the-former").node_id == 3
    assert told == [None, None]


def test_a_move_that_cannot_be_is_refused_in_a_sentence(cluster: odradek.Cluster) -> None:
    node = new_topic(cluster, "refused-moves", [1, 2])
    create(node.bootstrap_servers, "of-one", [1])
    wait_until(lambda: cluster.leader_of("of-one").node_id == 1, "it leads", seconds=SECONDS)
    add = node.faults.add
    assert refusal(add, leader_moved=True, topic="of-one", partition=0) == (
        "nobody else could lead of-one-0: node 1 leads it, and there is no other replica in sync"
    )
    assert refusal(add, leader_moved=True, topic="nowhere", partition=0) == "there is no topic 'nowhere'"
    assert refusal(add, leader_moved=True, topic="of-one", partition=7) == "there is no partition of-one-7"
    assert refusal(add, leader_moved=True, topic="of-one") == (
        "leader_moved needs a topic and a partition on a node of a cluster"
    )
    assert refusal(add, "Produce", leader_moved=True, topic="of-one", partition=0).startswith(
        "leader_moved has no api on a node of a cluster, where it moves for all: "
    )
    assert refusal(add, coordinator_moved=True) == (
        "coordinator_moved needs a group or a transactional_id on a node of a cluster"
    )
    with add(leader_moved=True, topic="refused-moves", partition=0) as fault:
        assert refusal(add, leader_moved=True, topic="refused-moves", partition=0) == (
            f"the leader of refused-moves-0 is moved by the fault {fault.id}: remove that first"
        )
    assert cluster.leader_of("refused-moves").node_id == 1


def test_a_leader_moves_to_a_node_that_had_no_replica_and_stays_there(cluster: odradek.Cluster) -> None:
    topic = "led-from-without"
    new_topic(cluster, topic, [1, 2])
    with PythonLoad(cluster.bootstrap_servers, topic) as load:
        load.wait_for_more()
        cluster.move_leader(topic, to=3)
        assert cluster.leader_of(topic).node_id == 3
        load.wait_for_more()
        # The same as an operation of the kit of any node.
        cluster.node(2).call_kit("faults.move_leader", {"topic": topic, "partition": 0, "to": 1})
        assert cluster.leader_of(topic).node_id == 1
        load.wait_for_more()
    wait_until(lambda: cluster.in_sync(topic) == {1, 3}, "both are in sync", seconds=SECONDS)
    count = len(load.acknowledged)
    assert values_in(cluster.bootstrap_servers, topic, count) == [b"%d" % one for one in range(count)]


def test_a_leader_that_cannot_move_is_told_when_the_time_is_over(cluster: odradek.Cluster) -> None:
    node = cluster.node(1)
    given = {"topic": "not-there", "partition": 0, "to": 2, "timeout": 0.1}
    assert refusal(node.call_kit, "faults.move_leader", given) == (
        "node 2 does not lead not-there-0 after 0.1 s: there is no topic 'not-there'"
    )
    with pytest.raises(TimeoutError, match=r"does not lead not-there-0 after 1 s: .*there is no topic"):
        cluster.move_leader("not-there", to=2, timeout_s=1)


def test_a_leader_of_which_only_the_leader_is_in_sync_does_not_move(cluster: odradek.Cluster) -> None:
    topic = "alone-in-sync"
    node = new_topic(cluster, topic, [1, 3])
    cluster.node(3).kill()
    wait_until(lambda: cluster.in_sync(topic) == {1}, "one is in sync", seconds=SECONDS)
    # The node itself may hear of it last.
    told = []

    def is_refused() -> bool:
        try:
            node.faults.add(leader_moved=True, topic=topic, partition=0).remove()
        except TestKitError as error:
            told.append(str(error))
        return bool(told)

    wait_until(is_refused, "it is refused", seconds=SECONDS)
    assert cluster.leader_of(topic).node_id == 1
    cluster.start()
    wait_until(lambda: cluster.in_sync(topic) == {1, 3}, "both are in sync", seconds=SECONDS)
    with node.faults.add(leader_moved=True, topic=topic, partition=0):
        assert cluster.leader_of(topic).node_id == 3


def coordinator_of(cluster: odradek.Cluster, internal: str, partition: int) -> int:
    return cluster.leader_of(internal, partition).node_id


def test_a_group_goes_on_with_another_coordinator(cluster: odradek.Cluster) -> None:
    new_topic(cluster, "read-while-moved", [1, 2, 3])
    consumer = KafkaConsumer(
        "read-while-moved",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="moved-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("read-while-moved", b"one", partition=0).get(SECONDS)
        assert next(consumer).value == b"one"
        consumer.commit()
        node = cluster.node(1)
        with node.faults.add(coordinator_moved=True, group="moved-group") as fault:
            (told,) = [one for one in node.faults.all() if one["id"] == fault.id]
            assert (told["group"], told["fired"]) == ("moved-group", 1)
            producer.send("read-while-moved", b"two", partition=0).get(SECONDS)
            assert next(consumer).value == b"two"
            consumer.commit()
        producer.send("read-while-moved", b"three", partition=0).get(SECONDS)
        assert next(consumer).value == b"three"
        consumer.commit()
    (partition,) = consumer.assignment()
    assert consumer.committed(partition) == 3
    consumer.close()


def test_a_transaction_goes_on_with_another_coordinator(cluster: odradek.Cluster) -> None:
    new_topic(cluster, "written-while-moved", [1, 2, 3])
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "moved-transactions"}
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("written-while-moved", b"one", partition=0)
    producer.flush(SECONDS)
    with cluster.node(2).faults.add(coordinator_moved=True, transactional_id="moved-transactions"):
        producer.commit_transaction(SECONDS)
        producer.begin_transaction()
        producer.produce("written-while-moved", b"two", partition=0)
    producer.commit_transaction(SECONDS)
    consumer = KafkaConsumer(
        "written-while-moved",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    assert [next(consumer).value for _ in range(2)] == [b"one", b"two"]
    consumer.close()


def test_each_node_has_faults_of_its_own(cluster: odradek.Cluster) -> None:
    leader = new_topic(cluster, "with-faults", [3, 1, 2])
    fault = {"api": "Produce", "client_id": "shop", "error": "NOT_ENOUGH_REPLICAS"}
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer,
        leader.faults.add(**fault, times=2) as here,
        cluster.node(1).faults.add(**fault) as elsewhere,
    ):
        producer.send("with-faults", b"v", partition=0).get(SECONDS)
        assert (here.fired, elsewhere.fired) == (2, 0)


def test_each_node_has_a_clock_of_its_own(cluster: odradek.Cluster) -> None:
    node, other = cluster.node(1), cluster.node(2)
    node.clock.advance(hours=2)
    ahead_ms = node.clock.now_ms - time.time() * 1000
    assert abs(ahead_ms - 7_200_000) < 600_000
    assert abs(other.clock.now_ms - time.time() * 1000) < 600_000
    node.restart()
    assert abs(node.clock.now_ms - time.time() * 1000) < 600_000


def test_a_node_waits_for_what_it_has_and_refuses_what_others_have(cluster: odradek.Cluster) -> None:
    leader = new_topic(cluster, "of-two-nodes", [1, 2])
    follower, other = cluster.node(2), cluster.node(3)
    group_id = "waited-for"
    consumer = KafkaConsumer(
        "of-two-nodes",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("of-two-nodes", b"v", partition=0).get(SECONDS)
    assert leader.wait_for.records("of-two-nodes", 1, timeout=SECONDS) == 1
    assert follower.wait_for.records("of-two-nodes", 1, timeout=SECONDS) == 1
    assert refusal(other.wait_for.records, "of-two-nodes", 1) == (
        "of-two-nodes-0 has its replicas on the nodes 1, 2, and this is node 3: ask one of those, with a "
        "partition where none has all of them"
    )
    assert next(consumer).value == b"v"
    consumer.commit()
    found, refused = {}, {}
    for node in cluster.nodes:
        try:
            found[node.node_id] = node.wait_for.group(group_id, members=1, timeout=SECONDS)
        except TestKitError as error:
            refused[node.node_id] = str(error)
    ((coordinator, told),) = found.items()
    assert told["state"] == "Stable"
    assert refused == {
        node_id: f"node {coordinator} coordinates '{group_id}', and this is node {node_id}: ask that one"
        for node_id in ALL - {coordinator}
    }
    # Its lag is known where the coordinator has a replica of what it reads.
    if coordinator == 3:
        assert "has its replicas on the nodes 1, 2" in refusal(cluster.node(3).wait_for.lag, group_id)
    else:
        assert cluster.node(coordinator).wait_for.lag(group_id, timeout=SECONDS) == 0
    with pytest.raises(odradek.WaitTimeout, match="there is no topic 'nowhere'"):
        other.wait_for.records("nowhere", 1, timeout=0.1)
    consumer.close()


def test_a_transaction_is_waited_for_at_its_coordinator(cluster: odradek.Cluster) -> None:
    new_topic(cluster, "in-transactions", [1, 2, 3])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "waited-for"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("in-transactions", b"v", partition=0)
    producer.commit_transaction(SECONDS)
    states, refused = [], []
    for node in cluster.nodes:
        try:
            states.append(node.wait_for.transaction("waited-for", timeout=SECONDS))
        except TestKitError as error:
            refused.append(str(error))
    assert states == ["CompleteCommit"]
    assert [" coordinates 'waited-for', and this is node " in one for one in refused] == [True, True]


def test_each_node_records_its_own_requests(cluster: odradek.Cluster) -> None:
    leader = new_topic(cluster, "recorded", [2, 1, 3])
    for node in cluster.nodes:
        node.requests.record()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
        producer.send("recorded", b"v", partition=0).get(SECONDS)
    by_node = {
        node.node_id: len(node.requests(api="Produce", client_id="shop", topic="recorded"))
        for node in cluster.nodes
    }
    assert by_node == {1: 0, 2: 1, 3: 0}
    assert leader.wait_for.request(api="Fetch", topic="recorded", timeout=SECONDS), "followers are seen, too"


def test_retention_and_rolls_are_those_of_a_node(cluster: odradek.Cluster) -> None:
    node = new_topic(cluster, "rolled", [1, 2, 3])
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("rolled", b"v", partition=0).get(SECONDS)
    node.roll("rolled")
    assert len(list((node.data_dir / "rolled-0").glob("*.log"))) == 2
    node.run_retention()
    assert refusal(node.compact, "nowhere")
    admin = AdminClient({"bootstrap.servers": node.bootstrap_servers})
    for created in admin.create_topics([NewTopic("unrelated", 1, 3)]).values():
        created.result(SECONDS)


def test_a_snapshot_of_a_node_is_refused(cluster: odradek.Cluster) -> None:
    assert refusal(cluster.node(1).call_kit, "snapshots.add", {}) == (
        "snapshots are for a broker alone, and this one is a node of a cluster"
    )
