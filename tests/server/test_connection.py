"""One connection over a real socket, with a tiny list of APIs of our own, on uvloop and on plain asyncio."""

import asyncio
import importlib
import logging
import os
import socket
import struct
import threading

import pytest

from odradek.apis.api import LatePart, Waiting
from odradek.apis.turn import COMMITTED
from odradek.server.background.work import WorkQueue
from odradek.server.network import _pipeline, paced_writing
from odradek.server.network._clock import Clock
from odradek.server.network._pipeline import BUFFER_BYTES, Turn
from odradek.server.network.connections import ConnectionLimits, Connections, counts_by_address
from odradek.server.network.listeners import Listener, accept, bind_listener
from odradek.server.network.routes import Routes
from odradek.server.network.timers import Timers, wall_clock_ms
from odradek.wire.errors import MalformedMessage
from odradek.wire.schema import ALL, INT32, RECORDS, STRING, Message, on_wire
from tests.raw_client import AsyncRawClient
from tests.wired import served

# CI's environment has it; elsewhere a Python may be without.
uvloop = importlib.import_module("uvloop") if os.environ.get("CI") else pytest.importorskip("uvloop")

STAGE, ECHO, ALONE, VERSIONS = 0, 1, 2, 18


class StageRequest(Message, api_key=STAGE, versions=(0, 1), flexible_since=1):
    records: bytes | None = on_wire(RECORDS, nullable=ALL)


class StageResponse(Message, api_key=STAGE, versions=(0, 1), flexible_since=1):
    position: int = on_wire(INT32)


class EchoRequest(Message, api_key=ECHO, versions=(0, 1), flexible_since=1):
    text: str = on_wire(STRING)


class EchoResponse(Message, api_key=ECHO, versions=(0, 1), flexible_since=1):
    text: str = on_wire(STRING)
    records: bytes | None = on_wire(RECORDS, nullable=ALL)


TOGETHER = (StageRequest, EchoRequest)
"""What may be under way at the same time; ALONE is an echo that may not."""


class Pieces:
    """Like a storage slice: has a length and hands out buffers."""

    def __init__(self, *pieces):
        self.pieces = pieces

    def __len__(self):
        return sum(map(len, self.pieces))

    def buffers(self):
        return [memoryview(piece) for piece in self.pieces]


class FakePartition:
    """Keeps views of what is staged until the commit, as a real one does."""

    def __init__(self):
        self.staged, self.log, self.commits, self.flushes = [], [], 0, 0

    def commit(self):
        self.commits += 1
        self.log += [bytes(view) for view in self.staged]
        self.staged = []

    def flush(self):
        self.flushes += 1


class Work(Waiting):
    """An answer that comes when work of ours has come to its end."""

    holds_back = True


class TinyBroker:
    """The connection's surroundings, and handlers that do what their request says."""

    def __init__(self, turn, limits):
        self.partition, self.waiting, self.contexts = FakePartition(), {}, []
        self.cancelled, self.big = [], Pieces()
        self.turn = turn
        apis = {
            STAGE: served(StageRequest, StageResponse, self.stage, overlaps=TOGETHER),
            ECHO: served(EchoRequest, EchoResponse, self.echo, overlaps=TOGETHER),
            ALONE: served(EchoRequest, EchoResponse, self.echo),
            VERSIONS: served(EchoRequest, EchoResponse, self.echo),
        }
        self.connections = Connections(Routes(apis), turn, Clock(), limits)

    def stage(self, request, context):
        position = len(self.partition.staged) + len(self.partition.log)
        self.partition.staged.append(request.records)
        waiting = Waiting()
        self.turn.add(
            self.partition, lambda error: waiting.complete(StageResponse(position=position)), COMMITTED
        )
        return waiting

    def echo(self, request, context):
        self.contexts.append(context)
        verb, _, rest = request.text.partition(" ")
        if verb == "wait":
            waiting = self.waiting[rest] = Waiting(lambda: self.cancelled.append(rest))
            return waiting
        if verb == "work":
            waiting = self.waiting[rest] = Work(lambda: self.cancelled.append(rest))
            return waiting
        if verb == "none":
            return None
        if verb == "log":
            return EchoResponse(text=b" ".join(self.partition.log).decode())
        if verb == "bug":
            raise RuntimeError("a bug")
        if verb == "malformed":
            raise MalformedMessage("as asked")
        return EchoResponse(text=request.text, records=self.big if verb == "big" else None)


def frame(api_key, version, correlation_id, body, client_id=b"tests", tagged=None):
    head = struct.pack(">hhih", api_key, version, correlation_id, -1 if client_id is None else len(client_id))
    tags = (b"\0" if tagged is None else tagged) if version >= 1 else b""
    payload = head + (client_id or b"") + tags + body
    return struct.pack(">i", len(payload)) + payload


def echo(correlation_id, text, version=0, api_key=ECHO, **more):
    raw = text.encode()
    if version == 0:
        return frame(api_key, 0, correlation_id, struct.pack(">h", len(raw)) + raw, **more)
    assert len(raw) < 127
    return frame(api_key, 1, correlation_id, bytes([len(raw) + 1]) + raw + b"\0", **more)


def alone(correlation_id, text):
    return echo(correlation_id, text, api_key=ALONE)


def stage(correlation_id, records):
    return frame(STAGE, 0, correlation_id, struct.pack(">i", len(records)) + records)


class Client(AsyncRawClient):
    async def answer(self):
        """(correlation id, rest of the answer)"""
        payload = await self.receive_frame()
        return struct.unpack_from(">i", payload)[0], payload[4:]

    async def is_closed(self):
        return await self.read_to_end() == b""


