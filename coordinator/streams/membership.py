"""The members of a streams group and their tasks (KIP-1071): heartbeats, time-outs, the description.

The rules are those of Kafka's GroupMetadataManager.java (streams groups), release 4.3. A heartbeat goes
through five steps: the member as it now is; the topology, which the first member brings; its comparison with
the existing topics, which finds the topics to create; the target assignment, where members, topology, topics
or settings have changed; and the member's next step towards it. All changes are written as one batch.

No ticket waits: every heartbeat is answered at once. As in Kafka 4.3 there are no static members, no
patterns of source topics, no warm-up tasks, and a topology does not change while its group exists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from odradek.coordinator.asked import Asked, Client
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect, Reply, SetTimer
from odradek.coordinator.groups.epochs.fencing import check_epoch
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.group import (
    CLASSIC,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    STREAMS,
    Group,
    GroupRecord,
    Store,
)
from odradek.coordinator.groups.record_codec import fits_record
from odradek.coordinator.groups.sessions import MemberTimers
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.streams.assignor import (
    AssignableSubtopology,
    TaskAssignment,
    TaskMember,
    Tasks,
    TaskSpec,
    assign_tasks,
)
from odradek.coordinator.streams.group import (
    NO_TARGET,
    NO_TOPOLOGY_EPOCH,
    StreamsGroup,
    StreamsMember,
    listed_configs,
    listed_tasks,
    new_member_metadata,
    tasks_of,
)
from odradek.coordinator.streams.reconciliation import HeldTasks, MemberState, MemberTasks, reconcile
from odradek.coordinator.streams.topology import (
    ConfiguredTopology,
    StatusCode,
    check_topology,
    configure,
    described,
    is_same_topology,
    required_topics,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import streams_group_describe as describe
from odradek.wire.messages import streams_group_heartbeat as heartbeat
from odradek.wire.messages.group_records import (
    Endpoint,
    KeyValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from odradek.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from odradek.wire.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from odradek.wire.schema import copied_as

NONE = ErrorCode.NONE
SESSION, REBALANCE, DELAY = TIMERS = ("streams-session", "streams-rebalance", "streams-delay")
"""What timers are for: the first part of their keys, before the group and the member."""
STANDBY_REPLICAS = "num.standby.replicas"
"""As the record of the group names the setting by which tasks were assigned."""
NO_TOPICS: Mapping[str, NewTopic] = {}


class StreamsGroupHeartbeatResult(NamedTuple):
    """The response to a heartbeat, and the topics that the API creates. Kafka's class has the same."""

    response: StreamsGroupHeartbeatResponse
    creatable_topics: Mapping[str, NewTopic] = NO_TOPICS
    """By name: internal topics that the application lacks."""


def refused_heartbeat(code: ErrorCode, message: str | None = None) -> StreamsGroupHeartbeatResult:
    return StreamsGroupHeartbeatResult(StreamsGroupHeartbeatResponse(error_code=code, error_message=message))


AskedHeartbeat = Asked[StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResult]


def delay_key(group_id: str) -> tuple[str, str]:
    return (DELAY, group_id)


@dataclass(slots=True)
class _Step:
    """What becomes of a group by one heartbeat, until it is written."""

    group: StreamsGroup
    """As it was before; a new one is in no machine yet."""
    request: StreamsGroupHeartbeatRequest
    owned: TaskAssignment | None
    """The tasks that the member has; None: as before."""
    now_ms: int
    records: list[GroupRecord]
    statuses: list[Status]
    metadata: StreamsGroupMemberMetadataValue
    """Of the member, as it now is."""
    configured: ConfiguredTopology
    group_epoch: int


