"""Produce requests that are remembered get the handler's answer, and the handler gets what is unusual."""

import asyncio
import itertools
import threading

import pytest

from odradek.config.broker_config import load
from odradek.server.broker import BrokerServer
from odradek.storage.log import appends
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import (
    add_partitions_to_txn,
    create_topics,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from odradek.wire.records import Record, build_batch
from tests.raw_client import AsyncRawClient

PRODUCE = 0
VERSIONS = range(9, 14)


LONG_ID = "x" * 1100
"""With such a client id a prefix is too long to be remembered."""


class Node:
    """A broker with one client; counts which requests were served by a prefix."""

    def __init__(self, server, client):
        self.server, self.client = server, client
        self.topic_id = None

    @property
    def from_prefix(self):
        routes = self.server.connections.dispatcher.routes
        return sum(routes.resolve(PRODUCE << 16 | version).from_prefix for version in VERSIONS)

    async def ask(self, request, version, repeated=True, client_id="tests"):
        """Without `repeated` the handler answers."""
        self.client.send_request(request, version, 5, client_id if repeated else LONG_ID)
        frame = await self.client.receive_frame()
        return frame, read_response(frame, type(request), version)[1]

    def request(self, version, records, *, acks=-1, index=0, topics=1, name="t", transactional_id=None):
        topic = produce.TopicProduceData(
            name=name if version < 13 else "",
            topic_id=self.topic_id if version >= 13 else bytes(16),
            partition_data=[produce.PartitionProduceData(index=index, records=records)],
        )
        return produce.ProduceRequest(
            acks=acks, timeout_ms=1000, topic_data=[topic] * topics, transactional_id=transactional_id
        )


def batch(size=100, **options):
    return build_batch([Record(0, 1_700_000_000_000, b"k", b"v" * size)], **options)


SEEDED = 2
"""Batches that each partition has before the story: with its first ones nothing is ordinary yet."""


def play(tmp_path, story, **settings):
    async def act():
        options = {"transaction_state_log_num_partitions": 1}
        server = BrokerServer(load(listen="127.0.0.1:0", data_dir=tmp_path, keywords=options))
        try:
            await server.start()
            node = Node(server, await AsyncRawClient.connect(server.port))
            configs = [
                create_topics.CreatableTopicConfig(name=name.replace("_", "."), value=str(value))
                for name, value in settings.items()
            ]
            topic = create_topics.CreatableTopic(
                name="t", num_partitions=2, replication_factor=1, configs=configs
            )
            _, answer = await node.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1), 7)
            assert answer.topics[0].error_code == 0
            node.topic_id = answer.topics[0].topic_id
            for index in (0, 1) * SEEDED:
                await node.ask(node.request(9, batch(), index=index), 9, repeated=False)
            async with asyncio.timeout(20):
                await story(node)
        finally:
            await server.stop()

    asyncio.run(act())


@pytest.mark.parametrize("version", VERSIONS)
def test_prefix_and_handler_give_the_same_answer_but_for_the_offset(tmp_path, version):
    async def story(node):
        for acks, size, index in itertools.product((-1, 1), (0, 10, 5000, 70_000), (0, 1)):
            request = node.request(version, batch(size), acks=acks, index=index)
            taken = node.from_prefix
            _, short = await node.ask(request, version)
            assert node.from_prefix == taken + 1
            _, ordinary = await node.ask(request, version, repeated=False)
            assert node.from_prefix == taken + 1
            (theirs,) = ordinary.responses[0].partition_responses
            (ours,) = short.responses[0].partition_responses
            assert theirs.base_offset == ours.base_offset + 1
            ours.base_offset += 1
            assert short == ordinary

    play(tmp_path, story)


