"""A data directory whose disk fails: what clients are told, what goes on, and how it comes back."""

import asyncio
import contextlib
import errno
import os
import shutil

import pytest

from odradek.config.broker_config import ConfigError, load
from odradek.embedding.free_port import free_port
from odradek.server.background.disks import StoreEvents
from odradek.server.broker import BrokerServer
from odradek.server.metrics.exposition import label_text
from odradek.server.network._clock import Clock
from odradek.storage.disk import OsDisk, OsFile
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    create_topics,
    delete_records,
    describe_log_dirs,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from odradek.wire.records import Record, build_batch
from tests.raw_client import AsyncRawClient
from tests.server.scrape import scraped

SECONDS = 20


class Client(AsyncRawClient):
    async def create(self, name, partitions):
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=[]
        )
        answer = await self.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert answer.topics[0].error_code == 0

    async def produce(self, index):
        records = build_batch([Record(0, 1_700_000_000_000, None, b"value")])
        data = produce.PartitionProduceData(index=index, records=records)
        topic = produce.TopicProduceData(name="t", partition_data=[data])
        request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        (answer,) = (await self.ask(request, 9)).responses[0].partition_responses
        return ErrorCode(answer.error_code), answer.base_offset

    async def fetch(self, index):
        asked = fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
        request = fetch.FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[fetch.FetchTopic(topic="t", partitions=[asked])]
        )
        (answer,) = (await self.ask(request, 11)).responses[0].partitions
        return ErrorCode(answer.error_code)

    async def end(self, index):
        asked = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1)
        topic = list_offsets.ListOffsetsTopic(name="t", partitions=[asked])
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
        (answer,) = (await self.ask(request, 5)).topics[0].partitions
        return ErrorCode(answer.error_code), answer.offset

    async def delete_records(self, index):
        asked = delete_records.DeleteRecordsPartition(partition_index=index, offset=0)
        topic = delete_records.DeleteRecordsTopic(name="t", partitions=[asked])
        request = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        (answer,) = (await self.ask(request, 2)).topics[0].partitions
        return ErrorCode(answer.error_code)

    async def described(self):
        """Error code, leader and offline replicas of each partition."""
        asked = metadata.MetadataRequestTopic(name="t")
        request = metadata.MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
        (topic,) = (await self.ask(request, 9)).topics
        return {
            one.partition_index: (ErrorCode(one.error_code), one.leader_id, one.offline_replicas)
            for one in topic.partitions
        }

    async def directories(self):
        answer = await self.ask(describe_log_dirs.DescribeLogDirsRequest(topics=None), 4)
        return {
            os.path.basename(one.log_dir): (
                ErrorCode(one.error_code),
                sorted(partition.partition_index for topic in one.topics for partition in topic.partitions),
            )
            for one in answer.results
        }


def configuration(tmp_path, *names, **settings):
    directories = ",".join(str(tmp_path / name) for name in names)
    return load(listen="127.0.0.1:0", keywords={"log_dirs": directories, **settings})


@contextlib.asynccontextmanager
async def running(tmp_path, *names, settings=None, **keywords):
    server = BrokerServer(configuration(tmp_path, *names, **(settings or {})), **keywords)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def until(condition):
    """Asks until it is so."""
    async with asyncio.timeout(SECONDS):
        while not await condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def broken(monkeypatch):
    """Paths below which nothing can be opened."""
    paths = set()
    real = OsDisk.open

    def open_unless_broken(self, path, *, create=False):
        if any(path.startswith(broken_path) for broken_path in paths):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(self, path, create=create)

    monkeypatch.setattr(OsDisk, "open", open_unless_broken)
    return paths


def close_files(server):
    """So that they have to be opened again."""
    for partition in server.store.places.loaded():
        partition.log.files.close()


UP = (ErrorCode.NONE, 1, [])
DOWN = (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])


def test_a_directory_that_fails_takes_its_partitions_offline_and_brings_them_back(tmp_path, broken):
    async def act():
        async with running(tmp_path, "one", "two") as server:
            client = await Client.connect(server.port)
            await client.create("t", 2)
            lost = next(
                index
                for index in range(2)
                if server.store.get("t", index).directory.startswith(str(tmp_path / "two"))
            )
            kept = 1 - lost
            for index in range(2):
                assert await client.produce(index) == (ErrorCode.NONE, 0)
            assert await client.described() == {0: UP, 1: UP}
            close_files(server)
            broken.add(str(tmp_path / "two"))
            assert (await client.produce(lost))[0] is ErrorCode.KAFKA_STORAGE_ERROR

            async def is_told():
                return await client.described() == {lost: DOWN, kept: UP}

            await until(is_told)
            assert (await client.produce(lost))[0] is ErrorCode.KAFKA_STORAGE_ERROR
            assert (await client.end(lost))[0] is ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.fetch(lost) is ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.delete_records(lost) is ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.directories() == {
                "one": (ErrorCode.NONE, [kept]),
                "two": (ErrorCode.KAFKA_STORAGE_ERROR, []),
            }
            assert await client.produce(kept) == (ErrorCode.NONE, 1)
            assert await client.fetch(kept) is ErrorCode.NONE
            broken.clear()

            async def is_back():
                return await client.described() == {lost: UP, kept: UP}

            await until(is_back)
            assert await client.end(lost) == (ErrorCode.NONE, 1)
            assert await client.produce(lost) == (ErrorCode.NONE, 1)
            assert await client.fetch(lost) is ErrorCode.NONE

    asyncio.run(act())


