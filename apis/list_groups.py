"""ListGroups (key 16, versions 0 to 5): groups of all types.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import on_groups, or_on_cluster
from odradek.apis.declaration import Api
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups


class ListGroups:
    """The handler: lists the groups whose coordinator is this node, and that the client may describe: all, if
    it may describe the cluster."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        response = self._groups().list_groups(request)
        if context.refuses(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            names = [group.group_id for group in response.groups]
            unseen = context.hidden_names(Operation.DESCRIBE, ResourceType.GROUP, names)
            response.groups = [group for group in response.groups if group.group_id not in unseen]
        return response


API = Api(
    ListGroupsRequest,
    ListGroupsResponse,
    make=lambda parts: ListGroups(parts.node.groups),
    needs=(or_on_cluster(Operation.DESCRIBE), on_groups(Operation.DESCRIBE, lambda _: ())),
)
