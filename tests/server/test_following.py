"""How a follower's decisions are carried out, and its fetches over a socket."""

import asyncio
from types import SimpleNamespace

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.replication.replica_fetcher import Phase
from odradek.coordinator.replication.replication_quota import ReplicationQuota
from odradek.server.cluster.following import Following
from odradek.server.cluster.replica_log import ReplicationSettings
from odradek.server.network.peers import SetupTimeout
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.codec import decode_message
from odradek.wire.frames import read_request_header, response_parts
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.records import Record, build_batch
from tests.replication.model_log import Batch, ModelLog

TOPIC_ID = b"1" * 16
KEY, OTHER = ("t", 0), ("t", 1)


class BrokenStore:
    """Its logs cannot be opened."""

    places = SimpleNamespace(by_key={})

    def get(self, topic, index):
        raise OSError("broken")


def test_an_append_that_cannot_begin_fails_its_partition_and_keeps_no_other_from_being_fetched():
    async def fail():
        settings = ReplicationSettings(2, "PLAINTEXT")
        following = Following(
            settings,
            BrokenStore(),
            None,
            ClusterView,
            lambda: 1,
            lambda: 0,
            ReplicationQuota(),
            SetupTimeout(),
        )
        for key in (KEY, OTHER):
            following.fetchers.follow(key, TOPIC_ID, 1, 5, ModelLog())
        (fetcher,) = following.fetchers.fetchers.values()
        request = fetcher.next_request(0)
        data = PartitionData(
            partition_index=0, error_code=0, high_watermark=1, records=Batch(0, 0, 5, 1).encode()
        )
        topics = [FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[data])]
        response = FetchResponse(session_id=7, responses=topics)
        following.carry_out(fetcher.fetch_answered(request, response, 0))
        assert not following.is_busy(KEY)
        assert following.fetchers.followed(KEY).phase is Phase.FAILED
        assert fetcher.next_request(0) is not None
        assert [asked.partition.partition for asked in fetcher.session.asked.values()] == [1]
        following.close()

    asyncio.run(fail())


class Leader:
    """Serves one follower: a record to each fetch, until it has all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.has_all = asyncio.Event()
        self.offset = 0

    async def serve(self, reader, writer) -> None:
        while True:
            size_bytes = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size_bytes)
            header, position = read_request_header(frame, 0)
            request = decode_message(FetchRequest, header.api_version, frame[position:])
            for topic in request.topics:
                (asked,) = topic.partitions
                self.offset = asked.fetch_offset
            if self.offset >= self.count:
                self.has_all.set()
                return
            record = Record(self.offset, NOW_MS, b"key", b"value")
            data = PartitionData(
                partition_index=0,
                error_code=0,
                high_watermark=self.offset,
                log_start_offset=0,
                records=build_batch([record], leader_epoch=5),
            )
            topics = [FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[data])]
            response = FetchResponse(session_id=7, responses=topics)
            writer.write(b"".join(response_parts(response, header.api_version, header.correlation_id)))


class Turn:
    """Commits at once, and counts for how many appends."""

    def __init__(self) -> None:
        self.appends = 0

    def add(self, partition, done, until) -> None:
        self.appends += 1
        partition.commit()
        asyncio.get_running_loop().call_soon(done, None)


NOW_MS = 1_700_000_000_000
COUNT = 100


def test_a_follower_appends_nearly_all_where_it_is_received(tmp_path):
    """The first records are appended by the machine: a session, and a segment, have to begin."""

    async def follow():
        leader, turn = Leader(COUNT), Turn()
        server = await asyncio.start_server(leader.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        endpoints = {"PLAINTEXT": SimpleNamespace(host=host, port=port)}
        view = SimpleNamespace(registrations={1: SimpleNamespace(endpoints=endpoints)}, features={})
        store = LogStore(OsDisk(), [str(tmp_path / "data")])
        store.open(NOW_MS)
        partition = store.create("t", 0, TOPIC_ID, LogConfig())
        partition.set_replicated(True)
        following = Following(
            ReplicationSettings(2, "PLAINTEXT"),
            store,
            SimpleNamespace(turn=turn),
            lambda: view,
            lambda: 1,
            lambda: NOW_MS,
            ReplicationQuota(),
            SetupTimeout(),
        )
        following.follow(KEY, TOPIC_ID, 1, 5, partition)
        following.pump()
        await leader.has_all.wait()
        assert (partition.log_end_offset, partition.high_watermark) == (COUNT, COUNT - 1)
        assert partition.log.leader_epochs.latest == 5
        assert 1 <= turn.appends <= 3
        following.close()
        server.close()
        store.close(NOW_MS)

    asyncio.run(follow())
