"""The logs that are mostly holes: the storage layer takes them for what they would be without."""

import pytest

from benchmarks.log_builder import (
    BATCH_BYTES,
    READ_BATCHES,
    READ_BYTES,
    RECORDS_PER_BATCH,
    Shape,
    batch_at,
    joined,
    write_log,
)
from odradek.storage import checkpoints
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk

NOW_MS = 1_800_000_000_000
FIRST_MS = NOW_MS - 1_000_000

SHAPES = [
    Shape.with_holes(60_000_000, 20_000_000, sampled=20),
    Shape.with_holes(0, 20_000_000, sampled=20),
    Shape(5, 20, sampled=20, is_whole=True),
]


def opened(folder, shape, *, is_clean):
    """A store with a log of the shape, as a clean stop or a kill has left it, and where it can be read."""
    disk = OsDisk()
    (folder / "long-0").mkdir()
    places = write_log(folder / "long-0", shape, FIRST_MS)
    offsets = {("long", 0): shape.end_offset}
    checkpoints.write_offsets(disk, str(folder / checkpoints.RECOVERY_POINTS), offsets)
    if is_clean:
        checkpoints.write_clean_shutdown(disk, str(folder))
    store = LogStore(disk, [str(folder)])
    assert store.open(NOW_MS) == {}
    return store, places


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("shape", SHAPES, ids=["holes", "short", "whole"])
def test_every_place_of_a_built_log_can_be_read(shape, is_clean, tmp_path):
    store, places = opened(tmp_path, shape, is_clean=is_clean)
    partition = store.get("long", 0)
    assert partition.log_end_offset == shape.end_offset
    assert partition.size_bytes == shape.log_bytes
    assert len(places) == 20
    last = shape.end_offset - READ_BATCHES * RECORDS_PER_BATCH
    for offset in (*places, 0, last):
        expected = b"".join(
            batch_at(offset + place * RECORDS_PER_BATCH, FIRST_MS + offset // RECORDS_PER_BATCH + place)
            for place in range(READ_BATCHES)
        )
        # In the middle of a batch, too: it comes from its beginning.
        assert partition.read(offset + 3, max_bytes=READ_BYTES).records.tobytes() == expected
    store.close(NOW_MS)


def test_a_built_log_takes_no_more_room_than_it_says(tmp_path):
    shape = SHAPES[0]
    write_log(tmp_path, shape, FIRST_MS)
    taken_bytes = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
    assert sum(path.stat().st_size for path in tmp_path.glob("*.log")) == shape.log_bytes
    assert shape.log_bytes > 60_000_000
    assert taken_bytes <= shape.room_bytes < 20_000_000


def test_batches_all_have_the_same_size():
    assert {len(batch_at(offset, FIRST_MS)) for offset in (0, 5, 2**31, 2**40)} == {BATCH_BYTES}


def test_runs_that_touch_are_one():
    assert joined([(20, 36), (0, 16), (10, 26), (50, 66), (36, 40)]) == [(0, 40), (50, 66)]
