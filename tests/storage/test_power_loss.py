"""A partition loses power at every single operation of a history, and comes back with what it had
promised.
"""

import random
from itertools import count

import pytest
from memory_disk import MemoryDisk, PowerLost

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, LogStore
from odradek.storage.log.partition import Partition
from odradek.storage.log.producer_state import ProducerState
from odradek.wire.errors import KafkaError
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish
from tests.tiers import seeds

TOPIC_ID = bytes(16)
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=400)
HISTORY_STEPS = 30


class History:
    """A seeded sequence of operations, and what the partition has promised so far."""

    def __init__(self, disk: MemoryDisk, seed: int) -> None:
        self.disk = disk
        self.chance = random.Random(seed)
        self.now_ms = 1_700_000_000_000
        self.sent: dict[int, set[bytes]] = {}
        self.flushed_end = 0
        self.sequences = dict.fromkeys(range(3), 0)
        self.numbers = count()

    def start(self) -> Partition:
        self.store = LogStore(
            self.disk, ["data"], new_id=lambda: "0" * 32, scan_checkpoint_interval_bytes=200
        )
        self.store.open(self.now_ms)
        self.partition = self.store.create("t", 0, TOPIC_ID, SMALL)
        return self.partition

    def run(self) -> None:
        self.start()
        for _ in range(HISTORY_STEPS):
            self.now_ms += 1000
            step = self.chance.choices(
                (
                    self.append,
                    self.flush,
                    self.checkpoint,
                    self.make_scan_checkpoint,
                    self.delete_records,
                    self.restart,
                ),
                weights=(10, 3, 2, 2, 1, 1),
            )[0]
            step()
        self.store.close(self.now_ms)

    def append(self) -> None:
        partition = self.partition
        for _ in range(self.chance.randrange(1, 5)):
            values = [
                b"%d" % next(self.numbers) * self.chance.randrange(1, 20)
                for _ in range(self.chance.randrange(1, 4))
            ]
            producer_id = self.chance.choice((-1, 0, 1, 2))
            sequence = self.sequences.get(producer_id, -1)
            batch = build_batch(
                [Record(place, self.now_ms + place, b"k", value) for place, value in enumerate(values)],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
            )
            appended = partition.appends.append(batch, now_ms=self.now_ms)
            for place, value in enumerate(values):
                self.sent.setdefault(appended.base_offset + place, set()).add(value)
            if producer_id >= 0:
                self.sequences[producer_id] += len(values)
        partition.commit()

    def flush(self) -> None:
        end_offset = self.partition.log_end_offset
        self.partition.flush()
        self.flushed_end = end_offset

    def checkpoint(self) -> None:
        self.now_ms += CHECKPOINT_INTERVAL_MS
        finish(self.store.maintaining(self.now_ms))

    def make_scan_checkpoint(self) -> None:
        self.flush()
        self.checkpoint()

    def delete_records(self) -> None:
        partition = self.partition
        partition.retention.delete_records(
            self.chance.randint(partition.log_start_offset, partition.high_watermark)
        )

    def restart(self) -> None:
        end_offset = self.partition.log_end_offset
        self.store.close(self.now_ms)
        self.flushed_end = end_offset
        assert self.start().log_end_offset == end_offset


def records_of(partition: Partition) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        data = memoryview(partition.read(offset, max_bytes=500).records.tobytes())
        assert data, f"nothing to read at {offset} of {partition}"
        for position, header in iter_whole_batches(data):
            for record in iter_records(data[position:]):
                assert record.offset not in found or record.offset < offset
                if record.offset >= partition.log_start_offset:
                    found[record.offset] = record.value
            offset = header.last_offset + 1
    return found


def check_survivor(history: History, disk: MemoryDisk) -> None:
    history.disk = disk
    partition = history.start()
    assert partition.log_start_offset <= partition.last_stable_offset <= partition.high_watermark
    assert partition.high_watermark <= partition.log_end_offset
    assert partition.log_end_offset >= history.flushed_end, "flushed records are gone"
    found = records_of(partition)
    assert sorted(found) == list(range(partition.log_start_offset, partition.log_end_offset))
    for offset, value in found.items():
        assert value in history.sent[offset], f"nobody ever sent what is at {offset}"
    check_producers(partition)
    # And it goes on.
    history.sequences = {
        producer_id: entry.last_sequence + 1
        for producer_id, entry in partition.log.producers.producers.items()
    } | {producer_id: 0 for producer_id in range(3) if producer_id not in partition.log.producers.producers}
    history.append()
    history.flush()
    history.store.close(history.now_ms)


def check_producers(partition: Partition) -> None:
    """What is known of producers is what the log says of them; of those whose records are deleted it may
    be more.
    """
    scanned = ProducerState()
    for segment in partition.log.segments:
        for batch in segment.batches():
            scanned.replay(batch, segment.file.read)
    known = {producer_id: latest(entry) for producer_id, entry in partition.log.producers.producers.items()}
    for producer_id, entry in scanned.producers.items():
        assert known.pop(producer_id) == latest(entry)
    first_offset = partition.log.segments[0].base_offset
    assert all(last_offset < first_offset for _, _, last_offset, _ in known.values())


