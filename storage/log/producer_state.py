"""The producers of a partition: epoch, the last five batches (to detect duplicates), and the open
transaction.

Rules as in `ProducerAppendInfo.java` and `ProducerStateEntry.java`; snapshots in the format of
`ProducerStateManager.java` (version int16, CRC-32C uint32 over the rest, array of entries).

Appends are recorded when they are staged. `table.commit` makes them permanent, `rollback` undoes all of them.
A transaction counts for `first_unstable_offset` until its marker is committed.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable

from odradek.storage.log._staging import ProducerEntry, ProducerTable
from odradek.storage.log.batches import BatchMemory, StoredBatch, last_sequence
from odradek.storage.log.transaction_index import AbortedTransaction
from odradek.storage.log.transactions import Verification, Verified, stored_marker
from odradek.wire.checksums import crc32c
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import SEQUENCE_MAX

EXPIRATION_MS = 86_400_000
NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_VERSION = -1
VERIFICATIONS_MAX = 10_000
"""Producers of one partition; a client with many invented producer ids removes the oldest ones."""
_STALE_MAX = 64

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRIES_FROM = 6
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class ProducerState:
    """All producers of a partition. `table` is the part that the fast append uses; `producers` is by producer
    id.
    """

    __slots__ = ("_verifications", "producers", "table")

    def __init__(self, producers: dict[int, ProducerEntry] | None = None) -> None:
        self.table = ProducerTable(producers)
        self.producers = self.table.producers
        self._verifications: dict[int, Verification] = self.table.verifications

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction whose marker is not committed or not replicated
        yet."""
        table = self.table
        if not table.order and not table.ended and not table.unreplicated:
            return None
        first_offset = self._first_open()
        if not table.ended and not table.unreplicated:
            return first_offset
        ended = min(first for first, _ in (*table.unreplicated, *table.ended))
        return ended if first_offset is None else min(first_offset, ended)

    def set_replicated(self, is_replicated: bool) -> None:
        """Set whether a transaction counts as open until its marker is on all replicas
        (`replicated_until`)."""
        self.table.is_replicated = is_replicated
        if not is_replicated:
            self.table.unreplicated.clear()

    def replicated_until(self, high_watermark: int) -> None:
        """All replicas in sync have the markers before the high watermark. Kafka:
        `removeUnreplicatedTransactions`."""
        unreplicated = self.table.unreplicated
        if unreplicated and unreplicated[0][1] < high_watermark:
            unreplicated[:] = [one for one in unreplicated if one[1] >= high_watermark]

    def _first_open(self) -> int | None:
        """The first offset of the earliest transaction without a committed or staged marker."""
        order, still_open = self.table.order, self.table.open
        while order and order[0] not in still_open:
            order.popleft()
        return order[0] if order else None

    # Checks

    def check(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        is_transactional: bool = False,
        verified: Verified | None = None,
    ) -> BatchMemory | None:
        """Check a client's batch: None to append it, or the entry of the same batch, appended before.

        Refuses with INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE and
        UNKNOWN_PRODUCER_ID (`_check_not_reused`).
        """
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch == entry.producer_epoch:
            for batch in entry.batches:
                if batch[0] == first_sequence and batch[1] == last_sequence:
                    if is_transactional and not _is_in_open_transaction(entry, batch):
                        self._check_not_reused(producer_id, producer_epoch, verified)
                    return batch
        if is_transactional:
            self._check_verified(producer_id, producer_epoch, verified)
            self._check_first_sequence(producer_id, first_sequence)
        if entry is None:
            # An unknown or expired producer may begin with any sequence.
            return None
        current_epoch = entry.producer_epoch
        if producer_epoch == current_epoch:
            current = entry.last_sequence
            if first_sequence != current + 1 and not (first_sequence == 0 and current == SEQUENCE_MAX):
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {producer_id} sent sequence number {first_sequence} after {current}.",
                )
        else:
            self.check_epoch(producer_id, producer_epoch)
            if first_sequence != 0 and current_epoch != NO_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {producer_id} begins its epoch {producer_epoch} with sequence number "
                    f"{first_sequence} instead of 0.",
                )
        if not is_transactional:
            self._check_not_open(producer_id, entry)
        return None

    def check_coordinators(
        self, producer_id: int, producer_epoch: int, is_transactional: bool, verified: Verified | None
    ) -> None:
        """Check a coordinator's batch, which has no sequence. Without `verified` its transaction is not
        verified. Refuses with INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE.
        """
        if is_transactional and verified is not None:
            self._check_verified(producer_id, producer_epoch, verified)
        self.check_epoch(producer_id, producer_epoch)
        entry = self.producers.get(producer_id)
        if entry is not None and not is_transactional:
            self._check_not_open(producer_id, entry)

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse with INVALID_PRODUCER_EPOCH an epoch before the producer's current one."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {producer_epoch} of producer {producer_id} is older than {entry.producer_epoch}, the "
                "last one seen.",
            )

    def check_marker(self, marker: EndMarker) -> None:
        """Refuse with INVALID_PRODUCER_EPOCH a marker of an old epoch, with TRANSACTION_COORDINATOR_FENCED a
        marker of a former coordinator.

        From version 2 on every transaction ends with a new epoch: a marker with the current epoch is late,
        unless no transaction is open; then it was sent again and is appended again, as in Kafka. A marker
        without a producer or an epoch, or of version -1 (`NO_VERSION`), is refused with UNKNOWN_SERVER_ERROR,
        as in Kafka.
        """
        if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_EPOCH:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{marker} has no producer or no epoch.")
        entry = self.producers.get(marker.producer_id)
        if entry is not None:
            self._check_marker_epoch(marker, entry)
        if marker.transaction_version == NO_VERSION:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{marker} has no version.")
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"A marker for producer {marker.producer_id} has the coordinator epoch "
                f"{marker.coordinator_epoch}; the last one seen is {entry.coordinator_epoch}.",
            )

    def _check_marker_epoch(self, marker: EndMarker, entry: ProducerEntry) -> None:
        epoch, current = marker.producer_epoch, entry.producer_epoch
        is_late = marker.transaction_version >= 2 and epoch == current and entry.current_txn_first_offset >= 0
        if epoch < current or is_late:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"A marker of version {marker.transaction_version} for producer {marker.producer_id} has the "
                f"epoch {epoch}; the last one seen is {current}.",
            )

    def _check_not_open(self, producer_id: int, entry: ProducerEntry) -> None:
        if entry.current_txn_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has a transaction open here and sent a batch that is not in one.",
            )

    def _check_verified(self, producer_id: int, producer_epoch: int, verified: Verified | None) -> None:
        """Refuse a batch unless it continues its producer's transaction or begins a verified one."""
        if self._has_open(producer_id, producer_epoch):
            return
        self.check_epoch(producer_id, producer_epoch)
        if not self._is_verified(producer_id, verified):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"The coordinator has not confirmed a transaction of producer {producer_id} for this batch"
                + ("." if verified is None else f" (transaction version {verified.version})."),
            )

    def _is_verified(self, producer_id: int, verified: Verified | None) -> bool:
        verification = None if verified is None else verified.verification
        return verification is not None and self._verifications.get(producer_id) is verification

    def _check_not_reused(self, producer_id: int, producer_epoch: int, verified: Verified | None) -> None:
        """Refuse a batch of the producer's next transaction that has the sequence numbers of one in an
        earlier transaction. Kafka takes it for that one, and acknowledges it. But a client waits for all
        responses before it commits, and sends nothing again after an abort: so these are other records, of a
        client that does not know that the numbers are used, and they would be lost
        (findings/librdkafka-abort-sequence.sh).

        With this code librdkafka asks for the next epoch, and the program can abort and go on.
        """
        if self._has_open(producer_id, producer_epoch) or self._is_verified(producer_id, verified):
            raise KafkaError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"Producer {producer_id} has sent these sequence numbers in a transaction that has ended.",
            )

    def _check_first_sequence(self, producer_id: int, first_sequence: int) -> None:
        """Refuse a batch if its verification expects one with a lower sequence first; an open transaction has
        no verification."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        entry = self.producers.get(producer_id)
        is_unknown = entry is None or not entry.batches
        lowest = 0 if is_unknown and verification.version >= 2 else verification.lowest_sequence
        if first_sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} begins its transaction with sequence number {first_sequence}, where "
                f"{lowest} has to come first.",
            )

    def _has_open(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset >= 0
            and entry.producer_epoch == producer_epoch
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, version: int
    ) -> Verification | None:
        """See `Partition.begin_verification`."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch <= entry.producer_epoch:
            self.check_epoch(producer_id, producer_epoch)
            if entry.current_txn_first_offset >= 0:
                return None
        verification = self._verifications.get(producer_id)
        if verification is not None:
            verification.take_in(producer_epoch, base_sequence)
            return verification
        if len(self._verifications) >= VERIFICATIONS_MAX:
            del self._verifications[next(iter(self._verifications))]
        verification = Verification(producer_epoch, base_sequence, version)
        self._verifications[producer_id] = verification
        return verification

    # Appends

    def stage_marker(self, marker: EndMarker, offset: int, timestamp: int) -> AbortedTransaction | None:
        """Record a staged marker at `offset`. Returns the transaction that it aborts, if there is one."""
        producer_id = marker.producer_id
        self._verifications.pop(producer_id, None)
        entry = self.producers.get(producer_id)
        first_offset = -1
        if entry is None:
            self.table.undo.append((producer_id, None, None))
            self.producers[producer_id] = ProducerEntry(
                marker.producer_epoch, timestamp, (), marker.coordinator_epoch
            )
        else:
            first_offset = entry.current_txn_first_offset
            # Batches of another epoch are removed.
            is_same = entry.producer_epoch == marker.producer_epoch
            self.table.undo.append((producer_id, entry, None))
            self.producers[producer_id] = ProducerEntry(
                marker.producer_epoch,
                timestamp,
                entry.batches if is_same else (),
                marker.coordinator_epoch,
            )
        if first_offset < 0:
            return None
        table = self.table
        table.ended.append((first_offset, offset))
        table.open.pop(first_offset, None)
        following = self._first_open()
        order = table.order
        if order is not None and len(order) > _STALE_MAX + 2 * len(table.open):
            table.order = deque(first for first in order if first in table.open)
        if marker.commit:
            return None
        last_stable_offset = offset + 1 if following is None else following
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def rollback(self) -> None:
        """Undo the staged batches and markers."""
        table = self.table
        while table.undo:
            producer_id, entry, memory = table.undo.pop()
            table.open.pop(self.producers[producer_id].current_txn_first_offset, None)
            if entry is None:
                del self.producers[producer_id]
                continue
            if memory is None:
                self.producers[producer_id] = entry
            else:
                entry.restore(memory)
            if entry.current_txn_first_offset >= 0:
                table.open[entry.current_txn_first_offset] = producer_id
        table.ended.clear()
        table.order = deque(sorted(table.open)) if table.open else None

    def replay(self, batch: StoredBatch, read: Callable[[int, int], bytes]) -> AbortedTransaction | None:
        """Add a batch of the log, without checks. `read(position, size)` returns bytes of its file. Returns
        the transaction that it aborts, if that has data here.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        aborted = None
        if not batch.is_control:
            self.table.stage(
                producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                last_sequence(batch.base_sequence, batch.last_offset_delta),
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                # Compaction keeps such a batch of a transaction that has ended.
                batch.is_transactional and batch.record_count > 0,
            )
        elif (marker := stored_marker(batch, read)) is not None:
            aborted = self.stage_marker(marker, batch.base_offset, batch.max_timestamp)
        self.table.commit()
        return aborted

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Remove producers without a batch for `expiration_ms` and without an open transaction, and
        verifications without an append. Nothing may be staged.
        """
        gone = [
            producer_id
            for producer_id, entry in self.producers.items()
            if now_ms - entry.last_timestamp >= expiration_ms and entry.current_txn_first_offset < 0
        ]
        for producer_id in gone:
            del self.producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if verification.seen_ms is None:
                verification.seen_ms = now_ms
            elif now_ms - verification.seen_ms >= expiration_ms:
                del self._verifications[producer_id]

    def last_offsets(self) -> dict[int, int]:
        """The offset of each producer's last record, by producer id: compaction keeps these batches."""
        return {producer_id: entry.last_data_offset for producer_id, entry in self.producers.items()}


