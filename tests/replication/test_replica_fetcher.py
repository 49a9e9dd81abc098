"""The follower's side, rule by rule."""

import pytest

from odradek.coordinator.replication.replica_fetcher import (
    BeginAnew,
    Failed,
    Phase,
    Replicate,
    Truncate,
)
from odradek.coordinator.replication.replica_fetchers import ReplicaFetchers
from odradek.coordinator.replication.truncation import truncation_offset
from odradek.wire.codec import decode_message, encode_message
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.replication.model_log import Batch, ModelLog, decode

KEY, OTHER = ("t", 0), ("t", 1)
TOPIC_ID = b"1" * 16
BACKOFF_MS = 100


class Settings:
    max_wait_ms = 500
    min_bytes = 1
    max_bytes = 10_000
    partition_max_bytes = 1_000
    backoff_ms = BACKOFF_MS


def log_of(*epochs, high_watermark=0) -> ModelLog:
    """A log with one record for each given epoch."""
    log = ModelLog()
    for value, epoch in enumerate(epochs):
        log.append_new(epoch, value)
    log.high_watermark = high_watermark
    return log


class Follower:
    """Node 2, which follows node 1 in epoch 5 and has a session of id 7 after the first answer."""

    def __init__(self, *logs: ModelLog, leader_epoch=5) -> None:
        self.fetchers = ReplicaFetchers(2, lambda: 102, Settings())
        self.logs = dict(zip([KEY, OTHER], logs, strict=False))
        self.now_ms = 1_000
        self.effects: list = []
        for key in self.logs:
            self.follow(key, leader_epoch)

    def follow(self, key, leader_epoch, leader=1):
        self.effects += self.fetchers.follow(key, TOPIC_ID, leader, leader_epoch, self.logs[key])

    @property
    def fetcher(self):
        return self.fetchers.fetchers[1, 0]

    def next(self):
        return self.fetcher.next_request(self.now_ms)

    def asked(self, request=None):
        """(partition, fetch offset, last fetched epoch, leader epoch) that a request names."""
        request = request or self.next()
        return [
            (one.partition, one.fetch_offset, one.last_fetched_epoch, one.current_leader_epoch)
            for topic in request.topics
            for one in topic.partitions
        ]

    def fetched(self, request=None):
        """(partition, fetch offset, last fetched epoch, leader epoch) of all that a request asks for, also
        by not naming it."""
        request = request or self.next()
        assert isinstance(request, FetchRequest)
        return [
            (one.partition, one.fetch_offset, one.last_fetched_epoch, one.current_leader_epoch)
            for _, one in self.fetcher.session.asked.values()
        ]

    def answer(self, *data, request=None, session_id=7, error_code=0):
        request = request or self.next()
        response = FetchResponse(
            error_code=error_code,
            session_id=session_id,
            responses=[FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=list(data))],
        )
        return self.fetcher.fetch_answered(request, response, self.now_ms)

    def answer_offset(self, offset, error_code=0):
        request = self.next()
        assert isinstance(request, ListOffsetsRequest)
        assert request.replica_id == 2
        (asked,) = request.topics[0].partitions
        data = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=error_code, offset=offset
        )
        topics = [ListOffsetsTopicResponse(name="t", partitions=[data])]
        return asked.timestamp, self.fetcher.offsets_answered(
            request, ListOffsetsResponse(topics=topics), self.now_ms
        )

    def done(self, key=KEY, error=None):
        return self.fetchers.done(key, error, self.now_ms)

    def phase(self, key=KEY):
        return self.fetchers.followed(key).phase


def data(*batches, partition=0, high_watermark=0, log_start=0, error_code=0, diverging=None, cut=0):
    records = b"".join(batch.encode() for batch in batches)
    return PartitionData(
        partition_index=partition,
        error_code=error_code,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        diverging_epoch=None
        if diverging is None
        else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        records=records[: len(records) - cut],
    )


# Requests


def test_a_fetch_says_where_the_log_ends_in_which_epoch_and_who_asks():
    follower = Follower(log_of(3, 4, 4))
    request = follower.next()
    assert follower.asked(request) == [(0, 3, 4, 5)]
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 102)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_000)


