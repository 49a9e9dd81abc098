"""Compaction: which log is due, how far, and putting cleaned segments in the place of the old ones.

What is cleaned is the sealed part of a log; the active segment is never touched, nor what transactions have
not decided yet. The work itself, reading and writing, is `run.cleaning_round`, which may run
anywhere; here is what the owner of the log does: `plan_log` decides, `Cleaning` holds on to what a round
was planned on, and `Cleaning.swapping` puts a group of cleaned segments in place as soon as it is ready, as
Kafka does: a log never needs room for more than one group twice.

A round that meets a log which has lost one of its segments meanwhile (retention, deletion) comes to nothing.
Rules as in `LogCleanerManager.java` and `LogCleaner.java`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import TYPE_CHECKING, NamedTuple

from odradek.storage.compaction.run import CleanedGroup, CleaningJob, JobSegment, Round, cleaning_round
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.directories.data_directory import NO_ROOM
from odradek.storage.disk import read_file
from odradek.storage.log.batches import HEADER_BYTES
from odradek.storage.log.log import Log, first_timestamp
from odradek.storage.log.segment import LOG, TRANSACTION_INDEX, Segment
from odradek.storage.log.transaction_index import AbortedTransaction, decode_aborted
from odradek.wire.errors import KafkaError
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log.partition import Partition


class CleanableSegment(NamedTuple):
    """A sealed segment as the plan sees it. `end_offset` is the next segment's base offset."""

    base_offset: int
    end_offset: int
    size_bytes: int


@dataclass(slots=True, frozen=True)
class Plan:
    """Clean from the log's start up to `end_offset` (a segment's end); what is before `first_dirty` is
    known clean. `overdue_ms`: for how long `max.compaction.lag.ms` has been over, else 0.
    """

    first_dirty: int
    end_offset: int
    dirty_ratio: float
    overdue_ms: int = 0


