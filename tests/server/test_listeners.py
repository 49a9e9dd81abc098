"""Binding addresses: one port for every address of a name, and one sentence when it does not work."""

import socket

import pytest

from odradek.server.config import ConfigError
from odradek.server.listeners import Listener, SocketOptions, bind_listener

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


def test_an_empty_host_is_every_interface(bind):
    listener, sockets = bind("")
    assert "0.0.0.0" in [each.getsockname()[0] for each in sockets]
    with socket.create_connection(("127.0.0.1", listener.port), 5):
        pass


def test_a_taken_port_is_one_sentence_that_names_it(bind):
    taken, _ = bind("127.0.0.1")
    with pytest.raises(ConfigError) as refusal:
        bind("localhost", taken.port)
    assert f"localhost:{taken.port} (listener PLAINTEXT) is taken" in str(refusal.value)


def test_an_address_of_another_machine_is_one_sentence(bind):
    with pytest.raises(ConfigError, match="is no address of this machine"):
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
