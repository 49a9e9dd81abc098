"""Compaction: of every key the latest record stays, in its place and with its offset.

What is cleaned is the sealed part of a log; the active segment is never touched. One round reads the dirty
part (what no round has seen yet) into a bounded map from key to latest offset, then copies all segments up to
the end of that part, without the records that the map outdates, into `.cleaned` files, which replace the old
ones by way of `.swap` (`recovery.finish_interrupted` knows both). Rules as in `LogCleaner` and `Cleaner`:

- a tombstone stays for `delete.retention.ms` after the round that first sees it; that moment is written into
its batch as the delete horizon (KIP-534); - the batch with a producer's last sequence number stays, without
records if need be, and so does the round's last; - a batch that keeps all its records is copied as the same
bytes.

`Cleaning.step` does a bounded amount of work and uses no file of the log's own, so it may run in a worker
thread; `Cleaning.finish` belongs to the thread that owns the partition. Control batches are kept: there
are no transactions yet whose end could make them useless.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from odradek.storage.batches import CHECKED_FROM, StoredBatch, scan
from odradek.storage.config import CLEANING_STEP_BYTES, LONG_MAX, LogConfig
from odradek.storage.disk import File, write_all
from odradek.storage.log import Log
from odradek.storage.segment import CLEANED, LOG, RELATIVE_OFFSET_MAX, Segment
from odradek.wire.checksums import crc32c
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import BatchHeader, Record, build_batch, iter_records, read_batch_header

MAP_ENTRIES_MAX = 500_000
"""About 100 MB at the most, near Kafka's default `log.cleaner.dedupe.buffer.size`."""
_DIGEST_BYTES = 16


@dataclass(slots=True, frozen=True)
class CleanableSegment:
    """What the plan looks at. `end_offset` is the next segment's base offset."""

    base_offset: int
    end_offset: int
    size_bytes: int
    timestamp_ms: int


@dataclass(slots=True, frozen=True)
class Plan:
    """Clean from the log's start up to `end_offset` (a segment's end); what is before `first_dirty` is
    known clean.
    """

    first_dirty: int
    end_offset: int
    dirty_ratio: float


def plan_cleaning(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    *,
    first_dirty: int,
    last_stable_offset: int,
    now_ms: int,
) -> Plan | None:
    """Whether a log should be compacted, and how far. `segments` are the sealed ones, oldest first.

    A segment is left alone, with all after it, while its records are younger than `min.compaction.lag.ms`
    or not stable. The log is due when the dirty part has `min.cleanable.dirty.ratio` of the bytes, or has
    waited for `max.compaction.lag.ms`.
    """
    cleanable = []
    for segment in segments:
        too_young = (
            config.min_compaction_lag_ms > 0 and segment.timestamp_ms > now_ms - config.min_compaction_lag_ms
        )
        if too_young or segment.end_offset > last_stable_offset:
            break
        cleanable.append(segment)
    if not cleanable or cleanable[-1].end_offset <= first_dirty:
        return None
    if not cleanable[0].base_offset <= first_dirty:
        first_dirty = cleanable[0].base_offset
    dirty = [segment for segment in cleanable if segment.end_offset > first_dirty]
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    if dirty_bytes == 0:
        return None
    ratio = dirty_bytes / sum(segment.size_bytes for segment in cleanable)
    overdue = config.max_compaction_lag_ms < LONG_MAX and (
        now_ms - dirty[0].timestamp_ms > config.max_compaction_lag_ms
    )
    if ratio < config.min_cleanable_dirty_ratio and not overdue:
        return None
    return Plan(first_dirty, cleanable[-1].end_offset, ratio)


