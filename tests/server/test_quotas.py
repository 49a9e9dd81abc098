"""Quotas of clients at a broker with a socket: who waits, for how long, and what comes meanwhile."""

import asyncio
import contextlib
import itertools

import pytest

from odradek.config.broker_config import load
from odradek.server.broker import BrokerServer
from odradek.wire.codec import encode_message
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import (
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    list_offsets,
    metadata,
    produce,
    share_fetch,
    share_group_heartbeat,
)
from odradek.wire.records import Record, build_batch
from tests.raw_client import AsyncRawClient

CLIENT = "tests"
OTHER = "other"
GROUP = 32
"""A type of resource."""
LONG_ID = "x" * 1100
"""With such a client id a prefix is too long to be remembered."""


@contextlib.asynccontextmanager
async def running(directory, **options):
    server = BrokerServer(load(listen="127.0.0.1:0", data_dir=directory, keywords=options))
    clients = []
    try:
        await server.start()
        yield Node(server, clients)
    finally:
        for client in clients:
            client.close()
        await server.stop()


class Node:
    def __init__(self, server, clients):
        self.server, self.clients = server, clients
        self.offsets = itertools.count()

    @property
    def meters(self):
        return self.server.connections.dispatcher.meters

    async def client(self):
        client = await AsyncRawClient.connect(self.server.port)
        self.clients.append(client)
        return client

    async def ask(self, request, version, client_id="admin", client=None):
        client = client or await self.client()
        client.send_request(request, version, 5, client_id)
        return read_response(await client.receive_frame(), type(request), version)[1]

    async def create(self, name="t", partitions=1):
        topic = create_topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = await self.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1), 7)
        assert answer.topics[0].error_code == 0

    async def set_quotas(self, client_id=CLIENT, **quotas):
        """Of a client id; None removes one."""
        ops = [
            alter_client_quotas.OpData(key=key, value=float(value or 0), remove=value is None)
            for key, value in quotas.items()
        ]
        entity = [alter_client_quotas.EntityData(entity_type="client-id", entity_name=client_id)]
        entry = alter_client_quotas.EntryData(entity=entity, ops=ops)
        request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        assert [one.error_code for one in (await self.ask(request, 1)).entries] == [0]


def play(directory, story, **options):
    async def act():
        async with running(directory, **options) as node, asyncio.timeout(40):
            await story(node)

    asyncio.run(act())


def produced(size=1000, acks=-1, name="t"):
    batch = build_batch([Record(0, 1_700_000_000_000, b"k", b"v" * size)])
    partition = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name=name, partition_data=[partition])
    return produce.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def body_bytes(request, version):
    return len(encode_message(request, version))


# Produce


@pytest.mark.parametrize("client_id", [CLIENT, LONG_ID], ids=["remembered", "handled"])
@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_a_producer_over_its_rate_is_told_to_wait_and_waits(tmp_path, version, client_id):
    async def story(node):
        await node.create()
        client = await node.client()
        request = produced()
        for _ in range(3):
            await node.ask(request, version, client_id, client)
        size = body_bytes(request, version)
        rate = size // 4
        await node.set_quotas(client_id, producer_byte_rate=rate)
        answers = [await node.ask(request, version, client_id, client) for _ in range(2)]
        assert [one.throttle_time_ms for one in answers] == [0, 0]
        # The third one is over the rate over ten seconds.
        await node.ask(produced(size * 2), version, client_id, client)
        waiting = next(iter(one for one in node.server.connections if one.requests.is_held_back))
        assert waiting.peer_port == client.writer.get_extra_info("sockname")[1]
        # Others go on, with the same client id too: as in Kafka only this channel waits now.
        other = await node.client()
        assert (await node.ask(request, version, OTHER, other)).throttle_time_ms == 0
        again = await node.ask(request, version, client_id, await node.client())
        assert again.throttle_time_ms > 0

    play(tmp_path, story)


def test_remembered_requests_feed_the_meters(tmp_path):
    async def story(node):
        await node.create()
        client = await node.client()
        request = produced(100)
        await node.set_quotas(producer_byte_rate=1e9)
        for _ in range(10):
            assert (await node.ask(request, 9, CLIENT, client)).throttle_time_ms == 0
        route = node.server.connections.dispatcher.routes.resolve(9)
        assert route.from_prefix > 5
        meter = node.meters.of("User:ANONYMOUS", CLIENT).produce
        assert meter.per_second(node.meters.now_ms()) == pytest.approx(
            10 * body_bytes(request, 9) / 10, rel=0.1
        )

    play(tmp_path, story)


