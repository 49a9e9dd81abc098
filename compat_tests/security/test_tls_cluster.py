"""A cluster in which all speak TLS with certificates: a controller and a broker of Kafka, a node of ours."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.security.certificates import Authority
from compat_tests.security.sealed_clients import confluent_settings
from compat_tests.security.test_sasl_cluster import OF_BROKERS
from compat_tests.security.test_tls_clients import served_certificate

KAFKA, OURS = 1, 2
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "pw-of-ann",
}
PROTOCOLS = ("SSL", "SASL_SSL")


def sealed_options(authority: Authority, name: str, protocol: str = "SSL") -> dict[str, str]:
    own = authority.key_store("PEM", name, authority.server()) | authority.trust_store("PEM")
    own |= {"ssl.client.auth": "required"} if protocol == "SSL" else OF_BROKERS
    # The listener of brokers keeps its name.
    return own | {"listener.security.protocol.map": f"CONTROLLER:{protocol},PLAINTEXT:{protocol}"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_node_registers_forwards_and_replicates_both_ways_over_tls(
    authority: Authority, protocol: str
) -> None:
    def of(name: str) -> dict[str, str]:
        return sealed_options(authority, name, protocol)

    with (
        Controllers(of("controller"), host=shared_host()) as controllers,
        KafkaMember(controllers, KAFKA, of("kafka"), host=shared_host()),
        OdradekMember(controllers, OURS, of("ours")) as ours,
    ):
        client = authority.write_pem("client", authority.issue("client.example", common_name="client"))
        settings = confluent_settings(ours.bootstrap_servers, authority.pem, client)
        settings |= {} if protocol == "SSL" else LOGIN
        replicate(settings)
        renew(authority, ours, settings, client)


def renew(authority: Authority, ours: OdradekMember, settings: dict[str, Any], client: pathlib.Path) -> None:
    """New keys by way of the controllers, while the nodes are connected to each other."""
    first = served_certificate(ours.port, authority, client)
    admin = AdminClient(settings)

    def set_location(path: object) -> None:
        name = "listener.name.plaintext.ssl.keystore.location"
        setting = ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(OURS), incremental_configs=[setting])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(DEADLINE_SECONDS)

    with pytest.raises(KafkaException, match="cannot be read"):
        set_location("/no/such/file")
    set_location(authority.write_pem("renewed", authority.server()))
    wait_until(lambda: served_certificate(ours.port, authority, client) != first, "it has the new keys")
    replicate(settings, "after-")


def replicate(settings: dict[str, Any], prefix: str = "") -> None:
    admin = AdminClient(settings)
    wait_until(lambda: set(admin.list_topics(timeout=10).brokers) == {KAFKA, OURS}, "both are there")
    placed = {f"{prefix}led-by-kafka": [[KAFKA, OURS]], f"{prefix}led-by-ours": [[OURS, KAFKA]]}
    topics = [NewTopic(name, 1, replica_assignment=replicas) for name, replicas in placed.items()]
    for future in admin.create_topics(topics).values():
        future.result(DEADLINE_SECONDS)
    producer = Producer(settings | {"acks": "all"})
    for number in range(100):
        for topic in placed:
            producer.produce(topic, str(number))
    assert producer.flush(DEADLINE_SECONDS) == 0

    def isr(topic: str) -> set[int]:
        return set(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)

    for topic in placed:
        wait_until(lambda topic=topic: isr(topic) == {KAFKA, OURS}, f"all replicas of {topic} are in sync")  # type: ignore[misc]
        consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [message.value() for message in consumer.consume(100, DEADLINE_SECONDS)]
        consumer.close()
        assert found == [str(number).encode() for number in range(100)]


def test_a_node_that_the_others_do_not_trust_does_not_start_or_says_who_refuses_it(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    with Controllers(sealed_options(authority, "controller"), host=shared_host()) as controllers:
        refuse_strangers(authority, controllers, tmp_path)


def refuse_strangers(authority: Authority, controllers: Controllers, tmp_path: pathlib.Path) -> None:
    stranger = Authority(tmp_path / "stranger")
    # Its own listener would not be trusted by itself.
    mixed = sealed_options(stranger, "mixed") | authority.trust_store("PEM")
    node = OdradekMember(controllers, 3, mixed, parent=tmp_path)
    assert node.begin().wait(DEADLINE_SECONDS) == 1
    assert "brokers could not connect to each other" in node.log
    # It trusts nobody of this cluster.
    node = OdradekMember(controllers, 3, sealed_options(stranger, "foreign"), parent=tmp_path)
    node.begin()
    try:
        wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in node.log, "it says why it waits")
    finally:
        node.kill()
