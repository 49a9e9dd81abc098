"""A leader's batches as a follower takes them: as they are, and the follower is the leader again."""

import errno
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.config import LogConfig
from odradek.storage.directories.places import StoreListener
from odradek.storage.log.appends import Origin, leaders_batches
from odradek.storage.log.partition import READ_LOG_END
from odradek.wire.compression import Compression
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, end_txn_marker, iter_whole_batches
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk, PowerLost
from tests.storage.stores import NOW_MS, append, open_store
from tests.storage.transacting import Producer, check_transactions, committed
from tests.tiers import examples, seeds

TOPIC_ID = b"1" * 16
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def begun(config=SMALL):
    disk = MemoryDisk()
    store = open_store(disk)
    return disk, store, store.create("t", 0, TOPIC_ID, config)


def whole(data):
    """Without the batch that a slice has cut off."""
    end = 0
    for position, header in iter_whole_batches(data):
        end = position + header.size_bytes
    return data[:end]


def follow(leader, follower, *, max_bytes=lambda: 300, now_ms=NOW_MS):
    """Fetch until the follower is where the leader is; the batches of some fetches are committed together."""
    while follower.log.next_offset < leader.log_end_offset:
        records = leader.read(follower.log.next_offset, max_bytes=max_bytes(), isolation=READ_LOG_END).records
        follower.appends.append(whole(records.tobytes()), now_ms=now_ms, origin=Origin.REPLICATION)
        if max_bytes() % 2:
            follower.commit()
    follower.commit()


def files_of(disk, store):
    """Those of the partition after a clean stop."""
    store.close(NOW_MS)
    return {
        name: disk.open(f"data/t-0/{name}").read(0, 1 << 20)
        for name in sorted(disk.list("data/t-0"))
        if name != "partition.metadata"
    }


PRODUCERS = st.sampled_from([1, 2, 3])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.integers(1, 4), st.sampled_from(list(Compression))),
        st.tuples(st.just("transact"), PRODUCERS, st.integers(1, 3)),
        st.tuples(st.just("end"), PRODUCERS, st.booleans()),
        st.tuples(st.just("idempotent"), st.integers(1, 3), st.just(None)),
        st.tuples(st.just("epoch"), st.integers(1, 3), st.just(None)),
    ),
    max_size=30,
)


def lead(leader, steps, then):
    """A history of a leader; `then` is called after each step."""
    producers = {one: Producer(leader, one, version=1 + one % 2) for one in (1, 2, 3)}
    sequence = 0
    for name, number, detail in steps:
        if name == "plain":
            records = [Record(place, NOW_MS + number, b"k", b"v" * 20) for place in range(number)]
            leader.appends.append(build_batch(records, compression=detail), now_ms=NOW_MS)
        elif name == "transact":
            producers[number].stage(*[b"t" * detail] * detail)
        elif name == "end":
            leader.appends.append_marker(producers[number].marker(commit=detail), now_ms=NOW_MS)
        elif name == "idempotent":
            records = [Record(place, NOW_MS, b"k", b"v") for place in range(number)]
            batch = build_batch(records, producer_id=9, producer_epoch=0, base_sequence=sequence)
            leader.appends.append(batch, now_ms=NOW_MS)
            sequence += number
        elif name == "epoch":
            leader.follow_leader_epoch(leader.leader_epoch + number)
        leader.commit()
        then()


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1000))
def test_a_follower_has_the_leaders_files_byte_for_byte_and_all_that_it_knows(steps, seed):
    chance = random.Random(seed)
    leader_disk, leader_store, leader = begun()
    follower_disk, follower_store, follower = begun()

    def maybe_follow():
        if chance.random() < 0.3:
            follow(leader, follower, max_bytes=lambda: chance.randrange(1, 700))

    lead(leader, steps, maybe_follow)
    follow(leader, follower, max_bytes=lambda: chance.randrange(1, 700))
    assert follower.producers() == leader.producers()
    assert follower.log.leader_epochs.entries() == leader.log.leader_epochs.entries()
    assert follower.last_stable_offset == leader.last_stable_offset
    assert committed(follower) == committed(leader)
    check_transactions(follower)
    assert files_of(follower_disk, follower_store) == files_of(leader_disk, leader_store)


@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1000))
def test_a_follower_that_was_cut_and_follows_again_is_the_leader_again(steps, seed):
    chance = random.Random(seed)
    _, _, leader = begun()
    _, follower_store, follower = begun()

    def cut_and_follow():
        finish(follower_store.truncating(follower, chance.randint(0, follower.log_end_offset)))
        follow(leader, follower, max_bytes=lambda: chance.randrange(1, 700))

    lead(leader, steps, cut_and_follow)
    known = [(one.producer_id, *one[1:3], one.current_txn_start_offset) for one in follower.producers()]
    assert sorted(known) == sorted(
        (one.producer_id, *one[1:3], one.current_txn_start_offset) for one in leader.producers()
    )
    assert follower.log.leader_epochs.entries() == leader.log.leader_epochs.entries()
    assert committed(follower) == committed(leader)
    contents = [
        b"".join(segment.file.read(0, segment.size_bytes) for segment in partition.log.segments)
        for partition in (leader, follower)
    ]
    assert contents[0] == contents[1]
    check_transactions(follower)