class StreamsMembership:
    """The streams protocol over the groups of one machine. Each method adds its effects to `out`."""

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        topics: Callable[[], ClusterView],
        store: Store,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._store = store
        self._timers = MemberTimers(SESSION, REBALANCE)

    # Heartbeat

    def heartbeat(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> None:
        """GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST, UNKNOWN_SERVER_ERROR."""
        try:
            if asked.request.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH):
                result = self._leave(asked.request, now_ms, out)
            else:
                result = self._stay(asked, now_ms, out)
        except KafkaError as error:
            result = refused_heartbeat(error.code, error.own_message)
        out.append(Reply(asked.ticket, result))

    def _leave(
        self, request: StreamsGroupHeartbeatRequest, now_ms: int, out: list[Effect]
    ) -> StreamsGroupHeartbeatResult:
        group = self._existing(request.group_id)
        if request.instance_id is not None:
            raise _no_static_members()
        member = _member_of(group, request.member_id)
        if request.shutdown_application:
            group.shutdown_by = group.shutdown_by or request.member_id
        self._remove(group, member, now_ms, out)
        response = StreamsGroupHeartbeatResponse(
            error_code=NONE, member_id=request.member_id, member_epoch=request.member_epoch, status=[]
        )
        return StreamsGroupHeartbeatResult(response)

    def _stay(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> StreamsGroupHeartbeatResult:
        request = asked.request
        joins = request.member_epoch == JOIN_EPOCH
        records: list[GroupRecord] = []
        group = self._to_join(request.group_id, records) if joins else self._existing(request.group_id)
        if request.instance_id is not None:
            raise _no_static_members()
        owned, member = _owned(request), group.members.get(request.member_id)
        if not joins:
            member = _member_of(group, request.member_id)
            assigned = member.current.assigned
            check_epoch(STREAMS, member.current, request.member_epoch, lambda: _are_among(owned, assigned))
        tasks = MemberTasks() if member is None else member.current

        step = self._next_of(group, member, asked, owned, records, now_ms)
        target_epoch, target, delays_until_ms = self._target(step)
        new_tasks = reconcile(tasks, target, target_epoch, group.owners, step.metadata.process_id, owned)
        if new_tasks != tasks:
            step.records.append(group.records.current(group.group_id, request.member_id, new_tasks))
        if not self._store(group.group_id, step.records, now_ms, out):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has become too large.")

        stored = self._groups[group.group_id]
        assert isinstance(stored, StreamsGroup)
        self._settle(stored, step, delays_until_ms, tasks, now_ms, out)
        return self._result(stored, step, tasks)

    def _to_join(self, group_id: str, records: list[GroupRecord]) -> StreamsGroup:
        """The group of a member that joins; a new one where there is none, or an empty one of the classic
        protocol."""
        group = self._groups.get(group_id)
        if group is not None and group.group_type == CLASSIC and group.is_empty:
            keys = group.keys()
            records += [(key, None) for key in keys]
            group = None
        if group is None:
            return StreamsGroup(group_id)
        group = _as_streams_group(group)
        limit = self._settings.group_streams_max_size
        if len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The streams group has its maximum of {limit} members."
            )
        return group

    def _existing(self, group_id: str) -> StreamsGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        return _as_streams_group(group)

    def _next_of(
        self,
        group: StreamsGroup,
        member: StreamsMember | None,
        asked: AskedHeartbeat,
        owned: TaskAssignment | None,
        records: list[GroupRecord],
        now_ms: int,
    ) -> _Step:
        """The member, the topology and the topics as they now are, and what follows for the group's epoch."""
        request, client = asked.request, asked.client
        metadata = _updated(new_member_metadata() if member is None else member.metadata, request, client)
        has_changed = member is None or metadata != member.metadata
        if has_changed:
            _check_texts(request, client)
            records.append(group.records.member(group.group_id, request.member_id, metadata))
        topology = _topology_of(group, request.topology, records)
        statuses: list[Status] = []
        if group.topology is not None and metadata.topology_epoch < group.topology.epoch:
            statuses.append(_stale(metadata.topology_epoch, group.topology.epoch))

        configured, topics_hash = self._configured(group, topology)
        has_changed = has_changed or topics_hash != group.metadata_hash
        validated_epoch = NO_TOPOLOGY_EPOCH
        if configured.is_ready:
            validated_epoch = topology.epoch
            _check_tasks(configured, owned)
        configs = self._assignment_configs(group.group_id)
        has_changed = (
            has_changed
            or validated_epoch != group.validated_topology_epoch
            or configs != group.assignment_configs
        )
        group_epoch = group.group_epoch
        if has_changed:
            group_epoch += 1
            records.append(_epoch_record(group, group_epoch, topics_hash, validated_epoch, configs))
        return _Step(group, request, owned, now_ms, records, statuses, metadata, configured, group_epoch)

    def _configured(
        self, group: StreamsGroup, topology: StreamsGroupTopologyValue
    ) -> tuple[ConfiguredTopology, int]:
        """The topology compared with the present topics, and their hash."""
        configured = group.configured
        if configured is not None and not group.topics_may_have_changed:
            return configured, group.metadata_hash
        view = self._topics()
        topics_hash = metadata_hash(required_topics(topology), view)
        if configured is None or topics_hash != group.metadata_hash:
            configured = configure(topology, view.topics)
        return configured, topics_hash

    def _assignment_configs(self, group_id: str) -> dict[str, str]:
        return {STANDBY_REPLICAS: str(self._settings.of_group(group_id).streams_num_standby_replicas)}

    # Target assignment

    def _target(self, step: _Step) -> tuple[int, TaskAssignment, int | None]:
        """Epoch and target assignment of the member, computed again where the group has changed; until
        when a new group waits for more members (None: it does not)."""
        group, member_id, now_ms = step.group, step.request.member_id, step.now_ms
        config = self._settings.of_group(group.group_id)
        delayed_until_ms = group.delayed_until_ms
        if delayed_until_ms is None and group.is_empty and config.streams_initial_rebalance_delay_ms:
            delayed_until_ms = now_ms + config.streams_initial_rebalance_delay_ms
        if delayed_until_ms is not None:
            step.statuses.append(_delayed("initial rebalance delay"))
            return group.assignment_epoch, NO_TARGET, delayed_until_ms
        if group.assignment_epoch >= step.group_epoch:
            return group.assignment_epoch, group.target_of(member_id), None
        if group.assigned_at_ms and now_ms < group.assigned_at_ms + config.streams_assignment_interval_ms:
            step.statuses.append(_delayed("assignment interval"))
            return group.assignment_epoch, group.target_of(member_id), None
        metadata = {member.member_id: member.metadata for member in group.members.values()}
        metadata[member_id] = step.metadata
        targets = self._assign(group, metadata, step.configured, step.group_epoch, now_ms, step.records)
        return step.group_epoch, targets[member_id], None

    def _assign(
        self,
        group: StreamsGroup,
        members: dict[str, StreamsGroupMemberMetadataValue],
        configured: ConfiguredTopology,
        epoch: int,
        now_ms: int,
        records: list[GroupRecord],
    ) -> dict[str, TaskAssignment]:
        """A target assignment for these members; adds the records of what is new in it."""
        group_id = group.group_id
        if configured.is_ready and configured.subtopologies is not None:
            spec = TaskSpec(
                {
                    member_id: _assigned_member(metadata, group.target_of(member_id))
                    for member_id, metadata in members.items()
                },
                {
                    subtopology_id: AssignableSubtopology(subtopology.task_count, subtopology.is_stateful)
                    for subtopology_id, subtopology in configured.subtopologies.items()
                },
                self._settings.of_group(group_id).streams_num_standby_replicas,
            )
            targets = assign_tasks(spec)
        else:
            targets = dict.fromkeys(members, NO_TARGET)
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                records.append(group.records.target(group_id, member_id, target))
        records.append(group.records.target_epoch(group_id, epoch, now_ms))
        return targets

    # After the records are written

    def _settle(
        self,
        group: StreamsGroup,
        step: _Step,
        delayed_until_ms: int | None,
        before: MemberTasks,
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """Take over what is in no record, and set the timers."""
        group.configured = step.configured
        group.topics_may_have_changed = False
        if delayed_until_ms is not None and group.delayed_until_ms is None:
            group.delayed_until_ms = delayed_until_ms
            out.append(SetTimer(delay_key(group.group_id), delayed_until_ms))
        member = group.members[step.request.member_id]
        if member.current != before:
            self._follow_revocation(group, member, now_ms, out)
        self._extend_session(group, member, now_ms, out)
        if step.request.shutdown_application:
            group.shutdown_by = group.shutdown_by or member.member_id

    def _result(self, group: StreamsGroup, step: _Step, before: MemberTasks) -> StreamsGroupHeartbeatResult:
        request, configured = step.request, step.configured
        member = group.members[request.member_id]
        assignment, has_changed = None, member.current.assigned != before.assigned
        if request.member_epoch == JOIN_EPOCH or has_changed:
            assignment = member.current.assigned.without_epochs()
            # A new group begins with the settings of this request.
            if member.metadata.user_endpoint is not None and group is step.group:
                group.endpoint_epoch += 1
        elif step.owned is not None and not _has_all(step.owned, member.current.assigned):
            # The response that had it was lost. (In Kafka 4.3 no member runs them until something changes.)
            assignment = member.current.assigned.without_epochs()
        statuses = step.statuses
        if configured.problem is not None:
            statuses.append(configured.problem)
        if group.shutdown_by is not None:
            statuses.append(_shutdown(group.shutdown_by))
        response = StreamsGroupHeartbeatResponse(
            error_code=NONE,
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=self._settings.of_group(group.group_id).streams_heartbeat_interval_ms,
            status=statuses,
            endpoint_information_epoch=group.endpoint_epoch,
            partitions_by_user_endpoint=None
            if group.endpoint_epoch == request.endpoint_information_epoch
            else self._endpoints(group),
        )
        if assignment is not None:
            response.active_tasks = listed_tasks(assignment.active, heartbeat.TaskIds)
            response.standby_tasks = listed_tasks(assignment.standby, heartbeat.TaskIds)
            response.warmup_tasks = listed_tasks(assignment.warmup, heartbeat.TaskIds)
        return StreamsGroupHeartbeatResult(response, configured.topics_to_create)

    def _endpoints(self, group: StreamsGroup) -> list[EndpointToPartitions]:
        view = self._topics()
        return [
            EndpointToPartitions(
                user_endpoint=copied_as(heartbeat.Endpoint, endpoint),
                active_partitions=_partitions_of(
                    member.current.assigned.without_epochs().active, group.configured, view
                ),
                standby_partitions=_partitions_of(member.current.assigned.standby, group.configured, view),
            )
            for member in group.members.values()
            if (endpoint := member.metadata.user_endpoint) is not None
        ]

    def _remove(self, group: StreamsGroup, member: StreamsMember, now_ms: int, out: list[Effect]) -> None:
        group_id, member_id = group.group_id, member.member_id
        epoch = _epoch_record(
            group,
            group.group_epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )
        records: list[GroupRecord] = [
            *group.records.tombstones(group_id, member_id),
            epoch,
        ]
        fits = self._store(group_id, records, now_ms, out)
        assert fits, "tombstones are small"
        self._timers.cancel(group_id, member, out)

    # Timers

    def start(self, group: StreamsGroup, now_ms: int, out: list[Effect]) -> None:
        """The group has been read from the log: its members may still be there; their sessions begin now."""
        for member in group.members.values():
            self._extend_session(group, member, now_ms, out)
            self._follow_revocation(group, member, now_ms, out)

    def expire(self, group: StreamsGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]) -> None:
        """A timer of the group is due."""
        if timer_key[0] == DELAY:
            self._expire_delay(group, now_ms, out)
            return
        member = group.members.get(timer_key[2])
        if member is None:
            return
        if timer_key[0] == SESSION:
            is_gone = self._timers.has_ended(group.group_id, member, now_ms, out)
        else:
            assert timer_key[0] == REBALANCE, timer_key
            is_gone = self._timers.has_not_revoked(member, member.current.member_epoch)
        if is_gone:
            self._remove(group, member, now_ms, out)

    def _expire_delay(self, group: StreamsGroup, now_ms: int, out: list[Effect]) -> None:
        """A new group has waited for more members: assign tasks to those who have come."""
        group.delayed_until_ms = None
        configured = group.configured
        if group.is_empty or configured is None or group.group_epoch <= group.assignment_epoch:
            return
        records: list[GroupRecord] = []
        metadata = {member.member_id: member.metadata for member in group.members.values()}
        self._assign(group, metadata, configured, group.group_epoch, now_ms, records)
        # One that is too large is refused with the next heartbeat.
        self._store(group.group_id, records, now_ms, out)

    def topics_changed(
        self, group: StreamsGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        """The next heartbeat looks at them."""
        if group.needs_any_of(names):
            group.topics_may_have_changed = True

    def offsets_committed(self, group: StreamsGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
        """A session is kept by heartbeats alone."""

    def owned(self, group: StreamsGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        return group.owned()

    def refuse_waiting(self, group: StreamsGroup, code: ErrorCode, out: list[Effect]) -> None:
        """No ticket waits: every heartbeat is answered at once."""

    def _extend_session(
        self, group: StreamsGroup, member: StreamsMember, now_ms: int, out: list[Effect]
    ) -> None:
        timeout_ms = self._settings.of_group(group.group_id).streams_session_timeout_ms
        self._timers.extend(group.group_id, member, now_ms + timeout_ms, out)

    def _follow_revocation(
        self, group: StreamsGroup, member: StreamsMember, now_ms: int, out: list[Effect]
    ) -> None:
        """A member that has to give up tasks has its rebalance time-out to do so."""
        if member.current.state is MemberState.UNREVOKED_TASKS:
            until_ms = now_ms + max(member.metadata.rebalance_timeout_ms, 0)
            self._timers.time_revocation(group.group_id, member, member.current.member_epoch, until_ms, out)
        else:
            self._timers.stop_revocation(group.group_id, member, out)

    # Administration

    def describe(
        self,
        asked: Asked[StreamsGroupDescribeRequest, StreamsGroupDescribeResponse],
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """Describe the group of a request that names one. GROUP_ID_NOT_FOUND."""
        (group_id,) = asked.request.group_ids
        try:
            described = _described(self._existing(group_id))
        except KafkaError as error:
            described = describe.DescribedGroup(
                error_code=error.code, error_message=error.own_message, group_id=group_id
            )
        out.append(Reply(asked.ticket, StreamsGroupDescribeResponse(groups=[described])))


# Checks


def _as_streams_group(group: Group) -> StreamsGroup:
    if not isinstance(group, StreamsGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a streams group.")
    return group


def _member_of(group: StreamsGroup, member_id: str) -> StreamsMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def _are_among(owned: TaskAssignment | None, assigned: HeldTasks) -> bool:
    if owned is None:
        return False
    return all(
        partition in has.get(subtopology_id, ())
        for tasks, has in _by_role(owned, assigned)
        for subtopology_id, partitions in tasks.items()
        for partition in partitions
    )


def _has_all(owned: TaskAssignment, assigned: HeldTasks) -> bool:
    return all(
        partition in tasks.get(subtopology_id, ())
        for tasks, has in _by_role(owned, assigned)
        for subtopology_id, partitions in has.items()
        for partition in partitions
    )


def _by_role(owned: TaskAssignment, assigned: HeldTasks) -> Iterator[tuple[Tasks, Mapping[str, Any]]]:
    yield owned.active, assigned.active
    yield owned.standby, assigned.standby
    yield owned.warmup, assigned.warmup


def _check_tasks(configured: ConfiguredTopology, owned: TaskAssignment | None) -> None:
    if owned is None or configured.subtopologies is None:
        return
    for tasks in (owned.active, owned.standby, owned.warmup):
        for subtopology_id, partitions in tasks.items():
            subtopology = configured.subtopologies.get(subtopology_id)
            if subtopology is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Subtopology {subtopology_id} does not exist in the topology.",
                )
            count = subtopology.task_count
            for partition in partitions:
                if not 0 <= partition < count:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks for "
                        f"this subtopology: {count}",
                    )


def _check_texts(request: StreamsGroupHeartbeatRequest, client: Client) -> None:
    """Refuse what does not fit into a record; requests can hold more."""
    texts = [request.group_id, request.member_id, request.rack_id, request.process_id, client.client_id]
    if request.user_endpoint is not None:
        texts.append(request.user_endpoint.host)
    for tag in request.client_tags or ():
        texts += (tag.key, tag.value)
    if request.topology is not None:
        for subtopology in request.topology.subtopologies:
            texts.append(subtopology.subtopology_id)
            texts += (*subtopology.source_topics, *subtopology.repartition_sink_topics)
            for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
                texts.append(topic.name)
                for config in topic.topic_configs:
                    texts += (config.key, config.value)
    if not fits_record(*texts):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A name is longer than a record can hold.")


def _no_static_members() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, "Static members are not supported yet.")


# What becomes of things


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskAssignment | None:
    """The tasks that the member has; None: as before."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TaskAssignment(tasks_of(active), tasks_of(standby), tasks_of(warmup))


def _updated(
    metadata: StreamsGroupMemberMetadataValue, request: StreamsGroupHeartbeatRequest, client: Client
) -> StreamsGroupMemberMetadataValue:
    """The member, changed by its heartbeat; fields that are left out stay."""
    changes: dict[str, Any] = {}
    if client.client_id != metadata.client_id or client.host != metadata.client_host:
        changes.update(client_id=client.client_id, client_host=client.host)
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        changes["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        changes["process_id"] = request.process_id
    if request.user_endpoint is not None:
        changes["user_endpoint"] = copied_as(Endpoint, request.user_endpoint)
    if request.client_tags is not None:
        tags = [copied_as(KeyValue, tag) for tag in request.client_tags]
        changes["client_tags"] = sorted(tags, key=lambda tag: tag.key)
    return replace(metadata, **changes) if changes else metadata


def _epoch_record(
    group: StreamsGroup,
    epoch: int,
    topics_hash: int,
    validated_topology_epoch: int,
    configs: Mapping[str, str],
) -> GroupRecord:
    return group.records.epoch(
        group.group_id,
        epoch,
        topics_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=listed_configs(configs),
    )


def _topology_of(
    group: StreamsGroup, told: heartbeat.Topology | None, records: list[GroupRecord]
) -> StreamsGroupTopologyValue:
    """The group's topology, which its first member brings. It cannot be changed, as in Kafka 4.3."""
    known, brought = group.topology, None if told is None else copied_as(StreamsGroupTopologyValue, told)
    if known is None:
        if brought is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no topology.")
        check_topology(brought)
        records.append((StreamsGroupTopologyKey(group_id=group.group_id), brought))
        return brought
    # The response names an older one.
    if brought is not None and brought.epoch >= known.epoch and not is_same_topology(brought, known):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return known


def _assigned_member(metadata: StreamsGroupMemberMetadataValue, target: TaskAssignment) -> TaskMember:
    return TaskMember(
        metadata.process_id,
        target,
        {tag.key: tag.value for tag in metadata.client_tags},
        metadata.rack_id,
        metadata.instance_id,
    )


# Responses to members and administrators


def _stale(member_epoch: int, group_epoch: int) -> Status:
    return Status(
        status_code=StatusCode.STALE_TOPOLOGY,
        status_detail=f"The member's topology epoch {member_epoch} is behind the group's topology epoch "
        f"{group_epoch}.",
    )


def _delayed(reason: str) -> Status:
    return Status(
        status_code=StatusCode.ASSIGNMENT_DELAYED,
        status_detail=f"Assignment delayed due to the configured {reason}.",
    )


def _shutdown(member_id: str) -> Status:
    return Status(
        status_code=StatusCode.SHUTDOWN_APPLICATION,
        status_detail=f"Streams group member {member_id} encountered a fatal error and requested a shutdown "
        "for the entire application.",
    )


def _partitions_of(
    tasks: Tasks, configured: ConfiguredTopology | None, view: ClusterView
) -> list[heartbeat.TopicPartition]:
    """The partitions of source topics that belong to tasks, by topic."""
    if configured is None or configured.subtopologies is None:
        return []
    partitions_by_topic = []
    for subtopology_id, partitions in tasks.items():
        subtopology = configured.subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.source_topics:
            topic = view.topics.get(name)
            count = 0 if topic is None else len(topic.partitions)
            existing = [index for index in sorted(partitions) if index < count]
            partitions_by_topic.append(heartbeat.TopicPartition(topic=name, partitions=existing))
    return partitions_by_topic


def _described(group: StreamsGroup) -> describe.DescribedGroup:
    return describe.DescribedGroup(
        error_code=NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if group.topology is None else _described_topology(group.topology, group.configured),
        members=[_described_member(group, member) for member in group.members.values()],
    )


def _described_topology(
    topology: StreamsGroupTopologyValue, configured: ConfiguredTopology | None
) -> describe.Topology:
    """With the numbers of partitions of internal topics where they are decided."""
    subtopologies = [described(one) for one in topology.subtopologies]
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        subtopologies = [subtopology.described for subtopology in configured.subtopologies.values()]
    return describe.Topology(
        epoch=topology.epoch, subtopologies=[copied_as(describe.Subtopology, one) for one in subtopologies]
    )


def _described_member(group: StreamsGroup, member: StreamsMember) -> describe.Member:
    metadata, endpoint = member.metadata, member.metadata.user_endpoint
    return describe.Member(
        member_id=member.member_id,
        member_epoch=member.current.member_epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None if endpoint is None else copied_as(describe.Endpoint, endpoint),
        client_tags=[copied_as(describe.KeyValue, tag) for tag in metadata.client_tags],
        assignment=_described_assignment(member.current.assigned.without_epochs()),
        target_assignment=_described_assignment(group.target_of(member.member_id)),
    )


def _described_assignment(assignment: TaskAssignment) -> describe.Assignment:
    return describe.Assignment(
        active_tasks=listed_tasks(assignment.active, describe.TaskIds),
        standby_tasks=listed_tasks(assignment.standby, describe.TaskIds),
        warmup_tasks=listed_tasks(assignment.warmup, describe.TaskIds),
    )
