"""The whole broker on an event loop: start, stop, what is on disk afterwards, what a person is told."""

import asyncio
import contextlib
import os
import shutil
import socket
import threading

import pytest

from odradek.config.broker_config import ConfigError, load
from odradek.server import phase_serve
from odradek.server.background import upkeep, work
from odradek.server.broker import BrokerServer
from odradek.server.metadata.meta_properties import METADATA_LOG
from odradek.server.network._clock import Clock
from odradek.server.network.timers import wall_clock_ms
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsFile
from odradek.storage.log import time_search
from odradek.storage.log.durability import Durability
from odradek.storage.log.flush_journal import Block
from odradek.wire.compression import Compression
from odradek.wire.messages import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    find_coordinator,
    list_offsets,
    metadata,
    produce,
)
from odradek.wire.records import Record, build_batch, records_section
from odradek.wire.work import finish
from tests.raw_client import AsyncRawClient

TOPIC = 2
OF_THE_TOPIC, OF_THE_BROKERS_FILE = 1, 4
"""Where a setting that DescribeConfigs tells comes from."""


class Client(AsyncRawClient):
    """One connection that creates topics and produces."""

    async def create(self, name, partitions=1, configs=()):
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[create_topics.CreatableTopicConfig(name=n, value=v) for n, v in configs],
        )
        answer = await self.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        return answer.topics[0]

    async def produce(self, topic, value, partition=0, acks=-1, key=None):
        batch = build_batch([Record(0, 1_700_000_000_000, key, value)])
        request = produce.ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                produce.TopicProduceData(
                    name=topic, partition_data=[produce.PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
        answer = await self.ask(request, 9)
        return answer.responses[0].partition_responses[0]


def configuration(directory, listen="127.0.0.1:0", **options):
    return load(listen=listen, data_dir=directory, keywords=options)


@contextlib.asynccontextmanager
async def running(directory, **options):
    server = BrokerServer(configuration(directory, **options))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def test_a_started_broker_answers_and_a_stopped_one_leaves_a_clean_directory(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            answer = await client.ask(api_versions.ApiVersionsRequest(), 0)
            assert answer.error_code == 0
            assert {18, 0, 1, 3} <= {api.api_key for api in answer.api_keys}
            assert (await client.create("orders")).error_code == 0
            assert (await client.produce("orders", b"x")).base_offset == 0
        assert await client.read_to_end() == b""

    asyncio.run(act())
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "orders-0" / "00000000000000000000.log").stat().st_size > 60


def test_topics_records_and_identity_are_there_after_a_restart(tmp_path):
    async def first():
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            await client.create("orders", 3, [("retention.ms", "5000000")])
            await client.produce("orders", b"x", 2)
            return server.cluster_id

    async def second():
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            assert (await client.produce("orders", b"y", 2)).base_offset == 1
            partition = server.store.get("orders", 1)
            assert partition.config.retention_ms == 5_000_000
            return server.cluster_id

    assert asyncio.run(first()) == asyncio.run(second())


def test_a_deleted_topic_may_be_created_again_and_starts_empty(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            await client.create("orders")
            await client.produce("orders", b"x")
            request = delete_topics.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000)
            assert (await client.ask(request, 5)).responses[0].error_code == 0
            await client.create("orders")
            assert (await client.produce("orders", b"y")).base_offset == 0

    asyncio.run(act())


@pytest.mark.parametrize("stage", ["directories missing", "directories of a deleted topic left"])
def test_a_kill_between_decision_and_directories_is_mended_at_the_next_start(tmp_path, stage):
    async def first():
        async with running(tmp_path) as server:
            await (await Client.connect(server.port)).create("orders")

    async def second():
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            if stage == "directories of a deleted topic left":
                assert (await client.create("orders")).error_code == 0
            assert (await client.produce("orders", b"y")).base_offset == 0

    asyncio.run(first())
    if stage == "directories missing":
        for path in (tmp_path / "orders-0").iterdir():
            path.unlink()
        (tmp_path / "orders-0").rmdir()
    else:
        shutil.rmtree(tmp_path / METADATA_LOG)
    asyncio.run(second())


@pytest.mark.parametrize(
    ("broker_options", "topic_settings", "source"),
    [
        ({}, [("flush.messages", "1")], OF_THE_TOPIC),
        ({"log_flush_interval_messages": 1}, [], OF_THE_BROKERS_FILE),
    ],
    ids=["topic", "broker"],
)
def test_produce_waits_for_the_disk_when_every_message_is_to_be_flushed(
    tmp_path, monkeypatch, broker_options, topic_settings, source
):
    """Whichever way it gets there: by its own file, or by the flush journal, which is prepared meanwhile."""
    flushed = []
    by_file, by_block = Durability.flush, Block.write

    def flush(durability):
        flushed_until = by_file(durability)
        flushed.append(os.path.basename(durability.files.directory))
        return flushed_until

    def write(block):
        by_block(block)
        flushed.extend(partition.name for partition, _ in block.tails)

    async def act():
        async with running(tmp_path, **broker_options) as server:
            client = await Client.connect(server.port)
            await client.create("safe", configs=topic_settings)
            resource = describe_configs.DescribeConfigsResource(
                resource_type=TOPIC, resource_name="safe", configuration_keys=["flush.messages"]
            )
            described = await client.ask(describe_configs.DescribeConfigsRequest(resources=[resource]), 4)
            (setting,) = described.results[0].configs
            assert (setting.value, setting.config_source) == ("1", source)
            monkeypatch.setattr(Durability, "flush", flush)
            monkeypatch.setattr(Block, "write", write)
            assert (await client.produce("safe", b"x")).error_code == 0
            assert flushed == ["safe-0"]
            assert (await client.produce("safe", b"y")).error_code == 0
            assert flushed == ["safe-0", "safe-0"]
            monkeypatch.undo()

    asyncio.run(act())


def test_every_answer_names_the_address_that_the_client_dialled(tmp_path):
    async def act():
        async with running(tmp_path, listen=":0") as server:
            for host in ("127.0.0.1", "::1"):
                try:
                    client = await Client.connect(server.port, host)
                except OSError:
                    assert host == "::1", "no IPv4 loopback"
                    continue
                brokers = (await client.ask(metadata.MetadataRequest(topics=[]), 9)).brokers
                cluster = await client.ask(describe_cluster.DescribeClusterRequest(), 0)
                coordinator = await client.ask(
                    find_coordinator.FindCoordinatorRequest(key="g", key_type=0), 2
                )
                told = {(b.host, b.port) for b in [*brokers, *cluster.brokers, coordinator]}
                assert told == {(host, server.port)}

    asyncio.run(act())


def test_a_broker_on_every_interface_names_to_each_client_the_one_that_it_came_by(tmp_path):
    async def act():
        async with running(tmp_path, listen="0.0.0.0:0") as server:
            for host in ("127.0.0.1", "127.0.0.2"):
                client = await Client.connect(server.port, host)
                brokers = (await client.ask(metadata.MetadataRequest(topics=[]), 9)).brokers
                cluster = await client.ask(describe_cluster.DescribeClusterRequest(), 0)
                finding = find_coordinator.FindCoordinatorRequest(key="g", key_type=0)
                told = [*brokers, *cluster.brokers, await client.ask(finding, 2)]
                assert [(one.host, one.port) for one in told] == [(host, server.port)] * 3

    asyncio.run(act())


@pytest.mark.parametrize(
    "options",
    [
        {"listen": "localhost:0"},
        {"listeners": "PLAINTEXT://LocalHost:0"},
        {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised_listeners": "PLAINTEXT://LocalHost:0"},
    ],
)
def test_a_name_that_somebody_wrote_is_what_all_answers_tell_with_the_real_port(tmp_path, options):
    async def act():
        async with running(tmp_path, **options) as server:
            client = await Client.connect(server.port)
            brokers = (await client.ask(metadata.MetadataRequest(topics=[]), 9)).brokers
            cluster = await client.ask(describe_cluster.DescribeClusterRequest(), 0)
            finding = find_coordinator.FindCoordinatorRequest(key="g", key_type=0)
            told = [*brokers, *cluster.brokers, await client.ask(finding, 2)]
            name = "localhost" if "listen" in options else "LocalHost"
            assert [(one.host, one.port) for one in told] == [(name, server.port)] * 3

    asyncio.run(act())


def test_an_advertised_address_is_what_all_answers_name(tmp_path):
    async def act():
        async with running(tmp_path, advertised_listeners="PLAINTEXT://kafka.example:1234") as server:
            client = await Client.connect(server.port)
            (broker,) = (await client.ask(metadata.MetadataRequest(topics=[]), 9)).brokers
            (of_cluster,) = (await client.ask(describe_cluster.DescribeClusterRequest(), 0)).brokers
            finding = find_coordinator.FindCoordinatorRequest(key="g", key_type=0)
            coordinator = await client.ask(finding, 2)
            finding = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=1)
            transactional = (await client.ask(finding, 4)).coordinators
            assert len(transactional) == 2
            for told in (broker, of_cluster, coordinator, *transactional):
                assert (told.host, told.port) == ("kafka.example", 1234)

    asyncio.run(act())


def test_several_listeners_answer_each_with_its_own_address(tmp_path):
    listeners = "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
    config = load(
        data_dir=tmp_path,
        keywords={
            "listeners": listeners,
            "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter_broker_listener_name": "INSIDE",
            "advertised_listeners": "OUTSIDE://kafka.example:1234",
        },
    )

    async def act():
        server = BrokerServer(config)
        try:
            await server.start()
            ports = {name: port for name, _, port in server.addresses}
            told = {}
            for name, port in ports.items():
                client = await Client.connect(port)
                (broker,) = (await client.ask(metadata.MetadataRequest(topics=[]), 9)).brokers
                told[name] = (broker.host, broker.port)
            assert told == {"INSIDE": ("127.0.0.1", ports["INSIDE"]), "OUTSIDE": ("kafka.example", 1234)}
        finally:
            await server.stop()

    asyncio.run(act())


def test_a_taken_port_is_told_before_anything_is_written(tmp_path):
    async def act():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = BrokerServer(configuration(tmp_path / "data", f"127.0.0.1:{port}"))
            with pytest.raises(ConfigError, match=f"127.0.0.1:{port} .*is taken"):
                await server.start()
            await server.stop()

    asyncio.run(act())
    assert not (tmp_path / "data").exists()


def test_a_directory_in_use_is_told_and_the_first_broker_lives_on(tmp_path):
    async def act():
        async with running(tmp_path) as first:
            second = BrokerServer(configuration(tmp_path))
            with pytest.raises(ConfigError, match="in use by another broker"):
                await second.start()
            await second.stop()
            client = await Client.connect(first.port)
            assert (await client.create("orders")).error_code == 0
            assert (await client.produce("orders", b"x")).error_code == 0

    asyncio.run(act())


def test_what_another_broker_is_writing_to_the_metadata_is_not_looked_at(tmp_path, caplog):
    """A log of which only a half is there yet looks like one that a crash has torn."""

    async def act():
        async with running(tmp_path) as first:
            client = await Client.connect(first.port)
            assert (await client.create("orders")).error_code == 0
            (log,) = (tmp_path / METADATA_LOG).glob("*.log")
            half = log.read_bytes()[:-10]
            log.write_bytes(half)
            second = BrokerServer(configuration(tmp_path))
            with pytest.raises(ConfigError, match="in use by another broker"):
                await second.start()
            await second.stop()
            assert log.read_bytes() == half

    asyncio.run(act())
    assert not [record for record in caplog.records if record.name == "odradek.metadata"]


def test_a_stop_is_clean_while_clients_wait_and_do_not_read(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            await client.create("orders")
            idle = await Client.connect(server.port)
            idle.send(b"\x00\x00\x10\x00half")
            deaf = await Client.connect(server.port)
            deaf.writer.transport.pause_reading()
            for _ in range(3000):
                deaf.send_request(api_versions.ApiVersionsRequest(), 3, client_id="deaf")
            await client.produce("orders", b"x")
            started = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - started < 2
        deaf.writer.transport.abort()

    asyncio.run(act())
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_that_is_stopped_at_once_gets_ready_for_nothing_more(tmp_path, monkeypatch):
    """While it says goodbye, which may take a while, its timers still run."""
    monkeypatch.setattr(phase_serve, "WARM_UP_DELAY_MS", 0)
    monkeypatch.setattr(phase_serve, "WARM_UP_MORE_DELAY_MS", 0)
    warmed_up = []
    monkeypatch.setattr(phase_serve, "_warm_up", lambda *arguments: warmed_up.append(arguments[-1]))
    stop_serving = phase_serve.stop_serving

    async def stop_slowly(*parts):
        for _ in range(10):
            await asyncio.sleep(0)
        await stop_serving(*parts)

    monkeypatch.setattr(phase_serve, "stop_serving", stop_slowly)

    async def story(goes_on):
        server = BrokerServer(configuration(tmp_path))
        await server.start()
        async with asyncio.timeout(20):
            while goes_on and len(warmed_up) < 2:
                await asyncio.sleep(0.001)
        await server.stop()

    asyncio.run(story(goes_on=False))
    assert not warmed_up
    asyncio.run(story(goes_on=True))
    assert warmed_up == [True, False]


def test_a_compacted_topic_is_cleaned_in_the_background_while_clients_are_served(tmp_path):
    async def act():
        async with running(tmp_path, log_cleaner_backoff_ms=5) as server:
            client = await Client.connect(server.port)
            settings = {
                "cleanup.policy": "compact",
                "segment.bytes": str(1024 * 1024),
                "min.cleanable.dirty.ratio": "0.01",
            }
            assert (await client.create("latest", configs=settings.items())).error_code == 0
            partition = server.store.get("latest", 0)
            for number in range(40):
                value = bytes([number]) * 100_000
                assert (await client.produce("latest", value, key=b"k%d" % (number % 2))).error_code == 0
            # The cleaner gives precedence to all that wants the cores, also to other suites: 2 s, or minutes.
            async with asyncio.timeout(300):
                # 4 MB came; the sealed part shrinks to one record of each key.
                while partition.size_bytes > 1_500_000:
                    await asyncio.sleep(0.005)
            assert (await client.produce("latest", b"x", key=b"k")).base_offset == 40

    asyncio.run(act())


def test_a_broker_that_finds_the_directory_in_use_writes_nothing_into_it(tmp_path):
    """Else a kill of the first one would look like a clean stop, and nothing would be recovered."""

    async def act():
        async with running(tmp_path) as first:
            client = await Client.connect(first.port)
            await client.create("events")
            await client.produce("events", b"kept")
            before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
            second = BrokerServer(configuration(tmp_path))
            with pytest.raises(ConfigError, match="in use"):
                await second.start()
            await second.stop()
            after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
            assert after == before

    asyncio.run(act())


def directories(tmp_path):
    """Those of partitions."""
    return sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != METADATA_LOG)


async def produced_and_stopped(tmp_path, name="events"):
    async with running(tmp_path) as server:
        client = await Client.connect(server.port)
        await client.create(name)
        await client.produce(name, b"old")


def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start(tmp_path, monkeypatch):
    """The topic is gone, its directory is not: neither a stray nor the next topic's data."""

    async def act():
        await produced_and_stopped(tmp_path)
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            with monkeypatch.context() as patches:  # as far as the kill lets it come
                patches.setattr(LogStore, "delete", lambda self, name, index, sync: None)
                await client.ask(
                    delete_topics.DeleteTopicsRequest(topic_names=["events"], timeout_ms=1000), version=3
                )
            assert directories(tmp_path) == ["events-0"]
        async with running(tmp_path) as server:
            assert not server.store.places.names()
            client = await Client.connect(server.port)
            await client.create("other")
        out_of_sight, other = directories(tmp_path)
        assert out_of_sight.startswith("events-0.")
        assert out_of_sight.endswith("-delete")
        assert other == "other-0"
        async with running(tmp_path) as server:
            finish(server.store.maintaining(wall_clock_ms()))
            assert directories(tmp_path) == ["other-0"]

    asyncio.run(act())


def is_working_on_a_request(server):
    """Whether a client waits for an answer that takes several turns of the loop."""
    return any(connection.is_waiting for connection in server.connections)


def many_topics(count):
    return create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(name=f"many-{number}", num_partitions=1, replication_factor=1)
            for number in range(count)
        ],
        timeout_ms=1000,
    )


