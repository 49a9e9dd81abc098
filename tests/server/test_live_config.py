"""Settings changed while a broker runs: they count at once, and after a restart."""

import asyncio
import contextlib

from odradek.config.broker_config import load
from odradek.server.broker import BrokerServer
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    alter_replica_log_dirs,
    consumer_group_heartbeat,
    create_topics,
    describe_configs,
    describe_log_dirs,
    find_coordinator,
    incremental_alter_configs,
    produce,
)
from odradek.wire.records import Record, build_batch, iter_batches
from tests.raw_client import AsyncRawClient

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1


@contextlib.asynccontextmanager
async def running(directory, **options):
    server = BrokerServer(load(listen="127.0.0.1:0", data_dir=directory, keywords=options))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def ask(server, request, version):
    client = await AsyncRawClient.connect(server.port)
    try:
        return await client.ask(request, version)
    finally:
        client.close()


async def create(server, name, partitions=1, **configs):
    topic = create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    answer = await ask(server, create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    assert answer.topics[0].error_code == 0


async def alter(server, kind, name, **settings):
    """Settings with underscores for dots, None to delete one; the code of the answer."""
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value
            )
            for key, value in settings.items()
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=False
    )
    return ErrorCode((await ask(server, request, 1)).responses[0].error_code).name


async def sources(server, kind, name, setting):
    """(value, source) of a setting and of its synonyms."""
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[setting]
    )
    request = describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    configs = (await ask(server, request, 4)).results[0].configs
    if not configs:
        return None, []
    (config,) = configs
    return (config.value, config.config_source), [(one.value, one.source) for one in config.synonyms]


async def send(server, topic):
    batch = build_batch([Record(0, 1_700_000_000_000, b"key", b"value " * 200)])
    partition = produce.PartitionProduceData(index=0, records=batch)
    data = [produce.TopicProduceData(name=topic, partition_data=[partition])]
    request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)
    answer = await ask(server, request, 9)
    return answer.responses[0].partition_responses[0].error_code


def test_settings_of_groups_count_at_once_and_after_a_restart(tmp_path):
    async def first():
        async with running(tmp_path, group_consumer_migration_policy="Upgrade") as server:
            server.coordinators.groups()
            settings = server.coordinators.settings_of_groups(server.cluster_view)
            assert settings.group_consumer_migration_policy == "upgrade"
            assert await alter(server, GROUP, "g", consumer_session_timeout_ms="50000") == "NONE"
            assert await alter(server, GROUP, "g", consumer_session_timeout_ms="90000") == "INVALID_CONFIG"
            assert settings.of_group("g").consumer_session_timeout_ms == 50_000
            assert settings.of_group("h").consumer_session_timeout_ms == 45_000
            assert await alter(server, BROKER, "", group_streams_assignment_interval_ms="7") == "NONE"
            assert settings.of_group("h").streams_assignment_interval_ms == 7

    async def second():
        assignors = (
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor,"
            "uniform,org.apache.kafka.coordinator.group.assignor.UniformAssignor"
        )
        async with running(tmp_path, group_consumer_assignors=assignors) as server:
            settings = server.coordinators.settings_of_groups(server.cluster_view)
            assert settings.group_consumer_assignors == ("range", "uniform")
            assert settings.of_group("g").consumer_session_timeout_ms == 50_000
            assert settings.of_group("g").streams_assignment_interval_ms == 7
            value = "50000", 8
            told = await sources(server, GROUP, "g", "consumer.session.timeout.ms")
            assert told == (value, [value, ("45000", 5)])

    asyncio.run(first())
    asyncio.run(second())