@dataclass(slots=True, frozen=True, kw_only=True)
class CleanerSettings:
    """What one round may use: `log.cleaner.dedupe.buffer.size` and the others, divided by
    `log.cleaner.threads`.
    """

    memory_bytes: int = 134_217_728
    load_factor: float = 0.9
    buffer_bytes: int = 262_144


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
) -> Plan | None:
    """Whether a log should be compacted, and how far. `segments` are the sealed ones, oldest first; the two
    functions tell timestamps of the segment at a place in that list and are asked only where a setting needs
    them.

    A segment is left alone, with all after it, while one of its records is not stable or, in the dirty part,
    younger than `min.compaction.lag.ms`. The log is due when the dirty part has more than
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
    if ratio <= config.min_cleanable_dirty_ratio and not overdue_ms:
        return None
    return Plan(first_dirty, segments[stop - 1].end_offset, ratio, overdue_ms)


def plan_log(
    log: Log, *, first_dirty: int, log_start_offset: int, last_stable_offset: int, now_ms: int
) -> Plan | None:
    """`plan_cleaning` for a log. Raises `OSError` where a timestamp has to be read and cannot be."""
    sealed = log.segments[:-1]

    def latest_timestamp_of(place: int) -> int:
        return sealed[place].retention_timestamp_ms()

    def first_timestamp_of(place: int) -> int:
        segment = sealed[place]
        if segment.first_timestamp_ms is None:
            segment.first_timestamp_ms = first_timestamp(segment)
        return segment.first_timestamp_ms

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
    )


def unread_of_plan(log: Log, first_dirty: int) -> list[Segment]:
    """The segments of which `plan_log` may have to ask the disk when they were written."""
    config = log.config
    wants_latest, wants_first = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < LONG_MAX
    if not config.is_compacted or not (wants_latest or wants_first):
        return []
    return [
        segment
        for segment, end_offset in zip(log.segments, log.bases[1:], strict=False)
        if end_offset > first_dirty
        and (
            (wants_latest and not segment.knows_latest_timestamp)
            or (wants_first and segment.first_timestamp_ms is None)
        )
    ]


def _look_ahead(segments: list[Segment]) -> None:
    """In a worker thread: what `plan_log` asks for is in memory then."""
    for segment in segments:
        segment.look_ahead()
        try:
            segment.load(0, HEADER_BYTES)
        except OSError:
            # Whoever needs it will know.
            pass


class Cleaning:
    """One round over one log: what it was planned on, and the way of its results into the log."""

    def __init__(
        self,
        partition: "Partition",
        plan: Plan,
        *,
        now_ms: int,
        token: str,
        settings: CleanerSettings | None = None,
        aborted: Sequence[AbortedTransaction] | None = None,
    ) -> None:
        """`token` makes the names of new files unique. `aborted` are the log's aborted transactions, by
        default what the `.txnindex` files say. Raises `OSError`, and `KafkaError` where one of those is
        damaged.
        """
        log = partition.log
        self.partition = partition
        self._log = log
        self._directory = log.directory
        self._swapped: set[int] = set()
        self._segments = {one.base_offset: one for one in log.segments if one.base_offset < plan.end_offset}
        self.job = _job_of(
            log,
            plan,
            list(self._segments.values()),
            aborted=_aborted_of(log, plan.end_offset) if aborted is None else tuple(aborted),
            now_ms=now_ms,
            token=token,
            settings=settings or CleanerSettings(),
        )

    @property
    def is_intact(self) -> bool:
        """Whether the log is what the round was planned on, save for what itself has put in place."""
        return self.is_current([base for base in self._segments if base not in self._swapped])

    def is_current(self, old_bases: Sequence[int]) -> bool:
        """Whether the log still has the segments that these were. One that was read anew has others, and has
        taken what was being cleaned for the rest of a crash.
        """
        if self.partition.log is not self._log or self._log.directory != self._directory:
            return False
        present = {segment.base_offset: segment for segment in self._log.segments}
        return all(present.get(base) is self._segments[base] for base in old_bases)

    def swapping(self, group: CleanedGroup) -> Work[list[Segment]]:
        """Put a group in place; returns the segments that it replaces, to be removed when nobody reads them
        any more. None of them when the log is not what it was: then the new files are gone.

        Raises `OSError`; the log's files are then not what the log believes.
        """
        log = self._log
        cleaned = Segment(
            log.pool, self._directory, group.base_offset, group.size_bytes, self.job.now_ms, self.job.suffix
        )
        cleaned.max_timestamp_ms = group.max_timestamp_ms
        cleaned.max_timestamp_offset = group.max_timestamp_offset
        if not self.is_current(group.old_bases):
            cleaned.remove()
            return []
        if not self._is_whole(cleaned):
            # Somebody has removed it, and it must not take the place of what is there.
            return []
        old = [self._segments[base] for base in group.old_bases]
        replaced = yield from log.replacing_segments(old, cleaned, lambda: self.is_current(group.old_bases))
        self._swapped |= {segment.base_offset for segment in replaced}
        return replaced

    def _is_whole(self, cleaned: Segment) -> bool:
        path = cleaned.path(LOG)
        return self._log.disk.exists(path) and self._log.disk.size(path) == cleaned.size_bytes

    def remove_files(self) -> None:
        """Remove what a round that came to nothing has left behind. May run in a worker thread. Raises
        `OSError`.
        """
        disk = self._log.disk
        for name in disk.list(self._directory):
            if name.endswith(self.job.suffix):
                disk.remove(f"{self._directory}/{name}")


def _job_of(
    log: Log,
    plan: Plan,
    segments: list[Segment],
    *,
    aborted: tuple[AbortedTransaction, ...],
    now_ms: int,
    token: str,
    settings: CleanerSettings,
) -> CleaningJob:
    config = log.config
    ends = [*log.bases[1 : len(segments)], plan.end_offset]
    return CleaningJob(
        directory=log.directory,
        segments=tuple(
            JobSegment(segment.base_offset, end, segment.size_bytes)
            for segment, end in zip(segments, ends, strict=True)
        ),
        first_dirty=plan.first_dirty,
        end_offset=plan.end_offset,
        now_ms=now_ms,
        token=token,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        producers=tuple(
            (producer_id, entry.producer_epoch, entry.last_data_offset)
            for producer_id, entry in log.producers.producers.items()
        ),
        aborted=aborted,
        memory_bytes=settings.memory_bytes,
        load_factor=settings.load_factor,
        buffer_bytes=settings.buffer_bytes,
    )


def _aborted_of(log: Log, end_offset: int) -> tuple[AbortedTransaction, ...]:
    """Every aborted transaction that begins before `end_offset`, wherever its marker is."""
    disk = log.disk
    found: list[AbortedTransaction] = []
    for name in disk.list(log.directory):
        if name.endswith(TRANSACTION_INDEX):
            entries = decode_aborted(read_file(disk, f"{log.directory}/{name}"))
            found += (one for one in entries if one.first_offset < end_offset)
    return tuple(found)


class Cleaner:
    """What compaction a store wants: which round is next, those that are under way, and which partitions are
    beyond it. The store's thread owns it; the rounds themselves (`run`) run where there is time.

    A round goes `next_round` > `swap` for each group > `finish`, or at any point `abandon`, and `judge` where
    it had failed. A partition has one round at a time.
    """

    def __init__(self, store: "LogStore") -> None:
        self._store = store
        self._under_way: set[Partition] = set()
        self._uncleanable: dict[Partition, str] = {}
        self._own: tuple[Cleaning, Round] | None = None
        self.on_uncleanable: Callable[[str, str], None] = _not_told
        """Called with the name of a partition that is left alone from now on, and the reason."""

    def next_round(self, now_ms: int, settings: CleanerSettings | None = None) -> "Work[Cleaning | None]":
        """Begin a round over the dirtiest log that is due; None when none is."""
        store = self._store
        self._forget_gone()
        plans = []
        for partition in store.loaded():
            if partition in self._under_way or partition in self._uncleanable:
                continue
            unread = unread_of_plan(partition.log, store.first_dirty_of(partition))
            if unread:
                yield partial(_look_ahead, unread)
                if not partition.is_available or not store.is_held(partition):
                    continue
            try:
                plan = partition.plan_cleaning(now_ms, store.first_dirty_of(partition))
            except OSError:
                # Who reads or writes it hears of it.
                continue
            if plan is not None:
                plans.append((plan.dirty_ratio, partition, plan))
            yield None
        for _, partition, plan in sorted(plans, key=lambda one: one[0], reverse=True):
            try:
                is_safe = yield from store.vouching_for(partition, plan.end_offset)
            except OSError:
                continue
            if not is_safe or not partition.is_available or not store.is_held(partition):
                continue
            try:
                begun = Cleaning(partition, plan, now_ms=now_ms, token=store.new_token(), settings=settings)
            except (OSError, KafkaError) as error:
                self._leave_alone(partition, _reason_of(error))
                continue
            self._under_way.add(partition)
            return begun
        return None

    def swap(self, cleaning: "Cleaning", group: CleanedGroup, now_ms: int) -> Work[bool]:
        """Put what a round has cleaned in place; False when the log is not what it was, and the round is to
        be abandoned.
        """
        partition = cleaning.partition
        if not self._store.is_held(partition) or not partition.is_available:
            return False
        try:
            replaced = yield from cleaning.swapping(group)
        except OSError as error:
            partition.take_offline(f"replacing its segments failed: {error}")
            return False
        self._store.remove_later(replaced, now_ms + partition.config.file_delete_delay_ms)
        return len(replaced) == len(group.old_bases)

    def finish(self, cleaning: "Cleaning", first_dirty: int) -> Work[None]:
        """The round is over and all its groups are in place: note how far the log is clean."""
        self._under_way.discard(cleaning.partition)
        if not self._store.is_held(cleaning.partition):
            return
        try:
            yield from self._store.noting_first_dirty(cleaning.partition, first_dirty)
        except OSError:
            # It is written with the others again; without it the next round does more than it needs to.
            pass

    def abandon(self, cleaning: "Cleaning") -> Work[None]:
        """Nobody works at the round any more: remove what it has left behind. The log is clean as far as it
        was.
        """
        try:
            yield cleaning.remove_files
        except OSError:
            # What stays behind goes at the next start.
            pass
        self._under_way.discard(cleaning.partition)

    def judge(self, cleaning: "Cleaning", reason: str, error_number: int | None = None) -> bool:
        """A round has failed for `reason`, `error_number` if that was an OSError: whether its partition is
        left alone from now on, until the next start. Not when the disk was full, the partition is offline or
        the log has changed since the round was planned: the next round may do better.
        """
        partition = cleaning.partition
        if error_number in NO_ROOM or not self._store.is_held(partition) or not partition.is_available:
            return False
        if not cleaning.is_intact:
            return False
        self._leave_alone(partition, reason)
        return True

    def _leave_alone(self, partition: "Partition", reason: str) -> None:
        self._uncleanable[partition] = reason
        self.on_uncleanable(partition.name, reason)

    def uncleanable(self) -> dict[tuple[str, int], str]:
        """(topic, partition) of those whose compaction failed and is not tried again until the next start,
        and why.
        """
        self._forget_gone()
        return {(one.topic, one.index): reason for one, reason in self._uncleanable.items()}

    def _forget_gone(self) -> None:
        for partition in [one for one in self._uncleanable if not self._store.is_held(one)]:
            del self._uncleanable[partition]

    def step(self, now_ms: int, budget_bytes: int) -> bool:
        """Work at a round here and now, for some bytes; True while there is more to do. A failure counts as
        in `judge`.
        """
        if self._own is None:
            begun = finish(self.next_round(now_ms, CleanerSettings(buffer_bytes=budget_bytes)))
            if begun is None:
                return False
            self._own = (begun, cleaning_round(self._store.disk, begun.job, urandom(16)))
        begun, work = self._own
        moved_bytes = 0
        try:
            while moved_bytes < budget_bytes:
                event = next(work)
                if not isinstance(event, CleanedGroup):
                    moved_bytes += event
                elif not finish(self.swap(begun, event, now_ms)):
                    self._end_own()
                    return True
        except StopIteration as end:
            self._own = None
            finish(self.finish(begun, end.value.first_dirty))
        except (OSError, KafkaError) as error:
            self._end_own()
            self.judge(begun, _reason_of(error), getattr(error, "errno", None))
            return False
        return True

    def close(self) -> None:
        """Leave the round that `step` is at."""
        if self._own is not None:
            self._end_own()

    def _end_own(self) -> None:
        assert self._own is not None
        begun, work = self._own
        self._own = None
        work.close()
        finish(self.abandon(begun))


def _not_told(name: str, reason: str) -> None:
    pass


def _reason_of(error: Exception) -> str:
    return getattr(error, "message", None) or str(error)
