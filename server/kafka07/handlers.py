"""Handlers of the requests of Kafka 0.7.

Topics are made by writing to them. A PRODUCE goes through the handlers of today's clients, so it is checked,
stored and flushed like anybody's. FETCH has no long poll: at the end of a log it gets an empty set at once.

As in 0.7:

- A PRODUCE with a payload over the limit is dropped and logged; any other that cannot be stored closes the
  connection, since there is no response that could tell it. The same for OFFSETS that cannot be answered.
- A FETCH is answered by an error where it can be: an illegal name of a topic by -1, a partition that the
  topic does not have (or a new topic would not have) by 3, a position before or after the log by 1. A topic
  that there is not, and a log that nobody has written to, are empty, whatever the position. A position within
  a message is not noticed: the bytes from there on are sent. The error codes 2 and 4 are never sent: clients
  make them, from what they have got.
- OFFSETS are those of segments by the time of the last write to their files.

Different: who is not allowed to read or write gets -1, or the end of the connection; a response has at most
`fetch.max.bytes`, and what is behind that in a MULTIFETCH is empty sets.

Source: KafkaRequestHandlers, LogManager and Log of Kafka 0.7.2.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.access import ALLOW_ALL, NOTHING_REFUSED, need_of
from odradek.apis.api import LatePart, RequestContext, Waiting
from odradek.server.kafka07.positions import LogPositions, Range
from odradek.server.kafka07.producing import iter_batches_of_set, payload_bytes_max
from odradek.server.kafka07.streaming import open_stream
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.kafka07 import Unreadable
from odradek.wire.kafka07.messages import TooLarge, check_set, has_compressed
from odradek.wire.kafka07.requests import (
    EARLIEST,
    LATEST,
    RANDOM_PARTITION,
    Error,
    Fetch,
    MultiFetch,
    MultiProduce,
    Offsets,
    Produce,
    Request,
    response_head,
    response_of_offsets,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import WorkQueue
    from odradek.server.kafka07.position_store import LogKey, PositionStore
    from odradek.server.network.connection import Connection
    from odradek.server.network.connections import Connections
    from odradek.storage.log.partition import Partition
    from odradek.wire.schema import Message
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.kafka07")

PRODUCE_VERSION = 9
METADATA_VERSION = 4
TOPIC_CHARACTERS_MAX = 255
CREATION_ATTEMPTS = 2
"""The first request for a topic that was deleted finds it deleted."""
QUICK_SET_BYTES_MAX = 4096
"""Up to this size a set without compression is read faster in the event loop than in another thread."""
COUNTED_AT_ONCE_BYTES = 64 * 1024 * 1024
"""Bytes of messages that are counted before others have their turn."""
_ILLEGAL = re.compile("[/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

Parts = list[bytes | LatePart]


class _Refused(Exception):
    """A FETCH that is answered by an error."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.name)
        self.error = error


