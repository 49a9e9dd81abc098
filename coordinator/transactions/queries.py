"""Questions about transactions, which change nothing: verification of partitions, descriptions, lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek.coordinator.asked import Asked
from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.transactions.endings import Ending
from odradek.coordinator.transactions.state import (
    STATES_BY_LABEL,
    TopicPartition,
    Transaction,
    unknown_states,
)
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_transactions, list_transactions
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

NONE = ErrorCode.NONE


class TransactionQueries:
    """Answers from the tables of a machine: transactions by id, and the ends that are under way."""

    def __init__(self, transactions: Mapping[str, Transaction], endings: Mapping[str, Ending]) -> None:
        self._transactions = transactions
        self._endings = endings

    def verify(self, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResponse:
        """Whether partitions are in the transaction. TRANSACTION_ABORTABLE for each that is not; for all
        INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS."""
        transaction = self._transactions.get(asked.transactional_id)
        code = NONE
        if not asked.transactional_id:
            code = ErrorCode.INVALID_REQUEST
        elif transaction is None or transaction.producer_id != asked.producer_id:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif transaction.producer_epoch != asked.producer_epoch:
            code = ErrorCode.PRODUCER_FENCED
        elif transaction.state.is_ending:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if transaction is None or code is not NONE:
            return AddPartitionsToTxnResponse(error_code=code)
        errors = {
            place: NONE if place in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for place in partitions_in(asked)
        }
        result = result_by_partition(asked.transactional_id, errors)
        return AddPartitionsToTxnResponse(error_code=NONE, results_by_transaction=[result])

    def describe(
        self, asked: Asked[DescribeTransactionsRequest, Any], now_ms: int, out: list[Effect]
    ) -> None:
        """Describes one transactional id. INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_NOT_FOUND."""
        (transactional_id,) = asked.request.transactional_ids
        transaction = self._transactions.get(transactional_id)
        state = describe_transactions.TransactionState(error_code=NONE, transactional_id=transactional_id)
        if not transactional_id:
            state.error_code = ErrorCode.INVALID_REQUEST
        elif transaction is None:
            state.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        else:
            ending = self._endings.get(transactional_id)
            state.transaction_state = transaction.state.label
            state.transaction_timeout_ms = transaction.timeout_ms
            state.transaction_start_time_ms = transaction.start_ms
            state.producer_id, state.producer_epoch = transaction.producer_id, transaction.producer_epoch
            # Of one that is being ended: the partitions that have no marker yet.
            partitions = sorted(transaction.partitions if ending is None else ending.remaining)
            state.topics = [
                TopicData(topic=topic, partitions=indexes)
                for topic, indexes in indexes_by_topic(partitions).items()
            ]
        out.append(Reply(asked.ticket, DescribeTransactionsResponse(transaction_states=[state])))

    def list_all(self, asked: Asked[ListTransactionsRequest, Any], now_ms: int, out: list[Effect]) -> None:
        """Lists transactions of this machine that have the wanted states and ids, and began longer ago."""
        wanted = asked.request
        states = {STATES_BY_LABEL.get(label) for label in wanted.state_filters}
        producer_ids, duration_ms = frozenset(wanted.producer_id_filters), wanted.duration_filter
        found = [
            list_transactions.TransactionState(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for transactional_id, transaction in self._transactions.items()
            if (not states or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - transaction.start_ms > duration_ms)
        ]
        response = ListTransactionsResponse(
            error_code=NONE,
            unknown_state_filters=unknown_states(wanted.state_filters),
            transaction_states=found,
        )
        out.append(Reply(asked.ticket, response))


def partitions_in(asked: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    """The partitions that are named, each once."""
    return list(dict.fromkeys((topic.name, index) for topic in asked.topics for index in topic.partitions))


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def result_by_partition(
    transactional_id: str, errors: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    """Each partition with its code."""
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=errors[name, index]
                    )
                    for index in indexes
                ],
            )
            for name, indexes in indexes_by_topic(errors).items()
        ],
    )
