"""Queue of the dead letters of the share partitions that this node leads, until they are in their topics.

A pure machine: calls and results come in with the time, effects go out, and the caller carries them out. It
reads the settings at each use (`Settings`). Nothing of it is stored: a record is stored as ARCHIVING as long
as its dead letter waits here, so the next leader of its partition begins anew.

The letters for one partition of a queue are written in their order, one batch at a time, and many of them go
together. What is passing is tried again, after pauses that grow. A failure counts for all that wait for that
partition, since each of them would have met it. In the end, and at once where a repetition would not help,
the records are given up: they are archived without a letter.

Bounds: `WAITING_MAX` requests of some hundred bytes; `WRITES_MAX` batches, each with the originals for it.

Source: KIP-1191, ShareGroupDLQStateManager of Kafka 4.4. Other than there a topic is created by one request
for all that wait for it, and more codes of a write are tried again (`PASSING`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from odradek.coordinator.shares.dead_letters.letters import DeadLetter, LetterBatch, Original, Template
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.errors import ErrorCode

ATTEMPTS_MAX = 5
WAITING_MAX = 100_000
"""Requests that may wait; the records of more are given up."""
WRITES_MAX = 32
"""Batches that may be under way at once."""
TOLD_MAX = 1_000
RESERVED_PREFIX = "__"
PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        # A leader that has not heard of the new topic.
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Codes after which a write is tried again."""
PASSING_OF_CREATION = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
    }
)


class Reason(Enum):
    """Why records are archived without a dead letter."""

    UNNAMED = "unnamed", "the group names no dead letter queue any more"
    RESERVED = "reserved", f"a name that begins with {RESERVED_PREFIX} is not allowed"
    NOT_ENABLED = "not_enabled", "the topic does not have errors.deadletterqueue.group.enable=true"
    MISSING = (
        "missing",
        "the topic does not exist, and errors.deadletterqueue.auto.create.topics.enable is false",
    )
    PREFIX = "prefix", "the name does not begin with errors.deadletterqueue.topic.name.prefix"
    NOT_CREATED = "not_created", "the topic could not be created"
    REFUSED = "refused", "the topic does not take them"
    UNREACHABLE = "unreachable", "no attempt to write to the topic has succeeded"
    TOO_MANY = "too_many", "too many wait for their topics"

    def __init__(self, label: str, sentence: str) -> None:
        self.label = label
        self.sentence = sentence


class QueueTopic(NamedTuple):
    """A topic that may be a dead letter queue."""

    is_enabled: bool
    leaders: Sequence[int]
    """By partition; one that is not there is no broker's id."""
    message_bytes_max: int


class Settings(Protocol):
    """Settings of the cluster, its groups and its topics; read at each use."""

    def queue_of(self, group_id: str) -> str:
        """The topic that the group names; "" for none."""

    def copies(self, group_id: str) -> bool:
        """Whether letters have keys and values of the originals."""

    @property
    def prefix(self) -> str:
        """With what names of topics have to begin."""

    @property
    def creates_topics(self) -> bool: ...

    def topic(self, name: str) -> QueueTopic | None: ...


@dataclass(slots=True, eq=False)
class Request:
    """A dead letter that is to be written."""

    key: SharePartitionKey
    topic: str
    """Name of the topic of the records."""
    letter: DeadLetter
    ended: Callable[[], None]
    """Called once, when it is written or given up; not of one that is cancelled."""
    is_cancelled: bool = False
    """Nobody wants it any more; the machine drops it when its turn comes."""
    next_offset: int = -1
    """The first one that is not written."""
    attempts: int = 0
    originals: Mapping[int, Original] | None = None
    originals_end: int = -1
    """The originals of offsets before this one are read."""
    template: Template | None = None

    def __post_init__(self) -> None:
        self.next_offset = self.letter.first_offset

    def cancel(self) -> None:
        self.is_cancelled = True

    def forget_originals(self) -> None:
        self.originals, self.originals_end = None, -1


@dataclass(slots=True, eq=False)
class Lane:
    """The letters for one partition of a queue."""

    queue: str
    index: int
    waiting: deque[Request] = field(default_factory=deque)
    taken: list[tuple[Request, int]] = field(default_factory=list)
    """Requests in the batch, and up to which offset."""
    batch: LetterBatch | None = None
    """Batch that is being filled, or written."""
    leader: int = -1
    """Where it was sent last."""
    failures: int = 0
    """In a row."""
    ready_ms: float = 0
    """Not before; 0: at any time."""
    is_queued: bool = False
    """Waits for its turn to begin a batch."""


