"""The one machine that changes the cluster's metadata, and the store that it writes.

The `ClusterMachine` validates an operation, writes rows to its `MetadataStore` in one transaction, builds the
next `ClusterView` (`coordinator/cluster/view.py`) and hands it to its `Publisher`. A change
counts once it is in the store. A change of topics may be large, so it is a `Work`: new partitions are made
before the view has them, deleted ones removed after all subscribers have the new view, new settings applied
to the logs of all partitions. Topics, configuration overrides, producer ids, feature levels, quotas and ACLs
live here.

Users for SCRAM and delegation tokens are rows and part of the view, too (`coordinator/security`).

Not here: electing leaders, ISR changes, reassignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from odradek.coordinator.cluster.features import (
    CORDONS_SINCE,
    ELIGIBLE_LEADERS_VERSION,
    METADATA_VERSION,
    SCRAM_SINCE,
    TOKENS_SINCE,
    knows_cordons,
)
from odradek.coordinator.cluster.publishing import Publisher
from odradek.coordinator.cluster.topics import (
    INTERNAL_TOPICS,
    NewPartitions,
    NewTopic,
    check_manual_replicas,
    check_name,
    check_partition_budget,
    collision_key,
    place_replicas,
    replicas_of_new_topic,
)
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
from odradek.coordinator.security.scram_users import (
    NO_USERS,
    Deletion,
    ScramCredential,
    ScramUsers,
    Upsertion,
)
from odradek.coordinator.security.scram_users import Key as ScramKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import Acl, AclRules

PRODUCER_ID_BLOCK_SIZE = 1000
PARTITIONS_PER_STEP = 256
MIN_INSYNC_REPLICAS = "min.insync.replicas"
CORDONED_LOG_DIRS = "cordoned.log.dirs"
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})

R = TypeVar("R")


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


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    partition_count: int = 1
    """`num.partitions`"""
    replication_factor: int = 1
    """`default.replication.factor`"""
    min_insync_replicas: int = 1
    """`min.insync.replicas`, as it was given at start."""


@dataclass(slots=True)
class TopicResult:
    """The outcome for one topic: the topic as it is now (validated only: as it would be), or the refusal."""

    name: str
    topic: TopicView | None = None
    error: KafkaError | None = None


class GroupOwner(NamedTuple):
    """A group, where topics are named by their names alone."""

    group_id: str


class ClientMetricsOwner(NamedTuple):
    """A subscription to client metrics."""

    name: str


Owner = str | GroupOwner | ClientMetricsOwner | int | None
"""Owner of settings: a topic by its name, a group, a subscription, a broker by its id, or None for all
brokers."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Change of one owner's overrides."""

    owner: Owner
    change: Callable[[Mapping[str, str]], Mapping[str, str]]
    """Takes the present overrides, returns the new ones; may refuse."""
    names: Collection[str] = ()
    """The settings that are named, also those that stay as they are."""


ConfigCheck = Callable[[str, Mapping[str, str]], None]
"""Takes a topic's name, a group's id or a broker's id as text and all overrides that it would have; may
refuse."""


def _accept_configs(name: str, configs: Mapping[str, str]) -> None:
    """No check: for those who have no settings to check against."""


Charge = Callable[[int], None]
"""Takes a number of partitions that are made or deleted; may refuse."""


def _free(partitions: int) -> None:
    """For callers without a quota."""


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
        rows = [Row(LOG_DIRECTORY, f"{node_id}/{key}", value) for key, value in _differences(before, paths)]
        if rows:
            self._store.write(rows)
            self.paths[node_id] = dict(paths)


