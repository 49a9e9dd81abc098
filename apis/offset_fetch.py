"""OffsetFetch (key 9, versions 0 to 10): committed offsets of groups.

Version 0 reads from ZooKeeper where the broker has one, else it is served like the others. From version 10 on
topics have ids instead of names. As in Kafka, unknown topics, and topics that the client may not describe,
come last in a response; where it asks for all topics, the latter are left out.

Source: KafkaApis.handleOffsetFetchRequest of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.access import on_groups, on_topics
from odradek.apis.coordinators import Gathering, client_of
from odradek.apis.declaration import Api
from odradek.apis.prefixes import Ask, Prefix, RememberedResponse
from odradek.coordinator.asked import NOBODY, Asked, Ticket
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext, Waiting
    from odradek.apis.coordinators import Groups, OldestGroups
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts

FIRST_VERSION_WITH_IDS = 10
FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_GROUP_BATCH = 8
DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC


class OffsetFetch:
    """The handler. A coordinator gets a request with one of the groups, in the form of version 10 with the
    names of topics, in every version."""

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
        version, groups = context.api_version, _groups_of(request, context.api_version)
        if version == 0 and self._oldest_groups is not None:
            return None
        if len(groups) != 1 or groups[0].topics is None:
            return None  # all partitions: their number is not known and may grow
        known, refused = self._split(groups[0].topics, context)
        asked = Asked(_of_one(request, groups[0], known), client_of(context), NOBODY)
        ask = partial(self._groups().ask, groups[0].group_id, asked)

        def respond(response: OffsetFetchResponse) -> OffsetFetchResponse:
            return self._response(groups, [self._group(response, refused, context)], version)

        return Ask(RememberedResponse(ask, version, respond))

    def __call__(self, request: OffsetFetchRequest, context: RequestContext) -> Waiting:
        version, client = context.api_version, client_of(context)
        groups = _groups_of(request, version)
        coordinators = (self._oldest_groups if version == 0 else None) or self._groups()
        gathering = Gathering(len(groups), lambda found: self._response(groups, found, version))
        for index, group in enumerate(groups):
            take = gathering.ticket(index)
            if context.refused and context.refuses(DESCRIBE, ResourceType.GROUP, group.group_id):
                take(_refused_group(group.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            known, refused = self._split(group.topics, context)

            def taken(response: Any, take: Any = take, refused: Any = refused) -> None:
                take(self._group(response, refused, context))

            ticket = Ticket(taken, partial(_refused, group.group_id))
            coordinators.submit(group.group_id, Asked(_of_one(request, group, known), client, ticket))
        return gathering.waiting

    def _split(
        self, topics: list[OffsetFetchRequestTopics] | None, context: RequestContext
    ) -> tuple[list[OffsetFetchRequestTopics] | None, list[OffsetFetchResponseTopics] | None]:
        """The topics for the coordinator, and the results of those that the client may not describe, or that
        do not exist; None where all are wanted."""
        if topics is None:
            return None, None
        known: list[OffsetFetchRequestTopics] = []
        refused: list[OffsetFetchResponseTopics] = []
        names = self._leadership.view.topic_names
        for topic in topics:
            if context.refused and context.refuses(DESCRIBE, TOPIC, topic.name or topic.topic_id):
                refused.append(_refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif context.api_version < FIRST_VERSION_WITH_IDS:
                known.append(topic)
            elif topic.topic_id in names:
                known.append(replace(topic, name=names[topic.topic_id]))
            else:
                refused.append(_refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        return known, refused

    def _group(
        self,
        response: OffsetFetchResponse,
        refused: list[OffsetFetchResponseTopics] | None,
        context: RequestContext,
    ) -> OffsetFetchResponseGroup:
        """The group of the coordinator's response, with the refused topics behind the others. Where all are
        wanted (`refused` is None), those that the client may not describe are left out."""
        (group,) = response.groups
        if group.error_code:
            return group
        if refused is None:
            return replace(group, topics=self._visible(group.topics, context))
        return replace(group, topics=[*group.topics, *refused])

    def _visible(
        self, topics: list[OffsetFetchResponseTopics], context: RequestContext
    ) -> list[OffsetFetchResponseTopics]:
        unseen = context.hidden_names(DESCRIBE, TOPIC, [topic.name for topic in topics])
        visible = [topic for topic in topics if topic.name not in unseen]
        if context.api_version < FIRST_VERSION_WITH_IDS:
            return visible
        # A deleted topic has no id to put into the response.
        known = self._leadership.view.topics
        return [
            replace(topic, topic_id=known[topic.name].topic_id) for topic in visible if topic.name in known
        ]

    def _response(
        self, requested: list[OffsetFetchRequestGroup], found: list[OffsetFetchResponseGroup], version: int
    ) -> OffsetFetchResponse:
        if version >= FIRST_VERSION_WITH_GROUP_BATCH:
            return OffsetFetchResponse(groups=found)
        return _old_response(requested[0], found[0], version)


def _groups_of(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """The groups of a request, of which the old versions have one in another form."""
    if version >= FIRST_VERSION_WITH_GROUP_BATCH:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _old_response(
    requested: OffsetFetchRequestGroup, group: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    """Versions 0 and 1 have an error of the group only in each partition."""
    topics, code = group.topics, ErrorCode(group.error_code)
    if code is not ErrorCode.NONE:
        if version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=code)
        topics = [_refused_topic(topic, code) for topic in requested.topics or ()]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _of_one(
    request: OffsetFetchRequest,
    group: OffsetFetchRequestGroup,
    topics: list[OffsetFetchRequestTopics] | None,
) -> OffsetFetchRequest:
    """The request to a group's coordinator, for these of its topics."""
    return OffsetFetchRequest(groups=[replace(group, topics=topics)], require_stable=request.require_stable)


def _refused(group_id: str, code: ErrorCode) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[_refused_group(group_id, code)])


def _refused_group(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=code)


def _refused_topic(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=code,
            )
            for index in topic.partition_indexes
        ],
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
