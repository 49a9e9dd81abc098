"""The members of a share group and their partitions (KIP-932): heartbeats, time-outs, the description, and
what administrators ask.

The rules are those of Kafka's GroupMetadataManager.java (share groups), release 4.3. A heartbeat goes through
five steps: the member as it now is; the topics, and whether partitions with a state are with nobody; the
target assignment, where any of that has changed; the member's own assignment, which is its target at once,
since nobody has to give a partition up before another may have it; and partitions without a state, for which
the share coordinator is asked (`partition_states.py`). All changes are written as one batch.

The response to a heartbeat is there at once. Who waits for the share coordinator has a ticket in the `Asking`
and in the command that brings its answer, so there is none here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from odradek.coordinator.asked import Asked
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.groups.epochs.fencing import check_epoch
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_EPOCH, SHARE, Group, GroupRecord, Store
from odradek.coordinator.groups.group_type import DeleteGroup
from odradek.coordinator.groups.record_codec import fits_record
from odradek.coordinator.groups.sessions import MemberTimers
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.shares.groups import partition_states
from odradek.coordinator.shares.groups.assignor import SIMPLE, Partitions, Reader, assign_partitions
from odradek.coordinator.shares.groups.commands import (
    DeleteStates,
    InitializeStates,
    StatesDeleted,
    StatesInitialized,
)
from odradek.coordinator.shares.groups.group import (
    NO_METADATA,
    MemberAssignment,
    PartitionStates,
    ShareGroup,
    ShareMember,
    TopicStates,
)
from odradek.coordinator.shares.state.persister import Refusal, SharePartitionKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_share_group_offsets as alter
from odradek.wire.messages import delete_share_group_offsets as delete
from odradek.wire.messages import describe_share_group_offsets as offsets
from odradek.wire.messages import share_group_describe as describe
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.wire.messages.group_records import (
    ShareGroupMemberMetadataValue,
)
from odradek.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

NONE = ErrorCode.NONE
AskedHeartbeat = Asked[ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]
AskedDescribe = Asked[describe.ShareGroupDescribeRequest, describe.ShareGroupDescribeResponse]
AskedOffsets = Asked[offsets.DescribeShareGroupOffsetsRequest, offsets.DescribeShareGroupOffsetsResponse]
AskedAlter = Asked[alter.AlterShareGroupOffsetsRequest, alter.AlterShareGroupOffsetsResponse]
AskedDelete = Asked[delete.DeleteShareGroupOffsetsRequest, delete.DeleteShareGroupOffsetsResponse]
SESSION = "share-session"
TIMERS = (SESSION,)
"""What timers are for: the first part of their keys, before the group and the member."""


@dataclass(slots=True)
class _Step:
    """What becomes of a group by one heartbeat, until it is written."""

    group: ShareGroup
    """As it was before; a new one is in no machine yet."""
    member_id: str
    metadata: ShareGroupMemberMetadataValue
    """Of the member, as it now is."""
    records: list[GroupRecord]
    topics: Collection[str]
    """Names of all topics that the group now subscribes to."""
    group_epoch: int
    has_looked: bool
    """The topics have been compared with the group's hash."""


