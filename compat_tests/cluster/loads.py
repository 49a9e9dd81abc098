"""Clients at work while a cluster changes: each keeps what it was told, and every error that it got.

`test_replication.Load` is the idempotent producer. A group reads and commits; a transactional producer
writes to several topics at once.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.kit import working

ALLOWED_SECONDS = 60
"""For one call of a client. A leader that is killed is replaced after 9 s."""


class Working(working.Working):
    """A client."""

    patience_seconds = ALLOWED_SECONDS + 30

    def wait_for_more(self, count: int = 10) -> None:
        target = self.done + count
        wait_until(lambda: self._is_at(target), f"{self} gets on", seconds=self.patience_seconds)

    def _is_at(self, target: int) -> bool:
        self.raise_failure()
        return self.done >= target

    @property
    @abc.abstractmethod
    def done(self) -> int:
        """How much it has done."""


class Transactions(Working):
    """Each transaction writes its number to every topic."""

    def __init__(self, bootstrap: str, transactional_id: str, topics: Sequence[str]) -> None:
        super().__init__()
        self.committed: list[bytes] = []
        self._bootstrap, self._id, self._topics = bootstrap, transactional_id, topics

    @property
    def done(self) -> int:
        return len(self.committed)

    def _run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._id,
                "transaction.timeout.ms": ALLOWED_SECONDS * 1000,
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        producer.init_transactions(ALLOWED_SECONDS)
        while not self._ending.is_set():
            value = b"%d" % len(self.committed)
            producer.begin_transaction()
            for topic in self._topics:
                producer.produce(topic, value, partition=0)
            producer.commit_transaction(ALLOWED_SECONDS)
            self.committed.append(value)


class Group(Working):
    """A consumer that commits, for itself, what it has read: each record once, in order. `protocol` is
    "classic" or "consumer" (KIP-848)."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        super().__init__()
        self.values: list[bytes] = []
        self._bootstrap, self._group, self._topic, self._protocol = bootstrap, group, topic, protocol

    @property
    def done(self) -> int:
        return len(self.values)

    def _run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        consumer.subscribe([self._topic])
        try:
            while not self._ending.is_set():
                records = consumer.consume(50, 0.2)
                for record in records:
                    assert record.error() is None, record.error()
                    self.values.append(record.value())
                if records:
                    consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def wait_for(self, count: int) -> None:
        wait_until(lambda: self._is_at(count), "the group has read all", seconds=DEADLINE_SECONDS)