@pytest.mark.parametrize("kind", ["create", "create by asking", "delete"])
def test_a_large_change_of_topics_lets_others_be_served_and_its_own_connection_wait(
    tmp_path, monkeypatch, kind
):
    """Each step takes a turn of the loop: whoever is served in between is served before the end."""
    monkeypatch.setattr(work, "SLICE_S", 0)
    names = [f"many-{number}" for number in range(100)]
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name) for name in names])
    large, version = many_topics(100), 7
    if kind == "create by asking":
        large, version = asked, 9
    elif kind == "delete":
        large, version = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 5

    async def act():
        async with running(tmp_path) as server:
            client, other = await Client.connect(server.port), await Client.connect(server.port)
            if kind == "delete":
                assert len((await client.ask(many_topics(100), 7)).topics) == 100
            later = metadata.MetadataRequest(topics=None)
            client.send_request(large, version, 1)
            client.send_request(later, 9, 2)
            served = 0
            while not is_working_on_a_request(server):
                await asyncio.sleep(0)
            while is_working_on_a_request(server):
                await other.ask(describe_cluster.DescribeClusterRequest(), 0)
                served += 1
            assert served > 5
            assert (await client.receive_frame())[:4] == b"\0\0\0\1"
            correlation_id, answer = await client.receive(metadata.MetadataRequest, 9)
            assert correlation_id == 2
            assert len(answer.topics) == (0 if kind == "delete" else 100)

    asyncio.run(act())


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_large_batch_is_searched_for_a_time_while_others_are_served(tmp_path, monkeypatch, compression):
    others_were_served = threading.Event()

    def patient(*arguments):
        assert others_were_served.wait(10), "the others had to wait"
        return records_section(*arguments)

    monkeypatch.setattr(time_search, "records_section", patient)
    batch = build_batch(
        [Record(number, 1_700_000_000_000 + number, None, b"v" * 90) for number in range(500)],
        compression=compression,
    )

    async def act():
        async with running(tmp_path) as server:
            client, other = await Client.connect(server.port), await Client.connect(server.port)
            await client.create("t")
            server.store.get("t", 0).appends.append(batch, now_ms=1_700_000_000_000)
            server.store.get("t", 0).commit()
            asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=1_700_000_000_400)
            request = list_offsets.ListOffsetsRequest(
                topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[asked])]
            )
            answer = asyncio.create_task(client.ask(request, 7))
            while not is_working_on_a_request(server):
                await asyncio.sleep(0)
            await other.ask(describe_cluster.DescribeClusterRequest(), 0)
            others_were_served.set()
            found = (await answer).topics[0].partitions[0]
            assert (found.error_code, found.offset, found.timestamp) == (0, 400, 1_700_000_000_400)

    asyncio.run(act())


