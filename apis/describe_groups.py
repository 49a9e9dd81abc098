"""DescribeGroups (key 15, versions 0 to 6): classic groups and their members.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3, and its response class for old versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis import operations
from odradek.apis.access import each, on_groups
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import ask_for_each
from odradek.apis.declaration import Api
from odradek.apis.refusals import Item, Refusal
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
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
        # As in Kafka, refused groups come first.
        refused, allowed = split(
            context, request.groups, lambda one: context.refuses(Operation.DESCRIBE, ResourceType.GROUP, one)
        )

        def described(responses: list[DescribeGroupsResponse]) -> DescribeGroupsResponse:
            groups = [group for response in responses for group in response.groups]
            for group in groups:
                if version < FIRST_VERSION_WITH_GROUP_NOT_FOUND:
                    _hide_that_it_is_not_there(group)
                if wants_operations and group.error_code == ErrorCode.NONE:
                    group.authorized_operations = operations.on_group(context, group.group_id)
            return DescribeGroupsResponse(groups=[*map(_unauthorized, refused), *groups])

        return ask_for_each(
            [DescribeGroupsRequest(groups=[group_id]) for group_id in allowed],
            API.refuse,
            context,
            lambda asked: self._groups().submit(asked.request.groups[0], asked),
            described,
        )


def _unauthorized(group_id: str) -> DescribedGroup:
    return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)


def _hide_that_it_is_not_there(group: DescribedGroup) -> None:
    """Before KIP-1043 a group that does not exist was described as dead, and errors had no message."""
    group.error_message = None
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        group.error_code = ErrorCode.NONE


def _each_group(request: DescribeGroupsRequest) -> list[Item]:
    return [({"group_id": group_id}, None) for group_id in request.groups]


API = Api(
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    make=lambda parts: DescribeGroups(parts.node.groups),
    needs=(on_groups(Operation.DESCRIBE, each("groups")),),
    refusal=Refusal(results=("groups", _each_group), has_message=False),
)
