"""A cluster whose listeners all have SASL: controllers of Kafka, one of Kafka's brokers and one node of
ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from kafka.admin import NewTopic

from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.security.test_sasl_clients import kafka_configs
from odradek.wire.scram import MECHANISM_NAMES
from tests.tiers import rest_at_night

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
NODE = 'username="admin" password="pw-of-admin" user_admin="pw-of-admin" user_ann="pw-of-ann"'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SASL = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN} {NODE};",
}
OF_BROKERS = {
    **SASL,
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN} {NODE};",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    # Connections among nodes renew their sessions while the test runs.
    "connections.max.reauth.ms": "3000",
}
SECONDS = 60


class Nodes:
    def __init__(self, ours: OdradekMember, theirs: KafkaMember) -> None:
        self.ours, self.theirs = ours, theirs


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with (
        Controllers(SASL, host=shared_host()) as controllers,
        OdradekMember(controllers, 1, OF_BROKERS) as ours,  # type: ignore[arg-type]
        KafkaMember(controllers, 2, OF_BROKERS, host=shared_host()) as theirs,  # type: ignore[arg-type]
    ):
        assert isinstance(theirs, KafkaMember)
        yield Nodes(ours, theirs)


def settings(
    node: Any, mechanism: str = "PLAIN", user: str = "ann", password: str = "pw-of-ann"
) -> dict[str, Any]:
    return {
        "bootstrap_servers": node.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def test_nodes_of_both_kinds_replicate_to_each_other_over_sasl(nodes: Nodes) -> None:
    admin = kafka.KafkaAdminClient(**settings(nodes.ours))
    wait_until(lambda: len(admin.describe_cluster()["brokers"]) == 2, "both are there", seconds=SECONDS)
    topic = NewTopic(
        "replicated", replica_assignments={0: [1, 2], 1: [2, 1]}, num_partitions=-1, replication_factor=-1
    )
    admin.create_topics([topic])

    def in_sync() -> list[int]:
        (found,) = admin.describe_topics(["replicated"])
        return [len(one.get("isr_nodes", one.get("isr"))) for one in found["partitions"]]

    producer = kafka.KafkaProducer(**settings(nodes.ours), acks="all")
    for number in range(40):
        for partition in (0, 1):
            sent = producer.send("replicated", str(number).encode(), partition=partition).get(SECONDS)
            assert sent.offset == number
    producer.close()
    wait_until(lambda: in_sync() == [2, 2], "both are in sync", seconds=SECONDS)
    consumer = kafka.KafkaConsumer(
        "replicated",
        **settings(nodes.theirs),
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
        group_id="g",
    )
    seen = 0
    for _ in consumer:
        seen += 1
        if seen == 80:
            break
    consumer.close()
    admin.close()
    assert seen == 80


@pytest.mark.parametrize("mechanism", rest_at_night(*MECHANISM_NAMES.values()))
def test_users_of_the_controllers_log_in_to_each_node(nodes: Nodes, mechanism: str, tmp_path: Any) -> None:
    def logs_in(node: Any) -> bool:
        login = settings(node, mechanism, "dora", "pw-of-dora")
        try:
            # Refused, it tries again for so long.
            kafka.KafkaAdminClient(**login, bootstrap_timeout_ms=2000).close()
        except kafka.errors.KafkaError:
            return False
        return True

    assert not logs_in(nodes.ours)
    named = ("--entity-name", "dora", "--alter")
    # Our node forwards the request to the controllers.
    added = f"{mechanism}=[iterations=4096,password=pw-of-dora]"
    kafka_configs(nodes.ours, tmp_path / "client", *named, "--add-config", added)  # type: ignore[arg-type]
    for node in (nodes.ours, nodes.theirs):
        wait_until(lambda node=node: logs_in(node), "the user is known", seconds=SECONDS)  # type: ignore[misc]
    kafka_configs(nodes.ours, tmp_path / "client", *named, "--delete-config", mechanism)  # type: ignore[arg-type]
    wait_until(lambda: not logs_in(nodes.ours), "the user is gone", seconds=SECONDS)


def test_no_password_is_in_the_log_of_a_node(nodes: Nodes) -> None:
    assert "ready on" in nodes.ours.log
    assert "pw-of" not in nodes.ours.log


def test_a_node_with_a_wrong_password_says_so(nodes: Nodes) -> None:
    wrong = NODE.replace('password="pw-of-admin"', 'password="topsecret"', 1)
    properties = {**OF_BROKERS, "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN} {wrong};"}
    node = OdradekMember(nodes.ours.controllers, 3, properties)
    try:
        node.launch()
        wait_until(lambda: "SASL_AUTHENTICATION_FAILED" in node.log, "it says why", seconds=SECONDS)
        assert "topsecret" not in node.log
    finally:
        node.kill()
