"""What one client writes, every other reads: all codecs, keys, headers and nulls."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from compat_tests.clients import Client
from compat_tests.clients.aio import AiokafkaClient
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.clients.java import JavaClient
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.differential.test_compressed_data import HEADER_BYTES, with_section
from compat_tests.differential.test_records import batch
from compat_tests.kit.readers import asking
from compat_tests.stories import some_messages, topic_name
from odradek.wire.compression import Compression, compress
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LIBRARIES: dict[str, type[Client]] = {
    "kafka-python": KafkaPythonClient,
    "confluent-kafka": ConfluentClient,
    "aiokafka": AiokafkaClient,
    "java": JavaClient,
}

BY_NAME = 12
"""Version of Produce, the last one in which topics have names."""
KCAT_S = 120


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


@pytest.mark.parametrize("padding", [b"", bytes(1), bytes(8), bytes(1_000)], ids=len)
def test_padded_gzip_is_read_by_every_client(
    clients: Mapping[str, Client], bootstrap: str, padding: bytes
) -> None:
    """Old producers in .NET and PHP send whole buffers. No broker changes what it got."""
    topic = topic_name("padded")
    clients["kafka-python"].create_topic(topic, 1)
    plain = batch(5)
    padded = with_section(plain, Compression.GZIP, compress(Compression.GZIP, plain[HEADER_BYTES:]) + padding)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=padded)])
    with asking(bootstrap) as side:
        answer = side.ask(ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=[data]), BY_NAME)
        assert answer.responses[0].partition_responses[0].error_code == 0
    for name, reader in clients.items():
        assert len(reader.read(topic, {0: 0}, 5)) == 5, name
    if shutil.which("kcat"):
        kcat = ["kcat", "-b", bootstrap, "-C", "-t", topic, "-e", "-q", "-f", r"%o\n"]
        told = subprocess.run(kcat, capture_output=True, check=True, timeout=KCAT_S).stdout
        assert told.split() == [b"0", b"1", b"2", b"3", b"4"]
