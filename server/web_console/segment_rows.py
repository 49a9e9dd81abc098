"""Segments of a partition as rows for the console.

What is in memory is taken on the event loop; files are read in a thread, by their paths: one that retention
removes meanwhile has no further facts. Batches are counted by their heads, in a large segment by those of its
beginning.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.storage.log.batches import scan
from odradek.storage.log.indexes import TIME_ENTRY_BYTES
from odradek.storage.log.segment_paths import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from odradek.storage.log.transaction_index import ENTRY
from odradek.wire.compression import Compression

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition

SEGMENTS_MAX = 500
"""Segments in one response: the newest."""
BATCHES_MAX = 2_000
"""Heads of batches that are read of one segment."""
READING_S_MAX = 2.0
"""For all segments; the rest have no further facts."""
CODEC_BITS = 0x07
_CODECS: Final = {one.value: one.name.lower() for one in Compression}


def partition_facts(log: Partition) -> dict[str, Any]:
    """Offsets and producers of a partition."""
    config = log.config
    return {
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size_bytes,
        "producers": len(log.log.producers.producers),
        "open_transactions": sum(
            entry.current_txn_first_offset is not None for entry in log.log.producers.producers.values()
        ),
        "cleanup_policy": sorted(config.cleanup_policy),
        "retention_ms": config.retention_ms if config.is_deleted else -1,
        "retention_bytes": config.retention_bytes if config.is_deleted else -1,
        "segments": len(log.log.segments),
    }


def segment_facts(log: Partition, first_dirty: int) -> list[dict[str, Any]]:
    """Facts in memory of the newest segments, the oldest of them first. `first_dirty` is the offset up to
    which the log is compacted."""
    segments = log.log.segments
    ends = [*log.log.bases[1:], log.log_end_offset]
    config = log.config
    rows: list[dict[str, Any]] = []
    later_bytes = 0
    for segment, end in [*zip(segments, ends, strict=True)][: -SEGMENTS_MAX - 1 : -1]:
        knows = segment.indexes.knows_latest_timestamp
        rows.append(
            {
                "base_offset": segment.base_offset,
                "end_offset": end,
                "size_bytes": segment.size_bytes,
                "created_ms": segment.created_ms,
                "latest_ms": segment.indexes.latest_timestamp()[0] if knows else None,
                "is_active": segment is segments[-1],
                "is_cleaned": config.is_compacted and end <= first_dirty and segment is not segments[-1],
                "bytes_until_due": max(0, config.retention_bytes - later_bytes)
                if config.is_deleted and config.retention_bytes >= 0
                else None,
                "paths": {
                    kind: segment.paths.path(kind) for kind in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
                },
            }
        )
        later_bytes += segment.size_bytes
    return rows[::-1]


def read_files(
    rows: Sequence[dict[str, Any]], retention_ms: int, clock_s: Callable[[], float] = time.monotonic
) -> None:
    """Adds what the files of the segments tell, the newest first; blocks, for a thread."""
    until_s = clock_s() + READING_S_MAX
    for row in reversed(rows):
        paths = row.pop("paths")
        row.update(first_ms=None, batches=None, batches_are_estimated=False, codecs=[], aborted=None)
        row["name"] = os.path.basename(paths[LOG])
        row["index_bytes"] = _size(paths[INDEX])
        row["time_index_bytes"] = _size(paths[TIME_INDEX])
        row["aborted"] = (_size(paths[TRANSACTION_INDEX]) or 0) // ENTRY.size
        if clock_s() < until_s:
            with contextlib.suppress(OSError):
                _read_log(row, paths[LOG])
        if row["latest_ms"] is None:
            with contextlib.suppress(OSError):
                row["latest_ms"] = _last_time(paths[TIME_INDEX])
        latest = row["latest_ms"]
        knows = retention_ms >= 0 and latest is not None and latest >= 0
        row["due_ms"] = latest + retention_ms if knows else None


def _read_log(row: dict[str, Any], path: str) -> None:
    end, at, count = row["size_bytes"], 0, 0
    codecs: set[str] = set()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for batch in scan(lambda position, size: os.pread(descriptor, size, position), 0, end):
            if not count and batch.delete_horizon_ms is None:
                row["first_ms"] = batch.base_timestamp
            codecs.add(_CODECS.get(batch.attributes & CODEC_BITS, "?"))
            count, at = count + 1, batch.end_position
            if count == BATCHES_MAX:
                break
    finally:
        os.close(descriptor)
    row["codecs"] = sorted(codecs)
    row["batches_are_estimated"] = count == BATCHES_MAX and at < end
    row["batches"] = round(count * end / at) if row["batches_are_estimated"] else count


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _last_time(path: str) -> int | None:
    """The latest timestamp of a time index on the disk; None: it has no entry."""
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes < TIME_ENTRY_BYTES:
            return None
        file.seek(size_bytes - size_bytes % TIME_ENTRY_BYTES - TIME_ENTRY_BYTES)
        return int.from_bytes(file.read(8), "big", signed=True)
