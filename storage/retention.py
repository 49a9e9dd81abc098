"""Which segments a log may let go of: by age, by size, and those before its start. Decisions only.

Rules as in `UnifiedLog.deleteOldSegments`: always from the oldest on, never past the high watermark,
never the last segment when it is empty. When even the active segment has to go, the log rolls first.
"""

from collections.abc import Sequence
from typing import NamedTuple

from odradek.storage.config import LogConfig


class SegmentFacts(NamedTuple):
    """What the rules look at. `end_offset` is the next segment's base offset, or the log's end."""

    base_offset: int
    end_offset: int
    size_bytes: int
    timestamp_ms: int


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many of the segments, oldest first, are to be deleted."""
    deletable = 0
    while deletable < len(segments) and segments[deletable].end_offset <= high_watermark:
        deletable += 1
    if deletable == len(segments) and segments and segments[-1].size_bytes == 0:
        deletable -= 1
    count = _count_before(segments[:deletable], log_start_offset)
    if config.is_deleted:
        count = max(count, _count_old(segments[:deletable], config.retention_ms, now_ms))
        count = max(count, _count_over_size(segments, deletable, config.retention_bytes))
    return count


def _count_before(segments: Sequence[SegmentFacts], log_start_offset: int) -> int:
    count = 0
    for segment in segments:
        # The end of an active segment is the start of no other: it stays until it is rolled.
        if segment.end_offset > log_start_offset or segment.end_offset == segment.base_offset:
            break
        count += 1
    return count


def _count_old(segments: Sequence[SegmentFacts], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.timestamp_ms <= retention_ms:
            break
        count += 1
    return count


def _count_over_size(segments: Sequence[SegmentFacts], deletable: int, retention_bytes: int) -> int:
    """Deleting a segment must leave `retention_bytes` at least."""
    if retention_bytes < 0:
        return 0
    surplus_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments[:deletable]:
        if surplus_bytes < segment.size_bytes:
            break
        surplus_bytes -= segment.size_bytes
        count += 1
    return count
