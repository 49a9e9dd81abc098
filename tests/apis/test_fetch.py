"""Fetch: what is read, how much of it, when it is answered, and what it refuses."""

import errno
import os
import tracemalloc
from dataclasses import replace

import pytest

from odradek.apis.api import LatePart
from odradek.apis.fetch_plan import LOOKS_MAX
from odradek.coordinator.cluster.view import (
    Broker,
    Endpoint,
)
from odradek.coordinator.replication.replica_state import FollowerRead
from odradek.storage.log.segment_file import SegmentFile
from odradek.storage.log.segment_paths import LOG
from odradek.storage.log.slices import Slice
from odradek.wire.compression import Compression
from odradek.wire.down_conversion import CHUNK_BYTES, down_convert
from odradek.wire.errors import ErrorCode
from odradek.wire.legacy_records import iter_messages
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.records import iter_records, iter_whole_batches
from odradek.wire.work import finish
from tests.apis.transactional import end, write

PLENTY = 1 << 20


def fetch(*partitions, max_wait_ms=0, min_bytes=1, max_bytes=PLENTY, **fields):
    """A request without a session for (topic, partition, offset) triples; a topic may be given as an id."""
    topics = {}
    for topic, index, offset, *rest in partitions:
        options = rest[0] if rest else {}
        asked = FetchPartition(
            partition=index, fetch_offset=offset, **{"partition_max_bytes": PLENTY, **options}
        )
        topics.setdefault(topic, []).append(asked)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchTopic(topic_id=topic, partitions=asked)
            if isinstance(topic, bytes)
            else FetchTopic(topic=topic, partitions=asked)
            for topic, asked in topics.items()
        ],
        **fields,
    )


def only(response):
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def values(answer):
    records = memoryview(answer.records)
    return [
        bytes(record.value)
        for position, header in iter_whole_batches(records)
        for record in iter_records(records[position : position + header.size_bytes])
    ]


@pytest.mark.parametrize("version", range(4, 13))
def test_records_are_read_by_name_in_every_version(node, version):
    node.create("t")
    node.fill("t", [b"a"], [b"b", b"c"])
    answer = only(node.ask(fetch(("t", 0, 0)), version))
    assert answer.error_code == ErrorCode.NONE
    assert values(answer) == [b"a", b"b", b"c"]
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 3)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert answer.preferred_read_replica == -1
    assert answer.diverging_epoch is None
    assert answer.current_leader is None


@pytest.mark.parametrize("version", range(13, 19))
def test_records_are_read_by_topic_id_from_version_13_on(node, version):
    topic = node.create("t")
    node.fill("t", [b"a"])
    response = node.ask(fetch((topic.topic_id, 0, 0)), version)
    assert response.responses[0].topic_id == topic.topic_id
    assert values(only(response)) == [b"a"]


def test_the_batch_that_holds_the_offset_comes_whole(node):
    node.create("t")
    node.fill("t", [b"a"], [b"b", b"c", b"d"])
    assert values(only(node.ask(fetch(("t", 0, 2)), 12))) == [b"b", b"c", b"d"]


def test_at_the_end_there_is_nothing_and_beyond_it_an_error(node):
    node.create("t")
    node.fill("t", [b"a"])
    at_end = only(node.ask(fetch(("t", 0, 1)), 12))
    assert (at_end.error_code, bytes(at_end.records), at_end.high_watermark) == (0, b"", 1)
    beyond = only(node.ask(fetch(("t", 0, 2)), 12))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (beyond.high_watermark, beyond.log_start_offset, bytes(beyond.records)) == (-1, -1, b"")


def test_records_are_never_null_nor_aborted_transactions_empty_for_uncommitted_readers(node):
    node.create("t")
    for request in (fetch(("t", 0, 0)), fetch(("t", 0, 9))):
        answer = only(node.ask(request, 12))
        assert answer.records is not None
        assert answer.aborted_transactions is None
    committed = only(node.ask(fetch(("t", 0, 0), isolation_level=1), 12))
    assert committed.aborted_transactions == []


def test_unknown_topics_and_partitions_are_named_each(node):
    topic = node.create("t")
    response = node.ask(fetch(("t", 0, 0), ("t", 1, 0), ("u", 0, 0)), 12)
    codes = {
        (topic.topic, one.partition_index): one.error_code
        for topic in response.responses
        for one in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("t", 0): 0, ("t", 1): unknown, ("u", 0): unknown}
    by_id = node.ask(fetch((topic.topic_id, 0, 0), (b"\x07" * 16, 0, 0)), 13)
    assert by_id.responses[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# Sizes


def test_the_first_batch_comes_whole_whatever_the_limits(node):
    node.create("t", 2)
    for index in range(2):
        node.fill("t", [b"x" * 500], [b"y" * 500], index=index)
    tiny = {"partition_max_bytes": 1}
    response = node.ask(fetch(("t", 0, 0, tiny), ("t", 1, 0, tiny), max_bytes=1), 12)
    first, second = response.responses[0].partitions
    assert values(first) == [b"x" * 500]
    assert values(second) == []


def test_the_limit_of_the_request_spans_its_partitions(node):
    node.create("t", 3)
    for index in range(3):
        node.fill("t", [b"x" * 900], index=index)
    response = node.ask(fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0), max_bytes=2000), 12)
    assert [len(values(one)) for one in response.responses[0].partitions] == [1, 1, 0]


