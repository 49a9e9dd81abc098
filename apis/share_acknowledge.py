"""ShareAcknowledge (key 79, versions 1 and 2): what a member of a share group did with its records.

Source: KafkaApis.handleShareAcknowledgeRequest of Kafka 4.3.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import on_groups, on_topics, only
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.leadership import MOVED, add_endpoint, leader_hint
from odradek.apis.share_acknowledging import (
    FIRST_VERSION_WITH_RENEWAL,
    Acknowledging,
    Results,
    check_member,
    end_session,
    refused_topics,
)
from odradek.apis.share_fetch import ShareParts, share_parts
from odradek.apis.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext


class ShareAcknowledge:
    """The handler."""

    def __init__(self, parts: ShareParts) -> None:
        self._parts = parts

    def __call__(
        self, request: ShareAcknowledgeRequest, context: RequestContext
    ) -> ShareAcknowledgeResponse | Waiting:
        try:
            if not self._parts.is_served:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            group_id, member_id = check_member(request, context)
            if request.share_session_epoch == INITIAL_EPOCH:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session = self._parts.sessions.resume(group_id, member_id, request.share_session_epoch)
        except KafkaError as error:
            # Without a message, as in Kafka.
            return ShareAcknowledgeResponse(error_code=error.code)
        view = self._parts.leadership.view
        may_renew = context.api_version >= FIRST_VERSION_WITH_RENEWAL and request.is_renew_ack
        refused = refused_topics(context, view, [topic.topic_id for topic in request.topics])
        acknowledging = Acknowledging(
            self._parts.shares, view, group_id, member_id, refused, may_renew=may_renew
        )
        named = {
            (topic.topic_id, one.partition_index): one.acknowledgement_batches
            for topic in request.topics
            for one in topic.partitions
        }
        waiting = Waiting()
        acknowledging.run(named, partial(self._stored, request, context, session, waiting))
        return waiting

    def _stored(
        self,
        request: ShareAcknowledgeRequest,
        context: RequestContext,
        session: ShareSession,
        waiting: Waiting,
        results: Results,
    ) -> None:
        parts = self._parts
        if request.share_session_epoch == FINAL_EPOCH:
            end_session(parts.sessions, parts.shares, session)
        config = parts.config_of(session.group_id)
        response = ShareAcknowledgeResponse(
            error_code=0,
            acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
            responses=[],
        )
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        for (topic_id, index), error in results.items():
            partition = PartitionData(
                partition_index=index,
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.own_message,
            )
            if partition.error_code in MOVED:
                name = parts.leadership.view.topic_names.get(topic_id)
                hint = leader_hint(parts.leadership, name, index, context.connection)
                if hint is not None:
                    partition.current_leader = LeaderIdAndEpoch(
                        leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                    )
                    add_endpoint(response.node_endpoints, NodeEndpoint, hint)
            if topic_id not in topics:
                topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
            topics[topic_id].partitions.append(partition)
        response.responses = list(topics.values())
        waiting.complete(response)


API = Api(
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    make=lambda parts: ShareAcknowledge(parts.shared(share_parts)),
    needs=(on_groups(Operation.READ, only("group_id")), on_topics(Operation.READ, None)),
)
