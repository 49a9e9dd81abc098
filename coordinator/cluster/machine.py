"""The one machine that changes the metadata of a node alone, and the store that it writes.

The `ClusterMachine` decides (`decisions.py`), writes rows to its `MetadataStore` in one transaction, builds
the next `ClusterView` (`coordinator/cluster/view.py`) and hands it to its `Publisher`. A change
counts once it is in the store. A change of topics may be large, so it is a `Work`: new partitions are made
before the view has them, deleted ones removed after all subscribers have the new view, new settings applied
to the logs of all partitions. Topics, configuration overrides, producer ids, feature levels, quotas and ACLs
live here.

Users for SCRAM and delegation tokens are rows and part of the view, too (`coordinator/security`).

Not here: electing leaders, ISR changes, reassignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.coordinator.cluster.changes import (
    DEFAULTS,
    NO_CONFIGS,
    PRODUCER_ID_BLOCK_SIZE,
    ConfigCheck,
    TopicDefaults,
    accept_configs,
    differences,
)
from odradek.coordinator.cluster.decisions import Decisions
from odradek.coordinator.cluster.draft import Draft
from odradek.coordinator.cluster.placement import Candidates, UsableBroker
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.coordinator.cluster.view import (
    Broker,
    ClusterChange,
    ClusterView,
    PartitionView,
    QuotaEntity,
    Quotas,
    TopicView,
    quota_entity,
)
from odradek.coordinator.security import delegation_tokens, scram_users
from odradek.coordinator.security.delegation_tokens import NO_TOKENS, DelegationToken, DelegationTokens
from odradek.coordinator.security.scram_users import NO_USERS, ScramCredential, ScramUsers
from odradek.coordinator.security.scram_users import Key as ScramKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import Acl, AclRules


# --- Store ---


class Row(NamedTuple):
    """One fact in the store. A value of None deletes it."""

    table: str
    key: str
    value: str | None


class MetadataStore(Protocol):
    """Durable rows (table, key) -> text. SQLite in one process; ZooKeeper when machines form a cluster."""

    def rows(self) -> Iterable[Row]:
        """Every row that there is, in any order."""

    def write(self, rows: Iterable[Row]) -> None:
        """Put or delete the rows in one transaction, durable on return; on a KafkaError nothing changed."""

    def writing(self, rows: Iterable[Row]) -> Work[None]:
        """`write` in steps. Nothing else may be written until its end; closed before, nothing has changed."""


# --- Machine ---


class LogDirectories:
    """Which log directories brokers have noted, so that a start knows which one is missing."""

    def __init__(self, store: MetadataStore) -> None:
        self.paths: dict[int, dict[str, str]] = {}
        """By broker: paths by directory id."""
        self._store = store

    def of(self, node_id: int) -> Mapping[str, str]:
        """Paths by id of the directories of a broker."""
        return self.paths.get(node_id, {})

    def note(self, node_id: int, paths: Mapping[str, str]) -> None:
        """Replace a broker's directories, paths by id. Raises KafkaError when the store does not answer:
        nothing is noted then.
        """
        before = self.of(node_id)
        rows = [Row(LOG_DIRECTORY, f"{node_id}/{key}", value) for key, value in differences(before, paths)]
        if rows:
            self._store.write(rows)
            self.paths[node_id] = dict(paths)


class ClusterMachine(Decisions):
    """The only writer of the metadata. Call `load` once, then `register_broker` for each that is alive."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        cluster_id: str,
        new_topic_id: Callable[[], bytes],
        defaults: TopicDefaults = DEFAULTS,
        check_topic_configs: ConfigCheck = accept_configs,
        check_broker_configs: ConfigCheck = accept_configs,
        check_group_configs: ConfigCheck = accept_configs,
    ) -> None:
        super().__init__(
            cluster_id=cluster_id,
            new_id=new_topic_id,
            defaults=defaults,
            check_topic_configs=check_topic_configs,
            check_broker_configs=check_broker_configs,
            check_group_configs=check_group_configs,
        )
        self._store = store
        self._is_writing = False
        self._next_producer_id = 0
        self.deletions: dict[bytes, str] = {}
        """Name by id of topics that are deleted, but whose directories may still be there."""
        self._finished_deletions: list[bytes] = []
        self.log_directories = LogDirectories(store)
        # Topics that may have a replica offline.
        self._with_offline: set[str] = set()

    def load(self) -> None:
        """Build the first view from the store; subscribers are not called."""
        loaded = LoadedRows()
        for row in self._store.rows():
            loaded.add(row)
        topics = loaded.topics()
        self._note_names((), list(topics.values()))
        self._next_producer_id = loaded.next_producer_id
        self.deletions = loaded.deletions
        self.log_directories.paths = loaded.log_directories
        self.publisher.view = replace(
            self.view,
            version=self.view.version + 1,
            topics=topics,
            topic_names={topic.topic_id: name for name, topic in topics.items()},
            broker_configs=loaded.broker_configs,
            group_configs=loaded.group_configs,
            client_metrics_configs=loaded.client_metrics_configs,
            features=loaded.features,
            features_epoch=loaded.features_epoch,
            client_quotas=loaded.quotas,
            acls=loaded.acl_rules(),
            scram_users=loaded.scram_users(),
            delegation_tokens=DelegationTokens(loaded.tokens) if loaded.tokens else NO_TOKENS,
        )

    def register_broker(self, broker: Broker, *, is_controller: bool = False) -> None:
        """Add a broker to the view, or replace its entry. Not stored: it registers at each start."""
        brokers = {**self.view.brokers, broker.node_id: broker}
        controller_id = broker.node_id if is_controller else self.view.controller_id
        self.publisher.publish(
            replace(self.view, brokers=brokers, registrations=brokers, controller_id=controller_id),
            ClusterChange(),
        )

    def set_offline(
        self, node_id: int, partitions: Iterable[tuple[str, int]], directories: Iterable[str] = ()
    ) -> None:
        """Sets the partitions whose replicas on a broker are offline now, since their disk has failed. Not
        stored: each start finds it again.
        """
        wanted: dict[str, set[int]] = {}
        for name, index in partitions:
            wanted.setdefault(name, set()).add(index)
        changed = {}
        for name in wanted.keys() | self._with_offline:
            topic = self.view.topics.get(name)
            if topic is None:
                continue
            indexes = wanted.get(name, ())
            as_now = tuple(_offline_at(node_id, one, one.index in indexes) for one in topic.partitions)
            if as_now != topic.partitions:
                changed[name] = replace(topic, partitions=as_now)
        self._with_offline = set(wanted)
        if changed:
            topics = {**self.view.topics, **changed}
            self.publisher.publish(replace(self.view, topics=topics), ClusterChange())

    def finish_deletion(self, topic_id: bytes) -> None:
        """The directories of a deleted topic are out of sight. Written with the next change: until then a
        restart looks for them in vain."""
        if self.deletions.pop(topic_id, None) is not None:
            self._finished_deletions.append(topic_id)

    # Producer ids

    def allocate_producer_ids(self) -> range:
        """A block of producer ids that no broker gets twice, whatever crashes in between.

        While a large change is being written it is refused with COORDINATOR_LOAD_IN_PROGRESS, as in Kafka
        while the next block is on its way; producers try again.
        """
        first = self._next_producer_id
        following = first + PRODUCER_ID_BLOCK_SIZE
        self._write([Row(CLUSTER, "next_producer_id", str(following))])
        self._next_producer_id = following
        return range(first, following)

    # Inside

    def _write(self, rows: Sequence[Row]) -> None:
        if self._is_writing:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The metadata is being written.")
        self._store.write(rows)

    def _draft(self) -> RowDraft:
        return RowDraft(self.view)

    def _commit(self, draft: Draft) -> Work[None]:
        assert isinstance(draft, RowDraft)
        if not draft.rows:
            return
        finished = [Row(DELETION, topic_id.hex(), None) for topic_id in self._finished_deletions]
        self._is_writing = True
        try:
            yield from self._store.writing(chain(finished, *draft.rows))
        finally:
            self._is_writing = False
        del self._finished_deletions[: len(finished)]
        for topic in draft.deleted:
            self.deletions[topic.topic_id] = topic.name
        change = ClusterChange(
            draft.created,
            draft.deleted,
            draft.configured,
            draft.brokers_configured,
            draft.groups_configured,
        )
        yield from self.publisher.publishing(draft.next_view, change)

    def _candidates(self) -> Candidates:
        """Brokers with an uncordoned directory, also for a written assignment, as in Kafka 4.4."""
        taking = [one for one in sorted(self.view.brokers) if self.publisher.logs.takes_replicas(one)]
        return Candidates([UsableBroker(one, self.view.brokers[one].rack) for one in taking], taking)

    def _new_partition(
        self, index: int, replicas: tuple[int, ...], without_leader: ErrorCode
    ) -> PartitionView:
        return PartitionView(index, leader=replicas[0], leader_epoch=0, replicas=replicas, isr=replicas)

    def check_node(self, node_id: int) -> None:
        """Accept it: requests for settings of other nodes are refused before."""


