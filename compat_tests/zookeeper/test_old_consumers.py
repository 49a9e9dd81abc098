"""Consumers of Kafka 0.8.2 to 0.10.2 that share a group by themselves, through ZooKeeper.

They find brokers and partitions in its directories, and write there who owns which partition. Each consumer
is the console consumer of its release, in a process of its own.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking

VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.2.2")
PARTITIONS = 6
SESSION_MS = 2_000
TOOL_JVM = ["-Xmx64m", *reference.SMALL_JVM]
pytestmark = pytest.mark.timeout(300)


@dataclass
class Consumer:
    """One process; its lines are what it was given."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


class Group:
    """Consumers of one release that share a group, and what ZooKeeper says of it."""

    def __init__(self, version: str, address: str, looking: Looking, tmp_path: pathlib.Path) -> None:
        self.name = topic_name("group")
        self._version = version
        self._address = address
        self._looking = looking
        self._config = tmp_path / "consumer.properties"
        self.consumers: list[Consumer] = []

    def join(self, *words: str, **options: str) -> Consumer:
        """A group that has committed nothing begins at the start; the console consumer refuses to say so for
        another one.
        """
        settings = {
            "group.id": self.name,
            "zookeeper.connect": self._address,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "zookeeper.sync.time.ms": "200",
            "auto.commit.interval.ms": "100",
            "rebalance.backoff.ms": "1000",
            **options,
        }
        config = self._config.with_name(f"{len(self.consumers)}.properties")
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = reference.tool_command(
            "kafka.tools.ConsoleConsumer",
            *("--zookeeper", self._address, "--consumer.config", str(config), *words),
            *([] if self._looking.children(f"/consumers/{self.name}/offsets") else ["--from-beginning"]),
            version=self._version,
        )
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        consumer = Consumer(process)
        threading.Thread(target=consumer.read, daemon=True).start()
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: Consumer, how: signal.Signals) -> None:
        consumer.process.send_signal(how)
        consumer.process.wait(30)

    def owners(self, topic: str) -> dict[int, str]:
        """The consumer that owns each partition."""
        path = f"/consumers/{self.name}/owners/{topic}"
        found = {}
        for index in self._looking.children(path):
            content = self._looking.read(f"{path}/{index}")
            if content:
                # The last part numbers the threads of a consumer.
                found[int(index)] = content.decode().rpartition("-")[0]
        return found

    def is_shared_by(self, count: int, topic: str) -> bool:
        """Every partition has an owner that is there, and all have equally many."""
        owners = self.owners(topic)
        ids = self._looking.children(f"/consumers/{self.name}/ids")
        shares = [list(owners.values()).count(one) for one in ids]
        return len(ids) == count and len(owners) == PARTITIONS and shares == [PARTITIONS // count] * count

    def committed(self, topic: str) -> dict[int, int]:
        path = f"/consumers/{self.name}/offsets/{topic}"
        return {
            int(index): int(self._looking.read(f"{path}/{index}") or -1)
            for index in self._looking.children(path)
        }

    def end(self) -> None:
        for consumer in self.consumers:
            consumer.process.kill()
            consumer.process.wait()


@pytest.fixture(params=VERSIONS)
def group(
    request: pytest.FixtureRequest,
    address: str,
    looking: Looking,
    tmp_path: pathlib.Path,
    broker: odradek.Broker,
) -> Iterator[Group]:
    one = Group(request.param, address, looking, tmp_path)
    yield one
    one.end()


class Topic:
    """Numbered lines, the same number in each partition."""

    def __init__(self, broker: odradek.Broker, name: str) -> None:
        self._server = {"bootstrap.servers": broker.bootstrap_servers}
        self.name = name
        self.written: list[str] = []
        admin = AdminClient(self._server)
        (future,) = admin.create_topics([NewTopic(name, PARTITIONS)]).values()
        future.result(30)

    def write(self, per_partition: int = 5) -> None:
        producer = Producer(self._server)
        for index in range(PARTITIONS):
            for _ in range(per_partition):
                line = f"{self.name}/{index}/{len(self.written)}"
                producer.produce(self.name, line.encode(), partition=index)
                self.written.append(line)
        assert producer.flush(30) == 0

    def committed(self, group: str) -> dict[int, int]:
        """To Kafka itself."""
        consumer = KafkaConsumer({**self._server, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(self.name, index) for index in range(PARTITIONS)], 30)
        finally:
            consumer.close()
        return {one.partition: one.offset for one in found}


@pytest.fixture
def topic(broker: odradek.Broker) -> Topic:
    return Topic(broker, topic_name("shared"))


def has_come(topic: Topic, group: Group) -> Callable[[], bool]:
    return lambda: set(topic.written) <= {line for one in group.consumers for line in one.lines}


def test_three_share_a_group_and_each_partition_has_one_owner(group: Group, topic: Topic) -> None:
    for _ in range(3):
        group.join("--topic", topic.name)
    wait_until(lambda: group.is_shared_by(3, topic.name), "each of the three owns two partitions")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    read = [line for one in group.consumers for line in one.lines]
    assert sorted(read) == sorted(topic.written), "nothing twice"
    assert all(len({line.split("/")[1] for line in one.lines}) == 2 for one in group.consumers)
    wait_until(lambda: group.committed(topic.name) == dict.fromkeys(range(PARTITIONS), 5), "and is committed")

    group.leave(group.consumers[0], signal.SIGKILL)
    wait_until(lambda: group.is_shared_by(2, topic.name), "after the end of its session two own three each")
    group.leave(group.consumers[1], signal.SIGTERM)
    wait_until(lambda: group.is_shared_by(1, topic.name), "the last one owns all")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    read = [line for one in group.consumers for line in one.lines]
    assert sorted(read) == sorted(topic.written), "nothing twice"


def test_a_broker_that_comes_back_is_found(group: Group, topic: Topic, broker: odradek.Broker) -> None:
    group.join("--topic", topic.name)
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    with contextlib.ExitStack() as ending:
        broker.stop()
        ending.callback(broker.start)
        wait_until(lambda: not group._looking.children("/brokers/ids"), "the broker has said goodbye")
    topic.write()
    wait_until(has_come(topic, group), "all has come from the broker that is back")
    broker.kill()
    broker.start()
    topic.write()
    wait_until(has_come(topic, group), "and after a kill")


def test_a_filter_finds_topics_that_come_later(group: Group, broker: odradek.Broker) -> None:
    prefix = topic_name("filtered")
    first = Topic(broker, f"{prefix}-a")
    first.write()
    group.join("--whitelist", f"{prefix}-.*")
    wait_until(has_come(first, group), "the topic that there was")
    second = Topic(broker, f"{prefix}-b")
    wait_until(lambda: group.is_shared_by(1, second.name), "the new one is owned, too")
    second.write()
    wait_until(has_come(second, group), "the topic that came later")


def test_a_group_moves_its_offsets_to_kafka_and_back(group: Group, topic: Topic) -> None:
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
    read = [line for one in group.consumers for line in one.lines]
    assert sorted(read) == sorted(topic.written), "nothing twice, and nothing is lost"
