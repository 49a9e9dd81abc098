"""The segment files of data directories, Odradek's or Kafka's, read without a broker.

    for partition in find_partitions(["/var/lib/kafka"]):  # on the driver
        for piece in partition.pieces(start, end, with_transactions=True):
            for records in read_piece(piece):  # on any worker that can read the files
                ...

Files are only read. The indexes give offsets, timestamps and the places to cut a large segment; if one is
missing or damaged, the log itself is read. A log that is appended to meanwhile is read up to its last whole
batch.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple

from odradek.client.fetching import FetchedRecords, whole_records
from odradek.storage.checkpoints import LOG_STARTS, read_offsets
from odradek.storage.directories.places import key_of
from odradek.storage.disk import OsDisk, read_file
from odradek.storage.log.batches import StoredBatch, scan
from odradek.storage.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from odradek.storage.log.producer_state import decode_snapshot
from odradek.storage.log.segment_paths import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
)
from odradek.storage.log.transaction_index import AbortedTransaction, decode_aborted
from odradek.storage.log.transactions import stored_marker
from odradek.storage.recovery.log_walk import Hole, batch_of, walk
from odradek.wire._records import read_batch_header
from odradek.wire.errors import KafkaError
from odradek.wire.legacy_records import is_legacy, iter_messages, stored_messages
from odradek.wire.record_layout import LOG_OVERHEAD_BYTES, MAGIC_POSITION
from odradek.wire.records import iter_records, verify_crc

READ_BYTES = 4 << 20
"""Read from a file at a time; a larger batch still comes whole."""
BATCH_BYTES_MAX = 1 << 30
_NO_OFFSET_IS_BEHIND = 2**63 - 1

_disk = OsDisk()


class LogFilesError(ValueError):
    """A directory or a file that cannot be read; the text is one sentence that names it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One `.log` file with the offsets [base_offset, end_offset)."""

    path: str
    base_offset: int
    end_offset: int
    """The base offset of the next segment; beyond every offset for the last one."""

    @property
    def is_last(self) -> bool:
        return self.end_offset == _NO_OFFSET_IS_BEHIND

    def beside(self, suffix: str) -> str:
        """The path of an index of this segment."""
        return self.path.removesuffix(LOG) + suffix


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a segment that one task reads: the offsets [start, end) in the bytes [position,
    end_position)."""

    topic: str
    partition: int
    path: str
    position: int
    """The start of a batch; in the first piece at or before the batch with the offset `start`."""
    start: int
    end: int
    is_last: bool
    """Whether the piece ends the last segment, which may be torn."""
    aborted: tuple[tuple[int, int, int], ...] = ()
    """(producer id, first offset, offset of the marker) of the aborted transactions in it."""
    open_from: dict[int, int] = field(default_factory=dict)
    """Producer id -> first offset of its open transaction."""
    end_position: int | None = None
    """The start of the next piece's first batch; None in the last piece of a segment."""


