"""The flush journal: what it has taken survives a loss of power at any operation, and it never writes where
it should not.
"""

import errno
import random
from itertools import count

import pytest
from memory_disk import MemoryDisk, PowerLost

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, LogStore
from odradek.storage.log import flush_journal
from odradek.storage.log.flush_journal import NAMES, PAGE_BYTES, READ_NAMES, FlushJournal, read_entries
from odradek.wire.errors import KafkaError
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish

NOW_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=400)
FILE_BYTES = 4 * PAGE_BYTES
TOPIC_ID = bytes(range(16))


def open_store(disk, *, now_ms=NOW_MS):
    store = LogStore(disk, ["data"], new_id=lambda: "0" * 32)
    store.flush_journals = [FlushJournal(disk, "data", file_bytes=FILE_BYTES)]
    store.open(now_ms)
    return store


def append(partition, *values, now_ms=NOW_MS):
    appended = partition.appends.append(
        build_batch([Record(place, now_ms, b"k", value) for place, value in enumerate(values)]), now_ms=now_ms
    )
    partition.commit()
    return appended


def write_together(log, partitions):
    """One group commit; returns which partitions the log has taken."""
    block = log.begin(partitions)
    if block is None:
        return []
    block.write()
    log.finish(block, None)
    return [partition for partition, _ in block.tails]


def values_of(partition):
    found = {}
    offset = partition.log_start_offset
    while offset < partition.log_end_offset:
        data = memoryview(partition.read(offset, max_bytes=500).records.tobytes())
        for position, header in iter_whole_batches(data):
            for record in iter_records(data[position:]):
                found[record.offset] = record.value
            offset = header.last_offset + 1
    return found


class History:
    """Seeded appends to a few partitions, made durable in both ways; `promised` is what was answered for."""

    def __init__(self, disk, seed):
        self.disk = disk
        self.chance = random.Random(seed)
        self.now_ms = NOW_MS
        self.numbers = count()
        self.promised = {}
        self.sent = {}
        self.taken = 0

    def start(self):
        self.store = open_store(self.disk, now_ms=self.now_ms)
        self.partitions = [
            self.store.create(topic, index, topic.encode() * 16, SMALL)
            for topic in "ab"
            for index in range(2)
        ]
        (self.log,) = self.store.flush_journals

    def run(self):
        self.start()
        for _ in range(30):
            self.now_ms += 1000
            self.chance.choices(
                (self.group_commit, self.checkpoint, self.kill, self.restart), weights=(20, 1, 1, 1)
            )[0]()
        self.store.close(self.now_ms)

    def group_commit(self):
        if not self.log.is_ready and self.chance.random() < 0.7:
            self.log.prepare()
        touched = self.chance.sample(self.partitions, self.chance.randrange(1, 5))
        for partition in touched:
            for _ in range(self.chance.randrange(1, 3)):
                value = b"%d" % next(self.numbers) * self.chance.randrange(1, 60)
                self.sent.setdefault((partition.name, partition.log_end_offset), set()).add(value)
                append(partition, value, now_ms=self.now_ms)
        ends = {partition: partition.log_end_offset for partition in touched}
        taken = write_together(self.log, touched)
        self.taken += len(taken)
        self.promised |= {partition.name: ends[partition] for partition in taken}
        for partition in touched:
            if partition not in taken:
                partition.flush()
                self.promised[partition.name] = ends[partition]
        if retired := self.log.take_retired():
            for partition in retired:
                partition.flush()
            self.log.retired_is_flushed([])

    def checkpoint(self):
        self.now_ms += CHECKPOINT_INTERVAL_MS
        finish(self.store.maintaining(self.now_ms))

    def kill(self):
        self.disk.held.clear()
        self.start()

    def restart(self):
        self.store.close(self.now_ms)
        assert not any(self.disk.exists(f"data/{name}") for name in NAMES)
        self.start()

    def check(self):
        self.disk.held.clear()
        self.start()
        for partition in self.partitions:
            assert partition.log_end_offset >= self.promised.get(partition.name, 0), partition
            found = values_of(partition)
            assert sorted(found) == list(range(partition.log_end_offset))
            for offset, value in found.items():
                assert value in self.sent[partition.name, offset]


