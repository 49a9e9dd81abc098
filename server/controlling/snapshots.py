"""Snapshots of the metadata log, made while the controller goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.coordinator.controller.log import SnapshotId
    from odradek.coordinator.controller.machine import Controller
    from odradek.server.background.schedule import Schedule
    from odradek.server.metadata.metadata_log import DiskMetadataLog
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.controller")

LOOK_AGAIN_MS = 10_000
"""Interval of looks at the clock; each append is looked at, too."""


class Snapshots:
    """Writes a snapshot when the log says that one is due, and at the stop."""

    def __init__(
        self, log: DiskMetadataLog, controller: Controller, schedule: Schedule, now_ms: Callable[[], int]
    ) -> None:
        self._log = log
        self._controller = controller
        self._schedule = schedule
        self._now_ms = now_ms
        self._is_making = False

    def start(self) -> None:
        self._timer = self._schedule.timers.after(LOOK_AGAIN_MS, self._look_again)
        self._log.watch(self._appended)

    def stop(self) -> None:
        """Writes a snapshot that saves time at the next start."""
        self._timer.cancel()
        self._log.unwatch(self._appended)
        if self._log.is_snapshot_due_at_stop:
            state = self._controller.state
            try:
                self._log.write_snapshot(snapshot_records(state), self._controller.metadata_version)
            except KafkaError as error:
                logger.error("no snapshot of the metadata could be written: %s", error)

    def _look_again(self) -> None:
        self._timer = self._schedule.timers.after(LOOK_AGAIN_MS, self._look_again)
        self._look()

    def _appended(self) -> None:
        self._log.watch(self._appended)
        self._look()

    def _look(self) -> None:
        if not self._is_making and self._log.is_snapshot_due(self._now_ms()):
            self._is_making = True
            self._schedule.changes.run(self._beginning(), self._write, self._failed)

    def _beginning(self) -> Work[Work[SnapshotId]]:
        """Between two changes: the state is that at the end of the log."""
        return self._log.writing_snapshot(
            snapshot_records(self._controller.state), self._controller.metadata_version
        )
        yield None

    def _write(self, work: Work[SnapshotId]) -> None:
        self._schedule.saves.run(work, self._written, self._failed)

    def _written(self, snapshot_id: SnapshotId) -> None:
        self._is_making = False
        logger.info("snapshot of the metadata up to offset %d", snapshot_id.end_offset)

    def _failed(self, error: Exception) -> None:
        self._is_making = False
        logger.error("no snapshot of the metadata could be written: %s", error)
