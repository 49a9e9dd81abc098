"""Changes that tools of Kafka up to 2.8 ask for by writing nodes: each becomes a request, then the node goes.

    /brokers/topics/T            create a topic, or add partitions (kafka-topics --zookeeper)
    /admin/delete_topics/T       delete it
    /config/changes/...          settings of a topic or broker, or a quota, were written (kafka-configs)
    /admin/reassign_partitions   other replicas (kafka-reassign-partitions)
    /admin/preferred_replica_election

What cannot be done is told in the log and goes as well, as in Kafka, so that nothing is tried for ever. A
request that got no response leaves its node, and is made again with the next look. In a cluster the
controllers answer before their records have come: what is done counts as done when the view has it, so that
an older view is not written over what a tool has written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Protocol

from odradek.coordinator.zookeeper import nodes
from odradek.coordinator.zookeeper.projection import without_passwords
from odradek.server.zookeeper.controllership import Controllership, NotController, remove
from odradek.server.zookeeper.session import Session
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.schema import Message

logger = logging.getLogger("odradek.zookeeper")

TIMEOUT_S = 30.0
TIMEOUT_MS = int(TIMEOUT_S * 1000)
SET, DELETE = 0, 1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
PREFERRED = 0
SCRAM = "SCRAM-"
ELSEWHERE = "set them with kafka-configs --bootstrap-server"
Watch = Callable[[Any], object]
Holds = Callable[["ClusterView"], bool]


class Ask(Protocol):
    def __call__(self, request: Message, /) -> Future[Any]:
        """Asks the broker itself, or the cluster's controllers."""


class NoResponse(Exception):
    """Try again later."""


