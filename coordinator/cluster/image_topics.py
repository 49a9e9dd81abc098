"""The topics, partitions and settings of a `MetadataImage`: what records make of them, and their next views.

Both classes note what was touched since they were last `taken`, so that a new view costs what has changed and
not what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.coordinator.cluster.view import (
    MIGRATING,
    Broker,
    ClusterView,
    PartitionChange,
    PartitionView,
    TopicView,
)
from odradek.wire.messages.metadata_records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    NO_LEADER_CHANGE,
    TOPIC_RESOURCE,
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

K = TypeVar("K")
Settings = Mapping[str, str]
"""Value by name."""


class InconsistentMetadata(Exception):
    """Records that do not fit to those before them: the log or this node's image of it is wrong."""


# --- Settings ---


class ConfigsTaken(NamedTuple):
    """Settings as mappings that stay as they are, and whose settings are other than before."""

    broker_configs: Mapping[int | None, Settings]
    group_configs: Mapping[str, Settings]
    client_metrics_configs: Mapping[str, Settings]
    topics: Collection[str]
    brokers: list[int | None]
    groups: list[str]


class Configs:
    def __init__(self) -> None:
        self.touched: set[tuple[int, str]] = set()
        """Owners, as (resource type, name)."""
        self._configs: dict[tuple[int, str], dict[str, str]] = {}

    def change(self, record: ConfigRecord) -> None:
        owner = (record.resource_type, record.resource_name)
        self.touched.add(owner)
        if record.value is not None:
            self._configs.setdefault(owner, {})[record.name] = record.value
        elif owner in self._configs:
            self._configs[owner].pop(record.name, None)
            if not self._configs[owner]:
                del self._configs[owner]

    def remove_topic(self, name: str) -> None:
        self.touched.add((TOPIC_RESOURCE, name))
        self._configs.pop((TOPIC_RESOURCE, name), None)

    def of_topic(self, name: str) -> dict[str, str]:
        return dict(self._configs.get((TOPIC_RESOURCE, name), {}))

    def taken(self, before: ClusterView) -> ConfigsTaken:
        touched, self.touched = self.touched, set()
        names = {
            kind: {name for one, name in touched if one == kind}
            for kind in (TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
        }
        now = {
            (int(name) if name else None): self._configs.get((BROKER_RESOURCE, name))
            for name in names[BROKER_RESOURCE]
        }
        brokers, changed_brokers = _updated(before.broker_configs, now)
        groups, changed_groups = _updated(before.group_configs, self._of(GROUP_RESOURCE, names))
        metrics, _ = _updated(before.client_metrics_configs, self._of(CLIENT_METRICS_RESOURCE, names))
        return ConfigsTaken(brokers, groups, metrics, names[TOPIC_RESOURCE], changed_brokers, changed_groups)

    def _of(self, kind: int, names: Mapping[int, set[str]]) -> dict[str, dict[str, str] | None]:
        return {name: self._configs.get((kind, name)) for name in names[kind]}


def _updated(
    before: Mapping[K, Settings], now: Mapping[K, dict[str, str] | None]
) -> tuple[Mapping[K, Settings], list[K]]:
    """`before` with what some owners have now (None: nothing), and the owners who had something else."""
    changed = [owner for owner, configs in now.items() if before.get(owner) != configs]
    if not changed:
        return before, []
    after = dict(before)
    for owner in changed:
        configs = now[owner]
        if configs is None:
            del after[owner]
        else:
            after[owner] = dict(configs)
    return after, changed


# --- Topics ---


class _Topic:
    """A topic at work: the list of its partitions changes in place. None: a record of it has not come yet."""

    __slots__ = ("name", "partitions", "topic_id", "touched")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[PartitionView | None] = []
        self.touched: set[int] = set()


@dataclass(slots=True, eq=False, repr=False)
class TopicsTaken:
    """Topics as mappings that stay as they are, and the parts of a ClusterChange about them."""

    topics: Mapping[str, TopicView]
    topic_names: Mapping[bytes, str]
    created: list[tuple[TopicView, PartitionView]] = field(default_factory=list)
    removed: list[tuple[TopicView, PartitionView]] = field(default_factory=list)
    changed: list[PartitionChange] = field(default_factory=list)
    deleted: list[TopicView] = field(default_factory=list)
    configured: list[TopicView] = field(default_factory=list)


class Topics:
    def __init__(self, node_id: int, configs: Configs) -> None:
        self._node_id = node_id
        self._configs = configs
        self._topics: dict[bytes, _Topic] = {}
        self._ids: dict[str, bytes] = {}
        # In the order of the records, so that each start has the same order.
        self._touched: dict[bytes, None] = {}
        self._same_replicas: tuple[int, ...] = ()
        self._same_directories: tuple[bytes, ...] = ()

    # Records

    def add(self, record: TopicRecord) -> None:
        if record.name in self._ids:
            raise InconsistentMetadata(f"{record}: there is a topic with this name")
        self._topics[record.topic_id] = _Topic(record.name, record.topic_id)
        self._ids[record.name] = record.topic_id
        self._touched[record.topic_id] = None

    def remove(self, record: RemoveTopicRecord) -> None:
        topic = self._find(record.topic_id, record)
        del self._topics[topic.topic_id]
        del self._ids[topic.name]
        self._configs.remove_topic(topic.name)
        self._touched[topic.topic_id] = None

    def add_partition(self, record: PartitionRecord) -> None:
        topic = self._find(record.topic_id, record)
        # One tuple for all partitions that are alike: there may be very many.
        replicas = self._same_replicas = _same(tuple(record.replicas), self._same_replicas)
        directories = self._same_directories = _same(
            _directories(record, record.directories, replicas), self._same_directories
        )
        self._put(
            topic,
            PartitionView(
                record.partition_id,
                record.leader,
                record.leader_epoch,
                replicas,
                _same(tuple(record.isr), replicas),
                (),
                record.partition_epoch,
                tuple(record.adding_replicas),
                tuple(record.removing_replicas),
                tuple(record.eligible_leader_replicas or ()),
                tuple(record.last_known_elr or ()),
                directories,
                record.leader_recovery_state,
            ),
        )

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._find(record.topic_id, record)
        index = record.partition_id
        before = topic.partitions[index] if 0 <= index < len(topic.partitions) else None
        if before is None:
            raise InconsistentMetadata(f"{record}: {topic.name} has no such partition")
        self._put(topic, changed_partition(before, record))

    def clear_elr(self, record: ClearElrRecord) -> None:
        """A partition that has none is not changed, so its epoch stays."""
        if not record.topic_name:
            topics: Iterable[_Topic] = self._topics.values()
        elif record.topic_name in self._ids:
            topics = [self._topics[self._ids[record.topic_name]]]
        else:
            raise InconsistentMetadata(f"{record}: there is no such topic")
        for topic in topics:
            for one in topic.partitions:
                if one is not None and (one.elr or one.last_known_elr):
                    epoch = one.partition_epoch + 1
                    self._put(topic, one._replace(elr=(), last_known_elr=(), partition_epoch=epoch))

    # Views

    def touch_all(self, topics: Iterable[TopicView]) -> None:
        """These were there before a snapshot, and may be gone."""
        self._touched.update(dict.fromkeys(topic.topic_id for topic in topics))

    def taken(
        self,
        before: ClusterView,
        registrations: Mapping[int, Broker],
        rehomed: Collection[int],
        configured: Iterable[str],
    ) -> TopicsTaken:
        """The next view of the topics. `rehomed` are brokers whose directories are other than before,
        `configured` topics whose settings may be.
        """
        if rehomed and before.topics:
            self._touch_replicas_of(rehomed)
        self._touched.update(dict.fromkeys(self._ids[name] for name in configured if name in self._ids))
        taken = TopicsTaken(before.topics, before.topic_names)
        touched, self._touched = self._touched, {}
        views = {}
        for topic_id in touched:
            topic, old = self._topics.get(topic_id), before.topic_by_id(topic_id)
            if topic is not None:
                view = self._next_view(topic, old, registrations, taken)
                if view is not old:
                    views[topic_id] = view
            elif old is not None:
                taken.deleted.append(old)
        if views or taken.deleted:
            taken.topics, taken.topic_names = _with_views(before, taken.deleted, views)
        return taken

    def _next_view(
        self, topic: _Topic, old: TopicView | None, registrations: Mapping[int, Broker], taken: TopicsTaken
    ) -> TopicView:
        touched, topic.touched = topic.touched, set()
        had = old.partitions if old is not None else ()
        changed = []
        is_other = old is None or len(topic.partitions) != len(had)
        for index in sorted(touched):
            one = topic.partitions[index]
            assert one is not None
            last = had[index] if index < len(had) else None
            now = _with_offline(one, registrations)
            if now == last:
                topic.partitions[index] = last
                continue
            topic.partitions[index] = now
            is_other = True
            if last is None or now._replace(offline=last.offline) != last:
                changed.append((last, now))
        configs: Mapping[str, str] = self._configs.of_topic(topic.name)
        has_other_configs = old is None or configs != old.configs
        if old is not None and not has_other_configs:
            if not is_other:
                return old
            configs = old.configs
        view = TopicView(
            topic.name, topic.topic_id, _without_gap(topic), topic.name in INTERNAL_TOPICS, configs
        )
        self._tell(view, changed, taken)
        if old is not None and has_other_configs:
            taken.configured.append(view)
        return view

    def _tell(
        self,
        topic: TopicView,
        changed: Iterable[tuple[PartitionView | None, PartitionView]],
        taken: TopicsTaken,
    ) -> None:
        for before, after in changed:
            taken.changed.append(PartitionChange(topic, before, after))
            was_here = before is not None and self._node_id in before.replicas
            is_here = self._node_id in after.replicas
            if is_here and not was_here:
                taken.created.append((topic, after))
            elif was_here and not is_here:
                taken.removed.append((topic, after))

    def _touch_replicas_of(self, node_ids: Collection[int]) -> None:
        wanted = frozenset(node_ids)
        for topic in self._topics.values():
            for one in topic.partitions:
                if one is not None and not wanted.isdisjoint(one.replicas):
                    topic.touched.add(one.index)
                    self._touched[topic.topic_id] = None

    def _find(self, topic_id: bytes, record: MetadataRecord) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise InconsistentMetadata(f"{record}: there is no such topic")
        return topic

    def _put(self, topic: _Topic, partition: PartitionView) -> None:
        partitions = topic.partitions
        if partition.index >= len(partitions):
            partitions.extend([None] * (partition.index + 1 - len(partitions)))
        partitions[partition.index] = partition
        topic.touched.add(partition.index)
        self._touched[topic.topic_id] = None


def _same(found: tuple[K, ...], known: tuple[K, ...]) -> tuple[K, ...]:
    return known if found == known else found


def changed_partition(before: PartitionView, record: PartitionChangeRecord) -> PartitionView:
    """The partition after a record of it. A leader that is named adds 1 to the leader epoch, even if it led
    before.

    Raises InconsistentMetadata where the record has not as many directories as replicas.
    """
    leader, leader_epoch = before.leader, before.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, leader_epoch = record.leader, leader_epoch + 1
    replicas = _changed(before.replicas, record.replicas)
    if record.directories is not None:
        directories = _directories(record, record.directories, replicas)
    elif record.replicas is not None:
        directories = tuple(before.directory_of(replica) for replica in replicas)
    else:
        directories = before.directories
    recovery = record.leader_recovery_state
    return PartitionView(
        before.index,
        leader,
        leader_epoch,
        replicas,
        _changed(before.isr, record.isr),
        before.offline,
        before.partition_epoch + 1,
        _changed(before.adding, record.adding_replicas),
        _changed(before.removing, record.removing_replicas),
        _changed(before.elr, record.eligible_leader_replicas),
        _changed(before.last_known_elr, record.last_known_elr),
        directories,
        before.leader_recovery_state if recovery < 0 else recovery,
    )


def _with_views(
    before: ClusterView, deleted: Collection[TopicView], views: Mapping[bytes, TopicView]
) -> tuple[Mapping[str, TopicView], Mapping[bytes, str]]:
    """The topics by name, and the names by id. A new topic may have the name of a deleted one."""
    topics = dict(before.topics)
    for old in deleted:
        del topics[old.name]
    topics.update((view.name, view) for view in views.values())
    if not deleted and all(topic_id in before.topic_names for topic_id in views):
        return topics, before.topic_names
    names = dict(before.topic_names)
    for old in deleted:
        del names[old.topic_id]
    names.update((topic_id, view.name) for topic_id, view in views.items())
    return topics, names


def _changed(before: tuple[int, ...], now: list[int] | None) -> tuple[int, ...]:
    return before if now is None else tuple(now)


def _directories(record: MetadataRecord, ids: list[bytes], replicas: tuple[int, ...]) -> tuple[bytes, ...]:
    """Where each replica is; what an old version does not say is MIGRATING."""
    if ids and len(ids) != len(replicas):
        raise InconsistentMetadata(f"{record}: not as many directories as replicas")
    return tuple(ids) or (MIGRATING,) * len(replicas)


def _without_gap(topic: _Topic) -> tuple[PartitionView, ...]:
    partitions = tuple(topic.partitions)
    if None in partitions:
        raise InconsistentMetadata(f"{topic.name} has no partition {partitions.index(None)}, but later ones")
    return partitions  # type: ignore[return-value]


def _with_offline(partition: PartitionView, registrations: Mapping[int, Broker]) -> PartitionView:
    """With the replicas that lie in a directory which their broker cannot use.

    Brokers that are not registered, or fenced, need no entry: to clients all of their replicas are offline.
    """
    offline: tuple[int, ...] = ()
    for replica, directory in zip(partition.replicas, partition.directories, strict=True):
        broker = registrations.get(replica)
        if broker is not None and not broker.is_online(directory):
            offline += (replica,)
    return partition if offline == partition.offline else partition._replace(offline=offline)
