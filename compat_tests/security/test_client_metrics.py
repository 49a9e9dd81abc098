"""Metrics that real clients push (KIP-714), as `broker.metrics()` of a program shows them.

Kafka's Java client and librdkafka push; kafka-python and aiokafka do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import odradek
from compat_tests import reference
from compat_tests.clients import Message, wait_until
from compat_tests.clients.java import JavaClient
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.differential.harness import side_of
from compat_tests.kit.working import Working
from odradek.config.changes import SET
from odradek.embedding.free_port import free_port
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.server.scrape import scraped

CLIENT_METRICS = 16
SCRAPED_PORT = free_port()


def subscribe(address: str, name: str, **configs: str) -> None:
    """Makes or changes a subscription; settings with underscores for dots."""
    side = side_of("odradek", address)
    settings = [
        AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=settings)
    answer = side.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    side.close()
    assert answer.responses[0].error_code == 0, answer


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    """In a thread, as its metrics are read; clients push all metrics five times a second."""
    options = {"odradek.metrics.listen": f"127.0.0.1:{SCRAPED_PORT}"}
    with odradek.Broker(options=options) as broker:
        subscribe(broker.bootstrap_servers, "all", metrics="*", interval_ms="200")
        yield broker


def pushed(broker: odradek.Broker, client_id: str) -> list[Any]:
    return [one for one in broker.metrics().clients if one.client_id and one.client_id.startswith(client_id)]


def is_scraped(client_id: str) -> bool:
    """Whether the page for Prometheus, each line of which is right, has something of the client's."""
    return any(
        name.startswith("kafka_client_") and f'client_id="{client_id}' in labels
        for name, labels in scraped(SCRAPED_PORT)
    )


class Polling(Working):
    """A thread that keeps a client of librdkafka at work."""

    def __init__(self, poll: Callable[[float], object]) -> None:
        super().__init__()
        self._poll = poll

    def _run(self) -> None:
        while not self._ending.is_set():
            self._poll(0.05)


def test_a_java_client_pushes_its_metrics(broker: odradek.Broker) -> None:
    client = JavaClient(broker.bootstrap_servers)
    client.create_topic("measured", 1)
    client.produce("measured", [Message(b"%d" % n) for n in range(10)])
    member = client.join("readers", "measured")

    def consumers() -> list[Any]:
        return [
            one
            for one in broker.metrics().clients
            if any(point.name.startswith("org.apache.kafka.consumer") for point in one.metrics)
        ]

    wait_until(lambda: bool(consumers()), "a consumer has pushed", [member])
    (found,) = consumers()[:1]
    assert found.software_name == "apache-kafka-java"
    assert found.software_version == reference.CURRENT
    assert len(found.client_instance_id) == 22
    wait_until(lambda: any(one.labels.get("group_id") == "readers" for one in consumers()), "it has labels")
    client_id = consumers()[-1].client_id
    assert client_id is not None
    wait_until(lambda: is_scraped(client_id), "its values are in a scrape", [member])
    first = consumers()[-1].pushed_ms
    wait_until(lambda: consumers()[-1].pushed_ms > first, "it pushes again", [member])
    member.leave()
    wait_until(lambda: any(one.has_ended for one in consumers()), "it has said that it ends")
    client.close()


def test_a_producer_and_a_consumer_of_librdkafka_push_their_metrics(broker: odradek.Broker) -> None:
    KafkaPythonClient(broker.bootstrap_servers).create_topic("measured", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "sends"})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "reads",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["measured"])
    for n in range(10):
        producer.produce("measured", b"%d" % n)
    polling = [Polling(producer.poll).start(), Polling(consumer.poll).start()]
    try:
        for client_id in ("sends", "reads"):
            wait_until(
                lambda client_id=client_id: any(one.metrics for one in pushed(broker, client_id)),  # type: ignore[misc]
                f"{client_id} has pushed",
            )
            wait_until(
                lambda client_id=client_id: is_scraped(client_id),  # type: ignore[misc]
                f"the values of {client_id} are in a scrape",
            )
    finally:
        for one in polling:
            one.stop()
        consumer.close()
    (found,) = pushed(broker, "sends")
    assert "confluent" in found.software_name or "rdkafka" in found.software_name
    assert any(point.name.startswith("org.apache.kafka.producer.") for point in found.metrics)


def test_only_what_a_client_was_asked_for_comes(broker: odradek.Broker) -> None:
    """Of a client that matches, with the prefix of the subscription; of the others nothing."""
    subscribe(
        broker.bootstrap_servers,
        "all",
        metrics="org.apache.kafka.producer.connection.",
        match="client_id=chosen.*",
    )
    configs = {"bootstrap.servers": broker.bootstrap_servers}
    chosen, other = (Producer({**configs, "client.id": name}) for name in ("chosen-1", "other"))
    polling = [Polling(chosen.poll).start(), Polling(other.poll).start()]
    try:
        wait_until(lambda: any(one.metrics for one in pushed(broker, "chosen")), "the chosen one has pushed")
    finally:
        for one in polling:
            one.stop()
    (found,) = pushed(broker, "chosen")
    assert {point.name[:37] for point in found.metrics} == {"org.apache.kafka.producer.connection."}
    assert pushed(broker, "other") == []