@dataclass(slots=True, eq=False)
class _Creation:
    """A topic that has to be created, and the letters for it."""

    queue: str
    waiting: list[Request] = field(default_factory=list)
    is_asked: bool = False
    failures: int = 0
    ready_ms: float = 0


@dataclass(slots=True)
class ReadOriginals:
    """Originals from `request.next_offset` to the end of the request are to be read, up to a size."""

    lane: Lane
    request: Request
    bytes_max: int


@dataclass(slots=True)
class Write:
    """The batch of the lane is to be appended to its partition, by that leader."""

    lane: Lane
    leader: int
    batch: LetterBatch


@dataclass(slots=True)
class CreateTopic:
    """The topic is to be created."""

    queue: str


@dataclass(slots=True)
class End:
    """The request is done with; its owner is to be told."""

    request: Request


@dataclass(slots=True)
class Report:
    """Records are archived without a dead letter; told once until the queue has worked again."""

    request: Request
    queue: str
    reason: Reason
    detail: str


Effect = ReadOriginals | Write | CreateTopic | End | Report


class DeadLetterQueue:
    """See the module. `pause_ms` gives the pause after so many failures in a row, `ATTEMPTS_MAX` at most."""

    def __init__(self, settings: Settings, pause_ms: Callable[[int], float]) -> None:
        self._settings = settings
        self._pause_ms = pause_ms
        self.lanes: dict[tuple[str, int], Lane] = {}
        self._creations: dict[str, _Creation] = {}
        self._queued: deque[Lane] = deque()
        self._writes = 0
        self._told: set[tuple[str, str, Reason]] = set()
        self.waiting_count = 0
        """Requests that are not ended."""
        self.written: Counter[str] = Counter()
        """Records since the start, by group."""
        self.produced: Counter[str] = Counter()
        """Attempts of requests, by group."""
        self.failed: Counter[str] = Counter()
        """Requests that were given up after an attempt, by group."""
        self.lost: Counter[tuple[str, Reason]] = Counter()
        """Records that were archived without a letter."""

    @property
    def next_ms(self) -> float | None:
        """When `tick` is to be called."""
        moments = [one.ready_ms for one in self.lanes.values()]
        moments += [one.ready_ms for one in self._creations.values()]
        return min(filter(None, moments), default=None)

    # What comes in

    def add(self, request: Request, now_ms: int) -> list[Effect]:
        self.waiting_count += 1
        if self.waiting_count > WAITING_MAX:
            return self._give_up(request, Reason.TOO_MANY)
        return self._place(request, now_ms)

    def read(
        self, lane: Lane, originals: Mapping[int, Original] | None, end: int, now_ms: int
    ) -> list[Effect]:
        """The originals that were asked for, and before which offset they are. None: they cannot be had."""
        request = lane.waiting[0]
        if originals is None or end <= request.next_offset:
            originals, end = {}, request.letter.last_offset + 1
        request.originals, request.originals_end = originals, end
        return self._fill(lane, now_ms) + self._begin_queued(now_ms)

    def wrote(self, lane: Lane, code: ErrorCode, now_ms: int, detail: str = "") -> list[Effect]:
        """The result of a write."""
        taken, lane.taken, lane.batch = lane.taken, [], None
        self._writes -= 1
        lane.waiting.extendleft(request for request, _ in reversed(taken))
        effects: list[Effect] = []
        if code is ErrorCode.NONE:
            lane.failures = 0
            for request, last in taken:
                effects += self._written(lane, request, last)
        elif code in PASSING:
            effects += self._pause(lane, code, now_ms)
        else:
            for request, _ in taken:
                lane.waiting.popleft()
                self.failed[request.key.group_id] += 1
                effects += self._give_up(request, Reason.REFUSED, f"{code.name} {detail}".strip())
        return effects + self._begin(lane, now_ms) + self._begin_queued(now_ms)

    def created(self, queue: str, code: ErrorCode, now_ms: int, detail: str = "") -> list[Effect]:
        """The result of a creation."""
        creation = self._creations.get(queue)
        if creation is None:
            return []
        creation.is_asked = False
        if self._settings.topic(queue) is not None:
            return self._place_again(creation, now_ms)
        if code is not ErrorCode.NONE and code not in PASSING_OF_CREATION:
            del self._creations[queue]
            effects: list[Effect] = []
            for request in creation.waiting:
                effects += self._give_up(request, Reason.NOT_CREATED, f"{code.name} {detail}".strip())
            return effects
        creation.failures += 1
        creation.ready_ms = now_ms + self._pause_ms(min(creation.failures, ATTEMPTS_MAX))
        effects = []
        left = []
        for request in creation.waiting:
            request.attempts += 1
            if request.attempts < ATTEMPTS_MAX:
                left.append(request)
            else:
                effects += self._give_up(request, Reason.NOT_CREATED, detail)
        creation.waiting = left
        if not left:
            del self._creations[queue]
        return effects

    def view_changed(self, now_ms: int) -> list[Effect]:
        """Topics and leaders may have changed."""
        effects: list[Effect] = []
        for creation in list(self._creations.values()):
            if self._settings.topic(creation.queue) is not None:
                effects += self._place_again(creation, now_ms)
        for lane in list(self.lanes.values()):
            if lane.ready_ms and lane.leader != self._leader_of(lane):
                lane.ready_ms = 0
                effects += self._begin(lane, now_ms)
        return effects

    def tick(self, now_ms: int) -> list[Effect]:
        """Pauses may have ended."""
        effects: list[Effect] = []
        for creation in list(self._creations.values()):
            if creation.ready_ms and creation.ready_ms <= now_ms:
                creation.ready_ms = 0
                effects += self._place_again(creation, now_ms)
        for lane in list(self.lanes.values()):
            if lane.ready_ms and lane.ready_ms <= now_ms:
                lane.ready_ms = 0
                effects += self._begin(lane, now_ms)
        return effects

    # Where a request goes

    def _why_not(self, queue: str, topic: QueueTopic | None) -> Reason | None:
        settings = self._settings
        if not queue:
            return Reason.UNNAMED
        if queue.startswith(RESERVED_PREFIX):
            return Reason.RESERVED
        if topic is not None and not topic.is_enabled:
            return Reason.NOT_ENABLED
        if topic is None and not settings.creates_topics:
            return Reason.MISSING
        return None if queue.startswith(settings.prefix) else Reason.PREFIX

    def _place(self, request: Request, now_ms: int) -> list[Effect]:
        queue = self._settings.queue_of(request.key.group_id)
        topic = self._settings.topic(queue)
        reason = self._why_not(queue, topic)
        if reason is not None:
            return self._give_up(request, reason)
        if topic is None:
            return self._create_for(request, queue)
        place = queue, request.key.partition % len(topic.leaders)
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = Lane(*place)
        lane.waiting.append(request)
        return self._begin(lane, now_ms)

    def _create_for(self, request: Request, queue: str) -> list[Effect]:
        creation = self._creations.get(queue)
        if creation is None:
            creation = self._creations[queue] = _Creation(queue)
        creation.waiting.append(request)
        if creation.is_asked or creation.ready_ms:
            return []
        creation.is_asked = True
        return [CreateTopic(queue)]

    def _place_again(self, creation: _Creation, now_ms: int) -> list[Effect]:
        """Where the topic is there now, or is to be asked for again."""
        waiting, creation.waiting = creation.waiting, []
        if self._settings.topic(creation.queue) is not None:
            del self._creations[creation.queue]
            for request in waiting:
                request.attempts = 0
        effects: list[Effect] = []
        for request in waiting:
            effects += [] if self._drop(request) else self._place(request, now_ms)
        if not creation.waiting and not creation.is_asked:
            self._creations.pop(creation.queue, None)
        return effects

    def _drop(self, request: Request) -> bool:
        """Whether nobody wants it any more."""
        if request.is_cancelled:
            self.waiting_count -= 1
        return request.is_cancelled

    # One batch

    def _leader_of(self, lane: Lane) -> int | None:
        """None: there is no such partition."""
        topic = self._settings.topic(lane.queue)
        return None if topic is None or lane.index >= len(topic.leaders) else topic.leaders[lane.index]

    def _begin(self, lane: Lane, now_ms: int) -> list[Effect]:
        """Begins a batch, if there is something for it and none is under way."""
        if lane.batch is not None or lane.is_queued or lane.ready_ms:
            return []
        if not lane.waiting:
            self.lanes.pop((lane.queue, lane.index), None)
            return []
        if self._writes >= WRITES_MAX:
            lane.is_queued = True
            self._queued.append(lane)
            return []
        topic = self._settings.topic(lane.queue)
        if topic is None or lane.index >= len(topic.leaders):
            return self._disband(lane, now_ms)
        lane.batch = LetterBatch(topic.message_bytes_max)
        self._writes += 1
        return self._fill(lane, now_ms)

    def _begin_queued(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._queued and self._writes < WRITES_MAX:
            lane = self._queued.popleft()
            lane.is_queued = False
            effects += self._begin(lane, now_ms)
        return effects

    def _disband(self, lane: Lane, now_ms: int) -> list[Effect]:
        """The partition is not there any more: all that wait for it are placed anew."""
        self.lanes.pop((lane.queue, lane.index), None)
        effects: list[Effect] = []
        for request in lane.waiting:
            effects += [] if self._drop(request) else self._place(request, now_ms)
        return effects

    def _fill(self, lane: Lane, now_ms: int) -> list[Effect]:
        """Fills the batch up to its limit, or up to a request whose originals have to be read first."""
        batch = lane.batch
        assert batch is not None
        effects: list[Effect] = []
        reason = self._why_not(lane.queue, self._settings.topic(lane.queue))
        while lane.waiting:
            request = lane.waiting[0]
            if self._drop(request):
                lane.waiting.popleft()
                continue
            if reason is not None or self._settings.queue_of(request.key.group_id) != lane.queue:
                # The settings have changed.
                lane.waiting.popleft()
                effects += self._place(request, now_ms)
                continue
            copies = self._settings.copies(request.key.group_id)
            if copies and request.originals_end <= request.next_offset:
                return [*effects, ReadOriginals(lane, request, batch.bytes_max)]
            if not self._take(lane, batch, request, is_copy=copies):
                break
        if lane.taken:
            return effects + self._send(lane, batch)
        # All were dropped, or went elsewhere.
        lane.batch = None
        self._writes -= 1
        self.lanes.pop((lane.queue, lane.index), None)
        return effects

    def _take(self, lane: Lane, batch: LetterBatch, request: Request, *, is_copy: bool) -> bool:
        """Takes the request into the batch; False if the batch has no room left, or has to be written before
        the rest of the originals is read."""
        letter = request.letter
        if request.template is None:
            request.template = Template(request.key, request.topic, letter)
        first, last = request.next_offset, letter.last_offset
        if is_copy:
            last = min(last, request.originals_end - 1)
        taken = batch.add(request.template, first, last, request.originals if is_copy else None)
        if taken >= first:
            lane.waiting.popleft()
            lane.taken.append((request, taken))
        return taken == letter.last_offset

    def _send(self, lane: Lane, batch: LetterBatch) -> list[Effect]:
        leader = self._leader_of(lane)
        for request, _ in lane.taken:
            self.produced[request.key.group_id] += 1
        lane.leader = -1 if leader is None else leader
        return [Write(lane, lane.leader, batch)]

    # Results

    def _written(self, lane: Lane, request: Request, last: int) -> list[Effect]:
        """All in front of the request in the lane is ended."""
        group_id = request.key.group_id
        self.written[group_id] += last - request.next_offset + 1
        if self._told:
            self._told = {one for one in self._told if one[:2] != (group_id, lane.queue)}
        request.next_offset, request.attempts = last + 1, 0
        if last < request.letter.last_offset:
            if request.originals_end <= request.next_offset:
                request.forget_originals()
            return []
        lane.waiting.popleft()
        return self._end(request)

    def _pause(self, lane: Lane, code: ErrorCode, now_ms: int) -> list[Effect]:
        lane.failures += 1
        effects: list[Effect] = []
        left: deque[Request] = deque()
        for request in lane.waiting:
            if self._drop(request):
                continue
            request.attempts += 1
            request.forget_originals()
            if request.attempts < ATTEMPTS_MAX:
                left.append(request)
            else:
                self.failed[request.key.group_id] += 1
                effects += self._give_up(request, Reason.UNREACHABLE, code.name)
        lane.waiting = left
        if left:
            lane.ready_ms = now_ms + self._pause_ms(min(lane.failures, ATTEMPTS_MAX))
        return effects

    def _give_up(self, request: Request, reason: Reason, detail: str = "") -> list[Effect]:
        if self._drop(request):
            return []
        group_id = request.key.group_id
        self.lost[group_id, reason] += request.letter.last_offset - request.next_offset + 1
        queue = self._settings.queue_of(group_id)
        told = group_id, queue, reason
        effects: list[Effect] = []
        if told not in self._told:
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told.add(told)
            effects.append(Report(request, queue, reason, detail))
        return effects + self._end(request)

    def _end(self, request: Request) -> list[Effect]:
        request.forget_originals()
        if self._drop(request):
            return []
        self.waiting_count -= 1
        return [End(request)]
