"""Share groups (KIP-932): ShareGroupHeartbeat (key 76, version 1), ShareGroupDescribe (77, version 1),
DescribeShareGroupOffsets (90, versions 0 and 1), AlterShareGroupOffsets (91, version 0) and
DeleteShareGroupOffsets (92, version 0).

Without the feature `share.version` all of them answer UNSUPPORTED_VERSION, before any other check; then come
the permissions. The group's coordinator has the members, and which partitions have a state in the group; the
share coordinator has the states. The lag of a partition is known to its leader: where another node leads it,
that one is asked.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis import operations
from odradek.apis.access import each, on_groups, on_topics, only
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import Gathering, client_host
from odradek.apis.declaration import Api
from odradek.apis.share_acknowledging import MEMBER_ID_LENGTH_MAX
from odradek.coordinator.cluster.view import NO_LEADER
from odradek.coordinator.share_groups import commands
from odradek.coordinator.share_state.persister import (
    NO_DELIVERY_COUNT,
    UNINITIALIZED_OFFSET,
    Refusal,
    SharePartitionKey,
)
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError, error_message
from odradek.wire.messages import alter_share_group_offsets as alter
from odradek.wire.messages import delete_share_group_offsets as delete
from odradek.wire.messages import describe_share_group_offsets as offsets
from odradek.wire.messages import share_group_describe as describe
from odradek.wire.messages import share_group_heartbeat as heartbeat
from odradek.wire.messages.read_share_group_state_summary import PartitionResult as StateSummary
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.apis.leadership import Leadership

NONE = ErrorCode.NONE
NOT_KNOWN = -1
"""As a leader epoch: the asker knows none. As a lag: nobody knows it."""
NO_EPOCH = 0
"""Leader epoch of a partition without a state."""
_UNAUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

Ends = Mapping[tuple[str, int], int | ErrorCode]
"""By topic and index: where the log ends for consumers, or why that is not known."""
Places = Sequence[tuple[str, bytes, Sequence[int]]]
"""Name and id of a topic, and partitions."""


# Members


class ShareGroupHeartbeat:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(
        self, request: heartbeat.ShareGroupHeartbeatRequest, context: RequestContext
    ) -> heartbeat.ShareGroupHeartbeatResponse | Waiting:
        if not self._groups.serves_share_groups:
            return heartbeat.ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        refused = _refuse_heartbeat(request, context)
        if refused is not None:
            return heartbeat.ShareGroupHeartbeatResponse(error_code=refused)
        waiting = Waiting()
        command = commands.ShareHeartbeat(
            ticket=lambda reply: waiting.complete(_beaten(reply)),
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            subscribed_topic_names=request.subscribed_topic_names,
            client_id=context.client_id or "",
            client_host=client_host(context.connection),
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _refuse_heartbeat(
    request: heartbeat.ShareGroupHeartbeatRequest, context: RequestContext
) -> ErrorCode | None:
    if context.refuses(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
        return ErrorCode.INVALID_REQUEST
    for name in request.subscribed_topic_names or ():
        if context.refuses(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return _UNAUTHORIZED
    return None


def _beaten(reply: commands.ShareHeartbeatReply) -> heartbeat.ShareGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = heartbeat.Assignment(
            topic_partitions=[
                heartbeat.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(reply.assignment.items())
            ]
        )
    return heartbeat.ShareGroupHeartbeatResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


class ShareGroupDescribe:
    """The handler: each group is described by its own coordinator."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(
        self, request: describe.ShareGroupDescribeRequest, context: RequestContext
    ) -> describe.ShareGroupDescribeResponse | Waiting:
        group_ids = request.group_ids
        if not self._groups.serves_share_groups:
            code = ErrorCode.UNSUPPORTED_VERSION
            return describe.ShareGroupDescribeResponse(
                groups=[describe.DescribedGroup(error_code=code, group_id=group_id) for group_id in group_ids]
            )
        operations_for = context if request.include_authorized_operations else None
        # As in Kafka, refused groups come first.
        refused, allowed = split(
            context, group_ids, lambda one: context.refuses(Operation.DESCRIBE, ResourceType.GROUP, one)
        )
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        groups = [describe.DescribedGroup(error_code=code, group_id=group_id) for group_id in refused]

        def respond(replies: list[commands.ShareGroupDescription]) -> describe.ShareGroupDescribeResponse:
            described = [_visible(_described(reply, operations_for), context) for reply in replies]
            return describe.ShareGroupDescribeResponse(groups=groups + described)

        gathering = Gathering(len(allowed), respond)
        for index, group_id in enumerate(allowed):
            self._groups.submit(group_id, commands.DescribeShareGroup(gathering.ticket(index), group_id))
        return gathering.waiting


