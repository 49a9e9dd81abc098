"""Dead letters: records of which a share group gives up, and the records of its dead letter queue about them.

A record of the queue has neither key nor value, or those of the original. Its headers say which record it is
about, and why; headers and time of the original are not in it.

Source: KIP-1191, ShareGroupDLQStateManager of Kafka 4.4.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from odradek.wire.record_layout import HEADER_SIZE_BYTES
from odradek.wire.records import batch_of_section, zigzag_varint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.coordinator.shares.state.persister import SharePartitionKey

HEADERS = ("topic", "partition", "offset", "group", "delivery.count", "message")
"""Names after `__dlq.errors.`, in their order."""
RECORDS_MAX = 1_000
"""Records of one batch: a few milliseconds' work."""
Original = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class Cause(Enum):
    """Why the group gives up; the value is in the header `message`."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class DeadLetter(NamedTuple):
    """Records of a share partition that are given up together. Both offsets belong to it."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


class Template:
    """Parts of a record that the dead letters of a request have in common, as bytes."""

    __slots__ = ("_after", "_before")

    def __init__(self, key: SharePartitionKey, topic: str, letter: DeadLetter) -> None:
        values = topic, key.partition, None, key.group_id, letter.delivery_count, letter.cause.value
        headers = [_header(name, value) for name, value in zip(HEADERS, values, strict=True)]
        self._before = zigzag_varint(len(HEADERS)) + b"".join(headers[:2])
        self._after = b"".join(headers[3:])

    def headers(self, offset: int) -> bytes:
        return self._before + _header(HEADERS[2], offset) + self._after


def _header(name: str, value: object) -> bytes:
    if value is None:
        return b""
    content = _sized(str(value).encode("utf-8", "surrogateescape"))
    return _sized(f"__dlq.errors.{name}".encode()) + content


def _sized(content: bytes | None) -> bytes:
    return zigzag_varint(-1) if content is None else zigzag_varint(len(content)) + content


class LetterBatch:
    """One batch of the queue that is being filled: uncompressed, of no producer, all of it of one time."""

    __slots__ = ("_section", "bytes_max", "count")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._section = bytearray()
        self.count = 0

    def __len__(self) -> int:
        return HEADER_SIZE_BYTES + len(self._section)

    def add(
        self, template: Template, first: int, last: int, originals: Mapping[int, Original] | None = None
    ) -> int:
        """Adds the records about offsets as long as they fit; returns the last offset that did, or `first` -
        1. In an empty batch the first one always does: without its original, if that is too large."""
        for offset in range(first, last + 1):
            original = None if originals is None else originals.get(offset)
            record = self._record(template, offset, original)
            if not self._fits(record):
                if self.count:
                    return offset - 1
                record = self._record(template, offset, None)
            self._section += record
            self.count += 1
        return last

    def _fits(self, record: bytes) -> bool:
        return len(self) + len(record) <= self.bytes_max and self.count < RECORDS_MAX

    def _record(self, template: Template, offset: int, original: Original | None) -> bytes:
        key, value = original or (None, None)
        # Attributes, and no time after that of the batch.
        body = b"\0\0" + zigzag_varint(self.count) + _sized(key) + _sized(value) + template.headers(offset)
        return zigzag_varint(len(body)) + body

    def encoded(self, now_ms: int) -> bytes:
        """The batch, with that time (since 1970)."""
        return bytes(batch_of_section(self._section, self.count, base_timestamp=now_ms, max_timestamp=now_ms))