def group_segments(segments: Sequence[Segment], config: LogConfig, end_offset: int) -> list[list[Segment]]:
    """Neighbours that fit into one segment together, by size and by the reach of relative offsets."""
    groups: list[list[Segment]] = []
    size_bytes = 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, end in zip(segments, ends, strict=True):
        fits = (
            groups
            and size_bytes + segment.size_bytes <= config.segment_bytes
            and end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
            size_bytes += segment.size_bytes
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    return groups


class OffsetMap:
    """The latest offset of each key in the dirty part, up to `end_offset`."""

    __slots__ = ("_offsets", "end_offset", "entries_max")

    def __init__(self, entries_max: int) -> None:
        self.entries_max = entries_max
        self.end_offset = -1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_name_of(key)] = offset

    def has_room_for(self, record_count: int) -> bool:
        return len(self._offsets) + record_count <= self.entries_max

    def outdates(self, record: Record) -> bool:
        """Whether a later record has the same key. Records without a key have no place in a compacted log."""
        if record.key is None:
            return True
        return self._offsets.get(_name_of(record.key), -1) > record.offset


def _name_of(key: bytes) -> bytes:
    """Short keys stand for themselves; a digest is longer than any of them, so the two cannot be confused."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


@dataclass(slots=True)
class CleaningStatistics:
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0


class Cleaning:
    """One round over one log: `step` until it says True, then `finish`."""

    def __init__(self, log: Log, plan: Plan, *, now_ms: int, map_entries_max: int = MAP_ENTRIES_MAX) -> None:
        self.log = log
        self.plan = plan
        self.statistics = CleaningStatistics()
        self.first_dirty = plan.first_dirty
        """How far the log is clean once the round is finished."""
        self._now_ms = now_ms
        self._config = log.config
        self._map = OffsetMap(map_entries_max)
        self._last_offsets = set(log.producers.last_offsets().values())
        self._segments = [segment for segment in log.segments if segment.base_offset < plan.end_offset]
        self._bases = list(log.bases)
        self._replaced: list[tuple[list[Segment], Segment]] = []
        self._made: Segment | None = None
        self._work = self._run()

    def step(self, budget_bytes: int = CLEANING_STEP_BYTES) -> bool:
        """Go on until `budget_bytes` more have been read; True when only `finish` is left."""
        goal = self.statistics.bytes_read + budget_bytes
        try:
            for _ in self._work:
                if self.statistics.bytes_read >= goal:
                    return False
        except BaseException:
            self.abandon()
            raise
        return True

    def abandon(self) -> None:
        """Remove what was written; the log is as it was."""
        self._work.close()
        made = [cleaned for _, cleaned in self._replaced]
        if self._made is not None:
            made.append(self._made)
        for segment in made:
            try:
                segment.remove()
            except OSError:
                # A `.cleaned` file that stays behind goes at the next start.
                pass
        self._replaced.clear()
        self._made = None

    def finish(self) -> list[Segment]:
        """Put the cleaned segments in place; returns the old ones, to be removed when nobody reads them any
        more.

        When the log has lost one of its old segments meanwhile (retention, deletion), the round is
        abandoned.
        """
        present = set(map(id, self.log.segments))
        if any(id(segment) not in present for old, _ in self._replaced for segment in old):
            self.abandon()
            return []
        replaced: list[Segment] = []
        while self._replaced:
            old, cleaned = self._replaced.pop(0)
            self.log.replace_segments(old, cleaned)
            replaced += old
        self.first_dirty = self._map.end_offset
        return replaced

    # The round, a batch at a time

    def _run(self) -> Generator[None, None, None]:
        yield from self._read_dirty()
        covered = [segment for segment in self._segments if segment.base_offset < self._map.end_offset]
        # There is a segment after these: the active one, at least.
        end_offset = self._bases[len(covered)]
        for group in group_segments(covered, self._config, end_offset):
            yield from self._clean_group(group)

    def _read_dirty(self) -> Iterator[None]:
        """Fill the map, up to the plan's end or its own; in the latter case the round ends before that
        batch.
        """
        self._map.end_offset = self.plan.end_offset
        for segment in self._segments:
            for batch, data in self._batches_of(segment):
                if batch.last_offset < self.plan.first_dirty:
                    continue
                # A first batch goes in at any rate: else a round might get nowhere.
                if len(self._map) and not self._map.has_room_for(batch.record_count):
                    self._map.end_offset = batch.base_offset
                    return
                if not batch.is_control:
                    for record in iter_records(data):
                        if record.key is not None:
                            self._map.put(record.key, record.offset)
                yield

    def _batches_of(self, segment: Segment) -> Iterator[tuple[StoredBatch, memoryview]]:
        """The batches of a sealed segment, through a file of our own."""
        file = segment.pool.disk.open(segment.path(LOG))
        try:
            end = 0
            for batch in scan(file.read, 0, segment.size_bytes):
                self.statistics.bytes_read += batch.size_bytes
                data = memoryview(file.read(batch.position, batch.size_bytes))
                if crc32c(data[CHECKED_FROM:]) != batch.crc:
                    break
                end = batch.end_position
                yield batch, data
            if end < segment.size_bytes:
                # Written anew it would get a checksum that is right.
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"{segment.path(LOG)} is damaged at position {end}."
                )
        finally:
            file.close()

    def _clean_group(self, group: list[Segment]) -> Iterator[None]:
        """Copy what stays of some segments into a new one."""
        first = group[0]
        disk = first.pool.disk
        cleaned = self._made = Segment(
            first.pool, first.directory, first.base_offset, 0, self._now_ms, CLEANED
        )
        cleaned.reset_indexes()
        file = disk.open(cleaned.path(LOG), create=True)
        try:
            file.truncate(0)
            for segment in group:
                for batch, data in self._batches_of(segment):
                    kept = self._filtered(batch, data)
                    if kept is not None:
                        self._append(file, cleaned, kept)
                    yield
            cleaned.seal()
            file.sync()
        finally:
            file.close()
        cleaned.save_indexes(sync=True)
        disk.set_modified_ms(cleaned.path(LOG), disk.modified_ms(group[-1].path(LOG)))
        self._made = None
        self._replaced.append((group, cleaned))

    def _append(self, file: File, cleaned: Segment, data: memoryview) -> None:
        write_all(file, cleaned.size_bytes, [data], len(data))
        (batch,) = scan(lambda position, size: bytes(data[:size]), 0, len(data))
        cleaned.index_batch(batch._replace(position=cleaned.size_bytes), self._config.index_interval_bytes)
        cleaned.size_bytes += len(data)
        self.statistics.bytes_written += len(data)

    def _filtered(self, batch: StoredBatch, data: memoryview) -> memoryview | None:
        """What stays of a batch: itself, a smaller one, or None."""
        end_offset = self._map.end_offset
        if batch.base_offset >= end_offset or batch.is_control:
            return data
        header = read_batch_header(data)
        records = list(iter_records(data, header))
        horizon_ms = header.delete_horizon_ms
        kept = [record for record in records if self._stays(record, horizon_ms)]
        self.statistics.records_read += len(records)
        self.statistics.records_kept += len(kept)
        if not kept:
            is_last = batch.last_offset + 1 == end_offset
            of_producer = batch.producer_id >= 0 and batch.last_offset in self._last_offsets
            if not is_last and not of_producer:
                return None
            return data if not records else _rebuilt(header, [], None)
        if horizon_ms is None and any(record.value is None for record in kept):
            horizon_ms = self._now_ms + self._config.delete_retention_ms
        elif len(kept) == len(records):
            return data
        return _rebuilt(header, kept, horizon_ms)

    def _stays(self, record: Record, horizon_ms: int | None) -> bool:
        if self._map.outdates(record):
            return False
        return record.value is not None or horizon_ms is None or self._now_ms < horizon_ms


def _rebuilt(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> memoryview:
    """The batch with fewer records, but the same offsets, sequence numbers and kind."""
    return memoryview(
        build_batch(
            records,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            compression=header.compression,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            leader_epoch=header.leader_epoch,
            log_append_time_ms=header.max_timestamp if header.uses_log_append_time else None,
            delete_horizon_ms=horizon_ms,
            max_timestamp=None if records else header.max_timestamp,
        )
    )
