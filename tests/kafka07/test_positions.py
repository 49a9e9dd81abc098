"""Positions that were told stay what they are: histories of a log, with kills, losses of power and deletions.

The model knows the records. Whatever is read must be their messages, each at the position at which it was
told before.
"""

import random
import sqlite3
import tempfile

import pytest

from odradek.config.config_error import ConfigError
from odradek.server.kafka07 import positions as module
from odradek.server.kafka07.position_store import FILE_NAME, Entry, PositionStore
from odradek.server.kafka07.positions import LogPositions
from odradek.server.kafka07.streaming import open_stream
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.kafka07.messages import iter_messages, payloads
from odradek.wire.kafka07.served import Form, encode, filler, served_bytes
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish
from tests.storage.memory_disk import MemoryDisk

TOPIC_ID = bytes(range(16))
KEY = (TOPIC_ID, 0, 1)
NOW_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)
COMPACTED = LogConfig(
    segment_bytes=2000, index_interval_bytes=100, cleanup_policy=frozenset({"compact", "delete"})
)


@pytest.fixture(autouse=True)
def _small_entries(monkeypatch):
    monkeypatch.setattr(module, "ENTRY_BYTES", 200)
    monkeypatch.setattr(module, "VALUES_OF_ENTRY_MAX", 5)
    monkeypatch.setattr(module, "WRITTEN_AT_ONCE_MAX", 3)


@pytest.fixture
def store(tmp_path):
    opened = PositionStore(str(tmp_path))
    yield opened
    opened.close()


def open_log(disk, config=SMALL):
    log_store = LogStore(disk, ["data"], config_for=lambda topic: config, new_id=lambda: "0" * 32)
    log_store.open(NOW_MS)
    return log_store


