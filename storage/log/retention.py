"""Decides which segments of a log to delete: before its start, by size, and by age. No I/O of its own.

Rules as in `UnifiedLog.deleteOldSegments`: the oldest segments first, never after the high watermark, never
an empty last segment. Before the active segment is deleted, the log rolls; the log's start alone never
deletes it. The three rules apply in turn, each continues where the previous one stopped.
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.storage.config import LogConfig


class SegmentFacts(NamedTuple):
    """The facts of a segment for the rules. `end_offset` is the next segment's base offset, or the log's end;
    `timestamp_ms` is its latest timestamp, or, without timestamps, the time of the last write to the file.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    timestamp_ms: int


def segments_to_delete(
    segments: Iterable[SegmentFacts],
    config: LogConfig,
    *,
    segment_count: int,
    log_bytes: int,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    count_max: int | None = None,
) -> int:
    """The number of segments to delete, from the oldest on; at most `count_max`, and the next call continues.

    `segments` is read only as far as needed, since a timestamp may have to be read from the disk.
    """
    surplus_bytes = log_bytes - config.retention_bytes
    count_max = segment_count if count_max is None else count_max
    rules = iter((_is_before_start, _is_too_much, _is_too_old) if config.is_deleted else (_is_before_start,))
    rule = next(rules)
    count = 0
    for segment in segments:
        is_active = count == segment_count - 1
        if (
            count == count_max
            or segment.end_offset > high_watermark
            or (is_active and not segment.size_bytes)
        ):
            break
        question = _Question(config, now_ms, log_start_offset, surplus_bytes, is_active)
        while not rule(segment, question):
            following = next(rules, None)
            if following is None:
                return count
            rule = following
        surplus_bytes -= segment.size_bytes
        count += 1
    return count


class _Question(NamedTuple):
    """The values with which the rules compare a segment. `surplus_bytes`: bytes of the log over
    `retention.bytes`."""

    config: LogConfig
    now_ms: int
    log_start_offset: int
    surplus_bytes: int
    is_active: bool


def _is_before_start(segment: SegmentFacts, question: _Question) -> bool:
    return not question.is_active and segment.end_offset <= question.log_start_offset


def _is_too_much(segment: SegmentFacts, question: _Question) -> bool:
    """The deletion of a segment must leave at least `retention.bytes`."""
    return question.config.retention_bytes >= 0 and question.surplus_bytes >= segment.size_bytes


def _is_too_old(segment: SegmentFacts, question: _Question) -> bool:
    retention_ms = question.config.retention_ms
    return retention_ms >= 0 and question.now_ms - segment.timestamp_ms > retention_ms
