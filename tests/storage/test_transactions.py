"""Transactions in a partition: what is refused, what is stable, what a reader is told, what survives."""

import errno

import pytest
from memory_disk import MemoryDisk
from transacting import NOW_MS, Producer, check_transactions, committed_values

from odradek.offline.check_partition import PartitionCheck
from odradek.offline.repair_partition import repair_caches
from odradek.storage.compaction.plan import plan_partition
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import read_file
from odradek.storage.log.appends import Origin
from odradek.storage.log.batches import SEQUENCE_MAX
from odradek.storage.log.partition import READ_COMMITTED, Partition
from odradek.storage.log.producer_state import decode_snapshot
from odradek.storage.log.transaction_index import AbortedTransaction, decode_aborted, encode_aborted
from odradek.storage.log.transactions import ProducerInfo, Verified
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, end_txn_marker, iter_records, iter_whole_batches
from odradek.wire.work import finish

DIRECTORY = "data/t-0"
INDEX = f"{DIRECTORY}/{0:020d}.txnindex"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)


def open_store(disk: MemoryDisk, **kwargs) -> LogStore:
    store = LogStore(disk, ["data"], config_for=lambda topic: SMALL, **kwargs)
    store.open(NOW_MS)
    return store


def opened(disk: MemoryDisk, config: LogConfig = SMALL, **kwargs) -> Partition:
    return open_store(disk, **kwargs).create("t", 0, bytes(16), config)


def killed(disk: MemoryDisk, config: LogConfig = SMALL) -> Partition:
    disk.held.clear()
    return opened(disk, config)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def partition(disk) -> Partition:
    return opened(disk)


def refusal(partition, records, **kwargs):
    """The error code of an append."""
    return code_of(partition.appends.append, records, **kwargs)


def append(partition: Partition, *values: bytes) -> None:
    batch = build_batch([Record(place, NOW_MS, b"k", value) for place, value in enumerate(values)])
    partition.appends.append(batch, now_ms=NOW_MS)
    partition.commit()


def code_of(call, *args, **kwargs) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(*args, **kwargs)
    return refused.value.code


def aborted_in_file(disk: MemoryDisk, base_offset: int = 0) -> list[AbortedTransaction]:
    path = f"{DIRECTORY}/{base_offset:020d}.txnindex"
    return decode_aborted(read_file(disk, path)) if disk.exists(path) else []


# What is stable


def test_nothing_from_an_open_transaction_on_is_stable_until_its_marker_is_committed(partition):
    append(partition, b"before")
    producer = Producer(partition, 7)
    producer.send(b"a", b"b")
    append(partition, b"behind")
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
    assert committed_values(partition) == [b"before"]
    partition.appends.append_marker(producer.marker(commit=True), now_ms=NOW_MS)
    assert partition.last_stable_offset == 1
    partition.commit()
    assert (partition.last_stable_offset, partition.high_watermark) == (5, 5)
    assert committed_values(partition) == [b"before", b"a", b"b", b"behind"]


def test_the_earliest_open_transaction_is_what_counts_in_whatever_order_they_end(partition):
    producers = [Producer(partition, number) for number in range(3)]
    for producer in producers:
        producer.send(b"x")
    assert partition.last_stable_offset == 0
    producers[1].end(commit=True)
    assert partition.last_stable_offset == 0
    producers[0].end(commit=False)
    assert partition.last_stable_offset == 2
    producers[2].end(commit=True)
    assert partition.last_stable_offset == partition.high_watermark == 6


def test_many_short_transactions_behind_one_that_stays_open_cost_no_memory(partition):
    long_one = Producer(partition, 1)
    long_one.send(b"x")
    short = Producer(partition, 2)
    for _ in range(300):
        short.stage(b"y")
        partition.appends.append_marker(short.marker(commit=True), now_ms=NOW_MS)
    partition.commit()
    assert partition.last_stable_offset == 0
    assert len(partition.log.producers.table.order) < 100
    long_one.end(commit=True)
    assert partition.last_stable_offset == partition.high_watermark


def test_whoever_watches_is_woken_when_the_last_stable_offset_moves(partition):
    producer = Producer(partition, 7)
    producer.send(b"a")
    woken = []
    partition.watch(lambda: woken.append(partition.last_stable_offset))
    append(partition, b"b")
    producer.end(commit=True)
    assert woken == [0, 3]


