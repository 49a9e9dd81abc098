"""Limits of connections: who waits, who is closed, who goes for others. Sockets are real, and so is the clock
of acceptors; what has to come is waited for, and what must not come is looked for after what comes later."""

import asyncio
import logging

import pytest

from odradek.server.network.admission import (
    ADDRESSES_MAX,
    AddressRates,
    Admission,
    ConnectionLimits,
    addresses_of,
    host_of,
    is_address,
    is_host,
)
from odradek.server.network.connections import Connections
from odradek.server.network.listeners import Listener, accept, bind_listener
from tests.raw_client import AsyncRawClient
from tests.server.test_connection import TinyBroker, Turn, echo

LISTENER = "PLAINTEXT"


class Clock:
    now_ms = 1_000_000

    def __call__(self):
        return self.now_ms


# Decisions


def admission(brokers_listener=None, **limits):
    clock = Clock()
    return Admission(ConnectionLimits(**limits), clock, brokers_listener), clock


def enter(admission, count, listener=LISTENER, host="10.0.0.1"):
    for _ in range(count):
        assert admission.enter(listener, host) is None


def test_room_is_counted_by_broker_and_by_listener():
    door, _ = admission(connections_max=3, connections_max_of_listeners={"inside": 2})
    enter(door, 2, "INSIDE")
    assert not door.has_room("INSIDE")
    assert door.has_room("OUTSIDE")
    assert "listener.name.inside.max.connections=2" in door.reason_to_wait("INSIDE")
    enter(door, 1, "OUTSIDE")
    assert not door.has_room("OUTSIDE")
    assert door.reason_to_wait("OUTSIDE") == "max.connections=3 is reached"
    door.leave("INSIDE", "10.0.0.1")
    assert door.has_room("OUTSIDE")


def test_brokers_come_in_over_the_limit_but_not_over_the_one_of_their_listener():
    door, _ = admission("INSIDE", connections_max=2)
    enter(door, 2, "OUTSIDE")
    assert not door.has_room("OUTSIDE")
    assert door.has_room("INSIDE")
    enter(door, 1, "INSIDE")
    assert door.is_overfull
    enter(door, 1, "INSIDE")
    # Without a limit of its own a listener has the broker's.
    assert not door.has_room("INSIDE")


def test_addresses_are_limited_each_for_itself():
    door, _ = admission(connections_per_ip_max=1, connections_per_ip_overrides={"10.0.0.9": 2})
    enter(door, 1)
    enter(door, 2, host="10.0.0.9")
    assert "max.connections.per.ip=1 is reached for 10.0.0.1" in door.enter(LISTENER, "10.0.0.1")
    assert "max.connections.per.ip=2" in door.enter(LISTENER, "10.0.0.9")
    door.leave(LISTENER, "10.0.0.1")
    enter(door, 1)


def test_new_connections_wait_when_there_are_too_many_in_a_second():
    door, clock = admission(creation_rate_max=2)
    # 22 in 11 windows; the 21st is the first beyond 2 a second over 10 s.
    assert [door.wait_ms(LISTENER) for _ in range(20)] == [0] * 20
    assert door.wait_ms(LISTENER) == 500
    clock.now_ms += 20_000
    assert door.wait_ms(LISTENER) == 0


def test_the_longer_of_the_waits_for_broker_and_listener_counts_and_a_window_is_the_longest():
    door, _ = admission(creation_rate_max=2, creation_rate_max_of_listeners={"inside": 1})
    assert [door.wait_ms("INSIDE") for _ in range(11)] == [0] * 10 + [1_000]
    assert [door.wait_ms("OUTSIDE") for _ in range(10)] == [0] * 9 + [500]


def test_brokers_do_not_count_for_the_rate_of_clients():
    door, _ = admission("INSIDE", creation_rate_max=2)
    assert [door.wait_ms("INSIDE") for _ in range(21)] == [0] * 20 + [500]
    assert [door.wait_ms("OUTSIDE") for _ in range(21)] == [0] * 20 + [500]


