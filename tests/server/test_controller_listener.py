"""A node alone at its listeners for controllers (`process.roles=broker,controller`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

import pytest

from odradek.apis.table import LONE_CONTROLLER_MODULES, declared
from odradek.config.broker_config import ConfigError, load
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.embedding.free_port import free_port
from odradek.server.broker import BrokerServer
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.metadata_records import VotersRecord, records_of_batch
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.records import iter_whole_batches
from tests.raw_client import AsyncRawClient
from tests.server.tls_ends import Authority

METADATA_ID = bytes(15) + b"\1"
ALONE = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
}


@contextlib.asynccontextmanager
async def running(directory, options=None):
    given = {**ALONE, "log.dirs": str(directory), **(options or {})}
    server = BrokerServer(load(keywords=given))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def controller_port(server):
    (_, _, port), *_ = server.controller_addresses
    return port


async def of_controller(server):
    return await AsyncRawClient.connect(controller_port(server))


def quorum():
    partition = PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[TopicData(topic_name="__cluster_metadata", partitions=[partition])])


def creation(name):
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def fetch(offset, last_epoch=0, wait_ms=0):
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=1,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=0, topics=[FetchTopic(topic_id=METADATA_ID, partitions=[partition])]
    )


def records_of(data):
    data = memoryview(data)
    for position, header in iter_whole_batches(data):
        yield from records_of_batch(data[position : position + header.size_bytes], header)


def test_each_api_is_declared_where_the_table_says():
    for key in LONE_CONTROLLER_MODULES:
        assert declared(key, LONE_CONTROLLER_MODULES).request.api_key == key


def test_what_is_made_at_one_listener_is_there_at_the_other(tmp_path):
    async def story():
        async with running(tmp_path) as server:
            client, other = await of_controller(server), await AsyncRawClient.connect(server.port)
            versions = await client.ask(ApiVersionsRequest(), 0)
            assert {one.api_key for one in versions.api_keys} == set(LONE_CONTROLLER_MODULES)
            assert (await client.ask(creation("by-controller"), 7)).topics[0].error_code == 0
            assert (await other.ask(creation("by-broker"), 7)).topics[0].error_code == 0
            for name in ("by-controller", "by-broker"):
                assert server.cluster_view.leader_of(name, 0) == 1
                again = await client.ask(creation(name), 7)
                assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            told = await other.ask(MetadataRequest(topics=None), 9)
            assert {one.name for one in told.topics} == {"by-controller", "by-broker"}

    asyncio.run(story())


def test_it_says_where_it_is_reached_also_to_clients(tmp_path):
    async def story():
        async with running(tmp_path) as server:
            port = controller_port(server)
            client, other = await of_controller(server), await AsyncRawClient.connect(server.port)
            cluster = await client.ask(DescribeClusterRequest(endpoint_type=2), 1)
            assert [(one.broker_id, one.port) for one in cluster.brokers] == [(1, port)]
            for asked in (client, other):
                described = await asked.ask(quorum(), 2)
                (node,) = described.nodes
                assert [(one.name, one.port) for one in node.listeners] == [("CONTROLLER", port)]
            # Clients are told of the listener for clients alone.
            told = await other.ask(MetadataRequest(topics=None), 9)
            assert [(one.node_id, one.port) for one in told.brokers] == [(1, server.port)]

    asyncio.run(story())


def test_its_log_is_read_and_makes_the_same_view(tmp_path):
    async def story():
        async with running(tmp_path) as server:
            client = await of_controller(server)
            await client.ask(creation("t"), 7)
            (partition,) = (await client.ask(fetch(0), 17)).responses[0].partitions
            records = [*records_of(partition.records)]
            image = MetadataImage(2, server.cluster_id)
            for record in records:
                image.replay(record)
            image.publish()
            assert image.view.topics == server.cluster_view.topics
            assert image.view.registrations == server.cluster_view.registrations
            (voters,) = [one for one in records if isinstance(one, VotersRecord)]
            ports = [one.port for voter in voters.voters for one in voter.endpoints]
            assert ports == [controller_port(server)]
            offset = partition.high_watermark
            # Who waits is told of the next record.
            waiting = asyncio.create_task((await of_controller(server)).ask(fetch(offset, 1, 60_000), 17))
            await client.ask(creation("u"), 7)
            (partition,) = (await asyncio.wait_for(waiting, 30)).responses[0].partitions
            assert partition.records

    asyncio.run(story())


def test_other_brokers_do_not_join_it_and_are_told_of_once(tmp_path, caplog):
    async def story():
        async with running(tmp_path) as server:
            client = await of_controller(server)
            before = server.cluster_view
            for broker in (7, 7, 8):
                request = BrokerRegistrationRequest(
                    broker_id=broker,
                    cluster_id=server.cluster_id,
                    incarnation_id=bytes(16),
                    listeners=[],
                    features=[],
                    log_dirs=[],
                )
                assert (await client.ask(request, 4)).error_code == ErrorCode.INVALID_REGISTRATION
            # Its own broker is not fenced by one who knows its epoch.
            epoch = before.registrations[1].epoch
            beat = BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=epoch,
                current_metadata_offset=0,
                want_fence=True,
                want_shut_down=True,
                offline_log_dirs=[],
            )
            assert (await client.ask(beat, 2)).error_code == ErrorCode.STALE_BROKER_EPOCH
            ids = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
            assert (await client.ask(ids, 0)).error_code == ErrorCode.STALE_BROKER_EPOCH
            own = await client.ask(UnregisterBrokerRequest(broker_id=1), 0)
            assert own.error_code == ErrorCode.INVALID_REQUEST
            gone = await client.ask(UnregisterBrokerRequest(broker_id=7), 0)
            assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
            assert server.cluster_view is before

    with caplog.at_level(logging.ERROR, logger="odradek.controller"):
        asyncio.run(story())
    told = [one for one in caplog.messages if "takes no other brokers" in one]
    assert [one.partition(" at ")[0] for one in told] == ["broker 7", "broker 8"]


def test_it_is_opened_only_where_the_role_and_the_listener_are_given(tmp_path):
    async def story():
        for options in (
            {"process.roles": ""},
            {"listeners": "PLAINTEXT://127.0.0.1:0"},
        ):
            async with running(tmp_path, options) as server:
                assert list(server.controller_addresses) == []
                (broker,) = server.addresses
                assert broker[0] == "PLAINTEXT"

    asyncio.run(story())


def test_a_taken_port_is_told_before_anything_is_written(tmp_path):
    async def story():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            listeners = f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"
            with pytest.raises(ConfigError, match=r"listener CONTROLLER\) is taken"):
                async with running(tmp_path / "data", {"listeners": listeners}):
                    pass
        assert not (tmp_path / "data").exists()

    asyncio.run(story())


def test_a_stop_closes_it_and_the_next_start_has_it_again(tmp_path):
    async def story():
        port = free_port()
        listeners = f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"
        for _ in range(2):
            async with running(tmp_path, {"listeners": listeners}) as server:
                client = await of_controller(server)
                assert (await client.ask(quorum(), 2)).topics[0].partitions[0].leader_id == 1
            assert await client.read_to_end() == b""
            with pytest.raises(ConnectionRefusedError):
                await AsyncRawClient.connect(port)

    asyncio.run(story())


def test_it_serves_on_with_other_data_at_the_same_port(tmp_path):
    async def story():
        async with running(tmp_path) as server:
            port, client = controller_port(server), await of_controller(server)
            await client.ask(creation("t"), 7)
            await server.serve_other_data(lambda: None)
            assert controller_port(server) == port
            assert await client.read_to_end() == b""
            client = await of_controller(server)
            assert (await client.ask(creation("t"), 7)).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    asyncio.run(story())


def test_its_protocol_is_that_of_the_map(tmp_path):
    """A login at one, TLS at the other; clients of the broker need neither."""
    authority = Authority()
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='right';"
    options = {
        "controller.listener.names": "LOGIN,SEALED",
        "listeners": "PLAINTEXT://127.0.0.1:0,SEALED://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SEALED:SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": plain,
        "connection.failed.authentication.delay.ms": "0",
        **{f"listener.name.sealed.{name}": value for name, value in authority.server_options().items()},
    }

    async def log_in(client, password):
        assert (await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
        request = SaslAuthenticateRequest(auth_bytes=b"\0ann\0" + password)
        return (await client.ask(request, 2)).error_code

    def sealed(port):
        context = authority.client_context()
        with (
            socket.create_connection(("127.0.0.1", port), 30) as connected,
            context.wrap_socket(connected, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(request_frame(quorum(), 2, 1, "test"))
            with wrapped.makefile("rb") as answers:
                size = int.from_bytes(answers.read(4), "big")
                return read_response(answers.read(size), DescribeQuorumRequest, 2)[1]

    async def story():
        async with running(tmp_path, options) as server:
            ports = {name: port for name, _, port in server.controller_addresses}
            assert list(ports) == ["LOGIN", "SEALED"]
            client = await AsyncRawClient.connect(ports["LOGIN"])
            assert await log_in(client, b"wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
            client = await AsyncRawClient.connect(ports["LOGIN"])
            assert await log_in(client, b"right") == 0
            described = await client.ask(quorum(), 2)
            assert [one.name for one in described.nodes[0].listeners] == ["LOGIN", "SEALED"]
            answer = await asyncio.to_thread(sealed, ports["SEALED"])
            assert answer.topics[0].partitions[0].leader_id == 1
            # Without a login nothing is served there.
            client = await AsyncRawClient.connect(ports["LOGIN"])
            client.send_request(quorum(), 2)
            assert await client.read_to_end() == b""

    asyncio.run(story())


def test_rules_count_at_it(tmp_path):
    options = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}

    async def story():
        async with running(tmp_path, options) as server:
            client = await of_controller(server)
            answer = await client.ask(creation("t"), 7)
            assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            described = await client.ask(quorum(), 2)
            assert described.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert (await client.ask(fetch(0), 17)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    asyncio.run(story())
