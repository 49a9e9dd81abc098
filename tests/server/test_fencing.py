"""Brokers of a controller die, and lose their connections to it, again and again: who dies is fenced at once,
and who lives never.

The controller, its clock and its sockets are real; brokers are what it sees of them: a connection with
heartbeats, and a listener. A cut in one direction is what is left of it there: a connection that closes while
nobody answers at the listener, or one that stays open and is silent. Sessions do not end, so that a broker is
fenced only as a dead one. Processes that are killed under a load are in `compat_tests/cluster/test_kills.py`
(`--controllers=odradek`).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter

import pytest

from odradek.server.controlling import watching
from tests.server.test_controller_serving import beat, registered, run
from tests.tiers import NIGHTLY

BROKERS = (1, 2, 3)
BLOWS = 1_000 if NIGHTLY else 60
KINDS = {
    "kill": 4,
    "cut": 4,
    "cut and kill": 2,
    "other connection": 1,
    "busy controller": 1,
    "two cuts": 1,
    "deaf": 3,
    "unheard": 2,
    "deaf beside a kill": 2,
}
"""And how often each comes: 7 of 20 are cuts in one direction."""
AWAY_S_MAX = 0.03
BUSY_S_MAX = 0.05
UNANSWERED_S = 0.05
"""Until a knock fails that nobody answers."""
DEAF_S_MAX = 0.1
"""Some are heard of again before a knock has failed, others after."""


class Broker:
    """A process, as far as its controller sees it."""

    def __init__(self, running, broker_id: int, chance: random.Random) -> None:
        self.running, self.id, self.chance = running, broker_id, chance
        self.is_alive = False
        self.epoch = -1

    async def start(self) -> None:
        self.listening = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        self.port = self.listening.sockets[0].getsockname()[1]
        self.client = await self.running.client()
        incarnation = self.chance.randbytes(16)
        self.epoch = await registered(self.client, self.port, broker_id=self.id, incarnation=incarnation)
        self.is_alive = True
        await self.beat()
        # A death counts where the controller has reached its broker before.
        await self.running.until(lambda: not self.running.controlling.watching.is_knocking)

    async def beat(self) -> None:
        answer = await beat(self.client, self.epoch, broker_id=self.id)
        assert (answer.error_code, answer.is_fenced) == (0, False)

    def hang_up(self) -> None:
        """In order, or not."""
        if self.chance.random() < 0.5:
            self.client.close()
        else:
            self.client.writer.transport.abort()

    def kill(self) -> None:
        """The system closes its sockets in any order."""
        self.is_alive = False
        ends = [self.hang_up, self.listening.close]
        self.chance.shuffle(ends)
        for end in ends:
            end()

    async def come_back(self) -> None:
        """After its connection was cut."""
        await asyncio.sleep(self.chance.uniform(0, AWAY_S_MAX))
        self.client = await self.running.client()
        await self.beat()

    async def come_back_from_deafness(self, unanswered: set[int]) -> None:
        """Give its connection up, as nothing that the controller sends arrives; and connect again later."""
        unanswered.add(self.port)
        self.hang_up()
        await asyncio.sleep(self.chance.uniform(0, DEAF_S_MAX))
        unanswered.discard(self.port)
        await self.come_back()

    async def change_connections(self) -> None:
        """The next one is there before the last one has gone."""
        last, self.client = self.client, await self.running.client()
        await self.beat()
        last.close()
        await self.beat()

    @property
    def is_fenced(self) -> bool:
        known = self.running.view.registrations[self.id]
        return known.epoch == self.epoch and known.is_fenced


class World:
    """`wrong` are brokers that were fenced and live; `unanswered` ports of whose responses none arrives."""

    def __init__(self, running, seed: int, unanswered: set[int]) -> None:
        self.unanswered = unanswered
        self.chance = random.Random(seed)
        self.running = running
        self.brokers = [Broker(running, one, self.chance) for one in BROKERS]
        self.wrong: list[int] = []
        self.seen: Counter[str] = Counter()
        running.controlling.controller.publisher.subscribe(self.look)

    def look(self, view, change) -> None:
        for one in self.brokers:
            known = view.registrations.get(one.id)
            if one.is_alive and known is not None and known.epoch == one.epoch and known.is_fenced:
                self.wrong.append(one.id)

    async def strike(self) -> None:
        (kind,) = self.chance.choices(list(KINDS), list(KINDS.values()))
        self.seen[kind] += 1
        first, second, third = self.chance.sample(self.brokers, 3)
        match kind:
            case "kill":
                first.kill()
            case "cut":
                first.hang_up()
                await first.come_back()
            case "cut and kill":
                first.hang_up()
                second.kill()
                await first.come_back()
            case "other connection":
                await first.change_connections()
            case "busy controller":
                first.hang_up()
                second.kill()
                time.sleep(self.chance.uniform(0, BUSY_S_MAX))
                await first.come_back()
            case "two cuts":
                first.hang_up()
                second.hang_up()
                await asyncio.gather(first.come_back(), second.come_back())
            case "deaf":
                await first.come_back_from_deafness(self.unanswered)
            case "unheard":
                # The controller is not told that the broker has given its connection up.
                await asyncio.sleep(self.chance.uniform(0, DEAF_S_MAX))
                await first.change_connections()
            case "deaf beside a kill":
                second.kill()
                await first.come_back_from_deafness(self.unanswered)
        for one in self.brokers:
            if not one.is_alive:
                await self.running.until(lambda one=one: one.is_fenced)
                await one.start()
        await third.beat()


@pytest.fixture
def unanswered(monkeypatch) -> set[int]:
    """Ports at which a connection is neither made nor refused."""
    ports: set[int] = set()
    connect = asyncio.open_connection

    async def connect_or_wait(host, port, **more):
        if port in ports:
            await asyncio.sleep(UNANSWERED_S)
            raise TimeoutError
        return await connect(host, port, **more)

    monkeypatch.setattr(asyncio, "open_connection", connect_or_wait)
    return ports


def test_who_dies_is_fenced_and_who_lives_is_not_in_all_kills_and_cuts(unanswered):
    seed = int(os.environ.get("ODRADEK_HISTORY_SEED", "1"))

    async def story(running):
        world = World(running, seed, unanswered)
        for one in world.brokers:
            await one.start()
        for _ in range(BLOWS):
            await world.strike()
            assert world.wrong == [], (seed, world.seen)
        # Whoever would be fenced late is fenced by now.
        await running.until(lambda: not running.controlling.watching.is_knocking)
        assert world.wrong == [], (seed, world.seen)
        assert set(world.seen) == set(KINDS)

    run(story, **{"broker.session.timeout.ms": "600000"})


async def is_always_refused(broker) -> bool:
    """A controller that takes a closed connection for a death."""
    return True


async def fence_at_once(self, broker) -> None:
    """One that does not wait for another connection either."""
    self._fence(broker)


@pytest.mark.parametrize(
    ("of_what", "name", "instead"),
    [(watching, "_is_refused", is_always_refused), (watching.Watching, "_see_after", fence_at_once)],
)
def test_a_controller_that_does_not_look_is_found(of_what, name, instead, monkeypatch, unanswered):
    async def story(running):
        world = World(running, 1, unanswered)
        (broker, *_) = world.brokers
        await broker.start()
        monkeypatch.setattr(of_what, name, instead)
        broker.hang_up()
        await running.until(lambda: world.wrong == [broker.id])

    run(story, **{"broker.session.timeout.ms": "600000"})


async def is_not_answered(broker) -> bool:
    """Whether a connection fails, in whatever way."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", next(iter(broker.endpoints.values())).port)
    except (OSError, TimeoutError):
        return True
    writer.close()
    return False


def test_a_controller_that_takes_silence_for_a_refusal_is_found(monkeypatch, unanswered):
    """A cut in one direction finds it, and nothing else does."""

    async def story(running):
        world = World(running, 1, unanswered)
        (broker, *_) = world.brokers
        await broker.start()
        monkeypatch.setattr(watching, "_is_refused", is_not_answered)
        broker.hang_up()
        await broker.come_back()
        await running.until(lambda: not running.controlling.watching.is_knocking)
        assert world.wrong == []
        unanswered.add(broker.port)
        broker.hang_up()
        await running.until(lambda: world.wrong == [broker.id])

    run(story, **{"broker.session.timeout.ms": "600000"})
