"""A bit flips in any file of a data directory: nobody is handed a record of other content or offset for it.

A consumer is played that does what Java's does: it checks each batch's checksum, and goes on behind what it
is refused. What it gets has to be what was sent, at its offset; what it does not get it has to be told of, by
a refusal, by a checksum, or by what the start says of damage and of bytes that it has cut. Afterwards the
store takes records as ever, and the next start finds them.

What no check can see is listed in docs/damage.md.
"""

import random
from functools import cache

import pytest
from memory_disk import MemoryDisk
from promises import CONFIGS, START_MS, Sent, World, history
from stores import write_checkpoints

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore, StoreListener
from odradek.storage.log.batches import scan
from odradek.storage.log.partition import Partition
from odradek.wire.down_conversion import down_convert
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import to_legacy
from odradek.wire.records import (
    Record,
    build_batch,
    iter_records,
    iter_whole_batches,
    read_batch_header,
    verify_crc,
)
from tests.tiers import NIGHTLY

SAMPLES = 10_000 if NIGHTLY else 500
SAMPLES_PER_CASE = 50
LATER_MS = START_MS + 86_400_000


class Case:
    """What is on a disk, and what was sent to the partitions on it."""

    def __init__(self, seed: int, *, is_clean: bool) -> None:
        world = World(MemoryDisk())
        for topic in CONFIGS:
            while topic not in world.books:
                world.run("create", len(world.books) + world.now_ms % 7919)
        for step in history(seed, 40):
            if step[0] not in ("delete", "create"):
                world.run(*step)
        world.run("append", seed)
        if is_clean:
            world.store.close(world.now_ms)
        self.contents = {path: bytes(inode.data) for path, inode in world.disk.files.items()}
        self.topic_ids = {book.topic: book.topic_id for book in world.books.values()}
        self.sent = {book.topic: book.committed for book in world.books.values()}
        self.ends = {book.topic: max(book.committed, default=-1) + 1 for book in world.books.values()}
        # What compaction has removed nobody can miss.
        self.there = {
            book.topic: Reader(world.store.get(book.topic, 0), self.sent[book.topic]).read_all()
            for book in world.books.values()
        }


@cache
def case_of(seed: int, *, is_clean: bool) -> Case:
    return Case(seed, is_clean=is_clean)


class Told(StoreListener):
    """Keeps what the store says of damage."""

    def __init__(self, sentences: list[str]) -> None:
        self.sentences = sentences

    def damage(self, sentence: str) -> None:
        self.sentences.append(sentence)


class Reader:
    """A consumer that knows what was sent."""

    def __init__(self, partition: Partition, sent: dict[int, Sent]) -> None:
        self.partition = partition
        self.sent = sent
        self.told: list[int] = []
        """Offsets at which it was refused, or found damage itself."""

    def read_all(self) -> set[int]:
        """The offsets of the records that it gets, from the log's start to its end."""
        found: set[int] = set()
        offset = self.partition.log_start_offset
        while offset < self.partition.high_watermark:
            got, offset = self.read(offset)
            found |= got
        return found

    def read(self, offset: int, max_bytes: int = 700) -> tuple[set[int], int]:
        """The offsets that one fetch brings, and where the next one begins."""
        found: set[int] = set()
        wanted = offset
        try:
            data = self.partition.read(offset, max_bytes=max_bytes).records.tobytes()
            if not data:
                # Only in a compacted log nothing may follow.
                assert self.partition.config.is_compacted, f"nothing at {offset} of {self.partition}"
                return found, self.partition.high_watermark
            for position, header in iter_whole_batches(memoryview(data)):
                verify_crc(data, position, header)
                for record in iter_records(data[position:]):
                    if record.offset < offset:
                        continue
                    if not self.partition.config.is_compacted:
                        assert record.offset == wanted, f"{wanted} of {self.partition} is passed over"
                    sent = self.sent.get(record.offset)
                    got = Sent(record.timestamp, record.key, record.value)
                    assert got == sent, f"{self.partition} has {got} at {record.offset}, not {sent}"
                    found.add(record.offset)
                    wanted = record.offset + 1
                wanted = max(wanted, header.last_offset + 1)
            assert wanted > offset, f"no whole batch at {offset} of {self.partition}"
        except KafkaError as error:
            refused = error
        else:
            return found, wanted
        assert refused.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
        self.told.append(wanted)
        return found, wanted + 1


