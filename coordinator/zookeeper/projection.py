"""Which nodes there have to be in ZooKeeper for a view of the cluster, and the steps from one view to the next.

`Projection` knows what is there. A step is one node that is written or removed; nodes are written after those
above them, and removed before. What is unchanged between two views is the same object in both, so that a view
of ten thousand partitions of which one changed costs a comparison of topics by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.coordinator.zookeeper import nodes
from odradek.wire.schema import uuid_to_text

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView, TopicView


class Step(NamedTuple):
    """`content` None: the node goes. `is_new`: there is no such node yet."""

    path: str
    content: bytes | None
    is_new: bool = False


def topic_nodes(topic: TopicView, controller_epoch: int) -> Iterator[tuple[str, bytes]]:
    """Paths and contents, those above first."""
    name = topic.name
    # Settings first: an old tool that finds the topic reads them.
    yield nodes.topic_config_path(name), nodes.entity_config(topic.configs)
    yield nodes.topic_path(name), nodes.topic(topic, uuid_to_text(topic.topic_id))
    yield nodes.partitions_path(name), b""
    for partition in topic.partitions:
        yield f"{nodes.partitions_path(name)}/{partition.index}", b""
        yield (
            nodes.state_path(name, partition.index),
            nodes.partition_state(partition, controller_epoch),
        )


def setting_nodes(view: ClusterView) -> Iterator[tuple[str, bytes]]:
    """Of brokers, and the quotas of users, clients and addresses. Passwords are not written."""
    for node_id, configs in view.broker_configs.items():
        yield nodes.broker_config_path(node_id), nodes.entity_config(configs)
    for entity, quotas in view.client_quotas.items():
        path = nodes.quota_path(entity)
        if len(entity) > 1:
            # users/U/clients/C
            above = path.rpartition("/")[0]
            yield above.rpartition("/")[0], b""
            yield above, b""
        yield path, nodes.entity_config({name: _number_text(value) for name, value in quotas.items()})


def _number_text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


class Projection:
    """See the module. `known` are the nodes that are there, by path: of our topics and settings, and those
    below them, whoever wrote them."""

    def __init__(self, known: Mapping[str, bytes], controller_epoch: int) -> None:
        self._known = dict(known)
        self._controller_epoch = controller_epoch
        self._topics: dict[str, TopicView] = {}
        self._settings: tuple[object, object] | None = None

    @property
    def known(self) -> Mapping[str, bytes]:
        return self._known

    def steps(self, view: ClusterView) -> Iterator[Step]:
        """To this view. A step counts as done when the next one is asked for: who cannot do it ends, and
        begins with another projection."""
        for name in [name for name in self._topics if name not in view.topics]:
            yield from self._removing(name)
            del self._topics[name]
        for name, topic in view.topics.items():
            before = self._topics.get(name)
            if before is topic:
                continue
            if before is not None and before.topic_id != topic.topic_id:
                yield from self._removing(name)
            yield from self._writing(topic_nodes(topic, self._controller_epoch))
            self._topics[name] = topic
        settings = view.broker_configs, view.client_quotas
        if self._settings is None or any(a is not b for a, b in zip(self._settings, settings, strict=True)):
            wanted = dict(setting_nodes(view))
            for path in self._below_settings():
                if path not in wanted:
                    yield from self._removing_node(path)
            yield from self._writing(iter(wanted.items()))
            self._settings = settings

    def forget(self, path: str, content: bytes) -> None:
        """Somebody else has written this node."""
        self._known[path] = content
        name = path.removeprefix(f"{nodes.TOPICS}/")
        if name in self._topics:
            del self._topics[name]
        self._settings = None

    def _writing(self, wanted: Iterator[tuple[str, bytes]]) -> Iterator[Step]:
        for path, content in wanted:
            before = self._known.get(path)
            if before != content:
                yield Step(path, content, is_new=before is None)
                self._known[path] = content

    def _removing(self, name: str) -> Iterator[Step]:
        below = f"{nodes.topic_path(name)}/"
        for path in sorted((path for path in self._known if path.startswith(below)), reverse=True):
            yield from self._removing_node(path)
        for path in (nodes.topic_path(name), nodes.topic_config_path(name)):
            if path in self._known:
                yield from self._removing_node(path)

    def _removing_node(self, path: str) -> Iterator[Step]:
        yield Step(path, None)
        del self._known[path]

    def _below_settings(self) -> list[str]:
        """Deepest first."""
        folders = tuple(f"/config/{kind}/" for kind in ("brokers", "users", "clients", "ips"))
        return sorted((path for path in self._known if path.startswith(folders)), reverse=True)