def test_a_transaction_begun_ended_and_begun_again_in_one_commit(partition):
    producer = Producer(partition, 7, version=2)
    for commit in (True, False):
        producer.stage(b"x")
        partition.appends.append_marker(producer.marker(commit=commit), now_ms=NOW_MS)
    producer.stage(b"y")
    assert partition.last_stable_offset == 0
    partition.commit()
    assert partition.last_stable_offset == 4
    assert committed_values(partition) == [b"x"]
    check_transactions(partition)


# What is refused


def test_a_producer_with_an_open_transaction_sends_nothing_that_is_not_in_one(partition):
    producer = Producer(partition, 7)
    producer.send(b"a")
    plain = producer.batch(b"b", transactional=False)
    assert refusal(partition, plain, now_ms=NOW_MS) is ErrorCode.INVALID_TXN_STATE
    coordinators = {"now_ms": NOW_MS, "origin": Origin.COORDINATOR}
    assert refusal(partition, plain, **coordinators) is ErrorCode.INVALID_TXN_STATE
    assert partition.appender.append_ordinary(memoryview(plain), 0, len(plain), NOW_MS) is None
    producer.end(commit=True)
    assert partition.appends.append(plain, now_ms=NOW_MS).base_offset == 2


def test_the_first_batch_of_a_transaction_is_refused_when_nobody_was_asked(partition):
    producer = Producer(partition, 7)
    batch = producer.batch(b"a")
    assert refusal(partition, batch, now_ms=NOW_MS) is ErrorCode.INVALID_TXN_STATE
    nothing = Verified(None, 1)
    assert refusal(partition, batch, now_ms=NOW_MS, transactions=nothing) is ErrorCode.INVALID_TXN_STATE
    producer.send(b"a")
    # The others go on in it.
    assert partition.begin_verification(7, 0, 1, version=1) is None
    assert partition.appends.append(producer.batch(b"b"), now_ms=NOW_MS).base_offset == 1


def test_a_marker_makes_a_verification_void_and_so_does_the_first_batch(partition):
    producer = Producer(partition, 7)
    verification = partition.begin_verification(7, 0, 0, version=1)
    producer.end(commit=False)
    batch, late = producer.batch(b"a"), Verified(verification, 1)
    assert refusal(partition, batch, now_ms=NOW_MS, transactions=late) is ErrorCode.INVALID_TXN_STATE
    assert partition.last_stable_offset == partition.high_watermark
    other = partition.begin_verification(7, 0, 0, version=1)
    assert other is not verification
    partition.appends.append(batch, now_ms=NOW_MS, transactions=Verified(other, 1))
    partition.commit()
    producer.end(commit=True)
    producer.sequence = 1
    again = Verified(other, 1)
    batch = producer.batch(b"b")
    assert refusal(partition, batch, now_ms=NOW_MS, transactions=again) is ErrorCode.INVALID_TXN_STATE


def test_batches_that_wait_for_the_same_answer_are_taken_from_the_lowest_sequence_on(partition):
    producer = Producer(partition, 7)
    batches = [producer.batch(b"a")]
    producer.sequence = 1
    batches.append(producer.batch(b"b"))
    second = partition.begin_verification(7, 0, 1, version=1)
    first = partition.begin_verification(7, 0, 0, version=1)
    assert first is second
    verified = Verified(first, 1)
    refused = refusal(partition, batches[1], now_ms=NOW_MS, transactions=verified)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for offset, batch in enumerate(batches):
        appended = partition.appends.append(batch, now_ms=NOW_MS, transactions=verified)
        assert appended.base_offset == offset


def test_an_unknown_producer_begins_with_any_sequence_in_version_1_and_with_zero_in_version_2(partition):
    refused = Producer(partition, 8, version=2)
    refused.sequence = 5
    assert code_of(refused.stage, b"x") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    taken = Producer(partition, 7, version=1)
    taken.sequence = 5
    assert taken.send(b"x").base_offset == 0


