"""Faults for partitions that a share session has (KIP-932).

A ShareFetch names only what changes in its session, so that most of them name nothing. The broker knows the
session: a fault that is about a topic or a partition is for each request that fetches from it. With an error
nothing is acquired there and no acknowledgement counts. The partition stays in the session and the epoch
goes on, as when a broker does not lead the partition any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.share_sessions import FINAL_EPOCH, PartitionId
from odradek.server.test_kit.named import (
    GROUP,
    PARTITION,
    TOPIC_ID,
    Named,
    Place,
    named_in,
    put_error,
    without,
)
from odradek.server.test_kit.partial_errors import changed

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.share_sessions import ShareSessions
    from odradek.server.test_kit.interposing import Proceed
    from odradek.wire.errors import ErrorCode


def named_with_session(request: Any, sessions: ShareSessions) -> list[Named]:
    """All partitions of which a ShareFetch asks for records or acknowledges some; one entry, for the request
    itself, if there are none."""
    named = [one for one in named_in(request) if PARTITION in one.values]
    known = {_id_of(one) for one in named}
    session = sessions.get(request.group_id, request.member_id)
    if session is not None and request.share_session_epoch > 0 and not request.is_renew_ack:
        known |= _forgotten(request)
        named += [
            Named({GROUP: request.group_id, TOPIC_ID: topic_id, PARTITION: index}, (), ())
            for topic_id, index in session.partitions
            if (topic_id, index) not in known
        ]
    return named or [Named({GROUP: request.group_id}, (), ())]


def refuse_partitions(
    request: Any,
    context: RequestContext,
    place: Place,
    matched: Sequence[Named],
    code: ErrorCode,
    proceed: Proceed,
    sessions: ShareSessions,
) -> Any:
    """`response | Waiting | None` to a ShareFetch, with the error for the partitions that were matched."""
    refused = list(dict.fromkeys(_id_of(one) for one in matched))
    acknowledged = {
        (topic.topic_id, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }
    session = sessions.get(request.group_id, request.member_id)
    if session is not None:
        session.change((), refused)
    left: Any = without(request, [one for one in matched if one.path])
    if request.share_session_epoch != FINAL_EPOCH and not request.is_renew_ack:
        left.max_wait_ms = 0  # the error is there at once
    response = proceed(left, context)
    session = sessions.get(request.group_id, request.member_id)
    if session is not None and request.share_session_epoch != FINAL_EPOCH:
        # Back, before the next request: the client goes on as if the session had it.
        session.change([one for one in refused if one not in _forgotten(request)], ())

    def say(found: Any) -> Any:
        for topic_id, index in refused:
            put_error(found, place, {TOPIC_ID: topic_id, PARTITION: index}, code, context.api_version)
        for topic in found.responses:
            for one in topic.partitions:
                if one.error_code == code and (topic.topic_id, one.partition_index) in acknowledged:
                    one.acknowledge_error_code = int(code)
        return found

    return changed(response, say)


def _id_of(named: Named) -> PartitionId:
    return named.values[TOPIC_ID], named.values[PARTITION]


def _forgotten(request: Any) -> set[PartitionId]:
    return {(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions}
