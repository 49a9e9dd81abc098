"""Groups and the descriptions of their topologies (KIP-1331): which member is asked for one, what becomes of
it, and when it goes.

Each change of the store is asked for when the record is in the log that says that one is under way; the
result comes back as a command. An empty group with a description stays until this is deleted: with the group,
or when it has had no offsets for an interval.

Source: GroupCoordinatorService, GroupMetadataManager and StreamsGroupTopologyDescriptionManager of Kafka 4.4;
the texts that clients are shown are Kafka's.
"""

from __future__ import annotations

from typing import Any

from odradek.coordinator.asked import Asked, Ticket
from odradek.coordinator.effects import CancelTimer, Effect, Reply, SetTimer
from odradek.coordinator.groups.classic_membership import AskedJoin
from odradek.coordinator.groups.group_type import Handler, MachineParts
from odradek.coordinator.streams.descriptions import (
    NONE_STORED,
    NOT_STORED,
    UNCERTAIN,
    DeleteDescription,
    DescriptionDeleted,
    DescriptionStored,
    StoreDescription,
    TopologyDescriptions,
    checked,
    next_pause,
)
from odradek.coordinator.streams.group import NO_TOPOLOGY_EPOCH, StreamsGroup
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
)

NONE = ErrorCode.NONE
CLEANUP = "streams-cleanup"
"""Purpose of the timer of an empty group with a description."""

AskedUpdate = Asked[
    StreamsGroupTopologyDescriptionUpdateRequest, StreamsGroupTopologyDescriptionUpdateResponse
]


def refused_update(
    code: ErrorCode, message: str | None = None
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, error_message=message)