# --- Rows ---
# topic: name -> id as hex. partition: name/index -> "leader leader_epoch replicas isr".
# topic_config: name/key -> value. broker_config: node/key -> value, the node empty for all brokers.
# group_config: key/group -> value. client-metrics: key/subscription -> value. No part before a "/" can hold
# one; a group's id and the name of a subscription can.
# log_directory: node/directory id -> path. acl: id as hex -> the rule, see `acl_text`.
# scram: mechanism/user -> iterations, salt and keys. token: id -> owner, renewers and times as JSON.
# quota: pairs of type and name (null: the default) as JSON -> values by the names of quotas as JSON.
# cluster: among others acl_count and scram_count, how many there are of what may not get lost.

TOPIC, PARTITION, TOPIC_CONFIG = "topic", "partition", "topic_config"
BROKER_CONFIG, GROUP_CONFIG, FEATURE, CLUSTER = "broker_config", "group_config", "feature", "cluster"
DELETION, LOG_DIRECTORY, QUOTA, CLIENT_METRICS = "deletion", "log_directory", "quota", "client-metrics"
ACL, SCRAM, TOKEN = "acl", "scram", "token"
GUARDING = (ACL, SCRAM)
"""Rows without which more might be allowed than was said. Each kind has its number in a row of `CLUSTER`, and
no start goes on when one of them may be lost."""


