"""The end of a turn of the event loop: commit what was staged, flush what must be, send what is ready.

Every partition that was appended to in one turn is committed once. Where an answer has to wait for the disk,
the partition is flushed in a worker thread; while that flush runs the next ones gather, so any number of
waiting produces costs one `fdatasync`. Then each connection that has answers ready sends them in one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from odradek.apis.turn import Committable
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

logger = logging.getLogger("odradek.turn")

FLUSH_THREADS_MAX = 8

Done = Callable[[KafkaError | None], None]


class Sender(Protocol):
    """A connection, as far as the turn knows it."""

    def send_ready(self) -> None: ...


class LoopTurn:
    """Implements `apis.turn.Turn` on an event loop; see the module's opening lines.

    `number` counts the turns: what was staged while it had its present value is not committed yet, and the
    bytes that were staged must stay where they are. `staged` is empty when nothing waits for a commit.
    """

    __slots__ = (
        "_executor",
        "_flushing",
        "_gathering",
        "_loop",
        "_scheduled",
        "_touched",
        "number",
        "staged",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor: ThreadPoolExecutor | None = None
        self._scheduled = False
        self._touched: list[Sender] = []
        self._flushing: dict[Committable, list[Done]] = {}
        self._gathering: dict[Committable, list[Done]] = {}
        self.number = 0
        self.staged: dict[Committable, list[tuple[Done, bool]]] = {}

    def add(self, partition: Committable, done: Done, must_flush: bool) -> None:
        """`done` is called after this turn's commit, and with `must_flush` after the disk has it."""
        waiting = self.staged.get(partition)
        if waiting is None:
            self.staged[partition] = [(done, must_flush)]
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self.end)
        else:
            waiting.append((done, must_flush))

    def touch(self, sender: Sender) -> None:
        """`sender.send_ready()` is called at the end of this turn; once per call, so ask once."""
        self._touched.append(sender)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.end)

    def end(self) -> None:
        """Ends the turn now: the event loop does it, and the server's stop."""
        self._scheduled = False
        # Whatever a callback stages from here on belongs to the next turn.
        self.number += 1
        staged, self.staged = self.staged, {}
        for partition, waiting in staged.items():
            self._commit(partition, waiting)
        # A callback may touch connections while we send: those are for this turn as well.
        while self._touched:
            touched, self._touched = self._touched, []
            for sender in touched:
                try:
                    sender.send_ready()
                except Exception:
                    # The others still get their answers.
                    logger.exception("sending answers failed")

    def flush_in_background(self, partition: Committable) -> None:
        """Flushes with nobody waiting for it; joins a flush that is to come anyway."""
        self._gathering.setdefault(partition, [])
        if partition not in self._flushing:
            self._start_flush(partition)

    @property
    def is_flushing(self) -> bool:
        """True while answers wait for the disk."""
        return bool(self._flushing)

    def close(self) -> None:
        """Ends the worker threads; call it when nothing waits for a flush any more."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def _commit(self, partition: Committable, waiting: list[tuple[Done, bool]]) -> None:
        error = None
        try:
            partition.commit()
        except KafkaError as refused:
            error = refused
        except Exception:
            logger.exception("commit of %s failed", partition)
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        to_flush = None
        for done, must_flush in waiting:
            if must_flush and error is None:
                if to_flush is None:
                    to_flush = self._gathering.setdefault(partition, [])
                to_flush.append(done)
                continue
            try:
                done(error)
            except Exception:
                logger.exception("a callback after a commit failed")
        if to_flush is not None and partition not in self._flushing:
            self._start_flush(partition)

    def _call(self, done: Done, error: KafkaError | None) -> None:
        try:
            done(error)
        except Exception:
            logger.exception("a callback after a commit failed")

    def _start_flush(self, partition: Committable) -> None:
        self._flushing[partition] = self._gathering.pop(partition)
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(FLUSH_THREADS_MAX, "odradek-flush")
        self._executor.submit(self._flush_in_worker, partition)

    def _flush_in_worker(self, partition: Committable) -> None:
        error = None
        try:
            partition.flush()
        except KafkaError as refused:
            error = refused
        except Exception:
            logger.exception("flush of %s failed", partition)
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            self._loop.call_soon_threadsafe(self._flushed, partition, error)
        except RuntimeError:
            logger.warning("the event loop closed during a flush of %s", partition)

    def _flushed(self, partition: Committable, error: KafkaError | None) -> None:
        for done in self._flushing.pop(partition):
            self._call(done, error)
        if partition in self._gathering:
            self._start_flush(partition)
