"""Decides which logs are due for compaction, and up to which offset. No I/O of its own.

Only sealed segments are cleaned, and only before the first open transaction; the active segment is never
touched. Rules as in `LogCleanerManager.java`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment import Segment
from odradek.storage.log.staging import first_timestamp
from odradek.wire.record_layout import HEADER_SIZE_BYTES


class CleanableSegment(NamedTuple):
    """A sealed segment in a plan. `end_offset` is the next segment's base offset."""

    base_offset: int
    end_offset: int
    size_bytes: int


@dataclass(slots=True, frozen=True)
class Plan:
    """Clean from the log's start up to `end_offset` (a segment's end); the part before `first_dirty` is clean
    already. `overdue_ms`: time since `max.compaction.lag.ms` was exceeded, else 0.
    """

    first_dirty: int
    end_offset: int
    dirty_ratio: float
    overdue_ms: int = 0


def plan_cleaning(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    *,
    first_dirty: int,
    log_start_offset: int,
    last_stable_offset: int,
    now_ms: int,
    latest_timestamp_of: Callable[[int], int],
    first_timestamp_of: Callable[[int], int],
    is_wanted: bool = False,
) -> Plan | None:
    """The plan for a log; None if it is not due. One that `is_wanted` is due as soon as a part is dirty.
    `segments` are the sealed segments, oldest first. The two functions return timestamps of the segment at a
    place in this list; they are called only if a setting needs them.

    A segment and all segments after it are not cleaned while one of its records is not stable or, in the
    dirty part, younger than `min.compaction.lag.ms`. The log is due when the dirty part has more than
    `min.cleanable.dirty.ratio` of the bytes, or when its oldest segment began more than
    `max.compaction.lag.ms` ago.
    """
    if not segments:
        return None
    log_end = segments[-1].end_offset
    if not log_start_offset <= first_dirty <= log_end:
        # The records before it were deleted, or the end of the log was lost.
        first_dirty = log_start_offset
    dirty = [place for place, segment in enumerate(segments) if segment.end_offset > first_dirty]
    stop = next((place for place in dirty if segments[place].end_offset > last_stable_offset), len(segments))
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        stop = next(
            (place for place in dirty if place < stop and latest_timestamp_of(place) > youngest_ms), stop
        )
    clean_bytes = sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty)
    dirty_bytes = sum(segments[place].size_bytes for place in dirty if place < stop)
    if dirty_bytes == 0:
        return None
    overdue_ms = 0
    if config.max_compaction_lag_ms < LONG_MAX:
        begun = [begun_ms for place in dirty if (begun_ms := first_timestamp_of(place)) > 0]
        overdue_ms = max(now_ms - config.max_compaction_lag_ms - min(begun, default=now_ms), 0)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    if ratio <= config.min_cleanable_dirty_ratio and not overdue_ms and not is_wanted:
        return None
    return Plan(first_dirty, segments[stop - 1].end_offset, ratio, overdue_ms)


def plan_partition(
    partition: Partition, now_ms: int, first_dirty: int, *, is_wanted: bool = False
) -> Plan | None:
    """The plan for a partition; None if it is not due (see `plan_cleaning`). The log is compacted up to
    `first_dirty`. Raises `OSError` if a timestamp cannot be read.
    """
    if not partition.config.is_compacted or not partition.is_available:
        return None
    return _plan_log(
        partition.log,
        first_dirty=first_dirty,
        log_start_offset=partition.log_start_offset,
        last_stable_offset=partition.last_stable_offset,
        now_ms=now_ms,
        is_wanted=is_wanted,
    )


def _plan_log(
    log: Log,
    *,
    first_dirty: int,
    log_start_offset: int,
    last_stable_offset: int,
    now_ms: int,
    is_wanted: bool,
) -> Plan | None:
    sealed = log.segments[:-1]

    def latest_timestamp_of(place: int) -> int:
        return sealed[place].retention_timestamp_ms()

    def first_timestamp_of(place: int) -> int:
        segment = sealed[place]
        if segment.extent.first_timestamp_ms is None:
            segment.extent.first_timestamp_ms = first_timestamp(segment)
        return segment.extent.first_timestamp_ms

    return plan_cleaning(
        [
            CleanableSegment(segment.base_offset, end_offset, segment.size_bytes)
            for segment, end_offset in zip(sealed, log.bases[1:], strict=True)
        ],
        log.config,
        first_dirty=first_dirty,
        log_start_offset=log_start_offset,
        last_stable_offset=last_stable_offset,
        now_ms=now_ms,
        latest_timestamp_of=latest_timestamp_of,
        first_timestamp_of=first_timestamp_of,
        is_wanted=is_wanted,
    )


def unread_of_plan(log: Log, first_dirty: int) -> list[Segment]:
    """The segments whose timestamps `plan_partition` may have to read from the disk."""
    config = log.config
    wants_latest, wants_first = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < LONG_MAX
    if not config.is_compacted or not (wants_latest or wants_first):
        return []
    return [
        segment
        for segment, end_offset in zip(log.segments, log.bases[1:], strict=False)
        if end_offset > first_dirty
        and (
            (wants_latest and not segment.indexes.knows_latest_timestamp)
            or (wants_first and segment.extent.first_timestamp_ms is None)
        )
    ]


def preload(segments: list[Segment]) -> None:
    """For a worker thread: load what `plan_partition` reads into memory."""
    for segment in segments:
        segment.preload_for_retention()
        try:
            segment.file.load(0, HEADER_SIZE_BYTES)
        except OSError:
            # `plan_partition` meets the same error.
            pass