def _visible(group: describe.DescribedGroup, context: RequestContext) -> describe.DescribedGroup:
    """The group, or its refusal if its members have topics that the client may not describe."""
    topics = {one.topic_name for member in group.members for one in member.assignment.topic_partitions}
    if not context.refused_names(Operation.DESCRIBE, ResourceType.TOPIC, topics):
        return group
    return describe.DescribedGroup(
        error_code=_UNAUTHORIZED,
        error_message="The group has topics that the client may not describe.",
        group_id=group.group_id,
    )


def _described(
    reply: commands.ShareGroupDescription, operations_for: RequestContext | None
) -> describe.DescribedGroup:
    if reply.error_code is not NONE:
        return describe.DescribedGroup(
            error_code=reply.error_code, error_message=reply.error_message, group_id=reply.group_id
        )
    group = describe.DescribedGroup(
        error_code=NONE,
        group_id=reply.group_id,
        group_state=reply.state,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor_name,
        members=[_described_member(member) for member in reply.members],
    )
    if operations_for is not None:
        group.authorized_operations = operations.on_group(operations_for, group.group_id)
    return group


def _described_member(member: commands.DescribedShareMember) -> describe.Member:
    return describe.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        assignment=describe.Assignment(
            topic_partitions=[
                describe.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(partitions))
                for topic_id, name, partitions in member.assignment
            ]
        ),
    )


# Offsets