def test_a_rate_that_is_changed_counts_at_once():
    door, _ = admission(creation_rate_max=2)
    assert [door.wait_ms(LISTENER) for _ in range(20)] == [0] * 20
    door.limits = ConnectionLimits(creation_rate_max=1)
    assert door.wait_ms(LISTENER) == 1_000
    door.limits = ConnectionLimits()
    assert door.wait_ms(LISTENER) == 0


def test_a_refused_connection_of_an_address_counts_nowhere():
    door, _ = admission(creation_rate_max=2)
    door.address_rates = AddressRates(None, {"10.0.0.1": 1.0})
    for _ in range(10):
        assert (door.wait_ms(LISTENER), door.refuse_ms(LISTENER, "10.0.0.1")) == (0, 0)
    for _ in range(30):
        assert (door.wait_ms(LISTENER), door.refuse_ms(LISTENER, "10.0.0.1")) == (0, 1_000)
    assert door.refuse_ms(LISTENER, "10.0.0.2") == 0
    door.address_rates = AddressRates(5.0, {})
    assert door.refuse_ms(LISTENER, "10.0.0.1") == 0


def test_addresses_that_come_once_do_not_fill_the_memory():
    door, clock = admission()
    door.address_rates = AddressRates(0.1)
    first, last = "host-0", f"host-{ADDRESSES_MAX + 9}"
    while not door.refuse_ms(LISTENER, first):
        pass
    clock.now_ms += 1
    for number in range(1, ADDRESSES_MAX + 10):
        assert door.refuse_ms(LISTENER, f"host-{number}") == 0
    assert door.refuse_ms(LISTENER, first) == 0, "it is forgotten"
    while not door.refuse_ms(LISTENER, last):
        pass


def test_an_address_at_work_is_remembered_however_many_come_once():
    door, clock = admission()
    door.address_rates = AddressRates(0.1)
    heavy = "heavy"
    while not door.refuse_ms(LISTENER, heavy):
        pass
    for number in range(2 * ADDRESSES_MAX):
        if number % 1000 == 0:
            clock.now_ms += 1
            assert door.refuse_ms(LISTENER, heavy)
        door.refuse_ms(LISTENER, f"host-{number}")
    assert door.refuse_ms(LISTENER, heavy)


def test_hosts_are_addresses_or_have_some():
    assert is_host("127.0.0.1")
    assert is_host("::1")
    assert is_host("localhost")
    assert is_address("127.0.0.1")
    assert is_address("::1")
    assert not any(is_address(name) for name in ("localhost", "no-such-host.invalid", "\0", ""))
    assert not is_host("no-such-host.invalid")
    assert not is_host("\0")
    assert addresses_of("::ffff:10.0.0.1") == ["10.0.0.1"]
    assert host_of(("::ffff:10.0.0.1", 5)) == "10.0.0.1"
    assert host_of("") == ""


# Acceptors


class Stage:
    """A tiny broker with two listeners."""

    def __init__(self, loop, limits, brokers_listener):
        self.broker = TinyBroker(Turn(loop), limits)
        if brokers_listener:
            registry = self.broker.connections
            self.broker.connections = Connections(
                registry.dispatcher.routes,
                self.broker.turn,
                registry.dispatcher.clock,
                limits,
                brokers_listener=brokers_listener,
            )
        self.connections = self.broker.connections
        self.listeners = {name: Listener(name, "127.0.0.1", 0) for name in ("INSIDE", "OUTSIDE")}
        self.acceptors = [
            accept(listener, bind_listener(listener), self.connections)
            for listener in self.listeners.values()
        ]
        self.clients = []

    async def client(self, listener="OUTSIDE"):
        client = await AsyncRawClient.connect(self.listeners[listener].port)
        self.clients.append(client)
        return client

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0)

    def ask(self, client, text="x"):
        client.send(echo(1, text))

    async def answered(self, client):
        self.ask(client)
        await client.receive_frame()

    async def close(self):
        for client in self.clients:
            client.close()
        for acceptor in self.acceptors:
            acceptor.close()
        await self.until(lambda: len(self.connections) == 0)


