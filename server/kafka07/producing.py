"""Message sets of Kafka 0.7 become batches of today.

A payload is the value of a record without a key, and the time of arrival is its timestamp. A compressed set
becomes batches with its codec. A set is stored in as many batches as the largest one of its topic makes
necessary.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.wire.kafka07.messages import iter_messages, payloads
from odradek.wire.record_layout import HEADER_SIZE_BYTES, Buffer, Record
from odradek.wire.records import build_batch

BATCH_BYTES_MAX = 1_000_000
"""Without compression, unless one payload is longer."""
_RECORD_BYTES_MAX = 21
"""Beside the payload."""


def payload_bytes_max(message_bytes_max: int) -> int:
    """The largest payload for which a batch is not over `max.message.bytes`."""
    return message_bytes_max - HEADER_SIZE_BYTES - _RECORD_BYTES_MAX


def iter_batches_of_set(data: Buffer, now_ms: int, batch_bytes_max: int) -> Iterator[bytes]:
    """The batches of a set that was checked; each of no more than `batch_bytes_max` without compression, if
    its first payload allows."""
    batch_bytes_max = min(batch_bytes_max, BATCH_BYTES_MAX) - HEADER_SIZE_BYTES
    records: list[Record] = []
    size_bytes = codec = 0
    for message in iter_messages(data):
        for payload in payloads(message) if message.codec else (message.payload,):
            added_bytes = len(payload) + _RECORD_BYTES_MAX
            if records and (message.codec != codec or size_bytes + added_bytes > batch_bytes_max):
                yield bytes(build_batch(records, compression=codec))
                records, size_bytes = [], 0
            codec = message.codec
            records.append(Record(len(records), now_ms, None, bytes(payload)))
            size_bytes += added_bytes
    if records:
        yield bytes(build_batch(records, compression=codec))