def test_the_broker_has_a_limit_of_its_own(make_node):
    node = make_node(fetch_max_bytes=1000)
    node.create("t")
    node.fill("t", [b"x" * 600], [b"y" * 600])
    assert values(only(node.ask(fetch(("t", 0, 0)), 12))) == [b"x" * 600]


def test_a_partition_has_a_limit_of_its_own(node):
    node.create("t")
    node.fill("t", [b"x" * 600], [b"y" * 600])
    limited = fetch(("t", 0, 0, {"partition_max_bytes": 1000}))
    assert values(only(node.ask(limited, 12))) == [b"x" * 600]


def test_the_limits_cut_a_batch_off_but_never_the_first_one(node):
    node.create("t", 3)
    for index in range(3):
        node.fill("t", [b"x" * 600], [b"y" * 600], index=index)
    size = node.partition("t").size_bytes // 2

    def lengths(max_bytes, of_partition=PLENTY, **fields):
        asked = [("t", index, 0, {"partition_max_bytes": of_partition}) for index in range(3)]
        response = node.ask(fetch(*asked, max_bytes=max_bytes, **fields), 12)
        return [len(one.records) for one in response.responses[0].partitions]

    assert lengths(PLENTY) == [2 * size] * 3
    assert lengths(PLENTY, size + 100) == [size + 100] * 3
    assert lengths(PLENTY, size - 1) == [size, 0, 0]
    assert lengths(3 * size + 7) == [2 * size, size + 7, 0]
    assert lengths(2 * size + 7) == [2 * size, 0, 0]
    assert lengths(2 * size + 7, size + 5) == [size + 5, size + 2, 0]
    assert lengths(0, 0) == [size, 0, 0]


def test_a_batch_over_the_limit_leaves_no_list_of_aborted_transactions(node):
    node.create("t", 3)
    for index in range(3):
        node.fill("t", [b"x" * 600], index=index)
    size = node.partition("t").size_bytes
    asked = [("t", 0, 0), ("t", 1, 0), ("t", 2, 0, {"partition_max_bytes": 0})]
    response = node.ask(fetch(*asked, max_bytes=size + 1, isolation_level=1), 12)
    assert [one.aborted_transactions for one in response.responses[0].partitions] == [[], None, []]


def test_a_limit_below_zero_is_an_error_where_there_is_something_to_read(node):
    node.create("t", 3)
    for index in (1, 2):
        node.fill("t", [b"x" * 600], index=index)

    def codes(asked, **fields):
        return [one.error_code for one in node.ask(fetch(*asked, **fields), 12).responses[0].partitions]

    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    below = {"partition_max_bytes": -1}
    assert codes([("t", 0, 0, below), ("t", 1, 0, below), ("t", 2, 0)]) == [0, unknown, 0]
    # That of the request is 0 once a partition has been looked at.
    assert codes([("t", 1, 0), ("t", 2, 0)], max_bytes=-1) == [unknown, 0]
    assert codes([("t", 0, 0), ("t", 1, 0), ("t", 2, 0)], max_bytes=-1) == [0, 0, 0]


# Waiting


def test_a_fetch_waits_for_records_and_is_woken_by_their_commit(node):
    node.create("t")
    answer = node.start(fetch(("t", 0, 0), max_wait_ms=500), 12)
    node.loop.advance(100)
    assert not answer.was_sent
    node.fill("t", [b"a"])
    node.loop.turn()
    assert values(only(answer.response)) == [b"a"]
    assert node.loop.pending_timers == 0


def test_a_fetch_that_waits_in_vain_is_answered_at_its_deadline_with_every_partition(node):
    node.create("t", 2)
    answer = node.start(fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=500), 12)
    node.loop.advance(499)
    assert not answer.was_sent
    node.loop.advance(1)
    assert [one.partition_index for one in answer.response.responses[0].partitions] == [0, 1]


def test_too_few_bytes_keep_it_waiting_and_come_at_the_deadline(node):
    node.create("t")
    answer = node.start(fetch(("t", 0, 0), max_wait_ms=500, min_bytes=10_000), 12)
    node.fill("t", [b"a"])
    node.loop.turn()
    assert not answer.was_sent
    node.loop.advance(500)
    assert values(only(answer.response)) == [b"a"]


