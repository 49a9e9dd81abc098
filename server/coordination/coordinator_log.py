"""A storage partition as the log under a coordinator's state machine (`coordinator.log.CoordinatorLog`).

Records are staged as one batch and written with everything else of the loop's turn, so a commit of offsets
costs no write of its own. Callbacks come in the order of the appends, whatever happens to each.

Records of a transaction are a batch of their producer's, and a marker is a control batch, as in any other
partition: this one, too, has a last stable offset, and a list of what was aborted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from odradek.apis.turn import FLUSHED, until
from odradek.coordinator.effects import MarkerRecord, TransactionalRecord
from odradek.storage.log import transactions as storage
from odradek.storage.log.appends import Origin
from odradek.storage.log.partition import READ_LOG_END
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import (
    batch_records,
    build_keyed_batch,
    iter_whole_batches,
    read_end_txn_marker,
    verify_crc,
)

if TYPE_CHECKING:
    import asyncio

    from odradek.apis.replicas import Replicas
    from odradek.coordinator.effects import LoggedRecord, LogRecord
    from odradek.server.network._pipeline import Turn
    from odradek.storage.log._staging import Appended
    from odradek.storage.log.partition import Partition
    from odradek.wire._records import BatchHeader
    from odradek.wire.end_marker import EndMarker

logger = logging.getLogger("odradek.coordinator")

READ_BYTES = 256 * 1024
"""At a time while loading: a few milliseconds' work."""

Then = Callable[[KafkaError | None], None]


class _Pending:
    """One append without a reported result; the turn calls it with the result. Results are reported in order,
    up to the first append without one."""

    __slots__ = ("_log", "error", "is_settled", "then")

    def __init__(self, log: PartitionLog, then: Then) -> None:
        self._log = log
        self.then = then
        self.is_settled = False
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None) -> None:
        self.is_settled = True
        self.error = error
        pending = self._log.pending
        while pending and pending[0].is_settled:
            told = pending.popleft()
            try:
                told.then(told.error)
            except Exception:
                logger.exception("callback after an append to %s failed", self._log.name)


class PartitionLog:
    """See the module's opening lines."""

    def __init__(
        self,
        partition: Partition,
        turn: Turn,
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        replicas: Replicas | None = None,
    ) -> None:
        """`replicas` of a node of a cluster."""
        self._partition = partition
        self._appender = partition.appender
        self._turn = turn
        self._now_ms = now_ms
        self._loop = loop
        self._replicas = replicas
        self._read_until = 0
        """Where the next batch to read begins."""
        self.read_from = 0
        """Where the first of them began."""
        self.name = partition.name
        self.pending: deque[_Pending] = deque()
        """Appends whose result was not reported, in order."""

    @property
    def is_replicated(self) -> bool:
        """Whether there are other replicas."""
        return self._appender.is_replicated

    def check_replicas(self) -> None:
        """Refuses with NOT_ENOUGH_REPLICAS and NOT_LEADER_OR_FOLLOWER."""
        if self._replicas is not None:
            self._replicas.check_append((self._partition.topic, self._partition.index))

    def check_producer(self, producer: tuple[int, int], verified: storage.Verified | None) -> None:
        """Refuses as `append` would now."""
        self._partition.log.producers.check_coordinators(*producer, True, verified)

    def check_marker(self, marker: EndMarker) -> None:
        """Refuses as `append_marker` would now."""
        self._partition.log.producers.check_marker(marker)

    def append(self, records: list[LogRecord], then: Then, producer: tuple[int, int] | None = None) -> None:
        """Stages the records; `then` gets the result, later and in order."""
        pending = _Pending(self, then)
        self.pending.append(pending)
        try:
            appended = self._append(records, producer)
        except Exception as error:
            self._refuse(pending, error)
        else:
            self._turn.add(self._partition, pending, until(appended.must_flush, self._appender.is_replicated))

    def append_marker(self, marker: EndMarker, then: Then) -> None:
        """Stages the end of a transaction; as `append`."""
        pending = _Pending(self, then)
        self.pending.append(pending)
        try:
            appended = self._partition.appends.append_marker(marker, now_ms=self._now_ms())
        except Exception as error:
            self._refuse(pending, error)
        else:
            self._turn.add(self._partition, pending, until(appended.must_flush, self._appender.is_replicated))

    def _refuse(self, pending: _Pending, error: Exception) -> None:
        if not isinstance(error, KafkaError):
            # Without this, callers of this append and of all later ones would wait forever.
            logger.error("records of %s cannot be appended", self.name, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._loop.call_soon(pending, error)

    def _append(self, records: list[LogRecord], producer: tuple[int, int] | None) -> Appended:
        batch = build_keyed_batch(records) if producer is None else build_keyed_batch(records, *producer)
        limit_bytes = self._partition.config.max_message_bytes
        if len(batch) > limit_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(batch)} bytes of records are over max.message.bytes={limit_bytes}",
            )
        return self._partition.appends.append(batch, now_ms=self._now_ms(), origin=Origin.COORDINATOR)

    def read_all(self) -> Iterator[LoggedRecord]:
        """Every record and every end of a transaction, from the log's start to its end."""
        return chain.from_iterable(self._read_batches())

    def delete_before(self, offset: int, then: Then) -> None:
        """See `CoordinatorLog`."""

        def flushed(error: KafkaError | None) -> None:
            if error is None:
                try:
                    self._partition.retention.delete_records(offset)
                except KafkaError as refusal:
                    error = refusal
            then(error)

        self._turn.add(self._partition, flushed, FLUSHED)

    def waits_for_replicas(self, then: Then) -> bool:
        """See `CoordinatorLog`."""
        if self._partition.high_watermark >= self._read_until:
            return False
        self._partition.when_high_watermark(self._read_until, then)
        return True

    def _read_batches(self) -> Iterator[list[LoggedRecord]]:
        partition = self._partition
        self._read_until = self.read_from = partition.log_start_offset
        while (start := self._read_until) < partition.log_end_offset:
            records = partition.read(start, max_bytes=READ_BYTES, isolation=READ_LOG_END).records
            buffer = b"".join(records.buffers())
            if not buffer:
                return
            for position, header in iter_whole_batches(buffer):
                verify_crc(buffer, position, header)
                # The log may begin within a batch, which is read as a whole.
                self.read_from = min(self.read_from, header.base_offset)
                self._read_until = header.last_offset + 1
                yield _records_of(buffer, position, header)
            if self._read_until == start:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"{self.name} has no whole batch at offset {start}"
                )


def _records_of(buffer: bytes, position: int, header: BatchHeader) -> list[LoggedRecord]:
    """The records of one batch for a machine."""
    records = batch_records(buffer, position, header)
    if header.is_control:
        markers = (read_end_txn_marker(record) for record in records)
        return [
            MarkerRecord(header.producer_id, marker.committed) for marker in markers if marker is not None
        ]
    if header.is_transactional:
        producer_id = header.producer_id
        return [
            TransactionalRecord(key, value, timestamp, producer_id)
            for _, timestamp, key, value, _ in records
            if key is not None
        ]
    return [(key, value, timestamp) for _, timestamp, key, value, _ in records if key is not None]
