"""The links among the members of a cluster: a cut holds bytes back in its direction, and tells nobody."""

import contextlib
import socket

import pytest

from odradek.embedding.cluster_processes import ClusterStartError
from odradek.embedding.free_port import free_port
from odradek.embedding.links import Links, dialer_of
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest

DIALER, MEMBER = 7, 5
DEADLINE_S = 30
QUIET_S = 0.3
"""Nothing that is held back comes within this; what passes takes a thousandth of it."""


def hello(client_id):
    return request_frame(ApiVersionsRequest(), 0, 1, client_id)


class Link:
    """A link in front of a listening socket."""

    def __init__(self, links, port, listener):
        self.cut = links.cut
        self._port, self.listener = port, listener
        self._ending = contextlib.ExitStack()

    def dial(self, client_id=f"broker-{DIALER}-fetcher-0"):
        """The connection of who dials, which has sent its first request."""
        dialer = self._ending.enter_context(socket.create_connection(("127.0.0.1", self._port), DEADLINE_S))
        dialer.sendall(hello(client_id))
        return dialer

    def accept(self, client_id=f"broker-{DIALER}-fetcher-0"):
        """The member's end, which has got the first request."""
        member = self._ending.enter_context(self.listener.accept()[0])
        member.settimeout(DEADLINE_S)
        assert received(member, len(hello(client_id))) == hello(client_id)
        return member

    def both(self):
        return self.dial(), self.accept()

    def close(self):
        self._ending.close()


@pytest.fixture
def link(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        port = free_port()
        links = Links([(MEMBER, port, listener.getsockname()[1])], tmp_path / "log")
        links.start()
        made = Link(links, port, listener)
        yield made
        made.close()
        links.close()


def received(connection, count):
    got = b""
    while len(got) < count:
        piece = connection.recv(count - len(got))
        assert piece, "the connection was closed"
        got += piece
    return got


def nothing_comes(connection):
    connection.settimeout(QUIET_S)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.settimeout(DEADLINE_S)


def test_bytes_pass_in_both_directions(link):
    dialer, member = link.both()
    dialer.sendall(b"there")
    assert received(member, 5) == b"there"
    member.sendall(b"back" * 500_000)
    assert received(dialer, 2_000_000) == b"back" * 500_000


def test_a_cut_in_one_direction_holds_only_the_bytes_of_that(link):
    dialer, member = link.both()
    link.cut([(DIALER, MEMBER)])
    dialer.sendall(b"held")
    nothing_comes(member)
    member.sendall(b"back")
    assert received(dialer, 4) == b"back"
    link.cut([])
    assert received(member, 4) == b"held"
    link.cut([(MEMBER, DIALER)])
    member.sendall(b"held too")
    nothing_comes(dialer)
    dialer.sendall(b"there")
    assert received(member, 5) == b"there"
    link.cut([])
    assert received(dialer, 8) == b"held too"


@pytest.mark.parametrize("cut", [(DIALER, MEMBER), (MEMBER, DIALER)])
def test_a_new_connection_needs_both_directions(link, cut):
    link.cut([cut])
    link.dial()
    link.listener.settimeout(QUIET_S)
    with pytest.raises(TimeoutError):
        link.accept()
    link.listener.settimeout(DEADLINE_S)
    link.cut([])
    link.accept()


def test_the_end_of_a_connection_waits_behind_a_cut(link):
    dialer, member = link.both()
    link.cut([(MEMBER, DIALER)])
    member.close()
    nothing_comes(dialer)
    link.cut([])
    assert dialer.recv(1) == b""


def test_an_end_passes_where_nothing_is_cut(link):
    dialer, member = link.both()
    dialer.close()
    assert member.recv(1) == b""


def test_others_and_those_without_a_number_are_not_cut_off(link):
    link.cut([(DIALER, MEMBER), (MEMBER, DIALER)])
    for client_id in ("broker-8", "somebody"):
        dialer = link.dial(client_id)
        member = link.accept(client_id)
        dialer.sendall(b"there")
        assert received(member, 5) == b"there"


@pytest.mark.parametrize(
    ("client_id", "member"),
    [
        (b"broker-12", 12),
        (b"broker-12-fetcher-3", 12),
        (b"raft-client-1001", 1001),
        (b"3", 3),
        (b"3rd", None),
        (b"broker-", None),
        (b"1.5", None),
        (b"rdkafka", None),
        (b"", None),
    ],
)
def test_the_number_of_a_member_is_in_its_client_id(client_id, member):
    assert dialer_of(client_id) == member


def test_a_taken_port_is_told_in_a_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        links = Links([(MEMBER, port, 1)], tmp_path / "log")
        with pytest.raises(ClusterStartError, match="the links among the nodes: a port is taken"):
            links.start()
    assert links.pid is None
