"""A controller over its socket, with its log on a disk in memory: brokers, readers of the log, Envelopes."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AsyncExitStack
from ipaddress import ip_address

import pytest

from odradek.apis.table import CONTROLLER_MODULES, declared
from odradek.config.broker_config import BrokerConfig
from odradek.config.changes import SET
from odradek.coordinator.cluster.features import FEATURES
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.controller.bootstrap import first_records
from odradek.server.controlling.serving import serve_controller
from odradek.server.metadata.metadata_log import DiskMetadataLog, ThisVoter
from odradek.server.network.ports import bind_ports
from odradek.server.node import Node
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import is_forwardable
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from odradek.wire.messages.alter_partition import AlterPartitionRequest
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, encode_principal
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.metadata_records import records_of_batch
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.unregister_controller import UnregisterControllerRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.wire.records import iter_whole_batches
from tests.raw_client import AsyncRawClient
from tests.server.metadata_logs import PATH, new_disk
from tests.wire.message_samples import Samples

CONTROLLER, BROKER = 100, 1
OF_BROKER = 4
"""Type of a resource."""
EPOCH = 1
CLUSTER = "controllers-of-a-test"
METADATA_ID = bytes(15) + b"\1"
LEVELS = {name: feature.highest for name, feature in FEATURES.items()}
PATIENCE_S = 20


class Running:
    """A controller that serves, and what a test asks it."""

    def __init__(self, controlling, log) -> None:
        self.controlling, self.log = controlling, log
        self.port = controlling.ports.listeners[0].port

    @property
    def view(self):
        return self.controlling.controller.view

    async def client(self):
        return await AsyncRawClient.connect(self.port)

    async def until(self, holds) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


def run(story, *, levels=LEVELS, **options) -> None:
    """Runs `story(running)` beside a controller with these options."""

    async def running() -> None:
        given = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://127.0.0.1:0",
            "log.dirs": "unused",
            **options,
        }
        voter = ThisVoter(CONTROLLER, bytes(range(16)), [("CONTROLLER", "127.0.0.1", 9093)])
        log = DiskMetadataLog(new_disk(), PATH, voter, now_ms=lambda: int(time.time() * 1000))
        log.append(first_records(levels, 1), levels["metadata.version"])
        async with AsyncExitStack() as ending:
            node = Node(config=BrokerConfig(given))
            ports = bind_ports(node.config, node.sockets, ending)
            await story(Running(serve_controller(node, ports, log, CLUSTER, ending), log))

    asyncio.run(running())


def registration(port: int = 9092, broker_id: int = BROKER, incarnation: bytes = bytes(15) + b"\7", **more):
    features = [
        Feature(name=name, min_supported_version=one.lowest, max_supported_version=one.highest)
        for name, one in FEATURES.items()
    ]
    fields = {
        "cluster_id": CLUSTER,
        "listeners": [Listener(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0)],
        "features": features,
        "log_dirs": [bytes(15) + bytes([broker_id + 200])],
    }
    return BrokerRegistrationRequest(broker_id=broker_id, incarnation_id=incarnation, **{**fields, **more})


async def registered(client, port: int = 9092, **more) -> int:
    """The epoch of a broker that is unfenced."""
    answer = await client.ask(registration(port, **more), 4)
    assert answer.error_code == 0
    beaten = await beat(client, answer.broker_epoch, broker_id=more.get("broker_id", BROKER))
    assert (beaten.error_code, beaten.is_fenced, beaten.is_caught_up) == (0, False, True)
    return answer.broker_epoch


async def beat(client, epoch: int, *, broker_id: int = BROKER, offset: int = 2**40, stop: bool = False):
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        current_metadata_offset=offset,
        want_fence=False,
        want_shut_down=stop,
        offline_log_dirs=[],
    )
    return await client.ask(request, 1)


def fetch(
    offset: int, last_epoch: int = EPOCH, *, epoch: int = EPOCH, wait_ms: int = 0, known: int = 2**63 - 1
):
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
        high_watermark=known,
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=BROKER, replica_epoch=1),
        max_wait_ms=wait_ms,
        min_bytes=0,
        topics=[FetchTopic(topic_id=METADATA_ID, partitions=[partition])],
    )


def the_partition(answer):
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def envelope(request, version: int, *, principal=b"", address: bytes = bytes((10, 0, 0, 7))):
    data = encode_principal(DefaultPrincipalData(type="User", name="ada", token_authenticated=False))
    return EnvelopeRequest(
        request_data=request_frame(request, version, 9, "app")[4:],
        request_principal=data if principal == b"" else principal,
        client_host_address=address,
    )


def test_each_api_is_declared_where_the_table_says():
    for key in CONTROLLER_MODULES:
        assert declared(key, CONTROLLER_MODULES).request.api_key == key


def test_each_api_answers_in_each_version_also_what_it_refuses(caplog):
    """With empty requests and random ones; and in an Envelope, if it may be there."""

    async def story(running):
        for key in CONTROLLER_MODULES:
            cls = declared(key, CONTROLLER_MODULES).request
            for version in declared(key, CONTROLLER_MODULES).versions:
                requests = [cls(), *(Samples(seed, tame=True).message(cls, version) for seed in range(5))]
                for request in requests if cls is not EnvelopeRequest else ():
                    await asked(running, request, version)
                    if is_forwardable(key):
                        answer = await asked(running, envelope(request, version), 0)
                        assert answer.error_code in (0, ErrorCode.INVALID_REQUEST), request
        assert not [one for one in caplog.records if one.exc_info], caplog.text

    async def asked(running, request, version):
        client = await running.client()
        try:
            return await asyncio.wait_for(client.ask(request, version), PATIENCE_S)
        except EOFError:
            assert "malformed" in caplog.records[-1].getMessage(), request
        finally:
            client.close()

    run(story)


def test_a_broker_registers_beats_leads_and_stops():
    async def story(running):
        client = await running.client()
        epoch = await registered(client)
        assert running.view.registrations[BROKER].epoch == epoch
        created = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)]), 7
        )
        assert created.topics[0].error_code == 0
        assert [one.leader for one in running.view.topics["t"].partitions] == [BROKER, BROKER]
        ids = await client.ask(AllocateProducerIdsRequest(broker_id=BROKER, broker_epoch=epoch), 0)
        assert (ids.error_code, ids.producer_id_start, ids.producer_id_len) == (0, 0, 1000)
        assert (await beat(client, epoch, stop=True)).should_shut_down is False
        ended = await beat(client, epoch, stop=True)
        # Eligible leader replicas: its partitions have no leader, and it leads them again when it is back.
        assert (ended.should_shut_down, ended.is_fenced) == (True, True)
        assert [(one.leader, one.elr) for one in running.view.topics["t"].partitions] == [(-1, (BROKER,))] * 2

    run(story)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {
                "features": [
                    Feature(name="metadata.version", min_supported_version=1, max_supported_version=7)
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_a_registration_is_refused_with_its_code(more, code):
    async def story(running):
        end = running.log.end_offset
        answer = await (await running.client()).ask(registration(**more), 4)
        assert ErrorCode(answer.error_code) is code
        assert running.log.end_offset == end

    run(story)


def test_stale_epochs_and_unknown_brokers_are_refused():
    async def story(running):
        client = await running.client()
        epoch = await registered(client)
        assert (await beat(client, epoch + 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
        ids = await client.ask(AllocateProducerIdsRequest(broker_id=BROKER, broker_epoch=epoch + 1), 0)
        assert ids.error_code == ErrorCode.STALE_BROKER_EPOCH
        altered = await client.ask(
            AlterPartitionRequest(broker_id=BROKER, broker_epoch=epoch + 1, topics=[]), 3
        )
        assert altered.error_code == ErrorCode.STALE_BROKER_EPOCH
        gone = await client.ask(UnregisterBrokerRequest(broker_id=77), 0)
        assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert gone.error_message == "Broker ID 77 is not currently registered"

    run(story)


def test_the_log_is_read_and_makes_the_same_view():
    async def story(running):
        client = await running.client()
        await registered(client)
        found = the_partition(await client.ask(fetch(0, 0), 18))
        assert (found.error_code, found.high_watermark) == (0, running.log.end_offset)
        image = MetadataImage(BROKER, CLUSTER)
        data = memoryview(found.records)
        for position, header in iter_whole_batches(data):
            for record in records_of_batch(data[position : position + header.size_bytes], header):
                image.replay(record)
        image.publish()
        assert image.view.registrations == running.view.registrations
        assert image.view.features == running.view.features

    run(story)


def test_a_reader_waits_for_records_and_for_a_high_watermark_that_is_news():
    async def story(running):
        reader, client = await running.client(), await running.client()
        end = running.log.end_offset
        told = the_partition(await reader.ask(fetch(end, wait_ms=60_000, known=end - 1), 18))
        assert (told.high_watermark, bytes(told.records or b"")) == (end, b"")
        nothing = the_partition(await reader.ask(fetch(end, wait_ms=10, known=end), 18))
        assert bytes(nothing.records or b"") == b""
        reader.send_request(fetch(end, wait_ms=60_000, known=end), 18)
        await registered(client)
        _, answer = await reader.receive(FetchRequest, 18)
        assert the_partition(answer).records
        assert answer.node_endpoints[0].node_id == CONTROLLER

    run(story)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (fetch(0, 0, epoch=EPOCH - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch(0, 0, epoch=EPOCH + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch(-1, 0), ErrorCode.INVALID_REQUEST),
        (fetch(0, -1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_fetch_with_another_epoch_is_refused_and_told_the_leader(asked, code):
    async def story(running):
        found = the_partition(await (await running.client()).ask(asked, 17))
        assert ErrorCode(found.error_code) is code
        assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (CONTROLLER, EPOCH)

    run(story)


def test_a_reader_with_other_records_is_told_where_they_part():
    async def story(running):
        client = await running.client()
        beyond = the_partition(await client.ask(fetch(running.log.end_offset + 5), 18))
        assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (
            EPOCH,
            running.log.end_offset,
        )
        await client.ask(fetch(3), 18)
        # The broker in its own process is no observer.
        own = fetch(3)
        own.replica_state.replica_id = CONTROLLER
        await client.ask(own, 18)
        described = await client.ask(
            DescribeQuorumRequest(
                topics=[
                    TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
                ]
            ),
            2,
        )
        (partition,) = described.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch) == (CONTROLLER, EPOCH)
        assert [one.replica_id for one in partition.current_voters] == [CONTROLLER]
        assert [(one.replica_id, one.log_end_offset) for one in partition.observers] == [
            (BROKER, running.log.end_offset + 5)
        ]
        assert described.nodes[0].listeners[0].port == running.port

    run(story)


def test_it_says_which_cluster_it_controls():
    async def story(running):
        client = await running.client()
        found = await client.ask(DescribeClusterRequest(endpoint_type=2), 1)
        assert (found.cluster_id, found.controller_id, found.endpoint_type) == (CLUSTER, CONTROLLER, 2)
        assert (found.brokers[0].host, found.brokers[0].port) == ("127.0.0.1", running.port)
        wrong = await client.ask(DescribeClusterRequest(endpoint_type=1), 1)
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        # Version 0 can only ask for brokers.
        assert (await client.ask(DescribeClusterRequest(), 0)).error_code == ErrorCode.INVALID_REQUEST
        versions = await client.ask(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3
        )
        assert {one.api_key for one in versions.api_keys} == set(CONTROLLER_MODULES)

    run(story)


def test_the_quorum_is_described_in_each_version():
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )

    async def story(running):
        client = await running.client()
        await registered(client)
        await client.ask(fetch(running.log.end_offset), 17)
        for version in (0, 1, 2):
            answer = await client.ask(request, version)
            (partition,) = answer.topics[0].partitions
            assert [one.replica_id for one in partition.current_voters] == [CONTROLLER]
            assert [one.replica_id for one in partition.observers] == [BROKER]

    run(story)


def test_who_follows_the_log_is_told_the_endpoint_of_its_own_listener():
    """A node behind a proxy at one of them would leave it for the other one."""

    async def story(running):
        for listener in running.controlling.ports.listeners:
            client = await AsyncRawClient.connect(listener.port)
            for wait_ms in (0, 1):
                answer = await client.ask(fetch(running.log.end_offset, wait_ms=wait_ms), 17)
                assert [(one.node_id, one.port) for one in answer.node_endpoints] == [
                    (CONTROLLER, listener.port)
                ]
            described = await client.ask(DescribeClusterRequest(endpoint_type=2), 1)
            assert [one.port for one in described.brokers] == [listener.port]

    listeners = {
        "listeners": "CONTROLLER://127.0.0.1:0,SECOND://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER,SECOND",
    }
    run(story, **listeners)


def test_a_level_waits_for_each_registered_broker_and_the_one_that_lacks_it_is_named():
    level = LEVELS["metadata.version"]
    older = [
        Feature(
            name=name,
            min_supported_version=one.lowest,
            max_supported_version=one.highest - (name == "metadata.version"),
        )
        for name, one in FEATURES.items()
    ]

    def raised(validate_only=False):
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=level, upgrade_type=1)
        return UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)

    async def story(running):
        client = await running.client()
        await client.ask(registration(features=older), 4)
        refused = await client.ask(raised(), 2)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert f"Broker {BROKER} only supports versions 7-{level - 1}" in refused.error_message
        # It is fenced, and counts all the same.
        await client.ask(registration(), 4)
        assert (await client.ask(raised(), 2)).error_code == 0
        assert running.view.features["metadata.version"] == level

    run(story, levels={**LEVELS, "metadata.version": level - 1})


def test_any_pair_of_cluster_and_node_is_taken_and_half_a_pair_is_not():
    """Kafka's controller does not compare them: only its brokers do."""
    pairs = [(None, -1), (CLUSTER, CONTROLLER), (CLUSTER, 7), ("another", CONTROLLER), ("another", 7)]
    halves = [(None, CONTROLLER), (CLUSTER, -1)]

    async def story(running):
        codes = {}
        for cluster_id, node_id in (*pairs, *halves):
            client = await running.client()
            request = ApiVersionsRequest(
                client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
            )
            codes[cluster_id, node_id] = (await client.ask(request, 5)).error_code
            client.close()
        assert codes == dict.fromkeys(pairs, 0) | dict.fromkeys(halves, ErrorCode.INVALID_REQUEST)

    run(story)


