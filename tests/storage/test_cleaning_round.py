"""One round of compaction, given segments and a disk: what stays, by hand and against a plain reading of the
rules, also with the oracle in the place of the compiled part.
"""

import random

import pytest
from cleaning_logs import (
    BOTH,
    DAY_MS,
    DIRECTORY,
    NOW_MS,
    SEED,
    Batch,
    WrittenLog,
    aborted_in,
    decoded,
    expected,
    room_for,
    using,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.storage.compaction import _cleaning
from odradek.storage.compaction.run import CleaningJob, JobSegment, cleaning_round, group_segments
from odradek.storage.log.indexes import OffsetIndex, TimeIndex
from odradek.storage.log.transaction_index import AbortedTransaction, decode_aborted, encode_aborted
from odradek.storage.throttle import INTERVAL_S, Throttle
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, end_txn_marker, iter_records
from tests.tiers import examples

CODECS = [Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD]


def data(base_offset: int, *pairs, **changes) -> Batch:
    records = [(base_offset + place, NOW_MS + place, *pair) for place, pair in enumerate(pairs)]
    return Batch(base_offset, base_offset + len(pairs) - 1, records, **changes)


def in_transaction(base_offset: int, *pairs, producer: int = 7) -> Batch:
    return data(base_offset, *pairs, producer=producer, epoch=0, sequence=0, is_transactional=True)


def marker(offset: int, kind: str, producer: int = 7, epoch: int = 0) -> Batch:
    encoded = end_txn_marker(
        committed=kind == "commit",
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=1,
        timestamp=NOW_MS,
        base_offset=offset,
        leader_epoch=0,
    )
    (made,) = decoded(bytes(encoded))
    assert made.encoded() == encoded
    return made


def batches_after(log: WrittenLog, job: CleaningJob) -> list[Batch]:
    _, _, files = log.cleaned(job)
    return [batch for one in files for batch in decoded(one[".log"])]


def kept(log: WrittenLog, job: CleaningJob) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (offset, key, value)
        for batch in batches_after(log, job)
        for offset, _, key, value in batch.records
        if batch.marker is None
    ]


# Transactions


def test_nothing_of_an_aborted_transaction_stays_and_its_records_outdate_no_others():
    log = WrittenLog(
        [
            [
                data(0, (b"a", b"old")),
                in_transaction(1, (b"a", b"new"), (b"b", b"1")),
                marker(3, "abort"),
                data(4, (b"c", b"3")),
            ]
        ]
    )
    assert kept(log, log.job()) == [(0, b"a", b"old"), (4, b"c", b"3")]


def test_a_committed_transaction_is_like_other_data():
    log = WrittenLog(
        [
            [
                data(0, (b"a", b"old")),
                in_transaction(1, (b"a", b"new")),
                marker(2, "commit"),
                data(3, (b"c", b"3")),
            ]
        ]
    )
    assert kept(log, log.job()) == [(1, b"a", b"new"), (3, b"c", b"3")]


def test_a_marker_stays_while_there_is_data_then_until_its_horizon():
    log = WrittenLog(
        [[in_transaction(0, (b"a", b"1")), marker(1, "commit"), data(2, (b"a", b"2")), data(3, (b"b", b"3"))]]
    )
    first = batches_after(log, log.job())
    # Its data went in this round, but it was there when the round met the marker.
    assert [(one.base_offset, one.marker, one.horizon_ms) for one in first] == [
        (1, "commit", None),
        (2, None, None),
        (3, None, None),
    ]
    second = batches_after(again := WrittenLog([first]), again.job())
    assert next((one.base_offset, one.horizon_ms) for one in second) == (1, NOW_MS + DAY_MS)
    third = batches_after(again := WrittenLog([second]), again.job(now_ms=NOW_MS + DAY_MS - 1))
    assert [one.base_offset for one in third] == [1, 2, 3]
    fourth = batches_after(again := WrittenLog([third]), again.job(now_ms=NOW_MS + DAY_MS))
    assert [one.base_offset for one in fourth] == [2, 3]


def test_a_transaction_index_has_the_aborted_ones_whose_data_was_met():
    log = WrittenLog(
        [[in_transaction(0, (b"a", b"1")), data(1, (b"b", b"1")), marker(2, "abort"), data(3, (b"c", b"1"))]]
    )
    _, _, files = log.cleaned(log.job())
    assert decode_aborted(files[0][".txnindex"]) == [AbortedTransaction(7, 0, 2, 3)]
    again = WrittenLog([decoded(files[0][".log"])])
    _, _, files = again.cleaned(again.job(aborted=log.job().aborted))
    assert ".txnindex" not in files[0]


