"""The end of a turn (commit, group flush, callbacks) and the heap of timers."""

import asyncio
import errno
import gc
import threading

import pytest

from odradek.apis.turn import COMMITTED, FLUSHED, Until
from odradek.server.network._clock import Clock
from odradek.server.network._pipeline import Turn
from odradek.server.network.timers import NS_PER_MS, ClockTimers, Timer, Timers, steady_clock_ms
from odradek.wire.errors import ErrorCode, KafkaError


class Partition:
    def __init__(self, events, name="p"):
        self.events, self.name = events, name
        self.log = self
        self.commit_error = self.flush_error = None
        self.flush_gate = None
        self.flush_threads = []

    def commit(self):
        self.events.append(f"commit {self.name}")
        if self.commit_error:
            raise self.commit_error

    def flush(self):
        self.flush_threads.append(threading.current_thread())
        if self.flush_gate:
            assert self.flush_gate.wait(10)
        if self.flush_error:
            raise self.flush_error


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def play(story):
    async def act():
        turn = Turn(asyncio.get_running_loop())
        events = []
        try:
            await story(turn, events)
        finally:
            turn.close()

    asyncio.run(act())


def told(events, name):
    return lambda error: events.append(f"{name} {'ok' if error is None else error.code.name}")


def test_partitions_are_committed_once_a_turn_and_then_all_are_told():
    async def story(turn, events):
        first, second = Partition(events, "first"), Partition(events, "second")
        turn.add(first, told(events, "a"), COMMITTED)
        turn.add(second, told(events, "b"), COMMITTED)
        turn.add(first, told(events, "c"), COMMITTED)
        assert events == []
        await asyncio.sleep(0)
        assert events == ["commit first", "a ok", "c ok", "commit second", "b ok"]
        assert (turn.number, turn.staged) == (1, {})

    play(story)


def test_what_a_callback_stages_belongs_to_the_next_turn():
    async def story(turn, events):
        partition = Partition(events)
        turn.add(partition, lambda error: turn.add(partition, told(events, "second"), COMMITTED), COMMITTED)
        await asyncio.sleep(0)
        assert events == ["commit p"]
        assert turn.staged
        await asyncio.sleep(0)
        assert events == ["commit p", "commit p", "second ok"]

    play(story)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), "KAFKA_STORAGE_ERROR"),
        (OSError(errno.ENOSPC, "full"), "KAFKA_STORAGE_ERROR"),
        (ZeroDivisionError(), "KAFKA_STORAGE_ERROR"),
    ],
)
def test_a_failed_commit_is_told_to_all_of_its_partition_and_to_no_other(error, code):
    async def story(turn, events):
        bad, good = Partition(events, "bad"), Partition(events, "good")
        bad.commit_error = error
        turn.add(bad, told(events, "a"), COMMITTED)
        turn.add(bad, told(events, "b"), FLUSHED)
        turn.add(good, told(events, "c"), COMMITTED)
        await asyncio.sleep(0)
        assert events == ["commit bad", f"a {code}", f"b {code}", "commit good", "c ok"]
        assert not bad.flush_threads

    play(story)


def test_a_callback_with_a_bug_does_not_keep_the_others_from_being_told():
    async def story(turn, events):
        partition = Partition(events)
        turn.add(partition, lambda error: 1 / 0, COMMITTED)
        turn.add(partition, told(events, "b"), COMMITTED)
        await asyncio.sleep(0)
        assert events == ["commit p", "b ok"]

    play(story)


def test_what_follows_comes_behind_the_turn_that_is_gathered_by_then():
    """Though it was asked for first; and the turn has one end."""

    async def story(turn, events):
        partition = Partition(events)
        for name in ("x", "y"):
            turn.follow(lambda name=name: events.append(f"follow {name} in {turn.number}"))
        turn.add(partition, told(events, "a"), COMMITTED)
        await asyncio.sleep(0)
        assert events == ["commit p", "a ok", "follow x in 1", "follow y in 1"]
        await asyncio.sleep(0)
        assert (turn.number, turn.is_scheduled) == (1, False)

    play(story)


