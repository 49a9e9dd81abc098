"""A share partition: who has which records, in small stories."""

import pytest

from odradek.coordinator.shares.partitions.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Demand,
    LogBatch,
    ShareLimits,
    SharePartition,
)
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from tests.coordinator.shares.share_state_requests import state_batch

LIMITS = ShareLimits(lock_ms=30_000, deliveries_max=5, locks_max=2_000)
GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
AVAILABLE, ACKNOWLEDGED, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ACKNOWLEDGED,
    DeliveryState.ARCHIVED,
)


class Story:
    """A share partition with a log of batches of ten records, and a clock."""

    def __init__(self, *batches, start=0, limits=LIMITS, log_end=1_000):
        self.partition = SharePartition(ShareState(state_batches=batches), start)
        self.limits, self.now_ms = limits, 0
        self.log = [LogBatch(base, base + 9) for base in range(0, log_end, 10)]

    def acquire(self, member="m", records_max=10, batch_size=500, is_strict=False, aborted=()):
        read_from = self.partition.next_offset()
        batches = [one for one in self.log if one.last_offset >= read_from]
        demand = Demand(member, records_max, batch_size, is_strict)
        found = self.partition.acquire(demand, read_from, batches, aborted, self.limits, self.now_ms)
        return [tuple(one) for one in found]

    def acknowledge(self, first, last, *types, member="m", stored=True):
        one = Acknowledgement(first, last, types)
        change = self.partition.acknowledge(member, [one], self.limits, self.now_ms)
        if stored:
            self.partition.stored(change)
        return change

    def refused(self, *arguments, **options):
        with pytest.raises(KafkaError) as refused:
            self.acknowledge(*arguments, **options)
        return refused.value.code


def test_records_that_were_accepted_move_the_start():
    story = Story()
    assert story.acquire() == [(0, 9, 1)]
    assert story.acquire() == [(10, 19, 1)]
    change = story.acknowledge(10, 19, ACCEPT)
    assert change.batches == [state_batch(10, 19, ACKNOWLEDGED, 1)]
    assert (story.partition.start, story.partition.fresh) == (0, 20)
    assert story.partition.done_count == 10
    story.acknowledge(0, 9, REJECT)
    assert (story.partition.start, story.partition.fresh, story.partition.in_flight) == (20, 20, 0)


def test_a_limit_of_records_takes_whole_batches_of_the_log():
    story = Story()
    assert story.acquire(records_max=25) == [(0, 29, 1)]
    assert story.acquire(records_max=25, batch_size=10) == [(30, 39, 1), (40, 49, 1), (50, 59, 1)]
    assert story.acquire(records_max=1) == [(60, 69, 1)]


def test_a_strict_limit_takes_single_records():
    story = Story()
    assert story.acquire(records_max=4, is_strict=True) == [(0, 3, 1)]
    assert story.partition.next_offset() == 4
    assert story.acquire(records_max=3, is_strict=True) == [(4, 6, 1)]
    assert story.acquire(records_max=5, is_strict=True) == [(7, 9, 1), (10, 11, 1)]
    assert story.acquire(records_max=50) == [(12, 19, 1), (20, 69, 1)]


