"""Leading with real logs: a new leader epoch, and followers that wait until the disk has it."""

from typing import NamedTuple

import pytest

from odradek.apis.replicas import EpochNotSaved, FetchingReplica
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.replication.in_sync import AlterIsr
from odradek.coordinator.replication.replication_quota import ReplicationQuota
from odradek.server.cluster.leading import LEADER_EPOCH_RETRY_MS, Leading
from odradek.server.cluster.replica_log import ReplicationSettings
from odradek.storage.checkpoints import LEADER_EPOCHS, read_leader_epochs
from odradek.storage.config import LogConfig
from odradek.wire.errors import ErrorCode, KafkaError
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import append, open_store

KEY = ("t", 0)
FOLLOWER = FetchingReplica(2, 102)


class View(NamedTuple):
    leader: int = 1
    leader_epoch: int = 5
    partition_epoch: int = 10
    replicas: tuple[int, ...] = (1, 2)
    isr: tuple[int, ...] = (1, 2)
    leader_recovery_state: int = 0


class Timers:
    def __init__(self):
        self.waiting = []

    def after(self, delay_ms, callback):
        self.waiting.append((delay_ms, callback))

    def run(self):
        ((delay_ms, callback),) = self.waiting
        self.waiting = []
        callback()
        return delay_ms


class Altering:
    def submit(self, change):
        raise AssertionError("nothing of the ISR changes here")

    def forget(self, key):
        pass


class Node:
    """`saving` are the epochs that a worker is to write, with what it calls then."""

    def __init__(self):
        self.disk = MemoryDisk()
        self.store = open_store(self.disk)
        self.partition = self.store.create("t", 0, b"1" * 16, LogConfig(), is_replicated=True)
        append(self.partition, 3)
        self.saving = []
        self.timers = Timers()
        self.leading = Leading(
            ReplicationSettings(node_id=1, listener="PLAINTEXT"),
            self.store,
            ClusterView,
            Altering(),
            ReplicationQuota(),
            self.timers,
            lambda partition, done: self.saving.append((partition, done)),
        )

    def lead(self, **view):
        self.leading.lead(KEY, self.partition, View(**view))

    def save(self, error=None):
        """The worker is at it."""
        ((partition, done),) = self.saving
        self.saving = []
        if error is None:
            partition.flushing.save_leader_epochs()
        done(error)

    def read(self, leader_epoch=5):
        return self.leading.read(KEY, FOLLOWER, leader_epoch, 3, 0)

    @property
    def epochs_on_disk(self):
        return read_leader_epochs(self.disk, f"{self.partition.directory}/{LEADER_EPOCHS}")


def test_followers_wait_until_the_disk_has_the_leader_epoch_and_are_woken_then():
    """KAFKA-7415."""
    node = Node()
    woken = []
    node.partition.watch(lambda: woken.append(node.epochs_on_disk), at_log_end=True)
    node.lead()
    with pytest.raises(EpochNotSaved):
        node.read()
    assert (woken, node.epochs_on_disk) == ([], None)
    node.save()
    assert woken[-1] == [(0, 0), (5, 3)]
    assert node.read().log_end_offset == 3


@pytest.mark.parametrize(
    ("epoch", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_who_asks_in_another_epoch_is_told_at_once(epoch, code):
    node = Node()
    node.lead()
    with pytest.raises(KafkaError) as refused:
        node.read(epoch)
    assert refused.value.code is code


def test_an_epoch_that_the_disk_does_not_take_is_written_again_after_a_while():
    node = Node()
    node.lead()
    node.save(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room"))
    assert node.timers.run() == LEADER_EPOCH_RETRY_MS
    with pytest.raises(EpochNotSaved):
        node.read()
    node.save()
    assert node.read().log_end_offset == 3


def test_what_became_of_an_earlier_epoch_says_nothing_about_the_next_one():
    node = Node()
    node.lead()
    ((partition, done),) = node.saving
    node.saving = []
    node.lead(leader_epoch=6, partition_epoch=11)
    done(None)
    with pytest.raises(EpochNotSaved):
        node.read(6)
    node.save()
    assert node.read(6).log_end_offset == 3
    assert node.epochs_on_disk == [(0, 0), (6, 3)]
    assert partition is node.partition


def test_who_leads_no_more_leaves_nobody_waiting():
    node = Node()
    node.lead()
    node.leading.resign(KEY)
    with pytest.raises(KafkaError) as refused:
        node.read()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not isinstance(refused.value, EpochNotSaved)
    node.save()
    assert node.timers.waiting == []


def test_changes_of_the_isr_are_counted_whoever_has_made_them():
    node = Node()
    changes = node.leading.isr_changes

    def counts():
        return changes.shrinks, changes.expands, changes.failures

    node.lead()
    # To lead is no change.
    assert counts() == (0, 0, 0)
    node.lead(isr=(1,), partition_epoch=11)
    assert counts() == (1, 0, 0)
    node.lead(isr=(1, 2), partition_epoch=12)
    assert counts() == (1, 1, 0)
    node.lead(isr=(1, 2), partition_epoch=13)
    assert counts() == (1, 1, 0)
    refused = AlterIsr(KEY, 5, 13, ((1, 101),))
    node.leading.altered(refused, ErrorCode.INELIGIBLE_REPLICA)
    assert counts() == (1, 1, 1)
