"""A program that consumes, transforms and produces in transactions, and dies where it is told to.

    python -m compat_tests.transactions.loop LIBRARY BOOTSTRAP NAME INPUT OUTPUT PARTITIONS [PHASE]

It takes over the transactional id NAME, reads on where the group NAME has committed, and copies each value
with `done ` before it to the same partition of OUTPUT, a few a transaction. In its second transaction it
kills itself at PHASE, one of `PHASES`. Prints `finished` and ends when all partitions are read to their end.
"""

from __future__ import annotations

import abc
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition

from compat_tests.clients.aio import LoopThread
from compat_tests.transactions.history import Partition
from compat_tests.transactions.producers import LIBRARIES, NO_REBOOTSTRAP, JavaProducer

PHASES = ("before-begin", "after-begin", "after-produce", "after-offsets", "after-commit")
"""Where it may die; in the commit itself it is killed from outside."""
RECORDS_A_TRANSACTION = 7
DONE = b"done "


class Source(abc.ABC):
    """A library's consumer of committed values, assigned, from where the group has committed."""

    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        self.bootstrap, self.group, self.partitions = bootstrap, group, partitions

    @abc.abstractmethod
    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        """Some values of one partition and the offset behind them; None at the end of all partitions."""


class ConfluentSource(Source):
    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
                **NO_REBOOTSTRAP,
            }
        )
        # Without an offset it begins where the group has committed.
        self._consumer.assign([TopicPartition(*partition) for partition in partitions])
        self._unread = set(partitions)
        self._ahead: list[Any] = []

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        while self._unread or self._ahead:
            if not self._ahead:
                for message in self._consumer.consume(100, 0.2):
                    where = (message.topic(), message.partition())
                    if message.error() is None:
                        self._ahead.append(message)
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        self._unread.discard(where)
                self._ahead.sort(key=lambda message: (message.partition(), message.offset()))
            if self._ahead:
                number = self._ahead[0].partition()
                taken = [one for one in self._ahead[:RECORDS_A_TRANSACTION] if one.partition() == number]
                del self._ahead[: len(taken)]
                values = [message.value() for message in taken]
                return (taken[0].topic(), number), values, taken[-1].offset() + 1
        return None


class AiokafkaSource(Source):
    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._loop = LoopThread()
        self._loop.run(self._open())

    async def _open(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await self._consumer.start()
        self._where = [AioTopicPartition(*partition) for partition in self.partitions]
        self._consumer.assign(self._where)
        self._ends = await self._consumer.end_offsets(self._where)

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        return self._loop.run(self._poll())

    async def _poll(self) -> tuple[Partition, list[bytes], int] | None:
        while True:
            for one in self._where:
                batches = await self._consumer.getmany(one, timeout_ms=100, max_records=RECORDS_A_TRANSACTION)
                for records in batches.values():
                    return tuple(one), [record.value for record in records], records[-1].offset + 1
            positions = [await self._consumer.position(one) >= self._ends[one] for one in self._where]
            if all(positions):
                return None


class KafkaPythonSource(Source):
    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._where = [KafkaPythonTopicPartition(*partition) for partition in partitions]
        self._consumer.assign(self._where)
        self._ends = self._consumer.end_offsets(self._where)

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        while True:
            batches = self._consumer.poll(timeout_ms=100, max_records=RECORDS_A_TRANSACTION)
            for one, records in batches.items():
                # One partition a transaction: what else came is read again.
                for other, rest in batches.items():
                    if other != one:
                        self._consumer.seek(other, rest[0].offset)
                return tuple(one), [record.value for record in records], records[-1].offset + 1
            if all(self._consumer.position(one) >= self._ends[one] for one in self._where):
                return None


class JavaSource(Source):
    NAME = "source"

    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._ask = JavaProducer.program().ask
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        self._ask("consume", self.NAME, *(f"{name}={value}" for name, value in settings.items()))
        # Without an offset it begins where the group has committed.
        where = [part for partition in partitions for part in (*partition, "-")]
        lines = [line.split("\t") for line in self._ask("assign", self.NAME, *where)]
        self._unread = {int(number): (int(start), int(end)) for _, number, start, end in lines}
        self._ahead: list[tuple[int, int, str, bytes]] = []

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        # There are no markers in what it reads: the last record is where the partition ends.
        self._unread = {number: (at, end) for number, (at, end) in self._unread.items() if at < end}
        if not self._unread:
            return None
        while not self._ahead:
            for line in self._ask("poll", self.NAME, 200):
                topic, number, offset, value = line.split("\t")
                self._ahead.append((int(number), int(offset), topic, value.encode()))
            self._ahead.sort()
        number, _, topic, _ = self._ahead[0]
        taken = [one for one in self._ahead[:RECORDS_A_TRANSACTION] if one[0] == number]
        del self._ahead[: len(taken)]
        behind = taken[-1][1] + 1
        self._unread[number] = (behind, self._unread[number][1])
        return (topic, number), [value for *_, value in taken], behind


SOURCES: Mapping[str, type[Source]] = {
    "confluent-kafka": ConfluentSource,
    "aiokafka": AiokafkaSource,
    "kafka-python": KafkaPythonSource,
    "java": JavaSource,
}


def run(
    library: str, bootstrap: str, name: str, source: str, target: str, partitions: int, die_at: str | None
) -> None:
    producer = LIBRARIES[library](bootstrap, name)
    producer.open()
    # Only now is it known where the group stands: what another had begun is over.
    consumer = SOURCES[library](bootstrap, name, [(source, number) for number in range(partitions)])
    count = 0

    def reached(phase: str) -> None:
        if count == 2 and phase == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    while (polled := consumer.poll()) is not None:
        (_, number), values, offset = polled
        count += 1
        reached("before-begin")
        producer.begin()
        reached("after-begin")
        for value in values:
            producer.send((target, number), DONE + value)
        producer.flush()
        reached("after-produce")
        producer.send_offsets(name, {(source, number): offset})
        reached("after-offsets")
        producer.commit()
        reached("after-commit")


def main(arguments: list[str]) -> None:
    library, bootstrap, name, source, target, partitions, *die_at = arguments
    try:
        run(library, bootstrap, name, source, target, int(partitions), die_at[0] if die_at else None)
        print("finished", flush=True)
        status = 0
    except Exception:
        traceback.print_exc()
        status = 1
    # At once: whatever threads the libraries have may wait for something that never comes.
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