@pytest.mark.parametrize("turns", [0, 20, 50, 120, 150])
def test_a_creation_that_the_end_interrupts_is_whole_or_not_there_at_the_next_start(
    tmp_path, monkeypatch, turns
):
    monkeypatch.setattr(work, "SLICE_S", 0)

    async def act():
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            client.send_request(many_topics(50), 7)
            while not is_working_on_a_request(server):
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
        async with running(tmp_path) as server:
            count = len(server.cluster_view.topics)
            assert count in (0, 50)
            assert sorted(directories(tmp_path)) == sorted(f"many-{number}-0" for number in range(count))
            client = await Client.connect(server.port)
            answer = await client.ask(many_topics(50), 7)
            assert {topic.error_code for topic in answer.topics} == {36 if count else 0}

    asyncio.run(act())


def test_a_directory_of_another_topic_of_the_name_is_kept_as_a_stray(tmp_path):
    async def act():
        await produced_and_stopped(tmp_path / "one")
        (tmp_path / "two").mkdir()
        (tmp_path / "one" / "events-0").rename(tmp_path / "two" / "events-0")
        async with running(tmp_path / "two") as server:
            assert directories(tmp_path / "two") == ["events-0"]
            client = await Client.connect(server.port)
            await client.create("events")
            assert (await client.produce("events", b"new")).base_offset == 0
        new, stray = directories(tmp_path / "two")
        assert new == "events-0"
        assert stray.startswith("events-0.")
        assert stray.endswith("-stray")
        assert b"old" in (tmp_path / "two" / stray / "00000000000000000000.log").read_bytes()

    asyncio.run(act())