def test_members_of_a_group_are_told_its_heartbeat_interval_and_no_groups_are_served_that_are_switched_off(
    tmp_path,
):
    async def beat(server, epoch):
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        return await ask(server, request, 1)

    async def act():
        async with running(tmp_path, offsets_topic_num_partitions=1) as server:
            finding = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])
            while (await ask(server, finding, 4)).coordinators[0].error_code:
                await asyncio.sleep(0.01)
            joined = await beat(server, 0)
            assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 5000)
            assert await alter(server, GROUP, "g", consumer_heartbeat_interval_ms="7000") == "NONE"
            again = await beat(server, joined.member_epoch)
            assert (again.error_code, again.heartbeat_interval_ms) == (0, 7000)
        protocols = {"group_coordinator_rebalance_protocols": "classic,streams"}
        async with running(tmp_path, offsets_topic_num_partitions=1, **protocols) as server:
            assert (await beat(server, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(act())


def test_settings_of_topics_and_brokers_count_at_once_and_after_a_restart(tmp_path):
    async def first():
        async with running(tmp_path) as server:
            await create(server, "own", flush_ms="5")
            await create(server, "plain")
            own, plain = server.store.get("own", 0), server.store.get("plain", 0)
            assert (
                await alter(server, BROKER, "", log_flush_interval_ms="7", log_retention_ms="100000")
                == "NONE"
            )
            assert (own.config.flush_ms, plain.config.flush_ms) == (5, 7)
            assert await alter(server, BROKER, "1", log_flush_interval_ms="8") == "NONE"
            assert (own.config.flush_ms, plain.config.flush_ms) == (5, 8)
            assert await alter(server, TOPIC, "own", flush_ms=None, retention_bytes="9") == "NONE"
            assert (own.config.flush_ms, own.config.retention_bytes) == (8, 9)
            await create(server, "new")
            assert server.store.get("new", 0).config.flush_ms == 8

    async def second():
        async with running(tmp_path, log_flush_interval_ms=6) as server:
            own, plain = server.store.get("own", 0), server.store.get("plain", 0)
            assert (own.config.flush_ms, own.config.retention_bytes) == (8, 9)
            assert plain.config.retention_ms == 100_000
            assert await sources(server, TOPIC, "plain", "flush.ms") == (
                ("8", 2),
                [("8", 2), ("7", 3), ("6", 4), (str(2**63 - 1), 5)],
            )
            assert await alter(server, BROKER, "1", log_flush_interval_ms=None) == "NONE"
            assert await alter(server, BROKER, "", log_flush_interval_ms=None) == "NONE"
            assert plain.config.flush_ms == 6
            assert await sources(server, BROKER, "1", "log.flush.interval.ms") == (
                ("6", 4),
                [("6", 4), (str(2**63 - 1), 5)],
            )

    asyncio.run(first())
    asyncio.run(second())


def test_a_codec_set_for_all_brokers_is_that_of_topics_without_one(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            await create(server, "plain")
            await create(server, "own", compression_type="uncompressed")
            assert await alter(server, BROKER, "", compression_type="gzip") == "NONE"
            for topic in ("plain", "own"):
                for _ in range(3):
                    assert await send(server, topic) == 0
            assert await alter(server, TOPIC, "plain", compression_type="zstd") == "NONE"
            assert await send(server, "plain") == 0

            def codecs(topic):
                records = server.store.get(topic, 0).read(0, max_bytes=1 << 20).records
                return [header.compression for _, header in iter_batches(records.tobytes())]

            assert codecs("own") == [Compression.NONE] * 3
            assert codecs("plain") == [Compression.GZIP] * 3 + [Compression.ZSTD]

    asyncio.run(act())


def test_limits_of_connections_and_of_producers_follow(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            settings = {"max_connections_per_ip": "17", "producer_id_expiration_ms": "5000"}
            assert await alter(server, BROKER, "", **settings) == "NONE"
            assert server.connections.limits.connections_per_ip_max == 17
            assert server.store.places.producer_expiration_ms == 5000
            assert await alter(server, BROKER, "", max_connections_per_ip=None) == "NONE"
            assert server.connections.limits.connections_per_ip_max == 2**31 - 1
        async with running(tmp_path) as server:
            assert server.store.places.producer_expiration_ms == 5000

    asyncio.run(act())


def test_threads_of_compaction_are_halved_or_doubled_at_a_time(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            for count, outcome in [
                ("0", "INVALID_REQUEST"),
                ("3", "INVALID_REQUEST"),
                ("2", "NONE"),
                ("4", "NONE"),
                ("9", "INVALID_REQUEST"),
                ("8", "NONE"),
                ("3", "INVALID_REQUEST"),
                (None, "INVALID_REQUEST"),
                ("4", "NONE"),
                ("2", "NONE"),
                (None, "NONE"),
            ]:
                assert await alter(server, BROKER, "", log_cleaner_threads=count) == outcome, count
            # What is set for one broker rules over what is set for all.
            assert await alter(server, BROKER, "1", log_cleaner_threads="2") == "NONE"
            assert await alter(server, BROKER, "", log_cleaner_threads="9") == "NONE"
            assert await alter(server, BROKER, "1", log_cleaner_threads=None) == "INVALID_REQUEST"

    asyncio.run(act())


def test_moves_between_directories_are_throttled_as_it_is_set_and_after_a_restart(tmp_path):
    throttle = "replica.alter.log.dirs.io.max.bytes.per.second"

    async def act():
        async with running(tmp_path) as server:
            assert server.store.relocation.allowance.take(10**9) == 10**9
            assert await sources(server, BROKER, "1", throttle) == (None, [])
            for name, rate in (("", "1000"), ("1", "300")):
                assert await alter(server, BROKER, name, **{throttle.replace(".", "_"): rate}) == "NONE"
            assert await sources(server, BROKER, "1", throttle) == (("300", 2), [("300", 2), ("1000", 3)])
            assert server.store.relocation.allowance.take(10**9) == 600
        async with running(tmp_path) as server:
            assert server.store.relocation.allowance.take(10**9) == 600
            for refused in ("-1", "soon"):
                settings = {throttle.replace(".", "_"): refused}
                assert await alter(server, BROKER, "1", **settings) == "INVALID_REQUEST"

    asyncio.run(act())


def test_a_move_under_way_goes_on_at_once_when_its_throttle_is_lifted(tmp_path):
    throttle = "replica_alter_log_dirs_io_max_bytes_per_second"
    one, two = tmp_path / "one", tmp_path / "two"

    async def moved_bytes(server):
        request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
        answer = await ask(server, request, 4)
        (held,) = [result for result in answer.results if result.log_dir == str(two)]
        return [(one.partition_size, one.is_future_key) for topic in held.topics for one in topic.partitions]

    async def act():
        async with running(f"{one},{two}") as server:
            await create(server, "t")
            assert server.store.get("t", 0).directory == str(one / "t-0")
            for _ in range(20):
                assert await send(server, "t") == 0
            size_bytes = server.store.get("t", 0).size_bytes
            assert await alter(server, BROKER, "", **{throttle: "100"}) == "NONE"
            topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])
            there = alter_replica_log_dirs.AlterReplicaLogDir(path=str(two), topics=[topic])
            request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[there])
            assert (await ask(server, request, 2)).results[0].partitions[0].error_code == 0
            async with asyncio.timeout(20):
                while (found := await moved_bytes(server)) in ([], [(0, True)]):
                    await asyncio.sleep(0.01)
                # It would take minutes.
                assert found[0][0] < size_bytes / 10
                assert found[0][1]
                assert await alter(server, BROKER, "", **{throttle: None}) == "NONE"
                while await moved_bytes(server) != [(size_bytes, False)]:
                    await asyncio.sleep(0.01)

    asyncio.run(act())


RATES = ("follower.replication.throttled.rate", "leader.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def with_underscores(names, value):
    return dict.fromkeys((name.replace(".", "_") for name in names), value)


def test_throttles_of_replication_are_kept_told_and_named_as_without_effect(tmp_path, caplog):
    """As kafka-reassign-partitions --throttle sets them, and takes them back."""
    caplog.set_level("INFO")

    def named(lines):
        """Whether these are the new ones of their kind."""
        found = sorted(told for told in caplog.messages if told.startswith("set "))
        caplog.clear()
        return found == sorted(lines)

    of_broker = [f"set at run time, but without effect here: {', '.join(RATES)}"]
    of_topics = [f"set for topic t and 1 more, but without effect here: {name}" for name in REPLICAS]

    async def act():
        async with running(tmp_path) as server:
            await create(server, "t")
            assert named([])
            assert await alter(server, BROKER, "1", **with_underscores(RATES, "1000000")) == "NONE"
            assert named(of_broker)
            assert await alter(server, TOPIC, "t", **with_underscores(REPLICAS, "0:1")) == "NONE"
            assert named([told.replace(" and 1 more", "") for told in of_topics])
            await create(server, "u", **with_underscores(REPLICAS, "*"))
            assert named([told.replace("t and 1 more", "u") for told in of_topics])
            for refused in ("-1", "soon"):
                assert (
                    await alter(server, BROKER, "1", **with_underscores(RATES, refused)) == "INVALID_REQUEST"
                )
            assert await alter(server, TOPIC, "t", **with_underscores(REPLICAS, "0")) == "INVALID_CONFIG"
            assert named([])
        async with running(tmp_path) as server:
            assert named(of_broker + of_topics)
            for name in RATES:
                assert await sources(server, BROKER, "1", name) == (("1000000", 2), [("1000000", 2)])
            for name in REPLICAS:
                assert await sources(server, TOPIC, "t", name) == (("0:1", 1), [("0:1", 1)])
            assert await alter(server, BROKER, "1", **with_underscores(RATES, None)) == "NONE"
            assert await alter(server, TOPIC, "t", **with_underscores(REPLICAS, None)) == "NONE"
            assert named([])
            for name in RATES:
                assert await sources(server, BROKER, "1", name) == (None, [])

    asyncio.run(act())


def test_a_message_too_large_for_the_new_bound_is_refused(tmp_path):
    async def act():
        async with running(tmp_path) as server:
            await create(server, "t")
            assert await send(server, "t") == 0
            assert await alter(server, TOPIC, "t", max_message_bytes="200") == "NONE"
            assert await send(server, "t") == ErrorCode.MESSAGE_TOO_LARGE
            assert await alter(server, TOPIC, "t", max_message_bytes=None) == "NONE"
            assert await send(server, "t") == 0

    asyncio.run(act())


def test_partitions_that_are_not_loaded_get_new_settings_when_they_are(tmp_path):
    async def first():
        async with running(tmp_path) as server:
            await create(server, "t", 2)

    async def second():
        async with running(tmp_path) as server:
            assert await alter(server, TOPIC, "t", flush_ms="5") == "NONE"
            assert list(server.store.places.loaded()) == []
            assert server.store.get("t", 1).config.flush_ms == 5

    asyncio.run(first())
    asyncio.run(second())


def test_very_many_partitions_take_new_settings_in_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("odradek.server.topic_logs.PARTITIONS_PER_STEP", 3)

    async def act():
        async with running(tmp_path) as server:
            await create(server, "t", 10)
            assert await alter(server, BROKER, "", log_flush_interval_ms="5") == "NONE"
            assert {one.config.flush_ms for one in server.store.places.loaded()} == {5}

    asyncio.run(act())


def test_a_directory_that_is_cordoned_takes_nothing_new_until_it_is_uncordoned(tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")

    async def act(story):
        async with running(f"{one},{two}") as server:
            await story(server)

    async def first(server):
        assert await alter(server, BROKER, "", cordoned_log_dirs=one) == "INVALID_REQUEST"
        assert await alter(server, BROKER, "1", cordoned_log_dirs=f"{one}/") == "INVALID_REQUEST"
        assert await alter(server, BROKER, "1", cordoned_log_dirs=f"*,{one}") == "INVALID_REQUEST"
        assert await alter(server, BROKER, "1", cordoned_log_dirs=f"{one},{one}") == "INVALID_REQUEST"
        assert await alter(server, BROKER, "1", cordoned_log_dirs=one) == "NONE"
        await create(server, "t")
        await create(server, "u")
        assert await alter(server, BROKER, "1", cordoned_log_dirs="*") == "NONE"
        topic = create_topics.CreatableTopic(name="v", num_partitions=1, replication_factor=1)
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        answer = (await ask(server, request, 7)).topics[0]
        assert ErrorCode(answer.error_code).name == "INVALID_REPLICATION_FACTOR"
        written = create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
        topic.num_partitions = topic.replication_factor = -1
        topic.assignments = [written]
        answer = (await ask(server, request, 7)).topics[0]
        assert ErrorCode(answer.error_code).name == "INVALID_REPLICA_ASSIGNMENT"

    async def after_a_restart(server):
        assert not server.store.creating.has_uncordoned
        assert await alter(server, BROKER, "1", cordoned_log_dirs=None) == "NONE"
        await create(server, "v")
        assert sorted(path.name for path in (tmp_path / "one").glob("?-0")) == ["v-0"]
        assert sorted(path.name for path in (tmp_path / "two").glob("?-0")) == ["t-0", "u-0"]

    for story in (first, after_a_restart):
        asyncio.run(act(story))
