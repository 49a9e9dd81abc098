"""Looking for the next request before the loop sleeps: it finds what comes, and gives up on what does not."""

import asyncio
import itertools
import os

import pytest
import uvloop

from odradek.server.network.busy_poll import BUSY_POLL_NS, SKIPPED_MAX, BusyPoll


class Clock:
    """Moves by a tenth of the polling time with each look, and runs the events of that look."""

    def __init__(self):
        self.now_ns = 0
        self.looks = 0
        self.events = {}

    def __call__(self):
        return self.now_ns

    def give_way(self):
        self.looks += 1
        self.now_ns += BUSY_POLL_NS // 10
        if self.looks in self.events:
            self.events[self.looks]()


@pytest.fixture(params=["uvloop", "asyncio"])
def play(request):
    def run(story):
        loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
        is_wanted = [True]
        busy_poll = BusyPoll(loop, lambda: is_wanted[0])
        clock = Clock()
        busy_poll.clock_ns, busy_poll.give_way = clock, clock.give_way
        try:
            loop.run_until_complete(asyncio.wait_for(story(busy_poll, clock, is_wanted), 20))
        finally:
            loop.close()

    return run


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


def test_it_looks_for_so_long_and_no_longer(play):
    async def story(busy_poll, clock, is_wanted):
        busy_poll()
        assert clock.looks == 0  # not before the answers of this turn are on their way
        await turns()
        assert clock.looks == 10

    play(story)


def test_it_stops_when_something_has_come(play):
    async def story(busy_poll, clock, is_wanted):
        reader, writer = os.pipe()
        came = []
        asyncio.get_running_loop().add_reader(reader, lambda: came.append(os.read(reader, 10)))
        await turns()
        clock.events[4] = lambda: os.write(writer, b"request")
        busy_poll()
        await turns()
        assert (clock.looks, came) == (4, [b"request"])
        asyncio.get_running_loop().remove_reader(reader)
        os.close(reader)
        os.close(writer)

    play(story)


def test_in_vain_it_looks_less_and_less_often(play):
    async def story(busy_poll, clock, is_wanted):
        tries = []
        for turn in range(5000):
            looks = clock.looks
            busy_poll()
            await turns(1)
            await turns(1)
            if clock.looks > looks:
                tries.append(turn)
        gaps = [after - before - 1 for before, after in itertools.pairwise(tries)]
        assert gaps[:11] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, SKIPPED_MAX]
        assert set(gaps[11:]) == {SKIPPED_MAX}

    play(story)


def test_a_find_halves_the_turns_without_a_look(play):
    async def story(busy_poll, clock, is_wanted):
        for _ in range(8):
            busy_poll()
            await turns()
        assert clock.looks == 30  # the first, the third and the sixth time; next is the eleventh
        reader, writer = os.pipe()
        asyncio.get_running_loop().add_reader(reader, lambda: os.read(reader, 10))
        await turns()
        clock.events[35] = lambda: os.write(writer, b"request")
        for _ in range(3):
            busy_poll()
            await turns()
        assert clock.looks == 35
        busy_poll()
        await turns()
        assert clock.looks == 45  # in vain: four turns are skipped, not eight
        for _ in range(4):
            busy_poll()
            await turns()
        assert clock.looks == 45
        busy_poll()
        await turns()
        assert clock.looks == 55
        asyncio.get_running_loop().remove_reader(reader)
        os.close(reader)
        os.close(writer)

    play(story)


def test_it_does_not_look_when_there_is_something_to_do(play):
    async def story(busy_poll, clock, is_wanted):
        is_wanted[0] = False
        busy_poll()
        await turns()
        is_wanted[0] = True
        assert clock.looks == 0
        busy_poll()
        busy_poll()
        await turns()
        assert clock.looks == 10

    play(story)


def test_a_loop_that_does_not_show_its_events_is_left_alone():
    class Strange:
        def call_soon(self, *arguments):
            raise AssertionError

    BusyPoll(Strange(), lambda: True)()
