"""Records one by one into batches for a `Producer`, in plain Python.

gatherer = Gatherer(compression=Compression.LZ4)
full = gatherer.add("orders", 0, timestamp_ms, key, value, ())
if full is not None:
    producer.send(full)
for rest in gatherer.drain():
    producer.send(rest)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.wire.compression import Compression
from odradek.wire.record_layout import HEADER_SIZE_BYTES, Record
from odradek.wire.records import build_batch

BATCH_BYTES = 256 << 10
"""Bound of the records before their compression; a larger record is a batch alone."""
RECORD_BYTES = 24
"""About what a record needs beside its contents."""


class RecordsOfPartition:
    """The records of one batch, without the fields of its producer; `Producer.send` takes it."""

    __slots__ = ("compression", "partition", "records", "size_bytes", "topic")

    def __init__(self, topic: str, partition: int, compression: Compression) -> None:
        self.topic, self.partition, self.compression = topic, partition, compression
        self.records: list[Record] = []
        self.size_bytes = HEADER_SIZE_BYTES

    @property
    def record_count(self) -> int:
        return len(self.records)

    def batch(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> bytearray:
        """The record batch as it is sent."""
        return build_batch(
            self.records,
            compression=self.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )


class Gatherer:
    """Gathers records of many partitions; of each in the order of `add`."""

    def __init__(self, compression: Compression = Compression.NONE, batch_bytes: int = BATCH_BYTES) -> None:
        self._compression, self._batch_bytes = compression, batch_bytes
        self._gathered: dict[tuple[str, int], RecordsOfPartition] = {}

    def add(
        self,
        topic: str,
        partition: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> RecordsOfPartition | None:
        """Adds a record; returns the batch that had no room for it."""
        size = RECORD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += RECORD_BYTES + len(name) + len(content or b"")
        batch, full = self._gathered.get((topic, partition)), None
        if batch is not None and batch.size_bytes + size > self._batch_bytes:
            batch, full = None, batch
        if batch is None:
            batch = RecordsOfPartition(topic, partition, self._compression)
            self._gathered[topic, partition] = batch
        batch.records.append(Record(len(batch.records), timestamp_ms, key, value, headers))
        batch.size_bytes += size
        return full

    def drain(self) -> Iterator[RecordsOfPartition]:
        """The batches that are not full."""
        gathered, self._gathered = self._gathered, {}
        yield from gathered.values()
