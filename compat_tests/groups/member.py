"""A member of a group as a process, so that it can be killed: it consumes, commits, and says what it does.

    python -m compat_tests.groups.member LIBRARY BOOTSTRAP GROUP TOPIC [NAME=VALUE ...]

Names: `assignor` (range, roundrobin, sticky, cooperative-sticky; of the new protocol the broker's uniform or
range), `protocol` (classic, consumer), `instance` (of a static member), `session_ms`. SIGTERM makes it leave.
Prints a line of JSON for each event, in the words of Kafka's VerifiableConsumer, so that one reader does for
both; a record is told before its offset is committed, and a partition's records before it is given away.
"""

from __future__ import annotations

import abc
import asyncio
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import aiokafka
import kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from aiokafka.errors import CommitFailedError as AioCommitFailed
from aiokafka.errors import IllegalStateError as AioIllegalState
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import CommitFailedError, RebalanceInProgressError
from kafka.errors import KafkaError as KafkaPythonError
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.aio import _start as start_aiokafka
from compat_tests.clients.confluent import PASSING, REBALANCING
from compat_tests.clients.kafka_python import JOIN_POLL_SECONDS
from compat_tests.kit import telling

POLL_SECONDS = 0.2
HEARTBEAT_MS = 300
RECORDS_A_POLL = 100
COMMIT_PATIENCE_MS = 45_000
SETTINGS = {"assignor": "range", "protocol": "classic", "instance": "", "session_ms": "10000"}

LOST_OWNERSHIP = {
    *REBALANCING,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._STATE,
}
"""Why a commit may be refused to a member that has done nothing wrong: it was late."""

LOADING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
"""Apache Kafka reads its groups after it has begun to answer; librdkafka does not call that retriable."""


