"""Message sets of the formats v0 and v1, of Produce 0 to 2 and Fetch 0 to 3.

These formats are never stored. `to_v2` checks a client's message set and converts it as Kafka 3.9 does on
append; `to_legacy` converts stored batches as Kafka 3.9 does for an old consumer, and `down_conversion.py`
makes a response of them. Damaged or contradictory messages are refused with a KafkaError and no other
exception.

A message is an offset 8, a size 4 (of what follows), CRC-32 4 (of what follows), magic 1, attributes 1, from
v1 on a timestamp 8, then key and value, each after its size of 4 bytes (-1: null). A compressed set is one
wrapper message with the messages as its value; its offset is the offset of the last message. Inner offsets
are absolute in v0, relative to the first message in v1.

Stricter than Kafka, two kinds of records are refused that Kafka acknowledges and drops: an incomplete message
at the end of a set, compressed or not, and bytes of a message after its value.

Sources: KIP-31 (relative offsets), KIP-32 (timestamps), `LogValidator.java`,
`AbstractLegacyRecordBatch.java`, `RecordsUtil.java`.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from zlib import crc32

from odradek.wire._records import BatchHeader
from odradek.wire.batch_validation import DEFAULT_RULES, BatchRules, InvalidRecords, check_rules
from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression, compress, decompress
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import (
    COMPRESSION_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    Buffer,
    Record,
)
from odradek.wire.records import build_batch, iter_batches, iter_records, verify_crc

_OFFSET_AND_SIZE = Struct(">qi")
_CRC = Struct(">I")
_SIZE = Struct(">i")
_HEAD = (Struct(">qiIbb"), Struct(">qiIbbq"))  # by magic
_LEAST_BODY_BYTES = (14, 22)

_LOG_APPEND_TIME = 0x08


class LegacyMessage(NamedTuple):
    """One message of a set, perhaps a wrapper; `timestamp` is NO_TIMESTAMP in format v0."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def uses_log_append_time(self) -> bool:
        return self.magic > 0 and self.attributes & _LOG_APPEND_TIME != 0


def is_legacy(buffer: Buffer) -> bool:
    """Whether `buffer` starts with a message of format v0 or v1 (not with a batch, and not too short)."""
    return len(buffer) > MAGIC_POSITION and buffer[MAGIC_POSITION] < MAGIC_V2


# Reading --------------------------------------------------------------------------------------------


def iter_messages(buffer: Buffer) -> Iterator[LegacyMessage]:
    """The messages of a set, without unpacking wrappers; a damaged message is refused with
    CORRUPT_MESSAGE."""
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        message, position = _read_message(view, position)
        yield message


def _read_message(view: memoryview, position: int) -> tuple[LegacyMessage, int]:
    left = len(view) - position
    if left <= MAGIC_POSITION:
        raise _corrupt(f"{left} bytes are not a message")
    offset, size_bytes = _OFFSET_AND_SIZE.unpack_from(view, position)
    magic = view[position + MAGIC_POSITION]
    if magic > MAGIC_V2:
        raise _corrupt(f"a message of magic {magic}")
    if magic == MAGIC_V2:
        raise _invalid("a batch among messages of an old format")
    if not _LEAST_BODY_BYTES[magic] <= size_bytes <= left - LOG_OVERHEAD_BYTES:
        raise _corrupt(f"a message claims {size_bytes} bytes where {left - LOG_OVERHEAD_BYTES} are left")
    end = position + LOG_OVERHEAD_BYTES + size_bytes
    body = view[position + LOG_OVERHEAD_BYTES : end]
    (stored,) = _CRC.unpack_from(body)
    if crc32(body[_CRC.size :]) != stored:
        raise _corrupt(f"a message's checksum is {stored:#010x}, that of its bytes {crc32(body[4:]):#010x}")
    head = _HEAD[magic].unpack_from(view, position)
    key, after_key = _read_bytes(view, position + _HEAD[magic].size, end)
    value, after_value = _read_bytes(view, after_key, end)
    if after_value != end:
        raise _corrupt(f"a message has {end - after_value} bytes after its value")
    return LegacyMessage(offset, magic, head[4], head[5] if magic else NO_TIMESTAMP, key, value), end


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    try:
        (size,) = _SIZE.unpack_from(view, position)
    except struct_error:
        raise _Nonsense("a message ends within a size") from None
    start = position + _SIZE.size
    if size < 0:
        return None, start
    if start + size > end:
        raise _Nonsense(f"a key or value claims {size} bytes where {end - start} are left")
    return bytes(view[start : start + size]), start + size


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)


class _Nonsense(KafkaError):
    """Invalid content with a right checksum."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, why)


def _senseless(why: str) -> KafkaError:
    """The error for a client: with CORRUPT_MESSAGE clients would send the message again, without success.
    Kafka has an internal error here, with the same code."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


