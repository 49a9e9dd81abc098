"""The cluster's metadata as values: immutable views of it, and what is different between two of them.

A `ClusterView` is what Metadata is answered from, and what Produce, Fetch and the coordinators check before
they act. It is never edited: `coordinator/cluster/machine.py` makes the next one, which shares all that did
not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = [
    "NO_LEADER",
    "Broker",
    "ClusterChange",
    "ClusterView",
    "Endpoint",
    "PartitionView",
    "Subscriber",
    "TopicView",
]

NO_LEADER = -1
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


class PartitionView(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    leader: int
    """A broker's id, or -1 when there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Brokers whose replica lies on a disk that has failed; the leader among them serves nothing."""


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


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One state of the cluster. Mappings are shared between views: read them, never write."""

    version: int = 0
    """Grows with each published view of this process."""
    cluster_id: str = ""
    controller_id: int = -1
    """A broker that is alive; clients send it what changes the cluster."""
    brokers: Mapping[int, Broker] = field(default_factory=_nothing)
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
    """Grows with each change of levels; 0: none were ever set."""

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


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What is different between two views, so that a subscriber need not compare them."""

    created: Sequence[tuple[TopicView, PartitionView]] = ()
    """Partitions to make on disk, of new and of grown topics."""
    deleted: Sequence[TopicView] = ()
    configured: Sequence[TopicView] = ()
    """Topics whose overrides changed, as they are now."""
    brokers_configured: Sequence[int | None] = ()
    """Node ids (None: all brokers) whose overrides changed."""
    groups_configured: Sequence[str] = ()
    """Ids of groups whose own settings changed."""


Subscriber = Callable[[ClusterView, ClusterChange], None]
