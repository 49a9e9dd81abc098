"""Refusals of unsound record batches: the error code and the sentence of each fault.

The compiled `_records` only decides whether bytes are sound; if not, it calls these functions, which check
again, more slowly, and report the first fault. All codes and texts are in this module.
"""

from struct import error as struct_error
from typing import NoReturn, Protocol

from odradek.wire.checksums import crc32c
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    FIRST_PRODUCE_VERSION_WITH_ZSTD,
    HEADER,
    HEADER_SIZE_BYTES,
    LATEST_PRODUCE_VERSION,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    Buffer,
)

_REFUSED_ATTRIBUTES = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON
_INT64 = range(-(2**63), 2**63)


class BatchHeader(Protocol):
    """The fields of a batch header (`_records.BatchHeader`) that refusals use."""

    base_offset: int
    size_bytes: int
    crc: int
    attributes: int
    last_offset_delta: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def invalid_record(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)


# Batches --------------------------------------------------------------------------------


def refuse_header(buffer: Buffer, position: int) -> NoReturn:
    """The refusal of bytes that are too short, of a magic other than 2, or of a size below the header's."""
    try:
        _, length, _, magic, *_ = HEADER.unpack_from(buffer, position)
    except struct_error:
        raise _corrupt(f"no room for a batch header at byte {position} of {len(buffer)}") from None
    if magic != MAGIC_V2:
        raise _corrupt(f"the batch has magic {magic}, which is not 2")
    raise _corrupt(
        f"the batch claims {length + LOG_OVERHEAD_BYTES} bytes, less than its header of {HEADER_SIZE_BYTES}"
    )


def refuse_checksum(buffer: Buffer, position: int, header: BatchHeader) -> NoReturn:
    """The refusal of a batch that does not end within the buffer, or whose checksum is wrong."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise _corrupt(f"the batch claims {header.size_bytes} bytes where {len(buffer) - position} are left")
    computed = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    raise _corrupt(f"the batch's checksum is {header.crc:#010x}, that of its bytes {computed:#010x}")


def refuse_other_size(header: BatchHeader, size_bytes: int) -> NoReturn:
    """The refusal of a client's batch that does not fill its bytes exactly."""
    if header.size_bytes < size_bytes:
        raise invalid_record(f"{size_bytes - header.size_bytes} bytes follow the one batch of a partition")
    raise _corrupt(f"the batch claims {header.size_bytes} bytes where {size_bytes} are left")


def validate_header(header: BatchHeader, *, produce_version: int = LATEST_PRODUCE_VERSION) -> None:
    """Refuse headers that no client may send: INVALID_RECORD, INVALID_TIMESTAMP or
    UNSUPPORTED_COMPRESSION_TYPE."""
    attributes = header.attributes
    compression = attributes & COMPRESSION_MASK
    if compression >= Compression.ZSTD:
        _check_compression(compression, produce_version)
    if attributes & _REFUSED_ATTRIBUTES:
        _refuse_attributes(attributes)
    if header.base_offset != 0:
        raise invalid_record(f"the base offset of a produced batch is {header.base_offset}, but has to be 0")
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise invalid_record(
            f"the batch claims {count} records and a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id != NO_PRODUCER_ID or attributes & TRANSACTIONAL:
        _check_producer(header)


def _check_compression(compression: int, produce_version: int) -> None:
    if compression > Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {compression}")
    if produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {produce_version} may not carry zstd; version 7 is the first that may",
        )


def _refuse_attributes(attributes: int) -> NoReturn:
    if attributes & CONTROL:
        raise invalid_record("clients may not write control records")
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime"
        )
    raise invalid_record("clients may not set a delete horizon")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0:
        raise invalid_record(f"a batch of a producer has the producer id {header.producer_id}")
    if header.producer_epoch < 0 or header.base_sequence < 0:
        raise invalid_record(
            f"a batch of producer {header.producer_id} has the epoch {header.producer_epoch} "
            f"and the sequence {header.base_sequence}"
        )


# Records --------------------------------------------------------------------------------


def refuse_records(data: bytes, record_count: int, base_offset: int, base_timestamp: int) -> NoReturn:
    """The refusal of a records section that is not exactly `record_count` sound records."""
    _check_records(data, record_count, base_offset, base_timestamp)
    raise AssertionError("sound records are refused")


def refuse_offsets(data: bytes, record_count: int, base_timestamp: int) -> NoReturn:
    """Refuse as `refuse_records`, also an empty batch, and records without the offset deltas 0, 1, 2, ..."""
    if record_count < 1:
        raise invalid_record(f"a batch of {record_count} records")
    _check_records(data, record_count, 0, base_timestamp)
    raise invalid_record("the records' offsets do not count up from 0")


def _check_records(data: bytes, record_count: int, base_offset: int, base_timestamp: int) -> None:
    if not 0 <= record_count <= len(data) // RECORD_BYTES_MIN:
        raise invalid_record(f"{len(data)} bytes cannot hold {record_count} records")
    position = 0
    try:
        for _ in range(record_count):
            position = _check_record(data, position, base_offset, base_timestamp)
    except IndexError:
        raise invalid_record("the last record is cut short") from None
    if position != len(data):
        raise invalid_record(f"{len(data) - position} bytes follow the last of {record_count} records")


def _check_record(data: bytes, position: int, base_offset: int, base_timestamp: int) -> int:
    """The position after the record; IndexError if `data` ends too early."""
    size, position = _read_varint(data, position, 32)
    end = position + size
    if end > len(data):
        raise invalid_record(f"a record ends {end - len(data)} bytes after its batch")
    timestamp_delta, position = _read_varint(data, position + 1, 64)  # its attributes are unused
    _check_sum(base_timestamp, timestamp_delta)
    offset_delta, position = _read_varint(data, position, 32)
    _check_sum(base_offset, offset_delta)
    for _ in ("key", "value"):
        _, position = _skip_bytes(data, position)
    position = _check_headers(data, position)
    if position != end:
        raise invalid_record(f"a record's parts end {position - end} bytes after the end it states")
    return end


def _check_sum(base: int, delta: int) -> None:
    if base + delta not in _INT64:
        raise invalid_record("an offset or timestamp does not fit into 64 bits")


def _check_headers(data: bytes, position: int) -> int:
    count, position = _read_varint(data, position, 32)
    if not 0 <= count <= len(data) - position:
        raise invalid_record("a record has an impossible number of headers")
    for _ in range(count):
        name_is_there, position = _skip_bytes(data, position)
        if not name_is_there:
            raise invalid_record("a record header has no name")
        _, position = _skip_bytes(data, position)
    return position


def _skip_bytes(data: bytes, position: int) -> tuple[bool, int]:
    """Whether the value is not null, and the position after it."""
    size, position = _read_varint(data, position, 32)
    return size >= 0, position + max(size, 0)


def _read_varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """A zigzag number and the position after it; excess bits are cut, as in Java."""
    raw = 0
    bytes_max = (bits + 6) // 7
    for place in range(bytes_max):
        byte = data[position + place]
        raw |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            raw &= (1 << bits) - 1
            return (raw >> 1) ^ -(raw & 1), position + place + 1
    raise invalid_record(f"a number is longer than {bytes_max} bytes")