def test_what_a_coordinator_appends_is_verified_when_it_asks_for_that(partition):
    producer = Producer(partition, 7)
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")], producer_id=7, producer_epoch=0, transactional=True)
    coordinators = {"now_ms": NOW_MS, "origin": Origin.COORDINATOR}
    verification = partition.begin_verification(7, 0, -1, version=2)
    producer.end(commit=False)
    late = Verified(verification, 2)
    assert refusal(partition, batch, transactions=late, **coordinators) is ErrorCode.INVALID_TXN_STATE
    partition.appends.append(batch, **coordinators)
    partition.commit()
    assert partition.last_stable_offset == 1
    partition.appends.append(batch, **coordinators)
    partition.commit()
    producer.end(commit=True)
    assert partition.last_stable_offset == 4


def test_control_batches_come_from_coordinators_only_and_as_markers_only(partition):
    marker = end_txn_marker(
        committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
    )
    for origin in (Origin.CLIENT, Origin.COORDINATOR):
        assert refusal(partition, marker, now_ms=NOW_MS, origin=origin) is ErrorCode.INVALID_RECORD


def test_an_old_epoch_is_refused_before_anything_else(partition):
    producer = Producer(partition, 7)
    producer.producer_epoch = 3
    producer.send(b"a")
    old = Producer(partition, 7)
    assert code_of(partition.begin_verification, 7, 2, 0, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    batch = old.batch(b"b")
    assert refusal(partition, batch, now_ms=NOW_MS) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(partition.appends.append_marker, old.marker(commit=False), now_ms=NOW_MS) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert not partition.log.has_staged


def test_the_last_five_batches_of_a_transaction_are_known_as_duplicates_and_sequences_wrap_in_it(partition):
    producer = Producer(partition, 7)
    producer.sequence = SEQUENCE_MAX - 2
    sent = []
    for number in range(6):
        sent.append(producer.batch(b"%d" % number, b"x"))
        producer.send(b"%d" % number, b"x")
        producer.sequence %= SEQUENCE_MAX + 1
    for number in range(1, 6):
        again = partition.appends.append(sent[number], now_ms=NOW_MS)
        assert again.is_duplicate
        assert (again.base_offset, again.last_offset) == (2 * number, 2 * number + 1)
    assert refusal(partition, sent[0], now_ms=NOW_MS) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.end(commit=True)
    assert len(committed_values(partition)) == 12


@pytest.mark.parametrize("commit", [True, False])
def test_numbers_of_an_ended_transaction_are_no_duplicates_in_the_next_one(partition, commit):
    """librdkafka gives them again after a lost response (findings/librdkafka-abort-sequence.sh). Kafka
    acknowledges the second record, and does not have it."""
    producer = Producer(partition, 7)
    producer.send(b"a")
    doubtful = producer.batch(b"doubtful")
    producer.send(b"doubtful")
    producer.end(commit=commit)
    # Late, of a transaction that nobody has begun since: as in Kafka.
    assert partition.appends.append(doubtful, now_ms=NOW_MS).base_offset == 1
    producer.sequence = 1
    assert code_of(producer.stage, b"after") is ErrorCode.UNKNOWN_PRODUCER_ID
    producer.producer_epoch, producer.sequence = 1, 0
    producer.send(b"after")
    # Its own batches are known again.
    again = producer.batch(b"again")
    producer.send(b"again")
    assert partition.appends.append(again, now_ms=NOW_MS).base_offset == 4
    producer.end(commit=True)
    assert committed_values(partition) == [b"a", b"doubtful"] * commit + [b"after", b"again"]


# Markers


def test_a_marker_of_version_2_has_an_epoch_of_its_own(partition):
    producer = Producer(partition, 7, version=2)
    producer.send(b"a")
    late = EndMarker(7, 0, 0, True, 2)
    assert code_of(partition.appends.append_marker, late, now_ms=NOW_MS) is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.end(commit=True)
    # Sent again, since its answer was lost: it is appended again and changes nothing.
    again = EndMarker(7, 1, 0, True, 2)
    assert partition.appends.append_marker(again, now_ms=NOW_MS).base_offset == 2
    partition.commit()
    assert committed_values(partition) == [b"a"]
    old = producer.batch(b"b")
    producer.send(b"b")
    # Now that the next transaction has begun it would end that one.
    assert code_of(partition.appends.append_marker, again, now_ms=NOW_MS) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.appends.append(old, now_ms=NOW_MS).is_duplicate


def test_a_marker_of_version_1_has_the_epoch_of_its_transaction_and_sequences_go_on(partition):
    producer = Producer(partition, 7, version=1)
    producer.send(b"a")
    producer.end(commit=True)
    producer.end(commit=True)
    assert producer.send(b"b").base_offset == 3
    producer.end(commit=False)
    assert committed_values(partition) == [b"a"]


def test_a_coordinator_that_was_replaced_is_fenced(partition):
    producer = Producer(partition, 7)
    producer.send(b"a")
    producer.coordinator_epoch = 5
    producer.end(commit=True)
    producer.send(b"b")
    producer.coordinator_epoch = 4
    refused = code_of(partition.appends.append_marker, producer.marker(commit=True), now_ms=NOW_MS)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert partition.last_stable_offset == 2
    producer.coordinator_epoch = 5
    producer.end(commit=True)


def test_a_marker_for_a_producer_that_is_not_known_fences_what_comes_late(disk, partition):
    marker = EndMarker(7, 4, 2, False, 1)
    assert partition.appends.append_marker(marker, now_ms=NOW_MS).base_offset == 0
    partition.commit()
    assert partition.last_stable_offset == partition.high_watermark == 1
    assert partition.producers() == [ProducerInfo(7, 4, -1, NOW_MS, 2, -1)]
    assert not aborted_in_file(disk)
    late = Producer(partition, 7)
    late.producer_epoch = 3
    assert code_of(late.stage, b"x") is ErrorCode.INVALID_PRODUCER_EPOCH
    late.producer_epoch = 4
    late.sequence = 1
    assert code_of(late.stage, b"x") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    late.sequence = 0
    assert late.send(b"x").base_offset == 1


def test_a_newer_epoch_goes_on_in_a_transaction_that_nobody_has_ended(partition):
    producer = Producer(partition, 7)
    producer.send(b"a")
    producer.producer_epoch, producer.sequence = 1, 0
    assert refusal(partition, producer.batch(b"b"), now_ms=NOW_MS) is ErrorCode.INVALID_TXN_STATE
    producer.send(b"b")
    assert partition.producers()[0].current_txn_start_offset == 0
    producer.end(commit=False)
    assert partition.last_stable_offset == 3
    assert committed_values(partition) == []


def test_a_marker_stands_in_the_log_as_a_control_batch(partition):
    partition.follow_leader_epoch(9)
    producer = Producer(partition, 7)
    producer.send(b"a")
    producer.coordinator_epoch = 3
    producer.end(commit=False)
    data = partition.read(1, max_bytes=1000).records.tobytes()
    assert data == end_txn_marker(
        committed=False,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=3,
        timestamp=NOW_MS,
        base_offset=1,
        leader_epoch=9,
    )


def test_a_marker_has_the_time_of_its_append_like_everything_in_a_topic_with_log_append_time(disk):
    partition = opened(disk, LogConfig(message_timestamp_type="LogAppendTime"))
    producer = Producer(partition, 7)
    producer.send(b"a")
    assert producer.end(commit=True, now_ms=NOW_MS + 5).log_append_time_ms == NOW_MS + 5
    data = memoryview(partition.read(1, max_bytes=1000).records.tobytes())
    ((_, header),) = iter_whole_batches(data)
    assert header.uses_log_append_time
    assert header.max_timestamp == NOW_MS + 5
    assert [record.timestamp for record in iter_records(data)] == [NOW_MS + 5]


def test_markers_count_for_flush_messages_and_have_to_fit_into_max_message_bytes(disk):
    partition = opened(disk, LogConfig(flush_messages=3))
    producer = Producer(partition, 7)
    assert not producer.send(b"a", b"b").must_flush
    assert producer.end(commit=True).must_flush
    partition.set_config(LogConfig(max_message_bytes=77))
    refused = code_of(partition.appends.append_marker, producer.marker(commit=True), now_ms=NOW_MS)
    assert refused is ErrorCode.MESSAGE_TOO_LARGE
    partition.set_config(LogConfig(max_message_bytes=78))
    assert producer.end(commit=True).base_offset == 3


def test_what_a_leader_sent_brings_its_transactions_along(disk, partition):
    producer = Producer(partition, 7)
    producer.send(b"a")
    producer.end(commit=False)
    producer.send(b"b")
    batches = partition.read(0, max_bytes=10_000).records.tobytes()
    follower = open_store(other := MemoryDisk()).create("t", 0, bytes(16), SMALL)
    follower.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION)
    follower.commit()
    assert follower.last_stable_offset == 2
    assert follower.producers() == partition.producers()
    assert aborted_in_file(other) == aborted_in_file(disk) == [AbortedTransaction(7, 0, 1, 2)]


