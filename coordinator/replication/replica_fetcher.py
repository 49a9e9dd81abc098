"""The follower's side for one leader: which partitions to fetch, how to judge each response, when to cut a
log.

One request is under way at a time: Fetch, or ListOffsets while some partition is out of the leader's range.
A partition's response counts only while its log ends where the request said and its leader epoch is the one
of the request (KAFKA-13207). Then, by the order of the rules:

1. A diverging epoch: the log is cut (`truncation.py`); nothing else in the response counts, also not its high
   watermark, which is for another log (KAFKA-14704).
2. Records: whole batches, up to the first with a later leader epoch than the request's, which another leader
   has written (KAFKA-18723). Offsets rise, perhaps with gaps. Checksums are checked by the append. A first
   batch that begins before an empty log's start: the log begins there (KAFKA-6975). One that begins before
   the end of a log with records: these are no batches of the leader, and the log is cut there. (Kafka fails
   the partition.)
3. The high watermark is the leader's, at most the log's end, never less than before.
4. The log start follows the leader's.

The last fetched epoch of a request is always read from the log, so that a response without records cannot
lose it (KAFKA-15510).

OFFSET_OUT_OF_RANGE: if the leader's log ends earlier this one is cut there; if the leader's begins after the
end of this one, this one begins anew there, with its high watermark (KAFKA-9491). It is never fatal
(KAFKA-7414). After an error of the disk the same is tried again; who carries effects out stops to follow what
is offline. A bug takes out that partition alone, until its next leader epoch (KIP-461).

A partition that is throttled (`replication_quota.py`) and out of sync is left out of requests while the rate
is over its limit, and looked at again after `replica.fetch.backoff.ms`.

Effects change logs: their partition is busy until `done`. The next request waits for appends, as it tells the
leader of them: without them it would wait there for other partitions, and the producers with it. A cut may
take long; its partition is left out of requests until then. Who carries effects out holds back views of a
busy partition.

Ordinary responses of a session, and the requests after them, have a compiled way with the same outcome
(`server/cluster/_fetching.pyx`); all others come here. The simulation holds one against the other.

OffsetForLeaderEpoch is not used: since Fetch 12 (KIP-595) a fetch finds where two logs part. Requests are for
Fetch 15 or later (KIP-903) and ListOffsets 4 or later.

Source: `AbstractFetcherThread`, `ReplicaFetcherThread` and `RemoteLeaderEndPoint` of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from odradek.coordinator.replication.fetch_session import Asked, PartitionId, ReplicaFetchSession
from odradek.coordinator.replication.replication_quota import ReplicationQuota
from odradek.coordinator.replication.truncation import truncation_offset
from odradek.coordinator.replication.values import UNKNOWN_EPOCH, ReplicaKey, ReplicaLog
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.records import iter_whole_batches, rising_batches
from odradek.wire.schema import Records

LATEST = -1
EARLIEST = -2
MAY_COME_RIGHT = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
    }
)
"""Errors of a change of the log that may pass: the bytes were damaged on their way, or the leader's log was
just being cut; the disk is full, or the log may not be cut just now; it is on its way to another disk."""

OF_THE_SESSION = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
"""A full fetch makes them good at once; other errors of a whole response do not go so soon."""


class FetcherSettings(Protocol):
    """`replica.fetch.*`, read each time."""

    @property
    def max_wait_ms(self) -> int: ...

    @property
    def min_bytes(self) -> int: ...

    @property
    def max_bytes(self) -> int: ...

    @property
    def partition_max_bytes(self) -> int: ...

    @property
    def backoff_ms(self) -> int: ...


class Replicate(NamedTuple):
    """Append `records`, if any, as replication; then the high watermark goes up to `high_watermark`, then the
    log start to `log_start_offset`: neither ever down. With `begin_at` the log, which is empty, first begins
    anew at that offset. When a step fails those after it are left out.
    """

    key: ReplicaKey
    records: Records
    begin_at: int | None
    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """End the log at `offset`, or at the batch that holds it. Leader epochs that begin there or later go,
    also where the log is no longer than that: this node may have led without an append. The high watermark
    is not after it: where it was, committed records go, after an unclean election (a line in the log).
    """

    key: ReplicaKey
    offset: int


class BeginAnew(NamedTuple):
    """Drop all of the log. It begins at `offset`, empty: producers, leader epochs too; the high watermark is
    there.
    """

    key: ReplicaKey
    offset: int


class Failed(NamedTuple):
    """The partition is fetched no more in this leader epoch, for this reason: a line in the log."""

    key: ReplicaKey
    reason: str


LogEffect = Replicate | Truncate | BeginAnew
FetcherEffect = LogEffect | Failed
"""All but `Failed` make their partition busy until `done`."""


class Phase(Enum):
    FETCHING = "fetching"
    ASKING_LATEST = "asking where the leader's log ends"
    ASKING_EARLIEST = "asking where the leader's log begins"
    AWAITING_VIEW = "fenced"
    FAILED = "failed"


TIMESTAMPS = {Phase.ASKING_LATEST: LATEST, Phase.ASKING_EARLIEST: EARLIEST}


@dataclass(slots=True)
class Fetched:
    """A partition that is fetched here."""

    key: ReplicaKey
    topic_id: bytes
    leader_epoch: int
    log: ReplicaLog
    phase: Phase = Phase.FETCHING
    delayed_until_ms: int | None = None
    is_busy: bool = False
    lag: int | None = None
    """Offsets of what is committed that the last response has not brought; None: there was none yet."""

    @property
    def is_in_sync(self) -> bool:
        """Whether the last response has brought all that is committed; before the first one it is not
        known."""
        return self.lag == 0

    @property
    def id(self) -> PartitionId:
        return self.topic_id, self.key[1]

    @property
    def is_waiting(self) -> bool:
        """For a time, or for the response to a question."""
        return self.delayed_until_ms is not None or self.phase in TIMESTAMPS

    def is_ready(self, now_ms: int) -> bool:
        return not self.is_busy and (self.delayed_until_ms is None or self.delayed_until_ms <= now_ms)


class ReplicaFetcher:
    """See the module. Call `next_request` after each other call, and at `wake_at_ms`. `broker_epoch` is this
    node's own.
    """

    def __init__(
        self,
        node_id: int,
        leader_id: int,
        broker_epoch: Callable[[], int],
        settings: FetcherSettings,
        quota: ReplicationQuota,
    ) -> None:
        self.node_id = node_id
        self.leader_id = leader_id
        self.broker_epoch = broker_epoch
        self.settings = settings
        self.quota = quota
        self.partitions: dict[ReplicaKey, Fetched] = {}
        self.by_id: dict[PartitionId, Fetched] = {}
        self.unsettled: dict[PartitionId, None] = {}
        """Partitions that the session may not ask for as it does: the others cost nothing at a request."""
        self.session = ReplicaFetchSession()
        self._in_flight: FetchRequest | ListOffsetsRequest | None = None
        self._appending: set[ReplicaKey] = set()

    # Which partitions

    def follow(
        self, key: ReplicaKey, topic_id: bytes, leader_epoch: int, log: ReplicaLog
    ) -> list[FetcherEffect]:
        """Fetch in that leader epoch from now on; with the same one as before, go on."""
        known = self.partitions.get(key)
        if known is not None and known.leader_epoch == leader_epoch and known.topic_id == topic_id:
            return []
        assert known is None or not known.is_busy, f"{key} is still being changed"
        self.stop(key)
        fetched = Fetched(key, topic_id, leader_epoch, log)
        self.partitions[key] = self.by_id[fetched.id] = fetched
        self._look_again(fetched)
        if log.latest_epoch == UNKNOWN_EPOCH and log.log_end_offset > log.high_watermark:
            # Without epochs nobody can tell where the logs part: only what is committed is safe.
            return [self._truncate(fetched, log.high_watermark)]
        return []

    def stop(self, key: ReplicaKey) -> None:
        one = self.partitions.pop(key, None)
        if one is not None:
            del self.by_id[one.id]
            self._appending.discard(key)
            self._look_again(one)

    def log_changed(self, key: ReplicaKey) -> None:
        """By other means than an effect, such as this node's retention: the leader is told with the next
        request.
        """
        one = self.partitions.get(key)
        if one is not None:
            self._look_again(one)

    def _look_again(self, one: Fetched) -> None:
        self.unsettled[one.id] = None

    @property
    def is_idle(self) -> bool:
        """Whether there is no partition, so that the connection may be closed."""
        return not self.partitions

    # Requests

    @property
    def wake_at_ms(self) -> int | None:
        """When the first delayed partition is tried again."""
        if self._appending:
            return None
        found = (self.by_id.get(place) for place in self.unsettled)
        delays = (one.delayed_until_ms for one in found if one is not None and not one.is_busy)
        return min((delay for delay in delays if delay is not None), default=None)

    def next_request(self, now_ms: int) -> FetchRequest | ListOffsetsRequest | None:
        """Request for the leader now; None while a request or an append is under way, or there is nothing to
        ask.
        """
        if self._in_flight is not None or self._appending:
            return None
        found = [one for place in self.unsettled if (one := self.by_id.get(place)) is not None]
        asking = [one for one in found if one.phase in TIMESTAMPS and one.is_ready(now_ms)]
        self._in_flight = self._list_offsets(asking) if asking else self._fetch(now_ms)
        return self._in_flight

    def _fetch(self, now_ms: int) -> FetchRequest | None:
        part = self.session.next_part(self._settle(now_ms))
        if part is None:
            return None
        settings = self.settings
        # Since Fetch 15, which every cluster here has, the state says who fetches.
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=self.broker_epoch()),
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=0,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=part.topics,
            forgotten_topics_data=part.forgotten,
            rack_id="",
        )

    def _settle(self, now_ms: int) -> dict[PartitionId, Asked | None]:
        """Changes of what the session asks for. A partition that waits for a time or a response stays
        unsettled; one that is busy, fenced or failed is looked at again when that has changed.
        """
        if self.quota.has_throttled:
            self._hold_back(now_ms)
        changes: dict[PartitionId, Asked | None] = {}
        for place in list(self.unsettled):
            one = self.by_id.get(place)
            if one is not None and one.phase is Phase.FETCHING and one.is_ready(now_ms):
                one.delayed_until_ms = None
                changes[place] = Asked(one.key[0], self._asked(one))
            else:
                changes[place] = None
            if one is None or one.is_busy or not one.is_waiting:
                del self.unsettled[place]
        return changes

    def _hold_back(self, now_ms: int) -> None:
        """Also those that the session asks for and that nothing was decided about since. The rate is measured
        only for replicas that move: its first measurement begins the first window.
        """
        moving = [one for one in self.partitions.values() if self._moves(one, now_ms)]
        if moving and self.quota.is_exceeded(now_ms):
            for one in moving:
                one.delayed_until_ms = now_ms + self.settings.backoff_ms
                self._look_again(one)

    def _moves(self, one: Fetched, now_ms: int) -> bool:
        """Whether the replica is throttled, out of sync, and would be fetched now."""
        if one.is_in_sync or one.phase is not Phase.FETCHING or not self.quota.is_throttled(one.key):
            return False
        return one.delayed_until_ms is None or one.delayed_until_ms <= now_ms

    def _asked(self, one: Fetched) -> FetchPartition:
        log = one.log
        return FetchPartition(
            partition=one.key[1],
            current_leader_epoch=one.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self.settings.partition_max_bytes,
        )

    def _list_offsets(self, asking: Iterable[Fetched]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for one in asking:
            one.delayed_until_ms = None
            name, index = one.key
            topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[])).partitions.append(
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=one.leader_epoch,
                    timestamp=TIMESTAMPS[one.phase],
                )
            )
        return ListOffsetsRequest(
            replica_id=self.node_id, isolation_level=0, topics=list(topics.values()), timeout_ms=0
        )

    # Responses

    def failed(self, request: FetchRequest | ListOffsetsRequest, now_ms: int) -> None:
        """No response came, or one that cannot be read: all wait for `replica.fetch.backoff.ms`."""
        if request is self._in_flight:
            self.give_up(now_ms)

    def give_up(self, now_ms: int) -> None:
        """Does the same as `failed`, whatever is under way."""
        if isinstance(self._in_flight, FetchRequest):
            self.session.failed()
        self._in_flight = None
        self._back_off(self.partitions.values(), now_ms)

    def fetch_answered(
        self, request: FetchRequest, response: FetchResponse, now_ms: int
    ) -> list[FetcherEffect]:
        """A response to a request that was given up is dropped."""
        if request is not self._in_flight:
            return []
        self._in_flight = None
        if not self.session.answered(response.error_code, response.session_id):
            if response.error_code not in OF_THE_SESSION:
                self._back_off(self.partitions.values(), now_ms)
            return []
        effects: list[FetcherEffect] = []
        for topic in response.responses:
            for data in topic.partitions:
                partition_id = (topic.topic_id, data.partition_index)
                one, asked = self.by_id.get(partition_id), self.session.asked.get(partition_id)
                if one is None or asked is None:
                    continue
                if self._is_as_asked(one, asked.partition):
                    effects += self._judge_alone(one, data, now_ms)
                self._look_again(one)
        return effects

    def _is_as_asked(self, one: Fetched, asked: FetchPartition) -> bool:
        return (
            one.phase is Phase.FETCHING
            and not one.is_busy
            and one.leader_epoch == asked.current_leader_epoch
            and one.log.log_end_offset == asked.fetch_offset
        )

    def _judge_alone(self, one: Fetched, data: PartitionData, now_ms: int) -> list[FetcherEffect]:
        """Whatever goes wrong is that partition's alone (KIP-461)."""
        try:
            return self._judge(one, data, now_ms)
        except KafkaError as error:
            return self._refused(one, error, now_ms)
        except Exception as error:
            return self._fail(one, f"{type(error).__name__}: {error}")

    def _judge(self, one: Fetched, data: PartitionData, now_ms: int) -> list[FetcherEffect]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            one.phase = Phase.ASKING_LATEST
        elif data.error_code != ErrorCode.NONE:
            self._refused_by_leader(one, data.error_code, now_ms)
        elif data.diverging_epoch is not None:
            diverging = data.diverging_epoch
            return [self._truncate(one, truncation_offset(one.log, diverging.epoch, diverging.end_offset))]
        else:
            self.quota.record(one.key, len(data.records or b""), now_ms)
            return self._replicate(one, data)
        return []

    def _replicate(self, one: Fetched, data: PartitionData) -> list[FetcherEffect]:
        log = one.log
        batches = whole_batches(data.records or b"", log, one.leader_epoch)
        if batches.cut_at is not None:
            return [self._truncate(one, batches.cut_at)]
        one.lag = max(data.high_watermark - batches.next_offset, 0)
        high_watermark = max(log.high_watermark, min(data.high_watermark, batches.next_offset))
        log_start_offset = max(log.log_start_offset, min(data.log_start_offset, high_watermark))
        is_where_it_was = (high_watermark, log_start_offset) == (log.high_watermark, log.log_start_offset)
        if is_where_it_was and not batches.records:
            return []
        one.is_busy = True
        self._appending.add(one.key)
        return [Replicate(one.key, batches.records, batches.begin_at, high_watermark, log_start_offset)]

    def offsets_answered(
        self, request: ListOffsetsRequest, response: ListOffsetsResponse, now_ms: int
    ) -> list[FetcherEffect]:
        if request is not self._in_flight:
            return []
        self._in_flight = None
        asked = {
            (topic.name, partition.partition_index): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        effects: list[FetcherEffect] = []
        for topic in response.topics:
            for data in topic.partitions:
                key = topic.name, data.partition_index
                one = self.partitions.get(key)
                if one is not None and key in asked and _is_still_asked(one, asked[key]):
                    if data.error_code == ErrorCode.NONE:
                        effects += self._find_place(one, data.offset)
                    else:
                        self._refused_by_leader(one, data.error_code, now_ms)
        return effects

    def _find_place(self, one: Fetched, leader_offset: int) -> list[FetcherEffect]:
        """The leader's log ends, or begins, at that offset."""
        log = one.log
        if one.phase is Phase.ASKING_LATEST:
            if leader_offset < log.log_end_offset:
                one.phase = Phase.FETCHING
                return [self._truncate(one, leader_offset)]
            one.phase = Phase.ASKING_EARLIEST
            return []
        one.phase = Phase.FETCHING
        if leader_offset <= log.log_end_offset:
            return []
        one.is_busy = True
        return [BeginAnew(one.key, leader_offset)]

    def carried_out(self) -> None:
        """The response to the request under way was judged elsewhere (`server/cluster/_fetching.pyx`): what
        it has brought is in the logs, and its partitions are unsettled.
        """
        self._in_flight = None

    # Trouble

    def done(self, key: ReplicaKey, error: Exception | None, now_ms: int) -> list[FetcherEffect]:
        """The effect on that partition's log has been carried out, or has failed."""
        self._appending.discard(key)
        one = self.partitions.get(key)
        if one is None:
            return []
        one.is_busy = False
        self._look_again(one)
        if isinstance(error, KafkaError):
            return self._refused(one, error, now_ms)
        return [] if error is None else self._fail(one, f"{type(error).__name__}: {error}")

    def _refused(self, one: Fetched, error: KafkaError, now_ms: int) -> list[FetcherEffect]:
        if error.code not in MAY_COME_RIGHT:
            return self._fail(one, str(error))
        self._back_off([one], now_ms)
        return []

    def _refused_by_leader(self, one: Fetched, error_code: int, now_ms: int) -> None:
        """Fenced, a later view of the partition exists. All else comes right when the views of the two nodes
        agree: a while later.
        """
        if error_code == ErrorCode.FENCED_LEADER_EPOCH:
            one.phase = Phase.AWAITING_VIEW
        else:
            self._back_off([one], now_ms)

    def _back_off(self, partitions: Iterable[Fetched], now_ms: int) -> None:
        for one in partitions:
            self._look_again(one)
            if one.delayed_until_ms is None:
                one.delayed_until_ms = now_ms + self.settings.backoff_ms

    def _fail(self, one: Fetched, reason: str) -> list[FetcherEffect]:
        one.phase = Phase.FAILED
        return [Failed(one.key, reason)]

    def _truncate(self, one: Fetched, offset: int) -> Truncate | BeginAnew:
        one.is_busy = True
        if offset < one.log.log_start_offset:
            return BeginAnew(one.key, offset)  # nothing would be left
        return Truncate(one.key, offset)


class WholeBatches(NamedTuple):
    """Part of a response that may be appended, and the end of the log afterwards."""

    records: Records
    next_offset: int
    begin_at: int | None = None
    """Where the log begins first, which is empty."""
    cut_at: int | None = None
    """Where the log is to be cut instead."""


def whole_batches(records: Records, log: ReplicaLog, leader_epoch: int) -> WholeBatches:
    """Rule 2 of the module. Refuses with CORRUPT_MESSAGE what is no batch, and with UNKNOWN_SERVER_ERROR
    batches that do not rise, or are all before the end of the log.
    """
    begin_at = None
    end, next_offset = rising_batches(records, log.log_end_offset, leader_epoch)
    # Mostly nothing is left: an incomplete batch, or one of a later epoch.
    for _, header in iter_whole_batches(memoryview(records)[end:]):
        base_offset, last_offset = header.base_offset, header.last_offset
        if header.leader_epoch > leader_epoch:
            break
        if base_offset < next_offset:
            if end > 0 or last_offset < next_offset:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"The leader sent offset {base_offset} where {next_offset} comes next.",
                )
            if log.log_start_offset < log.log_end_offset:
                return WholeBatches(b"", next_offset, cut_at=base_offset)
            begin_at = base_offset
        next_offset = last_offset + 1
        end += header.size_bytes
    return WholeBatches(records[:end], next_offset, begin_at)


def _is_still_asked(one: Fetched, asked: ListOffsetsPartition) -> bool:
    return (
        not one.is_busy
        and one.leader_epoch == asked.current_leader_epoch
        and TIMESTAMPS.get(one.phase) == asked.timestamp
    )
