"""The records of a Produce request for one partition, checked without reading single records.

From version 3 on they are one batch of format v2. As with Kafka's iterator over batches, an incomplete batch
at the end is cut. Errors are the same as from this iterator.

Source: ProduceRequest.validateRecords, ByteBufferLogInputStream of Kafka 4.3.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import NamedTuple

from odradek.wire.batch_validation import InvalidRecords
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import (
    COMPRESSION_MASK,
    FIRST_PRODUCE_VERSION_WITH_ZSTD,
    HEADER_SIZE_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL,
    Buffer,
)

LEGACY_BODY_BYTES_MIN = 14
"""The size of the smallest message of the formats before v2, without its offset and size fields."""

_length_magic_attributes = Layout(">i4xb4xh").unpack_from
"""The fields from the length on."""
_length = Layout(">i").unpack_from
_magic_attributes_producer = Layout(">b4xh20xqhi").unpack_from
"""The fields from the magic on: magic, attributes, producer id, epoch, base sequence."""


class NotOneBatch(KafkaError):
    """The records are not one v2 batch; raised before a log is used."""


class Producer(NamedTuple):
    """The producer of a batch."""

    producer_id: int
    epoch: int
    base_sequence: int


def single_batch(records: memoryview | None, version: int, may_be_transactional: bool) -> memoryview:
    """The v2 batch in `records`, of a request of version 3 or later.

    Refuses zstd before version 7 with UNSUPPORTED_COMPRESSION_TYPE, a transactional batch of a request
    without transactional id with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as Kafka does.
    """
    # The common case needs only three header fields; other records are checked again.
    size = 0 if records is None else len(records)
    if records is not None and size >= HEADER_SIZE_BYTES:
        length, magic, attributes = _length_magic_attributes(records, LENGTH_POSITION)
        if magic == MAGIC_V2 and length + LOG_OVERHEAD_BYTES == size:
            is_zstd = attributes & COMPRESSION_MASK == Compression.ZSTD
            if is_zstd and version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if attributes & TRANSACTIONAL and not may_be_transactional:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return records
    if records is None:
        raise NotOneBatch(ErrorCode.INVALID_RECORD)
    return single_batch(_without_torn_end(records), version, may_be_transactional)


def is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch says that it is part of a transaction, whoever its producer is."""
    if records is None or len(records) < HEADER_SIZE_BYTES:
        return False
    magic, attributes, *_ = _magic_attributes_producer(records, MAGIC_POSITION)
    return magic == MAGIC_V2 and bool(attributes & TRANSACTIONAL)


def transactional_producer(records: Buffer | None) -> Producer | None:
    """The producer of the first batch, if it is transactional."""
    if records is None or len(records) < HEADER_SIZE_BYTES:
        return None
    magic, attributes, *producer = _magic_attributes_producer(records, MAGIC_POSITION)
    if magic != MAGIC_V2 or not attributes & TRANSACTIONAL or producer[0] < 0:
        return None
    return Producer(*producer)


def _without_torn_end(records: memoryview) -> memoryview:
    """The first batch, without the bytes of an incomplete second one; refuses a second batch."""
    first_end = _end_of_batch(records, 0)
    if first_end is None or records[MAGIC_POSITION] < MAGIC_V2:
        raise NotOneBatch(ErrorCode.INVALID_RECORD)
    if _end_of_batch(records, first_end) is not None:
        raise NotOneBatch(ErrorCode.INVALID_RECORD)
    if first_end < HEADER_SIZE_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
    return records[:first_end]


def _end_of_batch(records: Buffer, start: int) -> int | None:
    """The end of the batch at `start`, None if it is not whole; CORRUPT_MESSAGE if its header is invalid."""
    size = len(records)
    if size - start < LOG_OVERHEAD_BYTES:
        return None
    length = _length(records, start + LENGTH_POSITION)[0]
    if length < LEGACY_BODY_BYTES_MIN:
        raise _unreadable(f"A record batch claims {length} bytes.")
    if size - start <= MAGIC_POSITION:
        return None
    if records[start + MAGIC_POSITION] > MAGIC_V2:
        raise _unreadable(f"A record batch claims the format {records[start + MAGIC_POSITION]}.")
    end = start + LOG_OVERHEAD_BYTES + length
    return end if end <= size else None


def _unreadable(why: str) -> InvalidRecords:
    """Kafka's message has the reason for an invalid header, but not for a wrong checksum."""
    return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, why, ())
