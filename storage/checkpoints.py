"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata, the file of a clean
shutdown.

`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`, `log-start-offset-checkpoint`,
`cleaner-offset-checkpoint` (one line each "topic partition offset") and `leader-epoch-checkpoint` ("epoch
offset") begin with a version line, 0, and a line with the number of entries. A new file is written under
another name and renamed, so that a crash leaves the old file or the new one. A damaged file is ignored and
reported: its content can be found again in the logs.

The last line ends with a checksum of all bytes before it: 32 blanks, a tab for each set bit of the CRC-32C
and a space for each other bit, the lowest bit first. (Kafka splits these lines at white space and drops empty
fields at the end.) A file without a checksum, as Kafka writes it, is accepted. A file without entries has no
last line and no checksum.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import TypeVar

from odradek.storage.disk import Disk, read_file, replace_file, write_all
from odradek.wire.checksums import crc32c

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
FIRST_DIRTY = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
UNKNOWN_BROKER_EPOCH = -1
"""For a single node, which has no broker epoch, and for an unknown one."""

_Facts = TypeVar("_Facts")
_SET, _NOT_SET = b"\t "
_BLANKS = b"\t "


def sealed(content: bytes) -> bytes:
    """`content`, which does not end with white space, and its checksum."""
    checksum = crc32c(content)
    return content + bytes(_SET if checksum >> bit & 1 else _NOT_SET for bit in range(32))


def unsealed(data: bytes) -> bytes | None:
    """The content of a file that may end with a checksum; None when it has a wrong one."""
    data = data.removesuffix(b"\n")
    content = data.rstrip(_BLANKS)
    return content if len(content) == len(data) or data == sealed(content) else None


def encode_lines(lines: list[str]) -> bytes:
    content = "\n".join(["0", str(len(lines)), *lines]).encode()
    return (sealed(content) if lines else content) + b"\n"


def decode_lines(data: bytes) -> list[list[str]] | None:
    """The fields of each entry; None when the file is damaged."""
    content = unsealed(data)
    if content is None:
        return None
    lines = content.decode("utf-8", "replace").split("\n")
    if len(lines) < 2 or lines[0].strip() != "0" or not lines[1].strip().isdecimal():
        return None
    count = int(lines[1])
    entries = [line.split() for line in lines[2:] if line.strip()]
    return entries if len(entries) == count else None


def write_offsets(disk: Disk, path: str, offsets: dict[tuple[str, int], int]) -> None:
    """Write a checkpoint of one offset for each (topic, partition)."""
    replace_file(disk, path, encode_offsets(offsets))


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """The content of the file of `write_offsets`."""
    return encode_lines([f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()])


def read_offsets(disk: Disk, path: str) -> dict[tuple[str, int], int] | None:
    """Read a checkpoint; empty when there is no file, None when the file is damaged.

    Kafka makes its files without a byte, and writes a file first when it has an entry: that of its cleaner
    may stay so for ever.
    """
    try:
        data = read_file(disk, path)
        entries = decode_lines(data) if data else []
        if entries is None:
            return None
        return {(topic, int(index)): int(offset) for topic, index, offset in entries}
    except FileNotFoundError:
        return {}
    except ValueError:
        return None


def write_facts(disk: Disk, path: str, facts: Mapping[tuple[str, int], tuple[int, ...]]) -> None:
    """Write a checkpoint of several numbers for each (topic, partition)."""
    replace_file(disk, path, encode_facts(facts))


def encode_facts(facts: Mapping[tuple[str, int], tuple[int, ...]]) -> bytes:
    """The content of the file of `write_facts`."""
    lines = [" ".join(map(str, (topic, index, *numbers))) for (topic, index), numbers in facts.items()]
    return encode_lines(lines)


def read_facts(
    disk: Disk, path: str, of_numbers: Callable[..., _Facts]
) -> dict[tuple[str, int], _Facts] | None:
    """Read a checkpoint; empty when there is no file, None when the file is damaged."""
    try:
        entries = decode_lines(read_file(disk, path))
        if entries is None:
            return None
        return {(topic, int(index)): of_numbers(*map(int, numbers)) for topic, index, *numbers in entries}
    except FileNotFoundError:
        return {}
    except (TypeError, ValueError):
        return None


def write_leader_epochs(disk: Disk, path: str, entries: list[tuple[int, int]], *, sync: bool = True) -> None:
    replace_file(disk, path, encode_leader_epochs(entries), sync=sync)


def encode_leader_epochs(entries: list[tuple[int, int]]) -> bytes:
    """The content of the file of `write_leader_epochs`."""
    return encode_lines([f"{epoch} {start}" for epoch, start in entries])


def read_leader_epochs(disk: Disk, path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset), ascending; None when there is no such file or it is damaged."""
    try:
        lines = decode_lines(read_file(disk, path))
        if lines is None:
            return None
        entries = [(int(epoch), int(start)) for epoch, start in lines]
    except (FileNotFoundError, ValueError):
        return None
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if epoch >= next_epoch or start >= next_start:
            return None
    return entries


def write_partition_metadata(
    disk: Disk, path: str, topic_id: bytes, *, directory_is_new: bool = False
) -> None:
    """Write the 16 bytes of a topic id as Kafka does: unpadded, URL-safe base64.

    The checksum has a line of its own: Kafka reads two lines, with blanks behind the id as a part of it.

    Not synced: the cluster's metadata has the id too, and a topic may have ten thousand of these files. In a
    new directory there is no old file to protect: half a file has the same effect as none. But a disk that is
    full leaves none: half a file is damage for `odradek check`.
    """
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    content = sealed(f"version: 0\ntopic_id: {text}\n".encode())
    if not directory_is_new:
        replace_file(disk, path, content, sync=False)
        return
    try:
        file = disk.open(path, create=True)
        try:
            write_all(file, 0, [content], len(content))
        finally:
            file.close()
    except OSError:
        with suppress(OSError):
            disk.remove(path)
        raise


def read_partition_metadata(disk: Disk, path: str) -> bytes | None:
    """The topic id in a partition's directory; None when the file is missing or damaged."""
    try:
        content = unsealed(read_file(disk, path))
    except FileNotFoundError:
        return None
    if content is None:
        return None
    text = content.decode("ascii", "replace")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    value = fields.get("topic_id", "").strip()
    try:
        topic_id = base64.urlsafe_b64decode(value + "==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    replace_file(disk, f"{directory}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(broker_epoch))


def encode_clean_shutdown(broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> bytes:
    """The content of the file of `write_clean_shutdown`."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def previous_broker_epoch(disk: Disk, directories: Iterable[str]) -> int:
    """The broker epoch of the last clean stop; `directories` are all `log.dirs` of the broker.
    `UNKNOWN_BROKER_EPOCH` if the stop was not clean in each directory, or the epochs differ.

    To be read before the start removes the files.
    Source: Kafka's LogManager.readBrokerEpochFromCleanShutdownFiles.
    """
    epochs = {_broker_epoch(disk, directory) for directory in directories}
    return epochs.pop() if len(epochs) == 1 else UNKNOWN_BROKER_EPOCH


def _broker_epoch(disk: Disk, directory: str) -> int:
    import json  # only nodes of a cluster need it

    try:
        content = json.loads(read_file(disk, f"{directory}/{CLEAN_SHUTDOWN}"))
        epoch = content["brokerEpoch"]
    except (OSError, ValueError, TypeError, LookupError):
        return UNKNOWN_BROKER_EPOCH
    return epoch if type(epoch) is int else UNKNOWN_BROKER_EPOCH


def take_clean_shutdown(disk: Disk, directory: str) -> bool:
    """Whether the last stop was clean. Removes the file durably, before anything else is written."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return False
    disk.remove(path)
    disk.sync_directory(directory)
    return True
