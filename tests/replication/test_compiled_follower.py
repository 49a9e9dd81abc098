"""The compiled exchange of followers has the outcome of the machine: in the same worlds, byte by byte in its
requests, and without an effect where a response is not an ordinary one."""

import random
from collections import Counter

import pytest

from odradek.coordinator.replication.replica_fetcher import BeginAnew, Replicate, Truncate
from odradek.coordinator.replication.replica_fetchers import ReplicaFetchers
from odradek.server.cluster._fetching import FetchExchange
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import read_response, request_frame, response_parts
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from tests.replication.compiled_world import CompiledWorld, FollowedLog, outcome
from tests.replication.model_log import Batch, ModelLog, decode
from tests.replication.replication_world import World
from tests.replication.test_replica_fetcher import KEY, OTHER, TOPIC_ID, Settings, data, log_of
from tests.replication.test_replication_simulation import FOUND_BY, SEARCHED, SEEDS
from tests.tiers import NIGHTLY

SEEDS_OF_CHECK = 8
SEEDS_OF_A_TEST = 50
CLIENT_ID = "broker-2-fetcher-1"
SESSION = 7
ABORTED = AbortedTransaction(producer_id=1, first_offset=1)


@pytest.mark.parametrize(
    "seeds",
    [
        range(SEEDS_OF_CHECK),
        *(
            pytest.param(range(first, first + SEEDS_OF_A_TEST), marks=pytest.mark.deep)
            for first in range(0, SEEDS, SEEDS_OF_A_TEST)
        ),
    ],
)
def test_one_seed_has_one_outcome_with_the_exchange_and_with_the_machine_alone(seeds):
    judged: Counter[bool] = Counter()
    for seed in seeds:
        world = CompiledWorld(seed).play()
        assert outcome(world) == outcome(World(seed).play()), seed
        judged += world.judged
    assert judged[True] > 3 * judged[False] > 0


