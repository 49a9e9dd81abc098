"""Replication by views, where a replica's disk does not answer when the view comes."""

import errno
import logging

import pytest

from odradek.coordinator.cluster.view import (
    Broker,
    ClusterChange,
    ClusterView,
    PartitionChange,
    PartitionView,
    TopicView,
)
from odradek.coordinator.replication.transitions import Known
from odradek.server.cluster.replica_log import ReplicationSettings
from odradek.server.cluster.replication import OFFLINE_LOOK_MS, Replication
from odradek.storage.config import LogConfig
from odradek.storage.directories.failing_disks import Role
from odradek.wire.errors import ErrorCode, KafkaError
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import append, open_store

KEY = ("t", 0)
TOPIC_ID = b"1" * 16


class Timers:
    def __init__(self):
        self.waiting = []

    def after(self, delay_ms, callback):
        self.waiting.append((delay_ms, callback))

    def every(self, interval_ms, callback):
        return lambda: None

    def run(self):
        ((delay_ms, callback),) = self.waiting
        self.waiting = []
        assert delay_ms == OFFLINE_LOOK_MS
        callback()


class Leading:
    def __init__(self):
        self.leaders = {}
        self.partitions = {}

    def known(self, key):
        view = self.leaders.get(key)
        return None if view is None else Known(view.leader_epoch, view.partition_epoch)

    def brokers_changed(self):
        pass

    def lead(self, key, partition, view):
        self.leaders[key] = view
        self.partitions[key] = partition

    def resign(self, key):
        """Who waits for other replicas here gets an error, now and later."""
        if self.leaders.pop(key, None) is not None:
            refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.partitions[key].appender.high_watermark.refuse(refusal)


class Following:
    def __init__(self):
        self.followed = {}

    def is_busy(self, key):
        return False

    def follow(self, key, topic_id, leader_id, leader_epoch, partition):
        self.followed[key] = leader_id, leader_epoch

    def stop(self, key):
        self.followed.pop(key, None)

    def brokers_changed(self, node_ids):
        pass

    def pump(self):
        pass

    def close(self):
        pass


class Node:
    """Node 1 of a cluster, with one partition of two replicas."""

    def __init__(self):
        self.disk = MemoryDisk()
        self.store = open_store(self.disk, "one", "two")
        self.store.failing_disks.are_given_up = True
        self.partition = self.store.create(*KEY, TOPIC_ID, LogConfig(), is_replicated=True)
        append(self.partition)
        self.timers, self.leading, self.following = Timers(), Leading(), Following()
        settings = ReplicationSettings(node_id=1, listener="PLAINTEXT")
        self.replication = Replication(settings, self.store, self.timers, self.leading, self.following)
        self.view = ClusterView()
        self.replication.begin(self.view)
        self.epoch = 0

    def tell(self, leader, *, replicas=(1, 2), isr=(1, 2), elr=()):
        """The next view."""
        self.epoch += 1
        after = PartitionView(0, leader, self.epoch, replicas, isr, partition_epoch=self.epoch, elr=elr)
        topic = TopicView("t", TOPIC_ID, (after,))
        before = self.view.partition(*KEY)
        self.view = ClusterView(topics={"t": topic}, topic_names={TOPIC_ID: "t"})
        change = ClusterChange(changed=(PartitionChange(topic, before, after),))
        self.replication.view_changed(self.view, change)

    @property
    def role(self):
        if KEY in self.leading.leaders:
            return "leads", self.leading.leaders[KEY].leader_epoch
        return ("follows", *self.following.followed[KEY]) if KEY in self.following.followed else None


@pytest.mark.parametrize(("leader", "role"), [(1, ("leads", 2)), (2, ("follows", 2, 2))])
def test_a_replica_whose_files_somebody_changes_is_taken_up_by_the_newest_view_when_that_is_over(
    leader, role
):
    node = Node()
    node.partition.availability.pause("It is being moved.")
    node.tell(3 - leader)
    assert node.role is None
    node.timers.run()
    assert node.role is None
    node.tell(leader)
    node.partition.availability.resume()
    node.timers.run()
    assert node.role == role
    assert node.timers.waiting == []


