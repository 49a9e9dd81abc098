"""Streams groups as groups with epochs (KIP-1071): their members have tasks of a topology.

The first member brings the topology. A heartbeat compares it with the existing topics, which finds the topics
to create; and a member moves by tasks (`reconciliation.py`). As in Kafka 4.4 there are no patterns of source
topics, no task is ever a warm-up, though members tell the offsets that would decide it, and a topology does
not change while its group exists. Descriptions of topologies are kept by `description_keeping.py`.

Source: GroupMetadataManager.java of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from odradek.coordinator.asked import Asked, Client
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect, SetTimer
from odradek.coordinator.groups.epochs.change import MemberChange, target_records
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.epochs.membership import Messages
from odradek.coordinator.groups.epochs.static_members import StaticMembership, place_taken
from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, STREAMS, GroupRecord
from odradek.coordinator.groups.group_type import MachineParts
from odradek.coordinator.groups.record_codec import fits_record
from odradek.coordinator.streams.assignor import (
    AssignableSubtopology,
    TaskAssignment,
    TaskMember,
    Tasks,
    TaskSpec,
    assign_tasks,
)
from odradek.coordinator.streams.description_keeping import CLEANUP, DescriptionKeeping
from odradek.coordinator.streams.descriptions import NOT_REQUESTED, NOT_STORED
from odradek.coordinator.streams.group import (
    NO_OFFSETS,
    NO_TARGET,
    NO_TOPOLOGY_EPOCH,
    StreamsGroup,
    StreamsMember,
    TaskOffsets,
    listed_tasks,
    tasks_of,
)
from odradek.coordinator.streams.reconciliation import NO_TASKS, HeldTasks, MemberTasks, reconcile
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
SESSION, REBALANCE, DELAY = "streams-session", "streams-rebalance", "streams-delay"
TIMERS = (SESSION, REBALANCE, DELAY, CLEANUP)
"""Purposes of timers: the first part of their keys, before the group and the member."""
STANDBY_REPLICAS, RACK_AWARE_TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
"""Names, in the record of the group, of the settings by which tasks were assigned."""
DESCRIPTIONS_SINCE = 1
"""Version of the heartbeat from which clients can be asked for a description of their topology."""
TAGS_SINCE = 1
"""Version of the heartbeat from which clients know the status of missing tags."""
NO_TOPICS: Mapping[str, NewTopic] = {}


class StreamsGroupHeartbeatResult(NamedTuple):
    """The response to a heartbeat, and the topics that the API creates. Kafka's class has the same."""

    response: StreamsGroupHeartbeatResponse
    creatable_topics: Mapping[str, NewTopic] = NO_TOPICS
    """By name: internal topics that the application lacks."""


def heartbeat_result(**fields: Any) -> StreamsGroupHeartbeatResult:
    return StreamsGroupHeartbeatResult(StreamsGroupHeartbeatResponse(**fields))


def refused_heartbeat(code: ErrorCode, message: str | None = None) -> StreamsGroupHeartbeatResult:
    return heartbeat_result(error_code=code, error_message=message)


AskedHeartbeat = Asked[StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResult]


def delay_key(group_id: str) -> tuple[str, str]:
    return (DELAY, group_id)


class StreamsChange(MemberChange[StreamsGroup]):
    configured: ConfiguredTopology
    delayed_until_ms: int | None
    """Until when a new group waits for more members; None: it does not."""
    statuses: list[Status]
    offsets: TaskOffsets
    wants_description: bool
    """Whether the member is asked for a description of the topology."""

    def __init__(
        self,
        group: StreamsGroup,
        member: StreamsMember | None,
        member_id: str,
        replaced: StreamsMember | None = None,
    ) -> None:
        """A member that may also come in the place of the static member `replaced`."""
        super().__init__(group, member if replaced is None else replaced, member_id)
        self.replaced = replaced
        if replaced is not None:
            self.current = replace(
                replaced.current, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
            )
            self.current_before = self.current
            self.records += place_taken(group, replaced, member_id, self.target, self.current)

    def is_reason(self, request: StreamsGroupHeartbeatRequest) -> bool:
        """Whether the change of the member's metadata is a reason to assign anew: for a static member only if
        its tasks depend on it."""
        if request.instance_id is None:
            return True
        before, after = self.before, self.metadata
        return (before.topology_epoch, before.rack_id, before.client_tags, before.process_id) != (
            after.topology_epoch,
            after.rack_id,
            after.client_tags,
            after.process_id,
        )

    @property
    def has_new_endpoint(self) -> bool:
        return bool(self.before.user_endpoint != self.metadata.user_endpoint)


