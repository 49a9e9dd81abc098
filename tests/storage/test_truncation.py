"""A log that is cut: what goes, what stays, and that nothing brings back what went."""

import errno
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.config import LogConfig
from odradek.storage.log.appends import BatchHoldsStart, Origin
from odradek.storage.log.flush_journal import PAGE_BYTES, FlushJournal
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
        partition.appends.append(build_batch(records), now_ms=NOW_MS)
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
    partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v")]), now_ms=NOW_MS)
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


def test_a_cut_before_the_logs_start_takes_the_start_along_and_one_before_the_first_segment_takes_all():
    _, store, partition = begun()
    append(partition, 12)
    partition.retention.delete_records(3)
    cut(store, partition, 1)
    assert (partition.log_start_offset, partition.log_end_offset) == (1, 1)
    append(partition, 12)
    partition.retention.delete_records(-1)
    finish(store.maintaining(NOW_MS + 10_000))
    assert partition.log.bases[0] > 0
    assert cut(store, partition, 1)
    assert (partition.log_start_offset, partition.log_end_offset, partition.high_watermark) == (1, 1, 1)
    append(partition, 3)
    assert offsets_of(partition) == [1, 2, 3]


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
    for change in (store.truncating(partition, 1), store.restarting(partition, 9)):
        with pytest.raises(KafkaError) as refused:
            finish(change)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.is_available
        assert offsets_of(partition) == [0, 1]
    # What ends there already need not be cut.
    assert cut(store, partition, 2) is False


def test_a_flush_journal_that_has_failed_goes_once_all_in_it_is_flushed_and_then_a_log_can_be_cut():
    disk, store, partition = begun(LogConfig())
    other = store.create("t", 1, TOPIC_ID, LogConfig())
    (journal,) = store.flush_journals = [FlushJournal(disk, "data", file_bytes=1 << 16)]
    journal.prepare()
    for one in (partition, other):
        append(one)
        one.flush()
        append(one)
        journaled(store, one, journal)
    journal.has_failed = True
    store.flush_due(NOW_MS)
    # Of one some is in no journal, and need not be flushed for this.
    append(other)
    assert store.flush_due(NOW_MS) == [partition, other]
    partition.flush()
    finish(store.maintaining(NOW_MS))
    assert (store.flush_due(NOW_MS), disk.exists("data/flush-journal.0")) == ([other], True)
    with pytest.raises(KafkaError):
        cut(store, partition, 1)
    other.flush()
    disk.fail = lambda operation, path: errno.EIO if "flush-journal" in path else None
    finish(store.maintaining(NOW_MS))
    disk.fail = lambda operation, path: None
    finish(store.maintaining(NOW_MS))
    assert store.flush_due(NOW_MS) == []
    assert not disk.exists("data/flush-journal.0")
    assert cut(store, partition, 1)
    for seed in range(20):
        _, again, cut_one = begun(LogConfig(), disk.lose_power(seed))
        assert offsets_of(cut_one) == [0]
        assert offsets_of(again.get("t", 1)) == [0, 1, 2]


def test_a_log_is_cut_when_a_full_flush_journal_has_been_retired():
    disk, store, partition = begun(LogConfig())
    (journal,) = store.flush_journals = [FlushJournal(disk, "data", file_bytes=2 * PAGE_BYTES)]
    journal.prepare()
    append(partition)
    partition.flush()
    append(partition)
    journaled(store, partition, journal)
    # The entry of one cut fits beside it; those of the next two fill the other file.
    for _ in range(3):
        cut(store, partition, 1)
        append(partition)
    with pytest.raises(KafkaError):
        cut(store, partition, 1)
    assert partition.is_available
    assert store.flush_due(NOW_MS) == [partition]
    for retired in journal.take_retired():
        retired.flush()
    journal.retired_is_flushed([])
    assert cut(store, partition, 1)


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


def restart(store, partition, offset):
    finish(store.restarting(partition, offset))


