"""The flush journal: one file that makes appends to many partitions durable with one sync.

Appends to fifty partitions need fifty syncs, each with a commit of the file system's journal because the file
has grown. Instead the new bytes of these files are written a second time, in one block, to a file of fixed
length whose blocks are allocated: one write and one sync of data only. The partitions' own files are written
as usual, but synced later, when a file of the flush journal is full. There are two files: while the
partitions of one are flushed, the other takes the blocks.

After a crash `replay` restores the bytes in the partitions' files, before any recovery:
- A block is valid if its checksum is right, its number follows and its generation is the file's. Only one
  block is written at a time, so all acknowledged records are in blocks before the first invalid one.
- An entry has topic id, partition, segment, position and end offset. It is skipped if the segment is gone,
  the topic has another id, the recovery point of the checkpoint is not before it, or other sound records are
  at this position (another broker has used the directory since). Otherwise its bytes are written, even if the
  file has them: a page whose writing failed counts as clean, and the disk may not have it.
- Entries hold whole batches and begin at the end of a flush or of the previous entry, so a second replay is
  harmless.
- An entry without a batch marks the end of a truncated log: bytes of earlier entries after this position are
  ignored.
The files are removed after a replay, and at a clean stop.

After a failed write or sync the journal is not used until the next start, since it is not known what the disk
has of the block; the partitions are then flushed one by one. Earlier blocks stay for a replay until all their
records are flushed (`emptying`): before that no log with records in them can be truncated.

Kafka does not read these files, `flush-journal.0` and `flush-journal.1`: after a loss of power start Odradek
once before Kafka uses the directory.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple, Protocol

from odradek.storage.checkpoints import PARTITION_METADATA, read_partition_metadata
from odradek.storage.disk import Disk, File, SyncFailed, read_file, sync_file, write_all
from odradek.storage.log._staging import Tail
from odradek.storage.log.batches import scan
from odradek.storage.log.segment_paths import LOG, file_name, note_failed_sync
from odradek.wire.checksums import crc32c
from odradek.wire.work import Work

NAMES = ("flush-journal.0", "flush-journal.1")
READ_NAMES = (*NAMES, "group-log.0", "group-log.1")
"""Names that a replay reads and removes: a build before 0.1.0 that crashed has left the last two."""
FILE_BYTES = 32 * 1024 * 1024
PAGE_BYTES = 4096
"""Blocks begin at multiples of this size: no page of a synced block is written again."""
ENTRY_BYTES_MAX = 65_536
"""More bytes of one partition are cheaper with a sync of its own file."""
BLOCK_BYTES_MAX = 1024 * 1024
_ZEROS_BYTES = 1024 * 1024

_CHECKSUM = Struct(">I")
_HEAD = Struct(">IIQQI")
"""Checksum of the following bytes, length of the whole block, generation, block number, count of entries."""
_IDENTITY = Struct(">16sH")
"""Topic id and length of the name, which follows."""
_OFFSET = Struct(">q")
"""Base offset and length of a batch."""
_ENTRY = Struct(">qqqI")
"""Base offset of the segment, position, offset after the bytes, length of the bytes, which follow."""


class JournaledTail(Protocol):
    """The part of a partition that the flush journal uses: `flushing.py`. `is_being_journaled` while a block
    with its tail is being written.
    """

    is_being_journaled: bool

    def is_flushed_until(self, offset: int) -> bool: ...

    @property
    def identity(self) -> bytes: ...

    @property
    def is_deleted(self) -> bool: ...

    def tail(self, size_bytes_max: int) -> Tail | None: ...

    def note_journaled(self, tail: Tail) -> None: ...


class Journaled(Protocol):
    """A partition."""

    @property
    def flushing(self) -> JournaledTail: ...


class Entry(NamedTuple):
    """The bytes of one partition in one block."""

    topic_id: bytes
    base_offset: int
    position: int
    end_offset: int
    name: str
    content: bytes


class Block:
    """A block to be written: its content, its position, its partitions with their tails."""

    __slots__ = ("content", "file", "position", "tails")

    def __init__(
        self, file: File, position: int, content: bytes, tails: list[tuple[Journaled, Tail]]
    ) -> None:
        self.file = file
        self.position = position
        self.content = content
        self.tails = tails

    def write(self) -> None:
        """Write and sync the block. Raises `OSError`. May run in a worker thread."""
        write_all(self.file, self.position, (self.content,), len(self.content))
        self.file.sync()


class FlushJournal:
    """See the module. One thread owns it; `prepare` and `Block.write` may run in another, one at a time.

    First `prepare`. Then, for each block, `begin`, `Block.write` and `finish`. The partitions from
    `take_retired` have to be flushed, and reported with `retired_is_flushed`, before a file is used again.
    """

    def __init__(self, disk: Disk, directory: str, *, file_bytes: int = FILE_BYTES) -> None:
        assert file_bytes % PAGE_BYTES == 0
        self.directory = directory
        self.is_ready = False
        self.has_failed = False
        self.is_writing = False
        """Whether a block is being written."""
        self._disk = disk
        self._file_bytes = file_bytes
        self._files: list[File] = []
        self._generation = 0
        self._number = 0
        self._position = 0
        # The partitions with tails in the current file and the ends of the tails; the same for the other file
        # until they are flushed.
        self._holds: dict[Journaled, int] = {}
        self._retired: dict[Journaled, int] | None = None
        self._is_retired_taken = False
        self._is_cancelled = False

    def prepare(self) -> None:
        """Make the files, with all their blocks allocated. Raises `OSError`; then there are no files."""
        try:
            for name in NAMES:
                file = self._disk.open(f"{self.directory}/{name}", create=True)
                self._files.append(file)
                # Zeros are written, space is not only reserved: the first write to a reserved block changes
                # the file system's journal.
                for position in range(0, self._file_bytes, _ZEROS_BYTES):
                    if self._is_cancelled:
                        raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
                    size_bytes = min(_ZEROS_BYTES, self._file_bytes - position)
                    write_all(file, position, (bytes(size_bytes),), size_bytes)
                file.sync()
            self._disk.sync_directory(self.directory)
        except OSError:
            self.has_failed = True
            self.discard()
            raise
        self.is_ready = True

    def cancel(self) -> None:
        """Make a `prepare` in another thread fail soon."""
        self._is_cancelled = True

    @property
    def is_usable(self) -> bool:
        return self.is_ready and not self.has_failed

    def begin(self, partitions: Sequence[Journaled]) -> Block | None:
        """A block with the unflushed bytes of these partitions; None if there is nothing to write now.
        Partitions that are not in the block's `tails` have to be flushed.
        """
        if not self.is_usable:
            return None
        parts = [b""]
        tails: list[tuple[Journaled, Tail]] = []
        size_bytes = _HEAD.size
        for partition in partitions:
            identity = partition.flushing.identity
            tail = partition.flushing.tail(ENTRY_BYTES_MAX)
            if tail is None or not identity:
                continue
            content = tail.content
            length = len(content)
            size_bytes += len(identity) + _ENTRY.size + length
            if size_bytes > BLOCK_BYTES_MAX:
                break
            tails.append((partition, tail))
            entry = _ENTRY.pack(tail.base_offset, tail.position, tail.end_offset, length)
            parts += (identity, entry, content)
        if not tails:
            return None
        return self._block(parts, tails)

    def _block(self, parts: list[bytes], tails: list[tuple[Journaled, Tail]]) -> Block | None:
        size_bytes = _HEAD.size + sum(map(len, parts))
        padding = -size_bytes % PAGE_BYTES
        if (
            self._generation == 0 or self._position + size_bytes + padding > self._file_bytes
        ) and not self._switch():
            return None
        head = _HEAD.pack(0, size_bytes, self._generation, self._number, max(len(tails), 1))[_CHECKSUM.size :]
        parts[0] = head
        body = b"".join(parts)
        content = b"".join((_CHECKSUM.pack(crc32c(body)), body, bytes(padding)))
        block = Block(self._files[self._generation % 2], self._position, content, tails)
        self._number += 1
        self._position += len(content)
        for partition, tail in tails:
            self._holds[partition] = tail.end_offset
            partition.flushing.is_being_journaled = True
        self.is_writing = True
        return block

    def cut(self, identity: bytes, base_offset: int, position: int, end_offset: int) -> None:
        """Write an entry for a truncation to a position of a segment: a replay must not restore later bytes.
        Returns when the disk has the entry; no block may be in progress, and `cut_refusal` is None. Raises
        `OSError`.
        """
        if self._generation == 0:
            return  # no block was written, and the files of an earlier run are removed
        assert self.cut_refusal is None
        entry = _ENTRY.pack(base_offset, position, end_offset, 0)
        block = self._block([b"", identity, entry], [])
        assert block is not None, "an entry without a batch is smaller than a page"
        try:
            block.write()
        except OSError as error:
            self.finish(block, error)
            raise
        self.finish(block, None)

    @property
    def cut_refusal(self) -> str | None:
        """The reason why `cut` has to wait, or None."""
        if self._generation == 0:
            return None
        if not self.is_usable:
            return "the flush journal has failed, and holds what is to be cut until that is flushed"
        if self._retired is not None and self._position + PAGE_BYTES > self._file_bytes:
            return "the flush journal waits for a flush of its other file"
        return None

    def _switch(self) -> bool:
        """Continue in the other file; False while its partitions are not flushed."""
        if self._retired is not None:
            return False
        if self._holds:
            self._retired, self._is_retired_taken = self._holds, False
            self._holds = {}
        self._generation += 1
        self._number = self._position = 0
        return True

    @property
    def generation(self) -> int:
        """Counts the switches of files."""
        return self._generation

    def finish(self, block: Block, error: OSError | None) -> None:
        """Report the result of `block.write`; after a success the partitions' durable offsets advance."""
        self.has_failed = self.has_failed or error is not None
        self.is_writing = False
        for partition, tail in block.tails:
            partition.flushing.is_being_journaled = False
            if error is None:
                partition.flushing.note_journaled(tail)

    def take_retired(self) -> list[Journaled]:
        """The partitions to flush before the other file can be used again; returned once, until the call of
        `retired_is_flushed`.
        """
        if self._retired is None or self._is_retired_taken:
            return []
        self._is_retired_taken = True
        return list(self._retired)

    def retired_is_flushed(self, failed: Sequence[Journaled]) -> None:
        """The partitions are flushed, except `failed`. The records of these may be only in the journal: the
        file is kept, and `take_retired` returns those again that are not deleted.
        """
        assert self._retired is not None
        ends = self._retired
        self._retired = {one: ends[one] for one in failed if not one.flushing.is_deleted} or None
        self._is_retired_taken = False

    def to_flush(self) -> list[Journaled]:
        """The partitions whose flushes the journal waits for without another request: it has failed, or `cut`
        has begun the other file.
        """
        if self.has_failed and self._generation > 0:
            return self.unflushed()
        return [] if self._retired is None or self._is_retired_taken else list(self._retired)

    def unflushed(self) -> list[Journaled]:
        """The partitions with records in the journal that may not be on the disk in their own files."""
        holds = [*self._holds.items(), *(self._retired or {}).items()]
        return [one for one, end_offset in holds if not one.flushing.is_flushed_until(end_offset)]

    def emptying(self) -> Work[None]:
        """After a failure: remove the files once all their records are flushed, so that no replay restores
        records that are truncated later. No effect before that. Raises `OSError`; then it can be tried again.
        """
        has_to_go = self.has_failed and self._generation > 0
        if not has_to_go or self.is_writing or self._is_retired_taken or self.unflushed():
            return
        yield self.discard
        self._holds, self._retired, self._generation = {}, None, 0

    def discard(self) -> None:
        """Close and remove the files: every partition is flushed. Raises `OSError`."""
        self.close()
        remove_files(self._disk, self.directory)

    def close(self) -> None:
        """Close the files and keep them for the next start."""
        self.is_ready = False
        for file in self._files:
            file.close()
        self._files.clear()


