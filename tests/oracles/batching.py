"""What `odradek.spark._batching` has to make of rows, in plain Python; the hashes number for number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from struct import unpack
from typing import Any

from odradek.spark._batching import EncodedRecords, RowRefused, Rows
from odradek.wire.records import zigzag_varint

NOT_GIVEN = -1
SAMPLE_ROWS = 32
_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF
_NO_TIMESTAMP_GIVEN = 1 << 63
"""No number of milliseconds: those of a row lie a thousand times closer to zero."""


class _Slot:
    """What is gathered for one partition."""

    __slots__ = ("base_timestamp", "count", "max_timestamp", "section")

    def __init__(self) -> None:
        self.section = bytearray()
        self.count = 0
        self.base_timestamp = self.max_timestamp = 0


class _Topic:
    __slots__ = ("seed", "slots", "sticky", "sticky_bytes")

    def __init__(self, partitions: int, seed: int, start: int) -> None:
        self.slots = [_Slot() for _ in range(partitions)]
        self.seed, self.sticky, self.sticky_bytes = seed, start % partitions, 0


class RecordEncoder:
    """Rows in, sections of records out: each as soon as its partition has `batch_bytes` of them.

    `rows` counts those that were added, `checksum` is the sum of their hashes, and `sample` has the smallest
    32 of these, ascending: all the same for the same rows in any order. What the hash covers is in the row:
    topic, key, value and headers, partition and timestamp where the row has them.
    """

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._topics: list[_Topic] = []
        self.rows = 0
        self.checksum = 0
        self.sample: list[int] = []

    @property
    def held_bytes(self) -> int:
        """Memory that holds records."""
        return sum(len(slot.section) for topic in self._topics for slot in topic.slots)

    def add_topic(self, partitions: int, seed: int, start: int) -> int:
        """The number of a topic with so many partitions.

        `seed` stands for the topic in the checksum (64 bits); rows without key and partition go first to
        partition `start` modulo `partitions`, and to the next one after every `batch_bytes`.
        """
        if partitions < 1:
            raise ValueError("a topic has at least one partition")
        self._topics.append(_Topic(partitions, seed & _MASK_64, start))
        return len(self._topics) - 1

    def add(self, rows: Rows, now_ms: int) -> list[EncodedRecords]:
        """Takes the rows up, those without a timestamp with that of `now_ms`; returns what is full."""
        full: list[EncodedRecords] = []
        columns = [
            [None] * rows.row_count if column is None else column.to_pylist()
            for column in (
                rows.topics,
                rows.partitions,
                rows.keys,
                rows.values,
                rows.timestamps,
                rows.headers,
            )
        ]
        for number, row in enumerate(zip(*columns, strict=True)):
            topic, partition, key, value, timestamp_us, headers = row
            if rows.topics is None:
                topic = 0
            elif topic is None:
                raise RowRefused(number, "topic")
            tail = _tail(number, key, value, headers)
            timestamp = None if timestamp_us is None else timestamp_us // 1000
            self._count(self._topics[topic].seed, tail, partition, timestamp)
            place = self._place(topic, number, partition, key)
            self._append(full, topic, place, tail, now_ms if timestamp is None else timestamp)
        return full

    def drain(self) -> list[EncodedRecords]:
        """What is there of every partition, in the order of topics and partitions."""
        rest: list[EncodedRecords] = []
        for topic, state in enumerate(self._topics):
            for partition in range(len(state.slots)):
                self._emit(rest, topic, partition)
        return rest

    def _count(self, seed: int, tail: bytes, partition: int | None, timestamp: int | None) -> None:
        hashed = _mixed(seed, (NOT_GIVEN if partition is None else partition) & _MASK_64)
        hashed = _mixed(hashed, _NO_TIMESTAMP_GIVEN if timestamp is None else timestamp & _MASK_64)
        self.rows += 1
        hashed = _content_hash(hashed, tail)
        self.checksum = self.checksum + hashed & _MASK_64
        at = bisect_left(self.sample, hashed)
        if at < SAMPLE_ROWS and hashed not in self.sample[at : at + 1]:
            self.sample.insert(at, hashed)
            del self.sample[SAMPLE_ROWS:]

    def _place(self, topic: int, row: int, partition: int | None, key: bytes | None) -> int:
        """The partition of a row, or NOT_GIVEN for one that goes where the last one without a key went."""
        count = len(self._topics[topic].slots)
        if partition is not None:
            if not 0 <= partition < count:
                raise RowRefused(row, "partition")
            return partition
        return NOT_GIVEN if key is None else (murmur2(key) & 0x7FFFFFFF) % count

    def _append(
        self, full: list[EncodedRecords], topic: int, place: int, tail: bytes, timestamp: int
    ) -> None:
        state = self._topics[topic]
        partition = state.sticky if place == NOT_GIVEN else place
        slot = state.slots[partition]
        record = _record(slot, tail, timestamp)
        if slot.count and len(slot.section) + len(record) > self._batch_bytes:
            self._emit(full, topic, partition)
            record = _record(slot, tail, timestamp)
        if slot.count == 0:
            slot.base_timestamp = slot.max_timestamp = timestamp
        slot.section += record
        slot.count += 1
        slot.max_timestamp = max(slot.max_timestamp, timestamp)
        if place == NOT_GIVEN:
            state.sticky_bytes += len(record)
            if state.sticky_bytes >= self._batch_bytes:
                state.sticky, state.sticky_bytes = (state.sticky + 1) % len(state.slots), 0

    def _emit(self, emitted: list[EncodedRecords], topic: int, partition: int) -> None:
        slot = self._topics[topic].slots[partition]
        if slot.count:
            emitted.append(
                EncodedRecords(
                    topic,
                    partition,
                    bytes(slot.section),
                    slot.count,
                    slot.base_timestamp,
                    slot.max_timestamp,
                )
            )
            slot.section.clear()
            slot.count = 0


def _record(slot: _Slot, tail: bytes, timestamp: int) -> bytes:
    delta = timestamp - slot.base_timestamp if slot.count else 0
    head = b"\0" + zigzag_varint(delta) + zigzag_varint(slot.count)
    return zigzag_varint(len(head) + len(tail)) + head + tail


def _tail(row: int, key: bytes | None, value: bytes | None, headers: Sequence[Any] | None) -> bytes:
    """A record from its key on: what does not depend on its place."""
    parts = [_sized(key), _sized(value), zigzag_varint(len(headers or ()))]
    for header in headers or ():
        name, content = (None, None) if header is None else header.values()
        if name is None:
            raise RowRefused(row, "header")
        parts += (_sized(name.encode() if isinstance(name, str) else name), _sized(content))
    return b"".join(parts)


def _sized(content: bytes | None) -> bytes:
    return zigzag_varint(-1) if content is None else zigzag_varint(len(content)) + content


def _mixed(hashed: int, word: int) -> int:
    hashed = (hashed ^ word) * 0x9E3779B97F4A7C15 & _MASK_64
    return hashed ^ hashed >> 29


def _content_hash(hashed: int, content: bytes) -> int:
    """Of little-endian words of eight bytes, the last one filled up with zeros, and of how many bytes."""
    words = -(-len(content) // 8)
    for word in unpack(f"<{words}Q", content.ljust(8 * words, b"\0")):
        hashed = _mixed(hashed, word)
    return _mixed(hashed, len(content))


def murmur2(content: bytes) -> int:
    """MurmurHash2 of 32 bits with the seed of Kafka's clients, unsigned."""
    factor = 0x5BD1E995
    hashed = 0x9747B28C ^ len(content)
    whole = len(content) & ~3
    for word in unpack(f"<{whole // 4}I", content[:whole]):
        word = word * factor & _MASK_32
        hashed = (hashed * factor ^ (word ^ word >> 24) * factor) & _MASK_32
    if whole < len(content):
        hashed = (hashed ^ int.from_bytes(content[whole:], "little")) * factor & _MASK_32
    hashed = (hashed ^ hashed >> 13) * factor & _MASK_32
    return hashed ^ hashed >> 15
