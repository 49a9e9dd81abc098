"""Records of `__consumer_offsets` as the group machine writes and reads them, in Kafka's own schemas.

Written are, as Kafka 4.3 does, OffsetCommitValue version 4 (1 for a commit with its own expiry),
GroupMetadataValue version 3, and version 0 of the others; every version is read. An offset says for which
topic id it was committed, also where the client gave a name, so that it never passes for one of a topic that
was made anew under that name.

A commit writes one key and one value for each partition, and a start reads millions of them. So these two, as
they mostly are, have code of their own beside the declared messages; whatever does not fit it exactly goes
the declared way, which also knows how to refuse it.
"""

from __future__ import annotations

import enum
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from odradek.wire.codec import decoder
from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import group_records
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription, decode_assignment
from odradek.wire.messages.group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.wire.messages.log_records import RecordTypes
from odradek.wire.schema import ZERO_UUID

GROUP_VALUE_VERSION = 3
GROUP_VALUE_VERSION_OF_OTHERS = 0
"""Version for groups that are not classic: their records have no other version yet."""
OFFSET_VALUE_VERSION = 4
EXPIRING_OFFSET_VALUE_VERSION = 1
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 30
"""More than a record's own lengths, deltas and attributes ever take."""
LONGEST_STRING_BYTES = 2**15 - 1
"""The largest length of a string in these records."""

_OFFSET_KEY_PREFIX = struct.pack(">h", OffsetCommitKey.record_type)
_OFFSET_VALUE_PREFIX = struct.pack(">h", OFFSET_VALUE_VERSION)
_OFFSET_VALUE_HEAD = struct.Struct(">hqiB")
"""Version, offset, leader epoch, and by one more than it is the length of the metadata."""
_OFFSET_VALUE_TAIL = struct.Struct(">q3s16s")
"""Time of the commit, and the tag with the topic's id."""
_BARE_OFFSET_VALUE = struct.Struct(">hqiBq3s16s")
"""Both, of a value without metadata, which most are."""
_BARE_OFFSET_VALUE_BYTES = _BARE_OFFSET_VALUE.size
_TEXT_START = _OFFSET_VALUE_HEAD.size
_TAG_OF_TOPIC_ID = b"\x01\x00\x10"
"""One tag, number 0, 16 bytes."""
SHORT_METADATA_BYTES = 127
"""From this length on, two bytes say how long it is."""
KNOWN_IDS_MAX = 100_000
KNOWN_PREFIXES_MAX = 8_192
LONGEST_REMEMBERED_ID = 255
"""Characters: a group's id may have 32 KB."""
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_new_tuple = tuple.__new__


class Kind(enum.Enum):
    OFFSET = enum.auto()
    GROUP = enum.auto()
    OTHER = enum.auto()


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    """-1 when it was not given."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """-1 for the broker's retention."""
    topic_id: bytes = ZERO_UUID
    """Id of the topic that it was committed for; zero when the record does not say."""


def fits_record(*texts: str | None) -> bool:
    """Whether all texts are short enough for these records; requests can hold longer ones."""
    return all(
        text is None or len(text) <= LONGEST_STRING_BYTES // 4 or len(text.encode()) <= LONGEST_STRING_BYTES
        for text in texts
    )


def decode_key(key: bytes, records: RecordTypes = group_records.RECORDS) -> tuple[Kind, Any]:
    """Subject of a record: (OFFSET, (group, topic, partition)), (GROUP, key of any of a group's records)
    or (OTHER, None) for a type that is not among `records`."""
    if key[:2] == _OFFSET_KEY_PREFIX:
        try:
            group_end = 4 + _LENGTH.unpack_from(key, 2)[0]
            topic_end = group_end + 2 + _LENGTH.unpack_from(key, group_end)[0]
            if group_end >= 4 and group_end + 2 <= topic_end == len(key) - 4:
                group_id, topic = str(key[4:group_end], "utf-8"), str(key[group_end + 2 : topic_end], "utf-8")
                return Kind.OFFSET, (group_id, topic, _PARTITION.unpack_from(key, topic_end)[0])
        except (struct.error, UnicodeDecodeError):
            pass
    decoded = records.decode_key(key)
    if isinstance(decoded, OffsetCommitKey | LegacyOffsetCommitKey):
        return Kind.OFFSET, (decoded.group, decoded.topic, decoded.partition)
    return (Kind.OTHER, None) if decoded is None else (Kind.GROUP, decoded)


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """The first bytes of the keys of all offsets of a group and a topic; the partition follows.

    The names have to be short enough (`fits_record`).
    """
    group, name = group_id.encode(), topic.encode()
    return b"".join((_OFFSET_KEY_PREFIX, _LENGTH.pack(len(group)), group, _LENGTH.pack(len(name)), name))


_remembered_prefix = lru_cache(maxsize=KNOWN_PREFIXES_MAX)(offset_key_prefix)