def test_requests_that_arrive_together_are_all_charged_also_of_several_client_ids(tmp_path):
    async def story(node):
        await node.create()
        client = await node.client()
        request = produced(100)
        for client_id in (CLIENT, OTHER):
            await node.set_quotas(client_id, producer_byte_rate=1e9, request_percentage=1e6)
            await node.ask(request, 9, client_id, client)
        size = body_bytes(request, 9)
        frames = [request_frame(request, 9, 1, client_id) for client_id in (CLIENT, CLIENT, OTHER) * 10]
        client.send(b"".join(frames))
        for _ in frames:
            await client.receive_frame()
        now_ms = node.meters.now_ms()
        for client_id, count in ((CLIENT, 21), (OTHER, 11)):
            of_client = node.meters.of("User:ANONYMOUS", client_id)
            assert of_client.produce.per_second(now_ms) == pytest.approx(count * size / 10, rel=0.1)
            assert of_client.request.per_second(now_ms) > 0

    play(tmp_path, story)


def test_pipelined_requests_are_metered_when_they_are_served(tmp_path):
    async def story(node):
        await node.create()
        client = await node.client()
        request = produced(1000)
        for _ in range(3):
            await node.ask(request, 9, CLIENT, client)
        # Over the rate with the second one, and then for a while.
        await node.set_quotas(producer_byte_rate=body_bytes(request, 9) // 7)
        for number in range(4):
            client.send_request(request, 9, number, CLIENT)
        waits = []
        for _ in range(2):
            frame = await client.receive_frame()
            waits.append(read_response(frame, produce.ProduceRequest, 9)[1].throttle_time_ms)
        assert waits[0] == 0
        assert 0 < waits[1] < 5_000
        # The others have not begun.
        assert node.server.connections.dispatcher.routes.resolve(9).requests == 5
        frame = await client.receive_frame()
        assert read_response(frame, produce.ProduceRequest, 9)[1].throttle_time_ms > 0

    play(tmp_path, story)


def test_a_producer_that_wants_no_answer_waits_for_bytes_and_not_for_processor_time(tmp_path):
    async def story(node):
        await node.create()
        hasty, large = await node.client(), await node.client()
        await node.set_quotas("hasty", request_percentage=1e-9)
        await node.set_quotas("large", producer_byte_rate=10)
        hasty.send_request(produced(acks=0), 9, 1, "hasty")
        large.send_request(produced(acks=0), 9, 1, "large")
        while node.server.connections.dispatcher.routes.resolve(9).requests < 2:
            await asyncio.sleep(0)
        (held,) = [one for one in node.server.connections if one.requests.is_held_back]
        assert held.requests.client_id == "large"

    play(tmp_path, story)


# Fetch


def fetched(offset=0, name="t", max_wait_ms=0, session=(0, -1), max_bytes=1 << 30, topics=True):
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    asked = [fetch.FetchTopic(topic=name, partitions=[partition])] if topics else []
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=asked,
    )


def records_of(response):
    return sum(len(one.records or b"") for topic in response.responses for one in topic.partitions)


async def filled(node, count=20, size=1000):
    await node.create()
    client = await node.client()
    for _ in range(count):
        await node.ask(produced(size), 9, "filler", client)


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_a_consumer_over_its_rate_gets_an_empty_answer_and_waits(tmp_path, version):
    async def story(node):
        await filled(node)
        await node.set_quotas(consumer_byte_rate=1500)
        client = await node.client()
        first = await node.ask(fetched(), version, CLIENT, client)
        # What is over the whole window is not even read. With its head it is over, and fits a moment later.
        assert (records_of(first), 0 < first.throttle_time_ms < 100) == (0, True)
        first = await node.ask(fetched(), version, CLIENT, client)
        if first.throttle_time_ms == 1:  # the wait before was rounded down, as Kafka does it
            first = await node.ask(fetched(), version, CLIENT, client)
        assert (records_of(first), first.throttle_time_ms) == (15_000, 0)
        second = await node.ask(fetched(), version, CLIENT, client)
        assert second.throttle_time_ms > 5_000
        assert second.responses == []
        assert second.error_code == 0
        (held,) = [one for one in node.server.connections if one.requests.is_held_back]
        assert held.requests.client_id == CLIENT
        # Nothing of it counted.
        meter = node.meters.of("User:ANONYMOUS", CLIENT).fetch
        assert meter.throttle_ms(node.meters.now_ms()) == 0
        assert meter.per_second(node.meters.now_ms()) > 1300

    play(tmp_path, story)


