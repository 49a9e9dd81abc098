"""`meta.properties`: the cluster and node of a log directory, and how a node alone claims its directories.

Each log directory has one, in Kafka's format of version 1 (`MetaProperties`, KIP-858): the cluster, the node,
and an id of the directory itself. It is made when the directory is first used and never changed. A directory
of another node or cluster is refused before anything in it is touched. So is one in which Kafka has data,
unless the metadata log is there, whose only voter is this node. One that cannot be used is left out as long
as there is another.

Odradek's file ends with a checksum in a comment, unlike Kafka's: a directory that Kafka's tools have
formatted gets the checksum with its first use, before the first partition.
"""

import logging
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.config.properties import parse_properties
from odradek.storage.directories.store import key_of
from odradek.wire.schema import uuid_to_text

FILE_NAME = "meta.properties"
MEMBER = "odradek.member"
"""A property that Kafka passes over: the directory belongs to a node of a cluster, see
`server/metadata/member_directories.py`."""
METADATA_LOG = "__cluster_metadata-0"
"""Directory of the metadata log, of Kafka and of Odradek."""
OLD_STORE = "odradek-metadata.db"
"""File of the metadata of a node alone in an earlier version, from which `migration.py` takes them over."""
_CHECKSUM_MARK = b"#crc32="
"""The last line, a comment for Kafka: the checksum of the lines above."""
_CHECKSUM_BYTES = len(_CHECKSUM_MARK) + len("89abcdef\n")

logger = logging.getLogger("odradek.data")


@dataclass(frozen=True, slots=True)
class Identity:
    cluster_id: str
    node_id: int
    directory_ids: dict[str, str]
    """By the path of the log directory, as given."""
    failures: dict[str, str] = field(default_factory=dict)
    """The reasons why directories cannot be used, by path."""


class Unusable(ConfigError):
    """A directory cannot be used because of its disk."""


class _Found(NamedTuple):
    """The content of a directory's file; empty if there is none."""

    properties: dict[str, str]
    is_ours: bool


