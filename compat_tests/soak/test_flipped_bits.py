"""One bit flips in any file of a broker's data directory: it starts, and hands nobody another record.

Half of the times after a clean stop, half after a kill. The file may hold records, an index, a snapshot, a
checkpoint, whose directory it is, or the cluster's metadata. A consumer that checks checksums reads what it
can from each partition; what it gets is what was sent, at its offset. Then the broker takes a record, and
gives it back. (10,000 flips on the storage layer alone are in tests/storage/test_corruption.py.)

12 samples, 100 in `make nightly`. ODRADEK_FLIPS_SEED, which is printed, repeats a run.
"""

from __future__ import annotations

import pathlib
import random
import shutil

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from compat_tests.kit.chance import told_seed
from tests.tiers import NIGHTLY

SAMPLES = 100 if NIGHTLY else 12
TOPICS = {"plain": 2, "small-batches": 1}
RECORDS = 300
PATIENCE_SECONDS = 20.0
SKIPPED = (".lock", "-shm")
"""What holds nothing."""

Sent = dict[tuple[str, int], list[bytes]]


def fill(broker: odradek.Broker) -> Sent:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
        made.result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    sent: Sent = {(name, index): [] for name, count in TOPICS.items() for index in range(count)}
    for number in range(RECORDS):
        for (name, index), values in sent.items():
            value = b"%d " % number * 10
            producer.produce(name, value, partition=index)
            values.append(value)
        if number % 7 == 0:
            assert producer.flush(PATIENCE_SECONDS) == 0
    assert producer.flush(PATIENCE_SECONDS) == 0
    return sent


def flip(directory: pathlib.Path, chance: random.Random) -> str:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.stat().st_size]
    path = chance.choice([path for path in files if not path.name.endswith(SKIPPED)])
    bit = chance.randrange(8 * path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
    return f"bit {bit} of {path.relative_to(directory)}"


def check_reads(broker: odradek.Broker, sent: Sent) -> None:
    """Every record that a consumer is given is the one that was sent there; an error ends a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "flips",
            "check.crcs": True,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
    )
    try:
        for (name, index), values in sent.items():
            consumer.assign([TopicPartition(name, index, 0)])
            while (message := consumer.poll(3.0)) is not None and message.error() is None:
                offset = message.offset()
                assert offset < len(values), f"nobody sent {offset} of {name}-{index}"
                assert message.value() == values[offset], f"{name}-{index} has another record at {offset}"
    finally:
        consumer.close()


def check_goes_on(broker: odradek.Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    where: list[int] = []
    producer.produce(
        "afterwards", b"still there", partition=0, on_delivery=lambda _, told: where.append(told.offset())
    )
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "flips"})
    consumer.assign([TopicPartition("afterwards", 0, where[0])])
    message = consumer.poll(PATIENCE_SECONDS)
    consumer.close()
    assert message is not None
    assert message.value() == b"still there"


def test_a_broker_with_a_flipped_bit_starts_and_hands_nobody_another_record(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(told_seed(capsys, "ODRADEK_FLIPS_SEED"))
    sources = {}
    for how in ("stop", "kill"):
        directory = sources[how] = tmp_path / how
        with odradek.Broker(process=True, data_dir=directory) as broker:
            sent = fill(broker)
            getattr(broker, how)()
    for number in range(SAMPLES):
        directory = tmp_path / "damaged"
        how = chance.choice(("stop", "kill"))
        shutil.copytree(sources[how], directory)
        what = f"sample {number}: {flip(directory, chance)}, after a {how}"
        try:
            with odradek.Broker(process=True, data_dir=directory) as broker:
                check_reads(broker, sent)
                check_goes_on(broker)
        except BaseException as error:
            error.add_note(what)
            raise
        shutil.rmtree(directory)
