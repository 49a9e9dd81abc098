"""A whole broker whose `__consumer_offsets` is compacted while groups commit: positions are right, before and
after a restart, and nothing is left of groups that have been deleted.
"""

import asyncio
import contextlib
import sys

from odradek.config.broker_config import load
from odradek.coordinator.groups.record_codec import Kind, decode_key
from odradek.server.background import cleaner
from odradek.server.broker import BrokerServer
from odradek.wire.messages import create_topics, delete_groups, list_groups, offset_commit, offset_fetch
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.records import iter_records, iter_whole_batches
from tests.raw_client import AsyncRawClient

OPTIONS = {
    "offsets_topic_num_partitions": 1,
    "log_cleaner_backoff_ms": 20,
    "log_cleaner_min_cleanable_ratio": 0.01,
    "log_segment_delete_delay_ms": 0,
    "log_cleaner_delete_retention_ms": 0,
}
PARTITIONS = 3
COMMITS = 40


class Client(AsyncRawClient):
    async def commit(self, group_id, count):
        """Commits so often; the last position is `count`."""
        for number in range(1, count + 1):
            partitions = [
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=number, committed_metadata=None
                )
                for index in range(PARTITIONS)
            ]
            topics = [offset_commit.OffsetCommitRequestTopic(name="t", partitions=partitions)]
            answer = await self.ask(offset_commit.OffsetCommitRequest(group_id=group_id, topics=topics), 9)
            assert {one.error_code for one in answer.topics[0].partitions} == {0}

    async def positions(self, group_id):
        group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=None)
        answer = await self.ask(offset_fetch.OffsetFetchRequest(groups=[group]), 9)
        assert answer.groups[0].error_code == 0
        return [one.committed_offset for topic in answer.groups[0].topics for one in topic.partitions]

    def records(self):
        """The group of every record that is still in the log's files."""
        found = []
        for path in sorted((self.data_directory / "__consumer_offsets-0").glob("*.log")):
            with contextlib.suppress(FileNotFoundError):
                data = path.read_bytes()
                for position, header in iter_whole_batches(data):
                    for record in iter_records(data[position : position + header.size_bytes]):
                        kind, subject = decode_key(record.key)
                        found.append(subject[0] if kind is Kind.OFFSET else subject.group)
        return found


@contextlib.asynccontextmanager
async def client_of(directory):
    server = BrokerServer(load(listen="127.0.0.1:0", data_dir=directory, keywords=OPTIONS))
    try:
        await server.start()
        client = await Client.connect(server.port)
        client.data_directory = directory
        finding = FindCoordinatorRequest(coordinator_keys=["g"])
        while (await client.ask(finding, 4)).coordinators[0].error_code:
            await asyncio.sleep(0.01)
        yield client
        client.close()
    finally:
        await server.stop()


def test_positions_outlive_compaction_and_deleted_groups_leave_nothing(tmp_path, monkeypatch):
    # The same work without a process at the lowest priority, which may have to wait for a busy machine.
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(cleaner, "RESTART_DELAY_MS", 1)

    async def first():
        async with client_of(tmp_path) as client, asyncio.timeout(60):
            topic = create_topics.CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
            await client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
            # What is not in the last segment is compacted.
            short = AlterableConfig(name="segment.ms", config_operation=0, value="250")
            resource = AlterConfigsResource(
                resource_type=2, resource_name="__consumer_offsets", configs=[short]
            )
            altered = await client.ask(
                IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
            )
            assert altered.responses[0].error_code == 0
            await client.commit("dead", COMMITS)
            deleted = await client.ask(delete_groups.DeleteGroupsRequest(groups_names=["dead"]), 2)
            assert deleted.results[0].error_code == 0
            await client.commit("alive", COMMITS)
            while "dead" in (found := client.records()) or len(found) > COMMITS:
                await asyncio.sleep(0.1)
                await client.commit("alive", 1)
            await client.commit("alive", COMMITS)
            assert await client.positions("alive") == [COMMITS] * PARTITIONS
            assert await client.positions("dead") == []

    async def second():
        async with client_of(tmp_path) as client:
            assert await client.positions("alive") == [COMMITS] * PARTITIONS
            assert await client.positions("dead") == []
            listed = await client.ask(list_groups.ListGroupsRequest(), 4)
            assert [group.group_id for group in listed.groups] == ["alive"]

    asyncio.run(first())
    asyncio.run(second())
