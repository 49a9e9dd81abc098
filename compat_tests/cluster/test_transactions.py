"""Transactions whose partitions and coordinators are on nodes of ours and on a broker of Kafka."""

from __future__ import annotations

import pytest

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.test_replication import create
from compat_tests.quorum import KafkaMember, OdradekMember

COUNT = 12
"""Transactional ids: with five partitions of `__transaction_state` both brokers have some."""


def read_committed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
    )
    values: list[bytes] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    consumer.close()
    return values


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_a_transaction_ends_in_every_partition_wherever_its_coordinator_is(
    odradek: OdradekMember, kafka: KafkaMember, commits: bool
) -> None:
    from confluent_kafka import Producer

    bootstrap = f"{odradek.bootstrap_servers},{kafka.bootstrap_servers}"
    topics = []
    for node in (odradek, kafka):
        topics.append(f"tx-{node.node_id}-{commits}")
        create(odradek.bootstrap_servers, topics[-1], [node.node_id])
    for number in range(COUNT):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{commits}-{number}"})
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, b"%d" % number)
        if commits:
            producer.commit_transaction(DEADLINE_SECONDS)
        else:
            producer.flush(DEADLINE_SECONDS)
            producer.abort_transaction(DEADLINE_SECONDS)
    # Behind an aborted or open transaction this is seen only once its markers are there.
    last = Producer({"bootstrap.servers": bootstrap})
    for topic in topics:
        last.produce(topic, b"last")
    assert last.flush(DEADLINE_SECONDS) == 0
    expected = [b"%d" % number for number in range(COUNT)] if commits else []
    for topic in topics:
        assert read_committed(bootstrap, topic, len(expected) + 1) == [*expected, b"last"]