def filled_segments(node, count: int) -> None:
    """So many segments of one record."""
    node.create("t")
    for number in range(count):
        if number:
            node.partition("t").log.roll(node.loop.now_ms)
        node.fill("t", [b"%d" % number])


def remove_below(node, offset: int, how: str) -> None:
    """Let the log start at `offset`: by DeleteRecords, and by retention if that is asked for, which takes the
    segments themselves."""
    partition = node.partition("t")
    if how == "delete_records":
        partition.retention.delete_records(offset)
    else:
        sizes = [segment.size_bytes for segment in partition.log.segments]
        kept = sum(sizes[offset:])
        partition.set_config(replace(partition.config, retention_bytes=kept))
        assert finish(partition.retention.maintaining(node.loop.now_ms))
    assert partition.log_start_offset == offset


@pytest.mark.parametrize("how", ["delete_records", "retention"])
def test_a_fetch_that_waits_ends_with_an_error_when_its_position_is_removed(node, how):
    filled_segments(node, 3)
    answer = node.start(fetch(("t", 0, 1), max_wait_ms=500, min_bytes=10_000), 12)
    remove_below(node, 2, how)
    node.loop.turn()
    node.loop.advance(500)
    refused = only(answer.response)
    assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bytes(refused.records) == b""


@pytest.mark.parametrize("how", ["delete_records", "retention"])
def test_a_fetch_waits_on_when_what_is_below_its_position_is_removed(node, how):
    filled_segments(node, 3)
    enough = 2 * len(node.partition("t").read(2, max_bytes=PLENTY).records.tobytes())
    answer = node.start(fetch(("t", 0, 2), max_wait_ms=500, min_bytes=enough), 12)
    remove_below(node, 2, how)
    node.loop.turn()
    node.loop.advance(100)
    assert not answer.was_sent
    node.fill("t", [b"3"])
    node.loop.turn()
    found = only(answer.response)
    assert (found.error_code, values(found), found.log_start_offset) == (ErrorCode.NONE, [b"2", b"3"], 2)


def test_min_bytes_above_the_limit_do_not_wait_for_ever(node):
    node.create("t")
    node.fill("t", [b"x" * 2000])
    request = fetch(("t", 0, 0), max_wait_ms=500, min_bytes=1 << 30, max_bytes=1000)
    assert values(only(node.ask(request, 12))) == [b"x" * 2000]


def test_commits_of_one_turn_are_answered_together(node):
    node.create("t", 2)
    answer = node.start(fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=500), 12)
    node.fill("t", [b"a"], index=0)
    node.fill("t", [b"b"], index=1)
    node.loop.turn()
    assert [values(one) for one in answer.response.responses[0].partitions] == [[b"a"], [b"b"]]


@pytest.mark.parametrize("request_", [fetch(("t", 0, 0)), fetch(("t", 0, 0), max_wait_ms=500, min_bytes=0)])
def test_without_a_wait_or_a_minimum_the_answer_is_immediate(node, request_):
    node.create("t")
    assert values(only(node.ask(request_, 12))) == []


def test_an_error_is_told_at_once(node):
    node.create("t", 2)
    request = fetch(("t", 0, 0), ("t", 1, 99), max_wait_ms=500)
    codes = [one.error_code for one in node.ask(request, 12).responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]


def test_an_unknown_topic_beside_a_known_one_waits_and_alone_does_not(node):
    node.create("t")
    assert node.ask(fetch(("u", 0, 0), max_wait_ms=500), 12)
    answer = node.start(fetch(("t", 0, 0), ("u", 0, 0), max_wait_ms=500), 12)
    node.loop.turn()
    assert not answer.was_sent
    node.loop.advance(500)
    assert answer.was_sent


