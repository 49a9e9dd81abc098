"""Repairs the findings of `check_partition.py` in a partition's directory, with the smallest possible loss.

Only bytes that are no sound batch are removed from a log file: at its end by a cut, elsewhere by a copy of
the sound batches, which replaces the file. The indexes of a missing log file are removed, and its lost
offsets are reported from them. Offsets never change; removed records leave a gap, as after compaction, so the
recovery point has to be after it (a start after a crash takes gaps for losses). A header with a known fault
is repaired. Indexes, snapshots and the epoch checkpoint are rebuilt from the log, never edited: their files
may have hard links.

Order: `repair_log`, then a new check, whose findings in other files `repair_caches` repairs.
"""

from struct import Struct
from typing import NamedTuple

from odradek.offline.check_partition import PartitionCheck, SegmentCheck
from odradek.storage.checkpoints import LEADER_EPOCHS, write_leader_epochs
from odradek.storage.disk import Disk, File, replace_file, write_all
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from odradek.storage.log.transaction_index import encode_aborted
from odradek.storage.recovery.log_walk import HeaderRepair, Hole

_COPY_BYTES = 1 << 20
_PREFIX = Struct(">qiib")
"""Base offset, length, leader epoch, magic: the fields before the checksum, which does not cover them."""


class Repair(NamedTuple):
    """One line: the change of a file, and the known number of lost bytes of log."""

    path: str
    position: int | None
    what: str
    lost_bytes: int = 0


def repair_log(disk: Disk, check: PartitionCheck) -> list[Repair]:
    """Remove all unsound bytes from the log files. Raises `OSError`; then it can be tried again."""
    repairs: list[Repair] = []
    for lost in check.lost_segments:
        for kind in (INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT):
            disk.remove(f"{check.path}/{file_name(lost.base_offset, kind)}")
        path = f"{check.path}/{file_name(lost.base_offset, LOG)}"
        repairs.append(Repair(path, None, f"removed its indexes; {lost.loss}", lost.size_bytes_min))
    end_offset = 0
    for number, segment in enumerate(check.segments):
        path = f"{check.path}/{file_name(segment.base_offset, LOG)}"
        if segment.cut_off is not None:
            lost_bytes = segment.cut_off.size_bytes_min
            what = f"it was longer: {segment.cut_off.loss}"
            repairs.append(Repair(path, segment.size_bytes, what, lost_bytes))
        is_within = segment.base_offset < end_offset
        end_offset = max(segment.end_offset, end_offset)
        if is_within and segment.is_empty:
            repairs += _remove_within(disk, check.path, path, segment)
            continue
        if segment.is_sound:
            continue
        # Removed first: after an interruption no index may remain beside a changed log.
        for kind in (INDEX, TIME_INDEX):
            disk.remove(f"{check.path}/{file_name(segment.base_offset, kind)}")
        repairs += _put_right(disk, path, segment.header_repairs)
        is_last = number == len(check.segments) - 1
        repairs += _take_out(disk, check.path, path, segment, is_last=is_last)
    if repairs:
        disk.sync_directory(check.path)
    return repairs


def _remove_within(disk: Disk, directory: str, path: str, segment: SegmentCheck) -> list[Repair]:
    """Remove a segment without a batch that begins within the previous one. Its snapshot may be right."""
    for kind in (INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG):
        disk.remove(f"{directory}/{file_name(segment.base_offset, kind)}")
    return [Repair(path, None, "removed with its indexes; it had no records", segment.size_bytes)]


def _put_right(disk: Disk, path: str, header_repairs: list[HeaderRepair]) -> list[Repair]:
    if not header_repairs:
        return []
    file = disk.open(path)
    try:
        for batch, _ in header_repairs:
            prefix = _PREFIX.pack(batch.base_offset, batch.length, batch.leader_epoch, batch.magic)
            write_all(file, batch.position, [prefix], len(prefix))
        file.sync()
    finally:
        file.close()
    return [Repair(path, repair.batch.position, f"repaired: {repair.what}") for repair in header_repairs]


