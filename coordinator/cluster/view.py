"""The cluster's metadata as values: immutable views of it, and what is different between two of them.

A `ClusterView` is what Metadata is answered from, and what Produce, Fetch and the coordinators check before
they act. It is never edited: `coordinator/cluster/metadata_image.py` makes the next one, which shares all
that did not change.

Fields that only a cluster fills have defaults that are right for one node alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.coordinator.security.delegation_tokens import NO_TOKENS, DelegationTokens
from odradek.coordinator.security.scram_users import NO_USERS, ScramUsers
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import AclRules

NO_LEADER = -1
MIGRATING, UNASSIGNED, LOST = (number.to_bytes(16, "big") for number in range(3))
"""Ids that stand for no directory: not known yet, to be chosen by the broker, on a disk that has failed."""
RECOVERED, RECOVERING = 0, 1
"""States of recovery of a leader: after an unclean election it recovers until it has said that it has."""
_EMPTY: Mapping[Any, Any] = MappingProxyType({})


def _nothing() -> Mapping[Any, Any]:
    return _EMPTY


class Endpoint(NamedTuple):
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    endpoints: Mapping[str, Endpoint]
    """By listener name, as advertised. A host of "" is the address at which the client connected."""
    rack: str | None = None
    epoch: int = -1
    """Epoch of the registration, which grows with each start of the broker."""
    incarnation_id: bytes = ZERO_UUID
    """Id of the broker's process."""
    is_fenced: bool = False
    """Whether the broker may neither lead nor be in sync."""
    in_controlled_shutdown: bool = False
    """Whether the broker hands its leaderships over, to stop; it may not join a set of in-sync replicas."""
    directories: tuple[bytes, ...] = ()
    """Ids of the log directories that can be used, sorted; empty: not known."""
    cordoned_directories: tuple[bytes, ...] | None = None
    """Ids of log directories that take no new replicas; None: the broker has not said it."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=_nothing)
    """Lowest and highest level that the broker supports, by feature."""

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in sync."""
        return not self.is_fenced and not self.in_controlled_shutdown

    @property
    def takes_replicas(self) -> bool:
        """Whether the broker has a log directory that is not cordoned; true where none are known."""
        if not self.directories or self.cordoned_directories is None:
            return True
        return not set(self.directories) <= set(self.cordoned_directories)

    def is_online(self, directory: bytes) -> bool:
        """Whether the broker can use the directory: one that is not assigned yet counts, and each, if none
        are known (DirectoryId.isOnline of Kafka)."""
        if directory in (MIGRATING, UNASSIGNED):
            return True
        return directory != LOST and (not self.directories or directory in self.directories)

    @property
    def default_directory(self) -> bytes:
        """The directory of a replica that is placed on the broker: UNASSIGNED where the broker chooses,
        MIGRATING where none are known."""
        if not self.directories:
            return MIGRATING
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED


