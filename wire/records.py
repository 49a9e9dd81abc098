"""Record batches of format v2 ("magic 2"): reading, checking, building and patching them.

A sound batch is never re-encoded; only its base offset and leader epoch, which its checksum does not cover,
are patched in place. Damaged bytes are refused with CORRUPT_MESSAGE (the batch) or INVALID_RECORD (a record)
and no other exception. The decompression of a batch has a limit.

`record_layout` has the layout of a batch, `_records` (compiled) reads it, `record_refusals` has the refusals.

Sources: KIP-98 (format v2), KIP-534 (delete horizon), `DefaultRecordBatch.java` and `DefaultRecord.java`.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from odradek.wire._records import (
    BatchHeader,
    read_batch_header,
    read_records,
)
from odradek.wire._records import (
    build_keyed_batch as build_keyed_batch,
)
from odradek.wire._records import (
    read_client_batch as read_client_batch,
)
from odradek.wire._records import (
    rising_batches as rising_batches,
)
from odradek.wire._records import (
    scan_records as scan_records,
)
from odradek.wire._records import (
    survey_if_sound as survey_if_sound,
)
from odradek.wire._records import (
    survey_records as survey_records,
)
from odradek.wire._records import (
    verify_crc as verify_crc,
)
from odradek.wire._source import read_uvarint
from odradek.wire.checksums import crc32c
from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression, compress, decompress
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.record_layout import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE_BYTES,
    LEADER_EPOCH_POSITION,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    MAX_TIMESTAMP_POSITION,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Buffer,
    Record,
)
from odradek.wire.record_layout import (
    RecordTable as RecordTable,
)
from odradek.wire.record_layout import (
    add_to_sequence as add_to_sequence,
)
from odradek.wire.record_refusals import invalid_record
from odradek.wire.record_refusals import validate_header as validate_header

CONTROL_ABORT = 0
CONTROL_COMMIT = 1
VARINTS_KEPT = 4096
"""Most numbers are small lengths and deltas."""

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_BASE_OFFSET = Struct(">q")


# Reading --------------------------------------------------------------------------------


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


def iter_whole_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """`iter_batches` without an incomplete last batch, with which a fetch ends at its limit."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_SIZE_BYTES:
        header = read_batch_header(buffer, position)
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def iter_records(
    batch: Buffer, header: BatchHeader | None = None, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of the batch at the start of `batch`, decompressed into no more than `limit_bytes`.

    Control records are included; the caller checks `is_control`. Refuses with CORRUPT_MESSAGE an incomplete
    batch or one that does not decompress, with INVALID_RECORD unsound records or another number than
    `record_count`. `verify_crc` checks the checksum.
    """
    if header is None:
        header = read_batch_header(batch)
    if header.record_count == 0:
        return iter(())  # compaction leaves such batches, only a header
    data = records_section(batch, header, limit_bytes)
    return iter(read_records(data, header))


def batch_records(buffer: bytes, position: int, header: BatchHeader) -> Sequence[Record]:
    """The records of the batch at `position`, with its `header`: a faster `iter_records` for many small
    batches in one buffer. Refuses in the same way."""
    end = position + header.size_bytes
    if header.attributes & COMPRESSION_MASK or end > len(buffer) or header.record_count == 0:
        return list(iter_records(memoryview(buffer)[position:], header))
    return read_records(buffer[position + HEADER_SIZE_BYTES : end], header)


def records_section(
    batch: Buffer,
    header: BatchHeader,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    record_bytes_max: int | None = None,
) -> bytes:
    """The decompressed bytes after the header of the batch at the start of `batch`; see `iter_records`.

    Refuses with INVALID_RECORD a record over `record_bytes_max` in a compressed batch.
    """
    if header.size_bytes > len(batch):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.size_bytes} bytes where {len(batch)} are left",
        )
    section = memoryview(batch)[HEADER_SIZE_BYTES : header.size_bytes]
    compression = header.attributes & COMPRESSION_MASK
    if compression == Compression.NONE:
        return bytes(section)
    data = decompress(compression, section, limit_bytes)
    if record_bytes_max is not None and len(data) > record_bytes_max:
        index = first_over(data, header.record_count, record_bytes_max)
        if index is not None:
            raise record_too_large(record_bytes_max)
    return data


def first_over(section: bytes, count: int, record_bytes_max: int) -> int | None:
    """The index of the first record whose body is larger, without the size in front of it; None if there is
    none in the sound beginning of the section."""
    if len(section) <= record_bytes_max:
        return None
    position = 0
    for index in range(count):
        try:
            zigzag, position = read_uvarint(section, position)
        except (IndexError, MalformedMessage):
            return None
        size = (zigzag >> 1) ^ -(zigzag & 1)
        if size > record_bytes_max:
            return index
        if size < 0:
            return None
        position += size
    return None


def record_too_large(record_bytes_max: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"a record of a compressed batch is larger than max.decompressed.message.bytes, {record_bytes_max}",
    )


# Building --------------------------------------------------------------------------------


def build_batch(
    records: Iterable[Record | tuple[Any, ...]],
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
    """One batch of `records` (`Record`s or such tuples) with absolute, ascending offsets; checksum included.

    The default of `base_offset` is the offset of the first record. The defaults of `last_offset_delta` and
    `max_timestamp` come from the records; compaction passes those of the original batch, so that offsets and
    sequences stay the same in a batch without its last records, or without any. With `log_append_time_ms` all
    records have this timestamp. ValueError if records and arguments contradict each other.
    """
    rows = [record if type(record) is Record else Record(*record) for record in records]
    if base_offset is None:
        base_offset = rows[0].offset if rows else 0
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    elif rows:
        base_timestamp = rows[0].timestamp
    else:
        base_timestamp = NO_TIMESTAMP if max_timestamp is None else max_timestamp
    if last_offset_delta is None:
        last_offset_delta = rows[-1].offset - base_offset if rows else 0
    if log_append_time_ms is not None:
        max_timestamp = log_append_time_ms
    elif max_timestamp is None:
        max_timestamp = max([record.timestamp for record in rows], default=NO_TIMESTAMP)
    section = _write_records(rows, base_offset, base_timestamp, last_offset_delta)
    attributes = (
        (LOG_APPEND_TIME if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    return batch_of_section(
        section,
        len(rows),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        attributes=attributes,
        compression=compression,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
    )


def batch_of_section(
    section: Buffer,
    record_count: int,
    *,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    compression: int = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """One batch of `section`, its `record_count` records encoded without compression.

    For callers with encoded records; others use `build_batch`. `attributes` are without the compression. The
    checksum is computed, the section is not checked.
    """
    batch = bytearray(HEADER_SIZE_BYTES)
    if compression != Compression.NONE and record_count:
        batch += compress(compression, section, level)
    else:
        batch += section
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes | compression,
        record_count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _seal(batch, 0, len(batch))
    return batch


def _write_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int, last_offset_delta: int
) -> bytes:
    section: list[Buffer] = []
    previous_delta = -1
    for offset, timestamp, key, value, headers in records:
        delta = offset - base_offset
        if not previous_delta < delta <= last_offset_delta:
            raise ValueError(f"offset {offset} is out of order in a batch from {base_offset}")
        previous_delta = delta
        parts: list[Buffer] = [b"\0", zigzag_varint(timestamp - base_timestamp), zigzag_varint(delta)]
        _add_bytes(parts, key)
        _add_bytes(parts, value)
        parts.append(zigzag_varint(len(headers)))
        for name, content in headers:
            _add_bytes(parts, name.encode("utf-8", "surrogateescape"))
            _add_bytes(parts, content)
        body = b"".join(parts)
        section += (zigzag_varint(len(body)), body)
    return b"".join(section)


def _add_bytes(parts: list[Buffer], value: Buffer | None) -> None:
    if value is None:
        parts.append(_NULL)
    else:
        parts += (zigzag_varint(len(value)), value)


@lru_cache(VARINTS_KEPT)
def zigzag_varint(value: int) -> bytes:
    """A number in the encoding of sizes and deltas in records (`ByteUtils.writeVarint`, `writeVarlong`)."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_NULL = zigzag_varint(-1)


def _seal(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    with memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size_bytes] as covered:
        _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(covered))


