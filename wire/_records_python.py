"""The parts of `records` that run for every batch and every record, in plain Python.

`wire/_records.pyx` is the compiled twin of this module: the same names, arguments, results and refusals, and
one test suite for both. `records` takes the twin where it was built; nobody else should import either.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from odradek.wire.checksums import crc32c
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = [
    "BatchHeader",
    "read_batch_header",
    "read_client_batch",
    "read_records",
    "scan_records",
    "survey_if_sound",
    "survey_records",
    "verify_crc",
]

Buffer = bytes | bytearray | memoryview
Column = array | memoryview

MAGIC_V2 = 2
HEADER_SIZE_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and length, which the length field does not count."""
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
LATEST_PRODUCE_VERSION = 13

HEADER = Struct(">qiibIhiqqqhii")
ATTRIBUTES_POSITION = 21  # the checksum covers everything from here on

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
_REFUSED = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON

_MOST_SEQUENCE = 2**31 - 1


def add_to_sequence(sequence: int, increment: int) -> int:
    """`sequence + increment` as producers count: after 2**31 - 1 comes 0."""
    return (sequence + increment) & _MOST_SEQUENCE


@dataclass(slots=True)
class BatchHeader:
    """The first 61 bytes of a batch; `size_bytes` is that of the whole batch, 12 leading bytes included."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        """A `Compression`, or 5 to 7, which no client writes and `validate_header` refuses."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def uses_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`, whatever its own delta says."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones (KIP-534); it is kept as the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or NO_SEQUENCE; after 2**31 - 1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


# Headers --------------------------------------------------------------------------------------------


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the 61 bytes suffice, the rest of the batch need not be in `buffer`.

    Refuses with CORRUPT_MESSAGE what is too short, has another magic than 2, or a size below its own header.
    """
    header: BatchHeader = _new(BatchHeader)
    try:
        (
            header.base_offset,
            length,
            header.leader_epoch,
            header.magic,
            header.crc,
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        ) = _unpack_header(buffer, position)
    except struct_error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"no room for a batch header at byte {position} of {len(buffer)}"
        ) from None
    header.size_bytes = length + LOG_OVERHEAD_BYTES
    if header.magic != MAGIC_V2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch has magic {header.magic}, which is not 2")
    if header.size_bytes < HEADER_SIZE_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.size_bytes} bytes, less than its header of {HEADER_SIZE_BYTES}",
        )
    return header


_new = object.__new__
_unpack_header = HEADER.unpack_from


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse with CORRUPT_MESSAGE a batch whose CRC-32C does not fit its bytes, or that is not all there."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.size_bytes} bytes where {len(buffer) - position} are left",
        )
    computed = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    if computed != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch's checksum is {header.crc:#010x}, that of its bytes {computed:#010x}",
        )


def read_client_batch(
    buffer: Buffer, position: int, size_bytes: int, produce_version: int = LATEST_PRODUCE_VERSION
) -> BatchHeader:
    """The header of the one v2 batch that a client sent in the `size_bytes` bytes from `position` on.

    Refuses as `read_batch_header`, `verify_crc` and `validate_header` do, and with INVALID_RECORD what
    follows the batch: from Produce version 3 on a partition gets one batch. No record is looked at.
    """
    header = read_batch_header(buffer, position)
    if header.size_bytes < size_bytes:
        raise invalid_record(f"{size_bytes - header.size_bytes} bytes follow the one batch of a partition")
    if header.size_bytes > size_bytes:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.size_bytes} bytes where {size_bytes} are left",
        )
    verify_crc(buffer, position, header)
    validate_header(header, produce_version=produce_version)
    return header


def validate_header(header: BatchHeader, *, produce_version: int = LATEST_PRODUCE_VERSION) -> None:
    """Refuse what no client may send: INVALID_RECORD, INVALID_TIMESTAMP or UNSUPPORTED_COMPRESSION_TYPE."""
    attributes = header.attributes
    compression = attributes & COMPRESSION_MASK
    if compression >= Compression.ZSTD:
        _check_compression(compression, produce_version)
    if attributes & _REFUSED:
        _refuse_attributes(attributes)
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a produced batch is {header.base_offset}, but has to be 0",
        )
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch claims {count} records and a last offset delta of {header.last_offset_delta}",
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


def _refuse_attributes(attributes: int) -> None:
    if attributes & CONTROL:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime"
        )
    raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not set a delete horizon")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch of a producer has the producer id {header.producer_id}"
        )
    if header.producer_epoch < 0 or header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a batch of producer {header.producer_id} has the epoch {header.producer_epoch} "
            f"and the sequence {header.base_sequence}",
        )


# Records --------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """One record with its absolute offset and its timestamp in milliseconds (NO_TIMESTAMP: it has none).

    `headers` are pairs of name and value in their order; a name may repeat, a value may be None. A name that
    is no UTF-8 keeps its bytes as surrogate escapes, so that rebuilding a batch changes nothing.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class RecordTable(NamedTuple):
    """Where the records of one batch are: seven columns, a row for each record.

    A column is an `array` or a `memoryview` of 64-bit numbers in the machine's order.
    Offsets and timestamps are absolute, a timestamp is the record's own even under log append time. Positions
    count from the start of the (decompressed) records section; a size of -1 is null, and a header position of
    -1 says that the record has no headers.
    """

    offsets: Column
    timestamps: Column
    key_positions: Column
    key_sizes: Column
    value_positions: Column
    value_sizes: Column
    header_positions: Column