def sent(*offsets, leader_epoch=0):
    return b"".join(
        build_batch([Record(offset, NOW_MS, b"k", b"v")], leader_epoch=leader_epoch) for offset in offsets
    )


@pytest.mark.parametrize("offsets", [(1, 2), (3, 3), (3, 2), (2, 3), (5, 4)])
def test_batches_whose_offsets_do_not_rise_from_the_log_end_on_are_refused_all_of_them(offsets):
    _, _, partition = begun()
    append(partition, 3)
    with pytest.raises(KafkaError) as refused:
        replicate(partition, sent(*offsets))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not partition.log.has_staged
    replicate(partition, sent(3, 4))
    assert partition.log_end_offset == 5


def replicate(partition, batches, **options):
    appended = partition.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION, **options)
    partition.commit()
    return appended


def followed(disk, config=SMALL):
    store = open_store(disk, replicated_for=lambda topic, index: True, config_for=lambda topic: config)
    return store, store.create("t", 0, TOPIC_ID, config)


def offsets_in(partition):
    return [batch.base_offset for segment in partition.log.segments for batch in segment.batches()]


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("stop", ["kill", "failed flush", "clean stop"])
def test_any_topic_takes_the_gaps_of_its_leader_and_a_start_keeps_them(policy, stop):
    disk, config = MemoryDisk(), LogConfig(cleanup_policy=frozenset({policy}), segment_bytes=200)
    store, partition = followed(disk, config)
    replicate(partition, sent(2, 5, 6))
    partition.flush()
    finish(store.checkpointing.writing())
    # A segment ends after three of these batches, so there are gaps within segments and between them.
    batches = [7, 12, 20, 33, 34, 40, 57]
    for offset in batches:
        replicate(partition, sent(offset))
    assert len(partition.log.segments) > 3
    if stop == "failed flush":
        disk.fail = lambda operation, path: errno.EIO if operation == "sync" and ".log" in path else None
        with pytest.raises(KafkaError):
            partition.flush()
        disk.fail = lambda operation, path: None
        finish(store.failing_disks.attending(NOW_MS + 100_000))
        assert partition.is_available
    else:
        if stop == "clean stop":
            store.close(NOW_MS)
        disk.held.clear()
        _, partition = followed(disk, config)
    assert partition.log_end_offset == 58
    assert offsets_in(partition) == [2, 5, 6, *batches]
    with pytest.raises(KafkaError):
        replicate(partition, sent(57))


@pytest.mark.parametrize("flushed", [1, 2, 5])
@pytest.mark.parametrize("skipped", [1, 2, 100])
@pytest.mark.parametrize("is_after_stop", [False, True])
def test_a_gap_behind_what_was_flushed_is_no_damage(flushed, skipped, is_after_stop):
    disk, told = MemoryDisk(), []
    store, partition = followed(disk)
    replicate(partition, sent(*range(flushed)))
    if is_after_stop:
        store.close(NOW_MS)
        disk.held.clear()
        _, partition = followed(disk)
    else:
        partition.flush()
        finish(store.checkpointing.writing())
    replicate(partition, sent(flushed + skipped))
    disk.held.clear()
    listener = StoreListener()
    listener.damage = told.append
    again = open_store(disk, replicated_for=lambda topic, index: True, listener=listener).get("t", 0)
    assert again.log_end_offset == flushed + skipped + 1
    assert told == []


def test_a_loss_of_power_leaves_no_hole_in_a_log_with_gaps():
    disk = MemoryDisk()
    _, partition = followed(disk, LogConfig(segment_bytes=200))
    offsets = [0, 1, 5, 8, 9, 20, 30, 31, 32, 40, 50, 51]
    for offset in offsets:
        replicate(partition, sent(offset))
    seen = set()
    for seed in range(100):
        _, again = followed(disk.lose_power(seed), LogConfig(segment_bytes=200))
        left = offsets_in(again)
        assert left == offsets[: len(left)]
        seen.add(len(left))
    assert len(seen) > 2


