"""A broker starts on a directory that `odradek import-log` filled"""

import io
import shutil

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from odradek.embedding.broker_form import BrokerStartError
from odradek.embedding.embedded import Broker as Embedded
from odradek.offline.check import check
from odradek.server.metadata.meta_properties import METADATA_LOG
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.records import Record, build_batch, iter_batches
from odradek.wire.work import finish
from tests.kit.kafka_directories import (
    COUNT,
    FIRST,
    NOW_MS,
    TOPIC_ID,
    expected,
    make_kafka,
    next_producer_id,
    refused,
    served,
    split_in_two,
    take_in,
    topics,
)


@pytest.fixture
def kafka(made_once, tmp_path):
    return shutil.copytree(made_once, tmp_path / made_once.name)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Made with every flush to the disk, which takes longer than a test."""
    return make_kafka(tmp_path_factory.mktemp("original"))


@pytest.fixture
def two_directories(kafka, tmp_path):
    return split_in_two(kafka, tmp_path)


def test_a_log_of_which_all_is_deleted_goes_on_in_its_leader_epoch(kafka, tmp_path):
    """Nothing in it says the epoch any more: the topic's metadata do."""
    data = tmp_path / "data"
    take_in(kafka, data=data, configs={"retention.ms": "-1"})
    with Embedded(data_dir=data) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.delete_records({TopicPartition("orders", 0): COUNT})
        admin.close()
        broker.restart()
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        producer.send("orders", b"new", partition=0).get()
        producer.close()
    log = max((data / "orders-0").glob("*.log"))
    batches = [(header.base_offset, header.leader_epoch) for _, header in iter_batches(log.read_bytes())]
    assert batches[-1] == (COUNT, 4)


@pytest.mark.parametrize("where", ["log", "snapshot"])
def test_no_producer_is_given_an_id_that_an_adopted_stray_knows(kafka, tmp_path, where):
    """Its batches, or a snapshot of it where those are gone, would make duplicates of another one's."""
    data = tmp_path / "data"
    take_in(kafka, data=data)
    first = next_producer_id(data)
    stray = data / "late-0"
    store = LogStore(OsDisk(), [str(tmp_path / "other")])
    store.open(NOW_MS)
    partition = store.create("late", 0, bytes(range(2, 18)), LogConfig(segment_bytes=120))
    for producer_id in (7_000_000, -1, -1):
        sequence = 0 if producer_id >= 0 else -1
        batch = build_batch(
            [Record(0, NOW_MS, b"k", b"v" * 40)],
            producer_id=producer_id,
            producer_epoch=sequence,
            base_sequence=sequence,
        )
        partition.appends.append(batch, now_ms=NOW_MS)
        partition.commit()
    if where == "snapshot":
        partition.retention.delete_records(2)
        finish(store.maintaining(NOW_MS))
        assert partition.log.segments[0].base_offset > 0
    store.close(NOW_MS)
    shutil.copytree(tmp_path / "other" / "late-0", stray)
    with Embedded(data_dir=data):
        pass
    take_in(stray, data=data, topic="late")
    assert next_producer_id(data) == 7_000_001 > first


def content_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_directory_that_no_topic_has_is_not_touched_by_a_broker(kafka, tmp_path, caplog):
    """Its records are older than any retention, its end is torn, and the last stop was not a clean one."""
    data = tmp_path / "data"
    take_in(kafka, data=data)
    stray = data / "users-0"
    shutil.copytree(kafka / "users-0", stray)
    (stray / f"{FIRST}.log").open("ab").write(b"torn")
    before = content_of(stray)
    with Embedded(data_dir=data):
        pass
    with Embedded(data_dir=data):
        pass
    assert content_of(stray) == before
    assert (
        "that belong to no topic and are not served (odradek import-log imports them): users-0" in caplog.text
    )
    view = topics(data)
    store = LogStore(
        OsDisk(),
        [str(data)],
        topic_id_for=lambda name, _: view[name].topic_id if name in view else None,
        config_for=lambda _: LogConfig(retention_ms=1),
    )
    store.open(NOW_MS)
    for _ in range(5):
        finish(store.maintaining(NOW_MS + 10**12))
    store.close(NOW_MS)
    assert content_of(stray) == before


def test_kafkas_other_log_directory_is_no_place_for_ours(two_directories, tmp_path):
    here, other = two_directories
    (other / "meta.properties").write_text("node.id=1\ndirectory.id=x\nversion=1\ncluster.id=theirs\n")
    before = sorted(other.rglob("*"))
    with pytest.raises(BrokerStartError, match=r"odradek import-log \S+ --topic NAME --data-dir THERE"):
        Embedded(data_dir=other).start()
    assert refused(here, other, data=other) == (
        f"{other} is a data directory of Apache Kafka itself: name another for --data-dir, from which "
        "Odradek will serve."
    )
    assert sorted(other.rglob("*")) == before


@pytest.mark.parametrize("byte", [0, 12, 18, 61, 63, 70, 100, 600])
def test_a_broker_starts_whatever_bit_of_its_metadata_is_wrong(kafka, tmp_path, byte):
    data = tmp_path / "data"
    take_in(kafka, data=data, configs={"retention.ms": "-1"})
    (segment,) = (data / METADATA_LOG).glob("*.log")
    content = bytearray(segment.read_bytes())
    content[byte] ^= 1
    segment.write_bytes(content)
    for _ in range(2):
        with Embedded(data_dir=data):
            pass
        topic = topics(data)["orders"]
        assert (topic.topic_id, dict(topic.configs)) == (TOPIC_ID, {"retention.ms": "-1"})
    assert served(data) == (expected(), 0)
    assert check([str(data)], out=io.StringIO()) == 0
