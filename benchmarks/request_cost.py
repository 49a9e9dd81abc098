"""What a request costs a broker, by what it has configured.

CPU time of the broker's process: other work on the machine disturbs it less than it would a clock. All
brokers run at once and are asked in turn; the best round of each counts. The brokers differ in one thing
only.
"""

from __future__ import annotations

import pathlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import odradek
from benchmarks.figures import Figure
from benchmarks.group_load import wait_for_coordinator
from benchmarks.run import Run
from benchmarks.wire_client import WireClient, produce_request
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.wire.records import Record, build_batch
from odradek.wire.schema import Message

CONNECTIONS = 50
TOPIC, GROUP = "measured", "measured-group"
RECORD_BYTES = 100
REQUESTS, REQUESTS_WHEN_QUICK = 20_000, 200
"""Of one round of one broker."""
WARM_SHARE = 10
"""A tenth of them before the first round."""
SESSION_MS = 1_800_000
PRODUCE_VERSION, FETCH_VERSION, HEARTBEAT_VERSION, JOIN_VERSION, SYNC_VERSION = 9, 12, 4, 5, 5
ANONYMOUS = "User:ANONYMOUS"
USER, PASSWORD = "measured", "password-of-the-benchmark"
TOPIC_TYPE, GROUP_TYPE, LITERAL, ALL, READ, WRITE, ALLOW = 2, 3, 3, 2, 3, 4, 3
ACLS_IN_A_REQUEST = 500
NEVER_BITES = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e9}


@dataclass(frozen=True)
class Setup:
    """What one broker has configured."""

    options: Mapping[str, str] = field(default_factory=dict)
    acls: int = 0
    """How many, most of them of others; 0: no authorizer."""
    has_quota: bool = False
    logs_in: bool = False


class Child:
    """A broker of its own, with the topic, a record in it, and one group with a member."""

    def __init__(self, setup: Setup, directory: pathlib.Path, few: bool) -> None:
        self._setup = setup
        more = {"super.users": ANONYMOUS} if setup.acls else {}
        self._broker = self._started(directory, more)
        try:
            with self.connect() as client:
                client.create_topics([TOPIC], 1, {"retention.ms": "-1"})
                client.produce([TOPIC], record())
                if setup.acls:
                    add_acls(client, min(setup.acls, 100) if few else setup.acls)
                if setup.has_quota:
                    add_quota(client)
            # Super users are asked for no ACL. All start again, so that all have the same logs.
            self._broker.stop()
            self._broker = self._started(directory, {})
            with self.connect() as client:
                self.member = join(client)
        except BaseException:
            self.close()
            raise

    def _started(self, directory: pathlib.Path, more: Mapping[str, str]) -> odradek.Broker:
        options = {**self._setup.options, **more}
        return odradek.Broker(process=True, data_dir=directory, options=options, start_timeout_s=120).start()

    def connect(self) -> WireClient:
        client = WireClient("127.0.0.1", self._broker.port)
        if self._setup.logs_in:
            assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            token = f"\0{USER}\0{PASSWORD}".encode()
            assert client.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
        return client

    @property
    def broker(self) -> odradek.Broker:
        return self._broker

    @property
    def port(self) -> int:
        return self._broker.port

    @property
    def cpu_s(self) -> float:
        """User and system time of the process; see clock_getcpuclockid of libc."""
        assert self._broker.pid is not None
        return time.clock_gettime((~self._broker.pid << 3) | 2)

    def close(self) -> None:
        self._broker.close()


def record() -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, None, bytes(RECORD_BYTES))]))


def add_acls(client: WireClient, count: int) -> None:
    """Those that let the client in, and as many of others that there are `count`."""
    own = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=LITERAL,
            principal=ANONYMOUS,
            host="*",
            operation=ALL,
            permission_type=ALLOW,
        )
        for kind, name in ((TOPIC_TYPE, TOPIC), (GROUP_TYPE, GROUP))
    ]
    others = [
        AclCreation(
            resource_type=TOPIC_TYPE,
            resource_name=f"topic-{number}",
            resource_pattern_type=LITERAL,
            principal=f"User:user-{number % 100}",
            host="*",
            operation=READ if number % 2 else WRITE,
            permission_type=ALLOW,
        )
        for number in range(count - len(own))
    ]
    creations = own + others
    for start in range(0, len(creations), ACLS_IN_A_REQUEST):
        answer = client.call(CreateAclsRequest(creations=creations[start : start + ACLS_IN_A_REQUEST]), 3)
        assert all(one.error_code == 0 for one in answer.results), answer


def add_quota(client: WireClient) -> None:
    """For every user."""
    changes = [OpData(key=key, value=value, remove=False) for key, value in NEVER_BITES.items()]
    entry = EntryData(entity=[EntityData(entity_type="user", entity_name=None)], ops=changes)
    (answer,) = client.call(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1).entries
    assert answer.error_code == 0, answer


