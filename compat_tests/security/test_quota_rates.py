"""The same client with the same quota, side by side with Kafka for two minutes: the same rate within 5 %."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import odradek
from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.differential.harness import Side
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from odradek.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

pytestmark = pytest.mark.nightly

SECONDS = 120
RATE = 1_000_000
VALUE_BYTES = 10_000
PERCENT = 5
TOPIC, CLIENT = "metered", "greedy"

Addresses = tuple[str, str]


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    """Kafka's and ours."""
    with reference.Kafka() as kafka, odradek.Broker(process=True) as ours:
        both = kafka.bootstrap_servers, ours.bootstrap_servers
        for address in both:
            KafkaPythonClient(address).create_topic(TOPIC, 1)
            fill(address)
            set_quotas(address, producer_byte_rate=RATE, consumer_byte_rate=RATE)
        yield both


def fill(address: str) -> None:
    """Something to read, from a client without a quota."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "client.id": "filler"})
    for _ in range(500):
        producer.produce(TOPIC, b"v" * VALUE_BYTES, partition=0)
    assert producer.flush(60) == 0


def set_quotas(address: str, **quotas: float) -> None:
    side = Side("broker", address)
    ops = [OpData(key=key, value=value, remove=False) for key, value in quotas.items()]
    entry = EntryData(entity=[EntityData(entity_type="client-id", entity_name=CLIENT)], ops=ops)
    side.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    question = DescribeClientQuotasRequest(components=[], strict=False)
    wait_until(lambda: len(side.ask(question, 1).entries) == 1, "the quotas are there")
    side.close()


def side_by_side(use: Callable[[str, float], int], addresses: Addresses) -> list[float]:
    """Bytes in a second at each; `use(address, deadline)` returns the bytes until then."""
    deadline = time.monotonic() + SECONDS
    with ThreadPoolExecutor(len(addresses)) as threads:
        counts = threads.map(lambda address: use(address, deadline), addresses)
        return [count / SECONDS for count in counts]


def produce(address: str, deadline: float) -> int:
    from confluent_kafka import KafkaError, Message, Producer

    count = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal count
        if time.monotonic() < deadline:
            assert error is None
            count += 1

    producer = Producer(
        {
            "bootstrap.servers": address,
            "client.id": CLIENT,
            "compression.type": "none",
            "linger.ms": 5,
            "batch.size": 100_000,
            "queue.buffering.max.messages": 200,
        }
    )
    while time.monotonic() < deadline:
        try:
            producer.produce(TOPIC, b"v" * VALUE_BYTES, partition=0, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)
    producer.purge()
    producer.flush(30)
    return count * VALUE_BYTES


def consume(address: str, deadline: float) -> int:
    """The records that are there, again and again."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "client.id": CLIENT,
            "group.id": CLIENT,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 100_000,
            "queued.max.messages.kbytes": 1_000,
        }
    )
    start = TopicPartition(TOPIC, 0, OFFSET_BEGINNING)
    consumer.assign([start])
    count = 0
    while time.monotonic() < deadline:
        for message in consumer.consume(10, 0.2):
            if message.error() is not None:
                consumer.seek(start)
            else:
                count += 1
    consumer.close()
    return count * VALUE_BYTES


@pytest.mark.parametrize("use", [produce, consume])
def test_the_same_client_gets_the_same_rate_as_from_kafka(
    addresses: Addresses, use: Callable[[str, float], int]
) -> None:
    theirs, ours = side_by_side(use, addresses)
    print(f"{use.__name__}: Kafka {theirs:,.0f} bytes/s, Odradek {ours:,.0f} bytes/s")
    assert ours == pytest.approx(theirs, rel=PERCENT / 100)
    # Both are slowed down at all, and by the quota.
    assert theirs == pytest.approx(RATE, rel=0.25)
