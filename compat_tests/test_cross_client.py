"""What one client writes, every other reads: all codecs, keys, headers and nulls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from compat_tests.clients import Client
from compat_tests.clients.aio import AiokafkaClient
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.clients.java import JavaClient
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import some_messages, topic_name

LIBRARIES: dict[str, type[Client]] = {
    "kafka-python": KafkaPythonClient,
    "confluent-kafka": ConfluentClient,
    "aiokafka": AiokafkaClient,
    "java": JavaClient,
}


@pytest.fixture(scope="module")
def clients(bootstrap: str) -> Iterator[Mapping[str, Client]]:
    clients = {name: library(bootstrap) for name, library in LIBRARIES.items()}
    yield clients
    for client in clients.values():
        client.close()


@pytest.mark.parametrize("writer", LIBRARIES)
def test_what_one_client_writes_every_client_reads(clients: Mapping[str, Client], writer: str) -> None:
    topic = topic_name(f"cross-{writer}")
    client = clients[writer]
    client.create_topic(topic, 1)
    written = []
    for seed, codec in enumerate(client.codecs):
        messages = some_messages(80, seed=seed)
        client.produce(topic, messages, codec)
        written += [(message.key, message.value, message.headers) for message in messages]
    for name, reader in clients.items():
        records = reader.read(topic, {0: 0}, len(written))
        assert [record.content() for record in records] == written, f"{writer} to {name}"