# Aborted transactions


def test_an_abort_is_written_with_its_marker_and_says_what_is_stable_then(disk, partition):
    one, two = Producer(partition, 1), Producer(partition, 2)
    one.send(b"a")
    two.send(b"b")
    one.end(commit=False)
    two.end(commit=False)
    assert aborted_in_file(disk) == [AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 3, 4)]
    assert not any(name.endswith(".txnindex") for name in disk.list("data"))


def test_a_segment_without_aborts_has_no_transaction_index(disk, partition):
    producer = Producer(partition, 1)
    producer.send(b"a")
    producer.end(commit=True)
    producer.end(commit=False)
    assert not disk.exists(INDEX)


def test_a_reader_is_told_of_aborts_whose_markers_stand_in_later_segments(disk, partition):
    producer = Producer(partition, 1)
    for number in range(8):
        producer.send(b"%d" % number * 40)
    append(partition, b"between" * 10)
    producer.end(commit=False)
    append(partition, b"last")
    assert len(partition.log.segments) > 2
    marked = partition.log.segments[-1].base_offset
    assert aborted_in_file(disk, marked) == [AbortedTransaction(1, 0, 9, 10)]
    for offset in range(partition.high_watermark):
        result = partition.read(offset, max_bytes=100, isolation=READ_COMMITTED)
        assert result.aborted == ([(1, 0)] if offset < 10 else [])
    for max_bytes in (1, 100, 1 << 20):
        assert committed_values(partition, max_bytes=max_bytes) == [b"between" * 10, b"last"]


