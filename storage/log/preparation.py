"""Preparation of a client's records before the checks against the log: they are checked, converted, and
compressed with the topic's codec.

It may take long, most of a second for a MB at the highest compression level, and depends only on its
arguments: `prepare` may run in any thread. The codecs and the compiled walk over the records release the GIL;
during plain Python (the old formats, the reason of a refusal) other threads wait a few milliseconds for their
turns. `prepare_quickly` takes records that need about half a millisecond, and declines all others.

The checks of a batch run one after the other, with a reason for each refusal; `append_ordinary` makes the
same checks at once. Order and error codes as in `ProduceRequest.validateRecords`,
`UnifiedLog.analyzeAndValidateRecords` and `LogValidator.java`. The checks of a batch's content are in
`wire/batch_validation.py`.
"""

from functools import lru_cache
from typing import NamedTuple

from odradek.storage.config import LogConfig
from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.batch_validation import BatchRules, TakesLong, validate_batch
from odradek.wire.compression import DEFAULT_LIMIT_BYTES
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import ATTRIBUTES_POSITION, LOG_OVERHEAD_BYTES, MAGIC_POSITION
from odradek.wire.records import set_log_append_time, set_max_timestamp, verify_crc

LEGACY_MESSAGE_BYTES_MIN = 14
RULES_SHARED_MAX = 64
"""Different rules that are kept: as many as topics have different settings, as a rule a few."""


class Batch(NamedTuple):
    """A whole batch v2 and its header, which was read from it once."""

    content: memoryview
    header: BatchHeader


def rules_of(config: LogConfig) -> BatchRules:
    """The rules of a topic's settings for the records in a batch."""
    return _shared_rules(
        config.is_compacted,
        config.uses_log_append_time,
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
        config.max_decompressed_message_bytes,
    )


# Most partitions have the same rules, and one object is enough for them.
_shared_rules = lru_cache(RULES_SHARED_MAX)(BatchRules)


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


QUICK_BYTES_MAX = 131_072
"""Bytes of records that are checked, and decompressed if need be, in the event loop: the content of a usual
16 KiB batch. For this size the codecs take 0.1 (lz4) to 0.7 ms (gzip); the use of a thread costs 0.1 ms."""
QUICK_PACKING_BYTES_MAX = {"gzip": 8192, "snappy": 65_536, "lz4": 65_536, "zstd": 32_768}
"""Bytes of records that are compressed, at Kafka's default levels: 0.2 to 0.3 ms each."""
QUICK_THOROUGH_BYTES_MAX = 1024
"""Bytes of records that are compressed at higher levels: 0.2 ms."""
QUICK_OLD_BYTES_MAX = 4096
"""Bytes of a message set, which is converted in plain Python: 0.2 ms, or 0.6 for many small messages."""

_CODEC_POSITION = ATTRIBUTES_POSITION + 1
"""Position of the lower byte of the attributes; in a message of the old formats it is `MAGIC_POSITION +
1`."""
_CODEC_MASK = 0b111
_STORED_NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
"""Names of the codecs by number, as in `compression.type`."""
_USUAL_LZ4_LEVEL, _USUAL_ZSTD_LEVEL, _USUAL_GZIP_LEVEL = 9, 3, 6


def prepare(
    records: memoryview,
    magic_limit: int,
    config: LogConfig,
    rules: BatchRules,
    now_ms: int,
    partition: str,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    quickly: bool = False,
) -> list[Batch]:
    """The sound v2 batch of `records` for the log, with base offset 0; refuses with `KafkaError`.

    `magic_limit` and `records`: see `Appends.append`. No batch for an old client's empty message set, which
    is no error in Kafka. MESSAGE_TOO_LARGE also if they decompress to more than `limit_bytes`. With `quickly`
    it raises `TakesLong` if the records would take long.
    """
    if magic_limit == 2:
        batch = check_client_batch(records, config, rules, now_ms, partition, limit_bytes, quickly)
    elif len(records) == 0:
        return []
    elif _is_old(records):
        return [_converted(records, config, rules, now_ms, partition, limit_bytes)]
    else:
        batch = _batch_of_old_request(records, config, rules, now_ms, partition, limit_bytes, quickly)
    return [with_append_time(batch, now_ms) if config.uses_log_append_time else batch]