def identity_of(topic_id: bytes, name: str) -> bytes:
    """The partition's key in an entry."""
    encoded = name.encode()
    return _IDENTITY.pack(topic_id, len(encoded)) + encoded


def remove_files(disk: Disk, directory: str) -> None:
    """Remove the flush journal of a directory durably."""
    there = [path for name in READ_NAMES if disk.exists(path := f"{directory}/{name}")]
    for path in there:
        disk.remove(path)
    if there:
        disk.sync_directory(directory)


def replay(disk: Disk, directory: str, recovery_point_of: Callable[[str], int]) -> int:
    """Restore bytes that a crash may have removed from the partitions' files; see the module.
    `recovery_point_of` returns the recovery point of a partition's directory. Returns the number of missing
    bytes that were restored. The files are synced, and the flush journal is removed. Raises `OSError`; then
    it can be tried again.
    """
    segments: dict[tuple[str, int], list[Entry]] = {}
    for entry in read_entries(disk, directory):
        segments.setdefault((entry.name, entry.base_offset), []).append(entry)
    topic_ids: dict[str, bytes | None] = {}
    restored_bytes = 0
    for (name, base_offset), entries in segments.items():
        place = f"{directory}/{name}"
        path = f"{place}/{file_name(base_offset, LOG)}"
        if not disk.exists(path):
            continue
        if name not in topic_ids:
            topic_ids[name] = read_partition_metadata(disk, f"{place}/{PARTITION_METADATA}")
        recovery_point = recovery_point_of(name)
        wanted = [
            entry
            for entry in entries
            if entry.topic_id == topic_ids[name] and entry.end_offset > recovery_point
        ]
        if wanted:
            try:
                restored_bytes += _restore(disk, path, wanted)
            except SyncFailed:
                # Bytes near it in the file may be lost as well, and are not written again.
                note_failed_sync(disk, place)
                raise
    remove_files(disk, directory)
    return restored_bytes