def test_what_follows_from_what_follows_leaves_a_turn_to_others(caplog):
    async def story(turn, events):
        partition = Partition(events)

        def follow(number):
            events.append(f"follow {number}")
            if number < 3:
                turn.follow(lambda: follow(number + 1))
            if number == 2:
                raise ZeroDivisionError

        turn.follow(lambda: follow(1))
        for name in ("a", "b", "c"):
            asyncio.get_running_loop().call_soon(turn.add, partition, told(events, name), COMMITTED)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        ends = ["commit p", "a ok", "commit p", "b ok", "commit p", "c ok"]
        assert [event for event in events if "follow" not in event] == ends
        assert [event for event in events if "follow" in event] == ["follow 1", "follow 2", "follow 3"]
        assert events.index("follow 2") < events.index("b ok") < events.index("follow 3")

    play(story)
    assert "callback after the end of a turn failed" in caplog.text


def test_one_flush_serves_all_that_gathered_while_another_ran():
    async def story(turn, events):
        partition, other = Partition(events), Partition(events, "other")
        partition.flush_gate = threading.Event()
        turn.add(partition, told(events, "a"), FLUSHED)
        await until(lambda: len(partition.flush_threads) == 1)
        assert partition.flush_threads[0] is not threading.main_thread()
        for name in "bcd":
            turn.add(partition, told(events, name), FLUSHED)
            await asyncio.sleep(0)
        turn.add(partition, told(events, "unflushed"), COMMITTED)
        turn.add(other, told(events, "other"), FLUSHED)
        await until(lambda: "other ok" in events)
        assert turn.is_flushing
        assert [e for e in events if "ok" in e] == ["unflushed ok", "other ok"]
        partition.flush_gate.set()
        await until(lambda: "d ok" in events)
        assert [e for e in events if "ok" in e][2:] == ["a ok", "b ok", "c ok", "d ok"]
        assert len(partition.flush_threads) == 2
        assert not turn.is_flushing

    play(story)


def test_a_failed_flush_is_told_and_a_background_flush_tells_nobody():
    async def story(turn, events):
        partition = Partition(events)
        partition.flush_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        turn.add(partition, told(events, "a"), FLUSHED)
        await until(lambda: "a KAFKA_STORAGE_ERROR" in events)
        turn.flush_in_background(partition)
        await until(lambda: len(partition.flush_threads) == 2 and not turn.is_flushing)
        assert len([e for e in events if e.startswith("a ")]) == 1

    play(story)


def test_timers_run_in_the_order_of_their_deadlines_and_not_when_cancelled():
    async def act():
        timers, ran = Timers(asyncio.get_running_loop()), []
        timers.after(30, lambda: ran.append("late"))
        cancelled = timers.after(10, lambda: ran.append("cancelled"))
        timers.after(20, lambda: ran.append("middle"))
        timers.after(5, lambda: 1 / 0)
        timers.after(0, lambda: ran.append("now"))
        cancelled.cancel()
        cancelled.cancel()
        assert len(timers) == 3
        await until(lambda: len(ran) == 3)
        assert ran == ["now", "middle", "late"]
        assert len(timers) == 0

    asyncio.run(act())


def test_a_timer_that_sets_a_later_one_delays_none_between_them():
    async def story():
        timers, events = Timers(asyncio.get_running_loop()), []
        timers.after(1, lambda: timers.after(600_000, lambda: None))
        timers.after(20, lambda: events.append("between"))
        await until(lambda: events)
        timers.close()

    asyncio.run(story())


def test_cancelled_timers_do_not_pile_up():
    async def act():
        timers = Timers(asyncio.get_running_loop())
        keep = timers.after(60_000, lambda: None)
        for _ in range(10_000):
            timers.after(50_000, lambda: None).cancel()
        assert sum(isinstance(one, Timer) for one in gc.get_objects()) < 200
        assert len(timers) == 1
        keep.cancel()
        timers.close()

    asyncio.run(act())