@pytest.mark.parametrize("version", [15, 17, 18])
def test_a_fetch_comes_over_the_wire_as_it_is_meant(version):
    follower = Follower(log_of(3, 4, 4))
    request = decode_message(FetchRequest, version, encode_message(follower.next(), version))
    assert follower.asked(request) == [(0, 3, 4, 5)]
    assert (request.replica_state.replica_id, request.topics[0].topic_id) == (2, TOPIC_ID)


@pytest.mark.parametrize("version", [7, 9, 10, 11])
def test_a_question_for_offsets_comes_over_the_wire_as_it_is_meant(version):
    follower = Follower(log_of(4, 4))
    out_of_range(follower)
    request = decode_message(ListOffsetsRequest, version, encode_message(follower.next(), version))
    (asked,) = request.topics[0].partitions
    assert (request.replica_id, asked.timestamp, asked.current_leader_epoch) == (2, -1, 5)


def test_one_request_is_under_way_at_a_time():
    follower = Follower(log_of(3))
    assert follower.next() is not None
    assert follower.next() is None


def test_in_a_session_only_what_has_changed_is_named():
    follower = Follower(log_of(4), log_of(4, 4))
    follower.answer(data(Batch(1, 1, 5, 8)))
    follower.logs[KEY].append_new(5, 8)
    follower.done()
    request = follower.next()
    assert follower.asked(request) == [(0, 2, 5, 5)]
    assert (request.session_id, request.session_epoch) == (7, 1)


def test_a_changed_leader_epoch_is_sent_though_nothing_else_is_new():
    """KAFKA-9338: the session holds the old one, and would be fenced."""
    follower = Follower(log_of(4), log_of(4))
    follower.answer()
    follower.fetchers.stop(KEY)
    follower.follow(KEY, 6)
    assert follower.asked() == [(0, 1, 4, 6)]


def test_a_log_start_that_retention_has_moved_is_told():
    follower = Follower(log_of(4, 4, high_watermark=2), log_of(4))
    follower.answer()
    follower.logs[KEY].raise_start(1)
    follower.fetchers.log_changed(KEY)
    (asked,) = follower.next().topics[0].partitions
    assert (asked.partition, asked.log_start_offset) == (0, 1)


def test_a_partition_that_is_dropped_and_wanted_again_between_two_requests_is_not_named():
    follower = Follower(log_of(4), log_of(4))
    follower.answer(data(high_watermark=1))
    follower.done()
    request = follower.next()
    assert follower.asked(request) == []
    assert request.forgotten_topics_data == []
    assert [one[0] for one in follower.fetched(request)] == [1, 0]


def test_a_topic_of_the_same_name_takes_the_place_of_the_one_before():
    follower = Follower(log_of(4), log_of(4))
    follower.answer()
    follower.fetchers.follow(KEY, b"2" * 16, 1, 5, ModelLog())
    request = follower.next()
    assert [(topic.topic_id, follower.asked(request)) for topic in request.topics] == [
        (b"2" * 16, [(0, 0, -1, 5)])
    ]
    assert request.forgotten_topics_data[0].topic_id == TOPIC_ID


class CountedLog(ModelLog):
    looks = 0

    @property
    def latest_epoch(self) -> int:
        CountedLog.looks += 1
        return super().latest_epoch


def test_the_cost_of_a_request_is_that_of_what_has_changed():
    fetchers = ReplicaFetchers(2, lambda: 102, Settings())
    for index in range(1_000):
        fetchers.follow(("t", index), TOPIC_ID, 1, 5, CountedLog())
    (fetcher,) = fetchers.fetchers.values()
    for expected in (1_000, 1, 1):
        CountedLog.looks = 0
        request = fetcher.next_request(0)
        assert (CountedLog.looks, request.session_id) == (expected, 7 if expected == 1 else 0)
        response = FetchResponse(
            session_id=7,
            responses=[FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[data(partition=500)])],
        )
        fetcher.fetch_answered(request, response, 0)


def test_a_partition_that_is_followed_no_more_is_forgotten():
    follower = Follower(log_of(4), log_of(4))
    follower.answer()
    follower.fetchers.stop(OTHER)
    (forgotten,) = follower.next().forgotten_topics_data
    assert (forgotten.topic_id, forgotten.partitions) == (TOPIC_ID, [1])


