"""A data directory as a clean stop leaves it."""

from odradek.coordinator.cluster.machine import ClusterMachine
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import Broker
from odradek.server.metadata.meta_properties import claim_directories
from odradek.server.metadata.metadata_store import FILE_NAME, SqliteMetadataStore
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000


TOPIC_ID = bytes(range(16))


FIRST = f"{0:020}"


def fill(store, topic="orders", partitions=2, count=5):
    for index in range(partitions):
        partition = store.create(topic, index, TOPIC_ID, LogConfig())
        for number in range(count):
            partition.appends.append(
                build_batch([Record(0, NOW_MS + number, b"k", b"v" * 30)]), now_ms=NOW_MS
            )
            partition.commit()


def make_data(directory, **configs):
    """A data directory as a clean stop leaves it: topic orders with two partitions of five batches."""
    claim_directories([str(directory)], node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    metadata = SqliteMetadataStore(str(directory / FILE_NAME))
    machine = ClusterMachine(metadata, cluster_id="", new_topic_id=lambda: TOPIC_ID)
    machine.load()
    machine.register_broker(Broker(1, {}), is_controller=True)
    machine.create_topics([NewTopic("orders", 2, 1, configs=configs)])
    metadata.close()
    store = LogStore(OsDisk(), [str(directory)])
    store.open(NOW_MS)
    fill(store)
    store.close(NOW_MS)
    return directory
