"""The nodes of a Kafka cluster in ZooKeeper: their paths, and the JSON in them, both ways.

Texts are those of Kafka 3.9, the last release with ZooKeeper, which readers of 0.8.2 understand, too. Names
of users and clients are percent-encoded in paths. What others have written may be anything: the functions
that read raise ValueError with a sentence.

Source: ZkData.scala of Kafka 3.9, ZkUtils.scala of 0.8.2 to 1.1; seen at a 3.9.1 broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from odradek.coordinator.cluster.view import RECOVERED

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import PartitionView, QuotaEntity, TopicView

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONFIG_CHANGES = "/config/changes"
TOPIC_DELETIONS = "/admin/delete_topics"
REASSIGNMENT = "/admin/reassign_partitions"
ELECTION = "/admin/preferred_replica_election"
CONSUMERS = "/consumers"
CONFIG_KINDS = ("topics", "clients", "users", "brokers", "ips")
ROOTS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    TOPIC_DELETIONS,
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    *(f"/config/{kind}" for kind in CONFIG_KINDS),
)
"""Nodes that exist before all others, as old clients expect it."""
OLDEST_FOLDERS = ("/kafka07", "/kafka06")
"""Folders for clients of Kafka 0.7 and 0.6."""
MARK = "odradek"
"""A field that only our nodes of topics have: one without it is of a tool, and is a topic to be created."""
NO_ENDPOINT = (None, -1)


def is_open(path: str) -> bool:
    """Whether everybody may write there if nodes are protected: consumers keep their own below."""
    return path in (CONSUMERS, *(f"{folder}{CONSUMERS}" for folder in OLDEST_FOLDERS))


def is_secret(path: str) -> bool:
    """Whether nobody else may read there if nodes are protected."""
    return path.startswith(("/config/users", "/config/brokers"))


class Listening(NamedTuple):
    """An address at which clients reach a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str


