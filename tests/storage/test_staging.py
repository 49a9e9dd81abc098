"""Appending by the short way and by the long one: same answers, same bytes in the log, same state. And what
an earlier run has written, looked at for the first time.
"""

import struct
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.log import partition as partition_module
from odradek.storage.log._staging import Appender, ProducerEntry, Stretch
from odradek.storage.log.appends import Origin
from odradek.storage.log.batches import EXTENT
from odradek.storage.log.transactions import Verification, Verified
from odradek.wire.compression import Compression
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import KafkaError
from odradek.wire.records import Record, build_batch
from tests.oracles import stretch as oracle
from tests.storage.memory_disk import MemoryDisk
from tests.tiers import examples

APPENDED = (
    "base_offset",
    "is_duplicate",
    "last_offset",
    "log_append_time_ms",
    "log_start_offset",
    "must_flush",
)
NOW_MS = 1_700_000_000_000
SIZES = (0, 1, 50, 70, 3000, 5000, 9000)
CODECS = ("producer", "uncompressed", "gzip", "zstd")
"""Of the topic: set while it is written to."""


def batch(sizes, sequence, damage, compression, transactional=False, epoch=0):
    options = {}
    if sequence is not None:
        options = {"producer_id": 5, "producer_epoch": epoch, "base_sequence": sequence}
    if sequence is not None and transactional:
        options["transactional"] = True
    records = [Record(i, NOW_MS + i, b"k", b"v" * size) for i, size in enumerate(sizes)]
    made = build_batch(records, compression=compression, **options)
    if damage is not None:
        made[damage % len(made)] ^= 0x11
    return bytes(made)


STEPS = st.lists(
    st.one_of(
        st.none(),  # a commit
        st.sampled_from(CODECS),
        st.builds(
            batch,
            st.lists(st.sampled_from(SIZES), min_size=1, max_size=3),
            st.one_of(st.none(), st.integers(0, 8)),
            st.one_of(st.none(), st.none(), st.none(), st.integers(0, 90)),
            st.sampled_from([Compression.NONE, Compression.GZIP]),
            st.booleans(),
            st.sampled_from([0, 0, 1]),
        ),
        st.builds(
            EndMarker, st.just(5), st.integers(0, 1), st.just(0), st.booleans(), st.sampled_from([1, 2])
        ),
    ),
    max_size=30,
)


PRODUCER = struct.Struct(">qhi")
"""Id, epoch and first sequence, as they stand in a batch."""
PRODUCER_POSITION, ATTRIBUTES_POSITION, TRANSACTIONAL = 43, 22, 0x10


def verified(partition, step):
    """What Produce brings along with a batch of a transaction whose coordinator says yes to everything."""
    producer_id, epoch, sequence = PRODUCER.unpack_from(step, PRODUCER_POSITION)
    if producer_id < 0 or not step[ATTRIBUTES_POSITION] & TRANSACTIONAL:
        return None
    return Verified(partition.begin_verification(producer_id, epoch, sequence, version=1), 1)


class LongWays(Appender):
    """An appender for which nothing is ordinary."""

    def __init__(self, buffer, commit_whole, *args):
        super().__init__(buffer, commit_whole, *args)
        self.commit = commit_whole

    def append_ordinary(self, *_):
        return None


def made(store, config, *, ordinary):
    with mock.patch.object(partition_module, "Appender", Appender if ordinary else LongWays):
        return store.create("t", 0, b"1" * 16, config, now_ms=NOW_MS)