@pytest.mark.deep
@pytest.mark.parametrize("bug", FOUND_BY, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_where_followers_are_compiled(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert any(CompiledWorld(seed).finds() for seed in (FOUND_BY[bug], *range(SEARCHED)))


# --- Bugs planted in the exchange ---


class TakesResponsesForAnotherPlace(FetchExchange):
    """KAFKA-13207."""

    def is_as_asked(self, one, asked, log_end_offset):
        return not one.is_busy


class TakesAnyHighWatermark(FetchExchange):
    def high_watermark_of(self, leaders, next_offset):
        return leaders


class _Rewrites(FetchExchange):
    """Judges another response than the one that came."""

    def rewrite(self, response, one):
        raise NotImplementedError

    def judge(self, buffer, start, end):
        correlation_id, response = read_response(bytes(buffer[start:end]), FetchRequest, 17)
        for topic in response.responses:
            for one in topic.partitions:
                self.rewrite(topic, one)
        frame = bytearray(b"".join(response_parts(response, 17, correlation_id)))
        return super().judge(frame, 4, len(frame))


class TakesTheHighWatermarkOfAnotherLog(_Rewrites):
    """KAFKA-14704."""

    def rewrite(self, topic, one):
        one.diverging_epoch = None


class DoesNotSeeErrors(_Rewrites):
    """KAFKA-7414 and others: whoever is fenced goes on."""

    def rewrite(self, topic, one):
        one.error_code, one.high_watermark = 0, max(one.high_watermark, 0)


class TakesNoRecords(_Rewrites):
    def rewrite(self, topic, one):
        one.records = b""


class TakesHalfOfTheRecords(_Rewrites):
    """The last batch is skipped, and the one before it is the last."""

    def rewrite(self, topic, one):
        if one.records is not None and len(one.records) > 61:
            one.records = bytes(one.records[61:])


FOUND_IN_THE_EXCHANGE_BY = {
    TakesResponsesForAnotherPlace: 178,
    TakesAnyHighWatermark: 0,
    TakesTheHighWatermarkOfAnotherLog: 0,
    DoesNotSeeErrors: 63,
    TakesNoRecords: 0,
    TakesHalfOfTheRecords: 0,
}
"""A seed that finds the bug.

That a request of the exchange names the last fetched epoch no seed has missed: within one epoch of one
leader logs do not part, and the first request of each epoch is the machine's.
"""


@pytest.mark.deep
@pytest.mark.parametrize("bug", FOUND_IN_THE_EXCHANGE_BY, ids=lambda bug: bug.__name__)
def test_a_bug_in_the_exchange_is_found(bug, monkeypatch):
    monkeypatch.setattr(CompiledWorld, "exchange_class", bug)
    assert any(CompiledWorld(seed).finds() for seed in (FOUND_IN_THE_EXCHANGE_BY[bug], *range(SEARCHED)))


# --- Beside the machine, response by response ---


class Node:
    """Carries out what a fetcher decides, over model logs."""

    def __init__(self) -> None:
        self.fetchers = ReplicaFetchers(2, lambda: 102, Settings())
        self.logs: dict = {}
        self.failing = False

    def follow(self, key, topic_id: bytes, leader_epoch: int, log: ModelLog) -> None:
        self.logs[key] = log
        self.fetchers.follow(key, topic_id, 1, leader_epoch, FollowedLog(self, key, log))

    @property
    def fetcher(self):
        return self.fetchers.fetchers[1, 0]

    def take(self, key, log: ModelLog, records: bytes, high_watermark: int) -> None:
        if self.failing:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        for batch in decode(records):
            log.append(batch)
        log.high_watermark = max(log.high_watermark, high_watermark)

    def failed(self, key, error) -> None:
        self.carry_out(self.fetchers.done(key, error, 0))

    def carry_out(self, effects) -> None:
        for effect in effects:
            error = None
            if isinstance(effect, Replicate):
                log = self.logs[effect.key]
                try:
                    self.take(effect.key, log, bytes(effect.records), effect.high_watermark)
                    log.raise_start(effect.log_start_offset)
                except KafkaError as refused:
                    error = refused
            elif isinstance(effect, Truncate):
                self.logs[effect.key].truncate(effect.offset)
            elif isinstance(effect, BeginAnew):
                self.logs[effect.key].begin_anew(effect.offset)
            self.carry_out(self.fetchers.done(effect.key, error, 0))

    @property
    def state(self) -> tuple:
        session, fetcher = self.fetcher.session, self.fetcher
        partitions = [
            (one.key, one.phase, one.leader_epoch, one.delayed_until_ms, one.is_busy, one.lag)
            for one in fetcher.partitions.values()
        ]
        logs = [
            (log.batches, log.epochs.entries(), log.log_start_offset, log.log_end_offset, log.high_watermark)
            for log in self.logs.values()
        ]
        asked = list(session.asked.items())
        return partitions, logs, asked, session.held, session.id, session.epoch, list(fetcher.unsettled)


class Alone(Node):
    """The machine alone."""

    request: FetchRequest | ListOffsetsRequest | None = None

    def next(self, version: int, correlation_id: int) -> bytes | None:
        self.request = self.fetcher.next_request(0)
        return self.request and request_frame(self.request, version, correlation_id, CLIENT_ID)

    def answer(self, response) -> None:
        self.carry_out(self.fetcher.fetch_answered(self.request, response, 0))


class Compiled(Node):
    """The exchange, and the machine for the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange: FetchExchange | None = None
        self.request: FetchRequest | ListOffsetsRequest | None = None
        self.frame: bytes | None = None

    def next(self, version: int) -> bytes | None:
        if self.exchange is None:
            self.exchange = FetchExchange(self.fetcher, CLIENT_ID, self.failed)
        if self.frame is None:
            self.request = self.fetcher.next_request(0)
            return None if self.request is None else self.exchange.begin(self.request, version)
        return self.frame

    def answer(self, response, version: int) -> bool:
        frame = framed(response, version, self.exchange.correlation_id)
        is_judged = self.exchange.judge(frame, 4, len(frame))
        self.frame = self.exchange.next_frame() if is_judged else None
        if not is_judged:
            self.carry_out(self.fetcher.fetch_answered(self.request, response, 0))
        return is_judged


def framed(response: FetchResponse, version: int, correlation_id: int) -> bytearray:
    return bytearray(b"".join(response_parts(response, version, correlation_id)))


TOPICS = {"t": TOPIC_ID, "u": b"2" * 16}
KEYS = [("t", 0), ("t", 1), ("u", 0), ("u", 5)]


class Leader:
    """Responses by chance: mostly ordinary ones, and each kind of others."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.value = 0

    def batches(self, log: ModelLog) -> list[Batch]:
        offset, found = log.log_end_offset, []
        for _ in range(self.choose.choice((0, 1, 1, 1, 2, 5))):
            offset += self.choose.choice((0, 0, 0, 0, 2))
            last = offset + self.choose.choice((0, 0, 3))
            self.value += 1
            epoch = self.choose.choices((5, 4, 6), (20, 1, 1))[0]
            found.append(Batch(offset, last, max(epoch, log.latest_epoch), self.value))
            offset = last + 1
        return found

    def of_partition(self, index: int, log: ModelLog) -> PartitionData:
        choose, found = self.choose, self.batches(log)
        made = data(
            *found,
            partition=index,
            high_watermark=choose.randint(log.high_watermark, log.log_end_offset + 2),
            log_start=log.log_start_offset,
        )
        trouble = 3 * choose.random()
        if trouble < 0.02:
            made.error_code = int(
                choose.choice((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE))
            )
        elif trouble < 0.04:
            made.diverging_epoch = EpochEndOffset(epoch=4, end_offset=max(log.log_end_offset - 1, 0))
        elif trouble < 0.06:
            made.log_start_offset += 1
        elif trouble < 0.1 and made.records:
            made.records = made.records[: -choose.randrange(1, 70)]
        elif trouble < 0.12:
            made.records = choose.choice((None, b"", b"x" * 61, b"\0" * 200))
        elif trouble < 0.14:
            made.aborted_transactions = choose.choice(
                ([], [AbortedTransaction(producer_id=1, first_offset=2)])
            )
        return made

    def response(self, logs: dict, session_id: int) -> FetchResponse:
        choose = self.choose
        keys = [key for key in logs if choose.random() < 0.6]
        if choose.random() < 0.1:
            choose.shuffle(keys)
        topics: list[FetchableTopicResponse] = []
        for topic, index in keys:
            made = self.of_partition(index, logs[topic, index])
            if topics and topics[-1].topic_id == TOPICS[topic] and choose.random() < 0.8:
                topics[-1].partitions.append(made)
            else:
                topics.append(FetchableTopicResponse(topic="", topic_id=TOPICS[topic], partitions=[made]))
        response = FetchResponse(session_id=session_id, responses=topics)
        trouble = choose.random()
        if trouble < 0.01:
            response.error_code = int(choose.choice((70, 71, 74)))
        elif trouble < 0.02:
            response.session_id = choose.choice((0, 9))
        elif trouble < 0.03:
            response.throttle_time_ms = 50
        return response


def play_beside_the_machine(seed: int, version: int) -> Counter:
    choose = random.Random(seed)
    leader, alone, compiled = Leader(choose), Alone(), Compiled()
    for key in KEYS:
        for node in (alone, compiled):
            node.follow(key, TOPICS[key[0]], 5, log_of(4, 4, high_watermark=1))
    counts: Counter = Counter()
    for _ in range(60):
        frame = compiled.next(version)
        correlation_id = compiled.exchange.correlation_id
        assert alone.next(version, correlation_id) == frame
        assert alone.state == compiled.state
        if not isinstance(alone.request, FetchRequest):
            break  # all are delayed, failed or out of range
        if choose.random() < 0.1:
            key = choose.choice(KEYS)
            for node in (alone, compiled):
                node.logs[key].raise_start(node.logs[key].high_watermark)
                node.fetchers.log_changed(key)
        if choose.random() < 0.05:
            key, epoch = choose.choice(KEYS), choose.choice((5, 6))
            for node in (alone, compiled):
                node.fetchers.stop(key)
                node.follow(key, TOPICS[key[0]], epoch, node.logs[key])
        response = leader.response(alone.logs, compiled.fetcher.session.id or SESSION)
        for node in (alone, compiled):
            node.failing = counts["responses"] % 13 == 12
        counts["responses"] += 1
        counts["judged"] += compiled.answer(response, version)
        alone.answer(response)
        counts["frames"] += compiled.frame is not None
    return counts


@pytest.mark.parametrize("version", [15, 16, 17, 18])
def test_requests_are_the_machines_byte_by_byte_and_all_state_is_the_same(version):
    counts: Counter = Counter()
    for seed in range(2_000 if NIGHTLY else 30):
        counts += play_beside_the_machine(seed * 4 + version, version)
    assert counts["judged"] > counts["responses"] / 3
    assert counts["frames"] > counts["responses"] / 5
    assert counts["judged"] < counts["responses"]


# --- Responses that are not ordinary ---


def in_session() -> Compiled:
    """Two partitions, after the response to the full fetch: the next request is under way."""
    node = Compiled()
    node.follow(KEY, TOPIC_ID, 5, log_of(4, 4, high_watermark=1))
    node.follow(OTHER, TOPIC_ID, 5, log_of(4, 4, high_watermark=1))
    node.next(17)
    assert not node.answer(FetchResponse(session_id=SESSION, responses=[]), 17)
    node.next(17)
    return node


def ordinary(**changes) -> FetchResponse:
    return response_of(data(Batch(2, 2, 5, 9), high_watermark=2), **changes)


def response_of(*partitions: PartitionData, **changes) -> FetchResponse:
    topic = FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=list(partitions))
    return FetchResponse(**{"session_id": SESSION, "responses": [topic], **changes})


def judged(node: Compiled, response: FetchResponse) -> bool:
    frame = framed(response, 17, node.exchange.correlation_id)
    return node.exchange.judge(frame, 4, len(frame))


def test_an_ordinary_response_is_carried_out_and_followed_by_a_request():
    node = in_session()
    assert judged(node, ordinary())
    assert node.exchange.next_frame() is not None
    assert (node.logs[KEY].log_end_offset, node.logs[KEY].high_watermark) == (3, 2)


def of_another_topic() -> FetchResponse:
    response = ordinary()
    response.responses[0].topic_id = b"3" * 16
    return response


UNUSUAL = {
    "error": ordinary(error_code=71),
    "another session": ordinary(session_id=8),
    "no session": ordinary(session_id=0),
    "new leaders": ordinary(node_endpoints=[NodeEndpoint(node_id=1, host="h", port=1)]),
    "another topic": of_another_topic(),
    "another partition": response_of(data(partition=2)),
    "error of a partition": response_of(data(error_code=6)),
    "diverging": response_of(data(diverging=(4, 1))),
    "later log start": response_of(data(Batch(2, 2, 5, 9), high_watermark=3, log_start=1)),
    "before the end": response_of(data(Batch(1, 1, 5, 9))),
    "of a later leader": response_of(data(Batch(2, 2, 6, 9))),
    "no batch": response_of(
        PartitionData(partition_index=0, error_code=0, high_watermark=2, records=b"x" * 70)
    ),
    "aborted transactions": response_of(
        PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=2,
            aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=1)],
            records=b"",
        )
    ),
}