def prepare_quickly(
    records: memoryview, magic_limit: int, config: LogConfig, rules: BatchRules, now_ms: int, partition: str
) -> list[Batch]:
    """`prepare`, or `TakesLong` if that would take long."""
    size_bytes = len(records)
    if size_bytes <= _CODEC_POSITION:
        return prepare(records, magic_limit, config, rules, now_ms, partition)
    if _is_old(records):
        codec = records[MAGIC_POSITION + 1] & _CODEC_MASK
        quick_bytes = 0 if codec else min(_quick_bytes(codec, config), QUICK_OLD_BYTES_MAX)
    else:
        codec = records[_CODEC_POSITION] & _CODEC_MASK
        quick_bytes = _quick_bytes(codec, config)
    # Compressed records are usually a quarter of their size. The real size is known after decompression.
    if size_bytes > (quick_bytes // 4 if codec else quick_bytes):
        raise TakesLong
    try:
        return prepare(records, magic_limit, config, rules, now_ms, partition, quick_bytes, quickly=True)
    except KafkaError as error:
        if codec and error.code is ErrorCode.MESSAGE_TOO_LARGE:
            raise TakesLong from None  # perhaps only over the limit for quick work
        raise


def _quick_bytes(codec: int, config: LogConfig) -> int:
    """Bytes of records in `codec` that are prepared quickly."""
    stored = config.compression_type
    quick_bytes = QUICK_PACKING_BYTES_MAX.get(stored)
    if quick_bytes is None or (codec < len(_STORED_NAMES) and stored == _STORED_NAMES[codec]):
        return QUICK_BYTES_MAX
    return QUICK_THOROUGH_BYTES_MAX if _is_thorough(config) else quick_bytes


def _is_thorough(config: LogConfig) -> bool:
    stored = config.compression_type
    if stored == "gzip":
        return config.compression_gzip_level > _USUAL_GZIP_LEVEL
    if stored == "lz4":
        # lz4 has a fast compressor, Kafka's level 9, and a high compression one.
        return config.compression_lz4_level != _USUAL_LZ4_LEVEL
    return stored == "zstd" and config.compression_zstd_level > _USUAL_ZSTD_LEVEL


def _is_old(records: memoryview) -> bool:
    """Whether it is a message set of format 0 or 1."""
    return len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < 2


def _converted(
    records: memoryview,
    config: LogConfig,
    rules: BatchRules,
    now_ms: int,
    partition: str,
    limit_bytes: int,
) -> Batch:
    """A message set as a checked v2 batch."""
    from odradek.wire.legacy_records import to_v2  # only the oldest clients need it

    check_size(len(records), config, partition)
    (batch,) = to_v2(
        records,
        now_ms=now_ms,
        rules=rules,
        compression=config.codec,
        level=config.codec_level,
        limit_bytes=limit_bytes,
    )
    check_size(len(batch), config, partition)
    return Batch(memoryview(batch), read_batch_header(batch))


def _batch_of_old_request(
    records: memoryview,
    config: LogConfig,
    rules: BatchRules,
    now_ms: int,
    partition: str,
    limit_bytes: int,
    quickly: bool,
) -> Batch:
    """A v2 batch, which Produce 0 to 2 may send as well."""
    header = read_batch_header(records)
    behind = records[header.size_bytes :]
    if behind:
        # Kafka drops an incomplete second batch, as it drops an incomplete message.
        code = ErrorCode.INVALID_RECORD if leading_batch_bytes(behind) else ErrorCode.CORRUPT_MESSAGE
        raise KafkaError(code, f"More than one record batch came for {partition}.")
    return check_batch(Batch(records, header), config, rules, now_ms, partition, limit_bytes, quickly)