class Border(NamedTuple):
    """The start of a batch, and its offset; a compressed message has the last offset in it."""

    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """The aborted and the open transactions of a partition."""

    aborted: tuple[AbortedTransaction, ...]
    open_from: dict[int, int]

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the first open transaction; beyond every offset if there is none."""
        return min(self.open_from.values(), default=_NO_OFFSET_IS_BEHIND)


@dataclass(frozen=True, slots=True)
class LogPartition:
    """The directory of one partition."""

    topic: str
    partition: int
    path: str
    log_start_offset: int
    segments: tuple[Segment, ...]

    def pieces(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        with_transactions: bool,
        read_committed: bool = False,
        max_bytes: int | None = None,
    ) -> list[Piece]:
        """The pieces of the segments with offsets of [start, end), in order; None is no bound.

        Each segment is one piece, or several of at most `max_bytes` each (more if a batch is larger).
        `with_transactions` sets their `aborted` and `open_from`; with `read_committed` they end before the
        first open transaction.
        """
        start = max(self.log_start_offset, 0 if start is None else start)
        end = _NO_OFFSET_IS_BEHIND if end is None else end
        transactions = Transactions((), {})
        if with_transactions or read_committed:
            transactions = self.transactions()
            if read_committed:
                end = min(end, transactions.last_stable_offset)
        pieces: list[Piece] = []
        for segment in self.segments:
            first, behind = max(start, segment.base_offset), min(end, segment.end_offset)
            if first < behind:
                pieces += self._pieces_of(segment, first, behind, transactions, max_bytes)
        return pieces

    def _pieces_of(
        self, segment: Segment, start: int, end: int, transactions: Transactions, max_bytes: int | None
    ) -> Iterator[Piece]:
        begin = Border(_position_of(segment, start), segment.base_offset)
        cuts = [] if max_bytes is None else _cuts(segment, begin.position, end, max_bytes)
        for here, there in zip([begin, *cuts], [*cuts, None], strict=True):
            end_offset = segment.end_offset if there is None else there.offset
            if end_offset <= start:
                continue
            yield Piece(
                self.topic,
                self.partition,
                segment.path,
                here.position,
                start,
                end,
                segment.is_last and there is None,
                tuple(
                    one[:3]
                    for one in transactions.aborted
                    if one.last_offset >= here.offset and one.first_offset < end_offset
                ),
                transactions.open_from,
                None if there is None else there.position,
            )

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The offset of the first record at or after `timestamp_ms`; None if there is none."""
        for segment in self.segments:
            index = _time_index(segment)
            if segment.end_offset <= self.log_start_offset:
                continue
            if index is not None and len(index) and not segment.is_last and index.last()[0] < timestamp_ms:
                continue
            position = 0 if index is None else _position_of(segment, index.lookup(timestamp_ms))
            with _SegmentFile(segment) as file:
                for batch in file.batches(position):
                    if batch.max_timestamp >= timestamp_ms and batch.last_offset >= self.log_start_offset:
                        found = file.first_at(batch, timestamp_ms, self.log_start_offset)
                        if found is not None:
                            return found
        return None

    def transactions(self) -> Transactions:
        """From the transaction indexes and the newest snapshot, or without them from the log."""
        aborted: list[AbortedTransaction] = []
        try:
            for segment in self.segments:
                aborted += _aborted_in(segment)
        except (KafkaError, _NoIndex):
            # Indexes are caches, and may be deleted.
            return self._transactions_from(0, {}, [])
        offset, opened = self._newest_snapshot()
        behind = self._transactions_from(offset, opened, [])
        return Transactions(tuple(aborted), behind.open_from)

    def _newest_snapshot(self) -> tuple[int, dict[int, int]]:
        """The offset of the newest sound snapshot, and the transactions that were open there."""
        names = os.listdir(self.path)
        offsets = (offset for name in names if (offset := base_offset_of(name, SNAPSHOT)) is not None)
        for offset in sorted(offsets, reverse=True):
            producers = decode_snapshot(read_file(_disk, f"{self.path}/{offset:020d}{SNAPSHOT}"))
            if producers is not None:
                firsts = {key: entry.current_txn_first_offset for key, entry in producers.items()}
                return offset, {key: first for key, first in firsts.items() if first >= 0}
        return 0, {}

    def _transactions_from(
        self, offset: int, opened: dict[int, int], aborted: list[AbortedTransaction]
    ) -> Transactions:
        for segment in self.segments:
            if segment.end_offset <= offset:
                continue
            with _SegmentFile(segment) as file:
                for batch in file.batches(_position_of(segment, offset)):
                    if batch.base_offset < offset or not batch.is_transactional:
                        continue
                    if not batch.is_control:
                        opened.setdefault(batch.producer_id, batch.base_offset)
                        continue
                    first = opened.pop(batch.producer_id, None)
                    marker = stored_marker(batch, file.read)
                    if first is not None and marker is not None and not marker.commit:
                        aborted.append(AbortedTransaction(batch.producer_id, first, batch.last_offset, 0))
        return Transactions(tuple(aborted), opened)