def test_a_deleted_topic_ends_the_wait(node):
    node.create("t")
    answer = node.start(fetch(("t", 0, 0), max_wait_ms=500), 12)
    node.machine.delete_topics(["t"])
    node.loop.turn()
    assert only(answer.response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_by_id_that_goes_while_a_fetch_waits_stays_in_its_place(node, is_made_again):
    gone, stays = node.create("gone").topic_id, node.create("stays").topic_id
    answer = node.start(fetch((gone, 0, 0), (stays, 0, 0), (b"\x09" * 16, 0, 0), max_wait_ms=500), 13)
    node.machine.delete_topics(["gone"])
    if is_made_again:
        node.create("gone")
    node.loop.turn()
    code = ErrorCode.INCONSISTENT_TOPIC_ID if is_made_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    told = [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.response.responses]
    assert told == [(gone, code), (stays, 0), (b"\x09" * 16, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_client_that_is_gone_leaves_no_watcher_and_no_timer(node):
    node.create("t")
    answer = node.start(fetch(("t", 0, 0), max_wait_ms=500), 12)
    answer.cancel()
    assert node.loop.pending_timers == 0
    node.fill("t", [b"a"])
    node.loop.advance(1000)
    assert not answer.was_sent


# Leaders and epochs


def test_epochs_that_are_too_old_or_too_new_are_refused(node):
    node.create("t")
    raise_epoch(node, "t", 3)
    for epoch, code in ((-1, 0), (3, 0), (2, 74), (4, 75)):
        answer = only(node.ask(fetch(("t", 0, 0, {"current_leader_epoch": epoch})), 12))
        assert answer.error_code == code


def raise_epoch(node, name, epoch, leader=1):
    view = node.machine.view
    topic = view.topics[name]
    moved = tuple(one._replace(leader=leader, leader_epoch=epoch) for one in topic.partitions)
    node.machine.publisher.view = replace(
        view, topics={**view.topics, name: replace(topic, partitions=moved)}
    )
    if leader == 1:
        node.leadership.lead(name, 0)  # as the next request for it would


@pytest.mark.parametrize("version", [12, 13, 16, 18])
def test_a_partition_led_elsewhere_names_its_leader_from_version_16_on(node, version):
    topic = node.create("t")
    node.machine.register_broker(Broker(2, {"PLAINTEXT": Endpoint("other.example", 9093)}))
    raise_epoch(node, "t", 4, leader=2)
    response = node.ask(fetch(("t" if version < 13 else topic.topic_id, 0, 0)), version)
    answer = only(response)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version < 16:
        assert answer.current_leader is None
        assert response.node_endpoints == []
    else:
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 4)
        assert [one.host for one in response.node_endpoints] == ["other.example"]


def test_a_fetcher_whose_last_epoch_went_another_way_learns_where(node):
    node.create("t")
    node.fill("t", [b"a", b"b"])
    raise_epoch(node, "t", 2)
    node.fill("t", [b"c"])
    asked = {"last_fetched_epoch": 0}
    agreed = only(node.ask(fetch(("t", 0, 2, asked), max_wait_ms=500), 12))
    assert (agreed.diverging_epoch, values(agreed)) == (None, [b"c"])
    diverged = only(node.ask(fetch(("t", 0, 3, asked), max_wait_ms=500), 12))
    assert diverged.error_code == ErrorCode.NONE
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 2)
    assert bytes(diverged.records) == b""
    unknown = only(node.ask(fetch(("t", 0, 0, {"last_fetched_epoch": 9})), 12))
    assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nobody_is_a_follower_here(node):
    topic = node.create("t")
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(node.ask(fetch(("t", 0, 0), replica_id=2), 12)).error_code == refused
    as_follower = fetch((topic.topic_id, 0, 0), replica_state=ReplicaState(replica_id=2))
    assert only(node.ask(as_follower, 17)).error_code == refused


@pytest.mark.parametrize("reader_id", [-2, -3])
def test_a_reader_that_compares_replicas_reads_what_is_not_on_all_of_them(node, reader_id):
    topic = node.create("t")
    log = node.partition("t")
    log.set_replicated(True)
    node.fill("t", [b"a"])
    assert values(only(node.ask(fetch(("t", 0, 0)), 12))) == []
    by_name = only(node.ask(fetch(("t", 0, 0), replica_id=reader_id, isolation_level=1), 12))
    by_id = fetch((topic.topic_id, 0, 0), replica_state=ReplicaState(replica_id=reader_id))
    for answer in (by_name, only(node.ask(by_id, 17))):
        assert (answer.error_code, answer.high_watermark, values(answer)) == (0, 0, [b"a"])


# Reading from followers (KIP-392)


class Replicas:
    """Of a leader with a follower, node 2, in the rack `near`."""

    selects_by_rack = True

    def __init__(self, end_offset):
        self.end_offset = end_offset

    def preferred_read_replica(self, key, rack, fetch_offset):
        return 2 if rack == "near" and fetch_offset <= self.end_offset else None

    def read(self, key, replica, leader_epoch, fetch_offset, last_fetched_epoch):
        return FollowerRead(self.end_offset)

    def fetched(self, key, replica, fetch_offset, log_start_offset, read):
        pass

    def holds_back(self, key, replica):
        return False

    def sent(self, key, size_bytes):
        pass


def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack(node):
    node.create("t")
    node.fill("t", [b"a"], [b"b", b"c"])
    node.leadership.replicas = Replicas(2)
    elsewhere = only(node.ask(fetch(("t", 0, 1), rack_id="near", max_wait_ms=500), 11))
    assert (elsewhere.error_code, elsewhere.preferred_read_replica) == (ErrorCode.NONE, 2)
    assert (elsewhere.high_watermark, bytes(elsewhere.records)) == (3, b"")
    for request in (
        fetch(("t", 0, 1), rack_id="far"),
        fetch(("t", 0, 1)),
    ):
        here = only(node.ask(request, 11))
        assert (here.preferred_read_replica, values(here)) == (-1, [b"b", b"c"])
    # The follower has no more than two records.
    assert only(node.ask(fetch(("t", 0, 3), rack_id="near"), 11)).preferred_read_replica == -1
    node.leadership.replicas.selects_by_rack = False
    assert only(node.ask(fetch(("t", 0, 1), rack_id="near"), 11)).preferred_read_replica == -1


def test_a_replica_is_never_sent_to_another(node):
    """KAFKA-13778."""
    node.create("t")
    node.fill("t", [b"a"])
    node.leadership.replicas = Replicas(1)
    here = only(node.ask(fetch(("t", 0, 0), rack_id="near", replica_id=3), 11))
    assert (here.preferred_read_replica, values(here)) == (-1, [b"a"])


def test_a_session_is_told_of_the_follower_each_time(node):
    node.create("t")
    node.fill("t", [b"a"])
    node.leadership.replicas = Replicas(1)
    first = node.ask(fetch(("t", 0, 1), rack_id="near", session_epoch=0), 11)
    assert only(first).preferred_read_replica == 2
    again = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=PLENTY,
        session_id=first.session_id,
        session_epoch=1,
        topics=[],
        rack_id="near",
    )
    assert only(node.ask(again, 11)).preferred_read_replica == 2


