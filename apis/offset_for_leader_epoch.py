"""OffsetForLeaderEpoch (key 23, versions 0 to 4): where a leader epoch ends in a log.

Not done yet: requests of followers.

Source: ReplicaManager.lastOffsetForLeaderEpoch of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.leadership import Leadership, check_leader_epoch, end_offset_for_epoch
from odradek.wire.errors import KafkaError
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
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
        topics = []
        for topic in request.topics:
            partitions = []
            for requested in topic.partitions:
                answer = EpochEndOffset(partition=requested.partition, error_code=0)
                try:
                    led = self._leadership.lead(topic.topic, requested.partition)
                    check_leader_epoch(led, requested.current_leader_epoch)
                    answer.leader_epoch, answer.end_offset = end_offset_for_epoch(led, requested.leader_epoch)
                except KafkaError as error:
                    answer.error_code = error.code
                partitions.append(answer)
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        return OffsetForLeaderEpochResponse(topics=topics)
