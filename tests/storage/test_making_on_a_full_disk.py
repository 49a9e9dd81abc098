"""A full disk refuses a partition: nothing is left behind. A damaged id of a topic is written anew."""

import errno

import pytest
from memory_disk import MemoryDisk
from stores import append, open_store

from odradek.storage.checkpoints import read_partition_metadata, write_partition_metadata
from odradek.storage.config import LogConfig
from odradek.wire.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))
METADATA = "data/t-0/partition.metadata"


def partition_directories(disk):
    return {path for path in disk.directories if path.startswith("data/t-0")}


def refuse_to_make(disk, store):
    with pytest.raises(KafkaError) as refused:
        store.create("t", 0, TOPIC_ID, LogConfig())
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not partition_directories(disk)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("create", "partition.metadata"),
        ("write", "partition.metadata"),
        ("create", ".log"),
    ],
)
def test_whatever_a_full_disk_refuses_nothing_of_the_partition_is_left(operation, name):
    disk = MemoryDisk()
    store = open_store(disk)
    asked = []

    def fail(one, path):
        if one != operation or not path.endswith(name):
            return None
        asked.append(path)
        return errno.ENOSPC

    disk.fail = fail
    refuse_to_make(disk, store)
    assert asked
    disk.fail = lambda operation, path: None
    append(store.create("t", 0, TOPIC_ID, LogConfig()))
    assert read_partition_metadata(disk, METADATA) == TOPIC_ID


@pytest.mark.parametrize("room_bytes", [0, 10])
def test_a_disk_with_room_for_half_an_id_has_none_of_it(room_bytes):
    disk = MemoryDisk()
    store = open_store(disk)
    disk.room_bytes = sum(len(one.data) for one in disk.files.values()) + room_bytes
    refuse_to_make(disk, store)


def test_half_a_file_is_removed_where_its_directory_stays():
    disk = MemoryDisk.of({"data/t-0/other": b""})
    disk.room_bytes = 10
    with pytest.raises(OSError, match="No space left"):
        write_partition_metadata(disk, METADATA, TOPIC_ID, directory_is_new=True)
    assert not disk.exists(METADATA)


@pytest.mark.parametrize("content", [b"", b"version: 0\ntopic"])
def test_a_damaged_id_is_written_anew_when_the_metadata_know_it(content):
    disk = MemoryDisk()
    append(open_store(disk).create("t", 0, TOPIC_ID, LogConfig()))
    disk.held.clear()
    disk.files[METADATA].data[:] = content
    store = open_store(disk, topic_id_for=lambda topic, index: TOPIC_ID)
    partition = store.get("t", 0)
    assert (partition.topic_id, partition.log_end_offset) == (TOPIC_ID, 1)
    assert read_partition_metadata(disk, METADATA) == TOPIC_ID


def test_a_damaged_id_on_a_full_disk_waits_for_the_next_start():
    disk = MemoryDisk()
    append(open_store(disk).create("t", 0, TOPIC_ID, LogConfig()))
    for code in (errno.ENOSPC, None):
        disk.held.clear()
        disk.files[METADATA].data[:] = b"version: 0\n"
        disk.fail = lambda operation, path, code=code: code if METADATA in path else None
        assert open_store(disk, topic_id_for=lambda *_: TOPIC_ID).get("t", 0).log_end_offset == 1
    assert read_partition_metadata(disk, METADATA) == TOPIC_ID
