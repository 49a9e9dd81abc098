"""Records of `__share_group_state` as the share coordinator writes and reads them, in Kafka's own schemas.

A state may have thousands of batches, so values are written and read here byte by byte.
`wire/messages/share_state_records.py` declares them, and reads what is not so simple.

Source: ShareSnapshotValue.json, ShareUpdateValue.json and ShareCoordinatorRecordHelpers of Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain

from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.coordinator.shares.state.state import State, Update
from odradek.wire.messages import share_state_records
from odradek.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from odradek.wire.share_batches import Batch

SNAPSHOT, UPDATE = 0, 1
"""Types of records."""
LONGEST_ID_BYTES = 2**15 - 1
"""The largest length of a string in a key."""

_KEY_HEAD = struct.Struct(">hh")
_KEY_END = struct.Struct(">16si")
_SNAPSHOT_HEAD = struct.Struct(">hiiiqqq")
_UPDATE_HEAD = struct.Struct(">hiiq")
_BATCH = struct.Struct(">qqbhB")
_COUNT_TAG = b"\x01\x00\x04"
"""One tagged field: number 0, four bytes."""
_INT32 = struct.Struct(">i")
_ANY_SNAPSHOT_KEY = ShareSnapshotKey(group_id="")
_ANY_UPDATE_KEY = ShareUpdateKey(group_id="")


def fits_key(group_id: str) -> bool:
    """Whether the id is short enough for a key; requests can hold longer ones."""
    return len(group_id) <= LONGEST_ID_BYTES // 4 or len(group_id.encode()) <= LONGEST_ID_BYTES


def encode_key(record_type: int, key: SharePartitionKey) -> bytes:
    """The group's id has to be short enough (`fits_key`)."""
    group_id = key.group_id.encode()
    return _KEY_HEAD.pack(record_type, len(group_id)) + group_id + _KEY_END.pack(key.topic_id, key.partition)


def decode_key(key: bytes) -> tuple[int, SharePartitionKey] | None:
    """Type and share partition; None for another type, which is to be skipped. Raises MalformedMessage."""
    decoded = share_state_records.decode_key(key)
    if decoded is None:
        return None
    found = SharePartitionKey(decoded.group_id, decoded.topic_id, decoded.partition)
    return decoded.record_type, found


# Writing


def encode_snapshot(state: State) -> bytes:
    head = _SNAPSHOT_HEAD.pack(
        0,
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.created_ms,
        state.written_ms,
    )
    return head + _rest(state.batches, state.delivery_complete_count)


def encode_update(update: Update) -> bytes:
    head = _UPDATE_HEAD.pack(0, update.snapshot_epoch, update.leader_epoch, update.start_offset)
    return head + _rest(update.batches, update.delivery_complete_count)


def _rest(batches: Sequence[Batch], delivery_complete_count: int) -> bytes:
    packed = struct.pack(
        ">" + "qqbhB" * len(batches),
        *chain.from_iterable((first, last, state, count, 0) for first, last, count, state in batches),
    )
    tags = b"\x00" if delivery_complete_count == -1 else _COUNT_TAG + _INT32.pack(delivery_complete_count)
    return _varint(len(batches) + 1) + packed + tags


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# Reading


def decode_snapshot(value: bytes) -> State:
    """Raises MalformedMessage."""
    if len(value) > _SNAPSHOT_HEAD.size and value[:2] == b"\x00\x00":
        found = _decode_rest(value, _SNAPSHOT_HEAD.size)
        if found is not None:
            _, snapshot_epoch, state_epoch, leader_epoch, start_offset, created_ms, written_ms = (
                _SNAPSHOT_HEAD.unpack_from(value)
            )
            return State(
                snapshot_epoch,
                state_epoch,
                leader_epoch,
                start_offset,
                found[1],
                found[0],
                created_ms,
                written_ms,
            )
    decoded: ShareSnapshotValue = share_state_records.decode_value(_ANY_SNAPSHOT_KEY, value)
    return State(
        decoded.snapshot_epoch,
        decoded.state_epoch,
        decoded.leader_epoch,
        decoded.start_offset,
        decoded.delivery_complete_count,
        _batches_of(decoded),
        decoded.create_timestamp,
        decoded.write_timestamp,
    )


def decode_update(value: bytes) -> Update:
    """Raises MalformedMessage."""
    if len(value) > _UPDATE_HEAD.size and value[:2] == b"\x00\x00":
        found = _decode_rest(value, _UPDATE_HEAD.size)
        if found is not None:
            _, snapshot_epoch, leader_epoch, start_offset = _UPDATE_HEAD.unpack_from(value)
            return Update(snapshot_epoch, leader_epoch, start_offset, found[1], found[0])
    decoded: ShareUpdateValue = share_state_records.decode_value(_ANY_UPDATE_KEY, value)
    return Update(
        decoded.snapshot_epoch,
        decoded.leader_epoch,
        decoded.start_offset,
        decoded.delivery_complete_count,
        _batches_of(decoded),
    )


def _decode_rest(value: bytes, position: int) -> tuple[list[Batch], int] | None:
    """Batches, and the number in the tagged field; None where it is not as Kafka 4.3 writes it."""
    count = shift = 0
    while position < len(value) and shift < 28:
        byte = value[position]
        position += 1
        count |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        return None
    end = position + (count - 1) * _BATCH.size
    if count < 1 or end >= len(value):
        return None
    batches = []
    for first, last, state, delivery_count, tags in _BATCH.iter_unpack(memoryview(value)[position:end]):
        if tags:
            return None
        batches.append(Batch(first, last, delivery_count, state))
    tail = value[end:]
    if tail == b"\x00":
        return batches, -1
    if len(tail) == 7 and tail[:3] == _COUNT_TAG:
        (delivery_complete_count,) = _INT32.unpack_from(tail, 3)
        return batches, delivery_complete_count
    return None


def _batches_of(decoded: ShareSnapshotValue | ShareUpdateValue) -> list[Batch]:
    return [
        Batch(batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state)
        for batch in decoded.state_batches
    ]
