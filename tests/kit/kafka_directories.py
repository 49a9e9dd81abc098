"""Log directories such as those of Apache Kafka, the import of them, and what a broker would serve then."""

import io

import pytest

from odradek.offline.import_log import CannotImport, import_log
from odradek.server.metadata.meta_properties import METADATA_LOG, claim_directories
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.messages.metadata_records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
    encode_metadata_record,
)
from odradek.wire.records import Record, build_batch, iter_batches, iter_records
from tests.kit.data_directories import controller_of

NOW_MS = 1_700_000_000_000


TOPIC_ID = bytes(range(1, 17))


USERS_ID = bytes(reversed(TOPIC_ID))


FIRST = f"{0:020}"


COUNT = 12


def records_of(index):
    return [(NOW_MS + n, b"%d" % n, b"value %d of %d" % (n, index) + b"." * 40) for n in range(COUNT)]


def make_kafka(tmp_path):
    """A log directory such as Kafka's, of an orderly stop: orders-0 to 2, users-0, the cluster's metadata."""
    directory = tmp_path / "kafka-logs"
    store = LogStore(OsDisk(), [str(directory)])
    store.open(NOW_MS)
    config = LogConfig(segment_bytes=600, index_interval_bytes=200)
    for topic, partitions in (("orders", 3), ("users", 1)):
        for index in range(partitions):
            topic_id = TOPIC_ID if topic == "orders" else USERS_ID
            partition = store.create(topic, index, topic_id, config)
            partition.follow_leader_epoch(4)
            for n, (timestamp, key, value) in enumerate(records_of(index)):
                batch = build_batch(
                    [Record(0, timestamp, key, value)], producer_id=3, producer_epoch=0, base_sequence=n
                )
                partition.appends.append(batch, now_ms=NOW_MS)
                partition.commit()
    store.close(NOW_MS)
    claim_directories([str(directory)], node_id=1)
    identity = directory / "meta.properties"
    identity.write_bytes(identity.read_bytes().partition(b"#crc32=")[0])
    (directory / "__cluster_metadata-0").mkdir()
    write_metadata(
        directory, f"{0:020}.log", 0, *topic_records("orders", 3), *topic_records("users", 1, USERS_ID)
    )
    return directory


def topic_record(name, topic_id=TOPIC_ID):
    return encode_metadata_record(TopicRecord(name=name, topic_id=topic_id), 0)


def topic_records(name, partitions, topic_id=TOPIC_ID):
    yield topic_record(name, topic_id)
    for index in range(partitions):
        partition = PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
        yield encode_metadata_record(partition, 0)


def config_record(name, value, topic="orders"):
    setting = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic, name=name, value=value)
    return encode_metadata_record(setting, 0)


def write_metadata(kafka, name, offset, *values):
    records = [Record(offset + n, NOW_MS, None, value) for n, value in enumerate(values)]
    room = bytes(500) if name.endswith(".log") else b""  # as a kill leaves it
    (kafka / "__cluster_metadata-0" / name).write_bytes(bytes(build_batch(records)) + room)


def split_in_two(kafka, tmp_path):
    """The other one of Kafka's log.dirs has the settings' owner, this one the metadata: orders-0 and 2 stay,
    orders-1 and users-0 go.
    """
    other = tmp_path / "more-kafka-logs"
    other.mkdir()
    for name in ("orders-1", "users-0"):
        (kafka / name).rename(other / name)
    write_metadata(
        kafka,
        f"{0:020}.log",
        0,
        *topic_records("orders", 3),
        *topic_records("users", 1, USERS_ID),
        config_record("retention.ms", "-1"),
        config_record("cleanup.policy", "compact", topic="users"),
    )
    return kafka, other


def take_in(*paths, data, **options):
    out = io.StringIO()
    import_log([str(path) for path in paths], data_dir=str(data), out=out, **{"topic": "orders", **options})
    return out.getvalue().splitlines()


def topics(data):
    """The topics that the metadata of a data directory know."""
    if not (data / METADATA_LOG).exists():
        return {}
    with controller_of(data) as controller:
        return dict(controller.view.topics)


def next_producer_id(data):
    """The first that a broker would give out."""
    with controller_of(data) as controller:
        return controller.allocate_producer_ids()[0]


def served(data, topic="orders", index=0):
    """(offset, timestamp, key, value) of what a broker would serve of a partition, and where it starts."""
    view = topics(data)[topic]
    store = LogStore(OsDisk(), [str(data)], topic_id_for=lambda name, number: view.topic_id)
    store.open(NOW_MS)
    partition = store.get(topic, index)
    found, offset = [], partition.log_start_offset
    while offset < partition.log_end_offset:
        slice_ = partition.read(offset, max_bytes=1 << 20).records
        content = b"".join(slice_.buffers())
        for position, header in iter_batches(content):
            batch = content[position : position + header.size_bytes]
            found += [(one.offset, one.timestamp, one.key, one.value) for one in iter_records(batch)]
            offset = header.last_offset + 1
    start = partition.log_start_offset
    store.close(NOW_MS)
    return [one for one in found if one[0] >= start], start


def expected(index=0):
    return [(n, *record) for n, record in enumerate(records_of(index))]


def refused(*paths, data, **options):
    with pytest.raises(CannotImport) as error:
        take_in(*paths, data=data, **options)
    assert topics(data).keys() <= {"taken"}
    return str(error.value)