def test_aborts_behind_what_was_read_are_not_told_once_the_index_knows_where_it_ends(disk):
    partition = opened(disk, LogConfig(index_interval_bytes=0))
    producer = Producer(partition, 1)
    for _ in range(5):
        producer.send(b"x")
        producer.end(commit=False)
    size = len(producer.batch(b"x"))
    result = partition.read(0, max_bytes=size, isolation=READ_COMMITTED)
    assert result.aborted == [(1, 0)]
    result = partition.read(2, max_bytes=size, isolation=READ_COMMITTED)
    assert result.aborted == [(1, 2)]
    assert partition.read(10, max_bytes=size, isolation=READ_COMMITTED).aborted == []
    assert partition.read(0, max_bytes=size).aborted is None


def test_a_commit_that_fails_takes_the_aborted_transactions_back(disk, partition):
    one, two = Producer(partition, 1), Producer(partition, 2)
    one.send(b"a")
    two.send(b"b")
    one.end(commit=False)
    disk.fail = lambda done, path: errno.ENOSPC if done == "write" and path.endswith(".txnindex") else None
    partition.appends.append_marker(two.marker(commit=False), now_ms=NOW_MS)
    assert code_of(partition.commit) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda done, path: None
    assert aborted_in_file(disk) == [AbortedTransaction(1, 0, 2, 1)]
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
    assert partition.producers()[1].current_txn_start_offset == 1
    two.end(commit=True)
    assert aborted_in_file(disk) == [AbortedTransaction(1, 0, 2, 1)]
    assert committed_values(partition) == [b"b"]


def test_a_commit_over_several_segments_that_fails_takes_all_of_it_back(disk, partition):
    producer = Producer(partition, 1)
    producer.send(b"a")
    for _ in range(6):
        partition.appends.append_marker(producer.marker(commit=False), now_ms=NOW_MS)
        producer.stage(b"x" * 50)
    assert len(partition.log.buffer.full_segments) > 2
    last = f"{partition.log.buffer.aborted[-1][0].base_offset:020d}.txnindex"
    assert not last.startswith(f"{0:020d}")
    disk.fail = lambda done, path: errno.ENOSPC if done == "write" and path.endswith(last) else None
    assert code_of(partition.commit) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda done, path: None
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".txnindex")] == []
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    producer.end(commit=False)
    assert aborted_in_file(disk) == [AbortedTransaction(1, 0, 1, 2)]
    check_transactions(partition)


