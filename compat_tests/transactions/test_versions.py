"""Clients of both protocols of transactions at once, and one transactional id that goes from hand to hand."""

from __future__ import annotations

import subprocess
import threading

import pytest

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.kit import readers
from compat_tests.kit.history import Partition
from compat_tests.kit.topics import create_topics
from compat_tests.kit.transaction_brokers import Start, TransactionBroker
from compat_tests.reference import kafka_tool
from compat_tests.stories import topic_name
from compat_tests.transactions.features import set_transaction_version, transaction_version
from compat_tests.transactions.libraries import LIBRARIES, load

PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
JAVA = {"java-4.3": reference.CURRENT, "java-3.9": reference.OLDER}
RECORDS, TRANSACTIONS = 400, 20


def with_java(
    broker: TransactionBroker, version: str, where: Partition, transactional_id: str
) -> subprocess.CompletedProcess[str]:
    """Kafka's own producer: transactions of some milliseconds each, until all records are sent."""
    return kafka_tool(
        PERFORMANCE,
        *("--topic", where[0], "--num-records", str(RECORDS), "--record-size", "20", "--throughput", "400"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "40"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "transaction.timeout.ms=10000"),
        version=version,
        timeout_seconds=90,
    )


def with_library(broker: TransactionBroker, library: str, where: Partition, transactional_id: str) -> None:
    producer = load(library).producer(broker.bootstrap, transactional_id)
    producer.open()
    for number in range(TRANSACTIONS):
        producer.begin()
        for record in range(RECORDS // TRANSACTIONS):
            producer.send(where, b"%s %d %d" % (library.encode(), number, record))
        producer.commit()
    producer.close()


@pytest.fixture
def working(broker: TransactionBroker) -> dict[str, int]:
    """Everybody's producer writes to one partition at the same time; who wrote how much."""
    topic = topic_name("together")
    (where,) = create_topics(broker.bootstrap, {topic: 1})
    failures: list[BaseException] = []

    def run(name: str) -> None:
        try:
            if name in JAVA:
                with_java(broker, JAVA[name], where, f"{topic}-{name}")
            else:
                with_library(broker, name, where, f"{topic}-{name}")
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(name,)) for name in (*JAVA, *LIBRARIES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert readers.wait_until_stable(broker.bootstrap, [where], 20)
    counts: dict[str, int] = dict.fromkeys((PERFORMANCE, *LIBRARIES), 0)
    for value in readers.values_of(broker.bootstrap, [where])[where]:
        writer = value.split(b" ")[0].decode(errors="replace")
        counts[writer if writer in LIBRARIES else PERFORMANCE] += 1
    return counts


def test_clients_of_both_protocols_write_to_one_partition_at_once(working: dict[str, int]) -> None:
    assert working == {PERFORMANCE: 2 * RECORDS, **dict.fromkeys(LIBRARIES, RECORDS)}


def test_a_transactional_id_goes_from_protocol_to_protocol(broker: TransactionBroker) -> None:
    topic = topic_name("handed-on")
    (where,) = create_topics(broker.bootstrap, {topic: 1})
    order = ("confluent-kafka", "java-4.3", "aiokafka", "java-3.9", "java-4.3", "kafka-python")
    for number, name in enumerate(order, 1):
        if name in JAVA:
            with_java(broker, JAVA[name], where, topic)
        else:
            with_library(broker, name, where, topic)
        assert readers.wait_until_stable(broker.bootstrap, [where], 20), name
        assert len(readers.values_of(broker.bootstrap, [where])[where]) == number * RECORDS, name


def test_the_level_is_lowered_and_raised_while_a_producer_works(start_broker: Start) -> None:
    """A producer of either protocol goes on; Kafka's own takes up the new level with its next metadata."""
    broker = start_broker()
    assert transaction_version(broker.direct) == 2
    topic = topic_name("levels")
    where = create_topics(broker.bootstrap, {topic: 2})
    done: list[BaseException | None] = []

    def run() -> None:
        try:
            with_java(broker, reference.CURRENT, where[0], f"{topic}-java")
            done.append(None)
        except BaseException as failure:
            done.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    for level in (1, 2, 1):
        set_transaction_version(broker.direct, level)
        with_library(broker, "confluent-kafka", where[1], f"{topic}-{level}")
    thread.join()
    set_transaction_version(broker.direct, 2)
    assert done == [None]
    broker.crash_and_restart()
    wait_until(lambda: transaction_version(broker.direct) == 2, "the level is kept")
    assert readers.wait_until_stable(broker.bootstrap, where, 20)
    counts = [len(values) for values in readers.values_of(broker.bootstrap, where).values()]
    # ProducerPerformance takes no partition: what it wrote is in both.
    assert sum(counts) == 4 * RECORDS