def test_the_last_marker_of_a_producer_without_data_stays_as_a_header():
    log = WrittenLog([[marker(0, "abort", epoch=3), data(1, (b"a", b"1"))]])
    first = batches_after(log, log.job(producers=((7, 3, -1),)))
    log = WrittenLog([first])
    later = batches_after(log, log.job(producers=((7, 3, -1),), now_ms=NOW_MS + 2 * DAY_MS))
    assert next((one.base_offset, one.records, one.epoch) for one in later) == (0, [], 3)
    gone = batches_after(log, log.job(producers=((7, 4, -1),), now_ms=NOW_MS + 2 * DAY_MS))
    assert [one.base_offset for one in gone] == [1]


def test_a_transaction_index_is_read_back_and_a_torn_one_refused():
    entries = [AbortedTransaction(1, 2, 3, 4), AbortedTransaction(5, 6, 70, 71)]
    assert decode_aborted(encode_aborted(entries)) == entries
    with pytest.raises(KafkaError):
        decode_aborted(encode_aborted(entries)[:-1])


# Batches and keys


def test_a_batch_behind_the_reading_buffer_is_read_whole():
    large = data(0, *((b"key%d" % number, b"v" * 50) for number in range(30)))
    log = WrittenLog([[large, data(30, (b"key3", b"new"))]])
    found = kept(log, log.job(buffer_bytes=100))
    assert [offset for offset, _, _ in found] == [*range(3), *range(4, 30), 30]


def test_a_batch_of_an_old_leader_keeps_its_epoch():
    batches = [data(0, (b"a", b"1"), (b"b", b"1"), leader_epoch=2), data(2, (b"a", b"2"), leader_epoch=5)]
    log = WrittenLog([batches])
    assert [one.leader_epoch for one in batches_after(log, log.job())] == [2, 5]


def test_records_with_log_append_time_keep_it():
    log = WrittenLog([[data(0, (b"a", b"1"), (b"b", None), (b"c", b"1")), data(3, (b"a", b"2"))]])
    records = [Record(*one) for one in log.segments[0][0].records]
    log.put(0, bytes(build_batch(records, log_append_time_ms=NOW_MS + 500)) + log.segments[0][1].encoded())
    _, _, files = log.cleaned(log.job())
    cleaned = list(iter_records(files[0][".log"]))
    assert [(one.offset, one.timestamp) for one in cleaned] == [(1, NOW_MS + 500), (2, NOW_MS + 500)]


def test_a_record_without_a_key_goes():
    log = WrittenLog([[data(0, (None, b"1"), (b"a", b"1")), data(2, (b"b", b"1"))]])
    assert kept(log, log.job()) == [(1, b"a", b"1"), (2, b"b", b"1")]


def test_what_a_retention_beyond_all_time_keeps_can_be_read():
    log = WrittenLog([[data(0, (b"a", None)), data(1, (b"b", b"1"))]])
    (first, _) = batches_after(log, log.job(delete_retention_ms=2**63 - 1))
    assert first.horizon_ms == 2**63 - 1
    assert first.records == [(0, NOW_MS, b"a", None)]


def test_a_full_map_ends_the_round_in_the_middle_of_a_batch_as_kafkas_does():
    log = WrittenLog(
        [[data(0, *((b"%d" % number, b"old") for number in range(10))), data(10, (b"0", b"new"))]]
    )
    job = log.job(memory_bytes=room_for(10), load_factor=0.5)
    outcome, _, files = log.cleaned(job)
    assert outcome.first_dirty == 5
    assert len(kept(log, job)) == 11
    outcome, _, _ = log.cleaned(log.job(first_dirty=5, memory_bytes=room_for(10)))
    assert outcome.first_dirty == 11
    assert decoded(files[0][".log"])[1].base_offset == 10