def test_a_repeated_timer_goes_on_after_a_failure_until_it_is_ended():
    async def act():
        timers, ran = Timers(asyncio.get_running_loop()), []

        def tick():
            ran.append(1)
            raise RuntimeError

        end = timers.every(1, tick)
        await until(lambda: len(ran) >= 3)
        end()
        assert len(timers) == 0

    asyncio.run(act())


def test_the_steady_clock_does_not_follow_jumps_of_the_wall_clock():
    wall = [1_700_000_000_000]
    steady = steady_clock_ms(Clock(lambda: wall[0]))
    wall[0] += 3_600_000
    assert 0 <= steady() - 1_700_000_000_000 < 60_000


def test_a_clock_goes_with_the_system_until_it_is_moved_or_frozen():
    wall = [1_700_000_000_000]
    clock = Clock(lambda: wall[0])
    steady = steady_clock_ms(clock)
    clock.move(5_000 * NS_PER_MS)
    assert clock.now_ms() == 1_700_000_005_000
    assert 5_000 <= steady() - 1_700_000_000_000 < 60_000
    clock.freeze()
    clock.freeze()
    wall[0] += 1_000
    frozen = clock.monotonic_ns()
    assert (clock.now_ms(), clock.monotonic_ns()) == (1_700_000_005_000, frozen)
    clock.move(NS_PER_MS)
    assert (clock.now_ms(), clock.monotonic_ns()) == (1_700_000_005_001, frozen + NS_PER_MS)
    clock.unfreeze()
    clock.unfreeze()
    assert clock.now_ms() == 1_700_000_005_001
    wall[0] += 1_000
    assert clock.now_ms() == 1_700_000_006_001
    assert frozen + NS_PER_MS <= clock.monotonic_ns() < frozen + 60_000 * NS_PER_MS


def test_timers_of_a_frozen_clock_run_by_word_and_of_one_that_goes_by_themselves():
    async def act():
        clock, ran = Clock(), []
        timers = ClockTimers(asyncio.get_running_loop(), clock)
        clock.freeze()
        timers.clock_changed()
        timers.after(20, lambda: ran.append("late"))
        timers.after(10, lambda: ran.append("early"))
        timers.after(0, lambda: ran.append("soon"))
        await until(lambda: ran == ["soon"])
        assert timers.next_ns == clock.monotonic_ns() + 10 * NS_PER_MS
        clock.move(10 * NS_PER_MS)
        timers.run_due()
        assert ran == ["soon", "early"]
        clock.unfreeze()
        timers.clock_changed()
        await until(lambda: ran == ["soon", "early", "late"])
        assert timers.next_ns is None

    asyncio.run(act())


def test_looks_that_were_put_off_come_once_when_they_are_hastened():
    async def act():
        clock, ran = Clock(), []
        timers = ClockTimers(asyncio.get_running_loop(), clock)
        clock.freeze()
        timers.clock_changed()
        timers.look_ms_min = 1_000
        end = timers.every(10, lambda: ran.append(clock.monotonic_ms()))
        stopped = timers.look_after(10, lambda: ran.append("stopped"))
        stopped.cancel()
        begun_ms = clock.monotonic_ms()
        clock.move(500 * NS_PER_MS)
        timers.run_due()
        assert ran == []
        timers.hasten()
        timers.run_due()
        assert ran == [begun_ms + 500]
        assert len(timers) == 1
        clock.move(500 * NS_PER_MS)
        timers.run_due()
        assert ran == [begun_ms + 500, begun_ms + 1_000]
        end()
        assert len(timers) == 0

    asyncio.run(act())


def test_the_end_waits_for_the_flush_that_is_under_way():
    """Who closes the partitions next flushes them as well: two flushes of one must not meet."""

    async def story(turn, events):
        partition = Partition(events)
        partition.flush_gate = threading.Event()
        turn.flush_in_background(partition)
        await until(lambda: partition.flush_threads)
        closing = threading.Thread(target=turn.close)
        closing.start()
        assert partition.flush_threads[0].is_alive()
        assert closing.is_alive()
        partition.flush_gate.set()
        closing.join(10)
        assert not partition.flush_threads[0].is_alive()

    play(story)


