"""Quotas as clients meet them: producers and consumers of each library are slowed down and lose nothing, and
Kafka's own tool sets and shows quotas as with Kafka."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable, Iterator

import pytest

import odradek
from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.differential.harness import Side
from compat_tests.test_administration_tools import CONFIGS, TOOLS, Pair
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

WINDOWS = 3
"""Of a second: what a client may send at once is two seconds' worth."""
RATE = 500_000
VALUE_BYTES = 10_000
COUNT = 250
SECONDS_MIN = (COUNT * VALUE_BYTES - (WINDOWS - 1) * RATE) / RATE - 1.0
"""Two seconds of what is sent are free, and the last answer comes before its client waits."""
CONSUMED_MIN = SECONDS_MIN - 1.0
"""A consumer gets as much as a window allows, and has the last of it before it waits."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with odradek.Broker(process=True, options={"quota.window.num": WINDOWS}) as broker:
        yield broker.bootstrap_servers


def set_quota(bootstrap: str, client_id: str, **quotas: float) -> None:
    side = Side("odradek", bootstrap)
    ops = [OpData(key=key, value=value, remove=False) for key, value in quotas.items()]
    entry = EntryData(entity=[EntityData(entity_type="client-id", entity_name=client_id)], ops=ops)
    answer = side.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert [one.error_code for one in answer.entries] == [0]
    side.close()


def count_of(bootstrap: str, topic: str) -> int:
    """Records in the topic."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        partition = TopicPartition(topic, 0)
        return int(consumer.end_offsets([partition])[partition])
    finally:
        consumer.close()


# Clients


