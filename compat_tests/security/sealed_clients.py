"""Each client library over TLS, as a user would set it up: send records, read them back."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.helpers import create_ssl_context

from compat_tests import reference
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaProgram
from tools import environment

VALUES = ["one", "two", "three"]
SECONDS = 40


class JavaClients:
    """Producers and consumers in one JVM, with the options of Java."""

    def __init__(self) -> None:
        source = pathlib.Path(__file__).with_name("Sealed.java")
        class_path = compile_java(reference.client_class_path(), source)
        self._program = JavaProgram(class_path, "Sealed")

    def close(self) -> None:
        self._program.close()

    def open(self, name: str, bootstrap: str, settings: Mapping[str, str]) -> None:
        lines = self._lines(bootstrap, settings)
        self._program.ask("open", name, len(lines), lines=lines)

    def send(self, name: str, topic: str, value: str) -> None:
        self._program.ask("send", name, topic, value)

    def end(self, name: str) -> None:
        self._program.ask("close", name)

    def round_trip(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> list[str]:
        """Raises JavaFailure with all causes."""
        self.open("trip", bootstrap, settings)
        try:
            for value in VALUES:
                self.send("trip", topic, value)
        finally:
            self.end("trip")
        lines = self._lines(bootstrap, settings)
        return self._program.ask("read", topic, len(VALUES), len(lines), lines=lines)

    def _lines(self, bootstrap: str, settings: Mapping[str, str]) -> list[str]:
        all_of_them = {"bootstrap.servers": bootstrap, "security.protocol": "SSL", **settings}
        return [f"{name}={value}" for name, value in all_of_them.items()]


def confluent_settings(bootstrap: str, ca: pathlib.Path, client: pathlib.Path | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(ca),
    }
    if client is not None:
        settings |= {"ssl.certificate.location": str(client), "ssl.key.location": str(client)}
    return settings


def confluent(bootstrap: str, topic: str, ca: pathlib.Path, client: pathlib.Path | None) -> list[str]:
    settings = confluent_settings(bootstrap, ca, client)
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    if producer.flush(SECONDS):
        raise TimeoutError("not all was sent")
    consumer = confluent_kafka.Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        return [message.value().decode() for message in consumer.consume(len(VALUES), SECONDS)]
    finally:
        consumer.close()


def kafka_python_settings(bootstrap: str, ca: pathlib.Path, client: pathlib.Path | None) -> dict[str, Any]:
    own = None if client is None else str(client)
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(ca),
        "ssl_certfile": own,
        "ssl_keyfile": own,
    }


def kafka_python(bootstrap: str, topic: str, ca: pathlib.Path, client: pathlib.Path | None) -> list[str]:
    settings = kafka_python_settings(bootstrap, ca, client)
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value.encode()).get(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000, **settings
    )
    try:
        return [next(consumer).value.decode() for _ in VALUES]
    finally:
        consumer.close()


def aio(bootstrap: str, topic: str, ca: pathlib.Path, client: pathlib.Path | None) -> list[str]:
    own = None if client is None else str(client)
    context = create_ssl_context(cafile=str(ca), certfile=own, keyfile=own)
    settings = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": context}

    async def trip() -> list[str]:
        producer = aiokafka.AIOKafkaProducer(**settings)
        await producer.start()
        try:
            for value in VALUES:
                await producer.send_and_wait(topic, value.encode())
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        try:
            return [(await consumer.getone()).value.decode() for _ in VALUES]
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(trip(), 2 * SECONDS))


_KAFKAJS = """
const { Kafka, logLevel } = require("kafkajs");
const fs = require("fs");
const given = JSON.parse(process.argv[process.argv.length - 1]);
const ssl = { ca: [fs.readFileSync(given.ca)] };
if (given.client) { ssl.cert = ssl.key = fs.readFileSync(given.client); }
const retry = { retries: 1 };
const kafka = new Kafka({ brokers: [given.bootstrap], ssl, logLevel: logLevel.NOTHING, retry });
(async () => {
  const producer = kafka.producer();
  await producer.connect();
  for (const value of given.values) { await producer.send({ topic: given.topic, messages: [{ value }] }); }
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: given.topic });
  await consumer.connect();
  await consumer.subscribe({ topic: given.topic, fromBeginning: true });
  const found = [];
  await consumer.run({ eachMessage: async ({ message }) => {
    found.push(message.value.toString());
    if (found.length === given.values.length) { console.log(JSON.stringify(found)); process.exit(0); }
  } });
})().catch((error) => { console.error(String(error)); process.exit(1); });
"""


def kafkajs(bootstrap: str, topic: str, ca: pathlib.Path, client: pathlib.Path | None) -> list[str]:
    modules = environment.node_modules(environment.CHECKOUT / "compat_tests" / "polyglot" / "node")
    given = {"bootstrap": bootstrap, "topic": topic, "ca": str(ca), "values": VALUES}
    given["client"] = None if client is None else str(client)
    finished = subprocess.run(
        ["node", "-e", _KAFKAJS, "--", json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        env={"NODE_PATH": str(modules), "PATH": "/usr/bin:/bin:/usr/local/bin"},
    )
    if finished.returncode:
        raise RuntimeError(finished.stderr[-1000:])
    found: list[str] = json.loads(finished.stdout)
    return found


LIBRARIES = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aio}
