"""Record batches of format v2 ("magic 2"): reading, checking, building and patching them.

Promises: a sound batch is never re-encoded, only its base offset and leader epoch are patched in place, which
its checksum does not cover; damaged bytes are refused with CORRUPT_MESSAGE (the batch) or INVALID_RECORD (a
record inside) and nothing else is ever raised for them; looking inside a compressed batch is bounded.

A batch is a header of 61 bytes and the records, which alone are compressed:

    base offset 8, length 4 (of what follows), leader epoch 4, magic 1, CRC-32C 4 (of what follows),
    attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer id 8, producer epoch 2,
    base sequence 4, record count 4

Sources: KIP-98 (format v2), KIP-534 (delete horizon), `DefaultRecordBatch.java` and `DefaultRecord.java`.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from crc32c import crc32c

from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression, compress, decompress
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = [
    "CONTROL_ABORT",
    "CONTROL_COMMIT",
    "HEADER_SIZE_BYTES",
    "LOG_OVERHEAD_BYTES",
    "MAGIC_V2",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "EndTransactionMarker",
    "Record",
    "RecordTable",
    "add_to_sequence",
    "build_batch",
    "end_txn_marker",
    "iter_batches",
    "iter_records",
    "patch_batch",
    "read_batch_header",
    "read_end_txn_marker",
    "records_section",
    "scan_records",
    "set_log_append_time",
    "set_max_timestamp",
    "verify_crc",
]

Buffer = bytes | bytearray | memoryview

MAGIC_V2 = 2
HEADER_SIZE_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and length, which the length field does not count."""
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
CONTROL_ABORT = 0
CONTROL_COMMIT = 1

_HEADER = Struct(">qiibIhiqqqhii")
_ATTRIBUTES_POSITION = 21  # the checksum covers everything from here on
_OFFSET_AND_LENGTH = Struct(">qi")
_CRC = Struct(">I")
_CRC_POSITION = 17
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_LEADER_EPOCH = Struct(">i")
_LEADER_EPOCH_POSITION = 12
_BASE_OFFSET = Struct(">q")

_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

