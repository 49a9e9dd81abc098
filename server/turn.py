"""The end of a turn of the event loop: commit what was staged, flush what must be, send what is ready.

Every partition that was appended to in one turn is committed once. Where an answer has to wait for the disk,
the partition joins the next group flush (`server/group_flush.py`). Then each connection that has answers
ready sends them in one write.

While one connection alone asks, its requests are a turn of their own that ends where they have been read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from odradek.apis.turn import Committable
from odradek.server.group_flush import Done, Flushes
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.turn")


class Sender(Protocol):
    """A connection, as far as the turn knows it."""

    def send_ready(self) -> None: ...


class LoopTurn:
    """Implements `apis.turn.Turn` on an event loop; see the module's opening lines.

    `number` counts the turns: what was staged while it had its present value is not committed yet, and the
    bytes that were staged must stay where they are. `staged` is empty when nothing waits for a commit.
    """

    __slots__ = (
        "_loop",
        "_newest",
        "_scheduled",
        "_touched",
        "flushes",
        "number",
        "staged",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._scheduled = False
        self._newest: Sender | None = None
        self._touched: list[Sender] = []
        self.flushes = Flushes(loop)
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
        self.flushes.start()
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
        self.flushes.add_background(partition)

    @property
    def is_flushing(self) -> bool:
        """True while answers wait for the disk."""
        return self.flushes.is_busy

    @property
    def is_idle(self) -> bool:
        """True while neither the end of the turn nor the disk has something to do."""
        return not self._scheduled and not self.is_flushing

    def close(self) -> None:
        """Ends the worker threads, once they are done: who closes the partitions next flushes them, too."""
        self.flushes.close()

    def _commit(self, partition: Committable, waiting: list[tuple[Done, bool]]) -> None:
        error = None
        try:
            partition.commit()
        except KafkaError as refused:
            error = refused
        except Exception:
            logger.exception("commit of %s failed", partition)
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        for done, must_flush in waiting:
            if must_flush and error is None:
                self.flushes.add(partition, done)
                continue
            try:
                done(error)
            except Exception:
                logger.exception("a callback after a commit failed")
