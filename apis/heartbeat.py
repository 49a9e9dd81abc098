"""Heartbeat (key 12, versions 0 to 4): keeps a member in a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.apis.access import the_group
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.prefixes import Ask, Prefix, RememberedResponse
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups


class Heartbeat:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    @property
    def prefix(self) -> Prefix[HeartbeatRequest]:
        """A member sends the same request every few seconds."""
        return Prefix(HeartbeatRequest.versions, self._learn)

    def _learn(self, request: HeartbeatRequest, context: RequestContext) -> Ask | None:
        ask = RememberedResponse(
            self._groups.ask, _command(request, None), _heartbeat_response, context.api_version
        )
        # Only for members: their number limits what a connection remembers.
        return None if ask() is None else Ask(ask)

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        command = _command(request, lambda reply: waiting.complete(_heartbeat_response(reply)))
        self._groups.submit(request.group_id, command)
        return waiting


def _command(request: HeartbeatRequest, ticket: Callable[[Any], None] | None) -> commands.Heartbeat:
    return commands.Heartbeat(
        ticket=ticket,
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )


def _heartbeat_response(reply: commands.HeartbeatReply) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=reply.error_code)


API = Api(
    HeartbeatRequest,
    HeartbeatResponse,
    make=lambda parts: Heartbeat(parts.node.groups),
    needs=(the_group(Operation.READ),),
)