def say(name: str, **facts: Any) -> None:
    telling.tell({"timestamp": time.time_ns() // 1_000_000, "name": name, **facts})


class Program(abc.ABC):
    """One library's consumer."""

    def __init__(self, bootstrap: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.assignor, self.protocol = settings["assignor"], settings["protocol"]
        self.instance = settings["instance"] or None
        self.session_ms = int(settings["session_ms"])
        self.is_stopping = False
        self._taken: dict[int, list[int]] = {}
        self.positions: dict[int, int] = {}
        """Of what is to be committed."""

    def stop(self, *_: object) -> None:
        self.is_stopping = True

    # -- what happened

    def take(self, partition: int, offset: int) -> None:
        self._taken.setdefault(partition, []).append(offset)

    def tell_taken(self) -> None:
        """What was taken since the last call is told, and is to be committed."""
        taken, self._taken = self._taken, {}
        if not taken:
            return
        say(
            "records_consumed",
            count=sum(map(len, taken.values())),
            generation=self.generation(),
            partitions=[
                {"partition": one, "count": len(offsets), "minOffset": offsets[0], "maxOffset": offsets[-1]}
                for one, offsets in taken.items()
            ],
        )
        self.positions.update({one: offsets[-1] + 1 for one, offsets in taken.items()})

    def assigned(self, partitions: Iterable[int]) -> None:
        self.tell_taken()
        say("partitions_assigned", partitions=[{"partition": one} for one in sorted(partitions)])

    def revoked(self, partitions: Iterable[int]) -> None:
        self.tell_taken()
        gone = sorted(partitions)
        for one in gone:
            self.positions.pop(one, None)
        say("partitions_revoked", partitions=[{"partition": one} for one in gone])

    def committed(self, offsets: Mapping[int, int]) -> None:
        for one, offset in offsets.items():
            if self.positions.get(one) == offset:
                del self.positions[one]
        say(
            "offsets_committed",
            success=True,
            offsets=[{"partition": one, "offset": offset} for one, offset in offsets.items()],
        )

    # -- what a library does

    def generation(self) -> int | None:
        """The generation that the library believes in; None if it does not tell."""
        return None

    @abc.abstractmethod
    def run(self) -> None: ...


class BlockingProgram(Program):
    def run(self) -> None:
        self.open()
        say("startup_complete")
        while not self.is_stopping:
            self.poll()
            self.tell_taken()
            if self.positions:
                self.commit(dict(self.positions))
        say("stopping")
        self.close()
        say("shutdown_complete")

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def poll(self) -> None:
        """Takes records that come within POLL_SECONDS."""

    @abc.abstractmethod
    def commit(self, offsets: dict[int, int]) -> None:
        """Calls `committed` if it is done; a refusal for a rebalance is none of an error."""

    @abc.abstractmethod
    def close(self) -> None: ...


class ConfluentProgram(BlockingProgram):
    def open(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
        if self.instance:
            settings["group.instance.id"] = self.instance
        if self.protocol == "classic":
            settings["partition.assignment.strategy"] = self.assignor
            settings["session.timeout.ms"] = self.session_ms
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        else:
            settings["group.remote.assignor"] = self.assignor
        self._consumer = Consumer(settings)
        self._consumer.subscribe(
            [self.topic],
            on_assign=lambda _, partitions: self.assigned(one.partition for one in partitions),
            on_revoke=lambda _, partitions: self.revoked(one.partition for one in partitions),
            on_lost=lambda _, partitions: self.revoked(one.partition for one in partitions),
        )

    def poll(self) -> None:
        message = self._consumer.poll(POLL_SECONDS)
        for _ in range(RECORDS_A_POLL):
            if message is None:
                return
            error = message.error()
            if error is None:
                self.take(message.partition(), message.offset())
            elif error.fatal() or (error.code() not in PASSING and not error.retriable()):
                raise KafkaException(error)
            message = self._consumer.poll(0)
        if message is not None and message.error() is None:
            self.take(message.partition(), message.offset())

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(self.topic, one, offset) for one, offset in offsets.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() not in LOST_OWNERSHIP | PASSING | LOADING and not error.retriable():
                raise
            return
        self.committed({one.partition: one.offset for one in done if one.error is None})

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonProgram(BlockingProgram, kafka.ConsumerRebalanceListener):
    ASSIGNORS = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def open(self) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(self.ASSIGNORS[self.assignor],),
            metadata_max_age_ms=1000,
        )
        self._consumer.subscribe([self.topic], listener=self)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned(one.partition for one in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked(one.partition for one in revoked)

    def generation(self) -> int | None:
        generation = int(self._consumer._coordinator._generation.generation_id)
        return generation if generation > 0 else None

    def poll(self) -> None:
        try:
            timeout_ms = int(JOIN_POLL_SECONDS * 1000)
            batches = self._consumer.poll(timeout_ms=timeout_ms, max_records=RECORDS_A_POLL)
        except KafkaPythonError as error:
            # While the broker is away it leaves it to its user to go on.
            if not error.retriable:
                raise
            return
        for where, records in batches.items():
            for record in records:
                self.take(where.partition, record.offset)

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = {
            kafka.TopicPartition(self.topic, one): OffsetAndMetadata(offset, "", -1)
            for one, offset in offsets.items()
        }
        try:
            self._consumer.commit(wanted, timeout_ms=COMMIT_PATIENCE_MS)
        except (CommitFailedError, RebalanceInProgressError):
            return
        except KafkaPythonError as error:
            if not error.retriable:
                raise
            return
        self.committed(offsets)

    def close(self) -> None:
        self._consumer.close()


class AiokafkaProgram(Program, aiokafka.ConsumerRebalanceListener):
    ASSIGNORS = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(self.ASSIGNORS[self.assignor],),
        )
        self._consumer.subscribe([self.topic], listener=self)
        await start_aiokafka(self._consumer)
        say("startup_complete")
        while not self.is_stopping:
            batches = await self._consumer.getmany(
                timeout_ms=int(POLL_SECONDS * 1000), max_records=RECORDS_A_POLL
            )
            # Nothing awaits before this is told: a rebalance cannot come in between.
            for where, records in batches.items():
                for record in records:
                    self.take(where.partition, record.offset)
            self.tell_taken()
            if self.positions:
                await self._commit(dict(self.positions))
        say("stopping")
        await self._consumer.stop()
        say("shutdown_complete")

    async def _commit(self, offsets: dict[int, int]) -> None:
        wanted = {aiokafka.TopicPartition(self.topic, one): offset for one, offset in offsets.items()}
        try:
            await self._consumer.commit(wanted)
        except (AioCommitFailed, AioIllegalState):
            return
        except AioKafkaError as error:
            if not getattr(error, "retriable", False):
                raise
            return
        self.committed(offsets)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned(one.partition for one in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked(one.partition for one in revoked)

    def generation(self) -> int | None:
        generation = int(self._consumer._coordinator.generation)
        return generation if generation > 0 else None


PROGRAMS: Mapping[str, type[Program]] = {
    "confluent-kafka": ConfluentProgram,
    "aiokafka": AiokafkaProgram,
    "kafka-python": KafkaPythonProgram,
}


def main(arguments: list[str]) -> None:
    library, bootstrap, group, topic, *pairs = arguments
    settings = {**SETTINGS, **dict(pair.split("=", 1) for pair in pairs)}
    telling.keep_the_output_for_events()
    program = PROGRAMS[library](bootstrap, group, topic, settings)
    signal.signal(signal.SIGTERM, program.stop)
    telling.end_with(program.run)


if __name__ == "__main__":
    main(sys.argv[1:])
