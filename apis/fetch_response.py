"""Makes the response of Fetch from the outcomes of an attempt, in the version of the request.

Records that are not in the page cache are loaded in a worker thread before the response is sent, and so are
the headers that locate records: a page fault in the event loop would stop all connections. For versions 0 to
3 records are converted to formats v0 and v1, batch by batch while other clients are served; long responses
are converted only as fast as the client reads them.

Source: KafkaApis.handleFetchRequest of Kafka 4.3, of 3.9 for versions 0 to 3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cache, partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from odradek.apis.api import LatePart
from odradek.apis.fetch_plan import (
    CaughtUp,
    Diverging,
    Elsewhere,
    Missing,
    Outcome,
    PlannedPartition,
    Unread,
    name_of,
)
from odradek.apis.fetch_sessions import NO_SESSION, FetchedPartition, FetchSession, FetchSessionCache
from odradek.apis.leadership import MOVED, Leadership, add_endpoint, leader_hint
from odradek.storage.log.partition import ReadResult
from odradek.storage.log.slices import MAP_AT_LEAST_BYTES
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
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.security.client_meters import FetchCharge
    from odradek.storage.log.partition import Partition
    from odradek.storage.log.slices import Slice
    from odradek.wire.work import Work

T = TypeVar("T")
logger = logging.getLogger("odradek.fetch")

FIRST_VERSION_OF_V1 = 2
FIRST_VERSION_OF_V2 = 4
FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_FROM_FOLLOWERS = 11
"""A follower refuses an older Fetch with NOT_LEADER_OR_FOLLOWER (KAFKA-9004)."""
FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_ENDPOINTS = 16
LAST_VERSION_WITHOUT_STORAGE_ERROR = 5

CONVERTED_BYTES_KEPT_MAX = 1024 * 1024
"""The limit for bytes of one response that are converted before it is sent. Partitions beyond it have their
first batches converted twice: once to know the sizes, once while they are sent."""
_NO_RECORDS = b""
_LOGGED_DAMAGE_MAX = 100
_logged_damage: set[str] = set()
"""Damage that was logged: consumers retry the same offset all the time."""


class FetchResponseBuilder:
    """Makes the response to one request. `session` is the session that the request opened or resumed, if
    any."""

    __slots__ = (
        "_charge",
        "_connection",
        "_converted_bytes",
        "_is_incremental",
        "_is_of_replica",
        "_leadership",
        "_reads",
        "_session",
        "_sessions",
        "_version",
        "unready",
    )

    def __init__(
        self,
        leadership: Leadership,
        reads: WorkQueue,
        context: RequestContext,
        session: FetchSession | None,
        is_incremental: bool,
        is_of_replica: bool,
        sessions: FetchSessionCache | None = None,
        charge: FetchCharge | None = None,
    ) -> None:
        """`charge` is of the client's quotas; None: there are none for it."""
        self._charge = charge
        self._sessions = sessions
        self._leadership = leadership
        self._reads = reads
        self._converted_bytes = 0
        self._connection = context.connection
        self._version = context.api_version
        self._session = session
        self._is_incremental = is_incremental
        self._is_of_replica = is_of_replica  # it knows the addresses of all brokers
        self.unready: list[tuple[FetchedPartition, list[PartitionData], int]]
        """Set by `response` for `finishing`: partitions and their indexes in the lists of their topics."""

    def measured(self, run: Callable[[], T]) -> T:
        """Result of `run()`; its time is charged."""
        if self._charge is None:
            return run()
        began_ns = perf_counter_ns()
        result = run()
        self._charge.add(perf_counter_ns() - began_ns)
        return result

    def response(self, outcomes: list[tuple[FetchedPartition, Outcome]]) -> FetchResponse:
        """The response, in a session only with changed partitions; the session remembers the client's new
        state. If the client has to wait, the response is empty, and the session stays as it was."""
        session, version = self._session, self._version
        if self._charge is not None:
            wait_ms = self._charge.throttle_ms(response_bytes(outcomes, version, self._is_incremental))
            if wait_ms:
                return self._empty_response(wait_ms)
        response = FetchResponse(session_id=NO_SESSION if session is None else session.id)
        topics = response.responses
        current_name: str | None = None
        current_id: bytes | None = None
        served: list[FetchedPartition] = []
        is_old = version < FIRST_VERSION_OF_V2
        self.unready = unready = []
        for partition, outcome in outcomes:
            if outcome.__class__ is ReadResult:
                data = _data_of(partition, outcome, outcome.records, outcome.aborted)
            else:
                data = self._data_of_other(partition, outcome)
            is_ready, records = True, data.records
            if records:
                try:
                    is_ready = not is_old and not records.would_wait()
                except OSError as error:
                    data = self._refusal(partition, self._unreadable(partition, error))
            if session is not None:
                is_news = partition.is_news(data)
                if self._is_incremental:
                    if not is_news:
                        continue
                    if data.records:
                        served.append(partition)
            if version < FIRST_VERSION_OF_V2 and self._is_in_zstd(partition):
                data, is_ready = self._refusal_of_zstd(partition), True
            if data.error_code in MOVED and version >= FIRST_VERSION_WITH_ENDPOINTS:
                self._name_the_leader(response, partition, data)
            if partition.topic != current_name or partition.topic_id != current_id:
                current_name, current_id = partition.topic, partition.topic_id
                topics.append(FetchableTopicResponse(topic=current_name, topic_id=current_id))
            partitions = topics[-1].partitions
            if not is_ready:
                unready.append((partition, partitions, len(partitions)))
            partitions.append(data)
        if session is not None and served:
            session.serve_later(served)
        return response

    def _empty_response(self, wait_ms: int) -> FetchResponse:
        """A session that would begin with it does not, as in Kafka."""
        self.unready = []
        session_id, session = NO_SESSION, self._session
        if session is not None and self._is_incremental:
            session_id = session.id
        elif session is not None and self._sessions is not None:
            self._sessions.remove(session.id)
        return FetchResponse(session_id=session_id, throttle_time_ms=wait_ms)

    def finishing(self, response: FetchResponse) -> Work[FetchResponse]:
        """Loads records from disk, and converts them for old versions."""
        for partition, partitions, place in self.unready:
            try:
                partitions[place] = yield from self._finishing_one(partition, partitions[place])
                continue
            except OSError as error:
                refusal = self._unreadable(partition, error)
            except KafkaError as error:
                refusal = error
            partitions[place] = self._refusal(partition, refusal)
            if self._session is not None:
                partition.is_news(partitions[place])
        return response

    # One partition

    def _data_of_other(self, partition: PlannedPartition, outcome: Outcome) -> PartitionData:
        """The entry for an outcome without records, or with records that are still to be located."""
        if isinstance(outcome, CaughtUp):
            return _data_of(partition, outcome.log, _NO_RECORDS)
        if isinstance(outcome, KafkaError):
            return self._refusal(partition, outcome)
        if isinstance(outcome, Unread):
            return _data_of(partition, outcome.log, outcome)
        if isinstance(outcome, Diverging):
            data = _data_of(partition, outcome.log, _NO_RECORDS)
            data.diverging_epoch = EpochEndOffset(epoch=outcome.epoch, end_offset=outcome.end_offset)
            return data
        if isinstance(outcome, Elsewhere):
            data = _data_of(partition, outcome.log, _NO_RECORDS)
            data.preferred_read_replica = outcome.replica_id
            return data
        assert isinstance(outcome, Missing)
        data = self._refusal(partition, outcome.error)
        data.aborted_transactions = []  # as in Kafka's response, which reads no records
        return data

    def _finishing_one(self, partition: PlannedPartition, data: PartitionData) -> Work[PartitionData]:
        if isinstance(data.records, Unread):
            charged_bytes = len(data.records)
            result = yield from data.records.reading()
            if self._charge is not None:
                self._charge.take_back(charged_bytes - len(result.records))
            data = _data_of(partition, result, result.records, result.aborted)
        records = data.records
        if not records:
            return data
        if self._version < FIRST_VERSION_OF_V2:
            try:
                data.records = yield from self._converting(partition, records)
            except KafkaError as error:
                data = self._refusal(partition, error)
                data.records = None  # Kafka's response for records that cannot be converted
        elif records.would_wait():
            yield records.load
        return data

    def _converting(self, partition: PlannedPartition, records: Slice) -> Work[bytes | LatePart]:
        from odradek.wire.down_conversion import CHUNK_BYTES, DownConversion  # few clients need it

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

    def _unreadable(self, partition: PlannedPartition, error: OSError) -> KafkaError:
        """Reading from disk failed: reports it to the store."""
        try:
            name = partition.topic
            if self._version >= FIRST_VERSION_WITH_IDS:
                name = name_of(partition, self._leadership)
            return self._leadership.hold(name, partition.index).log.availability.refusal("Reading", error)
        except KafkaError as gone:
            return gone

    def _refusal(self, partition: PlannedPartition, error: KafkaError) -> PartitionData:
        code = error.code
        if code is ErrorCode.CORRUPT_MESSAGE:
            _log_once(str(error))
        self._leadership.note_refused_fetch(partition.name or partition.topic, partition.index, code)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version <= LAST_VERSION_WITHOUT_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionData(
            partition_index=partition.index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )

    def _is_in_zstd(self, partition: PlannedPartition) -> bool:
        """Whether the topic's codec is zstd."""
        try:
            led = self._leadership.lead(partition.topic, partition.index)
        except KafkaError:
            return False
        return led.log.config.codec is Compression.ZSTD

    def _refusal_of_zstd(self, partition: PlannedPartition) -> PartitionData:
        """Versions 0 to 3 get no records of such a topic, whatever is in it, as of Kafka 3.9. That refuses
        versions 4 to 9, too (KIP-110). Kafka 4 gives them the records: clients that can read zstd but were
        set to an old version fail otherwise, or ask for ever (KAFKA-18646).
        """
        refusal = self._refusal(partition, KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
        refusal.records = None  # Kafka's response for records that cannot be read
        refusal.aborted_transactions = []
        return refusal

    def _name_the_leader(
        self, response: FetchResponse, partition: PlannedPartition, data: PartitionData
    ) -> None:
        name = self._leadership.view.topic_names.get(partition.topic_id)
        hint = leader_hint(self._leadership, name, partition.index, self._connection)
        if hint is not None:
            data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            if not self._is_of_replica:
                add_endpoint(response.node_endpoints, NodeEndpoint, hint)


def response_bytes(
    outcomes: Iterable[tuple[PlannedPartition, Outcome]], version: int, is_incremental: bool
) -> int:
    """Size of the response in bytes, as Kafka counts it for quotas (`FetchResponse.sizeOf`): without its
    header, and with all records in the format of the log. Of an incremental one only partitions with records
    count; those with other news do not."""
    size_bytes, topic_bytes, partition_bytes = _fixed_bytes(version)
    topic = None
    for partition, outcome in outcomes:
        records_bytes = len(getattr(outcome, "records", _NO_RECORDS))
        if is_incremental and not records_bytes:
            continue
        one = (partition.topic, partition.topic_id)
        if one != topic:
            topic = one
            size_bytes += topic_bytes
            if version < FIRST_VERSION_WITH_IDS:
                size_bytes += len(partition.topic.encode())
        size_bytes += partition_bytes + records_bytes
    return size_bytes


@cache
def _fixed_bytes(version: int) -> tuple[int, int, int]:
    """Bytes of a response, of each topic without its name, and of each partition without its records."""
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    length_bytes, name_bytes, tags_bytes = (1, 1, 1) if is_flexible else (4, 2, 0)
    partition_bytes = 14 + (4 if not is_flexible else 3) + tags_bytes
    if version >= FIRST_VERSION_OF_V2:
        partition_bytes += 8 + length_bytes
    if version >= FIRST_VERSION_WITH_LOG_START:
        partition_bytes += 8
    if version >= FIRST_VERSION_FROM_FOLLOWERS:
        partition_bytes += 4
    size_bytes = 4 + length_bytes + tags_bytes
    if version >= 1:
        size_bytes += 4
    if version >= FIRST_VERSION_WITH_SESSIONS:
        size_bytes += 6
    topic_bytes = (16 if version >= FIRST_VERSION_WITH_IDS else name_bytes) + length_bytes + tags_bytes
    return size_bytes, topic_bytes, partition_bytes


def _load(records: Slice, start: int, size_bytes: int) -> None:
    """Loads a stretch of records before the conversion of a response that is being sent reads it."""
    try:
        records.load(start, size_bytes)
    except FileNotFoundError:
        pass  # retention deleted the segment, but its mapping stays while it is in use


def _data_of(
    partition: PlannedPartition,
    offsets: Partition | ReadResult,
    records: Slice | Unread | bytes,
    aborted: list[tuple[int, int]] | None = None,
) -> PartitionData:
    """`offsets` has the log's start and end."""
    return PartitionData(
        partition_index=partition.index,
        error_code=0,
        high_watermark=offsets.high_watermark,
        last_stable_offset=offsets.last_stable_offset,
        log_start_offset=offsets.log_start_offset,
        # Null, not empty, for readers of uncommitted records: librdkafka logs a complaint about any list
        # there.
        aborted_transactions=(
            None
            if aborted is None
            else [AbortedTransaction(producer_id=one[0], first_offset=one[1]) for one in aborted]
        ),
        records=records,
    )


def _log_once(damage: str) -> None:
    if damage not in _logged_damage and len(_logged_damage) < _LOGGED_DAMAGE_MAX:
        _logged_damage.add(damage)
        logger.error("%s", damage)


def failure(request: FetchRequest, version: int) -> FetchResponse:
    """The response when the whole request failed: the error is where clients of that version expect it."""
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
