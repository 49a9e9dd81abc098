"""Fetch and ListOffsets by isolation level: what readers learn of transactions, open or ended."""

import pytest

from odradek.storage.log.slices import Slice
from odradek.wire.errors import ErrorCode
from odradek.wire.legacy_records import iter_messages
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.records import iter_records, iter_whole_batches
from tests.apis.transactional import end, write

UNCOMMITTED, COMMITTED = 0, 1
PLENTY = 1 << 20
FETCHES = range(4, 19)
FIRST_FETCH_WITH_IDS = 13
A, B, C = 7, 8, 9
"""Producer ids."""


@pytest.fixture
def topic(node):
    return node.create("t", 2)


@pytest.fixture
def story(node, topic):
    """0 plain, 1-2 aborted (marker 4), 3 committed (marker 5), 6 open, 7 plain, 8 aborted (marker 9)."""
    node.fill("t", [b"plain 0"])
    write(node, A, b"aborted 1", b"aborted 2")
    write(node, B, b"committed 3")
    end(node, A, commit=False)
    end(node, B, commit=True)
    write(node, C, b"open 6", timestamp=node.loop.now_ms + 6)
    node.fill("t", [b"plain 7"])
    write(node, A, b"aborted 8", sequence=2)
    end(node, A, commit=False)
    return node.partition("t")


def fetch(node, version, offset=0, *, isolation=COMMITTED, index=0, max_bytes=PLENTY, **fields):
    asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic_id = node.machine.view.topics["t"].topic_id
    name = {"topic_id": topic_id} if version >= FIRST_FETCH_WITH_IDS else {"topic": "t"}
    fields = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": isolation, **fields}
    return FetchRequest(topics=[FetchTopic(**name, partitions=[asked])], **fields)


def only(response):
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def values(answer):
    """Of the records that are no markers."""
    records = memoryview(answer.records)
    return [
        bytes(record.value)
        for position, header in iter_whole_batches(records)
        if not header.is_control
        for record in iter_records(records[position : position + header.size_bytes])
    ]


def aborted(answer):
    if answer.aborted_transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in answer.aborted_transactions]


# Fetch


@pytest.mark.parametrize("version", FETCHES)
def test_committed_readers_get_what_is_stable_and_learn_what_to_leave_out(node, story, version):
    answer = only(node.ask(fetch(node, version), version))
    assert values(answer) == [b"plain 0", b"aborted 1", b"aborted 2", b"committed 3"]
    assert (answer.high_watermark, answer.last_stable_offset) == (10, 6)
    # As Kafka, one more than is needed: to be exact would mean to look into the log.
    assert aborted(answer) == [(A, 1), (A, 8)]


@pytest.mark.parametrize("version", FETCHES)
def test_everybody_else_gets_everything_and_no_list(node, story, version):
    answer = only(node.ask(fetch(node, version, isolation=UNCOMMITTED), version))
    assert values(answer)[4:] == [b"open 6", b"plain 7", b"aborted 8"]
    assert (answer.high_watermark, answer.last_stable_offset) == (10, 6)
    assert aborted(answer) is None


def test_the_list_names_what_reaches_into_the_answer(node, story):
    end(node, C, commit=False)
    lists = [aborted(only(node.ask(fetch(node, 12, offset), 12))) for offset in range(12)]
    # In the order of their markers, which stand at 4, 9 and 10.
    every = [(A, 1), (A, 8), (C, 6)]
    assert lists == [every] * 5 + [every[1:]] * 5 + [every[2:], []]


@pytest.mark.parametrize("offset", [6, 7, 10])
def test_behind_the_last_stable_offset_there_is_nothing_and_no_error(node, story, offset):
    answer = only(node.ask(fetch(node, 12, offset), 12))
    assert (answer.error_code, bytes(answer.records), aborted(answer)) == (0, b"", [])
    assert (answer.high_watermark, answer.last_stable_offset) == (10, 6)