# Directories ------------------------------------------------------------------------------------------


def find_partitions(paths: Iterable[str]) -> list[LogPartition]:
    """The partitions in data directories (or of a single partition's directory), in order.

    LogFilesError if a path is neither, or if two have the same partition.
    """
    found: dict[tuple[str, int], LogPartition] = {}
    for path in paths:
        for partition in _partitions_in(os.path.abspath(path)):
            key = partition.topic, partition.partition
            if key in found:
                raise LogFilesError(
                    f"topic {key[0]}, partition {key[1]} is in {found[key].path} and in {partition.path}: "
                    f"name "
                    "the directories of one broker, and of those that are not copies"
                )
            found[key] = partition
    return [found[key] for key in sorted(found)]


def _partitions_in(path: str) -> list[LogPartition]:
    try:
        names = os.listdir(path)
    except OSError as error:
        raise LogFilesError(f"the directory {path} cannot be read: {error.strerror}") from error
    if any(base_offset_of(name, LOG) is not None for name in names):
        key = key_of(os.path.basename(path))
        if key is None:
            raise LogFilesError(f"the directory {path} has segments, but its name is not TOPIC-PARTITION")
        return [_partition_at(path, key, _log_starts(os.path.dirname(path)))]
    starts = _log_starts(path)
    found = []
    for name in names:
        inside, key = f"{path}/{name}", key_of(name)
        if key is not None and os.path.isdir(inside):
            found.append(_partition_at(inside, key, starts))
    if not found:
        raise LogFilesError(
            f"the directory {path} has no partitions: name the data directory of a broker (log.dirs), or "
            f"that of one "
            "partition"
        )
    return found


def _log_starts(path: str) -> dict[tuple[str, int], int]:
    return read_offsets(_disk, f"{path}/{LOG_STARTS}") or {}


def _partition_at(path: str, key: tuple[str, int], starts: dict[tuple[str, int], int]) -> LogPartition:
    bases = sorted(offset for name in os.listdir(path) if (offset := base_offset_of(name, LOG)) is not None)
    segments = tuple(
        Segment(f"{path}/{base:020d}{LOG}", base, end)
        for base, end in zip(bases, [*bases[1:], _NO_OFFSET_IS_BEHIND], strict=False)
    )
    return LogPartition(*key, path, max(starts.get(key, 0), bases[0] if bases else 0), segments)


# Indexes ----------------------------------------------------------------------------------------------


class _NoIndex(Exception):
    """A segment without any index."""


def _position_of(segment: Segment, offset: int) -> int:
    """The start of a batch at or before the batch with `offset`: 0 without a sound index."""
    if offset <= segment.base_offset:
        return 0
    index = _offset_index(segment)
    return 0 if index is None else index.lookup(offset)


def _offset_index(segment: Segment) -> OffsetIndex | None:
    try:
        content = _entries_of(segment.beside(INDEX), OFFSET_ENTRY_BYTES)
        return OffsetIndex.decode(segment.base_offset, content, os.path.getsize(segment.path))
    except OSError:
        return None


def _time_index(segment: Segment) -> TimeIndex | None:
    try:
        content = _entries_of(segment.beside(TIME_INDEX), TIME_ENTRY_BYTES)
        return TimeIndex.decode(segment.base_offset, content)
    except OSError:
        return None


