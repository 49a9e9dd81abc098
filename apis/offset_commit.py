"""OffsetCommit (key 8, versions 0 to 10).

Version 0 stores in ZooKeeper where the broker has one, else it is served like the others. From version 10 on
topics have ids instead of names. This module checks whether topic ids are known, then whether the client may
read the topics, then whether partitions exist; the group's coordinator checks the rest. As in Kafka, refused
topics and partitions come first in an answer, and a topic without partitions is left out.

Source: KafkaApis.handleOffsetCommitRequest of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.apis.access import each, on_topics, the_group
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.prefixes import Prefix, Submit
from odradek.apis.refusals import Refusal, each_partition
from odradek.apis.refused_topics import refused_first
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import response_parts
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.prefixes import item_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups, OldestGroups
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts
    from odradek.coordinator.cluster.view import (
        ClusterView,
        TopicView,
    )

_UNTIL = "topics", "partitions"
_PLACES = {
    "partition_index": 1,
    "committed_offset": 2,
    "committed_leader_epoch": 3,
    "committed_metadata": 4,
}
"""The fields of `OffsetToCommit` for the fields of a partition in a request."""

FIRST_VERSION_WITH_IDS = 10
REPEATED_VERSIONS = range(2, 11)
"""Versions whose requests are remembered; version 1 has timestamps in each partition."""


class OffsetCommit:
    """The handler. A request with only unknown partitions does not reach the group's coordinator."""

    def __init__(
        self, leadership: Leadership, groups: Groups, oldest_groups: OldestGroups | None = None
    ) -> None:
        self._leadership = leadership
        self._groups = groups
        self._oldest_groups = oldest_groups or groups

    @property
    def prefix(self) -> Prefix[OffsetCommitRequest]:
        """A consumer commits in one topic, with the same group, generation, member and topic each time."""
        return Prefix(REPEATED_VERSIONS, self._learn, _UNTIL)

    def _learn(self, request: OffsetCommitRequest, context: RequestContext) -> Submit | None:
        version, requested = context.api_version, request.topics[0]
        topic = _find(self._leadership.view, requested.name, requested.topic_id, version)
        if topic is None:
            return None
        commits = _RepeatedCommits(self._groups, request, topic, version)
        fields = item_fields(OffsetCommitRequest, version, _UNTIL)
        return Submit(
            commits.submit,
            commits.respond,
            commands.OffsetToCommit(topic.name, 0, 0, topic_id=topic.topic_id),
            tuple(_PLACES[name] for name in fields),
        )

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
            is_refused = bool(context.refused) and context.refuses(
                Operation.READ, ResourceType.TOPIC, topic.name or topic.topic_id
            )
            if found is not None and not topic.partitions and not is_refused:
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
                if is_refused:
                    answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    has_refused = True
                elif found is None:
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
        groups = self._groups if version > 0 else self._oldest_groups
        groups.submit(request.group_id, command)
        return waiting


class _RepeatedCommits:
    """Commits of one member in one topic, with different partitions and offsets."""

    __slots__ = ("_answered", "_frame", "_partition_count", "_request", "_submit", "_topic", "_version")

    def __init__(self, groups: Groups, request: OffsetCommitRequest, topic: TopicView, version: int) -> None:
        self._submit = groups.submitter(request.group_id)
        self._request = request
        self._topic = topic
        self._partition_count = len(topic.partitions)
        self._version = version
        self._answered: list[int] = []
        """The partitions of the newest response without an error; `_frame` is its frame."""
        self._frame = b""

    def submit(self, items: list[commands.OffsetToCommit], ticket: Callable[[Any], None]) -> bool:
        """False if a partition does not exist."""
        partition_count, request = self._partition_count, self._request
        for item in items:
            if not 0 <= item.partition < partition_count:
                return False
        command = commands.CommitOffsets(
            ticket,
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            items,
            request.group_instance_id,
            request.retention_time_ms,
            self._version,
        )
        self._submit(command)
        return True

    def respond(
        self, items: list[commands.OffsetToCommit], reply: commands.CommitOffsetsReply
    ) -> bytes | OffsetCommitResponse:
        partitions = [item.partition for item in items]
        has_errors = any(reply.errors)
        if partitions == self._answered and not has_errors:
            return self._frame
        answers = [
            OffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index, code in zip(partitions, reply.errors, strict=True)
        ]
        topic = OffsetCommitResponseTopic(
            name=self._topic.name, topic_id=self._topic.topic_id, partitions=answers
        )
        response = OffsetCommitResponse(topics=[topic])
        if has_errors:
            return response
        self._answered, self._frame = partitions, b"".join(response_parts(response, self._version, 0))
        return self._frame


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


def _make(parts: ApiParts) -> OffsetCommit:
    node = parts.node
    return OffsetCommit(node.leadership, node.groups, node.oldest_groups)


API = Api(
    OffsetCommitRequest,
    OffsetCommitResponse,
    make=_make,
    needs=(
        the_group(Operation.READ),
        on_topics(Operation.READ, each("topics", "name", "topic_id")),
    ),
    # The coordinator decides in the order of the requests, by a state that has the effects of those before;
    # their records are appended in that order and committed together.
    overlaps=(OffsetCommitRequest,),
    refusal=Refusal(
        results=(
            "topics",
            each_partition(
                "topics", "partitions", "partition_index", copied={"name": "name", "topic_id": "topic_id"}
            ),
        )
    ),
)
