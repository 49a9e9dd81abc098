"""Fetch (key 1, versions 0 to 18): record batches out of partitions, as long polls and in sessions.

One read path: an attempt reads every partition of the plan within the byte budget. Is it enough (or an error,
or too late), it is the answer; else the request watches its partitions and runs the same attempt again when
one of them moves or the deadline comes. Records leave as slices of the log, never copied here. What is not in
the system's memory is loaded in a worker thread before the answer goes out, and so are the headers by which
records are found: a page fault in the event loop would stop everybody. Versions 0 to 3 get their records
converted to the formats v0 and v1 that they know, batch by batch while others are served, and what is long
no faster than its client takes it.

Who reads only what is committed (isolation level 1) gets what is before the last stable offset, waits for
that to move, and is told which transactions in it were aborted; the records are the same slices as for
everybody. As in Kafka only who stands at its batch waits: whoever asks for one behind that is told at once
that there is nothing yet (DelayedFetch, its case F).

Sizes are KIP-74's: the first partition that has anything gets at least one whole batch, whatever the
limits, from version 3 on; what comes is cut off where the limit is, its last batch too. Sessions are
KIP-227's, see `fetch_sessions.py`. From version 13 on topics have ids instead of names.

Not done yet: followers (a request with a replica id is refused with NOT_LEADER_OR_FOLLOWER, since no
replica is assigned elsewhere), reading from the nearest replica (the preferred one is always -1, the
leader), snapshots.

Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages and readFromLog of Kafka 4.3, KafkaApis
of 3.9 for versions 0 to 3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.api import LatePart, Waiting, WorkAnswer
from odradek.apis.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
    requested_partitions,
)
from odradek.apis.leadership import (
    Leadership,
    LedPartition,
    add_endpoint,
    check_leader_epoch,
    end_offset_for_epoch,
    leader_hint,
)
from odradek.apis.opening import OPENED_AT_ONCE_MAX, opened_first
from odradek.storage.log.partition import READ_COMMITTED, READ_UNCOMMITTED
from odradek.storage.log.slices import MAP_AT_LEAST_BYTES, WouldWait
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.turn import TimerHandle, Timers, WorkQueue
    from odradek.storage.log.partition import Partition, ReadResult
    from odradek.storage.log.slices import Slice
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.fetch")

FIRST_VERSION_OF_V1 = 2
FIRST_VERSION_WITH_MAX_BYTES = 3
FIRST_VERSION_OF_V2 = 4
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_ENDPOINTS = 16
LAST_VERSION_WITHOUT_STORAGE_ERROR = 5

_ISOLATIONS = (READ_UNCOMMITTED, READ_COMMITTED)
_NO_RECORDS = b""
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
LOOKS_MAX = 16
"""For records whose headers are not in memory. What is lost again as soon as it is loaded, is waited for."""
AHEAD_BYTES_MAX = 1024 * 1024
AHEAD_OF_LIMIT_BYTES = 8192
"""Behind an answer stands a header, by which the last batch is believed."""
CONVERTED_BYTES_KEPT_MAX = 1024 * 1024
"""So much of one answer may be converted before it is sent: of more partitions the first batches, by which
their sizes are known, are converted twice."""
_LOGGED_DAMAGE_MAX = 100
_logged_damage: set[str] = set()
"""Which damage has been logged: consumers ask for it again and again."""


class Fetch:
    """The handler. `max_bytes` is `fetch.max.bytes`, the most that one answer may hold."""

    __slots__ = ("_leadership", "_max_bytes", "_reads", "_sessions", "_timers")

    def __init__(
        self,
        leadership: Leadership,
        timers: Timers,
        reads: WorkQueue,
        sessions: FetchSessionCache,
        max_bytes: int,
    ) -> None:
        self._leadership = leadership
        self._timers = timers
        self._reads = reads
        self._sessions = sessions
        self._max_bytes = max_bytes

    def __call__(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Waiting:
        if request.isolation_level not in _ISOLATIONS:
            # Kafka trips over it, and says so.
            return _failure(request, context.api_version)
        if sum([len(topic.partitions) for topic in request.topics]) > OPENED_AT_ONCE_MAX:
            partitions = self._named(request, context.api_version)
            handle = partial(self._handle, request, context)
            answer = opened_first(self._leadership, self._reads, context, partitions, handle)
            if answer is not None:
                return answer
        return self._handle(request, context)

    def _named(self, request: FetchRequest, version: int) -> Iterator[tuple[str, int]]:
        """The request's partitions, but not those of ids that are nobody's."""
        names = self._leadership.view.topic_names
        for topic in request.topics:
            name = topic.topic if version < FIRST_VERSION_WITH_IDS else names.get(topic.topic_id)
            if name is not None:
                yield from ((name, requested.partition) for requested in topic.partitions)

    def _handle(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Waiting:
        try:
            plan = self._plan(request, context)
        except KafkaError as error:
            return FetchResponse(error_code=error.code, session_id=NO_SESSION)
        answer = plan.attempt(is_first=True)
        if answer is None:
            return PendingFetch(plan, self._timers, self._reads, request, context.api_version)
        if plan.unready:
            return WorkAnswer(self._reads, plan.finishing(answer), context)
        return answer

    def _plan(self, request: FetchRequest, context: RequestContext) -> FetchPlan:
        """Opens, resumes or ends the session that the request names, and says what to read."""
        version = context.api_version
        uses_topic_ids = version >= FIRST_VERSION_WITH_IDS
        session: FetchSession | None = None
        is_incremental = False
        if version < FIRST_VERSION_WITH_SESSIONS or request.session_epoch == FINAL_EPOCH:
            # kafka-go closes a session -1 that never was: no error, whatever the id.
            self._sessions.remove(request.session_id)
            partitions = requested_partitions(request, uses_topic_ids)
        elif request.session_epoch == INITIAL_EPOCH:
            self._sessions.remove(request.session_id)
            partitions = requested_partitions(request, uses_topic_ids)
            session = self._sessions.admit(
                partitions, uses_topic_ids=uses_topic_ids, is_privileged=False, now_ms=context.now_ms
            )
        else:
            session = self._sessions.resume(request, uses_topic_ids, context.now_ms)
            is_incremental = session is not None
            partitions = session.partitions if session else requested_partitions(request, uses_topic_ids)
        # A copy: the session may change (an aborted request, the next one pipelined) while this one waits.
        return FetchPlan(
            self._leadership,
            self._reads,
            request,
            context,
            list(partitions.values()),
            session,
            is_incremental,
            self._max_bytes,
        )


class FetchPlan:
    """One request, ready to be tried: its partitions in the order of service, its limits, its session."""

    __slots__ = (
        "_connection",
        "_converted_bytes",
        "_is_incremental",
        "_is_limit_hard",
        "_isolation",
        "_leadership",
        "_max_bytes",
        "_may_wait",
        "_min_bytes",
        "_partitions",
        "_reads",
        "_replica_id",
        "_session",
        "_unknown",
        "_version",
        "unready",
        "watchable",
    )

    def __init__(
        self,
        leadership: Leadership,
        reads: WorkQueue,
        request: FetchRequest,
        context: RequestContext,
        partitions: list[FetchedPartition],
        session: FetchSession | None,
        is_incremental: bool,
        max_bytes: int,
    ) -> None:
        version = context.api_version
        self._leadership = leadership
        self._reads = reads
        self._converted_bytes = 0
        self._connection = context.connection
        self._version = version
        self._partitions = partitions
        self._session = session
        self._is_incremental = is_incremental
        self._max_bytes = min(request.max_bytes, max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._is_limit_hard = version < FIRST_VERSION_WITH_MAX_BYTES
        self._isolation = request.isolation_level
        self._replica_id = request.replica_id
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            state = request.replica_state
            self._replica_id = -1 if state is None else state.replica_id
        self._may_wait = request.max_wait_ms > 0 and bool(partitions) and self._min_bytes > 0
        self._unknown: list[tuple[FetchedPartition, PartitionData]] = []
        """What did not exist at the first attempt, with its answer."""
        self.watchable: list[Partition] = []
        """The logs that the last attempt read: what to watch until the next one."""
        self.unready: list[tuple[FetchedPartition, list[PartitionData], int]] = []
        """What `finishing` has work with: the question, and the answer's place in the list of its topic."""

    def attempt(self, *, is_first: bool = False, is_last: bool = False) -> FetchResponse | None:
        """Reads every partition once: the answer, or None when it is worth waiting for more.

        A topic that is unknown at first does not keep the others from waiting, or a consumer of a misspelt
        name would come back without a pause; it is not looked for again. Any other error is answered at once.
        """
        may_wait = self._may_wait and not is_last
        left_bytes = self._max_bytes
        read_bytes = 0
        one_batch = not self._is_limit_hard
        answers = []
        unknown = self._unknown
        self.watchable = watchable = []
        for partition in self._partitions:
            try:
                answer, log = self._read(partition, left_bytes, one_batch)
                watchable.append(log)
            except KafkaError as error:
                answer = self._refusal(partition, error)
                if is_first and error.code in _UNKNOWN_TOPIC:
                    answer.aborted_transactions = []  # as in Kafka's answer, which does not look for records
                    unknown.append((partition, answer))
                    continue
                may_wait = False
            records = answer.records
            assert records is not None
            size = len(records)
            if size:
                one_batch = False
                read_bytes += size
                left_bytes = left_bytes - size if size < left_bytes else 0
            else:
                if left_bytes < 0:
                    # As in Kafka, a limit below zero is an error for the first partition and then 0.
                    left_bytes = 0
                if answer.diverging_epoch is not None:
                    may_wait = False
            answers.append((partition, answer))
        if may_wait and self._may_wait and watchable and read_bytes < self._min_bytes:
            if is_first and unknown:
                missing = {partition for partition, _ in unknown}
                self._partitions = [one for one in self._partitions if one not in missing]
            return None
        # Kafka names what does not exist after all the rest.
        return self._answer(answers + unknown)

    def _read(
        self, partition: FetchedPartition, left_bytes: int, one_batch: bool
    ) -> tuple[PartitionData, Partition]:
        """One partition's share; refuses as ReplicaManager.readFromLog does."""
        led = self._leadership.lead(self._name_of(partition), partition.index)
        if partition.current_leader_epoch >= 0:
            check_leader_epoch(led, partition.current_leader_epoch)
        if self._replica_id >= 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = led.log
        if partition.last_fetched_epoch >= 0:
            diverging = _divergence(led, partition)
            if diverging is not None:
                return diverging, log
        max_bytes = partition.max_bytes if partition.max_bytes < left_bytes else left_bytes
        try:
            result = log.read(
                partition.fetch_offset,
                max_bytes=max_bytes,
                isolation=self._isolation,
                minimum_one_batch=one_batch,
                cut_first_batch=self._is_limit_hard,
                prompt=True,
            )
        except WouldWait as miss:
            question = {
                "max_bytes": max_bytes,
                "isolation": self._isolation,
                "minimum_one_batch": one_batch,
                "cut_first_batch": self._is_limit_hard,
            }
            unread = _Unread(log, partition.fetch_offset, question, miss)
            return _answer_of(partition, log, unread), log
        if (
            self._isolation == READ_COMMITTED
            and partition.fetch_offset > result.last_stable_offset
            and log.is_behind_stable(partition.fetch_offset)
        ):
            self._may_wait = False
        return _answer_of(partition, result, result.records, result.aborted), log

    def finishing(self, response: FetchResponse) -> Work[FetchResponse]:
        """Loads what the disk has to give first, converts what old versions would not understand."""
        for partition, answers, place in self.unready:
            try:
                answers[place] = yield from self._finishing_one(partition, answers[place])
                continue
            except OSError as error:
                refusal = self._unreadable(partition, error)
            except KafkaError as error:
                refusal = error
            answers[place] = self._refusal(partition, refusal)
            if self._session is not None:
                partition.is_news(answers[place])
        return response

    def _unreadable(self, partition: FetchedPartition, error: OSError) -> KafkaError:
        """The disk did not give what is in the log: whoever looks after it is told."""
        try:
            return self._leadership.lead(self._name_of(partition), partition.index).log.reading_failed(error)
        except KafkaError as gone:
            return gone

    def _finishing_one(self, partition: FetchedPartition, answer: PartitionData) -> Work[PartitionData]:
        if isinstance(answer.records, _Unread):
            result = yield from answer.records.reading()
            answer = _answer_of(partition, result, result.records, result.aborted)
        records = answer.records
        if not records:
            return answer
        if self._version < FIRST_VERSION_OF_V2:
            try:
                answer.records = yield from self._converting(partition, records)
            except KafkaError as error:
                answer = self._refusal(partition, error)
                answer.records = None  # as Kafka's answer to what cannot be converted
        elif records.would_wait():
            yield records.load
        return answer

    def _converting(self, partition: FetchedPartition, records: Slice) -> Work[bytes | LatePart]:
        from odradek.wire.down_conversion import CHUNK_BYTES, DownConversion  # few clients are that old

        is_mapped = len(records) >= MAP_AT_LEAST_BYTES
        if not is_mapped and records.would_wait():
            yield records.load
        (view,) = records.buffers()
        conversion = DownConversion(
            view,
            0 if self._version < FIRST_VERSION_OF_V1 else 1,
            partition.fetch_offset,
            load=partial(_load, records) if is_mapped else None,
        )
        yield from conversion.beginning()
        room_bytes = CONVERTED_BYTES_KEPT_MAX - self._converted_bytes
        if conversion.left_bytes <= min(CHUNK_BYTES, room_bytes):
            self._converted_bytes += conversion.left_bytes
            return (yield from conversion.rest())
        if self._converted_bytes and conversion.kept_bytes > room_bytes:
            conversion.forget_first()
        self._converted_bytes += conversion.kept_bytes
        return LatePart(self._reads, conversion.next_piece, conversion.left_bytes)

    def _name_of(self, partition: FetchedPartition) -> str:
        if self._version < FIRST_VERSION_WITH_IDS:
            return partition.topic
        # Looked up each time: the topic may be gone, or made after its session was.
        view = self._leadership.view
        name = view.topic_names.get(partition.topic_id)
        if name is not None:
            partition.name = name
            return name
        # Who has seen it go is told what there is of its name: kept by sessions and while a fetch waits.
        if partition.name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if view.partition(partition.name, partition.index) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)

    def _refusal(self, partition: FetchedPartition, error: KafkaError) -> PartitionData:
        code = error.code
        if code is ErrorCode.CORRUPT_MESSAGE:
            _log_once(str(error))
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version <= LAST_VERSION_WITHOUT_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionData(
            partition_index=partition.index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )

    def _is_in_zstd(self, partition: FetchedPartition) -> bool:
        """Whether it is the codec of the topic."""
        try:
            led = self._leadership.lead(partition.topic, partition.index)
        except KafkaError:
            return False
        return led.log.config.codec is Compression.ZSTD

    def _refusal_of_zstd(self, partition: FetchedPartition) -> PartitionData:
        """Versions 0 to 9: nothing of such a topic, whatever is in it (KIP-110; Kafka 4.3 looks no more)."""
        refusal = self._refusal(partition, KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
        refusal.records = None  # as Kafka's answer to what cannot be read
        refusal.aborted_transactions = []
        return refusal

    def _answer(self, answers: list[tuple[FetchedPartition, PartitionData]]) -> FetchResponse:
        """The response with what is news; remembers in the session what the client will know."""
        session = self._session
        response = FetchResponse(session_id=NO_SESSION if session is None else session.id)
        topics = response.responses
        current_name: str | None = None
        current_id: bytes | None = None
        served: list[FetchedPartition] = []
        is_old = self._version < FIRST_VERSION_OF_V2
        self.unready = unready = []
        for partition, answer in answers:
            is_ready = True
            if answer.records:
                try:
                    is_ready = not is_old and not answer.records.would_wait()
                except OSError as error:
                    answer = self._refusal(partition, self._unreadable(partition, error))
            if session is not None:
                is_news = partition.is_news(answer)
                if self._is_incremental:
                    if not is_news:
                        continue
                    if answer.records:
                        served.append(partition)
            if self._version < FIRST_VERSION_WITH_ZSTD and self._is_in_zstd(partition):
                answer, is_ready = self._refusal_of_zstd(partition), True
            if answer.error_code in _MOVED and self._version >= FIRST_VERSION_WITH_ENDPOINTS:
                self._name_the_leader(response, partition, answer)
            if partition.topic != current_name or partition.topic_id != current_id:
                current_name, current_id = partition.topic, partition.topic_id
                topics.append(FetchableTopicResponse(topic=current_name, topic_id=current_id))
            partitions = topics[-1].partitions
            if not is_ready:
                unready.append((partition, partitions, len(partitions)))
            partitions.append(answer)
        if session is not None and served:
            session.serve_later(served)
        return response

    def _name_the_leader(
        self, response: FetchResponse, partition: FetchedPartition, answer: PartitionData
    ) -> None:
        name = self._leadership.view.topic_names.get(partition.topic_id)
        hint = leader_hint(self._leadership, name, partition.index, self._connection)
        if hint is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            add_endpoint(response.node_endpoints, NodeEndpoint, hint)


def _load(records: Slice, start: int, size_bytes: int) -> None:
    """Before a stretch of what an answer under way converts is touched."""
    try:
        records.load(start, size_bytes)
    except FileNotFoundError:
        pass  # retention took the segment, but its mapping stays as long as it is read


class _Unread:
    """Stands for the records in an answer until the disk has shown where they are. As long as they may be:
    what is left of the limits is for the others."""

    __slots__ = ("_log", "_miss", "_offset", "_question")

    def __init__(self, log: Partition, offset: int, question: dict[str, Any], miss: WouldWait) -> None:
        self._log = log
        self._offset = offset
        self._question = question
        self._miss = miss

    def __len__(self) -> int:
        asked: int = self._question["max_bytes"]
        return max(asked, 1)

    def would_wait(self) -> bool:
        return True

    def reading(self) -> Work[ReadResult]:
        """What `Partition.read` gives, and raises, once it has been waited for; also `OSError`."""
        miss = self._miss
        # Most of what lies behind a header is the answer.
        ahead_bytes = min(len(self), AHEAD_BYTES_MAX) + AHEAD_OF_LIMIT_BYTES
        for _ in range(LOOKS_MAX):
            yield partial(miss.load, ahead_bytes)
            try:
                return self._log.read(self._offset, prompt=True, **self._question)
            except WouldWait as another:
                miss = another
        return self._log.read(self._offset, **self._question)


def _answer_of(
    partition: FetchedPartition,
    offsets: Partition | ReadResult,
    records: Slice | _Unread,
    aborted: list[tuple[int, int]] | None = None,
) -> PartitionData:
    """`offsets`: who says where the log begins and ends."""
    return PartitionData(
        partition_index=partition.index,
        error_code=0,
        high_watermark=offsets.high_watermark,
        last_stable_offset=offsets.last_stable_offset,
        log_start_offset=offsets.log_start_offset,
        # Null, not empty, for those who read everything: librdkafka complains about a list that it did not
        # ask for.
        aborted_transactions=(
            None
            if aborted is None
            else [AbortedTransaction(producer_id=one[0], first_offset=one[1]) for one in aborted]
        ),
        records=records,
    )


class PendingFetch(Waiting):
    """A plan that waits: for one of its partitions to move, or for its deadline.

    Nothing runs between the attempt that found too little and the registration here, so no wake-up is lost.
    A wake-up comes from within a commit; the attempt runs after it, once, when all of that turn's commits
    are done.
    """

    __slots__ = (
        "_deadline",
        "_plan",
        "_reads",
        "_request",
        "_retry_timer",
        "_timers",
        "_version",
        "_wake",
        "_watched",
    )

    def __init__(
        self, plan: FetchPlan, timers: Timers, reads: WorkQueue, request: FetchRequest, version: int
    ) -> None:
        super().__init__(self._stop)
        self._plan = plan
        self._reads = reads
        self._timers = timers
        self._request = request
        self._version = version
        self._wake = self._wake_up
        self._retry_timer: TimerHandle | None = None
        self._watched: list[Partition] = []
        self._watch(plan.watchable)
        self._deadline = timers.after(request.max_wait_ms, self._expire)

    def _watch(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            partition.watch(self._wake)
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
            answer = self._plan.attempt(is_last=is_last)
        except Exception:
            logger.exception("a waiting fetch failed")
            answer = _failure(self._request, self._version)
        if answer is not None:
            self._stop()
            if self._plan.unready:
                self._reads.run(self._plan.finishing(answer), self.complete, self._failed)
            else:
                self.complete(answer)
        elif self._plan.watchable != self._watched:
            self._unwatch()
            self._watch(self._plan.watchable)

    def _failed(self, error: Exception) -> None:
        logger.error("a waiting fetch failed", exc_info=error)
        self.complete(_failure(self._request, self._version))

    def _stop(self) -> None:
        self._unwatch()
        self._deadline.cancel()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None


def _log_once(damage: str) -> None:
    if damage not in _logged_damage and len(_logged_damage) < _LOGGED_DAMAGE_MAX:
        _logged_damage.add(damage)
        logger.error("%s", damage)


def _divergence(led: LedPartition, partition: FetchedPartition) -> PartitionData | None:
    """Where the fetcher's log left ours, if it did (KIP-595); consumers ask, too: kafka-python does."""
    log = led.log
    epoch, end_offset = end_offset_for_epoch(led, partition.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= partition.last_fetched_epoch and end_offset >= partition.fetch_offset:
        return None
    return PartitionData(
        partition_index=partition.index,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=_NO_RECORDS,
    )


def _failure(request: FetchRequest, version: int) -> FetchResponse:
    """The answer when we failed as a whole: told where clients of that version look for it."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=code, session_id=request.session_id)
    if version < FIRST_VERSION_WITH_IDS:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=requested.partition,
                        error_code=code,
                        high_watermark=-1,
                        records=_NO_RECORDS,
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response