def produce_confluent(bootstrap: str, client_id: str, topic: str) -> None:
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "batch.size": 50_000,
            "compression.type": "none",
        }
    )
    for _ in range(COUNT):
        producer.produce(
            topic,
            b"v" * VALUE_BYTES,
            partition=0,
            on_delivery=lambda error, _: error and failures.append(error),
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert not failures


def produce_kafka_python(bootstrap: str, client_id: str, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=50_000)
    sent = [producer.send(topic, b"v" * VALUE_BYTES, partition=0) for _ in range(COUNT)]
    for one in sent:
        one.get(DEADLINE_SECONDS)
    producer.close()


def produce_java(bootstrap: str, client_id: str, topic: str) -> None:
    words = (
        f"--topic {topic} --num-records {COUNT} --record-size {VALUE_BYTES} --throughput -1 --producer-props"
    )
    properties = (f"bootstrap.servers={bootstrap}", f"client.id={client_id}", "batch.size=50000")
    told = reference.kafka_tool(
        f"{TOOLS}.ProducerPerformance", *words.split(), *properties, "--print-metrics", timeout_seconds=120
    ).stdout
    assert f"{COUNT} records sent" in told
    longest = re.search(r"produce-throttle-time-max:\{[^}]*\} *: *([\d.]+)", told)
    assert longest, told
    assert float(longest[1]) > 0


def consume_confluent(bootstrap: str, client_id: str, topic: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 100_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    offsets = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(offsets) < COUNT:
        assert time.monotonic() < deadline, len(offsets)
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            offsets.append(message.offset())
    consumer.close()
    assert offsets == list(range(COUNT))


def consume_kafka_python(bootstrap: str, client_id: str, topic: str) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, client_id=client_id, max_partition_fetch_bytes=100_000
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    offsets: list[int] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(offsets) < COUNT:
        assert time.monotonic() < deadline, len(offsets)
        for records in consumer.poll(timeout_ms=1000).values():
            offsets += [record.offset for record in records]
    consumer.close()
    assert offsets == list(range(COUNT))


PRODUCERS = [produce_confluent, produce_kafka_python, produce_java]
CONSUMERS = [consume_confluent, consume_kafka_python]
Use = Callable[[str, str, str], None]


@pytest.mark.parametrize("produce", PRODUCERS)
def test_a_producer_sends_as_fast_as_it_may_and_loses_nothing(bootstrap: str, produce: Use) -> None:
    name = produce.__name__
    KafkaPythonClient(bootstrap).create_topic(name, 1)
    set_quota(bootstrap, name, producer_byte_rate=RATE)
    began = time.monotonic()
    produce(bootstrap, name, name)
    assert time.monotonic() - began > SECONDS_MIN
    assert count_of(bootstrap, name) == COUNT


@pytest.mark.parametrize("consume", CONSUMERS)
def test_a_consumer_reads_as_fast_as_it_may_and_misses_nothing(bootstrap: str, consume: Use) -> None:
    name = consume.__name__
    KafkaPythonClient(bootstrap).create_topic(name, 1)
    produce_confluent(bootstrap, "filler", name)
    set_quota(bootstrap, name, consumer_byte_rate=RATE)
    began = time.monotonic()
    consume(bootstrap, name, name)
    assert time.monotonic() - began > CONSUMED_MIN


def test_a_java_consumer_reads_as_fast_as_it_may_and_misses_nothing(
    bootstrap: str, tmp_path: pathlib.Path
) -> None:
    name = "consume_java"
    KafkaPythonClient(bootstrap).create_topic(name, 1)
    produce_confluent(bootstrap, "filler", name)
    set_quota(bootstrap, name, consumer_byte_rate=RATE)
    config = tmp_path / "consumer.properties"
    config.write_text(f"client.id={name}\nmax.partition.fetch.bytes=100000\nauto.offset.reset=earliest\n")
    asked = f"--topic {name} --num-records {COUNT} --timeout 40000"
    words = f"--bootstrap-server {bootstrap} {asked} --command-config"
    began = time.monotonic()
    told = reference.kafka_tool(
        f"{TOOLS}.ConsumerPerformance", *words.split(), str(config), "--hide-header", timeout_seconds=120
    ).stdout
    assert time.monotonic() - began > CONSUMED_MIN
    assert int(told.splitlines()[-1].split(",")[4]) == COUNT


def test_a_client_that_has_to_wait_for_its_processor_time_is_served_all_the_same(bootstrap: str) -> None:
    name = "hasty"
    KafkaPythonClient(bootstrap).create_topic(name, 1)
    set_quota(bootstrap, name, request_percentage=1e-6)
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": name})
    began = time.monotonic()
    for _ in range(2):
        producer.produce(name, b"v", partition=0)
        assert producer.flush(DEADLINE_SECONDS) == 0
    # Of ApiVersions, Metadata and Produce each makes it wait for a second.
    assert time.monotonic() - began > 1.5
    assert count_of(bootstrap, name) == 2


# Kafka's tool


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with reference.Kafka(host=shared_host()) as kafka, odradek.Broker(process=True) as ours:
        yield Pair(kafka.bootstrap_servers, ours.bootstrap_servers)


ENTITIES = (
    "--entity-type users --entity-name alice",
    "--entity-type clients --entity-default",
    "--entity-type users --entity-default --entity-type clients --entity-name c",
    "--entity-type ips --entity-name 127.0.0.9",
)
DESCRIBED = (
    "--entity-type users",
    "--entity-type clients",
    "--entity-type ips",
    "--entity-type users --entity-type clients",
    "--entity-type users --entity-name alice",
)
SETTINGS = {
    "ips": "connection_creation_rate=1000",
    "users": "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=200.5",
    "clients": "controller_mutation_rate=1000,producer_byte_rate=1048576",
}
"""So much that nobody has to wait for it."""


def tool(pair: Pair, words: str) -> list[tuple[int, str]]:
    return pair.run(CONFIGS, "--bootstrap-server", "BOOTSTRAP", *words.split())


def shown(answers: list[tuple[int, str]]) -> list[tuple[int, list[str]]]:
    """Lines, and the values in each, in any order: Kafka has them in hash tables."""
    return [
        (status, sorted(", ".join(sorted(re.split(r",? ", line))) for line in text.splitlines()))
        for status, text in answers
    ]


def test_kafkas_tool_sets_shows_and_removes_quotas_as_with_kafka(pair: Pair) -> None:
    for entity in ENTITIES:
        kind = entity.split()[1]
        theirs, ours = shown(tool(pair, f"--alter --add-config {SETTINGS[kind]} {entity}"))
        assert ours == theirs
        assert ours[0] == 0

    def described(words: str) -> list[tuple[int, list[str]]]:
        return shown(tool(pair, f"--describe {words}"))

    for words in DESCRIBED:
        # Kafka's broker knows of a quota a moment after its controller.
        wait_until(lambda: len(set(map(repr, described(words)))) == 1, f"both show the same of {words}")  # noqa: B023
        status, lines = described(words)[1]
        assert (status, bool(lines)) == (0, True)
    for entity in ENTITIES:
        names = ",".join(re.findall(r"(\w+)=", SETTINGS[entity.split()[1]]))
        theirs, ours = shown(tool(pair, f"--alter --delete-config {names} {entity}"))
        assert ours == theirs
        assert ours[0] == 0
    wait_until(lambda: described("--entity-type users") == [(0, []), (0, [])], "nothing is left")


@pytest.mark.parametrize(
    "words",
    [
        "--alter --add-config producer_byte_rate=0 --entity-type users --entity-name a",
        "--alter --add-config producer_byte_rate=1.5 --entity-type users --entity-name a",
        "--alter --add-config connection_creation_rate=5 --entity-type ips --entity-name no-host.invalid",
        "--alter --delete-config producer_byte_rate --entity-type users --entity-name nobody",
    ],
)
def test_kafkas_tool_is_refused_as_with_kafka(pair: Pair, words: str) -> None:
    theirs, ours = tool(pair, words)
    assert ours[0] == theirs[0]
    error = re.compile(r"\w+Exception")
    assert error.findall(ours[1]) == error.findall(theirs[1])