def test_a_replica_that_goes_offline_while_it_is_fetched_is_taken_up_when_it_is_back():
    node = Node()
    node.tell(2)
    node.partition.availability.take_offline("its disk has failed")
    node.following.when_offline(KEY)
    assert node.role is None
    node.timers.run()
    assert node.role is None
    node.partition.availability.come_back()
    node.timers.run()
    assert node.role == ("follows", 2, 1)


def test_a_leader_that_is_offline_goes_on_leading_as_long_as_the_views_say_so():
    node = Node()
    node.tell(1)
    node.partition.availability.take_offline("its disk has failed")
    node.tell(1)
    assert node.role == ("leads", 2)
    node.tell(2)
    assert node.role is None
    node.partition.availability.come_back()
    node.timers.run()
    assert node.role == ("follows", 2, 3)


@pytest.mark.parametrize("is_offline", [False, True])
def test_the_last_replica_of_a_partition_waits_for_no_other(is_offline):
    node = Node()
    node.tell(1)
    assert node.partition.high_watermark == 0
    told = []
    node.partition.when_high_watermark(1, told.append)
    if is_offline:
        node.partition.availability.take_offline("its disk has failed")
        node.tell(2)
    node.tell(1, replicas=(1,), isr=(1,))
    assert node.role is None
    assert [one is None for one in told] == [not is_offline]
    assert node.partition.high_watermark == node.partition.log_end_offset == 1
    assert not node.partition.is_replicated
    if is_offline:
        node.partition.availability.come_back()
    append(node.partition)
    node.partition.when_high_watermark(2, told.append)
    assert told[-1] is None


def test_a_replica_in_a_directory_that_is_given_up_is_not_waited_for():
    node = Node()
    (home,) = [one for one in node.store.places.homes.values() if one.path in node.partition.directory]
    node.store.failing_disks.fail(home, "broken")
    node.tell(2)
    assert (node.role, node.timers.waiting) == (None, [])


def test_a_replica_that_cannot_be_opened_keeps_no_other_from_its_work():
    node = Node()
    node.store.close(0)
    node.disk.fail = lambda operation, path: errno.EIO if "t-0" in path else None
    node.store = open_store(node.disk, "one", "two")
    replication = Replication(
        ReplicationSettings(node_id=1, listener="PLAINTEXT"),
        node.store,
        node.timers,
        node.leading,
        node.following,
    )
    replication.begin(ClusterView())
    node.replication = replication
    node.tell(2)
    assert node.role is None
    node.disk.fail = lambda operation, path: None
    node.timers.run()
    assert node.role == ("follows", 2, 1)


def test_each_broker_that_is_fenced_or_back_is_told_in_one_line(caplog):
    caplog.set_level(logging.INFO, logger="odradek.replication")
    node = Node()

    def tell(fenced):
        """By node id: whether it is fenced."""
        gone = [one for one in node.view.registrations if one not in fenced]
        registrations = {one: Broker(one, {}, is_fenced=is_fenced) for one, is_fenced in fenced.items()}
        node.view = ClusterView(registrations=registrations)
        node.replication.view_changed(node.view, ClusterChange(brokers=[*fenced, *gone]))

    tell({1: False, 2: False, 3: True})
    tell({1: False, 2: True, 3: True})
    tell({1: True, 2: True, 3: False})
    tell({1: True, 2: False})
    assert [record.getMessage() for record in caplog.records] == [
        "broker 2 is unfenced",
        "broker 2 is fenced or gone",
        "broker 3 is unfenced",
        "broker 2 is unfenced",
        "broker 3 is fenced or gone",
    ]


@pytest.mark.parametrize(
    ("view", "role"),
    [
        ({"leader": 1}, Role(leads=True, has_substitute=True)),
        ({"leader": 1, "isr": (1,)}, Role(leads=True, has_substitute=False)),
        ({"leader": 1, "isr": (1,), "elr": (2,)}, Role(leads=True, has_substitute=True)),
        ({"leader": 2}, Role(leads=False, has_substitute=True)),
        ({"leader": 2, "isr": (2,)}, Role(leads=False, has_substitute=False)),
        ({"leader": 1, "replicas": (1,), "isr": (1,)}, Role(leads=False, has_substitute=False)),
    ],
)
def test_the_role_of_a_replica_is_that_of_the_newest_view(view, role):
    node = Node()
    node.tell(2)
    node.tell(**view)
    assert node.store.failing_disks.role_of(KEY) == role
