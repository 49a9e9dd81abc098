"""Metadata (key 3, versions 0 to 13), DescribeCluster (60, 0-2), DescribeTopicPartitions (75, 0): the
leaders.

All three answer from one `ClusterView`. A topic that the request may create (`auto.create.topics.enable` and
the request's own flag) exists when the response is sent, so that no client has to repeat the request. The
exception is a deleted topic: the first request gets the error for an unknown topic, and the topic is created
after the response, as Kafka does each time. So a client that waits for a deletion sees it once.

A client learns nothing about a topic that it may not describe: one that it names is refused whether it exists
or not, and a list of all topics omits it. A topic that it may not create is refused, too. The last two are
the last in a response of Metadata, and unknown ids the first.

Not done: endpoints of controllers in DescribeCluster, which a broker of Kafka does not tell either.

Source: KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache, AuthHelper.computeDescribeClusterResponse
and DescribeTopicPartitionsRequestHandler of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.apis import operations
from odradek.apis.access import ALLOW_ALL, Need, on_topics
from odradek.apis.addresses import reachable, reachable_brokers
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api
from odradek.apis.quotas import ClientQuotas, free
from odradek.apis.topic_creation import TopicCreation, topic_creation
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS, check_name
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import ApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.view import (
        ClusterView,
        PartitionView,
        TopicView,
    )
    from odradek.wire.work import Work

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
ANY_VERSION = 0
FIRST_VERSION_WITH_AUTO_CREATION_FLAG = 4
FIRST_VERSION_WITH_LISTENER_ERROR = 6
FIRST_VERSION_WITH_OPERATIONS = 8
LAST_VERSION_WITH_CLUSTER_OPERATIONS = 10
FIRST_VERSION_BY_ID = 12

logger = logging.getLogger("odradek.apis")

DESCRIBE, CREATE = Operation.DESCRIBE, Operation.CREATE
TOPIC = ResourceType.TOPIC
NOT_AUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


class RefusedNames(NamedTuple):
    """Topics of a request that are refused by name."""

    uncreatable: Collection[str]
    """Topics that do not exist, and that the client may not create."""
    unseen: Collection[str]
    """The client may not describe them."""


def _names(requested: Iterable[MetadataRequestTopic], refused: RefusedNames | None = None) -> Iterable[str]:
    """The requested names that are not refused."""
    names = [topic.name or "" for topic in requested]
    if refused is None:
        return names
    return [name for name in names if name not in refused.uncreatable and name not in refused.unseen]


class Metadata:
    """The handler. Partition entries are kept per topic for as long as the topic's view stays the same."""

    def __init__(
        self,
        node_id: int,
        topics: TopicCreation,
        work: WorkQueue,
        *,
        auto_creates_topics: bool,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._node_id = node_id
        self._quotas = quotas or ClientQuotas()
        self._topics = topics
        self._work = work
        self._auto_creates_topics = auto_creates_topics
        self._brokers: object = None
        self._entries: dict[tuple[str, str], tuple[TopicView, list[MetadataResponsePartition]]] = {}

    def __call__(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse | WorkResponse:
        version = context.api_version
        wants_all = request.topics is None or (
            version < FIRST_VERSION_WITH_NULL_FOR_ALL and not request.topics
        )
        requested = [] if wants_all or request.topics is None else request.topics
        if not _is_sound(requested, version):
            return _refusal_of_request(requested)
        is_by_id = any(topic.topic_id != ZERO_UUID for topic in requested)
        may_create = self._auto_creates_topics and (
            version < FIRST_VERSION_WITH_AUTO_CREATION_FLAG or request.allow_auto_topic_creation
        )
        if is_by_id or wants_all:
            return self._response(request, requested, wants_all, context)
        refused = None
        if context.authorizer is not ALLOW_ALL:
            refused = self._refused(requested, may_create, context)
        if may_create and self._topics.lacks(_names(requested, refused)):
            return WorkResponse(self._work, self._creating(request, requested, refused, context), context)
        return self._response(request, requested, False, context, refused)

    def _refused(
        self, requested: Iterable[MetadataRequestTopic], may_create: bool, context: RequestContext
    ) -> RefusedNames:
        """A missing topic may be created by who may create topics in the cluster, or of its name."""
        names = list(dict.fromkeys(_names(requested)))
        unseen = context.refused_names(DESCRIBE, TOPIC, names)
        missing = [name for name in names if name not in unseen and self._topics.lacks((name,))]
        uncreatable: Collection[str] = ()
        if may_create and missing and context.hidden_names(CREATE, ResourceType.CLUSTER, (CLUSTER_NAME,)):
            uncreatable = context.refused_names(CREATE, TOPIC, missing)
        return RefusedNames(uncreatable, unseen)

    def _creating(
        self,
        request: MetadataRequest,
        requested: Sequence[MetadataRequestTopic],
        refused: RefusedNames | None,
        context: RequestContext,
    ) -> Work[MetadataResponse]:
        """The response, after missing topics were created. As in Kafka each counts for the client's quota of
        partitions like one of CreateTopics, and the client does not have to wait."""
        charge = self._quotas.mutation_charge(context, ANY_VERSION) or free
        names = dict.fromkeys(_names(requested, refused))
        deleted = self._topics.take_deleted(names)
        yield from self._topics.creating_missing((name for name in names if name not in deleted), charge)
        response = self._response(request, requested, False, context, refused)
        if deleted:
            self._work.run(self._topics.creating_missing(deleted, charge), _nothing, _failed)
        return response

    def _response(
        self,
        request: MetadataRequest,
        requested: Sequence[MetadataRequestTopic],
        wants_all: bool,
        context: RequestContext,
        refused: RefusedNames | None = None,
    ) -> MetadataResponse:
        version = context.api_version
        alive = {
            broker.node_id: (broker, host, port)
            for broker, host, port in reachable_brokers(self._topics.view, context.connection, self._node_id)
        }
        wants_operations = (
            version >= FIRST_VERSION_WITH_OPERATIONS and request.include_topic_authorized_operations
        )
        response = MetadataResponse(
            topics=self._topic_responses(requested, wants_all, context, alive, refused)
        )
        for topic in response.topics:
            if wants_operations and topic.name is not None and topic.error_code != NOT_AUTHORIZED:
                topic.topic_authorized_operations = operations.on_topic(context, topic.name)
        view = self._topics.view
        response.brokers = [
            MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker, host, port in alive.values()
        ]
        response.cluster_id = view.cluster_id
        response.controller_id = view.controller_id if view.controller_id in alive else min(alive, default=-1)
        if (
            FIRST_VERSION_WITH_OPERATIONS <= version <= LAST_VERSION_WITH_CLUSTER_OPERATIONS
            and request.include_cluster_authorized_operations
        ):
            response.cluster_authorized_operations = operations.on_cluster(context)
        return response

    def _topic_responses(
        self,
        requested: Sequence[MetadataRequestTopic],
        wants_all: bool,
        context: RequestContext,
        alive: Collection[int],
        refused: RefusedNames | None,
    ) -> list[MetadataResponseTopic]:
        topics = self._topics.view.topics
        if wants_all:
            unseen = context.hidden_names(DESCRIBE, TOPIC, topics)
            return [
                self._topic(topic, context, alive) for name, topic in topics.items() if name not in unseen
            ]
        if any(topic.topic_id != ZERO_UUID for topic in requested):
            # Where there is an id the name is ignored, as in Kafka.
            wanted = dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID)
            return self._topics_by_id(wanted, context, alive)
        allowed = dict.fromkeys(_names(requested, refused))
        responses = [self._topic_by_name(name, context, alive) for name in allowed]
        if refused is None:
            return responses
        names = dict.fromkeys(_names(requested))
        responses += [
            _unauthorized(one, one in INTERNAL_TOPICS) for one in names if one in refused.uncreatable
        ]
        return responses + [_unauthorized(one) for one in names if one in refused.unseen]

    def _topics_by_id(
        self, topic_ids: Iterable[bytes], context: RequestContext, alive: Collection[int]
    ) -> list[MetadataResponseTopic]:
        """Unknown topics first; those that the client may not describe are told without a name."""
        found = {topic_id: self._topics.view.topic_by_id(topic_id) for topic_id in topic_ids}
        known = [topic for topic in found.values() if topic is not None]
        unseen = context.refused_names(DESCRIBE, TOPIC, [topic.name for topic in known])
        code = ErrorCode.UNKNOWN_TOPIC_ID
        unknown = [_nameless(topic_id, code) for topic_id, topic in found.items() if topic is None]
        responses = [self._topic(topic, context, alive) for topic in known if topic.name not in unseen]
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return unknown + responses + [_nameless(one.topic_id, code) for one in known if one.name in unseen]

    def _topic_by_name(
        self, name: str, context: RequestContext, alive: Collection[int]
    ) -> MetadataResponseTopic:
        topic = self._topics.view.topics.get(name)
        if topic is not None:
            return self._topic(topic, context, alive)
        return MetadataResponseTopic(
            error_code=_unknown_name(name), name=name, is_internal=name in INTERNAL_TOPICS, partitions=[]
        )

    def _topic(
        self, topic: TopicView, context: RequestContext, alive: Collection[int]
    ) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=self._partitions(topic, context, alive),
        )

    def _partitions(
        self, topic: TopicView, context: RequestContext, alive: Collection[int]
    ) -> list[MetadataResponsePartition]:
        version = context.api_version
        if version == 0:
            return [_partition_for_version_0(partition, alive) for partition in topic.partitions]
        brokers = self._topics.view.brokers
        if brokers is not self._brokers or len(self._entries) > 2 * len(self._topics.view.topics) + 100:
            self._brokers = brokers
            self._entries = {}
        has_listener_error = version >= FIRST_VERSION_WITH_LISTENER_ERROR
        key = (topic.name, context.connection.listener_name + ("" if has_listener_error else "\0"))
        known = self._entries.get(key)
        if known is not None and known[0] is topic:
            return known[1]
        entries = [
            _partition(partition, alive, brokers, has_listener_error) for partition in topic.partitions
        ]
        self._entries[key] = topic, entries
        return entries


