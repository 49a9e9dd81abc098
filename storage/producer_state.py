"""What a partition remembers of idempotent producers: epoch, the last five batches, and which are duplicates.

Rules as in `ProducerAppendInfo.java` and `ProducerStateEntry.java`; snapshots in the format of
`ProducerStateManager.java` (version int16, CRC-32C uint32 over the rest, array of entries).

Appends are recorded when they are staged. `commit` makes them permanent, `rollback` takes all of them back.
Transactions are not built yet: the fields for them are read, kept and written.
"""

import struct
from collections.abc import Iterable

from odradek.storage.batches import SEQUENCE_MAX, StoredBatch, last_sequence
from odradek.storage.staging import BatchMemory, ProducerEntry, ProducerTable
from odradek.wire.checksums import crc32c
from odradek.wire.errors import ErrorCode, KafkaError

EXPIRATION_MS = 86_400_000
NO_EPOCH = -1

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRIES_FROM = 6
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class ProducerState(ProducerTable):
    """All producers of a partition."""

    __slots__ = ()

    def check(
        self, producer_id: int, producer_epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMemory | None:
        """Judge a batch that a client sent: None to append it, or the memory of the same batch appended
        before.

        Refuses with INVALID_PRODUCER_EPOCH and OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            # Nothing is known, perhaps since the producer expired: any sequence will do.
            return None
        current_epoch = entry.producer_epoch
        if producer_epoch == current_epoch:
            current = -1
            for batch in entry.batches:
                current = batch[1]
                if batch[0] == first_sequence and current == last_sequence:
                    return batch
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
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse with INVALID_PRODUCER_EPOCH what comes from before the producer's current epoch."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {producer_epoch} of producer {producer_id} is older than {entry.producer_epoch}, the "
                "last one seen.",
            )

    def stage(
        self,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """Remember a batch, until further notice."""
        batch = (first_sequence, last_sequence, first_offset, last_offset, timestamp)
        entry = self.producers.get(producer_id)
        if entry is None:
            self.producers[producer_id] = ProducerEntry(producer_epoch, timestamp, (batch,))
            self._undo.append((producer_id, None, None))
            return
        self._undo.append((producer_id, entry, entry.memory()))
        entry.remember(producer_epoch, batch)

    def commit(self) -> None:
        """What was staged is in the log."""
        if self._undo:
            self._undo.clear()

    def rollback(self) -> None:
        """What was staged never happened."""
        while self._undo:
            producer_id, entry, memory = self._undo.pop()
            if entry is None:
                del self.producers[producer_id]
            else:
                entry.restore(memory)

    def replay(self, batch: StoredBatch) -> None:
        """Take in a batch that is in the log: no questions asked."""
        if batch.producer_id < 0 or batch.is_control:
            return
        self.stage(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            last_sequence(batch.base_sequence, batch.last_offset_delta),
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
        )
        self._undo.clear()

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Forget producers that have not written for so long, unless a transaction is open."""
        gone = [
            producer_id
            for producer_id, entry in self.producers.items()
            if now_ms - entry.last_timestamp >= expiration_ms and entry.current_txn_first_offset < 0
        ]
        for producer_id in gone:
            del self.producers[producer_id]

    def last_offsets(self) -> dict[int, int]:
        """Of every producer the offset of its last record: compaction keeps these batches."""
        return {producer_id: entry.last_data_offset for producer_id, entry in self.producers.items()}


def encode_snapshot(producers: dict[int, ProducerEntry]) -> bytes:
    """The content of a `.snapshot` file. Of each producer's batches only the last one goes in."""
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
    """The producers of a `.snapshot` file; None when it is damaged or of another version."""
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
