"""What groups and share partitions of this node ask the share coordinators, here and on other nodes.

The newest view says which node has the coordinator of a share partition. That of this node gets a command,
another one a request: with all share partitions of one group that wait for it, one request of a kind at a
time. `__share_group_state` is created when it is missing. What is passing is tried again, after pauses that
grow: an attempt that fails may have been carried out all the same, and to carry it out twice does no harm.

Source: DefaultStatePersister and PersisterStateManager of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.coordinator.cluster.partitioner import partition_for
from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.share_state import commands
from odradek.coordinator.share_state.batches import Batch
from odradek.coordinator.share_state.persister import (
    DeliveryState,
    InitialState,
    Refusal,
    Results,
    SharePartitionKey,
    ShareState,
    StateBatch,
    StateSummary,
    StateWrite,
)
from odradek.server.broker_peers import RETRY_PAUSE_MS, retry_pause_ms
from odradek.wire.errors import ErrorCode, error_message, error_of
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

if TYPE_CHECKING:
    from odradek.apis.coordinators import Shares
    from odradek.apis.turn import Timers
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.broker_peers import BrokerPeers
    from odradek.wire.schema import Message

__all__ = ["SharePersister"]

ATTEMPTS_MAX = 5
PENDING_MAX = 100_000
"""Share partitions that may wait for an answer; more are refused with COORDINATOR_NOT_AVAILABLE."""
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

Ticket = Callable[[Any], None]


@dataclass(slots=True, eq=False)
class _Job:
    """One question about one share partition."""

    kind: _Kind
    key: SharePartitionKey
    asked: Any
    """As its kind takes it."""
    done: Ticket
    """Gets the reply (`coordinator/share_state/commands.py`), once."""
    attempts: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """One of the five questions: as a command, and as a request."""

    command: Callable[[Ticket, SharePartitionKey, Any], commands.ShareCommand]
    request: Any
    topic: Any
    """Class of the topics of the request."""
    partition: Callable[[_Job], Any]
    """A partition of the request."""
    reply: Callable[[Any], commands.DoneReply]
    """A partition of the response, as the reply of the command."""
    refused: commands.DoneReply
    """Any reply of this kind."""


class SharePersister:
    """Implements `coordinator.share_state.persister.Persister`. Used on the event loop.

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
        """They wait for its creation."""
        self._waiting: dict[tuple[int, _Kind, str], deque[_Job]] = {}
        """By node, kind and group: they wait for the answer to an earlier request. There is an entry for each
        request under way."""
        self._is_closed = False

    @property
    def pending_count(self) -> int:
        """Share partitions that wait for an answer."""
        return self._pending_count

    def close(self) -> None:
        """What fails from now on is not tried again."""
        self._is_closed = True

    # The seam

    def initialize(self, states: Sequence[InitialState], then: Callable[[Results], None]) -> None:
        """See `Persister`."""
        self._ask_of_each(_INITIALIZE, {one.partition: one for one in states}, _refusal, then)

    def read(
        self, partition: SharePartitionKey, leader_epoch: int, then: Callable[[ShareState], None]
    ) -> None:
        """See `Persister`."""
        self._ask_of_each(_READ, {partition: leader_epoch}, _state, lambda found: then(found[partition]))

    def write(self, write: StateWrite, then: Callable[[Refusal], None]) -> None:
        """See `Persister`."""
        key = write.partition
        self._ask_of_each(_WRITE, {key: write}, _refusal, lambda found: then(found[key]))

    def delete(self, partitions: Sequence[SharePartitionKey], then: Callable[[Results], None]) -> None:
        """See `Persister`."""
        self._ask_of_each(_DELETE, dict.fromkeys(partitions), _refusal, then)

    def summaries(
        self,
        partitions: Mapping[SharePartitionKey, int],
        then: Callable[[Mapping[SharePartitionKey, StateSummary]], None],
    ) -> None:
        """See `Persister`."""
        self._ask_of_each(_SUMMARIZE, partitions, _summary, then)

    def _ask_of_each(
        self,
        kind: _Kind,
        asked: Mapping[SharePartitionKey, Any],
        result: Callable[[Any], Any],
        then: Callable[[Any], None],
    ) -> None:
        results: dict[SharePartitionKey, Any] = {}

        def told(key: SharePartitionKey, reply: Any) -> None:
            results[key] = result(reply)
            if len(results) == len(asked):
                then(results)

        if not asked:
            then(results)
            return
        if self._pending_count + len(asked) > PENDING_MAX:
            reply = kind.refused.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            for key in asked:
                told(key, reply)
            return
        self._pending_count += len(asked)
        self._go([_Job(kind, key, value, partial(told, key)) for key, value in asked.items()])

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
                self._shares.submit_state(job.kind.command(partial(self._answered, job), job.key, job.asked))
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

    def _answered(self, job: _Job, reply: commands.DoneReply) -> None:
        if reply.error_code in PASSING:
            self._failed(job, reply.error_code)
        else:
            self._settle(job, reply)

    def _failed(self, job: _Job, code: ErrorCode) -> None:
        job.attempts += 1
        if self._is_closed or job.attempts >= ATTEMPTS_MAX:
            logger.warning("the state of share partition %.255s: %s, given up", job.key.text, code.name)
            self._settle(job, job.kind.refused.refused(code))
            return
        self._timers.after(retry_pause_ms(self._pause_ms, job.attempts), lambda: self._go([job]))

    def _settle(self, job: _Job, reply: commands.DoneReply) -> None:
        self._pending_count -= 1
        try:
            job.done(reply)
        except Exception:
            logger.exception("the state of share partition %.255s was not taken in", job.key.text)

    # Other nodes

    def _send(self, place: tuple[int, _Kind, str]) -> None:
        """Those that wait, as one request: a share partition that waits twice only once."""
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
        _, kind, group_id = place
        missing = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.UNKNOWN_SERVER_ERROR
        replies = {} if response is None else _replies(kind, group_id, response)
        for key, job in jobs.items():
            self._answered(job, replies.get(key) or kind.refused.refused(missing))


