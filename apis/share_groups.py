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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import each, on_groups, on_topics, only
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import Gathering, asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.group_descriptions import describe_api
from odradek.apis.refusals import Refusal, each_of
from odradek.apis.share_acknowledging import MEMBER_ID_LENGTH_MAX
from odradek.coordinator.cluster.view import NO_LEADER
from odradek.coordinator.shares.state.persister import (
    NO_DELIVERY_COUNT,
    UNINITIALIZED_OFFSET,
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
    from odradek.apis.coordinators import Groups, RemoteLogEnds
    from odradek.apis.leadership import Leadership

NONE = ErrorCode.NONE
NOT_KNOWN = -1
"""Leader epoch that the requester does not know, or lag that nobody knows."""
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
        if not self._groups().serves_share_groups:
            return heartbeat.ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        refused = _refuse_heartbeat(request, context)
        if refused is not None:
            return heartbeat.ShareGroupHeartbeatResponse(error_code=refused)
        waiting = Waiting()
        asked = asked_by(client_of(context), HEARTBEAT.refuse, request, waiting.complete)
        self._groups().submit(request.group_id, asked)
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


# Offsets


class DescribeShareGroupOffsets:
    """The handler: where groups are in partitions, and how many records are left."""

    def __init__(
        self, groups: Groups, leadership: Leadership, log_ends: Callable[[], RemoteLogEnds | None]
    ) -> None:
        self._groups = groups
        self._leadership = leadership
        self._log_ends = log_ends

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
        if not self._groups().serves_share_groups:
            then(_refused_group(group_id, ErrorCode.UNSUPPORTED_VERSION))
        elif context.refuses(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            then(_refused_group(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif group.topics is None:

            def found(response: offsets.DescribeShareGroupOffsetsResponse) -> None:
                (with_states,) = response.groups
                if with_states.error_code != NONE:
                    then(with_states)
                else:
                    self._read(group_id, self._seen(with_states, context), [], then)

            request = offsets.DescribeShareGroupOffsetsRequest(groups=[group])
            self._groups().submit(group_id, asked_by(client_of(context), OFFSETS.refuse, request, found))
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

    def _seen(self, group: offsets.DescribeShareGroupOffsetsResponseGroup, context: RequestContext) -> Places:
        """The topics that exist and that the client may describe."""
        present = [one for one in group.topics if one.topic_id in self._leadership.view.topic_names]
        unseen = context.hidden_names(
            Operation.DESCRIBE, ResourceType.TOPIC, [one.topic_name for one in present]
        )
        return [
            (one.topic_name, one.topic_id, [each.partition_index for each in one.partitions])
            for one in present
            if one.topic_name not in unseen
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
            self._groups().persister.summaries(wanted, read)
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
        remote = self._log_ends()
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
    """Result for a partition. As in Kafka, a state that cannot be had counts as none. `end` is None where it
    makes no difference."""
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


def _refused_group(group_id: str, code: ErrorCode) -> offsets.DescribeShareGroupOffsetsResponseGroup:
    return offsets.DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=[], error_code=code)


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
            return alter.AlterShareGroupOffsetsResponse(error_code=code, error_message=error_message(code))
        refused, allowed = split(
            context,
            request.topics,
            lambda one: context.refuses(Operation.READ, ResourceType.TOPIC, one.topic_name),
        )
        first = [_refused_alteration(one) for one in refused]
        waiting = Waiting()

        def altered(response: alter.AlterShareGroupOffsetsResponse) -> None:
            if response.error_code == NONE:
                # As in Kafka, topics that do not exist come before the others.
                others = sorted(response.responses, key=lambda one: one.topic_id != ZERO_UUID)
                response.responses = [*first, *others]
            waiting.complete(response)

        known = replace(request, topics=allowed)
        self._groups().submit(request.group_id, asked_by(client_of(context), ALTER.refuse, known, altered))
        return waiting


def _refused_alteration(
    topic: alter.AlterShareGroupOffsetsRequestTopic,
) -> alter.AlterShareGroupOffsetsResponseTopic:
    message = error_message(_UNAUTHORIZED)
    return alter.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            alter.AlterShareGroupOffsetsResponsePartition(
                partition_index=one.partition_index, error_code=_UNAUTHORIZED, error_message=message
            )
            for one in topic.partitions
        ],
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
            return delete.DeleteShareGroupOffsetsResponse(error_code=code, error_message=error_message(code))
        # A topic that is named twice gets one result.
        refused, allowed = split(
            context,
            {one.topic_name: one for one in request.topics}.values(),
            lambda one: context.refuses(Operation.READ, ResourceType.TOPIC, one.topic_name),
        )
        first = [_refused_deletion(one.topic_name) for one in refused]
        waiting = Waiting()

        def deleted(response: delete.DeleteShareGroupOffsetsResponse) -> None:
            if response.error_code == NONE:
                response.responses[:0] = first
            waiting.complete(response)

        known = replace(request, topics=allowed)
        self._groups().submit(request.group_id, asked_by(client_of(context), DELETE.refuse, known, deleted))
        return waiting


def _refused_deletion(name: str) -> delete.DeleteShareGroupOffsetsResponseTopic:
    return delete.DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_UUID,
        error_code=_UNAUTHORIZED,
        error_message=error_message(_UNAUTHORIZED),
    )


def _refuse_change(
    groups: Groups, group_id: str, operation: Operation, context: RequestContext
) -> ErrorCode | None:
    if not groups().serves_share_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    if context.refuses(operation, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _described_topics(request: offsets.DescribeShareGroupOffsetsRequest) -> Iterable[str]:
    """Names of topics, where the request has them: null asks for all."""
    return [topic.topic_name for group in request.groups for topic in group.topics or ()]


def _topics_of(group: describe.DescribedGroup) -> Iterable[str]:
    return [one.topic_name for member in group.members for one in member.assignment.topic_partitions]


HEARTBEAT = Api(
    heartbeat.ShareGroupHeartbeatRequest,
    heartbeat.ShareGroupHeartbeatResponse,
    make=lambda parts: ShareGroupHeartbeat(parts.node.groups),
    needs=(
        on_groups(Operation.READ, only("group_id")),
        on_topics(Operation.DESCRIBE, each("subscribed_topic_names")),
    ),
    refusal=Refusal(has_message=False),
)
DESCRIBE = describe_api(
    describe.ShareGroupDescribeRequest,
    describe.ShareGroupDescribeResponse,
    lambda groups: groups().serves_share_groups,
    _topics_of,
)
OFFSETS = Api(
    offsets.DescribeShareGroupOffsetsRequest,
    offsets.DescribeShareGroupOffsetsResponse,
    make=lambda parts: DescribeShareGroupOffsets(
        parts.node.groups, parts.node.leadership, parts.node.log_ends
    ),
    needs=(
        on_groups(Operation.DESCRIBE, each("groups", "group_id")),
        on_topics(Operation.DESCRIBE, _described_topics),
    ),
    refusal=Refusal(results=("groups", each_of("groups", "group_id"))),
)
ALTER = Api(
    alter.AlterShareGroupOffsetsRequest,
    alter.AlterShareGroupOffsetsResponse,
    make=lambda parts: AlterShareGroupOffsets(parts.node.groups),
    needs=(
        on_groups(Operation.READ, only("group_id")),
        on_topics(Operation.READ, each("topics", "topic_name")),
    ),
)
DELETE = Api(
    delete.DeleteShareGroupOffsetsRequest,
    delete.DeleteShareGroupOffsetsResponse,
    make=lambda parts: DeleteShareGroupOffsets(parts.node.groups),
    needs=(
        on_groups(Operation.DELETE, only("group_id")),
        on_topics(Operation.READ, each("topics", "topic_name")),
    ),
)
APIS = (HEARTBEAT, DESCRIBE, OFFSETS, ALTER, DELETE)