def open_store(disk: MemoryDisk, told: list[str]) -> tuple[LogStore, bool]:
    store = LogStore(disk, ["data"], config_for=CONFIGS.__getitem__, listener=Told(told))
    cut_bytes = store.open(LATER_MS)
    return store, bool(cut_bytes)


def check(case: Case, disk: MemoryDisk, chance: random.Random) -> None:
    told: list[str] = []
    store, is_cut = open_store(disk, told)
    sent = {topic: dict(records) for topic, records in case.sent.items()}
    for topic, topic_id in case.topic_ids.items():
        partition = store.create(topic, 0, topic_id, CONFIGS[topic], now_ms=LATER_MS)
        reader = Reader(partition, sent[topic])
        for _ in range(5):
            # Before all the rest, so that it is not looked at in order.
            if partition.log_start_offset < partition.high_watermark:
                reader.read(chance.randrange(partition.log_start_offset, partition.high_watermark), 1)
        found = reader.read_all()
        missing = case.there[topic] - found - set(reader.told)
        assert not missing or reader.told or told or is_cut, f"{missing} of {topic} went without a word"
        if partition.log_end_offset < case.ends[topic]:
            assert is_cut or told
    go_on(store, sent)
    store.close(LATER_MS)
    store, _ = open_store(disk, told)
    for topic in sent:
        again = store.get(topic, 0)
        assert again is not None
        found = Reader(again, sent[topic]).read_all()
        assert max(sent[topic]) in found, f"what was appended to {topic} afterwards is lost"


def go_on(store: LogStore, sent: dict[str, dict[int, Sent]]) -> None:
    """Append to every partition; what stood behind its end is forgotten."""
    for topic, records in sent.items():
        partition = store.get(topic, 0)
        assert partition is not None
        for offset in [offset for offset in records if offset >= partition.log_end_offset]:
            del records[offset]
        for number in range(3):
            new = Sent(LATER_MS + number, b"new %d" % number, b"after")
            appended = partition.appends.append(build_batch([Record(0, *new)]), now_ms=LATER_MS)
            records[appended.base_offset] = new
        partition.commit()
        assert records.keys() >= set(range(appended.base_offset - 2, appended.base_offset + 1))
        reader = Reader(partition, records)
        found, _ = reader.read(appended.base_offset)
        assert found == {appended.base_offset}


def flip(contents: dict[str, bytes], chance: random.Random) -> tuple[dict[str, bytes], str]:
    """One bit of one file, each file as likely as any other."""
    while True:
        path = chance.choice(sorted(path for path, content in contents.items() if content))
        content = bytearray(contents[path])
        bit = chance.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        if not (path.endswith(".log") and "/compacted-" in path and moves_into_a_gap(bytes(content))):
            return {**contents, path: bytes(content)}, f"bit {bit} of {path}"


def moves_into_a_gap(content: bytes) -> bool:
    """Whether all batches are in order and sound still: what has flipped is an offset inside of a gap that
    compaction has left, which no check can see."""
    batches = list(
        scan(lambda position, size: content[position : position + size], 0, len(content), verify=True)
    )
    return bool(batches) and batches[-1].end_position == len(content)


