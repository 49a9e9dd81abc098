"""The part of `batching` that runs for every row."""

from typing import Any, NamedTuple

class RowRefused(ValueError):
    """`row` cannot be a record. `what` is "topic" (it is null), "partition" (the topic has no such one) or
    "header" (one has no key)."""

    row: int
    what: str
    def __init__(self, row: int, what: str) -> None: ...

class Rows(NamedTuple):
    """Rows as Arrow arrays of one length, None for a column that is not there."""

    row_count: int
    topics: Any = None
    partitions: Any = None
    keys: Any = None
    values: Any = None
    timestamps: Any = None
    headers: Any = None

class EncodedRecords(NamedTuple):
    """The section of records of one batch, without compression."""

    topic: int
    partition: int
    section: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int

class RecordEncoder:
    """Rows in, sections of records out: each as soon as its partition has `batch_bytes` of them."""

    def __init__(self, batch_bytes: int) -> None: ...
    @property
    def rows(self) -> int:
        """How many were added."""
    @property
    def checksum(self) -> int:
        """The sum of the rows' hashes: the same for the same rows in any order."""
    @property
    def sample(self) -> list[int]:
        """The smallest 32 of the hashes, ascending."""
    @property
    def held_bytes(self) -> int:
        """Memory that holds records."""
    def add_topic(self, partitions: int, seed: int, start: int) -> int:
        """The number of a topic with so many partitions; rows without both begin at `start`."""
    def add(self, rows: Rows, now_ms: int) -> list[EncodedRecords]:
        """Takes the rows up, those without a timestamp with that of `now_ms`; returns what is full."""
    def drain(self) -> list[EncodedRecords]:
        """Records left of every partition, in order; the memory is given back."""

def murmur2(content: bytes) -> int:
    """MurmurHash2 of 32 bits with the seed of Kafka's clients, unsigned."""
