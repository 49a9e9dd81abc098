"""Groups of Kafka Streams applications (KIP-1071): StreamsGroupHeartbeat (key 88, versions 0 and 1),
StreamsGroupDescribe (89, 0 and 1) and StreamsGroupTopologyDescriptionUpdate (93, 0).

This module checks what needs only the request; then the group's coordinator decides. Its result has the
response, and the missing internal topics of the application. This module creates them, and every response
lists them until they exist. With the feature `streams.version` at level 0, or without `streams` in
`group.coordinator.rebalance.protocols`, both APIs answer UNSUPPORTED_VERSION before any other check. Then
come the permissions: for the group, and for all topics of the topology, after a check of their names. Whether
the client may create internal topics is told in the status. A group with a topic that the client may not
describe is not described at all.

Descriptions of topologies (KIP-1331) are kept where `group.streams.topology.description.plugin.class` says
so. Otherwise no member is asked for one, and one that is sent is refused with UNSUPPORTED_VERSION.

Not done, and refused, as in Kafka 4.4: patterns of source topics. No task is ever a warm-up there, either.

Source: KafkaApis, GroupCoordinatorService and AutoTopicCreationManager of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.apis.access import on_groups, on_topics, only
from odradek.apis.api import Waiting
from odradek.apis.coordinators import client_of
from odradek.apis.declaration import Api
from odradek.apis.group_descriptions import describe_api
from odradek.apis.refusals import Refusal
from odradek.apis.topic_creation import topic_creation
from odradek.coordinator.asked import Asked, Ticket
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS, is_legal
from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from odradek.coordinator.streams.description_keeping import refused_update
from odradek.coordinator.streams.membership import StreamsGroupHeartbeatResult, refused_heartbeat
from odradek.coordinator.streams.topology import StatusCode, has_doubles
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import streams_group_describe as describe
from odradek.wire.messages import streams_group_heartbeat as heartbeat
from odradek.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from odradek.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.apis.node import ApiParts
    from odradek.apis.topic_creation import TopicCreation
    from odradek.apis.turn import Timers, WorkQueue
    from odradek.coordinator.cluster.topics import NewTopic

NOT_SAID = -1
HEARTBEATS_BETWEEN_TRIALS = 2
"""The pause before another trial to create a topic, in heartbeat intervals."""
FAILURES_KEPT_MAX = 1_000


class InternalTopics:
    """Creates missing topics of applications, one trial at a time for a topic, and remembers failures."""

    def __init__(
        self, topics: TopicCreation, work: WorkQueue, timers: Timers, now_ms: Callable[[], int]
    ) -> None:
        self._topics = topics
        self._work = work
        self._timers = timers
        self._now_ms = now_ms
        self._under_way: set[str] = set()
        self._failures: dict[str, tuple[str, int]] = {}
        """By topic: the reason of the failure, and the time of the next trial."""

    def see_to(self, topics: Mapping[str, NewTopic], pause_ms: int) -> dict[str, str]:
        """Creates these topics later; returns the reasons of earlier failures by topic. The next trial is at
        least `pause_ms` after a failure."""
        now_ms = self._now_ms()
        failures = {}
        wanted = []
        for name, topic in topics.items():
            failure = self._failures.get(name)
            if failure is not None and now_ms < failure[1]:
                failures[name] = failure[0]
            elif name not in self._under_way:
                self._failures.pop(name, None)
                wanted.append(topic)
        if wanted:
            self._under_way.update(topic.name for topic in wanted)
            # Not within the coordinator's reply: creating topics calls the coordinator.
            self._timers.after(0, lambda: self._begin(wanted, pause_ms))
        return failures

    def _begin(self, topics: Sequence[NewTopic], pause_ms: int) -> None:
        names = [topic.name for topic in topics]

        def done(refusals: Mapping[str, KafkaError]) -> None:
            self._under_way.difference_update(names)
            until_ms = self._now_ms() + pause_ms
            for name, refusal in refusals.items():
                if len(self._failures) >= FAILURES_KEPT_MAX:
                    del self._failures[next(iter(self._failures))]
                self._failures[name] = (refusal.message, until_ms)

        def failed(error: Exception) -> None:
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error) or None)
            done(dict.fromkeys(names, refusal))

        self._work.run(self._topics.creating(topics), done, failed)


class StreamsGroupHeartbeat:
    """The handler."""

    def __init__(
        self,
        groups: Groups,
        topics: TopicCreation,
        work: WorkQueue,
        timers: Timers,
        now_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._internal_topics = InternalTopics(topics, work, timers, now_ms)

    def __call__(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> StreamsGroupHeartbeatResponse | Waiting:
        if not self._groups().serves_streams_groups:
            return refused_heartbeat(ErrorCode.UNSUPPORTED_VERSION).response
        try:
            _check_access(request, context)
            _check(request)
        except KafkaError as error:
            return refused_heartbeat(error.code, error.own_message).response
        waiting = Waiting()
        ticket = Ticket(lambda result: waiting.complete(self._response(result, context)), refused_heartbeat)
        self._groups().submit(request.group_id, Asked(request, client_of(context), ticket))
        return waiting

    def _response(
        self, result: StreamsGroupHeartbeatResult, context: RequestContext
    ) -> StreamsGroupHeartbeatResponse:
        response, topics = result
        if not topics:
            return response
        uncreatable = _uncreatable(topics, context)
        if uncreatable:
            # Kafka's text, with the names in alphabetical order.
            _add_reason(response, f"Unauthorized to CREATE on topics {', '.join(sorted(uncreatable))}.")
            return response
        pause_ms = HEARTBEATS_BETWEEN_TRIALS * response.heartbeat_interval_ms
        failures = self._internal_topics.see_to(topics, pause_ms)
        if failures:
            reasons = ", ".join(f"{name} ({reason})" for name, reason in sorted(failures.items()))
            _add_reason(response, f"Creation failed: {reasons}.")
        return response


def _uncreatable(topics: Collection[str], context: RequestContext) -> Collection[str]:
    """The topics that the client may not create: neither in the cluster nor by name."""
    create = Operation.CREATE
    if not context.hidden_names(create, ResourceType.CLUSTER, (CLUSTER_NAME,)):
        return ()
    return context.refused_names(create, ResourceType.TOPIC, topics)


def _add_reason(response: StreamsGroupHeartbeatResponse, reason: str) -> None:
    """Tell with the missing internal topics why they are not created."""
    response.status = [
        replace(status, status_detail=f"{status.status_detail}; {reason}")
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
        else status
        for status in response.status or ()
    ]


# Checks of a request


def _check_access(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> None:
    """GROUP_AUTHORIZATION_FAILED, STREAMS_INVALID_TOPOLOGY, TOPIC_AUTHORIZATION_FAILED."""
    if context.refuses(Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.topology is None:
        return
    names = _topics_of(request.topology)
    _check_topics(names)
    if context.refused_names(Operation.DESCRIBE, ResourceType.TOPIC, names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuses requests that are wrong in any state of the group (INVALID_REQUEST,
    STREAMS_INVALID_TOPOLOGY)."""
    _check_built(request)
    for text, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(one is None for one in tasks) and any(one is not None for one in tasks):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOIN_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")
    if has_doubles(tag.key for tag in request.client_tags or ()):
        raise _invalid("A client tag is named twice.")


