"""Groups of Kafka Streams applications (KIP-1071): StreamsGroupHeartbeat (key 88, version 0) and
StreamsGroupDescribe (89, version 0).

A heartbeat becomes a command for the group's coordinator, after the checks that need only the request. The
coordinator's reply has the missing internal topics of the application; this module creates them, and every
response lists them until they exist. With the feature `streams.version` at level 0, or without `streams` in
`group.coordinator.rebalance.protocols`, both APIs answer UNSUPPORTED_VERSION before any other check. Then
come the permissions: for the group, and for all topics of the topology, after a check of their names. Whether
the client may create internal topics is told in the status. A group with a topic that the client may not
describe is not described at all.

Not done, and refused, as in Kafka 4.3: static members, patterns of source topics, warm-up tasks and the
offsets of tasks.

Source: KafkaApis, GroupCoordinatorService and AutoTopicCreationManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis import operations
from odradek.apis.access import each, on_groups, on_topics, only
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import Gathering, client_host
from odradek.apis.declaration import Api
from odradek.apis.topic_creation import topic_creation
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS, is_legal
from odradek.coordinator.streams import commands
from odradek.coordinator.streams.assignor import TaskAssignment, Tasks
from odradek.coordinator.streams.topology import Status, StatusCode, has_doubles
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import group_records as records
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
        if not self._groups.serves_streams_groups:
            return _refused(ErrorCode.UNSUPPORTED_VERSION, None)
        try:
            _check_access(request, context)
            _check(request)
        except KafkaError as error:
            return _refused(error.code, error.own_message)
        waiting = Waiting()
        endpoint, tags = request.user_endpoint, request.client_tags
        command = commands.StreamsHeartbeat(
            ticket=lambda reply: waiting.complete(self._response(reply, context)),
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            endpoint_epoch=request.endpoint_information_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topology=None if request.topology is None else _topology(request.topology),
            owned=_owned(request),
            process_id=request.process_id,
            user_endpoint=None if endpoint is None else commands.UserEndpoint(endpoint.host, endpoint.port),
            client_tags=None if tags is None else {tag.key: tag.value for tag in tags},
            shutdown_application=request.shutdown_application,
            client_id=context.client_id or "",
            client_host=client_host(context.connection),
        )
        self._groups.submit(request.group_id, command)
        return waiting

    def _response(
        self, reply: commands.StreamsHeartbeatReply, context: RequestContext
    ) -> StreamsGroupHeartbeatResponse:
        if reply.error_code is not ErrorCode.NONE:
            return _refused(reply.error_code, reply.error_message)
        statuses = reply.statuses
        uncreatable = _uncreatable(reply.topics_to_create, context)
        if uncreatable:
            statuses = [_with_refusal(status, uncreatable) for status in statuses]
        elif reply.topics_to_create:
            pause_ms = HEARTBEATS_BETWEEN_TRIALS * reply.heartbeat_interval_ms
            failures = self._internal_topics.see_to(reply.topics_to_create, pause_ms)
            if failures:
                statuses = [_with_failures(status, failures) for status in statuses]
        assignment, endpoints = reply.assignment, reply.endpoints
        return StreamsGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=reply.member_id,
            member_epoch=reply.member_epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            status=[heartbeat.Status(status_code=code, status_detail=detail) for code, detail in statuses],
            active_tasks=None if assignment is None else _task_ids(assignment.active, heartbeat.TaskIds),
            standby_tasks=None if assignment is None else _task_ids(assignment.standby, heartbeat.TaskIds),
            warmup_tasks=None if assignment is None else _task_ids(assignment.warmup, heartbeat.TaskIds),
            endpoint_information_epoch=reply.endpoint_epoch,
            partitions_by_user_endpoint=None if endpoints is None else [_endpoint(one) for one in endpoints],
        )


def _refused(code: ErrorCode, message: str | None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=code, error_message=message)


def _uncreatable(topics: Collection[str], context: RequestContext) -> Collection[str]:
    """The topics that the client may not create: neither in the cluster nor by name."""
    create = Operation.CREATE
    if not context.left_out(create, ResourceType.CLUSTER, (CLUSTER_NAME,)):
        return ()
    return context.refused_names(create, ResourceType.TOPIC, topics)


def _with_refusal(status: Status, uncreatable: Iterable[str]) -> Status:
    """Kafka's text, with the names in alphabetical order."""
    if status.code is not StatusCode.MISSING_INTERNAL_TOPICS:
        return status
    names = ", ".join(sorted(uncreatable))
    return Status(status.code, f"{status.detail}; Unauthorized to CREATE on topics {names}.")


