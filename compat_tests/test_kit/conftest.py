"""One broker for all cases, and the client libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.test_kit.clients import JavaStoryClient, StoryClient
from compat_tests.test_kit.python_clients import ConfluentStoryClient, KafkaPythonStoryClient
from odradek import Broker
from tests.server.clocked import FEW_PARTITIONS, TRANSACTION, Client

OPTIONS = {
    **FEW_PARTITIONS,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}


def _running(**more: str) -> Iterator[Broker]:
    """One in a process of its own, with its internal topics."""
    with Broker(process=True, options=OPTIONS, **more) as broker:
        with contextlib.closing(Client(broker.port)) as client:
            client.find("any")
            client.find("any", TRANSACTION)
        yield broker


@pytest.fixture(scope="session")
def tested() -> Iterator[Broker]:
    """The broker of the cases."""
    yield from _running()


@pytest.fixture(scope="session")
def older() -> Iterator[Broker]:
    """One without transactions of version 2."""
    yield from _running(emulate="3.9")


LIBRARIES = {one.name: one for one in (KafkaPythonStoryClient, ConfluentStoryClient, JavaStoryClient)}


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Iterator[StoryClient]:
    """The client library of this name."""
    client = LIBRARIES[request.param]()
    yield client
    client.close()