# To v2 ----------------------------------------------------------------------------------------------


def to_v2(
    buffer: Buffer,
    *,
    now_ms: int,
    base_offset: int = 0,
    rules: BatchRules = DEFAULT_RULES,
    compression: int | None = None,
    level: int | None = None,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> list[bytearray]:
    """A client's message set, validated and converted: one v2 batch, or none for an empty set.

    Offsets count up from `base_offset` in the order of the messages; the client's offsets are ignored, since
    old clients send wrong ones. The codec stays the client's unless `compression` is set. Messages of v0 have
    NO_TIMESTAMP, unless the rules have log append time.

    Refuses with CORRUPT_MESSAGE, INVALID_RECORD (more than one wrapper, a wrapper in a wrapper, mixed
    formats), `InvalidRecords` (as `batch_validation.check_rules`), MESSAGE_TOO_LARGE beyond `limit_bytes`,
    and UNKNOWN_SERVER_ERROR, Kafka's code for invalid content with a right checksum.
    """
    try:
        outer, messages = _read_set(buffer, limit_bytes)
    except _Nonsense as error:
        raise _senseless(error.message) from error
    if outer is None:
        return []
    _check_timestamp_type(outer, messages, rules)
    if any(message.timestamp < NO_TIMESTAMP for message in messages):
        raise _senseless("a timestamp is below -1")
    key_sizes = [-1 if message.key is None else len(message.key) for message in messages]
    timestamps = [message.timestamp for message in messages]
    if outer.compression == Compression.NONE:
        # In Kafka each message is a batch of its own: the first invalid one is refused, with index 0.
        for key_size, timestamp in zip(key_sizes, timestamps, strict=True):
            check_rules([key_size], [timestamp], rules, now_ms)
    else:
        check_rules(key_sizes, timestamps, rules, now_ms)
    records = [
        Record(base_offset + index, message.timestamp, message.key, message.value)
        for index, message in enumerate(messages)
    ]
    batch = build_batch(
        records,
        base_offset=base_offset,
        compression=outer.compression if compression is None else compression,
        level=level,
        leader_epoch=leader_epoch,
        log_append_time_ms=now_ms if rules.log_append_time else None,
    )
    return [batch]


def _read_set(buffer: Buffer, limit_bytes: int) -> tuple[LegacyMessage | None, list[LegacyMessage]]:
    """The first message, and all messages, or the messages in the first one if it is a wrapper."""
    messages = list(iter_messages(buffer))
    if not messages:
        return None, messages
    outer = messages[0]
    if any(message.magic != outer.magic for message in messages):
        raise _invalid("the messages of one set have different formats")
    if all(message.compression == Compression.NONE for message in messages):
        return outer, messages
    if len(messages) > 1:
        raise _invalid("a compressed message has others beside it")
    return outer, _unwrap(outer, limit_bytes)


def _unwrap(wrapper: LegacyMessage, limit_bytes: int) -> list[LegacyMessage]:
    if wrapper.value is None:
        raise _invalid("a compressed message has no value")
    if wrapper.compression == Compression.ZSTD:
        raise _invalid("messages of the old formats cannot be compressed with zstd")
    inner = _unpacked(wrapper, wrapper.value, limit_bytes)
    if not inner:
        raise _invalid("a compressed message holds no messages")
    if any(message.compression != Compression.NONE for message in inner):
        raise _invalid("a compressed message holds compressed messages")
    strangers = [index for index, message in enumerate(inner) if message.magic != wrapper.magic]
    if strangers:
        why = f"the message's format is not that of its wrapper, {wrapper.magic}"
        raise InvalidRecords(ErrorCode.INVALID_RECORD, why, [(index, why) for index in strangers])
    # Some versions of librdkafka leave the wrapper's offset at 0.
    if wrapper.magic == 1 and 0 != wrapper.offset < inner[-1].offset:
        raise _invalid(
            f"the wrapper's offset {wrapper.offset} is below its last message's, {inner[-1].offset}"
        )
    if wrapper.uses_log_append_time:
        inner = [message._replace(timestamp=wrapper.timestamp) for message in inner]
    return inner


def _unpacked(wrapper: LegacyMessage, value: bytes, limit_bytes: int) -> list[LegacyMessage]:
    try:
        messages = decompress(wrapper.compression, value, limit_bytes, magic=wrapper.magic)
    except KafkaError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            raise
        raise _Nonsense(error.message) from error
    return list(iter_messages(messages))


def _check_timestamp_type(outer: LegacyMessage, messages: list[LegacyMessage], rules: BatchRules) -> None:
    """Refuse LogAppendTime, which only the broker may set; Kafka accepts it only where CreateTime will
    replace it."""
    if not outer.uses_log_append_time:
        return
    why = "a producer may not set the timestamp type to LogAppendTime"
    errors = [
        (index, why)
        for index, message in enumerate(messages)
        if rules.log_append_time or message.timestamp == NO_TIMESTAMP
    ]
    if errors:
        raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, why, errors)


