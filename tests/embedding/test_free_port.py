"""Ports for processes that are started in a moment."""

import itertools
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.embedding import free_port as module
from odradek.embedding.free_port import free_port

LOOPBACKS = [(socket.AF_INET, "127.0.0.1")]
if socket.has_dualstack_ipv6():
    LOOPBACKS.append((socket.AF_INET6, "::1"))


def test_no_port_is_given_twice():
    with ThreadPoolExecutor(4) as threads:
        given = list(threads.map(lambda _: free_port(), range(2_000)))
    assert len(set(given)) == len(given)
    assert set(given) <= set(module.PORTS)


ASKS = """
import json
from odradek.embedding.free_port import free_port
print(json.dumps([free_port() for _ in range(1000)]), flush=True)
input()
"""


def test_two_processes_that_ask_get_different_ports():
    """Whoever was given a port listens on it later: a Kafka after seconds."""
    processes = [
        subprocess.Popen([sys.executable, "-c", ASKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        one, other = (set(json.loads(process.stdout.readline())) for process in processes)
        assert len(one) == len(other) == 1000
        assert not one & other
    finally:
        for process in processes:
            process.communicate(b"\n")


@pytest.mark.parametrize(("family", "host"), LOOPBACKS)
def test_a_port_that_one_address_has_is_passed_over(family, host, monkeypatch):
    with socket.create_server((host, 0), family=family) as server:
        taken, free = server.getsockname()[1], free_port()
        monkeypatch.setattr(module, "_ports", iter([taken, free]))
        assert free_port() == free
        monkeypatch.setattr(module, "_ports", itertools.repeat(taken))
        with pytest.raises(OSError, match=r"no port from 20000 to 31999 is free: .*in use"):
            free_port()
