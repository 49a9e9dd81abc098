"""A controller of ours and Kafka: a broker of the release before joins it, and Kafka's controller takes its
directory over."""

from __future__ import annotations

import pytest

from compat_tests.clients import wait_until
from compat_tests.cluster.bad_days import leader_of, produce_all, values_at, wait_for_isr
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.reference import PREVIOUS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest

KAFKA, SECONDS = 7, 120.0
NO_CODE = -1
SHORT_SESSION = {"broker.session.timeout.ms": "3000", "auto.leader.rebalance.enable": "false"}


class Ours(Controllers):
    are_ours = True


def create(side: Side, name: str, replicas: list[int]) -> None:
    """Waits until the controller is reached."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])

    def is_created() -> bool:
        answer = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        code = NO_CODE if isinstance(answer, str) else answer.topics[0].error_code
        return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    wait_until(is_created, f"{name} is created", seconds=SECONDS)


def topic_ids(side: Side) -> dict[str, bytes]:
    return {one.name: one.topic_id for one in side.ask(MetadataRequest(topics=None), 12).topics}


def test_a_broker_of_the_release_before_joins_leads_dies_and_comes_back() -> None:
    with (
        Ours(SHORT_SESSION, release="4.3") as controllers,
        OdradekMember(controllers, 1) as node,
        KafkaMember(controllers, KAFKA, {"broker.session.timeout.ms": "3000"}, version=PREVIOUS) as kafka,
    ):
        ours, theirs = (Side(name, one.bootstrap_servers) for name, one in (("ours", node), ("kafka", kafka)))
        for topic, replicas in (("led-by-kafka", [KAFKA, 1]), ("led-by-us", [1, KAFKA])):
            create(ours, topic, replicas)
            wait_for_isr(node.bootstrap_servers, topic, *replicas)
            produce_all(theirs if replicas[0] == KAFKA else ours, topic, b"before")
        create(theirs, "by-kafka", [KAFKA])
        theirs.close()
        kafka.kill()
        wait_until(lambda: leader_of(node.bootstrap_servers, "led-by-kafka") == 1, "we lead", seconds=SECONDS)
        produce_all(ours, "led-by-kafka", b"while")
        kafka.start()
        for topic in ("led-by-kafka", "led-by-us"):
            wait_for_isr(node.bootstrap_servers, topic, 1, KAFKA)
            produce_all(ours, topic, b"after")
        assert values_at(ours, "led-by-kafka") == [b"before", b"while", b"after"]
        assert values_at(ours, "led-by-us") == [b"before", b"after"]
        ours.close()


@pytest.mark.parametrize("release", [None, "4.3"])
def test_kafkas_controller_goes_on_where_ours_has_stopped_and_ours_again(release: str | None) -> None:
    with (
        Ours(SHORT_SESSION, release=release) as controllers,
        OdradekMember(controllers, 1) as first,
        OdradekMember(controllers, 2),
    ):
        assert isinstance(controllers, Controllers)
        side = Side("node", first.bootstrap_servers)
        create(side, "by-ours", [1, 2])
        produce_all(side, "by-ours", b"0")
        for number, is_ours in enumerate((False, True), 1):
            before = topic_ids(side)
            controllers.stop()
            # Nobody formats anything: the configuration and the directory stay.
            controllers.is_ours = is_ours
            controllers.start()
            name = f"after-{number}"
            create(side, name, [2, 1])
            wait_for_isr(first.bootstrap_servers, name, 1, 2)
            wait_for_isr(first.bootstrap_servers, "by-ours", 1, 2)
            produce_all(side, "by-ours", b"%d" % number)
            told = topic_ids(side)
            assert {one: told[one] for one in before} == before
        assert values_at(side, "by-ours") == [b"0", b"1", b"2"]
        side.close()
