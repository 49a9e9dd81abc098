"""A metadata log in memory, which keeps what the versions of records keep."""

from odradek.coordinator.controller.log import LoadedBatch
from odradek.coordinator.controller.record_versions import version_of
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import (
    BeginTransactionRecord,
    ControlRecord,
    EndTransactionRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from odradek.wire.work import finish

RECORDS_MAX = 10_000


class MemoryMetadataLog:
    """`fails` makes the next append fail."""

    def __init__(self, *control_records: ControlRecord) -> None:
        self.held: list[LoadedBatch] = []
        self.fails = False
        self._control_records = control_records
        if control_records:
            self._hold(control_records)

    @property
    def end_offset(self) -> int:
        return self.held[-1].last_offset + 1 if self.held else 0

    @property
    def records(self):
        """All records, in one list."""
        return [record for batch in self.held for record in batch.records]

    def batches(self):
        return iter(list(self.held))

    def append(self, records, metadata_version):
        return finish(self.appending(records, metadata_version))

    def appending(self, records, metadata_version):
        kept = []
        for record in records:
            kept.append(through_bytes(record, metadata_version))
        yield None
        if self.fails:
            self.fails = False
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        assert kept, "nothing is to be appended"
        if len(kept) <= RECORDS_MAX:
            self._hold(kept)
        else:
            self._hold([BeginTransactionRecord(), *kept[: RECORDS_MAX - 1]])
            for first in range(RECORDS_MAX - 1, len(kept), RECORDS_MAX):
                self._hold(kept[first : first + RECORDS_MAX])
            self._hold([EndTransactionRecord()])
        return self.end_offset - 1

    def replace_by_snapshot(self, records, metadata_version):
        """Forget all batches for a snapshot of them, which begins with the control records."""
        kept = [through_bytes(record, metadata_version) for record in records]
        last_offset = self.end_offset - 1
        self.held = [LoadedBatch([*self._control_records, *kept], last_offset, is_snapshot=True)]

    def _hold(self, records) -> None:
        self.held.append(LoadedBatch(list(records), self.end_offset + len(records) - 1, is_snapshot=False))


def through_bytes(record, metadata_version):
    """The record as a log has it that was written at this metadata.version."""
    return decode_metadata_record(encode_metadata_record(record, version_of(record, metadata_version)))
