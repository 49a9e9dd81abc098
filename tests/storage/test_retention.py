"""Which segments retention takes, and that they are gone from the log and later from the disk."""

import errno

import pytest
from memory_disk import MemoryDisk

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.log.retention import SEGMENTS_PER_STEP, SegmentFacts, segments_to_delete
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish

NOW_MS = 1_700_000_000_000
# (base offset, end offset, bytes, latest timestamp); the last one is active.
SEGMENTS = [
    SegmentFacts(0, 10, 100, NOW_MS - 3000),
    SegmentFacts(10, 20, 100, NOW_MS - 1000),
    SegmentFacts(20, 30, 100, NOW_MS - 2000),
    SegmentFacts(30, 35, 50, NOW_MS),
]


def count_of(segments, config, log_start_offset, high_watermark, **keywords):
    return segments_to_delete(
        segments,
        config,
        segment_count=len(segments),
        log_bytes=sum(segment.size_bytes for segment in segments),
        now_ms=NOW_MS,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        **keywords,
    )


@pytest.mark.parametrize(
    ("settings", "log_start_offset", "high_watermark", "expected"),
    [
        ({}, 0, 35, 0),
        ({"retention_ms": 3000}, 0, 35, 0),
        ({"retention_ms": 2999}, 0, 35, 1),
        # The second is young enough; what is behind it stays too.
        ({"retention_ms": 1500}, 0, 35, 1),
        ({"retention_ms": -1}, 0, 35, 0),
        ({"retention_bytes": 350}, 0, 35, 0),
        ({"retention_bytes": 251}, 0, 35, 0),
        ({"retention_bytes": 250}, 0, 35, 1),
        ({"retention_bytes": 0}, 0, 35, 4),
        ({"retention_bytes": 0}, 0, 29, 2),
        ({}, 20, 35, 2),
        ({}, 19, 35, 1),
        ({"cleanup_policy": frozenset({"compact"}), "retention_bytes": 0}, 10, 35, 1),
        ({"cleanup_policy": frozenset({"compact", "delete"}), "retention_bytes": 0}, 0, 35, 4),
        ({"cleanup_policy": frozenset()}, 0, 35, 0),
    ],
)
def test_segments_go_by_age_by_size_and_by_the_start_of_the_log(
    settings, log_start_offset, high_watermark, expected
):
    config = LogConfig(**{"retention_ms": -1, **settings})
    assert count_of(SEGMENTS, config, log_start_offset, high_watermark) == expected


def test_an_empty_active_segment_stays():
    empty = [SegmentFacts(0, 0, 0, NOW_MS - 10_000)]
    assert count_of(empty, LogConfig(retention_ms=1), 0, 0) == 0


def test_old_records_leave_the_log_and_their_files_the_disk():
    disk = MemoryDisk()
    store = LogStore(disk, ["data"])
    store.open(NOW_MS)
    config = LogConfig(segment_bytes=300, retention_ms=10_000, file_delete_delay_ms=500)
    partition = store.create("t", 0, bytes(16), config)
    for number in range(12):
        records = [Record(0, NOW_MS + number * 1000, b"k", b"v" * 30)]
        partition.appends.append(build_batch(records), now_ms=NOW_MS + number * 1000)
    partition.commit()
    reading = partition.read(0, max_bytes=200).records
    finish(store.maintaining(NOW_MS + 15_000))
    assert 0 < partition.log_start_offset < 12
    assert partition.log_start_offset == partition.log.segments[0].base_offset
    assert len(reading.tobytes()) == len(reading)
    first = f"data/t-0/{0:020d}.log.deleted"
    assert first in disk.files
    finish(store.maintaining(NOW_MS + 15_500))
    assert first not in disk.files
    finish(store.maintaining(NOW_MS + 60_000))
    assert partition.log_start_offset == partition.log_end_offset == 12
    store.close(NOW_MS)
    store = LogStore(disk, ["data"])
    store.open(NOW_MS)
    partition = store.get("t", 0)
    assert (partition.log_start_offset, partition.log_end_offset) == (12, 12)


