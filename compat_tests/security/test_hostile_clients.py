"""Crowds of clients that mean no good, over each kind of listener: the others are served as before, memory
stays bounded, and whoever does not come to the point is closed.

The broker is a process of its own, so that its memory is its own. The crowds are of 1,000 connections by day
and 10,000 at night. How long another client waits (the 99th percentile of a window, the median of some) is
compared with how long it waits for a broker that nobody attacks, at the same time, and printed.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import resource
import selectors
import socket
import ssl
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

import odradek
from compat_tests.clients import wait_until
from compat_tests.security.certificates import Authority
from odradek.embedding.free_port import free_port
from odradek.server.network.unauthenticated import BYTES_MAX, DEADLINE_MS
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message
from tests.raw_client import RawClient
from tests.tiers import NIGHTLY

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CROWD = 10_000 if NIGHTLY else 1_000
LARGE_CROWD = 10_000 if NIGHTLY else 250
LATER_ONES = 200
"""They hold more than all may; their time is not over when the last of them has come."""
GUESSES_A_SECOND = 1_000
GUESSES_AT_ONCE_MAX, UNDER_WAY_MAX = 4, 1_000
GUESSING_S = 20 if NIGHTLY else 3
SPARE_DESCRIPTORS = 500
MEGABYTE = 1 << 20
FRAME_BYTES = 500_000
USER, PASSWORD = "ann", "pw-of-ann"
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}='{PASSWORD}';"
FAILURE_DELAY_MS = 100
PATIENCE_S = 60.0
WINDOW_S, WINDOWS = 0.5, 3
TIMES_AS_LONG = 5
SHORTEST_S = 0.010
"""Shorter waits than this are of no account, however short those for the other broker are."""
KIB_OF_CONNECTION = {"PLAINTEXT": 16, "SSL": 64, "SASL_PLAINTEXT": 16, "SASL_SSL": 64}


def allow_descriptors(wanted: int) -> None:
    """As many as the system allows, also for the broker that is started afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted:
        pytest.skip(f"{wanted} open files are needed, and ulimit -Hn is {hard}")


