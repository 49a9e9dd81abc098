"""Consumers that others than Kafka wrote, and that share a group through ZooKeeper."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Iterator

import pytest

import odradek
from compat_tests.clients import wait_until
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking
from compat_tests.zookeeper.sharing import PARTITIONS, Group, Member, Topic, has_come
from tools import environment

HERE = pathlib.Path(__file__).parent / "others"


class Pykafka(Group):
    """Its offsets are in Kafka."""

    def join(self, topic: Topic) -> Member:
        python = environment.tools("pykafka==2.8.0") / "bin" / "python"
        command = [str(python), str(HERE / "pykafka_member.py"), self.looking.address, self.name, topic.name]
        return self.begin(command, {"PYTHONPATH": ""})

    def folder_of(self, topic: str) -> str:
        """With Python 3 it writes the name as `repr` shows bytes."""
        return f"b'{topic}'"

    def kept(self, topic: Topic) -> dict[int, int]:
        return topic.committed(self.name)


class KafkaNode(Group):
    """Its offsets are in ZooKeeper: it sends OffsetCommit 0."""

    def join(self, topic: Topic) -> Member:
        modules = environment.node_modules(HERE / "node")
        command = ["node", str(HERE / "node" / "member.js"), self.looking.address, self.name, topic.name]
        return self.begin(command, {"NODE_PATH": str(modules)})

    def kept(self, topic: Topic) -> dict[int, int]:
        return self.committed(topic.name)


@pytest.fixture(params=[Pykafka, pytest.param(KafkaNode, marks=pytest.mark.nightly)])
def group(request: pytest.FixtureRequest, looking: Looking) -> Iterator[Pykafka | KafkaNode]:
    one: Pykafka | KafkaNode = request.param(looking)
    yield one
    one.end()


@pytest.fixture
def topic(broker: odradek.Broker, looking: Looking) -> Topic:
    one = Topic(broker.bootstrap_servers, topic_name("shared"))
    wait_until(lambda: one.name in looking.children("/brokers/topics"), "ZooKeeper has the topic")
    return one


def test_three_share_a_group_and_the_last_one_reads_on(group: Pykafka | KafkaNode, topic: Topic) -> None:
    # One by one: kafka-node misses members that come while it does.
    for count in (1, 2, 3):
        group.join(topic)
        wait_until(lambda count=count: group.is_shared_by(count, topic.name), f"{count} have equally many")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    assert all(len({line.split("/")[1] for line in one.lines}) == 2 for one in group.members)
    wait_until(lambda: group.kept(topic) == dict.fromkeys(range(PARTITIONS), 5), "and is committed")

    group.leave(group.members[0], signal.SIGTERM)
    wait_until(lambda: group.is_shared_by(2, topic.name), "the other two own three each")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    wait_until(lambda: group.kept(topic) == dict.fromkeys(range(PARTITIONS), 10), "and is committed")
    group.leave(group.members[1], signal.SIGKILL)
    wait_until(lambda: group.is_shared_by(1, topic.name), "the last one owns all")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    wait_until(lambda: group.kept(topic) == dict.fromkeys(range(PARTITIONS), 15), "and is committed")
    assert sorted(group.lines) == sorted(topic.written), "nothing twice"

    group.leave(group.members[2], signal.SIGTERM)
    wait_until(lambda: group.owners(topic.name) == {}, "who leaves gives up its partitions")
    group.join(topic)
    wait_until(lambda: group.is_shared_by(1, topic.name), "another one comes")
    topic.write()
    wait_until(has_come(topic, group), "it goes on where the last one was")
    assert sorted(group.lines) == sorted(topic.written), "nothing twice"