def operations_of(seed):
    history = History(MemoryDisk(), seed)
    history.run()
    assert history.taken > 10
    return history.disk.operations


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2))
def test_what_was_answered_for_survives_a_power_loss_at_every_operation(seed):
    for operation in range(1, operations_of(seed) + 1):
        disk = MemoryDisk()
        disk.lose_power_at = operation
        history = History(disk, seed)
        with pytest.raises(PowerLost):
            history.run()
        history.disk = disk.lose_power(seed * 100_003 + operation)
        history.check()
        history.group_commit()
        history.disk = history.disk.lose_power(operation)
        history.check()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_a_second_power_loss_during_the_replay_loses_nothing_more(seed):
    for operation in range(20, operations_of(seed), 41):
        disk = MemoryDisk()
        disk.lose_power_at = operation
        history = History(disk, seed)
        with pytest.raises(PowerLost):
            history.run()
        for again in count(1):
            survivor = disk.lose_power(operation)
            survivor.lose_power_at = again
            history.disk = survivor
            try:
                history.start()
            except PowerLost:
                history.disk = survivor.lose_power(again)
                history.check()
                continue
            break


@pytest.fixture
def disk():
    return MemoryDisk()


@pytest.fixture
def store(disk):
    return open_store(disk)


@pytest.fixture
def log(store):
    (log,) = store.flush_journals
    log.prepare()
    return log


def made(store, name="orders", index=0, topic_id=TOPIC_ID, **settings):
    """A partition with one record that a flush has brought to its own file."""
    partition = store.create(name, index, topic_id, LogConfig(**settings))
    append(partition, b"first")
    partition.flush()
    return partition


def crashed(disk, partition, size_bytes):
    """The next start's store, after the machine lost all but the beginning of a partition's file."""
    path = partition.log.active.paths.path(".log")
    disk.open(path).truncate(size_bytes)
    disk.held.clear()
    return open_store(disk)


def test_one_write_and_one_sync_make_many_partitions_durable(disk, store, log):
    partitions = [made(store, index=index) for index in range(20)]
    for partition in partitions:
        append(partition, b"second")
        assert partition.appends.append(build_batch([Record(0, NOW_MS, b"", b"")]), now_ms=NOW_MS)
        partition.commit()
    before = disk.operations
    assert write_together(log, partitions) == partitions
    assert disk.operations - before == 2
    assert {partition.log.durable_offset for partition in partitions} == {3}
    assert {partition.log.durability.recovery_point for partition in partitions} == {1}
    assert not partitions[0].flushing.wants_flush(NOW_MS + 10**9, NOW_MS)


def test_only_the_end_of_a_segment_that_a_flush_has_seen_can_be_logged(store):
    partition = store.create("orders", 0, TOPIC_ID, LogConfig(segment_bytes=1300))
    append(partition, b"a" * 300)
    assert partition.flushing.tail(10_000) is None  # its name may not survive
    partition.flush()
    append(partition, b"a" * 300)
    tail = partition.flushing.tail(10_000)
    assert (tail.position, tail.end_offset) == (tail.end_position - len(tail.content), 2)
    assert partition.flushing.tail(len(tail.content) - 1) is None
    append(partition, b"a" * 300)
    partition.flushing.note_journaled(tail)
    assert partition.flushing.tail(10_000).position == tail.end_position
    append(partition, b"a" * 300)
    assert len(partition.log.segments) == 2
    assert partition.flushing.tail(10_000) is None
    partition.flush()
    assert partition.flushing.tail(10_000).content == b""


