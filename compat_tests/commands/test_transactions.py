"""`odradek transactions` and `producers` say what kafka-python's AdminClient and Kafka's own tool say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition

import odradek
from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.reference import kafka_tool
from compat_tests.stories import topic_name
from odradek.client.cluster import LATEST, Cluster, leader_of
from odradek.client.settings import ClientSettings
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import build_batch

Rows = list[dict[str, Any]]
Command = Callable[..., Rows]
TOOL = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = topic_name("transactions")
    KafkaPythonClient(bootstrap).create_topic(name, 2)
    return name


@pytest.fixture(scope="module")
def trusting(request: pytest.FixtureRequest) -> Iterator[str]:
    """host:port of a broker that takes records of transactions which no coordinator knows, as those before
    Kafka 3.6 do."""
    options = {"transaction.partition.verification.enable": "false"}
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(properties=options, host=shared_host()) as kafka:
            yield kafka.bootstrap_servers
    else:
        with odradek.Broker(process=True, options=options) as ours:
            yield ours.bootstrap_servers


def transactional(bootstrap: str, transactional_id: str) -> Producer:
    """With an open transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def write(producer: Producer, topic: str, partition: int, count: int) -> None:
    for _ in range(count):
        producer.produce(topic, b"v", partition=partition)
    assert producer.flush(30) == 0


def test_transactions_are_those_of_the_admin_client(
    rows: Command, admin: KafkaAdminClient, topic: str, bootstrap: str
) -> None:
    names = [f"{topic}-one", f"{topic}-two"]
    first, second = (transactional(bootstrap, name) for name in names)
    write(first, topic, 0, 3)
    write(first, topic, 1, 1)
    write(second, topic, 1, 2)
    second.abort_transaction(30)

    def settled() -> bool:
        return [row["state"] for row in rows("transactions", "list", f"{topic}-*")] == [
            "Ongoing",
            "CompleteAbort",
        ]

    wait_until(settled, "the second transaction has ended")
    mine = rows("transactions", "list", f"{topic}-*")
    listed = {one.transactional_id: one for of in admin.list_transactions().values() for one in of}
    described = admin.describe_transactions(names)
    for row in mine:
        theirs = described[row["transactional_id"]]
        assert (row["state"], row["producer_id"], row["producer_epoch"], row["timeout_ms"]) == (
            str(getattr(theirs.state, "value", theirs.state)),
            theirs.producer_id,
            theirs.producer_epoch,
            theirs.transaction_timeout_ms,
        )
        assert row["producer_id"] == listed[row["transactional_id"]].producer_id
        assert row["partitions"] == sorted(f"{one.topic}:{one.partition}" for one in theirs.topic_partitions)
    one, two = mine
    assert one["start_time_ms"] == described[names[0]].transaction_start_time_ms
    assert 0 <= one["open_seconds"] < 60
    assert (two["start_time_ms"], two["open_seconds"], two["partitions"]) == (None, None, [])
    assert [
        row["transactional_id"] for row in rows("transactions", "list", "--older", "0.001", topic + "*")
    ] == [names[0]]
    by_producer = rows("transactions", "list", "--producer", str(one["producer_id"]))
    assert [row["transactional_id"] for row in by_producer] == [names[0]]
    (alone,) = rows("transactions", "describe", names[1])
    assert {**alone, "coordinator": two["coordinator"]} == two
    first.abort_transaction(30)