def test_an_idle_fetcher_asks_nothing_and_is_dropped():
    follower = Follower(log_of(4))
    fetcher = follower.fetcher
    follower.fetchers.stop(KEY)
    assert fetcher.next_request(0) is None
    assert follower.fetchers.take_idle() == [(1, 0)]
    assert not follower.fetchers.fetchers


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_after_an_error_of_the_session_all_is_asked_at_once(code):
    follower = Follower(log_of(4), log_of(4))
    follower.answer()
    follower.logs[KEY].append_new(5, 9)
    follower.answer(error_code=code, session_id=0)
    request = follower.next()
    assert len(follower.asked(request)) == 2
    assert request.session_epoch == 0
    assert request.session_id == (0 if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 7)


def test_after_another_error_of_the_whole_answer_the_fetcher_waits():
    follower = Follower(log_of(4))
    follower.answer(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert follower.next() is None
    assert follower.fetcher.wake_at_ms == follower.now_ms + BACKOFF_MS


def test_without_a_session_all_is_asked_each_time():
    follower = Follower(log_of(4))
    follower.answer(session_id=0)
    request = follower.next()
    assert (request.session_epoch, len(follower.asked(request))) == (0, 1)


def test_without_an_answer_the_fetcher_waits_and_asks_for_all():
    follower = Follower(log_of(4))
    follower.answer()
    follower.logs[KEY].append_new(5, 9)
    request = follower.next()
    follower.fetcher.failed(request, follower.now_ms)
    assert follower.next() is None
    follower.now_ms += BACKOFF_MS
    assert follower.next().session_epoch == 0
    assert follower.answer(data(Batch(2, 2, 5, 8)), request=request) == []


# Records


def test_records_are_appended_and_then_the_high_watermark_and_the_log_start_follow():
    follower = Follower(log_of(4, 4))
    (effect,) = follower.answer(data(Batch(2, 4, 5, 8), high_watermark=9, log_start=1))
    assert effect._replace(records=None) == Replicate(KEY, None, None, high_watermark=5, log_start_offset=1)
    assert decode(effect.records) == [Batch(2, 4, 5, 8)]


def test_a_batch_that_is_cut_off_is_left_out():
    follower = Follower(log_of(4))
    (effect,) = follower.answer(data(Batch(1, 1, 5, 8), Batch(2, 2, 5, 9), cut=10, high_watermark=3))
    assert decode(effect.records) == [Batch(1, 1, 5, 8)]
    assert effect.high_watermark == 2


def test_batches_of_a_later_leader_are_left_out():
    """KAFKA-18723."""
    follower = Follower(log_of(4))
    (effect,) = follower.answer(data(Batch(1, 1, 5, 8), Batch(2, 2, 6, 9), high_watermark=3))
    assert decode(effect.records) == [Batch(1, 1, 5, 8)]


def test_offsets_may_have_gaps():
    follower = Follower(log_of(4))
    (effect,) = follower.answer(data(Batch(5, 5, 5, 8)))
    assert decode(effect.records) == [Batch(5, 5, 5, 8)]


def test_offsets_that_are_in_the_log_fail_the_partition():
    follower = Follower(log_of(4, 4), log_of(4))
    good = data(Batch(1, 1, 5, 9), partition=1)
    failed, effect = follower.answer(data(Batch(0, 1, 5, 8)), good)
    assert isinstance(failed, Failed)
    assert effect.key == OTHER


def test_bytes_that_are_no_batch_are_asked_for_again():
    follower = Follower(log_of(4))
    damaged = data()
    damaged.records = b"\xff" * 80
    assert follower.answer(damaged) == []
    assert follower.phase() is Phase.FETCHING
    assert follower.fetcher.wake_at_ms == follower.now_ms + BACKOFF_MS


def test_a_log_that_begins_within_a_batch_begins_with_that_batch():
    """KAFKA-6975."""
    log = ModelLog()
    log.begin_anew(5)
    follower = Follower(log)
    (effect,) = follower.answer(data(Batch(3, 7, 4, 8), high_watermark=8, log_start=5))
    assert (effect.begin_at, effect.high_watermark, effect.log_start_offset) == (3, 8, 5)


def test_a_batch_over_the_end_of_the_log_shows_that_the_logs_part_there():
    """A leader whose log begins within a batch knows no epoch before it, so the cut came too late."""
    follower = Follower(log_of(4, 4))
    assert follower.answer(data(Batch(1, 3, 5, 8), high_watermark=4)) == [Truncate(KEY, 1)]


def test_the_high_watermark_does_not_fall_without_a_cut():
    follower = Follower(log_of(4, 4, high_watermark=2))
    assert follower.answer(data(high_watermark=1)) == []


def test_an_answer_without_news_changes_nothing_and_keeps_the_last_epoch():
    """KAFKA-15510."""
    follower = Follower(log_of(4, 4, high_watermark=2))
    request = follower.next()
    assert follower.asked(request) == [(0, 2, 4, 5)]
    assert follower.answer(data(high_watermark=2), request=request) == []
    follower.logs[KEY].high_watermark = 0  # so that the next request has something to name
    follower.fetcher.session.failed()
    assert follower.asked() == [(0, 2, 4, 5)]


def test_the_log_start_is_not_after_the_high_watermark():
    follower = Follower(log_of(4, 4))
    (effect,) = follower.answer(data(high_watermark=1, log_start=2))
    assert (effect.high_watermark, effect.log_start_offset) == (1, 1)


def test_a_partition_that_had_records_is_the_last_of_the_next_full_fetch():
    follower = Follower(log_of(4), log_of(4))
    follower.answer(data(Batch(1, 1, 5, 8)), session_id=0)
    follower.done()
    assert [one[0] for one in follower.asked()] == [1, 0]


# Answers that do not count


def test_an_answer_for_another_offset_or_epoch_does_not_count():
    """KAFKA-13207."""
    for change in (
        lambda follower: follower.logs[KEY].append_new(5, 99),
        lambda follower: (follower.fetchers.stop(KEY), follower.follow(KEY, 6)),
        lambda follower: follower.fetchers.stop(KEY),
    ):
        follower = Follower(log_of(4), log_of(4))
        request = follower.next()
        change(follower)
        assert follower.answer(data(diverging=(3, 0)), request=request) == []


def test_the_next_request_waits_for_what_is_appended():
    """It tells the leader so. Without that partition it might wait there for records of the other one."""
    follower = Follower(log_of(4), log_of(4))
    follower.answer(data(Batch(1, 1, 5, 8)), data(Batch(1, 1, 5, 9), partition=1))
    assert follower.next() is None
    assert follower.fetcher.wake_at_ms is None
    follower.logs[KEY].append_new(5, 8)
    follower.done(KEY)
    assert follower.next() is None
    follower.logs[OTHER].append_new(5, 9)
    follower.done(OTHER)
    assert follower.asked() == [(0, 2, 5, 5), (1, 2, 5, 5)]


def test_nothing_waits_for_an_append_to_a_partition_that_is_followed_no_more():
    follower = Follower(log_of(4), log_of(4))
    follower.answer(data(Batch(1, 1, 5, 8)))
    follower.fetchers.stop(KEY)
    follower.done(KEY)
    assert [one[0] for one in follower.fetched()] == [1]


def test_a_partition_whose_log_is_cut_is_left_out_until_that_is_done():
    follower = Follower(log_of(4), log_of(4))
    assert follower.answer(data(diverging=(3, 0)))
    request = follower.next()
    assert follower.asked(request) == []
    assert request.forgotten_topics_data[0].partitions == [0]
    assert follower.answer(data(Batch(1, 1, 5, 8)), request=request) == []
    follower.done()
    assert [one[0] for one in follower.asked()] == [0]


def test_while_all_partitions_are_busy_nothing_is_asked():
    follower = Follower(log_of(4))
    assert follower.answer(data(Batch(1, 1, 5, 8)))
    assert follower.next() is None
    follower.done()
    assert [one[0] for one in follower.fetched()] == [0]


# Truncation


@pytest.mark.parametrize(
    ("answer", "offset"),
    [
        ((4, 3), 3),  # our epoch 4 began at 2 and ends at 4
        ((4, 9), 4),
        ((3, 1), 2),  # an epoch that we lack: after ours before it, and then the next fetch asks again
        ((2, 1), 1),
        ((6, 5), 5),
        ((1, 3), 0),  # before our first epoch
        ((5, -1), 1),  # the leader knows nothing: to the high watermark
    ],
)
def test_a_log_is_cut_where_its_epochs_part_from_the_leaders(answer, offset):
    """KIP-101, KIP-279."""
    assert truncation_offset(log_of(2, 2, 4, 4, 6, high_watermark=1), *answer) == offset


def test_without_epochs_the_leaders_end_counts():
    log = log_of(-1, -1, -1)
    assert truncation_offset(log, 3, 2) == 2
    assert truncation_offset(log, 3, 9) == 3


def test_a_diverging_log_is_cut_and_nothing_else_in_the_answer_counts():
    """KAFKA-14704: the high watermark is for another log."""
    follower = Follower(log_of(2, 4, 4))
    answer = data(Batch(3, 3, 5, 8), diverging=(2, 1), high_watermark=3, log_start=1)
    assert follower.answer(answer) == [Truncate(KEY, 1)]
    follower.logs[KEY].truncate(1)
    follower.done()
    assert follower.asked() == [(0, 1, 2, 5)]


def test_a_cut_before_the_start_of_the_log_leaves_nothing_of_it():
    log = log_of(2, 4, 4, high_watermark=2)
    log.raise_start(2)
    follower = Follower(log)
    assert follower.answer(data(diverging=(2, 1))) == [BeginAnew(KEY, 1)]


def test_a_log_without_epochs_is_cut_to_its_high_watermark_before_the_first_fetch():
    follower = Follower(log_of(-1, -1, high_watermark=1))
    assert follower.effects == [Truncate(KEY, 1)]
    assert follower.next() is None
    follower.logs[KEY].truncate(1)
    follower.done()
    assert follower.asked() == [(0, 1, -1, 5)]


# Out of range


def out_of_range(follower):
    assert follower.answer(data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)) == []