def scan_records(data: bytes, record_count: int, base_offset: int, base_timestamp: int) -> RecordTable:
    """The table of the `record_count` records that `data` has to consist of, or INVALID_RECORD.

    Every number and length is checked, headers included: what this lets pass, any client can read.
    """
    return _scan(data, record_count, base_offset, base_timestamp, len(data))


def _scan(
    data: bytes, record_count: int, base_offset: int, base_timestamp: int, headers_max: int
) -> RecordTable:
    """`scan_records`; refuses records of more than `headers_max` headers, too."""
    # A record has at least seven bytes: a lying count must not make us reserve memory for it.
    if not 0 <= record_count <= len(data) // _LEAST_RECORD_BYTES:
        raise invalid_record(f"{len(data)} bytes cannot hold {record_count} records")
    table = RecordTable(*(array("q", bytes(8 * record_count)) for _ in range(7)))
    position = 0
    try:
        for row in range(record_count):
            position = _scan_record(data, position, row, table, base_offset, base_timestamp, headers_max)
    except OverflowError:
        raise invalid_record("an offset or timestamp does not fit into 64 bits") from None
    except IndexError:
        raise invalid_record("the last record is cut short") from None
    if position != len(data):
        raise invalid_record(f"{len(data) - position} bytes follow the last of {record_count} records")
    return table


_LEAST_RECORD_BYTES = 7
RECORDS_AT_ONCE_MAX = 300
HEADERS_AT_ONCE_MAX = 1000
"""Each is half a millisecond: 1.5 us for a record, 0.5 for a header."""


def survey_records(data: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int, bool]:
    """What a broker must know of the records that `data` consists of before it takes them: the least and the
    greatest timestamp, and whether a key is missing.

    Refuses with INVALID_RECORD what `scan_records` refuses, no records, and offsets that do not count up
    from 0.
    """
    return _survey(data, record_count, base_timestamp, len(data))


def _survey(data: Buffer, record_count: int, base_timestamp: int, headers_max: int) -> tuple[int, int, bool]:
    if record_count < 1:
        raise invalid_record(f"a batch of {record_count} records")
    table = _scan(bytes(data), record_count, 0, base_timestamp, headers_max)
    if table.offsets != array("q", range(record_count)):
        raise invalid_record("the records' offsets do not count up from 0")
    return min(table.timestamps), max(table.timestamps), min(table.key_sizes) < 0


def survey_if_sound(data: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int, bool] | None:
    """`survey_records`, or None instead of a refusal: to find out which one takes long, in plain Python.

    There it is None, too, for records that take more than half a millisecond to look at.
    """
    headers_max = HEADERS_AT_ONCE_MAX // max(record_count, 1)
    if record_count > RECORDS_AT_ONCE_MAX:
        return None
    try:
        return _survey(data, record_count, base_timestamp, headers_max)
    except KafkaError:
        return None


