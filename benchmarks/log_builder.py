"""A partition's log as long as wanted, made offline: real batches where somebody will look, holes between.

Every batch of such a log has the same size and number of records, so that it is known where each would stand.
A log is so many equal segments and a short last one. Written are, of each segment, either all batches or runs
of neighbours: at both ends, and at sampled places of the log; the last segment, which a broker appends to and
reads after a kill, is always whole. Indexes are whole, too, and as dense as a log has them with the default
`index.interval.bytes`. What stands between the runs reads as zeros and takes no room, on file systems that
have sparse files.
"""

from __future__ import annotations

import os
import pathlib
import random
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.brokers import Odradek
from benchmarks.run import MEGABYTE, Refused
from benchmarks.wire_client import WireClient
from odradek.storage import checkpoints
from odradek.storage.disk import OsDisk
from odradek.storage.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from odradek.storage.log.producer_state import encode_snapshot
from odradek.storage.log.segment_paths import INDEX, LOG, SNAPSHOT, TIME_INDEX, file_name
from odradek.wire.records import Record, build_batch

RECORDS_PER_BATCH = 5
RECORD_BYTES = 1000
"""Together more than index.interval.bytes: every batch but a segment's first has its entry."""
BATCHES_PER_RUN = 16
READ_FROM = 2
"""The batch of a run that readers ask for: the broker looks at the ones before and after, too."""
READ_BATCHES = 4
"""So many a reader may ask for."""
LAST_SEGMENT_BATCHES = 1000
PAGE_BYTES = 4096
LONG_MAX = 2**63 - 1
SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1", "segment.ms": str(LONG_MAX)}
"""So that the log stays as it is."""


def batch_at(first_offset: int, timestamp_ms: int) -> bytes:
    """The batch that begins at that offset."""
    value = bytes([first_offset % 251]) * RECORD_BYTES
    records = [Record(first_offset + place, timestamp_ms, None, value) for place in range(RECORDS_PER_BATCH)]
    return bytes(build_batch(records, leader_epoch=0))


BATCH_BYTES = len(batch_at(0, 0))
READ_BYTES = READ_BATCHES * BATCH_BYTES