@pytest.mark.parametrize("what", UNUSUAL)
@pytest.mark.parametrize("is_last", [True, False])
def test_an_unusual_response_has_no_effect(what, is_last):
    """Also not what is ordinary in it."""
    node = in_session()
    response = UNUSUAL[what]
    if not is_last:
        before = data(Batch(2, 2, 5, 9), partition=1, high_watermark=2)
        topics = [FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[before])]
        response = FetchResponse(
            session_id=response.session_id,
            error_code=response.error_code,
            node_endpoints=response.node_endpoints,
            responses=topics + response.responses,
        )
    state = node.state
    assert not judged(node, response)
    assert node.state == state


@pytest.mark.parametrize("version", [13, 14])
def test_fetches_of_older_versions_are_the_machines(version):
    node = in_session()
    node.exchange.begin(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), version)
    assert not judged(node, ordinary())


def test_while_replicas_are_throttled_all_responses_are_the_machines():
    node = in_session()
    node.fetcher.quota.throttle("t", {0})
    assert not judged(node, ordinary())
    node.fetcher.quota.forget("t")
    assert judged(node, ordinary())
    node.fetcher.quota.throttle("t", {0})
    assert node.exchange.next_frame() is None


def test_a_response_to_another_request_has_no_effect():
    node = in_session()
    frame = framed(ordinary(), 17, node.exchange.correlation_id + 1)
    state = node.state
    assert not node.exchange.judge(frame, 4, len(frame))
    assert node.state == state


