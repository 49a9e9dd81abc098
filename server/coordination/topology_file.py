"""The file with the descriptions of topologies (KIP-1331) that this node has been sent.

`topology-descriptions` in the first data directory has all of them, with a checksum. It is written whole
under another name and renamed, away from the event loop. A damaged file is reported and left until the next
write: members are asked for their descriptions again.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.config.os_reason import reason_of
from odradek.coordinator.streams.descriptions import (
    Failure,
    StoredDescription,
    TopologyDescriptions,
)
from odradek.storage.disk import read_file, replace_file
from odradek.wire.checksums import crc32c

if TYPE_CHECKING:
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.streams.descriptions import Done
    from odradek.storage.disk import Disk
    from odradek.wire.work import Work

FILE_NAME = "topology-descriptions"
_MAGIC = b"topology"
_HEAD = struct.Struct(">8sII")
"""Magic, CRC-32C of what follows, number of entries."""
_ENTRY = struct.Struct(">iII")
"""Epoch of the topology, lengths of the group's id and of the description, which follow."""

logger = logging.getLogger("odradek.coordinators")


def open_descriptions(disk: Disk, path: str, saves: WorkQueue) -> TopologyDescriptions:
    """The descriptions in the file, which is written anew with each change."""

    def writing(descriptions: Mapping[str, StoredDescription]) -> Work[None]:
        yield lambda: replace_file(disk, path, encoded(descriptions))

    def save(descriptions: Mapping[str, StoredDescription], then: Done) -> None:
        def failed(error: Exception) -> None:
            logger.error("%s was not written: %s", path, error)
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            then(Failure(f"The description was not written: {reason}"))

        saves.run(writing(descriptions), lambda _: then(None), failed)

    return TopologyDescriptions(_read(disk, path), save)


def _read(disk: Disk, path: str) -> Mapping[str, StoredDescription]:
    try:
        descriptions = decoded(read_file(disk, path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        logger.warning("%s cannot be read, members are asked again: %s", path, error.strerror or error)
        return {}
    if descriptions is None:
        logger.warning("%s is damaged, members are asked again", path)
        return {}
    return descriptions


def encoded(descriptions: Mapping[str, StoredDescription]) -> bytes:
    parts: list[bytes] = []
    for group_id, (epoch, body) in descriptions.items():
        name = group_id.encode("utf-8", "surrogatepass")
        parts += (_ENTRY.pack(epoch, len(name), len(body)), name, body)
    content = b"".join(parts)
    return _HEAD.pack(_MAGIC, crc32c(content), len(descriptions)) + content


def decoded(data: bytes) -> Mapping[str, StoredDescription] | None:
    """None for a damaged file."""
    if len(data) < _HEAD.size:
        return None
    magic, checksum, count = _HEAD.unpack_from(data)
    if magic != _MAGIC or checksum != crc32c(data[_HEAD.size :]):
        return None
    descriptions, position = {}, _HEAD.size
    for _ in range(count):
        epoch, name_size, body_size = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        name = data[position : position + name_size].decode("utf-8", "surrogatepass")
        position += name_size
        descriptions[name] = StoredDescription(epoch, data[position : position + body_size])
        position += body_size
    return descriptions