def _request(kind: _Kind, group_id: str, jobs: Any) -> Message:
    topics: dict[bytes, list[Any]] = {}
    for job in jobs:
        topics.setdefault(job.key.topic_id, []).append(kind.partition(job))
    request: Message = kind.request(
        group_id=group_id,
        topics=[kind.topic(topic_id=topic_id, partitions=named) for topic_id, named in topics.items()],
    )
    return request


def _replies(kind: _Kind, group_id: str, response: Any) -> dict[SharePartitionKey, commands.DoneReply]:
    return {
        SharePartitionKey(group_id, topic.topic_id, one.partition): kind.reply(one)
        for topic in response.results
        for one in topic.partitions
    }


# The five questions


def _error(result: Any) -> dict[str, Any]:
    code = error_of(result.error_code)
    message = None if code is ErrorCode.NONE else result.error_message or error_message(code)
    return {"error_code": code, "error_message": message}


def _done_reply(result: Any) -> commands.DoneReply:
    return commands.DoneReply(**_error(result))


def _state_reply(result: Any) -> commands.StateReply:
    batches = [
        Batch(batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state)
        for batch in result.state_batches
    ]
    return commands.StateReply(
        **_error(result), state_epoch=result.state_epoch, start_offset=result.start_offset, batches=batches
    )


def _summary_reply(result: Any) -> commands.SummaryReply:
    return commands.SummaryReply(
        **_error(result),
        state_epoch=result.state_epoch,
        leader_epoch=result.leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=result.delivery_complete_count,
    )


def _write_command(ticket: Ticket, key: SharePartitionKey, asked: StateWrite) -> commands.WriteState:
    batches = [
        Batch(batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state)
        for batch in asked.batches
    ]
    return commands.WriteState(
        ticket,
        key,
        asked.state_epoch,
        asked.leader_epoch,
        asked.start_offset,
        asked.delivery_complete_count,
        batches,
    )


def _written_partition(job: _Job) -> write_share_group_state.PartitionData:
    asked: StateWrite = job.asked
    return write_share_group_state.PartitionData(
        partition=job.key.partition,
        state_epoch=asked.state_epoch,
        leader_epoch=asked.leader_epoch,
        start_offset=asked.start_offset,
        delivery_complete_count=asked.delivery_complete_count,
        state_batches=[
            write_share_group_state.StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in asked.batches
        ],
    )


_INITIALIZE = _Kind(
    lambda ticket, key, asked: commands.InitializeState(ticket, key, asked.state_epoch, asked.start_offset),
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
    lambda job: initialize_share_group_state.PartitionData(
        partition=job.key.partition, state_epoch=job.asked.state_epoch, start_offset=job.asked.start_offset
    ),
    _done_reply,
    commands.DoneReply(),
)
_READ = _Kind(
    commands.ReadState,
    read_share_group_state.ReadShareGroupStateRequest,
    read_share_group_state.ReadStateData,
    lambda job: read_share_group_state.PartitionData(partition=job.key.partition, leader_epoch=job.asked),
    _state_reply,
    commands.StateReply(),
)
_WRITE = _Kind(
    _write_command,
    write_share_group_state.WriteShareGroupStateRequest,
    write_share_group_state.WriteStateData,
    _written_partition,
    _done_reply,
    commands.DoneReply(),
)
_DELETE = _Kind(
    lambda ticket, key, _: commands.DeleteState(ticket, key),
    delete_share_group_state.DeleteShareGroupStateRequest,
    delete_share_group_state.DeleteStateData,
    lambda job: delete_share_group_state.PartitionData(partition=job.key.partition),
    _done_reply,
    commands.DoneReply(),
)
_SUMMARIZE = _Kind(
    lambda ticket, key, _: commands.SummarizeState(ticket, key),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
    lambda job: read_share_group_state_summary.PartitionData(
        partition=job.key.partition, leader_epoch=job.asked
    ),
    _summary_reply,
    commands.SummaryReply(),
)


# The replies as the seam has them


def _refusal(reply: commands.DoneReply) -> Refusal:
    return Refusal(reply.error_code, reply.error_message)


def _state(reply: commands.StateReply) -> ShareState:
    if reply.error_code is not ErrorCode.NONE:
        return ShareState(error_code=reply.error_code, error_message=reply.error_message)
    try:
        batches = [
            StateBatch(first, last, DeliveryState(state), count)
            for first, last, count, state in reply.batches
        ]
    except ValueError as error:
        return ShareState(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
            error_message=f"The state has records in a state of a later broker: {error}.",
        )
    return ShareState(state_epoch=reply.state_epoch, start_offset=reply.start_offset, batches=batches)


def _summary(reply: commands.SummaryReply) -> StateSummary:
    if reply.error_code is not ErrorCode.NONE:
        return StateSummary(error_code=reply.error_code, error_message=reply.error_message)
    return StateSummary(
        state_epoch=reply.state_epoch,
        leader_epoch=reply.leader_epoch,
        start_offset=reply.start_offset,
        delivery_complete_count=reply.delivery_complete_count,
    )
