"""A ZooKeeper, brokers in it, and a client that looks."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import odradek
from compat_tests.clients import wait_until
from compat_tests.zookeeper.ensemble import KafkaInZooKeeper, ZooKeeper
from odradek.embedding.free_port import free_port

SESSION_MS = 4_000
PATIENT = {"zookeeper.connection.timeout.ms": "60000"}
"""Where it is not set it is as long as a session, and a busy ZooKeeper takes longer to answer with TLS."""


def in_zookeeper(address: str, **more: Any) -> odradek.Broker:
    """A broker of its own process, not started."""
    options = {
        "zookeeper.connect": address,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        **PATIENT,
        **more.pop("options", {}),
    }
    return odradek.Broker(process=True, options=options, **more)


class Logged:
    """`odradek serve`, whose log a test reads; a context manager that returns when it is ready."""

    def __init__(
        self, directory: pathlib.Path, address: str, options: Mapping[str, str] | None = None
    ) -> None:
        self.bootstrap_servers = f"127.0.0.1:{free_port()}"
        self._log = directory / "log"
        settings = {
            "zookeeper.connect": address,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            **PATIENT,
            **(options or {}),
        }
        self._command = [sys.executable, "-m", "odradek", "serve", "--listen", self.bootstrap_servers]
        self._command += ["--data-dir", str(directory / "data")]
        self._command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> Logged:
        with self._log.open("w") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)
        try:
            wait_until(lambda: "ready" in self.log or self._process.poll() is not None, "the broker is ready")
            assert self._process.poll() is None, self.log
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        if error is not None:
            error.add_note(f"the broker's log ended with:\n{self.log[-3000:]}")


class Looking:
    """What is in the directories of one cluster."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = KazooClient(address)
        # Unlike `start`, it says nothing about a chroot that is not there yet.
        assert self.client.start_async().wait(60)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def read(self, path: str) -> bytes | None:
        try:
            return bytes(self.client.get(path)[0] or b"")
        except NoNodeError:
            return None

    def json(self, path: str) -> Any:
        content = self.read(path)
        return None if content is None else json.loads(content)


@pytest.fixture(scope="session")
def server() -> Iterator[ZooKeeper]:
    with ZooKeeper() as one:
        yield one


@pytest.fixture(scope="module")
def address(server: ZooKeeper, request: pytest.FixtureRequest) -> str:
    """With a chroot for this module."""
    return f"{server.address}/{request.module.__name__.rpartition('.')[2]}"


@pytest.fixture(scope="module")
def broker(address: str, request: pytest.FixtureRequest) -> Iterator[odradek.Broker | KafkaInZooKeeper]:
    """With --broker=kafka it is of Kafka 3.9, which shows what is a fault of a consumer."""
    if request.config.getoption("--broker") == "kafka":
        with KafkaInZooKeeper(address) as kafka:
            yield kafka
    else:
        with in_zookeeper(address) as one:
            yield one


@pytest.fixture
def looking(address: str) -> Iterator[Looking]:
    one = Looking(address)
    yield one
    one.close()