def latest(entry):
    return entry.producer_epoch, entry.last_sequence, entry.last_data_offset, entry.last_timestamp


def operations_of(seed: int) -> int:
    disk = MemoryDisk()
    History(disk, seed).run()
    return disk.operations


@pytest.mark.parametrize("seed", seeds(4, fast=1))
def test_what_was_flushed_survives_a_power_loss_at_every_operation(seed):
    for operation in range(1, operations_of(seed) + 1):
        disk = MemoryDisk()
        disk.lose_power_at = operation
        history = History(disk, seed)
        with pytest.raises(PowerLost):
            history.run()
        check_survivor(history, disk.lose_power(seed * 100_003 + operation))


@pytest.mark.parametrize("seed", range(2))
def test_a_second_power_loss_during_recovery_loses_nothing_more(seed):
    operations = operations_of(seed)
    for operation in range(20, operations, 23):
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
                twice = survivor.lose_power(again)
                history.disk = twice
                assert history.start().log_end_offset >= history.flushed_end
                continue
            break
        survivor.lose_power_at = None
        assert history.partition.log_end_offset >= history.flushed_end


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_has_lost_nothing_that_was_committed(seed):
    disk = MemoryDisk()
    history = History(disk, seed)
    history.run()
    history.start()
    for _ in range(20):
        history.append()
        before = records_of(history.partition)
        disk.held.clear()
        assert records_of(history.start()) == before
        check_producers(history.partition)


@pytest.mark.parametrize("seed", range(10))
def test_short_writes_are_finished(seed):
    disk = MemoryDisk()
    disk.short_writes = random.Random(seed)
    history = History(disk, seed)
    history.run()
    check_survivor(history, disk.lose_power(seed))


@pytest.mark.parametrize("seed", range(10))
def test_a_failed_commit_leaves_no_trace_and_the_next_one_works(seed):
    disk = MemoryDisk()
    history = History(disk, seed)
    partition = history.start()
    chance = random.Random(seed)
    failed = 0
    for _ in range(60):
        before = records_of(partition)
        producers = {one: latest(entry) for one, entry in partition.log.producers.producers.items()}
        sequences = dict(history.sequences)
        used = sum(len(inode.data) for inode in disk.files.values())
        disk.room_bytes = used + chance.choice((0, 50, 100, 300, 10_000, 10_000))
        try:
            history.append()
        except KafkaError:
            failed += 1
            history.sequences = sequences
            assert records_of(partition) == before
            assert {
                one: latest(entry) for one, entry in partition.log.producers.producers.items()
            } == producers
        disk.room_bytes = None
    assert failed
    check_producers(partition)
    before = records_of(partition)
    history.store.close(history.now_ms)
    assert records_of(history.start()) == before


TIMED = LogConfig(segment_bytes=400, index_interval_bytes=50)


def timed(partition: Partition, first: int, count: int) -> None:
    """One record a batch, a second apart."""
    for number in range(first, first + count):
        partition.appends.append(
            build_batch([Record(0, number * 1000, b"k", b"v" * 20)]), now_ms=number * 1000
        )
        partition.commit()


def check_look_ups(disk: MemoryDisk, count: int) -> None:
    store = LogStore(disk, ["data"], config_for=lambda topic: TIMED)
    store.open(count * 1000)
    partition = store.get("t", 0)
    assert partition is not None
    assert partition.log_end_offset >= count
    for number in range(count):
        assert finish(partition.search.finding_timestamp(number * 1000)) == (number * 1000, number, 0)


@pytest.mark.parametrize("seed", range(30))
def test_an_index_that_the_pool_has_dropped_before_the_flush_is_safe_after_it(seed):
    disk = MemoryDisk()
    store = LogStore(disk, ["data"], open_files_max=1)
    store.open(0)
    partition = store.create("t", 0, TOPIC_ID, TIMED)
    timed(partition, 0, 23)
    for segment in partition.log.segments:
        segment.file.release()
    assert len(partition.log.segments) > 3
    partition.flush()
    finish(store.maintaining(CHECKPOINT_INTERVAL_MS))
    check_look_ups(disk.lose_power(seed), 23)


@pytest.mark.parametrize("seed", range(30))
def test_a_segment_that_was_flushed_to_its_end_before_it_was_sealed_has_sound_indexes(seed):
    disk = MemoryDisk()
    store = LogStore(disk, ["data"])
    store.open(0)
    partition = store.create("t", 0, TOPIC_ID, TIMED)
    number = 0
    while len(partition.log.segments) < 4:
        # The recovery point is the end of each segment when it is sealed.
        timed(partition, number, 1)
        number += 1
        if seed % 2 or len(partition.log.segments) < 4:
            partition.flush()
            finish(store.maintaining(CHECKPOINT_INTERVAL_MS * number))
    check_look_ups(disk.lose_power(seed), number if seed % 2 else number - 1)
