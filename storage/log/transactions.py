"""Transactions in a partition: verification, markers, and the state of producers for DescribeProducers.

A transaction begins in a partition with its producer's first batch and ends with a marker, a control batch
from its coordinator; meanwhile no record from its first offset on is stable. Refusals are in
`producer_state.py`, aborted transactions in `transaction_index.py`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.preparation import Batch
from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import KafkaError
from odradek.wire.records import end_txn_marker, iter_records, read_end_txn_marker

MARKER_BYTES_MAX = 1 << 20
"""A control batch has about 80 bytes; a longer one is damaged."""


class Verification:
    """A pending verification of a producer's transaction, for its first batch in this partition.

    It is valid until this batch or a marker is appended: a transaction that its coordinator has ended
    meanwhile must not begin again (`VerificationGuard` of Kafka). Of the batches that wait for it, the one
    with the lowest sequence has to be appended first; `version` is the transaction version of the first
    waiting batch.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "seen_ms", "version")

    def __init__(self, producer_epoch: int, lowest_sequence: int, version: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.version = version
        self.seen_ms: int | None = None
        """The time of the first expiry of producers since its creation."""

    def take_in(self, producer_epoch: int, base_sequence: int) -> None:
        """Add another batch that waits for this verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)


class Verified(NamedTuple):
    """The confirmation for a transactional batch: the coordinator has the partition in the transaction. It
    has the result of `Partition.begin_verification`, and the transaction version of the request.
    """

    verification: Verification | None
    version: int


class ProducerInfo(NamedTuple):
    """A producer for DescribeProducers; -1 is none. `last_timestamp` in milliseconds."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


@lru_cache(maxsize=16)
def marker_batch(marker: EndMarker, now_ms: int) -> Batch:
    """The control batch that ends a transaction, without offset and leader epoch. These are outside of the
    checksum, so one batch serves all partitions of a transaction."""
    content = end_txn_marker(
        committed=marker.commit,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    return Batch(memoryview(bytes(content)), read_batch_header(content))


def read_marker(batch: memoryview, header: BatchHeader) -> EndMarker | None:
    """The marker in a whole control batch. None if it is of another kind, damaged, or emptied by compaction.
    The batch does not have the transaction version.
    """
    if not header.record_count:
        return None
    try:
        record = next(iter_records(batch, header), None)
        found = None if record is None else read_end_txn_marker(record)
    except KafkaError:
        return None
    if found is None:
        return None
    return EndMarker(header.producer_id, header.producer_epoch, found.coordinator_epoch, found.committed, 0)


def stored_marker(batch: StoredBatch, read: Callable[[int, int], bytes]) -> EndMarker | None:
    """The marker in a control batch of a segment file; `read(position, size)` returns bytes of the file."""
    if batch.size_bytes > MARKER_BYTES_MAX:
        return None
    content = memoryview(read(batch.position, batch.size_bytes))
    try:
        return read_marker(content, read_batch_header(content))
    except KafkaError:
        return None
