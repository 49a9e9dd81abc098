"""Why a batch is refused: the checks that `Partition.append` makes at once for ordinary batches, one after
the other.

Order and error codes as in `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and
`LogValidator.java`. What concerns the content of a batch is in `wire/batch_validation.py`.
"""

from odradek.storage.batches import HEADER_BYTES
from odradek.storage.config import LogConfig
from odradek.wire.batch_validation import BatchRules, validate_batch
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import (
    BatchHeader,
    read_batch_header,
    set_log_append_time,
    set_max_timestamp,
    verify_crc,
)

MAGIC_POSITION = 16


def rules_of(config: LogConfig) -> BatchRules:
    """What a topic's settings ask of the records in a batch."""
    return BatchRules(
        compacted=config.is_compacted,
        log_append_time=config.uses_log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
    )


def check_client_batch(
    records: memoryview, config: LogConfig, rules: BatchRules, now_ms: int, partition: str
) -> memoryview:
    """The batch to append, or the refusal that it deserves: exactly one sound batch v2 is expected.

    The batch is a corrected copy when its records say another latest timestamp than its header.
    """
    magic = records[MAGIC_POSITION]
    if magic < 2:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Produce of this version carries batches of format 2; one for {partition} says {magic}.",
        )
    header = read_batch_header(records)
    if header.size_bytes > len(records):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"The batch for {partition} claims {header.size_bytes} bytes where {len(records)} came.",
        )
    if header.size_bytes < len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"More than one record batch came for {partition}.")
    check_size(header.size_bytes, config, partition)
    verify_crc(records, 0, header)
    records = check_content(records, header, rules, now_ms)
    if header.size_bytes > config.segment_bytes:
        raise segment_too_small(header.size_bytes, config, partition)
    return records


def check_content(records: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int) -> memoryview:
    """Refuse what the topic does not take; see `check_client_batch` for what comes back. `header` follows."""
    max_timestamp = validate_batch(records, header, rules, now_ms)
    if max_timestamp == header.max_timestamp:
        return records
    copy = bytearray(records)
    set_max_timestamp(copy, 0, header, max_timestamp)
    return memoryview(copy)


def check_size(size_bytes: int, config: LogConfig, partition: str) -> None:
    """Refuse with MESSAGE_TOO_LARGE."""
    if size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{size_bytes} bytes for {partition} are over max.message.bytes, {config.max_message_bytes}.",
        )


def segment_too_small(size_bytes: int, config: LogConfig, partition: str) -> KafkaError:
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{size_bytes} bytes for {partition} are over segment.bytes, {config.segment_bytes}.",
    )


def with_append_time(batch: memoryview, now_ms: int) -> memoryview:
    """A copy of the batch in which every record's timestamp is `now_ms`."""
    copy = bytearray(batch)
    set_log_append_time(copy, 0, read_batch_header(copy), now_ms)
    return memoryview(copy)


def frames_one_record(records: memoryview, size_bytes: int) -> bool:
    """Whether the size before the only record of an uncompressed batch is that of the rest of the batch."""
    if size_bytes < HEADER_BYTES + 3:
        return False
    first = records[HEADER_BYTES]
    if first < 0x80:
        return HEADER_BYTES + 1 + (first >> 1) == size_bytes
    second = records[HEADER_BYTES + 1]
    if second < 0x80:
        return HEADER_BYTES + 2 + ((first & 0x7F | second << 7) >> 1) == size_bytes
    # Three bytes and more: from 8 KiB on.
    third = records[HEADER_BYTES + 2]
    fourth = records[HEADER_BYTES + 3] if third >= 0x80 else 0
    size = (first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14 | fourth << 21) >> 1
    return fourth >= 0x80 or HEADER_BYTES + (4 if third >= 0x80 else 3) + size == size_bytes
