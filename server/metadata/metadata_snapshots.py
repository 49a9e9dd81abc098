"""Snapshots of the metadata log: `OFFSET-EPOCH.checkpoint`, which sum up the records before an offset.

A snapshot is record batches from offset 0 on: a control batch with header, `kraft.version` and voters,
batches of records, a control batch with the footer. It is written under another name (`.checkpoint.part`),
synced and renamed. The one at offset 0 and epoch 0 is what `kafka-storage format` writes: with it a cluster
begins, and its records are appended to the log again, so it is none of the log's state.

Source: Snapshots, FileRawSnapshotWriter, RecordsSnapshotWriter and Formatter of Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.coordinator.controller.log import SnapshotId
from odradek.server.metadata.batch_mending import Patch, base_offset_at, mended_batch, sound_after
from odradek.server.metadata.metadata_batches import BatchBuilder, control_batch
from odradek.storage.disk import Disk, File, read_file, sync_file, write_all
from odradek.wire._records import read_batch_header
from odradek.wire.messages.metadata_records import (
    AnyRecord,
    ControlRecord,
    MetadataRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    records_of_batch,
)
from odradek.wire.work import Work

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_RECORDS_PER_STEP = 200


def file_name_of(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


BOOTSTRAP = SnapshotId(0, 0)


class Snapshot(NamedTuple):
    """The content of a snapshot file that was checked."""

    batches: Sequence[bytes]
    """The sound ones, mended where one bit was wrong."""
    patches: Sequence[Patch]
    """Patches that mend the file."""
    is_whole: bool
    """Whether all batches are sound, from the header to the footer."""

    def records(self) -> Iterator[Sequence[AnyRecord]]:
        """The records of each batch. Raises as the decoders do."""
        for batch in self.batches:
            yield list(records_of_batch(batch))

    def control_records(self) -> Iterator[AnyRecord]:
        """The records of the quorum, in batches of their own."""
        for batch in self.batches:
            header = read_batch_header(batch)
            if header.is_control:
                yield from records_of_batch(batch, header)

    @property
    def last_contained_timestamp(self) -> int:
        """Time of the last record that the snapshot sums up; -1 if the header is lost."""
        header = next(records_of_batch(self.batches[0]), None) if self.batches else None
        return header.last_contained_log_timestamp if isinstance(header, SnapshotHeaderRecord) else -1


def snapshot_ids(names: Iterable[str]) -> list[SnapshotId]:
    """The snapshots among the names of files, oldest first."""
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(SnapshotId(int(one[1]), int(one[2])) for one in found if one is not None)


def read_snapshot(disk: Disk, directory: str, snapshot_id: SnapshotId) -> Snapshot:
    """Check a snapshot; the file is not changed. Raises OSError."""
    return parsed(read_file(disk, f"{directory}/{file_name_of(snapshot_id)}"), snapshot_id.epoch)


def parsed(content: bytes, epoch: int) -> Snapshot:
    """The batches of a snapshot, and whether they are all that it had."""
    batches: list[bytes] = []
    patches: list[Patch] = []
    is_whole = True
    position, base_offset = 0, 0
    while position < len(content):
        batch = mended_batch(content, position, base_offset, epoch)
        if batch is None:
            is_whole = False
            following = next(sound_after(content, position, base_offset), None)
            if following is None:
                break
            position, base_offset = following, base_offset_at(content, following)
            continue
        patches += batch.patches
        batches.append(batch.content)
        position += len(batch.content)
        base_offset = batch.header.last_offset + 1
    return Snapshot(batches, patches, is_whole and len(batches) > 1 and _has_ends(batches))


def _has_ends(batches: Sequence[bytes]) -> bool:
    first, last = next(records_of_batch(batches[0])), next(records_of_batch(batches[-1]))
    return isinstance(first, SnapshotHeaderRecord) and isinstance(last, SnapshotFooterRecord)


def writing_snapshot(
    disk: Disk,
    directory: str,
    snapshot_id: SnapshotId,
    control: Sequence[ControlRecord],
    records: Iterable[MetadataRecord],
    *,
    metadata_version: int,
    last_contained_timestamp: int,
    now_ms: int,
) -> Work[None]:
    """Write a snapshot in steps; durable at the end. `control` has `kraft.version` and the voters. Raises
    OSError; then, and after a close before the end, there is no snapshot.
    """
    path = f"{directory}/{file_name_of(snapshot_id)}"
    part = path.removesuffix(SUFFIX) + PART_SUFFIX
    file = disk.open(part, create=True)
    is_done = False
    try:
        file.truncate(0)
        writer = _Writer(file)
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp)
        writer.add(control_batch([header, *control], 0, snapshot_id.epoch, now_ms))
        next_offset = 1 + len(control)
        builder = BatchBuilder(next_offset, snapshot_id.epoch, now_ms)
        for number, record in enumerate(records, 1):
            if not builder.takes(record, metadata_version):
                writer.add(builder.build())
                builder = BatchBuilder(builder.next_offset, snapshot_id.epoch, now_ms)
                builder.takes(record, metadata_version)
            if number % _RECORDS_PER_STEP == 0:
                yield None
        if builder.record_count:
            writer.add(builder.build())
        footer = SnapshotFooterRecord(version=0)
        writer.add(control_batch([footer], builder.next_offset, snapshot_id.epoch, now_ms))
        yield lambda: sync_file(file, part)
        disk.rename(part, path)
        yield lambda: disk.sync_directory(directory)
        is_done = True
    finally:
        file.close()
        if not is_done:
            _remove_quietly(disk, part)


class _Writer:
    def __init__(self, file: File) -> None:
        self._file = file
        self._position = 0

    def add(self, batch: bytearray) -> None:
        write_all(self._file, self._position, [batch], len(batch))
        self._position += len(batch)


def _remove_quietly(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except OSError:
        # The next start removes it.
        pass


def remove_leftovers(disk: Disk, directory: str) -> None:
    """Remove snapshots that a crash has left unfinished, or about to be removed. Raises OSError."""
    for name in disk.list(directory):
        if name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
            disk.remove(f"{directory}/{name}")


def remove_snapshot(disk: Disk, directory: str, snapshot_id: SnapshotId) -> None:
    """Remove a snapshot that is not needed any more. Raises OSError."""
    disk.remove(f"{directory}/{file_name_of(snapshot_id)}")