def _nameless(topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id, partitions=[])


def _unauthorized(name: str, is_internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=is_internal, partitions=[]
    )


def _nothing(result: None) -> None:
    """The response was sent before the topic was created, so an error can only be logged."""


def _failed(error: Exception) -> None:
    logger.error("creating a topic failed; the next Metadata request tries again", exc_info=error)


def _is_sound(requested: Iterable[MetadataRequestTopic], version: int) -> bool:
    """Ids and null names are allowed from version 12 on; versions 10 and 11 have the fields but must not use
    them."""
    for topic in requested:
        if topic.name is None and (version < FIRST_VERSION_BY_ID or topic.topic_id == ZERO_UUID):
            return False
        if topic.topic_id != ZERO_UUID and version < FIRST_VERSION_BY_ID:
            return False
    return True


def _refusal_of_request(requested: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in requested
        ],
        error_code=ErrorCode.INVALID_REQUEST,
    )


def _unknown_name(name: str) -> ErrorCode:
    try:
        check_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partition(
    partition: PartitionView, alive: Collection[int], brokers: Collection[int], has_listener_error: bool
) -> MetadataResponsePartition:
    leader, code = _leader(partition, alive, brokers, has_listener_error)
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=_offline(partition, alive),
    )


def _leader(
    partition: PartitionView, alive: Collection[int], brokers: Collection[int], has_listener_error: bool
) -> tuple[int, ErrorCode]:
    if partition.leader in partition.offline:
        return -1, ErrorCode.LEADER_NOT_AVAILABLE  # its disk has failed
    if partition.leader in alive:
        return partition.leader, ErrorCode.NONE
    if partition.leader in brokers and has_listener_error:
        return -1, ErrorCode.LISTENER_NOT_FOUND
    return -1, ErrorCode.LEADER_NOT_AVAILABLE