def test_a_log_that_is_longer_than_the_leaders_is_cut_there():
    follower = Follower(log_of(4, 4, 4))
    out_of_range(follower)
    assert follower.answer_offset(2) == (-1, [Truncate(KEY, 2)])
    follower.logs[KEY].truncate(2)
    follower.done()
    assert follower.asked() == [(0, 2, 4, 5)]


def test_a_log_that_ends_before_the_leaders_begins_is_dropped_and_begins_there():
    """KAFKA-9491."""
    follower = Follower(log_of(4, 4))
    out_of_range(follower)
    assert follower.answer_offset(20) == (-1, [])
    assert follower.answer_offset(9) == (-2, [BeginAnew(KEY, 9)])
    follower.logs[KEY].begin_anew(9)
    follower.done()
    assert follower.asked() == [(0, 9, -1, 5)]


def test_when_the_range_is_right_again_nothing_is_dropped():
    follower = Follower(log_of(4, 4))
    out_of_range(follower)
    follower.answer_offset(20)
    assert follower.answer_offset(2) == (-2, [])
    assert follower.fetched() == [(0, 2, 4, 5)]


def test_an_error_of_the_question_is_never_fatal():
    """KAFKA-7414."""
    follower = Follower(log_of(4, 4))
    out_of_range(follower)
    assert follower.answer_offset(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER) == (-1, [])
    assert follower.next() is None
    follower.now_ms += BACKOFF_MS
    assert follower.answer_offset(1) == (-1, [Truncate(KEY, 1)])