@pytest.fixture(params=["uvloop", "asyncio"])
def play(request):
    """Runs `story(stage)` on a fresh event loop."""

    def run(story, brokers_listener=None, **limits):
        uvloop = pytest.importorskip("uvloop")
        loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()

        async def act():
            stage = Stage(loop, ConnectionLimits(**limits), brokers_listener)
            async with asyncio.timeout(40):
                await story(stage)
                await stage.close()

        try:
            loop.run_until_complete(act())
        finally:
            loop.close()

    return run


@pytest.mark.parametrize(
    "limits",
    [{"connections_max": 2}, {"connections_max_of_listeners": {"outside": 2, "inside": 0}}],
    ids=["broker", "listener"],
)
def test_clients_over_a_limit_wait_until_there_is_room(play, caplog, limits):
    async def story(stage):
        first, second = await stage.client(), await stage.client()
        for client in (first, second):
            await stage.answered(client)
        waiting = [await stage.client() for _ in range(3)]
        for client in waiting:
            stage.ask(client)
        await stage.answered(first)
        assert len(stage.connections) == 2
        for gone, served in ((first, 0), (second, 1)):
            gone.close()
            await waiting[served].receive_frame()
        assert len(stage.connections) == 2
        # The last one waits still, and is served when the limit is raised.
        stage.connections.limits = ConnectionLimits()
        await waiting[2].receive_frame()

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story, **limits)
    assert "listener OUTSIDE: clients wait" in caplog.text


def test_a_client_that_gives_up_waiting_leaves_its_place_to_the_next(play):
    async def story(stage):
        first = await stage.client()
        await stage.answered(first)
        impatient = await stage.client()
        next_one = await stage.client()
        stage.ask(next_one)
        impatient.close()
        first.close()
        await next_one.receive_frame()

    play(story, connections_max=1)


def test_for_a_broker_the_client_that_was_quiet_longest_has_to_go(play, caplog):
    async def story(stage):
        clients = []
        for number in range(2):
            clients.append(await stage.client())
            await stage.answered(clients[-1])
            newest = max(stage.connections, key=lambda one: one.requests.active_ms)
            newest.requests.active_ms = number + 1
        broker = await stage.client("INSIDE")
        await stage.answered(broker)
        assert await clients[0].read_to_end() == b""
        await stage.answered(clients[1])

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story, "INSIDE", connections_max=2)
    assert "a broker has come" in caplog.text


def test_clients_over_the_rate_are_let_in_later(play):
    async def story(stage):
        clients = [await stage.client() for _ in range(15)]
        began = asyncio.get_running_loop().time()
        for client in clients:
            stage.ask(client)
        for client in clients:
            await client.receive_frame()
        # 10 a second over 1 s at once, and each of the others waits for a tenth at least.
        assert asyncio.get_running_loop().time() - began > 0.35

    play(story, creation_rate_max=10, quota_samples=2)


def test_clients_over_the_rate_of_their_address_are_closed_unread(play):
    async def story(stage):
        stage.connections.admission.address_rates = AddressRates(5.0)
        clients = [await stage.client() for _ in range(9)]
        for client in clients:
            stage.ask(client)
        for client in clients[:5]:
            await client.receive_frame()
        assert len(stage.connections) == 5
        for client in clients[5:]:
            assert await client.read_to_end() == b""
        assert len(stage.connections) == 5

    play(story, quota_samples=2)


def test_what_waits_is_closed_with_the_listener(play):
    async def story(stage):
        first = await stage.client()
        await stage.answered(first)
        parked = await stage.client()
        await stage.answered(first)
        for acceptor in stage.acceptors:
            acceptor.close()
        assert await parked.read_to_end() == b""

    play(story, connections_max=1)


def test_of_many_refused_connections_one_line_is_in_the_log(play, caplog):
    async def story(stage):
        first = await stage.client()
        await stage.answered(first)
        for client in [await stage.client() for _ in range(20)]:
            assert await client.read_to_end() == b""

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story, connections_per_ip_max=1)
    assert caplog.text.count("max.connections.per.ip=1 is reached for 127.0.0.1") == 1
