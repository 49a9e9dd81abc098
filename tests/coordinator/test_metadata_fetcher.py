"""The metadata log of a quorum is followed: who leads, what is fetched next, what may be applied."""

import pytest

from odradek.coordinator.kraft.metadata_fetcher import (
    NO_SNAPSHOT,
    Controller,
    FetcherSettings,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    MetadataFetcher,
    SnapshotResult,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch

ONE, TWO, THREE = (Controller(-1, "c", port) for port in (1, 2, 3))
LEADER = Controller(3, "c", 33)
SETTINGS = FetcherSettings()


def new_fetcher():
    return MetadataFetcher([ONE, TWO, THREE], SETTINGS, 0)


def batch(base_offset, count=2, epoch=5):
    records = [Record(base_offset + number, 1, None, b"v") for number in range(count)]
    return build_batch(records, leader_epoch=epoch)


def elsewhere(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=5, leader=LEADER):
    endpoints = () if leader is None else (leader,)
    node_id = -1 if leader is None else leader.node_id
    return FetchResult(error, node_id, epoch, endpoints, -1, None, None, b"")


def records(data, high_watermark, epoch=5):
    return FetchResult(ErrorCode.NONE, 3, epoch, (), high_watermark, None, None, data)


def following():
    fetcher = new_fetcher()
    fetcher.fetched(elsewhere(), 0)
    return fetcher


def part(position, size_bytes, data, epoch=5, error=ErrorCode.NONE):
    return SnapshotResult(error, 3, epoch, (), size_bytes, position, data)


def test_the_first_fetch_goes_to_any_controller_which_says_who_leads():
    fetcher = new_fetcher()
    assert fetcher.next_request() == FetchLog(ONE, 0, 0, 0, -1)
    assert fetcher.fetched(elsewhere(), 0) == []
    assert fetcher.next_request() == FetchLog(LEADER, 5, 0, 0, -1)


def test_the_controllers_are_asked_in_turn_while_none_leads():
    fetcher = new_fetcher()
    asked = []
    for answer in (None, elsewhere(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, None), None):
        asked.append(fetcher.next_request().controller)
        fetcher.failed(0) if answer is None else fetcher.fetched(answer, 0)
    assert asked == [ONE, TWO, THREE]


def test_only_what_the_high_watermark_has_passed_is_applied():
    fetcher = following()
    data = batch(0) + batch(2)
    assert fetcher.fetched(records(data, 2), 0) == [(batch(0), 2, 5, False)]
    assert fetcher.next_request() == FetchLog(LEADER, 5, 4, 5, 2)
    assert fetcher.fetched(records(b"", 4), 0) == [(batch(2), 4, 5, False)]
    assert fetcher.applied_offset == 4


def test_an_empty_answer_keeps_the_epoch_of_the_last_batch():
    fetcher = following()
    fetcher.fetched(records(batch(0, epoch=4), 2), 0)
    fetcher.fetched(records(b"", 2), 0)
    assert fetcher.next_request().last_fetched_epoch == 4


def test_a_batch_that_was_never_committed_goes_when_the_logs_diverge():
    fetcher = following()
    fetcher.fetched(records(batch(0) + batch(2), 2), 0)
    diverging = records(b"", -1)._replace(diverging=(5, 2))
    assert fetcher.fetched(diverging, 0) == []
    assert fetcher.next_request().offset == 2
    assert fetcher.fetched(records(batch(2, 3, epoch=6), 5), 0)[0].next_offset == 5


def test_what_was_applied_stays_where_a_leader_names_an_earlier_offset():
    fetcher = following()
    fetcher.fetched(records(batch(0), 2), 0)
    fetcher.fetched(records(b"", -1)._replace(diverging=(5, 0)), 0)
    assert fetcher.next_request().offset == 2


def test_a_snapshot_is_fetched_in_parts_and_takes_the_place_of_the_log_before_it():
    fetcher = following()
    fetcher.fetched(records(batch(0), 0), 0)
    assert fetcher.fetched(records(b"", -1)._replace(snapshot=(90, 4)), 0) == []
    assert fetcher.next_request() == FetchSnapshot(LEADER, 5, 90, 4, 0)
    assert fetcher.snapshot_fetched(part(0, 5, b"abc"), 0) == []
    assert fetcher.next_request() == FetchSnapshot(LEADER, 5, 90, 4, 3)
    assert fetcher.snapshot_fetched(part(3, 5, b"de"), 0) == [(b"abcde", 90, 4, True)]
    assert fetcher.next_request() == FetchLog(LEADER, 5, 90, 4, 90)


@pytest.mark.parametrize("error", sorted(NO_SNAPSHOT))
def test_a_snapshot_that_is_gone_is_asked_for_anew_by_the_log(error):
    fetcher = following()
    fetcher.fetched(records(b"", -1)._replace(snapshot=(90, 4)), 0)
    assert fetcher.snapshot_fetched(part(0, 0, b"", error=error), 0) == []
    assert isinstance(fetcher.next_request(), FetchLog)


def test_a_snapshot_does_not_go_on_with_the_bytes_of_another_leader():
    fetcher = following()
    fetcher.fetched(records(b"", -1)._replace(snapshot=(90, 4)), 0)
    fetcher.snapshot_fetched(part(0, 5, b"abc"), 0)
    other = Controller(2, "c", 22)
    answer = SnapshotResult(ErrorCode.FENCED_LEADER_EPOCH, 2, 6, (other,), 0, 0, b"")
    assert fetcher.snapshot_fetched(answer, 0) == []
    assert fetcher.next_request() == FetchLog(other, 6, 0, 0, -1)


def test_a_part_of_a_snapshot_at_another_position_is_refused():
    fetcher = following()
    fetcher.fetched(records(b"", -1)._replace(snapshot=(90, 4)), 0)
    with pytest.raises(KafkaError) as refused:
        fetcher.snapshot_fetched(part(1, 5, b"abc"), 0)
    assert refused.value.code is ErrorCode.POSITION_OUT_OF_RANGE


def test_a_silent_leader_is_kept_for_the_fetch_timeout_and_then_looked_for():
    fetcher = following()
    fetcher.fetched(records(b"", 0), 100)
    fetcher.failed(2_099)
    assert fetcher.next_request().controller == LEADER
    fetcher.failed(2_100)
    assert fetcher.next_request().controller == TWO


def test_a_leader_of_an_older_epoch_is_not_followed():
    fetcher = following()
    fetcher.fetched(elsewhere(epoch=4, leader=Controller(1, "c", 11)), 0)
    assert fetcher.next_request().controller == LEADER


def test_failures_back_off_up_to_a_second():
    fetcher = new_fetcher()
    delays = []
    for _ in range(8):
        fetcher.failed(0)
        delays.append(fetcher.due_ms)
    assert delays == [20, 40, 80, 160, 320, 640, 1000, 1000]


def test_a_gap_in_the_log_is_refused():
    with pytest.raises(KafkaError) as refused:
        following().fetched(records(batch(2), 4), 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_batch_is_refused():
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        following().fetched(records(bytes(damaged), 2), 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
