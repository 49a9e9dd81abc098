"""The settings and partitions of a topic out of the metadata log of a KRaft cluster, which is in one of the
log directories of a node.

`__cluster_metadata-0` holds, in record batches, what a controller has decided; a snapshot (`.checkpoint`)
sums up what was before its offset. Four kinds of record matter here: TopicRecord (2), PartitionRecord (3) and
RemoveTopicRecord (9), which takes a topic's partitions and settings with it, and ConfigRecord (4). A record's
value is the version of the frame (1), the kind and the version of the record, as unsigned varints, then
fields in the flexible encoding (KIP-482).

Sources: `AbstractApiMessageSerde.java`, `TopicRecord.json`, `PartitionRecord.json`, `RemoveTopicRecord.json`,
`ConfigRecord.json`.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.segment_paths import LOG, base_offset_of
from odradek.storage.recovery.log_walk import Hole, walk
from odradek.wire.errors import KafkaError
from odradek.wire.records import iter_records

__all__ = ["METADATA_DIRECTORY", "KafkaTopic", "find_topic"]

METADATA_DIRECTORY = "__cluster_metadata-0"
_SNAPSHOT = ".checkpoint"
_FRAME_VERSION = 1
_TOPIC, _PARTITION, _CONFIG, _REMOVE_TOPIC = 2, 3, 4, 9
_RESOURCE_TOPIC = 2


class KafkaTopic(NamedTuple):
    """What a cluster's metadata say of a topic."""

    name: str
    settings: dict[str, str]
    """Those of its own."""
    partitions: set[int]


def find_topic(log_directory: str, name: str) -> KafkaTopic | None:
    """What is known of the topic; None when the cluster's metadata are not there, or do not have it.

    Raises ValueError when they cannot be read, and OSError.
    """
    directory = os.path.join(log_directory, METADATA_DIRECTORY)
    if not os.path.isdir(directory):
        return None
    topic = KafkaTopic(name, {}, set())
    topic_id = None
    try:
        for value in _values(directory):
            fields = _Fields(value)
            if fields.varint() != _FRAME_VERSION:
                raise ValueError("a record has a frame of an unknown version")
            kind, _ = fields.varint(), fields.varint()
            if kind == _TOPIC:
                one, one_id = fields.text(), fields.take(16)
                topic_id = one_id if one == name else topic_id
            elif kind == _PARTITION:
                index, one_id = int.from_bytes(fields.take(4)), fields.take(16)
                if one_id == topic_id:
                    topic.partitions.add(index)
            elif kind == _REMOVE_TOPIC:
                if fields.take(16) == topic_id:
                    topic_id = None
                    topic.settings.clear()
                    topic.partitions.clear()
            elif kind == _CONFIG:
                _take_setting(fields, topic)
    except (KafkaError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    return None if topic_id is None else topic


def _take_setting(fields: "_Fields", topic: KafkaTopic) -> None:
    resource, owner, name, text = fields.take(1)[0], fields.text(), fields.text(), fields.text()
    if resource != _RESOURCE_TOPIC or owner != topic.name or name is None:
        return
    if text is None:
        topic.settings.pop(name, None)
    else:
        topic.settings[name] = text


def _values(directory: str) -> Iterator[bytes]:
    """The values of all records, in their order: of the newest snapshot, and of the log behind it.

    A controller numbers its records without a gap. What is torn at the end of the log was never decided.
    """
    names = sorted(os.listdir(directory))
    snapshots = [name for name in names if name.endswith(_SNAPSHOT)]
    due = 0
    if snapshots:
        due = int(snapshots[-1].partition("-")[0])
        for found in _sound_in(os.path.join(directory, snapshots[-1]), 0):
            if isinstance(found, str):
                raise ValueError(found)
            yield from _values_of(found, 0)
    damage = ""
    for name in names:
        base_offset = base_offset_of(name, LOG)
        if base_offset is None:
            continue
        for found in _sound_in(os.path.join(directory, name), base_offset):
            if isinstance(found, str):
                damage = damage or found
            elif found.batch.base_offset > due:
                gap = f"the records from offset {due} to {found.batch.base_offset - 1} are not there"
                raise ValueError(f"{damage or name}: {gap}")
            else:
                damage = ""
                if found.batch.last_offset >= due:
                    yield from _values_of(found, due)
                    due = found.batch.last_offset + 1


class _Found(NamedTuple):
    """A sound batch, and the bytes that it is."""

    batch: StoredBatch
    content: bytes


def _sound_in(path: str, base_offset: int) -> Iterator[_Found | str]:
    """The batches of a file; a text for what is none, or is one whose header is wrong."""
    with open(path, "rb") as file:

        def read(position: int, size_bytes: int) -> bytes:
            return os.pread(file.fileno(), size_bytes, position)

        for item in walk(read, os.fstat(file.fileno()).st_size, base_offset):
            if isinstance(item, StoredBatch):
                yield _Found(item, read(item.position, item.size_bytes))
            else:
                position, what = (
                    (item.position, item.why) if isinstance(item, Hole) else (item.batch.position, item.what)
                )
                yield f"{os.path.basename(path)} at byte {position}: {what}"


def _values_of(found: _Found, start: int) -> Iterator[bytes]:
    if not found.batch.is_control:
        for record in iter_records(found.content):
            if record.offset >= start and record.value:
                yield record.value


class _Fields:
    """Reads one field after the other; ValueError where there is none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size_bytes: int) -> bytes:
        taken = self._data[self._position : self._position + size_bytes]
        if len(taken) < size_bytes:
            raise ValueError("a record is cut short")
        self._position += size_bytes
        return taken

    def varint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number is too long")

    def text(self) -> str | None:
        size_bytes = self.varint()
        return None if size_bytes == 0 else self.take(size_bytes - 1).decode()
