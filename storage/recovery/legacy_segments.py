"""Segments with messages of formats v0 and v1 (from before Kafka 0.11), which only an import can take in.

Such a log must be imported before a topic may use it: recovery would take its messages for damage and cut
them.
"""

from odradek.storage.disk import Disk
from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.segment_paths import LOG, base_offset_of
from odradek.storage.recovery.log_walk import walk
from odradek.wire.record_layout import MAGIC_POSITION

_MAGIC_V2 = 2


def begins_with_messages(disk: Disk, directory: str) -> bool:
    """Whether the oldest segment of a partition's directory begins with a message of format v0 or v1. Older
    formats come before newer ones in a log. Raises `OSError`.
    """
    bases = (offset for name in disk.list(directory) if (offset := base_offset_of(name, LOG)) is not None)
    first = min(bases, default=None)
    if first is None:
        return False
    file = disk.open(f"{directory}/{first:020d}{LOG}")
    try:
        if file.read(MAGIC_POSITION, 1) not in (b"\0", b"\1"):
            return False
        # A batch may have a flipped bit, and unwritten bytes are zeros.
        item = next(walk(file.read, file.size(), first))
        return isinstance(item, StoredBatch) and item.magic < _MAGIC_V2
    finally:
        file.close()
