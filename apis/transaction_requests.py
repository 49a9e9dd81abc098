"""What AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit have in common.

A producer that begins its next transaction while the partitions of the last one still get their markers is
answered CONCURRENT_TRANSACTIONS, and pauses for 20 ms, or 100, before it sends its request again. Mostly it
is a matter of one: so its command is submitted again after 1, 2 and 4 ms before the producer gets that
answer.

Old versions get codes that they know: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2 of the first
three.

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
"""Before a client gets the answer that its last transaction is still being ended."""
Partition = tuple[str, int]
"""Topic and index."""


def add_patiently(transactions: Transactions, timers: Timers, command: commands.AddPartitions) -> None:
    """Carries out the command, again if the transaction before is still being ended."""
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