def _restore(disk: Disk, path: str, entries: list[Entry]) -> int:
    restored_bytes = 0
    file = disk.open(path)
    try:
        size_bytes = file.size()
        for position, content in ((entry.position, entry.content) for entry in entries):
            length = len(content)
            if position > size_bytes:
                break
            there = file.read(position, length)
            if there != content and _is_of_another_origin(file, size_bytes, position, content):
                break
            if there != content:
                restored_bytes += length
            write_all(file, position, (content,), length)
            size_bytes = max(size_bytes, position + length)
        sync_file(file, path)
    finally:
        file.close()
    return restored_bytes


def _is_of_another_origin(file: File, size_bytes: int, position: int, content: bytes) -> bool:
    """Whether another sound batch with the right offset is at this position. An allocated block of the file
    system that was never written may hold an older batch.
    """
    (expected,) = _OFFSET.unpack_from(content)
    for batch in scan(file.read, position, size_bytes, verify=True):
        inside = batch.position - position
        if inside >= len(content) or batch.base_offset != expected:
            break
        expected = batch.last_offset + 1
        if file.read(batch.position, batch.size_bytes) != content[inside : inside + batch.size_bytes]:
            return True
    return False


def read_entries(disk: Disk, directory: str, names: Sequence[str] = READ_NAMES) -> Iterator[Entry]:
    """The entries of a flush journal, in the order of writing."""
    files = [_read_blocks(disk, f"{directory}/{name}") for name in names]
    of_partition: dict[tuple[bytes, str], list[Entry]] = {}
    for _, blocks in sorted(files, key=lambda file: file[0]):
        for entry in (entry for block in blocks for entry in _entries_of(block)):
            entries = of_partition.setdefault((entry.topic_id, entry.name), [])
            if entry.content:
                entries.append(entry)
            else:
                entries[:] = [left for one in entries if (left := _before(one, entry)) is not None]
    for entries in of_partition.values():
        yield from entries