def _offline(partition: PartitionView, alive: Collection[int]) -> list[int]:
    return [replica for replica in partition.replicas if replica not in alive or replica in partition.offline]


def _partition_for_version_0(partition: PartitionView, alive: Collection[int]) -> MetadataResponsePartition:
    """Version 0 lists only live replicas and has an error if one is missing."""
    replicas = [replica for replica in partition.replicas if replica in alive]
    isr = [replica for replica in partition.isr if replica in alive]
    leader, code = _leader(partition, alive, alive, has_listener_error=False)
    if code is ErrorCode.NONE and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
    )


class DescribeCluster:
    """The handler."""

    def __init__(self, node_id: int, topics: TopicCreation) -> None:
        self._node_id = node_id
        self._topics = topics

    def __call__(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        if context.api_version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
            return _refused(request.endpoint_type)
        view = self._topics.view
        # A node alone has no registrations.
        known = view.registrations if request.include_fenced_brokers and view.registrations else view.brokers
        found = reachable(known, context.connection, self._node_id)
        ids = [broker.node_id for broker, _, _ in found if not broker.is_fenced]
        return DescribeClusterResponse(
            cluster_id=view.cluster_id,
            controller_id=view.controller_id if view.controller_id in ids else min(ids, default=-1),
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.node_id,
                    host=host,
                    port=port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
                for broker, host, port in found
            ],
            cluster_authorized_operations=operations.on_cluster(context)
            if request.include_cluster_authorized_operations
            else operations.NOT_ASKED,
        )


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    """Kafka's text, which tests compare."""
    if endpoint_type == CONTROLLER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of "
            "type CONTROLLER",
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"Unsupported endpoint type {endpoint_type}",
    )