# Patching --------------------------------------------------------------------------------


def patch_batch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at `position`; the checksum does not cover them."""
    _pack_base_offset(buffer, position, base_offset)
    _pack_leader_epoch(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


_pack_base_offset = _BASE_OFFSET.pack_into
_pack_leader_epoch = _LEADER_EPOCH.pack_into


def set_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Set the timestamp of the batch at `position`, for `message.timestamp.type=LogAppendTime`.

    Records are not changed: with the type bit `timestamp_ms` is the timestamp of all of them. The checksum
    and `header` are updated.
    """
    header.attributes |= LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, header.attributes)
    set_max_timestamp(buffer, position, header, timestamp_ms)


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Correct the max timestamp of the batch at `position`, its checksum, and `header`."""
    header.max_timestamp = timestamp_ms
    _MAX_TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    _seal(buffer, position, header.size_bytes)
    (header.crc,) = _CRC.unpack_from(buffer, position + CRC_POSITION)


# Control records --------------------------------------------------------------------------------

_CONTROL_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")
_END_TXN_RECORD = Struct(">BBBBBhhBhiB")
"""Length, attributes, deltas of timestamp and offset, length of the key; key; length of the value; value;
number of headers. Lengths and deltas are varints of one byte."""
_END_TXN_HEAD = (2 * (_END_TXN_RECORD.size - 1), 0, 0, 0, 2 * _CONTROL_KEY.size)
_END_TXN_VALUE_LENGTH = 2 * _END_TXN_VALUE.size
_END_TXN_BATCH_BYTES = HEADER_SIZE_BYTES + _END_TXN_RECORD.size


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition, and the epoch of its coordinator."""

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
    # Packed directly, which is faster than `build_batch`: every transaction needs one for each of its
    # partitions.
    batch = bytearray(_END_TXN_BATCH_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        _END_TXN_BATCH_BYTES - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC_V2,
        0,
        TRANSACTIONAL | CONTROL,
        0,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    kind = CONTROL_COMMIT if committed else CONTROL_ABORT
    _END_TXN_RECORD.pack_into(
        batch, HEADER_SIZE_BYTES, *_END_TXN_HEAD, 0, kind, _END_TXN_VALUE_LENGTH, 0, coordinator_epoch, 0
    )
    _seal(batch, 0, _END_TXN_BATCH_BYTES)
    return batch


def read_end_txn_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a control record, or None for another type (snapshots, quorum changes).

    Later versions of key and value only append fields (`ControlRecordType.java`). Refuses with
    INVALID_RECORD.
    """
    try:
        version, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if version < 0:
            raise invalid_record(f"a control record's key has the version {version}")
        if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
            return None
        version, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value or b"")
    except struct_error:
        raise invalid_record("a control record is cut short") from None
    if version < 0:
        raise invalid_record(f"an end marker has the version {version}")
    return EndTransactionMarker(kind == CONTROL_COMMIT, coordinator_epoch)
