"""Partitions with replicas on nodes of ours and on a broker of Kafka: each leads, each follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

OTHER_ID = 2


@pytest.fixture(scope="module")
def other(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, OTHER_ID) as started:
        yield started


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