def count_key(kind: str) -> str:
    """Key of the row of `CLUSTER` that says how many rows of this kind there are."""
    return f"{kind}_count"


class RowDraft(Draft):
    """The next view while it is being made, and the rows that make it durable."""

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        self._features_epoch = view.features_epoch
        self.rows: list[Iterable[Row]] = []
        """In pieces, which may be made only when they are written."""
        self.created: list[tuple[TopicView, PartitionView]] = []
        self.configured: list[TopicView] = []
        self.brokers_configured: list[int | None] = []
        self.groups_configured: list[str] = []

    def next_view(self, view: ClusterView) -> ClusterView:
        """The view with this change, in place of `view`."""
        return replace(
            view,
            topics=self.topics,
            topic_names=self.topic_names,
            broker_configs=self.broker_configs,
            group_configs=self.group_configs,
            client_metrics_configs=self.client_metrics_configs,
            features=self.features,
            features_epoch=self._features_epoch,
            client_quotas=self.client_quotas,
            acls=self.acls,
            scram_users=self.scram_users,
            delegation_tokens=self.tokens,
        )

    def add(self, topic: TopicView) -> None:
        super().add(topic)
        self.created += [(topic, partition) for partition in topic.partitions]
        self.rows.append(rows_of_new(topic))

    def remove(self, topic: TopicView) -> None:
        super().remove(topic)
        name = topic.name
        self.rows += (
            _config_rows(TOPIC_CONFIG, name, topic.configs, NO_CONFIGS),
            (Row(PARTITION, f"{name}/{partition.index}", None) for partition in topic.partitions),
            # In the same transaction: a restart has to know an interrupted deletion from a directory
            # of another origin.
            [Row(TOPIC, name, None), Row(DELETION, topic.topic_id.hex(), name)],
        )

    def grow(self, topic: TopicView) -> None:
        new = topic.partitions[len(self.topics[topic.name].partitions) :]
        super().grow(topic)
        self.created += [(topic, partition) for partition in new]
        self.rows.append(_partition_rows(topic.name, new))

    def configure(self, before: TopicView, after: TopicView, names: Collection[str] = ()) -> None:
        if rows := _config_rows(TOPIC_CONFIG, after.name, before.configs, after.configs):
            super().configure(before, after)
            self.configured.append(after)
            self.rows.append(rows)

    def configure_broker(
        self,
        node_id: int | None,
        before: Mapping[str, str],
        after: Mapping[str, str],
        names: Collection[str] = (),
    ) -> None:
        owner = "" if node_id is None else str(node_id)
        if rows := _config_rows(BROKER_CONFIG, owner, before, after):
            super().configure_broker(node_id, before, after)
            self.brokers_configured.append(node_id)
            self.rows.append(rows)

    def configure_group(
        self, group_id: str, before: Mapping[str, str], after: Mapping[str, str], names: Collection[str] = ()
    ) -> None:
        if rows := [
            Row(GROUP_CONFIG, f"{key}/{group_id}", value) for key, value in differences(before, after)
        ]:
            super().configure_group(group_id, before, after)
            self.groups_configured.append(group_id)
            self.rows.append(rows)

    def configure_client_metrics(
        self, name: str, before: Mapping[str, str], after: Mapping[str, str], names: Collection[str] = ()
    ) -> None:
        if rows := [Row(CLIENT_METRICS, f"{key}/{name}", value) for key, value in differences(before, after)]:
            super().configure_client_metrics(name, before, after)
            self.rows.append(rows)

    def set_features(self, levels: Mapping[str, int]) -> None:
        before = {name: str(level) for name, level in self.features.items()}
        super().set_features(levels)
        self._features_epoch += 1
        after = {name: str(level) for name, level in self.features.items()}
        rows = [Row(FEATURE, name, text) for name, text in differences(before, after)]
        self.rows.append([*rows, Row(CLUSTER, "features_epoch", str(self._features_epoch))])

    def set_quotas(self, changed: Quotas) -> None:
        super().set_quotas(changed)
        self.rows.append([_quota_row(entity, values) for entity, values in changed.items()])

    def change_acls(self, added: Mapping[bytes, Acl], removed: Collection[bytes] = ()) -> None:
        if not added and not removed:
            return
        super().change_acls(added, removed)
        assert self.acls is not None
        from odradek.coordinator.security.acls import acl_text

        self.rows += (
            (Row(ACL, acl_id.hex(), None) for acl_id in removed),
            (Row(ACL, acl_id.hex(), acl_text(acl)) for acl_id, acl in added.items()),
            [Row(CLUSTER, count_key(ACL), str(len(self.acls)))],
        )

    def change_scram_users(self, credentials: Mapping[ScramKey, ScramCredential | None]) -> None:
        if credentials:
            super().change_scram_users(credentials)
            self.rows += (
                [scram_row(key, one) for key, one in credentials.items()],
                [Row(CLUSTER, count_key(SCRAM), str(len(self.scram_users.credentials)))],
            )

    def change_tokens(self, changes: Mapping[str, DelegationToken | None]) -> None:
        if changes:
            super().change_tokens(changes)
            self.rows.append(
                [
                    Row(TOKEN, token_id, None if one is None else delegation_tokens.row_text(one))
                    for token_id, one in changes.items()
                ]
            )


