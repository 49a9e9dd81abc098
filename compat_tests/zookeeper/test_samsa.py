"""Consumers of Kafka 0.7 that find the broker through ZooKeeper, and how they move to today's clients.

samsa shares partitions by the nodes of 0.7. It needs a Python 2.7, and is left out where there is none.
"""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

import odradek
from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.kafka07.old_python import PYTHON, variables
from compat_tests.kafka07.today import read
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking, in_zookeeper
from compat_tests.zookeeper.sharing import PARTITIONS, Group, Member, Topic, has_come
from odradek.embedding.free_port import free_port

MEMBER = pathlib.Path(__file__).parent / "others" / "samsa_member.py"
JUDGE = pathlib.Path(__file__).parents[1] / "kafka07" / "python2" / "judge.py"
FOLDER = "kafka07"
SECONDS = 60

pytestmark = pytest.mark.skipif(PYTHON is None, reason="no Python 2.7 is here")


@pytest.fixture(scope="module")
def port() -> int:
    """Of the listener for clients of 0.7."""
    return free_port()


@pytest.fixture(scope="module")
def broker(address: str, port: int) -> Iterator[odradek.Broker]:
    options = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},OLD://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA_07",
        "auto.create.topics.enable": "true",
    }
    with in_zookeeper(address, options=options) as one:
        yield one


def python2() -> dict[str, str]:
    """The environment of a process of samsa."""
    return variables("samsa", "kazoo", "six")


def samsa(*words: str) -> list[str]:
    """Its command."""
    return [str(PYTHON), str(MEMBER), *words]


def run(command: list[str]) -> str:
    done = subprocess.run(command, env=python2(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Samsa(Group):
    def join(self, topic: str) -> Member:
        return self.begin(samsa("read", self.looking.address, self.name, topic), python2())

    def positions(self, topic: str) -> dict[int, int]:
        """In bytes, by partition; a node is called after broker and partition."""
        path = f"/consumers/{self.name}/offsets/{topic}"
        found = {name: self.looking.read(f"{path}/{name}") for name in self.looking.children(path)}
        return {int(name.rpartition("-")[2]): int(content or 0) for name, content in found.items()}


@pytest.fixture
def group(address: str, broker: odradek.Broker) -> Iterator[Samsa]:
    looking = Looking(f"{address}/{FOLDER}")
    one = Samsa(looking)
    yield one
    one.end()
    looking.close()


@pytest.fixture
def topic(broker: odradek.Broker, group: Samsa) -> Topic:
    one = Topic(broker.bootstrap_servers, topic_name("shared"))
    wait_until(lambda: one.name in group.looking.children("/brokers/topics"), "ZooKeeper has the topic")
    return one


def bytes_of(topic: Topic) -> dict[int, int]:
    """What the positions at the ends are."""
    sizes = dict.fromkeys(range(PARTITIONS), 0)
    for line in topic.written:
        sizes[int(line.split("/")[1])] += 10 + len(line)
    return sizes


def test_three_share_a_group_and_the_last_one_reads_on(group: Samsa, topic: Topic) -> None:
    for count in (1, 2, 3):
        group.join(topic.name)
        wait_until(lambda count=count: group.is_shared_by(count, topic.name), f"{count} have equally many")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    assert all(len({line.split("/")[1] for line in one.lines}) == 2 for one in group.members)
    wait_until(lambda: group.positions(topic.name) == bytes_of(topic), "and is committed")

    group.leave(group.members[0], signal.SIGTERM)
    wait_until(lambda: group.is_shared_by(2, topic.name), "the other two own three each")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    wait_until(lambda: group.positions(topic.name) == bytes_of(topic), "and is committed")
    group.leave(group.members[1], signal.SIGKILL)
    wait_until(lambda: group.is_shared_by(1, topic.name), "the last one owns all")
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    wait_until(lambda: group.positions(topic.name) == bytes_of(topic), "and is committed")
    assert sorted(group.lines) == sorted(topic.written), "nothing twice"


def test_positions_outlive_a_kill_of_the_broker(broker: odradek.Broker, group: Samsa, topic: Topic) -> None:
    """samsa itself does not connect again: its members are started anew."""
    group.join(topic.name)
    topic.write()
    wait_until(has_come(topic, group), "all has come")
    wait_until(lambda: group.positions(topic.name) == bytes_of(topic), "and is committed")
    broker.kill()
    group.leave(group.members[0], signal.SIGKILL)
    broker.start()
    topic.write()
    wait_until(lambda: group.owners(topic.name) == {}, "the session of the member ends")
    group.join(topic.name)
    wait_until(has_come(topic, group), "all that was written later comes, too")
    assert sorted(group.lines) == sorted(topic.written), "nothing twice"


def test_a_topic_is_made_by_writing(broker: odradek.Broker, group: Samsa) -> None:
    name = topic_name("made")
    values = ["one", "two", "three"]
    run(samsa("write", group.looking.address, name, *values))
    assert sorted(read(broker, name, 3)) == sorted(value.encode() for value in values)
    wait_until(lambda: group.looking.read(f"/brokers/topics/{name}/1") == b"1", "ZooKeeper has it")


def test_a_group_moves_from_0_7_to_consumers_of_kafka_4_3(
    broker: odradek.Broker, group: Samsa, port: int
) -> None:
    """As docs/old-clients.md says it, with Kafka's own tools."""
    topic = topic_name("moves")
    lines = [f"line {number}" for number in range(100)]
    run(samsa("write", group.looking.address, topic, *lines[:40]))
    wait_until(lambda: group.looking.read(f"/brokers/topics/{topic}/1") == b"1", "ZooKeeper has it")
    group.join(topic)
    wait_until(lambda: group.lines == lines[:40], "samsa has read them")
    wait_until(lambda: group.positions(topic) == {0: sum(10 + len(line) for line in lines[:40])}, "committed")

    # Producers of today come first, while the consumer is the old one.
    server = ("--bootstrap-server", broker.bootstrap_servers)
    new_lines = "".join(f"{line}\n" for line in lines[40:50])
    reference.kafka_tool("org.apache.kafka.tools.ConsoleProducer", *server, "--topic", topic, stdin=new_lines)
    wait_until(lambda: group.lines == lines[:50], "samsa reads what they write")
    group.leave(group.members[0], signal.SIGTERM)
    position = group.positions(topic)[0]
    new_lines = "".join(f"{line}\n" for line in lines[50:])
    reference.kafka_tool("org.apache.kafka.tools.ConsoleProducer", *server, "--topic", topic, stdin=new_lines)

    # Then the group: as many records before the end as messages are after the position.
    answer = run([str(PYTHON), str(JUDGE), "samsa", "fetch", str(port), topic, str(position), "100000"])
    left = len(json.loads(answer)["values"])
    groups = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *server, "--group", group.name)
    for how in (["--to-latest"], ["--shift-by", f"-{left}"]):
        reference.kafka_tool(*groups, "--topic", f"{topic}:0", "--reset-offsets", *how, "--execute")
    consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--group", group.name)
    found = reference.kafka_tool(*consumer, "--topic", topic, "--max-messages", str(left)).stdout.splitlines()
    assert group.lines + found == lines, "no record is lost, and none comes twice"
    described = reference.kafka_tool(*groups, "--describe").stdout
    (row,) = (line.split() for line in described.splitlines() if topic in line)
    assert row[3:6] == ["100", "100", "0"], "committed, the end, and nothing between them"