def test_metrics_go_on_without_the_partitions_of_a_failed_directory(tmp_path, broken):
    async def act():
        settings = {"odradek_metrics_listen": f"127.0.0.1:{free_port()}"}
        async with running(tmp_path, "one", "two", settings=settings) as server:
            client = await Client.connect(server.port)
            await client.create("t", 2)
            for index in range(2):
                assert await client.produce(index) == (ErrorCode.NONE, 0)
            lost = next(
                index
                for index in range(2)
                if server.store.get("t", index).directory.startswith(str(tmp_path / "two"))
            )
            close_files(server)
            broken.add(str(tmp_path / "two"))
            assert (await client.produce(lost))[0] is ErrorCode.KAFKA_STORAGE_ERROR
            directories = {name: label_text(dir=str(tmp_path / name)) for name in ("one", "two")}

            async def is_told():
                samples = await asyncio.to_thread(scraped, server.metrics_port)
                return (
                    samples["odradek_log_dir_online", directories["one"]] == 1
                    and samples["odradek_log_dir_online", directories["two"]] == 0
                    and samples["kafka_server_replicamanager_offlinereplicacount", None] == 1
                    and ("kafka_log_log_size", label_text(topic="t", partition=1 - lost)) in samples
                    and ("odradek_log_dir_free_bytes", directories["one"]) in samples
                    and ("odradek_log_dir_free_bytes", directories["two"]) not in samples
                )

            await until(is_told)

    asyncio.run(act())


def test_the_broker_ends_when_no_directory_is_left(tmp_path, broken, caplog):
    async def act():
        ended = asyncio.Event()
        async with running(tmp_path, "one", on_end=ended.set) as server:
            client = await Client.connect(server.port)
            await client.create("t", 1)
            await client.produce(0)
            close_files(server)
            broken.add(str(tmp_path / "one"))
            assert (await client.produce(0))[0] is ErrorCode.KAFKA_STORAGE_ERROR
            async with asyncio.timeout(SECONDS):
                await ended.wait()

    asyncio.run(act())
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert "no data directory is left that works" in line


def test_a_waiting_fetch_is_told_when_its_partition_goes_offline(tmp_path, broken):
    async def act():
        async with running(tmp_path, "one", "two") as server:
            client, other = await Client.connect(server.port), await Client.connect(server.port)
            await client.create("t", 2)
            lost = next(
                index
                for index in range(2)
                if server.store.get("t", index).directory.startswith(str(tmp_path / "two"))
            )
            await client.produce(lost)
            asked = fetch.FetchPartition(partition=lost, fetch_offset=1, partition_max_bytes=1000)
            request = fetch.FetchRequest(
                max_wait_ms=SECONDS * 1000,
                min_bytes=1,
                topics=[fetch.FetchTopic(topic="t", partitions=[asked])],
            )
            waiting = asyncio.ensure_future(other.ask(request, 11))
            while not any(connection.is_waiting for connection in server.connections):
                await asyncio.sleep(0.01)
            close_files(server)
            broken.add(str(tmp_path / "two"))
            await client.produce(lost)
            async with asyncio.timeout(SECONDS / 2):
                (answer,) = (await waiting).responses[0].partitions
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(act())


def test_a_start_goes_on_without_a_directory_that_cannot_be_used(tmp_path):
    async def first():
        async with running(tmp_path, "one", "two") as server:
            client = await Client.connect(server.port)
            await client.create("t", 2)
            for index in range(2):
                await client.produce(index)
            return {index: server.store.get("t", index).directory.split(os.sep)[-2] for index in range(2)}

    async def without(lost):
        async with running(tmp_path, "one", "two") as server:
            client = await Client.connect(server.port)
            assert await client.described() == {lost: DOWN, 1 - lost: UP}
            assert (await client.produce(lost))[0] is ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.produce(1 - lost) == (ErrorCode.NONE, 1)
            assert (await client.directories())["two"] == (ErrorCode.KAFKA_STORAGE_ERROR, [])
            await client.create("u", 2)
            assert (await client.directories())["one"] == (
                ErrorCode.NONE,
                sorted([0, 1, 1 - lost]),
            )

    async def again(lost):
        async with running(tmp_path, "one", "two") as server:
            client = await Client.connect(server.port)
            assert await client.end(lost) == (ErrorCode.NONE, 1)
            assert await client.end(1 - lost) == (ErrorCode.NONE, 2)

    places = asyncio.run(first())
    (lost,) = [index for index, name in places.items() if name == "two"]
    shutil.move(tmp_path / "two", tmp_path / "away")
    (tmp_path / "two").write_bytes(b"no directory")
    asyncio.run(without(lost))
    (tmp_path / "two").unlink()
    shutil.move(tmp_path / "away", tmp_path / "two")
    asyncio.run(again(lost))