def _with_failures(status: Status, failures: Mapping[str, str]) -> Status:
    if status.code is not StatusCode.MISSING_INTERNAL_TOPICS:
        return status
    reasons = ", ".join(f"{name} ({reason})" for name, reason in sorted(failures.items()))
    return Status(status.code, f"{status.detail}; Creation failed: {reasons}.")


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
        (request.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    if epoch == commands.JOIN_EPOCH:
        _check_join(request)
    elif epoch == commands.LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif epoch < commands.LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(one is None for one in tasks) and any(one is not None for one in tasks):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != commands.JOIN_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")
    if has_doubles(tag.key for tag in request.client_tags or ()):
        raise _invalid("A client tag is named twice.")


def _check_built(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuses features that have fields in the protocol but are not built, as in Kafka 4.3."""
    topology = request.topology
    for is_named, what in (
        (request.instance_id is not None, "Static members"),
        (request.task_offsets is not None, "TaskOffsets"),
        (request.task_end_offsets is not None, "TaskEndOffsets"),
        (bool(request.warmup_tasks), "WarmupTasks"),
        (
            topology is not None and any(one.source_topic_regex for one in topology.subtopologies),
            "Regular expressions for source topics",
        ),
    ):
        if is_named:
            raise _invalid(f"{what} are not supported yet.")


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


# From a request


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskAssignment | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TaskAssignment(_tasks(active), _tasks(standby), _tasks(warmup))


def _tasks(listed: Iterable[heartbeat.TaskIds]) -> Tasks:
    tasks: dict[str, frozenset[int]] = {}
    for one in listed:
        partitions = tasks.get(one.subtopology_id, frozenset()) | frozenset(one.partitions)
        if partitions:
            tasks[one.subtopology_id] = partitions
    return tasks


def _topology(topology: heartbeat.Topology) -> records.StreamsGroupTopologyValue:
    """The topology as a record of the log."""
    return records.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            records.Subtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=subtopology.source_topics,
                source_topic_regex=subtopology.source_topic_regex,
                state_changelog_topics=_topic_infos(subtopology.state_changelog_topics),
                repartition_sink_topics=subtopology.repartition_sink_topics,
                repartition_source_topics=_topic_infos(subtopology.repartition_source_topics),
                copartition_groups=[
                    records.CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in subtopology.copartition_groups
                ],
            )
            for subtopology in topology.subtopologies
        ],
    )


def _topic_infos(infos: Iterable[heartbeat.TopicInfo]) -> list[records.TopicInfo]:
    return [
        records.TopicInfo(
            name=info.name,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            topic_configs=[
                records.KeyValue(key=config.key, value=config.value) for config in info.topic_configs
            ],
        )
        for info in infos
    ]


# Into an answer


def _task_ids(tasks: Tasks, make: Callable[..., Any]) -> list[Any]:
    return [
        make(subtopology_id=subtopology_id, partitions=sorted(partitions))
        for subtopology_id, partitions in sorted(tasks.items())
    ]


def _endpoint(one: commands.EndpointPartitions) -> heartbeat.EndpointToPartitions:
    return heartbeat.EndpointToPartitions(
        user_endpoint=heartbeat.Endpoint(host=one.endpoint.host, port=one.endpoint.port),
        active_partitions=[
            heartbeat.TopicPartition(topic=name, partitions=these) for name, these in one.active
        ],
        standby_partitions=[
            heartbeat.TopicPartition(topic=name, partitions=these) for name, these in one.standby
        ],
    )


class StreamsGroupDescribe:
    """The handler: each group is described by its own coordinator."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> StreamsGroupDescribeResponse | Waiting:
        group_ids = request.group_ids
        if not self._groups.serves_streams_groups:
            code = ErrorCode.UNSUPPORTED_VERSION
            return StreamsGroupDescribeResponse(
                groups=[describe.DescribedGroup(error_code=code, group_id=group_id) for group_id in group_ids]
            )
        operations_for = context if request.include_authorized_operations else None
        # As in Kafka, refused groups come first.
        refused, allowed = split(
            context, group_ids, lambda one: context.refuses(Operation.DESCRIBE, ResourceType.GROUP, one)
        )
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        groups = [describe.DescribedGroup(error_code=code, group_id=group_id) for group_id in refused]

        def respond(replies: list[commands.StreamsGroupDescription]) -> StreamsGroupDescribeResponse:
            described = [_visible(_described(reply, operations_for), context) for reply in replies]
            return StreamsGroupDescribeResponse(groups=groups + described)

        gathering = Gathering(len(allowed), respond)
        for index, group_id in enumerate(allowed):
            ticket = gathering.ticket(index)
            if group_id:
                self._groups.submit(group_id, commands.DescribeStreamsGroup(ticket, group_id))
            else:
                ticket(commands.StreamsGroupDescription(ErrorCode.INVALID_GROUP_ID, group_id))
        return gathering.waiting


def _visible(group: describe.DescribedGroup, context: RequestContext) -> describe.DescribedGroup:
    """The group, or its refusal if it has topics that the client may not describe."""
    topics = () if group.topology is None else _topics_of(group.topology)
    if not context.refused_names(Operation.DESCRIBE, ResourceType.TOPIC, topics):
        return group
    return describe.DescribedGroup(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has topics that the client may not describe.",
        group_id=group.group_id,
    )


def _described(
    reply: commands.StreamsGroupDescription, operations_for: RequestContext | None
) -> describe.DescribedGroup:
    if reply.error_code is not ErrorCode.NONE:
        return describe.DescribedGroup(
            error_code=reply.error_code,
            error_message=reply.error_message,
            group_id=reply.group_id,
        )
    topology = None
    if reply.subtopologies is not None:
        topology = describe.Topology(
            epoch=reply.topology_epoch,
            subtopologies=[_described_subtopology(one) for one in reply.subtopologies],
        )
    group = describe.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=reply.group_id,
        group_state=reply.state,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        topology=topology,
        members=[_described_member(member) for member in reply.members],
    )
    if operations_for is not None:
        group.authorized_operations = operations.on_group(operations_for, group.group_id)
    return group


def _described_subtopology(subtopology: records.Subtopology) -> describe.Subtopology:
    return describe.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=subtopology.source_topics,
        repartition_sink_topics=subtopology.repartition_sink_topics,
        state_changelog_topics=_described_topics(subtopology.state_changelog_topics),
        repartition_source_topics=_described_topics(subtopology.repartition_source_topics),
    )


