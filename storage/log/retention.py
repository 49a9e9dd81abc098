"""Removal from a partition: segments by retention, records by DeleteRecords, expired producers.

`segments_to_delete` decides without I/O: before the log's start, by size, and by age. Rules as in
`UnifiedLog.deleteOldSegments`: the oldest segments first, never after the high watermark, never an empty last
segment. Before the active segment is deleted, the log rolls; the log's start alone never deletes it. The
three rules apply in turn, each continues where the previous one stopped.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from odradek.storage.config import LogConfig
from odradek.storage.log.availability import PartitionState
from odradek.storage.log.log import Log
from odradek.storage.log.segment import Segment
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work


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


SEGMENTS_PER_STEP = 4
"""Segments per step: a few tenths of a millisecond of renaming."""


class Retention:
    """See the module."""

    __slots__ = ("_appender", "_availability", "_partition")

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition
        self._appender = partition.appender
        self._availability = partition.availability

    def maintaining(self, now_ms: int) -> Work[list[Segment]]:
        """Apply retention, a few segments per step. Returns the segments to remove from the disk later; if
        the work is closed before its end, the next start removes them.

        Old segments are often not in the system's memory: a worker loads the files that a step needs.
        """
        dropped: list[Segment] = []
        # In most calls no segment is due: the first one is enough to see that.
        count = 1
        try:
            while True:
                following = self._partition.log.segments[:count]
                if count > 1 or not following[0].indexes.knows_latest_timestamp:
                    yield partial(_preload, following)
                step = self._drop_oldest(now_ms, count)
                dropped += step
                if len(step) < count:
                    break
                count = SEGMENTS_PER_STEP
                yield None
        except OSError as error:
            # The next call continues with the remaining segments.
            sentence = f"Retention in {self._partition.log.files.directory} failed: {error}"
            self._partition.report_trouble(error, sentence)
        return dropped

    def _drop_oldest(self, now_ms: int, count_max: int) -> list[Segment]:
        """Rename the next segments that retention removes; returns none while batches are staged."""
        log, appender = self._partition.log, self._appender
        if log.has_staged or appender.failure is not None:
            return []
        count = segments_to_delete(
            _facts(log),
            log.config,
            segment_count=len(log.segments),
            log_bytes=log.size_bytes,
            now_ms=now_ms,
            log_start_offset=appender.log_start_offset,
            high_watermark=appender.high_watermark.offset,
            count_max=count_max,
        )
        if count == 0:
            return []
        dropped = log.drop_segments(count, now_ms)
        if log.segments[0].base_offset > appender.log_start_offset:
            self._start_at(log.segments[0].base_offset)
        return dropped

    def _start_at(self, offset: int) -> None:
        assert self._appender.log_start_offset <= offset <= self._appender.high_watermark.offset
        self._appender.log_start_offset = offset
        self._partition.log.leader_epochs.truncate_start(offset)
        self._appender.high_watermark.start_moved()

    def delete_records(self, offset: int) -> int:
        """Move the log start to `offset` (-1: the high watermark); returns the new log start.

        Whole segments before it are removed by the next retention. `Checkpointing.saving_starts` makes the
        new start durable. Refuses with OFFSET_OUT_OF_RANGE an offset after the high watermark, with
        POLICY_VIOLATION in topics that are only compacted.
        """
        self._availability.check_online()
        config, high_watermark = self._partition.log.config, self._appender.high_watermark.offset
        if config.is_compacted and not config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The cleanup.policy of {self._partition.name} does not include delete.",
            )
        if offset == -1:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in {self._partition.name}, which ends at {high_watermark}.",
            )
        if offset > self._appender.log_start_offset:
            self._start_at(offset)
        return self._appender.log_start_offset

    def follow_start(self, offset: int) -> int:
        """Move the log start to the leader's log start, at most to the high watermark; returns the new log
        start. It never goes back. Otherwise as `delete_records`.

        Kafka's follower fails for good if its leader's start is after its own high watermark. That happens
        for a moment when records are deleted while the leader answers a fetch; here the next response
        continues.
        """
        self._availability.check_online()
        offset = min(offset, self._appender.high_watermark.offset)
        if offset > self._appender.log_start_offset:
            self._start_at(offset)
        return self._appender.log_start_offset

    def expire_producers(self, now_ms: int, expiration_ms: int) -> bool:
        """Remove producers without a batch for `expiration_ms`; False, without a change, while batches are
        staged.
        """
        if self._partition.log.has_staged:
            return False
        self._partition.log.producers.expire(now_ms, expiration_ms)
        return True


def _facts(log: Log) -> Iterator[SegmentFacts]:
    """The facts of the segments, oldest first: each may be read from the disk."""
    ends = [*log.bases[1:], log.log_end_offset]
    for segment, end in zip(log.segments, ends, strict=True):
        yield SegmentFacts(segment.base_offset, end, segment.size_bytes, segment.retention_timestamp_ms())


def _preload(segments: list[Segment]) -> None:
    for segment in segments:
        segment.preload_for_retention()
