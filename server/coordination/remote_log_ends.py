"""Where the logs end that other brokers lead: the coordinator of a share group asks their leaders for it
(ListOffsets), and has the lag of the group.

A request without a response is sent again, after pauses that grow, to whoever leads then. A refusal of a
leader is told.

Source: NetworkPartitionMetadataClient of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.list_offsets import CONSUMER_ID, LATEST
from odradek.server.network.broker_peers import RETRY_PAUSE_MS, retry_pause_ms
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from odradek.apis.turn import Timers
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.network.broker_peers import BrokerPeers

ATTEMPTS_MAX = 5
PENDING_MAX = 100_000
"""Partitions that may wait for a response; more are refused with COORDINATOR_NOT_AVAILABLE."""
PARTITIONS_PER_REQUEST = 1_000

Partition = tuple[str, int]
"""Topic and index."""
Ends = Mapping[Partition, "int | ErrorCode"]
Told = Callable[[Ends], None]


class RemoteLogEnds:
    """Implements `apis.coordinators.RemoteLogEnds`. Used on the event loop."""

    def __init__(
        self,
        peers: BrokerPeers,
        current_view: Callable[[], ClusterView],
        timers: Timers,
        pause_ms: int = RETRY_PAUSE_MS,
    ) -> None:
        self._peers = peers
        self._current_view = current_view
        self._timers = timers
        self._pause_ms = pause_ms
        self.pending_count = 0
        """Partitions that wait for a response."""

    def ask(self, partitions: Collection[Partition], then: Told) -> None:
        """See `apis.coordinators.RemoteLogEnds`."""
        if self.pending_count + len(partitions) > PENDING_MAX:
            then(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.pending_count += len(partitions)
        results: dict[Partition, int | ErrorCode] = {}

        def told(found: Ends) -> None:
            results.update(found)
            self.pending_count -= len(found)
            if len(results) == len(partitions):
                then(results)

        self._go(partitions, 1, told)

    def _go(self, partitions: Iterable[Partition], attempt: int, told: Told) -> None:
        view = self._current_view()
        by_leader: dict[int, list[Partition]] = {}
        leaderless: list[Partition] = []
        for one in partitions:
            leader = view.leader_of(*one)
            if leader in view.brokers:
                by_leader.setdefault(leader, []).append(one)
            else:
                leaderless.append(one)
        if leaderless:
            told(dict.fromkeys(leaderless, ErrorCode.LEADER_NOT_AVAILABLE))
        for leader, led in by_leader.items():
            for begin in range(0, len(led), PARTITIONS_PER_REQUEST):
                asked = led[begin : begin + PARTITIONS_PER_REQUEST]
                self._peers.ask(leader, _request(asked), partial(self._answered, asked, attempt, told))

    def _answered(self, asked: list[Partition], attempt: int, told: Told, response: Any) -> None:
        if response is not None:
            found = _ends_in(response)
            told({one: found.get(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for one in asked})
        elif attempt == ATTEMPTS_MAX:
            told(dict.fromkeys(asked, ErrorCode.NETWORK_EXCEPTION))
        else:
            pause_ms = retry_pause_ms(self._pause_ms, attempt)
            self._timers.after(pause_ms, lambda: self._go(asked, attempt + 1, told))


def _request(partitions: Iterable[Partition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    return ListOffsetsRequest(
        replica_id=CONSUMER_ID,
        topics=[ListOffsetsTopic(name=name, partitions=named) for name, named in topics.items()],
    )


def _ends_in(response: Any) -> dict[Partition, int | ErrorCode]:
    return {
        (topic.name, one.partition_index): error_of(one.error_code) if one.error_code else one.offset
        for topic in response.topics
        for one in topic.partitions
    }