def play(steps, ordinary):
    """What every step answered, what the log holds, and what is known of the producer."""
    store = LogStore(MemoryDisk(), ["/data"])
    store.open(NOW_MS)
    config = LogConfig(segment_bytes=20_000, flush_messages=3)
    partition = made(store, config, ordinary=ordinary)
    told = []
    for step in steps:
        if step is None:
            partition.commit()
            told.append((partition.last_stable_offset, partition.high_watermark))
            continue
        if isinstance(step, str):
            partition.set_config(replace(config, compression_type=step))
            continue
        try:
            appended = None
            if isinstance(step, EndMarker):
                appended = partition.appends.append_marker(step, now_ms=NOW_MS)
            elif ordinary:
                padded = memoryview(b"xyz" + step + b"xyz")
                appended = partition.appender.append_ordinary(padded, 3, 3 + len(step), NOW_MS)
            if appended is None:
                # Also by the short way, once it has been found out that the transaction may begin here.
                appended = partition.appends.append(
                    step, now_ms=NOW_MS, transactions=verified(partition, step)
                )
            told.append([getattr(appended, name) for name in APPENDED])
        except KafkaError as error:
            told.append((error.code, error.message))
        told.append(partition.last_stable_offset)
    partition.commit()
    data = [
        (segment.base_offset, segment.file.read(0, segment.size_bytes), segment.indexes.offset_index.encode())
        for segment in partition.log.segments
    ]
    producers = {
        producer_id: (
            entry.producer_epoch,
            entry.last_timestamp,
            tuple(entry.batches),
            entry.current_txn_first_offset,
        )
        for producer_id, entry in partition.log.producers.producers.items()
    }
    return told, data, producers, partition.high_watermark


@settings(max_examples=examples(150), deadline=None)
@given(steps=STEPS)
def test_the_short_way_and_the_long_one_leave_the_same_log(steps):
    assert play(steps, ordinary=True) == play(steps, ordinary=False)


@settings(max_examples=examples(100), deadline=None)
@given(steps=STEPS, is_compacted=st.booleans())
def test_what_a_coordinator_appends_is_the_same_by_its_short_way(steps, is_compacted):
    def play_own(short):
        store = LogStore(MemoryDisk(), ["/data"])
        store.open(NOW_MS)
        policy = "compact" if is_compacted else "delete"
        config = LogConfig(segment_bytes=20_000, flush_messages=3, cleanup_policy=frozenset({policy}))
        partition = made(store, config, ordinary=short)
        told = []
        for step in steps:
            if step is None:
                partition.commit()
            elif isinstance(step, str):
                partition.set_config(replace(partition.config, compression_type=step))
            elif isinstance(step, bytes):
                try:
                    appended = partition.appends.append(step, now_ms=NOW_MS, origin=Origin.COORDINATOR)
                    told.append([getattr(appended, name) for name in APPENDED])
                except KafkaError as error:
                    told.append((error.code, error.message))
        partition.commit()
        segments = partition.log.segments
        data = [(segment.base_offset, segment.file.read(0, segment.size_bytes)) for segment in segments]
        return told, data, partition.high_watermark

    assert play_own(True) == play_own(False)


def play_tails():
    """What the flush journal is given of a partition to which one thing after the other happens."""
    store = LogStore(MemoryDisk(), ["/data"])
    store.open(NOW_MS)
    partition = store.create("t", 0, b"1" * 16, LogConfig(), now_ms=NOW_MS)
    log, tail, told = partition.log, None, []

    def append():
        partition.appends.append(batch([100], None, None, Compression.NONE), now_ms=NOW_MS)
        partition.commit()

    def note_journaled():
        assert tail is not None
        partition.flushing.note_journaled(tail)

    history = (append, partition.flush, append, note_journaled, log.durability.invalidate_flushed_position)
    history += (note_journaled, append, partition.flush, append, note_journaled)
    for happens in (*history, lambda: log.roll(NOW_MS), note_journaled):
        happens()
        found = partition.flushing.tail(1000)
        if found is not None:
            tail = found
        told.append(
            found and (found.base_offset, found.position, found.end_position, found.end_offset, found.content)
        )
        told.append((log.durable_offset, log.buffer.flushed_position and log.buffer.flushed_position[1:]))
    return told


def test_a_tail_is_what_no_flush_has_seen_of_the_active_segment_until_that_is_invalidated():
    tails = play_tails()[::2]
    assert [tail and tail[3] for tail in tails] == [None, 1, 2, 2, None, None, None, 3, 4, 4, None, None]


class Writer:
    """Producer 5 with a partition, both ways of appending, and how often the short one took a batch."""

    def __init__(self):
        store = LogStore(MemoryDisk(), ["/data"])
        store.open(NOW_MS)
        self.partition = store.create("t", 0, b"1" * 16, LogConfig(), now_ms=NOW_MS)
        for _ in range(2):  # with its first batches nothing is ordinary yet
            self.partition.appends.append(batch([1], None, None, Compression.NONE), now_ms=NOW_MS)
            self.partition.commit()

    def is_short(self, sequence, *, transactional=True, compression=Compression.NONE):
        """Appends a batch of one record; whether by the short way."""
        made = memoryview(batch([1], sequence, None, compression, transactional))
        appended = self.partition.appender.append_ordinary(made, 0, len(made), NOW_MS)
        if appended is not None:
            return True
        self.partition.appends.append(made, now_ms=NOW_MS, transactions=verified(self.partition, made))
        return False

    def end(self, commit=True):
        self.partition.appends.append_marker(EndMarker(5, 0, 0, commit, 1), now_ms=NOW_MS)


