"""kafka-python and confluent-kafka as `clients.StoryClient`."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.kafka_python import JOIN_POLL_SECONDS
from compat_tests.test_kit.clients import RECORDS, VALUES, Failed, InPython, Patience

RETENTION_MS = "86400001"
POLL_SECONDS = 0.1
CLOSE_SECONDS = 5.0
PATIENT = Patience()
_ERROR_IN_TEXT = re.compile(r"(\w+Error)\b")


class _Operations:
    """One operation, with a client of its own."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        patience: Patience,
        released: threading.Event,
        closing: Callable[[], None],
        settings: Mapping[str, str],
    ) -> None:
        self.bootstrap, self.name, self.patience, self.settings = bootstrap, name, patience, settings
        self.released, self.closing = released, closing
        self.api_s = patience.api_ms / 1000

    def values_of(self, poll: Callable[[], Iterator[bytes]]) -> list[str]:
        """Values as they come, until all are there. TimeoutError."""
        values: list[str] = []
        deadline = time.monotonic() + self.api_s
        while len(set(values)) < RECORDS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"got {values}")
            values += [value.decode() for value in poll()]
        return values

    def values_in_group(self, poll: Callable[[], Iterator[bytes]]) -> list[str]:
        """The same, each once: a member that joins again begins at what is committed."""
        return sorted(set(self.values_of(poll)))


# kafka-python


