"""Transactions on a whole broker: killed between any two steps, resumed without being asked, and as two
client libraries use them.

A kill is a copy of the data directory of a broker that runs: what another broker finds there is what
`kill -9` would have left.
"""

import asyncio
import contextlib
import shutil
import time

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import odradek
from odradek.apis.write_txn_markers import MarkerWriter
from odradek.config.broker_config import load
from odradek.coordinator.cluster.features import first_levels
from odradek.server.broker import BrokerServer
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    add_partitions_to_txn,
    api_versions,
    create_topics,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    produce,
    update_features,
)
from odradek.wire.records import build_batch, iter_batches, iter_records
from tests.raw_client import AsyncRawClient

PATIENCE_S = 20
ASK_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


async def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        await asyncio.sleep(0.01)


class Client(AsyncRawClient):
    """One connection that asks, and asks again where a producer would."""

    async def ask_until(self, request, version, code_of=lambda answer: answer.error_code):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = await self.ask(request, version)
            if code_of(answer) not in ASK_AGAIN:
                return answer
            assert time.monotonic() < deadline, ErrorCode(code_of(answer)).name
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(directory, **options):
    options = {"transaction_state_log_num_partitions": 2, **options}
    server = BrokerServer(load(listen="127.0.0.1:0", data_dir=directory, keywords=options))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def connect(server):
    return await Client.connect(server.port)


class Producer:
    """A transactional producer, step by step; `version` 1 or 2 of transactions."""

    def __init__(self, version):
        self.version = version
        self.producer_id = self.epoch = -1
        self.client = None
        first = [self.find, self.create, self.init]
        self.steps = [*first, *([self.add] if version == 1 else []), self.send, self.commit, self.begin_again]

    async def find(self):
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["me"], key_type=1)
        answer = await self.client.ask(request, 4)
        assert answer.coordinators[0].error_code == 0

    async def create(self):
        topic = create_topics.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        answer = await self.client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        assert answer.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def init(self, timeout_ms=60_000):
        request = init_producer_id.InitProducerIdRequest(
            transactional_id="me", transaction_timeout_ms=timeout_ms
        )
        answer = await self.client.ask_until(request, 4)
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add(self):
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="me",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
        )

        def code_of(answer):
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        assert code_of(await self.client.ask_until(request, 3, code_of)) == 0

    async def send(self, value=b"once"):
        def batch():
            return build_batch(
                [(0, 1_700_000_000_000, None, value, ())],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=0,
                transactional=True,
            )

        data = [produce.PartitionProduceData(index=index, records=batch()) for index in (0, 1)]
        request = produce.ProduceRequest(
            transactional_id="me",
            acks=-1,
            timeout_ms=1000,
            topic_data=[produce.TopicProduceData(name="t", partition_data=data)],
        )

        def code_of(answer):
            (codes,) = {one.error_code for one in answer.responses[0].partition_responses}
            return codes

        answer = await self.client.ask_until(request, 12 if self.version == 2 else 10, code_of)
        assert code_of(answer) == 0

    async def commit(self):
        request = end_txn.EndTxnRequest(
            transactional_id="me",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=True,
        )
        answer = await self.client.ask_until(request, 5 if self.version == 2 else 4)
        assert answer.error_code == 0
        if self.version == 2:
            self.next = answer.producer_id, answer.producer_epoch

    async def begin_again(self):
        if self.version == 2:
            self.producer_id, self.epoch = self.next
            await self.send(b"open")
        else:
            await self.init()
            await self.add()


async def committed(client, index):
    """What a reader of committed records gets of a partition, and its last stable offset."""
    asked = fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        topics=[fetch.FetchTopic(topic="t", partitions=[asked])],
    )
    answer = (await client.ask(request, 11)).responses[0].partitions[0]
    data = bytes(answer.records or b"")
    aborted = {one.producer_id for one in answer.aborted_transactions}
    values = [
        record.value
        for position, header in iter_batches(data)
        if not header.is_control and header.producer_id not in aborted
        for record in iter_records(data[position : position + header.size_bytes])
    ]
    return values, answer.last_stable_offset


