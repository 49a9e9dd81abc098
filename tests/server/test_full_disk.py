"""A disk that takes no more bytes: the produce fails, nothing acknowledged is lost, and it heals.

The kernel refuses the writes of a running broker for real: RLIMIT_FSIZE is set on its process from outside
and lifted again (the in-memory disk of tests/storage knows ENOSPC itself).
"""

import marshal
import resource

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaStorageError

import odradek


def limit_file_size(pid: int, size_bytes: int) -> None:
    """No file of the process may grow past this; SIGXFSZ is ignored by Python, the write fails."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def values_of(broker: odradek.Broker, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values: list[bytes] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    consumer.close()
    return values


def test_a_full_disk_refuses_the_produce_loses_nothing_and_heals():
    with odradek.Broker(process=True) as broker:
        assert broker.pid is not None
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, retries=0, enable_idempotence=False, acks="all"
        )
        before = [b"%d" % index * 100 for index in range(10)]
        for value in before:
            producer.send("filling", value, partition=0).get(10)

        limit_file_size(broker.pid, 4096)
        with pytest.raises(KafkaStorageError):
            producer.send("filling", b"x" * 10_000, partition=0).get(10)
        assert values_of(broker, "filling", 10) == before, "readers are served while the disk is full"

        limit_file_size(broker.pid, resource.RLIM_INFINITY)
        after = [b"again %d" % index for index in range(10)]
        metadata = [producer.send("filling", value, partition=0).get(10) for value in after]
        assert [entry.offset for entry in metadata] == list(range(10, 20)), "no offset was lost or used twice"
        assert values_of(broker, "filling", 20) == before + after

        broker.kill()
        broker.restart()
        assert values_of(broker, "filling", 20) == before + after
        producer.close()


def test_a_topic_that_cannot_be_made_on_a_full_disk_can_be_made_later():
    with odradek.Broker(process=True) as broker:
        assert broker.pid is not None
        limit_file_size(broker.pid, 0)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0, max_block_ms=3000)
        with pytest.raises(KafkaError):
            producer.send("later", b"refused", partition=0).get(10)
        producer.close()

        limit_file_size(broker.pid, resource.RLIM_INFINITY)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        assert producer.send("later", b"taken", partition=0).get(10).offset == 0
        assert values_of(broker, "later", 1) == [b"taken"]
        producer.close()


@pytest.mark.deep
def test_what_is_imported_while_the_disk_is_full_leaves_no_half_bytecode(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    with odradek.Broker(process=True) as broker:
        assert broker.pid is not None
        limit_file_size(broker.pid, 100)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0, max_block_ms=3000)
        with pytest.raises(KafkaError):
            producer.send("later", b"refused", partition=0).get(10)
        producer.close()
    written = list(tmp_path.rglob("*.pyc"))
    assert written
    for path in written:
        assert marshal.loads(path.read_bytes()[16:])