def test_after_a_clean_stop_a_directory_of_another_topic_is_set_aside_when_it_is_asked_for(tmp_path, caplog):
    """Somebody restored a directory from elsewhere, say."""

    async def act():
        await produced_and_stopped(tmp_path / "one")
        await produced_and_stopped(tmp_path / "two")
        shutil.rmtree(tmp_path / "two" / "events-0")
        shutil.copytree(tmp_path / "one" / "events-0", tmp_path / "two" / "events-0")
        async with running(tmp_path / "two") as server:
            assert server.store.opening.was_clean
            client = await Client.connect(server.port)
            caplog.clear()
            assert (await client.produce("events", b"new")).base_offset == 0
            told = [record.getMessage() for record in caplog.records if "events-0" in record.getMessage()]
            assert len(told) == 1
            assert "belonged to another topic" in told[0]
        names = sorted(directories(tmp_path / "two"))
        assert len(names) == 2
        assert names[0] == "events-0"
        assert names[1].endswith("-stray")
        async with running(tmp_path / "two") as server:
            client = await Client.connect(server.port)
            assert (await client.produce("events", b"newer")).base_offset == 1

    asyncio.run(act())


def test_who_has_only_produced_is_named_in_the_log_all_the_same(tmp_path, caplog):
    async def act():
        async with running(tmp_path) as server:
            first, client = await Client.connect(server.port), await Client.connect(server.port)
            await first.create("t")
            for _ in range(3):
                await first.produce("t", b"the first of a log go the long way")
            assert (await client.produce("t", b"x")).base_offset == 3
            client.send(b"GET / HTTP/1.1")
            assert await client.read_to_end() == b""
        assert any("(client 'tests')" in record.getMessage() for record in caplog.records)

    asyncio.run(act())


