"""ListOffsets and OffsetForLeaderEpoch: where logs begin and end, by time and by epoch."""

from dataclasses import replace

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def list_offsets(timestamp, topic="t", index=0, copies=1, isolation=0, replica_id=-1, **fields):
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked] * copies)],
    )


def only(response):
    return response.topics[0].partitions[0]


def found(node, timestamp, version=11, **fields):
    answer = only(node.ask(list_offsets(timestamp, **fields), version))
    assert answer.error_code == ErrorCode.NONE
    return answer.offset, answer.timestamp, answer.leader_epoch


@pytest.fixture
def timed(node):
    """Three batches at 1000, 3000 and 2000 ms."""
    node.create("t")
    log = node.partition("t")
    for timestamp, values in ((1000, [b"a", b"b"]), (3000, [b"c"]), (2000, [b"d"])):
        log.appends.append(node.batch(*values, timestamp=timestamp), now_ms=node.loop.now_ms)
    log.commit()
    return node


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_of_a_log_in_every_version(timed, version):
    epoch = 0 if version >= 4 else -1
    assert found(timed, -1, version) == (4, -1, epoch)
    assert found(timed, -2, version) == (0, -1, epoch)


@pytest.mark.parametrize("version", range(1, 12))
def test_the_first_record_of_a_time_or_later(timed, version):
    epoch = 0 if version >= 4 else -1
    assert found(timed, 0, version) == (0, 1000, epoch)
    assert found(timed, 1001, version) == (2, 3000, epoch)
    assert found(timed, 3001, version) == (-1, -1, -1)


def test_the_special_timestamps(timed):
    assert found(timed, -3) == (2, 3000, 0)
    assert found(timed, -4) == (0, -1, 0)
    assert found(timed, -5) == (-1, -1, -1)
    assert found(timed, -6) == (-1, -1, -1)
    assert found(timed, -1, isolation=1) == (4, -1, 0)


@pytest.mark.parametrize("isolation", [0, 1])
def test_what_is_not_replicated_is_not_found(timed, isolation):
    log = timed.partition("t")
    log.set_replicated(True)
    log.appends.append(timed.batch(b"e", timestamp=9000), now_ms=timed.loop.now_ms)
    log.commit()
    assert found(timed, -1, isolation=isolation) == (4, -1, 0)
    assert found(timed, 2500, isolation=isolation) == (2, 3000, 0)
    # The latest of all records counts, as in Kafka, not the latest of those that can be read.
    assert found(timed, -3, isolation=isolation) == (-1, -1, -1)
    assert found(timed, 3001, isolation=isolation) == (-1, -1, -1)
    assert only(timed.ask(list_offsets(-1, max_num_offsets=9), 0)).old_style_offsets == [4, 0]
    log.advance_high_watermark(5)
    assert found(timed, -1, isolation=isolation) == (5, -1, 0)
    assert found(timed, -3, isolation=isolation) == found(timed, 3001, isolation=isolation) == (4, 9000, 0)


def test_a_follower_gets_the_end_of_the_log_itself(timed):
    log = timed.partition("t")
    log.set_replicated(True)
    log.appends.append(timed.batch(b"e"), now_ms=timed.loop.now_ms)
    log.commit()
    assert found(timed, -1) == (4, -1, 0)
    assert found(timed, -1, replica_id=2) == (5, -1, 0)
    assert found(timed, -1, replica_id=-2) == (5, -1, 0)


def test_who_compares_replicas_asks_any_of_them(timed):
    view = timed.machine.view
    topic = view.topics["t"]
    followed = topic.partitions[0]._replace(leader=2, leader_epoch=4, replicas=(2, 1), isr=(2, 1))
    topics = {**view.topics, "t": replace(topic, partitions=(followed,))}
    followers_view = replace(view, version=view.version + 1, topics=topics)
    timed.leadership.current_view = lambda: followers_view
    for replica_id in (-1, 3):
        asked = list_offsets(-1, replica_id=replica_id)
        assert only(timed.ask(asked, 7)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found(timed, -1, replica_id=-2)[:2] == (4, -1)


class Replicas:
    """Of a leader whose high watermark has not come to the start of its epoch."""

    def has_offsets(self, key):
        return False


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)]
)
def test_a_new_leader_tells_no_end_before_it_knows_what_is_committed(timed, version, code):
    timed.leadership.replicas = Replicas()
    assert only(timed.ask(list_offsets(-1), version)).error_code == code
    assert only(timed.ask(list_offsets(9000), version)).error_code == code
    assert found(timed, 1000, version)[0] == 0
    assert found(timed, -2, version)[0] == 0
    assert found(timed, -1, version, replica_id=2)[0] == 4


def test_an_empty_log(node):
    node.create("t")
    assert found(node, -1) == (0, -1, 0)
    assert found(node, -2) == (0, -1, 0)
    assert found(node, -3) == (-1, -1, -1)
    assert found(node, 5) == (-1, -1, -1)


