"""ShareFetch (key 78, versions 1 and 2): acquires records for a member of a share group, and acknowledges
those that it had before.

A request reads the partitions of its session, each request beginning with another one. As in Fetch an attempt
that finds too few bytes waits, for the logs to grow and for records that others give back. The response has
whole batches of the log, and says which of their records the member has acquired. A request that renews locks
fetches nothing, so that the response is not late.

Unlike Kafka, a client over its quota acquires nothing: there the records stay locked, and unseen.

Source: KafkaApis.handleShareFetchRequest, DelayedShareFetch and ShareFetchUtils of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.apis.access import on_groups, on_topics, only
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.apis.fetch_plan import LOOKS_MAX
from odradek.apis.leadership import MOVED, add_endpoint, leader_hint
from odradek.apis.share_acknowledging import (
    FIRST_VERSION_WITH_RENEWAL,
    Acknowledging,
    Results,
    acknowledged_in,
    check_member,
    end_session,
    refused_topics,
)
from odradek.apis.share_partitions import SharePartitions
from odradek.apis.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionId, ShareSession, ShareSessions
from odradek.coordinator.cluster.features import SHARE_VERSION
from odradek.coordinator.shares.partitions.share_partition import Acquired, Demand, LogBatch
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.storage.log.partition import READ_COMMITTED, READ_UNCOMMITTED, ReadResult
from odradek.storage.log.slices import Slice, WouldWait
from odradek.wire.aborted import Aborting
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from odradek.wire.records import iter_whole_batches

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts
    from odradek.apis.quotas import ClientQuotas
    from odradek.apis.share_partitions import LedShare
    from odradek.apis.turn import TimerHandle, Timers, WorkQueue
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.groups.settings import GroupConfig
    from odradek.coordinator.security.client_meters import FetchCharge
    from odradek.storage.log.partition import Partition
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.share")

READ_AT_ONCE_BYTES_MAX = 4 * 1024 * 1024
"""Bound of one partition in one response. A member gets a few hundred records, and whole batches of the log
are looked through for them."""
READ_AT_LEAST_BYTES = 64 * 1024
SPARE = 2
"""Factor between the bytes to read and those of the wanted records, estimated from the records before."""
BATCHES, STRICT = 0, 1
"""Values of `share_acquire_mode`."""
_NO_RECORDS = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareParts:
    """Parts that ShareFetch and ShareAcknowledge share."""

    leadership: Leadership
    shares: SharePartitions
    sessions: ShareSessions
    timers: Timers
    reads: WorkQueue
    groups: Groups
    quotas: ClientQuotas
    max_bytes: int
    """`fetch.max.bytes`"""

    @property
    def is_served(self) -> bool:
        """Whether there are share groups (`share.version`)."""
        return self.groups().serves_share_groups

    def config_of(self, group_id: str) -> GroupConfig:
        return self.groups().config_of(group_id)

    def view_changed(self, view: ClusterView, change: object) -> None:
        """Gives up what this node does not lead any more; everything, where there are no share groups."""
        if view.features.get(SHARE_VERSION, 0):
            self.shares.view_changed()
        elif len(self.sessions) or len(self.shares):
            self.sessions.clear()
            self.shares.give_up_all()

    def end_sessions_of(self, connection: ConnectionInfo) -> None:
        """The connection is closed."""
        for session in self.sessions.of_connection(connection):
            end_session(self.sessions, self.shares, session)


def share_parts(parts: ApiParts) -> ShareParts:
    """The share parts of a node."""
    node, settings = parts.node, parts.settings
    shares = SharePartitions(
        node.leadership,
        node.groups().persister,
        node.dead_letters(),
        node.groups().config_of,
        node.clock_timers,
        node.searches,
        node.clock_ms,
        node.now_ms,
    )
    made = ShareParts(
        leadership=node.leadership,
        shares=shares,
        sessions=ShareSessions(settings.share_sessions_max),
        timers=node.timers,
        reads=node.reads,
        groups=node.groups,
        quotas=node.quotas,
        max_bytes=settings.fetch_max_bytes,
    )
    node.subscribe(made.view_changed)
    return made


class ShareFetch:
    """The handler."""

    def __init__(self, parts: ShareParts) -> None:
        self.parts = parts

    def __call__(self, request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse | Waiting:
        try:
            if not self.parts.is_served:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            group_id, member_id = check_member(request, context)
            renews = context.api_version >= FIRST_VERSION_WITH_RENEWAL and request.is_renew_ack
            if renews:
                _check_renewal(request)
            if request.share_acquire_mode not in (BATCHES, STRICT):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            return self._fetch(request, context, group_id, member_id, renews)
        except KafkaError as error:
            # Without a message, as in Kafka.
            response = ShareFetchResponse(error_code=error.code)
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                # So a client that asks again and again does it slowly.
                return _Later(self.parts.timers, request.max_wait_ms, response)
            return response

    def _fetch(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        group_id: str,
        member_id: str,
        renews: bool,
    ) -> ShareFetchResponse | Waiting:
        parts = self.parts
        acknowledged = acknowledged_in(request.topics)
        session = self._session(request, context, group_id, member_id, acknowledged)
        epoch = request.share_session_epoch
        wanted = [] if epoch == FINAL_EPOCH or renews else _rotated(list(session.partitions), epoch)
        view = parts.leadership.view
        ids = dict.fromkeys([topic_id for topic_id, _ in (*wanted, *acknowledged)])
        refused = refused_topics(context, view, ids)
        pending = _PendingShareFetch(parts, request, context, session)
        acknowledging = Acknowledging(parts.shares, view, group_id, member_id, refused, may_renew=renews)
        acknowledging.run(acknowledged, pending.acknowledged)
        pending.fetch(wanted, refused)
        return pending.response_if_ready()

    def _session(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        group_id: str,
        member_id: str,
        acknowledged: object,
    ) -> ShareSession:
        sessions, epoch = self.parts.sessions, request.share_session_epoch
        named = [
            (topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions
        ]
        if epoch == INITIAL_EPOCH:
            if acknowledged:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            opened = sessions.open(group_id, member_id, named, context.connection)
            context.connection.when_closed(self.parts.end_sessions_of)
            return opened
        session = sessions.resume(group_id, member_id, epoch)
        if epoch != FINAL_EPOCH:
            forgotten = [
                (topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            session.change(named, forgotten)
        return session


def _check_renewal(request: ShareFetchRequest) -> None:
    """KIP-1222: a request that renews locks fetches nothing."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _rotated(partitions: list[PartitionId], epoch: int) -> list[PartitionId]:
    """Each request begins with another partition."""
    if epoch < 1 or len(partitions) < 2:
        return partitions
    begin = epoch % len(partitions)
    return partitions[begin:] + partitions[:begin]


