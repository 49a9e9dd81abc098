"""A storage partition as the log under a coordinator's state machine (`coordinator.log.CoordinatorLog`).

Records are staged as one batch and written with everything else of the loop's turn, so a commit of offsets
costs no write of its own. Callbacks come in the order of the appends, whatever happens to each.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from odradek.storage.partition import Origin
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, batch_records, build_batch, iter_whole_batches, verify_crc

if TYPE_CHECKING:
    import asyncio

    from odradek.coordinator.effects import LogRecord
    from odradek.server.turn import LoopTurn
    from odradek.storage.partition import Partition

logger = logging.getLogger("odradek.coordinator")

READ_BYTES = 256 * 1024
"""At a time while loading: a few milliseconds' work."""

Then = Callable[[KafkaError | None], None]


class _Pending:
    """One append whose outcome has not been told."""

    __slots__ = ("error", "is_settled", "then")

    def __init__(self, then: Then) -> None:
        self.then = then
        self.is_settled = False
        self.error: KafkaError | None = None


class PartitionLog:
    """See the module's opening lines."""

    def __init__(
        self,
        partition: Partition,
        turn: LoopTurn,
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._partition = partition
        self._turn = turn
        self._now_ms = now_ms
        self._loop = loop
        self._pending: deque[_Pending] = deque()

    def append(self, records: list[LogRecord], then: Then) -> None:
        """Stages the records; `then` is told how it went, later and in order."""
        pending = _Pending(then)
        self._pending.append(pending)
        try:
            batch = build_batch(
                Record(offset, timestamp, key, value)
                for offset, (key, value, timestamp) in enumerate(records)
            )
            limit_bytes = self._partition.config.max_message_bytes
            if len(batch) > limit_bytes:
                raise KafkaError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"{len(batch)} bytes of records are over max.message.bytes={limit_bytes}",
                )
            appended = self._partition.append(batch, now_ms=self._now_ms(), origin=Origin.COORDINATOR)
        except KafkaError as error:
            self._loop.call_soon(self._settle, pending, error)
            return
        except Exception:
            # Whoever waits for this append, and all after it, would wait for ever.
            logger.exception("records of %s cannot be appended", self._partition.name)
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._loop.call_soon(self._settle, pending, refusal)
            return
        self._turn.add(self._partition, lambda error: self._settle(pending, error), appended.must_flush)

    def read_all(self) -> Iterator[LogRecord]:
        """Key, value and timestamp of every record, from the log's start to its end."""
        return chain.from_iterable(self._read_batches())

    def _read_batches(self) -> Iterator[list[LogRecord]]:
        partition = self._partition
        offset = partition.log_start_offset
        while offset < partition.log_end_offset:
            records = partition.read(offset, max_bytes=READ_BYTES).records
            buffer = b"".join(records.buffers())
            if not buffer:
                return
            start = offset
            for position, header in iter_whole_batches(buffer):
                verify_crc(buffer, position, header)
                offset = header.last_offset + 1
                if not header.is_control:
                    yield [
                        (key, value, timestamp)
                        for _, timestamp, key, value, _ in batch_records(buffer, position, header)
                        if key is not None
                    ]
            if offset == start:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"{partition.name} has no whole batch at offset {start}"
                )

    def _settle(self, pending: _Pending, error: KafkaError | None) -> None:
        pending.is_settled = True
        pending.error = error
        while self._pending and self._pending[0].is_settled:
            told = self._pending.popleft()
            try:
                told.then(told.error)
            except Exception:
                logger.exception("what followed an append to %s failed", self._partition.name)
