"""JoinGroup (key 11, versions 0 to 9): a member joins or rejoins a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3, and its response class for old versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import the_group
from odradek.apis.api import Waiting
from odradek.apis.coordinators import client_host
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups

FIRST_VERSION_WITH_NULL_PROTOCOL = 7


class JoinGroup:
    """The handler; answers when the rebalance is complete."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: JoinGroupRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        version = context.api_version
        command = commands.Join(
            ticket=lambda reply: waiting.complete(_join_response(reply, version)),
            group_id=request.group_id,
            member_id=request.member_id,
            protocol_type=request.protocol_type,
            protocols=[commands.OfferedProtocol(one.name, one.metadata) for one in request.protocols],
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=client_host(context.connection),
            version=version,
            reason=request.reason,
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _join_response(reply: commands.JoinReply, version: int) -> JoinGroupResponse:
    protocol_name = reply.protocol_name
    if version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = protocol_name or ""
    else:
        protocol_name = protocol_name or None
    return JoinGroupResponse(
        error_code=reply.error_code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )


def _fields_of_refusal(version: int) -> dict[str, str | None]:
    return {"protocol_name": "" if version < FIRST_VERSION_WITH_NULL_PROTOCOL else None}


API = Api(
    JoinGroupRequest,
    JoinGroupResponse,
    make=lambda parts: JoinGroup(parts.node.groups),
    needs=(the_group(Operation.READ),),
    refusal=Refusal(fields=_fields_of_refusal),
)