@dataclass(slots=True, kw_only=True)
class Handlers:
    """See the module. Used in the thread of the event loop."""

    connections: Connections
    leadership: Leadership
    store: PositionStore
    queue: WorkQueue
    """For works that read logs and message sets, several at once."""
    now_ms: Callable[[], int]
    partition_count: Callable[[], int]
    """Gives the number of partitions of a topic that is made by writing."""
    creates_topics: bool
    response_bytes_max: int
    choose: Callable[[int], int]
    """A number below the given one, by chance."""
    magic: int
    """Format of the messages that clients can read: 0 for clients of Kafka 0.6, which know no other."""
    positions: dict[LogKey, LogPositions]

    async def respond(self, request: Request, connection: Connection) -> Parts:
        """The parts of the response, none for PRODUCE. Raises `Unreadable` for a request after which the
        connection ends."""
        if isinstance(request, Produce):
            await self._produce(request, connection)
            return []
        if isinstance(request, MultiProduce):
            for one in request.produces:
                await self._produce(one, connection)
            return []
        if isinstance(request, Fetch):
            return (await self._fetch(request, connection, self.response_bytes_max))[0]
        if isinstance(request, MultiFetch):
            return await self._fetch_several(request.fetches, connection)
        return [response_of_offsets(await self._offsets(request, connection))]

    # Reading

    async def _fetch(self, fetch: Fetch, connection: Connection, room_bytes: int) -> tuple[Parts, int]:
        """The parts, and the size of the messages."""
        try:
            part = await self._messages(fetch, connection, room_bytes)
        except _Refused as refusal:
            return [response_head(0, refusal.error)], 0
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return [response_head(0, Error.OFFSET_OUT_OF_RANGE)], 0
            logger.warning("a FETCH of %s-%d failed: %s", fetch.topic, fetch.partition, error)
            return [response_head(0, Error.UNKNOWN)], 0
        if part is None:
            return [response_head(0)], 0
        size_bytes = len(part)
        return [response_head(size_bytes), part], size_bytes

    async def _fetch_several(self, fetches: Sequence[Fetch], connection: Connection) -> Parts:
        parts: Parts = []
        room_bytes = self.response_bytes_max
        for fetch in fetches:
            more, size_bytes = await self._fetch(fetch, connection, room_bytes)
            parts += more
            room_bytes -= size_bytes
        return [response_head(sum(map(len, parts))), *parts]

    async def _messages(self, fetch: Fetch, connection: Connection, room_bytes: int) -> LatePart | None:
        """None: there are none."""
        topic, position = _legal(fetch.topic), fetch.position
        if topic is None or self._refuses(connection, Operation.READ, topic):
            raise _Refused(Error.UNKNOWN)
        if not 0 <= fetch.partition < self._count_of(topic):
            raise _Refused(Error.WRONG_PARTITION)
        log = self._log(topic, fetch.partition)
        if log is None:
            return None
        known = self._positions_of(log)
        found = await self._prepare(known, position + max(fetch.size, 0), connection)
        if not found.start <= position <= found.end:
            raise _Refused(Error.OFFSET_OUT_OF_RANGE)
        if position == found.end:
            return None
        if fetch.size < 0:
            raise Unreadable(f"a FETCH of {fetch.size} bytes")
        size_bytes = min(fetch.size, found.end - position, room_bytes)
        if not size_bytes:
            return None
        stream = open_stream(known, position, size_bytes)
        return LatePart(self.queue, stream.next_piece, size_bytes)

    async def _offsets(self, request: Offsets, connection: Connection) -> list[int]:
        topic = _legal(request.topic)
        if topic is None:
            raise Unreadable("OFFSETS of a topic with an illegal name")
        if self._refuses(connection, Operation.READ, topic):
            raise Unreadable(f"OFFSETS of topic {topic} are not allowed")
        if not 0 <= request.partition < self._count_of(topic):
            raise Unreadable(f"OFFSETS of partition {request.partition}, which topic {topic} does not have")
        try:
            log = self._log(topic, request.partition)
            if log is None:
                return [0] if request.time in (LATEST, EARLIEST) else []
            if request.count_max < 0:
                raise Unreadable(f"OFFSETS, at most {request.count_max} of them")
            return await self._offsets_of(self._positions_of(log), request, connection)
        except KafkaError as error:
            raise Unreadable(f"OFFSETS of {topic}-{request.partition} failed: {error}") from error

    async def _offsets_of(self, known: LogPositions, request: Offsets, connection: Connection) -> list[int]:
        if request.time == EARLIEST:
            found = await self._prepare(known, 0, connection)
            return [found.start][: request.count_max]
        found = await self._prepare(known, None, connection)
        log, now_ms = known.log, self.now_ms()
        start_offset, end_offset = log.log_start_offset, log.high_watermark
        written = log.search.segments_written()
        following = [base for base, _ in written[1:]]
        # Segments before the start wait for their removal.
        first = sum(1 for base in following if base <= start_offset)
        table = [(max(base, start_offset), time) for base, time in written[first:]]
        if table and table[-1][0] < end_offset:
            table.append((-1, now_ms))
        if request.time != LATEST:
            while table and table[-1][1] > request.time:
                table.pop()
        offsets = [offset for offset, _ in reversed(table)][: request.count_max]
        return [found.end if offset < 0 else await self._do(known.position_of(offset)) for offset in offsets]

    async def _prepare(self, known: LogPositions, target: int | None, connection: Connection) -> Range:
        """The known positions: to `target` or more, or to the end of the log as it is now."""
        found = known.ready(target)
        end_offset = known.log.high_watermark
        while found is None or (known.end_offset < end_offset and (target is None or found.end < target)):
            async with known.lock:
                step = known.end_position + COUNTED_AT_ONCE_BYTES
                before = known.end_offset
                found = await self._do(known.preparing(step if target is None else min(target, step)))
            # A client that waits for its response is not idle.
            connection.requests.active_ms = self.now_ms()
            if known.end_offset == before:
                break
        return found

    # Writing

    async def _produce(self, produce: Produce, connection: Connection) -> None:
        topic, index = _legal(produce.topic), produce.partition
        if topic is None:
            raise Unreadable("a PRODUCE to a topic with an illegal name")
        if index != RANDOM_PARTITION and not 0 <= index < self._count_of(topic):
            raise Unreadable(f"a PRODUCE to partition {index}, which topic {topic} does not have")
        if topic not in self.leadership.view.topics:
            await self._create(topic, connection)
        count = self._count_of(topic)
        if index == RANDOM_PARTITION:
            index = self.choose(count)
        try:
            log = self.leadership.lead(topic, index).log
        except KafkaError as error:
            raise Unreadable(f"a PRODUCE to {topic}-{index} failed: {error}") from error
        try:
            await self._store_set(produce.messages, log, connection)
        except TooLarge as error:
            logger.warning("a PRODUCE to %s-%d is dropped: %s", topic, index, error)

    async def _store_set(self, messages: memoryview | bytes, log: Partition, connection: Connection) -> None:
        batch_bytes_max = log.config.max_message_bytes
        is_quick = len(messages) <= QUICK_SET_BYTES_MAX and not has_compressed(messages)
        await self._call(is_quick, partial(check_set, messages, payload_bytes_max(batch_bytes_max)))
        batches = iter_batches_of_set(messages, self.now_ms(), batch_bytes_max)
        while (batch := await self._call(is_quick, partial(next, batches, None))) is not None:
            data = PartitionProduceData(index=log.index, records=memoryview(batch))
            topics = [TopicProduceData(name=log.topic, partition_data=[data])]
            request = ProduceRequest(acks=1, timeout_ms=0, topic_data=topics)
            response = await self._ask(request, PRODUCE_VERSION, connection)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if response is not None:
                code = response.responses[0].partition_responses[0].error_code
            if code in _TOO_LARGE:
                raise TooLarge(f"a batch of {len(batch)} bytes")
            if code:
                raise Unreadable(f"a PRODUCE to {log.name} failed: {ErrorCode(code).name}")

    async def _create(self, topic: str, connection: Connection) -> None:
        if not self.creates_topics:
            raise Unreadable(f"a PRODUCE to topic {topic}, which there is not (auto.create.topics.enable)")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        for _ in range(CREATION_ATTEMPTS):
            await self._ask(request, METADATA_VERSION, connection)
            if topic in self.leadership.view.topics:
                return
        raise Unreadable(f"a PRODUCE to topic {topic}, which cannot be made")

    # Inside

    def _count_of(self, topic: str) -> int:
        known = self.leadership.view.topics.get(topic)
        return self.partition_count() if known is None else len(known.partitions)

    def _log(self, topic: str, index: int) -> Partition | None:
        """None where 0.7 has no log yet: nobody has written."""
        if topic not in self.leadership.view.topics:
            return None
        log = self.leadership.lead(topic, index).log
        return log if log.log_end_offset else None

    def _positions_of(self, log: Partition) -> LogPositions:
        key = log.topic_id, log.index, self.magic
        known = self.positions.get(key)
        if known is None or known.log is not log:
            known = self.positions[key] = LogPositions(key, log, self.store)
        return known

    def _refuses(self, connection: Connection, operation: Operation, topic: str) -> bool:
        authorizer = self.connections.dispatcher.authorizer
        if authorizer is ALLOW_ALL:
            return False
        return bool(authorizer.refused(connection, (need_of(operation, ResourceType.TOPIC),), (topic,)))

    async def _ask(self, request: Message, version: int, connection: Connection) -> Any:
        """The response of the handler for today's clients; None after a fault."""
        dispatcher = self.connections.dispatcher
        served = dispatcher.routes.served(request.api_key)
        authorizer, refused = dispatcher.authorizer, NOTHING_REFUSED
        if authorizer is not ALLOW_ALL:
            refused = authorizer.refused(connection, served.api.needs, request)
        context = RequestContext(
            request.api_key, version, 0, None, connection, self.now_ms(), refused, authorizer
        )
        response = served.handle(request, context)
        if not isinstance(response, Waiting):
            return response
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response.on_complete(partial(_settle, answered))
        return await answered

    async def _call(self, is_quick: bool, function: Callable[[], Any]) -> Any:
        return function() if is_quick else await self._do(_calling(function))

    async def _do(self, work: Work[Any]) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.run(work, partial(_settle, done), partial(_fail, done))
        try:
            return await done
        except sqlite3.Error as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.store.path}: {error}") from error


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _calling(function: Callable[[], Any]) -> Work[Any]:
    return (yield function)


def _legal(topic: str | None) -> str | None:
    """The name of a topic, if 0.7 takes it."""
    if not topic or len(topic) > TOPIC_CHARACTERS_MAX or topic in (".", "..") or _ILLEGAL.search(topic):
        return None
    return topic
