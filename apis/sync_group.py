"""SyncGroup (key 14, versions 0 to 5): the assignment of a member of a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import on_groups, only
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
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
        asked = asked_by(client_of(context), API.refuse, request, waiting.complete)
        self._groups().submit(request.group_id, asked)
        return waiting


API = Api(
    SyncGroupRequest,
    SyncGroupResponse,
    make=lambda parts: SyncGroup(parts.node.groups),
    needs=(on_groups(Operation.READ, only("group_id")),),
)
