"""What `odradek.storage.compaction._cleaning` has to do, in plain Python.

`index_batches` and `filter_batches` decline every batch, so a round of compaction takes them one by one.
"""

from hashlib import blake2b

from odradek.storage.compaction._cleaning import SLOT_BYTES, FilterRules, Selection
from tests.oracles.records import scan_records

__all__ = [
    "SLOT_BYTES",
    "Copy",
    "OffsetMap",
    "filter_batches",
    "index_batches",
    "index_section",
    "select_records",
    "shift_timestamps",
]

_DIGEST_BYTES = 16


class OffsetMap:
    """The latest offset of each key, for at most `slots` keys.

    A key stands for itself by a hash of 16 bytes with `seed`, 16 bytes that nobody knows: two keys with the
    same one are not to be had. `latest_offset` is how far the map has been told of the log, by its owner.
    """

    __slots__ = ("_offsets", "_seed", "latest_offset", "slots")

    def __init__(self, slots: int, seed: bytes) -> None:
        if slots < 1 or len(seed) != _DIGEST_BYTES:
            raise ValueError("an offset map has a slot at least and a seed of 16 bytes")
        self.slots = slots
        self.latest_offset = -1
        self._seed = seed
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> None:
        """ValueError for a new key when every slot has one."""
        name = self._name_of(key)
        if len(self._offsets) >= self.slots and name not in self._offsets:
            raise ValueError(f"the offset map has {self.slots} slots, and all are in use")
        self._offsets[name] = offset

    def get(self, key: bytes) -> int:
        """The key's latest offset; -1 when it is not known."""
        return self._offsets.get(self._name_of(key), -1)

    def _name_of(self, key: bytes) -> bytes:
        """Short keys stand for themselves; a digest is longer than any of them."""
        if len(key) < _DIGEST_BYTES:
            return key
        return blake2b(key, digest_size=_DIGEST_BYTES, key=self._seed).digest()


class Copy:
    """What goes into a cleaned segment: bytes to be written, entries for its indexes, counts.

    `index_entries` are (last offset, position, latest timestamp so far, last offset of the first batch that
    has it), one whenever more than `index_interval_bytes` have come since the last, as appends make them.
    """

    __slots__ = (
        "_bytes_since_index",
        "_index_interval_bytes",
        "_pending",
        "index_entries",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "records_kept",
        "records_read",
        "size_bytes",
    )

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self.size_bytes = 0
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset
        self.index_entries: list[tuple[int, int, int, int]] = []
        self.records_read = 0
        self.records_kept = 0
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_index = 0
        self._pending = bytearray()

    def append(self, batch: bytes | bytearray | memoryview, last_offset: int, max_timestamp: int) -> None:
        """Add a whole batch."""
        if max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > self._index_interval_bytes:
            self.index_entries.append(
                (last_offset, self.size_bytes, self.max_timestamp_ms, self.max_timestamp_offset)
            )
            self._bytes_since_index = 0
        self._bytes_since_index += len(batch)
        self._pending += batch
        self.size_bytes += len(batch)

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    def take(self) -> bytes:
        """What has been added since the last call, to be written at `size_bytes` less its length."""
        taken = bytes(self._pending)
        self._pending.clear()
        return taken


def index_batches(
    offset_map: OffsetMap,
    data: bytes,
    position: int,
    least_offset: int,
    first_offset: int,
    entries_max: int,
) -> tuple[int, int, bool]:
    """Take batches from `position` on into the map: where the first begins that was not taken, the offset
    that it must not be before, and whether the map is full.

    Taken are sound and whole batches of plain records from `least_offset` on; of batches that end before
    `first_offset` nothing is looked at. `latest_offset` of the map follows.
    """
    return position, least_offset, False


def index_section(
    offset_map: OffsetMap,
    section: bytes,
    record_count: int,
    base_offset: int,
    first_offset: int,
    entries_max: int,
) -> bool:
    """Take the records of a batch from `first_offset` on into the map; whether it is full.

    As in Kafka a map with `entries_max` keys is full for the next record, whatever its key; `latest_offset`
    is then that of the last record that went in. Refuses with INVALID_RECORD.
    """
    table = scan_records(section, record_count, base_offset, 0)
    for offset, key_at, key_size in zip(table.offsets, table.key_positions, table.key_sizes, strict=True):
        if key_size >= 0 and offset >= first_offset:
            if len(offset_map) >= entries_max:
                return True
            offset_map.put(section[key_at : key_at + key_size], offset)
            offset_map.latest_offset = offset
    return False


def filter_batches(
    offset_map: OffsetMap, data: bytes, position: int, least_offset: int, rules: FilterRules, copy: Copy
) -> tuple[int, int, bool]:
    """Copy what stays of batches from `position` on: where the first begins that was not taken, the offset
    that it must not be before, and False (no map gets full here).
    """
    return position, least_offset, False


def select_records(
    offset_map: OffsetMap,
    section: bytes,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    keeps_tombstones: bool,
) -> Selection:
    """What stays of a batch's records by their keys; refuses with INVALID_RECORD.

    Behind the map's `latest_offset` all do. Else a record without a key goes, one with a later record of its
    key goes, and a tombstone unless `keeps_tombstones`.
    """
    table = scan_records(section, record_count, base_offset, base_timestamp)
    spans: list[bytes] = []
    count, has_tombstones, max_timestamp = 0, False, -1
    position = 0
    ends = _record_ends(section, record_count)
    rows = zip(
        table.offsets,
        table.timestamps,
        table.key_positions,
        table.key_sizes,
        table.value_sizes,
        ends,
        strict=True,
    )
    for offset, timestamp, key_at, key_size, value_size, end in rows:
        if offset <= offset_map.latest_offset:
            stays = (
                key_size >= 0
                and offset >= offset_map.get(section[key_at : key_at + key_size])
                and (value_size >= 0 or keeps_tombstones)
            )
        else:
            stays = True
        if stays:
            spans.append(section[position:end])
            count += 1
            has_tombstones = has_tombstones or value_size < 0
            max_timestamp = max(max_timestamp, timestamp)
        position = end
    return Selection(count, has_tombstones, max_timestamp, None if count == record_count else b"".join(spans))


def shift_timestamps(section: bytes, record_count: int, shift_ms: int) -> bytes:
    """The same records for a batch whose base timestamp is `shift_ms` earlier: their deltas are greater.

    The records must be sound. A delta beyond 64 bits is cut off, as in Java.
    """
    parts = bytearray()
    position = 0
    for _ in range(record_count):
        size, body = _varint(section, position, 32)
        end = body + size
        delta, rest = _varint(section, body + 1, 64)
        delta = (delta + shift_ms + (1 << 63)) % (1 << 64) - (1 << 63)
        shifted = section[body : body + 1] + _zigzag(delta) + section[rest:end]
        parts += _zigzag(len(shifted))
        parts += shifted
        position = end
    return bytes(parts)


def _record_ends(section: bytes, record_count: int) -> list[int]:
    ends = []
    position = 0
    for _ in range(record_count):
        size, body = _varint(section, position, 32)
        position = body + size
        ends.append(position)
    return ends


def _varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """A zigzag number and the position behind it; more than `bits` bits are cut off, as in Java."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= (1 << bits) - 1
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def _zigzag(value: int) -> bytes:
    raw = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
