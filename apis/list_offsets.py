"""ListOffsets (key 2, versions 0 to 11): start and end of a log, and offsets by timestamp.

Special timestamps: -1 latest, -2 earliest, -3 offset of the largest timestamp, -4 earliest local, -5 latest
tiered, -6 earliest pending upload. There is no tiered storage, so -4 is -2, and -5 and -6 have the results of
a Kafka without it. A search by time may decompress a batch of many megabytes, so it is a `Work`. A reader of
committed records (isolation level 1, from version 2 on) finds nothing after the last stable offset.

A follower's request (with a replica id) is about the log itself, a client's about what all replicas have. Who
compares replicas (id -2) may ask any of them.

Source: KafkaApis.handleListOffsetRequest, ReplicaManager.fetchOffset, UnifiedLog.fetchOffsetByTimestamp of
Kafka 4.3; KafkaApis.handleListOffsetRequestV0 of 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api
from odradek.apis.leadership import Leadership, LedPartition, check_leader_epoch
from odradek.apis.opening import OPENED_AT_ONCE_MAX, opened_first
from odradek.apis.prefixes import Ask, Prefix
from odradek.storage.log.partition import READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import PLACEHOLDER_32, PLACEHOLDERS, response_template
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.turn import WorkQueue
    from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION_OF = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
FIRST_VERSION_WITH_EPOCH = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
CONSUMER_ID, DEBUGGING_ID = -1, -2
"""Replica ids of those that are no replica."""
NO_ISOLATION = -2
"""A level that no request may have."""
REPEATED_VERSIONS = range(FIRST_VERSION_WITH_EPOCH, 12)
"""Versions whose requests are remembered: the template of the response includes a leader epoch."""
NOT_FOUND = (-1, -1, -1)
"""Timestamp, offset and leader epoch if there is no such record: not an error."""
_PLACEHOLDERS = (*PLACEHOLDERS[:2], PLACEHOLDER_32)


class ListOffsets:
    """The handler."""

    __slots__ = ("_leadership", "_work")

    def __init__(self, leadership: Leadership, work: WorkQueue) -> None:
        self._leadership = leadership
        self._work = work

    @property
    def prefix(self) -> Prefix[ListOffsetsRequest]:
        """Clients repeat requests for one end of one log."""
        return Prefix(REPEATED_VERSIONS, self._learn)

    def _learn(self, request: ListOffsetsRequest, context: RequestContext) -> Ask | None:
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return None
        name, requested = request.topics[0].name, request.topics[0].partitions[0]
        if _is_search(requested.timestamp):
            return None
        version = context.api_version
        try:
            # The offset may change with every record, all other fields only with the view.
            find = self._find_for(request)
            finish(self._partition_response(find, name, requested, _isolation_of(request), version, 0))
            led = find(name, requested.partition_index)
        except KafkaError:
            return None
        timestamp, offset, leader_epoch = _PLACEHOLDERS
        partition = ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            error_code=0,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=leader_epoch,
        )
        topic = ListOffsetsTopicResponse(name=name, partitions=[partition])
        response = ListOffsetsResponse(topics=[topic])
        return Ask(
            partial(_known_end, led, requested.timestamp, _isolation_of(request)),
            response_template(response, version, _PLACEHOLDERS),
        )

    def __call__(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | WorkResponse:
        topics = request.topics
        if sum([len(topic.partitions) for topic in topics]) > OPENED_AT_ONCE_MAX:
            partitions = ((topic.name, one.partition_index) for topic in topics for one in topic.partitions)
            handle = partial(self._handle, request, context)
            response = opened_first(self._leadership, self._work, context, partitions, handle)
            if response is not None:
                return response
        return self._handle(request, context)

    def _handle(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | WorkResponse:
        responding = self._responding(request, context)
        for topic in request.topics:
            for requested in topic.partitions:
                if _is_search(requested.timestamp):
                    return WorkResponse(self._work, responding, context)
        return finish(responding)

    def _responding(self, request: ListOffsetsRequest, context: RequestContext) -> Work[ListOffsetsResponse]:
        version, now_ms = context.api_version, context.now_ms
        isolation, find = _isolation_of(request), self._find_for(request)
        # Version 0 answers duplicates each time; later versions have each topic once, and no partition twice.
        twice = _named_twice(request) if version > 0 else {}
        topics: list[ListOffsetsTopicResponse] = []
        unauthorized: list[ListOffsetsTopicResponse] = []
        known: dict[str, ListOffsetsTopicResponse] = {}
        for topic in request.topics:
            name = topic.name
            if context.refused and context.refuses(Operation.DESCRIBE, ResourceType.TOPIC, name):
                unauthorized.append(_unauthorized(topic))
                continue
            response = known.get(name) if version > 0 else None
            if response is None:
                response = known[name] = ListOffsetsTopicResponse(name=name, partitions=[])
                topics.append(response)
            partitions = response.partitions
            for requested in topic.partitions:
                try:
                    if twice and (name, requested.partition_index) in twice:
                        if twice[name, requested.partition_index]:
                            continue
                        twice[name, requested.partition_index] = True
                        raise KafkaError(ErrorCode.INVALID_REQUEST)
                    partitions.append(
                        (
                            yield from self._partition_response(
                                find, name, requested, isolation, version, now_ms
                            )
                        )
                    )
                except KafkaError as error:
                    partitions.append(
                        ListOffsetsPartitionResponse(
                            partition_index=requested.partition_index, error_code=error.code
                        )
                    )
        return ListOffsetsResponse(topics=topics + unauthorized)

    def _find_for(self, request: ListOffsetsRequest) -> Callable[[str, int], LedPartition]:
        return self._leadership.hold if request.replica_id == DEBUGGING_ID else self._leadership.lead

    def _partition_response(
        self,
        find: Callable[[str, int], LedPartition],
        name: str,
        requested: ListOffsetsPartition,
        isolation: int,
        version: int,
        now_ms: int,
    ) -> Work[ListOffsetsPartitionResponse]:
        if version == 0:
            if requested.timestamp < EARLIEST:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            return self._old_style(name, requested, now_ms)
        if isolation == NO_ISOLATION:
            # Kafka fails here with this error.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        timestamp = requested.timestamp
        # Kafka refuses this before it checks whether the partition exists.
        if timestamp < 0 and version < FIRST_VERSION_OF.get(timestamp, version + 1):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        led = find(name, requested.partition_index)
        check_leader_epoch(led, requested.current_leader_epoch)
        found_timestamp, offset, leader_epoch = yield from finding(led, timestamp, isolation)
        if isolation != READ_LOG_END and (timestamp == LATEST or _is_search(timestamp)):
            self._check_offset(led, timestamp, offset, version)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            error_code=0,
            timestamp=found_timestamp,
            offset=offset,
            leader_epoch=leader_epoch if version >= FIRST_VERSION_WITH_EPOCH else -1,
        )

    def _check_offset(self, led: LedPartition, timestamp: int, offset: int, version: int) -> None:
        """A new leader's high watermark may be before the former one's for a while: what a client has read
        already must not seem to be gone (KIP-207)."""
        replicas = self._leadership.replicas
        if replicas is None or (timestamp != LATEST and offset >= 0):
            return
        if not replicas.has_offsets((led.log.topic, led.log.index)):
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE
                if version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
                else ErrorCode.LEADER_NOT_AVAILABLE
            )

    def _old_style(
        self, name: str, requested: ListOffsetsPartition, now_ms: int
    ) -> ListOffsetsPartitionResponse:
        """Version 0: up to `max_num_offsets` base offsets of segments older than a time, newest first."""
        led = self._leadership.lead(name, requested.partition_index)
        wanted = requested.max_num_offsets
        if wanted < 0:
            # Kafka fails here with this error.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        offsets = _segment_offsets_before(led, requested.timestamp, now_ms)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index, error_code=0, old_style_offsets=offsets[:wanted]
        )


def _unauthorized(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    """All partitions of a topic that the client may not describe."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
        for one in topic.partitions
    ]
    return ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _isolation_of(request: ListOffsetsRequest) -> int:
    """A follower asks for the end of the log itself."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return NO_ISOLATION
    return request.isolation_level if request.replica_id == CONSUMER_ID else READ_LOG_END


def _named_twice(request: ListOffsetsRequest) -> dict[tuple[str, int], bool]:
    """The partitions that are named more than once; the value is True when the response has them."""
    topics = request.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return {}
    seen = Counter(
        (topic.name, requested.partition_index) for topic in topics for requested in topic.partitions
    )
    return {key: False for key, count in seen.items() if count > 1}


def _is_search(timestamp: int) -> bool:
    """Whether the response needs records."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def finding(led: LedPartition, timestamp: int, isolation: int) -> Work[tuple[int, int, int]]:
    """(timestamp, offset, leader epoch) for a client of this isolation level."""
    if not _is_search(timestamp):
        return _known_end(led, timestamp, isolation)
    log = led.log
    if timestamp == MAX_TIMESTAMP:
        found = yield from log.search.finding_max_timestamp()
    else:
        found = yield from log.search.finding_timestamp(timestamp)
    # A record that the client may not read yet does not count.
    end = log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark
    if found is None or (found[1] >= end and isolation != READ_LOG_END):
        return NOT_FOUND
    return found


