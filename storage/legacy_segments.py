"""Segments with messages of formats v0 and v1 (from before Kafka 0.11), rewritten as record batches.

Kafka reads such segments to this day where a log is old enough; here they are converted once, when the log is
taken in. Offsets, timestamps, keys, values and the compression stay; a compressed wrapper becomes one batch,
uncompressed messages are put together. What is a batch already is copied as it is. A log that has not been
taken in must not become a topic's by the way: to recovery its messages are no batches, and would be cut off
(`begins_with_messages`).
"""

from collections.abc import Iterator

from odradek.storage.batches import StoredBatch
from odradek.storage.disk import Disk, File, write_all
from odradek.storage.log_walk import Hole, batch_of, walk
from odradek.storage.recovery import base_offset_of
from odradek.storage.segment import LOG
from odradek.storage.validation import MAGIC_POSITION
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import LegacyMessage, batch_of_stored, iter_messages, stored_messages

__all__ = ["begins_with_messages", "convert_segment"]

BATCH_BYTES = 16_384
"""About so much of uncompressed messages goes into one batch, as a producer's default."""
_MAGIC_V2 = 2


def convert_segment(source: File, target: File, base_offset: int) -> int:
    """Write what the log file `source` holds to the empty file `target`; the bytes written.

    The file has been checked. Raises OSError, and KafkaError(CORRUPT_MESSAGE) if it is damaged all the same.
    """
    written = 0
    for batch in _batches(source, base_offset):
        write_all(target, written, [batch], len(batch))
        written += len(batch)
    target.sync()
    return written


def begins_with_messages(disk: Disk, directory: str) -> bool:
    """Whether the oldest segment of a partition's directory begins with a message of format v0 or v1. What is
    older stands before what is newer. Raises `OSError`.
    """
    bases = (offset for name in disk.list(directory) if (offset := base_offset_of(name, LOG)) is not None)
    first = min(bases, default=None)
    if first is None:
        return False
    file = disk.open(f"{directory}/{first:020d}{LOG}")
    try:
        if file.read(MAGIC_POSITION, 1) not in (b"\0", b"\1"):
            return False
        # A bit may have flipped in a batch, or zeros stand where nothing was written.
        item = next(walk(file.read, file.size(), first))
        return isinstance(item, StoredBatch) and item.magic < _MAGIC_V2
    finally:
        file.close()


def _batches(source: File, base_offset: int) -> Iterator[bytes | bytearray]:
    gathered = _Gathered()
    for item in walk(source.read, source.size(), base_offset):
        if isinstance(item, Hole):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, item.why)
        stored = batch_of(item)
        content = source.read(stored.position, stored.size_bytes)
        if stored.magic == _MAGIC_V2:
            yield from gathered.drain()
            yield content
            continue
        (message,) = iter_messages(content)
        if message.compression:
            yield from gathered.drain()
            yield batch_of_stored(stored_messages(message), message)
            continue
        if not gathered.takes(message, stored):
            yield from gathered.drain()
        gathered.add(message, stored)
    yield from gathered.drain()


class _Gathered:
    """Uncompressed messages that will be one batch."""

    def __init__(self) -> None:
        self._messages: list[LegacyMessage] = []
        self._size_bytes = 0

    def takes(self, message: LegacyMessage, stored: StoredBatch) -> bool:
        """Whether it goes with those before it. One time of append is one batch's."""
        if not self._messages:
            return True
        first = self._messages[0]
        if self._size_bytes + stored.size_bytes > BATCH_BYTES:
            return False
        if message.uses_log_append_time or first.uses_log_append_time:
            return (message.uses_log_append_time, message.timestamp) == (
                first.uses_log_append_time,
                first.timestamp,
            )
        return True

    def add(self, message: LegacyMessage, stored: StoredBatch) -> None:
        self._messages.append(message)
        self._size_bytes += stored.size_bytes

    def drain(self) -> Iterator[bytearray]:
        messages, self._messages, self._size_bytes = self._messages, [], 0
        if messages:
            yield batch_of_stored(messages, messages[0])
