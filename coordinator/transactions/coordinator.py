"""Runs the transaction machines of this node: one for each partition of `__transaction_state` that it leads.

`coordinator/runtime.py` runs machines of any kind; only transactions have markers, which the server writes,
and a listing over all machines.

The markers of one coordinator must reach a partition in the order of the calls: below transaction version 2 a
late one would end the producer's next transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from odradek.coordinator.asked import NOBODY, Asked, Client
from odradek.coordinator.cluster.topics import TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect, WriteMarkers
from odradek.coordinator.late_replies import CallLater
from odradek.coordinator.log import CoordinatorLog
from odradek.coordinator.runtime import Command, EffectHandler, RunningPartition, Runtime
from odradek.coordinator.transactions.endings import MarkersWritten
from odradek.coordinator.transactions.machine import TransactionMachine
from odradek.coordinator.transactions.settings import TransactionSettings
from odradek.coordinator.transactions.state import TopicPartition, unknown_states
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

REPLY_PATIENCE_MS = 60_000
"""Kafka waits for other replicas for the time-out of the transaction; most clients leave it at this."""

logger = logging.getLogger("odradek.coordinator")

MarkerResults = Mapping[TopicPartition, ErrorCode]
WriteMarkersFunction = Callable[[WriteMarkers, Callable[[MarkerResults], None]], None]
"""Writes the marker to the partitions and calls back with the result of each, at once or later. A partition
without a result, or with a retriable error, is tried again."""


class TransactionCoordinator(Runtime[TransactionMachine]):
    """Every method is called on the event loop; see `Runtime` for the other arguments.

    `new_producer_id` gives an id that no producer ever had, or raises KafkaError. `write_markers` is called
    only for partitions that exist: the transaction has ended in those of a deleted topic.
    """

    def __init__(
        self,
        *,
        node_id: int,
        settings: TransactionSettings,
        open_log: Callable[[int], CoordinatorLog | None],
        new_producer_id: Callable[[], int],
        write_markers: WriteMarkersFunction,
        clock_ms: Callable[[], int],
        call_later: CallLater,
        after_loading: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(
            node_id=node_id,
            topic=TRANSACTIONS_TOPIC,
            partition_count=settings.transaction_topic_num_partitions,
            open_log=open_log,
            clock_ms=clock_ms,
            call_later=call_later,
            after_loading=after_loading,
            patience_ms=lambda: REPLY_PATIENCE_MS,
        )
        self._settings = settings
        self._new_producer_id = new_producer_id
        self._markers_to = write_markers
        self._view = ClusterView()

    # For the server

    def view_changed(self, view: ClusterView) -> None:
        """Take up the partitions that this node leads now, give up the others. Call with each new view."""
        self._view = view
        super().view_changed(view)

    # For the handlers

    def submit(self, key: str, command: Command) -> None:
        """Carry out a request about one transactional id. What is to be written is refused with
        COORDINATOR_NOT_AVAILABLE while too few replicas are in sync, as any write with acks=all."""
        partition = self._partitions.get(self.partition_of(key))
        if isinstance(command, Asked) and _writes(command.request):
            self._submit_checked(partition, command, _check_replicas)
        else:
            self._submit_to(partition, command)

    def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """The transactional ids of all machines of this node.

        COORDINATOR_LOAD_IN_PROGRESS while a machine is not ready.
        """
        found = self._handle_in_all(Asked(request, _SELF, NOBODY))
        if found is None:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ListTransactionsResponse(
            error_code=ErrorCode.NONE,
            unknown_state_filters=unknown_states(request.state_filters),
            transaction_states=[one for response in found for one in response.transaction_states],
        )

    # For the runtime

    def _effect_handlers(self) -> dict[type[Effect], EffectHandler]:
        return {**super()._effect_handlers(), WriteMarkers: self._write_markers}

    def _new_machine(self, partition: RunningPartition[TransactionMachine]) -> TransactionMachine:
        return TransactionMachine(self._settings, partition.leader_epoch, self._new_producer_id)

    def _write_markers(self, partition: RunningPartition[TransactionMachine], effect: WriteMarkers) -> None:
        machine = partition.machine
        if machine is None:
            # It is being loaded again, and will know what is to be written.
            return
        there = [name for name in effect.partitions if self._exists(name)]
        results = (
            dict.fromkeys(effect.partitions, ErrorCode.NONE) if len(there) < len(effect.partitions) else {}
        )
        is_done = False

        def written(errors: MarkerResults) -> None:
            nonlocal is_done
            # A second result, or a result for an earlier machine, is not about the markers of this one.
            if is_done or partition.machine is not machine:
                return
            is_done = True
            for name in there:
                results[name] = errors.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
            marker = effect.marker
            command = MarkersWritten(
                effect.transactional_id, marker.producer_id, marker.producer_epoch, results
            )
            self._submit_to(partition, command)

        if not there:
            written({})
            return
        try:
            self._markers_to(
                effect
                if len(there) == len(effect.partitions)
                else WriteMarkers(effect.transactional_id, effect.marker, there),
                written,
            )
        except Exception:
            logger.exception("%s-%d: cannot write markers, will try again", self._topic, partition.index)
            written({})

    def _exists(self, name: TopicPartition) -> bool:
        topic = self._view.topic(name[0])
        return topic is not None and name[1] < len(topic.partitions)


_SELF = Client("", "", 0)


def _writes(request: Any) -> bool:
    if request.__class__ is AddPartitionsToTxnRequest:
        return not request.transactions[0].verify_only
    return request.__class__ in (EndTxnRequest, InitProducerIdRequest)


def _check_replicas(log: CoordinatorLog) -> None:
    log.check_replicas()