class Silent:
    def send_ready(self):
        raise AssertionError


def test_a_sender_that_is_alone_has_turns_of_its_own_and_two_share_them():
    async def story(turn, events):
        one, other, partition = Silent(), Silent(), Partition(events)
        assert not turn.begin_alone(one)
        for number in range(3):
            assert turn.begin_alone(one)
            turn.add(partition, told(events, f"a{number}"), COMMITTED)
            assert events == []
            turn.end()
            assert events == ["commit p", f"a{number} ok"]
            events.clear()
        assert turn.number == 3
        assert not turn.begin_alone(other)
        turn.add(partition, told(events, "b"), COMMITTED)
        assert not turn.begin_alone(other)  # something waits for the end of the common turn
        assert not turn.begin_alone(one)
        turn.add(partition, told(events, "c"), COMMITTED)
        assert events == []
        await asyncio.sleep(0)
        assert events == ["commit p", "b ok", "c ok"]
        assert turn.begin_alone(one)
        turn.end()
        turn.forget(other)
        assert turn.begin_alone(one)
        turn.end()
        turn.forget(one)
        assert not turn.begin_alone(one)

    play(story)


def test_a_turn_is_idle_when_nothing_waits_for_its_end_or_for_the_disk():
    async def story(turn, events):
        partition = Partition(events)
        assert turn.is_idle
        partition.flush_gate = threading.Event()
        turn.add(partition, told(events, "a"), FLUSHED)
        assert not turn.is_idle
        await asyncio.sleep(0)
        assert turn.is_flushing
        assert not turn.is_idle
        partition.flush_gate.set()
        await until(lambda: "a ok" in events)
        assert turn.is_idle

    play(story)


REPLICATED, BOTH = Until(replicated=True), Until(flushed=True, replicated=True)


class Followed(Partition):
    """One that others follow: the test moves its high watermark."""

    def __init__(self, events):
        super().__init__(events)
        self.log_end_offset = 7
        self.waiting = []

    def when_high_watermark(self, offset, done):
        self.waiting.append((offset, done))

    def forget_high_watermark(self, offset, done):
        self.waiting.remove((offset, done))


def test_replicas_that_are_too_slow_are_waited_for_no_longer_than_the_request_says():
    async def story(turn, events):
        partition = Followed(events)
        turn.add(partition, told(events, "a"), Until(replicated=True, patience_ms=1))
        turn.add(partition, told(events, "b"), Until(replicated=True, patience_ms=60_000))
        await until(lambda: "a REQUEST_TIMED_OUT" in events)
        ((_, done),) = partition.waiting
        done(None)
        assert events[-1] == "b ok"

    play(story)


def test_an_answer_waits_for_the_commit_the_disk_and_all_replicas_as_it_wants():
    async def story(turn, events):
        partition = Followed(events)
        for what, name in ((COMMITTED, "a"), (FLUSHED, "b"), (REPLICATED, "c"), (BOTH, "d")):
            turn.add(partition, told(events, name), what)
        await until(lambda: len(partition.waiting) == 2)
        assert [offset for offset, _ in partition.waiting] == [7, 7]
        assert events[:2] == ["commit p", "a ok"]
        assert "b ok" in events
        assert not {"c ok", "d ok"} & set(events)
        for _, done in partition.waiting:
            done(None)
        assert events[-2:] == ["c ok", "d ok"]

    play(story)


def test_a_commit_that_failed_waits_for_nothing_else():
    async def story(turn, events):
        partition = Followed(events)
        partition.commit_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        turn.add(partition, told(events, "a"), BOTH)
        await until(lambda: "a KAFKA_STORAGE_ERROR" in events)
        assert partition.waiting == []

    play(story)