# Starting again


def some_transactions(partition: Partition) -> None:
    """Over several segments: 1 commits and aborts by turns, 2 is open from offset 1 on."""
    one, two = Producer(partition, 1, version=2), Producer(partition, 2)
    append(partition, b"first")
    two.send(b"open")
    for number in range(12):
        one.send(b"%d" % number * 20)
        one.end(commit=number % 3 == 0)
        append(partition, b"plain %d" % number)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_finds_what_is_open_and_what_was_aborted(disk, is_clean):
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), SMALL)
    some_transactions(partition)
    known = sorted(partition.producers())
    aborted = {base: aborted_in_file(disk, base) for base in partition.log.bases}
    assert sum(map(len, aborted.values())) == 8
    if is_clean:
        store.close(NOW_MS)
    again = killed(disk)
    assert sorted(again.producers()) == known
    assert {base: aborted_in_file(disk, base) for base in again.log.bases} == aborted
    assert again.last_stable_offset == 1
    check_transactions(again)
    two = Producer(again, 2)
    two.sequence = 1
    two.send(b"more")
    two.end(commit=True)
    check_transactions(again)
    assert committed_values(again)[:3] == [b"first", b"open", b"0" * 20]


@pytest.mark.parametrize("suffixes", [(".txnindex",), (".txnindex", ".snapshot", ".index", ".timeindex")])
def test_transaction_indexes_are_made_anew_after_a_kill(disk, suffixes):
    partition = opened(disk)
    some_transactions(partition)
    names = [name for name in disk.list(DIRECTORY) if name.endswith(suffixes)]
    contents = {name: read_file(disk, f"{DIRECTORY}/{name}") for name in names if name.endswith(".txnindex")}
    for name in names:
        disk.remove(f"{DIRECTORY}/{name}")
    again = killed(disk)
    check_transactions(again)
    assert {name: read_file(disk, f"{DIRECTORY}/{name}") for name in contents} == contents


def test_a_damaged_transaction_index_is_made_anew_by_a_clean_start(disk):
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), SMALL)
    some_transactions(partition)
    store.close(NOW_MS)
    paths = [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".txnindex")]
    sound = read_file(disk, paths[1])
    too_late = encode_aborted([AbortedTransaction(1, 2, 900, 901)])
    for damage in (sound[:-1], sound + sound, bytes(34), too_late):
        disk.files[paths[1]].data[:] = damage
        store = open_store(disk)
        again = store.get("t", 0)
        assert read_file(disk, paths[1]) == sound
        check_transactions(again)
        store.close(NOW_MS)


def test_where_snapshots_are_lost_after_a_clean_stop_missing_transaction_indexes_are_seen(disk):
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), SMALL)
    some_transactions(partition)
    store.close(NOW_MS)
    for name in disk.list(DIRECTORY):
        if name.endswith((".snapshot", ".txnindex")):
            disk.remove(f"{DIRECTORY}/{name}")
    check_transactions(killed(disk))


def test_a_snapshot_has_the_open_transactions(disk):
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), SMALL)
    some_transactions(partition)
    store.close(NOW_MS)
    end_offset = partition.log_end_offset
    producers = decode_snapshot(read_file(disk, f"{DIRECTORY}/{end_offset:020d}.snapshot"))
    assert producers[2].current_txn_first_offset == 1
    assert (producers[1].producer_epoch, producers[1].batches) == (12, ())
    rolled = decode_snapshot(read_file(disk, f"{DIRECTORY}/{partition.log.bases[2]:020d}.snapshot"))
    assert rolled[2].current_txn_first_offset == 1


def test_a_marker_that_was_not_flushed_may_be_lost_and_its_transaction_is_open_again(disk):
    partition = opened(disk)
    producer = Producer(partition, 7)
    producer.send(b"a")
    partition.flush()
    producer.end(commit=False)
    for seed in range(20):
        survivor = disk.lose_power(seed)
        again = opened(survivor)
        check_transactions(again)
        is_there = again.log_end_offset == 2
        assert again.last_stable_offset == (2 if is_there else 0)
        assert bool(aborted_in_file(survivor)) == is_there


