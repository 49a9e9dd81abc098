"""OffsetDelete (key 47, version 0): removes committed offsets of a group.

This module checks whether the client may read the topics, then whether partitions exist; the group's
coordinator checks the rest. As in Kafka, refused topics and partitions come first in an answer, and a topic
without partitions is left out.

Source: KafkaApis.handleOffsetDeleteRequest of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics, the_group
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.refused_topics import refused_first
from odradek.coordinator.groups import commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.apis.leadership import Leadership


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
            is_refused = context.refuses(Operation.READ, ResourceType.TOPIC, topic.name)
            if topic.name in view.topics and not topic.partitions and not is_refused:
                continue
            partitions: list[OffsetDeleteResponsePartition] = []
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
            for requested in topic.partitions:
                answer = OffsetDeleteResponsePartition(
                    partition_index=requested.partition_index, error_code=0
                )
                partitions.append(answer)
                if is_refused:
                    answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    has_refused = True
                elif view.partition(topic.name, requested.partition_index) is None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    has_refused = True
                else:
                    wanted.append((topic.name, requested.partition_index))
                    answers.append(answer)
        if has_refused:
            response.topics = refused_first(response.topics)
        waiting = Waiting()

        def deleted(reply: commands.DeleteOffsetsReply) -> None:
            if reply.error_code is not ErrorCode.NONE:
                waiting.complete(OffsetDeleteResponse(error_code=reply.error_code))
                return
            for answer, code in zip(answers, reply.errors, strict=True):
                answer.error_code = code
            waiting.complete(response)

        # Sent even with nothing left to delete: the answer has an error if the group does not exist.
        self._groups.submit(request.group_id, commands.DeleteOffsets(deleted, request.group_id, wanted))
        return waiting


API = Api(
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    make=lambda parts: OffsetDelete(parts.node.leadership, parts.node.groups),
    needs=(the_group(Operation.DELETE), on_topics(Operation.READ, each("topics", "name"))),
    changes=True,
)