@dataclass
class Target:
    """The broker under attack, and its ports by listener."""

    broker: odradek.Broker
    ports: dict[str, int]
    context: ssl.SSLContext

    @property
    def memory_bytes(self) -> int:
        pages = int(pathlib.Path(f"/proc/{self.broker.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def connect(self, listener: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[listener]), PATIENCE_S)

    def sealed(self, listener: str) -> socket.socket:
        """After the handshake of TLS, where the listener has it."""
        plain = self.connect(listener)
        return self.context.wrap_socket(plain, server_hostname="localhost") if "SSL" in listener else plain


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    allow_descriptors(max(CROWD, LARGE_CROWD) + SPARE_DESCRIPTORS)
    authority = Authority(tmp_path_factory.mktemp("authority"))
    ports = {name: free_port() for name in LISTENERS}
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": str(FAILURE_DELAY_MS),
        **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": JAAS for name in LISTENERS[2:]},
        **authority.key_store("PEM", "broker", authority.server()),
    }
    context = ssl.create_default_context(cafile=str(authority.pem))
    with odradek.Broker(process=True, options=options, port=ports["PLAINTEXT"]) as broker:
        yield Target(broker, ports, context)
        assert broker.is_running


# Waiting


class Bystander:
    """A client with one request after the other, to the broker under attack and to one that nobody attacks.

    What the machine takes from both, another test for example, is no difference between the two."""

    def __init__(self, target: Target, control: odradek.Broker) -> None:
        self._clients = [
            RawClient(port, timeout_s=PATIENCE_S) for port in (target.ports["PLAINTEXT"], control.port)
        ]

    def __enter__(self) -> Bystander:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()

    def window_s(self, disturb: Callable[[], object] = lambda: None) -> Window:
        """Its waits in a window, with `disturb` before each request."""
        waits_s: tuple[list[float], list[float]] = ([], [])
        end_s = time.monotonic() + WINDOW_S
        while time.monotonic() < end_s or len(waits_s[0]) < 100:
            for client, waited_s in zip(self._clients, waits_s, strict=True):
                disturb()
                began_s = time.monotonic()
                client.ask(MetadataRequest(topics=[]), 9)
                waited_s.append(time.monotonic() - began_s)
        attacked, alone = (sorted(one)[len(one) * 99 // 100] for one in waits_s)
        return Window(attacked, alone)

    def is_served_as_usual(self, disturb: Callable[[], object] = lambda: None) -> bool:
        return is_usual([self.window_s(disturb) for _ in range(WINDOWS)])


class Window(NamedTuple):
    """The 99th percentiles of the waits of one client, seconds."""

    attacked: float
    alone: float


def is_usual(windows: Sequence[Window]) -> bool:
    """Whether the broker under attack serves a client as the other does. By day other tests run beside this
    one, and what somebody waits says nothing: there it is enough that each request was answered.
    """
    attacked_s = statistics.median(window.attacked for window in windows)
    alone_s = statistics.median(window.alone for window in windows)
    print(f"p99 {attacked_s * 1000:.2f} ms; {alone_s * 1000:.2f} of a broker that nobody attacks")
    return not NIGHTLY or attacked_s < max(TIMES_AS_LONG * alone_s, SHORTEST_S)


@pytest.fixture(scope="module")
def control() -> Iterator[odradek.Broker]:
    with odradek.Broker(process=True) as broker:
        yield broker


@pytest.fixture
def bystander(target: Target, control: odradek.Broker) -> Iterator[Bystander]:
    with Bystander(target, control) as one:
        yield one


# What clients send


def hello() -> bytes:
    """How a client begins with TLS."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def beginning(listener: str) -> bytes:
    """What a client sends first."""
    if "SSL" in listener:
        return hello()
    if "SASL" in listener:
        return handshake()
    return request_frame(MetadataRequest(topics=[]), 9, 1, "crowd")


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request_frame(SaslHandshakeRequest(mechanism=mechanism), version, 1, "crowd")


def token(content: bytes) -> bytes:
    return request_frame(SaslAuthenticateRequest(auth_bytes=content), 2, 2, "crowd")


def is_open(one: socket.socket) -> bool:
    """Whether the broker has not ended the connection, on which it sends nothing."""
    one.setblocking(False)
    try:
        return bool(one.recv(1 << 16))
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            one.settimeout(PATIENCE_S)


REQUESTS: Sequence[type[Message]] = (SaslHandshakeRequest, SaslAuthenticateRequest)


def answers(client: socket.socket, count: int) -> list:  # type: ignore[type-arg]
    """The answers to a handshake and a token."""
    found = []
    for request, version in list(zip(REQUESTS, (1, 2), strict=True))[:count]:
        (size,) = struct.unpack(">i", exactly(client, 4))
        found.append(read_response(exactly(client, size), request, version)[1])
    return found


def exactly(client: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = client.recv(size - len(received))
        assert piece, "the broker has ended the connection"
        received += piece
    return received


# Those who take their time


@dataclass
class Late:
    """A client that never comes to the point. `drips` is what it sends, a byte a second."""

    name: str
    client: socket.socket
    drips: bytes = b""
    sent: int = 0
    since_s: float = field(default_factory=time.monotonic)
    lived_s: float | None = None

    def look(self) -> bool:
        """Whether the broker has ended it."""
        if self.lived_s is None:
            sent = int(time.monotonic() - self.since_s)
            with contextlib.suppress(OSError):
                self.client.sendall(self.drips[self.sent : sent])
            self.sent = max(self.sent, sent)
            if not is_open(self.client):
                self.lived_s = time.monotonic() - self.since_s
        return self.lived_s is not None


def told(client: socket.socket, content: bytes, answer_count: int = 0) -> socket.socket:
    client.sendall(content)
    answers(client, answer_count)
    return client


@pytest.fixture(scope="module", autouse=True)
def late(target: Target) -> Iterator[list[Late]]:
    """Begins with the first test, so that the time of these clients runs while the others do."""
    found = []
    for listener in ("SSL", "SASL_SSL"):
        found += [
            Late(f"{listener}: silent", target.connect(listener)),
            Late(f"{listener}: half a hello", told(target.connect(listener), hello()[:100])),
            Late(f"{listener}: slow", target.connect(listener), hello()),
        ]
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        found += [
            Late(f"{listener}: without a request", target.sealed(listener)),
            Late(f"{listener}: with half a frame", told(target.sealed(listener), handshake()[:9])),
            Late(f"{listener}: with slow frames", target.sealed(listener), handshake()),
            Late(f"{listener}: without a token", told(target.sealed(listener), handshake(), 1)),
        ]
    yield found
    for one in found:
        one.client.close()


# Those who say little


@dataclass
class Crowd:
    """In equal parts: silent, at a byte a second, and with half of what a client sends first."""

    target: Target
    listener: str
    members: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._came_s: list[float] = []
        self._slow: list[socket.socket] = []
        self._sent: dict[socket.socket, int] = {}
        self._next = 0
        self._due_s = time.monotonic()
        self._first = beginning(self.listener)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.members:
            one.close()

    def come(self, count: int) -> None:
        for number in range(count):
            one = self.target.connect(self.listener)
            self.members.append(one)
            self._came_s.append(time.monotonic())
            if number % 3 == 1:
                self._slow.append(one)
                self._sent[one] = 0
            elif number % 3 == 2:
                one.sendall(self._first[: len(self._first) // 2])

    def dribble(self) -> None:
        """The slow ones whose time has come send their next byte."""
        now_s = time.monotonic()
        while self._due_s <= now_s:
            one = self._slow[self._next]
            position = self._sent[one]
            assert position < len(self._first) - 1, "the test is too slow for the frames of slow clients"
            one.sendall(self._first[position : position + 1])
            self._sent[one] = position + 1
            self._next = (self._next + 1) % len(self._slow)
            self._due_s += 1 / len(self._slow)

    def look(self) -> tuple[int, int]:
        """How many are open, of those whose time is not over, and how many these are."""
        opened = young = 0
        for one, came_s in zip(self.members, self._came_s, strict=True):
            was_open = is_open(one)
            if self.listener == "PLAINTEXT" or time.monotonic() - came_s < 0.9 * DEADLINE_MS / 1000:
                young += 1
                opened += was_open
        return opened, young


@pytest.mark.parametrize("listener", LISTENERS)
def test_those_who_say_little_cost_little_and_disturb_nobody(
    listener: str, target: Target, bystander: Bystander
) -> None:
    before = target.memory_bytes
    with Crowd(target, listener) as crowd:
        crowd.come(CROWD)
        assert bystander.is_served_as_usual(crowd.dribble)
        assert target.memory_bytes - before < CROWD * KIB_OF_CONNECTION[listener] * 1024
        opened, young = crowd.look()
        print(f"{opened} of {young} are open whose time is not over; {CROWD} came")
        assert opened == young, "nobody is closed before its time"
        # At night the first ones may have been there too long, but where nobody has a deadline.
        assert young == CROWD or (NIGHTLY and listener != "PLAINTEXT" and young >= CROWD // 4)
    assert bystander.is_served_as_usual()


def test_crowds_that_come_and_go_leave_nothing_behind(target: Target, bystander: Bystander) -> None:
    for listener in LISTENERS:
        with Crowd(target, listener) as crowd:
            crowd.come(CROWD // 10)
    before = target.memory_bytes
    for _ in range(5):
        for listener in LISTENERS:
            with Crowd(target, listener) as crowd:
                crowd.come(CROWD // 10)
    wait_until(lambda: descriptors(target) < 200, "the broker has noticed that all are gone")
    # Memory of one crowd may wait for a collection; that of twenty would be much more.
    waiting_bytes = CROWD // 10 * max(KIB_OF_CONNECTION.values()) * 1024
    assert target.memory_bytes - before < 16 * MEGABYTE + waiting_bytes
    assert bystander.is_served_as_usual()


def descriptors(target: Target) -> int:
    return len(os.listdir(f"/proc/{target.broker.pid}/fd"))


# Those who send much


def send_all_but_the_end(client: socket.socket) -> None:
    """Of a frame as large as it may be. The broker may end the connection meanwhile."""
    with contextlib.suppress(OSError):
        client.sendall(struct.pack(">i", FRAME_BYTES) + bytes(FRAME_BYTES - 1))


@pytest.mark.parametrize("listener", LISTENERS[2:])
def test_all_who_have_not_authenticated_together_hold_a_bounded_memory(
    listener: str, target: Target, bystander: Bystander
) -> None:
    before = target.memory_bytes
    with contextlib.ExitStack() as ending:
        held = []
        for number in range(LARGE_CROWD):
            if number == LARGE_CROWD - LATER_ONES:
                modest = ending.enter_context(target.sealed(listener))
                modest.sendall(handshake()[:-1])
            one = ending.enter_context(target.sealed(listener))
            send_all_but_the_end(one)
            held.append(one)
        assert bystander.is_served_as_usual()
        wait_until(
            lambda: sum(map(is_open, held)) * FRAME_BYTES <= BYTES_MAX, "those who hold most are closed"
        )
        assert sum(map(is_open, held)) * FRAME_BYTES > BYTES_MAX // 2, "not more of them than necessary"
        # The bound, the spare buffers of reads, and what OpenSSL keeps of those that are there.
        assert target.memory_bytes - before < BYTES_MAX + 64 * MEGABYTE
        modest.sendall(handshake()[-1:] + token(f"\0{USER}\0{PASSWORD}".encode()))
        assert answers(modest, 2)[1].error_code == ErrorCode.NONE, "who holds little does not pay"
    assert bystander.is_served_as_usual()


@pytest.mark.parametrize("listener", LISTENERS[:2])
def test_an_incomplete_frame_costs_what_was_sent_of_it(
    listener: str, target: Target, bystander: Bystander
) -> None:
    """Nobody authenticates there, so the bounds are those of all requests and of the number of clients."""
    count = 60
    before = target.memory_bytes
    for _ in range(3):
        with contextlib.ExitStack() as ending:
            for _ in range(count):
                send_all_but_the_end(ending.enter_context(target.sealed(listener)))
            assert bystander.is_served_as_usual()
            grown = target.memory_bytes - before
            assert grown < count * 2 * FRAME_BYTES + 32 * MEGABYTE, "also at the third time"
    with contextlib.ExitStack() as ending:
        before = target.memory_bytes
        for _ in range(count):
            announcing = ending.enter_context(target.sealed(listener))
            announcing.sendall(struct.pack(">i", 90 * MEGABYTE))
        assert bystander.is_served_as_usual()
        assert target.memory_bytes - before < 16 * MEGABYTE, "what is announced costs nothing"


# Those who guess


@dataclass
class Guess:
    """One attempt: `says` are the frames that it sends, each after an answer."""

    says: list[Callable[[bytes], bytes]]
    began_s: float = 0.0
    ended_s: float = 0.0
    received: bytes = b""
    taken: int = 0

    def take(self) -> bytes | None:
        """A whole answer."""
        rest = self.received[self.taken :]
        if len(rest) < 4 or len(rest) < 4 + struct.unpack_from(">i", rest)[0]:
            return None
        size = 4 + struct.unpack_from(">i", rest)[0]
        self.taken += size
        return rest[4:size]

    @property
    def last_code(self) -> int:
        """The error in the last answer, which is one to SaslAuthenticate."""
        position, last = 0, b""
        while position < len(self.received):
            (size,) = struct.unpack_from(">i", self.received, position)
            last = self.received[position + 4 : position + 4 + size]
            position += 4 + size
        return read_response(last, SaslAuthenticateRequest, 2)[1].error_code


def plain_guess(number: int) -> Guess:
    return Guess([lambda _: handshake(), lambda _: token(f"\0{USER}\0wrong-{number}".encode())])


def scram_guess(number: int) -> Guess:
    """A proof of the right size, of no password: the client's computation is not part of the test."""

    def final(answer: bytes) -> bytes:
        challenge = bytes(read_response(answer, SaslAuthenticateRequest, 2)[1].auth_bytes)
        nonce = challenge.split(b",")[0]
        proof = base64.b64encode(struct.pack(">q", number) * 4)
        return token(b"c=biws," + nonce + b",p=" + proof)

    first = f"n,,n={USER},r=nonce{number}".encode()
    return Guess([lambda _: handshake("SCRAM-SHA-256"), lambda _: token(first), final])


class Guessing:
    """So many attempts a second, or as many as the machine brings; each on a connection of its own."""

    def __init__(self, target: Target) -> None:
        self._port = target.ports["SASL_PLAINTEXT"]
        self._selector = selectors.DefaultSelector()
        self._due_s = time.monotonic()
        self._begun = 0
        self.done: list[Guess] = []

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    @property
    def under_way(self) -> int:
        return len(self._selector.get_map())

    def go_on(self) -> None:
        """What is due now. Arrears of a machine that is busy are not made up for."""
        now_s = time.monotonic()
        for _ in range(GUESSES_AT_ONCE_MAX):
            if self._due_s <= now_s and self.under_way < UNDER_WAY_MAX:
                self._begin()
                self._due_s += 1 / GUESSES_A_SECOND
        self._due_s = max(self._due_s, now_s)
        self.listen(0)

    def listen(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            self._hear(key.fileobj, key.data)  # type: ignore[arg-type]

    def _begin(self) -> None:
        self._begun += 1
        guess = (plain_guess if self._begun % 2 else scram_guess)(self._begun)
        guess.began_s = time.monotonic()
        one = socket.socket()
        # From many addresses: an attacker has them, and each has a bounded number of ports.
        one.bind((f"127.0.0.{2 + self._begun % 200}", 0))
        one.connect(("127.0.0.1", self._port))
        one.sendall(guess.says.pop(0)(b""))
        self._selector.register(one, selectors.EVENT_READ, guess)

    def _hear(self, one: socket.socket, guess: Guess) -> None:
        try:
            piece = one.recv(65_536)
        except ConnectionResetError:
            piece = b""
        guess.received += piece
        if piece:
            answer = guess.take()
            if answer is not None and guess.says:
                one.sendall(guess.says.pop(0)(answer))
            return
        guess.ended_s = time.monotonic()
        self.done.append(guess)
        self._selector.unregister(one)
        one.close()


def test_a_thousand_wrong_passwords_a_second_hold_up_neither_loop_nor_memory(
    target: Target, bystander: Bystander
) -> None:
    with contextlib.closing(Guessing(target)) as guessing:
        end_s = time.monotonic() + 1
        while time.monotonic() < end_s:
            guessing.go_on()
        before = target.memory_bytes
        end_s = time.monotonic() + GUESSING_S
        windows = []
        while time.monotonic() < end_s:
            windows.append(bystander.window_s(guessing.go_on))
        assert is_usual(windows)
        assert target.memory_bytes - before < 16 * MEGABYTE
        deadline_s = time.monotonic() + PATIENCE_S
        while guessing.under_way and time.monotonic() < deadline_s:
            guessing.listen(0.1)
        assert guessing.under_way == 0
    guesses_a_second = len(guessing.done) / (guessing.done[-1].ended_s - guessing.done[0].began_s)
    print(f"{guesses_a_second:.0f} guesses a second")
    assert guesses_a_second > GUESSES_A_SECOND / 10, "there were not many"
    assert {guess.last_code for guess in guessing.done} == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    # The event loop counts from the beginning of its turn, in whole milliseconds.
    shortest_s = min(guess.ended_s - guess.began_s for guess in guessing.done)
    assert shortest_s > 0.8 * FAILURE_DELAY_MS / 1000
    assert bystander.is_served_as_usual()


# The end of those who take their time


def test_whoever_does_not_come_to_the_point_is_closed_after_its_time(late: list[Late]) -> None:
    wait_until(
        lambda: all(list(map(Late.look, late))),
        "all of them are closed",
        seconds=DEADLINE_MS / 1000 + PATIENCE_S,
    )
    assert {one.name: one.lived_s for one in late if (one.lived_s or 0) < DEADLINE_MS / 1000 * 0.9} == {}
