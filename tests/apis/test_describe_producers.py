"""DescribeProducers: who answers."""

import pytest

from odradek.apis.describe_producers import DescribeProducers
from odradek.apis.leadership import Leadership
from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.records import build_batch

NODE, OTHER, THIRD, NOW_MS = 1, 2, 3, 1_700_000_000_000


class Context:
    def refuses(self, *resource):
        return False


@pytest.fixture
def store(tmp_path):
    store = LogStore(OsDisk(), [str(tmp_path)])
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), LogConfig())
    records = [(0, NOW_MS, b"key", b"value")]
    partition.appends.append(
        build_batch(records, producer_id=7, producer_epoch=1, base_sequence=0), now_ms=NOW_MS
    )
    partition.commit()
    yield store
    store.close(NOW_MS)


@pytest.mark.parametrize(
    ("leader", "replicas", "code"),
    [
        (NODE, (NODE, OTHER), ErrorCode.NONE),
        (OTHER, (NODE, OTHER), ErrorCode.NONE),
        (OTHER, (OTHER, THIRD), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_each_replica_tells_what_its_log_has_and_no_other_node_does(store, leader, replicas, code):
    partition = PartitionView(0, leader, 5, replicas, replicas)
    view = ClusterView(topics={"t": TopicView("t", bytes(16), (partition,))})
    handler = DescribeProducers(Leadership(lambda: view, store, NODE))
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    (told,) = handler(request, Context()).topics[0].partitions
    assert told.error_code == code
    assert [one.producer_id for one in told.active_producers] == [7] * (code is ErrorCode.NONE)
