"""DeleteGroups (key 42, versions 0 to 3), for groups of all types.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import each, on_groups
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import ask_for_each
from odradek.apis.declaration import Api
from odradek.apis.refusals import Item, Refusal
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

        def deleted(responses: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
            results = [result for response in responses for result in response.results]
            return DeleteGroupsResponse(results=results + [_unauthorized(name) for name in refused])

        return ask_for_each(
            [DeleteGroupsRequest(groups_names=[name]) for name in names],
            API.refuse,
            context,
            lambda asked: self._groups().submit(asked.request.groups_names[0], asked),
            deleted,
        )


def _unauthorized(group_id: str) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _each_group(request: DeleteGroupsRequest) -> list[Item]:
    return [({"group_id": name}, None) for name in request.groups_names]


API = Api(
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    make=lambda parts: DeleteGroups(parts.node.groups),
    needs=(on_groups(Operation.DELETE, each("groups_names")),),
    refusal=Refusal(results=("results", _each_group), has_message=False),
    changes=True,
)
