"""DescribeGroups (key 15, versions 0 to 6): classic groups and their members.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3, and its response class for old versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis import operations
from odradek.apis.access import each, on_groups
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import Gathering
from odradek.apis.declaration import Api
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups

FIRST_VERSION_WITH_GROUP_NOT_FOUND = 6
FIRST_VERSION_WITH_OPERATIONS = 3


class DescribeGroups:
    """The handler: each group's own coordinator describes it."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: DescribeGroupsRequest, context: RequestContext) -> Waiting:
        version = context.api_version
        wants_operations = version >= FIRST_VERSION_WITH_OPERATIONS and request.include_authorized_operations
        operations_for = context if wants_operations else None
        # As in Kafka, refused groups come first.
        refused, allowed = split(
            context, request.groups, lambda one: context.refuses(Operation.DESCRIBE, ResourceType.GROUP, one)
        )
        gathering = Gathering(
            len(allowed),
            lambda replies: DescribeGroupsResponse(
                groups=[_unauthorized(group_id) for group_id in refused]
                + [_described(reply, version, operations_for) for reply in replies]
            ),
        )
        for index, group_id in enumerate(allowed):
            self._groups.submit(group_id, commands.DescribeGroup(gathering.ticket(index), group_id))
        return gathering.waiting


def _unauthorized(group_id: str) -> DescribedGroup:
    return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)


def _described(
    reply: commands.GroupDescription, version: int, operations_for: RequestContext | None
) -> DescribedGroup:
    group = DescribedGroup(
        error_code=reply.error_code,
        group_id=reply.group_id,
        group_state=reply.state,
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in reply.members
        ],
    )
    if version >= FIRST_VERSION_WITH_GROUP_NOT_FOUND:
        group.error_message = reply.error_message
    elif reply.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
        # Before KIP-1043 a group that does not exist was described as dead.
        group.error_code = ErrorCode.NONE
    if operations_for is not None and group.error_code is ErrorCode.NONE:
        group.authorized_operations = operations.on_group(operations_for, group.group_id)
    return group


API = Api(
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    make=lambda parts: DescribeGroups(parts.node.groups),
    needs=(on_groups(Operation.DESCRIBE, each("groups")),),
)