def test_after_a_kill_no_topic_adopts_the_records_of_another(tmp_path):
    """Killed after the new topic's record was written and before its directory was made."""

    async def act():
        await produced_and_stopped(tmp_path)
        identity = tmp_path / "events-0" / "partition.metadata"
        identity.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
        (tmp_path / ".kafka_cleanshutdown").unlink()
        async with running(tmp_path) as server:
            client = await Client.connect(server.port)
            assert (await client.produce("events", b"new")).base_offset == 0
        assert [name.endswith("-stray") for name in directories(tmp_path)] == [False, True]

    asyncio.run(act())


def test_options_bound_descriptions_batches_of_groups_and_the_memory_of_producers(tmp_path):
    async def act():
        options = {
            "max.request.partition.size.limit": "2",
            "producer.id.expiration.ms": "60000",
            "offsets.topic.num.partitions": "1",
        }
        config = load(listen="127.0.0.1:0", data_dir=tmp_path, sets=[f"{n}={v}" for n, v in options.items()])
        server = BrokerServer(config)
        try:
            await server.start()
            client = await Client.connect(server.port)
            await client.create("many", 3)
            answer = await client.ask(
                describe_topic_partitions.DescribeTopicPartitionsRequest(
                    topics=[], response_partition_limit=2000
                ),
                0,
            )
            assert [len(topic.partitions) for topic in answer.topics] == [2]
            assert server.store.places.producer_expiration_ms == 60_000
            await client.create("__consumer_offsets", 1, [("max.message.bytes", "5000")])
            assert server.coordinators.settings_of_groups(server.cluster_view).append_max_bytes == 5_000
        finally:
            await server.stop()

    asyncio.run(act())


