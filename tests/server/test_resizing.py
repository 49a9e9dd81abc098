"""Partitions go from worker to worker by rename: what an interruption leaves, the next start finishes."""

import errno
import os

import pytest

from odradek.config.config_error import ConfigError
from odradek.config.workers import directory_of
from odradek.coordinator.cluster.view import Broker, ClusterView, PartitionView, TopicView
from odradek.server.metadata import meta_properties
from odradek.server.workers.resizing import JOURNAL, Resizing, make_directories
from odradek.storage import checkpoints
from odradek.storage.disk import OsDisk
from odradek.storage.log.durability import END_CHECKPOINTS
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import PartitionChangeRecord, UnregisterBrokerRecord

TOPIC_ID = b"t" * 16
CLUSTER_ID = meta_properties.new_id(os.urandom)


class Metadata:
    """The controller: keeps the records that it is given, and has the view that they make."""

    def __init__(self, replicas, registered=(1, 2, 3)):
        self.replicas = list(replicas)
        self.registered = list(registered)
        self.records = []
        self.fails = False

    @property
    def view(self):
        partitions = tuple(
            PartitionView(index, -1, 0, nodes, nodes[:1]) for index, nodes in enumerate(self.replicas)
        )
        brokers = {one: Broker(one, {}) for one in self.registered}
        topics = {"t": TopicView("t", TOPIC_ID, partitions)}
        return ClusterView(cluster_id=CLUSTER_ID, topics=topics, registrations=brokers)

    def changing(self, edit):
        if self.fails:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
        yield from edit(self)

    def add_records(self, records):
        self.records += records
        for one in records:
            if isinstance(one, PartitionChangeRecord):
                self.replicas[one.partition_id] = tuple(one.replicas)
            elif isinstance(one, UnregisterBrokerRecord):
                self.registered.remove(one.broker_id)


@pytest.fixture
def data(tmp_path):
    """The directories of three workers, with partitions 0 to 5 of `t`, two at each; cleanly stopped."""
    path = str(tmp_path / "data")
    for worker in range(3):
        directory = directory_of(path, worker)
        os.makedirs(directory)
        meta_properties.write(
            directory, CLUSTER_ID, worker + 1, meta_properties.new_id(os.urandom), for_member=True
        )
        checkpoints.write_clean_shutdown(OsDisk(), directory)
        for index in (worker, worker + 3):
            os.makedirs(f"{directory}/t-{index}")
    return path


def metadata():
    return Metadata([(1,), (2,), (3,)] * 2)


def places(data, workers=4):
    """Partitions by worker."""
    return [
        sorted(name for name in os.listdir(directory_of(data, one)) if name.startswith("t-"))
        for one in range(workers)
        if os.path.isdir(directory_of(data, one))
    ]


def test_the_last_worker_gives_all_and_its_node_is_no_member_any_more(data):
    told = metadata()
    Resizing([data], [1, 2]).take_over(told)
    assert places(data) == [["t-0", "t-2", "t-3"], ["t-1", "t-4", "t-5"], []]
    assert told.replicas == [(1,), (2,), (1,), (1,), (2,), (2,)]
    assert told.registered == [1, 2]
    assert not os.path.exists(f"{data}/{JOURNAL}")
    Resizing([data], [1, 2]).take_over(told)
    assert len(told.records) == 3


def test_a_new_worker_gets_its_share_of_each_topic(data):
    told = Metadata([(1,), (2,), (3,)] * 2)
    make_directories([data], [1, 2, 3, 4])
    Resizing([data], [1, 2, 3, 4]).take_over(told)
    assert [len(one) for one in places(data)] == [1, 2, 2, 1]
    assert told.replicas.count((4,)) == 1
    (record,) = told.records
    assert record.isr == record.replicas == [4]
    assert record.leader == 4
    # And no more at the next start, when it is registered.
    told.registered.append(4)
    Resizing([data], [1, 2, 3, 4]).take_over(told)
    assert len(told.records) == 1


def test_what_a_crash_between_two_renames_leaves_is_finished_by_any_start(data, monkeypatch):
    told, renamed, real = metadata(), [], os.rename

    def rename(source, target):
        if len(renamed) == 1:
            raise OSError(errno.EIO, "Input/output error")
        renamed.append(source)
        real(source, target)

    monkeypatch.setattr("odradek.server.workers.resizing.os.rename", rename)
    with pytest.raises(ConfigError, match="The next start goes on"):
        Resizing([data], [1, 2]).take_over(told)
    monkeypatch.undo()
    assert not told.records
    assert sum(map(len, places(data))) == 6
    # With as many workers as before.
    Resizing([data], [1, 2, 3]).take_over(told)
    assert places(data) == [["t-0", "t-2", "t-3"], ["t-1", "t-4", "t-5"], []]
    assert told.replicas == [(1,), (2,), (1,), (1,), (2,), (2,)]
    assert not os.path.exists(f"{data}/{JOURNAL}")