def test_topics_with_append_time_go_to_the_handler(tmp_path):
    async def story(node):
        _, answer = await node.ask(node.request(9, batch()), 9)
        (told,) = answer.responses[0].partition_responses
        assert told.error_code == 0
        assert told.log_append_time_ms > 1_700_000_000_000
        assert node.from_prefix == 0

    play(tmp_path, story, message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_unusual_goes_to_the_handler(tmp_path, version):
    async def story(node):
        corrupt = batch()
        corrupt[-1] ^= 1
        await node.ask(node.request(version, batch()), version)
        assert node.from_prefix == 1
        transactional = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        unusual = [
            node.request(version, corrupt),
            node.request(version, batch(), index=7),
            node.request(version, batch(), acks=2),
            node.request(version, batch(), topics=2),
            node.request(version, batch(2_000_000)),
            node.request(version, b"".join([batch(), batch()])),
            node.request(version, None),
            node.request(version, batch(), transactional_id=""),
            node.request(version, batch(), transactional_id="me" * 100),
            node.request(version, transactional),
            node.request(version, transactional, transactional_id="me"),
        ]
        told = {True: [], False: []}
        for request, repeated in itertools.product(unusual, (True, False)):
            _, answer = await node.ask(request, version, repeated)
            told[repeated].append(answer.responses[0].partition_responses[0].error_code)
        assert told[True] == told[False]
        # Several topics, and any transactional id for what is not transactional, are in order.
        assert told[True].count(ErrorCode.NONE) == 3
        assert node.from_prefix == 2  # that of the transactional id, too

    play(tmp_path, story)


NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


class Producer:
    """The transactional producer `me`, by single requests of one version of Produce."""

    def __init__(self, node, version):
        self.node, self.version = node, version
        self.producer_id = self.epoch = -1
        self.sequence = 0

    @property
    def identity(self):
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def ask(self, request, version, code_of=lambda answer: answer.error_code, repeated=True):
        while code_of(answer := (await self.node.ask(request, version, repeated))[1]) in NOT_YET:
            await asyncio.sleep(0.001)
        return answer

    async def begin(self):
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["me"], key_type=1)
        await self.ask(request, 4, lambda answer: answer.coordinators[0].error_code)
        request = init_producer_id.InitProducerIdRequest(transactional_id="me", transaction_timeout_ms=60_000)
        answer = await self.ask(request, 4)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add(self):
        """Nothing to do where partitions add themselves."""
        if self.version >= 12:
            return
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="me",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )

        def code_of(answer):
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        assert code_of(await self.ask(request, 3, code_of)) == 0

    def request(self, sequence=None, size=100, transactional=True, transactional_id="me", **other):
        sequence = self.sequence if sequence is None else sequence
        identity = {**self.identity, **other}
        records = batch(size, base_sequence=sequence, transactional=transactional, **identity)
        return self.node.request(self.version, records, transactional_id=transactional_id)

    async def send(self, repeated=True, size=100):
        """The next batch; what is told of it."""

        def told(answer):
            return answer.responses[0].partition_responses[0]

        answer = await self.ask(
            self.request(size=size), self.version, lambda answer: told(answer).error_code, repeated
        )
        assert told(answer).error_code == 0
        self.sequence += 1
        return answer

    async def end(self):
        version = 5 if self.version >= 12 else 4
        answer = await self.ask(
            end_txn.EndTxnRequest(transactional_id="me", committed=True, **self.identity), version
        )
        assert answer.error_code == 0
        if version == 5:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_are_served_by_their_prefix_once_their_transaction_is_open(tmp_path, version):
    async def story(node):
        producer = Producer(node, version)
        await producer.begin()
        for transaction in range(1, 3):
            await producer.add()
            await producer.send()
            for size in (0, 10, 5000, 70_000):
                short = await producer.send(size=size)
                ordinary = await producer.send(size=size, repeated=False)
                (ours,) = short.responses[0].partition_responses
                (theirs,) = ordinary.responses[0].partition_responses
                assert theirs.base_offset == ours.base_offset + 1
                ours.base_offset += 1
                assert short == ordinary
            assert node.from_prefix == 4 * transaction
            await producer.end()
        log = node.server.store.get("t", 0)
        await until(lambda: log.last_stable_offset == SEEDED + 2 * (1 + 2 * 4 + 1))

    play(tmp_path, story)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_does_not_go_on_in_the_open_transaction_goes_to_the_handler(tmp_path, version):
    async def story(node):
        producer = Producer(node, version)
        for _ in range(2):
            await producer.begin()
        await producer.add()
        for _ in range(2):
            await producer.send()
        assert node.from_prefix == 1
        unusual = {
            "a duplicate": producer.request(0),
            "a gap": producer.request(7),
            "no id": producer.request(transactional_id=None),
            "not in it": producer.request(transactional=False),
            "an older epoch": producer.request(producer_epoch=producer.epoch - 1),
            "of nobody": producer.request(producer_id=1 << 40),
        }
        told = {True: {}, False: {}}
        for (name, request), repeated in itertools.product(unusual.items(), (True, False)):
            _, answer = await node.ask(request, version, repeated)
            told[repeated][name] = answer.responses[0].partition_responses[0].error_code
        assert told[True] == told[False]
        assert [name for name, code in told[True].items() if code == 0] == ["a duplicate"]
        assert node.from_prefix == 1
        await producer.send()
        assert node.from_prefix == 2

    play(tmp_path, story)


