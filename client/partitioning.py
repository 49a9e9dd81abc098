"""Which partition a record goes to, as Kafka's clients choose it.

Sources: `Utils.murmur2` and KIP-480 (sticky partitions) of Java's client,
`rd_kafka_msg_partitioner_consistent_random` of librdkafka.
"""

import random
from collections.abc import Callable
from zlib import crc32

PARTITIONERS = ("murmur2", "crc")
STICKY_RECORDS = 1000
"""Records without a key go to one partition so long, so that batches are large."""

_SEED, _FACTOR, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def murmur2(content: bytes) -> int:
    """Java's hash of keys, as an unsigned number of 32 bits."""
    size = len(content)
    hashed = _SEED ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(content[position : position + 4], "little") * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ ((word ^ word >> 24) * _FACTOR & _MASK)
    if whole < size:
        hashed = (hashed ^ int.from_bytes(content[whole:], "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


class Partitioner:
    """Partitioner of one topic. "murmur2" is that of Java's clients, "crc" that of librdkafka, where an empty
    key is none."""

    def __init__(self, name: str, partitions: int, choose: Callable[[int], int] = random.randrange) -> None:
        assert name in PARTITIONERS
        self._is_crc, self._partitions, self._choose = name == "crc", partitions, choose
        self._sticky, self._left = choose(partitions), STICKY_RECORDS

    def partition(self, key: bytes | None) -> int:
        """For a record with this key."""
        if key is None or (self._is_crc and not key):
            return self._without_key()
        if self._is_crc:
            return crc32(key) % self._partitions
        return (murmur2(key) & 0x7FFFFFFF) % self._partitions

    def _without_key(self) -> int:
        if not self._left:
            self._sticky, self._left = self._choose(self._partitions), STICKY_RECORDS
        self._left -= 1
        return self._sticky
