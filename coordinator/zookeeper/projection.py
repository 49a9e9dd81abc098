"""Which nodes there have to be in ZooKeeper for a view of the cluster, and the steps from view to view.

`Projection` knows what is there. A step is one node that is written or removed; nodes are written after those
above them, and removed before. What is unchanged between two views is the same object in both, so that a view
of ten thousand partitions of which one changed costs a comparison of topics by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.config.options import BROKER_OPTIONS, hidden
from odradek.config.secret import Secret
from odradek.coordinator.security.client_quotas import FRACTION_MAX, LONG_MAX, OF_CLIENTS
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
    """Settings of brokers, and quotas of users, clients and addresses. Passwords are not written."""
    for node_id, configs in view.broker_configs.items():
        if readable := without_passwords(configs):
            yield nodes.broker_config_path(node_id), nodes.entity_config(readable)
    # Users before their clients, which are below them.
    for entity, quotas in sorted(view.client_quotas.items(), key=lambda item: len(item[0])):
        path = nodes.quota_path(entity)
        if len(entity) > 1:
            # users/U/clients/C
            above = path.rpartition("/")[0]
            if not any((part,) in view.client_quotas for part in entity if part[0] == "user"):
                yield above.rpartition("/")[0], b""
            yield above, b""
        yield path, nodes.entity_config({name: _quota_text(name, value) for name, value in quotas.items()})


def without_passwords(configs: Mapping[str, str]) -> dict[str, str]:
    """Settings of a broker that others may read."""
    return {
        name: text
        for name, text in configs.items()
        if not isinstance(hidden(name, text, BROKER_OPTIONS), Secret)
    }


def _quota_text(name: str, value: float) -> str:
    """Only those that may be a fraction have a point."""
    return str(float(value)) if OF_CLIENTS.get(name, LONG_MAX) is None else str(int(value + FRACTION_MAX))


class Projection:
    """See the module. `known` are the nodes that are there, by path: of topics and settings, and those below
    them, whoever wrote them. Nodes of topics that nobody knows are removed."""

    def __init__(self, known: Mapping[str, bytes], controller_epoch: int) -> None:
        self._controller_epoch = controller_epoch
        self._topic_nodes: dict[str, dict[str, bytes]] = {}
        """Contents by path, of each topic."""
        self._setting_nodes: dict[str, bytes] = {}
        self._topics: dict[str, TopicView] = {}
        """Topics as last written."""
        self._settings: tuple[object, object] | None = None
        for path, content in known.items():
            self._nodes_of(path)[path] = content

    def topics(self) -> dict[str, bytes]:
        """Contents of the nodes of topics by their names, as far as they are known to be there."""
        paths = ((name, nodes.topic_path(name), known) for name, known in self._topic_nodes.items())
        return {name: known[path] for name, path, known in paths if path in known}

    def forget(self, path: str, content: bytes) -> None:
        """Somebody else has written this node."""
        self._nodes_of(path)[path] = content
        self._topics.pop(_topic_of(path) or "", None)
        self._settings = None

    def steps(self, view: ClusterView) -> Iterator[Step]:
        """To this view. A step counts as done when the next one is asked for: who cannot do it ends, and
        begins with another projection."""
        for name in [name for name in self._topic_nodes if name not in view.topics]:
            yield from self._removing(name)
        for name, topic in view.topics.items():
            before = self._topics.get(name)
            if before is not topic:
                if before is not None and before.topic_id != topic.topic_id:
                    yield from self._removing(name)
                known = self._topic_nodes.setdefault(name, {})
                yield from _steps(known, dict(topic_nodes(topic, self._controller_epoch)))
                self._topics[name] = topic
        settings = view.broker_configs, view.client_quotas
        if self._settings is None or any(a is not b for a, b in zip(self._settings, settings, strict=True)):
            yield from _steps(self._setting_nodes, dict(setting_nodes(view)))
            self._settings = settings

    def _nodes_of(self, path: str) -> dict[str, bytes]:
        name = _topic_of(path)
        return self._setting_nodes if name is None else self._topic_nodes.setdefault(name, {})

    def _removing(self, name: str) -> Iterator[Step]:
        yield from _steps(self._topic_nodes[name], {})
        del self._topic_nodes[name]
        self._topics.pop(name, None)


def _steps(known: dict[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[Step]:
    """From the nodes that are known to the wanted ones; `known` follows."""
    for path in sorted(known.keys() - wanted.keys(), key=_depth, reverse=True):
        yield Step(path, None)
        del known[path]
    for path, content in wanted.items():
        before = known.get(path)
        if before != content:
            yield Step(path, content, is_new=before is None)
            known[path] = content


def _depth(path: str) -> int:
    return path.count("/")


def _topic_of(path: str) -> str | None:
    """The topic that a node is of; None: it has the settings of something else."""
    for folder in (f"{nodes.TOPICS}/", nodes.topic_config_path("")):
        if path.startswith(folder):
            return path[len(folder) :].partition("/")[0]
    return None
