"""pytest fixtures: real brokers for tests, with every client that a project already uses.

- `odradek_broker` (session): one broker for the whole run; tests share it, so let each use its own topics.
- `odradek_fresh_broker` (function): a broker for one test alone, which may stop, kill and restart it.
- `odradek_broker_factory` (function): makes as many as a test wants, with options:
  `odradek_broker_factory(num_partitions=3)`; all are closed at the test's end.
- `odradek_cluster` (function): makes clusters of several nodes: `odradek_cluster(nodes=3)`.

Each broker is an `odradek.Broker`, each cluster an `odradek.Cluster`: `bootstrap_servers` is what clients
want. Brokers are child processes, or threads with `--odradek-in-thread` (quicker to start, cannot be killed).
Tests that only use a cluster may share one by a fixture of their own,
`with odradek.Cluster(nodes=3) as cluster: yield cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.embedding.embedded import Broker
    from odradek.embedding.embedded_cluster import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("odradek").addoption(
        "--odradek-in-thread",
        action="store_true",
        help="run the brokers of the odradek fixtures in threads instead of child processes",
    )


def _new_broker(config: pytest.Config, **arguments: Any) -> Broker:
    from odradek.embedding.embedded import Broker

    arguments.setdefault("process", not config.getoption("--odradek-in-thread"))
    return Broker(**arguments)


@pytest.fixture(scope="session")
def odradek_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """One running broker for the whole test session."""
    with _new_broker(pytestconfig) as broker:
        yield broker


@pytest.fixture
def odradek_broker_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., Broker]]:
    """Makes running brokers; takes what `odradek.Broker` takes."""
    brokers: list[Broker] = []

    def make(**arguments: Any) -> Broker:
        broker = _new_broker(pytestconfig, **arguments)
        brokers.append(broker)
        return broker.start()

    try:
        yield make
    finally:
        for broker in reversed(brokers):
            broker.close()


@pytest.fixture
def odradek_fresh_broker(odradek_broker_factory: Callable[..., Broker]) -> Broker:
    """A running broker for this test alone."""
    return odradek_broker_factory()


@pytest.fixture
def odradek_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes running clusters of several nodes; takes what `odradek.Cluster` takes."""
    from odradek.embedding.embedded_cluster import Cluster

    clusters: list[Cluster] = []

    def make(nodes: int = 3, **arguments: Any) -> Cluster:
        cluster = Cluster(nodes, **arguments)
        clusters.append(cluster)
        return cluster.start()

    try:
        yield make
    finally:
        for cluster in reversed(clusters):
            cluster.close()
