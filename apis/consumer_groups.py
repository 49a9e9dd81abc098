"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat (key 68, versions 0 and 1) and
ConsumerGroupDescribe (69, 0 and 1).

The group's coordinator decides. Where such groups are switched off (feature `group.version`, option
`group.coordinator.rebalance.protocols`) every request is refused with UNSUPPORTED_VERSION before that, and
before permissions. A topic that the client may not describe refuses the whole heartbeat that names it, and
the whole description of a group that has it; a pattern does not find it.

Source: KafkaApis.handleConsumerGroupHeartbeat and handleConsumerGroupDescribe of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import ALLOW_ALL, CODES, each, on_groups, on_topics, only
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.group_descriptions import describe_api
from odradek.apis.prefixes import Ask, Prefix, RememberedResponse
from odradek.apis.refusals import Refusal
from odradek.coordinator.asked import NOBODY, Asked, Client
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups


class ConsumerGroupHeartbeat:
    """The handler; answers at once, or when the changes of the heartbeat are in the log."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    @property
    def prefix(self) -> Prefix[ConsumerGroupHeartbeatRequest]:
        """A member with its target assignment sends the same heartbeat every few seconds. The coordinator
        compares its address."""
        return Prefix(ConsumerGroupHeartbeatRequest.versions, self._learn, is_of_connection=True)

    def _learn(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Ask | None:
        if request.rebalance_timeout_ms != -1:
            return None  # it says all of the member, and is not repeated
        asked = Asked(request, _client_of(context), NOBODY)
        ask = RememberedResponse(partial(self._groups().ask, request.group_id, asked), context.api_version)
        # Only for members: their number limits what a connection remembers.
        return None if ask() is None else Ask(ask)

    def __call__(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse | Waiting:
        if not self._groups().serves_consumer_groups:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if context.refused:
            is_of_group = context.refuses(Operation.READ, ResourceType.GROUP, request.group_id)
            return ConsumerGroupHeartbeatResponse(
                error_code=CODES[ResourceType.GROUP if is_of_group else ResourceType.TOPIC]
            )
        waiting = Waiting()
        asked = asked_by(_client_of(context), HEARTBEAT.refuse, request, waiting.complete)
        self._groups().submit(request.group_id, asked)
        return waiting


def _client_of(context: RequestContext) -> Client:
    client = client_of(context)
    if context.authorizer is ALLOW_ALL:
        return client
    return client._replace(hidden_names=partial(context.hidden_names, Operation.DESCRIBE, ResourceType.TOPIC))


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for partitions in assignment.topic_partitions:
                yield partitions.topic_name


HEARTBEAT = Api(
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    make=lambda parts: ConsumerGroupHeartbeat(parts.node.groups),
    needs=(
        on_groups(Operation.READ, only("group_id")),
        on_topics(Operation.DESCRIBE, each("subscribed_topic_names")),
    ),
    refusal=Refusal(has_message=False),
)
DESCRIBE = describe_api(
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    lambda groups: groups().serves_consumer_groups,
    _topics_of,
)
APIS = (HEARTBEAT, DESCRIBE)