# What we write


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def broker_path(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def broker(endpoints: Sequence[Listening], rack: str | None, now_ms: int) -> bytes:
    """Version 5. `host` and `port` are for clients that know PLAINTEXT alone."""
    plain = next(((one.host, one.port) for one in endpoints if one.security_protocol == "PLAINTEXT"), None)
    host, port = plain or NO_ENDPOINT
    return _json(
        {
            "features": {},
            "listener_security_protocol_map": {one.listener: one.security_protocol for one in endpoints},
            "endpoints": [f"{one.listener}://{_bracketed(one.host)}:{one.port}" for one in endpoints],
            **({} if rack is None else {"rack": rack}),
            "jmx_port": -1,
            "port": port,
            "host": host,
            "version": 5,
            "timestamp": str(now_ms),
        }
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def topic(view: TopicView, topic_id: str) -> bytes:
    """Version 3, and our mark."""
    partitions = view.partitions
    return _json(
        {
            "removing_replicas": {str(one.index): one.removing for one in partitions if one.removing},
            "partitions": {str(one.index): one.replicas for one in partitions},
            "topic_id": topic_id,
            "adding_replicas": {str(one.index): one.adding for one in partitions if one.adding},
            "version": 3,
            MARK: 1,
        }
    )


def partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def state_path(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def partition_state(partition: PartitionView, controller_epoch: int) -> bytes:
    recovery = partition.leader_recovery_state
    return _json(
        {
            "controller_epoch": controller_epoch,
            "leader": partition.leader,
            "version": 1,
            "leader_epoch": partition.leader_epoch,
            "isr": partition.isr,
            **({} if recovery == RECOVERED else {"leader_recovery_state": recovery}),
        }
    )


def controller(node_id: int, now_ms: int) -> bytes:
    return _json({"version": 2, "brokerid": node_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def cluster_id(value: str) -> bytes:
    return _json({"version": "1", "id": value})


def entity_config(configs: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(sorted(configs.items()))})


def topic_config_path(name: str) -> str:
    return f"/config/topics/{name}"


def broker_config_path(node_id: int | None) -> str:
    return f"/config/brokers/{'<default>' if node_id is None else node_id}"


_QUOTA_FOLDERS = {"user": "users", "client-id": "clients", "ip": "ips"}


def quota_path(entity: QuotaEntity) -> str:
    """The parts go from the user to the client."""
    parts = sorted(entity, key=lambda part: list(_QUOTA_FOLDERS).index(part[0]))
    return "/config/" + "/".join(f"{_QUOTA_FOLDERS[kind]}/{_quoted(kind, name)}" for kind, name in parts)


def _quoted(kind: str, name: str | None) -> str:
    """Name as Kafka writes it; but ZooKeeper takes no node with the name of a dot or two."""
    if name is None:
        return "<default>"
    if kind == "ip":
        return name
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="").replace("~", "%7E")


def offset_path(group: str, name: str, partition: int) -> str:
    """Path of a group's committed offset; its node has a bare number."""
    return f"{CONSUMERS}/{group}/offsets/{name}/{partition}"


# What others write


def _object(content: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{what} is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


def read_cluster_id(content: bytes) -> str:
    value = _text(_object(content, CLUSTER_ID).get("id"), f"the id of {CLUSTER_ID}")
    if not value:
        raise ValueError(f"{CLUSTER_ID} has no id")
    return value


class Assignment(NamedTuple):
    """Assignment of a topic."""

    replicas: Mapping[int, tuple[int, ...]]
    """By partition; the partitions are numbered from 0 without a gap."""
    is_ours: bool
    """Whether we have written the node."""


def read_topic(content: bytes) -> Assignment:
    found = _object(content, "the topic")
    partitions = found.get("partitions")
    if not isinstance(partitions, dict) or not partitions:
        raise ValueError("the topic has no partitions")
    replicas = {_index(key): _replicas(value) for key, value in partitions.items()}
    if sorted(replicas) != list(range(len(replicas))):
        raise ValueError("the partitions of the topic are not numbered from 0 without a gap")
    return Assignment(replicas, MARK in found)


def _text(value: object, what: str) -> str:
    """JSON also has texts that are no Unicode, which no request can hold."""
    if not isinstance(value, str) or not _is_unicode(value):
        raise ValueError(f"{what} is not text")
    return value


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _number(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError(f"{what} is not a number from 0 to 2147483647")
    return value


def _index(key: str) -> int:
    if not key.isascii() or not key.isdigit() or len(key) > 10:
        raise ValueError(f"{key!r} is not a partition")
    return _number(int(key), "a partition")


def _replicas(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("a partition has no replicas")
    return tuple(_number(one, "a replica") for one in value)


def read_entity_config(content: bytes) -> dict[str, str]:
    found = _object(content, "the node of settings").get("config")
    if not isinstance(found, dict):
        raise ValueError("the node of settings has no config")
    return {_text(key, "a setting"): _text(value, "a setting") for key, value in found.items()}


def read_config_change(content: bytes) -> tuple[str, str]:
    """The type and the name of what has other settings; of a quota the name is a path, such as
    `alice/clients/c`. Together they are the path of a node below /config. Kafka 0.8 wrote the name of the
    topic alone, version 1 has type and name, version 2 the path.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("the notification is not JSON") from None
    path = f"topics/{found}" if isinstance(found, str) else None
    if isinstance(found, dict):
        path = found.get("entity_path")
        if found.get("version") == 1:
            path = f"{found.get('entity_type')}/{found.get('entity_name')}"
    if not isinstance(path, str) or not _has_settings(path):
        raise ValueError("the notification names nothing that has settings")
    kind, _, name = path.partition("/")
    return kind, name


def _has_settings(path: str) -> bool:
    """Whether ZooKeeper takes it as a path, of one of the kinds."""
    kind, *names = path.split("/")
    return (
        kind in CONFIG_KINDS
        and names != []
        and path.isprintable()
        and not {"", ".", ".."}.intersection(names)
    )


def quota_entity_of(kind: str, name: str) -> QuotaEntity:
    """The reverse of `quota_path`, by the parts of `read_config_change`."""
    kinds = {folder: kind for kind, folder in _QUOTA_FOLDERS.items()}
    words = f"{kind}/{name}".split("/")
    found = set(words[::2])
    if len(words) % 2 or not found <= kinds.keys() or len(found) < len(words) // 2:
        raise ValueError(f"{kind}/{name} names nothing that has quotas")
    pairs = zip(words[::2], words[1::2], strict=True)
    return tuple(sorted((kinds[key], None if word == "<default>" else unquote(word)) for key, word in pairs))


Moved = tuple[str, int, tuple[int, ...]]
"""A topic, a partition, and the replicas that it is to have."""


def read_reassignment(content: bytes) -> list[Moved]:
    return [
        (name, index, _replicas(one.get("replicas")))
        for name, index, one in _partitions(content, REASSIGNMENT)
    ]


def read_election(content: bytes) -> list[tuple[str, int]]:
    return [(name, index) for name, index, _ in _partitions(content, ELECTION)]


def _partitions(content: bytes, what: str) -> Iterable[tuple[str, int, dict[str, Any]]]:
    found = _object(content, what).get("partitions")
    if not isinstance(found, list):
        raise ValueError(f"{what} has no partitions")
    for one in found:
        if not isinstance(one, dict):
            raise ValueError(f"{what} has a partition without a topic")
        name = _text(one.get("topic"), f"a topic of {what}")
        yield name, _number(one.get("partition"), f"a partition of {what}"), one


OFFSET_MAX = 2**63 - 1


def read_offset(content: bytes) -> int:
    """Offset from the bare number that consumers write, also a negative one."""
    text = content.strip()
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 19 or int(digits) > OFFSET_MAX:
        raise ValueError("the node of an offset has no number of 64 bits")
    return int(text)
