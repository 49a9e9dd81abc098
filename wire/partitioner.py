"""Which partition of an internal topic looks after a group or a transactional id: Java's string hash."""

from __future__ import annotations

import struct


def java_string_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 code units, as a signed 32-bit number."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` (a group id) or `__transaction_state` (a transactional id).

    Of the hash's absolute value, as Apache Kafka 4.3.1 chooses it (seen in its log; 0 for -2**31, of which
    Java has none). Its producers do otherwise with their hash: they clear its sign bit.
    """
    value = abs(java_string_hash(key))
    return (0 if value == 1 << 31 else value) % partition_count
