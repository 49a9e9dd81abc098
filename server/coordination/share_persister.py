"""Requests of this node's groups and share partitions to the share coordinators, here and on other nodes.

The newest view says which node has the coordinator of a share partition. That of this node gets a request for
each share partition, another one a request for all those of one group that wait for it, one request of a kind
at a time. `__share_group_state` is created when it is missing. What is passing is tried again, after pauses
that grow: an attempt that fails may have been carried out all the same, and to carry it out twice does no
harm.

Source: DefaultStatePersister and PersisterStateManager of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis import share_state
from odradek.coordinator.asked import Asked, Client, Ticket
from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.shares.state.persister import (
    DeliveryState,
    InitialState,
    Refusal,
    Results,
    SharePartitionKey,
)
from odradek.server.network.broker_peers import RETRY_PAUSE_MS, retry_pause_ms
from odradek.wire.errors import ErrorCode, error_message, error_of
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from odradek.wire.messages.read_share_group_state_summary import PartitionResult as StateSummary
from odradek.wire.messages.write_share_group_state import PartitionData as StateWrite
from odradek.wire.partitioner import partition_for

if TYPE_CHECKING:
    from odradek.apis.coordinators import Shares
    from odradek.apis.declaration import Api
    from odradek.apis.turn import Timers
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.network.broker_peers import BrokerPeers
    from odradek.wire.schema import Message

ATTEMPTS_MAX = 5
PENDING_MAX = 100_000
"""Share partitions that may wait for a response; more are refused with COORDINATOR_NOT_AVAILABLE."""
PARTITIONS_PER_REQUEST = 500
"""A write of one has up to 200 KB."""
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Codes after which it is tried again. The last one: no response came."""

logger = logging.getLogger("odradek.coordinators")


@dataclass(slots=True, eq=False)
class _Kind:
    """One of the five questions."""

    api: Api
    topic: Any
    """Class of the topics of its request."""
    request: Any = field(init=False)
    asker: Client = field(init=False)

    def __post_init__(self) -> None:
        self.request = self.api.request
        self.asker = Client("", "", self.api.versions[-1])


@dataclass(slots=True, eq=False)
class _Job:
    """One question about one share partition."""

    kind: _Kind
    key: SharePartitionKey
    asked: Any
    """The partition of the request."""
    done: Callable[[Any], None]
    """Gets the partition of the response, once."""
    attempts: int = 0

    def refused_response(self, code: ErrorCode) -> Any:
        request = _request(self.kind, self.key.group_id, [self])
        return self.kind.api.refuse(request, self.kind.asker.version, code)

    def refused(self, code: ErrorCode) -> Any:
        """The partition of that response."""
        return self.refused_response(code).results[0].partitions[0]


