"""Today's clients beside the old ones."""

from __future__ import annotations

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import odradek

PATIENCE_MS = 30_000


def read(broker: odradek.Broker, topic: str, count: int) -> list[bytes]:
    """The first values of a topic's only partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_MS,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for _, record in zip(range(count), consumer, strict=False)]
    finally:
        consumer.close()


def write(broker: odradek.Broker, topic: str, values: list[bytes]) -> None:
    """Appends to a topic's only partition; returns when all is stored."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for sent in [producer.send(topic, value, b"key", partition=0) for value in values]:
            sent.get(timeout=PATIENCE_MS / 1000)
