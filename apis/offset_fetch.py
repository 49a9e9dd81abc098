"""OffsetFetch (key 9, versions 0 to 10): committed offsets of groups.

Version 0, which read from ZooKeeper, is served like the others. From version 10 on topics have ids instead of
names. As in Kafka, unknown topics and partitions come last in an answer.

Source: KafkaApis.handleOffsetFetchRequest of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting
from odradek.apis.coordinators import Gathering
from odradek.apis.prefixes import Ask, Prefix, RememberedResponse
from odradek.coordinator.groups import commands
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
    from odradek.apis.coordinators import Groups
    from odradek.apis.leadership import Leadership

FIRST_VERSION_WITH_IDS = 10
FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_GROUP_BATCH = 8


class OffsetFetch:
    """The handler: one group before version 8, any number of them from then on."""

    def __init__(self, leadership: Leadership, groups: Groups) -> None:
        self._leadership = leadership
        self._groups = groups

    @property
    def prefix(self) -> Prefix[OffsetFetchRequest]:
        """Tools that watch a group fetch the same partitions repeatedly."""
        return Prefix(OffsetFetchRequest.versions, self._learn)

    def _learn(self, request: OffsetFetchRequest, context: RequestContext) -> Ask | None:
        version = context.api_version
        if version < FIRST_VERSION_WITH_GROUP_BATCH:
            command = _single_command(request, None)

            def respond(reply: commands.FetchOffsetsReply) -> OffsetFetchResponse:
                return _single_group(request.topics, reply, version)

        elif len(request.groups) == 1:
            command = self._command(request.groups[0], request.require_stable, version, None)
            groups = request.groups

            def respond(reply: commands.FetchOffsetsReply) -> OffsetFetchResponse:
                return self._response(groups, version, [reply])

        else:
            return None
        if command.partitions is None:
            return None  # all partitions: their number is not known and may grow
        return Ask(RememberedResponse(self._groups.ask, command, respond, version))

    def __call__(self, request: OffsetFetchRequest, context: RequestContext) -> Waiting:
        version = context.api_version
        if version < FIRST_VERSION_WITH_GROUP_BATCH:
            return self._fetch_one(request, version)
        gathering = Gathering(
            len(request.groups), lambda replies: self._response(request.groups, version, replies)
        )
        for index, group in enumerate(request.groups):
            command = self._command(group, request.require_stable, version, gathering.ticket(index))
            self._groups.submit(group.group_id, command)
        return gathering.waiting

    def _fetch_one(self, request: OffsetFetchRequest, version: int) -> Waiting:
        waiting = Waiting()
        command = _single_command(request, None)
        command.ticket = lambda reply: waiting.complete(_single_group(request.topics, reply, version))
        self._groups.submit(request.group_id, command)
        return waiting

    def _command(
        self, group: OffsetFetchRequestGroup, require_stable: bool, version: int, ticket: Any
    ) -> commands.FetchOffsets:
        return commands.FetchOffsets(
            ticket=ticket,
            group_id=group.group_id,
            partitions=self._wanted(group, version),
            topic_ids=self._ids(group, version),
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            require_stable=require_stable,
        )

    def _response(
        self,
        groups: list[OffsetFetchRequestGroup],
        version: int,
        replies: Iterable[commands.FetchOffsetsReply],
    ) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[
                self._group(requested, reply, version)
                for requested, reply in zip(groups, replies, strict=True)
            ]
        )

    def _wanted(self, group: OffsetFetchRequestGroup, version: int) -> list[tuple[str, int]] | None:
        """The partitions for the command: all, or the partitions of topics with a known name."""
        if group.topics is None:
            return None
        wanted = []
        for topic in group.topics:
            name = self._name_of(topic, version)
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
        self, requested: OffsetFetchRequestGroup, reply: commands.FetchOffsetsReply, version: int
    ) -> OffsetFetchResponseGroup:
        group = OffsetFetchResponseGroup(group_id=requested.group_id, topics=[], error_code=reply.error_code)
        if reply.error_code is not ErrorCode.NONE:
            return group
        view = self._leadership.view
        by_topic = _by_topic(reply.offsets)
        if requested.topics is None:
            for name, offsets in by_topic.items():
                topic = view.topics.get(name)
                if topic is None and version >= FIRST_VERSION_WITH_IDS:
                    # A deleted topic has no id to put into the answer.
                    continue
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                group.topics.append(_fetched_topic(name, topic_id, offsets))
            return group
        unknown = []
        for wanted in requested.topics:
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
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    return commands.FetchOffsets(
        ticket=ticket, group_id=request.group_id, partitions=wanted, require_stable=request.require_stable
    )


def _single_group(
    requested: list[OffsetFetchRequestTopic] | None, reply: commands.FetchOffsetsReply, version: int
) -> OffsetFetchResponse:
    """Versions 0 to 7. Versions 0 and 1 have an error of the group only in each partition."""
    code, offsets = reply.error_code, iter(reply.offsets)
    if code is not ErrorCode.NONE:
        if version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=code)
        wanted = [(topic.name, index) for topic in requested or () for index in topic.partition_indexes]
        offsets = iter([_nothing(name, index, code) for name, index in wanted])
    if requested is None:
        topics = list(_by_topic(offsets).items())
    else:
        # The reply is in the order of the command.
        topics = [(topic.name, list(islice(offsets, len(topic.partition_indexes)))) for topic in requested]
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
