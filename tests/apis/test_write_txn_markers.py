"""WriteTxnMarkers, and what the coordinator of this node writes in the same way."""

import pytest

from odradek.apis.write_txn_markers import MarkerWriter
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.effects import MarkerRecord
from odradek.storage.log.transactions import Verified
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NONE = ErrorCode.NONE


def marker(producer_id, *partitions, epoch=0, commit=True, coordinator_epoch=0, version=None):
    topics = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    told = {} if version is None else {"transaction_version": version}
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ],
        coordinator_epoch=coordinator_epoch,
        **told,
    )


def write(node, *markers, version=2):
    """Codes by producer id and partition."""
    response = node.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        one.producer_id: {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in one.topics
            for partition in topic.partitions
        }
        for one in response.markers
    }


def begin(node, producer_id, *values, topic="t", index=0, epoch=0):
    """Opens a transaction in a partition, without any coordinator."""
    log = node.partition(topic, index)
    batch = node.batch(
        *values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    verified = Verified(log.begin_verification(producer_id, epoch, 0, version=0), 0)
    log.appends.append(batch, now_ms=node.loop.now_ms, transactions=verified)
    log.commit()
    return log


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction_in_each_of_its_partitions(node, version, commit):
    node.create("t", 2)
    logs = [begin(node, 7, b"a", b"b", index=index) for index in range(2)]
    assert [log.last_stable_offset for log in logs] == [0, 0]
    answer = write(node, marker(7, ("t", 0), ("t", 1), commit=commit), version=version)
    assert answer == {7: {("t", 0): NONE, ("t", 1): NONE}}
    assert [log.last_stable_offset for log in logs] == [3, 3]


def test_several_markers_are_written_together(node):
    node.create("t", 2)
    begin(node, 7, b"a")
    begin(node, 8, b"b", index=1)
    answer = write(
        node, marker(7, ("t", 0)), marker(8, ("t", 1)), marker(7, ("t", 1), commit=False), marker(9)
    )
    assert answer == {7: {("t", 0): NONE, ("t", 1): NONE}, 8: {("t", 1): NONE}}
    assert write(node) == {}
    assert write(node, marker(9)) == {}


def test_what_is_not_there_is_refused_and_the_rest_is_written(node):
    node.create("t")
    log = begin(node, 7, b"a")
    answer = write(node, marker(7, ("u", 0), ("t", 0), ("t", 5), ("t", -1)))
    assert answer == {
        7: {
            ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 0): NONE,
            ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
    assert log.last_stable_offset == 2


def test_an_old_coordinator_and_an_old_epoch_end_nothing(node):
    node.create("t")
    log = begin(node, 7, b"a", epoch=3)
    assert write(node, marker(7, ("t", 0), epoch=2))[7]["t", 0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(node, marker(7, ("t", 0), epoch=3, coordinator_epoch=5))[7]["t", 0] == NONE
    end_offset = log.log_end_offset
    refused = write(node, marker(7, ("t", 0), epoch=3, coordinator_epoch=4))
    assert refused[7]["t", 0] == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == end_offset


@pytest.mark.parametrize("nobody", [(-1, 0), (7, -1), (7, -2)])
def test_a_marker_of_nobody_is_not_written_nor_are_those_with_it(node, nobody):
    node.create("t", 2)
    log = begin(node, 8, b"a")
    producer_id, epoch = nobody
    answer = write(node, marker(8, ("t", 0)), marker(producer_id, ("t", 1), epoch=epoch))
    assert answer[8] == {("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}
    assert answer[producer_id] == {("t", 1): ErrorCode.UNKNOWN_SERVER_ERROR}
    assert log.last_stable_offset == 0


def test_a_marker_of_no_version_is_not_written(node):
    """-1 is how Kafka's own code says that it has no version; anything else below 2 is an old one."""
    node.create("t", 2)
    log = begin(node, 7, b"a")
    answer = write(node, marker(7, ("t", 0), version=-1), marker(8, ("t", 1), version=-2))
    assert answer == {7: {("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}, 8: {("t", 1): NONE}}
    assert log.last_stable_offset == 0
    assert write(node, marker(7, ("t", 0), version=-2))[7]["t", 0] == NONE


def test_of_version_2_a_marker_has_an_epoch_of_its_own(node):
    node.create("t")
    log = begin(node, 7, b"a", epoch=3)
    same = write(node, marker(7, ("t", 0), epoch=3, version=2))
    assert same[7]["t", 0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(node, marker(7, ("t", 0), epoch=4, version=2))[7]["t", 0] == NONE
    assert log.last_stable_offset == log.log_end_offset


def test_the_offsets_of_groups_are_ended_by_their_groups(node):
    node.create(OFFSETS_TOPIC, 5)
    node.loop.turn()
    assert write(node, marker(7, (OFFSETS_TOPIC, 1)))[7][OFFSETS_TOPIC, 1] == NONE
    assert list(node.group_logs[1].read_all()) == [MarkerRecord(7, True)]


def test_groups_that_are_not_ready_are_no_leader_yet(node):
    node.create(OFFSETS_TOPIC, 5)
    node.loop.turn()
    node.groups.close()
    answer = write(node, marker(7, (OFFSETS_TOPIC, 1)))
    assert answer == {7: {(OFFSETS_TOPIC, 1): ErrorCode.NOT_LEADER_OR_FOLLOWER}}


def test_the_answer_waits_for_the_commit(node):
    node.create("t")
    begin(node, 7, b"a")
    answer = node.start(WriteTxnMarkersRequest(markers=[marker(7, ("t", 0))]), 1)
    assert not answer.was_sent
    assert node.partition("t").log_end_offset == 1
    node.loop.turn()
    assert answer.was_sent


def test_a_commit_that_fails_is_told(node, monkeypatch):
    node.create("t")
    log = begin(node, 7, b"a")
    failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    monkeypatch.setattr(node.loop, "_commit", lambda partition, waiting: waiting[0][0](failure))
    assert write(node, marker(7, ("t", 0)))[7]["t", 0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.last_stable_offset == 0


def test_nobody_hears_of_a_marker_before_the_call_is_over(node):
    """The coordinator's runtime would be asked in the middle of what it does."""
    told = []
    writer = MarkerWriter(node.leadership, node.groups, node.loop, node.loop, lambda: node.loop.now_ms)
    writer.write(EndMarker(7, 0, 0, True, 0), [("nothing", 0)], told.append)
    writer.write(EndMarker(7, 0, 0, True, 0), [], told.append)
    assert told == []
    node.loop.turn()
    assert told == [{("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, {}]


# DescribeProducers


def producers(node, *asked):
    topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in asked]
    return node.ask(DescribeProducersRequest(topics=topics), 0).topics


def test_producers_are_described_with_their_open_transactions(node):
    node.create("t", 2)
    began_ms = node.loop.now_ms
    begin(node, 7, b"a", b"b", epoch=3)
    begin(node, 8, b"c")
    write(node, marker(8, ("t", 0), coordinator_epoch=5))
    (topic,) = producers(node, ("t", [0, 1]))
    with_two, with_none = topic.partitions
    assert (with_two.partition_index, with_two.error_code, with_two.error_message) == (0, 0, None)
    by_id = {one.producer_id: one for one in with_two.active_producers}
    seven, eight = by_id[7], by_id[8]
    assert (seven.producer_epoch, seven.last_sequence, seven.last_timestamp) == (3, 1, began_ms)
    assert (seven.coordinator_epoch, seven.current_txn_start_offset) == (-1, 0)
    assert (eight.coordinator_epoch, eight.current_txn_start_offset) == (5, -1)
    assert (with_none.partition_index, with_none.active_producers) == (1, [])


def test_producers_of_what_is_not_there_are_not_described(node):
    node.create("t")
    t, unknown, illegal = producers(node, ("t", [4]), ("u", [0, 1]), ("a b", [0]))
    (one,) = t.partitions
    assert (one.error_code, one.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    for one in unknown.partitions:
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert one.error_message
    (one,) = illegal.partitions
    assert one.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert one.error_message