def _check_built(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuses what has a field in the protocol but is not built, as in Kafka 4.4."""
    topology = request.topology
    if topology is not None and any(one.source_topic_regex for one in topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NOT_SAID:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    for tasks, name in (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    ):
        if tasks is None or tasks:
            raise _invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


def _topics_of(topology: heartbeat.Topology | describe.Topology) -> set[str]:
    names: set[str] = set()
    subtopologies: Iterable[heartbeat.Subtopology | describe.Subtopology] = topology.subtopologies or ()
    for subtopology in subtopologies:
        names.update(subtopology.source_topics, subtopology.repartition_sink_topics)
        names.update(topic.name for topic in subtopology.repartition_source_topics)
        names.update(topic.name for topic in subtopology.state_changelog_topics)
    return names


def _check_topics(names: set[str]) -> None:
    internal = sorted(names & INTERNAL_TOPICS)
    if internal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    illegal = sorted(name for name in names if not is_legal(name))
    if illegal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Topic names {','.join(illegal)} are not valid topic names.",
        )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _make_heartbeat(parts: ApiParts) -> StreamsGroupHeartbeat:
    node = parts.node
    topics = parts.shared(topic_creation)
    return StreamsGroupHeartbeat(node.groups, topics, node.changes, node.timers, node.now_ms)


HEARTBEAT = Api(
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    make=_make_heartbeat,
    needs=(
        on_groups(Operation.READ, only("group_id")),
        on_topics(Operation.DESCRIBE, None),
        on_topics(Operation.CREATE, None),
    ),
    refusal=Refusal(has_message=False),
)


class TopologyDescriptionUpdate:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(
        self, request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
    ) -> StreamsGroupTopologyDescriptionUpdateResponse | Waiting:
        groups = self._groups()
        if not groups.serves_streams_groups:
            return refused_update(ErrorCode.UNSUPPORTED_VERSION)
        if context.refuses(Operation.READ, ResourceType.GROUP, request.group_id):
            return refused_update(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not groups.keeps_descriptions:
            return refused_update(
                ErrorCode.UNSUPPORTED_VERSION,
                "The broker has no streams group topology description plugin configured.",
            )
        for text, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId")):
            if not text.strip():
                return refused_update(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
        waiting = Waiting()
        ticket = Ticket(waiting.complete, refused_update)
        groups.submit(request.group_id, Asked(request, client_of(context), ticket))
        return waiting


DESCRIBE = describe_api(
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    lambda groups: groups().serves_streams_groups,
    lambda group: () if group.topology is None else _topics_of(group.topology),
)
TOPOLOGY_DESCRIPTION_UPDATE = Api(
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    make=lambda parts: TopologyDescriptionUpdate(parts.node.groups),
    needs=(on_groups(Operation.READ, only("group_id")),),
    refusal=Refusal(has_message=False),
)
APIS = (HEARTBEAT, DESCRIBE, TOPOLOGY_DESCRIPTION_UPDATE)