@dataclass(slots=True)
class LoadedRows:
    """The content of the rows, put together when all are read: they come in any order."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    partitions: dict[str, list[PartitionView]] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[int | None, dict[str, str]] = field(default_factory=dict)
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    client_metrics_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    features_epoch: int = 0
    next_producer_id: int = 0
    deletions: dict[bytes, str] = field(default_factory=dict)
    log_directories: dict[int, dict[str, str]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls: dict[bytes, Acl] = field(default_factory=dict)
    acl_count: int = 0
    scram_credentials: dict[ScramKey, ScramCredential] = field(default_factory=dict)
    scram_count: int = 0
    tokens: dict[str, DelegationToken] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        table, key, value = row
        assert value is not None, "the store gave a row that is deleted"
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
        elif table == LOG_DIRECTORY:
            self.log_directories.setdefault(int(owner), {})[rest] = value
        elif table == QUOTA:
            entity, values = _quota_from_row(key, value)
            self.quotas[entity] = values
        elif table == ACL:
            from odradek.coordinator.security.acls import acl_from_text

            self.acls[bytes.fromhex(key)] = acl_from_text(value)
        elif (table, key) == (CLUSTER, count_key(ACL)):
            self.acl_count = int(value)
        elif table == SCRAM:
            user, credential = scram_users.from_row(key, value)
            self.scram_credentials[user] = credential
        elif table == TOKEN:
            self.tokens[key] = delegation_tokens.from_row(key, value)
        elif (table, key) == (CLUSTER, count_key(SCRAM)):
            self.scram_count = int(value)
        elif (table, key) == (CLUSTER, "features_epoch"):
            self.features_epoch = int(value)
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


def scram_row(key: ScramKey, credential: ScramCredential | None) -> Row:
    """How the store has a user."""
    return Row(SCRAM, scram_users.row_key(key), None if credential is None else credential.text())


def rows_of_new(topic: TopicView) -> Iterator[Row]:
    """Rows that make a new topic durable."""
    yield Row(TOPIC, topic.name, topic.topic_id.hex())
    yield from _partition_rows(topic.name, topic.partitions)
    yield from _config_rows(TOPIC_CONFIG, topic.name, NO_CONFIGS, topic.configs)


def partition_row(name: str, partition: PartitionView) -> Row:
    """How the store has a partition."""
    replicas, isr = (",".join(map(str, brokers)) for brokers in (partition.replicas, partition.isr))
    value = f"{partition.leader} {partition.leader_epoch} {replicas} {isr}"
    return Row(PARTITION, f"{name}/{partition.index}", value)


def _partition_rows(name: str, partitions: Sequence[PartitionView]) -> Iterator[Row]:
    return (partition_row(name, partition) for partition in partitions)


def _partition_from_row(index: int, value: str) -> PartitionView:
    leader, leader_epoch, replicas, isr = value.split(" ")
    return PartitionView(index, int(leader), int(leader_epoch), _broker_ids(replicas), _broker_ids(isr))


def _broker_ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _config_rows(table: str, owner: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Row]:
    return [Row(table, f"{owner}/{key}", value) for key, value in differences(before, after)]


def _quota_row(entity: QuotaEntity, values: Mapping[str, float]) -> Row:
    import json  # a start without quotas does not need it

    return Row(QUOTA, json.dumps(entity), json.dumps(values) if values else None)


def _quota_from_row(key: str, value: str) -> tuple[QuotaEntity, dict[str, float]]:
    import json

    values: dict[str, float] = json.loads(value)
    return quota_entity((kind, name) for kind, name in json.loads(key)), values


def _offline_at(node_id: int, partition: PartitionView, is_offline: bool) -> PartitionView:
    if (node_id in partition.offline) == is_offline:
        return partition
    others = tuple(one for one in partition.offline if one != node_id)
    return partition._replace(offline=(*others, node_id) if is_offline else others)