class History:
    """One log, and what was told of it."""

    def __init__(self, directory, config, seed):
        self.chance = random.Random(seed)
        self.directory, self.config = directory, config
        self.form = Form.WRAPPED if config.is_compacted else Form.PLAIN
        self.disk = MemoryDisk()
        self.logs = open_log(self.disk, config)
        self.log = self.logs.create("t", 0, TOPIC_ID, config)
        self.log.flush()
        self.store = PositionStore(directory)
        self.positions = LogPositions(KEY, self.log, self.store)
        self.values: dict[int, bytes] = {}
        self.gone: dict[int, int] = {}
        """Sizes of values that were compacted away after they had a place."""
        self.told: dict[int, int] = {}
        self.end_told = self.highest = self.counted = 0
        self.now_ms = NOW_MS

    def write(self):
        chance = self.chance
        for _ in range(chance.randrange(1, 4)):
            self.now_ms += 1
            offset = self.log.log.next_offset
            if chance.random() < 0.1:
                self.log.appends.append_marker(
                    EndMarker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0),
                    now_ms=self.now_ms,
                )
            else:
                values = [
                    chance.choice([None, b"", chance.randbytes(chance.randrange(60))])
                    for _ in range(chance.randrange(1, 6))
                ]
                batch = build_batch(
                    [
                        Record(n, self.now_ms, b"key %d" % chance.randrange(8), value)
                        for n, value in enumerate(values)
                    ],
                    compression=chance.choice([0, 0, 1, 3]),
                )
                self.log.appends.append(batch, now_ms=self.now_ms)
                self.values |= {offset + n: value or b"" for n, value in enumerate(values)}
            self.log.commit()

    def flush(self):
        self.log.flush()

    def delete(self):
        start, end = self.log.log_start_offset, self.log.high_watermark
        self.log.retention.delete_records(self.chance.randint(start, end))
        finish(self.logs.checkpointing.saving_starts([self.log]))
        self.values = {
            offset: value for offset, value in self.values.items() if offset >= self.log.log_start_offset
        }

    def reopen(self, disk):
        self.store.close()
        self.disk = disk
        self.logs = open_log(disk, self.config)
        self.log = self.logs.get("t", 0)
        self.log.set_config(self.config)
        self.store = PositionStore(self.directory)
        self.positions = LogPositions(KEY, self.log, self.store)

    def compact(self):
        if self.form is Form.PLAIN:
            return
        self.log.log.roll(self.now_ms)
        self.log.flush()
        while self.logs.compact(self.now_ms, budget_bytes=10_000):
            pass
        left = set(self.stored())
        for offset in self.values.keys() - left:
            value = self.values.pop(offset)
            if offset < self.counted:
                self.gone[offset] = len(value)

    def stored(self):
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = memoryview(self.log.read(offset, max_bytes=100_000).records.tobytes())
            if not data:
                return
            for position, header in iter_whole_batches(data):
                if not header.is_control:
                    yield from (one.offset for one in iter_records(data[position:]))
                offset = header.last_offset + 1

    def kill(self):
        self.disk.held.clear()
        self.reopen(self.disk)

    def lose_power(self):
        self.reopen(self.disk.lose_power(self.chance.randrange(1000)))
        end, start = self.log.log_end_offset, self.log.log_start_offset
        self.values = {offset: value for offset, value in self.values.items() if start <= offset < end}
        self.gone = {offset: size for offset, size in self.gone.items() if start <= offset < end}
        self.told = {offset: position for offset, position in self.told.items() if offset < end}
        self.counted = min(self.counted, end)
        if self.form is Form.WRAPPED:
            # Where the lost end has grown again, and is compacted before anybody asks, nobody can tell what
            # was lost from what was compacted, if all sizes are the same.
            self.note(finish(self.positions.preparing(0)))
        self.end_told = 0

    def ask_a_little(self):
        found = finish(self.positions.preparing(self.chance.randrange(2000)))
        assert found.start <= found.end
        self.note(found)

    def note(self, found):
        if found.start > self.highest:
            # After a loss: everybody is out of range.
            self.told = {}
        self.highest = max(self.highest, found.end)
        self.counted = self.positions.end_offset

    def check(self):
        found = finish(self.positions.preparing(None))
        assert self.positions.ready(None) == found
        assert found.end >= self.end_told
        self.end_told = found.end
        self.note(found)
        position = found.start
        expected = b""
        for offset, value in sorted((self.values | self.gone).items()):
            if offset < self.log.log_start_offset:
                continue
            assert self.told.setdefault(offset, position) == position
            assert finish(self.positions.position_of(offset)) == position
            is_gone = isinstance(value, int)
            message = filler(served_bytes(self.form, value)) if is_gone else encode(self.form, value)
            expected += message
            position += len(message)
        assert position == found.end
        assert self.read(found.start, found.end - found.start) == expected
        for _ in range(3):
            begin = self.chance.randint(0, len(expected))
            size = self.chance.randint(0, len(expected) - begin)
            assert self.read(found.start + begin, size) == expected[begin : begin + size]

    def read(self, begin, size):
        if not size:
            return b""
        stream = open_stream(self.positions, begin, size)
        found = b""
        while len(found) < size:
            found += finish(stream.next_piece())
        return found


@pytest.mark.parametrize("config", [SMALL, COMPACTED], ids=["plain", "compacted"])
@pytest.mark.parametrize("seed", range(25))
def test_histories(config, seed):
    with tempfile.TemporaryDirectory() as directory:
        history = History(directory, config, seed)
        steps = [
            *[history.write] * 5,
            *[history.check] * 3,
            *[history.ask_a_little] * 3,
            history.flush,
            history.delete,
            history.kill,
            history.lose_power,
            *[history.compact] * 2,
        ]
        for _ in range(60):
            history.chance.choice(steps)()
        history.check()
        history.store.close()


def new_log(config=SMALL):
    logs = open_log(MemoryDisk())
    return logs.create("t", 0, TOPIC_ID, config)


def append(log, *values):
    for value in values:
        log.appends.append(build_batch([Record(0, NOW_MS, b"k", value)]), now_ms=NOW_MS)
    log.commit()


def test_what_is_deleted_before_it_was_counted_is_told_as_a_loss(store):
    log = new_log()
    append(log, b"one", b"two")
    positions = LogPositions(KEY, log, store)
    assert finish(positions.preparing(None)) == (0, 26)
    append(log, b"three", b"four")
    log.retention.delete_records(3)
    assert finish(positions.preparing(None)) == (27, 41)


