"""Indexes of sealed and inherited segments are searched in their files; what is wrong in one is found on the
way, and mended.
"""

import random
import struct
from bisect import bisect_left, bisect_right
from itertools import accumulate

import pytest
from memory_disk import MemoryDisk

from odradek.storage.disk import OsDisk, read_file
from odradek.storage.log.indexes import DamagedIndex, OffsetIndex, TimeIndex
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_file import FilePool
from odradek.wire.records import Record, build_batch
from tests.kit.collecting import collected

BASE = 1000


def ascending(chance, count, step_max):
    return list(accumulate(chance.randrange(1, step_max) for _ in range(count)))


def mapped(index):
    """The index of a file with the same entries, and a list of the stretches that were read of it."""
    content = index.encode()
    looks = []

    def read(position, size_bytes):
        looks.append((position, size_bytes))
        return content[position : position + size_bytes]

    if isinstance(index, TimeIndex):
        return TimeIndex.of_file(index.base_offset, memoryview(content), read), looks
    return OffsetIndex.of_file(index.base_offset, memoryview(content), read, 2**31 - 1), looks


def test_a_mapped_index_finds_what_an_array_of_its_entries_finds():
    with collected() as failures:
        for seed in range(20):
            with failures.of(f"seed {seed}"):
                check_that_it_finds_what_an_array_finds(seed)


