"""A broker's life as its controllers see it, request by request."""

import pytest

from odradek.coordinator.kraft.broker_lifecycle import (
    BrokerLifecycle,
    BrokerState,
    Heartbeat,
    HeartbeatResult,
    LifecycleSettings,
    Registration,
)

SETTINGS = LifecycleSettings()
LIVES = HeartbeatResult(is_caught_up=True, is_fenced=False, should_shut_down=False)
FENCED = LIVES._replace(is_fenced=True)
BEHIND = FENCED._replace(is_caught_up=False)
MAY_GO = LIVES._replace(should_shut_down=True)


def registered():
    lifecycle = BrokerLifecycle(SETTINGS, 0)
    assert lifecycle.next_request(0, -1) == Registration()
    lifecycle.registered(77, 0)
    return lifecycle


def running():
    lifecycle = registered()
    lifecycle.next_request(0, 5)
    lifecycle.heartbeat_answered(FENCED, 0)
    lifecycle.set_ready(0)
    lifecycle.next_request(0, 5)
    lifecycle.heartbeat_answered(LIVES, 0)
    assert lifecycle.state is BrokerState.RUNNING
    return lifecycle


def test_a_heartbeat_follows_a_registration_at_once_and_wants_to_stay_fenced():
    assert registered().next_request(0, 41) == Heartbeat(77, 41, True, False, ())


def test_one_request_is_under_way_at_a_time():
    lifecycle = registered()
    assert lifecycle.next_request(0, 1) is not None
    assert lifecycle.next_request(10_000, 1) is None


def test_a_node_that_catches_up_asks_every_ten_milliseconds():
    lifecycle = registered()
    lifecycle.next_request(0, 1)
    lifecycle.heartbeat_answered(BEHIND, 100)
    assert lifecycle.state is BrokerState.STARTING
    assert lifecycle.due_ms == 110


def test_a_node_that_has_caught_up_recovers_and_is_unfenced_when_it_is_ready():
    lifecycle = registered()
    lifecycle.next_request(0, 1)
    lifecycle.heartbeat_answered(FENCED, 0)
    assert lifecycle.state is BrokerState.RECOVERY
    lifecycle.set_ready(3)
    assert lifecycle.next_request(3, 2) == Heartbeat(77, 2, False, False, ())
    lifecycle.heartbeat_answered(FENCED, 4)
    assert lifecycle.state is BrokerState.RECOVERY
    lifecycle.next_request(2_004, 2)
    lifecycle.heartbeat_answered(LIVES, 2_005)
    assert lifecycle.state is BrokerState.RUNNING
    assert lifecycle.due_ms == 4_005


def test_a_wish_during_a_request_makes_the_next_one_immediate():
    lifecycle = registered()
    lifecycle.next_request(0, 1)
    lifecycle.set_ready(1)
    lifecycle.heartbeat_answered(FENCED, 2)
    assert lifecycle.due_ms == 2


def delays_of(lifecycle):
    """Of ten tries that fail."""
    delays, now_ms = [], lifecycle.due_ms
    for _ in range(10):
        lifecycle.next_request(now_ms, -1)
        lifecycle.failed(now_ms)
        delays.append(lifecycle.due_ms - now_ms)
        now_ms = lifecycle.due_ms
    return delays


def test_a_failed_heartbeat_waits_twice_as_long_each_time_up_to_the_usual_pace():
    assert delays_of(registered()) == [100, 200, 400, 800, 1600, *[2000] * 5]


def test_a_failed_registration_is_tried_each_second_at_the_latest():
    assert delays_of(BrokerLifecycle(SETTINGS, 0)) == [100, 200, 400, 800, *[1000] * 6]


def test_a_wish_does_not_hasten_the_retry_of_a_failed_request():
    lifecycle = registered()
    lifecycle.next_request(0, 1)
    lifecycle.set_ready(0)
    lifecycle.failed(0)
    assert lifecycle.due_ms == 100


@pytest.mark.parametrize(("now_ms", "has_given_up"), [(59_999, False), (60_000, True)])
def test_a_first_registration_has_a_deadline(now_ms, has_given_up):
    lifecycle = BrokerLifecycle(SETTINGS, 0)
    assert lifecycle.has_given_up(now_ms) is has_given_up
    lifecycle.next_request(0, -1)
    lifecycle.registered(1, 0)
    assert not lifecycle.has_given_up(100_000)