@dataclass(frozen=True)
class Shape:
    """See the module. `sampled` is the number of places at which it can be read."""

    segments: int
    batches_per_segment: int
    sampled: int
    is_whole: bool

    @classmethod
    def with_holes(cls, log_bytes: int, segment_bytes: int, sampled: int) -> Shape:
        return cls(log_bytes // segment_bytes, segment_bytes // BATCH_BYTES, sampled, is_whole=False)

    @property
    def batches(self) -> int:
        return self.segments * self.batches_per_segment + LAST_SEGMENT_BATCHES

    @property
    def end_offset(self) -> int:
        return self.batches * RECORDS_PER_BATCH

    @property
    def log_bytes(self) -> int:
        return self.batches * BATCH_BYTES

    @property
    def room_bytes(self) -> int:
        """What it takes of the disk."""
        index_bytes = self.batches * (OFFSET_ENTRY_BYTES + TIME_ENTRY_BYTES) + self.segments * 3 * PAGE_BYTES
        if self.is_whole:
            return index_bytes + self.log_bytes
        runs = 2 * self.segments + self.sampled
        run_bytes = BATCHES_PER_RUN * BATCH_BYTES + 2 * PAGE_BYTES
        return index_bytes + runs * run_bytes + LAST_SEGMENT_BATCHES * BATCH_BYTES


@dataclass(frozen=True)
class BuiltLog:
    """A log that a broker serves, and where one can read in it."""

    topic: str
    topic_id: bytes
    shape: Shape
    first_timestamp_ms: int
    """Of the first batch; each has a millisecond more than the one before."""
    places: list[int]
    """Offsets at which a batch begins, with enough around it that is real; in no order."""

    @property
    def last_place(self) -> int:
        """The last offset from which as many batches can be read as from a place."""
        return (self.shape.batches - READ_BATCHES) * RECORDS_PER_BATCH

    def check(self, client: WireClient) -> None:
        """AssertionError unless the broker gives what stands at every place, and the log's end as it is."""
        for offset in (*self.places, 0, self.last_place):
            expected = batch_at(offset, self.first_timestamp_ms + offset // RECORDS_PER_BATCH)
            assert client.fetch(self.topic, offset, BATCH_BYTES) == expected, (self.topic, offset)


def refuse_without_holes(folder: pathlib.Path) -> None:
    """FAT, exFAT and HFS+ have no sparse files, and some network file systems do not pass holes on."""
    path = folder / "holes-probe"
    with path.open("wb") as file:
        file.truncate(64 * MEGABYTE)
        file.seek(32 * MEGABYTE)
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
        taken_bytes = os.fstat(file.fileno()).st_blocks * 512
    path.unlink()
    if taken_bytes > MEGABYTE:
        raise Refused(
            f"A log that is mostly holes cannot be made in {folder}: its file system has no sparse files "
            "(FAT, exFAT and HFS+ have none): name a folder on another one with --work."
        )


def build(node: Odradek, shapes: Mapping[str, Shape], timestamp_ms: int) -> list[BuiltLog]:
    """Has a broker make topics of one partition, stops it, and puts logs of these shapes in the place of
    theirs. The last batch of each has `timestamp_ms`. Whoever calls starts the broker again.
    """
    with WireClient("127.0.0.1", node.port) as client:
        ids = client.create_topics(list(shapes), 1, SETTINGS)
    node.stop()
    built = []
    for topic, shape in shapes.items():
        folder = node.data / f"{topic}-0"
        for path in folder.iterdir():
            if path.name != checkpoints.PARTITION_METADATA:
                path.unlink()
        first_timestamp_ms = timestamp_ms - shape.batches + 1
        places = write_log(folder, shape, first_timestamp_ms)
        built.append(BuiltLog(topic, ids[topic], shape, first_timestamp_ms, places))
    disk = OsDisk()
    # What a clean stop would have noted: without it a start after a kill reads all of a log.
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS):
        offsets = checkpoints.read_offsets(disk, str(node.data / name)) or {}
        offsets |= {(one.topic, 0): one.shape.end_offset for one in built}
        checkpoints.write_offsets(disk, str(node.data / name), offsets)
    os.sync()
    return built


def write_log(folder: pathlib.Path, shape: Shape, first_timestamp_ms: int) -> list[int]:
    """Returns the offsets at which it can be read."""
    count = shape.batches_per_segment
    sampled = sampled_runs(shape)
    for number in range(shape.segments + 1):
        is_last = number == shape.segments
        size = LAST_SEGMENT_BATCHES if is_last else count
        runs = [(0, size)]
        if not is_last and not shape.is_whole:
            starts = [0, size - BATCHES_PER_RUN, *(start for segment, start in sampled if segment == number)]
            runs = joined((start, start + BATCHES_PER_RUN) for start in starts)
        write_segment(folder, number * count, size, runs, first_timestamp_ms)
    disk = OsDisk()
    (folder / file_name(shape.end_offset, SNAPSHOT)).write_bytes(encode_snapshot({}))
    checkpoints.write_leader_epochs(disk, str(folder / checkpoints.LEADER_EPOCHS), [(0, 0)])
    return [(segment * count + start + READ_FROM) * RECORDS_PER_BATCH for segment, start in sampled]


def sampled_runs(shape: Shape) -> list[tuple[int, int]]:
    """(segment, first batch in it) of the sampled runs; in the last segment where there is no other."""
    chance = random.Random(shape.batches)
    size = shape.batches_per_segment if shape.segments else LAST_SEGMENT_BATCHES
    return [
        (chance.randrange(max(shape.segments, 1)), chance.randint(0, size - BATCHES_PER_RUN))
        for _ in range(shape.sampled)
    ]


def joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same in order, those that touch as one."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(runs):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def write_segment(
    folder: pathlib.Path, first: int, size: int, runs: list[tuple[int, int]], first_timestamp_ms: int
) -> None:
    """The segment of `size` batches of which the first is the log's batch number `first`."""
    base_offset = first * RECORDS_PER_BATCH
    with (folder / file_name(base_offset, LOG)).open("wb", buffering=0) as file:
        file.truncate(size * BATCH_BYTES)
        for start, end in runs:
            file.seek(start * BATCH_BYTES)
            for number in range(first + start, first + end):
                file.write(batch_at(number * RECORDS_PER_BATCH, first_timestamp_ms + number))
    # What a log has that grew to this: an entry for every batch but the first.
    last_offsets = range(2 * RECORDS_PER_BATCH - 1, size * RECORDS_PER_BATCH, RECORDS_PER_BATCH)
    offset_index, time_index = OffsetIndex(base_offset), TimeIndex(base_offset)
    offset_index.offsets = array("i", last_offsets)
    offset_index.positions = array("i", range(BATCH_BYTES, size * BATCH_BYTES, BATCH_BYTES))
    time_index.offsets = array("i", last_offsets)
    base_ms = first_timestamp_ms + first
    time_index.timestamps = array("q", range(base_ms + 1, base_ms + size))
    (folder / file_name(base_offset, INDEX)).write_bytes(offset_index.encode())
    (folder / file_name(base_offset, TIME_INDEX)).write_bytes(time_index.encode())