def _is_in_open_transaction(entry: ProducerEntry, batch: BatchMemory) -> bool:
    """Whether a batch of the producer belongs to the transaction that has not ended yet."""
    _, _, first_offset, _, _ = batch
    return 0 <= entry.current_txn_first_offset <= first_offset


def encode_snapshot(producers: dict[int, ProducerEntry]) -> bytes:
    """The content of a `.snapshot` file, with only the last batch of each producer."""
    parts = [b""]
    for producer_id, entry in producers.items():
        _, last, first_offset, last_offset, _ = entry.batches[-1] if entry.batches else _NO_BATCH
        parts.append(
            _SNAPSHOT_ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                last,
                last_offset,
                last_offset - first_offset,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    parts[0] = struct.pack(">i", len(producers))
    body = b"".join(parts)
    return struct.pack(">hI", _SNAPSHOT_VERSION, crc32c(body)) + body


_NO_BATCH: BatchMemory = (-1, -1, -1, -1, -1)


def decode_snapshot(data: bytes) -> dict[int, ProducerEntry] | None:
    """The producers of a `.snapshot` file; None if it is damaged or of another version."""
    if len(data) < _SNAPSHOT_HEAD.size:
        return None
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION or crc32c(data[_SNAPSHOT_ENTRIES_FROM:]) != crc:
        return None
    if count < 0 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        return None
    producers: dict[int, ProducerEntry] = {}
    for one in _snapshot_entries(data):
        producer_id, producer_epoch, last, last_offset, delta, timestamp, coordinator_epoch, txn_offset = one
        batches: tuple[BatchMemory, ...] = ()
        if last_offset >= 0:
            first_sequence = last - delta if last >= delta or last < 0 else last - delta + SEQUENCE_MAX + 1
            batches = ((first_sequence, last, last_offset - delta, last_offset, timestamp),)
        producers[producer_id] = ProducerEntry(
            producer_epoch, timestamp, batches, coordinator_epoch, txn_offset
        )
    return producers


def _snapshot_entries(data: bytes) -> Iterable[tuple[int, ...]]:
    return _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :])
