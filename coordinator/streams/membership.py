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
from typing import Any

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect, Reply, SetTimer
from odradek.coordinator.groups.consumer_group import metadata_hash
from odradek.coordinator.groups.group import CLASSIC, Group, GroupRecord, Store
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
from odradek.coordinator.streams.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    DescribedStreamsMember,
    DescribeStreamsGroup,
    EndpointPartitions,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    UserEndpoint,
)
from odradek.coordinator.streams.group import (
    NO_TARGET,
    NO_TOPOLOGY_EPOCH,
    StreamsGroup,
    StreamsMember,
    current_tasks_value,
    group_value,
    new_member_metadata,
    target_value,
)
from odradek.coordinator.streams.reconciliation import HeldTasks, MemberState, MemberTasks, reconcile
from odradek.coordinator.streams.topology import (
    ConfiguredTopology,
    Status,
    StatusCode,
    check_topology,
    configure,
    described,
    is_same_topology,
    required_topics,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.group_records import (
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

NONE = ErrorCode.NONE
SESSION, REBALANCE, DELAY = TIMERS = ("streams-session", "streams-rebalance", "streams-delay")
"""What timers are for: the first part of their keys, before the group and the member."""
STANDBY_REPLICAS = "num.standby.replicas"
"""As the record of the group names the setting by which tasks were assigned."""


def delay_key(group_id: str) -> tuple[str, str]:
    return (DELAY, group_id)


@dataclass(slots=True)
class _Step:
    """What becomes of a group by one heartbeat, until it is written."""

    group: StreamsGroup
    """As it was before; a new one is in no machine yet."""
    command: StreamsHeartbeat
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

    def heartbeat(self, command: StreamsHeartbeat, now_ms: int, out: list[Effect]) -> None:
        """GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST, UNKNOWN_SERVER_ERROR."""
        try:
            if command.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH):
                reply = self._leave(command, now_ms, out)
            else:
                reply = self._stay(command, now_ms, out)
        except KafkaError as error:
            reply = StreamsHeartbeatReply(error.code, error.own_message)
        out.append(Reply(command.ticket, reply))

    def _leave(self, command: StreamsHeartbeat, now_ms: int, out: list[Effect]) -> StreamsHeartbeatReply:
        group = self._existing(command.group_id)
        if command.instance_id is not None:
            raise _no_static_members()
        member = _member_of(group, command.member_id)
        if command.shutdown_application:
            group.shutdown_by = group.shutdown_by or command.member_id
        self._remove(group, member, now_ms, out)
        return StreamsHeartbeatReply(NONE, None, command.member_id, command.member_epoch)

    def _stay(self, command: StreamsHeartbeat, now_ms: int, out: list[Effect]) -> StreamsHeartbeatReply:
        joins = command.member_epoch == JOIN_EPOCH
        records: list[GroupRecord] = []
        group = self._to_join(command, records) if joins else self._existing(command.group_id)
        if command.instance_id is not None:
            raise _no_static_members()
        member = group.members.get(command.member_id)
        if not joins:
            member = _member_of(group, command.member_id)
            _check_epoch(group, member, command)
        tasks = MemberTasks() if member is None else member.tasks

        step = self._next_of(group, member, command, records, now_ms)
        target_epoch, target, delays_until_ms = self._target(step)
        new_tasks = reconcile(
            tasks, target, target_epoch, group.owners, step.metadata.process_id, command.owned
        )
        if new_tasks != tasks:
            key = StreamsGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=command.member_id)
            step.records.append((key, current_tasks_value(new_tasks)))
        if not self._store(group.group_id, step.records, now_ms, out):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has become too large.")

        stored = self._groups[group.group_id]
        assert isinstance(stored, StreamsGroup)
        self._settle(stored, step, delays_until_ms, tasks, now_ms, out)
        return self._reply(stored, step, tasks)

    def _to_join(self, command: StreamsHeartbeat, records: list[GroupRecord]) -> StreamsGroup:
        """The group of a member that joins; a new one where there is none, or an empty one of the classic
        protocol."""
        group_id = command.group_id
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
        command: StreamsHeartbeat,
        records: list[GroupRecord],
        now_ms: int,
    ) -> _Step:
        """The member, the topology and the topics as they now are, and what follows for the group's epoch."""
        metadata = _updated(new_member_metadata() if member is None else member.metadata, command)
        has_changed = member is None or metadata != member.metadata
        if has_changed:
            _check_texts(command)
            key = StreamsGroupMemberMetadataKey(group_id=group.group_id, member_id=command.member_id)
            records.append((key, metadata))
        topology = _topology_of(group, command.topology, records)
        statuses: list[Status] = []
        if group.topology is not None and metadata.topology_epoch < group.topology.epoch:
            statuses.append(_stale(metadata.topology_epoch, group.topology.epoch))

        configured, topics_hash = self._configured(group, topology)
        has_changed = has_changed or topics_hash != group.metadata_hash
        validated_epoch = NO_TOPOLOGY_EPOCH
        if configured.is_ready:
            validated_epoch = topology.epoch
            _check_tasks(configured, command.owned)
        configs = self._assignment_configs(group.group_id)
        has_changed = (
            has_changed
            or validated_epoch != group.validated_topology_epoch
            or configs != group.assignment_configs
        )
        group_epoch = group.group_epoch
        if has_changed:
            group_epoch += 1
            value = group_value(group_epoch, topics_hash, validated_epoch, configs)
            records.append((StreamsGroupMetadataKey(group_id=group.group_id), value))
        return _Step(group, command, now_ms, records, statuses, metadata, configured, group_epoch)

    def _configured(
        self, group: StreamsGroup, topology: StreamsGroupTopologyValue
    ) -> tuple[ConfiguredTopology, int]:
        """The topology compared with the present topics, and their hash."""
        configured = group.configured
        if configured is not None and not group.is_to_look:
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
        group, member_id, now_ms = step.group, step.command.member_id, step.now_ms
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
            member = group.members.get(member_id)
            if member is None or member.target != target:
                key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
                records.append((key, target_value(target)))
        made = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        records.append((StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), made))
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
        group.is_to_look = False
        if delayed_until_ms is not None and group.delayed_until_ms is None:
            group.delayed_until_ms = delayed_until_ms
            out.append(SetTimer(delay_key(group.group_id), delayed_until_ms))
        member = group.members[step.command.member_id]
        if member.tasks != before:
            self._follow_revocation(group, member, now_ms, out)
        self._extend_session(group, member, now_ms, out)
        if step.command.shutdown_application:
            group.shutdown_by = group.shutdown_by or member.member_id

    def _reply(self, group: StreamsGroup, step: _Step, before: MemberTasks) -> StreamsHeartbeatReply:
        command, configured = step.command, step.configured
        member = group.members[command.member_id]
        assignment, has_changed = None, member.tasks.assigned != before.assigned
        if command.member_epoch == JOIN_EPOCH or has_changed:
            assignment = member.tasks.assigned.without_epochs()
            # A new group begins with the settings of this request.
            if member.metadata.user_endpoint is not None and group is step.group:
                group.endpoint_epoch += 1
        elif command.owned is not None and not _has_all(command.owned, member.tasks.assigned):
            # The response that had it was lost. (In Kafka 4.3 no member runs them until something changes.)
            assignment = member.tasks.assigned.without_epochs()
        statuses = step.statuses
        if configured.problem is not None:
            statuses.append(configured.problem)
        if group.shutdown_by is not None:
            statuses.append(_shutdown(group.shutdown_by))
        return StreamsHeartbeatReply(
            NONE,
            None,
            member.member_id,
            member.tasks.member_epoch,
            self._settings.of_group(group.group_id).streams_heartbeat_interval_ms,
            assignment,
            statuses,
            group.endpoint_epoch,
            None if group.endpoint_epoch == command.endpoint_epoch else self._endpoints(group),
            configured.topics_to_create,
        )

    def _endpoints(self, group: StreamsGroup) -> list[EndpointPartitions]:
        view = self._topics()
        return [
            EndpointPartitions(
                UserEndpoint(endpoint.host, endpoint.port),
                _partitions_of(member.tasks.assigned.without_epochs().active, group.configured, view),
                _partitions_of(member.tasks.assigned.standby, group.configured, view),
            )
            for member in group.members.values()
            if (endpoint := member.metadata.user_endpoint) is not None
        ]

    def _remove(self, group: StreamsGroup, member: StreamsMember, now_ms: int, out: list[Effect]) -> None:
        group_id, member_id = group.group_id, member.member_id
        value = group_value(
            group.group_epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
        )
        records: list[GroupRecord] = [
            (StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
            (StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
            (StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
            (StreamsGroupMetadataKey(group_id=group_id), value),
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
            is_gone = self._timers.has_not_revoked(member, member.tasks.member_epoch)
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
            group.is_to_look = True

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
        if member.tasks.state is MemberState.UNREVOKED_TASKS:
            until_ms = now_ms + max(member.metadata.rebalance_timeout_ms, 0)
            self._timers.time_revocation(group.group_id, member, member.tasks.member_epoch, until_ms, out)
        else:
            self._timers.stop_revocation(group.group_id, member, out)

    # Administration

    def describe(self, command: DescribeStreamsGroup, now_ms: int, out: list[Effect]) -> None:
        """GROUP_ID_NOT_FOUND."""
        try:
            description = _described(self._existing(command.group_id))
        except KafkaError as error:
            description = StreamsGroupDescription(error.code, command.group_id, error.own_message)
        out.append(Reply(command.ticket, description))


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


def _check_epoch(group: StreamsGroup, member: StreamsMember, command: StreamsHeartbeat) -> None:
    """A member that comes with the epoch before has not got the last answer; it may have nothing that it was
    not given."""
    tasks, epoch = member.tasks, command.member_epoch
    if epoch == tasks.member_epoch:
        return
    if epoch == tasks.previous_member_epoch < tasks.member_epoch and _are_among(
        command.owned, tasks.assigned
    ):
        return
    relation = "greater" if epoch > tasks.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({tasks.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


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


def _check_texts(command: StreamsHeartbeat) -> None:
    """Refuse what does not fit into a record; requests can hold more."""
    texts = [command.group_id, command.member_id, command.rack_id, command.process_id, command.client_id]
    if command.user_endpoint is not None:
        texts.append(command.user_endpoint.host)
    for key, value in (command.client_tags or {}).items():
        texts += (key, value)
    if command.topology is not None:
        for subtopology in command.topology.subtopologies:
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


def _updated(
    metadata: StreamsGroupMemberMetadataValue, command: StreamsHeartbeat
) -> StreamsGroupMemberMetadataValue:
    """The member, changed by its heartbeat; fields that are left out stay."""
    changes: dict[str, Any] = {}
    if command.client_id != metadata.client_id or command.client_host != metadata.client_host:
        changes.update(client_id=command.client_id, client_host=command.client_host)
    if command.rack_id is not None:
        changes["rack_id"] = command.rack_id
    if command.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = command.rebalance_timeout_ms
    if command.topology is not None:
        changes["topology_epoch"] = command.topology.epoch
    if command.process_id is not None:
        changes["process_id"] = command.process_id
    if command.user_endpoint is not None:
        changes["user_endpoint"] = Endpoint(host=command.user_endpoint.host, port=command.user_endpoint.port)
    if command.client_tags is not None:
        changes["client_tags"] = [
            KeyValue(key=key, value=value) for key, value in sorted(command.client_tags.items())
        ]
    return replace(metadata, **changes) if changes else metadata


def _topology_of(
    group: StreamsGroup, brought: StreamsGroupTopologyValue | None, records: list[GroupRecord]
) -> StreamsGroupTopologyValue:
    """The group's topology, which its first member brings. It cannot be changed, as in Kafka 4.3."""
    known = group.topology
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
        StatusCode.STALE_TOPOLOGY,
        f"The member's topology epoch {member_epoch} is behind the group's topology epoch {group_epoch}.",
    )


def _delayed(reason: str) -> Status:
    return Status(StatusCode.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {reason}.")


def _shutdown(member_id: str) -> Status:
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application.",
    )


def _partitions_of(
    tasks: Tasks, configured: ConfiguredTopology | None, view: ClusterView
) -> list[tuple[str, list[int]]]:
    """The partitions of source topics that belong to tasks, by topic."""
    if configured is None or configured.subtopologies is None:
        return []
    partitions_by_topic = []
    for subtopology_id, partitions in tasks.items():
        subtopology = configured.subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.source_topics:
            topic = view.topics.get(name)
            count = 0 if topic is None else len(topic.partitions)
            partitions_by_topic.append((name, [index for index in sorted(partitions) if index < count]))
    return partitions_by_topic


def _described(group: StreamsGroup) -> StreamsGroupDescription:
    topology, configured = group.topology, group.configured
    subtopologies = None if topology is None else [described(one) for one in topology.subtopologies]
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        subtopologies = [subtopology.described for subtopology in configured.subtopologies.values()]
    return StreamsGroupDescription(
        NONE,
        group.group_id,
        None,
        group.state_name,
        group.group_epoch,
        group.assignment_epoch,
        NO_TOPOLOGY_EPOCH if topology is None else topology.epoch,
        subtopologies,
        [_described_member(member) for member in group.members.values()],
    )


def _described_member(member: StreamsMember) -> DescribedStreamsMember:
    metadata, endpoint = member.metadata, member.metadata.user_endpoint
    return DescribedStreamsMember(
        member.member_id,
        member.tasks.member_epoch,
        metadata.instance_id,
        metadata.rack_id,
        metadata.client_id,
        metadata.client_host,
        metadata.topology_epoch,
        metadata.process_id,
        None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        {tag.key: tag.value for tag in metadata.client_tags},
        member.tasks.assigned.without_epochs(),
        NO_TARGET if member.target is None else member.target,
    )
