"""A leader's batches, surveyed where they were received and appended from there, as the compiled exchange of
a follower does it: the log is the one that `Appends.append` makes."""

import errno
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.config import LogConfig
from odradek.storage.log.appends import Origin
from odradek.storage.log.partition import READ_LOG_END
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, end_txn_marker
from tests.storage.memory_disk import MemoryDisk
from tests.storage.stores import NOW_MS, append
from tests.storage.test_replication import (
    SMALL,
    STEPS,
    begun,
    committed,
    files_of,
    followed,
    lead,
    offsets_in,
    replicate,
    sent,
)
from tests.storage.transacting import check_transactions
from tests.tiers import examples

LATEST = 0x7FFFFFFF
BEFORE, AFTER = b"before", b"after"
"""Other bytes of the receive buffer."""


def take(partition, records: bytes, leader_epoch_max: int = LATEST) -> bool:
    """Whether they were appended in place."""
    buffer = bytearray(BEFORE + records + AFTER)
    start = len(BEFORE)
    surveyed = partition.appender.survey_leaders(buffer, start, start + len(records), leader_epoch_max)
    if surveyed is None:
        return False
    size_bytes, next_offset = surveyed
    partition.appender.append_leaders(buffer, start, start + size_bytes)
    assert partition.log_end_offset == next_offset
    buffer[:] = b"\xff" * len(buffer)  # it is used again
    return True


def follow(leader, follower, max_bytes, counts: Counter) -> None:
    while follower.log_end_offset < leader.log_end_offset:
        result = leader.read(follower.log_end_offset, max_bytes=max_bytes(), isolation=READ_LOG_END)
        records = result.records.tobytes()
        is_taken = take(follower, records)
        counts[is_taken] += 1
        if not is_taken:
            follower.appends.append(records, now_ms=NOW_MS, origin=Origin.REPLICATION)
            follower.commit()


def test_a_follower_in_place_has_the_leaders_files_byte_for_byte_and_all_that_it_knows():
    counts: Counter = Counter()

    @settings(max_examples=examples(60), deadline=None)
    @given(steps=STEPS, seed=st.integers(0, 1000))
    def play(steps, seed):
        chance = random.Random(seed)
        leader_disk, leader_store, leader = begun()
        follower_disk, follower_store, follower = begun()

        def maybe_follow():
            if chance.random() < 0.5:
                follow(leader, follower, lambda: chance.randrange(1, 700), counts)

        lead(leader, steps, maybe_follow)
        follow(leader, follower, lambda: chance.randrange(1, 700), counts)
        assert follower.producers() == leader.producers()
        assert follower.log.leader_epochs.entries() == leader.log.leader_epochs.entries()
        assert follower.last_stable_offset == leader.last_stable_offset
        assert committed(follower) == committed(leader)
        check_transactions(follower)
        assert files_of(follower_disk, follower_store) == files_of(leader_disk, leader_store)

    play()
    assert counts[True]
    assert counts[False]


def begun_with(count: int, config: LogConfig = SMALL):
    disk = MemoryDisk()
    _, partition = followed(disk, config)
    for _ in range(count):
        append(partition, 1)
    return disk, partition


def marker(offset: int) -> bytes:
    batch = bytearray(
        end_txn_marker(committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS)
    )
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize("compression", list(Compression))
def test_gaps_and_compressed_batches_are_appended_in_place(compression):
    _, partition = begun_with(3, LogConfig())
    records = [Record(7 + place, NOW_MS, b"k", b"v") for place in range(3)]
    assert take(partition, sent(3, 5) + build_batch(records, compression=compression))
    assert offsets_in(partition) == [0, 1, 2, 3, 5, 7]
    assert partition.log_end_offset == 10


def test_an_incomplete_last_batch_and_batches_of_a_later_leader_are_left_out():
    _, partition = begun_with(3)
    assert take(partition, sent(3, 4)[:-1])
    assert offsets_in(partition) == [0, 1, 2, 3]
    assert take(partition, sent(4, leader_epoch=5) + sent(5, leader_epoch=6), 5)
    assert offsets_in(partition) == [0, 1, 2, 3, 4]
    assert partition.log.leader_epochs.latest == 5


@pytest.mark.parametrize(
    "records",
    [
        b"",
        sent(3)[:-1],
        sent(3)[:40],
        sent(2),
        sent(4, 3),
        sent(3, 3),
        damaged(sent(3)),
        sent(3) + damaged(sent(4)),
        sent(3) + b"\0" * 80,
        marker(3),
        sent(3) + marker(4),
        sent(3, leader_epoch=9),
    ],
)
def test_what_is_not_ordinary_has_no_effect(records):
    _, partition = begun_with(3)
    assert not take(partition, records, 8)
    assert not partition.log.has_staged
    assert partition.log_end_offset == 3
    replicate(partition, sent(3))


def test_a_full_segment_is_for_the_append_that_rolls():
    _, partition = begun_with(2, LogConfig(segment_bytes=300))
    taken = [
        take(partition, sent(offset)) or not replicate(partition, sent(offset)) for offset in range(2, 30)
    ]
    assert True in taken
    assert False in taken
    assert len(partition.log.segments) > 5
    assert offsets_in(partition) == list(range(30))


def test_an_empty_log_is_for_the_append_that_begins_a_segment():
    _, partition = begun_with(0)
    assert not take(partition, sent(0))


def test_beside_staged_batches_none_are_appended():
    _, partition = begun_with(2)
    partition.appends.append(sent(2), now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert not take(partition, sent(3))
    partition.commit()
    assert take(partition, sent(3))


def test_a_flush_after_some_messages_is_not_passed_over():
    _, partition = begun_with(2, LogConfig(flush_messages=4))
    partition.flush()
    assert take(partition, sent(2, 3, 4))
    assert not take(partition, sent(5))
    partition.flush()
    assert take(partition, sent(5))


def test_after_a_failed_write_nothing_is_there_and_the_next_one_succeeds():
    disk, partition = begun_with(2)
    disk.fail = lambda operation, path: errno.ENOSPC if operation == "write" and ".log" in path else None
    with pytest.raises(KafkaError) as refused:
        take(partition, sent(2))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda operation, path: None
    assert not partition.log.has_staged
    assert (partition.log_end_offset, offsets_in(partition)) == (2, [0, 1])
    if not take(partition, sent(2)):
        replicate(partition, sent(2))
    assert offsets_in(partition) == [0, 1, 2]


@pytest.mark.parametrize(("start", "end"), [(-1, 10), (5, 4), (0, 1_000)])
def test_a_place_outside_of_the_buffer_is_none(start, end):
    _, partition = begun_with(2)
    assert partition.appender.survey_leaders(bytearray(sent(2)), start, end, LATEST) is None