def test_batches_of_an_open_transaction_that_arrive_together_are_one_burst(tmp_path):
    async def story(node):
        producer = Producer(node, 12)
        await producer.begin()
        await producer.send()
        frames = b"".join(
            request_frame(producer.request(sequence), 12, sequence, "tests") for sequence in range(1, 40)
        )
        node.client.send(frames)
        for sequence in range(1, 40):
            correlation_id, answer = await node.client.receive(produce.ProduceRequest, 12)
            (told,) = answer.responses[0].partition_responses
            assert (correlation_id, told.error_code, told.base_offset) == (sequence, 0, SEEDED + sequence)

    play(tmp_path, story)


def test_a_prefix_is_forgotten_when_the_cluster_changes(tmp_path):
    async def story(node):
        await node.ask(node.request(9, batch()), 9)
        assert node.from_prefix == 1
        node.server.plane.delete_topics(["t"])
        _, answer = await node.ask(node.request(9, batch()), 9)
        assert answer.responses[0].partition_responses[0].error_code == 3
        names = [metadata.MetadataRequestTopic(name="t")]
        await node.ask(metadata.MetadataRequest(topics=names), 9)
        _, answer = await node.ask(node.request(9, batch()), 9)
        assert answer.responses[0].partition_responses[0].base_offset == 0

    play(tmp_path, story)


def test_a_duplicate_gets_its_first_offset_from_the_handler(tmp_path):
    async def story(node):
        known = batch(producer_id=77, producer_epoch=0, base_sequence=0)
        following = batch(producer_id=77, producer_epoch=0, base_sequence=1)
        for _ in range(2):
            for sent, offset in ((known, SEEDED), (following, SEEDED + 1)):
                _, answer = await node.ask(node.request(11, sent), 11)
                assert answer.responses[0].partition_responses[0].base_offset == offset
        gap = batch(producer_id=77, producer_epoch=0, base_sequence=5)
        _, answer = await node.ask(node.request(11, gap), 11)
        assert answer.responses[0].partition_responses[0].error_code == 45
        assert node.from_prefix == 2  # the two that were new

    play(tmp_path, story)


def test_a_failed_commit_is_told_with_a_prefix_too(tmp_path):
    async def story(node):
        await node.ask(node.request(9, batch()), 9)
        partition = node.server.store.get("t", 0)
        original = type(partition).commit

        def fail(self):
            original(self)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

        type(partition).commit = fail
        try:
            _, answer = await node.ask(node.request(9, batch()), 9)
        finally:
            type(partition).commit = original
        assert node.from_prefix == 2
        (told,) = answer.responses[0].partition_responses
        assert (told.error_code, told.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    play(tmp_path, story)


def test_a_failed_commit_is_answered_in_the_version_of_each_request(tmp_path):
    async def story(node):
        versions = (9, 13, 11, 13)
        partition = node.server.store.get("t", 0)
        for version in versions:
            await node.ask(node.request(version, batch()), version)
        original = type(partition).commit

        def fail(self):
            original(self)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

        frames = [
            request_frame(node.request(version, batch()), version, number, "tests")
            for number, version in enumerate(versions)
        ]
        type(partition).commit = fail
        try:
            node.client.send(b"".join(frames))
            for number, version in enumerate(versions):
                correlation_id, answer = await node.client.receive(produce.ProduceRequest, version)
                (topic,) = answer.responses
                (told,) = topic.partition_responses
                assert (correlation_id, told.error_code) == (number, ErrorCode.KAFKA_STORAGE_ERROR)
                assert (topic.name, topic.topic_id) == (
                    ("", node.topic_id) if version >= 13 else ("t", bytes(16))
                )
        finally:
            type(partition).commit = original
        metrics = node.server.metrics()
        errors = {version: metrics["Produce", version].errors for version in set(versions)}
        assert errors == {9: {56: 1}, 11: {56: 1}, 13: {56: 2}}

    play(tmp_path, story)


def test_one_client_alone_and_two_by_turns_get_what_they_are_owed(tmp_path):
    async def story(node):
        clients = [node.client, await AsyncRawClient.connect(node.server.port)]
        latest = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
        ask_latest = list_offsets.ListOffsetsRequest(
            replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[latest])]
        )
        # The first connection thrice, then both by turns, then the other: each its own kind of turn.
        for number, who in enumerate([0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1]):
            produced = await clients[who].ask(node.request(9, batch()), 9, number)
            (told,) = produced.responses[0].partition_responses
            assert (told.error_code, told.base_offset) == (0, SEEDED + number)
            found = await clients[who].ask(ask_latest, 7, 100 + number)
            assert found.topics[0].partitions[0].offset == SEEDED + number + 1
        clients[1].close()

    play(tmp_path, story)