@pytest.mark.parametrize("where", [8, 16, 23, 30, 70, 75, 80])
def test_a_damaged_batch_is_never_believed(where):
    batches = [data(0, (b"a", b"1"), (b"b", b"2")), data(2, (b"a", b"2"))]
    log = WrittenLog([batches])
    whole = bytearray(b"".join(one.encoded() for one in batches))
    whole[where] ^= 0x10
    log.put(0, bytes(whole))
    with pytest.raises(KafkaError) as refused:
        log.cleaned(log.job())
    assert f"{DIRECTORY}/{0:020d}.log" in refused.value.message
    assert not [name for name in log.disk.files if name.endswith(".cleaned")]


@pytest.mark.parametrize("compression", CODECS[1:])
def test_a_record_over_the_limit_of_the_topic_is_not_decompressed_for_compaction(compression):
    log = WrittenLog([[data(0, (b"a", bytes(500)), codec=compression), data(1, (b"a", b"1"))]])
    assert kept(log, log.job(record_bytes_max=600)) == kept(log, log.job())
    if compression != Compression.NONE:
        with pytest.raises(KafkaError) as refused:
            log.cleaned(log.job(record_bytes_max=400))
        assert refused.value.code is ErrorCode.INVALID_RECORD


def test_a_segment_that_has_lost_its_end_is_damage():
    log = WrittenLog([[data(0, (b"a", b"1")), data(1, (b"b", b"2"))]])
    job = log.job()
    log.put(0, log.segments[0][0].encoded())
    with pytest.raises(KafkaError, match="ends before its"):
        log.cleaned(job)


def test_offsets_that_go_back_are_damage():
    log = WrittenLog([[data(5, (b"a", b"1"))]])
    log.put(5, data(5, (b"a", b"1")).encoded() + data(5, (b"b", b"1")).encoded())
    segment = JobSegment(5, 7, log.disk.size(f"{DIRECTORY}/{5:020d}.log"))
    with pytest.raises(KafkaError):
        log.cleaned(log.job(segments=(segment,), end_offset=7))


def test_a_round_that_is_closed_leaves_nothing_of_what_it_was_writing():
    log = WrittenLog([[data(0, (b"a", b"1")), data(1, (b"b", b"2"))]])
    work = cleaning_round(log.disk, log.job(buffer_bytes=100), SEED)
    while not any(name.endswith(".cleaned") for name in log.disk.files):
        next(work)
    work.close()
    assert not any(name.endswith(".cleaned") for name in log.disk.files)


# Groups


def test_neighbours_are_joined_while_they_fit_into_a_segment():
    def bases(sizes, **limits) -> list[list[int]]:
        segments = tuple(JobSegment(place, place + 1, size) for place, size in enumerate(sizes))
        given = {"segment_bytes": 100, "segment_index_bytes": 10**6, "index_interval_bytes": 100, **limits}
        return [[one.base_offset for one in group] for group in group_segments(segments, **given)]

    assert bases([40, 60, 1, 100, 0, 50]) == [[0, 1], [2], [3, 4], [5]]
    assert bases([40, 60, 1], segment_index_bytes=12) == [[0, 1], [2]]
    assert bases([40, 40, 40], segment_bytes=1000, segment_index_bytes=12) == [[0, 1], [2]]
    far = (JobSegment(0, 10, 1), JobSegment(10, 2**31 + 1, 1), JobSegment(2**31 + 1, 2**31 + 2, 1))
    groups = group_segments(far, segment_bytes=10, segment_index_bytes=10**6, index_interval_bytes=100)
    assert [len(group) for group in groups] == [1, 2]


def test_a_cleaned_segment_has_the_indexes_that_appends_would_have_made():
    log = WrittenLog([[data(base, (b"%d" % base, b"v" * 20)) for base in range(40)]])
    _, (group,), (files,) = log.cleaned(log.job(segment_bytes=10**6))
    offsets = OffsetIndex.decode(0, files[".index"], group.size_bytes)
    assert offsets is not None
    assert len(offsets) > 10
    starts = {}
    position = 0
    for batch in decoded(files[".log"]):
        starts[batch.last_offset] = position
        position += len(batch.encoded())
    assert [starts[offset] for offset in offsets.offsets] == list(offsets.positions)
    times = TimeIndex.decode(0, files[".timeindex"])
    assert times is not None
    assert times.last() == (NOW_MS, 0)
    assert (group.max_timestamp_ms, group.max_timestamp_offset) == (NOW_MS, 0)


