"""Groups whose members share partitions by themselves, through ZooKeeper; a topic that they read.

Each member is a process of its own, which prints the records that it is given.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests import reference
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking

PARTITIONS = 6
SESSION_MS = 2_000


@dataclass
class Member:
    """One process; its lines are what it was given."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


class Group:
    """Members that share a group, and what ZooKeeper says of it."""

    def __init__(self, looking: Looking) -> None:
        self.name = topic_name("group")
        self.looking = looking
        self.members: list[Member] = []

    def begin(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> Member:
        """Starts a member."""
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(variables or {})},
        )
        member = Member(process)
        threading.Thread(target=member.read, daemon=True).start()
        self.members.append(member)
        return member

    def leave(self, member: Member, how: signal.Signals) -> None:
        member.process.send_signal(how)
        member.process.wait(30)

    @property
    def lines(self) -> list[str]:
        """Of all members."""
        return [line for one in self.members for line in one.lines]

    def owners(self, topic: str) -> dict[int, str]:
        """The member that owns each partition."""
        path = f"/consumers/{self.name}/owners/{self.folder_of(topic)}"
        found = {}
        for name in self.looking.children(path):
            content = self.looking.read(f"{path}/{name}")
            if content:
                # pykafka writes the leader before the partition.
                found[int(name.rpartition("-")[2])] = self.member_of(content.decode())
        return found

    def folder_of(self, topic: str) -> str:
        """The name of the node with the owners of a topic's partitions."""
        return topic

    def member_of(self, owner: str) -> str:
        """The id of the member that an owner is of."""
        return owner

    def is_shared_by(self, count: int, topic: str) -> bool:
        """Every partition has an owner that is there, and all have equally many."""
        owners = self.owners(topic)
        ids = self.looking.children(f"/consumers/{self.name}/ids")
        shares = [list(owners.values()).count(one) for one in ids]
        return len(ids) == count and len(owners) == PARTITIONS and shares == [PARTITIONS // count] * count

    def committed(self, topic: str) -> dict[int, int]:
        path = f"/consumers/{self.name}/offsets/{topic}"
        return {
            int(index): int(self.looking.read(f"{path}/{index}") or -1)
            for index in self.looking.children(path)
        }

    def end(self) -> None:
        for member in self.members:
            member.process.kill()
            member.process.wait()


class ConsoleConsumers(Group):
    """Console consumers of one release of Kafka."""

    def __init__(self, version: str, address: str, looking: Looking, tmp_path: pathlib.Path) -> None:
        super().__init__(looking)
        self._version = version
        self._address = address
        self._directory = tmp_path

    def join(self, *words: str, **options: str) -> Member:
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
        config = self._directory / f"{len(self.members)}.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = reference.tool_command(
            "kafka.tools.ConsoleConsumer",
            *("--zookeeper", self._address, "--consumer.config", str(config), *words),
            *([] if self.looking.children(f"/consumers/{self.name}/offsets") else ["--from-beginning"]),
            version=self._version,
        )
        return self.begin(command)

    def member_of(self, owner: str) -> str:
        """The last part numbers the threads of a consumer."""
        return owner.rpartition("-")[0]


class Topic:
    """Numbered lines, the same number in each partition."""

    def __init__(self, bootstrap_servers: str, name: str, replicas: int = 1) -> None:
        self._server = {"bootstrap.servers": bootstrap_servers}
        self.name = name
        self.written: list[str] = []
        admin = AdminClient(self._server)
        (future,) = admin.create_topics([NewTopic(name, PARTITIONS, replicas)]).values()
        future.result(30)

    def write(self, per_partition: int = 5) -> None:
        producer = Producer({**self._server, "enable.idempotence": True})
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


def has_come(topic: Topic, group: Group) -> Callable[[], bool]:
    return lambda: set(topic.written) <= set(group.lines)
