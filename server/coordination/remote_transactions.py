"""Transactions whose parts are on several brokers: what a coordinator or a leader here asks of the others.

A coordinator has markers written by the leader of each partition (WriteTxnMarkers). A leader asks the
coordinator of a transaction whether a partition is in it, or has it added (AddPartitionsToTxn, KIP-890).

Source: TransactionMarkerChannelManager and AddPartitionsToTxnManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from odradek.coordinator.cluster.topics import TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import NO_LEADER
from odradek.coordinator.transactions.queries import indexes_by_topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.network.broker_peers import BrokerPeers
    from odradek.wire.end_marker import EndMarker
    from odradek.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )

Partition = tuple[str, int]
"""Topic and index."""
Results = dict[Partition, ErrorCode]
WriteHere = Callable[["EndMarker", Iterable[Partition], Callable[[Results], None]], None]


class RemoteTransactions:
    """Implements `apis.coordinators.RemoteTransactions`."""

    def __init__(self, node_id: int, peers: BrokerPeers, current_view: Callable[[], ClusterView]) -> None:
        self._node_id = node_id
        self._peers = peers
        self._current_view = current_view

    # Markers

    def write(
        self,
        marker: EndMarker,
        partitions: Iterable[Partition],
        write_here: WriteHere,
        then: Callable[[Results], None],
    ) -> None:
        """Each partition's leader writes it; `then` gets a code for each partition, once, when all have
        answered. One without a leader is refused with NOT_LEADER_OR_FOLLOWER, and tried again."""
        by_leader: dict[int, list[Partition]] = {}
        view = self._current_view()
        for partition in partitions:
            by_leader.setdefault(view.leader_of(*partition), []).append(partition)
        results: Results = {}
        missing = len(by_leader)

        def told(found: Results) -> None:
            nonlocal missing
            results.update(found)
            missing -= 1
            if missing == 0:
                then(results)

        for leader, led in by_leader.items():
            if leader in (self._node_id, NO_LEADER):
                write_here(marker, led, told)
            else:
                self._write_there(leader, marker, led, told)

    def _write_there(
        self, leader: int, marker: EndMarker, partitions: list[Partition], told: Callable[[Results], None]
    ) -> None:
        topics = [
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in indexes_by_topic(partitions).items()
        ]
        written = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.commit,
            topics=topics,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )

        def answered(response: Any) -> None:
            results = dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for result in () if response is None else response.markers:
                for topic in result.topics:
                    for one in topic.partitions:
                        results[topic.name, one.partition_index] = ErrorCode(one.error_code)
            told(results)

        self._peers.ask(leader, WriteTxnMarkersRequest(markers=[written]), answered)

    # Partitions of transactions

    def ask(
        self,
        coordinator_partition: int,
        request: AddPartitionsToTxnRequest,
        told: Callable[[AddPartitionsToTxnResponse | None], None],
    ) -> bool:
        """False where this node has the coordinator. `told` gets None where no response came."""
        leader = self._current_view().leader_of(TRANSACTIONS_TOPIC, coordinator_partition)
        if leader in (self._node_id, NO_LEADER):
            return False
        self._peers.ask(leader, request, told)
        return True