class ClusterMachine:
    """The only writer of the metadata. Call `load` once, then `register_broker` for each that is alive."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        cluster_id: str,
        new_topic_id: Callable[[], bytes],
        defaults: TopicDefaults = TopicDefaults(),
        check_topic_configs: ConfigCheck = _accept_configs,
        check_broker_configs: ConfigCheck = _accept_configs,
        check_group_configs: ConfigCheck = _accept_configs,
    ) -> None:
        self.publisher = Publisher(ClusterView(cluster_id=cluster_id))
        self._store = store
        self.new_id = new_topic_id
        self._defaults = defaults
        self._check_topic_configs = check_topic_configs
        self._check_broker_configs = check_broker_configs
        self._check_group_configs = check_group_configs
        self._is_changing = False
        self._is_writing = False
        self._next_producer_id = 0
        self.deletions: dict[bytes, str] = {}
        """Name by id of topics that are deleted, but whose directories may still be there."""
        self._finished_deletions: list[bytes] = []
        self.log_directories = LogDirectories(store)
        self._collision_keys: dict[str, set[str]] = {}
        # Topics that may have a replica offline.
        self._with_offline: set[str] = set()

    @property
    def view(self) -> ClusterView:
        """The newest one."""
        return self.publisher.view

    def load(self) -> None:
        """Build the first view from the store; subscribers are not called."""
        loaded = _Loaded()
        for row in self._store.rows():
            loaded.add(row)
        topics = loaded.topics()
        for name in topics:
            self._collision_keys.setdefault(collision_key(name), set()).add(name)
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

    # Topics. One change at a time: each judges by the view that the one before it has left.

    def creating_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = _free
    ) -> Work[list[TopicResult]]:
        """Create each topic that can be created, all of them in one transaction; one result each, in order.

        `charge` gets the number of partitions of each, and may refuse the topic. The caller has refused names
        that the request has twice (INVALID_REQUEST in Kafka's ControllerApis).
        Raises KafkaError when the store does not answer: nothing was created.
        """
        with self._one_at_a_time():
            draft = self._draft()
            results = []
            for new_topic in new_topics:
                try:
                    topic = yield from self._new_topic(new_topic, draft)
                    charge(len(topic.partitions))
                except KafkaError as error:
                    results.append(TopicResult(new_topic.name, error=error))
                else:
                    draft.add(topic)
                    results.append(TopicResult(new_topic.name, topic))
                yield None
            if not validate_only:
                yield from self._commit(draft)
            return results

    def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """`creating_topics` here and now."""
        return finish(self.creating_topics(new_topics, validate_only=validate_only))

    def deleting_topics(self, names: Sequence[str], charge: Charge = _free) -> Work[list[TopicResult]]:
        """Delete each topic that exists, in one transaction; UNKNOWN_TOPIC_OR_PARTITION for the others.
        `charge` gets the number of partitions of each, and may refuse.

        Raises KafkaError when the store does not answer: nothing was deleted.
        """
        with self._one_at_a_time():
            draft = self._draft()
            results = []
            for name in names:
                topic = draft.topics.get(name)
                try:
                    if topic is None:
                        raise _unknown_topic(name)
                    charge(len(topic.partitions))
                except KafkaError as error:
                    results.append(TopicResult(name, error=error))
                else:
                    draft.remove(topic)
                    results.append(TopicResult(name, topic))
                yield None
            yield from self._commit(draft)
            return results

    def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """`deleting_topics` here and now."""
        return finish(self.deleting_topics(names))

    def finish_deletion(self, topic_id: bytes) -> None:
        """The directories of a deleted topic are out of sight. Written with the next change: until then a
        restart looks for them in vain."""
        if self.deletions.pop(topic_id, None) is not None:
            self._finished_deletions.append(topic_id)

    def creating_partitions(
        self, growths: Sequence[NewPartitions], *, validate_only: bool = False, charge: Charge = _free
    ) -> Work[list[TopicResult]]:
        """Grow each topic that can be grown, in one transaction. `charge` gets the number of new partitions
        of each, and may refuse. POLICY_VIOLATION for all of them if they are too many."""
        with self._one_at_a_time():
            draft = self._draft()
            results = []
            known = ((growth, draft.topics.get(growth.name)) for growth in growths)
            added = (growth.total_count - len(topic.partitions) for growth, topic in known if topic)
            check_partition_budget(sum(one for one in added if one > 0))
            for growth in growths:
                try:
                    topic = yield from self._grown_topic(growth, draft)
                    charge(len(topic.partitions) - len(draft.topics[growth.name].partitions))
                except KafkaError as error:
                    results.append(TopicResult(growth.name, error=error))
                else:
                    draft.grow(topic)
                    results.append(TopicResult(growth.name, topic))
                yield None
            if not validate_only:
                yield from self._commit(draft)
            return results

    def create_partitions(
        self, growths: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """`creating_partitions` here and now."""
        return finish(self.creating_partitions(growths, validate_only=validate_only))

    # Configuration

    def changing_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Work[list[KafkaError | None]]:
        """Change the overrides of each owner that may have them so, in one transaction; the refusals (None:
        done), in order.

        Raises KafkaError when the store does not answer: nothing was changed.
        """
        with self._one_at_a_time():
            draft = self._draft()
            refusals: list[KafkaError | None] = []
            for change in changes:
                try:
                    self._change_configs(change, draft)
                except KafkaError as error:
                    refusals.append(error)
                else:
                    refusals.append(None)
                yield None
            if not validate_only:
                yield from self._commit(draft)
            return refusals

    # Producer ids and features

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

    def changing_features(self, levels: Mapping[str, int]) -> Work[None]:
        """Finalize feature levels, 0 to remove one, in one transaction with the settings that follow from
        them. The caller has checked them against what it supports.

        Raises KafkaError when the store does not answer: nothing was changed.
        """
        with self._one_at_a_time():
            draft = self._draft()
            if levels.get(ELIGIBLE_LEADERS_VERSION, 0) > 0:
                self._unify_min_insync_replicas(draft)
            draft.set_features(levels)
            yield from self._commit(draft)

    def set_features(self, levels: Mapping[str, int]) -> None:
        """`changing_features` here and now."""
        finish(self.changing_features(levels))

    # Security

    def changing(self, edit: Callable[[Draft], Work[R]]) -> Work[R]:
        """A change of the parts that `Draft` has methods for, in one transaction; `edit` makes it and returns
        the result.

        Raises KafkaError when the store does not answer: nothing was changed.
        """
        with self._one_at_a_time():
            draft = self._draft()
            result = yield from edit(draft)
            yield from self._commit(draft)
            return result

    # Inside

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        assert not self._is_changing, "one change of topics at a time"
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False

    def _write(self, rows: Sequence[Row]) -> None:
        if self._is_writing:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The metadata is being written.")
        self._store.write(rows)

    def _draft(self) -> Draft:
        view = self.view
        return Draft(
            dict(view.topics),
            dict(view.topic_names),
            dict(view.broker_configs),
            dict(view.group_configs),
            view.client_metrics_configs,
            view.features,
            view.features_epoch,
            view.client_quotas,
            view.acls,
            view.scram_users,
            view.delegation_tokens,
        )

    def _commit(self, draft: Draft) -> Work[None]:
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
            self._forget_collision_key(topic.name)
        for name in {topic.name for topic, _ in draft.created}:
            self._collision_keys.setdefault(collision_key(name), set()).add(name)
        change = ClusterChange(
            draft.created,
            draft.deleted,
            draft.configured,
            draft.brokers_configured,
            draft.groups_configured,
        )
        yield from self.publisher.publishing(draft.next_view, change)

    def _forget_collision_key(self, name: str) -> None:
        key = collision_key(name)
        names = self._collision_keys[key]
        names.discard(name)
        if not names:
            del self._collision_keys[key]

    def _new_topic(self, new_topic: NewTopic, draft: Draft) -> Work[TopicView]:
        name = new_topic.name
        if name in draft.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"There is a topic {name!r} already.")
        check_name(name)
        # Kafka compares with the topics that were there before the request, not within it.
        if others := self._collision_keys.get(collision_key(name)):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name!r} and the existing {min(others)!r} differ only in '.' and '_'.",
            )
        configs = _without_nulls(new_topic.configs)
        self._check_topic_configs(name, configs)
        defaults = self._defaults
        placed = replicas_of_new_topic(
            new_topic,
            self._brokers_for_replicas(),
            defaults.partition_count,
            defaults.replication_factor,
        )
        check_partition_budget(len(draft.created) + len(placed))
        return TopicView(
            name,
            self.new_id(),
            (yield from _new_partitions(placed, 0)),
            name in INTERNAL_TOPICS,
            configs,
        )

    def _brokers_for_replicas(self) -> list[int]:
        """Brokers that may be given replicas, also by a written assignment, as in Kafka 4.4."""
        return [one for one in sorted(self.view.brokers) if self.publisher.logs.takes_replicas(one)]

    def _change_configs(self, change: ConfigChange, draft: Draft) -> None:
        """The order of the checks is Kafka's: whether a topic exists comes last."""
        owner = change.owner
        if isinstance(owner, GroupOwner):
            self._change_group_configs(owner.group_id, change, draft)
            return
        if isinstance(owner, ClientMetricsOwner):
            from odradek.coordinator.client_metrics.subscriptions import check_subscription

            before = draft.client_metrics_configs.get(owner.name, NO_CONFIGS)
            after = dict(change.change(before))
            check_subscription(owner.name, after)
            draft.configure_client_metrics(owner.name, before, after)
            return
        if not isinstance(owner, str):
            before = draft.broker_configs.get(owner, NO_CONFIGS)
            after = dict(change.change(before))
            self._check_broker_configs("" if owner is None else str(owner), after)
            if ELIGIBLE_LEADERS_VERSION in draft.features:
                _check_min_insync_replicas(change, before, after)
            if CORDONED_LOG_DIRS in change.names:
                _check_cordons_are_known(draft.features)
            draft.configure_broker(owner, before, after)
            return
        topic = draft.topics.get(owner)
        after = dict(change.change(NO_CONFIGS if topic is None else topic.configs))
        if not owner:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There are no settings for all topics.")
        check_name(owner)
        self._check_topic_configs(owner, after)
        if topic is None:
            raise _unknown_topic(owner)
        draft.configure(topic, replace(topic, configs=after))

    def _unify_min_insync_replicas(self, draft: Draft) -> None:
        """Which replicas may lead depends on it, so all brokers have to mean the same by it (KIP-966)."""
        for owner, before in list(draft.broker_configs.items()):
            if owner is not None and MIN_INSYNC_REPLICAS in before:
                after = {key: value for key, value in before.items() if key != MIN_INSYNC_REPLICAS}
                draft.configure_broker(owner, before, after)
        before = draft.broker_configs.get(None, NO_CONFIGS)
        default = str(self._defaults.min_insync_replicas)
        draft.configure_broker(None, before, {MIN_INSYNC_REPLICAS: default, **before})

    def _change_group_configs(self, group_id: str, change: ConfigChange, draft: Draft) -> None:
        before = draft.group_configs.get(group_id, NO_CONFIGS)
        after = dict(change.change(before))
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        self._check_group_configs(group_id, after)
        draft.configure_group(group_id, before, after)

    def _grown_topic(self, growth: NewPartitions, draft: Draft) -> Work[TopicView]:
        topic = draft.topics.get(growth.name)
        if topic is None:
            raise _unknown_topic(growth.name)
        count = len(topic.partitions)
        added = growth.total_count - count
        if added <= 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {growth.name!r} has {count} partition(s); {growth.total_count} would be no growth.",
            )
        brokers = self._brokers_for_replicas()
        factor = topic.replication_factor
        if growth.assignments is None:
            placed = place_replicas(brokers, count, added, factor)
        elif len(growth.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partition(s) are to be added, but {len(growth.assignments)} are assigned.",
            )
        else:
            placed = [check_manual_replicas(replicas, brokers, factor) for replicas in growth.assignments]
        new = yield from _new_partitions(placed, count)
        return replace(topic, partitions=topic.partitions + new)