async def is_committed(server, client):
    for index in (0, 1):
        log = server.store.get("t", index)
        await until(lambda log=log: log.last_stable_offset >= 2)
        values, _ = await committed(client, index)
        assert values == [b"once"]


@pytest.mark.parametrize("repeats", [False, True], ids=["answered", "answer-lost"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("killed_after", range(7))
def test_a_kill_between_any_two_steps_changes_nothing_for_the_producer(
    tmp_path, version, killed_after, repeats
):
    async def act():
        producer = Producer(version)
        if killed_after >= len(producer.steps):
            return
        async with running(tmp_path / "first") as server:
            producer.client = await connect(server)
            for step in producer.steps[: killed_after + 1]:
                await step()
            shutil.copytree(tmp_path / "first", tmp_path / "second")
        async with running(tmp_path / "second") as server:
            producer.client = await connect(server)
            if repeats and producer.steps[killed_after] != producer.begin_again:
                await producer.steps[killed_after]()
            for step in producer.steps[killed_after + 1 :]:
                await step()
            await is_committed(server, producer.client)

    asyncio.run(act())


def test_what_was_decided_is_carried_out_after_a_kill_without_being_asked(tmp_path, monkeypatch):
    async def act():
        producer = Producer(2)
        with monkeypatch.context() as patches:
            patches.setattr(MarkerWriter, "write", lambda self, marker, partitions, then: None)
            async with running(tmp_path / "first") as server:
                producer.client = await connect(server)
                for step in producer.steps[:-1]:
                    await step()
                assert server.store.get("t", 0).last_stable_offset == 0
                shutil.copytree(tmp_path / "first", tmp_path / "second")
        async with running(tmp_path / "second") as server:
            await is_committed(server, await connect(server))

    asyncio.run(act())


def test_an_open_transaction_is_timed_out_after_a_kill_without_being_asked(tmp_path):
    async def act():
        producer = Producer(2)
        async with running(tmp_path / "first") as server:
            producer.client = await connect(server)
            await producer.find()
            await producer.create()
            await producer.init(timeout_ms=1)
            await producer.send(b"aborted")
            assert server.store.get("t", 0).last_stable_offset == 0
            shutil.copytree(tmp_path / "first", tmp_path / "second")
        often = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 50}
        async with running(tmp_path / "second", **often) as server:
            log = server.store.get("t", 1)
            await until(lambda: log.last_stable_offset == 2)
            client = await connect(server)
            assert await committed(client, 1) == ([], 2)
            request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["me"])
            (state,) = (await client.ask(request, 0)).transaction_states
            assert state.transaction_state == "CompleteAbort"

    asyncio.run(act())


def test_options_bound_time_outs_of_transactions_and_the_life_of_their_ids(tmp_path):
    """Each at a value of its own, far from the others: none can stand in for another."""

    async def act():
        options = {
            "transaction_max_timeout_ms": 5_000,
            "transactional_id_expiration_ms": 300,
            "transaction_remove_expired_transaction_cleanup_interval_ms": 20,
            "transaction_abort_timed_out_transaction_cleanup_interval_ms": 7_000,
            "transaction_state_log_num_partitions": 3,
        }
        async with running(tmp_path, **options) as server:
            settings = server.coordinators.settings_of_transactions(server.cluster_view)
            assert settings.transaction_max_timeout_ms == 5_000
            assert settings.transactional_id_expiration_ms == 300
            assert settings.remove_expired_interval_ms == 20
            assert settings.abort_timed_out_interval_ms == 7_000
            assert settings.transaction_topic_num_partitions == 3

            producer = Producer(2)
            producer.client = client = await connect(server)
            await producer.find()
            too_long = init_producer_id.InitProducerIdRequest(
                transactional_id="me", transaction_timeout_ms=5_001
            )
            refused = await client.ask_until(too_long, 4)
            assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
            await producer.init(5_000)

            asked = describe_transactions.DescribeTransactionsRequest(transactional_ids=["me"])
            deadline = time.monotonic() + PATIENCE_S
            while (code := (await client.ask(asked, 0)).transaction_states[0].error_code) == 0:
                assert time.monotonic() < deadline, "the id does not expire"
                await asyncio.sleep(0.01)
            assert code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        log = b"".join(path.read_bytes() for path in tmp_path.glob("__transaction_state-*/*.log"))
        batches = [log[at : at + header.size_bytes] for at, header in iter_batches(log)]
        values = [record.value for one in batches for record in iter_records(one)]
        assert [value is None for value in values] == [False, True]

    asyncio.run(act())


