"""pytest fixtures: real brokers for tests, with every client that a project already uses.

- `odradek_broker` (session): one broker for the whole run; tests share it, so let each use its own topics.
- `odradek_fresh_broker` (function): a broker for one test alone, which may stop, kill and restart it.
- `odradek_broker_factory` (function): makes as many as a test wants, with options:
  `odradek_broker_factory(num_partitions=3)`; all are closed at the test's end.
- `odradek_cluster` (function): makes clusters of several nodes: `odradek_cluster(nodes=3)`.
- `odradek_topic`, `odradek_group` (function): a name of a topic and an id of a group that no other test has;
  names alone, nothing is made.

The report of a failed test has a section `odradek` with what its brokers have. With `--odradek-shared` all
workers of pytest-xdist share one broker, which the controller starts.

Each broker is an `odradek.Broker`, each cluster an `odradek.Cluster`: `bootstrap_servers` is what clients
want. Brokers are child processes, or threads with `--odradek-in-thread` (quicker to start, cannot be killed).
Tests that only use a cluster may share one by a fixture of their own,
`with odradek.Cluster(nodes=3) as cluster: yield cluster`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.embedding.embedded import Broker
    from odradek.embedding.embedded_cluster import Cluster


SHARED = "odradek_shared"
"""Key in the input of a worker of pytest-xdist."""
NAME_CHARACTERS_MAX = 200
"""Kafka takes 249 in the name of a topic."""
_session_broker = pytest.StashKey["Broker"]()
"""The one of `odradek_broker`, in the stash of the configuration."""
_shared_broker = pytest.StashKey["Broker"]()
"""The one that this process has started for its workers."""
_of_test = pytest.StashKey[list["Broker"]]()
"""Brokers that the test has made, in the stash of its item."""
_log_begin = pytest.StashKey[int]()
"""Length of the session's log when the test began."""
_uses = pytest.StashKey[dict[str, int]]()
"""How often each name was given."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("odradek")
    group.addoption(
        "--odradek-in-thread",
        action="store_true",
        help="run the brokers of the odradek fixtures in threads instead of child processes",
    )
    group.addoption(
        "--odradek-shared",
        action="store_true",
        help="one odradek_broker for all workers of pytest-xdist",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--odradek-shared") and config.getoption("--odradek-in-thread"):
        raise pytest.UsageError(
            "--odradek-shared is for a broker in a process of its own: leave --odradek-in-thread out"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of pytest-xdist is about to start; in the controller."""
    if not node.config.getoption("--odradek-shared"):
        return
    if _shared_broker not in node.config.stash:
        node.config.stash[_shared_broker] = _new_broker(node.config).start()
    node.workerinput[SHARED] = node.config.stash[_shared_broker].attachment


def pytest_unconfigure(config: pytest.Config) -> None:
    broker = config.stash.get(_shared_broker, None)
    if broker is not None:
        broker.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    broker = item.config.stash.get(_session_broker, None)
    if broker is not None and "odradek_broker" in _fixtures_of(item):
        item.stash[_log_begin] = len(broker.log())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and report.when != "teardown":
        brokers = [(broker, 0) for broker in item.stash.get(_of_test, ())]
        session = item.config.stash.get(_session_broker, None)
        if session is not None and "odradek_broker" in _fixtures_of(item):
            brokers.insert(0, (session, item.stash.get(_log_begin, 0)))
        if brokers:
            from odradek.embedding.pytest_report import section

            report.sections.append(("odradek", section(brokers)))
    return report


def _fixtures_of(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _new_broker(config: pytest.Config, **arguments: Any) -> Broker:
    from odradek.embedding.embedded import Broker

    arguments.setdefault("process", not config.getoption("--odradek-in-thread"))
    return Broker(**arguments)


@pytest.fixture(scope="session")
def odradek_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """One running broker for the whole test session."""
    attachment = getattr(pytestconfig, "workerinput", {}).get(SHARED)
    if attachment is not None:
        from odradek.embedding.embedded import Broker

        pytestconfig.stash[_session_broker] = broker = Broker.attached(attachment)
        yield broker
        return
    with _new_broker(pytestconfig) as broker:
        pytestconfig.stash[_session_broker] = broker
        yield broker


@pytest.fixture
def odradek_broker_factory(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Broker]]:
    """Makes running brokers; takes what `odradek.Broker` takes."""
    brokers = request.node.stash[_of_test] = list["Broker"]()

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
def odradek_topic(request: pytest.FixtureRequest) -> str:
    """A name of a topic that no other test has. The topic is not made: brokers make topics at their first
    use, and a client of administration makes one with options."""
    return _own_name(request, "")


@pytest.fixture
def odradek_group(request: pytest.FixtureRequest) -> str:
    """An id of a group that no other test has."""
    return _own_name(request, "-group")


def _own_name(request: pytest.FixtureRequest, ending: str) -> str:
    """The test's name, so that people find it, and a hash of its whole id. A test that runs again in the same
    session gets another one."""
    import hashlib

    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    node_id = f"{worker} {request.node.nodeid}{ending}"
    uses = request.config.stash.setdefault(_uses, {})
    uses[node_id] = uses.get(node_id, 0) + 1
    digest = hashlib.sha256(f"{node_id} {uses[node_id]}".encode()).hexdigest()[:10]
    # Without dots: Kafka's metrics have no difference between these and underscores.
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name).strip("-")
    return f"{readable[:NAME_CHARACTERS_MAX]}-{digest}{ending}"


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