class DescribeShareGroupOffsets:
    """The handler: where groups are in partitions, and how many records are left."""

    def __init__(self, groups: Groups, leadership: Leadership) -> None:
        self._groups = groups
        self._leadership = leadership

    def __call__(self, request: offsets.DescribeShareGroupOffsetsRequest, context: RequestContext) -> Waiting:
        gathering = Gathering(
            len(request.groups), lambda groups: offsets.DescribeShareGroupOffsetsResponse(groups=groups)
        )
        for index, group in enumerate(request.groups):
            self._describe(group, context, gathering.ticket(index))
        return gathering.waiting

    def _describe(
        self,
        group: offsets.DescribeShareGroupOffsetsRequestGroup,
        context: RequestContext,
        then: Callable[[offsets.DescribeShareGroupOffsetsResponseGroup], None],
    ) -> None:
        group_id = group.group_id
        if not self._groups.serves_share_groups:
            then(_refused_group(group_id, ErrorCode.UNSUPPORTED_VERSION))
        elif context.refuses(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            then(_refused_group(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif group.topics is None:

            def found(reply: commands.SharePartitions) -> None:
                if reply.error_code is not NONE:
                    message = error_message(reply.error_code)
                    then(_refused_group(group_id, reply.error_code, message))
                else:
                    self._read(group_id, self._seen(reply, context), [], then)

            self._groups.submit(group_id, commands.FindSharePartitions(found, group_id))
        else:
            refused, allowed = split(
                context,
                group.topics,
                lambda one: context.refuses(Operation.DESCRIBE, ResourceType.TOPIC, one.topic_name),
            )
            topics = self._leadership.view.topics
            missing = [one for one in allowed if one.topic_name not in topics]
            # As in Kafka, what is named twice is told of once.
            named: dict[str, dict[int, None]] = {}
            for one in allowed:
                if one.topic_name in topics:
                    named.setdefault(one.topic_name, {}).update(dict.fromkeys(one.partitions))
            places = [(name, topics[name].topic_id, list(partitions)) for name, partitions in named.items()]
            others = [_without_state(one, NONE) for one in missing]
            others += [_without_state(one, _UNAUTHORIZED) for one in refused]
            self._read(group_id, places, others, then)

    def _seen(self, reply: commands.SharePartitions, context: RequestContext) -> Places:
        """The topics that exist and that the client may describe."""
        names = self._leadership.view.topic_names
        present = {topic_id: names[topic_id] for topic_id in reply.partitions if topic_id in names}
        unseen = context.left_out(Operation.DESCRIBE, ResourceType.TOPIC, list(present.values()))
        return [
            (name, topic_id, sorted(reply.partitions[topic_id]))
            for topic_id, name in present.items()
            if name not in unseen
        ]

    def _read(
        self,
        group_id: str,
        places: Places,
        others: list[offsets.DescribeShareGroupOffsetsResponseTopic],
        then: Callable[[offsets.DescribeShareGroupOffsetsResponseGroup], None],
    ) -> None:
        def read(summaries: Mapping[SharePartitionKey, StateSummary]) -> None:
            names = {topic_id: name for name, topic_id, _ in places}
            begun = {
                (names[key.topic_id], key.partition): one
                for key, one in summaries.items()
                if one.error_code is NONE
                and one.start_offset != UNINITIALIZED_OFFSET
                and one.delivery_complete_count != NO_DELIVERY_COUNT
            }
            self._find_ends(begun, partial(respond, summaries))

        def respond(summaries: Mapping[SharePartitionKey, StateSummary], ends: Ends) -> None:
            topics = [
                offsets.DescribeShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    topic_id=topic_id,
                    partitions=[
                        _partition(
                            index,
                            summaries.get(SharePartitionKey(group_id, topic_id, index)),
                            ends.get((name, index)),
                        )
                        for index in indexes
                    ],
                )
                for name, topic_id, indexes in places
            ]
            then(offsets.DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics + others))

        wanted = {
            SharePartitionKey(group_id, topic_id, index): NOT_KNOWN
            for name, topic_id, indexes in places
            for index in indexes
            # Of others the share coordinator would be asked again and again, for half a minute.
            if self._leadership.view.partition(name, index) is not None
        }
        if wanted:
            self._groups.persister.summaries(wanted, read)
        else:
            respond({}, {})

    def _find_ends(self, partitions: Iterable[tuple[str, int]], then: Callable[[Ends], None]) -> None:
        """Where they end for consumers; of those that other nodes lead later, by request."""
        leadership = self._leadership
        ends: dict[tuple[str, int], int | ErrorCode] = {}
        elsewhere = []
        for one in partitions:
            leader = leadership.view.leader_of(*one)
            if leader == NO_LEADER:
                ends[one] = ErrorCode.LEADER_NOT_AVAILABLE
            elif leader == leadership.node_id:
                ends[one] = self._end_here(one)
            else:
                elsewhere.append(one)
        remote = self._groups.log_ends
        if elsewhere and remote is not None:
            remote.ask(elsewhere, lambda found: then({**ends, **found}))
        else:
            then(ends)

    def _end_here(self, one: tuple[str, int]) -> int | ErrorCode:
        replicas = self._leadership.replicas
        try:
            led = self._leadership.lead(*one)
        except KafkaError as error:
            return error.code
        if replicas is not None and not replicas.has_offsets(one):
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return led.log.high_watermark


def _partition(
    index: int, summary: StateSummary | None, end: int | ErrorCode | None
) -> offsets.DescribeShareGroupOffsetsResponsePartition:
    """As in Kafka, a state that cannot be had counts as none. `end` is None where it makes no difference."""
    if summary is None or summary.error_code is not NONE:
        return _partition_without_state(index, NONE)
    if isinstance(end, ErrorCode):
        return offsets.DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, error_code=end, error_message=error_message(end)
        )
    lag = NOT_KNOWN if end is None else end - summary.start_offset - summary.delivery_complete_count
    return offsets.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag
    )


