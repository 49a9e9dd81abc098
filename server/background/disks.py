"""Disks that fail: the log lines, and the work that brings partitions back.

A data directory whose disk fails takes only its own partitions offline. When all have failed the broker
stops. Each partition that goes offline by itself gets a log line; a repeated failure is logged once a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.storage.directories.failing_disks import RESCAN_PAUSE_MS
from odradek.storage.directories.places import StoreListener

if TYPE_CHECKING:
    from odradek.server.background.schedule import Schedule
    from odradek.storage.directories.store import LogStore

logger = logging.getLogger("odradek.disks")

PAUSE_MS = 1_000
"""Between two attempts: a failing disk may give thousands of errors a second."""
LOGGED_AGAIN_AFTER_MS = 60_000
"""Between two lines about a repeated failure: a full disk refuses every produce."""


class StoreEvents(StoreListener):
    """The log lines of a store. `on_trouble` is called, in any thread, when a partition or a directory has
    failed."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.on_trouble: Callable[[], None] = _ignore_trouble
        self.on_moved: Callable[[str], object] = _ignore_move
        """Called with the name of a partition's directory that is in another data directory now."""
        self._now_ms = now_ms
        # The time of the last line about a directory or a partition; written in any thread.
        self._logged_ms: dict[str, int] = {}

    def stray(self, topic: str, index: int, path: str) -> None:
        logger.warning("%s-%d belonged to another topic of that name: kept as %s", topic, index, path)

    def damage(self, sentence: str) -> None:
        logger.error("%s", sentence)

    def trouble(self) -> None:
        self.on_trouble()

    def failed(self, path: str, sentence: str) -> None:
        if self._is_to_be_logged(path):
            logger.error("%s (logged once a minute for %s)", sentence, path)

    def offline(self, sentence: str) -> None:
        logger.error(
            "%s; it refuses with KAFKA_STORAGE_ERROR until its files have been read again, which is tried now"
            " and every %d s",
            sentence,
            RESCAN_PAUSE_MS // 1000,
        )

    def still_offline(self, name: str, reason: str) -> None:
        if self._is_to_be_logged(name):
            logger.error(
                "%s is still offline, reading its files again failed: %s; tried again every %d s",
                name,
                reason,
                RESCAN_PAUSE_MS // 1000,
            )

    def _is_to_be_logged(self, name: str) -> bool:
        now_ms = self._now_ms()
        last_ms = self._logged_ms.get(name)
        # A later time than now: the clock was set back.
        if last_ms is not None and 0 <= now_ms - last_ms < LOGGED_AGAIN_AFTER_MS:
            return False
        self._logged_ms[name] = now_ms
        return True

    def directory(self, path: str, failure: str | None) -> None:
        if failure is None:
            logger.warning("the data directory %s answers again: bringing its partitions back", path)
        else:
            logger.error("the data directory %s has failed, its partitions are offline: %s", path, failure)

    def recovered(self, name: str, cut_bytes: int) -> None:
        self._logged_ms.pop(name, None)
        if cut_bytes:
            logger.error("%s is back; the last %d bytes of it never reached the disk", name, cut_bytes)
        else:
            logger.warning("%s is back, and nothing of it is lost", name)

    def moved(self, name: str, directory: str) -> None:
        logger.info("%s is in %s now", name, directory)
        self.on_moved(name)

    def move_failed(self, name: str, directory: str, reason: str) -> None:
        logger.error("%s could not be moved to %s and stays where it is: %s", name, directory, reason)


class FailedDisks:
    """Tries to bring offline partitions back, from the start of the broker to `stop`. `on_change` is called
    when partitions may have gone offline or come back, `on_end(reasons)` when the last directory has failed.
    """

    def __init__(
        self,
        store: LogStore,
        schedule: Schedule,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._store = store
        self._schedule = schedule
        self._now_ms = now_ms
        self._on_change = on_change
        self._on_end = on_end
        self._is_stopped = False
        self._is_scheduled = False
        # An attempt runs, or has ended a moment ago.
        self._is_pausing = False
        if store.failing_disks.needs_attention:
            self.trouble()

    def stop(self) -> None:
        self._is_stopped = True

    def trouble(self) -> None:
        """In any thread, and often."""
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._schedule.loop.call_soon_threadsafe(self._attend)
            except RuntimeError:
                pass  # the loop has closed

    def _attend(self) -> None:
        if self._is_stopped or self._is_pausing:
            return
        self._is_pausing = True
        self._on_change()
        work = self._store.failing_disks.attending(self._now_ms())
        self._schedule.upkeep.run(work, self._attended, self._attending_failed)

    def _attended(self, result: object) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        self._on_change()
        failures = self._store.failing_disks.failures
        if len(failures) == len(self._store.directories):
            self._on_end("; ".join(f"{path}: {reason}" for path, reason in failures.items()))
            return
        self._schedule.timers.after(PAUSE_MS, self._end_pause)

    def _attending_failed(self, error: Exception) -> None:
        logger.error("bringing offline partitions back failed, and is tried again", exc_info=error)
        self._attended(None)

    def _end_pause(self) -> None:
        self._is_pausing = False
        if not self._is_stopped and self._store.failing_disks.needs_attention:
            self._attend()


def _ignore_move(name: str) -> None:
    """A node alone keeps no record of it."""


def _ignore_trouble() -> None:
    """Before the broker serves: the first attempt comes with `FailedDisks`."""