def read_records(data: bytes, header: BatchHeader) -> list[Record]:
    """The records that the records section `data` of a batch consists of; refuses as `scan_records`."""
    table = scan_records(data, header.record_count, header.base_offset, header.base_timestamp)
    append_time = header.max_timestamp if header.uses_log_append_time else None
    return [
        Record(
            offset,
            timestamp if append_time is None else append_time,
            None if key_size < 0 else data[key_at : key_at + key_size],
            None if value_size < 0 else data[value_at : value_at + value_size],
            () if headers_at < 0 else read_headers(data, headers_at)[0],
        )
        for offset, timestamp, key_at, key_size, value_at, value_size, headers_at in zip(*table, strict=True)
    ]


def invalid_record(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)


def _scan_record(
    data: bytes,
    position: int,
    row: int,
    table: RecordTable,
    base_offset: int,
    base_timestamp: int,
    headers_max: int,
) -> int:
    """Fill in one row and return the position behind the record; IndexError where `data` ends too early.

    A number of one byte, the usual case, is decoded on the spot: this runs for every record.
    """
    size = data[position]
    position += 1
    if size >= 0x80:
        size, position = _read_long_varint(data, position, size, 35)
    end = position + ((size >> 1) ^ -(size & 1))
    if end > len(data):
        raise invalid_record(f"a record ends {end - len(data)} bytes after its batch")
    delta = data[position + 1]  # the attributes before it mean nothing in format v2
    position += 2
    if delta >= 0x80:
        delta, position = _read_long_varint(data, position, delta, 70)
    table.timestamps[row] = base_timestamp + ((delta >> 1) ^ -(delta & 1))
    delta = data[position]
    position += 1
    if delta >= 0x80:
        delta, position = _read_long_varint(data, position, delta, 35)
    table.offsets[row] = base_offset + ((delta >> 1) ^ -(delta & 1))
    table.key_sizes[row], table.key_positions[row], position = _scan_bytes(data, position)
    table.value_sizes[row], table.value_positions[row], position = _scan_bytes(data, position)
    table.header_positions[row] = position
    if data[position] == 0:
        table.header_positions[row] = -1
        position += 1
    else:
        position = read_headers(data, position, headers_max)[1]
    if position != end:
        raise invalid_record(f"a record's parts end {position - end} bytes after the end it states")
    return end


def _scan_bytes(data: bytes, position: int) -> tuple[int, int, int]:
    """Size (-1: null), start and end of the bytes whose size is written at `position`."""
    size = data[position]
    position += 1
    if size >= 0x80:
        size, position = _read_long_varint(data, position, size, 35)
    if size & 1:  # every negative size is null to Java, not just -1
        return -1, position, position
    return size >> 1, position, position + (size >> 1)


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, start, end = _scan_bytes(data, position)
    return None if size < 0 else data[start:end], end


def read_headers(
    data: bytes, position: int, count_max: int = _MOST_SEQUENCE
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count = data[position]
    position += 1
    if count >= 0x80:
        count, position = _read_long_varint(data, position, count, 35)
    if count & 1 or count >> 1 > min(len(data) - position, count_max):
        raise invalid_record("a record has an impossible number of headers")
    headers = []
    for _ in range(count >> 1):
        name, position = _read_bytes(data, position)
        if name is None:
            raise invalid_record("a record header has no name")
        value, position = _read_bytes(data, position)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_long_varint(data: bytes, position: int, first: int, bits: int) -> tuple[int, int]:
    """The raw (not yet unzigzagged) number whose first byte, just before `position`, was `first`.

    `bits` is 35 for a number of 32 bits and 70 for one of 64; what exceeds those is cut off, as in Java.
    """
    value = first & 0x7F
    for shift in range(7, bits, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (0xFFFFFFFF if bits == 35 else 0xFFFFFFFFFFFFFFFF), position
    raise invalid_record(f"a number is longer than {bits // 7} bytes")
