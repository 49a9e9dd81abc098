"""Making the scan checkpoints of a log (`scan_checkpoint.py`), in a running log and at its close."""

from odradek.storage.disk import SyncFailed, sync_file
from odradek.storage.log._staging import AppendBuffer
from odradek.storage.log.durability import Durability
from odradek.storage.log.log_files import LogFiles
from odradek.storage.log.producer_state import ProducerState, encode_snapshot
from odradek.storage.log.scan_checkpoint import PendingCheckpoint, ScanCheckpoint
from odradek.storage.log.segment_paths import note_failed_sync
from odradek.wire.errors import KafkaError


class ScanCheckpointing:
    """See the module. The steps of a checkpoint in a running log are `pending`, a flush, `write`, `sync`."""

    __slots__ = ("_buffer", "_durability", "_files", "_producers")

    def __init__(
        self, files: LogFiles, buffer: AppendBuffer, producers: ProducerState, durability: Durability
    ) -> None:
        self._files = files
        self._buffer = buffer
        self._producers = producers
        self._durability = durability

    def pending(self) -> PendingCheckpoint | None:
        """A checkpoint of the log's end; None while something is staged. Raises `OSError`."""
        buffer = self._buffer
        if buffer.next_offset != buffer.log_end_offset or buffer.is_cut_wanted:
            return None
        active = self._files.active
        return PendingCheckpoint(
            active,
            buffer.log_end_offset,
            active.size_bytes,
            active.extent.bytes_since_index,
            *active.indexes.latest_timestamp(),
            encode_snapshot(self._producers.producers),
        )

    def write(self, pending: PendingCheckpoint) -> ScanCheckpoint | None:
        """After a flush up to the pending checkpoint: write its files, without a sync. None if the segment is
        not active any more.

        Raises `OSError`, and KAFKA_STORAGE_ERROR if the transaction index is damaged.
        """
        segment = pending.segment
        if segment is not self._files.active:
            return None
        assert pending.offset <= self._durability.recovery_point
        counts = segment.indexes.entries_before(pending.offset)
        segment.save_indexes()
        self._files.write_snapshot(pending.offset, pending.snapshot)
        return ScanCheckpoint(
            segment.base_offset,
            pending.offset,
            pending.position,
            *counts,
            segment.transactions.index.count_before(pending.offset),
            pending.bytes_since_index,
            pending.max_timestamp_ms,
            pending.max_timestamp_offset,
        )

    def sync(self, pending: PendingCheckpoint) -> None:
        """Make the files of `write` survive a loss of power. May run in a worker thread. Raises as
        `Durability.flush`.
        """
        files = self._files
        path = files.snapshot_path(pending.offset)
        try:
            pending.segment.paths.sync_index_files()
            file = files.disk.open(path)
            try:
                sync_file(file, path)
            finally:
                file.close()
        except SyncFailed:
            note_failed_sync(files.disk, files.directory)
            raise
        files.disk.sync_directory(files.directory)

    def write_at_end(self, *, sync: bool = False) -> ScanCheckpoint | None:
        """Write indexes and a snapshot at the log's end; returns their scan checkpoint, which is valid once
        they are synced. None if the active segment is empty or its transaction index is damaged.
        """
        active, end_offset = self._files.active, self._buffer.log_end_offset
        active.indexes.seal()
        active.save_indexes(sync=sync)
        self._files.write_snapshot(end_offset, encode_snapshot(self._producers.producers), sync=sync)
        if active.size_bytes == 0:
            return None
        try:
            aborted_count = len(active.transactions.index)
        except KafkaError:
            return None
        return ScanCheckpoint(
            active.base_offset,
            end_offset,
            active.size_bytes,
            len(active.indexes.offset_index),
            len(active.indexes.time_index),
            aborted_count,
            active.extent.bytes_since_index,
            *active.indexes.latest_timestamp(),
        )

    def forget(self, scan_checkpoint: ScanCheckpoint) -> None:
        """Remove the snapshot of an earlier scan checkpoint. Raises `OSError`."""
        if scan_checkpoint.offset not in self._files.bases:
            self._files.disk.remove(self._files.snapshot_path(scan_checkpoint.offset))
