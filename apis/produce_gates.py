"""Appends that take long, and what has to wait for them.

A batch that must be unpacked, packed anew or converted at length is prepared in a worker thread. Until it is
in the log its partition has a gate: whatever clients append to that partition afterwards, over whichever
connection, waits there and is made in the order in which it came. So sequence numbers and duplicates are
judged as if nothing had waited. Other partitions, and the connections, go on meanwhile.

What waits is held by us, not in a receive buffer, and counts among the bytes that its connection waits for
until it has been answered. A client that goes away leaves its appends to be made all the same, as in Kafka,
up to `ABANDONED_BYTES_MAX` of all such clients; the rest is dropped, since nobody has been promised it.

Each partition has one preparation at a time, and those of other partitions have their turns in between.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.apis.turn import WorkQueue
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.produce")

ABANDONED_BYTES_MAX = 64 * 1024 * 1024
"""As much as one connection may make us hold."""
_ENTRY_BYTES = 1024
"""What an append costs beside its bytes."""

Preparation = Callable[[], Any]
"""To be called in any thread; raises `KafkaError` for a refusal."""


class LateAppend(Protocol):
    """An append that could not be made when it came."""

    size_bytes: int
    """What is held for it."""

    def attempt(self) -> Preparation | None:
        """Makes it, or raises `KafkaError`. If it would take long nothing is done, and what has to be called
        before `make` is returned."""

    def make(self, prepared: Any) -> None:
        """Makes it of what its preparation has returned, or raises `KafkaError`."""

    def refuse(self, error: KafkaError) -> None:
        """It will not be made."""

    def abandon(self) -> None:
        """Its client is gone: what is held for that one's sake can go, too."""


class _Entry:
    """A place at a gate."""

    __slots__ = ("append", "is_abandoned", "preparation")

    def __init__(self, append: LateAppend, preparation: Preparation | None = None) -> None:
        self.append: LateAppend | None = append
        """None when it is settled, or has been dropped."""
        self.preparation = preparation
        """What has to be called before it can be made; None as long as that is not known."""
        self.is_abandoned = False

    def attempt(self) -> None:
        """The append is settled, or has a preparation."""
        if self.append is not None:
            try:
                self.preparation = self.append.attempt()
            except Exception as error:
                self.refuse(error)

    def make(self, prepared: Any) -> None:
        if self.append is not None:
            try:
                self.append.make(prepared)
            except Exception as error:
                self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """What is no refusal is a bug: its append alone suffers."""
        if not isinstance(error, KafkaError):
            logger.error("an append failed", exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if self.append is not None:
            self.append.refuse(error)


class Gates:
    """The gates of all partitions.

    `open` has what waits at each, by partition; the append that is being prepared is not among it. Who
    appends looks there first, and has to `wait` where there is a gate.
    """

    __slots__ = ("_abandoned_bytes", "_conversions", "open")

    def __init__(self, conversions: WorkQueue) -> None:
        self._conversions = conversions
        self._abandoned_bytes = 0
        self.open: dict[Any, deque[_Entry]] = {}

    def wait(self, partition: Any, append: LateAppend, preparation: Preparation | None) -> Callable[[], None]:
        """Makes the append in its turn. Where there is no gate yet `preparation` is why there is one now.

        What is returned says that its client is gone; harmless when the append has been settled.
        """
        waiting = self.open.get(partition)
        if waiting is not None:
            entry = _Entry(append)
            waiting.append(entry)
        else:
            assert preparation is not None
            entry = _Entry(append, preparation)
            waiting = self.open[partition] = deque()
            self._go_on(partition, waiting, entry)
        return partial(self._abandon, entry)

    def _go_on(self, partition: Any, waiting: deque[_Entry], first: _Entry | None) -> None:
        """Goes on with `first`, which takes long, or with what waits; the gate goes when nothing is left."""
        if first is None and not waiting:
            del self.open[partition]
            return
        self._conversions.run(
            self._making(waiting, first),
            partial(self._go_on, partition, waiting),
            partial(self._failed, partition, waiting),
        )

    def _making(self, waiting: deque[_Entry], first: _Entry | None) -> Work[_Entry | None]:
        """Makes the first append and those that waited behind it, up to one that takes long, too: that is
        returned, since others may have their turn before it."""
        if first is not None and first.preparation is not None:
            try:
                prepared = yield first.preparation
            except Exception as error:
                first.refuse(error)
            else:
                first.make(prepared)
            self._forget(first)
        for _ in range(len(waiting)):
            yield None
            entry = waiting.popleft()
            entry.attempt()
            if entry.preparation is not None:
                return entry
            self._forget(entry)
        return None

    def _failed(self, partition: Any, waiting: deque[_Entry], error: Exception) -> None:
        """Even a bug does not keep a gate where it is."""
        logger.error("making an append failed", exc_info=error)
        self._go_on(partition, waiting, None)

    def _abandon(self, entry: _Entry) -> None:
        if entry.append is not None and not entry.is_abandoned:
            entry.is_abandoned = True
            entry.append.abandon()
            self._abandoned_bytes += entry.append.size_bytes + _ENTRY_BYTES
            if self._abandoned_bytes > ABANDONED_BYTES_MAX:
                self._forget(entry)

    def _forget(self, entry: _Entry) -> None:
        """Nothing is held for it any more."""
        if entry.is_abandoned and entry.append is not None:
            self._abandoned_bytes -= entry.append.size_bytes + _ENTRY_BYTES
        entry.append = entry.preparation = None
