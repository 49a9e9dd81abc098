"""Limits of connections beside Kafka: who is served, who is closed, and who waits."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.differential.harness import Side, side_of
from compat_tests.differential.test_client_quotas import CONNECTED, alter_quotas, found, quota_entry
from odradek.embedding.embedded import Broker
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.schema import Message

PLACES = 3
RATE = 5
SETTINGS = {
    "listener.name.plaintext.max.connections": str(PLACES),
    "quota.window.num": "2",  # the rate of an address may be used up at once, and again after a second
}
QUESTION = request_frame(ApiVersionsRequest(), 0, 1, "limited")
SECONDS = 20

Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """Kafka first."""
    with (
        reference.Kafka(properties=SETTINGS, host=shared_host()) as kafka,
        Broker(process=True, options=SETTINGS) as ours,
    ):
        yield side_of("kafka", kafka.bootstrap_servers), side_of("odradek", ours.bootstrap_servers)


@pytest.fixture
def clients() -> Iterator[contextlib.ExitStack]:
    """Connections that are closed at the end of a test."""
    with contextlib.ExitStack() as stack:
        yield stack


def connect(side: Side, clients: contextlib.ExitStack) -> socket.socket:
    """A connection with a question."""
    connection = clients.enter_context(socket.create_connection((side.host, side.port), timeout=SECONDS))
    connection.sendall(QUESTION)
    return connection


def is_served(connection: socket.socket) -> bool:
    """Waits for the answer, or for the end of the connection."""
    try:
        return bool(connection.recv(1 << 16))
    except ConnectionError:
        return False


def test_clients_beyond_the_connections_of_a_listener_wait_for_a_place(
    sides: Sides, clients: contextlib.ExitStack
) -> None:
    for side in sides:
        inside = [connect(side, clients) for _ in range(PLACES)]
        assert all(map(is_served, inside)), side.name
        waiting = [connect(side, clients) for _ in range(2)]
        for one in inside:
            one.sendall(QUESTION)
            assert is_served(one)
        for one in waiting:
            one.settimeout(0.2)
            with pytest.raises(TimeoutError):
                one.recv(1)
            one.settimeout(SECONDS)
        for gone, next_one in zip(inside, waiting, strict=False):
            gone.close()
            assert is_served(next_one), side.name
        for one in (*inside, *waiting):
            one.close()


def test_connections_beyond_the_rate_of_their_address_are_closed(
    sides: Sides, clients: contextlib.ExitStack
) -> None:
    for side in sides:
        quota = alter_quotas(quota_entry([("ip", "127.0.0.1")], (CONNECTED, float(RATE))))
        assert [one.error_code for one in side.ask(quota, 1).entries] == [0]
        wait_until(lambda: len(found(side)) == 1, f"{side.name} has the quota")  # noqa: B023
        side.close()
        began = time.monotonic()
        connections = [connect(side, clients) for _ in range(4 * RATE)]
        # Those that are let in have to go, so that the others find a place.
        with ThreadPoolExecutor(len(connections)) as threads:
            answers = list(threads.map(served_and_closed, connections))
        # The connection that has set the quota came before it. Where the last ones come a second later, the
        # rate allows more of them.
        allowed = RATE * (1 + int(time.monotonic() - began))
        assert RATE <= answers.count(True) <= allowed, side.name
        free = alter_quotas(quota_entry([("ip", "127.0.0.1")], (CONNECTED, None)))
        wait_until(lambda: is_done(side, free), f"{side.name} lets clients in again")  # noqa: B023


def is_done(side: Side, request: Message) -> bool:
    """Whether the broker takes the request: it may refuse the connection for a while."""
    try:
        return [one.error_code for one in side.ask(request, 1).entries] == [0]
    except (OSError, EOFError):
        side.close()
        return False


def served_and_closed(connection: socket.socket) -> bool:
    answered = is_served(connection)
    connection.close()
    return answered
