"""A log that is cut: what goes, what stays, and that nothing brings back what went."""

import errno
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.config import LogConfig
from odradek.storage.log.flush_journal import FlushJournal
from odradek.storage.log.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk, PowerLost
from tests.storage.stores import NOW_MS, append, offsets_of, open_store, write_checkpoints
from tests.storage.transacting import Producer, committed_values
from tests.tiers import examples

DIRECTORY = "data/t-0"
TOPIC_ID = b"1" * 16
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0)


def begun(config=SMALL, disk=None):
    disk = MemoryDisk() if disk is None else disk
    store = open_store(disk, config_for=lambda topic: config)
    return disk, store, store.create("t", 0, TOPIC_ID, config)


def cut(store, partition, offset):
    return finish(store.truncating(partition, offset))


def names(disk, suffix):
    return [int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(suffix)]


def state_of(partition):
    """All that a log is. (An empty segment at its end says nothing.)"""
    return (
        partition.log_start_offset,
        partition.log_end_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.producers(),
        partition.log.leader_epochs.entries(),
        [
            (
                segment.base_offset,
                segment.file.read(0, segment.size_bytes),
                segment.indexes.offset_index.encode(),
                list(segment.transactions.index),
            )
            for segment in partition.log.segments
            if segment.size_bytes
        ],
    )


@pytest.mark.parametrize("offset", range(13))
def test_what_is_at_an_offset_and_after_it_goes(offset):
    disk, store, partition = begun()
    append(partition, 12)
    assert len(partition.log.segments) > 2
    assert cut(store, partition, offset) is (offset < 12)
    assert partition.log_end_offset == partition.high_watermark == offset
    assert offsets_of(partition) == list(range(offset))
    assert len(names(disk, ".log")) == len(partition.log.segments)
    append(partition, 3)
    assert offsets_of(partition) == list(range(offset + 3))


def test_a_batch_that_holds_the_offset_goes_as_a_whole():
    _, store, partition = begun()
    for count in (2, 3, 2):
        records = [Record(place, NOW_MS, b"k", b"v") for place in range(count)]
        partition.append(build_batch(records), now_ms=NOW_MS)
    partition.commit()
    assert cut(store, partition, 4)
    assert partition.log_end_offset == 2


@pytest.mark.parametrize("offset", range(11))
def test_a_log_that_was_cut_is_the_log_that_never_went_on(offset):
    """With transactions that were aborted and such that are open, and epochs."""

    def play(partition, end):
        one, two = Producer(partition, 1), Producer(partition, 2)
        steps = [
            lambda: one.send(b"a"),
            lambda: two.send(b"b"),
            lambda: one.end(commit=False),
            lambda: partition.follow_leader_epoch(2),
            lambda: one.send(b"c"),
            lambda: two.send(b"d"),
            lambda: two.end(commit=False),
            lambda: partition.follow_leader_epoch(5),
            lambda: one.end(commit=True),
            lambda: two.send(b"e"),
            lambda: one.send(b"f"),
            lambda: one.end(commit=False),
            lambda: two.send(b"g"),
        ]
        for step in steps:
            if partition.log_end_offset == end:
                break
            step()

    def settled(partition):
        partition.flush()
        return state_of(partition)

    _, store, partition = begun()
    play(partition, 11)
    cut(store, partition, offset)
    _, _, never_went_on = begun()
    play(never_went_on, offset)
    state, expected = settled(partition), settled(never_went_on)
    assert state == expected
    assert committed_values(partition) == committed_values(never_went_on)


def test_who_reads_the_part_that_went_goes_on_reading_it():
    _, store, partition = begun()
    append(partition, 12)
    slices = [partition.read(offset, max_bytes=10_000).records for offset in range(12)]
    seen = [one.tobytes() for one in slices]
    assert cut(store, partition, 1)
    append(partition, 5)
    assert [one.tobytes() for one in slices] == seen


def test_what_is_staged_is_refused():
    _, store, partition = begun()
    append(partition, 3)
    partition.append(build_batch([Record(0, NOW_MS, b"k", b"v")]), now_ms=NOW_MS)
    cut(store, partition, 2)
    with pytest.raises(KafkaError) as refused:
        partition.commit()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.log_end_offset == 2
    append(partition)
    assert offsets_of(partition) == [0, 1, 2]


