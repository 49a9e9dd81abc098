"""What leaves a partition: segments by retention, records by DeleteRecords, silent producers."""

from functools import partial

from odradek.storage.log._staging import Appender
from odradek.storage.log.availability import Availability
from odradek.storage.log.log import Log
from odradek.storage.log.retention import segments_to_delete
from odradek.storage.log.segment import Segment
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

SEGMENTS_PER_STEP = 4
"""A few tenths of a millisecond of renaming."""


class Retention:
    """See the module. `log` may become another."""

    __slots__ = ("_appender", "_availability", "_name", "log")

    def __init__(self, name: str, log: Log, appender: Appender, availability: Availability) -> None:
        self._name = name
        self.log = log
        self._appender = appender
        self._availability = availability

    def maintaining(self, now_ms: int) -> Work[list[Segment]]:
        """Apply retention, a few segments at a step. Returns segments to remove from the disk in a while;
        where the work is closed before its end the next start finds them.

        Old segments have often left the system's memory: a worker reads what a step needs.
        """
        dropped: list[Segment] = []
        # Mostly there is none to go: the first one shows that.
        count = 1
        try:
            while True:
                following = self.log.segments[:count]
                if count > 1 or not following[0].indexes.knows_latest_timestamp:
                    yield partial(_preload, following)
                step = self._drop_oldest(now_ms, count)
                dropped += step
                if len(step) < count:
                    break
                count = SEGMENTS_PER_STEP
                yield None
        except OSError as error:
            # Next time it goes on with those that are left.
            sentence = f"Retention in {self.log.files.directory} failed: {error}"
            self._availability.on_trouble(error, sentence)
        return dropped

    def _drop_oldest(self, now_ms: int, count_max: int) -> list[Segment]:
        """The next segments that retention takes, renamed; none when something is staged."""
        log, appender = self.log, self._appender
        if log.has_staged or appender.failure is not None:
            return []
        count = segments_to_delete(
            log.files.facts(log.log_end_offset),
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
        self.log.leader_epochs.truncate_start(offset)

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset` (-1: the high watermark); returns where it starts now.

        Whole segments before it go with the next retention. The disk does not know of it yet:
        `Checkpointing.saving_starts`. Refuses with OFFSET_OUT_OF_RANGE what is after the high watermark, with
        POLICY_VIOLATION in topics that are compacted and no more.
        """
        self._availability.check_online()
        config, high_watermark = self.log.config, self._appender.high_watermark.offset
        if config.is_compacted and not config.is_deleted:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"The cleanup.policy of {self._name} has no delete.")
        if offset == -1:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._name} ends at {high_watermark}; {offset} is not in it.",
            )
        if offset > self._appender.log_start_offset:
            self._start_at(offset)
        return self._appender.log_start_offset

    def follow_start(self, offset: int) -> int:
        """Let the log start where that of its leader does, or at the high watermark if that is before it;
        returns where it starts now. No change where it starts later. As `delete_records` in all else.

        Kafka's follower fails for good where its leader's start is after its own high watermark. That is so
        for a moment when records are deleted while the leader answers a fetch: the next answer goes on.
        """
        self._availability.check_online()
        offset = min(offset, self._appender.high_watermark.offset)
        if offset > self._appender.log_start_offset:
            self._start_at(offset)
        return self._appender.log_start_offset

    def expire_producers(self, now_ms: int, expiration_ms: int) -> bool:
        """Forget producers that have been silent for so long; False while something is staged, which may be
        theirs.
        """
        if self.log.has_staged:
            return False
        self.log.producers.expire(now_ms, expiration_ms)
        return True


def _preload(segments: list[Segment]) -> None:
    for segment in segments:
        segment.preload_for_retention()
