"""Connections to other nodes: how long one may take to be made, and the socket's options."""

import asyncio
import socket

import pytest

from odradek.server.network.peers import (
    BUFFER_KEPT_BYTES,
    SETUP_JITTER,
    Peer,
    PeerLost,
    SetupTimeout,
    connect,
)
from odradek.wire.codec import encode_message
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

ADDRESS = ("a", 1)
VERSION = 12
"""Of Fetch: the last one with names of topics."""


def middle(low, high):
    return (low + high) / 2


def test_the_limit_doubles_with_each_failure_in_a_row_up_to_the_maximum_and_a_connection_resets_it():
    setup = SetupTimeout(1_000, 5_000, middle)
    seen = []
    for _ in range(5):
        seen.append(setup.limit_ms(ADDRESS))
        setup.ended(ADDRESS, is_connected=False)
    assert seen == [1_000, 2_000, 4_000, 5_000, 5_000]
    assert setup.limit_ms(("b", 1)) == 1_000
    setup.ended(ADDRESS, is_connected=True)
    assert setup.limit_ms(ADDRESS) == 1_000


def test_the_limit_varies_by_a_fifth():
    asked = []
    SetupTimeout(1_000, 5_000, lambda low, high: asked.append((low, high)) or 1).limit_ms(ADDRESS)
    assert asked == [(1 - SETUP_JITTER, 1 + SETUP_JITTER)]


def test_many_failures_overflow_nothing():
    setup = SetupTimeout(1_000, 5_000, middle)
    for _ in range(3_000):
        setup.ended(ADDRESS, is_connected=False)
    assert setup.limit_ms(ADDRESS) == 5_000


async def connected(port, setup, **options):
    peer = await connect(
        "127.0.0.1",
        port,
        name="broker 2",
        client_id="broker-1",
        timeout_ms=60_000,
        setup=setup,
        asks_versions=False,
        **options,
    )
    peer.close()


def test_a_refused_connection_counts_and_one_that_is_made_counts_no_more():
    setup = SetupTimeout(1_000, 5_000, middle)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        with pytest.raises(PeerLost, match=f"broker 2 at 127.0.0.1:{port}"):
            asyncio.run(connected(port, setup))
        assert setup.limit_ms(("127.0.0.1", port)) == 2_000
        listening.listen()
        asyncio.run(connected(port, setup))
        assert setup.limit_ms(("127.0.0.1", port)) == 1_000


def test_a_connection_that_nobody_accepts_is_given_up_after_the_limit():
    setup = SetupTimeout(50, 50, middle)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        # The queue of connections that wait to be accepted is full with these.
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        with pytest.raises(PeerLost, match="no answer within 50 ms"):
            asyncio.run(connected(address[1], setup))
        for one in waiting:
            one.close()


def test_the_receive_buffer_is_as_the_option_says():
    seen = []

    async def accept():
        async def serve(reader, writer):
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for size_bytes in (-1, 16_384):
            peer = await connect(
                "127.0.0.1",
                port,
                name="broker 2",
                client_id="broker-1",
                timeout_ms=60_000,
                setup=SetupTimeout(),
                asks_versions=False,
                receive_buffer_bytes=size_bytes,
            )
            assert peer.transport is not None
            seen.append(
                peer.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            )
            peer.close()
        server.close()

    asyncio.run(accept())
    # Linux doubles the number.
    assert seen[1] == 2 * 16_384 < seen[0]


class Transport:
    """Takes what is written, and has no socket."""

    def get_extra_info(self, name):
        return None

    def write(self, data):
        pass

    def abort(self):
        pass


def response_frame(correlation_id, record_bytes):
    data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=bytes(record_bytes))
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    body = correlation_id.to_bytes(4, "big") + b"\0" + encode_message(response, VERSION)
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("piece_bytes", [1, 7, 4096, 1 << 20])
def test_responses_of_any_size_are_read_from_pieces_of_any_size_and_a_large_buffer_is_not_kept(piece_bytes):
    sizes = [10, 0, 3_000, 10] if piece_bytes < 10 else [10, 70_000, 1_500_000, 10, 9_000_000, 10, 0, 70_000]

    async def run():
        peer = Peer("broker 2", "broker-1")
        peer.connection_made(Transport())
        asked = [peer.ask(FetchRequest(), VERSION) for _ in sizes]
        stream = memoryview(b"".join(response_frame(1 + n, size) for n, size in enumerate(sizes)))
        while stream:
            room = peer.get_buffer(-1)
            size = min(len(room), piece_bytes, len(stream))
            assert size > 0
            room[:size] = stream[:size]
            room.release()
            peer.buffer_updated(size)
            stream = stream[size:]
        answers = [await one for one in asked]
        assert [len(one.responses[0].partitions[0].records or b"") for one in answers] == sizes
        room = peer.get_buffer(-1)
        assert 0 < len(room) <= BUFFER_KEPT_BYTES

    asyncio.run(run())


def received(peer, stream):
    """The transport has read these bytes, up to the end of the connection."""
    stream = memoryview(stream)
    while stream and peer.is_open:
        room = peer.get_buffer(-1)
        size = min(len(room), len(stream))
        room[:size] = stream[:size]
        peer.buffer_updated(size)
        stream = stream[size:]


def records_of(answer):
    return answer.result().responses[0].partitions[0].records


def in_place(peer):
    return peer.ask(FetchRequest(), VERSION, is_in_place=True)


def a_peer():
    peer = Peer("broker 2", "broker-1")
    peer.connection_made(Transport())
    return peer


def test_large_responses_that_are_read_in_place_share_one_buffer_and_a_small_one_gives_it_back():
    async def run():
        peer = a_peer()
        seen = []
        for number, size in enumerate([3_000_000, 2_500_000, 2_900_000, 10]):
            answer = in_place(peer)
            received(peer, response_frame(1 + number, size))
            seen.append(records_of(answer))
            assert bytes(seen[-1]) == bytes(size)
        first, second, third, small = seen
        assert first.obj is second.obj is third.obj
        assert small.obj is not first.obj
        assert len(peer.get_buffer(-1)) <= BUFFER_KEPT_BYTES

    asyncio.run(run())


@pytest.mark.parametrize("others", [0, 1])
def test_a_response_is_copied_where_it_was_not_asked_for_in_place_or_another_one_is_under_way(others):
    async def run():
        peer = a_peer()
        answer = in_place(peer) if others else peer.ask(FetchRequest(), VERSION)
        for _ in range(others):
            in_place(peer)
        received(peer, response_frame(1, 100_000))
        assert isinstance(records_of(answer).obj, bytes)

    asyncio.run(run())


@pytest.mark.parametrize("is_at_once", [False, True])
def test_what_a_peer_sends_without_a_request_changes_nothing_that_is_read_in_place(is_at_once):
    async def run():
        peer = a_peer()
        answer = in_place(peer)
        frame, more = response_frame(1, 100_000), b"\xff" * 70_000
        if is_at_once:
            received(peer, frame + more)
        else:
            received(peer, frame)
            received(peer, more)
        assert bytes(records_of(answer)) == bytes(100_000)
        assert not peer.is_open

    asyncio.run(run())


def test_nothing_is_called_later_on_a_connection_that_has_ended():
    called = []

    async def run():
        peer = Peer("broker 2", "broker-1")
        peer.connection_made(Transport())
        peer.close()
        peer.call_later(0, lambda: called.append(True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert called == []
