"""A partition directory that no topic has, and a new topic of that name."""

import pytest
from memory_disk import MemoryDisk
from stores import NOW_MS, append, open_store

from odradek.storage.checkpoints import FIRST_DIRTY, write_offsets, write_partition_metadata
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import StoreListener
from odradek.storage.recovery.log_walk import begins_with_messages
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import build_message
from odradek.wire.records import Record, build_batch

TOPIC_ID = bytes(range(16))
LOG = f"data/t-0/{0:020d}.log"
OLD = b"".join(build_message(1, offset=one, timestamp=NOW_MS, key=None, value=b"old") for one in range(3))


class Told(StoreListener):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def damage(self, sentence: str) -> None:
        self.sentences.append(sentence)


def opened(disk: MemoryDisk, told: Told):
    """After a crash, when all that has a topic is recovered; this has none."""
    return open_store(disk, topic_id_for=lambda topic, index: None, listener=told)


def test_messages_of_old_formats_are_set_aside_as_they_are_and_one_sentence_says_so():
    disk, told = MemoryDisk.of({LOG: OLD}), Told()
    store = opened(disk, told)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 0)
    append(partition, 2)
    (kept,) = [path for path in disk.files if path.endswith("-stray/" + LOG.rpartition("/")[2])]
    assert bytes(disk.files[kept].data) == OLD
    (sentence,) = told.sentences
    assert sentence.startswith(kept.rpartition("/")[0])
    assert "format v0 or v1" in sentence
    assert "odradek import-log" in sentence


def test_batches_are_the_new_topics_from_then_on():
    disk = MemoryDisk.of({LOG: bytes(build_batch([Record(0, NOW_MS, None, b"v2")]))})
    assert opened(disk, Told()).create("t", 0, TOPIC_ID, LogConfig()).log_end_offset == 1


def test_a_directory_of_another_topic_is_refused_before_anything_in_it_is_touched():
    content = bytes(build_batch([Record(0, NOW_MS, None, b"v2")])) + b"half a batch"
    disk = MemoryDisk.of({LOG: content})
    write_partition_metadata(disk, "data/t-0/partition.metadata", bytes(16)[:-1] + b"!")
    store = opened(disk, Told())
    with pytest.raises(KafkaError) as refused:
        store.create("t", 0, TOPIC_ID, LogConfig())
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert bytes(disk.files[LOG].data) == content


@pytest.mark.parametrize(
    ("content", "is_old"),
    [
        (OLD, True),
        (b"", False),
        (bytes(200), False),
        (bytes(build_batch([Record(0, NOW_MS, None, b"v2")])), False),
    ],
)
def test_old_messages_are_told_from_batches_and_from_what_was_never_written(content, is_old):
    assert begins_with_messages(MemoryDisk.of({LOG: content}), "data/t-0") is is_old


def test_a_batch_whose_format_has_flipped_is_no_old_message():
    content = build_batch([Record(0, NOW_MS, None, b"v2")])
    content[16] ^= 2
    assert not begins_with_messages(MemoryDisk.of({LOG: bytes(content)}), "data/t-0")


def test_gaps_that_kafkas_compaction_left_before_a_kill_are_no_damage():
    """Kafka notes what its compaction has read at once, and recovery points once a minute only."""
    kept = [build_batch([Record(offset, NOW_MS, b"k", b"v")]) for offset in (3, 7, 8)]
    first, second = bytes(kept[0] + kept[1]), bytes(kept[2])
    disk = MemoryDisk.of({LOG: first, f"data/t-0/{8:020d}.log": second})
    write_offsets(disk, f"data/{FIRST_DIRTY}", {("t", 0): 8})
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    store = open_store(disk, topic_id_for=lambda topic, index: TOPIC_ID, config_for=lambda topic: config)
    assert store.opening.cut_bytes == {}
    partition = store.get("t", 0)
    assert partition is not None
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 9)
    assert bytes(disk.files[LOG].data) == first
