"""Runs the machines of share partitions of this node: one for each partition of `__share_group_state` that it
leads.

`coordinator/runtime.py` runs machines of any kind; only these have the records before an offset deleted, and
states whose topic is gone.

Source: ShareCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from odradek.coordinator.asked import Asked
from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect
from odradek.coordinator.late_replies import CallLater
from odradek.coordinator.log import CoordinatorLog
from odradek.coordinator.runtime import EffectHandler, RunningPartition, Runtime
from odradek.coordinator.shares.state.keys import partition_in
from odradek.coordinator.shares.state.machine import DeleteBefore, RemoveTopics, ShareMachine
from odradek.coordinator.shares.state.settings import ShareStateSettings
from odradek.wire.errors import KafkaError
from odradek.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest

logger = logging.getLogger("odradek.coordinator")


class ShareCoordinator(Runtime[ShareMachine]):
    """Every method is called on the event loop; see `Runtime` for the other arguments."""

    def __init__(
        self,
        *,
        node_id: int,
        settings: ShareStateSettings,
        open_log: Callable[[int], CoordinatorLog | None],
        clock_ms: Callable[[], int],
        call_later: CallLater,
        after_loading: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(
            node_id=node_id,
            topic=SHARE_STATE_TOPIC,
            partition_count=settings.topic_num_partitions,
            open_log=open_log,
            clock_ms=clock_ms,
            call_later=call_later,
            after_loading=after_loading,
            patience_ms=lambda: settings.write_timeout_ms,
        )
        self._settings = settings
        self._view = ClusterView()

    # For the server

    def view_changed(self, view: ClusterView) -> None:
        """Take up the partitions that this node leads now, give up the others. Call with each new view."""
        self._view = view
        super().view_changed(view)

    def remove_topics(self, topic_ids: Collection[bytes]) -> None:
        """Forget the states of topics that have been deleted. A machine that is loaded later looks at its
        topics then."""
        for partition in self._partitions.values():
            if partition.machine is not None:
                self._submit_to(partition, RemoveTopics(topic_ids))

    # For the handlers

    def submit_state(self, asked: Asked[Any, Any]) -> None:
        """Carry out a request that names one share partition. What is to be written is refused with
        COORDINATOR_NOT_AVAILABLE while too few replicas are in sync."""
        key, _ = partition_in(asked.request)
        partition = self._partitions.get(self.partition_of(key.text))
        if isinstance(asked.request, ReadShareGroupStateSummaryRequest):
            self._submit_to(partition, asked)
        else:
            self._submit_checked(partition, asked, _check_replicas)

    # For the runtime

    def _effect_handlers(self) -> dict[type[Effect], EffectHandler]:
        return {**super()._effect_handlers(), DeleteBefore: self._delete_before}

    def _new_machine(self, partition: RunningPartition[ShareMachine]) -> ShareMachine:
        return ShareMachine(self._settings, self._partition_count_of)

    def _machine_loaded(self, partition: RunningPartition[ShareMachine]) -> None:
        assert partition.machine is not None
        # Also those of topics that were deleted while nobody led this partition.
        gone = {topic for topic in partition.machine.topic_ids() if not self._partition_count_of(topic)}
        if gone:
            self._submit_to(partition, RemoveTopics(gone))

    def _partition_count_of(self, topic_id: bytes) -> int:
        topic = self._view.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def _delete_before(self, partition: RunningPartition[ShareMachine], effect: DeleteBefore) -> None:
        def deleted(error: KafkaError | None) -> None:
            if error is not None:
                # What is left is in the way of nobody.
                logger.info("%s-%d: old records are not deleted: %s", self._topic, partition.index, error)

        assert partition.log is not None
        partition.log.delete_before(partition.log.read_from + effect.position, deleted)


def _check_replicas(log: CoordinatorLog) -> None:
    log.check_replicas()