def test_a_follower_serves_what_is_committed_to_consumers_that_may_know_of_it(node):
    topic = node.create("t")
    log = node.fill("t", [b"a"], [b"b"])
    log.set_replicated(True)
    log.appends.append(node.batch(b"c"), now_ms=node.loop.now_ms)
    log.commit()
    followed = topic.partitions[0]._replace(leader=2, leader_epoch=4, replicas=(2, 1), isr=(2, 1))
    view = node.machine.view
    topics = {**view.topics, "t": replace(topic, partitions=(followed,))}
    followers_view = replace(view, version=view.version + 1, topics=topics)
    node.leadership.current_view = lambda: followers_view
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(node.ask(fetch(("t", 0, 0)), 12)).error_code == refused
    node.leadership.replicas = Replicas(0)
    assert only(node.ask(fetch(("t", 0, 0)), 10)).error_code == refused
    assert only(node.ask(fetch(("t", 0, 0), replica_id=3), 12)).error_code == refused
    found = only(node.ask(fetch(("t", 0, 0)), 11))
    assert (values(found), found.high_watermark) == ([b"a", b"b"], 2)
    # Who compares replicas reads all that this one has, in any version.
    for version in (10, 12):
        found = only(node.ask(fetch(("t", 0, 0), replica_id=-2), version))
        assert (values(found), found.high_watermark) == ([b"a", b"b", b"c"], 2)
    for epoch, code in (
        (4, ErrorCode.NONE),
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        asked = fetch(("t", 0, 0, {"current_leader_epoch": epoch}))
        assert only(node.ask(asked, 12)).error_code == code
    waiting = node.start(fetch(("t", 0, 2), max_wait_ms=500), 12)
    node.loop.turn()
    assert not waiting.was_sent
    log.advance_high_watermark(3)
    node.loop.turn()
    assert values(only(waiting.response)) == [b"c"]


# Old formats


def whole_messages(records):
    """Without what fills the answer up: a message that claims to be longer than what is left."""
    end = 0
    while end + 12 <= len(records):
        size = 12 + int.from_bytes(records[end + 8 : end + 12], "big")
        if end + size > len(records):
            return
        yield from iter_messages(records[end : end + size])
        end += size


@pytest.mark.parametrize("version", range(4))
def test_old_versions_get_messages_of_the_format_that_they_know(node, version):
    node.create("t")
    node.fill("t", [b"a"], [b"b", b"c"])
    answer = only(node.ask(fetch(("t", 0, 1)), version))
    messages = list(whole_messages(answer.records))
    assert [(one.offset, bytes(one.value)) for one in messages] == [(1, b"b"), (2, b"c")]
    assert {one.magic for one in messages} == {0 if version < 2 else 1}
    assert answer.aborted_transactions in ([], None)


@pytest.mark.parametrize("version", [0, 2, 3])
def test_up_to_version_2_the_limit_is_hard(node, version):
    node.create("t")
    node.fill("t", [b"x" * 500])
    answer = only(node.ask(fetch(("t", 0, 0, {"partition_max_bytes": 100})), version))
    if version == 3:
        assert len(list(whole_messages(answer.records))) == 1
    else:
        assert (answer.error_code, bytes(answer.records)) == (0, b"")


@pytest.mark.parametrize(("version", "is_answered"), [(2, True), (3, False)])
def test_a_batch_that_is_cut_off_counts_for_the_minimum_up_to_version_2(node, version, is_answered):
    node.create("t", 2)
    for index in range(2):
        node.fill("t", [b"x" * 500], index=index)
    size = len(node.partition("t").read(0, max_bytes=1).records)
    both = fetch(("t", 0, 0), ("t", 1, 0, {"partition_max_bytes": 10}), max_wait_ms=500, min_bytes=size + 1)
    answer = node.start(both, version)
    assert answer.was_sent == is_answered
    node.loop.advance(500)
    assert [bool(one.records) for one in answer.response.responses[0].partitions] == [True, False]


def test_an_old_version_cannot_have_zstd(node):
    node.create("t")
    log = node.partition("t")
    log.appends.append(node.batch(b"a" * 100, compression=Compression.ZSTD), now_ms=node.loop.now_ms)
    log.commit()
    answer = only(node.ask(fetch(("t", 0, 0)), 3))
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (answer.high_watermark, answer.records) == (-1, None)


def test_a_disk_that_fails_during_the_conversion_is_an_error_of_that_partition(node, monkeypatch):
    from odradek.storage.log.slices import Slice

    def fail(self):
        raise OSError("the disk does not answer")

    node.create("t")
    node.fill("t", [b"a"])
    monkeypatch.setattr(Slice, "buffers", fail)
    assert only(node.ask(fetch(("t", 0, 0)), 3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def pieces_of(part):
    """What a connection gets of a part that is made while it is sent."""
    pieces = []
    while len(part):
        part.ask(lambda piece: pieces.append(bytes(piece)), pytest.fail)
    return pieces


@pytest.mark.parametrize("version", [1, 3])
def test_a_long_answer_of_an_old_format_is_converted_while_it_is_sent(node, version):
    node.create("t")
    node.fill("t", *([b"%d" % n * 20_000] for n in range(40)))
    stored = node.partition("t").read(0, max_bytes=PLENTY).records.tobytes()
    part = only(node.before_encoding(fetch(("t", 0, 0)), version)).records
    assert isinstance(part, LatePart)
    assert len(part) == len(stored)
    pieces = pieces_of(part)
    assert max(map(len, pieces)) <= CHUNK_BYTES
    assert b"".join(pieces) == down_convert(stored, 0 if version < 2 else 1, 0)


def test_of_many_partitions_little_is_converted_before_it_is_sent(node):
    count = 20
    node.create("t", count)
    for index in range(count):
        node.fill("t", [b"%d" % index * 60_000], [b"more" * 50_000], index=index)
    request = fetch(*(("t", index, 0) for index in range(count)), max_bytes=PLENTY)
    tracemalloc.start()
    try:
        answer = node.before_encoding(request, 2)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    parts = [one.records for one in answer.responses[0].partitions]
    assert sum(map(len, parts)) > 5_000_000
    assert held_bytes < 1_500_000
    for index, part in enumerate(parts):
        stored = node.partition("t", index).read(0, max_bytes=PLENTY).records.tobytes()
        assert b"".join(pieces_of(part)) == down_convert(stored, 1, 0)


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
def test_a_storage_error_has_another_name_for_old_versions(node, monkeypatch, version, code):
    from odradek.wire.errors import KafkaError

    def fail(self, offset, **arguments):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    node.create("t")
    monkeypatch.setattr(type(node.partition("t")), "read", fail)
    assert only(node.ask(fetch(("t", 0, 0)), version)).error_code == code


def test_a_bug_while_waiting_answers_instead_of_hanging(node, monkeypatch):
    def fail(self, offset, **arguments):
        raise RuntimeError("a bug")

    topic = node.create("t")
    by_name = node.start(fetch(("t", 0, 0), max_wait_ms=500), 6)
    by_id = node.start(fetch((topic.topic_id, 0, 0), max_wait_ms=500), 13)
    monkeypatch.setattr(type(node.partition("t")), "read", fail)
    node.fill("t", [b"a"])
    node.loop.turn()
    assert only(by_name.response).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert by_id.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert by_id.response.responses == []
    assert node.loop.pending_timers == 0


@pytest.mark.parametrize("version", range(4))
def test_of_a_topic_in_zstd_the_oldest_clients_get_nothing(node, version):
    node.create("t", compression_type="zstd")
    node.fill("t", [b"a"])
    refused = only(node.ask(fetch(("t", 0, 0)), version))
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (refused.high_watermark, refused.records) == (-1, None)
    for readable in range(4, 13):
        assert values(only(node.ask(fetch(("t", 0, 0)), readable))) == [b"a"]
    # An answer to nothing new is not held back by it.
    node.set_configs("t", {})
    assert only(node.ask(fetch(("t", 0, 1)), version)).error_code == ErrorCode.NONE


# What the disk has to give first


@pytest.fixture
def cold(monkeypatch):
    """Nothing is in the system's memory until it has been loaded; the works that load wait in a list."""
    loaded = []

    def load(segment, position, size_bytes):
        loaded.append((segment, position, position + size_bytes))

    def is_resident(segment, position, size_bytes):
        end = position + size_bytes
        return any(one is segment and start <= position and end <= until for one, start, until in loaded)

    def read_now(segment, position, size_bytes):
        if not is_resident(segment, position, size_bytes):
            return None
        with open(segment.paths.path(LOG), "rb") as file:
            file.seek(position)
            return file.read(size_bytes)

    monkeypatch.setattr(SegmentFile, "load", load)
    monkeypatch.setattr(SegmentFile, "read_now", read_now)
    monkeypatch.setattr(SegmentFile, "is_resident", is_resident)
    return loaded


@pytest.fixture
def no_reads(monkeypatch):
    """Whoever reads a log and would wait for the disk fails, except for those who load."""

    def fail(segment, position, size_bytes):
        raise AssertionError(f"{size_bytes} bytes at {position} are read in the event loop")

    monkeypatch.setattr(SegmentFile, "read", fail)


def inherit(node, index=0):
    """What is in the log now is as if an earlier run had left it."""
    log = node.partition("t", index).log
    log.active.inherited.begin(log.log_end_offset)
    log.reader.segments_changed()


@pytest.fixture
def works(node, monkeypatch):
    """The works that handlers have started; each does nothing until it is asked to."""
    started = []
    monkeypatch.setattr(
        node.loop, "run", lambda work, done, failed: started.append(lambda: done(finish(work)))
    )
    return started


@pytest.mark.parametrize("size", [100, 100_000])
def test_what_is_not_in_memory_is_loaded_before_the_answer_goes_out(node, cold, works, size):
    node.create("t")
    node.fill("t", [b"x" * size])
    answer = node.start(fetch(("t", 0, 0)), 12)
    assert not answer.was_sent
    assert answer.result.holds_back
    works.pop()()
    assert values(only(answer.response)) == [b"x" * size]
    assert len(cold) == 1
    again = node.start(fetch(("t", 0, 0)), 12)
    assert again.was_sent
    assert not works


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("limit", [300, 1_000, PLENTY])
def test_headers_that_are_not_in_memory_are_loaded_too_before_records_are_found(
    node, cold, no_reads, works, limit, isolation_level
):
    node.create("t")
    for number in range(40):
        node.fill("t", [b"%d" % number * 50])
    inherit(node)
    for offset in (25, 0, 39, 24):
        answer = node.start(
            fetch(("t", 0, offset, {"partition_max_bytes": limit}), isolation_level=isolation_level), 12
        )
        if not answer.was_sent:
            works.pop()()
        told = only(answer.response)
        assert told.high_watermark == told.last_stable_offset == 40
        found = values(told)
        assert found[0] == b"%d" % offset * 50
        assert found == [b"%d" % number * 50 for number in range(offset, offset + len(found))]
        assert limit < PLENTY or len(found) == 40 - offset
    assert cold


def test_what_is_lost_again_as_soon_as_it_is_loaded_is_waited_for(node, cold, works, monkeypatch):
    node.create("t")
    node.fill("t", [b"a"])
    inherit(node)
    monkeypatch.setattr(SegmentFile, "read_now", lambda *stretch: None)
    answer = node.start(fetch(("t", 0, 0)), 12)
    assert not answer.was_sent
    works.pop()()
    assert values(only(answer.response)) == [b"a"]
    assert len(cold) == LOOKS_MAX + 1


def test_records_that_are_yet_to_be_found_count_as_many_as_they_may_be(node, cold, works):
    node.create("t", 2)
    node.fill("t", [b"a" * 100])
    node.fill("t", [b"b" * 100], index=1)
    inherit(node)
    answer = node.start(fetch(("t", 0, 0), ("t", 1, 0), max_bytes=300), 12)
    works.pop()()
    first, second = answer.response.responses[0].partitions
    assert (values(first), bytes(second.records)) == ([b"a" * 100], b"")
    answer = node.start(fetch(("t", 0, 0, {"partition_max_bytes": 300}), ("t", 1, 0), max_bytes=900), 12)
    works.pop()()
    first, second = answer.response.responses[0].partitions
    assert (values(first), values(second)) == ([b"a" * 100], [b"b" * 100])


def test_what_goes_while_it_is_looked_for_is_refused(node, cold, works):
    node.create("t")
    node.fill("t", [b"a"], [b"b"])
    inherit(node)
    answer = node.start(fetch(("t", 0, 0)), 12)
    node.partition("t").retention.delete_records(1)
    works.pop()()
    assert only(answer.response).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("version", "code"), [(3, 6), (12, 56)])
def test_a_disk_that_does_not_show_where_they_are_is_an_error_of_that_partition(
    node, cold, works, monkeypatch, version, code
):
    def fail(segment, position, size_bytes):
        raise OSError("the disk does not answer")

    node.create("t")
    node.fill("t", [b"a"])
    inherit(node)
    monkeypatch.setattr(SegmentFile, "load", fail)
    answer = node.start(fetch(("t", 0, 0)), version)
    works.pop()()
    broken = only(answer.response)
    assert (broken.error_code, bytes(broken.records), broken.high_watermark) == (code, b"", -1)


@pytest.mark.parametrize("is_asked_first", [True, False])
def test_who_looks_after_the_disks_is_told_of_records_that_cannot_be_brought_into_memory(
    node, works, monkeypatch, is_asked_first
):
    def fail(*_):
        raise OSError(errno.EIO, "the disk does not answer")

    node.create("t")
    node.fill("t", [b"a" * 100_000])
    told = []
    node.partition("t").on_trouble = lambda _, error, sentence: told.append((error.errno, sentence))
    if is_asked_first:
        monkeypatch.setattr(Slice, "would_wait", fail)
        answer = node.start(fetch(("t", 0, 0)), 12)
    else:
        monkeypatch.setattr(Slice, "would_wait", lambda records: True)
        monkeypatch.setattr(Slice, "load", fail)
        answer = node.start(fetch(("t", 0, 0)), 12)
        works.pop()()
    assert only(answer.response).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    ((code, sentence),) = told
    assert code == errno.EIO
    assert sentence.startswith("Reading ")


def test_a_fetch_that_waited_for_records_waits_for_the_disk_too(node, cold, works):
    node.create("t")
    answer = node.start(fetch(("t", 0, 0), max_wait_ms=500), 12)
    node.fill("t", [b"a"])
    node.loop.turn()
    assert not answer.was_sent
    works.pop()()
    assert values(only(answer.response)) == [b"a"]
    assert node.loop.pending_timers == 0


def test_what_the_disk_gives_comes_with_its_aborted_transactions(node, cold, works):
    node.create("t")
    write(node, 7, b"aborted")
    end(node, 7, commit=False)
    write(node, 8, b"open")
    answer = node.start(fetch(("t", 0, 0), isolation_level=1), 12)
    assert not answer.was_sent
    works.pop()()
    told = only(answer.response)
    assert (told.high_watermark, told.last_stable_offset) == (3, 2)
    assert [(one.producer_id, one.first_offset) for one in told.aborted_transactions] == [(7, 0)]
    ends = [header.last_offset for _, header in iter_whole_batches(memoryview(told.records))]
    assert ends == [0, 1]


def test_a_client_that_goes_while_the_disk_is_asked_is_forgotten(node, cold, works):
    node.create("t")
    answer = node.start(fetch(("t", 0, 0), max_wait_ms=500), 12)
    node.fill("t", [b"a"])
    node.loop.turn()
    answer.cancel()
    works.pop()()
    assert not answer.was_sent


@pytest.mark.parametrize(("version", "code"), [(3, 6), (5, 6), (12, 56)])
def test_a_disk_that_does_not_give_it_is_an_error_of_that_partition(node, cold, monkeypatch, version, code):
    def fail(segment, position, size_bytes):
        raise OSError("the disk does not answer")

    node.create("t", 2)
    node.fill("t", [b"a"])
    node.fill("t", [b"b"], index=1)
    load = SegmentFile.load

    def load_or_fail(segment, *stretch):
        (fail if os.path.basename(segment.paths.directory) == "t-0" else load)(segment, *stretch)

    monkeypatch.setattr(SegmentFile, "load", load_or_fail)
    broken, sound = node.ask(fetch(("t", 0, 0), ("t", 1, 0)), version).responses[0].partitions
    assert (broken.error_code, bytes(broken.records), broken.high_watermark) == (code, b"", -1)
    assert (sound.error_code, sound.high_watermark) == (0, 1)
    assert sound.records


def to_the_end(work):
    """How often the work lets others go first, and its result."""
    pauses = 0
    while True:
        try:
            assert next(work) is None
        except StopIteration as end:
            return pauses, end.value
        pauses += 1


def test_old_messages_are_made_batch_by_batch_while_others_are_served(node, works, monkeypatch):
    steps = []

    def run(work, done, failed):
        steps.append(work)

    monkeypatch.setattr(node.loop, "run", run)
    node.create("t")
    node.fill("t", *([b"x" * 100] for _ in range(10)))
    answer = node.start(fetch(("t", 0, 0)), 1)
    (work,) = steps
    pauses, response = to_the_end(work)
    assert pauses >= 10
    answer.result.complete(response)
    assert len(list(whole_messages(only(answer.response).records))) == 10