def check_that_it_finds_what_an_array_finds(seed):
    chance = random.Random(seed)
    count = chance.choice([0, 1, 2, 3, 300, 5000])
    # Evenly spread, and with a few entries far away from the others.
    step_max = chance.choice([2, 10, 300])
    offsets = ascending(chance, count, step_max)
    if count > 3:
        offsets[count // 2 :] = [one + 900_000_000 for one in offsets[count // 2 :]]
    positions = ascending(chance, count, 9000)
    times = ascending(chance, count, 50)
    index, by_time = OffsetIndex(BASE), TimeIndex(BASE)
    kept = count * chance.randrange(5) // 4
    for place in range(count):
        if place == kept:
            (index, _), (by_time, _) = mapped(index), mapped(by_time)
        index.append(BASE + offsets[place], positions[place])
        by_time.append(times[place], BASE + offsets[place])
    assert len(index) == len(by_time) == count
    for wanted in {*chance.sample(offsets, min(count, 100)), *offsets[:3], *offsets[-3:], 0, 2**31 - 1}:
        for offset in (wanted - 1, wanted, wanted + 1):
            place = bisect_right(offsets, offset) - 1
            assert index.place_of(BASE + offset) == place
            assert index.lookup(BASE + offset) == (positions[place] if place >= 0 else 0)
    for wanted in chance.sample(positions, min(count, 100)):
        for position in (wanted - 1, wanted, wanted + 1):
            before = bisect_left(positions, position) - 1
            assert index.offset_before(position) == BASE + (offsets[before] if before >= 0 else -1)
            until = bisect_right(positions, position) - 1
            assert index.last_position_until(position) == (positions[until] if until >= 0 else 0)
    for wanted in chance.sample(times, min(count, 100)):
        for timestamp in (wanted - 1, wanted, wanted + 1):
            before = bisect_left(times, timestamp) - 1
            assert by_time.lookup(timestamp) == BASE + (offsets[before] if before >= 0 else 0)
    entries = list(zip(offsets, positions, strict=True))
    assert index.encode() == b"".join(struct.pack(">ii", *entry) for entry in entries)
    assert by_time.last() == ((times[-1], BASE + offsets[-1]) if count else (-1, BASE))


def test_a_look_up_reads_a_few_pages_of_an_index_however_large_it_is():
    index = OffsetIndex(0)
    for number in range(1, 300_000):
        index.append(7 * number, 2000 * number)
    index, looks = mapped(index)
    for offset in range(11, 2_100_000, 200_001):
        looks.clear()
        assert index.lookup(offset) == offset // 7 * 2000
        assert len(looks) <= 3
        assert sum(size_bytes for _, size_bytes in looks) <= 32_768


def test_a_wrong_bit_of_a_mapped_index_leads_no_look_up_behind_what_it_looks_for():
    """It is found, or costs a longer way at most; the right entries that a search ends at say so."""
    with collected() as failures:
        for seed in range(100):
            with failures.of(f"seed {seed}"):
                check_look_ups_with_a_wrong_bit(seed)


def check_look_ups_with_a_wrong_bit(seed):
    chance = random.Random(seed)
    offsets, positions = ascending(chance, 700, 20), ascending(chance, 700, 9000)
    content = bytearray(b"".join(map(struct.Struct(">ii").pack, offsets, positions)))
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 128 >> bit % 8
    wrong = bit // 64
    try:
        index = OffsetIndex.of_file(0, memoryview(content), lambda position, size: bytes(size), 2**31 - 1)
    except DamagedIndex:
        return
    for place in (*range(0, 700, 11), wrong - 1, wrong, (wrong + 1) % 700):
        try:
            found = index.place_of(offsets[place])
        except DamagedIndex:
            continue
        # That it does not say what its batch does, whoever goes there sees.
        assert found <= place or found == wrong


def make_log(disk, directory, count=3000):
    """A segment with an entry for almost every batch, closed; and its batches' positions by offset."""
    disk.make_directory(directory)
    segment = Segment.create(FilePool(disk), directory, 0, 0)
    places = {}
    position = 0
    batches = []
    for offset in range(count):
        batch = bytes(build_batch([Record(offset, 1000 + offset, None, b"v%d" % offset)], base_offset=offset))
        places[offset] = (position, len(batch))
        position += len(batch)
        batches.append(batch)
    segment.file.open().write(0, [b"".join(batches)])
    segment.extent.size_bytes = position
    segment.indexes.rebuild(interval_bytes=10)
    segment.save_indexes()
    segment.file.close()
    return places


def opened(disk, directory, places):
    position, size_bytes = places[len(places) - 1]
    segment = Segment(FilePool(disk), directory, 0, position + size_bytes, 0)
    segment.inherited.begin(len(places))
    return segment


@pytest.mark.parametrize("disk", [MemoryDisk(), OsDisk()], ids=["in memory", "of the system"])
def test_a_segment_of_an_earlier_run_is_searched_in_its_files(disk, tmp_path):
    directory = str(tmp_path).lstrip("/") if isinstance(disk, MemoryDisk) else str(tmp_path)
    places = make_log(disk, directory)
    segment = opened(disk, directory, places)
    for offset in (0, 1, 1500, 2998, 2999, 7):
        assert segment.find(offset) == places[offset]
        assert segment.indexes.lookup_time(1000 + offset) <= offset
    assert segment.find(3000) is None
    assert segment.indexes.offset_index.is_mapped
    assert not len(segment.indexes.offset_index.offsets)
    assert segment.file.release()
    # The pool has closed it.
    assert segment.find(1234) == places[1234]


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("garbage", [b"\0" * 512, b"\xff" * 512, random.Random(1).randbytes(512)])
def test_a_block_of_nonsense_in_an_index_is_mended_when_somebody_gets_there(kind, garbage):
    disk = MemoryDisk()
    places = make_log(disk, "data")
    path = f"data/{0:020d}{kind}"
    file = disk.open(path)
    file.write(8 * 1200, [garbage])
    segment = opened(disk, "data", places)
    for offset in (0, 5, *range(700, 1500, 9), 2999):
        assert segment.find(offset) == places[offset]
        assert segment.indexes.lookup_time(1000 + offset) <= offset
    assert not segment.indexes.offset_index.is_mapped
    offsets, times = segment.indexes.offset_index.encode(), segment.indexes.time_index.encode()
    assert OffsetIndex.decode(0, offsets, segment.size_bytes) is not None
    assert TimeIndex.decode(0, times) is not None
    segment.save_indexes()
    assert read_file(disk, path) == (offsets if kind == ".index" else times)


def test_a_block_of_an_index_that_cannot_be_read_is_an_error_of_that_look_up():
    disk = MemoryDisk()
    places = make_log(disk, "data")
    segment = opened(disk, "data", places)
    assert segment.find(0) == places[0]
    disk.fail = lambda operation, path: 5 if operation == "read" and path.endswith(".index") else None
    with pytest.raises(OSError, match="Input/output"):
        segment.find(1500)
    disk.fail = lambda operation, path: None
    assert segment.find(1500) == places[1500]


@pytest.mark.parametrize("is_removed", [False, True])
def test_an_index_that_somebody_cuts_or_removes_under_its_mapping_is_made_anew(tmp_path, is_removed):
    disk, directory = OsDisk(), str(tmp_path)
    places = make_log(disk, directory)
    segment = opened(disk, directory, places)
    assert segment.find(1) == places[1]
    path = tmp_path / f"{0:020d}.index"
    if is_removed:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:4096])
    for offset in (0, 1500, 2999):
        assert segment.find(offset) == places[offset]
    segment.save_indexes()
    assert OffsetIndex.decode(0, path.read_bytes(), segment.size_bytes) is not None


def test_entries_that_come_later_are_searched_and_saved_behind_what_is_mapped():
    disk = MemoryDisk()
    places = make_log(disk, "data")
    segment = opened(disk, "data", places)
    index = segment.indexes.offset_index
    count = len(index)
    position = segment.size_bytes
    index.append(3005, position)
    assert index.is_mapped
    assert index.lookup(3004) == places[2999][0]
    assert index.lookup(3005) == position
    assert index.offset_before(position + 1) == 3005
    # It stays in memory until it is saved.
    segment.file.release()
    assert segment.indexes.offset_index is index
    segment.save_indexes()
    content = read_file(disk, f"data/{0:020d}.index")
    assert len(content) == 8 * (count + 1)
    assert struct.unpack(">ii", content[-8:]) == (3005, position)