class StreamsMembership(StaticMembership[StreamsGroup, StreamsMember, StreamsChange]):
    """The streams protocol over the groups of one machine. Each method adds its effects to `out`."""

    kind = STREAMS
    group_class = StreamsGroup
    change_class = StreamsChange
    messages = Messages(heartbeat_result, StreamsGroupDescribeResponse, describe.DescribedGroup)
    session, rebalance = SESSION, REBALANCE

    def __init__(self, parts: MachineParts, keeping: DescriptionKeeping | None = None) -> None:
        """`keeping` None: nobody keeps descriptions of topologies."""
        super().__init__(parts)
        self._keeping = keeping

    def new_group(self, group_id: str) -> StreamsGroup:
        return StreamsGroup(group_id, keeps_description=self._keeping is not None)

    # Checks

    def _max_size(self) -> int:
        return self._settings.group_streams_max_size

    def _existing(self, group_id: str, is_told_of_type: bool = True) -> StreamsGroup:
        return super()._existing(group_id, is_told_of_type)

    def _check_admission(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> None:
        if request.member_epoch == JOIN_EPOCH:
            super()._check_admission(group, request)

    def _joining(
        self,
        group: StreamsGroup,
        member: StreamsMember | None,
        member_id: str,
        replaced: StreamsMember | None,
    ) -> StreamsChange:
        return StreamsChange(group, member, member_id, replaced)

    def _while_away(self, member: StreamsMember) -> MemberTasks:
        current = member.current
        active = {
            subtopology_id: dict.fromkeys(tasks, 0)
            for subtopology_id, tasks in current.assigned.active.items()
        }
        assigned = replace(current.assigned, active=active)
        return replace(current, member_epoch=LEAVE_FOR_A_WHILE_EPOCH, assigned=assigned, to_revoke=NO_TASKS)

    def _owned(self, request: StreamsGroupHeartbeatRequest) -> TaskAssignment | None:
        """The tasks that the member has; None: as before."""
        active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
        if active is None or standby is None or warmup is None:
            return None
        return TaskAssignment(tasks_of(active), tasks_of(standby), tasks_of(warmup))

    def _has_no_more(self, current: MemberTasks, owned: TaskAssignment | None) -> bool:
        return owned is not None and all(
            partition in has.get(subtopology_id, ())
            for tasks, has in _by_role(owned, current.assigned)
            for subtopology_id, partitions in tasks.items()
            for partition in partitions
        )

    # Heartbeat

    def _update(self, change: StreamsChange, asked: AskedHeartbeat, owned: TaskAssignment | None) -> None:
        """The member, the topology and the topics as they now are, and what follows for the group's epoch."""
        group, request = change.group, asked.request
        has_changed = change.update(_updated(change.metadata, request, asked.client))
        if has_changed:
            _check_texts(request, asked.client)
            has_changed = change.is_reason(request)
        topology = _topology_of(group, request.topology, change.records)
        change.statuses = []
        if group.topology is not None and change.metadata.topology_epoch < group.topology.epoch:
            change.statuses.append(_stale(change.metadata.topology_epoch, group.topology.epoch))
        configured, topics_hash = change.configured, _ = self._configured(group, topology)
        change.topics_compared = True
        validated_epoch = NO_TOPOLOGY_EPOCH
        if configured.is_ready:
            validated_epoch = topology.epoch
            _check_tasks(configured, owned)
        change.offsets = _offsets_told(group.task_offsets.get(change.member_id, NO_OFFSETS), request)
        configs = self._assignment_configs(group.group_id)
        if (
            has_changed
            or topics_hash != group.metadata_hash
            or validated_epoch != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            change.raise_epoch(topics_hash, **group.beside_epoch(validated_epoch, configs))

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
        config = self._settings.of_group(group_id)
        configs = {STANDBY_REPLICAS: str(config.streams_num_standby_replicas)}
        if config.streams_rack_aware_assignment_tags:
            configs[RACK_AWARE_TAGS] = ",".join(config.streams_rack_aware_assignment_tags)
        return configs

    def _is_assignment_due(self, change: StreamsChange, now_ms: int) -> bool:
        group = change.group
        delay_ms = self._settings.of_group(group.group_id).streams_initial_rebalance_delay_ms
        change.delayed_until_ms = group.delayed_until_ms
        if change.delayed_until_ms is None and group.is_empty and delay_ms:
            change.delayed_until_ms = now_ms + delay_ms
        if change.delayed_until_ms is not None:
            change.statuses.append(_delayed("initial rebalance delay"))
            change.target = NO_TARGET
            return False
        is_due = super()._is_assignment_due(change, now_ms)
        if not is_due and change.group_epoch > change.assignment_epoch:
            change.statuses.append(_delayed("assignment interval"))
        return is_due

    def _targets(self, change: StreamsChange) -> Mapping[str, TaskAssignment]:
        members = {member.member_id: member.metadata for member in change.group.members.values()}
        if change.replaced is not None:
            del members[change.replaced.member_id]
        members[change.member_id] = change.metadata
        before = {change.member_id: change.target}
        offsets = {**change.group.task_offsets, change.member_id: change.offsets}
        return self._assign(change.group, members, change.configured, before, offsets)

    def _assign(
        self,
        group: StreamsGroup,
        members: Mapping[str, StreamsGroupMemberMetadataValue],
        configured: ConfiguredTopology,
        before: Mapping[str, TaskAssignment] = {},
        offsets: Mapping[str, TaskOffsets] | None = None,
    ) -> Mapping[str, TaskAssignment]:
        """A target assignment for these members; `before` has their targets until now, and `offsets` what
        they tell of their tasks, where these are not those of the group."""
        told = group.task_offsets if offsets is None else offsets
        if not configured.is_ready or configured.subtopologies is None:
            return dict.fromkeys(members, NO_TARGET)
        return assign_tasks(
            TaskSpec(
                {
                    member_id: _assigned_member(
                        metadata,
                        before.get(member_id) or group.target_of(member_id),
                        told.get(member_id, NO_OFFSETS),
                    )
                    for member_id, metadata in members.items()
                },
                {
                    subtopology_id: AssignableSubtopology(subtopology.task_count, subtopology.is_stateful)
                    for subtopology_id, subtopology in configured.subtopologies.items()
                },
                self._settings.of_group(group.group_id).streams_num_standby_replicas,
            )
        )

    def _next_step(self, change: StreamsChange, owned: TaskAssignment | None) -> MemberTasks:
        process_id = change.metadata.process_id
        owners, epoch = change.group.owners, change.assignment_epoch
        return reconcile(change.current, change.target, epoch, owners, process_id, owned)

    def _settle(
        self,
        change: StreamsChange,
        group: StreamsGroup,
        member: StreamsMember,
        asked: AskedHeartbeat,
        now_ms: int,
        out: list[Effect],
    ) -> None:
        group.configured = change.configured
        if change.offsets != NO_OFFSETS:
            group.task_offsets[change.member_id] = change.offsets
        if change.replaced is not None:
            self.cancel_timers(group, change.replaced, out)
        if change.delayed_until_ms is not None and group.delayed_until_ms is None:
            group.delayed_until_ms = change.delayed_until_ms
            out.append(SetTimer(delay_key(group.group_id), change.delayed_until_ms))
        super()._settle(change, group, member, asked, now_ms, out)
        change.wants_description = (
            self._keeping is not None
            and asked.client.version >= DESCRIPTIONS_SINCE
            and self._keeping.wants(group, change.metadata.topology_epoch, now_ms)
        )
        if asked.request.shutdown_application:
            group.shutdown_by = group.shutdown_by or member.member_id

    def _response(
        self,
        change: StreamsChange,
        group: StreamsGroup,
        asked: AskedHeartbeat,
        owned: TaskAssignment | None,
    ) -> StreamsGroupHeartbeatResult:
        request, current, configured = asked.request, change.current, change.configured
        assignment = None
        before = change.current_before.assigned
        has_moved = (
            current.assigned is not before and current.assigned.without_epochs() != before.without_epochs()
        )
        endpoint = change.metadata.user_endpoint
        # A new group begins with the settings of this request.
        if group is change.group and (change.has_new_endpoint or (has_moved and endpoint is not None)):
            group.endpoint_epoch += 1
        if request.member_epoch == JOIN_EPOCH or has_moved:
            assignment = current.assigned.without_epochs()
        elif owned is not None and not _has_all(owned, current.assigned):
            # The response that had it was lost. (In Kafka 4.3 no member runs them until something changes.)
            assignment = current.assigned.without_epochs()
        statuses = change.statuses
        if configured.problem is not None:
            statuses.append(configured.problem)
        if group.shutdown_by is not None:
            statuses.append(_shutdown(group.shutdown_by))
        config = self._settings.of_group(group.group_id)
        if asked.client.version >= TAGS_SINCE:
            statuses += _missing_tags(change.metadata, config.streams_rack_aware_assignment_tags)
        is_up_to_date = group.endpoint_epoch == request.endpoint_information_epoch
        response = StreamsGroupHeartbeatResponse(
            error_code=NONE,
            member_id=change.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._intervals(group.group_id).heartbeat_interval_ms,
            task_offset_interval_ms=config.streams_task_offset_interval_ms,
            acceptable_recovery_lag=config.streams_acceptable_recovery_lag,
            status=statuses,
            topology_description_required=change.wants_description,
            endpoint_information_epoch=group.endpoint_epoch,
            partitions_by_user_endpoint=None if is_up_to_date else self._endpoints(group),
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

    # Leave

    def _end(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        request: StreamsGroupHeartbeatRequest,
        now_ms: int,
        out: list[Effect],
    ) -> None:
        if request.shutdown_application:
            group.shutdown_by = group.shutdown_by or request.member_id
        super()._end(group, member, request, now_ms, out)

    def _accepted(
        self, request: StreamsGroupHeartbeatRequest, heartbeat_interval_ms: int
    ) -> StreamsGroupHeartbeatResult:
        return heartbeat_result(
            error_code=NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=heartbeat_interval_ms,
            status=[],
        )

    def _records_without(self, group: StreamsGroup, members: Sequence[StreamsMember]) -> list[GroupRecord]:
        more = group.beside_epoch(group.validated_topology_epoch, group.assignment_configs)
        return [group.records.epoch(group.group_id, group.group_epoch + 1, group.metadata_hash, **more)]

    def remove(
        self, group: StreamsGroup, members: Sequence[StreamsMember], now_ms: int, out: list[Effect]
    ) -> None:
        super().remove(group, members, now_ms, out)
        self._watch(group, now_ms, out)

    # Timers, and what is told

    def start(self, group: StreamsGroup, now_ms: int, out: list[Effect]) -> None:
        super().start(group, now_ms, out)
        self._watch(group, now_ms, out)

    def _watch(self, group: StreamsGroup, now_ms: int, out: list[Effect]) -> None:
        if self._keeping is not None:
            self._keeping.watch(group, now_ms, out)

    def expire(self, group: StreamsGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]) -> None:
        if timer_key[0] == DELAY:
            self._expire_delay(group, now_ms, out)
        elif timer_key[0] == CLEANUP:
            assert self._keeping is not None
            self._keeping.clean_up(group, now_ms, out)
        else:
            super().expire(group, timer_key, now_ms, out)

    def _expire_delay(self, group: StreamsGroup, now_ms: int, out: list[Effect]) -> None:
        """A new group has waited for more members: assign tasks to those who have come."""
        group.delayed_until_ms = None
        configured = group.configured
        if group.is_empty or configured is None or group.group_epoch <= group.assignment_epoch:
            return
        metadata = {member.member_id: member.metadata for member in group.members.values()}
        targets = self._assign(group, metadata, configured)
        # One that is too large is refused with the next heartbeat.
        self._store(group.group_id, target_records(group, targets, group.group_epoch, now_ms), now_ms, out)

    def topics_changed(
        self, group: StreamsGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        if group.needs_any_of(names):
            group.topics_may_have_changed = True

    def owned(self, group: StreamsGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        return group.owned()

    def _described(self, group: StreamsGroup, request: StreamsGroupDescribeRequest) -> dict[str, Any]:
        topology = group.topology
        status, description = NOT_REQUESTED, None
        if request.include_topology_description:
            keeping = self._keeping
            status, description = (NOT_STORED, None) if keeping is None else keeping.description_of(group)
        return {
            "topology_description_status": status,
            "topology_description": description,
            "topology": None if topology is None else _described_topology(topology, group.configured),
            "members": [_described_member(group, member) for member in group.members.values()],
            "assignor_name": self._settings.of_group(group.group_id).streams_assignor_name,
        }


# Checks


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
    texts.append(request.instance_id)
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


# What becomes of things


def _offsets_told(known: TaskOffsets, request: StreamsGroupHeartbeatRequest) -> TaskOffsets:
    """The member's offsets; a list that it leaves out stays. INVALID_REQUEST."""
    restored, ends = request.task_offsets, request.task_end_offsets
    if restored is not None:
        known = known._replace(restored=_by_task(restored))
    return known if ends is None else known._replace(ends=_by_task(ends))


def _by_task(listed: Sequence[heartbeat.TaskOffset]) -> dict[tuple[str, int], int]:
    offsets: dict[tuple[str, int], int] = {}
    for one in listed:
        task = one.subtopology_id, one.partition
        if task in offsets:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {one.subtopology_id} and partition "
                f"{one.partition}.",
            )
        offsets[task] = one.offset
    return offsets


def _updated(
    metadata: StreamsGroupMemberMetadataValue, request: StreamsGroupHeartbeatRequest, client: Client
) -> StreamsGroupMemberMetadataValue:
    """The member, changed by its heartbeat; fields that are left out stay."""
    changes: dict[str, Any] = {}
    if client.client_id != metadata.client_id or client.host != metadata.client_host:
        changes.update(client_id=client.client_id, client_host=client.host)
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
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
    elif request.member_epoch == JOIN_EPOCH:
        changes["user_endpoint"] = None
    if request.client_tags is not None:
        tags = [copied_as(KeyValue, tag) for tag in request.client_tags]
        changes["client_tags"] = sorted(tags, key=lambda tag: tag.key)
    return replace(metadata, **changes) if changes else metadata


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


def _assigned_member(
    metadata: StreamsGroupMemberMetadataValue, target: TaskAssignment, offsets: TaskOffsets
) -> TaskMember:
    return TaskMember(
        metadata.process_id,
        target,
        {tag.key: tag.value for tag in metadata.client_tags},
        metadata.rack_id,
        metadata.instance_id,
        offsets.restored,
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


def _missing_tags(metadata: StreamsGroupMemberMetadataValue, required: Sequence[str]) -> list[Status]:
    known = {tag.key for tag in metadata.client_tags}
    missing = [tag for tag in required if tag not in known]
    if not missing:
        return []
    detail = (
        f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
        "Configure them via 'client.tag.<tagKey>' in your Streams config."
    )
    return [Status(status_code=StatusCode.MISSING_CLIENT_TAGS, status_detail=detail)]


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
            if existing:
                partitions_by_topic.append(heartbeat.TopicPartition(topic=name, partitions=existing))
    return partitions_by_topic


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
    offsets = group.task_offsets.get(member.member_id, NO_OFFSETS)
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
        task_offsets=_described_offsets(offsets.restored),
        task_end_offsets=_described_offsets(offsets.ends),
        assignment=_described_assignment(member.current.assigned.without_epochs()),
        target_assignment=_described_assignment(group.target_of(member.member_id)),
    )


def _described_offsets(offsets: Mapping[tuple[str, int], int]) -> list[describe.TaskOffset]:
    return [
        describe.TaskOffset(subtopology_id=subtopology_id, partition=partition, offset=offset)
        for (subtopology_id, partition), offset in sorted(offsets.items())
    ]


def _described_assignment(assignment: TaskAssignment) -> describe.Assignment:
    return describe.Assignment(
        active_tasks=listed_tasks(assignment.active, describe.TaskIds),
        standby_tasks=listed_tasks(assignment.standby, describe.TaskIds),
        warmup_tasks=listed_tasks(assignment.warmup, describe.TaskIds),
    )
