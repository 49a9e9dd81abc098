"""Changes of ISRs on their way to the controllers: none is forgotten, whatever comes back and whenever."""

from odradek.coordinator.cluster.view import ClusterView, TopicView
from odradek.coordinator.replication.alter_partition import RETRY_MS
from odradek.coordinator.replication.in_sync import AlterIsr
from odradek.server.cluster.leading import Altering
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition import AlteredPartition, AlteredTopic, AlterPartitionResponse

TOPIC = TopicView("t", b"1" * 16, ())


class Controllers:
    """Takes requests, and lets a test answer them and fire timers."""

    def __init__(self):
        self.now_ms = 1_000
        self.asked, self.timers, self.told = [], [], []
        self.altering = Altering(
            1,
            lambda: 101,
            lambda: ClusterView(topics={"t": TOPIC}, topic_names={TOPIC.topic_id: "t"}),
            lambda request, answered: self.asked.append((request, answered)),
            self,
            lambda: self.now_ms,
        )
        self.altering.tell = lambda change, result: self.told.append((change, result))

    def after(self, delay_ms, callback):
        self.timers.append((delay_ms, callback))
        return callback

    def submit(self, index):
        change = AlterIsr(("t", index), 5, 10, ((1, 101), (2, 102)))
        self.altering.submit(change)
        return change

    def answer(self, response):
        ((_, answered),) = self.asked
        self.asked = []
        answered(response)

    def fire(self, late_ms=0):
        ((delay_ms, callback),) = self.timers
        self.timers = []
        self.now_ms += delay_ms + late_ms
        callback()
        return delay_ms


def response(*indexes, error_code=0):
    partitions = [
        AlteredPartition(partition_index=index, leader_epoch=5, partition_epoch=11, isr=[1, 2])
        for index in indexes
    ]
    topics = [AlteredTopic(topic_id=TOPIC.topic_id, partitions=partitions)]
    return AlterPartitionResponse(error_code=error_code, topics=topics)


def test_a_change_is_asked_for_again_where_the_timer_comes_before_its_time():
    """Timers may fire in the millisecond before: a move of a partition was never complete once."""
    controllers = Controllers()
    change = controllers.submit(0)
    controllers.answer(None)
    assert controllers.fire(late_ms=-1) == RETRY_MS
    assert controllers.asked == []
    assert controllers.fire() == 1
    controllers.answer(response(0))
    ((told, result),) = controllers.told
    assert told is change
    assert result.isr == (1, 2)
    assert controllers.timers == []


def test_one_timer_waits_however_many_changes_come_meanwhile():
    controllers = Controllers()
    controllers.submit(0)
    controllers.answer(response(error_code=ErrorCode.STALE_BROKER_EPOCH))
    for index in (1, 2):
        controllers.submit(index)
    controllers.fire()
    ((request, _),) = controllers.asked
    assert [one.partition_index for one in request.topics[0].partitions] == [0, 1, 2]
    controllers.answer(response(0, 1, 2))
    assert len(controllers.told) == 3
    assert (controllers.asked, controllers.timers) == ([], [])