def join(client: WireClient) -> HeartbeatRequest:
    """The heartbeat of a member that stays for half an hour."""
    wait_for_coordinator(client, GROUP)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=1000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    request.member_id = client.call(request, JOIN_VERSION).member_id
    joined = client.call(request, JOIN_VERSION)
    assert joined.error_code == 0, joined
    assignment = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")]
    synchronised = client.call(
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignment,
        ),
        SYNC_VERSION,
    )
    assert synchronised.error_code == 0, synchronised
    return HeartbeatRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id)


# The requests


def produced(child: Child) -> tuple[Message, int]:
    return produce_request([TOPIC], record(), (0,)), PRODUCE_VERSION


def beaten(child: Child) -> tuple[Message, int]:
    return child.member, HEARTBEAT_VERSION


def fetched(child: Child) -> tuple[Message, int]:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
    )
    return request, FETCH_VERSION


CASES: dict[str, Callable[[Child], tuple[Message, int]]] = {
    "fetch of one record": fetched,
    "heartbeat": beaten,
    "one-record produce": produced,
}


class Asker:
    """Connections to one broker, each with one request in flight."""

    def __init__(self, child: Child, request: Message, version: int, ending: ExitStack) -> None:
        self.child = child
        self._frame = request_frame(request, version, 1, "benchmark")
        self._sockets: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            client = ending.enter_context(child.connect())
            self._sockets.append(client.connection)
        check(self._ask(self._sockets[0]), request, version)

    def _ask(self, one: socket.socket) -> bytes:
        one.sendall(self._frame)
        return answer_of(one)

    def cpu_us(self, requests: int) -> float:
        """CPU microseconds of the broker for each of so many requests."""
        rounds = max(requests // CONNECTIONS, 1)
        began_s = self.child.cpu_s
        for _ in range(rounds):
            for one in self._sockets:
                one.sendall(self._frame)
            for one in self._sockets:
                answer_of(one)
        return (self.child.cpu_s - began_s) / (rounds * CONNECTIONS) * 1e6


def answer_of(one: socket.socket) -> bytes:
    """An answer, without its size. Nothing else is under way on the connection."""
    received = one.recv(65_536)
    while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
        piece = one.recv(65_536)
        if not piece:
            raise ConnectionError("the broker closed the connection")
        received += piece
    return received[4:]


def check(frame: bytes, request: Message, version: int) -> None:
    _, answer = read_response(frame, type(request), version)
    assert all(code == 0 for code in codes_of(answer)), answer


def codes_of(answer: Any) -> Iterator[int]:
    if isinstance(answer, ProduceResponse):
        yield from (one.error_code for topic in answer.responses for one in topic.partition_responses)
        return
    yield answer.error_code
    for topic in getattr(answer, "responses", ()):
        for one in topic.partitions:
            yield one.error_code
            assert one.records, "a record is there"


@contextmanager
def children(run: Run, setups: Mapping[str, Setup]) -> Iterator[dict[str, Child]]:
    """All brokers by the names of their set-ups. They have one core, and who asks them the other."""
    with ExitStack() as ending:
        started = {}
        with run.on_core(run.cores.server):
            for name, setup in setups.items():
                folder = ending.enter_context(run.folder("request-cost"))
                started[name] = Child(setup, folder / "data", run.is_quick)
                ending.callback(started[name].close)
        with run.on_core(run.cores.load):
            yield started


Costs = Mapping[str, Mapping[str, float]]
"""CPU microseconds of one request, by the case and by what is configured."""


def cost_figures(found: Sequence[Costs], plain: str, share_max: float) -> Iterator[Figure]:
    """Of each case what it costs the broker `plain`, and the others as shares of that: medians of what was
    found with different processes.
    """
    for case in CASES:
        yield Figure.median(f"{case}: {plain}", [costs[case][plain] for costs in found], "us")
        for name in found[0][case]:
            if name != plain:
                shares = [costs[case][name] / costs[case][plain] for costs in found]
                yield Figure.median(f"{case}: {name}", shares, "times", share_max)


def measured_costs(run: Run, started: Mapping[str, Child], rounds: int) -> Costs:
    """The best of the rounds."""
    return {case: _costs(run, started, case, rounds) for case in CASES}


def _costs(run: Run, started: Mapping[str, Child], case: str, rounds: int) -> dict[str, float]:
    requests = run.choose(REQUESTS, REQUESTS_WHEN_QUICK)
    found: dict[str, list[float]] = {name: [] for name in started}
    with ExitStack() as ending:
        askers = {name: Asker(child, *CASES[case](child), ending) for name, child in started.items()}
        for asker in askers.values():
            asker.cpu_us(requests // WARM_SHARE)
        order = list(askers)
        for _ in range(run.choose(rounds, 1)):
            for name in order:
                found[name].append(askers[name].cpu_us(requests))
            order.reverse()
    # A quick round can be shorter than what the clock of a process tells.
    return {name: max(min(values), 0.01) for name, values in found.items()}