class DescribeTopicPartitions:
    """The handler: topics by name, with a limit of partitions in each response."""

    def __init__(self, node_id: int, topics: TopicCreation, partitions_max: int = 2000) -> None:
        """`partitions_max` of one response is `max.request.partition.size.limit`."""
        self._node_id = node_id
        self._topics = topics
        self._partitions_max = partitions_max

    def __call__(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        view = self._topics.view
        wants_all = not request.topics
        cursor = request.cursor
        names = set(view.topics) if wants_all else {topic.name for topic in request.topics}
        unseen: set[str] = set()
        if context.authorizer is not ALLOW_ALL:
            unseen.update(
                (context.hidden_names if wants_all else context.refused_names)(DESCRIBE, TOPIC, names)
            )
        first_partition = 0
        if cursor is not None:
            if cursor.partition_index < 0 or not (wants_all or cursor.topic_name in names):
                return _refusal_of_description(request)
            first_partition = cursor.partition_index
            names = {name for name in names if name >= cursor.topic_name}
            unseen &= names
        if unseen:
            names -= unseen
        alive = {
            broker.node_id for broker, _, _ in reachable_brokers(view, context.connection, self._node_id)
        }
        left = max(1, min(request.response_partition_limit, self._partitions_max))
        response = DescribeTopicPartitionsResponse(topics=[])
        for name in sorted(names):
            if left <= 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            start = first_partition if cursor is not None and name == cursor.topic_name else 0
            topic = view.topics.get(name)
            if topic is None:
                if not wants_all:
                    response.topics.append(_unknown_described(name, context))
                continue
            shown = topic.partitions[start : start + left]
            response.topics.append(_described(topic, shown, alive, view, context))
            left -= len(shown)
            if start + len(shown) < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=start + len(shown))
                break
        if not wants_all:
            response.topics += [_unauthorized_description(name) for name in sorted(unseen)]
        return response


def _described(
    topic: TopicView,
    shown: Iterable[PartitionView],
    alive: set[int],
    view: ClusterView,
    context: RequestContext,
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for partition in shown:
        leader, code = _leader(partition, alive, view.brokers, has_listener_error=True)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=partition.index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=_offline(partition, alive),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations.on_topic(context, topic.name),
    )


def _unauthorized_description(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, partitions=[]
    )


def _unknown_described(name: str, context: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=_unknown_name(name),
        name=name,
        partitions=[],
        topic_authorized_operations=operations.on_topic(context, name),
    )


def _refusal_of_description(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=topic.name, partitions=[]
            )
            for topic in request.topics
        ]
    )


def _make_metadata(parts: ApiParts) -> Metadata:
    node = parts.node
    return Metadata(
        node.node_id,
        parts.shared(topic_creation),
        node.changes,
        auto_creates_topics=parts.settings.auto_creates_topics,
        quotas=node.quotas,
    )


def _make_topic_partitions(parts: ApiParts) -> DescribeTopicPartitions:
    partitions_max = parts.settings.description_partitions_max
    return DescribeTopicPartitions(parts.node.node_id, parts.shared(topic_creation), partitions_max)


APIS = (
    Api(
        MetadataRequest,
        MetadataResponse,
        make=_make_metadata,
        needs=(on_topics(Operation.DESCRIBE, None), on_topics(Operation.CREATE, None)),
    ),
    Api(
        DescribeClusterRequest,
        DescribeClusterResponse,
        make=lambda parts: DescribeCluster(parts.node.node_id, parts.shared(topic_creation)),
        needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),  # only for the list of operations
    ),
    Api(
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        make=_make_topic_partitions,
        needs=(on_topics(Operation.DESCRIBE, None),),
    ),
)
