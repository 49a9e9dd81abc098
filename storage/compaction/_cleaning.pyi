"""The parts of compaction that run for every batch and every record."""

from typing import NamedTuple

SLOT_BYTES: int
"""Bytes of one key in an `OffsetMap`."""

class FilterRules(NamedTuple):
    """The rules of a round. Batches that end at an offset in `kept_offsets`, or just before `end_offset`,
    stay even when they are empty."""

    end_offset: int
    now_ms: int
    kept_offsets: frozenset[int]

class Selection(NamedTuple):
    """The records of a batch that stay; `section` is None when all stay."""

    record_count: int
    has_tombstones: bool
    max_timestamp: int
    section: bytes | None

class OffsetMap:
    """The latest offset of each key, for at most `slots` keys; `seed` is 16 secret random bytes."""

    @property
    def slots(self) -> int: ...
    latest_offset: int
    """The last offset of the log that is in the map; set by the owner."""
    def __init__(self, slots: int, seed: bytes) -> None: ...
    def __len__(self) -> int: ...
    def put(self, key: bytes, offset: int) -> None:
        """ValueError for a new key when every slot has one."""
    def get(self, key: bytes) -> int:
        """The key's latest offset; -1 when it is not known."""

class Copy:
    """The content of a cleaned segment: bytes to be written, index entries, counts."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_offset(self) -> int: ...
    @property
    def index_entries(self) -> list[tuple[int, int, int, int]]: ...
    records_read: int
    records_kept: int
    def __init__(self, base_offset: int, index_interval_bytes: int) -> None: ...
    def append(self, batch: bytes | bytearray | memoryview, last_offset: int, max_timestamp: int) -> None:
        """Add a whole batch."""
    @property
    def pending_bytes(self) -> int: ...
    def take(self) -> bytes:
        """The bytes added since the last call, to be written at `size_bytes` minus their length."""

def index_batches(
    offset_map: OffsetMap,
    data: bytes,
    position: int,
    least_offset: int,
    first_offset: int,
    entries_max: int,
) -> tuple[int, int, bool]:
    """Take batches from `position` on into the map. Returns the position of the first batch that was not
    taken, the lowest offset that this batch may have, and whether the map is full."""

def index_section(
    offset_map: OffsetMap,
    section: bytes,
    record_count: int,
    base_offset: int,
    first_offset: int,
    entries_max: int,
) -> bool:
    """Take the records of a batch from `first_offset` on into the map; returns whether the map is full.
    Refuses with INVALID_RECORD."""

def filter_batches(
    offset_map: OffsetMap, data: bytes, position: int, least_offset: int, rules: FilterRules, copy: Copy
) -> tuple[int, int, bool]:
    """Copy the records that stay of batches from `position` on. Returns the position of the first batch that
    was not taken, the lowest offset that this batch may have, and False."""

def select_records(
    offset_map: OffsetMap,
    section: bytes,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    keeps_tombstones: bool,
) -> Selection:
    """The records of a batch that stay by their keys; refuses with INVALID_RECORD."""

def shift_timestamps(section: bytes, record_count: int, shift_ms: int) -> bytes:
    """The same records for a batch whose base timestamp is `shift_ms` earlier."""
