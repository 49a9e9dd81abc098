"""The acknowledgements in ShareFetch and ShareAcknowledge: checked, authorized, stored. And the end of a
share session, with which the member gives back what it has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.share_sessions import PartitionId, ShareSession, ShareSessions
from odradek.coordinator.shares.partitions.share_partition import Acknowledgement, AcknowledgeType
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError, error_message

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.share_partitions import SharePartitions
    from odradek.coordinator.cluster.view import ClusterView

logger = logging.getLogger("odradek.share")

MEMBER_ID_LENGTH_MAX = 36
"""Length of a UUID as text."""
FIRST_VERSION_WITH_RENEWAL = 2
Results = dict[PartitionId, KafkaError | None]
"""None: it was acknowledged."""


class _Asked(Protocol):
    group_id: str | None
    member_id: str | None


def check_member(request: _Asked, context: RequestContext) -> tuple[str, str]:
    """Group and member of the request. INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED."""
    group_id, member_id = request.group_id, request.member_id
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if context.refuses(Operation.READ, ResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return group_id, member_id


def refused_topics(context: RequestContext, view: ClusterView, ids: Iterable[bytes]) -> set[bytes]:
    """Ids of topics that the client may not read. An unknown id is told as such, without a permission."""
    names = {topic_id: view.topic_names.get(topic_id) for topic_id in ids}
    known = [name for name in names.values() if name is not None]
    refused = context.refused_names(Operation.READ, ResourceType.TOPIC, known)
    return {topic_id for topic_id, name in names.items() if name in refused} if refused else set()


def acknowledged_in(topics: Iterable[Any]) -> dict[PartitionId, Sequence[Any]]:
    """The batches of acknowledgements by partition: of all that are named, if any of them has batches."""
    named = {
        (topic.topic_id, one.partition_index): one.acknowledgement_batches
        for topic in topics
        for one in topic.partitions
    }
    return named if any(named.values()) else {}


def check_batches(batches: Sequence[Any], *, may_renew: bool) -> None:
    """INVALID_REQUEST: out of order, types that do not fit the offsets, or types that there are not."""
    before = -1
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if (
            first > last
            or first < before
            or not types
            or (len(types) > 1 and len(types) != last - first + 1)
            or min(types) < 0
            or max(types) > highest
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        before = last


class Acknowledging:
    """The acknowledgements of one request."""

    def __init__(
        self,
        shares: SharePartitions,
        view: ClusterView,
        group_id: str,
        member_id: str,
        refused: set[bytes],
        *,
        may_renew: bool,
    ) -> None:
        self._shares = shares
        self._view = view
        self._group_id, self._member_id = group_id, member_id
        self._refused = refused
        self._may_renew = may_renew

    def run(self, acknowledged: Mapping[PartitionId, Sequence[Any]], then: Callable[[Results], None]) -> None:
        """Calls `then` with the results when all are stored, perhaps before this returns. As in Kafka, a
        partition without batches has a result only beside one whose batches make sense."""
        results: Results = {}
        wanted: list[PartitionId] = []
        for partition, batches in acknowledged.items():
            try:
                self._check(partition, batches)
            except KafkaError as error:
                results[partition] = error
            else:
                if batches:
                    wanted.append(partition)
        if not wanted:
            then(results)
            return
        left = len(wanted)

        def done(partition: PartitionId, error: KafkaError | None) -> None:
            nonlocal left
            results[partition] = error
            left -= 1
            if not left:
                then(dict.fromkeys(acknowledged) | results)

        for partition in wanted:
            self._acknowledge(partition, acknowledged[partition], partial(done, partition))

    def _check(self, partition: PartitionId, batches: Sequence[Any]) -> None:
        topic_id, index = partition
        name = self._view.topic_names.get(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        check_batches(batches, may_renew=self._may_renew)
        if topic_id in self._refused:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._view.partition(name, index) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _acknowledge(
        self, partition: PartitionId, batches: Sequence[Any], done: Callable[[KafkaError | None], None]
    ) -> None:
        share = self._shares.known(SharePartitionKey(self._group_id, *partition))
        if share is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            done(KafkaError(code, error_message(code)))
            return
        acknowledgements = [
            Acknowledgement(one.first_offset, one.last_offset, one.acknowledge_types) for one in batches
        ]
        self._shares.acknowledge(share, self._member_id, acknowledgements, done)


def end_session(sessions: ShareSessions, shares: SharePartitions, session: ShareSession) -> None:
    """The member gives back what it has. Nobody waits for that."""
    if sessions.get(session.group_id, session.member_id) is session:
        sessions.remove(session.group_id, session.member_id)

    def told(error: KafkaError | None) -> None:
        if error is not None:
            logger.info(
                "member %s of share group %r could not give back its records, and their locks have to run "
                "out: %s",
                *(session.member_id, session.group_id, error.message),
            )

    for topic_id, index in session.partitions:
        share = shares.known(SharePartitionKey(session.group_id, topic_id, index))
        if share is not None:
            shares.release(share, session.member_id, told)
    if not sessions.has_group(session.group_id):
        shares.give_up_group(session.group_id)