def test_without_the_directory_of_the_metadata_there_is_no_start(tmp_path):
    (tmp_path / "one").write_bytes(b"no directory")

    async def act():
        async with running(tmp_path, "one", "two"):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match=r"one .* metadata of the cluster is there"):
        asyncio.run(act())


@pytest.fixture
def failing(monkeypatch):
    """What fails of open files: (operation, part of the path) to the number of the error."""
    errors = {}

    def failing_for(operation):
        real = getattr(OsFile, operation)

        def fail_or_do(self, *arguments):
            path = os.readlink(f"/proc/self/fd/{self._descriptor}")
            for (failing_operation, part), code in list(errors.items()):
                if failing_operation == operation and part in path:
                    raise OSError(code, os.strerror(code))
            return real(self, *arguments)

        monkeypatch.setattr(OsFile, operation, fail_or_do)

    failing_for("sync")
    failing_for("write")
    return errors


def lines_of(caplog):
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.skipif(
    not os.path.exists("/proc/self/fd"), reason="the system does not tell paths of open files"
)
def test_a_partition_that_goes_offline_is_in_the_log_until_it_is_back(tmp_path, failing, caplog):
    clock = [1_700_000_000_000]

    async def act():
        settings = {"log_flush_interval_messages": 1}
        async with running(tmp_path, "one", settings=settings, clock=Clock(lambda: clock[0])) as server:
            client = await Client.connect(server.port)
            await client.create("t", 1)
            failing["sync", "/t-0/"] = errno.EIO
            assert (await client.produce(0))[0] is ErrorCode.KAFKA_STORAGE_ERROR

            async def is_tried():
                return any("still offline" in line for _, line in lines_of(caplog))

            await until(is_tried)
            assert (await client.produce(0))[0] is ErrorCode.KAFKA_STORAGE_ERROR
            failing.clear()
            clock[0] += 5_000

            async def is_back():
                return (await client.produce(0))[0] is ErrorCode.NONE

            await until(is_back)

    asyncio.run(act())
    path = tmp_path / "one" / "t-0"
    (offline, still, back) = [line for line in lines_of(caplog) if "t-0" in line[1]]
    assert offline[0] == "ERROR"
    assert offline[1].startswith(f"t-0 is offline: flushing {path} failed: [Errno 5] Input/output error")
    assert "until its files have been read again, which is tried now and every 5 s" in offline[1]
    assert still[0] == "ERROR"
    assert still[1].startswith("t-0 is still offline, reading its files again failed: [Errno 5]")
    assert back == ("WARNING", "t-0 is back, and nothing of it is lost")


@pytest.mark.skipif(
    not os.path.exists("/proc/self/fd"), reason="the system does not tell paths of open files"
)
def test_what_a_full_disk_refuses_is_in_the_log_once_a_minute(tmp_path, failing, caplog):
    clock = [1_700_000_000_000]

    def refusals():
        return [line for line in lines_of(caplog) if "Errno 28" in line[1]]

    async def act():
        async with running(tmp_path, "one", clock=Clock(lambda: clock[0])) as server:
            client = await Client.connect(server.port)
            await client.create("t", 2)
            failing["write", "/t-"] = errno.ENOSPC
            for index in (0, 1, 0):
                assert (await client.produce(index))[0] is ErrorCode.KAFKA_STORAGE_ERROR
            path = tmp_path / "one"
            said = f"The disk is full: writing {path}/t-0 failed: [Errno 28] No space left on device"
            assert refusals() == [("ERROR", f"{said} (logged once a minute for {path})")]
            clock[0] += 59_999
            await client.produce(1)
            assert len(refusals()) == 1
            clock[0] += 1
            await client.produce(1)
            assert len(refusals()) == 2
            failing.clear()
            assert await client.produce(0) == (ErrorCode.NONE, 0)

    asyncio.run(act())


def test_a_partition_that_is_still_offline_is_in_the_log_once_a_minute(caplog):
    clock = [1_700_000_000_000]
    events = StoreEvents(lambda: clock[0])
    for _ in range(20):
        events.still_offline("t-0", "no")
        events.still_offline("t-1", "no")
        clock[0] += 5_000
    assert len(lines_of(caplog)) == 4
    events.recovered("t-0", 0)
    events.still_offline("t-0", "no")
    assert len(lines_of(caplog)) == 6, "it has been back meanwhile"
