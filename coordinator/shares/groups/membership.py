"""Share groups as groups with epochs (KIP-932), and what administrators ask of them.

A member gets its target at once, since nobody has to give a partition up before another may have it. Topics
are assigned as far as their partitions have a state: the last step of a heartbeat asks the share coordinator
for the states that are missing (`partition_states.py`). Who waits for the share coordinator has a ticket in
the `Asking` and in the command that brings its response, so there is none here.

Source: GroupMetadataManager.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from odradek.coordinator.asked import Asked, Ticket
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.groups.epochs.change import MemberChange
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.epochs.membership import EpochMembership, Messages
from odradek.coordinator.groups.group import JOIN_EPOCH, SHARE, GroupRecord
from odradek.coordinator.groups.group_type import MachineParts
from odradek.coordinator.groups.record_codec import fits_record
from odradek.coordinator.shares.groups import partition_states
from odradek.coordinator.shares.groups.assignor import SIMPLE, Partitions, Reader, assign_partitions
from odradek.coordinator.shares.groups.commands import (
    DeleteStates,
    InitializeStates,
    StatesDeleted,
    StatesInitialized,
)
from odradek.coordinator.shares.groups.group import (
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
AskedOffsets = Asked[offsets.DescribeShareGroupOffsetsRequest, offsets.DescribeShareGroupOffsetsResponse]
AskedAlter = Asked[alter.AlterShareGroupOffsetsRequest, alter.AlterShareGroupOffsetsResponse]
AskedDelete = Asked[delete.DeleteShareGroupOffsetsRequest, delete.DeleteShareGroupOffsetsResponse]
SESSION = "share-session"
TIMERS = (SESSION,)
"""Purposes of timers: the first part of their keys, before the group and the member."""


class ShareChange(MemberChange[ShareGroup]):
    topics: Collection[str]
    """Names of all topics that the group now subscribes to."""
    missing: Mapping[bytes, TopicStates]
    """Partitions that are to get a state."""
    known: Collection[bytes]
    """Ids of the topics that had partitions with a state, or on the way to one, before."""


class ShareMembership(EpochMembership[ShareGroup, ShareMember, ShareChange]):
    """The share protocol over the groups of one machine. Each method adds its effects to `out`."""

    kind = SHARE
    group_class = ShareGroup
    change_class = ShareChange
    messages = Messages(
        ShareGroupHeartbeatResponse, describe.ShareGroupDescribeResponse, describe.DescribedGroup
    )
    session = SESSION
    replaces_empty_classic_groups = False

    def __init__(self, parts: MachineParts) -> None:
        super().__init__(parts)
        self._delete_any_group = parts.delete_group

    # Heartbeat

    def _max_size(self) -> int:
        return self._settings.group_share_max_size

    def _changes_nothing(
        self, group: ShareGroup, member: ShareMember, asked: AskedHeartbeat, now_ms: int
    ) -> bool:
        metadata, request, client = member.metadata, asked.request, asked.client
        return (
            request.member_epoch == member.current.member_epoch == group.assignment_epoch == group.group_epoch
            and not group.topics_may_have_changed
            and group.are_states_complete
            and request.subscribed_topic_names is None
            and request.rack_id is None
            and client.host == metadata.client_host
            and client.client_id == metadata.client_id
            and group.has_all_assigned(self._topics())
        )

    def _has_no_more(self, current: MemberAssignment, owned: None) -> bool:
        """True: it has nothing that others have to wait for."""
        return True

    def _update(self, change: ShareChange, asked: AskedHeartbeat, owned: None) -> None:
        group, view = change.group, self._topics()
        if change.update(_updated(change.metadata, asked)):
            _check_texts(asked)
        names_before, names = change.before.subscribed_topic_names, change.metadata.subscribed_topic_names
        is_reason = names != names_before or (
            group.assignment_epoch >= group.group_epoch
            and bool(group.members)
            and not group.has_all_assigned(view)
        )
        change.topics = group.topics_with(names_before, names)
        if is_reason or group.topics_may_have_changed:
            change.compare_topics(change.topics, view, is_reason)

    def _targets(self, change: ShareChange) -> Mapping[str, Partitions]:
        group, view = change.group, self._topics()
        metadata = {member.member_id: member.metadata for member in group.members.values()}
        metadata[change.member_id] = change.metadata
        readers = {
            member_id: Reader(_topic_ids(one, view), group.target_of(member_id))
            for member_id, one in metadata.items()
        }
        assignable = {
            topic_id: one.partitions
            for topic_id, one in group.states.initialized.items()
            if topic_id in view.topic_names
        }
        return assign_partitions(readers, assignable)

    def _next_step(self, change: ShareChange, owned: None) -> MemberAssignment:
        """The member gets its target at once, as far as it still subscribes to it."""
        current: MemberAssignment = change.current
        epoch = change.assignment_epoch
        is_there = current.member_epoch == epoch
        if is_there and change.group_epoch == change.group.group_epoch:
            return current
        subscribed = _topic_ids(change.metadata, self._topics())
        partitions = {
            topic_id: indexes for topic_id, indexes in change.target.items() if topic_id in subscribed
        }
        if is_there:
            return current._replace(partitions=partitions)
        return MemberAssignment(epoch, current.member_epoch, partitions)

    def _complete(self, change: ShareChange, now_ms: int) -> None:
        """Find partitions that are to get a state; add the record of that."""
        group, view = change.group, self._topics()
        change.missing = {}
        if group.are_states_complete and not change.topics_compared:
            return
        retry_ms = self._settings.group_share_initialize_retry_interval_ms
        change.missing = partition_states.missing(group, change.topics, view, now_ms, retry_ms)
        change.known = group.states.initialized.keys() | group.states.initializing.keys()
        states = partition_states.without_deleted(group.states, view)
        if change.missing:
            states = partition_states.to_initialize(states, change.missing)
        if states != group.states:
            change.records.append(partition_states.record_of(group.group_id, states))

    def _settle(
        self,
        change: ShareChange,
        group: ShareGroup,
        member: ShareMember,
        asked: AskedHeartbeat,
        now_ms: int,
        out: list[Effect],
    ) -> None:
        super()._settle(change, group, member, asked, now_ms, out)
        missing = change.missing
        if missing:
            group.asked_at_ms |= dict.fromkeys(missing, now_ms)
            states = partition_states.initial_states(group, change.group_epoch, missing, change.known)
            out.append(InitializeStates(StatesInitialized(group.group_id, now_ms), states))
        else:
            group.are_states_complete = not (group.states.initializing or group.deletion_asked_at_ms)

    def _response(
        self, change: ShareChange, group: ShareGroup, asked: AskedHeartbeat, owned: None
    ) -> ShareGroupHeartbeatResponse:
        current, request = change.current, asked.request
        is_told = (
            request.member_epoch == JOIN_EPOCH
            or request.subscribed_topic_names is not None
            or current.partitions != change.current_before.partitions
        )
        return ShareGroupHeartbeatResponse(
            error_code=NONE,
            member_id=change.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._intervals(group.group_id).heartbeat_interval_ms,
            assignment=_assignment(current.partitions) if is_told else None,
        )

    def _records_without(self, group: ShareGroup, members: Sequence[ShareMember]) -> list[GroupRecord]:
        names = [name for member in members for name in member.metadata.subscribed_topic_names]
        found = metadata_hash(group.topics_with(names, ()), self._topics())
        return [group.records.epoch(group.group_id, group.group_epoch + 1, found)]

    # Start, and what is told

    def start(self, group: ShareGroup, now_ms: int, out: list[Effect]) -> None:
        """Requests to the share coordinator may be on their way still."""
        group.asked_at_ms = dict.fromkeys(group.states.initializing, now_ms)
        group.deletion_asked_at_ms = dict.fromkeys(group.states.deleting, now_ms)
        super().start(group, now_ms, out)

    def topics_changed(
        self, group: ShareGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        """The next heartbeat compares them; the states of those that are gone are forgotten now."""
        group.have_topics_changed()
        states = partition_states.without_deleted(group.states, self._topics())
        if states != group.states:
            self._store(group.group_id, [partition_states.record_of(group.group_id, states)], now_ms, out)

    def owned(self, group: ShareGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        """Nothing that could have a commit."""
        return iter(())

    def _described(self, group: ShareGroup, request: Any) -> dict[str, Any]:
        view = self._topics()
        members = [_described_member(member, view) for member in group.members.values()]
        return {"assignor_name": SIMPLE, "members": members}

    # Administration

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
            group = self._group_to_join(group_id, [])
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

    def delete_group(self, group: ShareGroup, ticket: Ticket[Any], now_ms: int, out: list[Effect]) -> None:
        """Its states go first."""
        group_id = group.group_id
        if group.members or group.recorded_states is None:
            self._delete_any_group(group_id, ticket, now_ms, out)
            return
        states, keys = partition_states.delete_all(group, self._topics())
        if not keys:
            self._delete_any_group(group_id, ticket, now_ms, out)
            return
        try:
            self._write_states(group, states, now_ms, out)
        except KafkaError as error:
            out.append(Reply(ticket, _refused_deletion(group_id, error.code)))
            return
        self._ask_to_delete(group, StatesDeleted(group_id, now_ms, ticket=ticket), keys, out)

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


def _topic_ids(metadata: ShareGroupMemberMetadataValue, view: ClusterView) -> frozenset[bytes]:
    """Ids of the topics that exist and that a member subscribes to."""
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
