"""The metadata of a node alone of an earlier version, rows of its store, as records of a metadata log.

Registrations of brokers are no rows. So no partition has a leader yet: the node registers, and is elected as
after a stop. Topics that are being deleted are no records: whoever migrates finishes their deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from odradek.coordinator.cluster.changes import NO_CONFIGS
from odradek.coordinator.cluster.features import METADATA_VERSION, missing_levels
from odradek.coordinator.cluster.metadata_image import ImageState
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.coordinator.cluster.view import (
    NO_LEADER,
    UNASSIGNED,
    ClusterView,
    PartitionView,
    QuotaEntity,
    TopicView,
    quota_entity,
)
from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.coordinator.security import delegation_tokens, scram_users
from odradek.coordinator.security.delegation_tokens import NO_TOKENS, DelegationToken, DelegationTokens
from odradek.coordinator.security.scram_users import NO_USERS, ScramCredential, ScramUsers
from odradek.coordinator.security.scram_users import Key as ScramKey
from odradek.wire.messages.metadata_records import MetadataRecord

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import Acl, AclRules


class Row(NamedTuple):
    """One fact in the store."""

    table: str
    key: str
    value: str


class FromRows(NamedTuple):
    """See the module."""

    records: list[MetadataRecord]
    """All records, to be appended to an empty log as a whole."""
    view: ClusterView
    """The state that they make, without leaders."""
    deletions: Mapping[bytes, str]
    """Names by id of topics whose directories have to go."""

    @property
    def metadata_version(self) -> int:
        return self.view.features[METADATA_VERSION]


def from_rows(
    rows: Iterable[Row], directories: Mapping[tuple[str, int], bytes], default_directory: bytes = UNASSIGNED
) -> FromRows:
    """Make records of all rows. `directories` has the id of the log directory of each partition that was
    found, `default_directory` that of the others.

    ValueError: rows contradict each other, or are missing.
    """
    loaded = _Loaded()
    try:
        for row in rows:
            loaded.add(row)
        topics = loaded.topics()
    except (AssertionError, LookupError) as error:
        raise ValueError(f"partitions of topic {error} are missing") from error
    for name, topic in topics.items():
        placed = [
            _placed(one, directories.get((name, one.index), default_directory)) for one in topic.partitions
        ]
        topics[name] = replace(topic, partitions=tuple(placed))
    view = ClusterView(
        cluster_id="",
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
        broker_configs=loaded.broker_configs,
        group_configs=loaded.group_configs,
        client_metrics_configs=loaded.client_metrics_configs,
        features={**loaded.features, **missing_levels(loaded.features)},
        client_quotas=loaded.quotas,
        acls=loaded.acl_rules(),
        scram_users=loaded.scram_users(),
        delegation_tokens=DelegationTokens(loaded.tokens) if loaded.tokens else NO_TOKENS,
    )
    records = list(snapshot_records(ImageState(-1, view, loaded.next_producer_id, {})))
    return FromRows(records, view, loaded.deletions)


def _placed(partition: PartitionView, directory: bytes) -> PartitionView:
    """The partition in a directory, without a leader."""
    return partition._replace(leader=NO_LEADER, directories=(directory,) * len(partition.replicas))


# --- Rows ---
# topic: name -> id as hex. partition: name/index -> "leader leader_epoch replicas isr".
# topic_config: name/key -> value. broker_config: node/key -> value, the node empty for all brokers.
# group_config: key/group -> value. client-metrics: key/subscription -> value. No part before a "/" can hold
# one; a group's id and the name of a subscription can.
# log_directory: node/directory id -> path. acl: id as hex -> the rule. deletion: id as hex -> name.
# scram: mechanism/user -> iterations, salt and keys. token: id -> owner, renewers and times as JSON.
# quota: pairs of type and name (null: the default) as JSON -> values by the names of quotas as JSON.
# cluster: among others acl_count and scram_count, how many there are of what may not get lost.

TOPIC, PARTITION, TOPIC_CONFIG = "topic", "partition", "topic_config"
BROKER_CONFIG, GROUP_CONFIG, FEATURE, CLUSTER = "broker_config", "group_config", "feature", "cluster"
DELETION, LOG_DIRECTORY, QUOTA, CLIENT_METRICS = "deletion", "log_directory", "quota", "client-metrics"
ACL, SCRAM, TOKEN = "acl", "scram", "token"


@dataclass(slots=True)
class _Loaded:
    """The content of the rows, put together when all are read: they come in any order."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    partitions: dict[str, list[PartitionView]] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[int | None, dict[str, str]] = field(default_factory=dict)
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    client_metrics_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    deletions: dict[bytes, str] = field(default_factory=dict)
    quotas: dict[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls: dict[bytes, Acl] = field(default_factory=dict)
    acl_count: int = 0
    scram_credentials: dict[ScramKey, ScramCredential] = field(default_factory=dict)
    scram_count: int = 0
    tokens: dict[str, DelegationToken] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        table, key, value = row
        owner, _, rest = key.partition("/")
        if table == TOPIC:
            self.topic_ids[key] = bytes.fromhex(value)
        elif table == PARTITION:
            self.partitions.setdefault(owner, []).append(_partition_from_row(int(rest), value))
        elif table == TOPIC_CONFIG:
            self.topic_configs.setdefault(owner, {})[rest] = value
        elif table == BROKER_CONFIG:
            self.broker_configs.setdefault(int(owner) if owner else None, {})[rest] = value
        elif table == GROUP_CONFIG:
            self.group_configs.setdefault(rest, {})[owner] = value
        elif table == CLIENT_METRICS:
            self.client_metrics_configs.setdefault(rest, {})[owner] = value
        elif table == FEATURE:
            self.features[key] = int(value)
        elif table == DELETION:
            self.deletions[bytes.fromhex(key)] = value
        elif table == QUOTA:
            entity, values = _quota_from_row(key, value)
            self.quotas[entity] = values
        elif table == ACL:
            from odradek.coordinator.security.acls import acl_from_text

            self.acls[bytes.fromhex(key)] = acl_from_text(value)
        elif (table, key) == (CLUSTER, "acl_count"):
            self.acl_count = int(value)
        elif table == SCRAM:
            user, credential = scram_users.from_row(key, value)
            self.scram_credentials[user] = credential
        elif table == TOKEN:
            self.tokens[key] = delegation_tokens.from_row(key, value)
        elif (table, key) == (CLUSTER, "scram_count"):
            self.scram_count = int(value)
        elif (table, key) == (CLUSTER, "next_producer_id"):
            self.next_producer_id = int(value)
        # Other rows belong to others: the store is shared.

    def topics(self) -> dict[str, TopicView]:
        topics = {}
        for name, topic_id in self.topic_ids.items():
            partitions = tuple(sorted(self.partitions[name]))
            assert [partition.index for partition in partitions] == list(range(len(partitions))), name
            configs = self.topic_configs.get(name, NO_CONFIGS)
            topics[name] = TopicView(name, topic_id, partitions, name in INTERNAL_TOPICS, configs)
        return topics

    def scram_users(self) -> ScramUsers:
        """ValueError: some are missing."""
        if len(self.scram_credentials) != self.scram_count:
            raise ValueError(
                f"there are {len(self.scram_credentials)} credentials of users, and there have to be "
                f"{self.scram_count}"
            )
        return ScramUsers(self.scram_credentials) if self.scram_credentials else NO_USERS

    def acl_rules(self) -> AclRules | None:
        """ValueError: some are missing."""
        if len(self.acls) != self.acl_count:
            raise ValueError(f"there are {len(self.acls)} ACLs, and there have to be {self.acl_count}")
        if not self.acls:
            return None
        from odradek.coordinator.security.acls import AclRules

        return AclRules().changed(self.acls)


def _partition_from_row(index: int, value: str) -> PartitionView:
    leader, leader_epoch, replicas, isr = value.split(" ")
    return PartitionView(index, int(leader), int(leader_epoch), _broker_ids(replicas), _broker_ids(isr))


def _broker_ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _quota_from_row(key: str, value: str) -> tuple[QuotaEntity, dict[str, float]]:
    import json

    values: dict[str, float] = json.loads(value)
    return quota_entity((kind, name) for kind, name in json.loads(key)), values
