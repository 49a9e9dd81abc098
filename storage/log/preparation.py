"""What a client's records go through before their log is asked: checked, converted, packed as the topic wants
them.

It may take long, most of a second for a MB at the most thorough level, and needs nothing but its arguments:
`prepare` may run in any thread. The codecs and the compiled walk over the records let the others run
meanwhile; of what is plain Python (the old formats, finding out what is wrong with a batch, all records where
nothing was compiled) they have to wait a few milliseconds for their turns. `prepare_quickly` does what takes
half a millisecond or so, and leaves all else alone.
"""

from odradek.storage.config import LogConfig
from odradek.storage.log.validation import (
    Batch,
    check_batch,
    check_client_batch,
    check_size,
    leading_batch_bytes,
    with_append_time,
)
from odradek.wire.batch_validation import BatchRules, TakesLong
from odradek.wire.compression import DEFAULT_LIMIT_BYTES
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import ATTRIBUTES_POSITION, MAGIC_POSITION
from odradek.wire.records import read_batch_header

QUICK_BYTES_MAX = 131_072
"""Of records that are looked at, and unpacked where need be: what a producer packs into its usual 16 KiB. By
then the codecs take 0.1 (lz4) to 0.7 ms (gzip); to have a thread do it costs 0.1 ms."""
QUICK_PACKING_BYTES_MAX = {"gzip": 8192, "snappy": 65_536, "lz4": 65_536, "zstd": 32_768}
"""Of records that are packed, at Kafka's default levels: 0.2 to 0.3 ms each."""
QUICK_THOROUGH_BYTES_MAX = 1024
"""The same, where more effort is asked for: 0.2 ms."""
QUICK_OLD_BYTES_MAX = 4096
"""Of a message set, which is converted in plain Python: 0.2 ms, or 0.6 if it is many small messages."""

_CODEC_POSITION = ATTRIBUTES_POSITION + 1
"""Of the attributes' lower byte; of a message of the old formats it is `MAGIC_POSITION + 1`."""
_CODEC_MASK = 0b111
_STORED_NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
"""Of the codecs, by their numbers: as `compression.type` has them."""
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
    """The one sound v2 batch that `records` become in the log, base offset 0; `KafkaError` if they may not.

    `magic_limit` and `records` are those of `Partition.append`. Nothing comes of an old client's empty set of
    messages, which is no error in Kafka. MESSAGE_TOO_LARGE also when they unpack to more than `limit_bytes`.
    With `quickly` it is `TakesLong` where the records would take long to judge.
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
    """`prepare`, or `TakesLong` where it would."""
    size_bytes = len(records)
    if size_bytes <= _CODEC_POSITION:
        return prepare(records, magic_limit, config, rules, now_ms, partition)
    if _is_old(records):
        codec = records[MAGIC_POSITION + 1] & _CODEC_MASK
        quick_bytes = 0 if codec else min(_quick_bytes(codec, config), QUICK_OLD_BYTES_MAX)
    else:
        codec = records[_CODEC_POSITION] & _CODEC_MASK
        quick_bytes = _quick_bytes(codec, config)
    # What is packed grows fourfold, as a rule. How much it really is shows when it is unpacked.
    if size_bytes > (quick_bytes // 4 if codec else quick_bytes):
        raise TakesLong
    try:
        return prepare(records, magic_limit, config, rules, now_ms, partition, quick_bytes, quickly=True)
    except KafkaError as error:
        if codec and error.code is ErrorCode.MESSAGE_TOO_LARGE:
            raise TakesLong from None  # perhaps for this limit only
        raise


def _quick_bytes(codec: int, config: LogConfig) -> int:
    """How much of records that came in `codec` is prepared in next to no time."""
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
        # There are the fast compressor, which is level 9 to Kafka, and the other one.
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
    """A message set as a batch v2, checked and sealed."""
    from odradek.wire.legacy_records import to_v2  # only the oldest clients pay for it

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
    """Produce 0 to 2 may bring a batch v2 as well."""
    header = read_batch_header(records)
    behind = records[header.size_bytes :]
    if behind:
        # Kafka drops the beginning of another one, as it drops that of a message.
        code = ErrorCode.INVALID_RECORD if leading_batch_bytes(behind) else ErrorCode.CORRUPT_MESSAGE
        raise KafkaError(code, f"More than one record batch came for {partition}.")
    return check_batch(Batch(records, header), config, rules, now_ms, partition, limit_bytes, quickly)