class _Later(Waiting):
    """A response that waits for a time."""

    __slots__ = ("_timer",)

    def __init__(self, timers: Timers, wait_ms: int, response: ShareFetchResponse) -> None:
        self._timer = timers.after(max(wait_ms, 0), partial(self.complete, response))
        super().__init__(self._timer.cancel)


class _Found(NamedTuple):
    """Records of one partition that may be acquired, perhaps none; not yet acquired."""

    id: PartitionId
    share: LedShare
    log: Partition
    read_from: int
    result: ReadResult


class _PendingShareFetch(Waiting):
    """Waits until the acknowledgements of the request are stored and there is something to acquire."""

    __slots__ = (
        "_acknowledged",
        "_attempts",
        "_charge",
        "_connection",
        "_deadline",
        "_errors",
        "_fetched",
        "_group_id",
        "_has_begun",
        "_held_back",
        "_is_done",
        "_is_incremental",
        "_is_loading",
        "_looked_at",
        "_parts",
        "_request",
        "_retry_timer",
        "_session",
        "_throttle_ms",
        "_unread",
        "_wake",
        "_wanted",
    )

    def __init__(
        self,
        parts: ShareParts,
        request: ShareFetchRequest,
        context: RequestContext,
        session: ShareSession,
    ) -> None:
        super().__init__(self._stop)
        self._parts = parts
        self._request = request
        self._session = session
        self._group_id = session.group_id
        self._connection = context.connection
        self._is_incremental = request.share_session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        self._charge: FetchCharge | None = parts.quotas.fetch_charge(context)
        self._acknowledged: Results | None = None
        self._wanted: list[PartitionId] = []
        self._errors: dict[PartitionId, KafkaError] = {}
        self._fetched: dict[PartitionId, PartitionData] | None = None
        self._throttle_ms = 0
        self._wake = self._wake_up
        self._looked_at: list[tuple[PartitionId, LedShare, Partition]] = []
        """In the last attempt."""
        self._unread: set[PartitionId] = set()
        """Partitions whose state was not read before this attempt."""
        self._held_back: set[PartitionId] = set()
        """Partitions that are left to the next fetch if another one has records."""
        self._deadline: TimerHandle | None = None
        self._retry_timer: TimerHandle | None = None
        self._is_loading = False
        self._has_begun = False
        """Whether the handler has returned."""
        self._is_done = False
        self._attempts = 0

    # Both parts

    def acknowledged(self, results: Results) -> None:
        self._acknowledged = results
        self._finish()

    def fetch(self, wanted: Iterable[PartitionId], refused: set[bytes]) -> None:
        view, request = self._parts.leadership.view, self._request
        for one in wanted:
            topic_id, index = one
            name = view.topic_names.get(topic_id)
            if name is None:
                self._errors[one] = self._unknown(one)
            elif topic_id in refused:
                self._errors[one] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif view.partition(name, index) is None:
                self._errors[one] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                self._session.partitions[one] = True
                self._wanted.append(one)
        if not self._wanted or not request.max_records or self._bytes_max() <= 0:
            self._settle_fetch({})
            return
        self._deadline = self._parts.timers.after(max(request.max_wait_ms, 0), self._expire)
        self._try()

    def _unknown(self, partition: PartitionId) -> KafkaError:
        """The refusal of Kafka 4.4, which keeps the names of a session's topics: one of them is deleted."""
        was_there = self._session.partitions.get(partition, False)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if was_there else ErrorCode.UNKNOWN_TOPIC_ID)

    def response_if_ready(self) -> ShareFetchResponse | Waiting:
        if self._is_done and not self.settled:
            response = self._make_response()
            self.cancel()
            return response
        self._has_begun = True
        return self

    def _finish(self) -> None:
        if self._acknowledged is None or self._fetched is None or self._is_done:
            return
        self._is_done = True
        if self._has_begun:
            self.complete(self._make_response())

    # Attempts

    def _bytes_max(self) -> int:
        most = min(self._request.max_bytes, self._parts.max_bytes)
        return most if self._charge is None else int(min(most, self._charge.bytes_max))

    def _wake_up(self) -> None:
        if self._retry_timer is None and self._fetched is None:
            self._retry_timer = self._parts.timers.after(0, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._try()

    def _expire(self) -> None:
        self._deadline = None
        self._try(is_last=True)

    def _try(self, *, is_last: bool = False) -> None:
        if self._fetched is not None or self.settled or self._is_loading:
            return
        is_last = is_last or self._deadline is None
        for one, share, _ in self._looked_at:
            if share.error is not None:
                self._errors[one] = share.error
        self._unwatch()
        try:
            self._attempt(is_last)
        except Exception:
            logger.exception("a share fetch failed")
            self._errors |= dict.fromkeys(self._wanted, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._settle_fetch({})

    def _attempt(self, is_last: bool) -> None:
        self._look_up()
        self._hold_back()
        found = self._read()
        if found is None:
            return
        size_bytes = sum(len(one.result.records) for one in found)
        has_failed = any(one in self._errors for one in self._wanted)
        if size_bytes >= max(self._request.min_bytes, 1) or has_failed or is_last:
            self._settle_fetch(self._acquire(found, size_bytes))
            return
        if self._held_back:
            self._held_back = set()
            self._wake_up()
        shares = self._parts.shares
        for _, share, log in self._looked_at:
            shares.watch(share, log, self._wake)
        self._pass_on(self._looked_at)

    def _look_up(self) -> None:
        parts = self._parts
        for one in self._wanted:
            if one in self._errors:
                continue
            topic_id, index = one
            try:
                name = parts.leadership.view.topic_names.get(topic_id)
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                key = SharePartitionKey(self._group_id, topic_id, index)
                if not parts.shares.is_read(key):
                    self._unread.add(one)
                share, led = parts.shares.find(key, name)
            except KafkaError as error:
                self._errors[one] = error
                continue
            self._looked_at.append((one, share, led.log))

    def _hold_back(self) -> None:
        """Leave partitions to the next fetch. If states were read while this one waited, it gets the first of
        these partitions, as in Kafka: each is looked at as soon as its state is there. Clients count on it
        (librdkafka's test 0179). Here several states are often read in one turn."""
        read = [
            one for one, share, _ in self._looked_at if one in self._unread and share.partition is not None
        ]
        self._held_back |= set(read[1:])
        self._unread = {one for one, share, _ in self._looked_at if share.partition is None}

    def _read(self) -> list[_Found] | None:
        """Reads partitions with records, or with room for records. None: the attempt goes on when records
        have been loaded from the disk."""
        limits = self._parts.shares.limits_of(self._group_id)
        readable = [
            (one, share, log)
            for one, share, log in self._looked_at
            if one not in self._held_back
            and share.partition is not None
            and share.partition.can_acquire(limits)
        ]
        if not readable:
            return []
        each_bytes = min(max(self._bytes_max() // len(readable), 1), READ_AT_ONCE_BYTES_MAX)
        level = self._parts.config_of(self._group_id).share_isolation_level
        isolation = READ_COMMITTED if level == "read_committed" else READ_UNCOMMITTED
        found: list[_Found] = []
        misses: list[Callable[[], object]] = []
        is_prompt = self._attempts < LOOKS_MAX
        for one, share, log in readable:
            assert share.partition is not None
            try:
                if share.partition.next_offset() < log.log_start_offset:
                    # The log has lost records before the share group had them.
                    share.partition.move_start(log.log_start_offset)
                read_from = share.partition.next_offset()
                max_bytes = min(each_bytes, self._bytes_wanted(share))
                result = log.read(read_from, max_bytes=max_bytes, isolation=isolation, prompt=is_prompt)
                if is_prompt and len(result.records) and result.records.would_wait():
                    misses.append(result.records.load)
                else:
                    found.append(_Found(one, share, log, read_from, result))
            except WouldWait as miss:
                misses.append(miss.load)
            except OSError as error:
                self._errors[one] = log.availability.refusal("Reading", error)
            except KafkaError as error:
                # A log that ends before the offset has lost records in a crash, and gets others.
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._errors[one] = error
        if misses:
            self._attempts += 1
            self._is_loading = True
            self._parts.reads.run(_loading(misses), self._loaded, self._not_loaded)
            return None
        return found

    def _bytes_wanted(self, share: LedShare) -> int:
        """Bytes that suffice for the wanted records, if these are like those before."""
        if not share.bytes_per_record:
            return READ_AT_ONCE_BYTES_MAX
        return max(int(SPARE * share.bytes_per_record * self._request.max_records), READ_AT_LEAST_BYTES)

    def _loaded(self, _: object) -> None:
        self._is_loading = False
        self._try()

    def _not_loaded(self, error: Exception) -> None:
        """The next attempt meets the error, and finds out whose it is."""
        self._is_loading = False
        self._attempts = LOOKS_MAX
        self._try()

    def _acquire(self, found: Sequence[_Found], size_bytes: int) -> dict[PartitionId, PartitionData]:
        if self._charge is not None and found:
            self._throttle_ms = self._charge.throttle_ms(size_bytes)
            if self._throttle_ms:
                return {}
        request, shares = self._request, self._parts.shares
        limits = shares.limits_of(self._group_id)
        left = request.max_records
        is_strict = request.share_acquire_mode == STRICT
        data: dict[PartitionId, PartitionData] = {}
        sent_bytes = 0
        for one in found:
            partition = one.share.partition
            assert partition is not None
            acquired: Sequence[Acquired] = ()
            if left > 0 and len(one.result.records):
                demand = Demand(self._session.member_id, left, max(request.batch_size, 1), is_strict)
                batches, positions, aborted = _scan(one.result, partition.scan_end(demand))
                acquired = partition.acquire(
                    demand, one.read_from, batches, aborted, limits, shares.clock_ms()
                )
            records: Slice | bytes = _NO_RECORDS
            if acquired:
                shares.acquired(one.share)
                left -= sum(last - first + 1 for first, last, _ in acquired)
                one.share.bytes_per_record = positions[-1] / (
                    batches[-1].last_offset - batches[0].base_offset + 1
                )
                records = _cut(one.result.records, batches, positions, acquired[0][0], acquired[-1][1])
                one.log.traffic.read(len(records))
                sent_bytes += len(records)
            data[one.id] = PartitionData(
                partition_index=one.id[1],
                error_code=0,
                acknowledge_error_code=0,
                records=records,
                acquired_records=[
                    AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ],
            )
        if self._charge is not None and found:
            self._charge.take_back(size_bytes - sent_bytes)
        return data

    def _settle_fetch(self, data: dict[PartitionId, PartitionData]) -> None:
        self._stop()
        self._fetched = data
        self._finish()

    # Waiting

    def _unwatch(self) -> None:
        for _, share, _ in self._looked_at:
            if share.watchers:
                self._parts.shares.unwatch(share, self._wake)
        self._looked_at = []

    def _pass_on(self, looked_at: Iterable[tuple[PartitionId, LedShare, Partition]]) -> None:
        for _, share, _ in looked_at:
            self._parts.shares.pass_on(share)

    def _stop(self) -> None:
        looked_at = self._looked_at
        self._unwatch()
        self._pass_on(looked_at)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    # The response

    def _make_response(self) -> ShareFetchResponse:
        parts, session = self._parts, self._session
        config = parts.config_of(self._group_id)
        response = ShareFetchResponse(
            error_code=0,
            throttle_time_ms=self._throttle_ms,
            acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
            responses=[],
        )
        data = dict(self._fetched or {})
        for one, error in self._errors.items():
            data[one] = _refusal(one, error)
        acknowledged = dict(self._acknowledged or {})
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for one, partition in data.items():
            is_news = session.is_news(
                one, has_records=bool(partition.records), error_code=partition.error_code
            )
            if one in acknowledged:
                _tell_acknowledged(partition, acknowledged.pop(one))
            elif self._is_incremental and not is_news:
                continue
            if self._is_incremental and partition.records:
                session.serve_later(one)
            if partition.error_code in MOVED:
                self._name_the_leader(response, one, partition)
            _topic_of(topics, one).partitions.append(partition)
        for one, refusal in acknowledged.items():
            partition = _refusal(one, None)
            _tell_acknowledged(partition, refusal)
            _topic_of(topics, one).partitions.append(partition)
        response.responses = list(topics.values())
        if self._request.share_session_epoch == FINAL_EPOCH:
            end_session(parts.sessions, parts.shares, session)
        return response

    def _name_the_leader(
        self, response: ShareFetchResponse, one: PartitionId, partition: PartitionData
    ) -> None:
        leadership = self._parts.leadership
        name = leadership.view.topic_names.get(one[0])
        hint = leader_hint(leadership, name, one[1], self._connection)
        if hint is not None:
            partition.current_leader = LeaderIdAndEpoch(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
            add_endpoint(response.node_endpoints, NodeEndpoint, hint)


def _loading(misses: Iterable[Callable[[], object]]) -> Work[None]:
    yield from misses


def _scan(result: ReadResult, end: int) -> tuple[list[LogBatch], list[int], list[LogBatch]]:
    """The batches before the offset `end`, the position of each and of what follows, and the aborted ones."""
    (view,) = result.records.buffers()
    batches: list[LogBatch] = []
    positions: list[int] = [0]
    aborted: list[LogBatch] = []
    aborting = Aborting(result.aborted) if result.aborted else None
    for position, header in iter_whole_batches(view):
        if header.base_offset >= end and batches:
            break
        batch = LogBatch(header.base_offset, header.last_offset)
        batches.append(batch)
        positions.append(position + header.size_bytes)
        if aborting is not None and aborting.reaches(header) and not header.is_control:
            aborted.append(batch)
    return batches, positions, aborted


def _cut(
    records: Slice, batches: Sequence[LogBatch], positions: Sequence[int], first: int, last: int
) -> Slice:
    """The batches that have offsets from `first` to `last`."""
    begin = next(index for index, batch in enumerate(batches) if batch.last_offset >= first)
    end = next((index for index, batch in enumerate(batches) if batch.base_offset > last), len(batches))
    start = positions[begin]
    return Slice(
        records.source, records.end_position - len(records) + start, positions[max(end, begin + 1)] - start
    )


def _refusal(one: PartitionId, error: KafkaError | None) -> PartitionData:
    return PartitionData(
        partition_index=one[1],
        error_code=0 if error is None else error.code,
        acknowledge_error_code=0,
        records=_NO_RECORDS,
        acquired_records=[],
    )


def _tell_acknowledged(partition: PartitionData, refusal: KafkaError | None) -> None:
    if refusal is not None:
        partition.acknowledge_error_code = refusal.code
        partition.acknowledge_error_message = refusal.own_message


def _topic_of(
    topics: dict[bytes, ShareFetchableTopicResponse], one: PartitionId
) -> ShareFetchableTopicResponse:
    topic = topics.get(one[0])
    if topic is None:
        topic = topics[one[0]] = ShareFetchableTopicResponse(topic_id=one[0], partitions=[])
    return topic


API = Api(
    ShareFetchRequest,
    ShareFetchResponse,
    make=lambda parts: ShareFetch(parts.shared(share_parts)),
    needs=(on_groups(Operation.READ, only("group_id")), on_topics(Operation.READ, None)),
)