# Against the rules


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"a key that is longer than a digest", None])
RECORDS = st.lists(
    st.tuples(KEYS, st.sampled_from([b"1", b"22", None]), st.integers(0, 3)), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.sampled_from([-1, 7, 8, 9]), RECORDS, st.sampled_from(CODECS)),
        st.tuples(st.just("end"), st.sampled_from([8, 9]), st.sampled_from(["commit", "abort"])),
        st.just(("roll",)),
        st.just(("gap",)),
    ),
    min_size=1,
    max_size=25,
)


def log_of(steps) -> tuple[list[list[Batch]], tuple[tuple[int, int, int], ...]]:
    """Segments, and what is known of producers. 8 and 9 write in transactions, 7 does not."""
    segments: list[list[Batch]] = [[]]
    offset = 0
    sequences = {7: 0, 8: 0, 9: 0}
    last_data = dict.fromkeys(sequences, -1)
    is_open: set[int] = set()
    for kind, *rest in [*steps, *(("end", producer, "abort") for producer in (8, 9))]:
        if kind == "roll" and segments[-1]:
            segments.append([])
        elif kind == "gap":
            offset += 3
        elif kind == "data":
            producer, pairs, codec = rest
            made = [
                (offset + place, NOW_MS + later, key, value)
                for place, (key, value, later) in enumerate(pairs)
            ]
            batch = Batch(offset, offset + len(made) - 1, made, codec=codec)
            if producer >= 0:
                batch.producer, batch.epoch, batch.sequence = producer, 0, sequences[producer]
                batch.is_transactional = producer != 7
                sequences[producer] += len(made)
                last_data[producer] = batch.last_offset
                if producer != 7:
                    is_open.add(producer)
            segments[-1].append(batch)
            offset += len(made)
        elif kind == "end" and rest[0] in is_open:
            is_open.discard(rest[0])
            segments[-1].append(marker(offset, rest[1], rest[0]))
            offset += 1
    producers = tuple((producer, 0, last) for producer, last in last_data.items() if sequences[producer])
    return [one for one in segments if one], producers


def check_round(segments: list[list[Batch]], job_of, entries_max: int) -> list[list[Batch]]:
    """One round by each, against the rules; returns the log after it."""
    results = []
    for one in BOTH:
        log = WrittenLog(segments)
        with using(one):
            job = job_of(log)
            outcome, groups, files = log.cleaned(job)
        results.append((outcome.first_dirty, groups, files))
    assert all(result == results[0] for result in results)
    first_dirty, groups, files = results[0]
    cleaned = [decoded(one[".log"]) for one in files]
    assert (first_dirty, [batch for one in cleaned for batch in one]) == expected(segments, job, entries_max)
    bases = {base for group in groups for base in group.old_bases}
    untouched = [one for one in segments if one[0].base_offset not in bases]
    return [one for one in cleaned if one] + untouched


# The map is full where a segment ends, and there is a gap behind it.
@example(
    steps=[
        ("data", -1, [(b"a", b"1", 0), (b"b", b"1", 0)], Compression.NONE),
        ("roll",),
        ("gap",),
        ("data", -1, [(b"a", b"1", 0)], Compression.NONE),
    ],
    dirty_share=0.0,
    entries_max=2,
    producers_known=False,
)
@settings(max_examples=examples(200), deadline=None)
@given(
    steps=STEPS,
    dirty_share=st.sampled_from([0.0, 0.0, 0.5, 0.8]),
    entries_max=st.sampled_from([2, 3, 1000]),
    producers_known=st.booleans(),
)
def test_what_stays_is_what_the_rules_say_round_after_round(steps, dirty_share, entries_max, producers_known):
    segments, producers = log_of(steps)
    if not segments:
        return
    aborted = aborted_in(segments)
    end_offset = segments[-1][-1].last_offset + 1
    for number in range(3):

        def job_of(log: WrittenLog, number=number) -> CleaningJob:
            return log.job(
                first_dirty=0 if number else int(end_offset * dirty_share),
                end_offset=end_offset,
                now_ms=NOW_MS + number * DAY_MS,
                producers=producers if producers_known else (),
                aborted=aborted,
                memory_bytes=room_for(entries_max),
                load_factor=1.0,
            )

        segments = check_round(segments, job_of, entries_max)
        if not segments:
            return


# The parts