def _refused_group(
    group_id: str, code: ErrorCode, message: str | None = None
) -> offsets.DescribeShareGroupOffsetsResponseGroup:
    return offsets.DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=[], error_code=code, error_message=message
    )


def _without_state(
    topic: offsets.DescribeShareGroupOffsetsRequestTopic, code: ErrorCode
) -> offsets.DescribeShareGroupOffsetsResponseTopic:
    return offsets.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[_partition_without_state(index, code) for index in topic.partitions],
    )


def _partition_without_state(
    index: int, code: ErrorCode
) -> offsets.DescribeShareGroupOffsetsResponsePartition:
    return offsets.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=UNINITIALIZED_OFFSET,
        leader_epoch=NO_EPOCH,
        lag=NOT_KNOWN,
        error_code=code,
        error_message=None if code is NONE else error_message(code),
    )


class AlterShareGroupOffsets:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(
        self, request: alter.AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> alter.AlterShareGroupOffsetsResponse | Waiting:
        code = _refuse_change(self._groups, request.group_id, Operation.READ, context)
        if code is not None:
            return alter.AlterShareGroupOffsetsResponse(
                error_code=code, error_message=error_message(code), responses=[]
            )
        refused, allowed = split(
            context,
            request.topics,
            lambda one: context.refuses(Operation.READ, ResourceType.TOPIC, one.topic_name),
        )
        wanted: dict[str, dict[int, int]] = {}
        asked: dict[str, list[int]] = {}
        for topic in allowed:
            of_topic = wanted.setdefault(topic.topic_name, {})
            of_topic.update((one.partition_index, one.start_offset) for one in topic.partitions)
            asked.setdefault(topic.topic_name, []).extend(one.partition_index for one in topic.partitions)
        unauthorized = Refusal(_UNAUTHORIZED, error_message(_UNAUTHORIZED))
        first = [
            commands.AlteredTopic(
                one.topic_name,
                ZERO_UUID,
                {partition.partition_index: unauthorized for partition in one.partitions},
            )
            for one in refused
        ]
        waiting = Waiting()
        command = commands.AlterShareOffsets(
            lambda reply: waiting.complete(_altered(reply, asked, first)),
            request.group_id,
            list(wanted.items()),
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _altered(
    reply: commands.AlterShareOffsetsReply,
    asked: Mapping[str, Sequence[int]],
    first: Iterable[commands.AlteredTopic],
) -> alter.AlterShareGroupOffsetsResponse:
    """`asked` has the partitions as the request names them: one that it names twice is told of twice."""
    if reply.error_code is not NONE:
        return alter.AlterShareGroupOffsetsResponse(
            error_code=reply.error_code,
            error_message=reply.error_message or error_message(reply.error_code),
            responses=[],
        )
    # As in Kafka, topics that do not exist come before the others.
    topics = [*first, *sorted(reply.topics, key=lambda one: one.topic_id != ZERO_UUID)]
    return alter.AlterShareGroupOffsetsResponse(
        responses=[
            alter.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    alter.AlterShareGroupOffsetsResponsePartition(
                        partition_index=index,
                        error_code=topic.partitions[index].error_code,
                        error_message=_message_of(topic.partitions[index]),
                    )
                    for index in asked.get(topic.name, topic.partitions)
                ],
            )
            for topic in topics
        ]
    )


