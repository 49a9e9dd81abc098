"""Incremental fetch sessions (KIP-227): the partitions of a client, remembered between its requests.

A client that fetches a thousand partitions names them once; later requests and responses carry only changes.
The cache keeps a bounded number of sessions (`max.incremental.fetch.session.cache.slots`) and evicts by
Kafka's rules: first a session unused for two minutes; else a session that has had its slot for two minutes,
if the new session has more partitions. Sessions of followers, once they fetch, have priority over consumers.

Source: FetchSession, FetchSessionCacheShard and FetchManager of Kafka. Session ids are random, so that a
client of a restarted broker does not use the session of another client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from secrets import randbelow
from typing import TYPE_CHECKING

from odradek.apis.fetch_plan import PlannedPartition
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
"""How long a session keeps its slot against a bigger one, and how long it may be idle (FetchSession.scala).
"""
MAX_PARTITIONS_PER_SESSION = 100_000
"""A session that would grow beyond this is removed: its client fetches without one, or begins a new one."""

PARTITIONS_OF_SMALL_SESSION = 1_000
MAX_PARTITIONS_OF_LARGE_SESSIONS = 2_000_000
"""Limit of partitions in all larger sessions together (some 300 MB): slots limit only their number."""

_NOTHING_SENT = -1
_MAX_INT32 = 0x7FFFFFFF

PartitionKey = tuple[str | bytes, int]
"""Topic name (before version 13) or topic id, and partition number."""


class FetchedPartition(PlannedPartition):
    """One partition of a client's fetch: where to read, and the values of the last response."""

    __slots__ = ("sent_high_watermark", "sent_log_start_offset")

    def __init__(self, topic: str, topic_id: bytes, requested: FetchPartition) -> None:
        # Repeats `PlannedPartition.__init__` for speed: a fetch without a session makes one object a
        # partition.
        self.topic = topic
        self.topic_id = topic_id
        self.name: str | None = None
        self.index = requested.partition
        self.sent_high_watermark = _NOTHING_SENT
        self.sent_log_start_offset = _NOTHING_SENT
        self.fetch_offset = requested.fetch_offset
        self.max_bytes = requested.partition_max_bytes
        self.current_leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.log_start_offset = requested.log_start_offset

    def ask(self, requested: FetchPartition) -> None:
        """Takes over the values of a later request of the session."""
        self.fetch_offset = requested.fetch_offset
        self.max_bytes = requested.partition_max_bytes
        self.current_leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.log_start_offset = requested.log_start_offset

    def is_news(self, data: PartitionData) -> bool:
        """Whether an incremental response has to include this partition; remembers the values sent.

        Errors, diverging epochs and preferred replicas are always included, and so is the first entry after
        an error.
        """
        news = bool(data.records)
        if data.high_watermark != self.sent_high_watermark:
            self.sent_high_watermark = data.high_watermark
            news = True
        if data.log_start_offset != self.sent_log_start_offset:
            self.sent_log_start_offset = data.log_start_offset
            news = True
        if data.error_code:
            self.sent_high_watermark = _NOTHING_SENT
            return True
        return news or data.diverging_epoch is not None or data.preferred_read_replica >= 0


class FetchSession:
    """The partitions that one client fetches, in the order of reading."""

    __slots__ = ("created_ms", "epoch", "id", "is_privileged", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, FetchedPartition],
        *,
        uses_topic_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, request: FetchRequest) -> None:
        """Adds and changes the partitions of an incremental request and drops the forgotten ones."""
        partitions = self.partitions
        for requested_topic in request.topics:
            topic_key = requested_topic.topic_id if self.uses_topic_ids else requested_topic.topic
            for requested in requested_topic.partitions:
                key = (topic_key, requested.partition)
                partition = partitions.get(key)
                if partition is None:
                    partitions[key] = FetchedPartition(
                        requested_topic.topic, requested_topic.topic_id, requested
                    )
                else:
                    partition.ask(requested)
        for forgotten in request.forgotten_topics_data:
            topic_key = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                partitions.pop((topic_key, index), None)

    def serve_later(self, served: Iterable[FetchedPartition]) -> None:
        """Moves partitions that had records to the end, so that a busy one cannot starve the others."""
        for partition in served:
            key = (partition.topic_id if self.uses_topic_ids else partition.topic, partition.index)
            if key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)