@pytest.mark.parametrize("module", BOTH, ids=["compiled", "oracle"])
def test_an_offset_map_is_a_dictionary_with_a_bound(module):
    chance = random.Random(3)
    held = module.OffsetMap(1000, SEED)
    model: dict[bytes, int] = {}
    for offset in range(5000):
        key = chance.randbytes(chance.choice([0, 1, 7, 8, 9, 16, 100]))[: chance.choice([1, 100])]
        if key not in model and len(model) == 1000:
            with pytest.raises(ValueError, match="1000 slots"):
                held.put(key, offset)
            assert held.get(key) == -1
            continue
        held.put(key, offset)
        model[key] = offset
    assert len(held) == len(model) == 1000
    assert all(held.get(key) == offset for key, offset in model.items())


@settings(max_examples=examples(300), deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.sampled_from([0, 1, 63, 64, 8191, 8192]), st.integers(-(2**40), 2**40)), max_size=5
    ),
    base=st.sampled_from([0, NOW_MS, 2**62]),
    shift=st.sampled_from([0, 1, -1, -(2**62), NOW_MS, -NOW_MS, 2**63 - 1]),
)
def test_the_oracle_shifts_timestamps_alike(sizes, base, shift):
    records = [
        Record(place, base + delta, b"k" * 3, b"v" * size) for place, (size, delta) in enumerate(sizes)
    ]
    section = bytes(build_batch(records, base_offset=0))[61:]
    shifted = {bytes(one.shift_timestamps(section, len(records), shift)) for one in BOTH}
    assert len(shifted) == 1
    (result,) = shifted
    assert _cleaning.shift_timestamps(result, len(records), -shift) == section


def test_a_throttle_keeps_its_rate_and_rests_after_an_interval_or_what_it_has_room_for():
    throttle = Throttle(1000.0, 10.0)
    assert throttle.add(100, 10.1) == 0
    assert throttle.add(200, 10.2) == 0
    assert throttle.add(1, 10.21) == pytest.approx(0.091)
    assert throttle.add(300, 10.4) == 0
    assert throttle.add(150, 10.7) == pytest.approx(0.051)
    # What was below the rate is not made up for later.
    assert throttle.add(1, 20.0) == 0
    assert throttle.add(1000, 20.5) == pytest.approx(0.5)


@given(
    rate=st.integers(10**3, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 10**8), st.floats(0, 2)), min_size=1, max_size=60),
)
def test_what_is_read_and_written_stays_within_the_rate(rate, steps):
    throttle, now_s, total, largest = Throttle(rate, 0.0), 0.0, 0, 0
    for size_bytes, took_s in steps:
        now_s += took_s
        now_s += throttle.add(size_bytes, now_s)
        total, largest = total + size_bytes, max(largest, size_bytes)
        # What the interval under way has had, and a step that went beyond it.
        assert total <= (rate * (now_s + INTERVAL_S) + largest) * 1.000001


@given(rate=st.integers(10**4, 10**9), size_bytes=st.integers(1, 10**6), steps=st.integers(1, 300))
def test_a_disk_that_takes_no_time_is_kept_at_the_rate(rate, size_bytes, steps):
    throttle, now_s = Throttle(rate, 0.0), 0.0
    for _ in range(steps):
        now_s += throttle.add(size_bytes, now_s)
    assert now_s <= size_bytes * steps / rate * 1.000001


def test_a_new_rate_counts_for_the_rest_under_way():
    throttle = Throttle(100.0, 0.0)
    assert throttle.change(100.0, 0.0) == 0
    assert throttle.add(1000, 0.0) == pytest.approx(10)
    # Of the 1000 bytes 400 are rested for.
    assert throttle.change(200.0, 4.0) == pytest.approx(3)
    assert throttle.change(50.0, 5.0) == pytest.approx(8)
    assert throttle.change(1e300, 6.0) == pytest.approx(0)
    assert throttle.add(10, 6.1) == 0
    assert throttle.change(100.0, 6.2) == 0


def test_a_rate_of_nothing_rests_and_one_below_is_no_limit():
    throttle = Throttle(0.0, 0.0)
    assert throttle.add(1, 0.0) > 1_000_000
    assert throttle.change(10.0, 100.0) == pytest.approx(0.1)
    throttle = Throttle(-1.0, 0.0)
    assert [throttle.add(10**9, 0.1), throttle.add(10**9, 100.0)] == [0, 0]
    assert throttle.change(float("inf"), 200.0) == 0
    assert throttle.add(10**9, 300.0) == 0