def test_a_batch_goes_the_short_way_while_its_transaction_is_open():
    writer = Writer()
    assert [writer.is_short(sequence) for sequence in range(4)] == [False, True, True, True]
    assert not writer.is_short(4, compression=Compression.GZIP)
    assert not writer.is_short(4)  # a duplicate
    assert writer.is_short(5)
    writer.end()
    assert [writer.is_short(sequence) for sequence in range(6, 8)] == [False, True]
    writer.end()
    assert writer.is_short(8, transactional=False)
    assert not writer.is_short(9)
    with pytest.raises(KafkaError):
        writer.is_short(10, transactional=False)
    writer.partition.commit()
    assert writer.partition.last_stable_offset == writer.partition.log_end_offset - 1
    (producer,) = writer.partition.producers()
    assert producer.last_sequence == 9


def test_a_batch_that_somebody_asks_about_goes_the_long_way():
    """It has to come in the order of those that were asked about with it."""
    writer = Writer()
    writer.is_short(0)
    # One with an epoch to come, which does not go on in the open transaction.
    asked = writer.partition.begin_verification(5, 1, 0, version=1)
    assert asked is not None
    made = memoryview(batch([1], 1, None, Compression.NONE, True))
    assert writer.partition.appender.append_ordinary(made, 0, len(made), NOW_MS) is None


def test_the_first_batch_of_a_transaction_goes_the_short_way_for_whom_its_coordinator_vouches():
    writer = Writer()
    partition = writer.partition
    writer.is_short(0)
    writer.end()

    def short(sequence, verification):
        made = memoryview(batch([1], sequence, None, Compression.NONE, True))
        return partition.appender.append_ordinary(made, 0, len(made), NOW_MS, verification)

    asked = partition.begin_verification(5, 0, 1, version=1)
    assert short(1, None) is None
    assert short(1, Verified(None, 1)) is None
    assert short(1, Verified(Verification(0, 1, 1), 1)) is None  # another's
    begun = partition.log.next_offset
    assert short(1, Verified(asked, 1)).base_offset == begun
    assert short(2, None) is not None  # it is open now
    partition.commit()
    assert partition.last_stable_offset == begun
    assert [one.current_txn_start_offset for one in partition.producers()] == [begun]
    writer.end()
    asked = partition.begin_verification(5, 0, 2, version=1)  # sent before, and not here yet
    assert short(3, Verified(asked, 1)) is None


def test_the_first_batch_of_a_transaction_is_taken_back_with_a_commit_that_fails():
    writer = Writer()
    partition = writer.partition
    writer.is_short(0)
    writer.end()
    partition.commit()
    before = partition.producers()
    asked = partition.begin_verification(5, 0, 1, version=1)
    made = memoryview(batch([1], 1, None, Compression.NONE, True))
    assert partition.appender.append_ordinary(made, 0, len(made), NOW_MS, Verified(asked, 1)) is not None
    partition.log.rollback()
    assert partition.producers() == before
    assert partition.last_stable_offset == partition.log_end_offset


def test_a_commit_that_fails_takes_back_what_went_the_short_way():
    writer = Writer()
    partition = writer.partition
    writer.is_short(0)
    partition.commit()
    before = partition.producers()
    assert writer.is_short(1)
    partition.log.rollback()
    assert partition.producers() == before
    writer.is_short(1)
    partition.commit()
    assert partition.last_stable_offset == 2
    writer.end()
    partition.commit()
    assert partition.last_stable_offset == partition.log_end_offset == 5


