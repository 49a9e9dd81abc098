"""Reading the files of the offset index and the time index of a segment: mapped, whole, or only their ends.

`DamagedIndex` if the ends of a file show that it cannot belong to its log. Each function may raise `OSError`.
"""

from functools import partial

from odradek.storage.disk import read_file
from odradek.storage.log.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    DamagedIndex,
    OffsetIndex,
    TimeIndex,
)
from odradek.storage.log.segment_paths import INDEX, TIME_INDEX, SegmentPaths

MAP_INDEXES_FROM_BYTES = 4096
"""A smaller index is cheaper to read than to map, and takes little memory."""


def open_indexes(
    paths: SegmentPaths, size_bytes: int, counts: tuple[int, int] | None = None
) -> tuple[OffsetIndex, TimeIndex]:
    """Both indexes, each mapped unless it is small: all entries, or the first `counts`. The log file has
    `size_bytes`.
    """
    offsets: OffsetIndex | None
    times: TimeIndex | None
    base_offset = paths.base_offset
    offset_bytes = None if counts is None else counts[0] * OFFSET_ENTRY_BYTES
    time_bytes = None if counts is None else counts[1] * TIME_ENTRY_BYTES
    content = _content(paths, INDEX, offset_bytes)
    if isinstance(content, bytes):
        offsets = OffsetIndex.decode(base_offset, content, size_bytes)
    else:
        offsets = OffsetIndex.of_file(base_offset, content, partial(_read, paths, INDEX), size_bytes)
    content = _content(paths, TIME_INDEX, time_bytes)
    if isinstance(content, bytes):
        times = TimeIndex.decode(base_offset, content)
    else:
        times = TimeIndex.of_file(base_offset, content, partial(_read, paths, TIME_INDEX))
    if offsets is None or times is None:
        raise DamagedIndex
    return offsets, times


def _content(paths: SegmentPaths, kind: str, wanted_bytes: int | None) -> bytes | memoryview:
    file = paths.disk.open(paths.path(kind))
    try:
        size_bytes = file.size()
        if wanted_bytes is not None:
            if size_bytes < wanted_bytes:
                raise DamagedIndex
            size_bytes = wanted_bytes
        if size_bytes >= MAP_INDEXES_FROM_BYTES:
            try:
                return file.map(size_bytes)
            except OSError:
                # The process has reached its limit of mappings.
                pass
        return file.read(0, size_bytes)
    finally:
        file.close()


def _read(paths: SegmentPaths, kind: str, position: int, size_bytes: int) -> bytes:
    try:
        file = paths.disk.open(paths.path(kind))
    except FileNotFoundError as error:
        raise DamagedIndex from error
    try:
        return file.read(position, size_bytes)
    finally:
        file.close()


def decode_indexes(paths: SegmentPaths, size_bytes: int) -> tuple[OffsetIndex | None, TimeIndex | None]:
    """Both indexes in memory, every entry checked; None for a missing index or one whose entries are not in
    order.
    """
    disk, base_offset = paths.disk, paths.base_offset
    try:
        offsets = OffsetIndex.decode(base_offset, read_file(disk, paths.path(INDEX)), size_bytes)
        times = TimeIndex.decode(base_offset, read_file(disk, paths.path(TIME_INDEX)))
    except FileNotFoundError:
        return None, None
    return offsets, times


def truncate_files(paths: SegmentPaths, counts: tuple[int, int]) -> bool:
    """Cut both files to `counts` entries; returns whether neither had more."""
    had_no_more = True
    sizes = (counts[0] * OFFSET_ENTRY_BYTES, counts[1] * TIME_ENTRY_BYTES)
    for kind, size_bytes in zip((INDEX, TIME_INDEX), sizes, strict=True):
        file = paths.disk.open(paths.path(kind))
        try:
            if file.size() > size_bytes:
                file.truncate(size_bytes)
                had_no_more = False
        finally:
            file.close()
    return had_no_more


def read_last_time_entry(paths: SegmentPaths) -> TimeIndex | None:
    """A time index with only the last entry: 12 bytes instead of the whole file. None if there is no valid
    entry.
    """
    disk, path = paths.disk, paths.path(TIME_INDEX)
    if not disk.exists(path):
        return None
    size_bytes = disk.size(path)
    if size_bytes % TIME_ENTRY_BYTES or not size_bytes:
        return None
    file = disk.open(path)
    try:
        last_entry = file.read(size_bytes - TIME_ENTRY_BYTES, TIME_ENTRY_BYTES)
    finally:
        file.close()
    return TimeIndex.decode(paths.base_offset, last_entry)