def test_no_controller_is_unregistered():
    """There is one, and it is active."""

    async def story(running):
        client = await running.client()
        for asked in (CONTROLLER, CONTROLLER + 1):
            answer = await client.ask(UnregisterControllerRequest(controller_id=asked), 0)
            codes.append(answer.error_code)

    codes = []
    run(story)
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.CONTROLLER_ID_NOT_REGISTERED]


def test_an_envelope_is_opened_carried_out_and_answered():
    async def story(running):
        client = await running.client()
        await registered(client)
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="from-afar", num_partitions=1, replication_factor=1)]
        )
        answer = await client.ask(envelope(request, 7), 0)
        assert answer.error_code == 0
        correlation_id, inner = read_response(answer.response_data, CreateTopicsRequest, 7)
        assert (correlation_id, inner.topics[0].error_code) == (9, 0)
        assert "from-afar" in running.view.topics
        listed = await client.ask(envelope(ListPartitionReassignmentsRequest(topics=None), 0), 0)
        assert read_response(listed.response_data, ListPartitionReassignmentsRequest, 0)[1].topics == []

    run(story)


def cordoning(directories: str) -> IncrementalAlterConfigsRequest:
    setting = AlterableConfig(name="cordoned.log.dirs", config_operation=SET, value=directories)
    resource = AlterConfigsResource(resource_type=OF_BROKER, resource_name=str(BROKER), configs=[setting])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def test_who_asks_a_controller_itself_only_takes_cordons_away():
    """A broker, which knows its directories, has not seen the change. Kafka's rule."""
    steps = [
        ("/a,/b", "direct", ErrorCode.INVALID_CONFIG),
        ("/a, /b", "by a broker", ErrorCode.NONE),
        ("/b,/c", "direct", ErrorCode.INVALID_CONFIG),
        ("/b", "direct", ErrorCode.NONE),
        ("/a", "direct", ErrorCode.INVALID_CONFIG),
        ("", "direct", ErrorCode.NONE),
    ]

    async def story(running):
        client = await running.client()
        await registered(client)
        for directories, how, code in steps:
            request = cordoning(directories)
            if how == "direct":
                response = await client.ask(request, 1)
            else:
                wrapped = await client.ask(envelope(request, 1), 0)
                _, response = read_response(wrapped.response_data, IncrementalAlterConfigsRequest, 1)
            assert (directories, response.responses[0].error_code) == (directories, code)
        assert running.view.broker_configs[BROKER] == {"cordoned.log.dirs": ""}

    run(story)


