"""Batches of metadata records, byte for byte as Kafka's controllers write them.

All records of a batch have its timestamp: Kafka refuses others in a metadata log. Batches are not compressed.

Source: BatchBuilder and BatchAccumulator of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.coordinator.controller.record_versions import version_of
from odradek.wire.messages.metadata_records import (
    ControlRecord,
    MetadataRecord,
    encode_control_record,
    encode_metadata_record,
)
from odradek.wire.record_layout import HEADER_SIZE_BYTES, Record
from odradek.wire.records import batch_of_section, build_batch, zigzag_varint

BATCH_RECORDS_MAX = 10_000
"""QuorumController.DEFAULT_MAX_RECORDS_PER_BATCH"""
BATCH_BYTES_MAX = 8_388_608
"""`internal.metadata.max.batch.size.in.bytes`: Kafka's followers refuse more."""


class BatchBuilder:
    """One batch that grows. `next_offset` is the offset after its last record."""

    def __init__(self, base_offset: int, leader_epoch: int, now_ms: int) -> None:
        self.next_offset = base_offset
        self.size_bytes = HEADER_SIZE_BYTES
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self._section = bytearray()

    @property
    def record_count(self) -> int:
        return self.next_offset - self._base_offset

    def takes(self, record: MetadataRecord, metadata_version: int) -> bool:
        """Add a record; False, without a change, if the batch would have too many records or bytes. The first
        record is always taken.

        ValueError: there is no such record at this metadata.version.
        """
        value = encode_metadata_record(record, version_of(record, metadata_version))
        body = b"".join(
            (
                b"\0\0",
                zigzag_varint(self.record_count),
                zigzag_varint(-1),
                zigzag_varint(len(value)),
                value,
                b"\0",
            )
        )
        length = zigzag_varint(len(body))
        size_bytes = self.size_bytes + len(length) + len(body)
        is_full = self.record_count >= BATCH_RECORDS_MAX or size_bytes > BATCH_BYTES_MAX
        if is_full and self.record_count:
            return False
        self._section += length
        self._section += body
        self.size_bytes = size_bytes
        self.next_offset += 1
        return True

    def build(self) -> bytearray:
        """The batch, of one record at least."""
        return batch_of_section(
            self._section,
            self.record_count,
            base_timestamp=self._now_ms,
            max_timestamp=self._now_ms,
            base_offset=self._base_offset,
            leader_epoch=self._leader_epoch,
        )


def control_batch(
    records: Sequence[ControlRecord], base_offset: int, leader_epoch: int, now_ms: int
) -> bytearray:
    """A batch of control records."""
    rows = [
        Record(offset, now_ms, *encode_control_record(record))
        for offset, record in enumerate(records, base_offset)
    ]
    return build_batch(rows, leader_epoch=leader_epoch, control=True)
