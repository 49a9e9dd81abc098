"""The command line in this process, at the broker under test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

import odradek
from compat_tests import reference
from odradek.commands.main import main

Rows = list[dict[str, Any]]


@pytest.fixture
def rows(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Rows]:
    """Runs a command with `--output json`; returns what it prints, which may be nothing if it fails."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")

    def ended(*arguments: str, bootstrap: str = bootstrap, status: int = 0) -> Rows:
        capsys.readouterr()
        got = main([*arguments, "-b", bootstrap, "--output", "json"])
        out, err = capsys.readouterr()
        assert got == status, err
        found: Rows = json.loads(out) if out or not status else []
        return found

    return ended


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def python_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="session")
def authorizing(request: pytest.FixtureRequest) -> Iterator[str]:
    """host:port of a broker with an authorizer, to which all may be done."""
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(request.config.getoption("--kafka-version"), options) as kafka:
            yield kafka.bootstrap_servers
    else:
        with odradek.Broker(process=True, options=options) as ours:
            yield ours.bootstrap_servers


@pytest.fixture(scope="session")
def is_older(request: pytest.FixtureRequest) -> bool:
    """Whether the broker is Kafka 3.9, which has no groups of the newer kinds without being told so."""
    version: str = request.config.getoption("--kafka-version")
    return version == reference.OLDER


@pytest.fixture
def newer(is_older: bool) -> None:
    if is_older:
        pytest.skip("Kafka 3.9 does not serve it")


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    """That of a group."""
    if request.param == "consumer":
        request.getfixturevalue("newer")
    return str(request.param)