def test_a_quota_of_changes_is_kept_also_for_what_brokers_forward():
    def topic(name):
        topics = [CreatableTopic(name=name, num_partitions=50, replication_factor=1)]
        return envelope(CreateTopicsRequest(topics=topics), 7)

    async def created(client, name):
        answer = await client.ask(topic(name), 0)
        _, inner = read_response(answer.response_data, CreateTopicsRequest, 7)
        return ErrorCode(inner.topics[0].error_code), inner.throttle_time_ms

    async def story(running):
        client = await running.client()
        await registered(client)
        op = OpData(key="controller_mutation_rate", value=1.0, remove=False)
        anybody = [EntityData(entity_type="user", entity_name=None)]
        for remove in (False, True):
            op.remove = remove
            entry = EntryData(entity=anybody, ops=[op])
            answer = await client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
            assert answer.entries[0].error_code == 0
            assert (await created(client, f"first-{remove}"))[0] is ErrorCode.NONE
            code, wait_ms = await created(client, f"second-{remove}")
            if remove:
                assert (code, wait_ms) == (ErrorCode.NONE, 0)
            else:
                assert code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
                assert wait_ms > 0
                assert f"second-{remove}" not in running.view.topics

    run(story)


@pytest.mark.parametrize(
    ("wrapped", "code"),
    [
        (
            envelope(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            envelope(ListPartitionReassignmentsRequest(topics=None), 0, principal=None),
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (
            envelope(ListPartitionReassignmentsRequest(topics=None), 0, principal=b"\0\1x"),
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (
            envelope(ListPartitionReassignmentsRequest(topics=None), 0, address=b"\1"),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            EnvelopeRequest(
                request_data=b"\0\1",
                request_principal=encode_principal(
                    DefaultPrincipalData(type="User", name="a", token_authenticated=False)
                ),
                client_host_address=ip_address("::1").packed,
            ),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_an_envelope_with_something_else_is_refused_and_the_connection_stays(wrapped, code):
    async def story(running):
        client = await running.client()
        for _ in range(2):
            answer = await client.ask(wrapped, 0)
            assert (ErrorCode(answer.error_code), answer.response_data) == (code, None)

    run(story)


def test_a_broker_is_fenced_when_its_session_is_over():
    async def story(running):
        await registered(await running.client())
        await running.until(lambda: running.view.registrations[BROKER].is_fenced)

    run(story, **{"broker.session.timeout.ms": "200"})


def test_a_dead_broker_is_fenced_at_once_and_one_that_listens_is_not():
    """Long before its session is over."""

    async def story(running):
        listening = socket.create_server(("127.0.0.1", 0))
        client = await running.client()
        await beat(client, await registered(client, listening.getsockname()[1]))
        reached = (await asyncio.to_thread(listening.accept))[0]  # as the controller looks whether it can
        client.close()
        knocked = await asyncio.to_thread(listening.accept)
        assert not running.view.registrations[BROKER].is_fenced
        second = await running.client()
        epoch = running.view.registrations[BROKER].epoch
        await beat(second, epoch)
        listening.close()
        reached.close()
        knocked[0].close()
        second.close()
        await running.until(lambda: running.view.registrations[BROKER].is_fenced)

    run(story, **{"broker.session.timeout.ms": "600000"})


def test_a_broker_that_its_parent_knows_to_be_dead_is_fenced_when_its_connection_has_closed():
    """Something listens where it was, as its parent does; what it has sent before is taken first."""

    async def story(running):
        watching = running.controlling.watching
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = await running.client()
            port = listening.getsockname()[1]
            epoch = await registered(client, port)
            watching.died(BROKER)
            await beat(client, epoch)
            assert not running.view.registrations[BROKER].is_fenced
            client.close()
            await running.until(lambda: running.view.registrations[BROKER].is_fenced)
            await watching.brokers_have_left()
            # Its session has ended, too: the next process need not wait for that.
            second = await running.client()
            later = await registered(second, port, incarnation=bytes(15) + b"\10")
            assert later > epoch
            # The death of the former process is nothing to this one.
            await beat(second, later)
            assert not running.view.registrations[BROKER].is_fenced

    run(story, **{"broker.session.timeout.ms": "600000"})


def test_a_dead_broker_of_which_there_is_no_connection_is_fenced_at_once():
    async def story(running):
        client = await running.client()
        answer = await client.ask(registration(), 4)
        # It has died before its first heartbeat: its session is over, and another process may register.
        running.controlling.watching.died(BROKER)
        again = await client.ask(registration(incarnation=bytes(15) + b"\10"), 4)
        assert (again.error_code, again.broker_epoch > answer.broker_epoch) == (0, True)
        running.controlling.watching.died(BROKER + 1)  # of which nothing is known

    run(story, **{"broker.session.timeout.ms": "600000"})


def test_a_broker_that_was_never_reached_is_left_to_its_session():
    """Its address may be one for others, behind a translation."""

    async def story(running):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        client = await running.client()
        epoch = await registered(client, port)
        await beat(client, epoch)
        await running.until(lambda: not running.controlling.watching.is_knocking)
        client.close()
        await running.until(lambda: len(running.controlling.connections) == 0)
        await running.until(lambda: not running.controlling.watching.is_knocking)
        assert not running.view.registrations[BROKER].is_fenced

    run(story, **{"broker.session.timeout.ms": "600000"})