def test_producers_are_those_of_the_admin_client(
    rows: Command, admin: KafkaAdminClient, topic: str, bootstrap: str
) -> None:
    name = f"{topic}-one"
    first = transactional(bootstrap, name)
    write(first, topic, 0, 3)
    write(Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}), topic, 0, 2)
    write(Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}), topic, 1, 5)
    keys = (
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_timestamp_ms",
        "coordinator_epoch",
        "transaction_start_offset",
    )

    def theirs() -> list[Any]:
        found = admin.describe_producers([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        return sorted(
            (
                where.partition,
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                one.current_transaction_start_offset,
            )
            for where, state in found.items()
            for one in state.active_producers
        )

    def told(found: Rows) -> list[Any]:
        return [(row["partition"], *(-1 if row[key] is None else row[key] for key in keys)) for row in found]

    mine = rows("producers", topic)
    assert told(mine) == [tuple(-1 if one is None else one for one in producer) for producer in theirs()]
    assert [row["partition"] for row in mine] == [0, 0, 1]
    (opened,) = rows("producers", topic, "--open")
    assert (opened["transactional_id"], opened["last_sequence"]) == (name, 2)
    assert {row["transactional_id"] for row in mine} == {None, name}
    assert rows("producers", f"{topic}:1") == mine[2:]
    first.commit_transaction(30)
    wait_until(lambda: rows("producers", topic, "--open") == [], "the transaction has ended")


def write_hanging(cluster: Cluster, topic: str, producer_id: int, timestamp_ms: int) -> None:
    batch = build_batch(
        [(0, timestamp_ms, None, b"v", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    request = ProduceRequest(
        transactional_id=f"id-of-{producer_id}",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    answer = cluster.ask(leader_of(topic, 0), request, version_max=11)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_hanging_transactions_are_found_as_by_the_tool_of_kafka_and_aborted(
    rows: Command, trusting: str
) -> None:
    topic = topic_name("hanging")
    KafkaPythonClient(trusting).create_topic(topic, 1)
    at = {"bootstrap": trusting}

    def of_the_tool() -> list[list[str]]:
        run = kafka_tool(
            TOOL, "--bootstrap-server", trusting, "find-hanging", "--topic", topic, timeout_seconds=120
        )
        return [line.split() for line in run.stdout.splitlines() if line.startswith(topic)]

    with Cluster(ClientSettings(trusting)) as cluster:
        write_hanging(cluster, topic, 700_001, int(time.time() * 1000) - 3_600_000)

        def stable_end() -> int:
            return cluster.list_offsets({(topic, 0): LATEST}, read_committed=True)[topic, 0]

        (mine,) = rows("transactions", "find-hanging", **at)
        (theirs,) = of_the_tool()
        assert theirs[:3] == [topic, str(mine["partition"]), str(mine["producer_id"])]
        assert (mine["transaction_start_offset"], mine["transactional_id"], stable_end()) == (0, None, 0)
        assert rows("transactions", "find-hanging", "--older", "7200", **at) == []
        abort = ("transactions", "abort", f"{topic}:0", "--producer-id", "700001")
        (planned,) = rows(*abort, "--dry-run", **at)
        assert (planned["aborted"], stable_end()) == (False, 0)
        assert rows(*abort, **at) == [{**planned, "aborted": True}]
        wait_until(lambda: stable_end() == 2, "the records are aborted")
    assert rows("transactions", "find-hanging", **at) == of_the_tool() == []
    assert rows(*abort, status=1, **at) == []


def test_a_transaction_that_its_coordinator_knows_is_aborted_only_by_force(
    rows: Command, topic: str, bootstrap: str
) -> None:
    name = f"{topic}-one"
    producer = transactional(bootstrap, name)
    write(producer, topic, 0, 3)
    (opened,) = rows("producers", topic, "--open")
    assert rows("transactions", "find-hanging", topic, "--older", "0.001") == []
    abort = ("transactions", "abort", f"{topic}:0", "--producer-id", str(opened["producer_id"]))
    assert rows(*abort, status=1) == []
    assert len(rows("producers", topic, "--open")) == 1
    assert rows(*abort, "--force")[0]["aborted"] is True
    wait_until(lambda: rows("producers", topic, "--open") == [], "the transaction has ended")
    (known,) = rows("transactions", "describe", name)
    assert known["state"] == "Ongoing", "its coordinator was not asked"
    producer.abort_transaction(30)