def test_a_partition_that_is_gone_meanwhile_is_the_machines_to_forget():
    node = in_session()
    assert judged(node, ordinary())
    node.fetchers.stop(KEY)
    assert node.exchange.next_frame() is None
    request = node.fetcher.next_request(0)
    assert [topic.partitions for topic in request.forgotten_topics_data] == [[0]]


def test_a_new_partition_is_in_the_machines_next_request():
    node = in_session()
    node.follow(("t", 2), TOPIC_ID, 5, log_of(4))
    assert judged(node, ordinary())
    assert node.exchange.next_frame() is None
    (topic,) = node.fetcher.next_request(0).topics
    assert [one.partition for one in topic.partitions] == [2, 0]


def test_any_bytes_are_a_response_or_have_no_effect():
    """Cut anywhere, or with a byte changed: the compiled parts read no byte beyond the frame."""
    choose = random.Random(1)
    response = response_of(
        data(Batch(2, 2, 5, 9), Batch(3, 5, 5, 10), high_watermark=2),
        data(Batch(2, 2, 5, 11), partition=1, high_watermark=3),
    )
    for _ in range(300 if NIGHTLY else 3):
        size_bytes = len(framed(response, 17, 0))
        for position in range(4, size_bytes):
            node = in_session()
            frame = framed(response, 17, node.exchange.correlation_id)
            state = node.state
            assert not node.exchange.judge(frame[:position], 4, position)
            assert node.state == state
            frame[position] = choose.randrange(256)
            if not node.exchange.judge(frame, 4, len(frame)):
                assert node.state == state