class Stage:
    """A tiny broker that listens, and its clients."""

    def __init__(self, loop, limits):
        self.loop = loop
        self.turn = Turn(loop)
        self.broker = TinyBroker(self.turn, limits)
        self.listener = Listener("PLAINTEXT", "127.0.0.1", 0)
        self.clients, self.servers = [], []

    async def open(self):
        sockets = bind_listener(self.listener)
        self.servers = [accept(self.listener, sockets, self.broker.connections)]

    async def client(self):
        client = await Client.connect(self.listener.port)
        self.clients.append(client)
        return client

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)

    async def close(self):
        for client in self.clients:
            client.writer.transport.abort()
        for server in self.servers:
            server.close()
        await self.until(lambda: len(self.broker.connections) == 0)


@pytest.fixture(params=["uvloop", "asyncio"])
def play(request):
    """Runs `story(stage)` on a fresh event loop."""

    def run(story, **limits):
        loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()

        async def act():
            stage_ = Stage(loop, ConnectionLimits(**limits))
            await stage_.open()
            async with asyncio.timeout(30):
                await story(stage_)
            await stage_.close()

        try:
            loop.run_until_complete(act())
        finally:
            loop.close()

    return run


def test_a_request_is_answered_and_the_handler_sees_its_surroundings(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(echo(7, "hello"))
        assert await client.answer() == (7, struct.pack(">h", 5) + b"hello" + b"\xff\xff\xff\xff")
        context = stage_.broker.contexts[0]
        assert (context.api_key, context.api_version, context.client_id) == (ECHO, 0, "tests")
        seen = context.connection
        assert (seen.peer_host, seen.local_host) == ("127.0.0.1", "127.0.0.1")
        assert seen.local_port == stage_.listener.port
        # Self-addressing: nothing is advertised, so the dialled address is.
        assert (seen.advertised_host, seen.advertised_port) == ("127.0.0.1", stage_.listener.port)
        assert (seen.listener_name, seen.principal) == ("PLAINTEXT", "User:ANONYMOUS")

    play(story)


def test_an_advertised_address_is_what_handlers_see(play):
    async def story(stage_):
        stage_.listener.advertised = ("kafka.example", 1234)
        client = await stage_.client()
        client.send(echo(1, "x"))
        await client.answer()
        seen = stage_.broker.contexts[0].connection
        assert (seen.advertised_host, seen.advertised_port) == ("kafka.example", 1234)

    play(story)


def test_headers_of_all_forms_are_read(play):
    async def story(stage_):
        client = await stage_.client()
        two_tags = b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"
        client.send(
            echo(1, "a", client_id=None),
            echo(2, "b", client_id=b""),
            echo(3, "c", version=1),
            echo(4, "d", version=1, tagged=two_tags, client_id="Käfer".encode()),
        )
        answers = [await client.answer() for _ in range(4)]
        assert [correlation_id for correlation_id, _ in answers] == [1, 2, 3, 4]
        # A flexible answer has a header with tags of its own.
        assert answers[2][1] == b"\x00" + b"\x02c" + b"\x00" + b"\x00"
        assert [c.client_id for c in stage_.broker.contexts] == [None, "", "tests", "Käfer"]

    play(story)


def test_api_versions_answers_have_no_tagged_header(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(frame(VERSIONS, 1, 5, b"\x02v\x00"))
        assert await client.answer() == (5, b"\x02v\x00\x00")

    play(story)


def test_api_versions_of_an_unknown_version_gets_the_range_in_version_0(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(frame(VERSIONS, 99, 5, b"\x01\x01\x00"), echo(6, "still here"))
        assert await client.answer() == (5, struct.pack(">hihhh", 35, 1, 18, 0, 1))
        assert (await client.answer())[0] == 6

    play(story)


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        (frame(77, 0, 1, b""), "API key 77 version 0 is not served"),
        (frame(ECHO, 2, 1, b""), "API key 1 version 2 is not served"),
        (frame(ECHO, -1, 1, b""), "API key 1 version -1 is not served"),
        (struct.pack(">i", -1) + bytes(10), "length of -1"),
        (struct.pack(">i", 3) + bytes(11), "length of 3"),
        (struct.pack(">i", 2001), "over socket.request.max.bytes=2000"),
        (b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "looks like TLS"),
        (echo(1, "malformed"), "malformed EchoRequest v0: as asked"),
        (echo(1, "bug"), "internal error in EchoRequest v0"),
        (frame(ECHO, 0, 1, b"\x7f\xffabc"), "malformed EchoRequest v0"),
        (struct.pack(">ihhih", 10, ECHO, 0, 1, 999), "client id is longer"),
        (frame(ECHO, 1, 1, b"", tagged=b"\xff\xff\xff\xff\xff\xff"), "tagged fields"),
        (frame(ECHO, 1, 1, b"", tagged=b"\x01\x00\x7f"), "tagged field"),
    ],
)
def test_what_cannot_be_answered_closes_the_connection_with_one_line(play, caplog, bytes_sent, reason):
    async def story(stage_):
        client, other = await stage_.client(), await stage_.client()
        client.send(echo(1, "before"), bytes_sent)
        assert (await client.answer())[0] == 1
        assert await client.is_closed()
        other.send(echo(2, "another client"))
        assert (await other.answer())[0] == 2

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story, request_bytes_max=2000)
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(lines) == 1
    assert reason in lines[0]


