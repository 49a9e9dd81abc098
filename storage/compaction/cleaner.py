"""Compaction of a store's logs: chooses the next round, and replaces old segments with cleaned ones.

`run.cleaning_round` reads and writes, and may run in any process. This module has the part of the log's
owner: `Cleaning` keeps the segments for which a round was planned (`plan.py`), and `Cleaning.swapping`
replaces each group as soon as its cleaned segment is ready, as Kafka does: at any time only one group needs
its space twice.

If the log loses one of these segments meanwhile (retention, deletion), the round is abandoned. Rules as in
`LogCleaner.java`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import Protocol

from odradek.storage.compaction.plan import Plan, plan_partition, preload, unread_of_plan
from odradek.storage.compaction.run import CleanedGroup, CleaningJob, JobSegment, Round, cleaning_round
from odradek.storage.config import CLEANING_STEP_BYTES
from odradek.storage.disk import NO_ROOM, Disk, read_file
from odradek.storage.log.log import Log
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import LOG, TRANSACTION_INDEX
from odradek.storage.log.transaction_index import AbortedTransaction, decode_aborted
from odradek.wire.errors import KafkaError
from odradek.wire.work import Work, finish


@dataclass(slots=True, frozen=True, kw_only=True)
class CleanerSettings:
    """Memory limits of one round: `log.cleaner.dedupe.buffer.size` and others, divided by
    `log.cleaner.threads`.
    """

    memory_bytes: int = 134_217_728
    load_factor: float = 0.9
    buffer_bytes: int = 262_144


class Cleaning:
    """One round over one log: its planned segments, and the replacement of segments in the log."""

    def __init__(
        self,
        partition: Partition,
        plan: Plan,
        *,
        now_ms: int,
        token: str,
        settings: CleanerSettings | None = None,
        aborted: Sequence[AbortedTransaction] | None = None,
    ) -> None:
        """`token` makes the names of new files unique. `aborted` are the log's aborted transactions, by
        default from the `.txnindex` files. Raises `OSError`, and `KafkaError` if such a file is damaged.
        """
        log = partition.log
        self.partition = partition
        self._log = log
        self._directory = log.files.directory
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
    def is_of_present_log(self) -> bool:
        """False after the log was truncated or opened again."""
        return self.partition.log is self._log

    @property
    def is_intact(self) -> bool:
        """Whether the log still has the planned segments, apart from the replacements by this round."""
        return self.is_current([base for base in self._segments if base not in self._swapped])

    def is_current(self, old_bases: Sequence[int]) -> bool:
        """Whether the log still has these segments. A log that was opened again has new `Segment` objects,
        and has removed the `.cleaned` files as leftovers of a crash.
        """
        if self.partition.log is not self._log or self._log.files.directory != self._directory:
            return False
        present = {segment.base_offset: segment for segment in self._log.segments}
        return all(present.get(base) is self._segments[base] for base in old_bases)

    def swapping(self, group: CleanedGroup) -> Work[list[Segment]]:
        """Put a group in place; returns the replaced segments, to be removed when they have no readers.
        Returns no segments if the log has changed; the new files are then removed.

        Raises `OSError`; the files on the disk may then differ from the log's state.
        """
        log = self._log
        cleaned = Segment(
            log.files.pool,
            self._directory,
            group.base_offset,
            group.size_bytes,
            self.job.now_ms,
            self.job.suffix,
        )
        cleaned.extent.max_timestamp_ms = group.max_timestamp_ms
        cleaned.extent.max_timestamp_offset = group.max_timestamp_offset
        if not self.is_current(group.old_bases):
            cleaned.remove()
            return []
        if not self._is_whole(cleaned):
            # The cleaned file was removed or cut meanwhile, and must not replace sound segments.
            return []
        old = [self._segments[base] for base in group.old_bases]
        replaced: list[Segment] = yield from log.replacing_segments(
            old, cleaned, lambda: self.is_current(group.old_bases)
        )
        self._swapped |= {segment.base_offset for segment in replaced}
        return replaced

    def _is_whole(self, cleaned: Segment) -> bool:
        path = cleaned.paths.path(LOG)
        disk: Disk = self._log.files.disk
        return disk.exists(path) and disk.size(path) == cleaned.size_bytes

    def remove_files(self) -> None:
        """Remove the files of an abandoned round. May run in a worker thread. Raises `OSError`."""
        disk = self._log.files.disk
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
        directory=log.files.directory,
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
        record_bytes_max=config.max_decompressed_message_bytes,
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
    """Every aborted transaction that begins before `end_offset`; its marker may be in any segment."""
    disk = log.files.disk
    found: list[AbortedTransaction] = []
    for name in disk.list(log.files.directory):
        if name.endswith(TRANSACTION_INDEX):
            entries = decode_aborted(read_file(disk, f"{log.files.directory}/{name}"))
            found += (one for one in entries if one.first_offset < end_offset)
    return tuple(found)


class Cleanable(Protocol):
    """The part of a store that compaction uses."""

    @property
    def disk(self) -> Disk: ...

    def loaded(self) -> Iterable[Partition]: ...

    def is_held(self, partition: Partition) -> bool: ...

    def first_dirty_of(self, partition: Partition) -> int: ...

    def noting_first_dirty(self, partition: Partition, offset: int) -> Work[None]: ...

    def noting_flushed(self, partition: Partition, end_offset: int) -> Work[bool]: ...

    def remove_later(self, segments: Sequence[Segment], due_ms: int) -> None: ...

    def new_token(self) -> str: ...


class Cleaner:
    """The compaction of a store: the next round, the rounds under way, and the partitions that cannot be
    compacted. The store's thread owns it; the rounds (`run`) may run in other processes.

    The calls of a round are `next_round`, `swap` for each group, `finish`; or `abandon` at any point, and
    `judge` after a failure. A partition has one round at a time.
    """

    def __init__(self, store: Cleanable) -> None:
        self._store = store
        self._under_way: set[Partition] = set()
        self._swapping: set[Partition] = set()
        self._uncleanable: dict[Partition, str] = {}
        self._own: tuple[Cleaning, Round] | None = None
        self.seconds = 0.0
        """That completed rounds took; for whoever runs them to add to."""
        self.bytes_read = 0
        """By them, also for the index of keys."""
        self.on_uncleanable: Callable[[str, str], None] = _unreported
        """Called with the name of a partition that is not compacted any more, and the reason."""

    def next_round(self, now_ms: int, settings: CleanerSettings | None = None) -> Work[Cleaning | None]:
        """Begin a round over the dirtiest log that is due; None when no log is due."""
        store = self._store
        self._forget_gone()
        plans = []
        for partition in store.loaded():
            if partition in self._under_way or partition in self._uncleanable:
                continue
            if not store.is_held(partition):
                continue  # deleted in a pause of this walk
            unread = unread_of_plan(partition.log, store.first_dirty_of(partition))
            if unread:
                yield partial(preload, unread)
                if not partition.is_available or not store.is_held(partition):
                    continue
            try:
                plan = plan_partition(partition, now_ms, store.first_dirty_of(partition))
            except OSError:
                # Readers and writers of the partition get this error.
                continue
            if plan is not None:
                plans.append((plan.dirty_ratio, partition, plan))
            yield None
        for _, partition, plan in sorted(plans, key=lambda one: one[0], reverse=True):
            try:
                is_safe = yield from store.noting_flushed(partition, plan.end_offset)
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

    def compacting(self, partition: Partition, now_ms: int) -> Work[bool]:
        """Compact a whole log in this thread, a step at a time, also what is clean: the horizons of its
        tombstones may be over. False if it has to be tried again: a round is under way, or what is to be
        compacted is not flushed. Raises `OSError`, and `KafkaError` for a damaged log.
        """
        first_dirty = partition.log_start_offset
        while True:
            if partition in self._under_way:
                return False
            yield partial(preload, unread_of_plan(partition.log, first_dirty))
            plan = plan_partition(partition, now_ms, first_dirty, is_wanted=True)
            if plan is None:
                return True
            is_safe = yield from self._store.noting_flushed(partition, plan.end_offset)
            if not is_safe or partition in self._under_way:
                return False
            reached = yield from self._one_round(partition, plan, now_ms)
            if reached is None or reached >= plan.end_offset:
                return reached is not None
            first_dirty = reached

    def _one_round(self, partition: Partition, plan: Plan, now_ms: int) -> Work[int | None]:
        """The offset that it has reached; None if the log has changed meanwhile."""
        settings = CleanerSettings(buffer_bytes=CLEANING_STEP_BYTES)
        begun = Cleaning(partition, plan, now_ms=now_ms, token=self._store.new_token(), settings=settings)
        self._under_way.add(partition)
        running = cleaning_round(self._store.disk, begun.job, urandom(16))
        try:
            while True:
                event = next(running)
                if isinstance(event, CleanedGroup) and not (yield from self.swap(begun, event, now_ms)):
                    break
                yield None
        except StopIteration as end:
            first_dirty: int = end.value.first_dirty
            yield from self.finish(begun, first_dirty)
            return first_dirty
        finally:
            running.close()
            if partition in self._under_way:
                finish(self.abandon(begun))
        return None

    def swap(self, cleaning: Cleaning, group: CleanedGroup, now_ms: int) -> Work[bool]:
        """Put a cleaned group in place; False when the log has changed and the round has to be abandoned."""
        partition = cleaning.partition
        if not self._store.is_held(partition) or not partition.is_available:
            return False
        self._swapping.add(partition)
        try:
            replaced = yield from cleaning.swapping(group)
        except OSError as error:
            partition.availability.take_offline(f"replacing its segments failed: {error}")
            return False
        finally:
            self._swapping.discard(partition)
        self._store.remove_later(replaced, now_ms + partition.config.file_delete_delay_ms)
        return len(replaced) == len(group.old_bases)

    def is_swapping(self, partition: Partition) -> bool:
        """Whether segments of the partition are being replaced now."""
        return partition in self._swapping

    def finish(self, cleaning: Cleaning, first_dirty: int) -> Work[None]:
        """The round is over and all its groups are in place: note the end of the clean part."""
        self._under_way.discard(cleaning.partition)
        if not self._store.is_held(cleaning.partition) or not cleaning.is_of_present_log:
            return
        try:
            yield from self._store.noting_first_dirty(cleaning.partition, first_dirty)
        except OSError:
            # The next checkpoint writes the offset again; without it the next round does more work than
            # needed.
            pass

    def abandon(self, cleaning: Cleaning) -> Work[None]:
        """Remove the files of a round whose work has stopped. The clean part of the log stays as before."""
        try:
            yield cleaning.remove_files
        except OSError:
            # The next start removes files that remain.
            pass
        self._under_way.discard(cleaning.partition)

    def judge(self, cleaning: Cleaning, reason: str, error_number: int | None = None) -> bool:
        """A round has failed for `reason`; `error_number` is the errno of an OSError. True: the partition is
        not compacted again until the next start. False if the disk was full, the partition is offline or the
        log has changed since the plan: the next round may succeed.
        """
        partition = cleaning.partition
        if error_number in NO_ROOM or not self._store.is_held(partition) or not partition.is_available:
            return False
        if not cleaning.is_intact:
            return False
        self._leave_alone(partition, reason)
        return True

    def _leave_alone(self, partition: Partition, reason: str) -> None:
        self._uncleanable[partition] = reason
        self.on_uncleanable(partition.name, reason)

    def uncleanable(self) -> dict[tuple[str, int], str]:
        """Partitions whose compaction failed and is not tried again until the next start, with the reason."""
        self._forget_gone()
        return {(one.topic, one.index): reason for one, reason in self._uncleanable.items()}

    def _forget_gone(self) -> None:
        for partition in [one for one in self._uncleanable if not self._store.is_held(one)]:
            del self._uncleanable[partition]

    def step(self, now_ms: int, budget_bytes: int) -> bool:
        """Work on a round in this thread, for some bytes; True while there is more to do. A failure counts as
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
        """Abandon the round of `step`."""
        if self._own is not None:
            self._end_own()

    def _end_own(self) -> None:
        assert self._own is not None
        begun, work = self._own
        self._own = None
        work.close()
        finish(self.abandon(begun))


def _unreported(name: str, reason: str) -> None:
    pass


def _reason_of(error: Exception) -> str:
    return getattr(error, "message", None) or str(error)