class Followed:
    """A follower of a log with gaps, and what it has promised."""

    def __init__(self, disk):
        self.disk = disk
        self.config = LogConfig(segment_bytes=300, index_interval_bytes=100)
        self.offsets, self.flushed, self.replicated = [], 0, 0
        self.store, self.partition = followed(disk, self.config)

    def play(self, seed, steps):
        chance = random.Random(seed)
        for _ in range(steps):
            getattr(self, chance.choice(("fetch", "fetch", "fetch", "flush", "checkpoint", "cut")))(chance)

    def fetch(self, chance):
        end = self.partition.log_end_offset
        for _ in range(chance.randint(1, 3)):
            self.offsets.append(end + chance.choice((0, 0, 1, 3, 50)))
            end = self.offsets[-1] + 1
        replicate(
            self.partition, sent(*[one for one in self.offsets if one >= self.partition.log_end_offset])
        )
        self.partition.advance_high_watermark(chance.randint(self.replicated, end))
        self.replicated = self.partition.high_watermark

    def flush(self, chance):
        self.partition.flush()
        self.flushed = len(self.offsets)

    def checkpoint(self, chance):
        finish(self.store.checkpointing.writing())

    def cut(self, chance):
        """To what is replicated, as after the election of a leader that has no more."""
        self.flushed = min(self.flushed, len([one for one in self.offsets if one < self.replicated]))
        finish(self.store.truncating(self.partition, self.replicated))
        self.offsets = [one for one in self.offsets if one < self.replicated]
        # It ends with a batch, though offsets may be missing behind that.
        self.replicated = self.partition.high_watermark


@pytest.mark.parametrize("seed", seeds(20, fast=2))
def test_a_follower_loses_nothing_by_a_kill_and_by_a_loss_of_power_only_what_was_not_flushed(seed):
    whole = Followed(MemoryDisk())
    whole.play(seed, 25)
    whole.disk.held.clear()
    assert offsets_in(followed(whole.disk, whole.config)[1]) == whole.offsets
    for operation in range(1, whole.disk.operations):
        disk = MemoryDisk()
        one = Followed(disk)
        disk.lose_power_at = operation
        if operation <= disk.operations:
            continue
        with suppress(PowerLost):
            one.play(seed, 25)
        _, again = followed(disk.lose_power(operation), one.config)
        found = offsets_in(again)
        assert found == one.offsets[: len(found)]
        assert len(found) >= one.flushed
        assert again.high_watermark <= again.log_end_offset
        assert again.high_watermark <= one.replicated


def test_a_log_with_gaps_is_flushed_before_a_start_may_take_them_for_losses():
    disk = MemoryDisk()
    store, partition = followed(disk)
    replicate(partition, sent(0, 4))
    assert store.flush_due(NOW_MS) == []
    partition.set_replicated(False)
    assert store.flush_due(NOW_MS) == [partition]
    partition.flush()
    assert store.flush_due(NOW_MS) == []


def test_a_first_batch_far_from_the_log_start_has_a_segment_of_its_own():
    disk = MemoryDisk()
    _, partition = followed(disk, LogConfig(index_interval_bytes=0))
    replicate(partition, sent(2**32, 2**32 + 1))
    partition.advance_high_watermark(2**32 + 2)
    partition.flush()
    assert len(partition.read(0, max_bytes=1000).records) == partition.size_bytes
    assert finish(partition.search.finding_timestamp(NOW_MS))[1] == 2**32


def test_a_last_batch_that_is_cut_off_is_left_out():
    _, _, partition = begun()
    batches = sent(0, 1, 2)
    replicate(partition, batches[:-1])
    assert partition.log_end_offset == 2
    appended = replicate(partition, batches[-70:][:30])
    assert (appended.base_offset, partition.log_end_offset) == (-1, 2)
    replicate(partition, b"")
    assert partition.log_end_offset == 2


def test_a_batch_of_a_later_leader_epoch_than_asked_for_ends_what_is_taken():
    """KAFKA-18723. It and what follows is not even looked at."""
    _, _, partition = begun()
    late = bytearray(sent(2, leader_epoch=6))
    late[-1] ^= 1
    batches = sent(0, 1, leader_epoch=5) + bytes(late) + sent(3, leader_epoch=5)
    replicate(partition, batches, leader_epoch_max=5)
    assert partition.log_end_offset == 2
    assert partition.log.leader_epochs.entries() == [(5, 0)]
    replicate(partition, sent(2, 3, leader_epoch=6), leader_epoch_max=6)
    assert partition.log.leader_epochs.entries() == [(5, 0), (6, 2)]


def test_a_batch_larger_than_a_segment_is_taken():
    """KAFKA-9617."""
    _, _, partition = begun(LogConfig(segment_bytes=300, max_message_bytes=100))
    large = build_batch([Record(place, NOW_MS, b"k", b"v" * 100) for place in range(1, 9)])
    replicate(partition, sent(0) + large + sent(9))
    assert partition.log.bases == [0, 1, 9]
    partition.flush()
    assert offsets_in(partition) == [0, 1, 9]


