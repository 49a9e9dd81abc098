"""Fetch (key 1, versions 0 to 18): reads record batches from partitions, with long polls and sessions.

A request becomes a plan and an attempt (`fetch_plan.py`); the outcomes of the attempt become the response
(`fetch_response.py`). When an attempt finds too few bytes, the request watches its partitions and runs the
same attempt again when one of them grows or at the deadline. Sessions are KIP-227's, see `fetch_sessions.py`.
From version 13 on topics have ids instead of names. Before version 3 the byte limits also cut the first
batch.

A request with a replica id is a follower's: it reads to the end of the log, and what it asks for says what it
has (`apis/replicas.py`). From version 11 on a consumer may read what is committed from a follower, and a
leader may name one in the consumer's rack (KIP-392). Snapshots of the metadata are the controllers'.

A client is authorized when its request comes, for all partitions of its session; a replica for the cluster.

Source: KafkaApis.handleFetchRequest of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import ALLOW_ALL, Need, on_topics
from odradek.apis.api import Waiting, WorkResponse
from odradek.apis.declaration import Api, Charge
from odradek.apis.fetch_plan import FetchAttempt, FetchPlan
from odradek.apis.fetch_response import (
    FIRST_VERSION_FROM_FOLLOWERS,
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_SESSIONS,
    FetchResponseBuilder,
    failure,
)
from odradek.apis.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
    requested_partitions,
)
from odradek.apis.leadership import Leadership
from odradek.apis.opening import OPENED_AT_ONCE_MAX, opened_first
from odradek.apis.quotas import ClientQuotas
from odradek.apis.replicas import FetchingReplica
from odradek.storage.log.partition import READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import ApiParts
    from odradek.apis.turn import TimerHandle, Timers, WorkQueue
    from odradek.storage.log.partition import Partition

logger = logging.getLogger("odradek.fetch")

FIRST_VERSION_WITH_MAX_BYTES = 3
FIRST_VERSION_WITH_REPLICA_STATE = 15
CONSUMER_ID = -1
"""Lower ids are of readers that compare replicas, as kafka-replica-verification does: they read to the end of
a log."""

_READ, _TOPIC = Operation.READ, ResourceType.TOPIC
_CLUSTER_ACTION, _CLUSTER = Operation.CLUSTER_ACTION, ResourceType.CLUSTER
_ISOLATIONS = (READ_UNCOMMITTED, READ_COMMITTED)


class Fetch:
    """The handler. `max_bytes` is `fetch.max.bytes`, the limit of one response."""

    __slots__ = ("_quotas", "_reads", "_timers", "leadership", "max_bytes", "sessions")

    def __init__(
        self,
        leadership: Leadership,
        timers: Timers,
        reads: WorkQueue,
        sessions: FetchSessionCache,
        max_bytes: int,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.leadership = leadership
        self._quotas = quotas or ClientQuotas()
        self._timers = timers
        self._reads = reads
        self.sessions = sessions
        self.max_bytes = max_bytes

    def __call__(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Waiting:
        if request.isolation_level not in _ISOLATIONS:
            # Kafka fails here with this error.
            return failure(request, context.api_version)
        if sum([len(topic.partitions) for topic in request.topics]) > OPENED_AT_ONCE_MAX:
            partitions = self._named(request, context.api_version)
            handle = partial(self._handle, request, context)
            response = opened_first(self.leadership, self._reads, context, partitions, handle)
            if response is not None:
                return response
        return self._handle(request, context)

    def _named(self, request: FetchRequest, version: int) -> Iterator[tuple[str, int]]:
        """The request's partitions, without unknown topic ids."""
        names = self.leadership.view.topic_names
        for topic in request.topics:
            name = topic.topic if version < FIRST_VERSION_WITH_IDS else names.get(topic.topic_id)
            if name is not None:
                yield from ((name, requested.partition) for requested in topic.partitions)

    def _handle(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Waiting:
        try:
            plan, builder = self._plan(request, context)
        except KafkaError as error:
            return FetchResponse(error_code=error.code, session_id=NO_SESSION)
        return self._attempted(plan, builder, partial(failure, request, context.api_version), context)

    def _attempted(
        self,
        plan: FetchPlan[FetchedPartition],
        builder: FetchResponseBuilder,
        fail: Callable[[], FetchResponse],
        context: RequestContext,
        *,
        is_first: bool = True,
    ) -> FetchResponse | Waiting:
        attempt = FetchAttempt(self.leadership, plan)
        outcomes = builder.measured(partial(attempt.run, is_first=is_first))
        if outcomes is None:
            is_of_replica = plan.replica is not None
            return PendingFetch(
                attempt, builder, plan.max_wait_ms, self._timers, self._reads, fail, is_of_replica
            )
        response = builder.response(outcomes)
        if builder.unready:
            return WorkResponse(self._reads, builder.finishing(response), context)
        return response

    def go_on(
        self,
        session: FetchSession,
        replica: FetchingReplica,
        context: RequestContext,
        max_bytes: int,
        wait_ms: int,
    ) -> FetchResponse | Waiting:
        """See `in_place.FetchHandler`."""
        plan = FetchPlan(
            list(session.partitions.values()), max_bytes, 1, wait_ms, by_topic_id=True, replica=replica
        )
        builder = FetchResponseBuilder(
            self.leadership, self._reads, context, session, True, True, self.sessions
        )
        fail = partial(FetchResponse, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, session_id=session.id)
        try:
            return self._attempted(plan, builder, fail, context, is_first=False)
        except Exception:
            logger.exception("a fetch that was noted in place failed")
            return fail()

    def _plan(
        self, request: FetchRequest, context: RequestContext
    ) -> tuple[FetchPlan[FetchedPartition], FetchResponseBuilder]:
        """Opens, resumes or ends the session that the request names. The plan has the partitions to read, the
        builder makes the response."""
        version = context.api_version
        uses_topic_ids = version >= FIRST_VERSION_WITH_IDS
        reader_id, reader_epoch = _reader(request, version)
        replica = FetchingReplica(reader_id, reader_epoch, version) if reader_id >= 0 else None
        session: FetchSession | None = None
        is_incremental = False
        if version < FIRST_VERSION_WITH_SESSIONS or request.session_epoch == FINAL_EPOCH:
            # kafka-go closes the session -1, which never existed: no error, whatever the id.
            if request.session_id != NO_SESSION:
                self.sessions.remove(request.session_id)
            partitions = requested_partitions(request, uses_topic_ids)
        elif request.session_epoch == INITIAL_EPOCH:
            if request.session_id != NO_SESSION:
                self.sessions.remove(request.session_id)
            partitions = requested_partitions(request, uses_topic_ids)
            session = self.sessions.admit(
                partitions,
                uses_topic_ids=uses_topic_ids,
                is_privileged=replica is not None,
                now_ms=context.now_ms,
            )
        else:
            session = self.sessions.resume(request, uses_topic_ids, context.now_ms)
            is_incremental = session is not None
            partitions = session.partitions if session else requested_partitions(request, uses_topic_ids)
        charge = self._quotas.fetch_charge(context) if replica is None else None
        replicas = self.leadership.replicas
        compares = reader_id < CONSUMER_ID
        may_follow = (
            replicas is not None and replica is None and (compares or version >= FIRST_VERSION_FROM_FOLLOWERS)
        )
        selects_by_rack = may_follow and replicas is not None and replicas.selects_by_rack
        max_bytes, min_bytes = request.max_bytes, request.min_bytes
        if max_bytes > self.max_bytes:
            max_bytes = self.max_bytes
        if charge is not None:
            # A longer response would have to wait each time, and never come.
            max_bytes = int(min(max_bytes, charge.bytes_max))
        # A copy: while this request waits, a later one may change the session.
        planned = list(partitions.values())
        refused: list[FetchedPartition] = []
        if context.authorizer is not ALLOW_ALL:
            planned, refused = self._authorized(planned, replica is not None, uses_topic_ids, context)
        plan = FetchPlan(
            planned,
            max_bytes,
            min_bytes if min_bytes < max_bytes else max_bytes,
            request.max_wait_ms,
            READ_LOG_END if compares else request.isolation_level,
            uses_topic_ids,
            version < FIRST_VERSION_WITH_MAX_BYTES,
            replica,
            may_follow,
            request.rack_id if selects_by_rack else "",
            refused,
        )
        if replica is not None and replicas is not None and session is not None and not refused:
            replicas.serve_in_place(self, session, replica, context)
        builder = FetchResponseBuilder(
            *(self.leadership, self._reads, context, session, is_incremental, replica is not None),
            self.sessions,
            charge,
        )
        return plan, builder

    def _authorized(
        self,
        partitions: list[FetchedPartition],
        is_replica: bool,
        uses_topic_ids: bool,
        context: RequestContext,
    ) -> tuple[list[FetchedPartition], list[FetchedPartition]]:
        """The partitions that the client may read, and the others."""
        if is_replica:
            is_refused = context.refused_names(_CLUSTER_ACTION, _CLUSTER, (CLUSTER_NAME,))
            return ([], partitions) if is_refused else (partitions, [])
        if context.authorizer is ALLOW_ALL:
            return partitions, []
        names: list[str | None]
        if uses_topic_ids:
            known = self.leadership.view.topic_names
            names = [known.get(one.topic_id, one.name) for one in partitions]
        else:
            names = [one.topic for one in partitions]
        # An unknown id is told as such, without a permission.
        refused = context.refused_names(_READ, _TOPIC, [name for name in names if name is not None])
        if not refused:
            return partitions, []
        pairs = list(zip(partitions, names, strict=True))
        return (
            [one for one, name in pairs if name not in refused],
            [one for one, name in pairs if name in refused],
        )


def _reader(request: FetchRequest, version: int) -> tuple[int, int]:
    """Broker id and broker epoch of a replica; the id is negative of others."""
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_id, -1
    state = request.replica_state
    return (CONSUMER_ID, -1) if state is None else (state.replica_id, state.replica_epoch)


class PendingFetch(Waiting):
    """An attempt that waits for one of its partitions to grow, or for its deadline.

    Nothing runs between the attempt that found too few bytes and the registration here, so no wake-up is
    lost. A wake-up comes from within a commit; the attempt runs once after all commits of that turn.
    """

    __slots__ = (
        "_attempt",
        "_builder",
        "_deadline",
        "_fail",
        "_is_of_replica",
        "_reads",
        "_retry_timer",
        "_timers",
        "_wake",
        "_watched",
    )

    def __init__(
        self,
        attempt: FetchAttempt[FetchedPartition],
        builder: FetchResponseBuilder,
        max_wait_ms: int,
        timers: Timers,
        reads: WorkQueue,
        fail: Callable[[], FetchResponse],
        is_of_replica: bool = False,
    ) -> None:
        """`fail` makes the response for a request that failed as a whole. A replica waits for the end of the
        log, a consumer for what all replicas have."""
        super().__init__(self._stop)
        self._attempt = attempt
        self._builder = builder
        self._timers = timers
        self._reads = reads
        self._fail = fail
        self._is_of_replica = is_of_replica
        self._wake = self._wake_up
        self._retry_timer: TimerHandle | None = None
        self._watched: list[Partition] = []
        self._watch(attempt.watchable)
        self._deadline = timers.after(max_wait_ms, self._expire)

    def _watch(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            partition.watch(self._wake, at_log_end=self._is_of_replica)
        self._watched = partitions

    def _unwatch(self) -> None:
        for partition in self._watched:
            partition.unwatch(self._wake)
        self._watched = []

    def _wake_up(self) -> None:
        if self._retry_timer is None:
            self._retry_timer = self._timers.after(0, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._try(is_last=False)

    def _expire(self) -> None:
        self._try(is_last=True)

    def _try(self, is_last: bool) -> None:
        if self.settled:
            return
        try:
            outcomes = self._builder.measured(partial(self._attempt.run, is_last=is_last))
            if outcomes is None:
                self._watch_others()
                return
            response = self._builder.response(outcomes)
        except Exception:
            logger.exception("a waiting fetch failed")
            self._stop()
            self.complete(self._fail())
            return
        self._stop()
        if self._builder.unready:
            self._reads.run(self._builder.finishing(response), self.complete, self._finishing_failed)
        else:
            self.complete(response)

    def _watch_others(self) -> None:
        """Watches the logs of the last attempt, if they changed."""
        if self._attempt.watchable != self._watched:
            self._unwatch()
            self._watch(self._attempt.watchable)

    def _finishing_failed(self, error: Exception) -> None:
        logger.error("a waiting fetch failed", exc_info=error)
        self.complete(self._fail())

    def _stop(self) -> None:
        self._unwatch()
        self._deadline.cancel()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None


def _make(parts: ApiParts) -> Fetch:
    node, settings = parts.node, parts.settings
    sessions = FetchSessionCache(settings.fetch_session_slots)
    return Fetch(node.leadership, node.timers, node.reads, sessions, settings.fetch_max_bytes, node.quotas)


API = Api(
    FetchRequest,
    FetchResponse,
    make=_make,
    needs=(  # a session knows topics that the request does not name; a replica needs the cluster instead
        on_topics(Operation.READ, None),
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
    ),
    charge=Charge.BY_HANDLER,
)
