"""Apache Kafka and Odradek beside each other, the same done to both, and Kafka's tools run against both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from compat_tests.clients import Message
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.differential.harness import Side
from compat_tests.kit.looking import looks
from compat_tests.reference import kafka_tool

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"

MADE_UP = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "<broker>"),
    (re.compile(r"(org\.apache\.kafka\.common\.errors\.\w+): .*"), r"\1: <why>"),
    (
        re.compile(
            r"This server does not host this topic-partition\.|This broker has no such topic or partition\."
        ),
        "<unknown partition>",
    ),
    (re.compile(r"The group is not empty\.|The group still has members\."), "<has members>"),
]
"""What each broker makes up for itself, the wording of its refusals, too; and a common name for it."""
TRACE = re.compile(r"^\s+(at |\.\.\. \d+ more)")


@dataclass(frozen=True)
class Said:
    """What a tool wrote, and its exit status."""

    status: int
    lines: list[str]

    def normal(self) -> list[str]:
        """Its lines as words, without what differs from broker to broker and without their order: groups and
        members come in that of hash tables. The width of columns goes by the longest host.
        """
        kept = [line for line in self.lines if line.strip() and not TRACE.match(line)]
        for pattern, name in MADE_UP:
            kept = [pattern.sub(name, line) for line in kept]
        return sorted(" ".join(line.split()) for line in kept)


class Node:
    """One of the two."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name, self.bootstrap = name, bootstrap
        self.side = Side(name, bootstrap)
        self.client = ConfluentClient(bootstrap)

    def run(self, main_class: str, *arguments: str) -> Said:
        finished = kafka_tool(main_class, "--bootstrap-server", self.bootstrap, *arguments, check=False)
        return Said(finished.returncode, (finished.stdout + finished.stderr).splitlines())


class Both:
    """See the module. `each` does the same to both, `compare` has tools look at both."""

    def __init__(self, kafka: str, odradek: str, odradek_pid: int | None) -> None:
        self.kafka, self.odradek = Node("kafka", kafka), Node("odradek", odradek)
        self.odradek_pid = odradek_pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.side.close()

    @property
    def nodes(self) -> tuple[Node, Node]:
        return self.kafka, self.odradek

    def each(self, work: Callable[[Node], object]) -> None:
        for node in self.nodes:
            work(node)

    def create_topic(self, topic: str, partitions: int, messages: Sequence[Message] = ()) -> None:
        for node in self.nodes:
            node.client.create_topic(topic, partitions)
            if messages:
                node.client.produce(topic, messages)

    def compare(self, main_class: str, commands: Iterable[Sequence[str]]) -> list[str]:
        """Runs each of these against both; a text for each that says something else."""
        found = []
        for command in commands:
            for _ in looks(command):
                theirs, ours = (node.run(main_class, *command) for node in self.nodes)
                if (theirs.status, theirs.normal()) == (ours.status, ours.normal()):
                    break
            else:
                what = f"{main_class.rpartition('.')[2]} {' '.join(command)}"
                found.append("\n".join([what, _shown("Kafka", theirs), _shown("Odradek", ours)]))
        return found


def _shown(whose: str, said: Said) -> str:
    return "\n".join([f"  {whose} ({said.status}):", *(f"    {line}" for line in said.normal())])
