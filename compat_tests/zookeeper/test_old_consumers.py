"""Consumers of Kafka 0.8.2 to 0.10.2 that share a group by themselves, through ZooKeeper.

They find brokers and partitions in its directories, and write there who owns which partition. Each consumer
is the console consumer of its release, in a process of its own.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
from collections.abc import Iterator

import pytest

import odradek
from compat_tests.clients import wait_until
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking
from compat_tests.zookeeper.sharing import PARTITIONS, ConsoleConsumers, Topic, has_come
from tests.tiers import rest_at_night

VERSIONS = rest_at_night("0.8.2.2", "0.9.0.1", "0.10.2.2")


@pytest.fixture(params=VERSIONS)
def group(
    request: pytest.FixtureRequest,
    address: str,
    looking: Looking,
    tmp_path: pathlib.Path,
    broker: odradek.Broker,
) -> Iterator[ConsoleConsumers]:
    one = ConsoleConsumers(request.param, address, looking, tmp_path)
    yield one
    one.end()


@pytest.fixture
def topic(broker: odradek.Broker) -> Topic:
    return Topic(broker.bootstrap_servers, topic_name("shared"))


def test_three_share_a_group_and_each_partition_has_one_owner(group: ConsoleConsumers, topic: Topic) -> None:
    for _ in range(3):
        group.join("--topic", topic.name)
    wait_until(lambda: group.is_shared_by(3, topic.name), "each of the three owns two partitions")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    assert sorted(group.lines) == sorted(topic.written), "nothing twice"
    assert all(len({line.split("/")[1] for line in one.lines}) == 2 for one in group.members)
    wait_until(lambda: group.committed(topic.name) == dict.fromkeys(range(PARTITIONS), 5), "and is committed")

    group.leave(group.members[0], signal.SIGKILL)
    wait_until(lambda: group.is_shared_by(2, topic.name), "after the end of its session two own three each")
    group.leave(group.members[1], signal.SIGTERM)
    wait_until(lambda: group.is_shared_by(1, topic.name), "the last one owns all")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    assert sorted(group.lines) == sorted(topic.written), "nothing twice"


def test_a_broker_that_comes_back_is_found(
    group: ConsoleConsumers, topic: Topic, broker: odradek.Broker
) -> None:
    group.join("--topic", topic.name)
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    with contextlib.ExitStack() as ending:
        broker.stop()
        ending.callback(broker.start)
        wait_until(lambda: not group.looking.children("/brokers/ids"), "the broker has said goodbye")
    topic.write()
    wait_until(has_come(topic, group), "all has come from the broker that is back")
    broker.kill()
    broker.start()
    topic.write()
    wait_until(has_come(topic, group), "and after a kill")


def test_a_filter_finds_topics_that_come_later(group: ConsoleConsumers, broker: odradek.Broker) -> None:
    prefix = topic_name("filtered")
    first = Topic(broker.bootstrap_servers, f"{prefix}-a")
    first.write()
    group.join("--whitelist", f"{prefix}-.*")
    wait_until(has_come(first, group), "the topic that there was")
    second = Topic(broker.bootstrap_servers, f"{prefix}-b")
    wait_until(lambda: group.is_shared_by(1, second.name), "the new one is owned, too")
    second.write()
    wait_until(has_come(second, group), "the topic that came later")


def test_a_group_moves_its_offsets_to_kafka_and_back(group: ConsoleConsumers, topic: Topic) -> None:
    """The steps of Kafka's documents: both at once, then Kafka alone; and back by both at once."""

    def consume(storage: str, dual: str) -> None:
        consumer = group.join(
            "--topic", topic.name, **{"offsets.storage": storage, "dual.commit.enabled": dual}
        )
        topic.write()
        wait_until(has_come(topic, group), "all has come")
        ends = dict.fromkeys(range(PARTITIONS), len(topic.written) // PARTITIONS)
        if storage == "zookeeper" or dual == "true":
            wait_until(lambda: group.committed(topic.name) == ends, "ZooKeeper has the offsets")
        if storage == "kafka":
            wait_until(lambda: topic.committed(group.name) == ends, "Kafka has the offsets")
        group.leave(consumer, signal.SIGTERM)

    consume("zookeeper", "false")
    consume("kafka", "true")
    consume("kafka", "false")
    consume("kafka", "true")
    consume("zookeeper", "false")
    assert sorted(group.lines) == sorted(topic.written), "nothing twice, and nothing is lost"
