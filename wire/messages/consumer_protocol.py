"""The metadata and assignments of consumers in JoinGroup and SyncGroup, for groups of type "consumer".

The coordinator of a classic group reads them only to describe the group and to expire its offsets, which need
the topics. All versions are without compact forms and tags.
"""

import struct
from typing import TypeVar

from odradek.wire.codec import decoder, encode_message
from odradek.wire.errors import MalformedMessage
from odradek.wire.schema import (
    ALL,
    BYTES,
    INT32,
    STRING,
    Array,
    Buffer,
    Struct,
    Versioned,
    on_wire,
)

V = TypeVar("V", bound=Versioned)


class TopicPartition(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class ConsumerProtocolSubscription(Versioned, versions=(0, 3)):
    topics: list[str] = on_wire(Array(STRING))
    """Names of the subscribed topics."""
    user_data: bytes | None = on_wire(BYTES, default=None, nullable=ALL)
    """Whatever the assignment strategy adds."""
    owned_partitions: list[TopicPartition] = on_wire(Array(TopicPartition), since=1, ignorable=True)
    """Partitions that the member had before the rebalance."""
    generation_id: int = on_wire(INT32, since=2, default=-1, ignorable=True)
    """Generation of these partitions, -1 if not known."""
    rack_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL, ignorable=True)
    """Rack of the consumer, null if it has none."""


class AssignedTopicPartitions(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class ConsumerProtocolAssignment(Versioned, versions=(0, 3)):
    assigned_partitions: list[AssignedTopicPartitions] = on_wire(Array(AssignedTopicPartitions))
    """Partitions of the member, by topic."""
    user_data: bytes | None = on_wire(BYTES, default=None, nullable=ALL)
    """Whatever the assignment strategy adds."""


def encode(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """The bytes in JoinGroup and SyncGroup: int16 version, then the message."""
    return struct.pack(">h", version) + encode_message(message, version)


def decode_subscription(buffer: Buffer) -> ConsumerProtocolSubscription:
    """The topics of a consumer group's member, from the metadata of its JoinGroup."""
    return _decode(ConsumerProtocolSubscription, buffer)


def decode_assignment(buffer: Buffer) -> ConsumerProtocolAssignment:
    """The partitions of a member of a consumer group, from its SyncGroup response."""
    return _decode(ConsumerProtocolAssignment, buffer)


def _decode(cls: type[V], buffer: Buffer) -> V:
    try:
        (version,) = struct.unpack_from(">h", buffer, 0)
    except struct.error as error:
        raise MalformedMessage(f"{cls.__name__}: {error}") from error
    if version < 0:
        raise MalformedMessage(f"{cls.__name__} has the version {version}")
    # Versions only add fields at the end, so a newer one reads as the newest that is known here.
    message, _ = decoder(cls, min(version, cls.versions[-1]))(buffer, 2)
    return message
