"""Which replicas may begin empty at a start, and what of their directories the controllers have to learn."""

import pytest

from odradek.coordinator.cluster.view import LOST, UNASSIGNED, PartitionView, TopicView
from odradek.coordinator.kraft.directory_assignments import Assignment
from odradek.server.cluster.replica_homes import ReplicaHomes
from odradek.storage.config import LogConfig
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import NOW_MS, open_store

ONE, TWO, GONE = b"1" * 16, b"2" * 16, b"3" * 16
TOPIC_ID = b"t" * 16


def partition(directory, *, isr=(1, 2), elr=()):
    return PartitionView(0, 1, 0, (1, 2), isr, elr=elr, directories=(directory, b"x" * 16))


@pytest.fixture
def store():
    return open_store(MemoryDisk(), "/one", "/two")


@pytest.fixture
def homes(store):
    return ReplicaHomes(1, {"/one/": ONE, "/two": TWO}, store)


def fail(store, path):
    store.failing_disks.fail(store.places.homes[path], "test")


@pytest.mark.parametrize(
    ("one", "sound", "with_a_failure"),
    [
        (partition(ONE), True, True),
        (partition(TWO), True, False),
        (partition(UNASSIGNED), True, False),
        (partition(LOST, isr=(1,)), True, False),
        (partition(GONE), True, True),
        (partition(GONE, isr=(1,)), False, False),
        (partition(GONE, isr=(), elr=(1,)), False, False),
        (partition(GONE, isr=(), elr=(1, 2)), True, True),
        (partition(GONE, isr=()), False, False),
    ],
)
def test_a_replica_begins_empty_where_no_records_of_it_are_lost_by_that(
    store, homes, one, sound, with_a_failure
):
    assert homes.may_be_made(one) is sound
    fail(store, "/two")
    assert homes.may_be_made(one) is with_a_failure


def test_a_new_replica_is_wanted_where_the_record_says_and_nowhere_in_a_failed_directory(store, homes):
    assert homes.directory_for(partition(TWO)) == "/two"
    assert homes.directory_for(partition(UNASSIGNED)) is homes.directory_for(partition(GONE)) is None
    fail(store, "/two")
    with pytest.raises(KafkaError) as caught:
        homes.directory_for(partition(TWO))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_controllers_have_to_learn_where_a_replica_is_unless_they_know_or_its_disk_has_failed(
    store, homes
):
    store.create("t", 0, TOPIC_ID, LogConfig(), directory="/two")

    def difference(directory):
        one = partition(directory)
        return homes.difference(TopicView("t", TOPIC_ID, (one,)), one)

    assert difference(TWO) is None
    assert difference(ONE) == difference(UNASSIGNED) == Assignment(TOPIC_ID, 0, TWO)
    fail(store, "/two")
    assert difference(ONE) is None
    assert homes.ids_of(store.failing_disks.failures) == [TWO]


@pytest.mark.parametrize("are_given_up", [False, True])
def test_a_failed_directory_of_which_the_controllers_know_stays_offline_though_its_disk_answers(
    store, are_given_up
):
    store.failing_disks.are_given_up = are_given_up
    fail(store, "/two")
    assert store.failing_disks.needs_attention is not are_given_up
    finish(store.failing_disks.attending(NOW_MS))
    assert ("/two" in store.failing_disks.failures) is are_given_up
