"""Heartbeat (key 12, versions 0 to 4): a member of a classic group is alive.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting
from odradek.apis.questions import (
    MANY_KNOWN_MAX,
    CachedQuery,
    Questions,
    RememberedAnswer,
    always,
    read_question,
)
from odradek.coordinator.groups import commands
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext
    from odradek.apis.coordinators import Groups


class Heartbeat:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def shortcut(self) -> Questions:
        """The short way of members that are where they believe to be (see `apis/questions.py`)."""
        request = HeartbeatRequest
        return Questions(request.api_key, request.versions, self._learn, always, MANY_KNOWN_MAX)

    def _learn(self, version: int, question: bytes, connection: ConnectionInfo) -> CachedQuery | None:
        _, request = read_question(HeartbeatRequest, version, question)
        if request is None:
            return None
        look = RememberedAnswer(self._groups.ask, _command(request, None), _heartbeat_response, version)
        # Only of members: their number is a bound for what is worth to be remembered.
        return None if look() is None else CachedQuery(None, look)

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
