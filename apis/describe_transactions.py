"""DescribeTransactions (key 65, version 0).

Source: KafkaApis and TransactionCoordinator of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics, on_transactional_ids
from odradek.apis.api import Waiting
from odradek.apis.coordinators import Gathering
from odradek.apis.declaration import Api
from odradek.coordinator.transactions import commands
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_transactions
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Transactions


class DescribeTransactions:
    """The handler: each transactional id is described by its own coordinator."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: DescribeTransactionsRequest, context: RequestContext) -> Waiting:
        requested = request.transactional_ids
        gathering = Gathering(
            len(requested),
            lambda replies: DescribeTransactionsResponse(
                transaction_states=[
                    _described(*pair, context) for pair in zip(requested, replies, strict=True)
                ]
            ),
        )
        for number, transactional_id in enumerate(requested):
            command = commands.DescribeTransaction(
                ticket=gathering.ticket(number), transactional_id=transactional_id
            )
            if context.refuses(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
                command.ticket(command.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
                continue
            self._transactions.submit(transactional_id, command)
        return gathering.waiting


def _described(
    transactional_id: str, reply: commands.TransactionDescription, context: RequestContext
) -> describe_transactions.TransactionState:
    """Without the topics that the client may not describe."""
    topics: dict[str, TopicData] = {}
    names = [topic for topic, _ in reply.partitions]
    unseen = context.refused_names(Operation.DESCRIBE, ResourceType.TOPIC, names)
    for topic, index in sorted(one for one in reply.partitions if one[0] not in unseen):
        topics.setdefault(topic, TopicData(topic=topic, partitions=[])).partitions.append(index)
    return describe_transactions.TransactionState(
        error_code=reply.error_code,
        transactional_id=transactional_id,
        transaction_state=reply.state,
        transaction_timeout_ms=reply.timeout_ms,
        transaction_start_time_ms=reply.start_ms,
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
        topics=list(topics.values()),
    )


API = Api(
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    make=lambda parts: DescribeTransactions(parts.node.transactions),
    needs=(
        on_transactional_ids(Operation.DESCRIBE, each("transactional_ids")),
        on_topics(Operation.DESCRIBE, None),
    ),
)
