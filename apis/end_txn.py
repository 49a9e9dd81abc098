"""EndTxn (key 26, versions 0 to 5): commits or aborts a transaction.

Version 5 is transaction.version 2 (KIP-890): its response has the id and epoch for the producer's next
transaction.

Source: KafkaApis and TransactionCoordinator of Kafka 4.3, TransactionVersion.java for what a sender of a
version supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import the_transactional_id
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.transaction_requests import error_for_version
from odradek.wire.acl_types import Operation
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Transactions


class EndTxn:
    """The handler; answers when the decision is in the log, before the partitions have their markers."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: EndTxnRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        version = context.api_version

        def ended(response: EndTxnResponse) -> None:
            response.error_code = error_for_version(response.error_code, version)
            waiting.complete(response)

        asked = asked_by(client_of(context), API.refuse, request, ended)
        self._transactions().submit(request.transactional_id, asked)
        return waiting


API = Api(
    EndTxnRequest,
    EndTxnResponse,
    make=lambda parts: EndTxn(parts.node.transactions),
    needs=(the_transactional_id(Operation.WRITE),),
)