def test_a_session_stays_as_it_was_when_its_answer_is_empty(tmp_path):
    async def story(node):
        await filled(node)
        client = await node.client()
        first = await node.ask(fetched(session=(0, 0)), 12, CLIENT, client)
        session = first.session_id
        assert session
        assert records_of(first) > 19_000
        await node.set_quotas(consumer_byte_rate=100)
        second = await node.ask(fetched(session=(session, 1), topics=False), 12, CLIENT, client)
        assert (second.session_id, second.error_code) == (session, ErrorCode.NONE)
        # 100 a second over ten seconds are not a batch, so the answer is one batch, and too long.
        assert second.throttle_time_ms > 0
        await node.set_quotas(consumer_byte_rate=1e9)
        again = await node.client()
        third = await node.ask(fetched(session=(session, 2), topics=False), 12, CLIENT, again)
        assert (third.error_code, third.session_id) == (ErrorCode.NONE, session)
        assert records_of(third) > 19_000

    play(tmp_path, story)


def test_a_session_that_would_begin_with_an_empty_answer_does_not(tmp_path):
    async def story(node):
        await filled(node)
        await node.set_quotas(consumer_byte_rate=100)
        client = await node.client()
        answer = await node.ask(fetched(session=(0, 0)), 12, CLIENT, client)
        assert answer.throttle_time_ms > 0
        assert (answer.session_id, answer.responses) == (0, [])

    play(tmp_path, story)


def test_a_share_consumer_over_its_rate_acquires_nothing_and_waits(tmp_path):
    async def story(node):
        await filled(node)
        setting = incremental_alter_configs.AlterableConfig(
            name="share.auto.offset.reset", config_operation=0, value="earliest"
        )
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=GROUP, resource_name="g", configs=[setting]
        )
        await node.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        beat = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        )
        wanted = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        while (await node.ask(beat, 1)).error_code != 0:
            await node.ask(wanted, 4)
        asked = [metadata.MetadataRequestTopic(name="t")]
        (topic,) = (await node.ask(metadata.MetadataRequest(topics=asked), 12)).topics

        async def shared(client, member, client_id, epoch=0):
            partition = share_fetch.FetchPartition(partition_index=0)
            request = share_fetch.ShareFetchRequest(
                group_id="g",
                member_id=member,
                share_session_epoch=epoch,
                max_wait_ms=5_000,
                min_bytes=1,
                max_bytes=1_000_000,
                max_records=500,
                batch_size=500,
                topics=[share_fetch.FetchTopic(topic_id=topic.topic_id, partitions=[partition])],
            )
            answer = await node.ask(request, 2, client_id, client)
            found = [one for of_topic in answer.responses for one in of_topic.partitions]
            return answer.throttle_time_ms, [
                (one.first_offset, one.last_offset, one.delivery_count)
                for of in found
                for one in of.acquired_records
            ]

        await node.set_quotas(consumer_byte_rate=1500)
        client = await node.client()
        throttle_ms, ((first, last, count),) = await shared(client, "m", CLIENT)
        # So much fits into the window of ten seconds.
        assert (throttle_ms, first, 9 <= last < 15, count) == (0, 0, True, 1)
        throttle_ms, acquired = await shared(client, "m", CLIENT, 1)
        assert (throttle_ms > 1_000, acquired) == (True, [])
        # It has taken nothing: others get the records with their first delivery.
        assert await shared(await node.client(), "n", OTHER) == (0, [(last + 1, 19, 1)])

    play(tmp_path, story)


def test_a_long_poll_that_is_woken_is_charged_like_any_fetch(tmp_path):
    async def story(node):
        await node.create()
        await node.set_quotas(consumer_byte_rate=50)
        client, producer = await node.client(), await node.client()
        client.send_request(fetched(max_wait_ms=20_000), 12, 1, CLIENT)
        await node.ask(produced(2000), 9, OTHER, producer)
        answer = read_response(await client.receive_frame(), fetch.FetchRequest, 12)[1]
        assert answer.throttle_time_ms > 0
        assert answer.responses == []

    play(tmp_path, story)


def test_followers_fetch_without_a_quota(tmp_path):
    async def story(node):
        await filled(node)
        await node.set_quotas(consumer_byte_rate=100, request_percentage=1e-9)
        client = await node.client()
        request = fetched()
        request.replica_id = 7
        assert (await node.ask(request, 12, CLIENT, client)).throttle_time_ms == 0

    play(tmp_path, story)


