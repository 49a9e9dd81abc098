"""Changes of ISRs on their way to the controller."""

from odradek.coordinator.replication.alter_partition import RETRY_MS, Altered, AlterPartitionQueue
from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr
from odradek.wire.errors import ErrorCode


def change(index, partition_epoch=1):
    return AlterIsr(("t", index), 5, partition_epoch, ((1, 101), (2, 102)))


def queue_of(*changes):
    queue = AlterPartitionQueue()
    for one in changes:
        queue.submit(one)
    return queue


def test_all_changes_go_in_one_request_and_one_request_is_under_way():
    queue = queue_of(change(0), change(1))
    request = queue.next_request(0)
    assert request == (change(0), change(1))
    queue.submit(change(2))
    assert queue.next_request(0) is None
    answers = {("t", 0): AlteredIsr(5, 2, (1, 2)), ("t", 1): ErrorCode.INVALID_UPDATE_VERSION}
    assert queue.answered(request, answers) == [
        Altered(change(0), answers["t", 0]),
        Altered(change(1), answers["t", 1]),
    ]
    assert queue.next_request(0) == (change(2),)


def test_a_request_that_failed_is_sent_again_for_ever():
    queue = queue_of(change(0))
    now_ms = 0
    for _ in range(100):
        request = queue.next_request(now_ms)
        assert request == (change(0),)
        queue.failed(request, now_ms)
        assert queue.wake_at_ms == now_ms + RETRY_MS
        assert queue.next_request(now_ms) is None
        now_ms += RETRY_MS


def test_a_partition_that_the_answer_leaves_out_is_asked_for_again():
    queue = queue_of(change(0), change(1))
    queue.answered(queue.next_request(0), {("t", 1): AlteredIsr(5, 2, (1, 2))})
    assert queue.next_request(0) == (change(0),)


def test_a_later_change_takes_the_place_of_one_that_is_under_way():
    first, second = change(0), change(0, partition_epoch=2)
    queue = queue_of(first)
    request = queue.next_request(0)
    queue.submit(second)
    (altered,) = queue.answered(request, {("t", 0): ErrorCode.INVALID_UPDATE_VERSION})
    assert altered.change is first
    assert queue.next_request(0) == (second,)


def test_an_answer_to_a_request_that_was_given_up_is_dropped():
    queue = queue_of(change(0))
    old = queue.next_request(0)
    queue.failed(old, 0)
    queue.submit(change(1))
    queue.next_request(RETRY_MS)
    assert queue.answered(old, {("t", 0): AlteredIsr(5, 2, (1, 2))}) == []
    queue.failed(old, RETRY_MS)
    assert queue.wake_at_ms is None


def test_who_does_not_lead_any_more_asks_for_nothing():
    queue = queue_of(change(0))
    queue.forget(("t", 0))
    assert queue.next_request(0) is None
