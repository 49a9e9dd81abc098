"""Offsets committed with a transaction: TxnOffsetCommit (key 28, versions 0 to 5).

The offsets belong to the transaction like any record: the group's partition of `__consumer_offsets` has to be
part of it. From version 5 on the commit itself adds it (transaction.version 2); before, AddOffsetsToTxn adds
it, and the transaction's coordinator confirms that, unless `transaction.partition.verification.enable` is
off. Neither is needed while the log has an open transaction of this producer. The group's coordinator checks
the member afterwards. As elsewhere, commands are repeated for some milliseconds while the coordinator still
ends the producer's last transaction.

Source: KafkaApis.handleTxnOffsetCommitRequest, GroupCoordinatorService.commitTransactionalOffsets,
ReplicaManager.maybeSendPartitionToTransactionCoordinator and AddPartitionsToTxnManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics, the_group, the_transactional_id
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal, each_partition
from odradek.apis.transaction_requests import PAUSES_MS
from odradek.apis.transaction_verification import Support, ask_coordinator, support_of_offset_commit
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.group_coordinator import coordinator_error
from odradek.coordinator.groups import commands
from odradek.storage.log.transactions import Verified
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups, Transactions
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts
    from odradek.apis.turn import Timers
    from odradek.coordinator.cluster.view import ClusterView

FIRST_VERSION_THAT_KNOWS_LOADING = 2
NO_SEQUENCE = -1
NONE = ErrorCode.NONE


class TxnOffsetCommit:
    """The handler. A request with only unknown partitions reaches no coordinator."""

    def __init__(
        self,
        leadership: Leadership,
        groups: Groups,
        transactions: Transactions,
        timers: Timers,
        is_verifying: Callable[[], bool],
    ) -> None:
        self._leadership = leadership
        self._groups = groups
        self._transactions = transactions
        self._timers = timers
        self._is_verifying = is_verifying

    def __call__(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | Waiting:
        version = context.api_version
        answer = _Answer(request.topics, self._leadership.view, context)
        if not answer.offsets:
            return answer.response
        if not request.group_id:
            return answer.refused(ErrorCode.INVALID_GROUP_ID)
        waiting = Waiting()
        command = commands.CommitTransactionalOffsets(
            ticket=lambda reply: waiting.complete(answer.filled(reply.errors)),
            group_id=request.group_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            member_id=request.member_id,
            generation=request.generation_id,
            group_instance_id=request.group_instance_id,
            offsets=answer.offsets,
        )
        support = support_of_offset_commit(version)
        self._commit(request.transactional_id, command, support, iter(PAUSES_MS))
        return waiting

    def _commit(
        self,
        transactional_id: str,
        command: commands.CommitTransactionalOffsets,
        support: Support,
        pauses_ms: Iterator[int],
    ) -> None:
        """Adds the group's partition to the transaction or verifies it, then submits the command to the
        group."""
        if support is not Support.ADDED and not self._is_verifying():
            # Otherwise the transaction's coordinator checks the producer.
            code = _unlikely(command)
            if code is NONE:
                self._groups.commit_in_transaction(command)
            else:
                command.ticket(command.refused(code))
            return
        producer = command.producer_id, command.producer_epoch
        place = OFFSETS_TOPIC, self._groups.partition_of(command.group_id)
        version = support.transaction_version
        try:
            log = self._leadership.lead(*place).log
            verification = log.begin_verification(*producer, NO_SEQUENCE, version=version)
        except KafkaError as error:
            command.ticket(command.refused(coordinator_error(error.code)))
            return
        if verification is None:
            # The transaction is open here already.
            self._groups.commit_in_transaction(command)
            return

        def verified(errors: Mapping[tuple[str, int], ErrorCode]) -> None:
            code = errors.get(place, NONE)
            if code is NONE:
                self._groups.commit_in_transaction(command, Verified(verification, version))
                return
            pause_ms = next(pauses_ms, None) if code is ErrorCode.CONCURRENT_TRANSACTIONS else None
            if pause_ms is None:
                command.ticket(command.refused(_group_error(code)))
                return
            # Begin again: the marker that this waits for makes the verification invalid.
            self._timers.after(pause_ms, lambda: self._commit(transactional_id, command, support, pauses_ms))

        ask_coordinator(self._transactions, transactional_id, producer, [place], support, verified)


def _unlikely(command: commands.CommitTransactionalOffsets) -> ErrorCode:
    """The error for a producer id or epoch that no coordinator has given out."""
    if command.producer_id < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if command.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return NONE


def _group_error(code: ErrorCode) -> ErrorCode:
    """The code for the client, one of a group coordinator's, for `code` of the transaction coordinator."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Clients retry it without a FindCoordinator request.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return coordinator_error(code)


