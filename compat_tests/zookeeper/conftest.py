"""A ZooKeeper, brokers in it, and a client that looks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import odradek
from compat_tests.zookeeper.ensemble import KafkaInZooKeeper, ZooKeeper

SESSION_MS = 4_000


def in_zookeeper(address: str, **more: Any) -> odradek.Broker:
    """A broker of its own process, not started."""
    options = {
        "zookeeper.connect": address,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        **more.pop("options", {}),
    }
    return odradek.Broker(process=True, options=options, **more)


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