def test_a_fenced_node_stays_in_its_state_and_asks_on():
    lifecycle = running()
    lifecycle.next_request(2_000, 9)
    lifecycle.heartbeat_answered(FENCED, 2_000)
    assert (lifecycle.state, lifecycle.is_fenced) == (BrokerState.RUNNING, True)
    assert lifecycle.next_request(4_000, 9) == Heartbeat(77, 9, False, False, ())


def test_an_offline_directory_is_named_at_once_and_in_each_heartbeat_from_then_on():
    lifecycle = running()
    lifecycle.report_offline([b"one"], 500)
    assert lifecycle.next_request(500, 9) == Heartbeat(77, 9, False, False, (b"one",))
    assert not lifecycle.reported_directories
    lifecycle.heartbeat_answered(LIVES, 501)
    assert lifecycle.reported_directories == {b"one"}
    assert lifecycle.next_request(2_501, 9) == Heartbeat(77, 9, False, False, (b"one",))


def test_cordoned_directories_are_named_at_once_and_in_each_heartbeat_and_so_is_that_there_are_none():
    lifecycle = running()
    lifecycle.report_cordoned([b"two", b"one"], 500)
    assert lifecycle.next_request(500, 9) == Heartbeat(77, 9, False, False, (), (b"one", b"two"))
    lifecycle.heartbeat_answered(LIVES, 501)
    assert lifecycle.next_request(2_501, 9) == Heartbeat(77, 9, False, False, (), (b"one", b"two"))
    lifecycle.heartbeat_answered(LIVES, 2_502)
    lifecycle.report_cordoned([], 2_600)
    assert lifecycle.next_request(2_600, 9) == Heartbeat(77, 9, False, False, (), ())


def test_a_cluster_that_does_not_know_cordoned_directories_is_told_of_none():
    lifecycle = running()
    lifecycle.report_cordoned(None, 500)
    assert lifecycle.due_ms == 2_000
    assert lifecycle.next_request(2_000, 9) == Heartbeat(77, 9, False, False, (), None)


def test_a_shutdown_is_asked_for_at_once_then_after_fifty_milliseconds_then_at_the_usual_pace():
    lifecycle = running()
    lifecycle.begin_shutdown(700)
    assert lifecycle.next_request(700, 9) == Heartbeat(77, 9, False, True, ())
    lifecycle.heartbeat_answered(LIVES, 710)
    assert lifecycle.due_ms == 760
    lifecycle.next_request(760, 9)
    lifecycle.heartbeat_answered(LIVES, 761)
    assert lifecycle.due_ms == 2_761
    lifecycle.next_request(2_761, 9)
    lifecycle.heartbeat_answered(MAY_GO, 2_762)
    assert lifecycle.state is BrokerState.SHUTTING_DOWN
    assert lifecycle.next_request(10_000, 9) is None


def test_a_node_that_never_served_goes_at_once():
    lifecycle = registered()
    lifecycle.begin_shutdown(1)
    assert lifecycle.state is BrokerState.SHUTTING_DOWN


def test_a_failure_that_no_controller_learns_of_ends_the_node_after_thirty_seconds():
    lifecycle = running()
    lifecycle.report_offline([b"one"], 500)
    assert not lifecycle.has_kept_failures(30_499)
    assert lifecycle.has_kept_failures(30_500)
    lifecycle.next_request(30_500, 9)
    lifecycle.heartbeat_answered(LIVES, 30_501)
    assert not lifecycle.has_kept_failures(99_000)


def test_a_node_that_is_not_registered_looks_again_when_its_time_is_over():
    lifecycle = BrokerLifecycle(SETTINGS, 0)
    lifecycle.next_request(0, -1)
    lifecycle.failed(59_950)
    assert lifecycle.due_ms == 60_050
    assert lifecycle.look_again_ms == 60_000
    lifecycle.next_request(60_050, -1)
    lifecycle.registered(1, 60_060)
    lifecycle.next_request(60_060, -1)
    lifecycle.failed(70_000)
    assert lifecycle.look_again_ms == lifecycle.due_ms == 70_100
