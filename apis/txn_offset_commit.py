"""Offsets committed with a transaction: TxnOffsetCommit (key 28, versions 0 to 6).

The offsets belong to the transaction like any record: the group's partition of `__consumer_offsets` has to be
part of it. From version 5 on the commit itself adds it (transaction.version 2); before, AddOffsetsToTxn adds
it, and the transaction's coordinator confirms that, unless `transaction.partition.verification.enable` is
off. Neither is needed while the log has an open transaction of this producer. The group's coordinator checks
the member afterwards. As elsewhere, requests are repeated for some milliseconds while the coordinator still
ends the producer's last transaction.

From version 6 on topics have ids instead of names (KIP-1319).

Source: KafkaApis.handleTxnOffsetCommitRequest, GroupCoordinatorService.commitTransactionalOffsets,
ReplicaManager.maybeSendPartitionToTransactionCoordinator and AddPartitionsToTxnManager of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from odradek.apis.access import each, on_topics, the_group, the_transactional_id
from odradek.apis.api import Waiting
from odradek.apis.coordinators import client_of
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal, each_partition
from odradek.apis.refused_topics import CheckedTopics
from odradek.apis.transaction_requests import PAUSES_MS
from odradek.apis.transaction_verification import Support, ask_coordinator, support_of_offset_commit
from odradek.coordinator.asked import Asked, Ticket
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.runtime import coordinator_error
from odradek.storage.log.transactions import Verified
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups, RemoteTransactions, Transactions
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts
    from odradek.apis.turn import Timers
    from odradek.coordinator.cluster.view import TopicView

FIRST_VERSION_THAT_KNOWS_LOADING = 2
FIRST_VERSION_WITH_IDS = 6
NO_SEQUENCE = -1
NONE = ErrorCode.NONE
AskedCommit = Asked[TxnOffsetCommitRequest, TxnOffsetCommitResponse]


class TxnOffsetCommit:
    """The handler. A request with only unknown partitions reaches no coordinator."""

    def __init__(
        self,
        leadership: Leadership,
        groups: Groups,
        transactions: Transactions,
        remote_transactions: Callable[[], RemoteTransactions | None],
        timers: Timers,
        is_verifying: Callable[[], bool],
    ) -> None:
        self._leadership = leadership
        self._groups = groups
        self._transactions = transactions
        self._remote_transactions = remote_transactions
        self._timers = timers
        self._is_verifying = is_verifying

    def __call__(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | Waiting:
        version, view = context.api_version, self._leadership.view

        def find(topic: TxnOffsetCommitRequestTopic) -> TopicView | ErrorCode:
            if context.refuses(Operation.READ, ResourceType.TOPIC, topic.name or topic.topic_id):
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            has_ids = version >= FIRST_VERSION_WITH_IDS
            found = view.topic_by_id(topic.topic_id) if has_ids else view.topics.get(topic.name)
            if found is None:
                return ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic.name, topic.topic_id = found.name, found.topic_id
            return found

        checked = CheckedTopics(request.topics, find, _topic_result, TxnOffsetCommitResponsePartition)
        if not checked.known:
            return cast(TxnOffsetCommitResponse, checked.with_refused(TxnOffsetCommitResponse(topics=[])))
        waiting, known = Waiting(), replace(request, topics=checked.known)
        ticket: Ticket[TxnOffsetCommitResponse] = Ticket(
            lambda response: waiting.complete(checked.with_refused(response)),
            lambda code: API.refuse(known, version, _known_error(code, version)),
        )
        asked = Asked(known, client_of(context), ticket)
        if request.group_id:
            self._commit(asked, support_of_offset_commit(version), iter(PAUSES_MS))
        else:
            ticket.take(asked.ticket.refused(ErrorCode.INVALID_GROUP_ID))
        return waiting

    def _commit(self, asked: AskedCommit, support: Support, pauses_ms: Iterator[int]) -> None:
        """Adds the group's partition to the transaction or verifies it, then submits the request to the
        group."""
        request = asked.request
        if support is not Support.ADDED and not self._is_verifying():
            # Otherwise the transaction's coordinator checks the producer.
            code = _unlikely(request)
            if code is NONE:
                self._groups().commit_in_transaction(asked)
            else:
                asked.ticket.take(asked.ticket.refused(code))
            return
        producer = request.producer_id, request.producer_epoch
        place = OFFSETS_TOPIC, self._groups().partition_of(request.group_id)
        version = support.transaction_version
        try:
            log = self._leadership.lead(*place).log
            verification = log.begin_verification(*producer, NO_SEQUENCE, version=version)
        except KafkaError as error:
            asked.ticket.take(asked.ticket.refused(coordinator_error(error.code)))
            return
        if verification is None:
            # The transaction is open here already.
            self._groups().commit_in_transaction(asked)
            return

        def verified(errors: Mapping[tuple[str, int], ErrorCode]) -> None:
            code = errors.get(place, NONE)
            if code is NONE:
                self._groups().commit_in_transaction(asked, Verified(verification, version))
                return
            pause_ms = next(pauses_ms, None) if code is ErrorCode.CONCURRENT_TRANSACTIONS else None
            if pause_ms is None:
                asked.ticket.take(asked.ticket.refused(_group_error(code)))
                return
            # Begin again: the marker that this waits for makes the verification invalid.
            self._timers.after(pause_ms, lambda: self._commit(asked, support, pauses_ms))

        ask_coordinator(
            self._transactions,
            self._remote_transactions,
            request.transactional_id,
            producer,
            [place],
            support,
            verified,
        )


def _unlikely(request: TxnOffsetCommitRequest) -> ErrorCode:
    """The error for a producer id or epoch that no coordinator has given out."""
    if request.producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return NONE


def _known_error(code: ErrorCode, version: int) -> ErrorCode:
    """Producers before 2.0 crash with COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_THAT_KNOWS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _group_error(code: ErrorCode) -> ErrorCode:
    """The code for the client, one of a group coordinator's, for `code` of the transaction coordinator."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Clients retry it without a FindCoordinator request.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return coordinator_error(code)


def _topic_result(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitResponsePartition]
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _make(parts: ApiParts) -> TxnOffsetCommit:
    node, is_verifying = parts.node, parts.settings.verifies_transactions
    remote = node.remote_transactions
    return TxnOffsetCommit(node.leadership, node.groups, node.transactions, remote, node.timers, is_verifying)


API = Api(
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    make=_make,
    needs=(
        the_transactional_id(Operation.WRITE),
        the_group(Operation.READ),
        on_topics(Operation.READ, each("topics", "name", "topic_id")),
    ),
    refusal=Refusal(
        results=(
            "topics",
            each_partition(
                "topics", "partitions", "partition_index", copied={"name": "name", "topic_id": "topic_id"}
            ),
        )
    ),
)
