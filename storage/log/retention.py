"""Which segments a log may let go of: those before its start, by size, and by age. Decisions only.

Rules as in `UnifiedLog.deleteOldSegments`: always from the oldest on, never past the high watermark, never
the last segment when it is empty. When even the active segment has to go, the log rolls first; by the log's
start alone it never has to. The three rules come one after the other, each where the one before stopped.
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.storage.config import LogConfig


class SegmentFacts(NamedTuple):
    """What the rules look at. `end_offset` is the next segment's base offset, or the log's end;
    `timestamp_ms` the latest timestamp in it, or, where no record has one, when the file was last written.
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
    """How many of the segments, oldest first, are to be deleted; with `count_max` so many at most, and the
    next call goes on where this one stopped.

    No more of `segments` is asked for than it takes, since a timestamp may have to be read from the disk.
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
    """What the rules compare a segment with. `surplus_bytes`: how much the log is over `retention.bytes`."""

    config: LogConfig
    now_ms: int
    log_start_offset: int
    surplus_bytes: int
    is_active: bool


def _is_before_start(segment: SegmentFacts, question: _Question) -> bool:
    return not question.is_active and segment.end_offset <= question.log_start_offset


def _is_too_much(segment: SegmentFacts, question: _Question) -> bool:
    """Deleting a segment must leave `retention.bytes` at least."""
    return question.config.retention_bytes >= 0 and question.surplus_bytes >= segment.size_bytes


def _is_too_old(segment: SegmentFacts, question: _Question) -> bool:
    retention_ms = question.config.retention_ms
    return retention_ms >= 0 and question.now_ms - segment.timestamp_ms > retention_ms