def test_a_client_alone_is_told_of_a_failed_commit_and_goes_on(tmp_path):
    async def story(node):
        partition = node.server.store.get("t", 0)
        original = type(partition).commit
        for number in range(3):
            await node.client.ask(node.request(9, batch()), 9, number)

        def fail(self):
            original(self)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

        type(partition).commit = fail
        try:
            answer = await node.client.ask(node.request(9, batch()), 9, 3)
        finally:
            type(partition).commit = original
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answer = await node.client.ask(node.request(9, batch()), 9, 4)
        assert answer.responses[0].partition_responses[0].error_code == 0

    play(tmp_path, story)


@pytest.mark.parametrize("bound", ["remembered_of_connection_max", "remembered_max"])
def test_what_is_remembered_is_bounded(tmp_path, bound):
    async def story(node):
        dispatcher = node.server.connections.dispatcher
        setattr(dispatcher, bound, 5)
        for number in range(20):
            request = node.request(9, batch())
            request.timeout_ms = number
            _, answer = await node.ask(request, 9)
            assert answer.responses[0].partition_responses[0].base_offset == SEEDED + number
            assert dispatcher.remembered <= 5
        assert node.from_prefix == 20

    play(tmp_path, story)


def test_what_is_remembered_goes_with_its_connection(tmp_path):
    async def story(node):
        dispatcher = node.server.connections.dispatcher
        other = await AsyncRawClient.connect(node.server.port)
        await node.ask(node.request(9, batch()), 9)
        assert dispatcher.remembered == 1
        await other.ask(node.request(9, batch()), 9, 1)
        assert dispatcher.remembered == 2  # the same bytes, and another connection
        other.close()
        await until(lambda: dispatcher.remembered == 1)
        for connection in node.server.connections:
            connection.shrink()
        assert dispatcher.remembered == 0
        await node.ask(node.request(9, batch()), 9)
        assert dispatcher.remembered == 1

    play(tmp_path, story)


def test_requests_that_arrive_together_are_answered_in_their_order(tmp_path):
    async def story(node):
        kinds = [(9, -1), (13, -1), (11, 1), (9, 7), (10, -1)]  # one that the handler refuses among them
        sent = [(version, acks, number % 2) for number, (version, acks) in enumerate(kinds * 30)]
        frames = b""
        for number, (version, acks, index) in enumerate(sent):
            frames += request_frame(
                node.request(version, batch(), acks=acks, index=index), version, number, "tests"
            )
        node.client.send(frames)
        offsets = {0: SEEDED, 1: SEEDED}
        for number, (version, acks, index) in enumerate(sent):
            correlation_id, answer = await node.client.receive(produce.ProduceRequest, version)
            (told,) = answer.responses[0].partition_responses
            assert (correlation_id, told.index) == (number, index)
            if acks == 7:
                assert told.error_code == ErrorCode.INVALID_REQUIRED_ACKS
            else:
                assert (told.error_code, told.base_offset) == (0, offsets[index])
                offsets[index] += 1

    play(tmp_path, story)


# Gates: what takes long, and what waits for it --------------------------------------------------------


@pytest.fixture
def may_prepare(monkeypatch):
    """Batches that take long are prepared once this is set."""
    event = threading.Event()
    prepare = appends.prepare

    def wait_and_prepare(*arguments):
        assert event.wait(20)
        return prepare(*arguments)

    monkeypatch.setattr(appends, "prepare", wait_and_prepare)
    yield event
    event.set()