def _before(entry: Entry, end: Entry) -> Entry | None:
    """The part of an entry before the end of a truncated log."""
    if entry.base_offset != end.base_offset:
        return entry if entry.base_offset < end.base_offset else None
    size_bytes = end.position - entry.position
    if size_bytes >= len(entry.content):
        return entry
    if size_bytes <= 0:
        return None
    return entry._replace(content=entry.content[:size_bytes], end_offset=end.end_offset)


def _read_blocks(disk: Disk, path: str) -> tuple[int, list[memoryview]]:
    """The generation of a file, and its valid blocks."""
    blocks: list[memoryview] = []
    first_generation = 0
    data = memoryview(read_file(disk, path)) if disk.exists(path) else memoryview(b"")
    position = 0
    while position + _HEAD.size <= len(data):
        checksum, size_bytes, generation, number, _ = _HEAD.unpack_from(data, position)
        block = data[position : position + size_bytes]
        if (
            not _HEAD.size <= size_bytes == len(block)
            or number != len(blocks)
            or (blocks and generation != first_generation)
            or crc32c(block[_CHECKSUM.size :]) != checksum
        ):
            break
        first_generation = generation
        blocks.append(block)
        position += size_bytes + -size_bytes % PAGE_BYTES
    return first_generation, blocks


def _entries_of(block: memoryview) -> Iterator[Entry]:
    _, _, _, _, count = _HEAD.unpack_from(block)
    position = _HEAD.size
    for _ in range(count):
        topic_id, name_bytes = _IDENTITY.unpack_from(block, position)
        position += _IDENTITY.size
        name = bytes(block[position : position + name_bytes]).decode()
        position += name_bytes
        base_offset, at, end_offset, length = _ENTRY.unpack_from(block, position)
        position += _ENTRY.size
        yield Entry(topic_id, base_offset, at, end_offset, name, bytes(block[position : position + length]))
        position += length