def test_what_a_lost_commit_left_in_a_transaction_index_goes_though_the_segment_is_empty(disk):
    partition = opened(disk)
    producer = Producer(partition, 7)
    producer.send(b"a")
    partition.log.roll(NOW_MS)
    partition.flush()
    producer.end(commit=False)
    assert aborted_in_file(disk, 1)
    disk.files[f"{DIRECTORY}/{1:020d}.log"].data.clear()
    disk.files[f"{DIRECTORY}/{1:020d}.txnindex"].data[-1:] = b""
    again = killed(disk)
    assert again.last_stable_offset == 0
    producer = Producer(again, 7)
    producer.end(commit=False)
    assert aborted_in_file(disk, 1) == [AbortedTransaction(7, 0, 1, 2)]


@pytest.mark.parametrize("met_by", ["flush", "close"])
def test_a_transaction_index_whose_sync_has_failed_is_written_again(disk, met_by):
    """It can be read, but the kernel takes it for written: a later sync would not bring it to the disk."""
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), SMALL)
    producer = Producer(partition, 7)
    producer.send(b"a")
    producer.end(commit=False)
    partition.flush()
    disk.fail = lambda done, path: errno.EIO if done == "sync" and path.endswith(".txnindex") else None
    if met_by == "flush":
        partition.log.roll(NOW_MS)
        assert code_of(partition.flush) is ErrorCode.KAFKA_STORAGE_ERROR
        disk.fail = lambda done, path: None
        finish(store.failing_disks.attending(NOW_MS))
        assert partition.is_available
    else:
        append(partition, b"b")
        store.close(NOW_MS)
        disk.fail = lambda done, path: None
        store = open_store(disk)
        partition = store.get("t", 0)
    partition.flush()
    store.close(NOW_MS)
    for seed in range(10):
        survivor = disk.lose_power(seed)
        check_transactions(opened(survivor))
        assert aborted_in_file(survivor) == [AbortedTransaction(7, 0, 1, 2)]


def test_no_transaction_is_forgotten_for_being_silent(disk):
    store = open_store(disk, producer_expiration_ms=1000)
    partition = store.create("t", 0, bytes(16), SMALL)
    Producer(partition, 1).send(b"a")
    two = Producer(partition, 2)
    two.send(b"b")
    two.end(commit=True)
    finish(store.upkeep.expiring_producers(NOW_MS + 999))
    assert len(partition.producers()) == 2
    finish(store.upkeep.expiring_producers(NOW_MS + 2000))
    assert [one.producer_id for one in partition.producers()] == [1]
    store.close(NOW_MS)
    store = open_store(disk, producer_expiration_ms=1)
    assert [one.producer_id for one in store.get("t", 0).producers()] == [1]


def test_a_verification_that_comes_to_nothing_is_forgotten_in_time(disk):
    store = open_store(disk, producer_expiration_ms=1000)
    partition = store.create("t", 0, bytes(16), SMALL)
    verification = partition.begin_verification(7, 0, 0, version=2)
    finish(store.upkeep.expiring_producers(NOW_MS))
    finish(store.upkeep.expiring_producers(NOW_MS + 999))
    assert partition.begin_verification(7, 0, 0, version=2) is verification
    finish(store.upkeep.expiring_producers(NOW_MS + 1000))
    assert partition.begin_verification(7, 0, 0, version=2) is not verification


def test_producers_of_a_partition_with_something_staged_expire_in_the_next_call(disk):
    store = open_store(disk, producer_expiration_ms=1000)
    busy, idle = (store.create("t", index, bytes(16), SMALL) for index in range(2))
    for partition in (busy, idle):
        Producer(partition, 1).send(b"a")
        Producer(partition, 1).end(commit=True)
    busy.appends.append(build_batch([Record(0, NOW_MS, None, b"staged")]), now_ms=NOW_MS)
    assert finish(store.upkeep.expiring_producers(NOW_MS + 2000))
    assert [len(partition.log.producers.producers) for partition in (busy, idle)] == [1, 0]
    assert finish(store.upkeep.expiring_producers(NOW_MS + 2000, only_late=True))
    busy.commit()
    assert not finish(store.upkeep.expiring_producers(NOW_MS + 2000, only_late=True))
    assert not busy.producers()
    assert not finish(store.upkeep.expiring_producers(NOW_MS + 2000, only_late=True))


