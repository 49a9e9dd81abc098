"""LeaveGroup (key 13, versions 0 to 5): members leave a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3, and its response class for old versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import the_group
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups

FIRST_VERSION_WITH_LEAVING_MEMBERS = 3


class LeaveGroup:
    """The handler: one member before version 3, any number of them from then on."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: LeaveGroupRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        has_members = context.api_version >= FIRST_VERSION_WITH_LEAVING_MEMBERS
        if has_members:
            members = [
                commands.LeavingMember(one.member_id, one.group_instance_id, one.reason)
                for one in request.members
            ]
        else:
            members = [commands.LeavingMember(request.member_id)]
        command = commands.Leave(
            ticket=lambda reply: waiting.complete(_leave_response(reply, has_members)),
            group_id=request.group_id,
            members=members,
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _leave_response(reply: commands.LeaveReply, has_members: bool) -> LeaveGroupResponse:
    if not has_members:
        return LeaveGroupResponse(error_code=reply.single_error)
    return LeaveGroupResponse(
        error_code=reply.error_code,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error_code,
            )
            for member in reply.members
        ],
    )


API = Api(
    LeaveGroupRequest,
    LeaveGroupResponse,
    make=lambda parts: LeaveGroup(parts.node.groups),
    needs=(the_group(Operation.READ),),
)