def test_entries_of_a_log_are_far_apart_however_often_somebody_asks(store):
    log = new_log()
    positions = LogPositions(KEY, log, store)
    for _ in range(100):
        append(log, b"x" * 30)
        finish(positions.preparing(None))
    entries = store.last(KEY, 1000)
    assert len(entries) < 100 * 40 // 200 + 3
    assert entries[0].position == 100 * 40


@pytest.mark.parametrize("config", [SMALL, COMPACTED], ids=["plain", "compacted"])
def test_entries_of_what_is_deleted_go(store, config):
    log = new_log(config)
    append(log, *[b"x" * 30] * 100)
    positions = LogPositions(KEY, log, store)
    before = finish(positions.preparing(None))
    log.retention.delete_records(95)
    after = finish(positions.preparing(None))
    assert after.end == before.end
    assert after.end - after.start == (before.end - before.start) // 20
    assert len(store.last(KEY, 1000)) <= 4


def test_a_log_that_becomes_compacted_begins_anew_and_nobody_reads_anything_wrong(store):
    log = new_log()
    append(log, b"one", b"two")
    positions = LogPositions(KEY, log, store)
    assert finish(positions.preparing(None)) == (0, 26)
    log.set_config(COMPACTED)
    assert positions.ready(None) is None
    size = len(encode(Form.WRAPPED, b"one"))
    assert finish(positions.preparing(None)) == (27, 27 + 2 * size)
    # And stays so: the store knows it after a start, whatever the setting is then.
    log.set_config(SMALL)
    assert finish(LogPositions(KEY, log, store).preparing(None)) == (27, 27 + 2 * size)


def test_a_value_that_is_gone_or_another_one_is_filled(store):
    log = new_log(COMPACTED)
    append(log, b"one", b"two", b"three")
    finish(LogPositions(KEY, log, store).preparing(None))
    other = new_log(COMPACTED)
    append(other, b"one", b"another", b"three")
    positions = LogPositions(KEY, other, store)
    found = finish(positions.preparing(None))
    stream = open_stream(positions, 0, found.end)
    data = finish(stream.next_piece())
    sizes = [len(message.payload) + 10 for message in iter_messages(data)]
    assert sizes == [len(encode(Form.WRAPPED, value)) for value in (b"one", b"two", b"three")]
    assert [bytes(one) for message in iter_messages(data) for one in payloads(message)] == [b"one", b"three"]


def test_a_write_that_fails_is_refused_and_tried_again(store, monkeypatch):
    log = new_log()
    append(log, b"one")
    positions = LogPositions(KEY, log, store)

    def fail(*_):
        raise sqlite3.OperationalError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "write", fail)
        with pytest.raises(KafkaError, match="disk is full") as refusal:
            finish(positions.preparing(None))
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert finish(positions.preparing(None)) == (0, 13)


# The store


def test_a_store_keeps_what_was_written_and_forgets_topics_that_are_gone(tmp_path):
    store = PositionStore(str(tmp_path))
    other = (b"other topic's id", 3, 0)
    entries = [Entry(0, 0, 0, ((0, 5), (1, 0))), Entry(2, 40, 2**32 - 1)]
    store.write(KEY, (Form.WRAPPED, 5), entries)
    store.write(other, (Form.PLAIN, 0), [Entry(7, 0)])
    store.close()
    store = PositionStore(str(tmp_path))
    assert store.last(KEY, 5) == entries[::-1]
    assert (store.log(KEY), store.log(other)) == ((Form.WRAPPED, 5), (Form.PLAIN, 0))
    store.forget_others({TOPIC_ID})
    assert store.log(other) is None
    assert store.last(other) == []
    assert store.last(KEY) == [entries[1]]
    store.close()


def test_a_store_that_is_damaged_or_anothers_refuses_the_start(tmp_path):
    path = tmp_path / FILE_NAME
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match="cannot be used"):
        PositionStore(str(tmp_path))
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=9")
    connection.close()
    with pytest.raises(ConfigError, match="another program"):
        PositionStore(str(tmp_path))
