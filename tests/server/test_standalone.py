"""A node alone over its metadata log: what a start writes, where the log is, and which logs it refuses."""

import asyncio
import contextlib
import shutil

import pytest

from odradek.config.broker_config import ConfigError, load
from odradek.config.properties import parse_properties
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.cluster.topics import NewTopic
from odradek.embedding.free_port import free_port
from odradek.server.broker import BrokerServer
from odradek.server.metadata.meta_properties import METADATA_LOG, OLD_STORE
from odradek.storage.disk import OsDisk
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.metadata_records import (
    LeaderChangeMessage,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from odradek.wire.schema import uuid_from_text
from odradek.wire.work import finish
from tests.kit.data_directories import controller_and_log_of, controller_of
from tests.kit.old_store import write_store
from tests.raw_client import AsyncRawClient


@contextlib.asynccontextmanager
async def running(port=0, **settings):
    keywords = {name.replace("_", "."): str(value) for name, value in settings.items()}
    server = BrokerServer(load(listen=f"127.0.0.1:{port}", keywords=keywords))
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def create(server, name, partitions=1):
    (result,) = server.plane.create_topics([NewTopic(name, partitions, 1)])
    assert result.error is None


def kinds_after(directory, offset):
    """Kinds of the records after an offset."""
    with controller_and_log_of(directory) as (_, log):
        return [
            type(record) for batch in log.batches() for record in batch.records if batch.last_offset >= offset
        ]


def test_a_start_after_a_stop_writes_the_leader_of_an_epoch_and_no_more(tmp_path):
    async def story():
        port = free_port()
        async with running(port, log_dirs=tmp_path) as server:
            create(server, "t", 3)
            before = server.cluster_view.topics["t"]
        end_offset = server_end(tmp_path)
        for _ in range(2):
            async with running(port, log_dirs=tmp_path) as server:
                assert server.cluster_view.topics["t"] == before
        # The last one is of the look itself.
        assert kinds_after(tmp_path, end_offset) == [LeaderChangeMessage] * 3

    asyncio.run(story())


def server_end(directory):
    with controller_and_log_of(directory) as (_, log):
        return log.end_offset


def test_the_log_may_have_a_directory_of_its_own(tmp_path):
    async def story():
        directories = {"log_dirs": tmp_path / "data", "metadata_log_dir": tmp_path / "metadata"}
        async with running(**directories) as server:
            create(server, "t")
            with pytest.raises(ConfigError, match=r"metadata\.log\.dir: .* is in use by another node"):
                async with running(log_dirs=tmp_path / "other", metadata_log_dir=tmp_path / "metadata"):
                    pass
        async with running(**directories) as server:
            assert server.cluster_view.leader_of("t", 0) == 1
        assert (tmp_path / "metadata" / METADATA_LOG).is_dir()
        assert not (tmp_path / "data" / METADATA_LOG).exists()
        with pytest.raises(ConfigError, match="which belong in"):
            async with running(log_dirs=f"{tmp_path}/data,{tmp_path}/metadata"):
                pass

    asyncio.run(story())


def test_the_rows_of_an_earlier_version_become_the_log(tmp_path):
    topic_id = bytes(15) + b"\7"

    async def story():
        async with running(log_dirs=tmp_path):
            pass
        shutil.rmtree(tmp_path / METADATA_LOG)
        rows = [("topic", "t", topic_id.hex()), ("partition", "t/0", "1 4 1 1")]
        write_store(tmp_path / OLD_STORE, rows)
        for _ in range(2):
            async with running(log_dirs=tmp_path) as server:
                topic = server.cluster_view.topics["t"]
                assert (topic.topic_id, topic.partitions[0].leader) == (topic_id, 1)
                assert topic.partitions[0].leader_epoch == 5
        assert not (tmp_path / OLD_STORE).exists()
        assert (tmp_path / f"{OLD_STORE}.migrated").exists()

    asyncio.run(story())


def test_the_log_of_a_controller_of_others_is_refused(tmp_path):
    with controller_of(tmp_path) as controller:
        epoch = controller.view.brokers[1].epoch
        records = [
            RegisterBrokerRecord(broker_id=2, fenced=True, log_dirs=[bytes(15) + b"\xff"]),
            UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch),
        ]
        finish(controller.changing(at_once(lambda draft: draft.add_records(records))))

    async def story():
        with pytest.raises(ConfigError, match=r"other nodes \(2\): start it with process.roles=controller"):
            async with running(log_dirs=tmp_path):
                pass

    asyncio.run(story())


def test_a_stop_with_many_changes_leaves_a_snapshot_that_the_next_start_reads(tmp_path):
    async def story():
        async with running(log_dirs=tmp_path) as server:
            create(server, "t", 1100)
        assert list((tmp_path / METADATA_LOG).glob("*.checkpoint"))
        async with running(log_dirs=tmp_path) as server:
            assert len(server.cluster_view.topics["t"].partitions) == 1100

    asyncio.run(story())


def test_the_records_have_the_directory_of_each_partition_and_of_one_that_is_moved(tmp_path):
    def directory_id(name):
        return uuid_from_text(
            parse_properties((tmp_path / name / "meta.properties").read_bytes())["directory.id"]
        )

    def homes():
        return [
            (next(directory_id(name) for name in ("a", "b") if (tmp_path / name / f"t-{index}").is_dir()),)
            for index in range(4)
        ]

    async def until(holds):
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.01)

    async def story():
        async with running(log_dirs=f"{tmp_path}/a,{tmp_path}/b") as server:
            create(server, "t", 4)

            def told():
                return [one.directories for one in server.cluster_view.topics["t"].partitions]

            await until(lambda: told() == homes())
            index = next(one for one in range(4) if (tmp_path / "b" / f"t-{one}").is_dir())
            topic = AlterReplicaLogDirTopic(name="t", partitions=[index])
            client = await AsyncRawClient.connect(server.port)
            request = AlterReplicaLogDirsRequest(
                dirs=[AlterReplicaLogDir(path=f"{tmp_path}/a", topics=[topic])]
            )
            (answer,) = (await client.ask(request, 2)).results[0].partitions
            assert answer.error_code == 0
            await until(lambda: told()[index] == (directory_id("a"),))
            client.close()

    asyncio.run(story())


def test_the_directory_of_the_log_is_locked_as_long_as_the_broker_runs(tmp_path):
    async def story():
        async with running(log_dirs=tmp_path / "a", metadata_log_dir=tmp_path / "m"):
            with pytest.raises(BlockingIOError):
                OsDisk().lock(f"{tmp_path}/m/.lock")
        OsDisk().lock(f"{tmp_path}/m/.lock").release()

    asyncio.run(story())
