"""Where the high watermark is, how it moves, and who waits for it."""

import pytest

from odradek.storage.checkpoints import HIGH_WATERMARKS
from odradek.storage.config import LogConfig
from odradek.storage.directories.places import StoreListener
from odradek.storage.log.partition import READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import NOW_MS, append, offsets_of, open_store


def sole():
    return open_store(MemoryDisk()).create("t", 0, bytes(16), LogConfig())


def led():
    """One that others follow: a commit alone does not move its high watermark."""
    partition = sole()
    partition.set_replicated(True)
    return partition


def size_read(partition, isolation):
    return len(partition.read(0, max_bytes=10_000, isolation=isolation).records)


def test_the_high_watermark_of_a_sole_replica_is_where_its_log_ends():
    partition = sole()
    for end in (1, 2, 3):
        append(partition)
        assert partition.high_watermark == partition.log_end_offset == end


def test_a_commit_that_others_have_to_follow_moves_the_log_end_alone():
    partition = led()
    append(partition, 3)
    assert (partition.high_watermark, partition.last_stable_offset, partition.log_end_offset) == (0, 0, 3)
    partition.appends.append_marker(EndMarker(5, 0, 0, True, 1), now_ms=NOW_MS)
    partition.commit()
    assert (partition.high_watermark, partition.last_stable_offset, partition.log_end_offset) == (0, 0, 4)


def test_the_high_watermark_advances_up_to_the_log_end_and_never_goes_back():
    partition = led()
    append(partition, 3)
    seen = []
    for offset in (2, 1, 2, 7, 0):
        partition.advance_high_watermark(offset)
        seen.append(partition.high_watermark)
    assert seen == [2, 2, 2, 3, 3]


def test_only_who_asks_for_the_log_end_reads_behind_the_high_watermark():
    partition = led()
    append(partition, 2)
    sizes = [size_read(partition, one) for one in (READ_UNCOMMITTED, READ_COMMITTED, READ_LOG_END)]
    assert sizes[:2] == [0, 0]
    assert sizes[2] == partition.size_bytes
    partition.advance_high_watermark(1)
    assert size_read(partition, READ_UNCOMMITTED) == sizes[2] // 2
    partition.advance_high_watermark(2)
    assert size_read(partition, READ_UNCOMMITTED) == sizes[2]


def test_watchers_wake_where_they_asked_to():
    partition, woken = led(), []
    partition.watch(at_watermark := lambda: woken.append("high watermark"))
    partition.watch(at_end := lambda: woken.append("log end"), at_log_end=True)
    append(partition)
    assert woken == ["log end"]
    partition.advance_high_watermark(1)
    partition.advance_high_watermark(1)
    assert woken == ["log end", "high watermark"]
    partition.unwatch(at_end)
    partition.unwatch(at_watermark)
    append(partition)
    partition.advance_high_watermark(2)
    assert woken == ["log end", "high watermark"]


def test_a_commit_of_a_sole_replica_wakes_both_kinds_of_watchers():
    partition, woken = sole(), []
    partition.watch(lambda: woken.append("high watermark"))
    partition.watch(lambda: woken.append("log end"), at_log_end=True)
    append(partition)
    assert sorted(woken) == ["high watermark", "log end"]


def test_who_waits_for_an_offset_is_called_once_when_the_high_watermark_is_there():
    partition, called = led(), []
    append(partition, 4)
    for offset in (3, 1, 2, 3, 0):
        partition.when_high_watermark(offset, lambda error, offset=offset: called.append((offset, error)))
    assert called == [(0, None)]
    partition.advance_high_watermark(2)
    assert called == [(0, None), (1, None), (2, None)]
    partition.advance_high_watermark(4)
    assert called[3:] == [(3, None), (3, None)]
    partition.when_high_watermark(4, lambda error: called.append((4, error)))
    assert called[5:] == [(4, None)]


def test_who_waits_may_wait_again_when_called():
    partition, called = led(), []

    def again(error):
        called.append(error)
        if len(called) < 3:
            partition.when_high_watermark(len(called) + 1, again)

    append(partition, 3)
    partition.when_high_watermark(1, again)
    for offset in (1, 2, 3):
        partition.advance_high_watermark(offset)
    assert called == [None, None, None]


@pytest.mark.parametrize(
    "leave",
    [
        lambda partition: partition.close(),
        lambda partition: partition.availability.take_offline("its disk has failed"),
        lambda partition: partition.moved_to_deletion("data/t-0.gone-delete"),
    ],
)
def test_who_waits_for_a_partition_that_goes_away_gets_an_error_and_watchers_wake(leave):
    partition, errors, woken = led(), [], []
    append(partition)
    partition.when_high_watermark(1, errors.append)
    partition.watch(lambda: woken.append("high watermark"))
    partition.watch(lambda: woken.append("log end"), at_log_end=True)
    leave(partition)
    assert [error.code for error in errors] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert woken == ["high watermark", "log end"]
    partition.when_high_watermark(0, errors.append)
    assert isinstance(errors[1], KafkaError)