def test_a_partition_that_nothing_names_is_not_logged(store, log):
    nameless = made(store, "nameless", topic_id=bytes(16))
    append(nameless, b"second")
    assert write_together(log, [nameless]) == []
    nameless = store.create("nameless", 0, TOPIC_ID, LogConfig())
    assert write_together(log, [nameless]) == []  # what names it now may not survive
    nameless.flush()
    append(nameless, b"third")
    assert write_together(log, [nameless]) == [nameless]


def test_a_file_is_used_again_only_when_what_it_holds_is_flushed(store, log):
    one, other = made(store), made(store, "bills")
    written = 0
    while not (retired := log.take_retired()):
        append(one, b"x" * 3000)
        assert write_together(log, [one]) == [one]
        written += 1
    assert written == FILE_BYTES // PAGE_BYTES + 1
    assert retired == [one]
    assert log.take_retired() == []
    for _ in range(FILE_BYTES // PAGE_BYTES - 1):
        append(other, b"x" * 3000)
        assert write_together(log, [other]) == [other]
    append(other, b"more")
    assert write_together(log, [other]) == []
    one.flush()
    log.retired_is_flushed([])
    assert write_together(log, [other]) == [other]
    assert log.take_retired() == [one, other]  # in the other file there was one of its blocks


def test_a_file_is_kept_while_a_partition_cannot_be_flushed_unless_it_is_deleted(disk, store, log):
    one, other = made(store), made(store, "bills")
    size_bytes = one.size_bytes
    for partition in (one, other):
        append(partition, b"x")
    write_together(log, [one, other])
    while not log.take_retired():
        append(one, b"x" * 3000)
        write_together(log, [one])
    store.delete("bills", 0)
    with pytest.raises(KafkaError):
        other.flush()
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" else None
    with pytest.raises(KafkaError):
        one.flush()
    disk.fail = lambda operation, path: None
    log.retired_is_flushed([one, other])
    assert log.take_retired() == [one]
    log.retired_is_flushed([one])
    store.close(NOW_MS)
    assert all(disk.exists(f"data/{name}") for name in NAMES)
    end_offset = one.log_end_offset
    store = crashed(disk, one, size_bytes)
    assert store.get("orders", 0).log_end_offset == end_offset
    assert store.opening.restored_bytes


def test_a_flush_that_fails_once_while_a_file_retires_holds_up_the_log_only_until_it_is_repeated(
    disk, store, log
):
    partitions = one, other = made(store), made(store, "bills")
    while not log.take_retired():
        append(one, b"x" * 1000)
        append(other, b"x" * 1000)
        assert write_together(log, partitions)
    other.flush()
    log.retired_is_flushed([one])  # there was no room, say
    assert log.take_retired() == [one]
    assert log.take_retired() == []
    generation = log.generation
    while append(one, b"x" * 3000) and write_together(log, [one]):
        assert log.generation == generation
    one.flush()
    log.retired_is_flushed([])
    for _ in range(3 * FILE_BYTES // PAGE_BYTES):
        append(one, b"x" * 3000)
        assert write_together(log, [one]) == [one]
        if log.take_retired():
            one.flush()
            log.retired_is_flushed([])
    assert log.generation > generation + 2


def test_after_a_failed_write_nothing_is_logged_and_the_blocks_before_still_count(disk, store, log):
    partition = made(store)
    size_bytes = partition.size_bytes
    append(partition, b"second")
    assert write_together(log, [partition])
    append(partition, b"third")
    disk.fail = lambda operation, path: errno.EIO if NAMES[1] in path and operation == "sync" else None
    block = log.begin([partition])
    with pytest.raises(OSError, match="error") as failed:
        block.write()
    log.finish(block, failed.value)
    assert partition.log.durable_offset == 2
    assert log.begin([partition]) is None
    disk.fail = lambda operation, path: None
    found = values_of(crashed(disk, partition, size_bytes).get("orders", 0))
    assert found[1] == b"second"


def test_a_flush_journal_with_the_names_of_an_earlier_build_is_replayed_and_removed(disk, store, log):
    partition = made(store)
    size_bytes = partition.size_bytes
    append(partition, b"second")
    write_together(log, [partition])
    former = READ_NAMES[len(NAMES) :]
    for name, old in zip(NAMES, former, strict=True):
        disk.rename(f"data/{name}", f"data/{old}")
    store = crashed(disk, partition, size_bytes)
    assert values_of(store.get("orders", 0))[1] == b"second"
    assert not any(disk.exists(f"data/{name}") for name in READ_NAMES)
    (journal,) = store.flush_journals
    journal.prepare()
    assert [disk.exists(f"data/{name}") for name in READ_NAMES] == [True, True, False, False]


def test_a_partition_of_another_topic_or_a_missing_segment_is_left_alone(disk, store, log):
    partition = made(store)
    append(partition, b"second")
    gone = made(store, "gone")
    append(gone, b"second")
    write_together(log, [partition, gone])
    store.delete("orders", 0)
    store.delete("gone", 0)
    again = store.create("orders", 0, bytes(reversed(TOPIC_ID)), LogConfig())
    store = crashed(disk, again, 0)
    assert store.get("orders", 0).log_end_offset == 0
    assert store.get("gone", 0) is None
    assert not any(disk.exists(f"data/{name}") for name in NAMES)


def test_what_another_broker_has_written_since_is_not_overwritten(disk, store, log):
    partition = made(store)
    size_bytes = partition.size_bytes
    append(partition, b"second")
    write_together(log, [partition])
    other = bytes(build_batch([Record(1, NOW_MS, b"k", b"not ours")], base_offset=1))
    disk.open(partition.log.active.paths.path(".log")).truncate(size_bytes)
    disk.open(partition.log.active.paths.path(".log")).write(size_bytes, [other])
    disk.held.clear()
    assert values_of(open_store(disk).get("orders", 0)) == {0: b"first", 1: b"not ours"}


def test_after_a_clean_stop_of_another_broker_the_log_is_dropped_unread(disk, store, log):
    partition = made(store)
    size_bytes = partition.size_bytes
    append(partition, b"second")
    write_together(log, [partition])
    disk.open("data/.kafka_cleanshutdown", create=True)
    assert crashed(disk, partition, size_bytes).get("orders", 0).log_end_offset == 1
    assert not any(disk.exists(f"data/{name}") for name in NAMES)


def test_what_is_before_the_recovery_point_is_not_written_again(disk, store, log):
    partition = made(store)
    append(partition, b"second")
    write_together(log, [partition])
    append(partition, b"third")
    partition.flush()
    finish(store.maintaining(NOW_MS + CHECKPOINT_INTERVAL_MS))
    writes = []
    disk.fail = lambda operation, path: writes.append(path) if operation == "write" else None
    store = crashed(disk, partition, partition.size_bytes)
    assert partition.log.active.paths.path(".log") not in writes


def test_bytes_that_are_there_are_written_again_since_the_disk_may_not_have_them(disk, store, log):
    partition = made(store)
    append(partition, b"second")
    write_together(log, [partition])
    store = crashed(disk, partition, partition.size_bytes)
    assert store.opening.restored_bytes == 0
    survivor = disk.lose_power(1)
    assert open_store(survivor).get("orders", 0).log_end_offset == 2


def test_without_room_there_is_no_flush_journal_and_nothing_is_left_of_it(disk, store):
    disk.room_bytes = FILE_BYTES + PAGE_BYTES
    (log,) = store.flush_journals
    with pytest.raises(OSError, match="space"):
        log.prepare()
    assert not log.is_usable
    assert not any(disk.exists(f"data/{name}") for name in NAMES)
    other = FlushJournal(disk, "data", file_bytes=FILE_BYTES)
    other.cancel()
    with pytest.raises(OSError, match="cancel"):
        other.prepare()


def test_a_block_has_a_bound_and_the_rest_is_for_a_flush(store, log, monkeypatch):
    monkeypatch.setattr(flush_journal, "BLOCK_BYTES_MAX", 1000)
    partitions = [made(store, index=index) for index in range(5)]
    for partition in partitions:
        append(partition, b"x" * 200)
    assert write_together(log, partitions) == partitions[:2]


def test_garbage_in_the_files_is_no_block(disk, store, log):
    partition = made(store)
    append(partition, b"second")
    write_together(log, [partition])
    sound = bytes(disk.files[f"data/{NAMES[1]}"].data)
    assert [entry.name for entry in read_entries(disk, "data")] == ["orders-0"]
    chance = random.Random(7)
    for _ in range(300):
        damaged = bytearray(sound)
        damaged[chance.randrange(200)] ^= 1 << chance.randrange(8)
        disk.files[f"data/{NAMES[1]}"].data = damaged
        assert len(list(read_entries(disk, "data"))) <= 1


def test_what_a_failed_commit_wrote_does_not_come_back_in_the_place_of_what_was_acknowledged():
    """Its bytes were cut off, but no sync has made that safe."""
    disk = MemoryDisk()
    store = open_store(disk)
    (log,) = store.flush_journals
    log.prepare()
    partition = store.create("a", 0, TOPIC_ID, LogConfig(segment_bytes=300))
    partition.flush()
    for value in (b"never acknowledged" * 4, b"x" * 200):
        partition.appends.append(build_batch([Record(0, NOW_MS, b"k", value)]), now_ms=NOW_MS)
    disk.fail = lambda operation, path: errno.ENOSPC if operation == "create" else None
    with pytest.raises(KafkaError):
        partition.commit()
    disk.fail = lambda operation, path: None
    append(partition, b"acknowledged")
    if partition not in write_together(log, [partition]):
        partition.flush()
    for seed in range(60):
        again = open_store(disk.lose_power(seed)).get("a", 0)
        assert values_of(again) == {0: b"acknowledged"}


def during_its_flush(disk, partition, meanwhile):
    """`meanwhile()` happens when the flush has seen the segments, and goes on with what is beside them."""
    happened = []

    def step(operation, path):
        if (operation, path) == ("sync", f"{partition.directory}/partition.metadata") and not happened:
            happened.append(operation)
            meanwhile()

    disk.fail = step
    partition.flush()
    disk.fail = lambda operation, path: None
    assert happened


def test_a_flush_under_way_does_not_count_for_what_a_failed_commit_has_changed_meanwhile(disk, store, log):
    """Else the next record is only in the journal, and after a loss of power the refused one before it."""
    partition = store.create("orders", 0, TOPIC_ID, LogConfig())
    append(partition, b"first")
    path = partition.log.active.paths.path(".log")

    def refused():
        disk.fail = lambda operation, at: errno.ENOSPC if (operation, at) == ("write", path) else None
        with pytest.raises(KafkaError):
            append(partition, b"refused")
        disk.fail = lambda operation, at: None

    during_its_flush(disk, partition, refused)
    append(partition, b"acknowledged")
    if partition not in write_together(log, [partition]):
        partition.flush()
    for seed in range(60):
        again = open_store(disk.lose_power(seed)).get("orders", 0)
        assert values_of(again) == {0: b"first", 1: b"acknowledged"}


def test_a_flush_under_way_does_not_count_for_the_topic_that_a_partition_is_given_meanwhile(disk, store):
    partition = store.create("orders", 0, TOPIC_ID, LogConfig())
    append(partition, b"first")
    during_its_flush(disk, partition, lambda: partition.adopt(bytes(reversed(TOPIC_ID))))
    append(partition, b"second")
    assert partition.flushing.tail(10_000) is None
    partition.flush()
    assert partition.flushing.tail(10_000).content == b""
