"""Segments with messages of formats v0 and v1 (from before Kafka 0.11), rewritten as record batches.

Kafka still reads such segments; Odradek converts them once, at the import. Offsets, timestamps, keys, values
and the compression stay; a compressed wrapper becomes one batch, uncompressed messages are combined into
batches. Existing batches are copied.
"""

from collections.abc import Iterator

from odradek.storage.disk import File, write_all
from odradek.storage.log.batches import StoredBatch
from odradek.storage.recovery.log_walk import Hole, batch_of, walk
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import LegacyMessage, batch_of_stored, iter_messages, stored_messages

BATCH_BYTES = 16_384
"""Bytes of uncompressed messages in one batch, as a producer's default."""
_MAGIC_V2 = 2


def convert_segment(source: File, target: File, base_offset: int) -> int:
    """Write the records of the log file `source` to the empty file `target`; returns the bytes written.

    The file was checked before. Raises OSError, and KafkaError(CORRUPT_MESSAGE) if it is damaged
    nevertheless.
    """
    written = 0
    for batch in _batches(source, base_offset):
        write_all(target, written, [batch], len(batch))
        written += len(batch)
    target.sync()
    return written


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
        """Whether a message fits into the same batch. A batch has one log append time."""
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
