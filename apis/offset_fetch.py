"""OffsetFetch (key 9, versions 0 to 10): committed offsets of groups.

Version 0 reads from ZooKeeper where the broker has one, else it is served like the others. From version 10 on
topics have ids instead of names. As in Kafka, unknown topics, and topics that the client may not describe,
come last in an answer; where it asks for all topics, the latter are left out.

Source: KafkaApis.handleOffsetFetchRequest of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.apis.access import on_groups, on_topics
from odradek.apis.api import Waiting, split
from odradek.apis.coordinators import Gathering
from odradek.apis.declaration import Api
from odradek.apis.prefixes import Ask, Prefix, RememberedResponse
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups, OldestGroups
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts

FIRST_VERSION_WITH_IDS = 10
FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_GROUP_BATCH = 8
DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC
UNAUTHORIZED = commands.FetchOffsetsReply(ErrorCode.GROUP_AUTHORIZATION_FAILED)
"""In place of the coordinator's reply."""
T = TypeVar("T", OffsetFetchRequestTopic, OffsetFetchRequestTopics)


class OffsetFetch:
    """The handler: one group before version 8, any number of them from then on."""

    def __init__(
        self, leadership: Leadership, groups: Groups, oldest_groups: OldestGroups | None = None
    ) -> None:
        self._leadership = leadership
        self._groups = groups
        self._oldest_groups = oldest_groups

    @property
    def prefix(self) -> Prefix[OffsetFetchRequest]:
        """Tools that watch a group fetch the same partitions repeatedly."""
        return Prefix(OffsetFetchRequest.versions, self._learn)

    def _learn(self, request: OffsetFetchRequest, context: RequestContext) -> Ask | None:
        version = context.api_version
        if version == 0 and self._oldest_groups is not None:
            return None
        if version < FIRST_VERSION_WITH_GROUP_BATCH:
            command = _single_command(request, None)

            def respond(reply: commands.FetchOffsetsReply) -> OffsetFetchResponse:
                return _single_group(request.topics, reply, context)

        elif len(request.groups) == 1:
            command = self._command(request.groups[0], request.require_stable, context, None)
            groups = request.groups

            def respond(reply: commands.FetchOffsetsReply) -> OffsetFetchResponse:
                return self._response(groups, context, [reply])

        else:
            return None
        if command.partitions is None:
            return None  # all partitions: their number is not known and may grow
        return Ask(RememberedResponse(self._groups.ask, command, respond, version))

    def __call__(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse | Waiting:
        version = context.api_version
        if version < FIRST_VERSION_WITH_GROUP_BATCH:
            return self._fetch_one(request, context)
        gathering = Gathering(
            len(request.groups), lambda replies: self._response(request.groups, context, replies)
        )
        for index, group in enumerate(request.groups):
            ticket = gathering.ticket(index)
            if context.refused and context.refuses(DESCRIBE, ResourceType.GROUP, group.group_id):
                ticket(UNAUTHORIZED)
                continue
            command = self._command(group, request.require_stable, context, ticket)
            self._groups.submit(group.group_id, command)
        return gathering.waiting

    def _fetch_one(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> OffsetFetchResponse | Waiting:
        if context.refused and context.refuses(DESCRIBE, ResourceType.GROUP, request.group_id):
            return _single_group(request.topics, UNAUTHORIZED, context)
        waiting = Waiting()
        command = _single_command(request, None)
        allowed = _allowed(request.topics, context)
        if allowed is not request.topics:
            command.partitions = _partitions_of(allowed)
        command.ticket = lambda reply: waiting.complete(_single_group(request.topics, reply, context))
        groups = self._groups if context.api_version > 0 else self._oldest_groups or self._groups
        groups.submit(request.group_id, command)
        return waiting

    def _command(
        self, group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext, ticket: Any
    ) -> commands.FetchOffsets:
        return commands.FetchOffsets(
            ticket=ticket,
            group_id=group.group_id,
            partitions=self._wanted(group, context),
            topic_ids=self._ids(group, context.api_version),
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            require_stable=require_stable,
        )

    def _response(
        self,
        groups: list[OffsetFetchRequestGroup],
        context: RequestContext,
        replies: Iterable[commands.FetchOffsetsReply],
    ) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[
                self._group(requested, reply, context)
                for requested, reply in zip(groups, replies, strict=True)
            ]
        )

    def _wanted(
        self, group: OffsetFetchRequestGroup, context: RequestContext
    ) -> list[tuple[str, int]] | None:
        """The partitions for the command: all, or the partitions of topics with a known name that the client
        may describe."""
        if group.topics is None:
            return None
        wanted = []
        for topic in _allowed(group.topics, context) or ():
            name = self._name_of(topic, context.api_version)
            if name is not None:
                wanted += [(name, index) for index in topic.partition_indexes]
        return wanted

    def _ids(self, group: OffsetFetchRequestGroup, version: int) -> dict[str, bytes]:
        if group.topics is None or version < FIRST_VERSION_WITH_IDS:
            return {}
        names = self._leadership.view.topic_names
        return {names[topic.topic_id]: topic.topic_id for topic in group.topics if topic.topic_id in names}

    def _name_of(self, topic: OffsetFetchRequestTopics, version: int) -> str | None:
        if version < FIRST_VERSION_WITH_IDS:
            return topic.name
        return self._leadership.view.topic_names.get(topic.topic_id)

    def _group(
        self,
        requested: OffsetFetchRequestGroup,
        reply: commands.FetchOffsetsReply,
        context: RequestContext,
    ) -> OffsetFetchResponseGroup:
        version = context.api_version
        group = OffsetFetchResponseGroup(group_id=requested.group_id, topics=[], error_code=reply.error_code)
        if reply.error_code is not ErrorCode.NONE:
            return group
        view = self._leadership.view
        by_topic = _by_topic(reply.offsets)
        if requested.topics is None:
            unseen = context.left_out(DESCRIBE, TOPIC, by_topic)
            for name, offsets in by_topic.items():
                if name in unseen:
                    continue
                topic = view.topics.get(name)
                if topic is None and version >= FIRST_VERSION_WITH_IDS:
                    # A deleted topic has no id to put into the answer.
                    continue
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                group.topics.append(_fetched_topic(name, topic_id, offsets))
            return group
        unknown = []
        for wanted in requested.topics:
            if context.refused and _is_refused(wanted, context):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                offsets = [_nothing("", index, code) for index in wanted.partition_indexes]
                unknown.append(_fetched_topic(wanted.name, wanted.topic_id, offsets))
                continue
            requested_name = self._name_of(wanted, version)
            if requested_name is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
                offsets = [_nothing("", index, code) for index in wanted.partition_indexes]
                unknown.append(_fetched_topic(wanted.name, wanted.topic_id, offsets))
                continue
            known = {one.partition: one for one in by_topic.get(requested_name, ())}
            offsets = [
                known.get(index) or _nothing(requested_name, index, ErrorCode.NONE)
                for index in wanted.partition_indexes
            ]
            group.topics.append(_fetched_topic(wanted.name, wanted.topic_id, offsets))
        group.topics += unknown
        return group


def _is_refused(topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics, context: RequestContext) -> bool:
    name: str | bytes = topic.name
    if isinstance(topic, OffsetFetchRequestTopics) and not name:
        name = topic.topic_id
    return context.refuses(DESCRIBE, TOPIC, name)


def _allowed(topics: list[T] | None, context: RequestContext) -> list[T] | None:
    """The topics that the client may describe; the same list if it may describe all."""
    if topics is None or not context.refused:
        return topics
    return [topic for topic in topics if not _is_refused(topic, context)]


def _by_topic(offsets: Iterable[commands.FetchedOffset]) -> dict[str, list[commands.FetchedOffset]]:
    by_topic: dict[str, list[commands.FetchedOffset]] = {}
    for one in offsets:
        by_topic.setdefault(one.topic, []).append(one)
    return by_topic


def _nothing(name: str, index: int, code: ErrorCode) -> commands.FetchedOffset:
    return commands.FetchedOffset(name, index, -1, -1, "", code)


def _fetched_topic(
    name: str, topic_id: bytes, offsets: Iterable[commands.FetchedOffset]
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=one.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                metadata=one.metadata,
                error_code=one.error_code,
            )
            for one in offsets
        ],
    )