# Processor time


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (metadata.MetadataRequest(topics=None), 12),
        (metadata.MetadataRequest(topics=None), 1),
        (list_offsets.ListOffsetsRequest(replica_id=-1, topics=[]), 7),
        (produced(), 9),
        (fetched(), 12),
    ],
    ids=["metadata", "old metadata", "offsets", "produce", "fetch"],
)
def test_processor_time_of_any_request_counts(tmp_path, request_, version):
    async def story(node):
        await filled(node, 2)
        client = await node.client()
        await node.ask(request_, version, CLIENT, client)
        await node.set_quotas(request_percentage=1e-9)
        answer = await node.ask(request_, version, CLIENT, client)
        assert answer.throttle_time_ms == (1000 if version > 1 else 0)
        (held,) = [one for one in node.server.connections if one.requests.is_held_back]
        assert held.requests.client_id == CLIENT
        # After a window it is served again.
        await node.ask(request_, version, CLIENT, client)

    play(tmp_path, story)


# Partitions


async def create_codes(node, version, *topics, client=None, validate_only=False):
    asked = [
        create_topics.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in topics
    ]
    request = create_topics.CreateTopicsRequest(topics=asked, timeout_ms=1, validate_only=validate_only)
    answer = await node.ask(request, version, CLIENT, client)
    return [ErrorCode(one.error_code).name for one in answer.topics], answer.throttle_time_ms


REFUSED = "THROTTLING_QUOTA_EXCEEDED"


def test_topics_are_refused_one_by_one_when_no_partition_is_left(tmp_path):
    async def story(node):
        await node.set_quotas(controller_mutation_rate=1)
        codes, wait_ms = await create_codes(node, 7, ("a", 6), ("b", 8), ("c", 1))
        # 11 at first: 5 are left for b, and none for c.
        assert codes == ["NONE", "NONE", REFUSED]
        assert 2_000 < wait_ms <= 3_000
        view = node.server.serving.opened.plane.view
        assert set(view.topics) == {"a", "b"}
        names = ["a", "b"]
        answer = await node.ask(delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=1), 5, CLIENT)
        assert [ErrorCode(one.error_code).name for one in answer.responses] == [REFUSED] * 2
        assert answer.throttle_time_ms > 0
        growth = create_partitions.CreatePartitionsTopic(name="a", count=7, assignments=None)
        request = create_partitions.CreatePartitionsRequest(
            topics=[growth], timeout_ms=1, validate_only=False
        )
        answer = await node.ask(request, 3, CLIENT)
        assert [ErrorCode(one.error_code).name for one in answer.results] == [REFUSED]
        assert set(view.topics) == {"a", "b"}
        assert len(view.topics["a"].partitions) == 6

    play(tmp_path, story)


def test_old_versions_are_done_and_wait(tmp_path):
    async def story(node):
        await node.set_quotas(controller_mutation_rate=1)
        client = await node.client()
        codes, wait_ms = await create_codes(node, 5, ("a", 6), ("b", 8), ("c", 1), client=client)
        assert codes == ["NONE"] * 3
        assert 3_000 < wait_ms <= 4_000
        (held,) = [one for one in node.server.connections if one.requests.is_held_back]
        assert held.requests.client_id == CLIENT
        growth = create_partitions.CreatePartitionsTopic(name="a", count=7, assignments=None)
        request = create_partitions.CreatePartitionsRequest(
            topics=[growth], timeout_ms=1, validate_only=False
        )
        answer = await node.ask(request, 2, CLIENT)
        assert (answer.results[0].error_code, answer.throttle_time_ms > 3_000) == (0, True)
        answer = await node.ask(delete_topics.DeleteTopicsRequest(topic_names=["c"], timeout_ms=1), 4, CLIENT)
        assert (answer.responses[0].error_code, answer.throttle_time_ms > 3_000) == (0, True)

    play(tmp_path, story)


def test_a_dry_run_counts_like_the_real_one_and_what_is_refused_anyway_does_not(tmp_path):
    async def story(node):
        await node.set_quotas(controller_mutation_rate=1)
        assert (await create_codes(node, 7, ("no/name", 100))) == (["INVALID_TOPIC_EXCEPTION"], 0)
        assert (await create_codes(node, 7, ("a", 20), validate_only=True)) == (["NONE"], 0)
        codes, wait_ms = await create_codes(node, 7, ("a", 1))
        assert (codes, wait_ms > 0) == ([REFUSED], True)

    play(tmp_path, story)


def named(*names):
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    return metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=True)


