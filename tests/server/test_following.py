"""How a follower's decisions are carried out."""

import asyncio
from types import SimpleNamespace

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.replication.replica_fetcher import Phase
from odradek.coordinator.replication.replication_quota import ReplicationQuota
from odradek.server.cluster.following import Following
from odradek.server.cluster.replica_log import ReplicationSettings
from odradek.server.network.peers import SetupTimeout
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
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
