"""Transactions whose partitions and coordinators are on nodes of ours and on a broker of Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.sharing import Member
from compat_tests.cluster.test_replication import create, isr_of
from compat_tests.differential.harness import Side
from compat_tests.quorum import KafkaMember, OdradekMember
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest

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


def producers_at(member: Member, topic: str) -> Any:
    """The error, and the producers in the order of their ids."""
    side = Side("broker", member.bootstrap_servers)
    try:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        (found,) = side.ask(request, 0).topics[0].partitions
    finally:
        side.close()
    return found.error_code, sorted(found.active_producers, key=lambda one: one.producer_id)


@pytest.mark.parametrize("order", ["ours-other-kafka", "kafka-ours-other"])
def test_followers_tell_the_producers_that_the_leader_tells(members: dict[str, Member], order: str) -> None:
    """Followers of ended transactions, of an open one, and of a producer without one."""
    from confluent_kafka import Producer

    replicas = [members[name] for name in order.split("-")]
    bootstrap, topic = replicas[0].bootstrap_servers, f"producers-{order}"
    create(bootstrap, topic, [one.node_id for one in replicas])
    wait_until(lambda: len(isr_of(bootstrap, topic)) == len(replicas), "all in sync", seconds=30)
    last = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{order}-open"})
    ended = [Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{order}-{n}"}) for n in range(2)]
    for number, producer in enumerate([*ended, last]):
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        assert producer.flush(DEADLINE_SECONDS) == 0
    ended[0].commit_transaction(DEADLINE_SECONDS)
    ended[1].abort_transaction(DEADLINE_SECONDS)
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(3):
        plain.produce(topic, b"plain %d" % number)
        assert plain.flush(DEADLINE_SECONDS) == 0

    def are_equal() -> bool:
        """The markers come a little later, and to the followers last."""
        told = [producers_at(one, topic) for one in replicas]
        code, producers = told[0]
        return (
            code == ErrorCode.NONE
            and len(producers) == 4
            and [one.current_txn_start_offset for one in producers].count(-1) == 3
            and all(one == told[0] for one in told)
        )

    try:
        wait_until(are_equal, "all tell the same", seconds=DEADLINE_SECONDS)
    except AssertionError as error:
        told = "\n".join(f"{one.node_id}: {producers_at(one, topic)}" for one in replicas)
        raise AssertionError(told) from error
    last.abort_transaction(DEADLINE_SECONDS)


def test_who_has_no_replica_tells_no_producers(members: dict[str, Member]) -> None:
    bootstrap, topic = members["ours"].bootstrap_servers, "producers-alone"
    create(bootstrap, topic, [members["ours"].node_id])
    wait_until(lambda: producers_at(members["ours"], topic)[0] == 0, "it leads", seconds=DEADLINE_SECONDS)
    for name in ("other", "kafka"):
        wait_until(
            lambda name=name: producers_at(members[name], topic) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
            f"{name} has no replica",
            seconds=DEADLINE_SECONDS,
        )
