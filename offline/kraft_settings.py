"""The settings and partitions of a topic from the metadata log of a KRaft cluster, in a log directory of a
node.

`__cluster_metadata-0` has the controller's records in record batches; a snapshot (`.checkpoint`) has the
state before its offset. Five types of record are read (`wire/messages/metadata_records.py`): TopicRecord,
PartitionRecord, PartitionChangeRecord for the leader epoch, RemoveTopicRecord, which also removes the topic's
partitions and settings, and ConfigRecord. Others are not decoded, so that a log of a newer Kafka can be read.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.segment_paths import LOG, base_offset_of
from odradek.storage.recovery.log_walk import Hole, walk
from odradek.wire.errors import KafkaError, MalformedMessage
from odradek.wire.messages.metadata_records import (
    NO_LEADER_CHANGE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownMetadataRecord,
    decode_metadata_record,
    frame_of,
)
from odradek.wire.records import iter_records

METADATA_DIRECTORY = "__cluster_metadata-0"
_SNAPSHOT = ".checkpoint"
_DECODED = {
    one.record_type
    for one in (TopicRecord, PartitionRecord, PartitionChangeRecord, ConfigRecord, RemoveTopicRecord)
}


class KafkaTopic(NamedTuple):
    """A topic in the metadata of a cluster."""

    name: str
    settings: dict[str, str]
    """The topic's own settings."""
    leader_epochs: dict[int, int]
    """Leader epoch of each partition, by its number."""


def find_topic(log_directory: str, name: str) -> KafkaTopic | None:
    """The topic; None if the cluster's metadata are missing or do not have it. Raises ValueError if they
    cannot be read, and OSError.
    """
    directory = os.path.join(log_directory, METADATA_DIRECTORY)
    if not os.path.isdir(directory):
        return None
    replay = _Replay(KafkaTopic(name, {}, {}))
    try:
        for value in _values(directory):
            if frame_of(value).record_type in _DECODED:
                replay.add(decode_metadata_record(value))
    except (KafkaError, UnknownMetadataRecord) as error:
        raise ValueError(str(error)) from error
    except MalformedMessage as error:
        raise ValueError(f"a record is cut short or damaged: {error}") from error
    return None if replay.topic_id is None else replay.topic


class _Replay:
    """The state of one topic after the records so far."""

    def __init__(self, topic: KafkaTopic) -> None:
        self.topic = topic
        self.topic_id: bytes | None = None

    def add(self, record: MetadataRecord) -> None:
        if isinstance(record, TopicRecord):
            if record.name == self.topic.name:
                self.topic_id = record.topic_id
        elif isinstance(record, PartitionRecord):
            if record.topic_id == self.topic_id:
                self.topic.leader_epochs[record.partition_id] = record.leader_epoch
        elif isinstance(record, PartitionChangeRecord):
            if record.topic_id == self.topic_id and record.leader != NO_LEADER_CHANGE:
                self.topic.leader_epochs[record.partition_id] += 1
        elif isinstance(record, RemoveTopicRecord):
            if record.topic_id == self.topic_id:
                self.topic_id = None
                self.topic.settings.clear()
                self.topic.leader_epochs.clear()
        elif isinstance(record, ConfigRecord):
            self._set(record)

    def _set(self, record: ConfigRecord) -> None:
        if record.resource_type != TOPIC_RESOURCE or record.resource_name != self.topic.name:
            return
        if record.value is None:
            self.topic.settings.pop(record.name, None)
        else:
            self.topic.settings[record.name] = record.value


def _values(directory: str) -> Iterator[bytes]:
    """The values of all records in order: of the newest snapshot, and of the log after it.

    A controller numbers its records without a gap. A torn end of the log was never committed.
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
    """A sound batch, and its bytes."""

    batch: StoredBatch
    content: bytes


def _sound_in(path: str, base_offset: int) -> Iterator[_Found | str]:
    """The batches of a file; a text for each damaged part."""
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
