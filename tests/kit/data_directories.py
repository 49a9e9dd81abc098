"""A data directory as a clean stop leaves it."""

import contextlib

from odradek.config.broker_config import BrokerConfig
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import Broker
from odradek.coordinator.controller.alone import LoneController
from odradek.coordinator.controller.batch import PartitionDefaults
from odradek.server.metadata.meta_properties import claim_directories
from odradek.server.metadata.metadata_log_start import open_own_log
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


@contextlib.contextmanager
def controller_of(directory, **options):
    """The controller of a node alone that does not run."""
    with controller_and_log_of(directory, **options) as (controller, _):
        yield controller


@contextlib.contextmanager
def controller_and_log_of(directory, *, node_id=1, topic_id=TOPIC_ID, cluster_id=None):
    identity = claim_directories([str(directory)], node_id=node_id, cluster_id=cluster_id)
    config = BrokerConfig({"node.id": str(node_id)})
    log = open_own_log(config, identity, [str(directory)], str(directory), now_ms=lambda: NOW_MS)
    try:
        controller = LoneController(
            log, node_id=node_id, cluster_id=identity.cluster_id, new_id=lambda: topic_id
        )
        controller.load()
        if node_id not in controller.view.brokers:
            me = Broker(node_id, {}, directories=(log.directory_id,))
            controller.register(me, lambda: PartitionDefaults(node_id=node_id))
        yield controller, log
    finally:
        log.close()


def make_data(directory, **configs):
    """A data directory as a clean stop leaves it: topic orders with two partitions of five batches."""
    with controller_of(directory, cluster_id="AAAAAAAAAAAAAAAAAAAAAA") as controller:
        controller.create_topics([NewTopic("orders", 2, 1, configs=configs)])
    store = LogStore(OsDisk(), [str(directory)])
    store.open(NOW_MS)
    fill(store)
    store.close(NOW_MS)
    return directory
