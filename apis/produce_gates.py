"""Appends that take long, and the later appends that wait for them.

A batch that needs long decompression, compression or conversion is prepared in a worker thread. Until it is
in the log its partition has a gate: all later appends of clients to that partition, over any connection, wait
there and are made in the order of arrival. So sequence numbers and duplicates are checked as if nothing had
waited. Other partitions and the connections go on meanwhile.

Waiting appends hold a copy of their records, which counts among the bytes that the connection waits for until
the response. If the connection closes, its appends are still made, as in Kafka, up to `ABANDONED_BYTES_MAX`
for all such connections; the rest is dropped, since it was never acknowledged.

Each partition has one preparation at a time; partitions take turns.
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
"""Bound of the abandoned appends: the same bytes as one connection may hold."""
_ENTRY_BYTES = 1024
"""Memory of an append beside its records."""

Preparation = Callable[[], Any]
"""To be called in any thread; raises `KafkaError` for a refusal."""


class LateAppend(Protocol):
    """An append that could not be made at once."""

    size_bytes: int
    """The size of its records."""

    def attempt(self) -> Preparation | None:
        """Makes the append, or raises `KafkaError`. If it would take long, does nothing and returns its
        preparation, which has to run before `make`."""

    def make(self, prepared: Any) -> None:
        """Makes the append with the result of its preparation, or raises `KafkaError`."""

    def refuse(self, error: KafkaError) -> None:
        """The append is dropped."""

    def abandon(self) -> None:
        """The connection closed: frees the objects that only its response needs."""


class _Entry:
    """An append that waits at a gate."""

    __slots__ = ("append", "is_abandoned", "preparation")

    def __init__(self, append: LateAppend, preparation: Preparation | None = None) -> None:
        self.append: LateAppend | None = append
        """None when it was made, refused or dropped."""
        self.preparation = preparation
        """Runs before it can be made; None as long as that is not known."""
        self.is_abandoned = False

    def attempt(self) -> None:
        """Tries the append: it is made, refused, or gets a preparation."""
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
        """An error other than a refusal is a bug: only this append fails."""
        if not isinstance(error, KafkaError):
            logger.error("an append failed", exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if self.append is not None:
            self.append.refuse(error)


class Gates:
    """The gates of all partitions.

    `open` has the waiting appends by partition, without the append that is being prepared. A handler checks
    it before an append, and calls `wait` if the partition has a gate.
    """

    __slots__ = ("_abandoned_bytes", "_conversions", "open")

    def __init__(self, conversions: WorkQueue) -> None:
        self._conversions = conversions
        self._abandoned_bytes = 0
        self.open: dict[Any, deque[_Entry]] = {}

    def wait(self, partition: Any, append: LateAppend, preparation: Preparation | None) -> Callable[[], None]:
        """Makes the append in its turn. `preparation` is given if the partition has no gate yet.

        Returns the function to call when the connection closes; it has no effect on a finished append.
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
        """Goes on with `first`, which takes long, or with waiting appends; removes the gate if there are
        none."""
        if first is None and not waiting:
            del self.open[partition]
            return
        self._conversions.run(
            self._making(waiting, first),
            partial(self._go_on, partition, waiting),
            partial(self._failed, partition, waiting),
        )

    def _making(self, waiting: deque[_Entry], first: _Entry | None) -> Work[_Entry | None]:
        """Makes the first append and the ones behind it, up to the next one that takes long, which is
        returned: other partitions may have their turn before it."""
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
        """After a bug the gate goes on with the next append."""
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
        """Frees the bytes of the append."""
        if entry.is_abandoned and entry.append is not None:
            self._abandoned_bytes -= entry.append.size_bytes + _ENTRY_BYTES
        entry.append = entry.preparation = None