def partition_of_offset_key(key: bytes) -> int:
    """The last field of a key that begins with an `offset_key_prefix` and has four bytes more."""
    partition: int = _PARTITION.unpack_from(key, -4)[0]
    return partition


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The names have to be short enough (`fits_record`)."""
    # A topic's cannot be long, for it exists.
    prefix_of = offset_key_prefix if len(group_id) > LONGEST_REMEMBERED_ID else _remembered_prefix
    return prefix_of(group_id, topic) + _PARTITION.pack(partition)


def encode_offset(committed: CommittedOffset) -> bytes:
    """The metadata has to be short enough (`fits_record`)."""
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = committed
    if not metadata and expire_timestamp_ms == -1 and topic_id != ZERO_UUID:
        return _BARE_OFFSET_VALUE.pack(
            OFFSET_VALUE_VERSION, offset, leader_epoch, 1, commit_timestamp_ms, _TAG_OF_TOPIC_ID, topic_id
        )
    text = metadata.encode()
    if expire_timestamp_ms == -1 and topic_id != ZERO_UUID and len(text) < SHORT_METADATA_BYTES:
        head = _OFFSET_VALUE_HEAD.pack(OFFSET_VALUE_VERSION, offset, leader_epoch, len(text) + 1)
        return head + text + _OFFSET_VALUE_TAIL.pack(commit_timestamp_ms, _TAG_OF_TOPIC_ID, topic_id)
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
        topic_id=topic_id,
    )
    version = OFFSET_VALUE_VERSION if expire_timestamp_ms == -1 else EXPIRING_OFFSET_VALUE_VERSION
    return group_records.encode_value(value, version)


_ANY_OFFSET_KEY = OffsetCommitKey(group="", topic="", partition=0)


def decode_offset(value: bytes) -> CommittedOffset:
    """Raises MalformedMessage."""
    if len(value) == _BARE_OFFSET_VALUE_BYTES:
        version, offset, leader_epoch, size, commit_timestamp_ms, tag, topic_id = _BARE_OFFSET_VALUE.unpack(
            value
        )
        if version == OFFSET_VALUE_VERSION and size == 1 and tag == _TAG_OF_TOPIC_ID:
            topic_id = _known_ids.get(topic_id) or _shared(topic_id)
            return _new_tuple(CommittedOffset, (offset, leader_epoch, "", commit_timestamp_ms, -1, topic_id))
    text_end = len(value) - _OFFSET_VALUE_TAIL.size
    if text_end >= _TEXT_START and value[:2] == _OFFSET_VALUE_PREFIX:
        _, offset, leader_epoch, size = _OFFSET_VALUE_HEAD.unpack_from(value)
        commit_timestamp_ms, tag, topic_id = _OFFSET_VALUE_TAIL.unpack_from(value, text_end)
        if size == text_end - _TEXT_START + 1 <= SHORT_METADATA_BYTES and tag == _TAG_OF_TOPIC_ID:
            metadata = _text(value[_TEXT_START:text_end])
            topic_id = _known_ids.get(topic_id) or _shared(topic_id)
            return _new_tuple(
                CommittedOffset, (offset, leader_epoch, metadata, commit_timestamp_ms, -1, topic_id)
            )
    decoded = group_records.decode_value(_ANY_OFFSET_KEY, value)
    return CommittedOffset(
        decoded.offset,
        decoded.leader_epoch,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
        _shared(decoded.topic_id),
    )


def _text(data: bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"a text in a record is none: {error}") from None


_known_ids: dict[bytes, bytes] = {}


def _shared(topic_id: bytes) -> bytes:
    """The same id as one object for all: a million offsets of a thousand topics hold a thousand ids."""
    if len(_known_ids) >= KNOWN_IDS_MAX:
        _known_ids.clear()
    return _known_ids.setdefault(topic_id, topic_id)


def group_of(key: Any) -> str:
    """The group whose record has this key."""
    return key.group if isinstance(key, GroupMetadataKey) else key.group_id


def encode_group_record(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    """Key and value (None: a tombstone) of a record of a group of any type; the texts have to be short enough
    (`fits_record`)."""
    if value is None:
        return group_records.encode_key(key), None
    version = GROUP_VALUE_VERSION if isinstance(key, GroupMetadataKey) else GROUP_VALUE_VERSION_OF_OTHERS
    return group_records.encode_key(key), group_records.encode_value(value, version)


def decode_group_value(key: Any, value: bytes, records: RecordTypes = group_records.RECORDS) -> Any:
    """Raises MalformedMessage."""
    return records.decode_value(key, value)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics that a member of a consumer group subscribes to; None when its metadata cannot be read.

    Only the part of version 0 is read, which all versions begin with: some clients err in what follows.
    """
    if metadata[:1] >= b"\x80":
        return None  # a version below 0
    try:
        subscription, _ = decoder(ConsumerProtocolSubscription, 0)(metadata, 2)
    except MalformedMessage:
        return None
    return frozenset(subscription.topics)


def assigned_partitions(assignment: bytes) -> list[tuple[str, list[int]]]:
    """Partitions that a member of a consumer group was given, by topic; nothing when it cannot be read."""
    if not assignment:
        return []
    try:
        decoded = decode_assignment(assignment)
    except MalformedMessage:
        return []
    return [(one.topic, one.partitions) for one in decoded.assigned_partitions]
