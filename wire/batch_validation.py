"""The checks of a client's v2 batch before it is appended to the log.

The checks of Kafka's `LogValidator` with Kafka's error codes. `validate_header` checks only the header,
`validate_records` every record, after decompression if need be, so that every consumer can read a stored
batch. `validate_batch` does both. The batch is not changed.

Stricter than Kafka, which would repair or store it, a batch is refused if it has log append time, a delete
horizon, a transaction without a producer id, or records without the offset deltas 0, 1, 2, ... An undefined
codec number gets UNSUPPORTED_COMPRESSION_TYPE, where Kafka fails with UNKNOWN_SERVER_ERROR.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from odradek.wire._records import BatchHeader
from odradek.wire.compression import DEFAULT_LIMIT_BYTES
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import (
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    LATEST_PRODUCE_VERSION,
    NO_TIMESTAMP,
    RECORD_BYTES_MAX,
    Buffer,
)
from odradek.wire.records import (
    records_section,
    scan_records,
    survey_if_sound,
    survey_records,
    validate_header,
)

UNLIMITED_MS = 2**63 - 1
RECORD_ERRORS_MAX = 2000
"""The limit of records that a refusal lists. Kafka lists all: for a batch of a megabyte the response may have
ten, which takes half a second. A producer's usual 16 KiB have no more records than this."""
QUICK_BYTES_MAX = 4096
"""The limit of records that are checked in plain Python: under a millisecond."""


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class BatchRules:
    """The rules of a topic's settings for new records; the defaults are Kafka 4's."""

    compacted: bool = False
    """Whether `cleanup.policy` has `compact`: then every record needs a key."""
    log_append_time: bool = False
    """`message.timestamp.type=LogAppendTime`: the producer's timestamps are ignored."""
    timestamp_before_max_ms: int = UNLIMITED_MS
    """`message.timestamp.before.max.ms`"""
    timestamp_after_max_ms: int = 3_600_000
    """`message.timestamp.after.max.ms`"""
    record_bytes_max: int = RECORD_BYTES_MAX
    """`max.decompressed.message.bytes`"""


DEFAULT_RULES = BatchRules()


class InvalidRecords(KafkaError):
    """A refusal of single records: `record_errors` has (index in the batch, reason) pairs for the
    `record_errors` of a Produce response from version 8 on.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class TakesLong(Exception):
    """The records are invalid, or there are many: the full check would take too long in the event loop."""


def validate_batch(
    batch: Buffer,
    header: BatchHeader,
    rules: BatchRules,
    now_ms: int,
    *,
    produce_version: int = LATEST_PRODUCE_VERSION,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    quickly: bool = False,
) -> int:
    """All checks of the batch at the start of `batch`, except `verify_crc`.

    Returns the right max timestamp of the batch, from its records. As in Kafka, the caller then corrects the
    header (`records.set_max_timestamp`), which is wrong in batches of some clients. With log append time the
    caller sets the time of its own clock.
    """
    validate_header(header, produce_version=produce_version)
    return validate_records(batch, header, rules, now_ms, limit_bytes=limit_bytes, quickly=quickly)


def validate_records(
    batch: Buffer,
    header: BatchHeader,
    rules: BatchRules,
    now_ms: int,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    quickly: bool = False,
) -> int:
    """Check each record of the batch at the start of `batch`; returns the latest timestamp.

    Refuses with `InvalidRecords` records that the rules forbid (INVALID_TIMESTAMP if any timestamp is out of
    range, INVALID_RECORD otherwise), with INVALID_RECORD records that contradict the header or themselves
    and, in a compressed batch, a record over `record_bytes_max`,
    and as `compression.decompress` does: an unreadable batch would stop all consumers. With `quickly` raises
    `TakesLong` if the check takes more than half a millisecond, without decompression.
    """
    data: Buffer
    if header.attributes & COMPRESSION_MASK:
        data = records_section(batch, header, limit_bytes, rules.record_bytes_max)
    else:
        data = memoryview(batch)[HEADER_SIZE_BYTES : header.size_bytes]
    if quickly and len(data) > QUICK_BYTES_MAX:
        survey = survey_if_sound(data, header.record_count, header.base_timestamp)
        if survey is None:
            raise TakesLong
        least, most, keys_missing = survey
        if breaks_rules(least, most, keys_missing, rules, now_ms):
            raise TakesLong
        return most
    least, most, keys_missing = survey_records(data, header.record_count, header.base_timestamp)
    if breaks_rules(least, most, keys_missing, rules, now_ms):
        table = scan_records(bytes(data), header.record_count, 0, header.base_timestamp)
        check_rules(table.key_sizes, table.timestamps, rules, now_ms)
    return most


def breaks_rules(least: int, most: int, keys_missing: bool, rules: BatchRules, now_ms: int) -> bool:
    """Whether a batch with these timestamps and keys may break a rule: then each record is checked."""
    if keys_missing and rules.compacted:
        return True
    if rules.log_append_time:
        return False
    return least < now_ms - rules.timestamp_before_max_ms or most > now_ms + rules.timestamp_after_max_ms


def check_rules(key_sizes: Sequence[int], timestamps: Sequence[int], rules: BatchRules, now_ms: int) -> None:
    """Refuse with `InvalidRecords` records that the rules forbid; a key size below zero is a missing key.

    The first `RECORD_ERRORS_MAX` records are listed, each once: a missing key comes before a timestamp.
    INVALID_TIMESTAMP takes precedence over INVALID_RECORD.
    """
    keyless: set[int] = set()
    late: set[int] = set()
    if rules.compacted and min(key_sizes, default=0) < 0:
        keyless = {index for index, size in enumerate(key_sizes) if size < 0}
    if not rules.log_append_time:
        late = _out_of_range(timestamps, rules, now_ms) - keyless
    if not keyless and not late:
        return
    least, most = _range_of(rules, now_ms)
    errors = [
        (
            index,
            "a compacted topic takes no record without a key"
            if index in keyless
            else f"the timestamp {timestamps[index]} is not within {least} to {most}",
        )
        for index in sorted(keyless | late)[:RECORD_ERRORS_MAX]
    ]
    code = ErrorCode.INVALID_TIMESTAMP if late else ErrorCode.INVALID_RECORD
    raise InvalidRecords(code, f"{len(keyless) + len(late)} records are refused: {errors[0][1]}", errors)


def _range_of(rules: BatchRules, now_ms: int) -> tuple[int, int]:
    return now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms


def _out_of_range(timestamps: Sequence[int], rules: BatchRules, now_ms: int) -> set[int]:
    least, most = _range_of(rules, now_ms)
    if not timestamps or (least <= min(timestamps) and max(timestamps) <= most):
        return set()
    return {
        index
        for index, timestamp in enumerate(timestamps)
        if timestamp != NO_TIMESTAMP and not least <= timestamp <= most
    }