@pytest.mark.parametrize(("timestamp", "first_version"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_timestamp_before_its_version_is_refused(timed, timestamp, first_version):
    too_early = only(timed.ask(list_offsets(timestamp), first_version - 1))
    assert too_early.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (too_early.offset, too_early.timestamp) == (-1, -1)
    assert only(timed.ask(list_offsets(timestamp), first_version)).error_code == ErrorCode.NONE


def test_unknown_partitions_doubles_and_wrong_epochs_are_refused(timed):
    for request, code in (
        (list_offsets(-1, topic="u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (list_offsets(-1, index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (list_offsets(-1, index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (list_offsets(-1, copies=2), ErrorCode.INVALID_REQUEST),
        (list_offsets(-1, current_leader_epoch=1), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        (topic,) = timed.ask(request, 11).topics
        assert [one.error_code for one in topic.partitions] == [code]
    move(timed, leader_epoch=2)
    fenced = only(timed.ask(list_offsets(-1, current_leader_epoch=1), 11))
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_topic_that_is_named_twice_is_answered_once_but_in_version_0(timed):
    request = list_offsets(-1)
    request.topics += list_offsets(-1, index=1).topics
    for version, counts in ((0, [1, 1]), (1, [2]), (11, [2])):
        assert [len(topic.partitions) for topic in timed.ask(request, version).topics] == counts
    twice = list_offsets(-1)
    twice.topics *= 2
    told = [
        [[one.error_code for one in topic.partitions] for topic in timed.ask(twice, version).topics]
        for version in (0, 1)
    ]
    assert told == [[[0], [0]], [[ErrorCode.INVALID_REQUEST]]]


def move(node, **changes):
    view = node.machine.view
    topic = view.topics["t"]
    partitions = tuple(one._replace(**changes) for one in topic.partitions)
    node.machine.publisher.view = replace(view, topics={"t": replace(topic, partitions=partitions)})


def test_another_brokers_partition_is_not_ours(timed):
    move(timed, leader=2)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(timed.ask(list_offsets(-1), 11)).error_code == code
    assert only(timed.ask(epoch_end(0), 4)).error_code == code


# Version 0


def test_version_0_lists_where_segments_begin_newest_first(node):
    node.create("t", segment_bytes=1 << 20)
    for batch in range(3):
        node.fill("t", [b"x" * 600_000])
        assert node.partition("t").log_end_offset == batch + 1
    for timestamp, count, expected in (
        (-1, 10, [3, 2, 1, 0]),
        (-1, 2, [3, 2]),
        (-2, 10, [0]),
        (-1, 0, []),
        (node.loop.now_ms + 1, 10, [3, 2, 1, 0]),
        (node.loop.now_ms - 1, 10, []),
        (1, 10, []),
    ):
        answer = only(node.ask(list_offsets(timestamp, max_num_offsets=count), 0))
        assert (answer.error_code, answer.old_style_offsets) == (0, expected)
    for topic, count, code in (("u", 1, 3), ("u", -1, 3), ("t", -1, -1)):
        refused = only(node.ask(list_offsets(-1, topic=topic, max_num_offsets=count), 0))
        assert (refused.error_code, refused.old_style_offsets) == (code, [])


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_disk_that_does_not_answer_is_a_storage_error_of_that_partition(node, monkeypatch, version):
    node.create("t")
    node.create("u")
    node.fill("t", [b"a"])
    (segment,) = node.partition("t").log.segments

    def fail(*arguments):
        raise OSError("the disk does not answer")

    paths = segment.paths
    monkeypatch.setattr(type(paths), "modified_ms", lambda one: fail() if one is paths else 1)
    monkeypatch.setattr(type(segment.file), "read", fail)
    monkeypatch.setattr(type(segment.indexes), "offset_index", property(fail))
    timestamp = -1 if version == 0 else node.loop.now_ms - 1000
    request = list_offsets(timestamp)
    request.topics += list_offsets(timestamp, topic="u").topics
    broken, sound = (topic.partitions[0].error_code for topic in node.ask(request, version).topics)
    assert (broken, sound) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)


# Epochs


def epoch_end(epoch, topic="t", current=-1):
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])


@pytest.mark.parametrize("version", range(5))
def test_an_epoch_ends_where_the_next_begins(node, version):
    node.create("t")
    node.fill("t", [b"a", b"b"])
    node.partition("t").follow_leader_epoch(3)
    node.fill("t", [b"c"])
    for epoch, expected in ((0, (0, 2)), (2, (0, 2)), (3, (3, 3)), (4, (-1, -1))):
        answer = only(node.ask(epoch_end(epoch), version))
        assert answer.error_code == ErrorCode.NONE
        leader_epoch = expected[0] if version >= 1 else -1
        assert (answer.leader_epoch, answer.end_offset) == (leader_epoch, expected[1])


def test_the_leaders_epoch_begins_with_its_election_not_with_its_first_record(node):
    node.create("t")

    def ends(*epochs):
        answers = [only(node.ask(epoch_end(epoch), 4)) for epoch in epochs]
        return [(answer.leader_epoch, answer.end_offset) for answer in answers]

    move(node, leader_epoch=1)
    assert ends(0, 1, 2) == [(0, 0), (1, 0), (-1, -1)]
    node.fill("t", [b"a", b"b"])
    move(node, leader_epoch=3)
    assert ends(1, 2, 3, 4) == [(1, 2), (1, 2), (3, 2), (-1, -1)]


def test_a_log_follows_the_leader_epoch_of_the_clusters_view(node):
    node.create("t")
    assert node.partition("t").leader_epoch == 0
    move(node, leader_epoch=3)
    node.ask(list_offsets(-1), 11)
    assert node.partition("t").leader_epoch == 3
    node.fill("t", [b"a"])
    partition = node.partition("t")
    assert partition.log.leader_epochs.end_offset_for(3, partition.log_end_offset) == (3, 1)


def test_the_epoch_of_a_stranger_is_refused(node):
    node.create("t")
    assert only(node.ask(epoch_end(0, topic="u"), 4)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(node.ask(epoch_end(0, current=5), 4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