class _KafkaPython(_Operations):
    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": self.name,
            "request_timeout_ms": self.patience.request_ms,
            "retry_backoff_ms": 50,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 200,
            "bootstrap_timeout_ms": self.patience.api_ms,
            **self.settings,
        }

    @contextlib.contextmanager
    def _producer(self, **more: Any) -> Iterator[KafkaProducer]:
        producer = KafkaProducer(
            **self._settings(),
            acks="all",
            delivery_timeout_ms=self.patience.api_ms,
            max_block_ms=self.patience.api_ms,
            **more,
        )
        try:
            yield producer
        finally:
            self.closing()
            producer.close(timeout=0)

    def _send(self, producer: KafkaProducer) -> list[int]:
        return [
            producer.send(self.name, value.encode(), partition=0).get(self.api_s).offset for value in VALUES
        ]

    def produce(self) -> list[int]:
        with self._producer() as producer:
            return self._send(producer)

    def transact(self) -> None:
        with self._producer(transactional_id=self.name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            self._send(producer)
            producer.send_offsets_to_transaction({self._zero: OffsetAndMetadata(RECORDS, "", -1)}, self.name)
            producer.commit_transaction()

    @property
    def _zero(self) -> PythonPartition:
        return PythonPartition(self.name, 0)

    @contextlib.contextmanager
    def _consumer(self, **more: Any) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(
            **self._settings(), enable_auto_commit=False, auto_offset_reset="earliest", **more
        )
        try:
            yield consumer
        finally:
            self.closing()
            consumer.close(timeout_ms=CLOSE_SECONDS * 1000)

    @staticmethod
    def _polled(consumer: KafkaConsumer, seconds: float = POLL_SECONDS) -> Iterator[bytes]:
        for records in consumer.poll(timeout_ms=seconds * 1000).values():
            yield from (record.value for record in records)

    def read(self) -> list[str]:
        with self._consumer() as consumer:
            consumer.assign([self._zero])
            return self.values_of(lambda: self._polled(consumer))

    def group(self) -> list[str]:
        more = {
            "group_id": self.name,
            "heartbeat_interval_ms": 200,
            "max_poll_interval_ms": self.patience.api_ms,
        }
        with self._consumer(**more) as consumer:
            consumer.subscribe([self.name])
            # One `poll` for all of it: a join that goes on when it ends may be lost (JOIN_POLL_SECONDS).
            values = self.values_in_group(lambda: self._polled(consumer, self.api_s))
            while not self.released.is_set():
                consumer.poll(timeout_ms=JOIN_POLL_SECONDS * 1000)
            consumer.commit({self._zero: OffsetAndMetadata(RECORDS, "", -1)}, timeout_ms=self.patience.api_ms)
            return values

    def __getattr__(self, operation: str) -> Callable[[], list[Any]]:
        """Operations of an admin client."""
        administer = getattr(type(self), f"_admin_{operation}")

        def run() -> list[Any]:
            with KafkaAdminClient(**self._settings()) as admin:
                try:
                    found = administer(self, admin)
                finally:
                    self.closing()
                return [] if found is None else [found]

        return run

    def _admin_create_topics(self, admin: KafkaAdminClient) -> None:
        admin.create_topics({self.name: {"num_partitions": 1, "replication_factor": 1}})

    def _admin_delete_topics(self, admin: KafkaAdminClient) -> None:
        admin.delete_topics([self.name])

    def _admin_create_partitions(self, admin: KafkaAdminClient) -> None:
        admin.create_partitions({self.name: 3})

    def _admin_describe_configs(self, admin: KafkaAdminClient) -> str:
        found = admin.describe_configs([PythonResource("TOPIC", self.name)], config_filter="all")
        return str(found["topic"][self.name]["retention.ms"]["value"])

    def _admin_alter_configs(self, admin: KafkaAdminClient) -> None:
        change = PythonResource("TOPIC", self.name, {"retention.ms": ("SET", RETENTION_MS)})
        _raise_told(admin.alter_configs([change]))

    def _admin_delete_records(self, admin: KafkaAdminClient) -> None:
        admin.delete_records({self._zero: 2})

    def _admin_list_groups(self, admin: KafkaAdminClient) -> bool:
        return self.name in str(admin.list_groups())

    def _admin_describe_groups(self, admin: KafkaAdminClient) -> str:
        found = admin.describe_groups([self.name])[self.name]
        _raise_told(found["error"])
        return str(found["group_state"])

    def _admin_delete_groups(self, admin: KafkaAdminClient) -> None:
        _raise_told(admin.delete_groups([self.name]))

    def _admin_delete_group_offsets(self, admin: KafkaAdminClient) -> None:
        admin.delete_group_offsets(self.name, [self._zero])

    def _admin_describe_cluster(self, admin: KafkaAdminClient) -> int:
        return len(admin.describe_cluster()["brokers"])

    def _admin_describe_log_dirs(self, admin: KafkaAdminClient) -> int:
        (found,) = admin.describe_log_dirs([self.name])
        if not found["log_dirs"]:
            raise KeyError(self.name)
        return len(found["log_dirs"])

    def _admin_describe_producers(self, admin: KafkaAdminClient) -> int:
        (found,) = admin.describe_producers([self._zero]).values()
        return len(found[0])

    def _admin_list_transactions(self, admin: KafkaAdminClient) -> None:
        admin.list_transactions()

    def _admin_list_config_resources(self, admin: KafkaAdminClient) -> None:
        admin.list_config_resources()

    def _admin_list_reassignments(self, admin: KafkaAdminClient) -> int:
        return len(admin.list_partition_reassignments())

    def _admin_describe_quorum(self, admin: KafkaAdminClient) -> int:
        return len(admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["current_voters"])


def _raise_told(found: object) -> None:
    """Raises the error of which a result tells in words. Failed."""
    told = _ERROR_IN_TEXT.search(str(found))
    if told is not None:
        raise Failed(told[1], str(found))


class KafkaPythonStoryClient(InPython):
    name = "kafka-python"
    operations = _KafkaPython

    def __init__(self) -> None:
        # What it says of a fault, at each attempt, would hide what a test says.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)

    def failed(self, failure: Exception) -> Failed:
        if isinstance(failure, Failed):
            return failure
        cause: BaseException = failure
        while type(cause) is PythonError and cause.__cause__ is not None:
            cause = cause.__cause__
        return Failed(type(cause).__name__, str(failure))


# confluent-kafka

PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
"""Kinds of news that a consumer tells while it goes on by itself."""


class _Confluent(_Operations):
    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.name,
            "socket.timeout.ms": self.patience.request_ms,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "enable.metrics.push": False,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in self.settings.items()},
        }

    def _producer(self, **more: Any) -> Producer:
        return Producer(
            {
                **self._settings(),
                "enable.idempotence": True,
                "message.timeout.ms": self.patience.api_ms,
                "linger.ms": 0,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )

    def _send(self, producer: Producer) -> list[int]:
        offsets = []
        for value in VALUES:
            told: list[Any] = []
            producer.produce(
                self.name, value, partition=0, on_delivery=lambda *one, told=told: told.append(one)
            )
            while not told:
                producer.poll(POLL_SECONDS)
            ((error, message),) = told
            if error is not None:
                raise KafkaException(error)
            offsets.append(message.offset())
        return offsets

    def produce(self) -> list[int]:
        return self._send(self._producer())

    def transact(self) -> None:
        own = {**self._settings(), "client.id": "other", "group.id": self.name}
        group = Consumer(own)
        try:
            producer = self._producer(transactional_id=self.name, transaction_timeout_ms=2 * PATIENT.api_ms)
            producer.init_transactions(self.api_s)
            producer.begin_transaction()
            self._send(producer)
            offsets = [TopicPartition(self.name, 0, RECORDS)]
            producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), self.api_s)
            producer.commit_transaction(self.api_s)
        finally:
            self.closing()
            group.close()

    @contextlib.contextmanager
    def _consumer(self, **more: Any) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                **self._settings(),
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.error.backoff.ms": 50,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        try:
            yield consumer
        finally:
            self.closing()
            consumer.close()

    @staticmethod
    def _polled(consumer: Consumer) -> Iterator[bytes]:
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            return
        error = message.error()
        if error is None:
            yield message.value()
        elif error.code() not in PASSING and not error.retriable():
            raise KafkaException(error)

    def read(self) -> list[str]:
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(self.name, 0, -2)])
            return self.values_of(lambda: self._polled(consumer))

    def read_validated(self) -> list[str]:
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(self.name, 0, 0, leader_epoch=0)])
            return self.values_of(lambda: self._polled(consumer))

    def _in_group(self, **more: Any) -> list[str]:
        with self._consumer(max_poll_interval_ms=max(self.patience.api_ms, 45_000), **more) as consumer:
            consumer.subscribe([self.name])
            values = self.values_in_group(lambda: self._polled(consumer))
            while not self.released.is_set():
                list(self._polled(consumer))
            consumer.commit(offsets=[TopicPartition(self.name, 0, RECORDS)], asynchronous=False)
            return values

    def group(self) -> list[str]:
        return self._in_group(heartbeat_interval_ms=200)

    def consumer(self) -> list[str]:
        return self._in_group(group_protocol="consumer")

    def share(self) -> list[str]:
        consumer = ShareConsumer(
            {**self._settings(), "group.id": self.name, "share.acknowledgement.mode": "explicit"}
        )
        try:
            consumer.subscribe([self.name])
            values: set[str] = set()
            deadline = time.monotonic() + self.api_s
            while len(values) < RECORDS or not self.released.is_set():
                if len(values) < RECORDS and time.monotonic() > deadline:
                    raise TimeoutError(f"got {sorted(values)}")
                got = False
                for message in consumer.poll(timeout=2 * POLL_SECONDS):
                    if message.error():
                        raise KafkaException(message.error())
                    got = True
                    values.add(message.value().decode())
                    consumer.acknowledge(message)
                if got:
                    results = consumer.commit_sync(timeout=20)
                    for error in results.values():
                        if error is not None:
                            raise error
            return sorted(values)
        finally:
            self.closing()
            consumer.close()

    def __getattr__(self, operation: str) -> Callable[[], list[Any]]:
        """Operations of an admin client."""
        administer = getattr(type(self), f"_admin_{operation}")

        def run() -> list[Any]:
            found = administer(self, AdminClient(self._settings()))
            return [] if found is None else [found]

        return run

    def _one(self, futures: Any) -> Any:
        (future,) = futures.values() if isinstance(futures, dict) else [futures]
        # Longer than the library waits, which is to say how it ended.
        return future.result(2 * self.api_s)

    @property
    def _zero(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    @property
    def _how(self) -> dict[str, float]:
        return {"request_timeout": self.api_s}

    def _admin_create_topics(self, admin: AdminClient) -> None:
        self._one(admin.create_topics([NewTopic(self.name, 1, 1)], **self._how))

    def _admin_delete_topics(self, admin: AdminClient) -> None:
        self._one(admin.delete_topics([self.name], **self._how))

    def _admin_create_partitions(self, admin: AdminClient) -> None:
        self._one(admin.create_partitions([NewPartitions(self.name, 3)], **self._how))

    def _admin_describe_configs(self, admin: AdminClient) -> str:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        return str(self._one(admin.describe_configs([resource], **self._how))["retention.ms"].value)

    def _admin_alter_configs(self, admin: AdminClient) -> None:
        change = ConfigEntry("retention.ms", RETENTION_MS, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[change])
        self._one(admin.incremental_alter_configs([resource], **self._how))

    def _admin_delete_records(self, admin: AdminClient) -> None:
        self._one(admin.delete_records([TopicPartition(self.name, 0, 2)], **self._how))

    def _admin_list_groups(self, admin: AdminClient) -> bool:
        found = self._one(admin.list_consumer_groups(**self._how))
        if found.errors:
            raise KafkaException(found.errors[0])
        return self.name in {one.group_id for one in found.valid}

    def _admin_describe_groups(self, admin: AdminClient) -> str:
        return str(self._one(admin.describe_consumer_groups([self.name], **self._how)).state.name.title())

    def _admin_delete_groups(self, admin: AdminClient) -> None:
        self._one(admin.delete_consumer_groups([self.name], **self._how))


class ConfluentStoryClient(InPython):
    name = "confluent-kafka"
    operations = _Confluent

    def failed(self, failure: Exception) -> Failed:
        if isinstance(failure, KafkaException):
            return Failed(failure.args[0].name(), str(failure))
        return Failed(type(failure).__name__, str(failure))