class ShareMembership:
    """The share protocol over the groups of one machine. Each method adds its effects to `out`."""

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        topics: Callable[[], ClusterView],
        store: Store,
        delete_group: DeleteGroup,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._store = store
        self._delete_any_group = delete_group
        self._timers = MemberTimers(SESSION)

    # Heartbeat

    def heartbeat(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> None:
        """GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        UNKNOWN_SERVER_ERROR."""
        try:
            if asked.request.member_epoch == LEAVE_EPOCH:
                response = self._leave(asked.request, now_ms, out)
            else:
                response = self._stay(asked, now_ms, out)
        except KafkaError as error:
            response = ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.own_message)
        out.append(Reply(asked.ticket, response))

    def _leave(
        self, request: ShareGroupHeartbeatRequest, now_ms: int, out: list[Effect]
    ) -> ShareGroupHeartbeatResponse:
        group = self._existing(request.group_id)
        self._remove(group, _member_of(group, request.member_id), now_ms, out)
        return ShareGroupHeartbeatResponse(
            error_code=NONE, member_id=request.member_id, member_epoch=LEAVE_EPOCH
        )

    def _stay(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> ShareGroupHeartbeatResponse:
        request, member_id = asked.request, asked.request.member_id
        joins = request.member_epoch == JOIN_EPOCH
        group = self._existing_or_new(request.group_id) if joins else self._of_members(request.group_id)
        self._check_size(group, member_id)
        member = group.members.get(member_id)
        if not joins:
            member = _member_of(group, member_id)
            # It has nothing that another may have.
            check_epoch(SHARE, member.current, request.member_epoch, lambda: True)
        before = MemberAssignment() if member is None else member.current
        view = self._topics()

        step = self._next_of(group, member, asked, view)
        target_epoch, target = self._target(step, view, now_ms)
        has_new_epoch = step.group_epoch != group.group_epoch
        current = _reconciled(before, target_epoch, target, step.metadata, has_new_epoch, view)
        if current != before:
            step.records.append(group.records.current(group.group_id, member_id, current))
        missing = self._set_up(step, view, now_ms)
        if step.records and not self._store(group.group_id, step.records, now_ms, out):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has become too large.")

        stored = self._groups[group.group_id]
        assert isinstance(stored, ShareGroup)
        stored.topics_may_have_changed = stored.topics_may_have_changed and not step.has_looked
        self._extend_session(stored, stored.members[member_id], now_ms, out)
        if missing:
            stored.asked_at_ms |= dict.fromkeys(missing, now_ms)
            states = partition_states.initial_states(stored, step.group_epoch, missing)
            out.append(InitializeStates(StatesInitialized(stored.group_id, now_ms), states))
        else:
            stored.are_states_complete = not (stored.states.initializing or stored.deletion_asked_at_ms)
        is_told = (
            joins or request.subscribed_topic_names is not None or current.partitions != before.partitions
        )
        return ShareGroupHeartbeatResponse(
            error_code=NONE,
            member_id=member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._settings.of_group(group.group_id).share_heartbeat_interval_ms,
            assignment=_assignment(current.partitions) if is_told else None,
        )

    def _check_size(self, group: ShareGroup, member_id: str) -> None:
        limit = self._settings.group_share_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The share group has its maximum of {limit} members."
            )

    def _next_of(
        self, group: ShareGroup, member: ShareMember | None, asked: AskedHeartbeat, view: ClusterView
    ) -> _Step:
        """The member and the topics as they now are, and what follows for the group's epoch."""
        group_id, member_id = group.group_id, asked.request.member_id
        known = NO_METADATA if member is None else member.metadata
        metadata = _updated(known, asked)
        records: list[GroupRecord] = []
        if member is None or metadata is not known:
            _check_texts(asked)
            records.append(group.records.member(group_id, member_id, metadata))
        names_before, names = known.subscribed_topic_names, metadata.subscribed_topic_names
        has_reason = names != names_before or (
            group.assignment_epoch >= group.group_epoch
            and bool(group.members)
            and not group.has_all_assigned(view)
        )
        topics, group_epoch = group.topics_with(names_before, names), group.group_epoch
        has_looked = has_reason or group.topics_may_have_changed
        if has_looked:
            topics_hash = metadata_hash(topics, view)
            if has_reason or topics_hash != group.metadata_hash:
                group_epoch += 1
                records.append(group.records.epoch(group_id, group_epoch, topics_hash))
        return _Step(group, member_id, metadata, records, topics, group_epoch, has_looked)

    # Target assignment

    def _target(self, step: _Step, view: ClusterView, now_ms: int) -> tuple[int, Partitions]:
        """Epoch and target of the member, for all computed again where the group has changed."""
        group = step.group
        config = self._settings.of_group(group.group_id)
        if group.assignment_epoch >= step.group_epoch or (
            group.assigned_at_ms and now_ms < group.assigned_at_ms + config.share_assignment_interval_ms
        ):
            return group.assignment_epoch, group.target_of(step.member_id)
        metadata = {member.member_id: member.metadata for member in group.members.values()}
        metadata[step.member_id] = step.metadata
        readers = {
            member_id: Reader(_topic_ids(one, view), group.target_of(member_id))
            for member_id, one in metadata.items()
        }
        assignable = {
            topic_id: one.partitions
            for topic_id, one in group.states.initialized.items()
            if topic_id in view.topic_names
        }
        targets = assign_partitions(readers, assignable)
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                step.records.append(group.records.target(group.group_id, member_id, target))
        step.records.append(group.records.target_epoch(group.group_id, step.group_epoch, now_ms))
        return step.group_epoch, targets[step.member_id]

    def _set_up(self, step: _Step, view: ClusterView, now_ms: int) -> dict[bytes, TopicStates]:
        """Partitions that are to get a state; adds the record of that."""
        group = step.group
        if group.are_states_complete and not step.has_looked:
            return {}
        retry_ms = self._settings.group_share_initialize_retry_interval_ms
        missing = partition_states.missing(group, step.topics, view, now_ms, retry_ms)
        states = partition_states.without_deleted(group.states, view)
        if missing:
            states = partition_states.to_initialize(states, missing)
        if states != group.states:
            step.records.append(partition_states.record_of(group.group_id, states))
        return missing

    def _remove(self, group: ShareGroup, member: ShareMember, now_ms: int, out: list[Effect]) -> None:
        group_id, member_id = group.group_id, member.member_id
        topics = group.topics_with(member.metadata.subscribed_topic_names, ())
        records: list[GroupRecord] = [
            *group.records.tombstones(group_id, member_id),
            group.records.epoch(group_id, group.group_epoch + 1, metadata_hash(topics, self._topics())),
        ]
        fits = self._store(group_id, records, now_ms, out)
        assert fits, "tombstones are small"
        self._timers.cancel(group_id, member, out)

    # Timers, and what is told

    def start(self, group: ShareGroup, now_ms: int, out: list[Effect]) -> None:
        """The group has been read from the log: its members may still be there; their sessions begin now.
        What was asked of the share coordinator may be on its way still."""
        group.asked_at_ms = dict.fromkeys(group.states.initializing, now_ms)
        group.deletion_asked_at_ms = dict.fromkeys(group.states.deleting, now_ms)
        for member in group.members.values():
            self._extend_session(group, member, now_ms, out)

    def expire(self, group: ShareGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]) -> None:
        """A session may be over."""
        member = group.members.get(timer_key[2])
        if member is not None and self._timers.has_ended(group.group_id, member, now_ms, out):
            self._remove(group, member, now_ms, out)

    def topics_changed(
        self, group: ShareGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        """The next heartbeat looks at them; the states of those that are gone are forgotten now."""
        group.have_topics_changed()
        states = partition_states.without_deleted(group.states, self._topics())
        if states != group.states:
            self._store(group.group_id, [partition_states.record_of(group.group_id, states)], now_ms, out)

    def offsets_committed(self, group: ShareGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
        """There are none."""

    def owned(self, group: ShareGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        """Nothing that could have a commit."""
        return iter(())

    def refuse_waiting(self, group: ShareGroup, code: ErrorCode, out: list[Effect]) -> None:
        """No ticket waits here."""

    def _extend_session(self, group: ShareGroup, member: ShareMember, now_ms: int, out: list[Effect]) -> None:
        timeout_ms = self._settings.of_group(group.group_id).share_session_timeout_ms
        self._timers.extend(group.group_id, member, now_ms + timeout_ms, out)

    # Administration

    def describe(self, asked: AskedDescribe, now_ms: int, out: list[Effect]) -> None:
        """One group: GROUP_ID_NOT_FOUND."""
        (group_id,) = asked.request.group_ids
        try:
            described = _described(self._existing(group_id), self._topics())
        except KafkaError as error:
            described = describe.DescribedGroup(
                error_code=error.code, error_message=error.own_message, group_id=group_id
            )
        out.append(Reply(asked.ticket, describe.ShareGroupDescribeResponse(groups=[described])))

    def describe_offsets(self, asked: AskedOffsets, now_ms: int, out: list[Effect]) -> None:
        """The partitions of one group that have a state, without what the share coordinator knows of them. As
        in Kafka, a group that does not exist, or is of another type, has none."""
        group_id = asked.request.groups[0].group_id
        group = self._groups.get(group_id)
        states = group.states.initialized if isinstance(group, ShareGroup) else {}
        topics = [
            offsets.DescribeShareGroupOffsetsResponseTopic(
                topic_name=one.name,
                topic_id=topic_id,
                partitions=[
                    offsets.DescribeShareGroupOffsetsResponsePartition(partition_index=index)
                    for index in sorted(one.partitions)
                ],
            )
            for topic_id, one in states.items()
        ]
        found = offsets.DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics)
        out.append(Reply(asked.ticket, offsets.DescribeShareGroupOffsetsResponse(groups=[found])))

    def alter_offsets(self, asked: AskedAlter, now_ms: int, out: list[Effect]) -> None:
        """GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; of a partition UNKNOWN_TOPIC_OR_PARTITION, and what the share
        coordinator says."""
        group_id, ticket = asked.request.group_id, asked.ticket
        try:
            group = self._existing_or_new(group_id)
            if group.members:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            response, states, to_set_up = partition_states.altered(group, asked.request, self._topics())
            if not states:
                out.append(Reply(ticket, response))
                return
            known = partition_states.to_initialize(group.states, to_set_up)
            self._write_states(group, known, now_ms, out)
        except KafkaError as error:
            refusal = alter.AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
            out.append(Reply(ticket, refusal))
            return
        stored = self._groups[group_id]
        assert isinstance(stored, ShareGroup)
        stored.asked_at_ms |= dict.fromkeys(to_set_up, now_ms)
        out.append(InitializeStates(StatesInitialized(group_id, now_ms, response, ticket=ticket), states))

    def states_initialized(self, command: StatesInitialized, now_ms: int, out: list[Effect]) -> None:
        """The share coordinator has answered. The next heartbeat asks again for what was refused; what an
        administrator wanted stays to be set up, as in Kafka."""
        response = command.response
        group = self._groups.get(command.group_id)
        if isinstance(group, ShareGroup):
            current = {
                key: refusal
                for key, refusal in command.results.items()
                if group.asked_at_ms.get(key.topic_id) == command.asked_at_ms
            }
            states = partition_states.initialized(group.states, current, gives_up=response is None)
            if states != group.states:
                record = partition_states.record_of(group.group_id, states)
                self._store(group.group_id, [record], now_ms, out)
        if response is not None:
            partition_states.add_results(command.group_id, response, command.results)
        out.append(Reply(command.ticket, NONE if response is None else response))

    def delete_offsets(self, asked: AskedDelete, now_ms: int, out: list[Effect]) -> None:
        """GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; of a topic UNKNOWN_TOPIC_OR_PARTITION, and what the share
        coordinator says."""
        request, ticket = asked.request, asked.ticket
        try:
            group = self._existing(request.group_id)
            if group.members:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            if group.recorded_states is None:
                # As in Kafka, no topic is named then.
                out.append(Reply(ticket, delete.DeleteShareGroupOffsetsResponse()))
                return
            states, keys, refused = partition_states.delete_topics(group, request, self._topics())
            self._write_states(group, states, now_ms, out)
        except KafkaError as error:
            refusal = delete.DeleteShareGroupOffsetsResponse(
                error_code=error.code, error_message=error.message
            )
            out.append(Reply(ticket, refusal))
            return
        if keys:
            deletion = StatesDeleted(group.group_id, now_ms, refused, ticket=ticket)
            self._ask_to_delete(group, deletion, keys, out)
        else:
            out.append(Reply(ticket, delete.DeleteShareGroupOffsetsResponse(responses=refused)))

    def delete_groups(
        self, asked: Asked[DeleteGroupsRequest, DeleteGroupsResponse], now_ms: int, out: list[Effect]
    ) -> None:
        """One group, of any type; of a share group its states go first."""
        (group_id,) = asked.request.groups_names
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.members or group.recorded_states is None:
            self._delete_any_group(group_id, asked.ticket, now_ms, out)
            return
        states, keys = partition_states.delete_all(group, self._topics())
        if not keys:
            self._delete_any_group(group_id, asked.ticket, now_ms, out)
            return
        try:
            self._write_states(group, states, now_ms, out)
        except KafkaError as error:
            out.append(Reply(asked.ticket, _refused_deletion(group_id, error.code)))
            return
        self._ask_to_delete(group, StatesDeleted(group_id, now_ms, ticket=asked.ticket), keys, out)

    def states_deleted(self, command: StatesDeleted, now_ms: int, out: list[Effect]) -> None:
        """The share coordinator has answered."""
        group_id, ticket = command.group_id, command.ticket
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            for topic_id in {key.topic_id for key in command.results}:
                if group.deletion_asked_at_ms.get(topic_id) == command.asked_at_ms:
                    del group.deletion_asked_at_ms[topic_id]
        if command.refused_topics is None:
            refused = _first_refusal(command.results.values())
            if refused is NONE:
                self._delete_any_group(group_id, ticket, now_ms, out)
            else:
                out.append(Reply(ticket, _refused_deletion(group_id, refused)))
            return
        before = group.states if isinstance(group, ShareGroup) else PartitionStates()
        states, topics = partition_states.deleted(before, command.results, self._topics())
        if isinstance(group, ShareGroup) and states != before:
            self._store(group.group_id, [partition_states.record_of(group.group_id, states)], now_ms, out)
        done = [topic for topic in topics if topic.error_code == NONE]
        failed = [topic for topic in topics if topic.error_code != NONE]
        # In Kafka's order.
        response = delete.DeleteShareGroupOffsetsResponse(responses=[*done, *command.refused_topics, *failed])
        out.append(Reply(ticket, response))

    # Inside

    def _existing(self, group_id: str) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return _as_share_group(group)

    def _of_members(self, group_id: str) -> ShareGroup:
        """As `_existing`; members are told of a share group."""
        if group_id not in self._groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return self._existing(group_id)

    def _existing_or_new(self, group_id: str) -> ShareGroup:
        group = self._groups.get(group_id)
        return ShareGroup(group_id) if group is None else _as_share_group(group)

    def _ask_to_delete(
        self,
        group: ShareGroup,
        command: StatesDeleted,
        keys: Sequence[SharePartitionKey],
        out: list[Effect],
    ) -> None:
        group.deletion_asked_at_ms |= {key.topic_id: command.asked_at_ms for key in keys}
        out.append(DeleteStates(command, keys))

    def _write_states(
        self, group: ShareGroup, states: PartitionStates, now_ms: int, out: list[Effect]
    ) -> None:
        if states == group.states:
            return
        if not fits_record(group.group_id) or not self._store(
            group.group_id, [partition_states.record_of(group.group_id, states)], now_ms, out
        ):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has become too large.")


# Checks


def _as_share_group(group: Group) -> ShareGroup:
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group.")
    return group


def _member_of(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def _check_texts(asked: AskedHeartbeat) -> None:
    """Refuse what does not fit into a record; requests can hold more."""
    request = asked.request
    texts = [request.group_id, request.member_id, request.rack_id, asked.client.client_id]
    if not fits_record(*texts, *(request.subscribed_topic_names or ())):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A name is longer than a record can hold.")


# What becomes of things


def _updated(metadata: ShareGroupMemberMetadataValue, asked: AskedHeartbeat) -> ShareGroupMemberMetadataValue:
    """The member, changed by its heartbeat; what is left out stays. The same object if nothing changes."""
    request, client = asked.request, asked.client
    changes: dict[str, Any] = {}
    if client.client_id != metadata.client_id or client.host != metadata.client_host:
        changes.update(client_id=client.client_id, client_host=client.host)
    if request.rack_id is not None and request.rack_id != metadata.rack_id:
        changes["rack_id"] = request.rack_id
    if request.subscribed_topic_names is not None:
        names = sorted(set(request.subscribed_topic_names))
        if names != metadata.subscribed_topic_names:
            changes["subscribed_topic_names"] = names
    return replace(metadata, **changes) if changes else metadata


def _reconciled(
    current: MemberAssignment,
    epoch: int,
    target: Partitions,
    metadata: ShareGroupMemberMetadataValue,
    has_new_epoch: bool,
    view: ClusterView,
) -> MemberAssignment:
    """The member gets its target at once, as far as it still subscribes to it."""
    if current.member_epoch == epoch and not has_new_epoch:
        return current
    subscribed = _topic_ids(metadata, view)
    partitions = {topic_id: indexes for topic_id, indexes in target.items() if topic_id in subscribed}
    if current.member_epoch == epoch:
        return current._replace(partitions=partitions)
    return MemberAssignment(epoch, current.member_epoch, partitions)


def _topic_ids(metadata: ShareGroupMemberMetadataValue, view: ClusterView) -> frozenset[bytes]:
    """Of the topics that a member subscribes to and that exist."""
    topics = view.topics
    return frozenset(topics[name].topic_id for name in metadata.subscribed_topic_names if name in topics)


def _refused_deletion(group_id: str, code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id, error_code=code)])


def _first_refusal(refusals: Collection[Refusal]) -> ErrorCode:
    return next((code for code, _ in refusals if code is not NONE), NONE)


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
        ]
    )


def _described(group: ShareGroup, view: ClusterView) -> describe.DescribedGroup:
    return describe.DescribedGroup(
        error_code=NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[_described_member(member, view) for member in group.members.values()],
    )


def _described_member(member: ShareMember, view: ClusterView) -> describe.Member:
    metadata, names = member.metadata, view.topic_names
    return describe.Member(
        member_id=member.member_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.subscribed_topic_names),
        assignment=describe.Assignment(
            topic_partitions=[
                describe.TopicPartitions(
                    topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(partitions)
                )
                for topic_id, partitions in sorted(member.current.partitions.items())
                if topic_id in names
            ]
        ),
    )