def test_what_the_coordinator_writes_at_once_is_bounded_by_its_topic(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            client = await connect(server)
            topic = create_topics.CreatableTopic(
                name="__transaction_state",
                num_partitions=1,
                replication_factor=1,
                configs=[create_topics.CreatableTopicConfig(name="max.message.bytes", value="5000")],
            )
            await client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
            assert server.coordinators.settings_of_transactions(server.cluster_view).append_max_bytes == 5_000

    asyncio.run(act())


def test_levels_of_features_are_there_after_a_restart(tmp_path):
    newest = sorted((name, level) for name, level in first_levels().items() if level)
    others = [(name, level) for name, level in newest if name != "transaction.version"]

    async def told(client):
        request = api_versions.ApiVersionsRequest(client_software_name="c", client_software_version="1")
        answer = await client.ask(request, 4)
        return [(one.name, one.max_version_level) for one in answer.finalized_features]

    async def act():
        async with running(tmp_path) as server:
            client = await connect(server)
            assert await told(client) == newest
            update = update_features.FeatureUpdateKey(
                feature="transaction.version", max_version_level=0, upgrade_type=3
            )
            answer = await client.ask(update_features.UpdateFeaturesRequest(feature_updates=[update]), 2)
            assert answer.error_code == 0
            assert await told(client) == others
        async with running(tmp_path) as server:
            assert await told(await connect(server)) == others

    asyncio.run(act())


# Client libraries


@pytest.fixture
def broker():
    options = {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
    with odradek.Broker(process=True, options=options) as broker:
        yield broker


def read_committed(broker, count, topic="t"):
    """The values of one partition, as kafka-python reads them."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    values = [next(consumer).value for _ in range(count)]
    consumer.close()
    return values


def test_kafka_python_commits_and_aborts(broker):
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="me", transaction_timeout_ms=10_000
    )
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, partition=0)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert read_committed(broker, 3) == [b"0", b"2", b"4"]


def confluent_producer(broker, transactional_id="me", **settings):
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "log_level": 0,
            **settings,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def test_confluent_kafka_commits_and_aborts(broker):
    producer = confluent_producer(broker)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("t", b"%d" % number, partition=0)
        if number % 2:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    assert read_committed(broker, 3) == [b"0", b"2", b"4"]


def test_a_second_producer_of_an_id_fences_the_first(broker):
    first = confluent_producer(broker)
    first.begin_transaction()
    first.produce("t", b"lost", partition=0)
    first.flush(PATIENCE_S)
    second = confluent_producer(broker)
    second.begin_transaction()
    second.produce("t", b"kept", partition=0)
    second.commit_transaction(PATIENCE_S)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        first.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert read_committed(broker, 1) == [b"kept"]


def test_a_transaction_goes_on_over_a_kill_of_the_broker(broker):
    producer = confluent_producer(broker)
    producer.begin_transaction()
    producer.produce("t", b"before", partition=0)
    producer.flush(PATIENCE_S)
    broker.kill()
    broker.restart()
    producer.produce("t", b"after", partition=0)
    producer.commit_transaction(PATIENCE_S)
    assert read_committed(broker, 2) == [b"before", b"after"]
