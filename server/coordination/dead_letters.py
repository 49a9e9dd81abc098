"""Dead letter queues of the share groups whose partitions this node leads: does what their machine says.

Originals come from the logs of this node. A batch goes to the leader of its partition: here it is appended as
a client's would be, with all replicas in sync, and another node is sent a Produce request. A missing topic is
created as one that a client needs.

Source: KIP-1191, ShareGroupDLQStateManager and ShareGroupDLQRecordFetcher of Kafka 4.4.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.leadership import check_in_sync
from odradek.config.options import TOPIC_OPTIONS
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.shares.dead_letters.originals import Originals
from odradek.coordinator.shares.dead_letters.queue import (
    CreateTopic,
    DeadLetterQueue,
    End,
    QueueTopic,
    ReadOriginals,
    Report,
    Request,
    Write,
)
from odradek.server.network.broker_peers import RETRY_PAUSE_MS, retry_pause_ms
from odradek.server.network.timers import steady_clock_ms
from odradek.storage.log.partition import READ_UNCOMMITTED
from odradek.storage.log.slices import WouldWait
from odradek.wire.batch_validation import TakesLong
from odradek.wire.errors import ErrorCode, KafkaError, error_of
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import TimerHandle, Timers, Turn, WorkQueue
    from odradek.config.live import LiveConfig
    from odradek.coordinator.group_coordinator import GroupCoordinator
    from odradek.coordinator.groups.settings import GroupConfig
    from odradek.coordinator.shares.dead_letters.letters import DeadLetter
    from odradek.coordinator.shares.dead_letters.queue import Effect
    from odradek.coordinator.shares.state.persister import SharePartitionKey
    from odradek.server.network._clock import Clock
    from odradek.server.network.broker_peers import BrokerPeers
    from odradek.storage.config import LogConfig
    from odradek.storage.log.partition import Partition
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.share")

READ_BYTES = 1024 * 1024
"""At a time from the log of the originals."""
PRODUCE_TIMEOUT_MS = 30_000
ALL_IN_SYNC = -1
ENABLE = "errors.deadletterqueue.group.enable"
NEW_TOPIC_CONFIGS: Mapping[str, str] = {ENABLE: "true", "message.timestamp.type": "CreateTime"}
Create = Callable[[NewTopic, Callable[["KafkaError | None"], None]], None]


class _Settings:
    """Implements `coordinator.shares.dead_letters.queue.Settings`."""

    def __init__(
        self, leadership: Leadership, live: LiveConfig[LogConfig], groups: Callable[[], GroupCoordinator]
    ) -> None:
        self._leadership = leadership
        self._live = live
        self._groups = groups

    def _config(self, group_id: str) -> GroupConfig:
        return self._groups().config_of(group_id)

    def queue_of(self, group_id: str) -> str:
        return self._config(group_id).errors_deadletterqueue_topic_name

    def copies(self, group_id: str) -> bool:
        return self._config(group_id).errors_deadletterqueue_copy_record_enable

    @property
    def prefix(self) -> str:
        return self._live.values["errors.deadletterqueue.topic.name.prefix"]

    @property
    def creates_topics(self) -> bool:
        return self._live.values["errors.deadletterqueue.auto.create.topics.enable"]

    def topic(self, name: str) -> QueueTopic | None:
        topic = self._leadership.view.topic(name)
        if topic is None:
            return None
        return QueueTopic(
            TOPIC_OPTIONS[ENABLE].parse(topic.configs.get(ENABLE, "false")),
            [one.leader for one in topic.partitions],
            self._live.log_config(topic.configs).max_message_bytes,
        )


class DeadLetterQueues:
    """Implements `apis.share_partitions.DeadLetters`. Used on the event loop.

    `create(topic, then)` creates a topic, and calls back once with the refusal.
    """

    def __init__(
        self,
        *,
        leadership: Leadership,
        live: LiveConfig[LogConfig],
        groups: Callable[[], GroupCoordinator],
        turn: Turn,
        timers: Timers,
        clock: Clock,
        reads: WorkQueue,
        conversions: WorkQueue,
        create: Create,
        peers: Callable[[], BrokerPeers | None] = lambda: None,
        pause_ms: int = RETRY_PAUSE_MS,
    ) -> None:
        self._leadership = leadership
        self._groups = groups
        self._turn = turn
        self._timers = timers
        self._now_ms = clock.now_ms
        self._clock_ms = steady_clock_ms(clock)
        self._reads = reads
        self._conversions = conversions
        self._create = create
        self._peers = peers
        self.machine = DeadLetterQueue(
            _Settings(leadership, live, groups), lambda failures: retry_pause_ms(pause_ms, failures)
        )
        self._effects: deque[Effect] = deque()
        self._is_running = False
        self._is_closed = False
        self._timer: TimerHandle | None = None

    # The seam

    def are_kept(self, group_id: str) -> bool:
        """See `DeadLetters`."""
        groups = self._groups()
        return groups.serves_dead_letters and bool(
            groups.config_of(group_id).errors_deadletterqueue_topic_name
        )

    def write(
        self, key: SharePartitionKey, topic: str, letter: DeadLetter, ended: Callable[[], None]
    ) -> Callable[[], None]:
        """See `DeadLetters`."""
        request = Request(key, topic, letter, ended)
        self._run(self.machine.add(request, self._clock_ms()))
        return request.cancel

    def view_changed(self) -> None:
        if self.machine.waiting_count:
            self._run(self.machine.view_changed(self._clock_ms()))

    def close(self) -> None:
        """Nothing is begun and nobody is called back any more."""
        self._is_closed = True
        self._effects.clear()
        if self._timer is not None:
            self._timer.cancel()

    # Effects

    def _run(self, effects: Iterable[Effect]) -> None:
        """Carries effects out in their order, also those that come while one is being carried out."""
        if self._is_closed:
            return
        self._effects += effects
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._effects:
                self._carry_out(self._effects.popleft())
        finally:
            self._is_running = False
        self._set_timer()

    def _carry_out(self, effect: Effect) -> None:
        try:
            match effect:
                case End(request):
                    request.ended()
                case Report(request, queue, reason, detail):
                    _report(request, queue, reason.sentence, detail)
                case CreateTopic(queue):
                    topic = NewTopic(queue, configs=dict(NEW_TOPIC_CONFIGS))
                    self._create(topic, partial(self._created, queue))
                case ReadOriginals():
                    self._read(effect)
                case Write():
                    self._write(effect)
        except Exception as error:
            # Nothing else waits because of it.
            logger.exception("a dead letter could not be handled")
            if isinstance(effect, Write):
                self._failed(effect, error)
            elif isinstance(effect, ReadOriginals):
                self._run(self.machine.read(effect.lane, None, 0, self._clock_ms()))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self.machine.next_ms
        if next_ms is not None:
            self._timer = self._timers.after(max(next_ms - self._clock_ms(), 0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._run(self.machine.tick(self._clock_ms()))

    def _created(self, queue: str, error: KafkaError | None) -> None:
        code, detail = (ErrorCode.NONE, "") if error is None else (error.code, error.message)
        self._run(self.machine.created(queue, code, self._clock_ms(), detail))

    # Originals

    def _read(self, effect: ReadOriginals) -> None:
        request, lane = effect.request, effect.lane
        originals = Originals(request.next_offset, request.letter.last_offset, effect.bytes_max)

        def done(_: object) -> None:
            self._run(self.machine.read(lane, originals.found, originals.next_offset, self._clock_ms()))

        def failed(error: Exception) -> None:
            logger.warning(
                "share group %r: dead letters of %s-%d from offset %d on are written without their keys and "
                "values: %s",
                *(request.key.group_id, request.topic, request.key.partition, originals.next_offset, error),
            )
            end = request.letter.last_offset + 1
            self._run(self.machine.read(lane, originals.found, end, self._clock_ms()))

        try:
            log = self._leadership.lead(request.topic, request.key.partition).log
        except KafkaError as error:
            failed(error)
            return
        self._reads.run(_reading(log, originals), done, failed)

    # Writing

    def _write(self, effect: Write) -> None:
        if effect.leader == self._leadership.node_id:
            self._append(effect)
            return
        peers = self._peers()
        if peers is None or effect.leader not in self._leadership.view.brokers:
            self._wrote(effect, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
            return
        topic = self._leadership.view.topic(effect.lane.queue)
        if topic is None:
            self._wrote(effect, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        records = effect.batch.encoded(self._now_ms())
        produced = TopicProduceData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[PartitionProduceData(index=effect.lane.index, records=records)],
        )
        request = ProduceRequest(acks=ALL_IN_SYNC, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[produced])
        peers.ask(effect.leader, request, partial(self._answered, effect))

    def _answered(self, effect: Write, response: Any) -> None:
        results = (
            [] if response is None else [one for it in response.responses for one in it.partition_responses]
        )
        if not results:
            self._wrote(effect, KafkaError(ErrorCode.NETWORK_EXCEPTION))
            return
        code = error_of(results[0].error_code)
        self._wrote(effect, KafkaError(code, results[0].error_message or "") if code else None)

    def _append(self, effect: Write, prepared: Any = None) -> None:
        lane, now_ms = effect.lane, self._now_ms()
        records = effect.batch.encoded(now_ms)
        try:
            led = self._leadership.lead(lane.queue, lane.index)
            check_in_sync(self._leadership, led)
            appended = led.log.appends.append(
                records if prepared is None else prepared, now_ms=now_ms, prompt=True
            )
        except TakesLong:
            preparation = led.log.appends.preparing(records, now_ms=now_ms)
            self._conversions.run(
                _calling(preparation), partial(self._append, effect), partial(self._failed, effect)
            )
        except Exception as error:
            self._failed(effect, error)
        else:
            until = led.until(appended.must_flush, True, PRODUCE_TIMEOUT_MS)
            self._turn.add(led.log, partial(self._wrote, effect), until)

    def _failed(self, effect: Write, error: Exception) -> None:
        if not isinstance(error, KafkaError):
            logger.error("dead letters cannot be appended to %s", effect.lane.queue, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._wrote(effect, error)

    def _wrote(self, effect: Write, error: KafkaError | None) -> None:
        code, detail = (ErrorCode.NONE, "") if error is None else (error.code, error.message)
        self._run(self.machine.wrote(effect.lane, code, self._clock_ms(), detail))


def _reading(log: Partition, originals: Originals) -> Work[None]:
    """Takes originals out of a log until there are all, or no room for more."""
    originals.skip_to(log.log_start_offset)
    is_prompt = True
    while not originals.is_complete:
        try:
            records = log.read(
                originals.next_offset, max_bytes=READ_BYTES, isolation=READ_UNCOMMITTED, prompt=is_prompt
            ).records
            if is_prompt and records.would_wait():
                yield records.load
            content = records.tobytes()
        except WouldWait as miss:
            yield miss.load
            is_prompt = False
            continue
        is_prompt = True
        # Decompression takes long.
        if not (yield partial(originals.take, content)):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the log has none at {originals.next_offset}")


def _calling(function: Callable[[], Any]) -> Work[Any]:
    result = yield function
    return result


def _report(request: Request, queue: str, sentence: str, detail: str) -> None:
    letter = request.letter
    logger.error(
        "share group %r, dead letter queue %r: %s%s. Records are archived without a dead letter, first those "
        "of %s-%d from offset %d to %d. This is logged once, until the queue has taken a record again.",
        *(request.key.group_id, queue, sentence, f" ({detail})" if detail else ""),
        *(request.topic, request.key.partition, request.next_offset, letter.last_offset),
    )
