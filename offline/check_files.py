"""The checks of single files of a data directory: `meta.properties`, checkpoints and the metadata log."""

import os
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from odradek.config import options
from odradek.config.properties import parse_properties
from odradek.coordinator.client_metrics.subscriptions import check_subscription
from odradek.coordinator.cluster.view import ClusterView
from odradek.offline.check_partition import DAMAGE, NOTE, Finding
from odradek.server.metadata import meta_properties
from odradek.storage import checkpoints
from odradek.storage.directories.data_directory import Key
from odradek.storage.directories.store import key_of
from odradek.storage.disk import Disk
from odradek.wire.errors import KafkaError
from odradek.wire.schema import uuid_from_text

NO_CHECKPOINT = "it is not a checkpoint of version 0 with as many lines as its count"


def parse_offsets(data: bytes) -> dict[Key, int] | str:
    """Offset by topic and partition of a checkpoint, or its defect. Kafka first makes an empty file."""
    lines = checkpoints.decode_lines(data) if data else []
    if lines is None:
        return NO_CHECKPOINT
    offsets: dict[Key, int] = {}
    for fields in lines:
        try:
            topic, index, offset = fields[0], int(fields[1]), int(fields[2])
        except (IndexError, ValueError):
            return f"{' '.join(fields)!r} is not a topic, a partition and an offset"
        if len(fields) != 3 or index < 0 or offset < 0:
            return f"{' '.join(fields)!r} is not a topic, a partition and an offset"
        offsets[topic, index] = offset
    return offsets


def readable_offsets(data: bytes) -> dict[Key, int]:
    """The readable lines of a damaged checkpoint."""
    offsets: dict[Key, int] = {}
    for line in data.decode("utf-8", "replace").splitlines()[2:]:
        one = parse_offsets(checkpoints.encode_lines([line]))
        if not isinstance(one, str):
            offsets |= one
    return offsets


def check_identity(directory: str) -> Iterator[Finding]:
    """The findings of `meta.properties`."""
    path = f"{directory}/{meta_properties.FILE_NAME}"
    if not os.path.exists(path):
        if any(key_of(name) for name in os.listdir(directory)):
            yield Finding(NOTE, path, None, "it is missing", "a start makes a new one, with a new cluster id")
        return
    with open(path, "rb") as file:
        content = file.read()
    mended = meta_properties.mended(content)
    if mended != content:
        what = "its checksum does not fit"
        consequence = "one bit is wrong: a start corrects it"
        if not mended and meta_properties.is_member(directory):
            consequence = (
                "a node of a cluster does not start with it: restore the file from a backup, or empty the "
                "directory so that its replicas are copied again"
            )
        elif not mended:
            consequence = "a start makes a new one, with a new cluster id: restore the file from a backup"
        yield Finding(DAMAGE, path, None, what, consequence)
    elif identity_of(directory) is None:
        consequence = "a broker does not start with it: restore the file from a backup"
        yield Finding(DAMAGE, path, None, "version, cluster.id or node.id is missing", consequence)


def directory_id_of(directory: str) -> bytes | None:
    """Id of a data directory; None if its file does not have one."""
    try:
        return uuid_from_text(_properties_of(directory).get("directory.id", ""))
    except ValueError:
        return None


def _properties_of(directory: str) -> Mapping[str, str]:
    """The properties of a data directory; none if its file cannot be read."""
    try:
        with open(f"{directory}/{meta_properties.FILE_NAME}", "rb") as file:
            return parse_properties(meta_properties.mended(file.read()))
    except (OSError, ValueError):
        return {}


def identity_of(directory: str) -> tuple[str, str] | None:
    """Cluster and node of a data directory; None if its file does not have them."""
    properties = _properties_of(directory)
    node_id = properties.get("node.id", properties.get("broker.id", ""))
    cluster_id = properties.get("cluster.id", "")
    if properties.get("version") not in ("0", "1") or not cluster_id or not node_id.isdecimal():
        return None
    return cluster_id, node_id


class LoggedMetadata(NamedTuple):
    """The content of a metadata log: topics, and the ids of those that are deleted."""

    view: ClusterView
    deletions: Collection[bytes]


def read_metadata(disk: Disk, path: str) -> LoggedMetadata | None:
    """The content of the metadata log at `path`, as a start finds it; nothing is changed. None: batches are
    lost. Raises OSError, and InconsistentMetadata for records that contradict each other."""
    from odradek.coordinator.cluster.metadata_image import MetadataImage
    from odradek.server.metadata.metadata_log_opening import examine
    from odradek.wire.messages.metadata_records import RemoveTopicRecord

    found = examine(disk, path)
    if found.is_lost:
        return None
    image, removed = MetadataImage(-1, ""), set[bytes]()
    for records in [] if found.snapshot is None else found.snapshot.records():
        for record in records:
            image.replay(record)
    end_offset = found.base.end_offset if found.base is not None else 0
    for batch in found.survey.batches:
        if batch.header.last_offset < end_offset:
            continue
        for record in batch.records():
            image.replay(record)
            if isinstance(record, RemoveTopicRecord):
                removed.add(record.topic_id)
    image.publish()
    return LoggedMetadata(image.view, removed.difference(image.view.topic_names))


def check_settings(path: str, view: ClusterView) -> Iterator[Finding]:
    """The findings of settings of topics, groups and subscriptions that a broker refuses; `path` is the
    metadata log."""
    for topic in view.topics.values():
        try:
            options.parse_topic_configs(topic.configs)
        except KafkaError as error:
            what = f"a setting of topic {topic.name} is refused: {error.message}"
            yield Finding(DAMAGE, path, None, what, "its partitions cannot be opened")
    for group_id, configs in view.group_configs.items():
        try:
            options.parse_group_configs(configs)
        except KafkaError as error:
            what = f"a setting of group {group_id} is refused: {error.message}"
            yield Finding(DAMAGE, path, None, what, "the group cannot be served: delete the setting")
    for name, configs in view.client_metrics_configs.items():
        try:
            check_subscription(name, configs)
        except KafkaError as error:
            what = f"a setting of the subscription {name} to client metrics is refused: {error.message}"
            yield Finding(DAMAGE, path, None, what, "the subscription has no effect: delete the setting")
