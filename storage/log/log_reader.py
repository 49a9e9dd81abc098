"""Reading a log: finds the slice of a segment file for an offset or a timestamp."""

from bisect import bisect_left
from operator import attrgetter

from odradek.storage.log._staging import AppendBuffer
from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.log_files import LogFiles
from odradek.storage.log.segment import Segment, segment_holding
from odradek.storage.log.segment_file import SegmentFile
from odradek.storage.log.slices import EMPTY, FIRST_TOO_LARGE, Slice
from odradek.wire.work import Work

_base_offset_of = attrgetter("base_offset")


class LogReader:
    """See the module. Caches positions that many readers need."""

    __slots__ = ("_bases", "_buffer", "_last_end", "_segments", "_with_aborted")

    def __init__(self, files: LogFiles, buffer: AppendBuffer) -> None:
        self._segments = files.segments
        self._bases = files.bases
        self._buffer = buffer
        # The segments with a transaction index, oldest first; None: to be computed again after a change.
        self._with_aborted: list[Segment] | None = None
        # The last result of `_position_of`: (segment, end offset, position).
        self._last_end: tuple[Segment, int, int] | None = None

    def segments_changed(self) -> None:
        """Clear the caches after segments were removed or replaced."""
        self._buffer.hints.clear()
        self._buffer.older_hints.clear()
        self._with_aborted = None
        self._last_end = None

    def transaction_index_added(self) -> None:
        self._with_aborted = None

    def locate(self, offset: int, prompt: bool = False) -> tuple[Segment, int, int] | None:
        """Segment, position and size of the first batch that ends at or after `offset`; None if there is
        none.

        The size is 0 if the batch was found without a read.
        """
        hint = self._buffer.hints.get(offset) or self._buffer.older_hints.get(offset)
        if hint is not None:
            return *hint, 0
        # Not a slice of the list, which would copy it for a long log.
        for place in range(max(segment_holding(self._bases, offset), 0), len(self._segments)):
            segment = self._segments[place]
            found = segment.find(offset, prompt)
            if found is not None:
                return segment, *found
        return None

    def read(
        self,
        offset: int,
        end_offset: int,
        max_bytes: int,
        minimum_one_batch: bool,
        cut_first_batch: bool,
        prompt: bool = False,
    ) -> Slice:
        """Up to `max_bytes` of one segment, from the batch that holds `offset` to before `end_offset`.

        As `LogSegment.read`: the result is cut at the limit, also within a batch. Only the first batch is not
        cut, unless `cut_first_batch` is set: a larger one is returned whole or not at all.
        """
        if offset >= end_offset:
            return EMPTY
        found = self.locate(offset, prompt)
        if found is None:
            return EMPTY
        segment, position, first_bytes = found
        extent = segment.extent
        end = extent.size_bytes
        if end_offset < self._buffer.log_end_offset:
            end = min(end, self._position_of(segment, end_offset, prompt))
        if position >= end:
            return EMPTY
        if position + max_bytes < end:
            if max_bytes == 0 and not minimum_one_batch:
                return EMPTY
            first_bytes = first_bytes or segment.batch_bytes(position, prompt)
            if max_bytes >= first_bytes or cut_first_batch:
                end = position + max_bytes
            elif minimum_one_batch:
                end = position + first_bytes
            else:
                return FIRST_TOO_LARGE
        if position < extent.inherited_bytes:
            end = min(end, segment.inherited.sound_until(position, end, prompt))
        return Slice(segment.file, position, end - position)

    def _position_of(self, segment: Segment, end_offset: int, prompt: bool) -> int:
        """The end position of the batches before `end_offset` in a segment."""
        last = self._last_end
        if last is not None and last[0] is segment and last[1] == end_offset:
            # While a transaction is open, every READ_COMMITTED reader needs the same position.
            return last[2]
        found = segment.find(end_offset, prompt)
        position = segment.size_bytes if found is None else found[0]
        self._last_end = (segment, end_offset, position)
        return position

    def aborted_in(self, offset: int, records: Slice, prompt: bool = False) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions in `records`, which were read for `offset`,
        in the order of their markers. As in Kafka (`LocalLog.addAbortedTransactions`), also later
        transactions that begin before the next entry of the offset index.
        """
        if self._with_aborted is None:
            self._with_aborted = [segment for segment in self._segments if segment.transactions.has_aborted()]
        if not self._with_aborted:
            return []
        assert isinstance(records.source, SegmentFile)
        place = segment_holding(self._bases, records.source.paths.base_offset)
        segment = self._segments[place]
        end_offset = segment.indexes.offset_bound(records.end_position, prompt)
        if end_offset is None:
            following = place + 1
            end_offset = (
                self._bases[following] if following < len(self._bases) else self._buffer.log_end_offset
            )
        found: list[tuple[int, int]] = []
        first = bisect_left(self._with_aborted, segment.base_offset, key=_base_offset_of)
        for place in range(first, len(self._with_aborted)):
            some, is_all = self._with_aborted[place].transactions.index.find(offset, end_offset)
            found += some
            if is_all:
                break
        return found

    def finding_timestamp(
        self, timestamp_ms: int, start_offset: int
    ) -> Work[tuple[Segment, StoredBatch] | None]:
        """The first batch that ends at or after `start_offset` and may hold a record of `timestamp_ms` or
        later.
        """
        # A copy: between the steps segments may be added or removed; removed ones can still be read for a
        # while.
        for segment in list(self._segments):
            yield None if segment.indexes.knows_latest_timestamp else segment.preload_for_retention
            if segment.indexes.latest_timestamp()[0] < timestamp_ms:
                continue
            if not segment.indexes.are_loaded:
                yield segment.indexes.preload
            position = segment.indexes.lookup(max(segment.indexes.lookup_time(timestamp_ms), start_offset))
            for batch in segment.stepping(position):
                if not isinstance(batch, StoredBatch):
                    yield batch
                    continue
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                    return segment, batch
                yield None
        return None