def _known_end(led: LedPartition, timestamp: int, isolation: int) -> tuple[int, int, int]:
    """`finding` for special timestamps, which need no search."""
    log = led.log
    if timestamp == LATEST:
        if isolation == READ_UNCOMMITTED:
            end = log.high_watermark
        else:
            end = log.last_stable_offset if isolation == READ_COMMITTED else log.log_end_offset
        return -1, end, led.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, _epoch_at_start(led)
    return NOT_FOUND


def _epoch_at_start(led: LedPartition) -> int:
    """The leader epoch of the first record; for an empty log the current epoch."""
    log = led.log
    if log.log_start_offset == log.log_end_offset:
        return led.leader_epoch
    epoch: int = log.log.leader_epochs.epoch_at(log.log_start_offset)
    return epoch


def _segment_offsets_before(led: LedPartition, timestamp: int, now_ms: int) -> list[int]:
    """The base offsets of segments older than `timestamp`, newest first; the readable end counts as the
    newest.
    """
    log = led.log
    if timestamp == EARLIEST:
        return [log.log_start_offset]
    # The time of the file, not of the records, as in version 0 ever since.
    bounded = [(max(base, log.log_start_offset), written) for base, written in log.search.segments_written()]
    if timestamp == LATEST or timestamp >= now_ms:
        offsets = {base for base, _ in bounded if base < log.high_watermark}
        offsets.add(log.high_watermark)
    else:
        offsets = {base for base, written in bounded if written <= timestamp and base < log.high_watermark}
    return sorted(offsets, reverse=True)


API = Api(
    ListOffsetsRequest,
    ListOffsetsResponse,
    make=lambda parts: ListOffsets(parts.node.leadership, parts.node.searches),
    needs=(on_topics(Operation.DESCRIBE, each("topics", "name")),),
)