class DeleteShareGroupOffsets:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(
        self, request: delete.DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> delete.DeleteShareGroupOffsetsResponse | Waiting:
        code = _refuse_change(self._groups, request.group_id, Operation.DELETE, context)
        if code is not None:
            return delete.DeleteShareGroupOffsetsResponse(
                error_code=code, error_message=error_message(code), responses=[]
            )
        refused, allowed = split(
            context,
            dict.fromkeys(one.topic_name for one in request.topics),
            lambda name: context.refuses(Operation.READ, ResourceType.TOPIC, name),
        )
        unauthorized = Refusal(_UNAUTHORIZED, error_message(_UNAUTHORIZED))
        first = [commands.DeletedTopic(name, ZERO_UUID, unauthorized) for name in refused]
        waiting = Waiting()
        command = commands.DeleteShareOffsets(
            lambda reply: waiting.complete(_deleted(reply, first)), request.group_id, allowed
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _deleted(
    reply: commands.DeleteShareOffsetsReply, first: Iterable[commands.DeletedTopic]
) -> delete.DeleteShareGroupOffsetsResponse:
    if reply.error_code is not NONE:
        return delete.DeleteShareGroupOffsetsResponse(
            error_code=reply.error_code,
            error_message=reply.error_message or error_message(reply.error_code),
            responses=[],
        )
    return delete.DeleteShareGroupOffsetsResponse(
        responses=[
            delete.DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                error_code=topic.refusal.error_code,
                error_message=_message_of(topic.refusal),
            )
            for topic in (*first, *reply.topics)
        ]
    )


def _refuse_change(
    groups: Groups, group_id: str, operation: Operation, context: RequestContext
) -> ErrorCode | None:
    if not groups.serves_share_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    if context.refuses(operation, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _message_of(refusal: Refusal) -> str | None:
    if refusal.error_code is NONE:
        return None
    return refusal.error_message or error_message(refusal.error_code)


def _described_topics(request: offsets.DescribeShareGroupOffsetsRequest) -> Iterable[str]:
    """Names of topics, where the request has them: null asks for all."""
    return [topic.topic_name for group in request.groups for topic in group.topics or ()]


APIS = (
    Api(
        heartbeat.ShareGroupHeartbeatRequest,
        heartbeat.ShareGroupHeartbeatResponse,
        make=lambda parts: ShareGroupHeartbeat(parts.node.groups),
        needs=(
            on_groups(Operation.READ, only("group_id")),
            on_topics(Operation.DESCRIBE, each("subscribed_topic_names")),
        ),
    ),
    Api(
        describe.ShareGroupDescribeRequest,
        describe.ShareGroupDescribeResponse,
        make=lambda parts: ShareGroupDescribe(parts.node.groups),
        needs=(on_groups(Operation.DESCRIBE, each("group_ids")), on_topics(Operation.DESCRIBE, None)),
    ),
    Api(
        offsets.DescribeShareGroupOffsetsRequest,
        offsets.DescribeShareGroupOffsetsResponse,
        make=lambda parts: DescribeShareGroupOffsets(parts.node.groups, parts.node.leadership),
        needs=(
            on_groups(Operation.DESCRIBE, each("groups", "group_id")),
            on_topics(Operation.DESCRIBE, _described_topics),
        ),
    ),
    Api(
        alter.AlterShareGroupOffsetsRequest,
        alter.AlterShareGroupOffsetsResponse,
        make=lambda parts: AlterShareGroupOffsets(parts.node.groups),
        needs=(
            on_groups(Operation.READ, only("group_id")),
            on_topics(Operation.READ, each("topics", "topic_name")),
        ),
    ),
    Api(
        delete.DeleteShareGroupOffsetsRequest,
        delete.DeleteShareGroupOffsetsResponse,
        make=lambda parts: DeleteShareGroupOffsets(parts.node.groups),
        needs=(
            on_groups(Operation.DELETE, only("group_id")),
            on_topics(Operation.READ, each("topics", "topic_name")),
        ),
    ),
)
