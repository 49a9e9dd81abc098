"""Staging: the batches of a log before the commit, and the decision to roll."""

from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.disk import Buffer
from odradek.storage.log._staging import AppendBuffer, StagedSegment
from odradek.storage.log.batches import scan
from odradek.storage.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_files import LogFiles
from odradek.storage.log.producer_state import ProducerState, encode_snapshot
from odradek.storage.log.segment import RELATIVE_OFFSET_MAX, Segment
from odradek.storage.log.transactions import read_marker
from odradek.wire._records import BatchHeader
from odradek.wire.checksums import crc32c
from odradek.wire.end_marker import EndMarker
from odradek.wire.record_layout import HEADER_SIZE_BYTES


class Staging:
    """See the module. The staged batches are in the buffer; `Log` commits them or takes them back."""

    __slots__ = (
        "_buffer",
        "_config",
        "_files",
        "_jitter_ms",
        "_leader_epochs",
        "_offset_entries_max",
        "_producers",
        "_time_entries_max",
    )

    def __init__(
        self,
        files: LogFiles,
        buffer: AppendBuffer,
        producers: ProducerState,
        leader_epochs: LeaderEpochs,
        config: LogConfig,
    ) -> None:
        self._files = files
        self._buffer = buffer
        self._producers = producers
        self._leader_epochs = leader_epochs
        self._take_config(config)
        buffer.stage = self.new_stage(files.active)

    def set_config(self, config: LogConfig) -> None:
        """Use new settings, for later segments and the rolling of the current one."""
        offsets_max, times_max = self._offset_entries_max, self._time_entries_max
        self._take_config(config)
        stage = self._buffer.stage
        stage.roll_after_ms = -2
        # The room in the indexes is not counted again: the index may not be in memory, and very many logs
        # change at once.
        stage.index_room += min(self._offset_entries_max - offsets_max, self._time_entries_max - times_max)
        self._jitter_ms = self._jitter_of(stage.segment.base_offset)

    def _take_config(self, config: LogConfig) -> None:
        self._config = config
        self._buffer.segment_bytes = config.segment_bytes
        self._buffer.index_interval_bytes = config.index_interval_bytes
        self._offset_entries_max = config.segment_index_bytes // OFFSET_ENTRY_BYTES
        # One entry is kept for the one that sealing adds (as in `TimeIndex.isFull`).
        self._time_entries_max = config.segment_index_bytes // TIME_ENTRY_BYTES - 1

    def stage(
        self,
        batch: Buffer,
        header: BatchHeader,
        first_offset: int,
        leader_epoch: int,
        now_ms: int,
        marker: EndMarker | None = None,
    ) -> None:
        """Stage one batch, at `next_offset` or later, and record it for its producer; `marker` if it is a
        known marker. A large batch must not change until the commit.
        """
        buffer = self._buffer
        size_bytes, max_timestamp = header.size_bytes, header.max_timestamp
        last_offset = first_offset + header.last_offset_delta
        if not buffer.has_room(size_bytes, last_offset, max_timestamp):
            self._make_room(size_bytes, first_offset, last_offset, max_timestamp, now_ms)
        buffer.put(batch, first_offset, last_offset, max_timestamp, leader_epoch)
        producer_id = header.producer_id
        if producer_id < 0:
            return
        # After a possible roll, whose snapshot must not include this batch.
        if header.is_control:
            marker = read_marker(memoryview(batch), header) if marker is None else marker
            aborted = (
                None if marker is None else self._producers.stage_marker(marker, first_offset, max_timestamp)
            )
            if aborted is not None:
                buffer.aborted.append((buffer.stage, aborted))
            return
        buffer.producers.stage(
            producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            first_offset,
            last_offset,
            max_timestamp,
            # Compaction leaves an empty batch of a transaction that has ended.
            header.is_transactional and header.record_count > 0,
        )

    def _make_room(
        self, size_bytes: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Roll if the newest segment cannot take the batch."""
        stage = self._buffer.stage
        is_too_far = last_offset - stage.base_offset > RELATIVE_OFFSET_MAX
        if is_too_far or (
            stage.size_bytes
            and (
                stage.size_bytes + size_bytes > self._buffer.segment_bytes
                or (stage.index_room <= 0 and self._indexes_are_full(stage))
                or (
                    max_timestamp > stage.roll_after_ms
                    and self._waited_long_enough(stage, max_timestamp, now_ms)
                )
            )
        ):
            # The segment begins after the last offset, even if a leader's batch begins later: a start after a
            # crash takes missing offsets between two segments for a loss, and within a segment for
            # compaction.
            next_offset = self._buffer.next_offset
            is_within_reach = last_offset - next_offset <= RELATIVE_OFFSET_MAX
            stage = self._stage_roll(next_offset if is_within_reach else first_offset, now_ms)
        if stage.size_bytes == 0:
            stage.first_timestamp_ms = max_timestamp
            stage.roll_after_ms = -2

    def new_stage(self, segment: Segment) -> StagedSegment:
        self._buffer.latest_epoch = self._leader_epochs.latest
        self._jitter_ms = self._jitter_of(segment.base_offset)
        return StagedSegment(segment, self._index_room(segment, []))

    def _index_room(self, segment: Segment, staged: list[tuple[int, int, int, int]]) -> int:
        """The number of entries that fit into both indexes, besides the staged ones."""
        try:
            offsets, times = segment.indexes.offset_index, segment.indexes.time_index
        except OSError:
            # A rollback must not fail on this error; an unreadable index does not grow either.
            return self._offset_entries_max
        time_count = len(times)
        latest = times.last()[0]
        for _, _, timestamp_ms, _ in staged:
            if timestamp_ms > latest:
                time_count, latest = time_count + 1, timestamp_ms
        return min(self._offset_entries_max - len(offsets) - len(staged), self._time_entries_max - time_count)

    def _indexes_are_full(self, stage: StagedSegment) -> bool:
        """Counts again: an entry that does not advance the time takes no room in the time index."""
        stage.index_room = self._index_room(stage.segment, stage.index_entries)
        return stage.index_room <= 0

    def _jitter_of(self, base_offset: int) -> int:
        """`segment.jitter.ms` spreads the rolling of partitions; a hash makes it repeatable."""
        spread = min(self._config.segment_jitter_ms, self._config.roll_ms)
        return crc32c(f"{self._files.directory}/{base_offset}".encode()) % spread if spread > 0 else 0

    def _waited_long_enough(self, stage: StagedSegment, max_timestamp_ms: int, now_ms: int) -> bool:
        """Compare the timestamps of the records, without them the clock (`LogSegment.timeWaitedForRoll`)."""
        first = stage.first_timestamp_ms
        if first is None:
            try:
                first = stage.first_timestamp_ms = first_timestamp(stage.segment)
            except OSError:
                # Staging must not fail: use the clock; the commit meets the error of the disk.
                first = -1
        patience_ms = self._config.roll_ms - self._jitter_ms
        if first < 0:
            created_ms: int = stage.segment.created_ms
            return now_ms - created_ms > patience_ms
        # `segment.ms` may be the largest int64, and the compiled field has 64 bits.
        stage.roll_after_ms = min(first + patience_ms, LONG_MAX)
        return max_timestamp_ms > stage.roll_after_ms

    def _stage_roll(self, base_offset: int, now_ms: int) -> StagedSegment:
        """Stage a new segment, which the commit will make."""
        files, stage = self._files, self._buffer.stage
        stage.snapshot = encode_snapshot(self._producers.producers)
        self._buffer.full_segments.append(stage)
        segment = Segment(files.pool, files.directory, base_offset, 0, now_ms)
        segment.indexes.reset()
        self._buffer.stage = StagedSegment(segment, self._index_room(segment, []))
        self._jitter_ms = self._jitter_of(base_offset)
        return self._buffer.stage


def first_timestamp(segment: Segment) -> int:
    """The latest timestamp of a segment's first batch, -1 if it has none."""
    for batch in scan(segment.file.read, 0, segment.size_bytes, window_bytes=HEADER_SIZE_BYTES):
        return batch.max_timestamp
    return -1
