"""`WordCount.java` as an application of Kafka Streams: its process, its topics, what is right."""

from __future__ import annotations

import pathlib
import random
import subprocess
from collections import Counter
from typing import Protocol

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from compat_tests import reference
from compat_tests.clients import Message, wait_until
from compat_tests.clients.java import SOURCE
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit.java import compile_java
from compat_tests.stories import topic_name

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
PARTITIONS = 3
WORDS = ["broker", "record", "offset", "leader", "batch", "topic", "group"]


class WordCount:
    """`WordCount.java` as a process; its output goes to a file, a line each."""

    def __init__(self, class_path: str, log: pathlib.Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as output:
            command = [
                "java",
                *reference.SMALL_JVM,
                *reference.archive_for(class_path),
                "-cp",
                class_path,
                "WordCount",
                *arguments,
            ]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)

    def lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    def wait_until_running(self) -> None:
        wait_until(self._is_running, "the application runs")

    def _is_running(self) -> bool:
        assert self._process.poll() is None, "\n".join(self.lines()[-30:])
        return "state RUNNING" in self.lines()

    def count(self, word: str) -> int:
        """What the application's own store has."""
        before = len(self._counts())
        self._say(f"count {word}")
        wait_until(lambda: len(self._counts()) > before, "the store answers")
        return int(self._counts()[-1])

    def _counts(self) -> list[str]:
        return [line.removeprefix("count ") for line in self.lines() if line.startswith("count ")]

    def stop(self) -> None:
        if self._process.poll() is None:
            self._say("stop")
            try:
                self._process.wait(40)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise

    def kill(self) -> None:
        """SIGKILL: its transaction stays open, its member in the group."""
        self._process.kill()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()


class Server(Protocol):
    """What an application needs of a broker."""

    @property
    def bootstrap(self) -> str: ...

    def crash_and_restart(self) -> None: ...


class Application:
    """One application id with its input and output, started as often as a test likes."""

    def __init__(
        self, broker: Server, version: str, directory: pathlib.Path, guarantee: str = AT_LEAST_ONCE
    ) -> None:
        self.broker, self.directory, self._guarantee = broker, directory, guarantee
        self.client = KafkaPythonClient(broker.bootstrap)
        self.id, self.input, self.output = topic_name("words"), topic_name("lines"), topic_name("counts")
        for topic in (self.input, self.output):
            self.client.create_topic(topic, PARTITIONS)
        self._class_path = compile_java(reference.class_path(version), SOURCE.with_name("WordCount.java"))
        self._chance = random.Random(version)
        self._sent = 0
        self.expected: Counter[str] = Counter()
        self.runs: list[WordCount] = []

    def start(self, state: str, *settings: str) -> WordCount:
        log = self.directory / f"run-{len(self.runs)}.log"
        place = (self.broker.bootstrap, self.id, str(self.directory / state), self.input, self.output)
        self.runs.append(WordCount(self._class_path, log, *place, self._guarantee, *settings))
        return self.runs[-1]

    def write(self, count: int) -> None:
        lines = [self._chance.choices(WORDS, k=5) for _ in range(count)]
        messages = [
            Message(" ".join(line).encode(), partition=n % PARTITIONS) for n, line in enumerate(lines)
        ]
        self.client.produce(self.input, messages)
        self._sent += count
        for line in lines:
            self.expected.update(line)

    def counted(self) -> dict[str, int]:
        """The last count of each word in the output topic, from its start to where it ends now."""
        last: dict[str, int] = {}
        where = [TopicPartition(self.output, partition) for partition in range(PARTITIONS)]
        with KafkaConsumer(bootstrap_servers=self.broker.bootstrap) as consumer:
            consumer.assign(where)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(where)

            def is_read() -> bool:
                for records in consumer.poll(timeout_ms=200).values():
                    last.update((record.key.decode(), int(record.value)) for record in records)
                # The last offsets may be markers of transactions: no record comes of them.
                return all(consumer.position(one) >= end for one, end in ends.items())

            wait_until(is_read, "the counts are read")
        return last

    def internal_topics(self) -> dict[str, str]:
        """What Streams has created for itself, and the clean-up policy that it asked for."""
        with KafkaAdminClient(bootstrap_servers=self.broker.bootstrap) as admin:
            names = [name for name in admin.list_topics() if name.startswith(f"{self.id}-")]
            described = admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
            )
        return {name: configs["cleanup.policy"]["value"] for name, configs in described["topic"].items()}

    def wait_until_counted(self) -> None:
        """Every word that was written is counted, once, and the input is committed."""
        wait_until(lambda: self.counted() == dict(self.expected), "all words are counted")

        def committed() -> bool:
            offsets = self.client.committed(self.id, self.input, range(PARTITIONS))
            return sum(offset or 0 for offset in offsets.values()) == self._sent

        wait_until(committed, "the input is committed")