def test_a_follower_reads_committed_records_up_to_its_own_high_watermark():
    _, _, leader = begun()
    one, two = Producer(leader, 1), Producer(leader, 2)
    one.send(b"a")
    two.send(b"b")
    one.end(commit=False)
    one.send(b"c")
    two.end(commit=True)
    _, _, follower = begun()
    follower.set_replicated(True)
    follow(leader, follower)
    assert (follower.high_watermark, follower.last_stable_offset) == (0, 0)
    for high_watermark, stable in ((1, 0), (3, 1), (5, 3)):
        follower.advance_high_watermark(high_watermark)
        assert follower.last_stable_offset == min(stable, high_watermark)
    check_transactions(follower)


def test_a_batch_that_came_to_harm_on_the_way_is_refused_and_none_of_its_neighbours_taken():
    _, _, partition = begun()
    batches = bytearray(sent(0, 1))
    batches[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        partition.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert not partition.log.has_staged


def test_what_the_leader_took_a_follower_takes_whatever_its_own_settings_are():
    _, _, partition = begun(
        LogConfig(
            max_message_bytes=10,
            compression_type="zstd",
            message_timestamp_type="LogAppendTime",
            segment_bytes=100,
        )
    )
    batches = sent(0, 1, 2, leader_epoch=4)
    appended = partition.appends.append(batches, now_ms=NOW_MS + 5, origin=Origin.REPLICATION)
    partition.commit()
    assert appended.log_append_time_ms == -1
    stored = b"".join(segment.file.read(0, segment.size_bytes) for segment in partition.log.segments)
    assert stored == batches
    assert partition.log.leader_epochs.entries() == [(4, 0)]


def test_the_end_of_a_transaction_comes_as_a_marker_among_the_batches():
    _, _, leader = begun()
    producer = Producer(leader, 1)
    producer.send(b"a")
    leader.appends.append_marker(EndMarker(1, 0, 7, False, 1), now_ms=NOW_MS)
    leader.commit()
    _, _, follower = begun()
    follow(leader, follower, max_bytes=lambda: 10_001)
    assert [one.coordinator_epoch for one in follower.producers()] == [7]
    assert list(follower.log.active.transactions.index) == list(leader.log.active.transactions.index) != []


BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 5]),  # offsets left out before it
        st.integers(1, 4),
        st.sampled_from(["plain", "zstd", "idempotent", "transaction", "marker", "large", "wrapped"]),
        st.sampled_from([3, 3, 3, 4]),
    ),
    min_size=1,
    max_size=12,
)


def batch_of(kind, count, offset, leader_epoch):
    records = [Record(offset + place, NOW_MS + place, b"k", b"v" * 20) for place in range(count)]
    if kind == "marker":
        return end_txn_marker(
            committed=False,
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp=NOW_MS,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
    options = {
        "zstd": {"compression": Compression.ZSTD},
        "idempotent": {"producer_id": 9, "producer_epoch": 0, "base_sequence": offset},
        "wrapped": {"producer_id": 9, "producer_epoch": 1, "base_sequence": 2**31 - 2},
        "transaction": {
            "producer_id": 5,
            "producer_epoch": 0,
            "base_sequence": offset,
            "transactional": True,
        },
    }.get(kind, {})
    if kind == "large":
        records = [Record(offset, NOW_MS, b"k", b"v" * 6000)]
    return bytearray(build_batch(records, base_offset=offset, leader_epoch=leader_epoch, **options))


@settings(max_examples=examples(200), deadline=None)
@given(batches=BATCHES, harm=st.sampled_from([None, None, "bit", "end"]), place=st.integers(0, 10**6))
def test_the_compiled_append_of_a_leaders_batches_does_as_the_other_one(batches, harm, place):
    sent_bytes, offset = bytearray(), 0
    for gap, count, kind, leader_epoch in batches:
        offset += gap
        batch = batch_of(kind, count, offset, leader_epoch)
        sent_bytes += batch
        offset = next(header.last_offset + 1 for _, header in iter_whole_batches(batch))
    if harm == "bit":
        sent_bytes[place % len(sent_bytes)] ^= 1 << place % 8
    elif harm == "end":
        del sent_bytes[place % len(sent_bytes) :]
    seen = []
    for is_compiled in (True, False):
        disk, store, partition = begun(LogConfig(segment_bytes=900, index_interval_bytes=100))
        records = memoryview(bytes(sent_bytes))
        try:
            partition.appends.append(
                records if is_compiled else leaders_batches(records, 3),
                now_ms=NOW_MS,
                origin=Origin.REPLICATION,
                leader_epoch_max=3,
            )
        except KafkaError as refusal:
            outcome = (refusal.code, refusal.message)
            assert not partition.log.has_staged
        else:
            partition.commit()
            outcome = partition.log_end_offset
        seen.append((outcome, partition.producers(), files_of(disk, store)))
    assert seen[0] == seen[1]