def test_while_one_asks_the_answer_for_an_older_epoch_does_not_count():
    follower = Follower(log_of(4, 4))
    out_of_range(follower)
    request = follower.next()
    follower.fetchers.stop(KEY)
    follower.follow(KEY, 6)
    found = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=1)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
    assert follower.fetcher.offsets_answered(request, response, follower.now_ms) == []


# Errors


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_while_the_views_of_two_nodes_differ_the_partition_waits_and_the_others_go_on(code):
    follower = Follower(log_of(4), log_of(4))
    (effect,) = follower.answer(data(error_code=code), data(Batch(1, 1, 5, 8), partition=1))
    assert effect.key == OTHER
    follower.done(OTHER)
    request = follower.next()
    assert request.forgotten_topics_data[0].partitions == [0]
    follower.answer(request=request)
    follower.now_ms += BACKOFF_MS
    assert [one[0] for one in follower.asked()] == [0]


def test_who_is_fenced_waits_for_the_next_leader_epoch():
    follower = Follower(log_of(4))
    follower.answer(data(error_code=ErrorCode.FENCED_LEADER_EPOCH))
    follower.next()
    follower.now_ms += 100 * BACKOFF_MS
    follower.follow(KEY, 5)
    assert follower.phase() is Phase.AWAITING_VIEW
    follower.fetchers.stop(KEY)
    follower.follow(KEY, 6)
    assert follower.phase() is Phase.FETCHING


