"""OffsetCommit (key 8, versions 0 to 10).

Version 0 meant ZooKeeper once; here its commits are ordinary ones. From version 10 on topics have ids instead
of names. Which partitions exist is checked here, all the rest by the group's coordinator. As in Kafka, what
does not exist is named before the rest of an answer; and a topic that is there, of which a commit names no
partition, is not answered.

Source: KafkaApis.handleOffsetCommitRequest of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.api import Waiting
from odradek.apis.offset_commit_shortcut import commits
from odradek.apis.refused_topics import refused_first
from odradek.coordinator.groups import commands
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext, Shortcut
    from odradek.apis.coordinators import Groups
    from odradek.apis.leadership import Leadership
    from odradek.coordinator.cluster.view import (
        ClusterView,
        TopicView,
    )

FIRST_VERSION_WITH_IDS = 10


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
            for requested in topic.partitions:
                answer = OffsetCommitResponsePartition(
                    partition_index=requested.partition_index, error_code=0
                )
                partitions.append(answer)
                if found is None:
                    answer.error_code = (
                        ErrorCode.UNKNOWN_TOPIC_ID
                        if version >= FIRST_VERSION_WITH_IDS
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    has_refused = True
                elif not 0 <= requested.partition_index < len(found.partitions):
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    has_refused = True
                else:
                    offsets.append(_to_commit(found, requested))
                    answers.append(answer)
        if has_refused:
            response.topics = refused_first(response.topics)
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


def _to_commit(topic: TopicView, requested: OffsetCommitRequestPartition) -> commands.OffsetToCommit:
    return commands.OffsetToCommit(
        topic=topic.name,
        partition=requested.partition_index,
        offset=requested.committed_offset,
        leader_epoch=requested.committed_leader_epoch,
        metadata=requested.committed_metadata or "",
        commit_timestamp_ms=requested.commit_timestamp,
        topic_id=topic.topic_id,
    )


def _find(view: ClusterView, name: str, topic_id: bytes, version: int) -> TopicView | None:
    return view.topic_by_id(topic_id) if version >= FIRST_VERSION_WITH_IDS else view.topics.get(name)
