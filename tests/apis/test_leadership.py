"""The partitions that this node leads: those of a view, once their logs are a leader's."""

import pytest

from odradek.apis.leadership import Leadership
from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode, KafkaError

NODE, OTHER, NOW_MS = 1, 2, 1_700_000_000_000


class Replicas:
    """The replication of a node that leads in this epoch."""

    leader_epoch = 4

    def leads(self, key, leader_epoch):
        return key == ("t", 0) and leader_epoch == self.leader_epoch


@pytest.fixture
def leadership(tmp_path):
    store = LogStore(OsDisk(), [str(tmp_path)])
    store.open(NOW_MS)
    store.create("t", 0, bytes(16), LogConfig())
    view = ClusterView()
    leadership = Leadership(lambda: view, store, NODE)

    def see(replicas, leader_epoch=5):
        nonlocal view
        partition = PartitionView(0, NODE, leader_epoch, replicas, replicas)
        view = ClusterView(topics={"t": TopicView("t", bytes(16), (partition,))})

    yield leadership, see
    store.close(NOW_MS)


def test_a_log_that_is_still_made_a_leaders_is_not_led(leadership):
    """It may be cut yet, as the leader before wanted it: nobody reads or writes it as a leader's."""
    leading, see = leadership
    leading.replicas = replicas = Replicas()
    see((NODE, OTHER))
    with pytest.raises(KafkaError) as refused:
        leading.lead("t", 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.leader_epoch = 5
    assert leading.lead("t", 0).leader_epoch == 5


def test_a_partition_with_one_replica_and_one_of_a_node_alone_are_led_at_once(leadership):
    leading, see = leadership
    see((NODE, OTHER))
    assert leading.lead("t", 0).leader_epoch == 5
    leading.replicas = Replicas()
    see((NODE,), leader_epoch=6)
    assert leading.lead("t", 0).leader_epoch == 6