def test_all_partitions_have_their_turn_within_one_check_interval_and_no_sooner_than_due():
    """`log.retention.check.interval.ms`, when the broker calls each second."""
    config = LogConfig(retention_ms=1000)
    store = LogStore(MemoryDisk(), ["data"], config_for=lambda topic: config, retention_interval_ms=10_000)
    store.open(NOW_MS)
    partitions = [store.create("t", index, bytes(16), config) for index in range(50)]
    finish(store.maintaining(NOW_MS))  # the first round is for all of them
    for partition in partitions:
        partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v")]), now_ms=NOW_MS)
        partition.commit()
    gone = []
    for second in range(1, 11):
        finish(store.maintaining(NOW_MS + 1001 + second * 1000))
        gone.append(sum(partition.log_start_offset for partition in partitions))
    assert gone[-1] == 50
    assert all(5 * second <= count <= 5 * second + 5 for second, count in enumerate(gone, 1))


def test_the_disk_is_asked_for_what_is_old_by_a_worker_first_and_a_few_segments_go_at_a_step():
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=300, retention_ms=1000)
    store = LogStore(disk, ["data"], config_for=lambda topic: config)
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), config)
    for _ in range(40):
        partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v" * 30)]), now_ms=NOW_MS)
        partition.commit()
    store.close(NOW_MS)
    store, partition = started(disk, config)
    segment_count = len(partition.log.segments)
    assert segment_count > 3 * SEGMENTS_PER_STEP
    read_by_worker: set[str] = set()
    read_in_loop: set[str] = set()
    renamed = 0
    reads = read_in_loop

    def note(operation: str, path: str) -> None:
        nonlocal renamed
        if operation == "read":
            reads.add(path)
        renamed += operation == "rename" and path.endswith(".log.deleted")

    disk.fail = note
    work = partition.retention.maintaining(NOW_MS + 2000)
    while (step := next(work, work)) is not work:
        assert renamed <= SEGMENTS_PER_STEP
        renamed = 0
        if step is not None:
            reads = read_by_worker
            step()
            reads = read_in_loop
    assert partition.log_start_offset == partition.log_end_offset
    assert read_in_loop
    assert read_in_loop <= read_by_worker


@pytest.mark.parametrize("ends", ["tried again", "killed"])
@pytest.mark.parametrize("failing", range(1, 11))
def test_a_rename_that_fails_half_way_through_retention_is_made_up_for(failing, ends):
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=300, index_interval_bytes=50, retention_ms=1000)
    store = LogStore(disk, ["data"], config_for=lambda topic: config)
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), config)
    for _ in range(12):
        partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v" * 30)]), now_ms=NOW_MS)
        partition.commit()
    partition.flush()
    end = partition.log_end_offset
    count = 0

    def fail(operation: str, path: str) -> int | None:
        nonlocal count
        count += operation == "rename" and path.endswith(".deleted")
        return errno.EIO if count == failing and operation == "rename" else None

    disk.fail = fail
    finish(store.maintaining(NOW_MS + 2000))
    assert count >= failing, "there was nothing to fail"
    disk.fail = lambda operation, path: None
    assert partition.is_available
    assert partition.log_start_offset == partition.log.segments[0].base_offset
    assert partition.read(partition.log_start_offset, max_bytes=10_000) is not None
    if ends == "killed":
        disk.held.clear()
        store, partition = started(disk, config)
        assert partition.log_end_offset == end
    finish(store.maintaining(NOW_MS + 3000))
    assert partition.log_start_offset == partition.log_end_offset == end
    finish(store.maintaining(NOW_MS + 3000 + config.file_delete_delay_ms))
    store.close(NOW_MS + 3000)
    store, partition = started(disk, config)
    assert partition.log_start_offset == partition.log_end_offset == end
    offset = f"{end:020d}"
    left = [name for name in disk.list("data/t-0") if name[:20].isdigit()]
    assert {name for name in left if not name.endswith(".snapshot")} <= {
        offset + kind for kind in (".log", ".index", ".timeindex")
    }


def started(disk, config):
    store = LogStore(disk, ["data"], config_for=lambda topic: config)
    store.open(NOW_MS)
    return store, store.get("t", 0)