def test_a_failed_partition_fails_alone_until_its_next_epoch():
    """KIP-461."""
    follower = Follower(log_of(4), log_of(4))
    follower.answer(data(Batch(1, 1, 5, 8)), data(Batch(1, 1, 5, 9), partition=1))
    (failed,) = follower.done(KEY, RuntimeError("a bug"))
    assert isinstance(failed, Failed)
    assert follower.done(OTHER) == []
    assert [one[0] for one in follower.fetched()] == [1]
    follower.follow(KEY, 6)
    assert follower.phase() is Phase.FETCHING


def test_a_bug_in_the_judging_of_one_partition_fails_it_alone():
    class Broken(ModelLog):
        def end_offset_for_epoch(self, epoch):
            raise RuntimeError("a bug")

    broken = Broken()
    broken.append_new(4, 0)
    follower = Follower(broken, log_of(4))
    failed, effect = follower.answer(data(diverging=(3, 0)), data(Batch(1, 1, 5, 9), partition=1))
    assert failed == Failed(KEY, "RuntimeError: a bug")
    assert effect.key == OTHER


@pytest.mark.parametrize(
    "code",
    [ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REASSIGNMENT_IN_PROGRESS],
    ids=["damaged", "no room", "being moved"],
)
def test_a_change_that_may_come_right_is_tried_again_after_a_while(code):
    follower = Follower(log_of(4))
    follower.answer(data(Batch(1, 1, 5, 8)))
    assert follower.done(KEY, KafkaError(code)) == []
    assert follower.next() is None
    follower.now_ms += BACKOFF_MS
    assert follower.fetched() == [(0, 1, 4, 5)]
    assert follower.phase() is Phase.FETCHING


# Many leaders


def test_a_partition_is_fetched_from_one_leader_only():
    follower = Follower(log_of(4))
    follower.follow(KEY, 6, leader=3)
    assert follower.fetchers.take_idle() == [(1, 0)]
    assert list(follower.fetchers.fetchers) == [(3, 0)]
    assert isinstance(follower.fetchers.fetchers[3, 0].next_request(0), FetchRequest)


def test_partitions_of_a_leader_are_spread_over_its_fetchers():
    fetchers = ReplicaFetchers(2, lambda: 102, Settings(), lambda: 3)
    for index in range(12):
        fetchers.follow(("t", index), TOPIC_ID, 1, 5, ModelLog())
    assert {len(fetcher.partitions) for fetcher in fetchers.fetchers.values()} == {4}


def test_partitions_change_their_fetchers_with_the_number_of_these():
    count = 1
    fetchers = ReplicaFetchers(2, lambda: 102, Settings(), lambda: count)
    for index in range(4):
        fetchers.follow(("t", index), TOPIC_ID, 1, 5, log_of(4))
    (first,) = fetchers.fetchers.values()
    request = first.next_request(0)
    response = FetchResponse(
        session_id=7,
        responses=[
            FetchableTopicResponse(
                topic="",
                topic_id=TOPIC_ID,
                partitions=[
                    data(Batch(1, 1, 5, 8)),
                    data(partition=1, error_code=ErrorCode.FENCED_LEADER_EPOCH),
                ],
            )
        ],
    )
    first.fetch_answered(request, response, 0)
    count = 4
    assert fetchers.resize() == []
    spread = [set(fetcher.partitions) for fetcher in fetchers.fetchers.values()]
    # The first one is busy, the second one is fenced: they stay together, with whoever belongs there.
    assert {("t", 0), ("t", 1)} <= spread[0]
    assert sum(map(len, spread)) == 4
    assert len(spread) > 2
    count = 1
    fetchers.done(("t", 0), None, 0)
    assert fetchers.resize() == []
    assert len(fetchers.take_idle()) == len(spread) - 1
    assert set(first.partitions) == {("t", index) for index in range(4)}
    for index in range(2, 4):
        assert fetchers.followed(("t", index)).phase is Phase.FETCHING