def claim_directories(
    directories: Iterable[str],
    *,
    node_id: int,
    cluster_id: str | None = None,
    new_cluster_id: str | None = None,
    metadata_directory: str | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Identity:
    """Make the directories where they are missing, and read or write their `meta.properties`.

    `cluster_id` is the configured one; None takes the id of the directories, else `new_cluster_id`, else a
    random one. `metadata_directory` has the metadata log; None: the first one. Raises
    ConfigError: a directory belongs to another cluster, node or program, or none can be made and written.
    """
    directories = list(directories)
    with_metadata = metadata_directory or directories[0]
    failures: dict[str, str] = {}
    found: dict[str, _Found] = {}
    for directory in dict.fromkeys((*directories, with_metadata)):
        try:
            found[directory] = _read(directory, with_metadata)
        except Unusable as error:
            failures[directory] = str(error)
            last = error
    if not found:
        raise last
    known = {directory: one.properties for directory, one in found.items() if one.properties}
    for directory, properties in known.items():
        check_node(directory, properties, node_id)
        theirs = properties["cluster.id"]
        if cluster_id is not None and theirs != cluster_id:
            raise ConfigError(
                f"Directory {directory} of log.dirs holds data of cluster {theirs}, not of {cluster_id}: "
                "name another directory, or leave --cluster-id and CLUSTER_ID out."
            )
        cluster_id = theirs
    cluster_id = cluster_id or new_cluster_id or new_id(random_bytes)
    directory_ids: dict[str, str] = {}
    for directory, (properties, is_ours) in found.items():
        directory_id = properties.get("directory.id") or new_id(random_bytes)
        if not is_ours:
            try:
                write(directory, cluster_id, node_id, directory_id)
            except Unusable as error:
                if len(failures) + 1 == len(failures.keys() | found.keys()):
                    raise
                failures[directory] = str(error)
                continue
        directory_ids[directory] = directory_id
    return Identity(cluster_id, node_id, directory_ids, failures)


def is_kafkas(directory: str) -> bool:
    """Whether Apache Kafka has data there, and Odradek has not taken them over: the metadata of its cluster,
    or partitions, in a directory whose `meta.properties` is Kafka's. Raises OSError.
    """
    entries = set(os.listdir(directory))
    # The first directory of Odradek has the metadata, even if Kafka's tools formatted it.
    if FILE_NAME not in entries or OLD_STORE in entries:
        return False
    with open(os.path.join(directory, FILE_NAME), "rb") as file:
        content = file.read()
    if has_our_mark(content) or not _parsed(content):
        return False
    return any(key_of(name) and os.path.isdir(os.path.join(directory, name)) for name in entries)


def has_our_mark(content: bytes) -> bool:
    """Whether a file has Odradek's checksum line, in which one bit may be wrong."""
    if _CHECKSUM_MARK in content:
        return True
    mark = content[-_CHECKSUM_BYTES:][: len(_CHECKSUM_MARK)]
    wrong_bits = int.from_bytes(mark) ^ int.from_bytes(_CHECKSUM_MARK)
    return wrong_bits.bit_count() <= 1


def _parsed(content: bytes) -> dict[str, str]:
    """The content of a file; empty if it does not have the cluster and node."""
    try:
        properties = parse_properties(content)
    except ValueError:
        return {}
    is_whole = properties.get("version") in ("0", "1") and properties.get("cluster.id")
    return properties if is_whole else {}


def _read(directory: str, with_metadata: str) -> _Found:
    """The content of the directory's file. Creates the directory if it is missing."""
    try:
        os.makedirs(directory, exist_ok=True)
        theirs = is_kafkas(directory)
    except OSError as error:
        raise unusable(error.filename or directory, error) from None
    check_writable(directory)
    if theirs and not os.path.isdir(os.path.join(with_metadata, METADATA_LOG)):
        raise ConfigError(
            f"Directory {directory} of log.dirs was written by Apache Kafka, and the metadata of its cluster "
            f"({METADATA_LOG}) are not in {with_metadata}: name another directory, and take topics into it "
            f"with odradek import-log {directory} --topic NAME --data-dir THERE."
        )
    path = os.path.join(directory, FILE_NAME)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return _Found({}, is_ours=False)
    except OSError as error:
        raise unusable(path, error) from None
    right = mended(content)
    _refuse_member(directory, right or content)
    if right != content:
        logger.error("%s was damaged, and has been %s", path, "mended" if right else "made anew")
        return _Found(parse_properties(right), is_ours=bool(right))
    properties = _parsed(content)
    if not properties:
        raise ConfigError(f"{path} is damaged: restore it, or name another directory in log.dirs.")
    return _Found(properties, has_our_mark(content) and "directory.id" in properties)


def check_writable(directory: str) -> None:
    """Raises `Unusable`."""
    if not os.access(directory, os.W_OK | os.X_OK):
        advice = "its file system is read-only" if _is_read_only(directory) else "change its owner or mode"
        raise Unusable(f"Directory {directory} of log.dirs cannot be written: {advice}.")


def _refuse_member(directory: str, content: bytes) -> None:
    if MEMBER.encode() in content:
        raise ConfigError(
            f"Directory {directory} of log.dirs belongs to a node of a cluster: start it with "
            "process.roles=broker and with the controllers in controller.quorum.bootstrap.servers, or name "
            "another directory."
        )


def _is_read_only(directory: str) -> bool:
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def mended(content: bytes) -> bytes:
    """A file's content by its checksum, with one flipped bit mended. Empty if it is damaged further. A file
    without a checksum, as Kafka writes it, is taken as it is.
    """
    head, mark, told = content.rpartition(_CHECKSUM_MARK)
    if not mark:
        return content
    checksum = b"%08x\n" % zlib.crc32(head)
    if sum(map(int.__ne__, checksum, told)) <= 1 and len(told) == len(checksum):
        return content  # or the checksum itself is damaged
    for place in range(8 * len(head)):
        other = bytearray(head)
        other[place // 8] ^= 1 << place % 8
        if b"%08x\n" % zlib.crc32(other) == told:
            return bytes(other) + mark + told
    return b""


def is_ours(directory: str) -> bool:
    """Whether Odradek has written the file of a directory, and not Kafka."""
    try:
        with open(os.path.join(directory, FILE_NAME), "rb") as file:
            return has_our_mark(file.read())
    except OSError:
        return False


def is_member(directory: str) -> bool:
    """Whether a node of a cluster has written the file of a directory."""
    try:
        with open(os.path.join(directory, FILE_NAME), "rb") as file:
            content = file.read()
    except OSError:
        return False
    return MEMBER.encode() in (mended(content) or content)


def check_node(directory: str, properties: Mapping[str, str], node_id: int) -> None:
    """ConfigError: the directory is another node's."""
    # Version 0 is of the time of ZooKeeper and says broker.id.
    theirs = properties.get("node.id", properties.get("broker.id"))
    if theirs != str(node_id):
        raise ConfigError(
            f"Directory {directory} of log.dirs holds data of node {theirs}, not of node.id={node_id}: "
            f"set node.id={theirs}, or name another directory."
        )


def write(
    directory: str, cluster_id: str, node_id: int, directory_id: str, *, for_member: bool = False
) -> None:
    """Write the file of a directory, with its checksum. Raises `Unusable`."""
    text = (
        "#\n"
        f"#{time.strftime('%a %b %d %H:%M:%S UTC %Y', time.gmtime())}\n"
        f"cluster.id={cluster_id}\n"
        f"directory.id={directory_id}\n"
        f"node.id={node_id}\n"
        "version=1\n"
    )
    if for_member:
        text += f"{MEMBER}=true\n"
    text += f"{_CHECKSUM_MARK.decode()}{zlib.crc32(text.encode('latin-1')):08x}\n"
    path = os.path.join(directory, FILE_NAME)
    try:
        with open(path + ".tmp", "w", encoding="latin-1") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unusable(path, error) from None


def new_id(random_bytes: Callable[[int], bytes]) -> str:
    """A random UUID (version 4) as text; not one that a command line would take for an option (as Kafka)."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = uuid_to_text(bytes(raw))
        if not text.startswith("-"):
            return text


def unusable(path: str, error: OSError) -> Unusable:
    is_file = isinstance(error, FileExistsError) or (
        isinstance(error, NotADirectoryError) and os.path.isfile(path)
    )
    reason = "it is a file and not a directory" if is_file else reason_of(error)
    return Unusable(f"{path} (log.dirs) cannot be used: {reason}.")
