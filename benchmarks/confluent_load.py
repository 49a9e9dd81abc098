"""What a user of confluent-kafka sees: `confluent_load.py produce|consume BOOTSTRAP BYTES` prints MB/s.

Runs in a process of its own so that it can be pinned. Consumption reads what a production of the same
size left behind; where nothing is there yet it is produced first, outside the measurement.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOTAL_BYTES = {100: 100_000_000, 1000: 400_000_000, 10_000: 800_000_000}
PARTITIONS = 4
QUEUED_MESSAGES = 1_000_000
"""As many as are ever consumed."""


def topic_name(work: str, size: int) -> str:
    return f"bench-confluent-{size}" if work == "consume" else f"bench-confluent-{size}-{time.time_ns()}"


def produce(bootstrap: str, topic: str, size: int) -> float:
    """Produces through librdkafka's queue and returns MB/s from the first call to the last delivery."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512_000,
        }
    )
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    failures: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    count = TOTAL_BYTES[size] // size
    start = time.perf_counter()
    for index in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=index % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if index % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    elapsed = time.perf_counter() - start
    if failures or left:
        raise SystemExit(f"{len(failures)} deliveries failed, {left} are left: {failures[:1]}")
    return count * size / elapsed / 1e6


def consume(bootstrap: str, topic: str, size: int) -> float:
    """Reads the topic from its beginning with assign() and returns MB/s from the first message on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 4_000_000,
            "queued.max.messages.kbytes": 256_000,
            # With fewer (100,000 of a partition by default) a broker that is faster than its reader fills the
            # queue, and librdkafka asks for more a whole second later: a run takes 4.4, 5.4 or 6.4 s then,
            # and 0.6 without pauses.
            "queued.min.messages": QUEUED_MESSAGES,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    wanted = TOTAL_BYTES[size] // size
    seen, start = 0, 0.0
    deadline = time.monotonic() + 120
    while seen < wanted:
        # Never more than there are: the last call would wait its whole second for them.
        messages = consumer.consume(min(10_000, wanted - seen), timeout=1.0)
        if time.monotonic() > deadline:
            raise SystemExit(f"read {seen} of {wanted} messages in two minutes")
        refused = next((message.error() for message in messages if message.error() is not None), None)
        if refused is not None:
            raise SystemExit(str(refused))
        if start:
            seen += len(messages)
        elif messages:
            start = time.perf_counter()
            wanted -= len(messages)
    elapsed = time.perf_counter() - start
    consumer.close()
    return seen * size / elapsed / 1e6


def main() -> None:
    work, bootstrap, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    topic = topic_name(work, size)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    exists = topic in admin.list_topics(timeout=30).topics
    if not exists:
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result()
        while True:
            found = admin.list_topics(topic, timeout=30).topics[topic]
            if found.error is None and len(found.partitions) == PARTITIONS:
                break
    if work == "produce":
        print(produce(bootstrap, topic, size))
        for future in admin.delete_topics([topic]).values():
            future.result()
    else:
        if not exists:
            produce(bootstrap, topic, size)
        print(consume(bootstrap, topic, size))


if __name__ == "__main__":
    main()