def _take_out(disk: Disk, directory: str, path: str, segment: SegmentCheck, *, is_last: bool) -> list[Repair]:
    holes = segment.holes
    if not holes:
        return []
    kept_bytes = segment.size_bytes - sum(hole.size_bytes for hole in holes)
    if kept_bytes == 0 and not is_last:
        for kind in (TRANSACTION_INDEX, SNAPSHOT, LOG):
            disk.remove(f"{directory}/{file_name(segment.base_offset, kind)}")
    elif len(holes) == 1 and holes[0].end_position == segment.size_bytes:
        file = disk.open(path)
        try:
            file.truncate(holes[0].position)
            file.sync()
        finally:
            file.close()
    else:
        _copy_without(disk, path, segment)
    return [Repair(path, hole.position, _removal(hole), hole.size_bytes) for hole in holes]


def _removal(hole: Hole) -> str:
    removed = f"removed {hole.size_bytes} {'byte' if hole.size_bytes == 1 else 'bytes'}"
    if hole.first_offset == hole.end_offset:
        return f"{removed}, no records"
    if hole.end_offset > hole.first_offset:
        return f"{removed}, the offsets {hole.first_offset} to {hole.end_offset - 1} are lost"
    return f"{removed}, the records from offset {hole.first_offset} on are lost"


def _copy_without(disk: Disk, path: str, segment: SegmentCheck) -> None:
    """Copy the sound batches to a new file, and replace the old one atomically."""
    temporary = path + CLEANED  # a start removes files with this suffix
    source, target = disk.open(path), disk.open(temporary, create=True)
    try:
        target.truncate(0)
        position = written = 0
        for hole in segment.holes:
            written += _copy(source, position, hole.position, target, written)
            position = hole.end_position
        _copy(source, position, segment.size_bytes, target, written)
        target.sync()
    finally:
        source.close()
        target.close()
    disk.set_modified_ms(temporary, disk.modified_ms(path))
    disk.rename(temporary, path)


def _copy(source: File, start: int, end: int, target: File, at: int) -> int:
    for position in range(start, end, _COPY_BYTES):
        piece = source.read(position, min(_COPY_BYTES, end - position))
        write_all(target, at + position - start, [piece], len(piece))
    return end - start


def repair_caches(disk: Disk, check: PartitionCheck) -> list[Repair]:
    """Rebuild the other files with findings, after a check of a sound log. Raises `OSError`."""
    repairs: list[Repair] = []
    for segment in check.segments:
        repairs += _repair_indexes(disk, check.path, segment)
    bases = {segment.base_offset for segment in check.segments}
    for offset, content in check.bad_snapshots.items():
        path = f"{check.path}/{file_name(offset, SNAPSHOT)}"
        disk.remove(path)
        if content is None or (offset not in bases and offset != check.end_offset):
            repairs.append(Repair(path, None, "removed"))
        else:
            replace_file(disk, path, content)
            repairs.append(Repair(path, None, "rebuilt from the log"))
    if check.epochs_are_bad:
        path = f"{check.path}/{LEADER_EPOCHS}"
        write_leader_epochs(disk, path, check.epochs.entries())
        repairs.append(Repair(path, None, "rebuilt from the log"))
    if repairs:
        disk.sync_directory(check.path)
    return repairs


def _repair_indexes(disk: Disk, directory: str, segment: SegmentCheck) -> list[Repair]:
    bad = set(segment.bad_indexes)
    repairs = [
        Repair(f"{directory}/{file_name(segment.base_offset, kind)}", None, "rebuilt from the log")
        for kind in sorted(bad)
    ]
    if TRANSACTION_INDEX in bad:
        path = f"{directory}/{file_name(segment.base_offset, TRANSACTION_INDEX)}"
        disk.remove(path)
        if segment.aborted:
            replace_file(disk, path, encode_aborted(segment.aborted))
    if bad - {TRANSACTION_INDEX}:
        # Both indexes: they are read together, and made in one walk.
        made = Segment(FilePool(disk), directory, segment.base_offset, segment.size_bytes, 0)
        for kind in (INDEX, TIME_INDEX):
            disk.remove(made.paths.path(kind))
        made.indexes.rebuild()
        made.save_indexes(sync=True)
        made.file.close()
    return repairs


def sync_log(disk: Disk, check: PartitionCheck) -> None:
    """Sync all bytes that the check has read, so that the recovery point may be after them."""
    for segment in check.segments:
        file = disk.open(f"{check.path}/{file_name(segment.base_offset, LOG)}")
        try:
            file.sync()
        finally:
            file.close()
