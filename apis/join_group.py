"""JoinGroup (key 11, versions 0 to 9): a member joins or rejoins a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3, and its response class for old versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import the_group
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal
from odradek.wire.acl_types import Operation
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups

FIRST_VERSION_WITH_NULL_PROTOCOL = 7


class JoinGroup:
    """The handler; answers when the rebalance is complete."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: JoinGroupRequest, context: RequestContext) -> Waiting:
        waiting, no_protocol = Waiting(), _no_protocol(context.api_version)

        def joined(response: JoinGroupResponse) -> None:
            response.protocol_name = response.protocol_name or no_protocol
            waiting.complete(response)

        self._groups().submit(request.group_id, asked_by(client_of(context), API.refuse, request, joined))
        return waiting


def _no_protocol(version: int) -> str | None:
    return "" if version < FIRST_VERSION_WITH_NULL_PROTOCOL else None


API = Api(
    JoinGroupRequest,
    JoinGroupResponse,
    make=lambda parts: JoinGroup(parts.node.groups),
    needs=(the_group(Operation.READ),),
    refusal=Refusal(fields=lambda version: {"protocol_name": _no_protocol(version)}),
)