def next_epoch(epoch: int) -> int:
    """The epoch that the client's next incremental request carries; wraps to 1, never to 0."""
    return 1 if epoch == _MAX_INT32 else epoch + 1


def requested_partitions(request: FetchRequest, uses_topic_ids: bool) -> dict[PartitionKey, FetchedPartition]:
    """The partitions of a full request, in its order; if one is named twice, the last counts, as in Kafka."""
    partitions: dict[PartitionKey, FetchedPartition] = {}
    for requested_topic in request.topics:
        name, topic_id = requested_topic.topic, requested_topic.topic_id
        topic_key = topic_id if uses_topic_ids else name
        for requested in requested_topic.partitions:
            partitions[topic_key, requested.partition] = FetchedPartition(name, topic_id, requested)
    return partitions


def _random_session_id() -> int:
    return 1 + randbelow(_MAX_INT32)


class FetchSessionCache:
    """Holds at most `slots` sessions, least recently used first."""

    __slots__ = ("_random_session_id", "_sessions", "evicted_count", "slots")

    def __init__(self, slots: int, random_session_id: Callable[[], int] = _random_session_id) -> None:
        assert slots >= 0, slots
        self.slots = slots
        self.evicted_count = 0
        self._random_session_id = random_session_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        """The number of partitions in all sessions, for metrics."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def remove(self, session_id: int) -> None:
        """Ends a session; no effect if there is none of that id."""
        self._sessions.pop(session_id, None)

    def resume(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """The session of an incremental request, updated and moved to its next epoch.

        None when the request leaves no partition in it: the session ends. Refuses with
        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            del self._sessions[session.id]
            return None
        if not self._has_memory_for(len(session.partitions), session):
            del self._sessions[session.id]
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        return session

    def go_on(self, session: FetchSession, now_ms: int) -> bool:
        """Moves the session to its next epoch, with the partitions that it has. False if it has lost its
        slot."""
        if self._sessions.get(session.id) is not session:
            return False
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        return True

    def admit(
        self,
        partitions: dict[PartitionKey, FetchedPartition],
        *,
        uses_topic_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """A new session with these partitions, or None when there is no slot for it."""
        if not partitions or not self._has_memory_for(len(partitions)):
            return None
        if len(self._sessions) >= self.slots and not self._make_room(len(partitions), is_privileged, now_ms):
            return None
        session_id = self._random_session_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_session_id()
        session = FetchSession(
            session_id, partitions, uses_topic_ids=uses_topic_ids, is_privileged=is_privileged, now_ms=now_ms
        )
        self._sessions[session_id] = session
        return session

    def _has_memory_for(self, size: int, own: FetchSession | None = None) -> bool:
        if size <= PARTITIONS_OF_SMALL_SESSION:
            return True
        if size > MAX_PARTITIONS_PER_SESSION:
            return False
        others = sum(
            len(session.partitions)
            for session in self._sessions.values()
            if session is not own and len(session.partitions) > PARTITIONS_OF_SMALL_SESSION
        )
        return others + size <= MAX_PARTITIONS_OF_LARGE_SESSIONS

    def _make_room(self, size: int, is_privileged: bool, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        victim: FetchSession | None = None
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            victim = oldest
        else:
            newcomer = (is_privileged, size, 0)
            victim = min(
                (s for s in self._sessions.values() if _may_be_evicted(s, is_privileged, now_ms)),
                key=_eviction_order,
                default=None,
            )
            if victim is not None and newcomer < _eviction_order(victim):
                victim = None
        if victim is None:
            return False
        del self._sessions[victim.id]
        self.evicted_count += 1
        return True


def _eviction_order(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_privileged, len(session.partitions), session.id


def _may_be_evicted(session: FetchSession, by_privileged: bool, now_ms: int) -> bool:
    """A follower may take any consumer's slot; a consumer only a slot that was held for long enough."""
    if by_privileged and not session.is_privileged:
        return True
    return session.last_used_ms - session.created_ms > EVICTION_MS
