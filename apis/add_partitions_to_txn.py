"""AddPartitionsToTxn (key 24, versions 0 to 5): partitions join a transaction.

It has two forms: clients send versions 0 to 3, with one transaction; brokers send version 4 and later, with
several transactions, and may only check whether the partitions were added (`verify_only`). Clients need the
permission to write with the transactional id and to each topic, brokers for the cluster.

Source: KafkaApis and TransactionCoordinator of Kafka 4.3, TransactionVersion.java for what a sender of a
version supports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.apis.access import Need, each, on_topics, on_transactional_ids
from odradek.apis.api import Waiting
from odradek.apis.coordinators import Gathering, client_of
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal, each_partition
from odradek.apis.transaction_requests import add_patiently, asked_to_add, error_for_version
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.coordinator.transactions.machine import ADDED_BY_BROKERS_SINCE
from odradek.coordinator.transactions.queries import partitions_in, result_by_partition
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Transactions
    from odradek.apis.node import ApiParts
    from odradek.apis.transaction_requests import Partition
    from odradek.apis.turn import Timers
    from odradek.coordinator.cluster.view import ClusterView


class AddPartitionsToTxn:
    """The handler. If one partition of a transaction does not exist, none of them is added."""

    def __init__(
        self, current_view: Callable[[], ClusterView], transactions: Transactions, timers: Timers
    ) -> None:
        self._current_view = current_view
        self._transactions = transactions
        self._timers = timers

    def __call__(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Waiting:
        version = context.api_version
        if version >= ADDED_BY_BROKERS_SINCE:
            requested = request.transactions
            gathering = Gathering(
                len(requested), lambda results: AddPartitionsToTxnResponse(results_by_transaction=results)
            )
        else:
            requested = [_of_client(request)]
            gathering = Gathering(1, _response_to_client)
        # For an id that is named twice, Kafka adds the last partitions twice and answers with the first
        # twice.
        response_topics = {
            transaction.transactional_id: transaction.topics for transaction in reversed(requested)
        }
        added = {transaction.transactional_id: transaction.topics for transaction in requested}
        for number, transaction in enumerate(requested):
            name = transaction.transactional_id
            self._ask(transaction, added[name], response_topics[name], context, gathering.ticket(number))
        return gathering.waiting

    def _ask(
        self,
        transaction: AddPartitionsToTxnTransaction,
        topics: list[AddPartitionsToTxnTopic],
        response_topics: list[AddPartitionsToTxnTopic],
        context: RequestContext,
        respond: Callable[[AddPartitionsToTxnResult], None],
    ) -> None:
        version = context.api_version
        transactional_id = transaction.transactional_id
        if topics is not transaction.topics:
            transaction = replace(transaction, topics=topics)
        partitions = partitions_in(transaction)
        refused = self._refused(partitions, context)
        if refused:
            not_attempted = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            respond(result_by_partition(transactional_id, {**not_attempted, **refused}))
            return

        def added(response: AddPartitionsToTxnResponse) -> None:
            respond(
                _result(transactional_id, response_topics, error_for_version(response.error_code, version))
            )

        def verified(response: AddPartitionsToTxnResponse) -> None:
            if response.error_code:
                errors = dict.fromkeys(partitions, error_of(response.error_code))
                respond(result_by_partition(transactional_id, errors))
            else:
                respond(response.results_by_transaction[0])

        asked = asked_to_add(
            AddPartitionsToTxnRequest(transactions=[transaction]),
            client_of(context),
            verified if transaction.verify_only else added,
        )
        if version >= ADDED_BY_BROKERS_SINCE:
            self._transactions().submit(transactional_id, asked)
        else:
            add_patiently(self._transactions, self._timers, asked)

    def _refused(
        self, partitions: Sequence[Partition], context: RequestContext
    ) -> dict[Partition, ErrorCode]:
        """The partitions that cannot be in a transaction. A client may not write to internal topics; it adds
        its offsets with AddOffsetsToTxn."""
        view = self._current_view()
        is_of_client = context.api_version < ADDED_BY_BROKERS_SINCE
        refused = {}
        for topic, index in partitions:
            if is_of_client and (
                topic in INTERNAL_TOPICS or context.refuses(Operation.WRITE, ResourceType.TOPIC, topic)
            ):
                refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif view.partition(topic, index) is None:
                refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )


def _response_to_client(results: Sequence[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _result(
    transactional_id: str, topics: list[AddPartitionsToTxnTopic], code: int
) -> AddPartitionsToTxnResult:
    """The transaction's partitions in the order of the request, all with one code."""
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _make(parts: ApiParts) -> AddPartitionsToTxn:
    node = parts.node
    return AddPartitionsToTxn(node.current_view, node.transactions, node.timers)


def _cluster_if_of_brokers(request: AddPartitionsToTxnRequest) -> Iterable[str]:
    """The cluster from version 4 on, which only brokers send."""
    return (CLUSTER_NAME,) if request.transactions else ()


def _transactional_ids(request: AddPartitionsToTxnRequest) -> Iterable[str]:
    """The id before version 4. A later request that is empty needs no less."""
    return () if request.transactions else (request.v3_and_below_transactional_id,)


API = Api(
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    make=_make,
    needs=(
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _cluster_if_of_brokers, is_whole=True),
        on_transactional_ids(Operation.WRITE, _transactional_ids, is_whole=True),
        on_topics(Operation.WRITE, each("v3_and_below_topics", "name")),
    ),
    refusal=Refusal(
        results=(
            "results_by_topic_v3_and_below",
            each_partition(
                "v3_and_below_topics",
                "partitions",
                "",
                copied={"name": "name"},
                results="results_by_partition",
            ),
        )
    ),
)
