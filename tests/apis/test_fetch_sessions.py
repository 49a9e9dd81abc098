"""Incremental fetch sessions: what is remembered, what is told, and who loses a slot."""

import itertools

import pytest

from odradek.apis import fetch_sessions
from odradek.apis.fetch_sessions import (
    EVICTION_MS,
    FetchSessionCache,
    next_epoch,
    requested_partitions,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

PLENTY = 1 << 20


def fetch(*partitions, session_id=0, epoch=0, forget=(), max_wait_ms=0, max_bytes=PLENTY):
    topics = {}
    for topic, index, offset in partitions:
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=PLENTY)
        topics.setdefault(topic, []).append(asked)

    def named(cls, topic, asked):
        return cls(**{"topic_id" if isinstance(topic, bytes) else "topic": topic}, partitions=asked)

    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=[named(FetchTopic, topic, asked) for topic, asked in topics.items()],
        forgotten_topics_data=[named(ForgottenTopic, topic, list(gone)) for topic, gone in forget],
    )


def told(response):
    """(topic, partition) of what the answer names, in its order."""
    return [(topic.topic, one.partition_index) for topic in response.responses for one in topic.partitions]


@pytest.fixture
def topic(node):
    node.create("t", 3)
    return "t"


def test_a_full_fetch_opens_a_session_and_later_ones_tell_only_what_is_new(node, topic):
    opened = node.ask(fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0)), 12)
    assert opened.session_id > 0
    assert told(opened) == [("t", 0), ("t", 1), ("t", 2)]
    quiet = node.ask(fetch(session_id=opened.session_id, epoch=1), 12)
    assert (quiet.error_code, quiet.session_id, told(quiet)) == (0, opened.session_id, [])
    node.fill("t", [b"a"], index=1)
    assert told(node.ask(fetch(session_id=opened.session_id, epoch=2), 12)) == [("t", 1)]
    # Without a new fetch offset the same records come again: they are news until they are asked past.
    assert told(node.ask(fetch(session_id=opened.session_id, epoch=3), 12)) == [("t", 1)]
    assert told(node.ask(fetch(("t", 1, 1), session_id=opened.session_id, epoch=4), 12)) == []


def test_an_incremental_fetch_waits_as_a_full_one_does(node, topic):
    opened = node.ask(fetch(("t", 0, 0), ("t", 1, 0)), 12)
    answer = node.start(fetch(session_id=opened.session_id, epoch=1, max_wait_ms=500), 12)
    node.loop.turn()
    assert not answer.was_sent
    node.fill("t", [b"a"], index=1)
    node.loop.turn()
    assert told(answer.response) == [("t", 1)]
    in_vain = node.start(fetch(("t", 1, 1), session_id=opened.session_id, epoch=2, max_wait_ms=500), 12)
    node.loop.advance(500)
    assert (in_vain.response.session_id, told(in_vain.response)) == (opened.session_id, [])


def test_partitions_are_added_and_forgotten(node, topic):
    opened = node.ask(fetch(("t", 0, 0)), 12)
    added = node.ask(fetch(("t", 1, 0), session_id=opened.session_id, epoch=1), 12)
    assert told(added) == [("t", 1)]
    node.fill("t", [b"a"], index=0)
    node.fill("t", [b"a"], index=1)
    left = node.ask(fetch(session_id=opened.session_id, epoch=2, forget=[("t", [0])]), 12)
    assert told(left) == [("t", 1)]


def test_forgetting_everything_ends_the_session(node, topic):
    opened = node.ask(fetch(("t", 0, 0)), 12)
    ended = node.ask(fetch(session_id=opened.session_id, epoch=1, forget=[("t", [0])]), 12)
    assert (ended.error_code, ended.session_id) == (0, 0)
    gone = node.ask(fetch(session_id=opened.session_id, epoch=2), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_session_of_another_time_or_epoch_is_refused_without_partitions(node, topic):
    opened = node.ask(fetch(("t", 0, 0)), 12)
    wrong = node.ask(fetch(session_id=opened.session_id, epoch=5), 12)
    assert (wrong.error_code, wrong.session_id, wrong.responses) == (71, 0, [])
    unknown = node.ask(fetch(session_id=opened.session_id % (2**31 - 1) + 1, epoch=1), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # The session is as it was.
    assert node.ask(fetch(session_id=opened.session_id, epoch=1), 12).error_code == 0


def test_a_session_does_not_change_between_names_and_ids(node, topic):
    opened = node.ask(fetch(("t", 0, 0)), 12)
    switched = node.ask(fetch(session_id=opened.session_id, epoch=1), 13)
    assert switched.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("session_id", [0, -1, 4711])
def test_the_final_epoch_fetches_without_a_session_whatever_the_id(node, topic, session_id):
    node.fill("t", [b"a"])
    response = node.ask(fetch(("t", 0, 0), session_id=session_id, epoch=-1), 12)
    assert (response.error_code, response.session_id, told(response)) == (0, 0, [("t", 0)])


def test_the_final_epoch_closes_the_session(node, topic):
    opened = node.ask(fetch(("t", 0, 0)), 12)
    node.ask(fetch(session_id=opened.session_id, epoch=-1), 12)
    gone = node.ask(fetch(session_id=opened.session_id, epoch=1), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_versions_before_7_have_no_sessions(node, topic):
    assert node.ask(fetch(("t", 0, 0), epoch=-1), 6).session_id == 0


def test_an_error_is_told_each_time_and_its_end_as_well(node, topic):
    opened = node.ask(fetch(("t", 0, 0), ("u", 0, 0)), 12)
    again = node.ask(fetch(session_id=opened.session_id, epoch=1), 12)
    assert told(again) == [("u", 0)]
    node.create("u")
    assert told(node.ask(fetch(session_id=opened.session_id, epoch=2), 12)) == [("u", 0)]
    assert told(node.ask(fetch(session_id=opened.session_id, epoch=3), 12)) == []


def test_topics_by_id_are_found_when_they_come_and_lost_when_they_go(node):
    topic_id = (1).to_bytes(16, "big")
    opened = node.ask(fetch((topic_id, 0, 0)), 13)
    assert opened.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert node.create("t").topic_id == topic_id
    found = node.ask(fetch(session_id=opened.session_id, epoch=1), 13)
    assert found.responses[0].partitions[0].error_code == ErrorCode.NONE
    node.machine.delete_topics(["t"])
    lost = node.ask(fetch(session_id=opened.session_id, epoch=2), 13)
    assert lost.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.create("t")
    another = node.ask(fetch(session_id=opened.session_id, epoch=3), 13)
    assert another.responses[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert another.responses[0].topic_id == topic_id
    new = node.ask(fetch((topic_id, 0, 0)), 13)
    assert new.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_busy_partition_does_not_starve_the_others(node, topic):
    for index in range(3):
        node.fill("t", [b"x" * 900], [b"y" * 900], index=index)
    opened = node.ask(fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0), max_bytes=1000), 12)
    served = []
    for epoch in range(1, 4):
        response = node.ask(fetch(session_id=opened.session_id, epoch=epoch, max_bytes=1000), 12)
        served += [one.partition_index for one in response.responses[0].partitions if len(one.records)]
    assert served == [0, 1, 2]


# The cache


def partitions(count):
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(count)]
    topics = [FetchTopic(topic="t", partitions=asked)]
    return requested_partitions(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), False)


