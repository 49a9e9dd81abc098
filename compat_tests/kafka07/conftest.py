"""A broker with listeners for clients of Kafka 0.7 and of 0.6."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

import odradek
from odradek.embedding.free_port import free_port


class Oldest(NamedTuple):
    """The broker, and the ports of its two listeners."""

    broker: odradek.Broker
    port: int
    port_06: int


@pytest.fixture(scope="session")
def oldest() -> Iterator[Oldest]:
    """One broker for the whole session; tests use topics of their own."""
    today, port, port_06 = free_port(), free_port(), free_port()
    options = {
        "listeners": f"PLAINTEXT://127.0.0.1:{today},K07://127.0.0.1:{port},K06://127.0.0.1:{port_06}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,K07:KAFKA_07,K06:KAFKA_06",
        "auto.create.topics.enable": "true",
    }
    with odradek.Broker(process=True, options=options) as broker:
        yield Oldest(broker, port, port_06)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test alone."""
    return "".join(letter if letter.isalnum() else "_" for letter in request.node.name)[-60:]
