"""The leading controller is killed, and the node goes on with the next one; no controller is left, and
clients are served all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.test_membership import brokers_named_by, create_on
from compat_tests.differential.harness import Side
from compat_tests.quorum import ControllerQuorum, Controllers, OdradekMember
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

FAIL_OVER_SECONDS = 60
"""Kafka's controllers elect another one within 2 to 4 s; the bound is for a busy machine."""


@pytest.fixture(scope="module")
def quorum() -> Iterator[ControllerQuorum]:
    with ControllerQuorum(3) as started:
        yield started


def is_created(node: OdradekMember, name: str) -> bool:
    """Whether the controllers have created the topic, now or before."""
    side = Side("odradek", node.bootstrap_servers)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[node.node_id])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    try:
        answer = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
    finally:
        side.close()
    return not isinstance(answer, str) and answer.topics[0].error_code in (0, 36)


def test_a_node_goes_on_with_the_next_leader_of_the_controllers(quorum: ControllerQuorum) -> None:
    with OdradekMember(quorum, 1) as node:
        assert is_created(node, "before")
        leader = quorum.leader()
        leader.kill()
        killed = time.monotonic()
        wait_until(lambda: is_created(node, "after"), "another one leads", seconds=FAIL_OVER_SECONDS)
        seconds = time.monotonic() - killed
        print(f"a topic was created {seconds:.1f} s after the controller was killed")
        assert quorum.leader() is not leader
        # Longer than a session: heartbeats go to the new leader.
        wait_until(lambda: time.monotonic() - killed > 12, "a session is over", seconds=30)
        with OdradekMember(quorum, 2) as second:
            assert brokers_named_by(second.bootstrap_servers) == {1, 2}
            wait_until(
                lambda: brokers_named_by(node.bootstrap_servers) == {1, 2},
                "the node follows the log",
                seconds=DEADLINE_SECONDS,
            )
        leader.start()
        assert "fenced by the controllers" not in node.log


def test_clients_are_served_while_no_controller_is_there() -> None:
    from kafka import KafkaConsumer, KafkaProducer

    with Controllers() as controllers:
        assert isinstance(controllers, Controllers)
        with OdradekMember(controllers, 1) as node:
            side = Side("odradek", node.bootstrap_servers)
            create_on(side, "served", 1)
            side.close()
            controllers.kill()
            producer = KafkaProducer(bootstrap_servers=node.bootstrap_servers, acks="all")
            consumer = KafkaConsumer(
                "served",
                bootstrap_servers=node.bootstrap_servers,
                auto_offset_reset="earliest",
                consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
            )
            # Longer than a session and than a retry of a heartbeat.
            until, count = time.monotonic() + 12, 0
            while time.monotonic() < until:
                value = b"%d" % count
                producer.send("served", value).get(DEADLINE_SECONDS)
                assert next(consumer).value == value
                count += 1
                time.sleep(0.1)
            producer.close()
            consumer.close()
            controllers.start()
            wait_until(lambda: is_created(node, "later"), "a topic is created", seconds=FAIL_OVER_SECONDS)
            assert brokers_named_by(node.bootstrap_servers) == {1}
