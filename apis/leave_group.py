"""LeaveGroup (key 13, versions 0 to 5): members leave a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3, and its response class for old versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import the_group
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups

FIRST_VERSION_WITH_LEAVING_MEMBERS = 3


class LeaveGroup:
    """The handler: one member before version 3, any number of them from then on."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: LeaveGroupRequest, context: RequestContext) -> Waiting:
        waiting, has_members = Waiting(), context.api_version >= FIRST_VERSION_WITH_LEAVING_MEMBERS
        if not has_members:
            request.members = [MemberIdentity(member_id=request.member_id)]

        def left(response: LeaveGroupResponse) -> None:
            waiting.complete(response if has_members else _with_one_error(response))

        self._groups().submit(request.group_id, asked_by(client_of(context), API.refuse, request, left))
        return waiting


def _with_one_error(response: LeaveGroupResponse) -> LeaveGroupResponse:
    codes = [response.error_code, *(member.error_code for member in response.members)]
    return LeaveGroupResponse(error_code=next(filter(None, codes), ErrorCode.NONE))


API = Api(
    LeaveGroupRequest,
    LeaveGroupResponse,
    make=lambda parts: LeaveGroup(parts.node.groups),
    needs=(the_group(Operation.READ),),
)
