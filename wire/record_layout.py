"""The layout of a record batch in format v2 ("magic 2"), and the types of its records.

Python modules use this layout, compiled modules use `batch_layout.h`; there are no other copies. A batch is a
header of 61 bytes and the records; only the records are compressed:

    base offset 8, length 4 (of what follows), leader epoch 4, magic 1, CRC-32C 4 (of what follows),
    attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer id 8, producer epoch 2,
    base sequence 4, record count 4

Sources: KIP-98 (format v2), KIP-534 (delete horizon), `DefaultRecordBatch.java`.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias

Buffer = bytes | bytearray | memoryview
Column: TypeAlias = "array[int] | memoryview"

MAGIC_V2 = 2
HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE_BYTES = HEADER.size
LOG_OVERHEAD_BYTES = 12
"""Base offset and length, which the length field does not count."""
PREFIX = Struct(">qii")
"""The fields outside the checksum, which a broker may change: base offset, length, leader epoch."""
EXTENT = Struct(">qi11xi")
"""Base offset, length and last offset delta: enough to skip a batch."""

LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
"""The checksum covers everything from here on."""
LAST_OFFSET_DELTA_POSITION = 23
MAX_TIMESTAMP_POSITION = 35

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

RECORD_BYTES_MAX = 2**31 - 9
"""The longest array of a Java virtual machine, which no record is over."""
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1
RECORD_BYTES_MIN = 7

FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
LATEST_PRODUCE_VERSION = 13


def add_to_sequence(sequence: int, increment: int) -> int:
    """`sequence + increment`, with 0 after 2**31 - 1, as in producers."""
    return (sequence + increment) & SEQUENCE_MAX


class Record(NamedTuple):
    """One record with its absolute offset and its timestamp in milliseconds (or NO_TIMESTAMP).

    `headers` are pairs of name and value in order; a name may repeat, a value may be None. Bytes of a name
    that are not UTF-8 become surrogate escapes, so that a rebuilt batch has the same bytes.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class RecordTable(NamedTuple):
    """The positions of the records of one batch: seven columns, a row for each record.

    A column is an `array` or a `memoryview` of 64-bit numbers in the machine's byte order. Offsets and
    timestamps are absolute, a timestamp is the record's own, even with log append time. Positions count from
    the start of the (decompressed) records section; a size of -1 is null, and a header position of -1 means
    that the record has no headers.
    """

    offsets: Column
    timestamps: Column
    key_positions: Column
    key_sizes: Column
    value_positions: Column
    value_sizes: Column
    header_positions: Column
