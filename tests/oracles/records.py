"""What `odradek.wire._records` has to say of a batch and its records, in plain Python."""

from array import array
from dataclasses import dataclass
from struct import error as struct_error

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
    NO_SEQUENCE,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    Buffer,
    Record,
    RecordTable,
    add_to_sequence,
)

_REFUSED = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON


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


def scan_records(data: bytes, record_count: int, base_offset: int, base_timestamp: int) -> RecordTable:
    """The table of the `record_count` records that `data` has to consist of, or INVALID_RECORD.

    Every number and length is checked, headers included: what this lets pass, any client can read.
    """
    # A record has at least seven bytes: a lying count must not make us reserve memory for it.
    if not 0 <= record_count <= len(data) // RECORD_BYTES_MIN:
        raise invalid_record(f"{len(data)} bytes cannot hold {record_count} records")
    table = RecordTable(*(array("q", bytes(8 * record_count)) for _ in range(7)))
    position = 0
    try:
        for row in range(record_count):
            position = _scan_record(data, position, row, table, base_offset, base_timestamp)
    except OverflowError:
        raise invalid_record("an offset or timestamp does not fit into 64 bits") from None
    except IndexError:
        raise invalid_record("the last record is cut short") from None
    if position != len(data):
        raise invalid_record(f"{len(data) - position} bytes follow the last of {record_count} records")
    return table


def survey_records(data: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int, bool]:
    """What a broker must know of the records that `data` consists of before it takes them: the least and the
    greatest timestamp, and whether a key is missing.

    Refuses with INVALID_RECORD what `scan_records` refuses, no records, and offsets that do not count up
    from 0.
    """
    if record_count < 1:
        raise invalid_record(f"a batch of {record_count} records")
    table = scan_records(bytes(data), record_count, 0, base_timestamp)
    if table.offsets != array("q", range(record_count)):
        raise invalid_record("the records' offsets do not count up from 0")
    return min(table.timestamps), max(table.timestamps), min(table.key_sizes) < 0


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
        position = read_headers(data, position)[1]
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


def read_headers(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count = data[position]
    position += 1
    if count >= 0x80:
        count, position = _read_long_varint(data, position, count, 35)
    if count & 1 or count >> 1 > len(data) - position:
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
