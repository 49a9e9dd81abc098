"""Records of `__transaction_state` as the transaction machine writes and reads them, in Kafka's own schemas.

Written is value version 0 as long as the feature `transaction.version` is at 0, else version 1 with its
tagged fields; both are read. Each transaction writes three records and a start reads one for every id, so
they are written here byte by byte, and read so where there are no partitions in them, as of all that rest.
`wire/messages/transaction_records.py` declares them, and reads what is not so simple.

Source: TransactionLog.java, TransactionLogKey.json and TransactionLogValue.json of Kafka 4.3.
"""

from __future__ import annotations

import struct

from odradek.coordinator.transactions.state import NO_PARTITIONS, Transaction, TransactionState
from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import transaction_records
from odradek.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue

LONGEST_ID_BYTES = 2**15 - 1
"""The largest length of a string in a key."""

_EMPTY = TransactionState.EMPTY
_STATES = tuple(TransactionState)
_KEY_HEAD = struct.Struct(">hh")
_VALUE_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_BARE = struct.Struct(">hqhibiqq")
"""A value of version 0 without partitions (an empty or no list)."""
_BARE_FLEXIBLE = struct.Struct(">hqhibbqq")
"""One of version 1, up to its tagged fields."""
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION, _NEXT_PRODUCER_EPOCH = range(4)
"""Tags."""
_TAG_BYTES = {_PREVIOUS_PRODUCER_ID: 8, _NEXT_PRODUCER_ID: 8, _CLIENT_VERSION: 2, _NEXT_PRODUCER_EPOCH: 2}
_ANY_KEY = TransactionLogKey(transactional_id="")


def fits_key(transactional_id: str) -> bool:
    """Whether the id is short enough for a key; requests can hold longer ones."""
    return (
        len(transactional_id) <= LONGEST_ID_BYTES // 4 or len(transactional_id.encode()) <= LONGEST_ID_BYTES
    )