class DescriptionKeeping:
    """The descriptions of the groups of one machine. Each method adds its effects to `out`."""

    def __init__(self, parts: MachineParts, descriptions: TopologyDescriptions) -> None:
        self._groups = parts.groups
        self._settings = parts.settings
        self._store = parts.store
        self._has_offsets = parts.has_offsets
        self._delete_any_group = parts.delete_group
        self._descriptions = descriptions

    # Members

    def wants(self, group: StreamsGroup, member_topology_epoch: int, now_ms: int) -> bool:
        """Whether a member is asked for the description; then no other is for a while.

        One is also asked where the store has not what the group's record says: it was in memory, or is
        another node's. (Kafka asks no member then.)
        """
        topology, pause = group.topology, group.description_pause
        if topology is None:
            return False
        epoch = topology.epoch
        if group.failed_description_epoch == epoch or member_topology_epoch < epoch:
            return False
        if group.stored_description_epoch == epoch and self._descriptions.has(group.group_id, epoch):
            return False
        if pause is not None and pause.topology_epoch == epoch and now_ms < pause.until_ms:
            return False
        group.description_pause = next_pause(pause, epoch, now_ms)
        return True

    def update(self, asked: AskedUpdate, now_ms: int, out: list[Effect]) -> None:
        """GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, INVALID_REQUEST."""
        request = asked.request
        try:
            group, epoch = self._group_of(request)
            description = checked(request.topology_description)
            if not self._note(group, now_ms, out, stored=UNCERTAIN):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        except KafkaError as refusal:
            out.append(Reply(asked.ticket, refused_update(refusal.code, refusal.own_message)))
        else:
            stored = DescriptionStored(group.group_id, epoch, ticket=asked.ticket)
            out.append(StoreDescription(stored, description))

    def _group_of(self, request: StreamsGroupTopologyDescriptionUpdateRequest) -> tuple[StreamsGroup, int]:
        """The group of the member, and the epoch of its topology."""
        group = self._existing(request.group_id)
        if request.member_id not in group.members:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {request.group_id}.",
            )
        epoch = NO_TOPOLOGY_EPOCH if group.topology is None else group.topology.epoch
        if request.topology_epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Topology epoch {request.topology_epoch} does not match the group's current topology epoch "
                f"{epoch}.",
            )
        return group, epoch

    def stored(self, command: DescriptionStored, now_ms: int, out: list[Effect]) -> None:
        """STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, GROUP_ID_NOT_FOUND."""
        epoch, failure = command.topology_epoch, command.failure
        response = StreamsGroupTopologyDescriptionUpdateResponse(error_code=NONE)
        if failure is not None:
            response = refused_update(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, failure.message)
        try:
            group = self._existing(command.group_id)
            before = group.stored_description_epoch
            if failure is None:
                # None: a deletion came in between, and nobody knows what it has left.
                stored = UNCERTAIN if before == NONE_STORED else max(before, epoch)
                self._note(group, now_ms, out, stored=stored)
            elif failure.is_permanent:
                self._note(group, now_ms, out, failed=max(group.failed_description_epoch, epoch))
            is_tried_again = failure is not None and not failure.is_permanent
            pause = group.description_pause
            group.description_pause = next_pause(pause, epoch, now_ms) if is_tried_again else None
            self.watch(group, now_ms, out)
        except KafkaError as refusal:
            response = refused_update(refusal.code, refusal.own_message)
        out.append(Reply(command.ticket, response))

    # Questions

    def description_of(self, group: StreamsGroup) -> tuple[int, TopologyDescription | None]:
        """Its status, too."""
        if group.topology is None or group.topology.epoch != group.stored_description_epoch:
            return NOT_STORED, None
        return self._descriptions.get(group.group_id, group.topology.epoch)

    # Deletion

    def delete_group(self, group: StreamsGroup, ticket: Ticket[Any], now_ms: int, out: list[Effect]) -> None:
        """Its description goes first."""
        if group.members or not group.has_description:
            self._delete_any_group(group.group_id, ticket, now_ms, out)
            return
        self._note(group, now_ms, out, stored=UNCERTAIN)
        out.append(DeleteDescription(DescriptionDeleted(group.group_id, deletes_group=True, ticket=ticket)))

    def deleted(self, command: DescriptionDeleted, now_ms: int, out: list[Effect]) -> None:
        """GROUP_DELETION_FAILED, and what refuses a deletion of a group."""
        group_id, failure = command.group_id, command.failure
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup) and group.has_description:
            if failure is None:
                # Not uncertain: one was stored in between.
                is_gone = group.stored_description_epoch == UNCERTAIN
                self._note(group, now_ms, out, stored=NONE_STORED if is_gone else UNCERTAIN)
                group.description_pause = None
                out.append(CancelTimer((CLEANUP, group_id)))
            self.watch(group, now_ms, out)
        if not command.deletes_group:
            out.append(Reply(command.ticket, NONE))
        elif failure is None:
            self._delete_any_group(group_id, command.ticket, now_ms, out)
        else:
            result = DeletableGroupResult(
                group_id=group_id,
                error_code=ErrorCode.GROUP_DELETION_FAILED,
                error_message="Topology description plugin failed to delete the topology.",
            )
            out.append(Reply(command.ticket, DeleteGroupsResponse(results=[result])))

    def joining(self, join: Handler) -> Handler:
        """A classic member that joins may make a classic group of an empty streams group: then the
        description goes, too."""

        def joined(asked: AskedJoin, now_ms: int, out: list[Effect]) -> None:
            group_id = asked.request.group_id
            group = self._groups.get(group_id)
            join(asked, now_ms, out)
            if (
                isinstance(group, StreamsGroup)
                and group.has_description
                and self._groups.get(group_id) is not group
            ):
                out.append(DeleteDescription(DescriptionDeleted(group_id)))

        return joined

    def watch(self, group: StreamsGroup, now_ms: int, out: list[Effect]) -> None:
        """An empty group keeps its description for an interval at least."""
        if group.is_empty and group.has_description:
            at_ms = now_ms + self._settings.offsets_retention_check_interval_ms
            out.append(SetTimer((CLEANUP, group.group_id), at_ms))

    def clean_up(self, group: StreamsGroup, now_ms: int, out: list[Effect]) -> None:
        """That interval is over."""
        if not group.is_empty or not group.has_description:
            return
        if self._has_offsets(group.group_id):
            self.watch(group, now_ms, out)
            return
        self._descriptions.counts.cleanup_eligible += 1
        self._note(group, now_ms, out, stored=UNCERTAIN)
        out.append(DeleteDescription(DescriptionDeleted(group.group_id)))

    # Inside

    def _existing(self, group_id: str) -> StreamsGroup:
        """GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        problem = "not found." if group is None else "is not a streams group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}")

    def _note(
        self,
        group: StreamsGroup,
        now_ms: int,
        out: list[Effect],
        *,
        stored: int | None = None,
        failed: int | None = None,
    ) -> bool:
        """Write the record of the group with what is known of its description now, if that is new.

        False for a record that the log does not take: then the store knows better, which does no harm.
        """
        stored = group.stored_description_epoch if stored is None else stored
        failed = group.failed_description_epoch if failed is None else failed
        if (stored, failed) == (group.stored_description_epoch, group.failed_description_epoch):
            return True
        more = group.beside_epoch(group.validated_topology_epoch, group.assignment_configs)
        more |= {"stored_description_topology_epoch": stored, "failed_description_topology_epoch": failed}
        record = group.records.epoch(group.group_id, group.group_epoch, group.metadata_hash, **more)
        return self._store(group.group_id, [record], now_ms, out)