@pytest.mark.deep
@pytest.mark.parametrize("number", range(SAMPLES // SAMPLES_PER_CASE))
def test_a_flipped_bit_hands_nobody_another_record(number):
    case = case_of(number // 2 % 50, is_clean=number % 2 == 0)
    for sample in range(SAMPLES_PER_CASE):
        chance = random.Random(number * SAMPLES_PER_CASE + sample)
        contents, what = flip(case.contents, chance)
        try:
            check(case, MemoryDisk.of(contents), chance)
        except BaseException as error:
            error.add_note(f"{what}, sample {sample} of number {number}")
            raise


@pytest.mark.deep
@pytest.mark.parametrize("is_clean", [True, False])
def test_every_bit_that_a_batchs_checksum_leaves_out_is_watched(is_clean):
    """Base offset, length, leader epoch, magic and the checksum itself of a batch in the middle of a log."""
    disk = MemoryDisk()
    store = LogStore(disk, ["data"])
    store.open(START_MS)
    config = LogConfig(index_interval_bytes=300)
    partition = store.create("t", 0, bytes(range(16)), config)
    sent = {}
    positions = []
    for number in range(30):
        record = Sent(START_MS + number, b"k", b"%d" % number * 10)
        positions.append(partition.log.active.size_bytes)
        sent[partition.appends.append(build_batch([Record(0, *record)]), now_ms=START_MS).base_offset] = (
            record
        )
        partition.commit()
    partition.flush()
    if is_clean:
        store.close(START_MS)
    else:
        write_checkpoints(store)
    contents = {path: bytes(inode.data) for path, inode in disk.files.items()}
    path = "data/t-0/00000000000000000000.log"
    for batch in (0, 7, 15, 28, 29):
        for bit in range(8 * 21):
            content = bytearray(contents[path])
            content[positions[batch] + bit // 8] ^= 1 << bit % 8
            told: list[str] = []
            damaged = MemoryDisk.of({**contents, path: bytes(content)})
            store = LogStore(damaged, ["data"], config_for=lambda topic: config, listener=Told(told))
            assert not store.open(START_MS)
            partition = store.create("t", 0, bytes(range(16)), config)
            # After a kill, and not before somebody asks for it: all of it was flushed.
            is_cut = any("have been cut" in sentence for sentence in told)
            assert not (is_cut and is_clean)
            reader = Reader(partition, sent)
            found = reader.read_all()
            is_epoch = 8 * 12 <= bit < 8 * 16
            if is_epoch and found == set(sent):
                # The first and the last batch have one neighbour only, and may have another epoch than that.
                assert batch in (0, 29), f"bit {bit} of batch {batch}"
                continue
            assert found < set(sent), f"bit {bit} of batch {batch} has not been seen"
            assert reader.told or told
            if not is_cut:
                lost = set(sent) - found
                assert len(lost) <= 10, f"bit {bit} of batch {batch} cost {lost}"


def damaged_in_its_records() -> tuple[MemoryDisk, LogConfig]:
    """A log of two segments; a bit of the first value has flipped."""
    disk = MemoryDisk()
    store = LogStore(disk, ["data"])
    store.open(START_MS)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    partition = store.create("t", 0, bytes(range(16)), config)
    for number in range(4):
        batch = build_batch([Record(0, START_MS, b"key %d" % (number % 3), b"value")])
        partition.appends.append(batch, now_ms=START_MS)
        partition.commit()
    partition.log.roll(START_MS)
    store.close(START_MS)
    contents = {path: bytes(inode.data) for path, inode in disk.files.items()}
    path = "data/t-0/00000000000000000000.log"
    at = contents[path].index(b"value", contents[path].index(b"key 1"))
    contents[path] = contents[path][:at] + b"w" + contents[path][at + 1 :]
    return MemoryDisk.of(contents), config


def test_compaction_gives_damage_no_new_checksum():
    disk, config = damaged_in_its_records()
    store = LogStore(disk, ["data"], config_for=lambda topic: config)
    store.open(START_MS)
    before = bytes(disk.files["data/t-0/00000000000000000000.log"].data)
    assert store.get("t", 0) is not None
    while store.compact(START_MS):
        pass
    assert bytes(disk.files["data/t-0/00000000000000000000.log"].data) == before


def test_a_conversion_for_old_clients_gives_damage_no_new_checksum():
    disk, config = damaged_in_its_records()
    store = LogStore(disk, ["data"], config_for=lambda topic: config)
    store.open(START_MS)
    partition = store.get("t", 0)
    assert partition is not None
    data = partition.read(0, max_bytes=10_000).records.tobytes()
    # What is before it comes; who asks for it is told.
    sound_bytes = read_batch_header(data).size_bytes
    converted = down_convert(data, 1, 0)
    assert converted.startswith(to_legacy(data[:sound_bytes], 1, 0))
    assert b"walue" not in converted
    with pytest.raises(KafkaError) as refused:
        down_convert(data[sound_bytes:], 1, 1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
