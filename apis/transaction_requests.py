"""The common part of AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit.

A producer that begins its next transaction while the last one still writes its markers gets
CONCURRENT_TRANSACTIONS, and pauses for 20 or 100 ms before it sends the request again. Mostly the markers
need about 1 ms: so the command is submitted again after 1, 2 and 4 ms before the producer gets that answer.

Old versions get codes that they know: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2 of the first
three APIs.

Source: KafkaApis and TransactionCoordinator of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.coordinator.transactions import commands
from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.apis.coordinators import Transactions
    from odradek.apis.turn import Timers

FIRST_VERSION_WITH_FENCED = 2
PAUSES_MS = (1, 2, 4)
"""Pauses before a client gets CONCURRENT_TRANSACTIONS."""
Partition = tuple[str, int]
"""Topic and index."""


def add_patiently(transactions: Transactions, timers: Timers, command: commands.AddPartitions) -> None:
    """Submits the command, repeatedly while the previous transaction is still ending."""
    answer, pauses_ms = command.ticket, iter(PAUSES_MS)

    def submit() -> None:
        transactions.submit(command.transactional_id, command)

    def retry_or_answer(reply: commands.AddPartitionsReply) -> None:
        if reply.error_code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = next(pauses_ms, None)
            if pause_ms is not None:
                timers.after(pause_ms, submit)
                return
        answer(reply)

    command.ticket = retry_or_answer
    submit()


def error_for_version(code: ErrorCode, version: int) -> ErrorCode:
    """The code for a client of this version of AddPartitionsToTxn, AddOffsetsToTxn or EndTxn."""
    if code is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
