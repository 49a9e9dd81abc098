"""Heartbeat (key 12, versions 0 to 4): keeps a member in a classic group.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import the_group
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.prefixes import Ask, Prefix, RememberedResponse
from odradek.coordinator.asked import NOBODY, Asked
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
        asked = Asked(request, client_of(context), NOBODY)
        ask = RememberedResponse(partial(self._groups().ask, request.group_id, asked), context.api_version)
        # Only for members: their number limits what a connection remembers.
        return None if ask() is None else Ask(ask)

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        asked = asked_by(client_of(context), API.refuse, request, waiting.complete)
        self._groups().submit(request.group_id, asked)
        return waiting


API = Api(
    HeartbeatRequest,
    HeartbeatResponse,
    make=lambda parts: Heartbeat(parts.node.groups),
    needs=(the_group(Operation.READ),),
)
