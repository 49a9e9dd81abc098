"""DeleteGroups (key 42, versions 0 to 2), for groups of all types.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import each, on_groups
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import Gathering
from odradek.apis.declaration import Api
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups


class DeleteGroups:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: DeleteGroupsRequest, context: RequestContext) -> Waiting:
        # A group that is named twice gets one result.
        refused, names = split(
            context,
            dict.fromkeys(request.groups_names),
            lambda one: context.refuses(Operation.DELETE, ResourceType.GROUP, one),
        )
        gathering = Gathering(
            len(names),
            lambda replies: DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=name, error_code=reply.error_code)
                    for name, reply in zip(names, replies, strict=True)
                ]
                + [
                    DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
                    for name in refused
                ]
            ),
        )
        for index, group_id in enumerate(names):
            self._groups.submit(group_id, commands.DeleteGroup(gathering.ticket(index), group_id))
        return gathering.waiting


API = Api(
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    make=lambda parts: DeleteGroups(parts.node.groups),
    needs=(on_groups(Operation.DELETE, each("groups_names")),),
    changes=True,
)
