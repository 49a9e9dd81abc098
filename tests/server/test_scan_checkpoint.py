"""A whole broker has scan checkpoints made of logs that grow, and after a kill it starts from them."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

import odradek

PATIENCE_S = 60.0
COUNT = 60
VALUE_BYTES = 900_000


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.005)


def send(broker: odradek.Broker, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(first, first + count):
        producer.produce("t", (b"%d." % number).ljust(VALUE_BYTES, b"-"), partition=0)
    assert producer.flush(PATIENCE_S) == 0


def numbers_in(broker: odradek.Broker, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    numbers: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(numbers) < count:
        assert time.monotonic() < deadline, f"{len(numbers)} records of {count}"
        for message in consumer.consume(count, timeout=1):
            assert message.error() is None
            numbers.append(int(message.value().partition(b".")[0]))
    consumer.close()
    return numbers


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="asks /proc what a process has read")
def test_a_broker_that_was_killed_reads_what_came_since_its_last_checkpoint():
    options = {"log.flush.offset.checkpoint.interval.ms": 500, "log.initial.task.delay.ms": 10}
    with odradek.Broker(process=True, options=options) as broker:
        send(broker, 0, COUNT)
        log_bytes = (broker.data_dir / "t-0" / f"{0:020d}.log").stat().st_size
        checkpoint = broker.data_dir / "scan-checkpoint"

        def bytes_behind() -> int:
            line = next((line for line in checkpoint.read_text().splitlines() if line.startswith("t 0 ")), "")
            return log_bytes - int(line.split()[4]) if line else log_bytes

        # The last one may be 16 MiB before the end of the log, and is no more.
        wait_until(lambda: checkpoint.exists() and bytes_behind() <= 16 * 1024 * 1024)
        send(broker, COUNT, 2)
        behind_bytes = bytes_behind()
        broker.kill()
        broker.start()
        (read,) = (
            int(line.split()[1])
            for line in Path(f"/proc/{broker.pid}/io").read_text().splitlines()
            if line.startswith("rchar")
        )
        # What is behind the scan checkpoint, then its headers, and what Python reads of itself.
        assert read < 1.5 * (behind_bytes + 2 * VALUE_BYTES) + 10_000_000 < log_bytes
        assert numbers_in(broker, COUNT + 2) == list(range(COUNT + 2))