_MOST_SEQUENCE = 2**31 - 1


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
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & _CONTROL != 0

    @property
    def uses_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`, whatever its own delta says."""
        return self.attributes & _LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones (KIP-534); it is kept as the base timestamp."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or NO_SEQUENCE; after 2**31 - 1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


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


def add_to_sequence(sequence: int, increment: int) -> int:
    """`sequence + increment` as producers count: after 2**31 - 1 comes 0."""
    return (sequence + increment) & _MOST_SEQUENCE


# Reading --------------------------------------------------------------------------------


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
_unpack_header = _HEADER.unpack_from


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in `buffer`, one after the other.

    Refuses with CORRUPT_MESSAGE a batch that does not end within the buffer, and trailing bytes.
    """
    position = 0
    end = len(buffer)
    while position < end:
        header = read_batch_header(buffer, position)
        following = position + header.size_bytes
        if following > end:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch claims {header.size_bytes} bytes where {end - position} are left",
            )
        yield position, header
        position = following


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse with CORRUPT_MESSAGE a batch whose CRC-32C does not fit its bytes, or that is not all there."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.size_bytes} bytes where {len(buffer) - position} are left",
        )
    computed = crc32c(memoryview(buffer)[position + _ATTRIBUTES_POSITION : end])
    if computed != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch's checksum is {header.crc:#010x}, that of its bytes {computed:#010x}",
        )


def iter_records(
    batch: Buffer, header: BatchHeader | None = None, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of the batch at the start of `batch`, decompressed into no more than `limit_bytes`.

    Control records are records too; the caller looks at `is_control`. Refuses a batch that is cut short or
    does not decompress with CORRUPT_MESSAGE, records that are not exactly `record_count` many or not sound
    in themselves with INVALID_RECORD. The checksum is `verify_crc`'s matter.
    """
    if header is None:
        header = read_batch_header(batch)
    if header.record_count == 0:
        return iter(())  # compaction leaves such batches: nothing but a header
    data = records_section(batch, header, limit_bytes)
    table = scan_records(data, header.record_count, header.base_offset, header.base_timestamp)
    return _as_records(header, data, table)


def records_section(batch: Buffer, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """What follows the header of the batch that `batch` starts with, decompressed; see `iter_records`."""
    if header.size_bytes > len(batch):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.size_bytes} bytes where {len(batch)} are left",
        )
    section = memoryview(batch)[HEADER_SIZE_BYTES : header.size_bytes]
    compression = header.attributes & _COMPRESSION_MASK
    if compression == Compression.NONE:
        return bytes(section)
    return decompress(compression, section, limit_bytes)


def _as_records(header: BatchHeader, data: bytes, table: "RecordTable") -> Iterator[Record]:
    append_time = header.max_timestamp if header.uses_log_append_time else None
    for offset, timestamp, key_at, key_size, value_at, value_size, headers_at in zip(*table, strict=True):
        yield Record(
            offset,
            timestamp if append_time is None else append_time,
            None if key_size < 0 else data[key_at : key_at + key_size],
            None if value_size < 0 else data[value_at : value_at + value_size],
            () if headers_at < 0 else _read_headers(data, headers_at)[0],
        )


class RecordTable(NamedTuple):
    """Where the records of one batch are: seven columns of 64-bit numbers, a row for each record.

    Offsets and timestamps are absolute, a timestamp is the record's own even under log append time. Positions
    count from the start of the (decompressed) records section; a size of -1 is null, and a header position of
    -1 says that the record has no headers.
    """

    offsets: array
    timestamps: array
    key_positions: array
    key_sizes: array
    value_positions: array
    value_sizes: array
    header_positions: array


def scan_records(data: bytes, record_count: int, base_offset: int, base_timestamp: int) -> RecordTable:
    """The table of the `record_count` records that `data` has to consist of, or INVALID_RECORD.

    Every number and length is checked, headers included: what this lets pass, any client can read.
    """
    # A record has at least seven bytes: a lying count must not make us reserve memory for it.
    if not 0 <= record_count <= len(data) // _LEAST_RECORD_BYTES:
        raise _invalid_record(f"{len(data)} bytes cannot hold {record_count} records")
    table = RecordTable(*(array("q", bytes(8 * record_count)) for _ in range(7)))
    position = 0
    try:
        for row in range(record_count):
            position = _scan_record(data, position, row, table, base_offset, base_timestamp)
    except OverflowError:
        raise _invalid_record("an offset or timestamp does not fit into 64 bits") from None
    except IndexError:
        raise _invalid_record("the last record is cut short") from None
    if position != len(data):
        raise _invalid_record(f"{len(data) - position} bytes follow the last of {record_count} records")
    return table


_LEAST_RECORD_BYTES = 7


def _invalid_record(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)


def _scan_record(
    data: bytes, position: int, row: int, table: RecordTable, base_offset: int, base_timestamp: int
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
        raise _invalid_record(f"a record ends {end - len(data)} bytes after its batch")
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
        position = _read_headers(data, position)[1]
    if position != end:
        raise _invalid_record(f"a record's parts end {position - end} bytes after the end it states")
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


def _read_headers(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count = data[position]
    position += 1
    if count >= 0x80:
        count, position = _read_long_varint(data, position, count, 35)
    if count & 1 or count >> 1 > len(data) - position:
        raise _invalid_record("a record has an impossible number of headers")
    headers = []
    for _ in range(count >> 1):
        name, position = _read_bytes(data, position)
        if name is None:
            raise _invalid_record("a record header has no name")
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
    raise _invalid_record(f"a number is longer than {bits // 7} bytes")


# Building --------------------------------------------------------------------------------


def build_batch(
    records: Iterable[Record | tuple],
    *,
    base_offset: int | None = None,
    compression: int = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """One batch of `records` (`Record`s, offsets absolute and ascending), checksum included.

    `base_offset` is by default that of the first record. `last_offset_delta` and `max_timestamp` are by
    default those of the records; compaction gives the original's, so that offsets and sequences stay as they
    were even in a batch that has lost its last records, or all of them. With `log_append_time_ms` all records
    have that timestamp. ValueError where the records and the arguments contradict each other.
    """
    records = [record if type(record) is Record else Record(*record) for record in records]
    if base_offset is None:
        base_offset = records[0].offset if records else 0
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    elif records:
        base_timestamp = records[0].timestamp
    else:
        base_timestamp = NO_TIMESTAMP if max_timestamp is None else max_timestamp
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else 0
    if log_append_time_ms is not None:
        max_timestamp = log_append_time_ms
    elif max_timestamp is None:
        max_timestamp = max([record.timestamp for record in records], default=NO_TIMESTAMP)
    section = _write_records(records, base_offset, base_timestamp, last_offset_delta)
    attributes = (
        compression
        | (_LOG_APPEND_TIME if log_append_time_ms is not None else 0)
        | (_TRANSACTIONAL if transactional else 0)
        | (_CONTROL if control else 0)
        | (_DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    if compression != Compression.NONE and records:
        section = compress(compression, section, level)
    batch = bytearray(HEADER_SIZE_BYTES)
    batch += section
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    _seal(batch, 0, len(batch))
    return batch


def _write_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int, last_offset_delta: int
) -> bytearray:
    section = bytearray()
    previous_delta = -1
    for record in records:
        delta = record.offset - base_offset
        if not previous_delta < delta <= last_offset_delta:
            raise ValueError(f"offset {record.offset} is out of order in a batch from {base_offset}")
        previous_delta = delta
        body = bytearray(1)
        _append_varint(body, record.timestamp - base_timestamp)
        _append_varint(body, delta)
        _append_bytes(body, record.key)
        _append_bytes(body, record.value)
        _append_varint(body, len(record.headers))
        for name, value in record.headers:
            _append_bytes(body, name.encode("utf-8", "surrogateescape"))
            _append_bytes(body, value)
        _append_varint(section, len(body))
        section += body
    return section


def _append_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(1)  # -1, zigzagged
    else:
        _append_varint(out, len(value))
        out += value


def _append_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _seal(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    with memoryview(buffer)[position + _ATTRIBUTES_POSITION : position + size_bytes] as covered:
        _CRC.pack_into(buffer, position + _CRC_POSITION, crc32c(covered))


# Patching --------------------------------------------------------------------------------


def patch_batch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `position` its place in the log; neither field is covered by the checksum."""
    _pack_base_offset(buffer, position, base_offset)
    _pack_leader_epoch(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


_pack_base_offset = _BASE_OFFSET.pack_into
_pack_leader_epoch = _LEADER_EPOCH.pack_into


def set_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Stamp the batch at `position`, as `message.timestamp.type=LogAppendTime` asks.

    No record is touched: the type bit makes `timestamp_ms` the timestamp of all of them. The checksum and
    `header` are brought up to date.
    """
    header.attributes |= _LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, header.attributes)
    set_max_timestamp(buffer, position, header, timestamp_ms)


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Correct the max timestamp of the batch at `position`, its checksum, and `header`."""
    header.max_timestamp = timestamp_ms
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _seal(buffer, position, header.size_bytes)
    (header.crc,) = _CRC.unpack_from(buffer, position + _CRC_POSITION)


# Control records --------------------------------------------------------------------------------

_CONTROL_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition, and the coordinator epoch that wrote it."""

    committed: bool
    coordinator_epoch: int


def end_txn_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """The batch of one control record that commits or aborts the producer's transaction in a partition."""
    key = _CONTROL_KEY.pack(0, CONTROL_COMMIT if committed else CONTROL_ABORT)
    value = _END_TXN_VALUE.pack(0, coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_end_txn_marker(record: Record) -> EndTransactionMarker | None:
    """What a control record says, or None where it is of another type (snapshots, quorum changes).

    Later versions of key and value only append fields (`ControlRecordType.java`). Refuses with
    INVALID_RECORD.
    """
    try:
        version, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if version < 0:
            raise _invalid_record(f"a control record's key has the version {version}")
        if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
            return None
        version, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value or b"")
    except struct_error:
        raise _invalid_record("a control record is cut short") from None
    if version < 0:
        raise _invalid_record(f"an end marker has the version {version}")
    return EndTransactionMarker(kind == CONTROL_COMMIT, coordinator_epoch)