class SharePersister:
    """Implements `coordinator.shares.state.persister.Persister`. Used on the event loop.

    `create_topic(then)` creates `__share_group_state`, and calls back once, also where that failed.
    """

    def __init__(
        self,
        *,
        node_id: int,
        shares: Shares,
        current_view: Callable[[], ClusterView],
        timers: Timers,
        create_topic: Callable[[Callable[[], None]], None],
        peers: Callable[[], BrokerPeers | None] = lambda: None,
        pause_ms: int = RETRY_PAUSE_MS,
    ) -> None:
        """`peers` gives those of a node of a cluster."""
        self._node_id = node_id
        self._shares = shares
        self._current_view = current_view
        self._timers = timers
        self._create_topic = create_topic
        self._peers = peers
        self._pause_ms = pause_ms
        self._pending_count = 0
        self._without_topic: list[_Job] = []
        """Jobs that wait for its creation."""
        self._waiting: dict[tuple[int, _Kind, str], deque[_Job]] = {}
        """By node, kind and group: they wait for the response to an earlier request. There is an entry for
        each request under way."""
        self._is_closed = False

    @property
    def pending_count(self) -> int:
        """Share partitions that wait for a response."""
        return self._pending_count

    def close(self) -> None:
        """Stops trying again what fails from now on."""
        self._is_closed = True

    # The seam

    def initialize(self, states: Sequence[InitialState], then: Callable[[Results], None]) -> None:
        """See `Persister`."""
        data = initialize_share_group_state.PartitionData
        asked = {
            key: data(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
            for key, state_epoch, start_offset in states
        }
        self._ask_of_each(_INITIALIZE, asked, _refusal, then)

    def read(
        self, partition: SharePartitionKey, leader_epoch: int, then: Callable[[ShareState], None]
    ) -> None:
        """See `Persister`."""
        data = read_share_group_state.PartitionData
        asked = {partition: data(partition=partition.partition, leader_epoch=leader_epoch)}
        self._ask_of_each(_READ, asked, _state, lambda found: then(found[partition]))

    def write(
        self, partition: SharePartitionKey, change: StateWrite, then: Callable[[Refusal], None]
    ) -> None:
        """See `Persister`."""
        self._ask_of_each(_WRITE, {partition: change}, _refusal, lambda found: then(found[partition]))

    def delete(self, partitions: Sequence[SharePartitionKey], then: Callable[[Results], None]) -> None:
        """See `Persister`."""
        data = delete_share_group_state.PartitionData
        asked = {key: data(partition=key.partition) for key in partitions}
        self._ask_of_each(_DELETE, asked, _refusal, then)

    def summaries(
        self,
        partitions: Mapping[SharePartitionKey, int],
        then: Callable[[Mapping[SharePartitionKey, StateSummary]], None],
    ) -> None:
        """See `Persister`."""
        data = read_share_group_state_summary.PartitionData
        asked = {
            key: data(partition=key.partition, leader_epoch=leader_epoch)
            for key, leader_epoch in partitions.items()
        }
        self._ask_of_each(_SUMMARIZE, asked, _as_it_is, then)

    def _ask_of_each(
        self,
        kind: _Kind,
        asked: Mapping[SharePartitionKey, Any],
        result: Callable[[Any], Any],
        then: Callable[[Any], None],
    ) -> None:
        results: dict[SharePartitionKey, Any] = {}

        def told(key: SharePartitionKey, found: Any) -> None:
            results[key] = result(found)
            if len(results) == len(asked):
                then(results)

        if not asked:
            then(results)
            return
        jobs = [_Job(kind, key, value, partial(told, key)) for key, value in asked.items()]
        if self._pending_count + len(jobs) > PENDING_MAX:
            for job in jobs:
                job.done(job.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._pending_count += len(jobs)
        self._go(jobs)

    # Attempts

    def _go(self, jobs: Sequence[_Job]) -> None:
        view = self._current_view()
        topic = view.topic(SHARE_STATE_TOPIC)
        if topic is None:
            self._go_when_created(jobs)
            return
        touched: dict[tuple[int, _Kind, str], list[_Job]] = {}
        for job in jobs:
            leader = topic.partitions[partition_for(job.key.text, len(topic.partitions))].leader
            if leader == self._node_id:
                self._ask_here(job)
            elif leader not in view.brokers or self._peers() is None:
                self._failed(job, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                touched.setdefault((leader, job.kind, job.key.group_id), []).append(job)
        for place, of_place in touched.items():
            waiting = self._waiting.get(place)
            if waiting is not None:
                waiting += of_place
            else:
                self._waiting[place] = deque(of_place)
                self._send(place)

    def _ask_here(self, job: _Job) -> None:
        kind, key = job.kind, job.key
        topic = kind.topic(topic_id=key.topic_id, partitions=[job.asked])
        request = kind.request(group_id=key.group_id, topics=[topic])

        def take(response: Any) -> None:
            self._answered(job, response.results[0].partitions[0])

        self._shares().submit_state(Asked(request, kind.asker, Ticket(take, job.refused_response)))

    def _go_when_created(self, jobs: Sequence[_Job]) -> None:
        is_first = not self._without_topic
        self._without_topic += jobs
        if is_first:
            self._create_topic(self._created)

    def _created(self) -> None:
        jobs, self._without_topic = self._without_topic, []
        if self._current_view().topic(SHARE_STATE_TOPIC) is not None:
            self._go(jobs)
            return
        for job in jobs:
            self._failed(job, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _answered(self, job: _Job, result: Any) -> None:
        code = result.error_code = error_of(result.error_code)
        if code in PASSING:
            self._failed(job, code)
            return
        result.error_message = None if code is ErrorCode.NONE else result.error_message or error_message(code)
        self._settle(job, result)

    def _failed(self, job: _Job, code: ErrorCode) -> None:
        job.attempts += 1
        if self._is_closed or job.attempts >= ATTEMPTS_MAX:
            logger.warning("the state of share partition %.255s: %s, given up", job.key.text, code.name)
            self._settle(job, job.refused(code))
            return
        self._timers.after(retry_pause_ms(self._pause_ms, job.attempts), lambda: self._go([job]))

    def _settle(self, job: _Job, result: Any) -> None:
        self._pending_count -= 1
        try:
            job.done(result)
        except Exception:
            logger.exception("the state of share partition %.255s was not taken in", job.key.text)

    # Other nodes

    def _send(self, place: tuple[int, _Kind, str]) -> None:
        """Sends the jobs that wait, as one request: a share partition that waits twice only once."""
        peers = self._peers()
        assert peers is not None
        leader, kind, group_id = place
        waiting = self._waiting[place]
        taken: dict[SharePartitionKey, _Job] = {}
        left: deque[_Job] = deque()
        for job in waiting:
            if job.key in taken or len(taken) == PARTITIONS_PER_REQUEST:
                left.append(job)
            else:
                taken[job.key] = job
        self._waiting[place] = left
        request = _request(kind, group_id, taken.values())
        peers.ask(leader, request, partial(self._responded, place, taken))

    def _responded(
        self, place: tuple[int, _Kind, str], jobs: Mapping[SharePartitionKey, _Job], response: Any
    ) -> None:
        if self._waiting[place]:
            self._send(place)
        else:
            del self._waiting[place]
        _, _, group_id = place
        missing = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.UNKNOWN_SERVER_ERROR
        results = {} if response is None else _results(group_id, response)
        for key, job in jobs.items():
            self._answered(job, results.get(key) or job.refused(missing))


def _request(kind: _Kind, group_id: str, jobs: Iterable[_Job]) -> Message:
    topics: dict[bytes, list[Any]] = {}
    for job in jobs:
        topics.setdefault(job.key.topic_id, []).append(job.asked)
    message: Message = kind.request(
        group_id=group_id,
        topics=[kind.topic(topic_id=topic_id, partitions=named) for topic_id, named in topics.items()],
    )
    return message


def _results(group_id: str, response: Any) -> dict[SharePartitionKey, Any]:
    return {
        SharePartitionKey(group_id, topic.topic_id, one.partition): one
        for topic in response.results
        for one in topic.partitions
    }


_INITIALIZE = _Kind(share_state.INITIALIZE, initialize_share_group_state.InitializeStateData)
_READ = _Kind(share_state.READ, read_share_group_state.ReadStateData)
_WRITE = _Kind(share_state.WRITE, write_share_group_state.WriteStateData)
_DELETE = _Kind(share_state.DELETE, delete_share_group_state.DeleteStateData)
_SUMMARIZE = _Kind(share_state.SUMMARIZE, read_share_group_state_summary.ReadStateSummaryData)


# The results as the seam has them


def _refusal(result: Any) -> Refusal:
    return Refusal(result.error_code, result.error_message)


def _state(result: ShareState) -> ShareState:
    try:
        for batch in result.state_batches:
            DeliveryState(batch.delivery_state)
    except ValueError as error:
        return ShareState(
            partition=result.partition,
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
            error_message=f"The state has records in a state of a later broker: {error}.",
        )
    return result


def _as_it_is(result: StateSummary) -> StateSummary:
    return result
