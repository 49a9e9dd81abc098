"""Disks that are full (ENOSPC) or broken (EIO) under one directory or one partition, with real clients: a
producer waits until the fault is over, and its records are there once; the other disk is served."""

import contextlib
import threading

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import odradek

pytestmark = pytest.mark.deep  # clients wait for their retries

SECONDS = 60
TOPIC = "orders"


class WithKafkaPython:
    """Operations of kafka-python."""

    def __init__(self, servers):
        self._servers = {"bootstrap_servers": servers}
        self._producer = KafkaProducer(
            acks="all", retry_backoff_ms=50, delivery_timeout_ms=SECONDS * 1000, **self._servers
        )

    def send(self, partition, value):
        """The offset."""
        return self._producer.send(TOPIC, value, partition=partition).get(SECONDS).offset

    def values(self, partition, count):
        """The first values."""
        consumer = KafkaConsumer(
            auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000, **self._servers
        )
        consumer.assign([TopicPartition(TOPIC, partition)])
        found = [next(consumer).value for _ in range(count)]
        consumer.close()
        return found

    def close(self):
        self._producer.close()


class WithConfluent:
    """The same of confluent-kafka."""

    def __init__(self, servers):
        self._servers = {"bootstrap.servers": servers}
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "retry.backoff.ms": 50,
                "message.timeout.ms": SECONDS * 1000,
                **self._servers,
            }
        )

    def send(self, partition, value):
        told = []
        self._producer.produce(
            TOPIC,
            value,
            partition=partition,
            on_delivery=lambda error, message: told.append((error, message)),
        )
        self._producer.flush(2 * SECONDS)
        ((error, message),) = told
        if error is not None:
            raise KafkaException(error)
        return message.offset()

    def values(self, partition, count):
        consumer = Consumer({"group.id": "any", "fetch.error.backoff.ms": 50, **self._servers})
        consumer.assign([ConfluentPartition(TOPIC, partition, 0)])
        found = []
        while len(found) < count:
            message = consumer.poll(SECONDS)
            assert message is not None
            # The news that the partition could not be read for a time.
            if message.error() is None:
                found.append(message.value())
        consumer.close()
        return found

    def close(self):
        self._producer.flush(SECONDS)


@pytest.fixture(params=[WithKafkaPython, WithConfluent], ids=["kafka-python", "confluent"])
def client_of(request):
    return lambda broker: contextlib.closing(request.param(broker.bootstrap_servers))


@pytest.fixture
def broker(tmp_path):
    """A broker with two directories, in each of which is one partition of the topic."""
    paths = [tmp_path / name for name in ("a", "b")]
    options = {"log.dirs": ",".join(map(str, paths))}
    with odradek.Broker(process=True, options=options, data_dir=paths[0]) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(SECONDS)
        assert home_of(tmp_path, 0) != home_of(tmp_path, 1)
        yield started


def home_of(parent, partition):
    """The directory with the partition."""
    (found,) = parent.glob(f"*/{TOPIC}-{partition}")
    return found.parent


def place_of(kind, parent):
    """Arguments of a fault that is about partition 0."""
    if kind == "partition":
        return {"topic": TOPIC, "partition": 0}
    return {"directory": home_of(parent, 0)}


@pytest.mark.parametrize("place", ["partition", "directory"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_producer_waits_for_the_disk_and_its_records_are_there_once(
    broker, client_of, tmp_path, error, place
):
    with client_of(broker) as client:
        assert [client.send(partition, b"before") for partition in (0, 1)] == [0, 0]
        told = []
        with broker.faults.add(disk_error=error, **place_of(place, tmp_path)) as fault:
            sending = threading.Thread(target=lambda: told.append(client.send(0, b"meanwhile")))
            sending.start()
            fault.wait(1, timeout=SECONDS)
            with client_of(broker) as other:
                assert other.send(1, b"meanwhile") == 1
                assert other.values(1, 2) == [b"before", b"meanwhile"]
            assert not told
        sending.join(2 * SECONDS)
        assert told == [1]
        assert [client.send(partition, b"after") for partition in (0, 1)] == [2, 2]
        for partition in (0, 1):
            assert client.values(partition, 3) == [b"before", b"meanwhile", b"after"]


@pytest.mark.parametrize("place", ["partition", "directory"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_what_was_acknowledged_before_is_there_after_a_restart_on_a_sound_disk(
    broker, client_of, tmp_path, error, place
):
    with client_of(broker) as client:
        assert [client.send(0, b"%d" % number) for number in range(3)] == [0, 1, 2]
        fault = broker.faults.add(disk_error=error, **place_of(place, tmp_path))
        sending = threading.Thread(target=lambda: client.send(0, b"3"))
        sending.start()
        fault.wait(1, timeout=SECONDS)
        # Nothing of the fault outlives the process.
        broker.kill()
        broker.start()
        sending.join(2 * SECONDS)
        assert client.values(0, 4) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("place", ["partition", "directory"])
def test_a_consumer_reads_on_a_full_disk(broker, client_of, tmp_path, place):
    with client_of(broker) as client:
        assert client.send(0, b"before") == 0
        with broker.faults.add(disk_error="ENOSPC", **place_of(place, tmp_path)):
            assert client.values(0, 1) == [b"before"]