def encode_key(transactional_id: str) -> bytes:
    """The id has to be short enough (`fits_key`)."""
    text = transactional_id.encode()
    return _KEY_HEAD.pack(0, len(text)) + text


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for a record of another type, which is none of ours. MalformedMessage."""
    try:
        record_type, size = _KEY_HEAD.unpack_from(key)
        if record_type == 0 and size == len(key) - 4:
            return str(key[4:], "utf-8")
    except (struct.error, UnicodeDecodeError):
        pass
    decoded = transaction_records.decode_key(key)
    return None if decoded is None else str(decoded.transactional_id)


# Writing


def encode_value(transaction: Transaction, transaction_version: int) -> bytes:
    """In the form that brokers at this level of the feature `transaction.version` write."""
    is_flexible = transaction_version >= 1
    parts = [
        _VALUE_HEAD.pack(
            1 if is_flexible else 0,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    ]
    by_topic: dict[str, list[int]] | None = None
    if transaction.state is not _EMPTY:
        by_topic = {}
        for topic, index in sorted(transaction.partitions):
            by_topic.setdefault(topic, []).append(index)
    times = _TIMES.pack(transaction.updated_ms, transaction.start_ms)
    if is_flexible:
        _add_flexible_partitions(parts, by_topic)
        parts.append(times)
        _add_tags(parts, transaction)
    else:
        _add_partitions(parts, by_topic)
        parts.append(times)
    return b"".join(parts)


def _add_partitions(parts: list[bytes], by_topic: dict[str, list[int]] | None) -> None:
    if by_topic is None:
        parts.append(b"\xff\xff\xff\xff")
        return
    parts.append(_INT32.pack(len(by_topic)))
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts += (_INT16.pack(len(name)), name, struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))


def _add_flexible_partitions(parts: list[bytes], by_topic: dict[str, list[int]] | None) -> None:
    if by_topic is None:
        parts.append(b"\x00")
        return
    parts.append(_varint(len(by_topic) + 1))
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts += (
            _varint(len(name) + 1),
            name,
            _varint(len(indexes) + 1),
            struct.pack(f">{len(indexes)}ix", *indexes),
        )


def _add_tags(parts: list[bytes], transaction: Transaction) -> None:
    """Ascending; a field at its default is left out."""
    fields = []
    if transaction.previous_producer_id != -1:
        fields.append(b"\x00\x08" + _INT64.pack(transaction.previous_producer_id))
    if transaction.next_producer_id != -1:
        fields.append(b"\x01\x08" + _INT64.pack(transaction.next_producer_id))
    if transaction.client_version != 0:
        fields.append(b"\x02\x02" + _INT16.pack(transaction.client_version))
    parts.append(bytes((len(fields),)))
    parts += fields


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# Reading


def decode_value(value: bytes) -> Transaction:
    """Raises MalformedMessage, also for a state that is none."""
    transaction = _decode_bare(value) or _decode_bare_flexible(value)
    return _from_declared(value) if transaction is None else transaction


def _decode_bare(value: bytes) -> Transaction | None:
    """A value of version 0 without partitions; None for any other."""
    if len(value) != _BARE.size:
        return None
    version, producer_id, epoch, timeout_ms, status, count, updated_ms, start_ms = _BARE.unpack(value)
    if version != 0 or count > 0:
        return None
    return Transaction(
        producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=_state(status),
        start_ms=start_ms,
        updated_ms=updated_ms,
    )


def _decode_bare_flexible(value: bytes) -> Transaction | None:
    """A value of version 1 without partitions, with tags that are as they should be; None for any other."""
    end = len(value)
    if end <= _BARE_FLEXIBLE.size:
        return None
    version, producer_id, epoch, timeout_ms, status, count, updated_ms, start_ms = _BARE_FLEXIBLE.unpack_from(
        value
    )
    if version != 1 or count not in (0, 1):
        return None
    previous_producer_id = next_producer_id = -1
    client_version = 0
    position = _BARE_FLEXIBLE.size + 1
    for _ in range(value[position - 1]):
        if position + 2 > end:
            return None
        tag, size = value[position], value[position + 1]
        position += 2
        if _TAG_BYTES.get(tag) != size or position + size > end:
            return None
        if tag == _PREVIOUS_PRODUCER_ID:
            (previous_producer_id,) = _INT64.unpack_from(value, position)
        elif tag == _NEXT_PRODUCER_ID:
            (next_producer_id,) = _INT64.unpack_from(value, position)
        elif tag == _CLIENT_VERSION:
            (client_version,) = _INT16.unpack_from(value, position)
        position += size
    if position != end:
        return None
    return Transaction(
        producer_id,
        # One number for both, which most have: thousands of ids rest in memory.
        producer_id if previous_producer_id == producer_id else previous_producer_id,
        next_producer_id,
        epoch,
        -1,
        timeout_ms,
        _state(status),
        NO_PARTITIONS,
        start_ms,
        updated_ms,
        client_version,
    )


def _from_declared(value: bytes) -> Transaction:
    decoded: TransactionLogValue = transaction_records.decode_value(_ANY_KEY, value)
    return Transaction(
        decoded.producer_id,
        decoded.previous_producer_id,
        decoded.next_producer_id,
        decoded.producer_epoch,
        -1,
        decoded.transaction_timeout_ms,
        _state(decoded.transaction_status),
        frozenset(
            (entry.topic, index)
            for entry in decoded.transaction_partitions or ()
            for index in entry.partition_ids
        ),
        decoded.transaction_start_timestamp_ms,
        decoded.transaction_last_update_timestamp_ms,
        decoded.client_transaction_version,
    )


def _state(status: int) -> TransactionState:
    if not 0 <= status <= TransactionState.COMPLETE_ABORT:
        raise MalformedMessage(f"a transaction has the state {status}")
    return _STATES[status]