def test_topics_that_are_created_on_demand_count_and_are_refused(tmp_path):
    async def story(node):
        await node.set_quotas(controller_mutation_rate=1)
        answer = await node.ask(named("a", "b"), 12, CLIENT)
        assert [(one.error_code, len(one.partitions)) for one in answer.topics] == [(0, 6), (0, 6)]
        answer = await node.ask(named("a", "c"), 12, CLIENT)
        assert [(one.error_code, len(one.partitions)) for one in answer.topics] == [(0, 6), (3, 0)]
        assert answer.throttle_time_ms == 0
        answer = await node.ask(named("c"), 12, OTHER)
        assert answer.topics[0].error_code == 0

    play(tmp_path, story, num_partitions=6)


# Where they are kept


async def described(node):
    request = describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False)
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in (await node.ask(request, 1)).entries
    }


def test_quotas_are_there_after_a_restart(tmp_path):
    entity = (("client-id", "tests/ä\n"),)

    async def set_them(node):
        await node.set_quotas("tests/ä\n", producer_byte_rate=10, request_percentage=0.1)
        await node.set_quotas(None, consumer_byte_rate=7)
        await node.set_quotas("gone", consumer_byte_rate=7)
        await node.set_quotas("gone", consumer_byte_rate=None)

    async def look(node):
        assert await described(node) == {
            entity: {"producer_byte_rate": 10, "request_percentage": 0.1},
            (("client-id", None),): {"consumer_byte_rate": 7},
        }
        of_client = node.meters.of("User:ANONYMOUS", "tests/ä\n")
        assert (of_client.produce.bound, of_client.fetch.bound) == (10, 7)

    play(tmp_path, set_them)
    play(tmp_path, look)


def test_without_quotas_nothing_is_measured(tmp_path):
    async def story(node):
        await node.create()
        assert node.meters is None
        await node.set_quotas(producer_byte_rate=1e9)
        assert node.meters is not None
        await node.set_quotas(producer_byte_rate=None)
        assert node.meters is None
        client = await node.client()
        assert (await node.ask(produced(), 9, CLIENT, client)).throttle_time_ms == 0

    play(tmp_path, story)


async def set_address_rate(node, name, value):
    op = alter_client_quotas.OpData(
        key="connection_creation_rate", value=float(value or 0), remove=value is None
    )
    entity = [alter_client_quotas.EntityData(entity_type="ip", entity_name=name)]
    entry = alter_client_quotas.EntryData(entity=entity, ops=[op])
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (answer,) = (await node.ask(request, 1)).entries
    return ErrorCode(answer.error_code).name


@pytest.mark.parametrize("name", ["127.0.0.1", None, "localhost"])
def test_an_address_makes_so_many_connections_in_a_second(tmp_path, name):
    async def story(node):
        assert await set_address_rate(node, name, 3) == "NONE"
        rates = node.server.connections.admission
        while rates.address_rates.of("127.0.0.1") is None:
            await asyncio.sleep(0)
        clients = [await node.client() for _ in range(4)]
        for client in clients[:3]:
            client.send_request(metadata.MetadataRequest(topics=[]), 12)
            await client.receive_frame()
        assert await clients[3].read_to_end() == b""

    play(tmp_path, story, quota_window_num=2)


def test_a_request_may_have_any_number_of_addresses(tmp_path):
    """Names are bounded, as they are looked up."""
    hosts = [*(f"10.0.{number // 250}.{number % 250}" for number in range(400)), "::1", "fe80::1"]

    async def story(node):
        op = alter_client_quotas.OpData(key="connection_creation_rate", value=5.0, remove=False)
        entries = [
            alter_client_quotas.EntryData(
                entity=[alter_client_quotas.EntityData(entity_type="ip", entity_name=host)], ops=[op]
            )
            for host in (*hosts, "no-such-host.invalid")
        ]
        request = alter_client_quotas.AlterClientQuotasRequest(entries=entries, validate_only=False)
        answers = (await node.ask(request, 1)).entries
        refused = [(one.entity[0].entity_name, one.error_message) for one in answers if one.error_code]
        assert refused == [
            ("no-such-host.invalid", "no-such-host.invalid is not a valid IP or resolvable host.")
        ]
        assert len(await described(node)) == len(hosts)

    play(tmp_path, story)


def test_a_host_without_an_address_has_no_quota(tmp_path):
    async def story(node):
        assert await set_address_rate(node, "no-such-host.invalid", 3) == "INVALID_REQUEST"
        assert await described(node) == {}

    play(tmp_path, story)
