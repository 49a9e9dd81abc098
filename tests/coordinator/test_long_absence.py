"""The controllers answer nothing for an hour: no machine of a node has a deadline for that."""

from odradek.coordinator.kraft.broker_lifecycle import (
    BrokerLifecycle,
    BrokerState,
    HeartbeatResult,
    LifecycleSettings,
)
from odradek.coordinator.kraft.metadata_fetcher import Controller, FetcherSettings, MetadataFetcher
from odradek.coordinator.replication.alter_partition import RETRY_MS, AlterPartitionQueue
from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr

HOUR_MS = 3_600_000
LIVES = HeartbeatResult(is_caught_up=True, is_fenced=False, should_shut_down=False)


def test_heartbeats_are_tried_for_an_hour_at_their_pace_and_the_node_stays_what_it_is():
    settings = LifecycleSettings()
    lifecycle = BrokerLifecycle(settings, 0)
    lifecycle.next_request(0, -1)
    lifecycle.registered(77, 0)
    lifecycle.next_request(0, 5)
    lifecycle.heartbeat_answered(LIVES, 0)
    lifecycle.set_ready(0)
    lifecycle.next_request(0, 5)
    lifecycle.heartbeat_answered(LIVES, 0)
    now_ms = lifecycle.due_ms
    while now_ms < HOUR_MS:
        assert lifecycle.next_request(now_ms, 5) is not None
        lifecycle.failed(now_ms)
        assert 0 < lifecycle.due_ms - now_ms <= settings.heartbeat_interval_ms < settings.session_timeout_ms
        now_ms = lifecycle.due_ms
        assert not lifecycle.has_given_up(now_ms)
        assert not lifecycle.has_kept_failures(now_ms)
    assert (lifecycle.state, lifecycle.broker_epoch, lifecycle.is_fenced) == (BrokerState.RUNNING, 77, False)
    lifecycle.next_request(now_ms, 5)
    lifecycle.heartbeat_answered(LIVES, now_ms)
    assert lifecycle.due_ms == now_ms + settings.heartbeat_interval_ms


def test_the_metadata_log_is_asked_of_all_controllers_in_turn_for_an_hour():
    bootstrap = [Controller(-1, "one", 1), Controller(-1, "two", 2)]
    settings = FetcherSettings()
    fetcher = MetadataFetcher(bootstrap, settings, 0)
    now_ms, asked = 0, []
    while now_ms < HOUR_MS:
        asked.append(fetcher.next_request().controller)
        fetcher.failed(now_ms)
        assert 0 < fetcher.due_ms - now_ms <= settings.retry_backoff_max_ms
        now_ms = fetcher.due_ms
    assert asked[-10:].count(bootstrap[0]) == asked[-10:].count(bootstrap[1]) == 5


def test_a_change_of_an_isr_waits_for_an_hour_and_is_then_the_same():
    queue = AlterPartitionQueue()
    change = AlterIsr(("t", 0), 3, 7, ((1, 101),))
    queue.submit(change)
    now_ms = 0
    while now_ms < HOUR_MS:
        request = queue.next_request(now_ms)
        assert request == (change,)
        # Until the connection is given up: the time of `controller.socket.timeout.ms`.
        now_ms += 30_000
        queue.failed(request, now_ms)
        assert queue.wake_at_ms == now_ms + RETRY_MS
        now_ms += RETRY_MS
    request = queue.next_request(now_ms)
    answer = AlteredIsr(3, 8, (1,))
    assert [one.result for one in queue.answered(request, {("t", 0): answer})] == [answer]
