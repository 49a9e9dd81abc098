"""What the logs of a node learn of the cluster's view: with other replicas a log has to wait for them."""

from types import SimpleNamespace

import pytest

from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.server.topic_logs import TopicLogs, TopicLookup
from odradek.storage.config import LogConfig
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import NOW_MS, append, open_store

LIVE = SimpleNamespace(log_config=lambda configs: LogConfig())


def topic(*replicas):
    partition = PartitionView(0, leader=1, leader_epoch=3, replicas=replicas, isr=replicas)
    return TopicView("t", b"1" * 16, (partition,))


def lookup_in(*topics):
    lookup = TopicLookup(LIVE)
    lookup.current_view = lambda: ClusterView(topics={one.name: one for one in topics})
    return lookup


@pytest.mark.parametrize(("replicas", "expected"), [((1,), False), ((1, 2), True), ((2, 1, 3), True)])
def test_a_partition_is_replicated_where_the_view_has_several_replicas(replicas, expected):
    lookup = lookup_in(topic(*replicas))
    assert lookup.is_replicated("t", 0) is expected
    assert lookup.is_replicated("t", 1) is lookup.is_replicated("u", 0) is False


@pytest.mark.parametrize(("replicas", "high_watermark"), [((1,), 3), ((1, 2), 0)])
def test_a_partition_is_made_as_one_of_its_replicas_before_any_view_has_it(replicas, high_watermark):
    disk = MemoryDisk()
    store = open_store(disk)
    logs = TopicLogs(1, store, None, LIVE, lambda: NOW_MS, {}, lambda: None)
    made = topic(*replicas)
    finish(logs.make_partitions([(made, made.partitions[0])]))
    partition = store.get("t", 0)
    append(partition, 3)
    assert (partition.high_watermark, partition.leader_epoch) == (high_watermark, 3)
    store.close(NOW_MS)
    disk.held.clear()
    again = open_store(disk, replicated_for=lookup_in(made).is_replicated).get("t", 0)
    assert again.high_watermark == high_watermark
