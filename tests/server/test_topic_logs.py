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
    logs = TopicLogs(1, store, None, LIVE, lambda: NOW_MS, lambda: None, lambda partition: None)
    made = topic(*replicas)
    finish(logs.make_partitions([(made, made.partitions[0])]))
    partition = store.get("t", 0)
    append(partition, 3)
    assert (partition.high_watermark, partition.leader_epoch) == (high_watermark, 3)
    store.close(NOW_MS)
    disk.held.clear()
    again = open_store(disk, replicated_for=lookup_in(made).is_replicated).get("t", 0)
    assert again.high_watermark == high_watermark


OLD, NEW = b"o" * 16, b"n" * 16


def led(name, topic_id, *replicas):
    partition = PartitionView(0, leader=replicas[0], leader_epoch=0, replicas=replicas, isr=replicas)
    return TopicView(name, topic_id, (partition,))


class Plane:
    """A control plane with a view and no more."""

    def __init__(self, *topics, deletions=()):
        self.view = ClusterView(
            topics={one.name: one for one in topics}, topic_names={one.topic_id: one.name for one in topics}
        )
        self.deletions = set(deletions)

    def finish_deletion(self, topic_id):
        self.deletions.discard(topic_id)


def logs_of(store, plane, directory_for=lambda partition: None):
    return TopicLogs(1, store, plane, LIVE, lambda: NOW_MS, lambda: None, directory_for)


def test_a_replica_that_is_moved_to_another_node_goes_and_comes_back_empty():
    store = open_store(MemoryDisk())
    there, gone = led("t", OLD, 1, 2), led("t", OLD, 2)
    logs = logs_of(store, Plane(gone))
    finish(logs.make_partitions([(there, there.partitions[0])]))
    append(store.get("t", 0), 3)
    finish(logs.drop_replicas([(gone, gone.partitions[0])]))
    assert store.get("t", 0) is None
    finish(logs.make_partitions([(there, there.partitions[0])]))
    assert store.get("t", 0).log_end_offset == 0


def test_a_deleted_topic_that_was_made_anew_at_once_keeps_its_new_partition():
    """A view may have the deletion and the new topic of that name together: after a snapshot."""
    store = open_store(MemoryDisk())
    old, new = led("t", OLD, 1), led("t", NEW, 1)
    plane = Plane(new, deletions=[OLD])
    logs = logs_of(store, plane)
    finish(logs.make_partitions([(old, old.partitions[0])]))
    append(store.get("t", 0), 3)
    finish(logs.make_partitions([(new, new.partitions[0])]))
    finish(logs.remove_partitions([old]))
    assert (store.get("t", 0).topic_id, store.get("t", 0).log_end_offset) == (NEW, 0)
    assert not plane.deletions


def test_what_a_cluster_does_not_have_on_this_node_is_set_aside_at_the_start():
    disk = MemoryDisk()
    store = open_store(disk)
    for name in ("mine", "theirs", "nobodys", "formers"):
        store.create(name, 0, OLD, LogConfig())
    plane = Plane(led("mine", OLD, 1, 2), led("theirs", OLD, 2), led("formers", NEW, 1))
    logs_of(store, plane).set_strays_aside()
    assert store.places.names() == [("mine", 0)]
    names = [name.partition(".")[0] for name in disk.list(store.directories[0]) if name.endswith("-stray")]
    assert sorted(names) == ["formers-0", "nobodys-0", "theirs-0"]


def test_a_replica_is_made_in_the_directory_that_its_record_names():
    store = open_store(MemoryDisk(), "/one", "/two", "/three")
    logs = logs_of(store, Plane(), lambda partition: "/three")
    made = led("t", OLD, 1)
    finish(logs.make_partitions([(made, made.partitions[0])]))
    assert store.places.by_key["t", 0].home.path == "/three"