def test_a_producer_entry_remembers_five_batches_and_restores_them():
    entry = ProducerEntry(0, NOW_MS, ((0, 0, 0, 0, NOW_MS),))
    for number in range(1, 8):
        entry.remember(0, (number, number, number, number, NOW_MS))
    memory = entry.memory()
    assert [one[0] for one in entry.batches] == [3, 4, 5, 6, 7]
    entry.remember(1, (0, 2, 8, 10, NOW_MS + 1))
    assert (entry.producer_epoch, entry.last_sequence, entry.last_data_offset) == (1, 2, 10)
    assert len(entry.batches) == 1
    entry.restore(memory)
    assert (entry.producer_epoch, entry.last_timestamp, len(entry.batches)) == (0, NOW_MS, 5)


# The first look at what an earlier run has written ----------------------------------------------------


class Content:
    """The bytes of a segment, and how they were asked for."""

    def __init__(self, data):
        self.data = bytes(data)
        self.asked = []

    def read(self, position, size_bytes):
        self.asked.append((position, size_bytes))
        return self.data[position : position + size_bytes]


def stored(batches):
    """Batches as they stand in a segment; (offsets, epoch, value size) each."""
    return b"".join(
        build_batch([Record(offset, NOW_MS, None, bytes(size)) for offset in offsets], leader_epoch=epoch)
        for offsets, epoch, size in batches
    )


def looks(data, until, limit_offset, stretch_class=Stretch):
    """Where each look ended, and what it read on the way."""
    content = Content(data)
    stretch = stretch_class(0, 0, 0)
    seen = []
    for end in until:
        stretch.extend(content.read, end, len(data), limit_offset)
        seen.append((stretch.start, stretch.end, stretch.next_offset, stretch.leader_epoch))
    return seen, content.asked


@st.composite
def segments(draw):
    """A few batches, perhaps with gaps between their offsets, and perhaps with a damaged byte in a header."""
    batches, offset, epoch = [], 0, 0
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 7]))
        count = draw(st.integers(1, 3))
        epoch += draw(st.sampled_from([0, 0, 0, 1]))
        batches.append((range(offset, offset + count), epoch, draw(st.sampled_from([0, 40, 5000, 20_000]))))
        offset += count
    data = bytearray(stored(batches))
    if draw(st.booleans()):
        starts = [0]
        while starts[-1] < len(data):
            starts.append(starts[-1] + EXTENT.unpack_from(data, starts[-1])[1] + 12)
        position = draw(st.sampled_from(starts[:-1])) + draw(st.integers(0, 60))
        data[position] ^= draw(st.integers(1, 255))
    if draw(st.integers(0, 5)) == 0:
        del data[-draw(st.integers(1, 70)) :]
    return bytes(data), offset + draw(st.sampled_from([0, 0, 0, 5, -1]))


@settings(max_examples=examples(300), deadline=None)
@given(segments(), st.lists(st.integers(0, 70_000), max_size=4).map(sorted))
def test_the_oracle_looks_at_a_segment_alike(segment, until):
    data, limit_offset = segment
    until = [*until, len(data)]
    assert looks(data, until, limit_offset) == looks(data, until, limit_offset, oracle.Stretch)


def test_a_look_ends_after_a_thousand_batches_and_the_next_goes_on():
    data = stored([([offset], 0, 0) for offset in range(2500)])
    size_bytes = len(data) // 2500
    seen, _ = looks(data, [len(data)] * 3, 2500)
    assert [end // size_bytes for _, end, _, _ in seen] == [999, 1998, 2500]


@pytest.mark.parametrize(("step", "size", "most"), [(1, 5000, 4096 + 61), (2, 300_000, 305_000)])
def test_a_look_ends_after_a_mebibyte_of_reading(step, size, most):
    """With headers alone (large batches), and with whole batches (offsets are missing between them)."""
    count = 300 if step == 1 else 12
    data = stored([([step * number], 0, size) for number in range(count)])
    end, looked = 0, 0
    content = Content(data)
    stretch = Stretch(0, 0, 0)
    while stretch.end < len(data):
        content.asked.clear()
        stretch.extend(content.read, len(data), len(data), step * count)
        assert stretch.end > end
        end, looked = stretch.end, looked + 1
        assert sum(4096 + size_bytes for _, size_bytes in content.asked) < (1 << 20) + 2 * most + 20_480
    assert looked > 1


def test_a_look_gets_on_however_large_a_batch_is():
    data = stored([([2 * number], 0, 3 << 20) for number in range(3)])
    seen, _ = looks(data, [len(data)] * 3, 6)
    assert [end * 3 // len(data) for _, end, _, _ in seen] == [1, 2, 3]
