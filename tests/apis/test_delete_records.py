"""DeleteRecords: where logs begin afterwards, what is refused, and when the answer comes."""

import errno

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


def delete_records(*wanted, timeout_ms=1000):
    """`wanted`: (topic, partition, offset)."""
    topics = [
        DeleteRecordsTopic(
            name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        for topic, index, offset in wanted
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def result(node, topic, offset, index=0, version=2):
    (one,) = node.ask(delete_records((topic, index, offset)), version).topics
    assert one.name == topic
    (partition,) = one.partitions
    assert partition.partition_index == index
    return ErrorCode(partition.error_code), partition.low_watermark


def earliest(node, topic="t"):
    asked = ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    (found,) = node.ask(request, 5).topics[0].partitions
    return found.offset


def fetch(node, offset, topic="t"):
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=100_000,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    (found,) = node.ask(request, 11).responses[0].partitions
    return found


@pytest.fixture
def filled(node):
    """Five records, a batch each."""
    node.create("t")
    node.fill("t", *[[b"v%d" % number] for number in range(5)])
    return node


@pytest.mark.parametrize("version", range(3))
def test_the_log_begins_at_the_offset_asked_for(filled, version):
    assert result(filled, "t", 3, version=version) == (ErrorCode.NONE, 3)
    assert earliest(filled) == 3
    assert result(filled, "t", 1, version=version) == (ErrorCode.NONE, 3)
    assert result(filled, "t", -1, version=version) == (ErrorCode.NONE, 5)
    assert earliest(filled) == 5


def test_a_fetch_from_before_the_start_is_out_of_range_and_one_from_it_is_not(filled):
    result(filled, "t", 3)
    assert fetch(filled, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = fetch(filled, 3)
    assert (found.error_code, found.log_start_offset) == (ErrorCode.NONE, 3)


def test_a_start_within_a_batch_is_kept_though_the_batch_is_sent_whole(node):
    node.create("t")
    node.fill("t", [b"a", b"b", b"c"])
    assert result(node, "t", 2) == (ErrorCode.NONE, 2)
    assert earliest(node) == 2
    assert fetch(node, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(fetch(node, 2).records) > 0


@pytest.mark.parametrize("offset", [6, 2**62, -2, -(2**62)])
def test_an_offset_that_the_log_has_not_reached_is_out_of_range(filled, offset):
    assert result(filled, "t", offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert earliest(filled) == 0


def test_what_is_not_there_is_unknown(filled):
    assert result(filled, "u", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert result(filled, "t", 0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert result(filled, "__consumer_offsets", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_internal_topics_keep_their_records(node):
    node.create("__consumer_offsets")
    assert result(node, "__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("", ErrorCode.NONE),
        ("compact,delete", ErrorCode.NONE),
    ],
)
def test_of_topics_that_are_only_compacted_no_records_are_deleted(node, policy, code):
    node.create("t", cleanup_policy=policy)
    assert result(node, "t", 0)[0] is code


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(filled):
    (topic,) = filled.ask(delete_records(("t", 0, 4), ("t", 0, 2))).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.low_watermark) == (0, 2)


def test_many_partitions_are_answered_together_each_for_itself(node):
    node.create("t", 3)
    node.create("c", cleanup_policy="compact")
    node.fill("t", [b"a", b"b"], index=1)
    answer = node.ask(delete_records(("t", 1, 1), ("c", 0, 0), ("t", 0, 5), ("t", 2, -1)))
    assert {
        (topic.name, one.partition_index): (one.error_code, one.low_watermark)
        for topic in answer.topics
        for one in topic.partitions
    } == {
        ("t", 1): (0, 1),
        ("c", 0): (ErrorCode.POLICY_VIOLATION, -1),
        ("t", 0): (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        ("t", 2): (0, 0),
    }


def test_the_answer_says_so_when_the_disk_did_not_take_the_new_start(filled, monkeypatch):
    def fail(source, target):
        raise OSError(errno.EIO, "no answer", target)

    monkeypatch.setattr(filled.store.disk, "rename", fail)
    assert result(filled, "t", 3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_leader_epochs_before_the_start_are_forgotten(node):
    node.create("t")
    log = node.partition("t")
    for epoch in (0, 3, 5):
        log.follow_leader_epoch(epoch)
        node.fill("t", [b"a", b"b"])
    result(node, "t", 3)
    assert log.log.leader_epochs.entries() == [(3, 3), (5, 4)]
    result(node, "t", 4)
    assert log.log.leader_epochs.entries() == [(5, 4)]


class Replicas:
    """Of a leader with followers whose logs begin at `starts`."""

    def __init__(self, log, starts):
        self.log = log
        self.starts = starts
        self.leads = True
        self.wakes = []

    def low_watermark(self, key):
        return min([self.log.log_start_offset, *self.starts]) if self.leads else None

    def watch_low_watermark(self, key, wake):
        self.wakes.append(wake)

    def unwatch_low_watermark(self, key, wake):
        self.wakes.remove(wake)

    def wake(self):
        for wake in list(self.wakes):
            wake()


@pytest.fixture
def replicas(filled):
    filled.leadership.replicas = Replicas(filled.partition("t"), [0, 3])
    return filled.leadership.replicas


def only(answer):
    (partition,) = answer.response.topics[0].partitions
    return ErrorCode(partition.error_code), partition.low_watermark


def test_the_answer_comes_when_the_logs_of_all_replicas_begin_there(filled, replicas):
    answer = filled.start(delete_records(("t", 0, 3)))
    filled.loop.turn()
    assert not answer.was_sent
    replicas.starts[0] = 2
    replicas.wake()
    assert not answer.was_sent
    replicas.starts[0] = 4
    replicas.wake()
    assert only(answer) == (ErrorCode.NONE, 3)
    assert replicas.wakes == []
    assert filled.loop.pending_timers == 0


def test_replicas_that_begin_there_already_are_not_waited_for(filled, replicas):
    replicas.starts = [4, 5]
    assert result(filled, "t", 3) == (ErrorCode.NONE, 3)
    assert replicas.wakes == []


def test_an_offset_of_minus_one_is_the_high_watermark_on_all_replicas(filled, replicas):
    replicas.starts = [4, 5]
    answer = filled.start(delete_records(("t", 0, -1)))
    filled.loop.turn()
    assert not answer.was_sent
    replicas.starts[0] = 5
    replicas.wake()
    assert only(answer) == (ErrorCode.NONE, 5)


def test_after_the_time_out_the_answer_says_so_and_the_records_are_gone(filled, replicas):
    answer = filled.start(delete_records(("t", 0, 3), timeout_ms=700))
    filled.loop.advance(699)
    assert not answer.was_sent
    filled.loop.advance(1)
    assert only(answer) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert earliest(filled) == 3
    assert replicas.wakes == []


def test_a_leader_that_leads_no_more_refuses(filled, replicas):
    answer = filled.start(delete_records(("t", 0, 3)))
    filled.loop.turn()
    replicas.leads = False
    replicas.wake()
    assert only(answer) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_nothing_is_left_of_a_request_whose_connection_closes(filled, replicas):
    answer = filled.start(delete_records(("t", 0, 3)))
    filled.loop.turn()
    assert replicas.wakes
    answer.cancel()
    assert replicas.wakes == []
    assert filled.loop.pending_timers == 0
