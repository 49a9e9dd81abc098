"""EndTxn (key 26, versions 0 to 5): commits or aborts a transaction.

Version 5 is transaction.version 2 (KIP-890): its answer has the id and epoch for the producer's next
transaction.

Source: KafkaApis and TransactionCoordinator of Kafka 4.3, TransactionVersion.java for what a sender of a
version supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import the_transactional_id
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.transaction_requests import error_for_version
from odradek.coordinator.transactions import commands
from odradek.wire.acl_types import Operation
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Transactions

FIRST_VERSION_WITH_EPOCH_BUMP = 5


class EndTxn:
    """The handler; answers when the decision is in the log, before the partitions have their markers."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: EndTxnRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        version = context.api_version

        def ended(reply: commands.EndTransactionReply) -> None:
            waiting.complete(
                EndTxnResponse(
                    error_code=error_for_version(reply.error_code, version),
                    producer_id=reply.producer_id,
                    producer_epoch=reply.producer_epoch,
                )
            )

        command = commands.EndTransaction(
            ticket=ended,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            commit=request.committed,
            version=2 if version >= FIRST_VERSION_WITH_EPOCH_BUMP else 0,
        )
        self._transactions.submit(request.transactional_id, command)
        return waiting


API = Api(
    EndTxnRequest,
    EndTxnResponse,
    make=lambda parts: EndTxn(parts.node.transactions),
    needs=(the_transactional_id(Operation.WRITE),),
)