def test_answers_before_a_bad_frame_are_sent_even_when_they_were_waited_for(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(echo(1, "wait a"), echo(2, "ready"), struct.pack(">i", -5))
        await stage_.until(lambda: "a" in stage_.broker.waiting)
        stage_.broker.waiting["a"].complete(connection_response("late"))
        assert (await client.answer())[0] == 1
        assert (await client.answer())[0] == 2
        assert await client.is_closed()

    play(story)


def connection_response(text):
    return EchoResponse(text=text)


def test_answers_leave_in_the_order_of_the_requests(play):
    async def story(stage_):
        client, waiting = await stage_.client(), stage_.broker.waiting
        client.send(echo(1, "wait a"), echo(2, "ready"), echo(3, "wait b"), echo(4, "none"), echo(5, "ready"))
        await stage_.until(lambda: "b" in waiting)
        waiting["b"].complete(connection_response("b"))
        waiting["b"].complete(connection_response("twice is once"))
        waiting["a"].complete(connection_response("a"))
        assert [(await client.answer())[0] for _ in range(4)] == [1, 2, 3, 5]
        client.send(echo(6, "wait c"), echo(7, "ready"))
        await stage_.until(lambda: "c" in waiting)
        waiting["c"].complete(None)
        assert (await client.answer())[0] == 7

    play(story)


async def begun(stage_, number):
    """The texts of the requests that have begun, when there has been time for more than `number` of them."""
    await stage_.until(lambda: len(stage_.broker.contexts) >= number)
    for _ in range(20):
        await asyncio.sleep(0)
    return [context.correlation_id for context in stage_.broker.contexts]


@pytest.mark.parametrize("earlier", [[alone(1, "wait a")], [echo(1, "wait a")], [echo(1, "work a")]])
def test_a_request_begins_when_those_before_it_are_answered(play, earlier):
    async def story(stage_):
        client = await stage_.client()
        client.send(*earlier, alone(2, "x"), alone(3, "y"))
        assert await begun(stage_, 1) == [1]
        stage_.broker.waiting["a"].complete(connection_response("a"))
        assert [(await client.answer())[0] for _ in range(3)] == [1, 2, 3]
        assert await begun(stage_, 3) == [1, 2, 3]

    play(story)


def test_a_request_begins_when_what_was_staged_before_it_is_committed(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(stage(1, b"a"), stage(2, b"b"), alone(3, "log"), stage(4, b"c"), alone(5, "log"))
        told = [await client.answer() for _ in range(5)]
        assert [number for number, _ in told] == [1, 2, 3, 4, 5]
        assert [rest[2:-4] for _, rest in told if len(rest) > 4] == [b"a b", b"a b c"]
        assert stage_.broker.partition.commits == 2

    play(story)


def test_requests_that_may_overlap_begin_together_and_all_of_them_hold_back_the_rest(play):
    async def story(stage_):
        client, waiting = await stage_.client(), stage_.broker.waiting
        client.send(echo(1, "wait a"), echo(2, "wait b"), alone(3, "x"), echo(4, "y"))
        assert await begun(stage_, 2) == [1, 2]
        waiting["a"].complete(connection_response("a"))
        assert (await client.answer())[0] == 1
        assert await begun(stage_, 2) == [1, 2]
        waiting["b"].complete(connection_response("b"))
        assert [(await client.answer())[0] for _ in range(3)] == [2, 3, 4]

    play(story)


def test_behind_work_begins_nothing_whatever_may_overlap_its_api(play):
    async def story(stage_):
        client, waiting = await stage_.client(), stage_.broker.waiting
        client.send(echo(1, "wait a"), echo(2, "work b"), echo(3, "x"))
        assert await begun(stage_, 2) == [1, 2]
        waiting["b"].complete(connection_response("b"))
        assert await begun(stage_, 2) == [1, 2], "the first one was not answered"
        waiting["a"].complete(connection_response("a"))
        assert [(await client.answer())[0] for _ in range(3)] == [1, 2, 3]

    play(story)


def test_a_request_without_an_answer_holds_back_what_comes_after_it_until_it_is_done(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(alone(1, "wait a"), alone(2, "x"))
        assert await begun(stage_, 1) == [1]
        stage_.broker.waiting["a"].complete(None)
        assert (await client.answer())[0] == 2

    play(story)


def test_what_a_client_sent_before_it_left_is_served_though_it_had_to_wait(play):
    async def story(stage_):
        client, other = await stage_.client(), await stage_.client()
        client.send(alone(1, "wait a"), alone(2, "none"), alone(3, "none"))
        client.writer.close()
        await client.writer.wait_closed()
        assert await begun(stage_, 1) == [1]
        other.send(alone(9, "meanwhile"))
        assert (await other.answer())[0] == 9
        stage_.broker.waiting["a"].complete(None)
        assert await begun(stage_, 4) == [1, 9, 2, 3]
        await stage_.until(lambda: len(stage_.broker.connections) == 1)

    play(story)


def test_who_sends_more_behind_a_long_poll_goes_with_the_idle_time_but_not_behind_work(play, caplog):
    """Nothing is read meanwhile, so its end would not be seen for as long as the poll lasts."""

    async def story(stage_):
        polling, patient, working = [await stage_.client() for _ in range(3)]
        polling.send(alone(1, "wait polling"), alone(2, "x"))
        patient.send(alone(1, "wait patient"))
        working.send(alone(1, "work working"), alone(2, "x"))
        await begun(stage_, 3)
        now_ms = wall_clock_ms() + 1000
        stage_.broker.connections.sweep(now_ms, now_ms)
        assert await polling.is_closed()
        assert stage_.broker.cancelled == ["polling"]
        for text, client in (("patient", patient), ("working", working)):
            stage_.broker.waiting[text].complete(connection_response("done"))
            assert (await client.answer())[0] == 1

    play(story, idle_ms_max=900)


def test_a_broker_whose_clock_is_moved_closes_nobody_as_idle(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(echo(1, "a"))
        assert (await client.answer())[0] == 1
        connections = stage_.broker.connections
        connections.dispatcher.clock.move(86_400_000 * 1_000_000)
        connections.clock_moved(86_400_000)
        now_ms = connections.dispatcher.now_ms()
        connections.sweep(now_ms, now_ms)
        client.send(echo(2, "b"))
        assert (await client.answer())[0] == 2
        connections.sweep(now_ms + 60_000, now_ms)
        assert await client.is_closed()

    play(story, idle_ms_max=30_000)


def test_a_peer_that_leaves_cancels_what_it_waited_for(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(echo(1, "wait a"), echo(2, "wait b"))
        await stage_.until(lambda: "b" in stage_.broker.waiting)
        client.writer.close()
        await stage_.until(lambda: stage_.broker.cancelled == ["a", "b"])
        stage_.broker.waiting["a"].complete(connection_response("too late is harmless"))

    play(story)


def test_frames_may_arrive_byte_by_byte(play):
    async def story(stage_):
        client = await stage_.client()
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in echo(1, "slow") + echo(2, "slower"):
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert [(await client.answer())[0] for _ in range(2)] == [1, 2]

    play(story)


def test_staged_records_are_untouched_until_their_commit(play):
    """Many small and large frames in one stream; the fake partition reads its views only at the commit."""

    async def story(stage_):
        client = await stage_.client()
        sizes = [10, 900, 3000, 5, 4096, 70_000, 1, 1_000_000, 200, 1_000_000, 1_000_000, 3_000_000, 17]
        sent = []
        for turn in range(6):
            for number, size in enumerate(sizes):
                sent.append(bytes([65 + (turn * 13 + number) % 60]) * size)
        client.send(*(stage(number, records) for number, records in enumerate(sent)))
        for number in range(len(sent)):
            assert await client.answer() == (number, struct.pack(">i", number))
        assert stage_.broker.partition.log == sent

    play(story)


def test_bytes_that_arrive_before_the_commit_do_not_overwrite_what_is_staged(play):
    """Drives the protocol by hand, so that two reads fall into one turn of the loop."""

    async def story(stage_):
        client = await stage_.client()
        client.send(echo(1, "x"))
        await client.answer()
        connection = stage_.broker.contexts[0].connection
        stage_.turn.add(FakePartition(), lambda error: None, COMMITTED)  # it shares the turn
        for records in (b"a" * 1000, b"b" * 3000, b"c" * 60_000, b"d" * 60_000, b"e" * 100):
            unsent = memoryview(stage(1, records))
            while unsent:
                room = connection.get_buffer(-1)
                size = min(len(room), len(unsent))
                room[:size] = unsent[:size]
                unsent = unsent[size:]
                connection.buffer_updated(size)
        assert stage_.broker.partition.commits == 0
        assert len(stage_.broker.partition.staged) == 5
        for _ in range(5):
            await client.answer()
        assert [(log[:1], len(log)) for log in stage_.broker.partition.log] == [
            (b"a", 1000),
            (b"b", 3000),
            (b"c", 60_000),
            (b"d", 60_000),
            (b"e", 100),
        ]
        assert stage_.broker.partition.commits == 1

    play(story)


def test_a_lying_length_costs_only_what_was_sent(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(echo(1, "x"))
        await client.answer()
        connection = stage_.broker.contexts[0].connection
        client.send(struct.pack(">i", 100_000_000) + bytes(6000))
        await stage_.until(lambda: connection.unserved_bytes == 6004)
        assert connection.receive_buffer_bytes <= 8 * BUFFER_BYTES

    play(story)


def test_a_client_that_leaves_in_the_middle_of_a_frame_leaves_no_buffer_behind(play):
    """Also as long as nothing collects the objects of its connection."""

    async def story(stage_):
        client = await stage_.client()
        client.send(echo(1, "x"))
        await client.answer()
        connection = stage_.broker.contexts[0].connection
        client.send(struct.pack(">i", 1_000_000) + bytes(500_000))
        await stage_.until(lambda: connection.unserved_bytes == 500_004)
        assert connection.receive_buffer_bytes > 500_000
        client.close()
        await stage_.until(lambda: connection.receive_buffer_bytes == 0)

    play(story)


def test_a_large_buffer_is_given_back(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(stage(1, bytes(5_000_000)), echo(2, "x"))
        await client.answer()
        await client.answer()
        connection = stage_.broker.contexts[0].connection
        client.send(echo(3, "x"))
        await client.answer()
        assert connection.receive_buffer_bytes == BUFFER_BYTES
        client.send(stage(4, bytes(500_000)))
        await client.answer()
        assert connection.receive_buffer_bytes > 500_000
        now_ms = wall_clock_ms()
        stage_.broker.connections.sweep(now_ms, now_ms + 1000)
        assert connection.receive_buffer_bytes == BUFFER_BYTES
        client.send(echo(5, "x"))
        assert (await client.answer())[0] == 5

    play(story)


def test_slices_go_out_whole_and_in_order(play):
    async def story(stage_):
        stage_.broker.big = Pieces(b"1" * 300_000, b"2" * 10, b"3" * 300_000)
        client = await stage_.client()
        client.send(echo(1, "big"), echo(2, "small"), echo(3, "big"))
        for correlation_id in (1, 2, 3):
            seen, payload = await client.answer()
            assert seen == correlation_id
            if correlation_id != 2:
                assert payload[9:] == b"".join(stage_.broker.big.pieces)

    play(story)


def test_a_slice_that_cannot_be_read_closes_the_connection(play, caplog):
    async def story(stage_):
        def fail():
            raise OSError(5, "Input/output error")

        stage_.broker.big = Pieces(b"1" * 10)
        stage_.broker.big.buffers = fail
        client = await stage_.client()
        client.send(echo(1, "big"))
        assert await client.is_closed()

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story)
    assert "cannot read the log" in caplog.text


def test_a_slice_with_a_bug_costs_only_its_own_connection(play, caplog):
    """Both answers are sent by the end of one turn; the second used to be lost with the first."""

    async def story(stage_):
        def fail():
            raise ValueError("mmap length is greater than file size")

        big = Pieces(b"1" * 10)
        big.buffers = fail
        broken, sound = await stage_.client(), await stage_.client()
        broken.send(echo(1, "wait broken"))
        sound.send(echo(2, "wait sound"))
        waiting = stage_.broker.waiting
        await stage_.until(lambda: len(waiting) == 2)
        waiting["broken"].complete(EchoResponse(text="", records=big))
        waiting["sound"].complete(connection_response("done"))
        assert await broken.is_closed()
        assert (await sound.answer())[0] == 2

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story)
    assert "cannot read the log" in caplog.text


def test_what_waits_in_large_requests_is_bounded(play, monkeypatch):
    """A long poll of a hundred thousand partitions is held for as long as it waits."""
    monkeypatch.setattr(_pipeline, "WAITING_BYTES_MAX", 30_000)

    async def story(stage_):
        client, waiting = await stage_.client(), stage_.broker.waiting
        for number in range(10):
            client.send(echo(number, f"wait {number}" + " " * 9_000))
        await stage_.until(lambda: len(waiting) == 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(waiting) == 4
        for number in range(10):
            await stage_.until(lambda number=number: any(int(key) == number for key in waiting))
            next(w for key, w in waiting.items() if int(key) == number).complete(connection_response("now"))
            assert (await client.answer())[0] == number
        (connection,) = stage_.broker.connections
        assert connection.responses.waiting_bytes == 0

    play(story)


def test_a_client_that_is_not_read_and_never_answered_goes_with_the_idle_time(play, monkeypatch, caplog):
    """Its end would not be seen: with polls of a month it would stay for a month."""
    monkeypatch.setattr(_pipeline, "WAITING_RESPONSES_MAX", 3)

    async def story(stage_):
        held, closing = await stage_.client(), await stage_.client()
        held.send(*(echo(number, f"wait held{number}") for number in range(3)))
        closing.send(echo(1, "wait closing"), echo(2, "malformed"))
        await stage_.until(lambda: len(stage_.broker.waiting) == 4)
        now_ms = wall_clock_ms() + 1000
        stage_.broker.connections.sweep(now_ms, now_ms)
        assert await held.is_closed()
        assert await closing.is_closed()
        await stage_.until(lambda: len(stage_.broker.cancelled) == 4)

    play(story, idle_ms_max=900)


def test_a_client_that_never_reads_is_held_and_in_the_end_closed(play, caplog):
    async def story(stage_):
        stage_.broker.big = Pieces(bytes(100_000))
        client, other = await stage_.client(), await stage_.client()
        client.writer.transport.pause_reading()
        requests = b"".join(echo(number, "big") for number in range(2000))
        client.send(requests)
        connections = stage_.broker.connections
        await stage_.until(lambda: any(c.is_stalled for c in connections))
        served = len(stage_.broker.contexts)
        assert served < 500
        stalled = next(c for c in connections if c.is_stalled)
        assert stalled.write_buffer_bytes() < 3_000_000
        other.send(echo(1, "meanwhile"))
        assert (await other.answer())[0] == 1
        now_ms = wall_clock_ms()
        connections.sweep(now_ms, now_ms)
        connections.sweep(now_ms + 5001, now_ms)
        await stage_.until(lambda: len(connections) == 0)

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story, idle_ms_max=5000)
    assert "does not read its answers" in caplog.text


def test_a_slow_reader_gets_everything(play):
    async def story(stage_):
        stage_.broker.big = Pieces(bytes(100_000))
        client = await stage_.client()
        client.send(*(echo(number, "big") for number in range(300)))
        for number in range(300):
            assert (await client.answer())[0] == number

    play(story)


def test_the_transport_of_a_client_that_does_not_read_is_filled_to_its_limit_only(play):
    async def story(stage_):
        stage_.broker.big = Pieces(bytes(100_000))
        client = await stage_.client()
        client.writer.transport.pause_reading()
        client.send(*(echo(number, "big") for number in range(300)))
        await stage_.until(lambda: stage_.broker.contexts)
        (connection,) = stage_.broker.connections
        await stage_.until(lambda: connection.responses.is_full)
        limit = paced_writing.WRITE_BUFFER_HIGH_BYTES + 2 * paced_writing.PIECE_BYTES_MAX
        assert connection.responses.transport.get_write_buffer_size() <= limit
        client.writer.transport.resume_reading()
        for number in range(300):
            assert (await client.answer())[0] == number

    play(story)


@pytest.fixture
def short_pieces(monkeypatch):
    monkeypatch.setattr(paced_writing, "PIECE_BYTES_MAX", 10_000)
    monkeypatch.setattr(paced_writing, "PIECE_BYTES_MIN", 10_000)


def big_answer(stage_, size_bytes=300_000):
    """Sets what `big` is answered with; returns the bytes after the correlation id."""
    content = bytes(number * 7 % 251 for number in range(size_bytes))
    stage_.broker.big = Pieces(content[:99], content[99:70_000], content[70_000:])
    return struct.pack(">h3si", 3, b"big", size_bytes) + content


class Unwilling:
    """A transport that fails at one of its writes."""

    def __init__(self, transport, writes):
        self._transport, self._writes = transport, writes

    def writelines(self, buffers):
        self._writes -= 1
        if self._writes < 0:
            raise RuntimeError("as asked")
        self._transport.writelines(buffers)

    def __getattr__(self, name):
        return getattr(self._transport, name)


def test_a_long_answer_that_cannot_be_sent_to_its_end_closes_its_connection(play, short_pieces, caplog):
    async def story(stage_):
        client = await stage_.client()
        big_answer(stage_)
        client.send(echo(1, "small"))
        await client.answer()
        (connection,) = stage_.broker.connections
        connection.use_transport(Unwilling(connection.responses.transport, 3))
        other = await stage_.client()
        client.send(echo(2, "big"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()
        other.send(echo(3, "small"))
        assert (await other.answer())[0] == 3

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story)
    assert "cannot send the rest of an answer: as asked" in caplog.text


def test_others_are_served_while_a_long_answer_is_written(play, short_pieces):
    """However fast its client reads: it takes as many turns of the loop as it has pieces."""

    async def story(stage_):
        client, other = await stage_.client(), await stage_.client()
        expected = big_answer(stage_)
        seen, unsent = [], []
        client.send(echo(1, "big"))
        await stage_.until(lambda: stage_.broker.contexts)
        (connection,) = (c for c in stage_.broker.connections if c.write_buffer_bytes())
        other.send(echo(2, "meanwhile"))
        while (left := connection.write_buffer_bytes()) or not seen:
            unsent.append(left)
            if len(stage_.broker.contexts) == 2 and not seen:
                seen.append(left)
            await asyncio.sleep(0)
        assert seen[0] > 0, "the other one was served after all of it"
        assert len(set(unsent)) >= 5
        assert await client.answer() == (1, expected)
        assert (await other.answer())[0] == 2

    play(story)


class Recording:
    """A transport that notes the bytes of each write, and calls back after each."""

    def __init__(self, transport, after_write):
        self._transport, self._after_write, self.sizes = transport, after_write, []

    def writelines(self, buffers):
        self.sizes.append(sum(map(len, buffers)))
        self._transport.writelines(buffers)
        self._after_write(self.sizes[-1])

    def __getattr__(self, name):
        return getattr(self._transport, name)


class Times:
    """A clock that stands still but for what a turn takes and what copying takes."""

    def __init__(self):
        self.now_s = 0.0
        self.turn_s = 0.0
        self.copied_bytes_per_s = 1_000_000_000

    def pass_after(self, size_bytes):
        self.now_s += size_bytes / self.copied_bytes_per_s
        asyncio.get_running_loop().call_soon(self._pass_turn)

    def _pass_turn(self):
        self.now_s += self.turn_s


@pytest.fixture
def times(monkeypatch):
    """10,000 bytes are copied in the time that a piece may take."""
    times = Times()
    monkeypatch.setattr(paced_writing, "PIECE_BYTES_MAX", 80_000)
    monkeypatch.setattr(paced_writing, "PIECE_BYTES_MIN", 3_000)
    monkeypatch.setattr(paced_writing, "PIECE_BYTES_PER_S", 1_000_000_000)
    monkeypatch.setattr(paced_writing, "PIECE_S", 0.00001)
    monkeypatch.setattr(paced_writing, "PIECE_SHARE", 0.02)
    monkeypatch.setattr(paced_writing, "perf_counter", lambda: times.now_s)
    return times


async def pieces_of_answers(stage_, times, correlation_ids, after_write=lambda: None):
    """The sizes in which long answers left, an answer at a time: 300,000 bytes and 17 before them."""

    def pass_and_do(size_bytes):
        times.pass_after(size_bytes)
        after_write()

    client = await stage_.client()
    expected = big_answer(stage_)
    client.send(echo(0, "small"))
    await client.answer()
    (connection,) = stage_.broker.connections
    recording = Recording(connection.responses.transport, pass_and_do)
    connection.use_transport(recording)
    sizes = []
    for correlation_id in correlation_ids:
        client.send(echo(correlation_id, "big"))
        assert await client.answer() == (correlation_id, expected)
        sizes.append(recording.sizes)
        recording.sizes = []
    return sizes


def test_nothing_of_a_long_answer_is_written_where_it_was_asked_for(play, times):
    """Whoever waits for that turn's end would wait for both."""

    async def story(stage_):
        client = await stage_.client()
        expected = big_answer(stage_)
        client.send(echo(0, "small"))
        await client.answer()
        (connection,) = stage_.broker.connections
        recording = Recording(connection.responses.transport, times.pass_after)
        connection.use_transport(recording)
        served = len(stage_.broker.contexts)
        client.send(echo(1, "big"))
        while len(stage_.broker.contexts) == served:
            await asyncio.sleep(0)
        assert recording.sizes == []
        assert await client.answer() == (1, expected)
        assert recording.sizes

    play(story)


def test_pieces_of_a_long_answer_grow_while_nobody_else_is_served(play, times):
    times.turn_s = 0.002

    async def story(stage_):
        first, second = await pieces_of_answers(stage_, times, [1, 2])
        assert first == [10_000, 20_000, 40_000, 80_000, 80_000, 70_017]
        assert second == [80_000, 80_000, 80_000, 60_017]

    play(story)


@pytest.mark.parametrize(
    ("turn_s", "expected"),
    [
        (0.0, [10_000] * 30),
        (0.0005, [10_000] * 6 + [20_000, 40_000]),
        (0.002, [10_000, 40_000, 40_000, 80_000]),
        (5.0, [10_000, 80_000, 80_000]),
    ],
)
def test_pieces_of_a_long_answer_are_small_while_others_are_served(play, times, turn_s, expected):
    """By how long the others take, from the second piece on, and how long ago the last of them was there."""
    times.turn_s = turn_s

    async def story(stage_):
        left = [2]

        def stage_something():
            if left[0]:
                left[0] -= 1
                stage_.turn.add(FakePartition(), lambda error: None, COMMITTED)

        (sizes,) = await pieces_of_answers(stage_, times, [1], stage_something)
        assert sizes[: len(expected)] == expected
        assert sum(sizes) == 300_017

    play(story)


def test_pieces_of_a_long_answer_are_smaller_where_copying_is_slow(play, times):
    """So that each takes as long, down to a limit; and they are as large as before when it is fast again."""

    async def story(stage_):
        copied = []

        def stage_something():
            copied.append(1)
            times.copied_bytes_per_s = {1: 500_000_000, 12: 100_000_000, 24: 9_000_000_000}.get(
                len(copied), times.copied_bytes_per_s
            )
            stage_.turn.add(FakePartition(), lambda error: None, COMMITTED)

        (sizes,) = await pieces_of_answers(stage_, times, [1], stage_something)
        assert sizes[:4] == [10_000, 10_000, 7_500, 6_250]
        assert 5_000 <= sizes[11] < 5_010
        assert sizes[20:24] == [3_000] * 4
        assert sizes[26:30] == [10_000] * 4
        assert sum(sizes) == 300_017

    play(story)


def test_answers_behind_a_long_one_leave_behind_it(play, short_pieces):
    async def story(stage_):
        client = await stage_.client()
        expected = big_answer(stage_)
        waiting = stage_.broker.waiting
        client.send(echo(0, "wait a"), echo(1, "big"), echo(2, "wait b"), echo(3, "big"))
        await stage_.until(lambda: "b" in waiting)
        client.send(stage(4, b"records"))
        (connection,) = stage_.broker.connections
        waiting["a"].complete(connection_response("now"))
        await stage_.until(lambda: connection.is_stalled)
        waiting["b"].complete(connection_response("later"))
        await asyncio.sleep(0)
        assert connection.is_stalled, "all was sent before there was something behind it"
        assert (await client.answer())[0] == 0
        assert await client.answer() == (1, expected)
        assert (await client.answer())[0] == 2
        assert await client.answer() == (3, expected)
        assert (await client.answer())[0] == 4
        assert not connection.is_stalled
        assert connection.is_reading

    play(story)


def test_a_long_answer_is_sent_whole_before_its_connection_is_closed(play, short_pieces):
    async def story(stage_):
        client, leaving = await stage_.client(), await stage_.client()
        expected = big_answer(stage_)
        client.send(echo(1, "wait a"), echo(2, "malformed"))
        await stage_.until(lambda: "a" in stage_.broker.waiting)
        stage_.broker.waiting["a"].complete(EchoResponse(text="big", records=stage_.broker.big))
        assert await client.answer() == (1, expected)
        assert await client.is_closed()
        leaving.send(echo(3, "big"))
        await stage_.until(lambda: any(c.is_stalled for c in stage_.broker.connections))
        stage_.broker.connections.close_all()
        assert await leaving.answer() == (3, expected)
        assert await leaving.is_closed()

    play(story)


def test_a_client_may_leave_in_the_middle_of_a_long_answer(play, short_pieces, caplog):
    async def story(stage_):
        client, other = await stage_.client(), await stage_.client()
        big_answer(stage_, 20_000_000)
        client.writer.transport.pause_reading()
        client.send(echo(1, "big"))
        await stage_.until(lambda: any(c.is_stalled for c in stage_.broker.connections))
        client.writer.transport.abort()
        await stage_.until(lambda: len(stage_.broker.connections) == 1)
        other.send(echo(2, "still there"))
        assert (await other.answer())[0] == 2

    play(story)
    assert "Traceback" not in caplog.text
    assert "Error" not in caplog.text


class Maker:
    """Makes the content of a late part in thirty pieces; every second one in another thread."""

    def __init__(self, stage_, size_bytes=300_000, fails_at=None):
        self.content = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
        self.piece_bytes = size_bytes // 30
        self.made_bytes, self.fails_at = 0, fails_at
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.queue = WorkQueue(stage_.loop)
        self.part = LatePart(self.queue, self.make, size_bytes)
        self.answer = struct.pack(">h3si", 3, b"big", size_bytes) + self.content

    def make(self):
        if self.made_bytes == self.fails_at:
            raise OSError("the disk does not answer")
        start, self.made_bytes = self.made_bytes, self.made_bytes + self.piece_bytes
        if start % (2 * self.piece_bytes):
            yield self.may_go_on.wait
        return self.content[start : start + self.piece_bytes]


async def being_made(stage_):
    """A client whose answer is under way, its maker, in another thread now, and its connection."""
    client, maker = await stage_.client(), Maker(stage_)
    maker.may_go_on.clear()
    client.send(echo(0, "wait 0"))
    await stage_.until(lambda: stage_.broker.waiting)
    (connection,) = stage_.broker.connections
    late_answers(stage_, maker)
    await stage_.until(lambda: maker.made_bytes == 2 * maker.piece_bytes)
    return client, maker, connection


def late_answers(stage_, *makers):
    """Has these be the answers to what waits for 0, 1, ... ; in one go."""
    for number, maker in enumerate(makers):
        answer = EchoResponse(text="big", records=maker.part)
        stage_.broker.waiting[str(number)].complete(answer)


def test_what_is_made_while_it_is_sent_comes_whole_and_in_its_order(play):
    async def story(stage_):
        client = await stage_.client()
        first, second = Maker(stage_), Maker(stage_)
        client.send(echo(0, "wait 0"), echo(1, "wait 1"), echo(2, "ready"))
        await stage_.until(lambda: "1" in stage_.broker.waiting)
        late_answers(stage_, first, second)
        assert await client.answer() == (0, first.answer)
        assert await client.answer() == (1, second.answer)
        assert (await client.answer())[0] == 2
        (connection,) = stage_.broker.connections
        assert (connection.is_stalled, connection.write_buffer_bytes()) == (False, 0)
        client.send(echo(3, "and on"))
        assert (await client.answer())[0] == 3

    play(story)


def test_a_short_answer_may_be_made_while_it_is_sent(play):
    async def story(stage_):
        client, maker = await stage_.client(), Maker(stage_, 3000)
        client.send(echo(0, "wait 0"))
        await stage_.until(lambda: stage_.broker.waiting)
        late_answers(stage_, maker)
        assert await client.answer() == (0, maker.answer)

    play(story)


def test_no_more_is_made_than_a_client_takes(play):
    async def story(stage_):
        client, other = await stage_.client(), await stage_.client()
        client.writer.transport.pause_reading()
        maker = Maker(stage_, 30_000_000)
        client.send(echo(0, "wait 0"))
        await stage_.until(lambda: stage_.broker.waiting)
        late_answers(stage_, maker)
        connection = next(c for c in stage_.broker.connections if c.is_waiting)
        await stage_.until(lambda: connection.responses.is_full)
        for number in range(50):
            other.send(echo(number, "meanwhile"))
            await other.answer()
        limit = paced_writing.WRITE_BUFFER_HIGH_BYTES + 2 * paced_writing.PIECE_BYTES_MAX
        assert connection.responses.transport.get_write_buffer_size() <= limit
        # The rest is in the buffers of the system.
        assert maker.made_bytes < 12_000_000
        assert connection.write_buffer_bytes() >= 30_000_000 - maker.made_bytes
        client.writer.transport.resume_reading()
        assert await client.answer() == (0, maker.answer)

    play(story)


def test_an_answer_whose_rest_cannot_be_made_closes_its_connection(play, caplog):
    async def story(stage_):
        client, other = await stage_.client(), await stage_.client()
        client.send(echo(0, "wait 0"))
        await stage_.until(lambda: stage_.broker.waiting)
        late_answers(stage_, Maker(stage_, fails_at=200_000))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()
        other.send(echo(1, "still there"))
        assert (await other.answer())[0] == 1

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story)
    assert "cannot make the rest of an answer: the disk does not answer" in caplog.text


def test_a_client_may_leave_while_a_piece_is_made_for_it(play, caplog):
    async def story(stage_):
        client, maker, _ = await being_made(stage_)
        client.writer.transport.abort()
        await stage_.until(lambda: len(stage_.broker.connections) == 0)
        maker.may_go_on.set()
        await stage_.until(lambda: not len(maker.queue))
        assert maker.made_bytes == 2 * maker.piece_bytes

    play(story)
    assert not caplog.records


def test_a_client_that_takes_much_while_a_piece_is_made_for_it_gets_that_piece_once(play):
    async def story(stage_):
        client, maker, connection = await being_made(stage_)
        connection.resume_writing()
        assert len(maker.queue) == 1
        maker.may_go_on.set()
        assert await client.answer() == (0, maker.answer)

    play(story)


@pytest.mark.parametrize("leaves", ["the client", "the broker"])
def test_what_nobody_will_take_is_not_made(play, leaves, caplog):
    async def story(stage_):
        client = await stage_.client()
        client.writer.transport.pause_reading()
        maker = Maker(stage_, 30_000_000)
        client.send(echo(0, "wait 0"))
        await stage_.until(lambda: stage_.broker.waiting)
        (connection,) = stage_.broker.connections
        late_answers(stage_, maker)
        await stage_.until(lambda: connection.responses.is_full)
        if leaves == "the client":
            client.writer.transport.abort()
        else:
            stage_.broker.connections.close_all()
            client.writer.transport.resume_reading()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.answer()
        await stage_.until(lambda: len(stage_.broker.connections) == 0)
        assert maker.made_bytes < 12_000_000

    play(story)
    assert "Traceback" not in caplog.text
    assert "Error" not in caplog.text


def test_answers_that_pile_up_stop_the_reading_and_all_are_sent_in_the_end(play, monkeypatch):
    monkeypatch.setattr(_pipeline, "WAITING_RESPONSES_MAX", 20)

    async def story(stage_):
        client, waiting = await stage_.client(), stage_.broker.waiting
        client.send(echo(0, "wait first"), *(echo(number, "ready") for number in range(1, 500)))
        await stage_.until(lambda: "first" in waiting)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(stage_.broker.contexts) == 20
        waiting["first"].complete(connection_response("now"))
        for number in range(500):
            assert (await client.answer())[0] == number

    play(story)


def test_sixteen_thousand_pipelined_requests_are_answered_in_order(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(*(stage(n, b"r") if n % 3 else echo(n, "e") for n in range(16_000)))
        for number in range(16_000):
            assert (await client.answer())[0] == number
        # Gathered: many produces, few commits.
        assert stage_.broker.partition.commits < 2000

    play(story)


def test_half_a_request_then_silence_ends_with_the_idle_time(play, caplog):
    async def story(stage_):
        client, waiter = await stage_.client(), await stage_.client()
        client.send(echo(1, "half")[:20])
        waiter.send(echo(1, "wait long"))
        await stage_.until(lambda: "long" in stage_.broker.waiting)
        await stage_.until(lambda: any(c.unserved_bytes == 20 for c in stage_.broker.connections))
        now_ms = wall_clock_ms() + 1000
        stage_.broker.connections.sweep(now_ms, now_ms)
        assert await client.is_closed()
        # Who waits for an answer is not idle.
        stage_.broker.waiting["long"].complete(connection_response("done"))
        assert (await waiter.answer())[0] == 1

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story, idle_ms_max=900)
    assert "idle for connections.max.idle.ms=900" in caplog.text


def test_the_sweep_runs_by_itself(play):
    async def story(stage_):
        client = await stage_.client()
        timers = Timers(stage_.loop)
        stop = stage_.broker.connections.start_sweeping(timers, timers)
        assert await client.is_closed()
        stop()
        assert len(timers) == 0
        timers.close()

    play(story, idle_ms_max=60)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"connections_per_ip_max": 2}, "max.connections.per.ip=2 is reached for 127.0.0.1"),
        (
            {"connections_per_ip_max": 0, "connections_per_ip_overrides": {"127.0.0.1": 2}},
            "max.connections.per.ip=2",
        ),
    ],
)
def test_connections_over_the_limit_of_their_address_are_closed_until_a_place_is_free(
    play, caplog, limits, reason
):
    async def story(stage_):
        first, second = await stage_.client(), await stage_.client()
        first.send(echo(1, "x"))
        second.send(echo(1, "x"))
        await first.answer()
        await second.answer()
        third = await stage_.client()
        assert await third.is_closed()
        first.writer.close()
        await stage_.until(lambda: len(stage_.broker.connections) == 1)
        fourth = await stage_.client()
        fourth.send(echo(1, "x"))
        assert (await fourth.answer())[0] == 1

    with caplog.at_level(logging.WARNING, "odradek"):
        play(story, **limits)
    assert reason in caplog.text


def test_hanging_up_sends_what_is_ready(play):
    async def story(stage_):
        client = await stage_.client()
        client.send(echo(1, "ready"), echo(2, "wait a"))
        await stage_.until(lambda: "a" in stage_.broker.waiting)
        stage_.broker.connections.close_all()
        assert (await client.answer())[0] == 1
        assert await client.is_closed()
        assert stage_.broker.cancelled == ["a"]

    play(story)


def test_limits_of_single_addresses_are_read_as_pairs_and_names_by_their_addresses(caplog):
    with caplog.at_level(logging.WARNING, "odradek"):
        counts = counts_by_address("127.1:3, ::1:4,no-such-host.invalid:5, 10.0.0.1 : 6")
    assert counts == {"127.0.0.1": 3, "::1": 4, "10.0.0.1": 6}
    assert "no-such-host.invalid" in caplog.text
    assert counts_by_address("localhost:7")["127.0.0.1"] == 7
    assert counts_by_address("") == {}
