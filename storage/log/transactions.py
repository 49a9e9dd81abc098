"""What a partition is told of transactions, and what it tells.

A transaction begins in a partition with its producer's first batch and ends with a marker, a control batch
that its coordinator sends; meanwhile nothing from its first offset on is stable. What is refused is decided
in `producer_state.py`; which transactions were aborted stands in `transaction_index.py`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.validation import Batch
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import KafkaError
from odradek.wire.records import (
    BatchHeader,
    end_txn_marker,
    iter_records,
    read_batch_header,
    read_end_txn_marker,
)

MARKER_BYTES_MAX = 1 << 20
"""A control batch has some 80 bytes; one that is longer than this is damaged."""


class Verification:
    """That a producer's transaction is being asked about, for its first batch here.

    It holds until that batch has been appended, or a marker: a transaction that its coordinator has ended
    meanwhile must not be begun anew (`VerificationGuard` of Kafka). Of the batches that wait for it the one
    with the lowest sequence has to come first; `version` is the transaction version of the first that did.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "seen_ms", "version")

    def __init__(self, producer_epoch: int, lowest_sequence: int, version: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.version = version
        self.seen_ms: int | None = None
        """When the expiry of producers has come by first."""

    def take_in(self, producer_epoch: int, base_sequence: int) -> None:
        """Another batch waits for it, too."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)


class Verified(NamedTuple):
    """What comes with a transactional batch whose partition the coordinator says to be in the transaction:
    what `Partition.begin_verification` had given, and the transaction version of the request.
    """

    verification: Verification | None
    version: int


class ProducerInfo(NamedTuple):
    """What DescribeProducers tells of a producer; -1 is none. `last_timestamp` in milliseconds."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


@lru_cache(maxsize=16)
def marker_batch(marker: EndMarker, now_ms: int) -> Batch:
    """The control batch that ends a transaction, but for its place (offset and leader epoch), which its
    checksum leaves out: so one serves all partitions of a transaction."""
    content = end_txn_marker(
        committed=marker.commit,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    return Batch(memoryview(bytes(content)), read_batch_header(content))


def read_marker(batch: memoryview, header: BatchHeader) -> EndMarker | None:
    """What a whole control batch says. None where it is of another kind, damaged, or has been emptied by
    compaction. The transaction version does not stand in it.
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
    """The same of a control batch in a segment file, `read(position, size)` being the file's."""
    if batch.size_bytes > MARKER_BYTES_MAX:
        return None
    content = memoryview(read(batch.position, batch.size_bytes))
    try:
        return read_marker(content, read_batch_header(content))
    except KafkaError:
        return None
