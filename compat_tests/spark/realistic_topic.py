"""A topic as topics are: headers, nulls, large values, every codec, several days, aborted transactions."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field

from compat_tests.clients import Message
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS, topic_name
from compat_tests.transactions.libraries.confluent import ConfluentProducer

DAY_MS = 86_400_000
LARGE_BYTES = 1_000_000
LINGER_MS = 60_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value, headers."""


@dataclass
class RealisticTopic:
    """What was committed is in `rows`, in the order of each partition."""

    tables: KafkaTables
    name: str
    partitions: int
    rows: dict[int, list[Content]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.rows.values()))

    def add(self, messages: list[Message], codec: str = "none") -> None:
        # A batch that the codec does not make smaller is sent as it is, and a batch of a row or two may be
        # such a one: only full batches and the flush send anything, however slow the machine.
        self.tables.client.produce(self.name, messages, codec, linger_ms=LINGER_MS)
        for m in messages:
            assert m.timestamp_ms is not None
            self.rows.setdefault(m.partition, []).append((m.timestamp_ms, m.key, m.value, m.headers))

    def abort(self, number: int) -> None:
        """A transaction of so many records in each partition that is not to be seen."""
        producer = ConfluentProducer(self.tables.client.bootstrap, topic_name("aborted"), 60_000)
        producer.open()
        producer.begin()
        for place in range(number * self.partitions):
            producer.send((self.name, place % self.partitions), b"aborted %d" % place)
        producer.flush()
        producer.abort()
        producer.abandon()


def realistic_topic(tables: KafkaTables, story: str, partitions: int = 2, seed: int = 7) -> RealisticTopic:
    """About 300 rows in each partition, over four days; made by code, and the same for the same seed."""
    topic = RealisticTopic(tables, topic_name(story), partitions)
    tables.client.create_topic(topic.name, partitions)
    chance = random.Random(seed)
    for number, codec in enumerate(CODECS):
        topic.add(some_messages(chance, 60 * partitions, partitions, number), codec)
        topic.abort(3)
    large = [
        Message(chance.randbytes(LARGE_BYTES), b"large", partition=partition, timestamp_ms=START_MS)
        for partition in range(partitions)
    ]
    topic.add(large)
    return topic


def some_messages(chance: random.Random, count: int, partitions: int, days_ago: int = 0) -> list[Message]:
    """Null, empty and filled (kafka-python sends no null with a null); timestamps out of order."""
    messages = [
        Message(
            value=chance.choice([None, b"", chance.randbytes(chance.randrange(300)), b"again " * 20]),
            key=b"key-%d" % chance.randrange(20),
            headers=tuple(
                (f"h{n}", chance.randbytes(chance.randrange(5))) for n in range(chance.randrange(3))
            ),
            partition=place % partitions,
            timestamp_ms=START_MS - chance.choice([days_ago, days_ago, 0]) * DAY_MS + chance.randrange(1000),
        )
        for place in range(count)
    ]
    return [
        m if m.value is None else dataclasses.replace(m, key=chance.choice([None, b"", m.key]))
        for m in messages
    ]