def admit(cache, size, now_ms, is_privileged=False):
    return cache.admit(partitions(size), uses_topic_ids=False, is_privileged=is_privileged, now_ms=now_ms)


def cache_of(slots):
    return FetchSessionCache(slots, random_session_id=itertools.count(1).__next__)


def resume(cache, session, now_ms):
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_id=session.id, session_epoch=session.epoch, topics=[]
    )
    return cache.resume(request, False, now_ms)


def test_a_full_cache_admits_nobody_until_a_session_is_stale():
    cache = cache_of(1)
    first = admit(cache, 1, 0)
    assert admit(cache, 100, EVICTION_MS) is None
    assert admit(cache, 1, EVICTION_MS + 1) is not None
    with pytest.raises(Exception, match="FETCH_SESSION_ID_NOT_FOUND"):
        resume(cache, first, EVICTION_MS + 1)
    assert (len(cache), cache.evicted_count) == (1, 1)


def test_a_session_that_had_its_slot_for_long_gives_way_to_a_bigger_one_only():
    cache = cache_of(1)
    session = admit(cache, 10, 0)
    later = EVICTION_MS + 1
    resume(cache, session, later)
    assert admit(cache, 10, later) is None
    assert admit(cache, 9, later) is None
    assert admit(cache, 11, later) is not None


def test_of_the_old_sessions_the_smallest_goes():
    cache = cache_of(2)
    large, small = admit(cache, 10, 0), admit(cache, 5, 0)
    later = EVICTION_MS + 1
    for session in (large, small):
        resume(cache, session, later)
    assert admit(cache, 20, later) is not None
    assert resume(cache, large, later) is large


def test_a_replica_takes_any_consumers_slot_and_not_the_other_way_round():
    cache = cache_of(1)
    admit(cache, 10, 0)
    replica = admit(cache, 1, 1, is_privileged=True)
    assert replica is not None
    assert admit(cache, 100, 2) is None


def test_without_slots_there_are_no_sessions():
    assert admit(cache_of(0), 1, 0) is None


def test_a_session_is_bounded(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_OF_SMALL_SESSION", 2)
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS_PER_SESSION", 50)
    cache = cache_of(2)
    assert admit(cache, 51, 0) is None
    session = admit(cache, 50, 0)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session.id,
        session_epoch=1,
        topics=[
            FetchTopic(
                topic="u",
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
            )
        ],
    )
    with pytest.raises(Exception, match="FETCH_SESSION_ID_NOT_FOUND"):
        cache.resume(request, False, 0)
    assert len(cache) == 0


def test_epochs_wrap_to_one():
    assert next_epoch(0) == 1
    assert next_epoch(2**31 - 1) == 1


def test_large_sessions_together_have_a_limit(monkeypatch):
    """A thousand slots of a hundred thousand partitions each would be more memory than there is."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_OF_SMALL_SESSION", 2)
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS_OF_LARGE_SESSIONS", 8)
    numbers = itertools.count(1)
    cache = FetchSessionCache(100, lambda: next(numbers))

    def admit(count):
        request = fetch(*(("t", index, 0) for index in range(count)))
        return cache.admit(
            requested_partitions(request, False), uses_topic_ids=False, is_privileged=False, now_ms=0
        )

    assert admit(4)
    assert admit(4)
    assert admit(3) is None
    small = admit(2)
    assert small
    grown = fetch(("t", 2, 0), ("t", 3, 0), session_id=small.id, epoch=1)
    with pytest.raises(KafkaError) as refused:
        cache.resume(grown, False, 0)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert admit(2)