def test_what_was_released_is_delivered_again_with_a_higher_count():
    story = Story()
    story.acquire(records_max=20)
    story.acknowledge(5, 7, RELEASE)
    assert story.acquire("n", records_max=3) == [(5, 7, 2)]
    assert story.refused(5, 7, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    story.acknowledge(5, 7, ACCEPT, member="n")
    assert story.acquire("n") == [(20, 29, 1)]


def test_single_records_of_a_batch_have_their_own_types():
    story = Story()
    story.acquire()
    change = story.acknowledge(0, 9, *[ACCEPT] * 3, RELEASE, *[GAP] * 6)
    assert change.batches == [
        state_batch(0, 2, ACKNOWLEDGED, 1),
        state_batch(3, 3, AVAILABLE, 1),
        state_batch(4, 9, ARCHIVED, 1),
    ]
    assert story.partition.start == 3
    assert story.acquire() == [(3, 3, 2), (10, 19, 1)]


def test_a_lock_runs_out_and_can_be_renewed():
    story = Story()
    story.acquire()
    story.acquire()
    assert story.partition.next_deadline_ms == 30_000
    story.now_ms = 20_000
    assert story.acknowledge(10, 19, RENEW).batches == []
    story.now_ms = 30_000
    assert story.partition.expire(LIMITS, story.now_ms).batches == [state_batch(0, 9, AVAILABLE, 1)]
    assert story.refused(0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert story.acquire("n") == [(0, 9, 2)]
    assert story.partition.next_deadline_ms == 50_000
    story.acknowledge(10, 19, ACCEPT)


def test_a_group_may_forbid_to_renew():
    story = Story(limits=ShareLimits(lock_ms=1, deliveries_max=5, locks_max=100, may_renew=False))
    story.acquire()
    assert story.refused(0, 9, RENEW) == ErrorCode.INVALID_RECORD_STATE


def test_after_its_last_delivery_a_record_is_archived():
    story = Story(limits=ShareLimits(lock_ms=1, deliveries_max=2, locks_max=100))
    story.acquire()
    story.acknowledge(0, 9, RELEASE)
    assert story.acquire() == [(0, 9, 2)]
    assert story.acknowledge(0, 9, RELEASE).batches == [state_batch(0, 9, ARCHIVED, 2)]
    assert story.partition.start == 10


def test_records_that_nobody_can_process_are_isolated_step_by_step():
    """From half of the deliveries on, half as much comes together; in the last one a record is alone."""
    story = Story()
    found = []
    while story.partition.start == 0:
        found += story.acquire()
        story.now_ms += 30_000
        story.partition.expire(story.limits, story.now_ms)
    assert found == [(0, 9, 1), (0, 9, 2), (0, 9, 3), (0, 4, 4), (0, 0, 5)]
    assert story.partition.start == 1


def test_while_a_change_is_being_stored_nobody_has_the_records():
    story = Story()
    story.acquire()
    change = story.acknowledge(0, 9, RELEASE, stored=False)
    assert story.acquire("n") == [(10, 19, 1)]
    assert story.refused(0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    story.partition.undo(change, LIMITS, story.now_ms)
    story.acknowledge(0, 9, ACCEPT)
    assert story.partition.start == 10


def test_a_change_that_cannot_be_stored_frees_what_the_lock_has_lost():
    story = Story()
    story.acquire()
    change = story.acknowledge(0, 9, ACCEPT, stored=False)
    story.partition.undo(change, LIMITS, 30_000)
    assert story.acquire("n") == [(0, 9, 2)]


def test_one_wrong_acknowledgement_undoes_those_before_it():
    story = Story()
    story.acquire()
    with pytest.raises(KafkaError):
        story.partition.acknowledge(
            "m", [Acknowledgement(0, 4, [ACCEPT]), Acknowledgement(15, 16, [ACCEPT])], LIMITS, 0
        )
    assert story.partition.done_count == 0
    story.acknowledge(0, 9, ACCEPT)


@pytest.mark.parametrize(
    ("first", "last", "code"),
    [
        (10, 19, ErrorCode.INVALID_REQUEST),
        (5, 12, ErrorCode.INVALID_REQUEST),
    ],
)
def test_offsets_behind_the_window_are_refused(first, last, code):
    story = Story()
    story.acquire()
    assert story.refused(first, last, ACCEPT) == code


def test_offsets_that_are_done_are_accepted_again_and_ones_before_the_window_are_not():
    story = Story()
    story.acquire(records_max=20)
    story.acknowledge(0, 9, ACCEPT)
    assert story.acknowledge(0, 9, ACCEPT).batches == []
    empty = Story()
    assert empty.refused(0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE


def test_a_member_gives_everything_back():
    story = Story()
    story.acquire(records_max=30)
    story.acquire("n")
    story.acknowledge(10, 12, ACCEPT)
    change = story.partition.release("m", LIMITS)
    assert change.batches == [state_batch(0, 9, AVAILABLE, 1), state_batch(13, 29, AVAILABLE, 1)]
    story.partition.stored(change)
    assert story.acquire("n", records_max=100, batch_size=10)[:2] == [(0, 9, 2), (13, 29, 2)]


def test_all_locks_are_taken():
    story = Story(limits=ShareLimits(lock_ms=1, deliveries_max=5, locks_max=100))
    assert story.acquire(records_max=500) == [(0, 99, 1)]
    assert not story.partition.can_acquire(story.limits)
    assert story.acquire() == []
    story.acknowledge(50, 59, RELEASE)
    assert story.partition.can_acquire(story.limits)
    assert story.acquire(records_max=500) == [(50, 59, 2)]
    assert story.acquire(records_max=500) == []


def test_the_log_loses_records():
    story = Story()
    story.acquire(records_max=30)
    story.acknowledge(0, 9, RELEASE)
    story.partition.move_start(15)
    assert (story.partition.start, story.partition.fresh) == (15, 30)
    assert story.acknowledge(10, 19, ACCEPT).batches == [state_batch(15, 19, ACKNOWLEDGED, 1)]
    assert story.partition.start == 15, "somebody has the records from 10 on until the lock runs out"
    assert story.partition.expire(LIMITS, 30_000).batches == [
        state_batch(10, 14, ARCHIVED, 1),
        state_batch(20, 29, AVAILABLE, 1),
    ]
    assert story.partition.start == 20
    story.partition.move_start(500)
    assert (story.partition.start, story.partition.fresh, story.partition.in_flight) == (500, 500, 0)
    assert story.acquire() == [(500, 509, 1)]


def test_compaction_has_removed_what_was_to_be_delivered_again():
    story = Story()
    story.acquire(records_max=30, batch_size=10)
    story.acknowledge(0, 19, RELEASE)
    story.log = story.log[2:]
    assert story.acquire() == [(30, 39, 1)]
    assert story.partition.start == 20


def test_aborted_records_are_done():
    story = Story()
    aborted = [LogBatch(0, 9), LogBatch(20, 29)]
    assert story.acquire(records_max=40, aborted=aborted) == [(10, 19, 1), (30, 39, 1)]
    assert story.partition.start == 10
    story.acknowledge(10, 19, ACCEPT)
    assert story.partition.start == 30
    assert story.acquire(aborted=[LogBatch(40, 49)]) == []
    story.acknowledge(30, 39, ACCEPT)
    assert (story.partition.start, story.partition.in_flight) == (50, 0)


def test_the_next_leader_goes_on_with_what_was_stored():
    story = Story(state_batch(10, 19, ACKNOWLEDGED, 1), state_batch(20, 24, AVAILABLE, 2), start=5)
    assert (story.partition.start, story.partition.fresh, story.partition.done_count) == (5, 25, 10)
    assert story.acquire(records_max=3, batch_size=3) == [(5, 9, 1)]
    assert story.acquire(records_max=100) == [(20, 24, 3), (25, 119, 1)]
    story.acknowledge(5, 9, ACCEPT)
    assert story.partition.start == 20


def test_a_hole_without_records_is_passed_over():
    story = Story(state_batch(40, 49, ACKNOWLEDGED, 1), start=0)
    story.log = story.log[3:]
    assert story.acquire() == [(30, 39, 1)]
    story.acknowledge(30, 39, ACCEPT)
    assert story.partition.start == 50


def test_a_state_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match="5 to 9 behind 8"):
        Story(state_batch(0, 7, AVAILABLE, 1), state_batch(5, 9, AVAILABLE, 1))
