"""The records in fetched buffers as Python objects: all formats, compressions, transactions.

for header, timestamp_type, records in batches_of(fetched):
    ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.client.client_error import ClientError
from odradek.client.reading import PartitionRecords
from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.aborted import Aborting
from odradek.wire.compression import DEFAULT_LIMIT_BYTES
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import batch_of_stored, iter_messages, stored_messages
from odradek.wire.record_layout import LENGTH_POSITION, LOG_OVERHEAD_BYTES, MAGIC_POSITION, MAGIC_V2, Record
from odradek.wire.records import iter_records, verify_crc


class StoredBatch(NamedTuple):
    """Records that were written together; those outside of the wanted offsets are left out."""

    header: BatchHeader
    timestamp_type: str
    """"create", "append", or "none": the format v0 has no timestamps."""
    records: Sequence[Record]


def batches_of(fetched: PartitionRecords, *, control: bool = False) -> Iterator[StoredBatch]:
    """The batches with records that are wanted; control records only with `control`.

    ClientError with the offset for bytes that are not sound; the batches before them are yielded.
    """
    view, aborting, position = fetched.buffer, Aborting(fetched.aborted), 0
    while position < len(view):
        size_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(
            view[position + LENGTH_POSITION : position + LOG_OVERHEAD_BYTES], "big"
        )
        entry = view[position : position + size_bytes]
        try:
            if entry[MAGIC_POSITION] < MAGIC_V2:
                yield from _legacy(entry, fetched)
            else:
                yield from _batch(entry, fetched, aborting, control)
        except KafkaError as error:
            raise _corrupt(fetched, entry, error) from error
        position += size_bytes


def _batch(
    entry: memoryview, fetched: PartitionRecords, aborting: Aborting, control: bool
) -> Iterator[StoredBatch]:
    header = read_batch_header(entry)
    is_aborted = aborting.reaches(header)
    if (header.is_control and not control) or (is_aborted and not header.is_control):
        return
    if header.last_offset < fetched.start or (fetched.end is not None and header.base_offset >= fetched.end):
        return
    verify_crc(entry, 0, header)
    records = _wanted([*iter_records(entry, header, limit_bytes=DEFAULT_LIMIT_BYTES)], fetched)
    if records:
        yield StoredBatch(header, "append" if header.uses_log_append_time else "create", records)


def _legacy(entry: memoryview, fetched: PartitionRecords) -> Iterator[StoredBatch]:
    for outer in iter_messages(entry):
        batch = memoryview(batch_of_stored(stored_messages(outer), outer))
        header = read_batch_header(batch)
        kind = "none" if outer.magic == 0 else "append" if header.uses_log_append_time else "create"
        records = _wanted([*iter_records(batch, header)], fetched)
        if records:
            yield StoredBatch(header, kind, records)


def _wanted(records: list[Record], fetched: PartitionRecords) -> list[Record]:
    start, end = fetched.start, fetched.end
    if records and records[0].offset >= start and (end is None or records[-1].offset < end):
        return records
    return [one for one in records if one.offset >= start and (end is None or one.offset < end)]


def _corrupt(fetched: PartitionRecords, entry: memoryview, error: KafkaError) -> ClientError:
    offset = int.from_bytes(entry[:8], "big", signed=True)
    return ClientError(
        f"topic {fetched.topic}, partition {fetched.partition}, the batch at offset {offset} cannot be read: "
        f"{error.message}",
        ErrorCode.CORRUPT_MESSAGE,
    )
