"""A group moves from positions of Kafka 0.7 to offsets, by the tools of Kafka 4.3 (docs/old-clients.md)."""

from __future__ import annotations

from compat_tests import reference
from compat_tests.kafka07.conftest import Oldest
from odradek.wire.compression import Compression
from tests.kafka07.client import Client07

PARTITIONS = 3
CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY)
READ, WRITTEN = (0, 40, 100), 100
"""What the old consumer has read of each partition, and what is in it."""
TOOLS = "org.apache.kafka.tools"


def test_a_group_moves_to_offsets_and_loses_no_record(oldest: Oldest, topic: str) -> None:
    server = ("--bootstrap-server", oldest.broker.bootstrap_servers)
    reference.kafka_tool(
        f"{TOOLS}.TopicCommand", *server, "--create", "--topic", topic, "--partitions", str(PARTITIONS)
    )
    lines = [[f"{index}/{number}" for number in range(WRITTEN)] for index in range(PARTITIONS)]
    groups = (f"{TOOLS}.consumer.group.ConsumerGroupCommand", *server, "--group", topic)
    with Client07(oldest.port) as client:
        for index, codec in enumerate(CODECS):
            for start in range(0, WRITTEN, 20):
                values = [line.encode() for line in lines[index][start : start + 20]]
                client.produce(*values, topic=topic, partition=index, codec=codec, magic=1)
        every = ("--topic", f"{topic}:{','.join(map(str, range(PARTITIONS)))}")
        reference.kafka_tool(*groups, *every, "--reset-offsets", "--to-latest", "--execute")
        for index, read in enumerate(READ):
            position = sum(10 + len(line) for line in lines[index][:read])
            left = len(client.values(topic, index, position))
            assert left == WRITTEN - read
            one = ("--topic", f"{topic}:{index}", "--reset-offsets", "--shift-by", f"-{left}")
            reference.kafka_tool(*groups, *one, "--execute")
    rest = [line for index, read in enumerate(READ) for line in lines[index][read:]]
    found = reference.kafka_tool(
        *(f"{TOOLS}.consumer.ConsoleConsumer", *server, "--group", topic, "--topic", topic),
        *("--max-messages", str(len(rest))),
    ).stdout.splitlines()
    assert sorted(found) == sorted(rest), "no record is lost, and none comes twice"
    described = reference.kafka_tool(*groups, "--describe").stdout
    rows = sorted(line.split()[2:6] for line in described.splitlines() if line.startswith(topic))
    assert rows == [[str(index), "100", "100", "0"] for index in range(PARTITIONS)], "all is committed"