@pytest.mark.parametrize(("isolation", "offset"), [(COMMITTED, 6), (UNCOMMITTED, 10)])
def test_who_stands_where_reading_ends_waits(node, story, isolation, offset):
    answer = node.start(fetch(node, 12, offset, isolation=isolation, max_wait_ms=500), 12)
    assert not answer.was_sent
    node.loop.advance(500)
    assert answer.was_sent


@pytest.mark.parametrize("offset", [7, 9, 10])
def test_who_asks_behind_the_last_stable_offset_is_told_at_once_and_nobody_beside_it_waits(
    node, story, offset
):
    request = fetch(node, 12, offset, max_wait_ms=500)
    request.topics[0].partitions.append(
        FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=PLENTY)
    )
    answer = node.start(request, 12)
    assert answer.was_sent
    assert [values(one) for one in answer.response.responses[0].partitions] == [[], []]
    assert node.loop.pending_timers == 0


def test_within_the_batch_at_the_last_stable_offset_one_waits(node, story):
    """As in Kafka, which looks at where that batch begins."""
    end(node, C, commit=True)
    write(node, C, b"open 11", b"open 12", sequence=1)
    node.fill("t", [b"plain 13"])
    sent = [node.start(fetch(node, 12, offset, max_wait_ms=500), 12).was_sent for offset in range(11, 15)]
    assert sent == [False, False, True, True]


def test_a_wait_ends_with_the_marker_and_not_with_records_that_cannot_be_read(node, story):
    answer = node.start(fetch(node, 12, 6, max_wait_ms=500), 12)
    node.fill("t", [b"plain 10"])
    node.loop.turn()
    assert not answer.was_sent
    end(node, C, commit=True)
    node.loop.turn()
    assert values(only(answer.response)) == [b"open 6", b"plain 7", b"aborted 8", b"plain 10"]
    assert aborted(only(answer.response)) == [(A, 8)]
    assert node.loop.pending_timers == 0


def test_a_marker_that_leaves_an_earlier_transaction_open_ends_no_wait(node, story):
    write(node, B, b"committed 10", sequence=1)
    answer = node.start(fetch(node, 12, 6, max_wait_ms=500), 12)
    end(node, B, commit=True)
    node.loop.turn()
    assert not answer.was_sent
    node.loop.advance(500)
    assert values(only(answer.response)) == []
    assert only(answer.response).high_watermark == 12


def test_only_bytes_that_may_be_read_count_for_the_minimum(node, story):
    size = len(story.read(0, max_bytes=PLENTY, isolation=COMMITTED).records)
    assert node.start(fetch(node, 12, min_bytes=size, max_wait_ms=500), 12).was_sent
    answer = node.start(fetch(node, 12, min_bytes=size + 1, max_wait_ms=500), 12)
    node.fill("t", [b"plain 10"])
    node.loop.turn()
    assert not answer.was_sent
    end(node, C, commit=False)
    node.loop.turn()
    assert answer.was_sent


def test_a_wait_over_two_partitions_ends_with_the_marker_of_either(node, story):
    write(node, B, b"open", index=1)
    request = fetch(node, 12, 6, max_wait_ms=500)
    request.topics[0].partitions.append(
        FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=PLENTY)
    )
    answer = node.start(request, 12)
    end(node, B, commit=False, index=1)
    node.loop.turn()
    first, second = answer.response.responses[0].partitions
    assert (values(first), aborted(first)) == ([], [])
    assert (values(second), aborted(second)) == ([b"open"], [(B, 0)])


def test_records_leave_as_slices_of_the_log_at_either_level(node, story):
    end(node, C, commit=True)
    sizes = []
    for isolation in (UNCOMMITTED, COMMITTED):
        records = only(node.start(fetch(node, 12, isolation=isolation), 12).result).records
        assert isinstance(records, Slice)
        sizes.append(len(records))
    assert sizes == [story.size_bytes] * 2