def _described_topics(infos: Iterable[records.TopicInfo]) -> list[describe.TopicInfo]:
    return [
        describe.TopicInfo(
            name=info.name,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            topic_configs=[
                describe.KeyValue(key=config.key, value=config.value) for config in info.topic_configs
            ],
        )
        for info in infos
    ]


def _described_member(member: commands.DescribedStreamsMember) -> describe.Member:
    endpoint = member.user_endpoint
    return describe.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else describe.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[describe.KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        assignment=_described_assignment(member.assignment),
        target_assignment=_described_assignment(member.target_assignment),
    )


def _described_assignment(assignment: TaskAssignment) -> describe.Assignment:
    return describe.Assignment(
        active_tasks=_task_ids(assignment.active, describe.TaskIds),
        standby_tasks=_task_ids(assignment.standby, describe.TaskIds),
        warmup_tasks=_task_ids(assignment.warmup, describe.TaskIds),
    )


def _make_heartbeat(parts: ApiParts) -> StreamsGroupHeartbeat:
    node = parts.node
    topics = parts.shared(topic_creation)
    return StreamsGroupHeartbeat(node.groups, topics, node.changes, node.timers, node.now_ms)


APIS = (
    Api(
        StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse,
        make=_make_heartbeat,
        needs=(
            on_groups(Operation.READ, only("group_id")),
            on_topics(Operation.DESCRIBE, None),
            on_topics(Operation.CREATE, None),
        ),
    ),
    Api(
        StreamsGroupDescribeRequest,
        StreamsGroupDescribeResponse,
        make=lambda parts: StreamsGroupDescribe(parts.node.groups),
        needs=(on_groups(Operation.DESCRIBE, each("group_ids")), on_topics(Operation.DESCRIBE, None)),
    ),
)
