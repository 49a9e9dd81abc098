"""The compiled exchange on a connection: what comes in pieces, late, too much or not at all."""

import asyncio
import ssl

import pytest
import uvloop

from odradek.coordinator.replication.replica_fetcher import Replicate
from odradek.server.cluster._fetching import FetchExchange
from odradek.server.cluster.fetch_connection import FetchConnection
from odradek.server.network.peers import Peer, PeerLost, SetupTimeout, connect
from odradek.wire.codec import decode_message
from odradek.wire.frames import read_request_header, response_parts
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.replication.model_log import Batch, decode
from tests.replication.test_compiled_follower import CLIENT_ID, KEY, SESSION, TOPIC_ID, Compiled, log_of
from tests.server.tls_ends import Authority

VERSION = 17
LONG_MS = 600_000
RECEIVE_BYTES = 65_536
LARGE_BYTES = 3_000_000
SMALL_RESPONSES = 70


class Transport:
    """Takes what is written, and has no socket."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False

    def get_extra_info(self, name):
        return None

    def set_protocol(self, protocol):
        self.protocol = protocol

    def write(self, data):
        self.written.append(bytes(data))

    def abort(self):
        self.is_aborted = True


def frame_of(response: FetchResponse, correlation_id: int) -> bytes:
    return b"".join(response_parts(response, VERSION, correlation_id))


def fetched(*batches: Batch, **changes) -> FetchResponse:
    data = PartitionData(
        partition_index=0,
        error_code=changes.pop("error_code", 0),
        high_watermark=0,
        log_start_offset=0,
        records=b"".join(batch.encode() for batch in batches),
    )
    topic = FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=[data])
    return FetchResponse(**{"session_id": SESSION, "responses": [topic], **changes})


def batch(offset: int) -> Batch:
    return Batch(offset, offset, 5, offset)


class Follower:
    """A connection whose session has begun: the next request is under way."""

    def __init__(self) -> None:
        self.node = Compiled()
        self.node.follow(KEY, TOPIC_ID, 5, log_of(4, 4))
        self.transport = Transport()
        peer = Peer("broker 1", CLIENT_ID)
        peer.connection_made(self.transport)
        self.peer = peer
        self.connection = FetchConnection(peer, self.node.fetcher, CLIENT_ID, {}, self.node.failed)

    @property
    def log(self):
        return self.node.logs[KEY]

    def ask(self, timeout_ms: float = LONG_MS) -> asyncio.Task:
        request = self.node.fetcher.next_request(0)
        self.request = request
        return asyncio.ensure_future(self.connection.ask(request, VERSION, timeout_ms))

    async def begin(self, timeout_ms: float = LONG_MS) -> asyncio.Task:
        asked = self.ask()
        await asyncio.sleep(0)
        self.receive(frame_of(FetchResponse(session_id=SESSION, responses=[]), 1))
        self.node.fetcher.fetch_answered(self.request, await asked, 0)
        asked = self.ask(timeout_ms)
        await asyncio.sleep(0)
        return asked

    def receive(self, stream: bytes, piece_bytes: int = 1 << 30) -> None:
        """The transport has read these bytes, up to the end of the connection."""
        rest = memoryview(stream)
        while rest and not self.transport.is_aborted:
            room = self.connection.get_buffer(-1)
            size = min(len(room), piece_bytes, len(rest))
            assert size > 0
            room[:size] = rest[:size]
            room.release()
            self.connection.buffer_updated(size)
            rest = rest[size:]

    def answer(self, response: FetchResponse, **options) -> None:
        self.receive(frame_of(response, self.connection.correlation_id), **options)


def test_a_response_is_appended_and_answered_by_the_next_request_where_it_came_in():
    async def run():
        follower = Follower()
        asked = await follower.begin()
        for offset in range(2, 20):
            written = len(follower.transport.written)
            follower.answer(fetched(batch(offset)))
            assert follower.log.log_end_offset == offset + 1
            (frame,) = follower.transport.written[written:]
            _, position = read_request_header(frame, 4)
            request = decode_message(FetchRequest, VERSION, frame[position:])
            assert (request.session_id, request.topics[0].partitions[0].fetch_offset) == (SESSION, offset + 1)
        assert not asked.done()
        assert follower.connection.judged_count == 18
        asked.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("piece_bytes", [1, 7, 4096, 1 << 20])
def test_responses_of_any_size_come_in_pieces_of_any_size_and_a_large_buffer_is_not_kept(piece_bytes):
    counts = [1, 3, 30] if piece_bytes < 10 else [1, 3, LARGE_BYTES // 61, 1, 200, *[1] * SMALL_RESPONSES]

    async def run():
        follower = Follower()
        asked = await follower.begin()
        offset, sizes = 2, []
        for count in counts:
            batches = [batch(offset + place) for place in range(count)]
            follower.answer(fetched(*batches), piece_bytes=piece_bytes)
            offset += count
            assert follower.log.log_end_offset == offset
            sizes.append(len(follower.connection.get_buffer(-1)))
        assert (max(sizes) > LARGE_BYTES) == (max(counts) > 30)
        assert sizes[-1] == RECEIVE_BYTES
        assert not asked.done()
        asked.cancel()

    asyncio.run(run())


def test_an_unusual_response_is_for_whoever_has_asked_and_stays_until_the_next_request():
    async def run():
        follower = Follower()
        asked = await follower.begin()
        follower.answer(fetched(batch(2)))
        follower.answer(fetched(batch(3), error_code=6))
        follower.receive(b"\xff" * 70_000)
        response = await asked
        (data,) = response.responses[0].partitions
        assert (data.error_code, decode(bytes(data.records))) == (6, [batch(3)])
        assert follower.log.log_end_offset == 3
        assert follower.transport.is_aborted

    asyncio.run(run())


def test_what_the_machine_has_to_ask_ends_the_wait():
    async def run():
        follower = Follower()
        asked = await follower.begin()
        follower.node.follow(("t", 1), TOPIC_ID, 5, log_of(4))
        follower.answer(fetched(batch(2)))
        assert await asked is None
        assert follower.log.log_end_offset == 3
        (topic,) = follower.node.fetcher.next_request(0).topics
        assert [one.partition for one in topic.partitions] == [1, 0]

    asyncio.run(run())


@pytest.mark.parametrize(
    "stream",
    [
        frame_of(fetched(batch(2)), 2) + b"\0",
        frame_of(fetched(batch(2)), 77),
        b"\xff" * 8,
        b"\x7f\xff\xff\xff",
        frame_of(fetched(batch(2)), 2)[:-5] + b"\xff" * 5,
    ],
)
def test_a_leader_that_sends_what_is_no_response_loses_the_connection_and_nothing_is_appended(stream):
    async def run():
        follower = Follower()
        asked = await follower.begin()
        follower.receive(stream)
        with pytest.raises(PeerLost, match="not a response"):
            await asked
        assert follower.transport.is_aborted
        assert not follower.peer.is_open
        assert follower.log.log_end_offset == 2

    asyncio.run(run())


def test_the_end_of_the_connection_ends_the_wait():
    async def run():
        follower = Follower()
        asked = await follower.begin()
        follower.answer(fetched(batch(2)))
        follower.connection.connection_lost(ConnectionResetError("reset"))
        with pytest.raises(PeerLost, match="reset"):
            await asked
        with pytest.raises(PeerLost, match="reset"):
            await follower.ask()

    asyncio.run(run())


def test_a_leader_that_does_not_answer_loses_the_connection():
    async def run():
        follower = Follower()
        asked = await follower.begin(timeout_ms=20)
        with pytest.raises(PeerLost, match="has not answered FetchRequest for 20 ms"):
            await asked
        assert follower.transport.is_aborted

    asyncio.run(run())


def test_the_time_begins_anew_with_each_request():
    async def run():
        follower = Follower()
        asked = await follower.begin()
        follower.answer(fetched(batch(2)))
        # As when the timer of the first request ends, long after it was sent.
        follower.connection.check_time(LONG_MS)
        await asyncio.sleep(0)
        assert not asked.done()
        assert not follower.transport.is_aborted
        asked.cancel()

    asyncio.run(run())


class Broken(FetchConnection):
    def high_watermark_of(self, leaders, next_offset):
        raise ZeroDivisionError


def test_a_bug_ends_the_wait_and_the_connection():
    async def run():
        follower = Follower()
        follower.connection = Broken(follower.peer, follower.node.fetcher, CLIENT_ID, {}, None)
        asked = await follower.begin()
        follower.answer(fetched(batch(2)))
        with pytest.raises(ZeroDivisionError):
            await asked
        assert follower.transport.is_aborted

    asyncio.run(run())


def test_a_failure_is_told_once_and_forgotten_with_the_next_success():
    failures = {KEY: "full", ("u", 1): "full"}
    node = Compiled()
    node.follow(KEY, TOPIC_ID, 5, log_of(4, 4))
    node.exchange = FetchExchange(node.fetcher, CLIENT_ID, node.failed, failures)
    node.next(VERSION)
    node.answer(FetchResponse(session_id=SESSION, responses=[]), VERSION)
    node.next(VERSION)
    assert node.answer(fetched(batch(2)), VERSION)
    assert failures == {("u", 1): "full"}


class Leader:
    """Serves fetches over sockets: one record to each, in one session."""

    def __init__(self, until: int) -> None:
        self.until = until
        self.has_all = asyncio.Event()

    async def serve(self, reader, writer) -> None:
        while True:
            size_bytes = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size_bytes)
            header, position = read_request_header(frame, 0)
            request = decode_message(FetchRequest, header.api_version, frame[position:])
            (asked,) = request.topics[0].partitions
            if asked.fetch_offset >= self.until:
                self.has_all.set()
                return
            writer.write(frame_of(fetched(batch(asked.fetch_offset)), header.correlation_id))


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("has_tls", [False, True])
def test_a_follower_follows_over_sockets(new_loop, has_tls, authority):
    tls = None
    if has_tls:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue("127.0.0.1").configure_cert(tls)

    async def run():
        leader = Leader(200)
        server = await asyncio.start_server(leader.serve, "127.0.0.1", 0, ssl=tls)
        peer = await connect(
            "127.0.0.1",
            server.sockets[0].getsockname()[1],
            name="broker 1",
            client_id=CLIENT_ID,
            timeout_ms=LONG_MS,
            setup=SetupTimeout(LONG_MS, LONG_MS, tls=authority.client_context if has_tls else None),
            asks_versions=False,
        )
        node = Compiled()
        node.follow(KEY, TOPIC_ID, 5, log_of(4, 4))
        fetcher = node.fetcher
        connection = FetchConnection(peer, fetcher, CLIENT_ID, {}, node.failed)

        async def fetch():
            while True:
                request = fetcher.next_request(0)
                response = await connection.ask(request, VERSION, LONG_MS)
                if response is not None:
                    effects = fetcher.fetch_answered(request, response, 0)
                    assert all(isinstance(effect, Replicate) for effect in effects)
                    node.carry_out(effects)

        fetching = asyncio.ensure_future(fetch())
        await leader.has_all.wait()
        peer.close()
        with pytest.raises(PeerLost):
            await fetching
        assert node.logs[KEY].log_end_offset == 200
        assert connection.judged_count == 197
        server.close()

    loop = new_loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
