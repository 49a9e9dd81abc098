"""Committed offsets: OffsetCommit (key 8, versions 0 to 10), OffsetFetch (9, 0 to 10), OffsetDelete (47, 0).

Version 0 of the first two meant ZooKeeper once; here its commits are ordinary ones. From version 10 on
topics have ids instead of names. Which partitions exist is asked here, all the rest of the group's
coordinator. As in Kafka, what does not exist is named before the rest of an answer, or, by OffsetFetch,
behind it; and a topic that is there, of which a commit or a deletion names no partition, is not answered.

Source: KafkaApis.handleOffsetCommitRequest, handleOffsetFetchRequest and handleOffsetDeleteRequest of Kafka
4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting
from odradek.apis.groups import Gathering, Groups
from odradek.apis.offset_commit_shortcut import commits
from odradek.apis.questions import FEW_KNOWN_MAX, Known, Questions, RememberedAnswer, read_question
from odradek.coordinator.groups import commands
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
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
    from odradek.apis.api import ConnectionInfo, RequestContext, Shortcut
    from odradek.apis.leadership import Leadership
    from odradek.coordinator.cluster.view import (
        ClusterView,
        TopicView,
    )

FIRST_VERSION_WITH_IDS = 10
FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_GROUP_BATCH = 8


class OffsetCommit:
    """The handler. A request that names only partitions that do not exist is not put to the group at all."""

    def __init__(self, leadership: Leadership, groups: Groups) -> None:
        self._leadership = leadership
        self._groups = groups

    def shortcut(self) -> Shortcut:
        """The short way of commits in one topic (see `apis/offset_commit_shortcut.py`)."""
        return commits(self._leadership.current_view, self._groups.submit, _find)

    def __call__(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> OffsetCommitResponse | Waiting:
        version = context.api_version
        view = self._leadership.view
        response = OffsetCommitResponse(topics=[])
        offsets: list[commands.OffsetToCommit] = []
        answers: list[OffsetCommitResponsePartition] = []
        has_refused = False
        for topic in request.topics:
            found = _find(view, topic.name, topic.topic_id, version)
            if found is not None and not topic.partitions:
                continue
            partitions: list[OffsetCommitResponsePartition] = []
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
            for asked in topic.partitions:
                answer = OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=0)
                partitions.append(answer)
                if found is None:
                    answer.error_code = (
                        ErrorCode.UNKNOWN_TOPIC_ID
                        if version >= FIRST_VERSION_WITH_IDS
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    has_refused = True
                elif not 0 <= asked.partition_index < len(found.partitions):
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    has_refused = True
                else:
                    offsets.append(_to_commit(found, asked))
                    answers.append(answer)
        if has_refused:
            response.topics = _refused_first(response.topics)
        if not offsets:
            return response
        waiting = Waiting()

        def committed(reply: commands.CommitOffsetsReply) -> None:
            for answer, code in zip(answers, reply.errors, strict=True):
                answer.error_code = code
            waiting.complete(response)

        command = commands.CommitOffsets(
            ticket=committed,
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            offsets=offsets,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            version=version,
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _to_commit(topic: TopicView, asked: OffsetCommitRequestPartition) -> commands.OffsetToCommit:
    return commands.OffsetToCommit(
        topic=topic.name,
        partition=asked.partition_index,
        offset=asked.committed_offset,
        leader_epoch=asked.committed_leader_epoch,
        metadata=asked.committed_metadata or "",
        commit_timestamp_ms=asked.commit_timestamp,
        topic_id=topic.topic_id,
    )


def _find(view: ClusterView, name: str, topic_id: bytes, version: int) -> TopicView | None:
    return view.topic_by_id(topic_id) if version >= FIRST_VERSION_WITH_IDS else view.topics.get(name)


def _refused_first(topics: list[Any]) -> list[Any]:
    """Topics of an answer in which, so far, only what does not exist has an error. As in Kafka one that the
    request names twice is named once then, but as often as there where all exists.
    """
    merged: dict[Any, Any] = {}
    for topic in topics:
        known = merged.setdefault((topic.name, getattr(topic, "topic_id", None)), topic)
        if known is not topic:
            known.partitions += topic.partitions
    for topic in merged.values():
        topic.partitions.sort(key=_is_open)
    return sorted(merged.values(), key=lambda topic: all(map(_is_open, topic.partitions)))


def _is_open(partition: Any) -> bool:
    return partition.error_code == ErrorCode.NONE


class OffsetFetch:
    """The handler: one group before version 8, any number of them from then on."""

    def __init__(self, leadership: Leadership, groups: Groups) -> None:
        self._leadership = leadership
        self._groups = groups

    def shortcut(self) -> Questions:
        """The short way of whoever asks for partitions of one group (see `apis/questions.py`)."""
        request, current_view = OffsetFetchRequest, self._leadership.current_view
        return Questions(request.api_key, request.versions, self._learn, current_view, FEW_KNOWN_MAX)

    def _learn(self, version: int, question: bytes, connection: ConnectionInfo) -> Known | None:
        _, request = read_question(OffsetFetchRequest, version, question)
        if request is None:
            return None
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
            return None  # of any number, and more tomorrow
        look = RememberedAnswer(self._groups.ask, command, respond, version)
        return Known(self._leadership.view, look)

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
            groups=[self._group(asked, reply, version) for asked, reply in zip(groups, replies, strict=True)]
        )

    def _wanted(self, group: OffsetFetchRequestGroup, version: int) -> list[tuple[str, int]] | None:
        """What the group's coordinator is asked for: everything, or the partitions of topics that have a
        name.
        """
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
        self, asked: OffsetFetchRequestGroup, reply: commands.FetchOffsetsReply, version: int
    ) -> OffsetFetchResponseGroup:
        group = OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=reply.error_code)
        if reply.error_code is not ErrorCode.NONE:
            return group
        view = self._leadership.view
        by_topic = _by_topic(reply.offsets)
        if asked.topics is None:
            for name, offsets in by_topic.items():
                topic = view.topics.get(name)
                if topic is None and version >= FIRST_VERSION_WITH_IDS:
                    # A topic that is gone has no id to be named by.
                    continue
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                group.topics.append(_fetched_topic(name, topic_id, offsets))
            return group
        unknown = []
        for wanted in asked.topics:
            asked_name = self._name_of(wanted, version)
            if asked_name is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
                offsets = [_nothing("", index, code) for index in wanted.partition_indexes]
                unknown.append(_fetched_topic(wanted.name, wanted.topic_id, offsets))
                continue
            known = {one.partition: one for one in by_topic.get(asked_name, ())}
            offsets = [
                known.get(index) or _nothing(asked_name, index, ErrorCode.NONE)
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
    """Of versions 0 to 7."""
    wanted = None
    if request.topics is not None:
        wanted = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    return commands.FetchOffsets(
        ticket=ticket, group_id=request.group_id, partitions=wanted, require_stable=request.require_stable
    )


def _single_group(
    asked: list[OffsetFetchRequestTopic] | None, reply: commands.FetchOffsetsReply, version: int
) -> OffsetFetchResponse:
    """Versions 0 to 7. The oldest two have no place for an error of the group but in each partition."""
    code, offsets = reply.error_code, iter(reply.offsets)
    if code is not ErrorCode.NONE:
        if version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=code)
        wanted = [(topic.name, index) for topic in asked or () for index in topic.partition_indexes]
        offsets = iter([_nothing(name, index, code) for name, index in wanted])
    if asked is None:
        topics = list(_by_topic(offsets).items())
    else:
        # The coordinator has answered in the order in which it was asked.
        topics = [(topic.name, list(islice(offsets, len(topic.partition_indexes)))) for topic in asked]
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


class OffsetDelete:
    """The handler."""

    def __init__(self, leadership: Leadership, groups: Groups) -> None:
        self._leadership = leadership
        self._groups = groups

    def __call__(
        self, request: OffsetDeleteRequest, context: RequestContext
    ) -> OffsetDeleteResponse | Waiting:
        view = self._leadership.view
        response = OffsetDeleteResponse(topics=[])
        has_refused = False
        wanted: list[tuple[str, int]] = []
        answers: list[OffsetDeleteResponsePartition] = []
        for topic in request.topics:
            if topic.name in view.topics and not topic.partitions:
                continue
            partitions: list[OffsetDeleteResponsePartition] = []
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
            for asked in topic.partitions:
                answer = OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=0)
                partitions.append(answer)
                if view.partition(topic.name, asked.partition_index) is None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    has_refused = True
                else:
                    wanted.append((topic.name, asked.partition_index))
                    answers.append(answer)
        if has_refused:
            response.topics = _refused_first(response.topics)
        waiting = Waiting()

        def deleted(reply: commands.DeleteOffsetsReply) -> None:
            if reply.error_code is not ErrorCode.NONE:
                waiting.complete(OffsetDeleteResponse(error_code=reply.error_code))
                return
            for answer, code in zip(answers, reply.errors, strict=True):
                answer.error_code = code
            waiting.complete(response)

        # Asked even when nothing is left to delete: whether the group exists is told in any case.
        self._groups.submit(request.group_id, commands.DeleteOffsets(deleted, request.group_id, wanted))
        return waiting