def test_what_a_crash_before_the_records_leaves_is_told_by_the_next_start(data):
    told = metadata()
    told.fails = True
    with pytest.raises(ConfigError, match="The next start goes on"):
        Resizing([data], [1, 2]).take_over(told)
    assert places(data)[2] == []
    assert told.replicas == [(1,), (2,), (3,)] * 2
    told.fails = False
    Resizing([data], [1, 2]).take_over(told)
    assert told.replicas == [(1,), (2,), (1,), (1,), (2,), (2,)]


def test_where_logs_begin_goes_along(data):
    disk, path = OsDisk(), checkpoints.LOG_STARTS
    checkpoints.write_offsets(disk, f"{data}.w2/{path}", {("t", 2): 7, ("t", 5): 9})
    checkpoints.write_offsets(disk, f"{data}/{path}", {("t", 0): 3})
    Resizing([data], [1, 2]).take_over(metadata())
    assert checkpoints.read_offsets(disk, f"{data}/{path}") == {("t", 0): 3, ("t", 2): 7}
    assert checkpoints.read_offsets(disk, f"{data}.w1/{path}") == {("t", 5): 9}


def test_what_is_known_of_a_log_goes_along_and_what_was_known_of_an_earlier_one_goes(data):
    """Without its recovery point a recovery takes a gap that compaction has made for the end of the log."""
    disk = OsDisk()
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.FIRST_DIRTY, checkpoints.HIGH_WATERMARKS):
        checkpoints.write_offsets(disk, f"{data}.w2/{name}", {("t", 2): 70, ("t", 9): 1})
        checkpoints.write_offsets(disk, f"{data}/{name}", {("t", 0): 3, ("t", 2): 5})
        checkpoints.write_offsets(disk, f"{data}.w1/{name}", {("t", 1): 4, ("t", 5): 6})
    scanned = tuple(range(9))
    checkpoints.write_facts(disk, f"{data}.w2/{SCAN_CHECKPOINTS}", {("t", 2): scanned})
    checkpoints.write_facts(disk, f"{data}/{END_CHECKPOINTS}", {("t", 2): (0, 1, 2, 1)})
    Resizing([data], [1, 2]).take_over(metadata())
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.FIRST_DIRTY, checkpoints.HIGH_WATERMARKS):
        assert checkpoints.read_offsets(disk, f"{data}/{name}") == {("t", 0): 3, ("t", 2): 70}
        assert checkpoints.read_offsets(disk, f"{data}.w1/{name}") == {("t", 1): 4}
    assert checkpoints.read_facts(disk, f"{data}/{SCAN_CHECKPOINTS}", lambda *all_: all_) == {
        ("t", 2): scanned
    }
    assert checkpoints.read_facts(disk, f"{data}/{END_CHECKPOINTS}", lambda *all_: all_) == {}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda data: os.remove(f"{data}.w2/{checkpoints.CLEAN_SHUTDOWN}"), "was not stopped cleanly"),
        (lambda data: os.makedirs(f"{data}/t-2"), "is in the way of"),
        (lambda data: os.rmdir(f"{data}.w2/t-2"), "is in none of its directories: start 3 workers"),
    ],
)
def test_what_cannot_be_moved_is_a_sentence_and_nothing_is_moved(data, spoil, sentence):
    spoil(data)
    before, told = places(data), metadata()
    with pytest.raises(ConfigError, match=sentence):
        Resizing([data], [1, 2]).take_over(told)
    assert places(data) == before
    assert not told.records
    assert not os.path.exists(f"{data}/{JOURNAL}")


def test_a_worker_that_was_killed_gives_a_new_one_nothing(data):
    for worker in range(3):
        os.remove(f"{directory_of(data, worker)}/{checkpoints.CLEAN_SHUTDOWN}")
    told = metadata()
    make_directories([data], [1, 2, 3, 4])
    Resizing([data], [1, 2, 3, 4]).take_over(told)
    assert [len(one) for one in places(data)] == [2, 2, 2, 0]
    assert not told.records


def test_a_directory_that_a_kill_has_left_half_made_is_made(data):
    os.makedirs(f"{data}.w3")
    checkpoints.write_clean_shutdown(OsDisk(), f"{data}.w3")
    make_directories([data], [1, 2, 3, 4])
    assert meta_properties.is_member(f"{data}.w3")


def test_directories_of_new_workers_are_of_the_same_cluster(data):
    make_directories([data], [1, 2, 3, 4])
    assert meta_properties.is_member(f"{data}.w3")
    make_directories([f"{data}-other"], [1, 2])
    assert not os.path.exists(f"{data}-other.w1")