class PartitionView(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    leader: int
    """A broker's id, or -1 when there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Brokers whose replica lies on a disk that has failed; the leader among them serves nothing. To clients
    the replicas of brokers that are not in `ClusterView.brokers` are offline as well."""
    partition_epoch: int = 0
    """Counts the changes of the partition."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds; they are among the replicas."""
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment takes away; until then they are among the replicas."""
    elr: tuple[int, ...] = ()
    """Replicas out of sync that have all that is committed (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """Replicas that were eligible before an unclean shutdown, or the last leader."""
    directories: tuple[bytes, ...] = ()
    """Id of the log directory of each replica, in the order of the replicas; empty: not known."""
    leader_recovery_state: int = RECOVERED

    def directory_of(self, node_id: int) -> bytes:
        """Id of the directory of a broker's replica. MIGRATING: not known, or there is no such replica."""
        if not self.directories or node_id not in self.replicas:
            return MIGRATING
        return self.directories[self.replicas.index(node_id)]


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionView, ...]
    """At its index each; numbered from 0 without a gap."""
    is_internal: bool = False
    configs: Mapping[str, str] = field(default_factory=_nothing)
    """The topic's own overrides, as text."""

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Type, and name or None for the default, of each part of what has a quota; sorted by type."""
Quotas = Mapping[QuotaEntity, Mapping[str, float]]
"""Quotas by their names, of each entity."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these parts; of a type that is named twice the last one counts."""
    named = dict(parts)
    return tuple((kind, named[kind]) for kind in sorted(named))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One state of the cluster. Mappings are shared between views: read them, never write."""

    version: int = 0
    """Grows with each published view of this process."""
    cluster_id: str = ""
    controller_id: int = -1
    """A broker that is alive; clients send it what changes the cluster."""
    brokers: Mapping[int, Broker] = field(default_factory=_nothing)
    """Brokers that clients may be named: all that are registered and not fenced."""
    topics: Mapping[str, TopicView] = field(default_factory=_nothing)
    topic_names: Mapping[bytes, str] = field(default_factory=_nothing)
    """Name by topic id."""
    broker_configs: Mapping[int | None, Mapping[str, str]] = field(default_factory=_nothing)
    """Overrides by node id; those for all brokers under None."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)
    """Settings that groups have of their own, by group id; such a group need not exist."""
    features: Mapping[str, int] = field(default_factory=_nothing)
    """Finalized level by feature; a level of 0 is not in it."""
    features_epoch: int = 0
    """Grows with each change of levels; 0: none were ever set. In a cluster it is the metadata offset."""
    registrations: Mapping[int, Broker] = field(default_factory=_nothing)
    """All brokers of the cluster, those that are fenced too."""
    client_metrics_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)
    """Settings of subscriptions to client metrics, by their name."""
    client_quotas: Quotas = field(default_factory=_nothing)
    """Quotas of users, clients and addresses; each entity has one at least."""
    acls: AclRules | None = None
    """Rules of access; None: there never were ACLs. They count where an authorizer is configured."""
    scram_users: ScramUsers = NO_USERS
    """Users with passwords for SCRAM."""
    delegation_tokens: DelegationTokens = NO_TOKENS

    @property
    def has_acls(self) -> bool:
        return bool(self.acls)

    def topic(self, name: str) -> TopicView | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicView | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, name: str, index: int) -> PartitionView | None:
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def leader_of(self, name: str, index: int) -> int:
        """The leading broker's id; -1 when there is no leader or no such partition."""
        partition = self.partition(name, index)
        return NO_LEADER if partition is None else partition.leader


class PartitionChange(NamedTuple):
    """A partition that is new or other than before."""

    topic: TopicView
    """The topic now."""
    before: PartitionView | None
    """None: it is new."""
    after: PartitionView


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """Differences between two views, so that a subscriber need not compare them."""

    created: Sequence[tuple[TopicView, PartitionView]] = ()
    """Partitions of new and of grown topics; in a cluster those that this node has now and had not before."""
    deleted: Sequence[TopicView] = ()
    """Topics that are gone, as they were; one with the same name and another id may have come."""
    configured: Sequence[TopicView] = ()
    """Topics whose overrides changed, as they are now; those of new topics are not told."""
    brokers_configured: Sequence[int | None] = ()
    """Node ids (None: all brokers) whose overrides changed."""
    groups_configured: Sequence[str] = ()
    """Ids of groups whose own settings changed."""
    changed: Sequence[PartitionChange] = ()
    """Partitions of any node that are new or other than before, in anything but `offline`."""
    removed: Sequence[tuple[TopicView, PartitionView]] = ()
    """Partitions that this node had, whose topic goes on without a replica here; as they are now."""
    brokers: Sequence[int] = ()
    """Node ids of brokers that came, went, or have another registration."""
    features: Sequence[str] = ()
    """Features that have another level."""


Subscriber = Callable[[ClusterView, ClusterChange], None]