def stored_messages(outer: LegacyMessage, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[LegacyMessage]:
    """The messages in a message of a log from before Kafka 0.11, with absolute offsets: itself, or those in
    the wrapper. In v1 the inner offsets count up to the wrapper's offset.

    Refuses with CORRUPT_MESSAGE, and with MESSAGE_TOO_LARGE beyond `limit_bytes`.
    """
    if not outer.compression:
        return [outer]
    data = decompress(outer.compression, outer.value or b"", limit_bytes, magic=outer.magic)
    messages = list(iter_messages(data))
    if not messages:
        raise _corrupt(f"the wrapper at offset {outer.offset} is empty")
    if outer.magic == 1:
        first = outer.offset - messages[-1].offset
        messages = [message._replace(offset=first + message.offset) for message in messages]
    return messages


def batch_of_stored(messages: list[LegacyMessage], outer: LegacyMessage) -> bytearray:
    """One v2 batch of `stored_messages`, in the codec and with the type of timestamps of `outer`.

    Refuses offsets that are not in order with CORRUPT_MESSAGE.
    """
    records = [
        Record(message.offset, message.timestamp, message.key, message.value, ()) for message in messages
    ]
    append_time = outer.timestamp if outer.uses_log_append_time else None
    try:
        return build_batch(records, compression=outer.compression, log_append_time_ms=append_time)
    except ValueError as error:
        raise _corrupt(str(error)) from error


# To v0 and v1 ---------------------------------------------------------------------------------------


def to_legacy(
    batches: Buffer, magic: int, first_offset: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """The v2 batches that follow each other in `batches`, as messages of the format `magic` (0 or 1).

    Control batches and headers are left out, in v0 also timestamps; offsets stay. A compressed batch becomes
    one wrapper message. Records of an uncompressed batch before `first_offset` are left out, since old
    librdkafka does not expect them. Refuses with UNSUPPORTED_COMPRESSION_TYPE a batch compressed with zstd.
    """
    view = memoryview(batches)
    return b"".join(
        batch_to_legacy(view, position, header, magic, first_offset, limit_bytes=limit_bytes)
        for position, header in iter_batches(view)
    )


def batch_to_legacy(
    view: memoryview,
    position: int,
    header: BatchHeader,
    magic: int,
    first_offset: int,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Buffer:
    """One whole batch of `view`, see `to_legacy`."""
    assert magic in (0, 1)
    if header.is_control:
        return b""
    if header.compression == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "batches compressed with zstd cannot be converted to an old message format",
        )
    # Checked here, since converted messages get a new checksum, which would hide damage.
    verify_crc(view, position, header)
    batch = view[position : position + header.size_bytes]
    records = iter_records(batch, header, limit_bytes=limit_bytes)
    if header.compression == Compression.NONE:
        kept = (record for record in records if record.offset >= first_offset)
        return _write_messages(kept, magic, _time_type(header))
    return _wrap(list(records), magic, header)


def _time_type(header: BatchHeader) -> int:
    return _LOG_APPEND_TIME if header.uses_log_append_time else 0


def _write_messages(records: Iterable[Record], magic: int, attributes: int, first: int = 0) -> bytearray:
    messages = bytearray()
    for record in records:
        messages += build_message(
            magic,
            offset=record.offset - first,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            attributes=attributes,
        )
    return messages


def _wrap(records: list[Record], magic: int, header: BatchHeader) -> bytes:
    if not records:
        return b""
    first = records[0].offset if magic == 1 else 0
    inner = _write_messages(records, magic, _time_type(header), first)
    return build_message(
        magic,
        offset=records[-1].offset,
        timestamp=max(record.timestamp for record in records),
        key=None,
        value=compress(header.compression, inner, magic=magic),
        attributes=header.compression | _time_type(header),
    )


def build_message(
    magic: int,
    *,
    offset: int = 0,
    timestamp: int = NO_TIMESTAMP,
    key: bytes | None,
    value: bytes | None,
    attributes: int = 0,
) -> bytes:
    """One message of format v0 or v1 with its checksum; v0 has neither timestamp nor timestamp type."""
    body = _sized(key) + _sized(value)
    if magic == 0:
        attributes &= ~_LOG_APPEND_TIME
        head = _HEAD[0].pack(offset, len(body) + 6, 0, magic, attributes)
    else:
        head = _HEAD[1].pack(offset, len(body) + 14, 0, magic, attributes, timestamp)
    message = bytearray(head + body)
    _CRC.pack_into(message, LOG_OVERHEAD_BYTES, crc32(memoryview(message)[MAGIC_POSITION:]))
    return bytes(message)


def _sized(value: bytes | None) -> bytes:
    return _SIZE.pack(-1) if value is None else _SIZE.pack(len(value)) + value
