"""The end of a turn of the event loop: commit what was staged, flush what must be, send what is ready.

Every partition that was appended to in one turn is committed once. Where an answer has to wait for the disk,
the partition is flushed in a worker thread; while that flush runs the next ones gather, so any number of
waiting produces costs one `fdatasync`. Many partitions are flushed together where the disk can do that, else
by a few workers that each take several. Then each connection that has answers ready sends them in one write.

While one connection alone asks, its requests are a turn of their own that ends where they have been read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.turn import Committable
from odradek.server.group_flush import flush_one
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

logger = logging.getLogger("odradek.turn")

FLUSH_THREADS_MAX = 8
TOGETHER_MIN = 3
"""From so many partitions on one sync of the file system is cheaper than a flush of each."""

Done = Callable[[KafkaError | None], None]


class Sender(Protocol):
    """A connection, as far as the turn knows it."""

    def send_ready(self) -> None: ...


class TogetherFlush(Protocol):
    """Flushes many partitions at once, in a worker; `server.group_flush.GroupFlush` is the one."""

    @property
    def is_worthwhile(self) -> bool: ...

    def __call__(self, partitions: Sequence[Any], /) -> list[KafkaError | None]: ...


class LoopTurn:
    """Implements `apis.turn.Turn` on an event loop; see the module's opening lines.

    `number` counts the turns: what was staged while it had its present value is not committed yet, and the
    bytes that were staged must stay where they are. `staged` is empty when nothing waits for a commit.
    """

    __slots__ = (
        "_executor",
        "_flushing",
        "_gathering",
        "_is_together",
        "_loop",
        "_newest",
        "_scheduled",
        "_touched",
        "flush_together",
        "number",
        "staged",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor: ThreadPoolExecutor | None = None
        self._scheduled = False
        self._newest: Sender | None = None
        self._touched: list[Sender] = []
        self._flushing: dict[Committable, list[Done]] = {}
        self._gathering: dict[Committable, list[Done]] = {}
        self._is_together = False
        self.flush_together: TogetherFlush | None = None
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

    def begin_alone(self, sender: Sender) -> bool:
        """Whether the requests of `sender` shall be a turn of their own, which it ends by `end`.

        So it is when it sent the requests before these as well: then it seems to be the only one, and there
        is nobody to wait for. To go round through the event loop would only make its answer late.
        """
        if self._newest is not sender:
            self._newest = sender
            return False
        if self._scheduled:
            return False
        self._scheduled = True
        return True

    def forget(self, sender: Sender) -> None:
        """`sender` is gone."""
        if self._newest is sender:
            self._newest = None

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
        if self._gathering:
            self._start_flushes()
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
        self._start_flushes()

    @property
    def is_flushing(self) -> bool:
        """True while answers wait for the disk."""
        return bool(self._flushing or self._gathering)

    @property
    def is_idle(self) -> bool:
        """True while neither the end of the turn nor the disk has something to do."""
        return not self._scheduled and not self.is_flushing

    def close(self) -> None:
        """Ends the worker threads, once they are done: who closes the partitions next flushes them, too."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
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

    def _call(self, done: Done, error: KafkaError | None) -> None:
        try:
            done(error)
        except Exception:
            logger.exception("a callback after a commit failed")

    def _start_flushes(self) -> None:
        """Hands what has gathered to the workers, save for what one of them is flushing already."""
        if self._is_together:
            return  # all that gathers now is the next group
        flushing, gathering = self._flushing, self._gathering
        ready = [partition for partition in gathering if partition not in flushing]
        if not ready:
            return
        for partition in ready:
            flushing[partition] = gathering.pop(partition)
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(FLUSH_THREADS_MAX, "odradek-flush")
        together = self.flush_together
        if together is not None and len(ready) >= TOGETHER_MIN and together.is_worthwhile:
            self._is_together = True
            self._executor.submit(self._flush_in_worker, ready, together)
            return
        # To wake the event loop costs more than all else, so each worker does it once.
        share = -(-len(ready) // FLUSH_THREADS_MAX)
        for start in range(0, len(ready), share):
            self._executor.submit(self._flush_in_worker, ready[start : start + share], None)

    def _flush_in_worker(self, partitions: list[Committable], together: TogetherFlush | None) -> None:
        try:
            errors = [flush_one(p) for p in partitions] if together is None else together(partitions)
        except Exception:
            logger.exception("flush of %s failed", partitions)
            errors = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)] * len(partitions)
        try:
            self._loop.call_soon_threadsafe(self._flushed, partitions, errors, together is not None)
        except RuntimeError:
            logger.warning("the event loop closed during a flush of %s", partitions)

    def _flushed(
        self, partitions: list[Committable], errors: list[KafkaError | None], together: bool
    ) -> None:
        if together:
            self._is_together = False
        waiting = [self._flushing.pop(partition) for partition in partitions]
        # First the disk gets its next work, then people get their answers.
        if self._gathering:
            self._start_flushes()
        for callbacks, error in zip(waiting, errors, strict=True):
            for done in callbacks:
                self._call(done, error)
