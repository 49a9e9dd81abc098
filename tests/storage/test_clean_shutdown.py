"""The mark of a clean stop: the broker epoch in it, and what of it the next registration says."""

import pytest
from memory_disk import MemoryDisk
from stores import NOW_MS

from odradek.storage.checkpoints import previous_broker_epoch
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import read_file

MARK = ".kafka_cleanshutdown"


def stop_cleanly(disk, *directories, broker_epoch=None):
    store = LogStore(disk, directories)
    store.open(NOW_MS)
    if broker_epoch is not None:
        store.broker_epoch = broker_epoch
    store.close(NOW_MS)


def test_a_node_of_a_cluster_marks_a_clean_stop_with_its_epoch_as_kafka_does():
    disk = MemoryDisk()
    stop_cleanly(disk, "a", "b", broker_epoch=19)
    assert [read_file(disk, f"{path}/{MARK}") for path in "ab"] == [b'{"version":0,"brokerEpoch":19}'] * 2
    assert previous_broker_epoch(disk, ["a", "b"]) == 19


def test_a_node_alone_has_no_epoch():
    disk = MemoryDisk()
    stop_cleanly(disk, "a")
    assert read_file(disk, f"a/{MARK}") == b'{"version":0,"brokerEpoch":-1}'
    assert previous_broker_epoch(disk, ["a"]) == -1


def test_the_epoch_is_there_until_the_logs_are_opened():
    """As in Kafka, where a start that ends before that was not the first one after the clean stop."""
    disk = MemoryDisk()
    stop_cleanly(disk, "a", broker_epoch=19)
    store = LogStore(disk, ["a"])
    store.lock()
    store.close(NOW_MS)
    assert previous_broker_epoch(disk, ["a"]) == 19
    store = LogStore(disk, ["a"])
    store.open(NOW_MS)
    assert store.opening.was_clean
    assert previous_broker_epoch(disk, ["a"]) == -1


@pytest.mark.parametrize(
    "other",
    [
        None,
        b"",
        b"{",
        b"19",
        b"[]",
        b'{"version":0}',
        b'{"version":0,"brokerEpoch":"19"}',
        b'{"version":0,"brokerEpoch":true}',
        b'{"version":0,"brokerEpoch":20}',
        b'{"version":0,"brokerEpoch":-1}',
        b"\xff",
    ],
)
def test_a_directory_without_the_mark_or_with_another_epoch_makes_the_stop_unclean(other):
    disk = MemoryDisk()
    stop_cleanly(disk, "a", "b", broker_epoch=19)
    if other is None:
        disk.remove(f"b/{MARK}")
    else:
        disk = MemoryDisk.of({f"a/{MARK}": b'{ "version" : 0, "brokerEpoch" : 19 }', f"b/{MARK}": other})
    assert previous_broker_epoch(disk, ["a"]) == 19
    assert previous_broker_epoch(disk, ["a", "b"]) == -1
    assert previous_broker_epoch(disk, ["b", "a"]) == -1


def test_a_directory_that_is_not_there_makes_the_stop_unclean():
    disk = MemoryDisk()
    stop_cleanly(disk, "a", broker_epoch=19)
    assert previous_broker_epoch(disk, ["a", "gone"]) == -1
