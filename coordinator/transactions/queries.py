"""Questions about transactions, which change nothing: verification of partitions, descriptions, lists."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.transactions.commands import (
    DescribeTransaction,
    ListedTransaction,
    ListTransactions,
    ListTransactionsReply,
    TransactionDescription,
    VerifyPartitions,
    VerifyPartitionsReply,
)
from odradek.coordinator.transactions.endings import Ending
from odradek.coordinator.transactions.state import STATES_BY_LABEL, Transaction, unknown_states
from odradek.wire.errors import ErrorCode

NONE = ErrorCode.NONE


class TransactionQueries:
    """Answers from the tables of a machine: transactions by id, and the ends that are under way."""

    def __init__(self, transactions: Mapping[str, Transaction], endings: Mapping[str, Ending]) -> None:
        self._transactions = transactions
        self._endings = endings

    def verify(self, command: VerifyPartitions, now_ms: int, out: list[Effect]) -> None:
        transaction = self._transactions.get(command.transactional_id)
        code = NONE
        if not command.transactional_id:
            code = ErrorCode.INVALID_REQUEST
        elif transaction is None or transaction.producer_id != command.producer_id:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif transaction.producer_epoch != command.producer_epoch:
            code = ErrorCode.PRODUCER_FENCED
        elif transaction.state.is_ending:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if transaction is None or code is not NONE:
            out.append(Reply(command.ticket, command.refused(code)))
            return
        errors = [
            NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in command.partitions
        ]
        out.append(Reply(command.ticket, VerifyPartitionsReply(errors)))

    def describe(self, command: DescribeTransaction, now_ms: int, out: list[Effect]) -> None:
        transactional_id = command.transactional_id
        transaction = self._transactions.get(transactional_id)
        if not transactional_id:
            description = command.refused(ErrorCode.INVALID_REQUEST)
        elif transaction is None:
            description = command.refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        else:
            ending = self._endings.get(transactional_id)
            description = TransactionDescription(
                NONE,
                transactional_id,
                transaction.state.label,
                transaction.timeout_ms,
                transaction.start_ms,
                transaction.producer_id,
                transaction.producer_epoch,
                sorted(transaction.partitions if ending is None else ending.remaining),
            )
        out.append(Reply(command.ticket, description))

    def list_all(self, command: ListTransactions, now_ms: int, out: list[Effect]) -> None:
        states = {STATES_BY_LABEL.get(label) for label in command.states}
        reply = ListTransactionsReply(NONE, unknown_states(command.states))
        for transactional_id, transaction in self._transactions.items():
            if (
                (not command.states or transaction.state in states)
                and (not command.producer_ids or transaction.producer_id in command.producer_ids)
                and (command.duration_ms < 0 or now_ms - transaction.start_ms > command.duration_ms)
            ):
                label = transaction.state.label
                reply.transactions.append(ListedTransaction(transactional_id, transaction.producer_id, label))
        out.append(Reply(command.ticket, reply))
