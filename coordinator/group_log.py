"""Records of `__consumer_offsets` as the group machine writes and reads them, in Kafka's own schemas.

Written are OffsetCommitValue version 3 (1 for a commit with its own expiry) and GroupMetadataValue version 3,
as brokers before 4.1 did, because tools that read this topic know those; every version is read.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from odradek.wire.codec import decoder
from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import group_records
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

__all__ = [
    "CommittedOffset",
    "Kind",
    "decode_group",
    "decode_key",
    "decode_offset",
    "encode_group",
    "encode_group_key",
    "encode_offset",
    "encode_offset_key",
    "subscribed_topics",
]

GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 3
EXPIRING_OFFSET_VALUE_VERSION = 1


class Kind(enum.Enum):
    OFFSET = enum.auto()
    GROUP = enum.auto()
    OTHER = enum.auto()


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    """-1 when it was not said."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """-1 for the broker's retention."""


def decode_key(key: bytes) -> tuple[Kind, Any]:
    """What a record is about: (OFFSET, (group, topic, partition)), (GROUP, group) or (OTHER, None)."""
    decoded = group_records.decode_key(key)
    if isinstance(decoded, OffsetCommitKey | LegacyOffsetCommitKey):
        return Kind.OFFSET, (decoded.group, decoded.topic, decoded.partition)
    if isinstance(decoded, GroupMetadataKey):
        return Kind.GROUP, decoded.group
    return Kind.OTHER, None


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return group_records.encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def encode_offset(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = committed
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
    )
    is_expiring = expire_timestamp_ms != -1
    version = EXPIRING_OFFSET_VALUE_VERSION if is_expiring else OFFSET_VALUE_VERSION
    return group_records.encode_value(value, version)


_ANY_OFFSET_KEY = OffsetCommitKey(group="", topic="", partition=0)
_ANY_GROUP_KEY = GroupMetadataKey(group="")


def decode_offset(value: bytes) -> CommittedOffset:
    decoded = group_records.decode_value(_ANY_OFFSET_KEY, value)
    return CommittedOffset(
        decoded.offset,
        decoded.leader_epoch,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
    )


def encode_group_key(group_id: str) -> bytes:
    return group_records.encode_key(GroupMetadataKey(group=group_id))


def encode_group(value: GroupMetadataValue) -> bytes:
    return group_records.encode_value(value, GROUP_VALUE_VERSION)


def decode_group(value: bytes) -> GroupMetadataValue:
    return group_records.decode_value(_ANY_GROUP_KEY, value)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics that a member of a consumer group asks for; None when its metadata cannot be read.

    Only the part of version 0 is read, which all versions begin with: some clients err in what follows.
    """
    try:
        subscription, _ = decoder(ConsumerProtocolSubscription, 0)(metadata, 2)
    except MalformedMessage:
        return None
    return frozenset(subscription.topics)