def test_who_waits_for_what_was_cut_gets_an_error_and_who_waits_for_less_goes_on_waiting():
    _, store, partition = begun()
    append(partition, 6)
    partition = store.get("t", 0)
    partition.set_replicated(True)
    append(partition, 4)
    called = []
    for offset in (7, 8, 9, 10):
        partition.when_high_watermark(offset, lambda error, offset=offset: called.append((offset, error)))
    partition.watch(lambda: called.append("high watermark"))
    partition.watch(lambda: called.append("log end"), at_log_end=True)
    cut(store, partition, 8)
    errors = {offset: error.code for offset, error in called[:2]}
    assert errors == dict.fromkeys((9, 10), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert called[2:] == ["high watermark", "log end"]
    partition.advance_high_watermark(8)
    assert called[4:6] == [(7, None), (8, None)]


def test_the_high_watermark_stays_where_it_is_if_that_is_before_the_end():
    _, store, partition = begun()
    append(partition, 6)
    partition.set_replicated(True)
    append(partition, 4)
    cut(store, partition, 8)
    assert (partition.high_watermark, partition.log_end_offset) == (6, 8)
    cut(store, partition, 3)
    assert (partition.high_watermark, partition.log_end_offset) == (3, 3)


def test_a_cut_before_the_logs_start_takes_the_start_along_and_none_goes_before_the_first_segment():
    _, store, partition = begun()
    append(partition, 12)
    partition.retention.delete_records(3)
    cut(store, partition, 1)
    assert (partition.log_start_offset, partition.log_end_offset) == (1, 1)
    append(partition, 12)
    partition.retention.delete_records(-1)
    store.maintain(NOW_MS + 10_000)
    assert partition.log.bases[0] > 0
    with pytest.raises(KafkaError) as refused:
        cut(store, partition, 0)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_flush_that_is_under_way_is_waited_for():
    _, store, partition = begun()
    append(partition, 3)
    partition.flushing.is_running = True
    work = store.truncating(partition, 1)
    assert next(work) is None
    assert partition.log_end_offset == 3
    partition.flushing.is_running = False
    finish(work)
    assert partition.log_end_offset == 1


def test_compaction_that_is_under_way_comes_to_nothing():
    config = LogConfig(
        segment_bytes=300, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    _, store, partition = begun(config)
    append(partition, 30)
    partition.log.roll(NOW_MS)
    partition.flush()
    write_checkpoints(store)
    assert store.compact(NOW_MS + 1, budget_bytes=1)
    cut(store, partition, 8)
    append(partition, 4)
    for _ in range(1000):
        if not store.compact(NOW_MS + 1, budget_bytes=400):
            break
    assert partition.is_available
    assert store.checkpointing.first_dirty_of(partition) <= 12
    assert store.cleaner.uncleanable() == {}
    found = partition.read(partition.log_end_offset - 1, max_bytes=1000).records.tobytes()
    assert b"value 11" in found


def journaled(store, partition, journal):
    block = journal.begin([partition])
    block.write()
    journal.finish(block, None)
    assert partition.log.durable_offset == partition.log_end_offset


def test_the_flush_journal_does_not_bring_back_what_was_cut():
    disk, store, partition = begun(LogConfig())
    append(partition)
    partition.flush()
    (journal,) = store.flush_journals = [FlushJournal(disk, "data", file_bytes=1 << 16)]
    journal.prepare()
    append(partition, 2)
    journaled(store, partition, journal)
    append(partition, 2)
    journaled(store, partition, journal)
    cut(store, partition, 2)
    for seed in range(20):
        survivor = disk.lose_power(seed)
        _, _, again = begun(LogConfig(), survivor)
        assert again.log_end_offset == 2
        assert offsets_of(again) == [0, 1]
    append(partition, 1, size_bytes=100)
    partition.flush()
    append(partition, 1, size_bytes=100)
    journaled(store, partition, journal)
    for seed in range(20):
        _, _, again = begun(LogConfig(), disk.lose_power(seed))
        assert offsets_of(again) == [0, 1, 2, 3]


def test_where_the_flush_journal_cannot_learn_of_it_nothing_is_cut():
    disk, store, partition = begun(LogConfig())
    append(partition)
    partition.flush()
    (journal,) = store.flush_journals = [FlushJournal(disk, "data", file_bytes=1 << 16)]
    journal.prepare()
    append(partition)
    journaled(store, partition, journal)
    journal.has_failed = True
    with pytest.raises(KafkaError) as refused:
        cut(store, partition, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.availability.is_broken
    finish(store.failing_disks.attending(NOW_MS + 100_000))
    assert offsets_of(store.get("t", 0)) == [0, 1]


SEVERAL = LogConfig(segment_bytes=600, index_interval_bytes=0)


def size_at(partition, offset):
    return len(partition.read(offset, max_bytes=1).records)


def filled(disk):
    """A log of which some is flushed, some in the flush journal and some nowhere."""
    _, store, partition = begun(SEVERAL, disk)
    (journal,) = store.flush_journals = [FlushJournal(disk, "data", file_bytes=1 << 16)]
    journal.prepare()
    append(partition, 5)
    partition.flush()
    write_checkpoints(store)
    append(partition, 1)
    journaled(store, partition, journal)
    append(partition, 5)
    return store, partition


@pytest.mark.parametrize("offset", [2, 5, 6, 9])
def test_a_loss_of_power_at_any_point_leaves_the_log_whole_or_cut_and_cut_for_good_once_it_said_so(offset):
    for number in range(1, 1000):
        disk = MemoryDisk()
        store, partition = filled(disk)
        disk.lose_power_at = disk.operations + number
        is_cut = is_over = False
        try:
            cut(store, partition, offset)
            is_cut = True
            append(partition, 1, size_bytes=150)
            is_over = disk.operations < disk.lose_power_at
        except PowerLost:
            pass
        for seed in range(3):
            again = begun(SEVERAL, disk.lose_power(3 * number + seed))[2]
            assert offsets_of(again) == list(range(again.log_end_offset))
            assert again.log_end_offset >= min(offset, 6)
            if is_cut:
                # What no disk had is lost, of the part that stays as well.
                assert again.log_end_offset <= offset + 1
                assert again.log_end_offset <= offset or size_at(again, offset) >= 150
        if is_over:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_of_the_disk_at_any_point_takes_it_offline_and_a_rescan_brings_a_whole_log_back(code):
    for number in range(200):
        disk = MemoryDisk()
        store, partition = filled(disk)
        count = [0]

        def fail(done, path, count=count, number=number):
            count[0] += 1
            return code if count[0] == number + 1 else None

        disk.fail = fail
        with suppress(KafkaError):
            cut(store, partition, 6)
        disk.fail = lambda done, path: None
        for _ in range(3):
            finish(store.failing_disks.attending(NOW_MS + 100_000))
        back = store.get("t", 0)
        assert back.is_available
        assert offsets_of(back) == list(range(back.log_end_offset))
        assert back.log_end_offset >= 6
        append(back, 2)
        if count[0] <= number:
            assert back.log_end_offset == 8
            return
    raise AssertionError("it never came to its end")


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.integers(1, 5).map(lambda count: ("append", count)),
            st.integers(0, 40).map(lambda offset: ("cut", offset)),
            st.just(("flush", 0)),
            st.just(("roll", 0)),
            st.just(("checkpoint", 0)),
            st.just(("kill", 0)),
            st.just(("restart", 0)),
        ),
        max_size=25,
    )
)
def test_a_log_is_what_a_list_is_whatever_is_cut(steps):
    disk, store, partition = begun()
    model = 0
    for name, number in steps:
        if name == "append":
            append(partition, number)
            model += number
        elif name == "cut":
            cut(store, partition, number)
            model = min(model, number)
        elif name == "flush":
            partition.flush()
        elif name == "roll":
            partition.log.roll(NOW_MS)
        elif name == "checkpoint":
            write_checkpoints(store)
        else:
            if name == "restart":
                store.close(NOW_MS)
            disk.held.clear()
            _, store, partition = begun(disk=disk)
        assert offsets_of(partition) == list(range(model))
        assert isinstance(partition, Partition)