def long_batch(**options):
    return batch(200_000, compression=Compression.GZIP, **options)


def gates(node):
    return node.server.connections.dispatcher.routes.resolve(PRODUCE << 16 | 11).handle._gates.open


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


async def answer_of(client):
    correlation_id, answer = await client.receive(produce.ProduceRequest, 11)
    (told,) = answer.responses[0].partition_responses
    return correlation_id, told.error_code, told.base_offset


def frame_of(node, records, index, correlation_id, **options):
    return request_frame(node.request(11, records, index=index, **options), 11, correlation_id, "tests")


def test_a_repeated_request_waits_at_a_gate_too_and_other_partitions_go_on(tmp_path, may_prepare):
    async def story(node):
        other = await AsyncRawClient.connect(node.server.port)
        node.client.send(frame_of(node, long_batch(), 0, 1) + frame_of(node, batch(), 1, 2))
        await until(lambda: gates(node))
        other.send(frame_of(node, batch(), 1, 3))
        assert await answer_of(other) == (3, 0, SEEDED + 1)
        other.send(frame_of(node, batch(), 0, 4) + frame_of(node, batch(), 1, 5))
        await until(lambda: any(gates(node).values()))
        assert node.server.store.get("t", 0).log_end_offset == SEEDED
        may_prepare.set()
        assert [await answer_of(node.client) for _ in range(2)] == [(1, 0, SEEDED), (2, 0, SEEDED)]
        assert [await answer_of(other) for _ in range(2)] == [(4, 0, SEEDED + 1), (5, 0, SEEDED + 2)]
        await until(lambda: not gates(node))
        taken = node.from_prefix
        await node.ask(node.request(11, batch()), 11)
        assert node.from_prefix == taken + 1
        other.close()

    play(tmp_path, story)


def test_a_client_that_sends_more_than_may_wait_is_not_read_any_further(tmp_path, may_prepare):
    async def story(node):
        node.server.connections.dispatcher.waiting_bytes_max = 400_000
        frames = [frame_of(node, long_batch(), 0, 0)]
        frames += [frame_of(node, batch(100_000), 0, i) for i in range(1, 21)]
        node.client.send(b"".join(frames))
        (connection,) = node.server.connections
        await until(lambda: not connection.is_reading)
        (waiting,) = gates(node).values()
        assert 3 <= len(waiting) <= 5
        may_prepare.set()
        answered = range(21)
        assert [await answer_of(node.client) for _ in answered] == [(i, 0, SEEDED + i) for i in answered]

    play(tmp_path, story)


def test_what_expects_no_answer_and_is_prepared_holds_back_what_its_refusal_would_cut_off(
    tmp_path, may_prepare
):
    async def story(node):
        node.client.send(
            frame_of(node, long_batch(), 0, 0, acks=0)
            + frame_of(node, batch(), 0, 1, acks=0)
            + frame_of(node, batch(), 1, 2)
        )
        await until(lambda: gates(node))
        for _ in range(20):
            await asyncio.sleep(0)
        assert node.server.store.get("t", 1).log_end_offset == SEEDED
        may_prepare.set()
        assert await answer_of(node.client) == (2, 0, SEEDED)
        assert node.server.store.get("t", 0).log_end_offset == SEEDED + 2

    play(tmp_path, story)


def test_a_client_that_goes_leaves_its_batches_to_be_stored(tmp_path, may_prepare):
    async def story(node):
        other = await AsyncRawClient.connect(node.server.port)
        other.send(frame_of(node, long_batch(), 0, 1) + frame_of(node, batch(), 0, 2))
        await until(lambda: any(gates(node).values()))
        other.close()
        await until(lambda: len(node.server.connections) == 1)
        may_prepare.set()
        node.client.send(frame_of(node, batch(), 0, 3))
        assert await answer_of(node.client) == (3, 0, SEEDED + 2)

    play(tmp_path, story)


def test_a_broker_that_stops_answers_what_is_soon_prepared(tmp_path, may_prepare):
    async def story(node):
        node.client.send(frame_of(node, long_batch(), 0, 1))
        await until(lambda: gates(node))
        asyncio.get_running_loop().call_soon(may_prepare.set)
        await node.server.stop()
        assert await answer_of(node.client) == (1, 0, SEEDED)

    play(tmp_path, story)
