"""Long work beside the serving of requests: in slices, one after the other, some of it in a worker."""

import asyncio
import threading

import pytest

from odradek.server.background.work import SLICE_S, Detached, WorkQueue, WorkQueues
from odradek.wire.work import finish


class FakeLoop:
    """Turns when told to; every look at the clock takes a quarter of a slice."""

    def __init__(self):
        self.now_s = 0.0
        self.calls = []

    def time(self):
        self.now_s += SLICE_S / 4
        return self.now_s

    def call_soon(self, function, *arguments):
        self.calls.append((function, arguments))

    def turn(self):
        calls, self.calls = self.calls, []
        for function, arguments in calls:
            function(*arguments)


def counting(steps, seen, name="work"):
    for number in range(steps):
        seen.append((name, number))
        yield None
    return name


def test_a_turn_takes_a_slice_of_a_long_work_and_the_next_begins_when_it_is_done():
    loop, seen, told = FakeLoop(), [], []
    queue = WorkQueue(loop)
    queue.run(counting(10, seen, "long"), told.append, pytest.fail)
    queue.run(counting(1, seen, "short"), told.append, pytest.fail)
    most = len(seen)
    assert 0 < most < 10
    while loop.calls:
        before = len(seen)
        loop.turn()
        assert len(seen) - before <= most
    assert seen == [("long", number) for number in range(10)] + [("short", 0)]
    assert told == ["long", "short"]
    assert len(queue) == 0


def test_what_a_work_raises_is_told_and_the_next_one_runs():
    loop, told = FakeLoop(), []
    queue = WorkQueue(loop)

    def failing():
        yield None
        raise ValueError("broken")

    queue.run(failing(), pytest.fail, told.append)
    queue.run(counting(1, []), told.append, pytest.fail)
    while loop.calls:
        loop.turn()
    assert [str(one) for one in told] == ["broken", "work"]


def asking_elsewhere(threads):
    def where():
        threads.append(threading.current_thread())
        return 21

    def fails():
        raise OSError("disk")

    result = yield where
    try:
        yield fails
    except OSError as error:
        return result * 2, str(error)


def test_what_may_block_is_called_in_a_worker_and_its_result_and_error_come_back():
    async def act():
        loop = asyncio.get_running_loop()
        queue, told = WorkQueue(loop), loop.create_future()
        queue.run(asking_elsewhere(threads), told.set_result, told.set_exception)
        assert not told.done()
        assert await told == (42, "disk")
        queue.close()

    threads = []
    asyncio.run(act())
    assert threads[0] is not threading.current_thread()
    assert finish(asking_elsewhere(threads)) == (42, "disk")
    assert threads[1] is threading.current_thread()


def test_closing_ends_what_is_under_way_and_what_waits_without_a_word():
    loop, ended = FakeLoop(), []
    queue = WorkQueue(loop)

    def endless():
        try:
            while True:
                yield None
        finally:
            ended.append(True)

    queue.run(endless(), pytest.fail, pytest.fail)
    queue.run(counting(1, ended), pytest.fail, pytest.fail)
    loop.turn()
    queue.close()
    loop.turn()
    assert ended == [True]


def test_a_work_goes_where_the_fewest_are_before_it():
    loop, told = FakeLoop(), []
    queues = WorkQueues(loop, 2)

    def endless():
        while True:
            yield None

    queues.run(endless(), pytest.fail, pytest.fail)
    queues.run(counting(1, [], "first"), told.append, pytest.fail)
    queues.run(counting(1, [], "second"), told.append, pytest.fail)
    for _ in range(3):
        loop.turn()
    assert told == ["first", "second"]
    assert len(queues) == 1
    queues.close()


def test_what_hangs_in_a_thread_of_its_own_holds_nobody_up():
    """Neither the close of what began it, nor the end of the loop."""
    is_over, told = threading.Event(), []

    async def run():
        loop = asyncio.get_running_loop()
        detached = Detached(loop)
        done, failed = loop.create_future(), loop.create_future()
        detached.run(lambda: 7, done.set_result, told.append)
        detached.run(lambda: 1 // 0, told.append, failed.set_result)
        assert await done == 7
        assert isinstance(await failed, ZeroDivisionError)
        detached.run(lambda: is_over.wait(20), told.append, told.append)
        detached.close()

    asyncio.run(run())
    assert not is_over.is_set()
    is_over.set()
    assert told == []