@pytest.mark.parametrize(("asked_ms", "looked_ms"), [(None, 1000), (60_000, 1000), (77, 77), (0, 10)])
def test_logs_due_for_a_flush_are_looked_for_as_often_as_asked(tmp_path, asked_ms, looked_ms):
    settings = {} if asked_ms is None else {"log_flush_scheduler_interval_ms": asked_ms}
    assert upkeep.flush_look_interval_ms(configuration(tmp_path, **settings)) == looked_ms


def test_what_has_waited_for_flush_ms_is_flushed_while_the_broker_runs(tmp_path, monkeypatch):
    clock, looks, synced = [1_700_000_000_000], [], []
    flush_due, sync = LogStore.flush_due, OsFile.sync

    def looking(self, now_ms):
        looks.append(now_ms)
        return flush_due(self, now_ms)

    def syncing(self):
        synced.append(os.fstat(self._descriptor).st_ino)
        sync(self)

    monkeypatch.setattr(LogStore, "flush_due", looking)
    monkeypatch.setattr(OsFile, "sync", syncing)

    async def act():
        settings = {"log_flush_scheduler_interval_ms": 10, "log_flush_interval_ms": 60_000}
        server = BrokerServer(configuration(tmp_path, **settings), clock=Clock(lambda: clock[0]))
        try:
            await server.start()
            client = await Client.connect(server.port)
            await client.create("t")
            assert (await client.produce("t", b"x")).error_code == 0
            inode = (tmp_path / "t-0" / f"{0:020}.log").stat().st_ino
            synced.clear()
            seen = len(looks)
            async with asyncio.timeout(20):
                while len(looks) < seen + 3:
                    await asyncio.sleep(0.01)
            assert inode not in synced
            clock[0] += 60_000
            async with asyncio.timeout(20):
                while inode not in synced:
                    await asyncio.sleep(0.01)
        finally:
            await server.stop()

    asyncio.run(act())
