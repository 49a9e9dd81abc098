"""A data directory whose disk fails: what clients are told, what goes on, and how it comes back."""

import asyncio
import contextlib
import errno
import os
import shutil

import pytest

from odradek.server.broker import BrokerServer
from odradek.server.config import ConfigError, load
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
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

SECONDS = 20


class Client:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, server):
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    async def ask(self, request, version):
        self.writer.write(request_frame(request, version, 1, "tests"))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return read_response(await self.reader.readexactly(size), type(request), version)[1]

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


def configuration(tmp_path, *names):
    directories = ",".join(str(tmp_path / name) for name in names)
    return load(listen="127.0.0.1:0", keywords={"log_dirs": directories})


@contextlib.asynccontextmanager
async def running(tmp_path, *names, **keywords):
    server = BrokerServer(configuration(tmp_path, *names), **keywords)
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
    for partition in server._store.loaded():
        partition.log.release_files()


UP = (ErrorCode.NONE, 1, [])
DOWN = (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])


def test_a_directory_that_fails_takes_its_partitions_offline_and_brings_them_back(tmp_path, broken):
    async def act():
        async with running(tmp_path, "one", "two") as server:
            client = await Client.connect(server)
            await client.create("t", 2)
            lost = next(
                index
                for index in range(2)
                if server._store.get("t", index).directory.startswith(str(tmp_path / "two"))
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


def test_the_broker_ends_when_no_directory_is_left(tmp_path, broken, caplog):
    async def act():
        ended = asyncio.Event()
        async with running(tmp_path, "one", on_end=ended.set) as server:
            client = await Client.connect(server)
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
            client, other = await Client.connect(server), await Client.connect(server)
            await client.create("t", 2)
            lost = next(
                index
                for index in range(2)
                if server._store.get("t", index).directory.startswith(str(tmp_path / "two"))
            )
            await client.produce(lost)
            asked = fetch.FetchPartition(partition=lost, fetch_offset=1, partition_max_bytes=1000)
            request = fetch.FetchRequest(
                max_wait_ms=SECONDS * 1000,
                min_bytes=1,
                topics=[fetch.FetchTopic(topic="t", partitions=[asked])],
            )
            waiting = asyncio.ensure_future(other.ask(request, 11))
            partition = server._store.get("t", lost)
            while not partition._watchers:
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
            client = await Client.connect(server)
            await client.create("t", 2)
            for index in range(2):
                await client.produce(index)
            return {index: server._store.get("t", index).directory.split(os.sep)[-2] for index in range(2)}

    async def without(lost):
        async with running(tmp_path, "one", "two") as server:
            client = await Client.connect(server)
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
            client = await Client.connect(server)
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
