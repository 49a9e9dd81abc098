"""Many partitions made durable by one sync of the file system that they share.

A flush of fifty partitions is fifty commits of the file system's journal, one after the other; a sync of all
of it is one. But it also writes what others have left dirty there: after a slow one the partitions are
flushed one by one for a while. After a failed one they are for ever, since its error says nothing about whose
bytes are lost, and is told only once; `partition.flush` says it of each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.apis.turn import Committable
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.storage.file_system import FileSystem

logger = logging.getLogger("odradek.flush")

SLOW_S = 0.1
PAUSES_PER_SLOW = 10
"""A slow sync is followed by a pause so many times as long: what others write costs us a tenth at most."""
PLACES_MAX = 10_000
"""Directories of which we remember that they are on the file system."""


class Flushable(Committable, Protocol):
    """The part of a storage partition that a group flush uses, beside `flush`."""

    @property
    def directory(self) -> str: ...

    def end_if_one_sync_flushes(self) -> int | None: ...

    def take_flushed(self, end_offset: int) -> None: ...


class GroupFlush:
    """See the module. Called from one worker thread at a time; `is_worthwhile` may be asked from any."""

    __slots__ = ("_file_system", "_monotonic_s", "_not_before_s", "_places")

    def __init__(self, file_system: FileSystem, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._file_system = file_system
        self._monotonic_s = monotonic_s
        self._not_before_s = float("-inf")
        self._places: set[str] = set()

    @property
    def is_worthwhile(self) -> bool:
        return self._monotonic_s() >= self._not_before_s

    def __call__(self, partitions: Sequence[Flushable]) -> list[KafkaError | None]:
        """Flushes them all; what `flush` of each would have raised."""
        # What is committed while the sync runs may be on the disk after it or not: the ends are from before.
        ends = [self._end_if_shared(partition) for partition in partitions]
        if not any(end is not None for end in ends) or not self._sync():
            return [flush_one(partition) for partition in partitions]
        errors: list[KafkaError | None] = []
        for partition, end in zip(partitions, ends, strict=True):
            if end is None:
                errors.append(flush_one(partition))
            else:
                partition.take_flushed(end)
                errors.append(None)
        return errors

    def _end_if_shared(self, partition: Flushable) -> int | None:
        """As `end_if_one_sync_flushes`, and None for a directory that is a link to somewhere else."""
        directory = partition.directory
        if directory not in self._places:
            try:
                if not self._file_system.holds(directory):
                    return None
            except OSError:
                return None  # deleted, most likely; `flush` knows
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            self._places.add(directory)
        return partition.end_if_one_sync_flushes()

    def _sync(self) -> bool:
        start_s = self._monotonic_s()
        try:
            self._file_system.sync()
        except OSError as error:
            logger.warning(
                "syncing the whole file system failed, flushing file by file from now on: %s", error
            )
            self._not_before_s = float("inf")
            return False
        end_s = self._monotonic_s()
        if end_s - start_s > SLOW_S:
            self._not_before_s = end_s + PAUSES_PER_SLOW * (end_s - start_s)
        return True


def flush_one(partition: Committable) -> KafkaError | None:
    """Flushes one partition; what it raised, as Kafka's error."""
    try:
        partition.flush()
    except KafkaError as refused:
        return refused
    except Exception:
        logger.exception("flush of %s failed", partition)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return None
