"""Binding addresses: one port for every address of a name, and one sentence when it does not work."""

import errno
import socket

import pytest

from odradek.config.broker_config import ConfigError
from odradek.server.network.listeners import Listener, SocketOptions, bind_listener

HAS_IPV6 = socket.has_ipv6


def has_loopback_6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
def bind():
    opened = []

    def run(host, port=0):
        listener = Listener("PLAINTEXT", host, port)
        sockets = bind_listener(listener)
        opened.extend(sockets)
        return listener, sockets

    yield run
    for each in opened:
        each.close()


def test_localhost_is_both_loopbacks_with_one_free_port(bind):
    listener, sockets = bind("localhost")
    names = [each.getsockname()[:2] for each in sockets]
    assert listener.port > 0
    assert ("127.0.0.1", listener.port) in names
    if has_loopback_6():
        assert ("::1", listener.port) in names


EVERY_INTERFACE = ["", "0.0.0.0", "::", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0", "0"]


@pytest.mark.parametrize("host", EVERY_INTERFACE)
def test_every_interface_is_one_of_both_families_however_it_is_written(bind, host):
    listener, sockets = bind(host)
    assert [each.getsockname()[0] for each in sockets] == ["0.0.0.0", "::"][: len(sockets)]
    for client in ("127.0.0.1", "::1") if has_loopback_6() else ("127.0.0.1",):
        with socket.create_connection((client, listener.port), 5) as connection:
            # Not ::ffff:127.0.0.1, which would be told to clients.
            assert connection.getpeername()[0] == client


@pytest.mark.parametrize(
    ("host", "bound"), [("127.0.0.1", "127.0.0.1"), ("::ffff:127.0.0.1", "127.0.0.1"), ("127.1", "127.0.0.1")]
)
def test_an_address_of_one_family_is_bound_for_that_alone(bind, host, bound):
    listener, sockets = bind(host)
    assert [each.getsockname()[0] for each in sockets] == [bound]
    with pytest.raises(OSError, match=r"refused|unreachable|not available|assign"):
        socket.create_connection(("::1", listener.port), 5)


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("host", [*EVERY_INTERFACE, "localhost", "LOCALHOST"])
def test_a_machine_without_ipv6_serves_the_other_family(bind, monkeypatch, host, number):
    lack(monkeypatch, socket.AF_INET6, number)
    _, sockets = bind(host)
    assert [each.family for each in sockets] == [socket.AF_INET]


@pytest.mark.skipif(not has_loopback_6(), reason="there is no IPv6 here")
@pytest.mark.parametrize("host", [*EVERY_INTERFACE, "localhost"])
def test_a_machine_without_ipv4_serves_the_other_family(bind, monkeypatch, host):
    lack(monkeypatch, socket.AF_INET, errno.EAFNOSUPPORT)
    _, sockets = bind(host)
    assert [each.family for each in sockets] == [socket.AF_INET6]


def test_an_ipv6_address_where_there_is_no_ipv6_is_one_sentence(bind, monkeypatch):
    lack(monkeypatch, socket.AF_INET6, errno.EADDRNOTAVAIL)
    with pytest.raises(ConfigError, match=r"'::1' .* is not an address here"):
        bind("::1")


def lack(monkeypatch, family, number):
    """Have binding to an address of this family fail as it does where the machine has none."""

    class Lacking(socket.socket):
        def bind(self, address):
            if self.family == family:
                raise OSError(number, "not here")
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Lacking)


def test_a_taken_port_is_one_sentence_that_names_it(bind):
    taken, _ = bind("127.0.0.1")
    with pytest.raises(ConfigError) as refusal:
        bind("localhost", taken.port)
    assert f"localhost:{taken.port} (listener PLAINTEXT) is taken" in str(refusal.value)


def test_an_address_of_another_machine_is_one_sentence(bind):
    with pytest.raises(ConfigError, match="is not an address here"):
        bind("192.0.2.1")


def test_a_name_that_nobody_knows_is_one_sentence(bind):
    with pytest.raises(ConfigError, match="has no address here"):
        bind("no-such-host.invalid")


def test_the_sizes_of_the_system_s_buffers_are_those_of_the_options():
    listener = Listener("PLAINTEXT", "127.0.0.1", 0, None, SocketOptions(16, 40_000, 50_000))
    (listening,) = bind_listener(listener)
    with listening, socket.create_connection(("127.0.0.1", listener.port), 5):
        listening.settimeout(5)
        accepted, _ = listening.accept()
        with accepted:
            # Some systems count their own bookkeeping in and report more than was asked for.
            assert 40_000 <= accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 80_000
            assert 50_000 <= accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 100_000