def _single_command(request: OffsetFetchRequest, ticket: Any) -> commands.FetchOffsets:
    """The response in versions 0 to 7."""
    return commands.FetchOffsets(
        ticket=ticket,
        group_id=request.group_id,
        partitions=_partitions_of(request.topics),
        require_stable=request.require_stable,
    )


def _partitions_of(topics: list[OffsetFetchRequestTopic] | None) -> list[tuple[str, int]] | None:
    """None for all."""
    if topics is None:
        return None
    return [(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _single_group(
    requested: list[OffsetFetchRequestTopic] | None,
    reply: commands.FetchOffsetsReply,
    context: RequestContext,
) -> OffsetFetchResponse:
    """Versions 0 to 7. Versions 0 and 1 have an error of the group only in each partition."""
    code, offsets = reply.error_code, iter(reply.offsets)
    refused: list[OffsetFetchRequestTopic] = []
    if code is not ErrorCode.NONE:
        if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=code)
        offsets = iter([_nothing(*partition, code) for partition in _partitions_of(requested) or ()])
    elif requested is not None and context.refused:
        refused, requested = split(context, requested, lambda topic: _is_refused(topic, context))
    if requested is None:
        by_topic = _by_topic(offsets)
        unseen = context.left_out(DESCRIBE, TOPIC, by_topic)
        topics = [(name, of_topic) for name, of_topic in by_topic.items() if name not in unseen]
    else:
        # The reply is in the order of the command.
        topics = [(topic.name, list(islice(offsets, len(topic.partition_indexes)))) for topic in requested]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics += [
        (topic.name, [_nothing(topic.name, index, code) for index in topic.partition_indexes])
        for topic in refused
    ]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition,
                        committed_offset=one.offset,
                        committed_leader_epoch=one.leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in of_topic
                ],
            )
            for name, of_topic in topics
        ]
    )


def _make(parts: ApiParts) -> OffsetFetch:
    node = parts.node
    return OffsetFetch(node.leadership, node.groups, node.oldest_groups)


def _fetched_groups(request: OffsetFetchRequest) -> Iterable[str]:
    return [one.group_id for one in request.groups] or [request.group_id]


def _fetched_topics(request: OffsetFetchRequest) -> Iterable[Any]:
    """Names, or ids, where topics are named: null asks for all."""
    topics: list[Any] = [topic.name for topic in request.topics or ()]
    for group in request.groups:
        topics += [topic.name or topic.topic_id for topic in group.topics or ()]
    return topics


API = Api(
    OffsetFetchRequest,
    OffsetFetchResponse,
    make=_make,
    needs=(on_groups(Operation.DESCRIBE, _fetched_groups), on_topics(Operation.DESCRIBE, _fetched_topics)),
)