@pytest.mark.parametrize("version", range(4))
def test_old_versions_get_every_record_and_no_marker(node, story, version):
    answer = only(node.ask(fetch(node, version, isolation=UNCOMMITTED), version))
    told = [message for _, message in whole_messages(bytes(answer.records))]
    assert [bytes(message.value) for message in told] == [
        b"plain 0", b"aborted 1", b"aborted 2", b"committed 3", b"open 6", b"plain 7", b"aborted 8",
    ]  # fmt: skip
    assert [message.offset for message in told] == [0, 1, 2, 3, 6, 7, 8]


def whole_messages(records):
    position = 0
    while len(records) - position >= 12:
        size = 12 + int.from_bytes(records[position + 8 : position + 12], "big")
        if position + size > len(records):
            return
        yield position, next(iter_messages(records[position : position + size]))
        position += size


@pytest.mark.parametrize("version", [7, 12, 18])
def test_a_session_hears_of_a_partition_when_its_high_watermark_moves_or_records_come(node, story, version):
    """The last stable offset alone is no news, as in Kafka: its consumers learn of it with the records."""
    opened = node.ask(fetch(node, version, 6, session_epoch=0, session_id=0), version)
    session = {"session_id": opened.session_id, "min_bytes": 0}

    def ask_again(epoch):
        request = fetch(node, version, session_epoch=epoch, **session)
        request.topics = []
        return node.ask(request, version)

    assert ask_again(1).responses == []
    node.fill("t", [b"plain 10"])
    told = only(ask_again(2))
    assert (values(told), told.high_watermark, told.last_stable_offset) == ([], 11, 6)
    assert ask_again(3).responses == []
    end(node, C, commit=False)
    told = only(ask_again(4))
    assert (told.last_stable_offset, aborted(told)) == (12, [(A, 8), (C, 6)])
    assert len(values(told)) == 4


@pytest.mark.parametrize("version", [4, 12, 18])
@pytest.mark.parametrize("isolation", [-1, 2])
def test_a_level_that_is_none_is_refused_for_the_whole_request(node, topic, version, isolation):
    response = node.ask(fetch(node, version, isolation=isolation), version)
    if version >= 7:
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    if version < FIRST_FETCH_WITH_IDS:
        assert only(response).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    else:
        assert response.responses == []


# ListOffsets


def list_offset(node, version, timestamp, isolation):
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=1)
    topics = [ListOffsetsTopic(name="t", partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    (topic,) = node.ask(request, version).topics
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize("version", range(12))
def test_the_end_of_a_log_is_that_of_the_level(node, story, version):
    told = list_offset(node, version, -1, UNCOMMITTED)
    assert (told.old_style_offsets if version == 0 else [told.offset]) == [10]
    if version >= 2:
        assert list_offset(node, version, -1, COMMITTED).offset == 6
        assert list_offset(node, version, -2, COMMITTED).offset == 0


@pytest.mark.parametrize("version", range(2, 12))
def test_a_time_whose_record_is_not_stable_is_not_found(node, story, version):
    later = node.loop.now_ms + 1
    found = list_offset(node, version, later, UNCOMMITTED)
    assert (found.offset, found.timestamp) == (6, later + 5)
    hidden = list_offset(node, version, later, COMMITTED)
    assert (hidden.offset, hidden.timestamp, hidden.error_code) == (-1, -1, 0)
    end(node, C, commit=True)
    assert list_offset(node, version, later, COMMITTED).offset == 6
    assert list_offset(node, version, 0, COMMITTED).offset == 0


@pytest.mark.parametrize("version", range(7, 12))
def test_the_newest_timestamp_is_not_told_before_it_is_stable(node, story, version):
    assert list_offset(node, version, -3, UNCOMMITTED).offset == 6
    assert list_offset(node, version, -3, COMMITTED).offset == -1
    end(node, C, commit=True)
    assert list_offset(node, version, -3, COMMITTED).offset == 6


@pytest.mark.parametrize("version", [2, 5, 11])
@pytest.mark.parametrize("isolation", [-1, 2])
def test_offsets_of_a_level_that_is_none_are_refused_each(node, story, version, isolation):
    for timestamp in (-1, 0):
        told = list_offset(node, version, timestamp, isolation)
        assert (told.error_code, told.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