# Throttles


def throttled(*logs, partitions=frozenset({0}), limit=10):
    """A follower with a limit in bytes a second, which one batch exceeds."""
    follower = Follower(*logs)
    follower.fetchers.quota.throttle("t", partitions)
    follower.fetchers.quota.bytes_per_second_max = limit
    return follower


def partitions_of(follower, request):
    return sorted(one[0] for one in follower.fetched(request))


def test_a_throttled_partition_is_left_out_while_the_rate_is_over_its_limit():
    follower = throttled(log_of(4), log_of(4))
    follower.answer(data(Batch(1, 1, 5, 8), high_watermark=9))
    follower.done()
    request = follower.next()
    assert partitions_of(follower, request) == [1]
    (forgotten,) = request.forgotten_topics_data
    assert forgotten.partitions == [0]
    assert follower.fetcher.wake_at_ms == follower.now_ms + BACKOFF_MS
    follower.answer(request=request)
    follower.now_ms += BACKOFF_MS
    request = follower.next()
    assert partitions_of(follower, request) == [1]
    follower.answer(request=request)
    follower.now_ms += 10_000
    request = follower.next()
    assert partitions_of(follower, request) == [0, 1]
    assert follower.asked(request) == [(0, 1, 4, 5)]


def test_time_before_the_move_gives_no_allowance():
    """The limit is kept over windows, and these begin with the first throttled replica out of sync."""
    follower = Follower(log_of(4), log_of(4))
    quota = follower.fetchers.quota
    quota.bytes_per_second_max = 100
    for _ in range(10):
        follower.answer(data(high_watermark=1, partition=1))
        if follower.fetchers.followed(OTHER).is_busy:
            follower.done(OTHER)
        follower.now_ms += 500
    quota.throttle("t", {0})
    follower.answer(data(Batch(1, 1, 5, 8), Batch(2, 2, 5, 8), high_watermark=9))
    follower.done()
    # 122 bytes in no time are more than 100 in a second, but not than 100 in each of six.
    assert partitions_of(follower, follower.next()) == [1]


def test_a_partition_that_has_all_that_is_committed_is_fetched_at_any_rate():
    follower = throttled(log_of(4), log_of(4))
    follower.answer(data(Batch(1, 1, 5, 8), high_watermark=2))
    follower.done()
    assert partitions_of(follower, follower.next()) == [0, 1]


def test_of_all_throttled_partitions_nothing_is_asked_once_one_has_exceeded_the_limit():
    """Also of those that the session asks for, and that the last answer had nothing of."""
    follower = throttled(log_of(4), log_of(4), partitions=frozenset({0, 1}))
    follower.answer(data(Batch(1, 1, 5, 8), high_watermark=9))
    follower.done()
    assert follower.next() is None
    assert follower.fetcher.wake_at_ms == follower.now_ms + BACKOFF_MS
    follower.now_ms += 10_000
    assert partitions_of(follower, follower.next()) == [0, 1]


def test_a_partition_that_is_not_throttled_neither_counts_nor_waits():
    follower = throttled(log_of(4), log_of(4), partitions=frozenset({1}))
    follower.answer(data(Batch(1, 1, 5, 8), high_watermark=9))
    follower.done()
    assert partitions_of(follower, follower.next()) == [0, 1]


def test_a_throttle_does_not_delay_the_question_where_the_leaders_log_ends():
    follower = throttled(log_of(4), log_of(4), partitions=frozenset({0, 1}))
    follower.answer(
        data(Batch(1, 1, 5, 8), high_watermark=9),
        data(partition=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    )
    follower.done()
    request = follower.next()
    assert isinstance(request, ListOffsetsRequest)
    assert [one.partition_index for one in request.topics[0].partitions] == [1]
