"""The metadata log, as a controller uses it. What is appended is committed once it is durable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from odradek.wire.messages.metadata_records import AnyRecord, MetadataRecord
from odradek.wire.work import Work


class LoadedBatch(NamedTuple):
    """Records that were appended together."""

    records: Iterable[AnyRecord]
    """To be taken once, before the next batch."""
    last_offset: int
    """For a batch of a snapshot: the last offset that the snapshot sums up."""
    is_snapshot: bool


class SnapshotId(NamedTuple):
    """Name of a snapshot of the metadata log."""

    end_offset: int
    """Offset of the first record after it."""
    epoch: int
    """Epoch of the last record that it sums up."""


class EpochEnd(NamedTuple):
    """A leader epoch, and the offset after its last record."""

    epoch: int
    end_offset: int


class MetadataLog(Protocol):
    """See the module."""

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""

    def batches(self) -> Iterable[LoadedBatch]:
        """All batches of the newest snapshot, then all batches after it."""

    def appending(self, records: Iterable[MetadataRecord], metadata_version: int) -> Work[int]:
        """Append all records as a whole, durable at its end; more than 10,000 as a transaction. Returns the
        offset of the last record.

        Nothing has changed after a KafkaError, nor when it is closed before its end. Nothing else may be
        appended until then.
        """

    def append(self, records: Iterable[MetadataRecord], metadata_version: int) -> int:
        """`appending` here and now."""