def _entries_of(path: str, entry_bytes: int) -> bytes:
    """The content of an index, without the space that Kafka preallocates in the active segment."""
    content = read_file(_disk, path)
    entries = -(-len(content.rstrip(b"\0")) // entry_bytes)
    return content[: entries * entry_bytes]


def _aborted_in(segment: Segment) -> list[AbortedTransaction]:
    try:
        return decode_aborted(read_file(_disk, segment.beside(TRANSACTION_INDEX)))
    except FileNotFoundError:
        if not os.path.exists(segment.beside(INDEX)):
            raise _NoIndex from None
        # The file exists only if a transaction was aborted.
        return []


# Segments ---------------------------------------------------------------------------------------------


def _cuts(segment: Segment, position: int, end: int, max_bytes: int) -> list[Border]:
    """Where to cut the bytes after `position`, up to the offset `end`, into parts of at most `max_bytes`.

    No cuts in a file that cannot be read: its task raises the error.
    """
    try:
        with _SegmentFile(segment) as file:
            if file.size_bytes - position <= max_bytes:
                return []
            cuts: list[Border] = []
            for here, there in pairwise(file.indexed_cuts(position, end, max_bytes)):
                if there.position - here.position > max_bytes:
                    borders = file.borders(here.position, there.offset)
                    cuts += _spaced(borders, here.position, max_bytes)
                cuts.append(there)
            return cuts[:-1]
    except OSError:
        return []


def _spaced(borders: Iterable[Border], start: int, max_bytes: int) -> Iterator[Border]:
    """Fewest of the ordered borders that make parts of at most `max_bytes`; never the last one."""
    before = Border(start, 0)
    for border in borders:
        if border.position - start > max_bytes and before.position > start:
            yield before
            start = before.position
        before = border


class _SegmentFile:
    """An open segment, to read its batch headers."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._file = _disk.open(segment.path)
        self.size_bytes = self._file.size()

    def __enter__(self) -> "_SegmentFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._file.read(position, size_bytes)

    def batches(self, position: int) -> Iterator[StoredBatch]:
        """The sound batches from a position on; a message of format v0 or v1 counts as a batch."""
        head = self.read(0, MAGIC_POSITION + 1)
        if is_legacy(head):
            for item in walk(self.read, self.size_bytes, self._segment.base_offset):
                if not isinstance(item, Hole) and batch_of(item).position >= position:
                    yield batch_of(item)
        else:
            yield from scan(self.read, position, self.size_bytes)

    def borders(self, position: int, end: int) -> Iterator[Border]:
        """The starts of batches from `position` on, up to the first at or after the offset `end`; or the end
        of the last batch."""
        behind = Border(position, -1)
        for batch in self.batches(position):
            yield Border(batch.position, batch.base_offset)
            if batch.base_offset >= end:
                return
            behind = Border(batch.end_position, -1)
        yield behind

    def indexed_cuts(self, position: int, end: int, max_bytes: int) -> list[Border]:
        """`position`, the cuts after it from the offset index, and about the position of the offset `end`.

        No cuts if the index is missing, or does not point to a batch."""
        index = _offset_index(self._segment)
        entries = () if index is None else map(Border, index.positions, index.offsets)
        begin, limit = Border(position, -1), Border(self.size_bytes, end)
        known = []
        for border in entries:
            if border.offset + self._segment.base_offset >= end:
                limit = Border(border.position, end)
                break
            if border.position > position:
                known.append(border)
        cuts = [begin]
        for at, _ in _spaced(chain(known, [limit]), position, max_bytes):
            offset = self._offset_at(at)
            if offset is None:
                return [begin, Border(self.size_bytes, end)]
            # An entry of an index has the last offset of an append, not the first.
            cuts.append(Border(at, offset))
        return [*cuts, limit]

    def _offset_at(self, position: int) -> int | None:
        """The offset of the batch at `position`; None if no sound batch begins there."""
        head = self.read(position, LOG_OVERHEAD_BYTES)
        size_bytes = _size_of(memoryview(head))
        if size_bytes > min(self.size_bytes - position, BATCH_BYTES_MAX):
            return None
        batch = memoryview(self.read(position, size_bytes))
        try:
            if is_legacy(batch):
                return next(iter_messages(batch)).offset
            header = read_batch_header(batch)
            verify_crc(batch, 0, header)
        except KafkaError:
            return None
        return header.base_offset

    def first_at(self, batch: StoredBatch, timestamp_ms: int, start: int) -> int | None:
        """The first offset from `start` on of a record in the batch at or after `timestamp_ms`."""
        content = memoryview(self.read(batch.position, batch.size_bytes))
        try:
            records: Iterable[Any]
            if is_legacy(content):
                records = [one for outer in iter_messages(content) for one in stored_messages(outer)]
            else:
                records = iter_records(content)
            for record in records:
                if record.timestamp >= timestamp_ms and record.offset >= start:
                    return record.offset
        except KafkaError as error:
            raise LogFilesError(
                f"{self._segment.path} has a batch at byte {batch.position} that cannot be read: "
                f"{error.message}"
            ) from error
        return None


def read_piece(piece: Piece, read_bytes: int = READ_BYTES) -> Iterator[FetchedRecords]:
    """Whole batches (or messages), in order; the next ones overwrite the bytes.

    Ends at `end` or `end_position`. LogFilesError for bytes that are not a batch, except at the end of the
    last segment, where a broker may be writing.
    """
    with _opened(piece) as file:
        buffer = bytearray(read_bytes)
        position = piece.position
        while True:
            view = _read_into(file, position, piece.end_position, buffer)
            if _is_end(piece, view):
                return
            try:
                whole, next_offset = whole_records(view)
            except KafkaError as error:
                raise _damaged(piece, position, error.message) from error
            if not whole:
                if _is_torn(piece, position, view, len(buffer)):
                    return
                buffer = bytearray(_size_of(view))
                continue
            yield FetchedRecords(whole, _aborted_from(piece, whole), next_offset, -1)
            if next_offset >= piece.end:
                return
            position += len(whole)


def _size_of(view: memoryview) -> int:
    """The size in the header of the batch."""
    return LOG_OVERHEAD_BYTES + int.from_bytes(view[8:LOG_OVERHEAD_BYTES], "big")


def _is_torn(piece: Piece, position: int, view: memoryview, room_bytes: int) -> bool:
    """Whether the log ends within the batch; False if the batch is only larger than the buffer.

    LogFilesError in an earlier segment, and for a size beyond BATCH_BYTES_MAX.
    """
    if _size_of(view) <= BATCH_BYTES_MAX:
        if len(view) == room_bytes:
            return False
        if piece.is_last:
            return True
    raise _damaged(piece, position, f"a batch of {_size_of(view)} bytes where {len(view)} are left")


def _aborted_from(piece: Piece, whole: memoryview) -> tuple[tuple[int, int], ...]:
    """The aborted transactions of these batches: a producer's later transaction may be committed."""
    offset = int.from_bytes(whole[:8], "big")
    return tuple((producer, first) for producer, first, last in piece.aborted if last >= offset)


def _opened(piece: Piece) -> BinaryIO:
    try:
        return open(piece.path, "rb", buffering=0)
    except OSError as error:
        raise LogFilesError(
            f"the segment {piece.path} cannot be opened: {error.strerror}; it has to be there for every "
            f"worker, and "
            "its broker may have deleted it by now"
        ) from error


def _read_into(file: BinaryIO, position: int, end_position: int | None, buffer: bytearray) -> memoryview:
    """Fills the buffer, up to the end of the piece."""
    file.seek(position)
    view, filled = memoryview(buffer), 0
    if end_position is not None:
        view = view[: end_position - position]
    while filled < len(view) and (read := file.readinto(view[filled:])):  # type: ignore[attr-defined]
        filled += read
    return view[:filled]


def _is_end(piece: Piece, view: memoryview) -> bool:
    """Whether the piece ends here: at the end of the file, in the last segment also at preallocated space."""
    head = bytes(view[: MAGIC_POSITION + 1])
    return not head or (piece.is_last and (len(head) <= MAGIC_POSITION or not any(head)))


def _damaged(piece: Piece, position: int, why: str) -> LogFilesError:
    return LogFilesError(
        f"the segment {piece.path} of topic {piece.topic}, partition {piece.partition} is damaged at byte "
        f"{position}: "
        f"{why}; `odradek check` reports more"
    )
