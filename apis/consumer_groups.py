"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat (key 68, versions 0 and 1) and
ConsumerGroupDescribe (69, 0 and 1).

A request becomes a command for the group's coordinator, and the coordinator's reply becomes the response; the
coordinator decides. Where such groups are switched off (feature `group.version`, option
`group.coordinator.rebalance.protocols`) every request is refused with UNSUPPORTED_VERSION before that, and
before permissions. A topic that the client may not describe refuses the whole heartbeat that names it, and
the whole description of a group that has it; a pattern does not find it.

Source: KafkaApis.handleConsumerGroupHeartbeat and handleConsumerGroupDescribe of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis import operations
from odradek.apis.access import ALLOW_ALL, CODES, each, on_groups, on_topics, only
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import Gathering, client_host
from odradek.apis.declaration import Api
from odradek.apis.prefixes import Ask, Prefix, RememberedResponse
from odradek.coordinator.groups import consumer_commands as commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_group_describe, consumer_group_heartbeat
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.coordinator.cluster.view import ClusterView

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values of `Member.member_type`."""


class ConsumerGroupHeartbeat:
    """The handler; answers at once, or when the changes of the heartbeat are in the log."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    @property
    def prefix(self) -> Prefix[ConsumerGroupHeartbeatRequest]:
        """A member with its target assignment sends the same heartbeat every few seconds. The command
        includes its address."""
        return Prefix(ConsumerGroupHeartbeatRequest.versions, self._learn, is_of_connection=True)

    def _learn(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Ask | None:
        command = _heartbeat(request, None, context)
        ask = RememberedResponse(
            partial(self._groups.ask, request.group_id, command), context.api_version, _heartbeat_response
        )
        # Only for members: their number limits what a connection remembers.
        return None if ask() is None else Ask(ask)

    def __call__(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse | Waiting:
        if not self._groups.serves_consumer_groups:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if context.refused:
            is_of_group = context.refuses(Operation.READ, ResourceType.GROUP, request.group_id)
            return ConsumerGroupHeartbeatResponse(
                error_code=CODES[ResourceType.GROUP if is_of_group else ResourceType.TOPIC]
            )
        waiting = Waiting()
        command = _heartbeat(request, lambda reply: waiting.complete(_heartbeat_response(reply)), context)
        self._groups.submit(request.group_id, command)
        return waiting


def _heartbeat(
    request: ConsumerGroupHeartbeatRequest, ticket: Callable[[Any], None] | None, context: RequestContext
) -> commands.ConsumerHeartbeat:
    owned = request.topic_partitions
    left_out = None
    if context.authorizer is not ALLOW_ALL:
        left_out = partial(context.left_out, Operation.DESCRIBE, ResourceType.TOPIC)
    return commands.ConsumerHeartbeat(
        ticket=ticket,
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=request.subscribed_topic_names,
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else [(topic.topic_id, topic.partitions) for topic in owned],
        client_id=context.client_id or "",
        client_host=client_host(context.connection),
        version=context.api_version,
        left_out=left_out,
    )


def _heartbeat_response(reply: commands.ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = reply.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else consumer_group_heartbeat.Assignment(
            topic_partitions=[
                consumer_group_heartbeat.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in assignment
            ]
        ),
    )


class ConsumerGroupDescribe:
    """The handler: each group is described by its own coordinator."""

    def __init__(self, current_view: Callable[[], ClusterView], groups: Groups) -> None:
        self._current_view = current_view
        self._groups = groups

    def __call__(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeResponse | Waiting:
        if not self._groups.serves_consumer_groups:
            code = ErrorCode.UNSUPPORTED_VERSION
            return ConsumerGroupDescribeResponse(
                groups=[DescribedGroup(error_code=code, group_id=group_id) for group_id in request.group_ids]
            )
        wants_operations = request.include_authorized_operations
        # As in Kafka, refused groups come first.
        refused, allowed = split(
            context,
            request.group_ids,
            lambda one: context.refuses(Operation.DESCRIBE, ResourceType.GROUP, one),
        )
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        groups = [DescribedGroup(error_code=code, group_id=group_id) for group_id in refused]

        def respond(replies: list[commands.ConsumerGroupDescription]) -> ConsumerGroupDescribeResponse:
            for reply in replies:
                group = _described(reply, self._current_view())
                if wants_operations and reply.error_code is ErrorCode.NONE:
                    group.authorized_operations = operations.on_group(context, group.group_id)
                groups.append(_visible(group, context))
            return ConsumerGroupDescribeResponse(groups=groups)

        gathering = Gathering(len(allowed), respond)
        for index, group_id in enumerate(allowed):
            command = commands.DescribeConsumerGroup(gathering.ticket(index), group_id)
            self._groups.submit(group_id, command)
        return gathering.waiting


def _visible(group: DescribedGroup, context: RequestContext) -> DescribedGroup:
    """The group, or its refusal if it has topics that the client may not describe."""
    topics = {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
    if not context.refused_names(Operation.DESCRIBE, ResourceType.TOPIC, topics):
        return group
    return DescribedGroup(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has topics that the client may not describe.",
        group_id=group.group_id,
    )


def _described(reply: commands.ConsumerGroupDescription, view: ClusterView) -> DescribedGroup:
    return DescribedGroup(
        error_code=reply.error_code,
        error_message=reply.error_message,
        group_id=reply.group_id,
        group_state=reply.state,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor_name,
        members=[_member(member, view) for member in reply.members],
    )


def _member(member: commands.DescribedConsumer, view: ClusterView) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_named(member.assignment, view),
        target_assignment=_named(member.target_assignment, view),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _named(assignment: Mapping[bytes, list[int]], view: ClusterView) -> consumer_group_describe.Assignment:
    return consumer_group_describe.Assignment(
        topic_partitions=[
            consumer_group_describe.TopicPartitions(
                topic_id=topic_id, topic_name=view.topic_names[topic_id], partitions=partitions
            )
            for topic_id, partitions in assignment.items()
            if topic_id in view.topic_names
        ]
    )


APIS = (
    Api(
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        make=lambda parts: ConsumerGroupHeartbeat(parts.node.groups),
        needs=(
            on_groups(Operation.READ, only("group_id")),
            on_topics(Operation.DESCRIBE, each("subscribed_topic_names")),
        ),
    ),
    Api(
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        make=lambda parts: ConsumerGroupDescribe(parts.node.current_view, parts.node.groups),
        needs=(
            on_groups(Operation.DESCRIBE, each("group_ids")),
            on_topics(Operation.DESCRIBE, None),
        ),
    ),
)
