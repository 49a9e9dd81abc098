"""ListTransactions (key 66, versions 0 to 2).

Source: KafkaApis and TransactionCoordinator of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import on_transactional_ids
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import KafkaError
from odradek.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Transactions
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.regular_expression import RegularExpression
    from odradek.wire.work import Work

MATCHED_PER_STEP = 1_000
"""Transactional ids that are matched in one step: about a millisecond."""


class ListTransactions:
    """The handler: the transactional ids whose coordinator is this node, and that the client may describe;
    `searches` runs pattern matching."""

    def __init__(self, transactions: Transactions, searches: WorkQueue) -> None:
        self._transactions = transactions
        self._searches = searches

    def __call__(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> ListTransactionsResponse | WorkResponse:
        response = self._transactions().list_transactions(request)
        listed = response.transaction_states
        ids = [one.transactional_id for one in listed]
        unseen = context.hidden_names(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ids)
        if unseen:
            response.transaction_states = [one for one in listed if one.transactional_id not in unseen]
        pattern = request.transactional_id_pattern
        if not response.error_code and pattern:
            return WorkResponse(self._searches, self._selecting(pattern, response), context)
        return response

    def _selecting(self, pattern: str, response: ListTransactionsResponse) -> Work[ListTransactionsResponse]:
        from odradek.coordinator.regular_expression import RegularExpression

        try:
            expression = RegularExpression(pattern)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
        listed, response.transaction_states = response.transaction_states, []
        for start in range(0, len(listed), MATCHED_PER_STEP):
            some = listed[start : start + MATCHED_PER_STEP]
            response.transaction_states += yield partial(_matching, expression, some)
        return response


def _matching(expression: RegularExpression, listed: Sequence[TransactionState]) -> list[TransactionState]:
    """The transactions whose whole id matches. Runs in a worker thread."""
    return [one for one in listed if expression.matches(one.transactional_id)]


API = Api(
    ListTransactionsRequest,
    ListTransactionsResponse,
    make=lambda parts: ListTransactions(parts.node.transactions, parts.node.searches),
    needs=(on_transactional_ids(Operation.DESCRIBE, lambda _: ()),),
)
