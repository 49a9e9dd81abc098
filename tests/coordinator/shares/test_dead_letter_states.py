"""A share partition whose group has a dead letter queue: from given up to archived."""

from dataclasses import replace

from odradek.coordinator.shares.dead_letters.letters import Cause, DeadLetter
from odradek.coordinator.shares.partitions.share_partition import AcknowledgeType, ShareLimits
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.wire.errors import ErrorCode
from tests.coordinator.shares.share_state_requests import state_batch
from tests.coordinator.shares.test_window_of_records import Story

LIMITS = ShareLimits(lock_ms=30_000, deliveries_max=2, locks_max=2_000, has_dead_letters=True)
GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
AVAILABLE, ARCHIVING, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ARCHIVING,
    DeliveryState.ARCHIVED,
)
REJECTED, TOO_OFTEN = Cause.REJECTED, Cause.DELIVERED_TOO_OFTEN


def new_story(*batches):
    return Story(*batches, limits=LIMITS)


def test_a_rejected_record_is_archived_in_two_steps():
    story = new_story()
    story.acquire()
    change = story.acknowledge(0, 9, REJECT, stored=False)
    assert change.batches == [state_batch(0, 9, ARCHIVING, 1)]
    assert change.dead_letters == [DeadLetter(0, 9, 1, REJECTED)]
    story.partition.stored(change)
    assert (story.partition.start, story.partition.done_count) == (0, 0)
    assert story.acquire() == [(10, 19, 1)], "nobody gets what is being archived"
    assert story.refused(0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    change = story.partition.archive(change.dead_letters[0])
    assert (change.batches, change.dead_letters) == ([state_batch(0, 9, ARCHIVED, 1)], [])
    assert (story.partition.start, story.partition.done_count) == (0, 10)
    story.partition.stored(change)
    assert story.partition.start == 10


def test_only_what_the_group_gives_up_gets_a_dead_letter():
    story = new_story()
    story.acquire()
    change = story.acknowledge(0, 9, ACCEPT, GAP, REJECT, REJECT, RELEASE, *[ACCEPT] * 5)
    assert change.dead_letters == [DeadLetter(2, 3, 1, REJECTED)]
    assert story.acquire() == [(4, 4, 2), (10, 18, 1)] or story.partition.fresh >= 10
    change = story.acknowledge(4, 4, RELEASE)
    assert change.batches == [state_batch(4, 4, ARCHIVING, 2)]
    assert change.dead_letters == [DeadLetter(4, 4, 2, TOO_OFTEN)]


def test_a_lock_that_runs_out_at_the_limit_and_a_member_that_leaves_cause_dead_letters():
    for leaves in (False, True):
        story = new_story()
        story.acquire()
        story.acknowledge(0, 9, RELEASE)
        story.acquire()
        if leaves:
            change = story.partition.release("m", LIMITS)
            story.partition.stored(change)
        else:
            story.now_ms = 30_000
            change = story.partition.expire(LIMITS, story.now_ms)
        assert change.batches == [state_batch(0, 9, ARCHIVING, 2)]
        assert change.dead_letters == [DeadLetter(0, 9, 2, TOO_OFTEN)]
        assert story.partition.start == 0


def test_a_lock_that_ran_out_while_a_change_was_not_stored_is_lost_by_expiry():
    """A loss that is not stored would cause a dead letter that no later leader knows of."""
    story = new_story()
    story.acquire()
    story.acknowledge(0, 9, RELEASE)
    story.acquire()
    change = story.acknowledge(0, 9, ACCEPT, stored=False)
    story.now_ms = 30_000
    assert story.partition.expire(LIMITS, story.now_ms).batches == []
    story.partition.undo(change, LIMITS, story.now_ms)
    assert story.partition.next_deadline_ms == 30_000
    change = story.partition.expire(LIMITS, story.now_ms)
    assert change.dead_letters == [DeadLetter(0, 9, 2, TOO_OFTEN)]


def test_a_new_leader_goes_on_with_what_it_finds():
    """The number of deliveries tells the cause."""
    story = new_story(
        state_batch(0, 4, ARCHIVING, 1), state_batch(5, 9, AVAILABLE, 1), state_batch(10, 10, ARCHIVING, 2)
    )
    assert story.partition.start == 0
    rejected, too_often = story.partition.unfinished(LIMITS)
    assert (rejected, too_often) == (DeadLetter(0, 4, 1, REJECTED), DeadLetter(10, 10, 2, TOO_OFTEN))
    assert story.acquire(records_max=5) == [(5, 9, 2)]
    story.partition.stored(story.partition.archive(rejected))
    assert story.partition.start == 5


def test_a_log_that_loses_records_leaves_the_letters_of_those_that_are_being_archived():
    story = new_story()
    story.acquire()
    (letter,) = story.acknowledge(0, 9, REJECT).dead_letters
    story.partition.move_start(5)
    assert story.partition.start == 5
    change = story.partition.archive(letter)
    story.partition.stored(change)
    assert story.partition.start == 10
    assert story.partition.archive(letter).batches == []


def test_a_queue_that_the_group_gets_later_does_not_change_what_is_archived():
    story = Story(limits=replace(LIMITS, has_dead_letters=False))
    story.acquire()
    assert story.acknowledge(0, 9, REJECT).batches == [state_batch(0, 9, ARCHIVED, 1)]
    assert story.partition.unfinished(LIMITS) == []
