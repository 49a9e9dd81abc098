"""OffsetForLeaderEpoch (key 23, versions 0 to 4): where a leader epoch ends in a log.

Followers of ours do not send it: a Fetch tells them where to cut.

Source: ReplicaManager.lastOffsetForLeaderEpoch of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics, or_on_cluster
from odradek.apis.declaration import Api
from odradek.apis.leadership import Leadership, check_leader_epoch, end_offset_for_epoch
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext


class OffsetForLeaderEpoch:
    """The handler."""

    __slots__ = ("_leadership",)

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    def __call__(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        topics, unauthorized = [], []
        is_replica = not context.refuses(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        for topic in request.topics:
            if not is_replica and context.refuses(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic):
                unauthorized.append(_unauthorized(topic))
                continue
            partitions = []
            for requested in topic.partitions:
                response = EpochEndOffset(partition=requested.partition, error_code=0)
                try:
                    led = self._leadership.lead(topic.topic, requested.partition)
                    check_leader_epoch(led, requested.current_leader_epoch)
                    response.leader_epoch, response.end_offset = end_offset_for_epoch(
                        led, requested.leader_epoch
                    )
                except KafkaError as error:
                    response.error_code = error.code
                partitions.append(response)
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        return OffsetForLeaderEpochResponse(topics=topics + unauthorized)


def _unauthorized(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    """All partitions of a topic that the client may not describe."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [EpochEndOffset(partition=one.partition, error_code=code) for one in topic.partitions]
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)


API = Api(
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    make=lambda parts: OffsetForLeaderEpoch(parts.node.leadership),
    needs=(
        or_on_cluster(Operation.CLUSTER_ACTION),
        on_topics(Operation.DESCRIBE, each("topics", "topic")),
    ),
)
