"""Background work on the logs: retention and checkpoints, expiry of producers, flushes, moves, compaction.

Each kind has an interval of its own. Work that is still under way is not started a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.live import LiveConfig
    from odradek.server.background.cleaner import CleanerOptions, LogCleaner
    from odradek.server.background.schedule import Schedule
    from odradek.server.reconfiguration import Reconfiguration
    from odradek.storage.config import LogConfig
    from odradek.storage.directories.store import LogStore
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.broker")

MAINTENANCE_INTERVAL_MS_MIN = 10
MAINTENANCE_INTERVAL_MS_MAX = 1_000
EXPIRY_INTERVAL_MS_MIN = 10
HIGH_WATERMARKS_INTERVAL_MS_MIN = 10
FLUSH_LOOK_INTERVAL_MS_MIN = 10
FLUSH_LOOK_INTERVAL_MS_MAX = 1_000
"""Kafka's default would mean never, and `flush.ms` of a topic would have no effect."""
MOVE_INTERVAL_MS = 1_000
CLEANER_LOOK_INTERVAL_MS_MIN = 10


class Upkeep:
    """`start` begins; the functions that it returns end it."""

    def __init__(self, store: LogStore, schedule: Schedule, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._schedule = schedule
        self._now_ms = now_ms
        self._is_expiring = False
        self._is_checkpointing = False

    def start(self, config: BrokerConfig) -> list[Callable[[], None]]:
        every = self._schedule.clock_timers.every
        maintenance_ms = max(
            min(config.values["log.retention.check.interval.ms"], MAINTENANCE_INTERVAL_MS_MAX),
            MAINTENANCE_INTERVAL_MS_MIN,
        )
        expiry_ms = max(config.values["producer.id.expiration.check.interval.ms"], EXPIRY_INTERVAL_MS_MIN)
        high_watermarks_ms = max(
            config.values["replica.high.watermark.checkpoint.interval.ms"], HIGH_WATERMARKS_INTERVAL_MS_MIN
        )
        return [
            self._later_every(config.values["log.initial.task.delay.ms"], maintenance_ms, self._maintain),
            every(expiry_ms, self._expire_producers),
            every(flush_look_interval_ms(config), self._flush_due),
            every(high_watermarks_ms, self._checkpoint_high_watermarks),
            self._schedule.timers.every(MOVE_INTERVAL_MS, self.move),
        ]

    def move(self) -> None:
        """Continues the moves of partitions between data directories."""
        moves = self._schedule.moves
        if self._store.relocation.has_moves and len(moves) == 0:
            moves.run(
                self._store.relocation.moving(self._now_ms()),
                _ignore,
                partial(_log_failure, "moving partitions between data directories"),
            )

    def _maintain(self) -> None:
        if len(self._schedule.upkeep) == 0:
            work = self._store.maintaining(self._now_ms())
            self._schedule.upkeep.run(work, _ignore, partial(_log_failure, "retention and checkpoints"))

    def _checkpoint_high_watermarks(self) -> None:
        if not self._is_checkpointing:
            self._is_checkpointing = True
            work = self._store.checkpointing.writing_high_watermarks()
            self._schedule.upkeep.run(work, self._high_watermarks_checkpointed, self._checkpoint_failed)

    def _high_watermarks_checkpointed(self, _: object) -> None:
        self._is_checkpointing = False

    def _checkpoint_failed(self, error: Exception) -> None:
        self._is_checkpointing = False
        _log_failure("the checkpoint of high watermarks", error)

    def _expire_producers(self, *, only_late: bool = False) -> None:
        """Partitions in which something is staged at this moment are late: they follow a moment after."""
        if self._is_expiring and not only_late:
            return
        self._is_expiring = True
        work = self._store.upkeep.expiring_producers(self._now_ms(), only_late=only_late)
        self._schedule.upkeep.run(work, self._producers_expired, self._expiry_failed)

    def _producers_expired(self, has_late: bool) -> None:
        if has_late:
            again = partial(self._expire_producers, only_late=True)
            self._schedule.clock_timers.after(EXPIRY_INTERVAL_MS_MIN, again)
        else:
            self._is_expiring = False

    def _expiry_failed(self, error: Exception) -> None:
        self._is_expiring = False
        _log_failure("expiry of idle producers", error)

    def _flush_due(self) -> None:
        for partition in self._store.flush_due(self._now_ms()):
            self._schedule.turn.flush_in_background(partition)

    def _later_every(
        self, delay_ms: float, interval_ms: float, callback: Callable[[], None]
    ) -> Callable[[], None]:
        """`Timers.every`, the first time after `delay_ms`; the returned function ends it."""
        timers = self._schedule.clock_timers
        endings: list[Callable[[], None]] = []

        def begin() -> None:
            endings.append(timers.every(interval_ms, callback))
            callback()

        endings.append(timers.after(delay_ms, begin).cancel)

        def stop() -> None:
            for end in endings:
                end()

        return stop


class Compaction:
    """Starts the cleaner when a log is compacted: no start needs `server/background/cleaner.py`."""

    def __init__(
        self,
        store: LogStore,
        schedule: Schedule,
        reconfiguration: Reconfiguration,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._schedule = schedule
        self._reconfiguration = reconfiguration
        self._now_ms = now_ms
        self._is_stopped = False
        self.cleaner: LogCleaner | None = None
        """None until a log is compacted."""
        self._endings: list[Callable[[], None]] = []

    def start(self) -> Callable[[], None]:
        """The returned function ends it."""
        self._look_later()
        return self._stop

    def _look_later(self) -> None:
        live, timers = self._reconfiguration.live, self._schedule.clock_timers
        delay_ms = max(live.values["log.cleaner.backoff.ms"], CLEANER_LOOK_INTERVAL_MS_MIN)
        self._endings = [timers.look_after(delay_ms, self._look).cancel]

    def _look(self) -> None:
        if any(partition.config.is_compacted for partition in self._store.places.loaded()):
            self._schedule.upkeep.run(self._starting(), _ignore, partial(_log_failure, "starting compaction"))
        else:
            self._look_later()

    def _starting(self) -> Work[None]:
        yield _import_cleaner
        from odradek.server.background.cleaner import LogCleaner

        if self._is_stopped:
            return
        cleaner = self.cleaner = LogCleaner(
            self._store.cleaner,
            self._store.disk,
            self._schedule.upkeep,
            self._schedule.timers,
            self._schedule.clock_timers,
            self._now_ms,
            _cleaner_options(self._reconfiguration.live),
        )
        cleaner.start()
        self._reconfiguration.register(lambda live: cleaner.configure(_cleaner_options(live)))
        self._endings = [cleaner.close]

    def _stop(self) -> None:
        self._is_stopped = True
        for end in self._endings:
            end()


def _import_cleaner() -> None:
    """In a worker thread: it takes 20 ms."""
    import odradek.server.background.cleaner  # noqa: F401


def _cleaner_options(live: LiveConfig[LogConfig]) -> CleanerOptions:
    from odradek.server.background.cleaner import CleanerOptions

    return CleanerOptions(
        threads=live.values["log.cleaner.threads"],
        backoff_ms=live.values["log.cleaner.backoff.ms"],
        bytes_per_second=live.values["log.cleaner.io.max.bytes.per.second"],
        dedupe_buffer_bytes=live.values["log.cleaner.dedupe.buffer.size"],
        load_factor=live.values["log.cleaner.io.buffer.load.factor"],
        io_buffer_bytes=live.values["log.cleaner.io.buffer.size"],
    )


def flush_look_interval_ms(config: BrokerConfig) -> int:
    """How often logs are searched for records that `flush.ms` wants flushed."""
    interval_ms = min(config.values["log.flush.scheduler.interval.ms"], FLUSH_LOOK_INTERVAL_MS_MAX)
    return max(interval_ms, FLUSH_LOOK_INTERVAL_MS_MIN)


def _ignore(result: object) -> None:
    pass


def _log_failure(work: str, error: Exception) -> None:
    logger.error("%s failed, and is tried again", work, exc_info=error)
