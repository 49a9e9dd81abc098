"""OffsetDelete (key 47, version 0): removes committed offsets of a group.

This module checks whether the client may read the topics, then whether partitions exist; the group's
coordinator checks the rest.

Source: KafkaApis.handleOffsetDeleteRequest of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics, the_group
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.refused_topics import CheckedTopics
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.apis.leadership import Leadership
    from odradek.coordinator.cluster.view import TopicView


class OffsetDelete:
    """The handler."""

    def __init__(self, leadership: Leadership, groups: Groups) -> None:
        self._leadership = leadership
        self._groups = groups

    def __call__(self, request: OffsetDeleteRequest, context: RequestContext) -> Waiting:
        view, waiting = self._leadership.view, Waiting()

        def find(topic: OffsetDeleteRequestTopic) -> TopicView | ErrorCode:
            if context.refuses(Operation.READ, ResourceType.TOPIC, topic.name):
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return view.topics.get(topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        checked = CheckedTopics(request.topics, find, _topic_result, OffsetDeleteResponsePartition)

        def deleted(response: OffsetDeleteResponse) -> None:
            is_refused = response.error_code != ErrorCode.NONE
            waiting.complete(response if is_refused else checked.with_refused(response))

        # Sent even with nothing left to delete: the response has an error if the group does not exist.
        known = OffsetDeleteRequest(group_id=request.group_id, topics=checked.known)
        self._groups().submit(request.group_id, asked_by(client_of(context), API.refuse, known, deleted))
        return waiting


def _topic_result(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteResponsePartition]
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


API = Api(
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    make=lambda parts: OffsetDelete(parts.node.leadership, parts.node.groups),
    needs=(the_group(Operation.DELETE), on_topics(Operation.READ, each("topics", "name"))),
    changes=True,
)
