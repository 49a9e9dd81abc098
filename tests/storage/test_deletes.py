"""What goes away: log starts that survive, and readers who finish on the data that they began with."""

from functools import partial
from itertools import pairwise

import pytest
import stores
from memory_disk import MemoryDisk
from stores import NOW_MS, offsets_of, open_store, value_at

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.directories.upkeep import WRITTEN_MS
from odradek.storage.disk import OsDisk
from odradek.storage.log.segment_paths import DELETED, LOG
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, iter_records
from odradek.wire.work import finish

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(reversed(TOPIC_ID))
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=50, file_delete_delay_ms=1000)


append = partial(stores.append, size_bytes=30)


def killed(disk, **kwargs) -> LogStore:
    disk.held.clear()
    return open_store(disk, **kwargs)


# Log starts


def test_a_start_that_was_answered_survives_a_kill_and_a_loss_of_power():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, SMALL)
    append(partition, 9)
    partition.flush()
    partition.retention.delete_records(7)
    assert finish(store.checkpointing.saving_starts([partition])) == []
    for seed in range(20):
        after = open_store(disk.lose_power(seed)).get("t", 0)
        assert (after.log_start_offset, after.log_end_offset) == (7, 9)
    partition = killed(disk).get("t", 0)
    assert (partition.log_start_offset, partition.log_end_offset) == (7, 9)


def test_offsets_are_not_given_twice_when_what_was_deleted_never_reached_the_disk():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    partition.flush()
    append(partition, 9)
    partition.retention.delete_records(-1)
    finish(store.checkpointing.saving_starts([partition]))
    for seed in range(20):
        partition = open_store(disk.lose_power(seed)).get("t", 0)
        assert (partition.log_start_offset, partition.log_end_offset) == (9, 9)


def test_the_active_segment_stays_though_the_log_starts_behind_it():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, SMALL)
    append(partition, 9)
    bases = list(partition.log.bases)
    partition.retention.delete_records(-1)
    finish(store.maintaining(NOW_MS))
    assert partition.log.bases == bases[-1:]
    assert (partition.log_start_offset, partition.log_end_offset) == (9, 9)


@pytest.mark.parametrize("ends", ["clean", "kill"])
def test_a_topic_made_anew_knows_nothing_of_the_one_before(ends):
    """Its log start would cut off everything that the new one holds at the next start after a kill."""
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 50)
    partition.retention.delete_records(50)
    finish(store.checkpointing.saving_starts([partition]))
    store.delete("t", 0)
    if ends == "clean":
        store.close(NOW_MS)
        store = open_store(disk)
    partition = store.create("t", 0, OTHER_ID, LogConfig())
    append(partition, 3)
    partition.flush()
    partition = killed(disk).get("t", 0)
    assert partition.topic_id == OTHER_ID
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 3)


def test_a_start_is_of_the_directory_that_has_the_partition():
    """What another directory's checkpoint says of a partition that lay there is of no concern."""
    disk = MemoryDisk()
    store = open_store(disk, "one", "two")
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 5)
    store.close(NOW_MS)
    for directory in ("one", "two"):
        if not disk.exists(f"{directory}/t-0"):
            file = disk.open(f"{directory}/log-start-offset-checkpoint")
            file.truncate(0)
            file.write(0, [b"0\n1\nt 0 4\n"])
    partition = open_store(disk, "one", "two").get("t", 0)
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 5)


def test_what_stands_in_the_way_of_a_new_partition_is_kept_and_not_taken_over():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, LogConfig()), 3)
    store.places.leave(("t", 0))  # its directory has come there behind our back
    partition = store.create("t", 0, OTHER_ID, LogConfig())
    assert (partition.topic_id, partition.log_end_offset) == (OTHER_ID, 0)
    assert any(path.endswith("-stray") for path in disk.directories)


# Readers


@pytest.mark.parametrize("size_bytes", [50, 70_000])
@pytest.mark.parametrize("what", ["retention", "DeleteRecords", "deletion of the topic"])
@pytest.mark.parametrize("is_real", [False, True])
def test_a_read_in_flight_ends_on_the_data_that_it_began_with(tmp_path, what, size_bytes, is_real):
    disk, directory = (OsDisk(), str(tmp_path)) if is_real else (MemoryDisk(), "data")
    store = open_store(disk, directory, open_files_max=1)
    config = LogConfig(segment_bytes=3 * size_bytes, file_delete_delay_ms=1000)
    partition = store.create("t", 0, TOPIC_ID, config)
    append(partition, 9, size_bytes=size_bytes)
    end = partition.log_end_offset
    before = [partition.read(offset, max_bytes=1).records for offset in range(9)]
    in_hand = [one.buffers() for one in before[::2]]
    if what == "retention":
        partition.set_config(
            LogConfig(segment_bytes=3 * size_bytes, retention_ms=10, file_delete_delay_ms=1000)
        )
    elif what == "DeleteRecords":
        partition.retention.delete_records(-1)
    else:
        store.delete("t", 0)
    finish(store.maintaining(NOW_MS + 500))
    for offset, records in enumerate(before):
        (record,) = iter_records(records.tobytes())
        assert (record.offset, record.value.rstrip()) == (offset, value_at(offset))
    finish(store.maintaining(NOW_MS + 5000))
    for offset, (view,) in zip(range(0, 9, 2), in_hand, strict=True):
        (record,) = iter_records(view)
        assert record.offset == offset
    if what != "deletion of the topic":
        with pytest.raises(KafkaError) as refused:
            partition.read(0, max_bytes=1)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (partition.log_start_offset, partition.log_end_offset) == (end, end)
    store.close(NOW_MS)