# What goes away


def test_retention_and_delete_records_go_by_the_high_watermark_and_take_open_transactions_along(disk):
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), SMALL)
    producer = Producer(partition, 7)
    for number in range(12):
        producer.send(b"%d" % number * 40)
    assert partition.retention.delete_records(7) == 7
    assert partition.last_stable_offset == 7
    finish(store.maintaining(NOW_MS))
    assert partition.log.segments[0].base_offset > 0
    assert partition.producers()[0].current_txn_start_offset == 0
    append(partition, b"behind")
    assert committed_values(partition) == []
    producer.end(commit=False)
    assert committed_values(partition) == [b"behind"]
    assert partition.retention.delete_records(-1) == partition.last_stable_offset == partition.high_watermark
    store.close(NOW_MS)
    check_transactions(killed(disk))


def test_compaction_ends_before_what_is_not_decided(disk):
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=200, min_cleanable_dirty_ratio=0.0
    )
    partition = opened(disk, config)
    append(partition, b"old")
    append(partition, b"new" * 20)
    producer = Producer(partition, 7)
    for number in range(4):
        producer.send(b"%d" % number * 30)
    partition.log.roll(NOW_MS)
    assert partition.last_stable_offset == 2
    assert plan_partition(partition, NOW_MS, 0).end_offset <= 2
    producer.end(commit=True)
    partition.log.roll(NOW_MS)
    assert plan_partition(partition, NOW_MS, 0).end_offset == partition.high_watermark


@pytest.mark.parametrize("commit", [True, False])
def test_a_compacted_log_shows_what_it_showed_before(disk, commit):
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=300, min_cleanable_dirty_ratio=0.0
    )
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), config)
    producer = Producer(partition, 7, version=2)
    for number in range(6):
        batch = [Record(0, NOW_MS, b"key %d" % (number % 2), b"plain %d" % number)]
        partition.appends.append(build_batch(batch), now_ms=NOW_MS)
        producer.stage(b"in a transaction %d" % number)
        partition.appends.append_marker(producer.marker(commit=commit), now_ms=NOW_MS)
    partition.commit()
    partition.log.roll(NOW_MS)
    partition.flush()
    while store.compact(NOW_MS, 1 << 20):
        pass
    expected = [b"plain 4", *([b"in a transaction 5"] if commit else []), b"plain 5"]
    assert sorted(committed_values(partition)) == sorted(expected)
    check_transactions(partition)
    partition = killed(disk, config)
    assert sorted(committed_values(partition)) == sorted(expected)
    check_transactions(partition)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_partition_that_is_moved_takes_its_transactions_along(is_clean):
    disk = MemoryDisk()
    store = LogStore(disk, ["one", "two"], config_for=lambda topic: SMALL)
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), SMALL)
    some_transactions(partition)
    target = "two" if partition.directory.startswith("one") else "one"
    store.relocation.begin("t", 0, target)
    finish(store.relocation.moving(NOW_MS))
    assert partition.directory == f"{target}/t-0"
    assert partition.log.active.transactions.has_aborted()
    check_transactions(partition)
    aborting = Producer(partition, 5)
    aborting.send(b"after the move")
    aborting.end(commit=False)
    if is_clean:
        store.close(NOW_MS)
    disk.held.clear()
    store = LogStore(disk, ["one", "two"], config_for=lambda topic: SMALL)
    store.open(NOW_MS)
    again = store.get("t", 0)
    assert again.directory == f"{target}/t-0"
    check_transactions(again)


def test_a_check_finds_nothing_wrong_and_a_repair_brings_a_lost_index_back(disk):
    store = open_store(disk)
    partition = store.create("t", 0, bytes(16), SMALL)
    some_transactions(partition)
    store.close(NOW_MS)

    def checked() -> PartitionCheck:
        check = PartitionCheck(disk, DIRECTORY, recovery_point=partition.log_end_offset, was_clean=True)
        list(check.steps())
        return check

    assert checked().findings == []
    paths = [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".txnindex")]
    contents = [read_file(disk, path) for path in paths]
    for path in paths:
        disk.remove(path)
    check = checked()
    assert len(check.findings) == len(paths)
    repair_caches(disk, check)
    assert [read_file(disk, path) for path in paths] == contents
