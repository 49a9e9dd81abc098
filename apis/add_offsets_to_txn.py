"""AddOffsetsToTxn (key 25, versions 0 to 4): a group's offsets join a transaction.

Source: KafkaApis and TransactionCoordinator of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import the_group, the_transactional_id
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.transaction_requests import (
    add_patiently,
    asked_to_add,
    error_for_version,
    request_to_add,
)
from odradek.coordinator.asked import Client
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.wire.acl_types import Operation
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups, Transactions
    from odradek.apis.node import ApiParts
    from odradek.apis.turn import Timers
    from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse


AS_CLIENT = Client("", "", 3)
"""Client that adds partitions, as before transaction version 2."""


class AddOffsetsToTxn:
    """The handler: the group's partition of `__consumer_offsets` joins the transaction."""

    def __init__(self, groups: Groups, transactions: Transactions, timers: Timers) -> None:
        self._groups = groups
        self._transactions = transactions
        self._timers = timers

    def __call__(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        version = context.api_version

        def added(response: AddPartitionsToTxnResponse) -> None:
            waiting.complete(
                AddOffsetsToTxnResponse(error_code=error_for_version(response.error_code, version))
            )

        place = OFFSETS_TOPIC, self._groups().partition_of(request.group_id)
        producer = request.producer_id, request.producer_epoch
        to_add = request_to_add(request.transactional_id, producer, [place])
        add_patiently(self._transactions, self._timers, asked_to_add(to_add, AS_CLIENT, added))
        return waiting


def _make(parts: ApiParts) -> AddOffsetsToTxn:
    return AddOffsetsToTxn(parts.node.groups, parts.node.transactions, parts.node.timers)


API = Api(
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    make=_make,
    needs=(the_transactional_id(Operation.WRITE), the_group(Operation.READ)),
)
