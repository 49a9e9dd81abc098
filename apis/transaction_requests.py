"""The common part of AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit.

A producer that begins its next transaction while the last one still writes its markers gets
CONCURRENT_TRANSACTIONS, and pauses for 20 or 100 ms before it sends the request again. Mostly the markers
need about 1 ms: so the request is submitted again after 1, 2 and 4 ms before the producer gets that answer.

Old versions get codes that they know: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2 of the first
three APIs.

Source: KafkaApis and TransactionCoordinator of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from odradek.coordinator.asked import Asked, Client, Ticket
from odradek.coordinator.transactions.queries import indexes_by_topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from odradek.apis.coordinators import Transactions
    from odradek.apis.turn import Timers

FIRST_VERSION_WITH_FENCED = 2
PAUSES_MS = (1, 2, 4)
"""Pauses before a client gets CONCURRENT_TRANSACTIONS."""
Partition = tuple[str, int]
"""Topic and index."""


def request_to_add(
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Iterable[Partition],
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    """The request of a broker about the transaction of a producer (id and epoch)."""
    topics = [
        AddPartitionsToTxnTopic(name=name, partitions=indexes)
        for name, indexes in indexes_by_topic(partitions).items()
    ]
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def asked_to_add(
    request: AddPartitionsToTxnRequest, client: Client, take: Callable[[AddPartitionsToTxnResponse], object]
) -> Asked[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]:
    """A request for one transaction, in the form of brokers also where a client has sent another. `take` gets
    the results of the partitions, or one error code for all of them."""
    return Asked(request, client, Ticket(take, _refused))


def _refused(code: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(error_code=code)


def add_patiently(transactions: Transactions, timers: Timers, asked: Asked[Any, Any]) -> None:
    """Submits the request for one transaction, repeatedly while the previous one is still ending."""
    ticket, pauses_ms = asked.ticket, iter(PAUSES_MS)
    transactional_id = asked.request.transactions[0].transactional_id

    def submit() -> None:
        transactions().submit(transactional_id, asked)

    def retry_or_respond(response: AddPartitionsToTxnResponse) -> None:
        if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = next(pauses_ms, None)
            if pause_ms is not None:
                timers.after(pause_ms, submit)
                return
        ticket.take(response)

    asked.ticket = Ticket(retry_or_respond, ticket.refused)
    submit()


def error_for_version(code: int, version: int) -> int:
    """The code for a client of this version of AddPartitionsToTxn, AddOffsetsToTxn or EndTxn."""
    if code == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