class Tools:
    """The requests of one controllership. `view` gives the newest view, in any thread; `await_view` returns
    when something holds for it, or it has taken too long; `watch` is called when there is something new to
    look at."""

    def __init__(
        self,
        session: Session,
        controllership: Controllership,
        ask: Ask,
        view: Callable[[], ClusterView],
        await_view: Callable[[Holds], object],
        watch: Watch,
    ) -> None:
        self._session = session
        self._controllership = controllership
        self._ask = ask
        self._view = view
        self._await_view = await_view
        self._watch = watch
        self._watched: set[str] = set()
        """Topics whose nodes have been read since their last change."""

    # Topics

    def topic_changed(self, path: str) -> None:
        """The node of a topic is other than when it was read."""
        self._watched.discard(path.rpartition("/")[2])

    def look_at_topics(self, known: Mapping[str, bytes]) -> dict[str, bytes]:
        """Nodes of topics that are other than `known`, by the names of the topics, which we have written:
        what they ask for is done. The result has contents by path, so that they are written over, or removed
        where there is no such topic. Raises NotController when somebody has removed one that we have
        written."""
        found: dict[str, bytes] = {}
        names = set(self._session.client.get_children(nodes.TOPICS, self._watch))
        if removed := known.keys() - names:
            raise NotController(f"somebody has removed {nodes.topic_path(min(removed))}")
        self._watched &= names
        for name in sorted(names - self._watched):
            path = nodes.topic_path(name)
            content = self._session.get(path, self._watch)
            self._watched.add(name)
            if content is None or content == known.get(name):
                continue
            found[path] = content
            settings = self._session.get(nodes.topic_config_path(name))
            if settings is not None:
                found[nodes.topic_config_path(name)] = settings
            try:
                self._take_in(name, nodes.read_topic(content), settings)
            except ValueError as error:
                _tell_nonsense(path, error)
        return found

    def _take_in(self, name: str, assignment: nodes.Assignment, settings: bytes | None) -> None:
        topic = self._view().topics.get(name)
        if topic is None:
            if not assignment.is_ours:
                self._create(name, assignment, settings)
        elif len(assignment.replicas) > len(topic.partitions):
            self._add_partitions(name, assignment, len(topic.partitions))

    def _create(self, name: str, assignment: nodes.Assignment, settings: bytes | None) -> None:
        configs = {} if settings is None else nodes.read_entity_config(settings)
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in sorted(assignment.replicas.items())
            ],
            configs=[
                create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
            ],
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        if self._told(f"topic {name!r} is created", self._response(request).topics):
            self._await_view(lambda view: name in view.topics)

    def _add_partitions(self, name: str, assignment: nodes.Assignment, present: int) -> None:
        count = len(assignment.replicas)
        topic = create_partitions.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[
                create_partitions.CreatePartitionsAssignment(broker_ids=list(assignment.replicas[index]))
                for index in range(present, count)
            ],
        )
        request = create_partitions.CreatePartitionsRequest(
            topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False
        )
        if self._told(f"topic {name!r} grows to {count} partitions", self._response(request).results):
            self._await_view(
                lambda view: name not in view.topics or len(view.topics[name].partitions) >= count
            )

    def look_at_deletions(self) -> None:
        for name in self._session.client.get_children(nodes.TOPIC_DELETIONS, self._watch):
            present = self._view().topics.get(name)
            if present is not None:
                topic = delete_topics.DeleteTopicState(name=name)
                request = delete_topics.DeleteTopicsRequest(
                    topics=[topic], topic_names=[name], timeout_ms=TIMEOUT_MS
                )
                if self._told(f"topic {name!r} is deleted", self._response(request).responses):
                    self._await_view(_has_no_topic(present.topic_id))
            self._remove(f"{nodes.TOPIC_DELETIONS}/{name}")

    # Settings

    def look_at_settings(self) -> dict[str, bytes]:
        """The contents of the nodes that tools have written: they are written over where they could not be
        taken in."""
        found: dict[str, bytes] = {}
        for name in sorted(self._session.client.get_children(nodes.CONFIG_CHANGES, self._watch)):
            path = f"{nodes.CONFIG_CHANGES}/{name}"
            content = self._session.get(path)
            try:
                if content is not None:
                    kind, entity = nodes.read_config_change(content)
                    settings_path = f"/config/{kind}/{entity}"
                    settings = self._session.get(settings_path)
                    if settings is not None:
                        found[settings_path] = settings
                        self._change(kind, entity, nodes.read_entity_config(settings))
            except ValueError as error:
                _tell_nonsense(path, error)
            self._remove(path)
        return found

    def _change(self, kind: str, entity: str, wanted: dict[str, str]) -> None:
        view = self._view()
        if kind == "topics":
            topic = view.topics.get(entity)
            if topic is not None and self._alter(TOPIC_RESOURCE, entity, topic.configs, wanted):
                self._await_view(
                    lambda view: entity not in view.topics or view.topics[entity].configs == wanted
                )
        elif kind == "brokers":
            node_id = None if entity == "<default>" else int(entity)
            if passwords := wanted.keys() - without_passwords(wanted).keys():
                logger.error(
                    "the setting %s of broker %s in ZooKeeper is not taken: %s",
                    min(passwords),
                    entity,
                    ELSEWHERE,
                )
            self._alter_broker(node_id, without_passwords(wanted))
        else:
            self._alter_quotas(kind, entity, wanted)

    def _alter_broker(self, node_id: int | None, wanted: dict[str, str]) -> None:
        """Alters settings of a broker, or of all (None). Passwords, which a tool does not see, stay."""

        def present(view: ClusterView) -> dict[str, str]:
            return without_passwords(view.broker_configs.get(node_id, {}))

        name = "" if node_id is None else str(node_id)
        if self._alter(BROKER_RESOURCE, name, present(self._view()), wanted):
            self._await_view(lambda view: present(view) == wanted)

    def _alter(self, kind: int, name: str, present: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        """Whether something has changed."""
        changes = [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=SET, value=value)
            for key, value in wanted.items()
            if present.get(key) != value
        ]
        changes += [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=DELETE, value=None)
            for key in present
            if key not in wanted
        ]
        if not changes:
            return False
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=changes
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=False
        )
        what = f"topic {name!r}" if kind == TOPIC_RESOURCE else f"broker {name or 'default'}"
        return self._told(f"{what} gets other settings", self._response(request).responses)

    def _alter_quotas(self, kind: str, entity: str, wanted: dict[str, str]) -> None:
        parts = nodes.quota_entity_of(kind, entity)
        present = self._view().client_quotas.get(parts, {})
        if any(name.startswith(SCRAM) for name in wanted):
            logger.error("the passwords of %s/%s in ZooKeeper are not taken: %s", kind, entity, ELSEWHERE)
        quotas = {name: float(value) for name, value in wanted.items() if not name.startswith(SCRAM)}
        changes = [
            alter_client_quotas.OpData(key=key, value=value, remove=False)
            for key, value in quotas.items()
            if present.get(key) != value
        ]
        changes += [
            alter_client_quotas.OpData(key=key, value=0.0, remove=True)
            for key in present
            if key not in quotas
        ]
        if not changes:
            return
        entry = alter_client_quotas.EntryData(
            entity=[
                alter_client_quotas.EntityData(entity_type=entity_type, entity_name=name)
                for entity_type, name in parts
            ],
            ops=changes,
        )
        request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        if self._told(f"{kind}/{entity} gets other quotas", self._response(request).entries):
            self._await_view(lambda view: view.client_quotas.get(parts, {}) == quotas)

    # Replicas and leaders

    def look_at_reassignment(self) -> None:
        """The node stays while partitions move: kafka-reassign-partitions --verify looks at it."""
        content = self._session.get(nodes.REASSIGNMENT, self._watch)
        if content is None:
            return
        try:
            moves = nodes.read_reassignment(content)
        except ValueError as error:
            _tell_nonsense(nodes.REASSIGNMENT, error)
            moves = []
        view = self._view()
        wanted = [move for move in moves if not _is_under_way(view, move)]
        if wanted:
            self._reassign(wanted)
        view = self._view()
        if not any(_is_moving(view, move) for move in moves):
            self._remove(nodes.REASSIGNMENT)

    def _reassign(self, moves: Iterable[nodes.Moved]) -> None:
        topics: dict[str, list[alter_partition_reassignments.ReassignablePartition]] = {}
        for name, index, replicas in moves:
            one = alter_partition_reassignments.ReassignablePartition(
                partition_index=index, replicas=list(replicas)
            )
            topics.setdefault(name, []).append(one)
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[
                alter_partition_reassignments.ReassignableTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        response = self._response(request)
        if not self._told("partitions move", [response]):
            return
        refused = set()
        for topic in response.responses:
            self._told(f"topic {topic.name!r} moves", topic.partitions)
            refused |= {(topic.name, one.partition_index) for one in topic.partitions if one.error_code}
        taken = [move for move in moves if move[:2] not in refused]
        self._await_view(lambda view: all(_is_under_way(view, move) for move in taken))

    def look_at_election(self) -> None:
        content = self._session.get(nodes.ELECTION, self._watch)
        if content is None:
            return
        try:
            topics: dict[str, list[int]] = {}
            for name, index in nodes.read_election(content):
                topics.setdefault(name, []).append(index)
            request = elect_leaders.ElectLeadersRequest(
                election_type=PREFERRED,
                topic_partitions=[
                    elect_leaders.TopicPartitions(topic=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
                timeout_ms=TIMEOUT_MS,
            )
            response = self._response(request)
            self._told("preferred replicas are to lead", [response])
        except ValueError as error:
            _tell_nonsense(nodes.ELECTION, error)
        self._remove(nodes.ELECTION)

    # All of them

    def _response(self, request: Message) -> Any:
        try:
            return self._ask(request).result(TIMEOUT_S)
        except (CancelledError, Exception) as error:
            raise NoResponse(f"{type(request).__name__}: {str(error) or type(error).__name__}") from error

    def _told(self, what: str, results: Iterable[Any]) -> bool:
        """One line of the log about each result; whether all are good."""
        is_good = True
        for result in results:
            if result.error_code == ErrorCode.NONE:
                logger.info("%s, as ZooKeeper asks for", what)
            else:
                is_good = False
                reason = result.error_message or ErrorCode(result.error_code).name
                logger.error("ZooKeeper asks that %s, which is refused: %s", what, reason)
        return is_good

    def _remove(self, path: str) -> None:
        remove(self._session, self._controllership, path)


def _tell_nonsense(path: str, error: ValueError) -> None:
    logger.error("%s in ZooKeeper asks for nothing that can be done: %s", path, error)


def _has_no_topic(topic_id: bytes) -> Holds:
    return lambda view: view.topic_by_id(topic_id) is None


def _is_moving(view: ClusterView, move: nodes.Moved) -> bool:
    partition = view.partition(move[0], move[1])
    return partition is not None and bool(partition.adding or partition.removing)


def _is_under_way(view: ClusterView, move: nodes.Moved) -> bool:
    """Or done."""
    name, index, replicas = move
    partition = view.partition(name, index)
    if partition is None:
        return False
    left = tuple(one for one in partition.replicas if one not in partition.removing)
    return set(left) == set(replicas)