def test_with_a_second_replica_the_high_watermark_stays_and_without_it_goes_to_the_log_end():
    partition, called = sole(), []
    append(partition, 2)
    partition.set_replicated(True)
    append(partition, 2)
    assert (partition.is_replicated, partition.high_watermark) == (True, 2)
    partition.when_high_watermark(4, called.append)
    partition.watch(lambda: called.append("woken"))
    partition.set_replicated(False)
    assert (partition.is_replicated, partition.high_watermark) == (False, 4)
    assert called == [None, "woken"]
    append(partition)
    assert partition.high_watermark == 5


class Told(StoreListener):
    def __init__(self):
        self.damaged = []

    def damage(self, sentence):
        self.damaged.append(sentence)


def opened(disk, *, replicated=True, **options):
    return open_store(disk, replicated_for=lambda topic, index: replicated, **options)


def begun(disk, count, high_watermark):
    store = opened(disk)
    partition = store.create("t", 0, b"1" * 16, LogConfig(segment_bytes=400))
    append(partition, count)
    partition.advance_high_watermark(high_watermark)
    return store, partition


def left_behind(disk, store, stop):
    if stop == "clean stop":
        store.close(NOW_MS)
    else:
        finish(store.checkpointing.writing_high_watermarks())
        store.get("t", 0).flush()
    disk.held.clear()
    return disk


@pytest.mark.parametrize("stop", ["clean stop", "kill"])
@pytest.mark.parametrize(
    ("high_watermark", "replicated", "expected"), [(4, True, 4), (4, False, 9), (9, True, 9)]
)
def test_a_start_finds_the_high_watermark_of_a_replicated_partition_in_the_checkpoint(
    stop, high_watermark, replicated, expected
):
    disk = MemoryDisk()
    store, _ = begun(disk, 9, high_watermark)
    again = opened(left_behind(disk, store, stop), replicated=replicated).get("t", 0)
    assert (again.high_watermark, again.log_end_offset) == (expected, 9)
    assert offsets_of(again) == list(range(expected))


def test_a_checkpointed_high_watermark_after_the_log_end_is_the_log_end():
    disk = MemoryDisk()
    store, partition = begun(disk, 3, 3)
    partition.flush()
    append(partition, 6)
    partition.advance_high_watermark(9)
    finish(store.checkpointing.writing_high_watermarks())
    ends = set()
    for seed in range(20):
        again = opened(disk.lose_power(seed)).get("t", 0)
        assert again.high_watermark == again.log_end_offset
        ends.add(again.log_end_offset)
    assert min(ends) < 9


def test_a_checkpointed_high_watermark_before_the_log_start_is_the_log_start():
    disk = MemoryDisk()
    store, partition = begun(disk, 9, 2)
    finish(store.checkpointing.writing_high_watermarks())
    partition.advance_high_watermark(7)
    partition.retention.delete_records(6)
    finish(store.checkpointing.saving_starts([partition]))
    disk.held.clear()
    again = opened(disk).get("t", 0)
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (6, 6, 9)


@pytest.mark.parametrize("content", [None, b"0\n1\nt 0 not a number\n"])
def test_a_high_watermark_that_nobody_knows_is_the_log_start_and_damage_is_told(content):
    disk = MemoryDisk()
    store, _ = begun(disk, 9, 9)
    store.close(NOW_MS)
    path = f"data/{HIGH_WATERMARKS}"
    disk.remove(path)
    if content is not None:
        disk.open(path, create=True).write(0, [content])
    told = Told()
    again = opened(disk, listener=told).get("t", 0)
    assert (again.high_watermark, again.log_end_offset) == (0, 9)
    assert [path in sentence for sentence in told.damaged] == ([] if content is None else [True])


def test_a_new_partition_is_replicated_if_its_maker_says_so_and_an_old_one_follows_its_maker():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, b"1" * 16, LogConfig(), is_replicated=True)
    append(partition, 3)
    assert store.create("t", 0, b"1" * 16, LogConfig()).high_watermark == 0
    assert store.create("t", 0, b"1" * 16, LogConfig(), is_replicated=False).high_watermark == 3


def test_high_watermarks_alone_are_written_only_for_replicated_partitions():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, b"1" * 16, LogConfig())
    append(partition, 3)
    operations = disk.operations
    finish(store.checkpointing.writing_high_watermarks())
    assert disk.operations == operations
    partition.set_replicated(True)
    finish(store.checkpointing.writing_high_watermarks())
    assert disk.operations > operations
    assert b"t 0 3" in disk.open(f"data/{HIGH_WATERMARKS}").read(0, 1000)


def test_who_comes_after_the_leadership_is_lost_gets_the_error_until_it_is_there_again():
    """A leader's staged records are committed after it has resigned."""
    partition = led()
    watermark = partition.appender.high_watermark
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    got = []
    partition.when_high_watermark(1, got.append)
    watermark.refuse(error)
    partition.when_high_watermark(1, got.append)
    assert got == [error, error]
    watermark.refuse(None)
    partition.when_high_watermark(1, got.append)
    assert len(got) == 2


def test_who_waits_no_more_is_forgotten_among_others_of_the_same_offset():
    partition = led()
    append(partition, 1)
    got = []
    waits = [lambda error, number=number: got.append(number) for number in range(3)]
    for done in waits:
        partition.when_high_watermark(1, done)
    partition.forget_high_watermark(1, waits[1])
    partition.forget_high_watermark(2, waits[0])
    partition.advance_high_watermark(1)
    assert got == [0, 2]
