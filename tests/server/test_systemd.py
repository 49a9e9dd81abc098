"""What systemd is told, by a socket in its place."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest

from odradek.server.process.systemd import Systemd, systemd_of


@pytest.fixture
def told(tmp_path):
    """The socket of systemd, and its path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        path = str(tmp_path / "notify")
        receiving.bind(path)
        receiving.settimeout(30)
        yield receiving, path


def test_a_broker_tells_that_it_is_ready_lives_and_stops(told, tmp_path):
    receiving, path = told
    environ = {**os.environ, "NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000"}
    command = [sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0"]
    broker = subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], env=environ, stdout=subprocess.DEVNULL
    )
    try:
        first = receiving.recv(4096).decode().splitlines()
        assert first[0] == "READY=1"
        assert first[1].startswith("STATUS=node 1 of cluster ")
        assert first[2] == f"MAINPID={broker.pid}"
        assert [receiving.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        broker.send_signal(signal.SIGTERM)
        while (message := receiving.recv(4096)) == b"WATCHDOG=1":
            pass
        assert message == b"STOPPING=1"
    finally:
        broker.terminate()
        broker.wait()


@pytest.mark.parametrize(
    ("environ", "is_told", "watchdog_s"),
    [
        ({}, False, None),
        ({"NOTIFY_SOCKET": "relative"}, False, None),
        ({"NOTIFY_SOCKET": "/run/x"}, True, None),
        ({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "3000000"}, True, 3.0),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, True, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "soon"}, True, None),
    ],
)
def test_the_variables_of_systemd_are_taken_and_not_handed_on(environ, is_told, watchdog_s, monkeypatch):
    made = []
    monkeypatch.setattr(Systemd, "__init__", lambda self, path, seconds: made.append((path, seconds)))
    assert (systemd_of(environ) is not None) is is_told
    assert [seconds for _, seconds in made] == ([watchdog_s] if is_told else [])
    assert environ == {}


def test_an_abstract_socket_is_told(tmp_path):
    name = f"odradek-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind("\0" + name)
        receiving.settimeout(10)
        asyncio.run(_tell(Systemd(f"@{name}", None)))
        assert receiving.recv(4096).startswith(b"READY=1\nSTATUS=well\n")


async def _tell(systemd):
    systemd.ready("well")


def test_a_socket_that_is_gone_is_logged_once(caplog, tmp_path):
    systemd = Systemd(str(tmp_path / "nowhere"), None)
    systemd.stopping()
    systemd.stopping()
    assert caplog.messages == ["systemd cannot be told (NOTIFY_SOCKET): No such file or directory"]
