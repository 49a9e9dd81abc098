"""SyncGroup (key 14, versions 0 to 5): the assignment of a member of a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import on_groups, only
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups

FIRST_VERSION_OF_SYNC_WITH_PROTOCOL = 5


class SyncGroup:
    """The handler; answers when the leader has sent the assignment."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse | Waiting:
        if context.api_version >= FIRST_VERSION_OF_SYNC_WITH_PROTOCOL and (
            request.protocol_type is None or request.protocol_name is None
        ):
            # Null is for older versions, without these fields; newer ones must fill them in (KIP-559).
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if context.refuses(Operation.READ, ResourceType.GROUP, request.group_id):
            return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        waiting = Waiting()
        command = commands.Sync(
            ticket=lambda reply: waiting.complete(_sync_response(reply)),
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={one.member_id: one.assignment for one in request.assignments},
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _sync_response(reply: commands.SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error_code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


API = Api(
    SyncGroupRequest,
    SyncGroupResponse,
    make=lambda parts: SyncGroup(parts.node.groups),
    needs=(on_groups(Operation.READ, only("group_id")),),
)
