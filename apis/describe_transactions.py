"""DescribeTransactions (key 65, version 0).

Source: KafkaApis and TransactionCoordinator of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.apis.access import each, on_topics, on_transactional_ids
from odradek.apis.coordinators import ask_for_each
from odradek.apis.declaration import Api
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext, Waiting
    from odradek.apis.coordinators import Transactions
    from odradek.coordinator.asked import Asked


class DescribeTransactions:
    """The handler: each transactional id is described by its own coordinator."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: DescribeTransactionsRequest, context: RequestContext) -> Waiting:
        def submit(asked: Asked[DescribeTransactionsRequest, DescribeTransactionsResponse]) -> None:
            (transactional_id,) = asked.request.transactional_ids
            if context.refuses(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                asked.ticket.take(asked.ticket.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            else:
                self._transactions().submit(transactional_id, asked)

        def merged(responses: list[DescribeTransactionsResponse]) -> DescribeTransactionsResponse:
            states = [state for response in responses for state in response.transaction_states]
            for state in states:
                _leave_out_unseen(state, context)
            return DescribeTransactionsResponse(transaction_states=states)

        parts = [DescribeTransactionsRequest(transactional_ids=[one]) for one in request.transactional_ids]
        return ask_for_each(parts, refused, context, submit, merged)


def refused(request: Any, version: int, code: ErrorCode) -> DescribeTransactionsResponse:
    """The response about the one id of a request."""
    (transactional_id,) = request.transactional_ids
    state = TransactionState(error_code=code, transactional_id=transactional_id)
    return DescribeTransactionsResponse(transaction_states=[state])


def _leave_out_unseen(state: TransactionState, context: RequestContext) -> None:
    """The topics that the client may not describe."""
    names = [topic.topic for topic in state.topics]
    unseen = context.refused_names(Operation.DESCRIBE, ResourceType.TOPIC, names)
    if unseen:
        state.topics = [topic for topic in state.topics if topic.topic not in unseen]


API = Api(
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    make=lambda parts: DescribeTransactions(parts.node.transactions),
    needs=(
        on_transactional_ids(Operation.DESCRIBE, each("transactional_ids")),
        on_topics(Operation.DESCRIBE, None),
    ),
)