class _Answer:
    """The prepared response, and the offsets that are left to commit.

    As in Kafka, topics that the client may not read, and unknown topics and partitions, come first, and a
    topic that the request names twice is there once then; if none is refused, it is there as often as in the
    request.
    """

    __slots__ = ("_open", "_version", "offsets", "response")

    def __init__(
        self, topics: Iterable[TxnOffsetCommitRequestTopic], view: ClusterView, context: RequestContext
    ) -> None:
        self.response = TxnOffsetCommitResponse(topics=[])
        self.offsets: list[commands.OffsetToCommit] = []
        self._open: list[TxnOffsetCommitResponsePartition] = []
        self._version = context.api_version
        by_name: dict[str, list[TxnOffsetCommitResponsePartition]] = {}

        def partitions_of(name: str) -> list[TxnOffsetCommitResponsePartition]:
            partitions = by_name.get(name)
            if partitions is None:
                partitions = by_name[name] = []
                self.response.topics.append(TxnOffsetCommitResponseTopic(name=name, partitions=partitions))
            return partitions

        def add(
            name: str, requested: TxnOffsetCommitRequestPartition, code: ErrorCode
        ) -> TxnOffsetCommitResponsePartition:
            answer = TxnOffsetCommitResponsePartition(
                partition_index=requested.partition_index, error_code=code
            )
            partitions_of(name).append(answer)
            return answer

        known: list[tuple[str, list[TxnOffsetCommitRequestPartition]]] = []
        for topic in topics:
            is_refused = context.refuses(Operation.READ, ResourceType.TOPIC, topic.name)
            if is_refused or topic.name not in view.topics:
                # Included even without partitions.
                partitions_of(topic.name)
            of_topic: list[TxnOffsetCommitRequestPartition] = []
            known.append((topic.name, of_topic))
            for requested in topic.partitions:
                if is_refused:
                    add(topic.name, requested, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif view.partition(topic.name, requested.partition_index) is None:
                    add(topic.name, requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    of_topic.append(requested)
        has_refused = bool(by_name)
        for name, of_topic in known:
            if not has_refused:
                by_name.pop(name, None)
            for requested in of_topic:
                self._open.append(add(name, requested, NONE))
                self.offsets.append(_to_commit(name, view.topics[name].topic_id, requested))

    def refused(self, code: ErrorCode) -> TxnOffsetCommitResponse:
        return self.filled([code] * len(self.offsets))

    def filled(self, errors: list[ErrorCode]) -> TxnOffsetCommitResponse:
        """The response with one error for all `offsets`."""
        for answer, code in zip(self._open, errors, strict=True):
            if (
                code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                and self._version < FIRST_VERSION_THAT_KNOWS_LOADING
            ):
                # Producers before 2.0 crash with this code (KAFKA-7296).
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer.error_code = code
        return self.response


def _to_commit(
    name: str, topic_id: bytes, requested: TxnOffsetCommitRequestPartition
) -> commands.OffsetToCommit:
    return commands.OffsetToCommit(
        topic=name,
        partition=requested.partition_index,
        offset=requested.committed_offset,
        leader_epoch=requested.committed_leader_epoch,
        metadata=requested.committed_metadata or "",
        topic_id=topic_id,
    )


def _make(parts: ApiParts) -> TxnOffsetCommit:
    node, is_verifying = parts.node, parts.settings.verifies_transactions
    return TxnOffsetCommit(node.leadership, node.groups, node.transactions, node.timers, is_verifying)


API = Api(
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    make=_make,
    needs=(
        the_transactional_id(Operation.WRITE),
        the_group(Operation.READ),
        on_topics(Operation.READ, each("topics", "name")),
    ),
    refusal=Refusal(
        results=("topics", each_partition("topics", "partitions", "partition_index", copied={"name": "name"}))
    ),
)
