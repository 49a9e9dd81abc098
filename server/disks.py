"""Looks after the disks: has the store look at one that gave an error, and tells what came of it.

A data directory whose disk does not answer takes only its partitions offline. When none is left the broker
has nothing to serve, and stops. Each partition that goes offline by itself is a line of the log; of what
fails again and again there is one a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.storage.directories.failing_disks import RESCAN_PAUSE_MS
from odradek.storage.directories.store import StoreListener

if TYPE_CHECKING:
    from odradek.server.timers import Timers
    from odradek.server.work import WorkQueue
    from odradek.storage.directories.store import LogStore

logger = logging.getLogger("odradek.disks")

REST_MS = 1_000
"""Between two looks: a disk in trouble may give thousands of errors a second."""
SAID_AGAIN_AFTER_MS = 60_000
"""What fails again and again: a full disk refuses every produce."""


class Disks(StoreListener):
    """See the module. `on_change` is called when partitions may have gone offline or come back, `on_end` when
    the last directory has failed. `queue` is the one that the store's other chores are done in.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        queue: WorkQueue,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._timers = timers
        self._queue = queue
        self._now_ms = now_ms
        self._on_change = on_change
        self._on_end = on_end
        self._store: LogStore | None = None
        # Something is to be looked at; it is being looked at, or was a moment ago.
        self._is_told = False
        self._is_resting = False
        # When it was last said of a directory that something failed there, of a partition that it is still
        # offline; added to in any thread.
        self._said_ms: dict[str, int] = {}

    def use(self, store: LogStore) -> None:
        """From now on, after the start."""
        self._store = store
        if store.failing_disks.needs_attention:
            self.trouble()

    def stop(self) -> None:
        self._store = None

    # What the store tells

    def stray(self, topic: str, index: int, path: str) -> None:
        logger.warning("%s-%d belonged to another topic of that name: kept as %s", topic, index, path)

    def damage(self, sentence: str) -> None:
        logger.error("%s", sentence)

    def trouble(self) -> None:
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._look)
            except RuntimeError:
                pass  # the loop has closed

    def failed(self, path: str, sentence: str) -> None:
        if self._is_to_be_said(path):
            logger.error("%s (said once a minute of %s)", sentence, path)

    def offline(self, sentence: str) -> None:
        logger.error(
            "%s; it refuses with KAFKA_STORAGE_ERROR until its files have been read again, which is tried now"
            " and every %d s",
            sentence,
            RESCAN_PAUSE_MS // 1000,
        )

    def still_offline(self, name: str, reason: str) -> None:
        if self._is_to_be_said(name):
            logger.error(
                "%s is still offline, reading its files again failed: %s; tried again every %d s",
                name,
                reason,
                RESCAN_PAUSE_MS // 1000,
            )

    def _is_to_be_said(self, of: str) -> bool:
        now_ms = self._now_ms()
        last_ms = self._said_ms.get(of)
        # Or else the clock was put back.
        if last_ms is not None and 0 <= now_ms - last_ms < SAID_AGAIN_AFTER_MS:
            return False
        self._said_ms[of] = now_ms
        return True

    def directory(self, path: str, failure: str | None) -> None:
        if failure is None:
            logger.warning("the data directory %s answers again: bringing its partitions back", path)
        else:
            logger.error("the data directory %s has failed, its partitions are offline: %s", path, failure)

    def recovered(self, name: str, cut_bytes: int) -> None:
        self._said_ms.pop(name, None)
        if cut_bytes:
            logger.error("%s is back; the last %d bytes of it never reached the disk", name, cut_bytes)
        else:
            logger.warning("%s is back, and nothing of it is lost", name)

    def moved(self, name: str, directory: str) -> None:
        logger.info("%s is in %s now", name, directory)

    def move_failed(self, name: str, directory: str, reason: str) -> None:
        logger.error("%s could not be moved to %s and stays where it is: %s", name, directory, reason)

    # Looking

    def _look(self) -> None:
        store = self._store
        if store is None or self._is_resting:
            return
        self._is_resting = True
        self._on_change()
        self._queue.run(store.failing_disks.attending(self._now_ms()), self._looked, self._could_not_look)

    def _looked(self, result: object) -> None:
        store = self._store
        self._is_told = False
        if store is None:
            return
        self._on_change()
        failures = store.failing_disks.failures
        if len(failures) == len(store.directories):
            self._on_end("; ".join(f"{path}: {reason}" for path, reason in failures.items()))
            return
        self._timers.after(REST_MS, self._rested)

    def _could_not_look(self, error: Exception) -> None:
        logger.error("looking after the disks failed", exc_info=error)
        self._looked(None)

    def _rested(self) -> None:
        self._is_resting = False
        if self._store is not None and self._store.failing_disks.needs_attention:
            self._look()