def at_once(edit: Callable[[Draft], R]) -> Callable[[Draft], Work[R]]:
    """A change without steps, for `ClusterMachine.changing`."""

    def editing(draft: Draft) -> Work[R]:
        return edit(draft)
        yield None

    return editing


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


@dataclass(slots=True)
class Draft:
    """The next view while it is being made, and the rows that make it durable."""

    topics: dict[str, TopicView]
    topic_names: dict[bytes, str]
    broker_configs: dict[int | None, Mapping[str, str]]
    group_configs: dict[str, Mapping[str, str]]
    client_metrics_configs: Mapping[str, Mapping[str, str]]
    features: Mapping[str, int]
    features_epoch: int
    client_quotas: Quotas
    acls: AclRules | None
    scram_users: ScramUsers
    tokens: DelegationTokens
    rows: list[Iterable[Row]] = field(default_factory=list)
    """In pieces, which may be made only when they are written."""
    created: list[tuple[TopicView, PartitionView]] = field(default_factory=list)
    deleted: list[TopicView] = field(default_factory=list)
    configured: list[TopicView] = field(default_factory=list)
    brokers_configured: list[int | None] = field(default_factory=list)
    groups_configured: list[str] = field(default_factory=list)

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
            features_epoch=self.features_epoch,
            client_quotas=self.client_quotas,
            acls=self.acls,
            scram_users=self.scram_users,
            delegation_tokens=self.tokens,
        )

    def add(self, topic: TopicView) -> None:
        self.topics[topic.name] = topic
        self.topic_names[topic.topic_id] = topic.name
        self.created += [(topic, partition) for partition in topic.partitions]
        self.rows.append(rows_of_new(topic))

    def remove(self, topic: TopicView) -> None:
        name = topic.name
        del self.topics[name], self.topic_names[topic.topic_id]
        self.deleted.append(topic)
        self.rows += (
            _config_rows(TOPIC_CONFIG, name, topic.configs, NO_CONFIGS),
            (Row(PARTITION, f"{name}/{partition.index}", None) for partition in topic.partitions),
            # In the same transaction: a restart has to know an interrupted deletion from a directory
            # of another origin.
            [Row(TOPIC, name, None), Row(DELETION, topic.topic_id.hex(), name)],
        )

    def grow(self, topic: TopicView) -> None:
        new = topic.partitions[len(self.topics[topic.name].partitions) :]
        self.topics[topic.name] = topic
        self.created += [(topic, partition) for partition in new]
        self.rows.append(_partition_rows(topic.name, new))

    def configure(self, before: TopicView, after: TopicView) -> None:
        if rows := _config_rows(TOPIC_CONFIG, after.name, before.configs, after.configs):
            self.topics[after.name] = after
            self.configured.append(after)
            self.rows.append(rows)

    def configure_broker(
        self, node_id: int | None, before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        owner = "" if node_id is None else str(node_id)
        if rows := _config_rows(BROKER_CONFIG, owner, before, after):
            self.broker_configs[node_id] = after
            if not after:
                del self.broker_configs[node_id]
            self.brokers_configured.append(node_id)
            self.rows.append(rows)

    def configure_group(self, group_id: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        if rows := [
            Row(GROUP_CONFIG, f"{key}/{group_id}", value) for key, value in _differences(before, after)
        ]:
            self.group_configs[group_id] = after
            if not after:
                del self.group_configs[group_id]
            self.groups_configured.append(group_id)
            self.rows.append(rows)

    def configure_client_metrics(
        self, name: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        if rows := [
            Row(CLIENT_METRICS, f"{key}/{name}", value) for key, value in _differences(before, after)
        ]:
            others = {one: configs for one, configs in self.client_metrics_configs.items() if one != name}
            self.client_metrics_configs = {**others, name: after} if after else others
            self.rows.append(rows)

    def set_features(self, levels: Mapping[str, int]) -> None:
        before = {name: str(level) for name, level in self.features.items()}
        self.features = {name: level for name, level in {**self.features, **levels}.items() if level > 0}
        self.features_epoch += 1
        after = {name: str(level) for name, level in self.features.items()}
        rows = [Row(FEATURE, name, text) for name, text in _differences(before, after)]
        self.rows.append([*rows, Row(CLUSTER, "features_epoch", str(self.features_epoch))])

    def set_quotas(self, changed: Quotas) -> None:
        quotas = {**self.client_quotas, **changed}
        self.client_quotas = {entity: values for entity, values in quotas.items() if values}
        self.rows.append([_quota_row(entity, values) for entity, values in changed.items()])

    def change_acls(self, added: Mapping[bytes, Acl], removed: Collection[bytes] = ()) -> None:
        """By id. ValueError: see `AclRules.changed`."""
        if not added and not removed:
            return
        from odradek.coordinator.security.acls import AclRules, acl_text

        self.acls = (self.acls or AclRules()).changed(added, removed)
        self.rows += (
            (Row(ACL, acl_id.hex(), None) for acl_id in removed),
            (Row(ACL, acl_id.hex(), acl_text(acl)) for acl_id, acl in added.items()),
            [Row(CLUSTER, count_key(ACL), str(len(self.acls)))],
        )

    def alter_scram_users(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> Mapping[str, KafkaError | None]:
        """Change the credentials of each user that may have them so; the refusal (None: done) of each."""
        are_supported = self.features.get(METADATA_VERSION, 0) >= SCRAM_SINCE
        results, credentials = self.scram_users.alterations(
            deletions, upsertions, are_supported=are_supported
        )
        self.change_scram_users(credentials)
        return results

    def change_scram_users(self, credentials: Mapping[ScramKey, ScramCredential | None]) -> None:
        if credentials:
            self.scram_users = self.scram_users.with_changes(credentials)
            self.rows += (
                [scram_row(key, one) for key, one in credentials.items()],
                [Row(CLUSTER, count_key(SCRAM), str(len(self.scram_users.credentials)))],
            )

    @property
    def has_tokens(self) -> bool:
        """Whether the metadata.version has delegation tokens."""
        return self.features.get(METADATA_VERSION, 0) >= TOKENS_SINCE

    def change_tokens(self, changes: Mapping[str, DelegationToken | None]) -> None:
        """By id; None: removed."""
        if changes:
            self.tokens = self.tokens.with_changes(changes)
            self.rows.append(
                [
                    Row(TOKEN, token_id, None if one is None else delegation_tokens.row_text(one))
                    for token_id, one in changes.items()
                ]
            )


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
    return [Row(table, f"{owner}/{key}", value) for key, value in _differences(before, after)]


def _quota_row(entity: QuotaEntity, values: Mapping[str, float]) -> Row:
    import json  # a start without quotas does not need it

    return Row(QUOTA, json.dumps(entity), json.dumps(values) if values else None)


def _quota_from_row(key: str, value: str) -> tuple[QuotaEntity, dict[str, float]]:
    import json

    values: dict[str, float] = json.loads(value)
    return quota_entity((kind, name) for kind, name in json.loads(key)), values


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """New values, then (None) the keys that are no longer set."""
    yield from ((key, value) for key, value in after.items() if before.get(key) != value)
    yield from ((key, None) for key in before if key not in after)


def _new_partitions(placed: Sequence[tuple[int, ...]], first: int) -> Work[tuple[PartitionView, ...]]:
    partitions = []
    for index, replicas in enumerate(placed, first):
        partitions.append(
            PartitionView(index, leader=replicas[0], leader_epoch=0, replicas=replicas, isr=replicas)
        )
        if index % PARTITIONS_PER_STEP == 0:
            yield None
    return tuple(partitions)


def _offline_at(node_id: int, partition: PartitionView, is_offline: bool) -> PartitionView:
    if (node_id in partition.offline) == is_offline:
        return partition
    others = tuple(one for one in partition.offline if one != node_id)
    return partition._replace(offline=(*others, node_id) if is_offline else others)


def _check_cordons_are_known(features: Mapping[str, int]) -> None:
    if not knows_cordons(features):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{CORDONED_LOG_DIRS} needs {METADATA_VERSION} {CORDONS_SINCE} or later.",
        )


def _check_min_insync_replicas(
    change: ConfigChange, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """With eligible leader replicas it is one setting for all brokers, and always there. Kafka's words."""
    refusal = None
    if change.owner is not None and MIN_INSYNC_REPLICAS in change.names:
        refusal = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
    elif change.owner is None and MIN_INSYNC_REPLICAS in before and MIN_INSYNC_REPLICAS not in after:
        refusal = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
    if refusal is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, refusal)


def _without_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    nulls = sorted(key for key, value in configs.items() if value is None)
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"A topic's setting cannot be created as null: {', '.join(nulls)}."
        )
    return {key: value for key, value in configs.items() if value is not None}


def _unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
