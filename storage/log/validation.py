"""The checks of a client's batch, one after the other, with a reason for each refusal; `append_ordinary`
makes the same checks at once.

Order and error codes as in `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and
`LogValidator.java`. The checks of a batch's content are in `wire/batch_validation.py`.
"""

from typing import NamedTuple

from odradek.storage.config import LogConfig
from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.batch_validation import BatchRules, validate_batch
from odradek.wire.compression import DEFAULT_LIMIT_BYTES
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import LOG_OVERHEAD_BYTES, MAGIC_POSITION
from odradek.wire.records import set_log_append_time, set_max_timestamp, verify_crc

LEGACY_MESSAGE_BYTES_MIN = 14


class Batch(NamedTuple):
    """A whole batch v2 and its header, which was read from it once."""

    content: memoryview
    header: BatchHeader


def rules_of(config: LogConfig) -> BatchRules:
    """The rules of a topic's settings for the records in a batch."""
    return BatchRules(
        compacted=config.is_compacted,
        log_append_time=config.uses_log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
    )


def check_client_batch(
    records: memoryview,
    config: LogConfig,
    rules: BatchRules,
    now_ms: int,
    partition: str,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    quickly: bool = False,
) -> Batch:
    """The batch to append, or a refusal: exactly one sound v2 batch is expected.

    The result is a new batch if the records have another latest timestamp than the header, or if the topic
    has a codec of its own. MESSAGE_TOO_LARGE also if it decompresses to more than `limit_bytes`. With
    `quickly` it raises `TakesLong` if the records would take long.
    """
    size_bytes = leading_batch_bytes(records)
    if size_bytes == 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"No whole record batch came for {partition}.")
    if records[MAGIC_POSITION] < 2:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Produce of this version has batches of format 2; one for {partition} has "
            f"{records[MAGIC_POSITION]}.",
        )
    if leading_batch_bytes(records[size_bytes:]):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"More than one record batch came for {partition}.")
    # An incomplete batch may follow: as in Kafka it is dropped.
    records = records[:size_bytes]
    batch = Batch(records, read_batch_header(records))
    return check_batch(batch, config, rules, now_ms, partition, limit_bytes, quickly)


def check_batch(
    batch: Batch,
    config: LogConfig,
    rules: BatchRules,
    now_ms: int,
    partition: str,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    quickly: bool = False,
) -> Batch:
    """A client's one batch, see `check_client_batch`."""
    check_size(batch.header.size_bytes, config, partition)
    verify_crc(batch.content, 0, batch.header)
    batch = _check_content(batch, rules, now_ms, limit_bytes, quickly)
    return in_stored_codec(batch, config, partition, limit_bytes)


def leading_batch_bytes(records: memoryview) -> int:
    """The size of the batch or old message at the start, 0 if it is incomplete.

    Refuses other content with CORRUPT_MESSAGE. As `ByteBufferLogInputStream.java`.
    """
    if len(records) < LOG_OVERHEAD_BYTES:
        return 0
    length = int.from_bytes(records[8:12], "big", signed=True)
    if length < LEGACY_MESSAGE_BYTES_MIN:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A record batch has the length {length}.")
    if len(records) <= MAGIC_POSITION:
        return 0
    if records[MAGIC_POSITION] > 2:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"A record batch has the format {records[MAGIC_POSITION]}."
        )
    size_bytes = length + LOG_OVERHEAD_BYTES
    return size_bytes if size_bytes <= len(records) else 0


def _check_content(batch: Batch, rules: BatchRules, now_ms: int, limit_bytes: int, quickly: bool) -> Batch:
    """Refuse records that the topic does not accept; for the result see `check_client_batch`."""
    content, header = batch
    max_timestamp = validate_batch(content, header, rules, now_ms, limit_bytes=limit_bytes, quickly=quickly)
    if max_timestamp == header.max_timestamp:
        return batch
    copy = bytearray(content)
    set_max_timestamp(copy, 0, header, max_timestamp)
    return Batch(memoryview(copy), header)


def in_stored_codec(
    batch: Batch, config: LogConfig, partition: str, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Batch:
    """The sound batch in the codec of `compression.type`. Refuses with MESSAGE_TOO_LARGE a batch that is too
    large in this codec.
    """
    codec = config.codec
    if codec is None or codec == batch.header.compression:
        return batch
    from odradek.wire.recompression import recompress  # few topics have a codec of their own

    packed = recompress(batch.content, batch.header, codec, config.codec_level, limit_bytes=limit_bytes)
    check_size(len(packed), config, partition)
    return Batch(memoryview(packed), read_batch_header(packed))


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


def with_append_time(batch: Batch, now_ms: int) -> Batch:
    """A copy of the batch in which every record's timestamp is `now_ms`."""
    copy = bytearray(batch.content)
    header = read_batch_header(copy)
    set_log_append_time(copy, 0, header, now_ms)
    return Batch(memoryview(copy), header)
