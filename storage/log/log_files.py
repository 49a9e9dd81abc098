"""The files of one log: its directory and its segments, oldest first."""

from odradek.storage.disk import Disk, sync_file, write_all
from odradek.storage.log.segment import Segment, segment_holding
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import SNAPSHOT, file_name


class LogFiles:
    """See the module. `segments` and `bases`, their base offsets, are changed in place."""

    __slots__ = ("bases", "directory", "pool", "segments")

    def __init__(self, pool: FilePool, directory: str, segments: list[Segment]) -> None:
        assert segments
        self.pool = pool
        self.directory = directory
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]

    @property
    def disk(self) -> Disk:
        return self.pool.disk

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def add(self, segments: list[Segment]) -> None:
        """Add new segments after the active one."""
        self.segments.extend(segments)
        self.bases.extend(segment.base_offset for segment in segments)

    def replace(self, place: int, count: int, segments: list[Segment]) -> None:
        """Replace `count` segments from `place` on."""
        self.segments[place : place + count] = segments
        self.bases[place : place + count] = [segment.base_offset for segment in segments]

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and those after it. May be called in any thread."""
        segments = list(self.segments)
        place = segment_holding([segment.base_offset for segment in segments], offset)
        return segments[max(place, 0) :]

    def write_snapshot(self, offset: int, content: bytes, *, sync: bool = False) -> None:
        """Write the snapshot of the producers at `offset`. Raises `OSError`."""
        path = self.snapshot_path(offset)
        file = self.disk.open(path, create=True)
        try:
            write_all(file, 0, [content], len(content))
            # Not truncated to 0 first: ext4 would then wait for the device at the close.
            if file.size() > len(content):
                file.truncate(len(content))
            if sync:
                sync_file(file, path)
        finally:
            file.close()

    def snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT)}"

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        for segment in self.segments:
            segment.file.close()

    def move_to_deletion(self, directory: str) -> None:
        """The directory was renamed, and will be removed."""
        self.directory = directory
        for segment in self.segments:
            segment.paths.directory = directory
            segment.paths.deleted = True

    def move_to_copy(self, directory: str) -> None:
        """Continue in `directory`, which has a copy of all segments without the indexes of the active one."""
        active = self.active
        # Loaded before the directory changes: the new directory does not have these files yet.
        active.indexes.unmap()
        active.indexes.offset_index.saved_count = active.indexes.time_index.saved_count = 0
        for segment in self.segments:
            segment.file.close()
            segment.paths.directory = directory
            # Compaction may be about to remove the segment.
            segment.paths.suffix = ""
        self.directory = directory