def cut_at_8(store, partition):
    return store.truncating(partition, 8)


def begin_anew_at_100(store, partition):
    return store.restarting(partition, 100)


CHANGES = [cut_at_8, begin_anew_at_100]


def steps_of(work):
    """Do a work step by step; in between, before each function that a worker would call, comes its name."""
    step = next(work)
    while True:
        yield getattr(step, "__name__", None) or getattr(getattr(step, "func", None), "__name__", None)
        try:
            result = None if step is None else step()
        except OSError as error:
            step = work.throw(error)
            continue
        try:
            step = work.send(result)
        except StopIteration:
            return


def refusal_of(act):
    try:
        act()
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize("change", CHANGES)
def test_while_a_log_is_changed_appends_are_refused_and_readers_wait_only_for_the_end_of_it(change):
    _, store, partition = begun(LogConfig(segment_bytes=400, retention_ms=1))
    append(partition, 12)
    partition.flush()
    readable = []
    for _ in steps_of(change(store, partition)):
        assert refusal_of(lambda: append(partition)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal_of(partition.flush) is ErrorCode.KAFKA_STORAGE_ERROR
        assert store.flush_due(NOW_MS + 10_000) == []
        finish(store.maintaining(NOW_MS + 10_000))
        assert partition.log_start_offset == 0
        finish(store.checkpointing.writing())
        readable.append(refusal_of(lambda: partition.read(0, max_bytes=100)) is None)
    assert readable == sorted(readable, reverse=True)
    assert readable[0]
    assert not readable[-1]
    assert partition.is_available
    end = partition.log_end_offset
    append(partition, 2)
    assert offsets_of(partition, end) == [end, end + 1]


def test_what_takes_long_is_done_in_a_worker():
    _, store, partition = begun(LogConfig(index_interval_bytes=0))
    append(partition, 9)
    steps = list(steps_of(store.truncating(partition, 8)))
    assert steps == ["write", "_copy", "sync", "sync_directory", "_open"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_partition_that_is_deleted_meanwhile_and_made_anew_is_left_alone(change):
    for number in range(100):
        _, store, partition = begun()
        append(partition, 12)
        work = steps_of(change(store, partition))
        try:
            for _ in range(number + 1):
                next(work)
        except StopIteration:
            assert number > 3
            return
        store.delete("t", 0)
        another = store.create("t", 0, b"2" * 16, SMALL)
        append(another, 12)
        assert refusal_of(lambda work=work: list(work)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets_of(another) == list(range(12))
        assert not store.failing_disks.needs_attention
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("change", CHANGES)
def test_a_work_that_is_ended_leaves_a_log_as_a_crash_would_and_a_rescan_brings_it_back(change):
    for number in range(100):
        _, store, partition = begun()
        append(partition, 12)
        work = change(store, partition)
        try:
            step = next(work)
            for _ in range(number):
                step = work.send(step() if step is not None else None)
        except StopIteration:
            assert number > 3
            return
        work.close()
        for _ in range(3):
            finish(store.failing_disks.attending(NOW_MS + 100_000))
        assert partition.is_available
        offsets = offsets_of(partition)
        assert offsets == list(range(12))[: len(offsets)]
        append(partition, 2)
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("offset", [0, 3, 7, 12, 13, 5_000_000_000])
@pytest.mark.parametrize("is_replicated", [False, True])
def test_all_of_a_log_goes_and_it_begins_anew_at_an_offset(offset, is_replicated):
    disk, store, partition = begun()
    partition.set_replicated(is_replicated)
    producer = Producer(partition, 1)
    partition.follow_leader_epoch(4)
    producer.send(b"a")
    append(partition, 10)
    producer.end(commit=False)
    partition.advance_high_watermark(7)
    partition.retention.delete_records(6)
    finish(store.checkpointing.saving_starts([partition]))
    called = []
    for wanted in range(8, 14):
        partition.when_high_watermark(wanted, lambda error: called.append(error and error.code))
    settled = sum(one is None for one in called)
    restart(store, partition, offset)
    assert called == [None] * settled + [ErrorCode.NOT_LEADER_OR_FOLLOWER] * (6 - settled)
    seen = [partition]
    for stop in ("kill", "power loss", "clean stop"):
        if stop == "clean stop":
            store.close(NOW_MS)
        disk = disk.lose_power(1) if stop == "power loss" else disk
        disk.held.clear()
        _, store, again = begun(disk=disk)
        again.set_replicated(is_replicated)
        seen.append(again)
    for one in seen:
        assert (one.log_start_offset, one.high_watermark, one.log_end_offset) == (offset, offset, offset)
        assert one.last_stable_offset == offset
        assert one.producers() == []
        assert one.log.leader_epochs.entries() == []
        assert one.log.bases == [offset]
    append(again, 3)
    again.advance_high_watermark(offset + 3)
    assert offsets_of(again) == [offset, offset + 1, offset + 2]


def test_a_log_whose_start_is_within_the_first_batch_of_its_leader_begins_with_that_batch():
    """KAFKA-6975: records of the batch were deleted at the leader, and a new follower begins there."""
    _, store, partition = begun()
    partition.set_replicated(True)
    restart(store, partition, 15)
    records = [Record(place, NOW_MS, b"k", b"v") for place in range(10, 20)]
    batches = build_batch(records, leader_epoch=3)
    with pytest.raises(BatchHoldsStart) as refused:
        partition.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert refused.value.offset == 10
    restart(store, partition, refused.value.offset)
    partition.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION)
    partition.commit()
    partition.advance_high_watermark(20)
    assert partition.retention.follow_start(15) == 15
    assert (partition.log_start_offset, partition.log_end_offset) == (15, 20)
    assert partition.log.leader_epochs.entries() == [(3, 15)]
    # One that has records refuses such a batch, and so does one that begins after it.
    for begins in (b"", build_batch([Record(0, NOW_MS, b"k", b"v")])):
        partition.appends.append(begins, now_ms=NOW_MS) if begins else restart(store, partition, 20)
        with pytest.raises(KafkaError) as refused:
            partition.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("offset", [0, 2, 5, 9, 11, 30])
def test_a_loss_of_power_at_any_point_leaves_the_old_log_or_the_new_one_and_the_new_one_once_it_said_so(
    offset,
):
    for number in range(1, 1000):
        disk = MemoryDisk()
        store, partition = filled(disk)
        disk.lose_power_at = disk.operations + number
        is_new = is_over = False
        try:
            restart(store, partition, offset)
            is_new = True
            append(partition, 1, size_bytes=150)
            is_over = disk.operations < disk.lose_power_at
        except PowerLost:
            pass
        for seed in range(3):
            again = begun(SEVERAL, disk.lose_power(3 * number + seed))[2]
            start, end = again.log_start_offset, again.log_end_offset
            assert offsets_of(again) == list(range(start, end))
            assert again.high_watermark == end
            if is_new:
                assert start == offset
                assert end == offset or size_at(again, offset) >= 150
            else:
                assert (start == 0 and end <= 11) or start == offset
        if is_over:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize(
    "change", [lambda store, log: store.truncating(log, 5), lambda store, log: store.restarting(log, 5)]
)
def test_a_start_believes_in_no_high_watermark_of_what_was_cut(change):
    disk, store, partition = begun()
    partition.set_replicated(True)
    append(partition, 9)
    partition.advance_high_watermark(9)
    finish(store.checkpointing.writing_high_watermarks())
    finish(change(store, partition))
    append(partition, 4)
    disk.held.clear()
    store = open_store(disk, replicated_for=lambda topic, index: True)
    assert (store.get("t", 0).high_watermark, store.get("t", 0).log_end_offset) == (5, 9)


@pytest.mark.parametrize("offset", [3, 40])
def test_checkpoints_that_are_written_meanwhile_say_nothing_of_the_old_log(offset):
    disk, store, partition = begun()
    append(partition, 12)
    partition.retention.delete_records(6)
    finish(store.checkpointing.saving_starts([partition]))
    for _ in steps_of(store.restarting(partition, offset)):
        write_checkpoints(store)
        finish(store.checkpointing.saving_starts([partition]))
        finish(store.checkpointing.writing_high_watermarks())
    for seed in range(5):
        _, _, again = begun(disk=disk.lose_power(seed))
        assert (again.log_start_offset, again.log_end_offset) == (offset, offset)


@pytest.mark.parametrize("change", [cut_at_8, lambda store, partition: store.restarting(partition, 8)])
def test_checkpoints_that_are_written_meanwhile_vouch_for_nothing_that_comes_later(change):
    disk, store, partition = begun()
    append(partition, 40)
    partition.flush()
    for _ in steps_of(change(store, partition)):
        write_checkpoints(store)
    append(partition, 20, size_bytes=60)
    ends = set()
    for seed in range(60):
        _, _, again = begun(disk=disk.lose_power(seed))
        assert offsets_of(again) == list(range(again.log_start_offset, again.log_end_offset))
        ends.add(again.log_end_offset)
    assert len(ends) > 3


def test_the_flush_journal_brings_back_nothing_of_a_log_that_began_anew_though_segments_have_the_same_names():
    disk, store, partition = begun(LogConfig())
    append(partition, 6)
    partition.log.roll(NOW_MS)
    partition.flush()
    (journal,) = store.flush_journals = [FlushJournal(disk, "data", file_bytes=1 << 16)]
    journal.prepare()
    append(partition, 3)
    journaled(store, partition, journal)
    restart(store, partition, 4)
    append(partition, 2, size_bytes=150)
    partition.log.roll(NOW_MS)
    assert partition.log.bases == [4, 6]
    for seed in range(30):
        _, _, again = begun(LogConfig(), disk.lose_power(seed))
        assert again.log_start_offset == 4
        assert again.log_end_offset <= 6
        assert offsets_of(again) == list(range(4, again.log_end_offset))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("offset", [4, 11, 30])
def test_an_error_of_the_disk_while_it_begins_anew_leaves_the_old_log_the_new_one_or_an_empty_one(
    code, offset
):
    for number in range(200):
        disk = MemoryDisk()
        store, partition = filled(disk)
        count = [0]

        def fail(done, path, count=count, number=number):
            count[0] += 1
            return code if count[0] == number + 1 else None

        disk.fail = fail
        with suppress(KafkaError):
            restart(store, partition, offset)
        disk.fail = lambda done, path: None
        for _ in range(3):
            finish(store.failing_disks.attending(NOW_MS + 100_000))
        back = store.get("t", 0)
        assert back.is_available
        offsets = offsets_of(back)
        assert offsets == list(range(11))[: len(offsets)]
        if not store.flush_journals[0].has_failed:
            restart(store, back, offset)
            append(back, 2)
            assert offsets_of(back) == [offset, offset + 1]
        if count[0] <= number:
            return
    raise AssertionError("it never came to its end")


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.integers(1, 5).map(lambda count: ("append", count)),
            st.integers(0, 40).map(lambda offset: ("cut", offset)),
            st.integers(0, 40).map(lambda offset: ("restart log", offset)),
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
    start = end = 0
    for name, number in steps:
        if name == "append":
            append(partition, number)
            end += number
        elif name == "cut":
            cut(store, partition, number)
            end = min(end, number)
            start = min(start, end)
        elif name == "restart log":
            restart(store, partition, number)
            start = end = number
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
        assert partition.log_start_offset == start
        assert offsets_of(partition) == list(range(start, end))
        assert isinstance(partition, Partition)