@pytest.mark.parametrize("what", ["DeleteRecords", "deletion of the topic"])
def test_what_is_removed_is_forgotten_first_but_not_what_was_just_written(what):
    """To free the pages of a file keeps those who share the core waiting, to write it first the disk."""
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, SMALL)
    append(partition, 20)
    segments = partition.log.segments
    removed_ms = NOW_MS + SMALL.file_delete_delay_ms
    for segment in segments[:3]:
        disk.set_modified_ms(segment.paths.path(LOG), removed_ms - WRITTEN_MS - 1)
    for segment in segments[3:]:
        disk.set_modified_ms(segment.paths.path(LOG), removed_ms - WRITTEN_MS)
    old = [segment.paths.path(LOG).rpartition("/")[2] for segment in segments[:3]]
    if what == "DeleteRecords":
        old = [name + DELETED for name in old]
        partition.retention.delete_records(segments[-1].base_offset)
    else:
        store.delete("t", 0)
    finish(store.maintaining(NOW_MS))
    assert not disk.forgotten
    finish(store.maintaining(removed_ms))
    assert sorted(path.rpartition("/")[2] for path in disk.forgotten) == old
    assert not any(map(disk.exists, disk.forgotten))


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_a_search_goes_on_though_the_segments_before_it_go_away(delay_ms):
    store = open_store(MemoryDisk(), open_files_max=1)
    config = LogConfig(segment_bytes=300, index_interval_bytes=50, file_delete_delay_ms=delay_ms)
    partition = store.create("t", 0, TOPIC_ID, config)
    for number in range(20):
        partition.appends.append(build_batch([Record(0, NOW_MS + number, b"k", b"v" * 30)]), now_ms=NOW_MS)
    partition.commit()
    for steps in range(40):
        search = partition.search.finding_timestamp(NOW_MS + 15)
        latest = partition.search.finding_max_timestamp()
        try:
            for _ in range(steps):
                next(search)
                next(latest)
        except StopIteration:
            break
        partition.retention.delete_records(min(12, partition.log_start_offset + 1))
        finish(store.maintaining(NOW_MS))
        assert finish(search) == (NOW_MS + 15, 15, 0)
        assert finish(latest) == (NOW_MS + 19, 19, 0)
    assert steps > 5


def test_a_consumer_reads_on_from_the_new_start_while_all_before_it_goes_away():
    store = open_store(MemoryDisk(), open_files_max=2)
    partition = store.create("t", 0, TOPIC_ID, SMALL)
    position, seen = 0, []
    for round_number in range(30):
        append(partition, 2)
        if position < partition.log_start_offset:
            with pytest.raises(KafkaError) as refused:
                partition.read(position, max_bytes=120)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            position = partition.log_start_offset
        records = partition.read(position, max_bytes=120).records
        if round_number % 3 == 1:
            partition.retention.delete_records(min(position + 3, partition.high_watermark))
        finish(store.maintaining(NOW_MS + round_number * 500))
        whole = records.tobytes()
        for record in iter_records(whole[: int.from_bytes(whole[8:12], "big") + 12]) if whole else ():
            assert record.value.rstrip() == value_at(record.offset)
            seen.append(record.offset)
            position = record.offset + 1
    assert seen == sorted(set(seen))
    assert position > 20
    assert offsets_of(partition, partition.log_start_offset)[-1] == partition.high_watermark - 1


def test_retention_of_a_thousand_segments_is_done_in_many_small_steps():
    store = open_store(MemoryDisk(), open_files_max=4)
    partition = store.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=100, file_delete_delay_ms=0))
    append(partition, 1000)
    assert len(partition.log.segments) == 1000
    partition.set_config(LogConfig(segment_bytes=100, retention_ms=1, file_delete_delay_ms=0))
    counts = [len(partition.log.segments)]
    for _ in store.maintaining(NOW_MS + 10):
        counts.append(len(partition.log.segments))
        assert partition.log_start_offset == partition.log.segments[0].base_offset
    assert max(before - after for before, after in pairwise(counts)) <= 16
    assert (counts[-1], partition.log_start_offset) == (1, 1000)
