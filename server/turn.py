"""The end of a turn of the event loop: commit what was staged, flush what must be, send what is ready.

Every partition that was appended to in one turn is committed once. Where an answer has to wait for the disk,
the partition joins the next group flush (`server/group_flush.py`). Then each connection that has answers
ready sends them in one write.

While one connection alone asks, its requests are a turn of their own that ends where they have been read.
"""

from __future__ import annotations

import asyncio

from odradek.apis.turn import Committable
from odradek.server._hot_path import GatheredTurn
from odradek.server.group_flush import Flushes


class LoopTurn(GatheredTurn):
    """Implements `apis.turn.Turn` on an event loop; see the module's opening lines.

    `number` counts the turns: what was staged while it had its present value is not committed yet, and the
    bytes that were staged must stay where they are. `staged` is empty when nothing waits for a commit.
    """

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, Flushes(loop))

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
        return not self.is_scheduled and not self.is_flushing

    def close(self) -> None:
        """Ends the worker threads, once they are done: who closes the partitions next flushes them, too."""
        self.flushes.close()
