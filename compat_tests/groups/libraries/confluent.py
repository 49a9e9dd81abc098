"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from compat_tests.clients.confluent import PASSING, REBALANCING
from compat_tests.groups.libraries import HEARTBEAT_MS, POLL_SECONDS, RECORDS_A_POLL, BlockingProgram

LOST_OWNERSHIP = {
    *REBALANCING,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._STATE,
}
"""Why a commit may be refused to a member that has done nothing wrong: it was late."""

LOADING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
"""Apache Kafka reads its groups after it has begun to answer; librdkafka does not call that retriable."""


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


PROGRAM = ConfluentProgram
