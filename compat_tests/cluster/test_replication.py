"""Partitions with replicas on nodes of ours and on a broker of Kafka: each leads, each follows."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.differential.harness import Side
from compat_tests.kit.working import Working
from compat_tests.quorum import KafkaMember, OdradekMember
from compat_tests.reference import kafka_tool
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def create(bootstrap: str, name: str, replicas: list[int], **configs: str) -> None:
    side = Side("broker", bootstrap)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[assignment],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    answer = side.ask(CreateTopicsRequest(topics=[topic]), 7)
    side.close()
    assert answer.topics[0].error_code == 0, answer
    wait_until(lambda: partition(bootstrap, name) is not None, f"{name} is there", seconds=DEADLINE_SECONDS)


def partition(bootstrap: str, name: str) -> Any:
    side = Side("broker", bootstrap)
    try:
        found = side.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9).topics[0]
    finally:
        side.close()
    return None if found.error_code or not found.partitions else found.partitions[0]


def isr_of(bootstrap: str, name: str) -> set[int]:
    found = partition(bootstrap, name)
    return set() if found is None else set(found.isr_nodes)


@pytest.mark.parametrize("order", ["odradek-other", "odradek-kafka", "kafka-odradek"])
def test_a_record_with_acks_all_is_on_both_replicas(
    odradek: OdradekMember, other: OdradekMember, kafka: KafkaMember, order: str
) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    ids = {"odradek": odradek.node_id, "other": other.node_id, "kafka": kafka.node_id}
    replicas = [ids[name] for name in order.split("-")]
    create(odradek.bootstrap_servers, order, replicas, min_insync_replicas="2")
    wait_until(lambda: isr_of(odradek.bootstrap_servers, order) == set(replicas), "all in sync", seconds=30)
    producer = KafkaProducer(bootstrap_servers=odradek.bootstrap_servers, acks="all", retries=0)
    for number in range(100):
        assert producer.send(order, b"%d" % number).get(DEADLINE_SECONDS).offset == number
    producer.close()
    consumer = KafkaConsumer(
        order,
        bootstrap_servers=odradek.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
    )
    assert [next(consumer).value for _ in range(100)] == [b"%d" % number for number in range(100)]
    consumer.close()


class Load(Working):
    """A producer with acks=all that goes on through a change of leaders; what it was told is kept."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        super().__init__()
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        self._number = 0

    def stop(self) -> None:
        super().stop()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._ending.is_set():
            self._producer.produce(self.topic, b"%d" % self._number, partition=0, on_delivery=self._told)
            self._number += 1
            self._producer.poll(0.005)

    def _told(self, error: object, message: Any) -> None:
        assert error is None, error
        self.acknowledged.append(message.value())

    def wait_for_more(self, count: int = 20) -> None:
        target = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= target, "records are acknowledged", seconds=60)


def batches_in(node: OdradekMember | KafkaMember, topic: str) -> list[str]:
    """Each batch of a replica's log, as Kafka's tool reads it from the files."""
    files = sorted((node.data_dir / f"{topic}-0").glob("*.log"))
    dumped = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files))).stdout
    lines = [line for line in dumped.splitlines() if line.startswith("baseOffset:")]
    # Where a batch is in its file differs where segments do.
    return [re.sub(r" position: \d+", "", line) for line in lines]


def values_in(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
    )
    values = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    consumer.close()
    return values


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.nightly), "kill"])
def test_a_leader_that_ends_is_followed_by_another_and_nothing_is_lost_or_doubled(
    odradek: OdradekMember, other: OdradekMember, kafka: KafkaMember, how: str
) -> None:
    """It comes back, follows, and is in sync again; then it is the other's turn."""
    topic = f"leaders-{how}"
    everybody = {odradek.node_id, other.node_id, kafka.node_id}
    create(odradek.bootstrap_servers, topic, [odradek.node_id, other.node_id, kafka.node_id])
    bootstrap = ",".join(one.bootstrap_servers for one in (odradek, other, kafka))
    wait_until(lambda: isr_of(kafka.bootstrap_servers, topic) == everybody, "all in sync", seconds=60)
    with Load(bootstrap, topic) as load:
        load.wait_for_more()
        for node in (odradek, other):
            getattr(node, how)()
            wait_until(
                lambda node=node: partition(kafka.bootstrap_servers, topic).leader_id != node.node_id,  # type: ignore[misc]
                "another leads",
                seconds=60,
            )
            load.wait_for_more()
            node.start()
            wait_until(lambda: isr_of(kafka.bootstrap_servers, topic) == everybody, "all in sync", seconds=60)
            load.wait_for_more()
    count = len(load.acknowledged)
    assert values_in(kafka.bootstrap_servers, topic, count) == [b"%d" % number for number in range(count)]
    wait_until(
        lambda: batches_in(odradek, topic) == batches_in(other, topic) == batches_in(kafka, topic),
        "the three logs have the same batches",
        seconds=30,
    )


def _is_reassigning(bootstrap: str) -> bool:
    side = Side("broker", bootstrap)
    try:
        return bool(side.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics)
    finally:
        side.close()


def test_a_partition_moves_onto_a_node_of_ours_and_off_again_while_records_come(
    odradek: OdradekMember, kafka: KafkaMember, tmp_path: pathlib.Path
) -> None:
    topic = "moved"
    create(kafka.bootstrap_servers, topic, [kafka.node_id])

    def move_to(*replicas: int) -> None:
        plan = tmp_path / "plan.json"
        moved = {"topic": topic, "partition": 0, "replicas": list(replicas)}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        arguments = ["--bootstrap-server", odradek.bootstrap_servers, "--reassignment-json-file", str(plan)]
        kafka_tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *arguments, "--execute")

        def has_moved() -> bool:
            found = partition(kafka.bootstrap_servers, topic)
            wanted = set(replicas)
            return (
                set(found.replica_nodes) == set(found.isr_nodes) == wanted
                and found.leader_id in wanted
                and not _is_reassigning(kafka.bootstrap_servers)
            )

        wait_until(has_moved, f"the replicas are {replicas}", seconds=60)

    with Load(f"{odradek.bootstrap_servers},{kafka.bootstrap_servers}", topic) as load:
        load.wait_for_more()
        for replicas in ([kafka.node_id, odradek.node_id], [odradek.node_id], [kafka.node_id]):
            move_to(*replicas)
            load.wait_for_more()
    count = len(load.acknowledged)
    assert values_in(kafka.bootstrap_servers, topic, count) == [b"%d" % number for number in range(count)]
