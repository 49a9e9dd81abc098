"""pytest fixtures: real brokers for tests, with every client that a project already uses.

- `odradek_broker` (session): one broker for the whole run; tests share it, so let each use its own topics.
- `odradek_fresh_broker` (function): a broker for one test alone, which may stop, kill and restart it.
- `odradek_broker_factory` (function): makes as many as a test wants, with options:
  `odradek_broker_factory(num_partitions=3)`; all are closed at the test's end.
- `odradek_cluster` (function): makes clusters of several nodes: `odradek_cluster(nodes=3)`.
- `odradek_topic`, `odradek_group` (function): a name of a topic and an id of a group that no other test has;
  names alone, nothing is made.

Markers: `@pytest.mark.odradek_restore` returns `odradek_broker` to its data after the test, and
`@pytest.mark.odradek_faults(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)` has a fault on the
brokers of the test while it runs (`embedding/pytest_markers.py`). In any case the faults that a test adds to
`odradek_broker` are gone after it, and the clock is the system's.

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
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from odradek.embedding.pytest_names import FAULTS, RESTORE

if TYPE_CHECKING:
    from odradek.embedding.embedded import Broker
    from odradek.embedding.embedded_cluster import Cluster
    from odradek.embedding.pytest_markers import RestoredData, TestWatch, Watch


OF_BROKERS = {"odradek_broker", "odradek_fresh_broker", "odradek_broker_factory", "odradek_cluster"}
"""Fixtures that give brokers."""
SHARED = "odradek_shared"
"""Key in the input of a worker of pytest-xdist."""
NAME_CHARACTERS_MAX = 200
"""Kafka takes 249 in the name of a topic."""
REQUESTS_KEPT = 20
"""For the report of a failed test."""
_session = pytest.StashKey["Watch"]()
"""The watch of `odradek_broker`, in the stash of the configuration."""
_restored: pytest.StashKey[RestoredData] = pytest.StashKey()
"""In the stash of the configuration."""
_shared_broker = pytest.StashKey["Broker"]()
"""The one that this process has started for its workers."""
_test = pytest.StashKey["TestWatch"]()
"""In the stash of an item."""
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
    group.addoption(
        "--odradek-requests",
        type=int,
        default=REQUESTS_KEPT,
        metavar="NUMBER",
        help="so many last requests are in the report of a failed test (%(default)s); 0: none are kept",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--odradek-shared") and config.getoption("--odradek-in-thread"):
        raise pytest.UsageError(
            "--odradek-shared is for a broker in a process of its own: leave --odradek-in-thread out"
        )
    if config.getoption("--odradek-requests") < 0:
        raise pytest.UsageError("--odradek-requests is a number from 0 on")
    config.addinivalue_line("markers", f"{RESTORE}: odradek_broker has after the test the data of before it.")
    config.addinivalue_line(
        "markers",
        f"{FAULTS}(api=None, *, fires=1, **fault): a fault is on the brokers of the test while it runs; the "
        "test fails if it has fired less often than `fires` (None: it need not fire).",
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The faults of the markers are there from after the fixtures to the end of the test."""
    test = item.stash.get(_test, None)
    if test is None or not test.faults:
        return (yield)
    with _told_in_a_sentence(), test.with_faults():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    test = item.stash.get(_test, None)
    if report.failed and report.when != "teardown" and test is not None and test.watches:
        from odradek.embedding.pytest_report import section

        report.sections.append(("odradek", section(test.watches)))
    return report


@contextmanager
def _told_in_a_sentence() -> Iterator[None]:
    """Lets the complaint of a marker fail the test, without a traceback through the plugin."""
    from odradek.embedding.pytest_markers import MarkerError

    try:
        yield
    except MarkerError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(autouse=True)
def _odradek_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Watches what the test does to brokers, and undoes it. Fixtures of wider scope are set up before this
    one, those of the test after it: what these do to the broker of the session is undone, too."""
    item = request.node
    markers = [one for one in item.iter_markers() if one.name in (RESTORE, FAULTS)]
    if not markers and OF_BROKERS.isdisjoint(_fixtures_of(item)):
        yield
        return
    from odradek.embedding import pytest_markers

    with _told_in_a_sentence():
        test = item.stash[_test] = pytest_markers.TestWatch(markers)
        if "odradek_broker" not in _fixtures_of(item):
            yield
            return
        request.getfixturevalue("odradek_broker")
        restored = request.config.stash.setdefault(_restored, pytest_markers.RestoredData())
        with test.session_undone(request.config.stash[_session], restored):
            yield


def _fixtures_of(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _test_of(item: pytest.Item) -> TestWatch:
    """Also of a test that names its fixtures only while it runs."""
    if _test not in item.stash:
        from odradek.embedding.pytest_markers import TestWatch

        item.stash[_test] = TestWatch(())
    return item.stash[_test]


def _watch(config: pytest.Config, broker: Any, *, is_shared: bool = False) -> Watch:
    from odradek.embedding.pytest_markers import Watch

    broker.kit_watcher = watch = Watch(broker, config.getoption("--odradek-requests"), is_shared=is_shared)
    return watch


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

        broker = Broker.attached(attachment)
        watch = pytestconfig.stash[_session] = _watch(pytestconfig, broker, is_shared=True)
        watch.started()
        yield broker
        return
    broker = _new_broker(pytestconfig)
    pytestconfig.stash[_session] = _watch(pytestconfig, broker)
    with broker:
        yield broker


@pytest.fixture
def odradek_broker_factory(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Broker]]:
    """Makes running brokers; takes what `odradek.Broker` takes."""
    test = _test_of(request.node)
    brokers: list[Broker] = []

    def make(**arguments: Any) -> Broker:
        broker = _new_broker(pytestconfig, **arguments)
        brokers.append(broker)
        watch = _watch(pytestconfig, broker)
        broker.start()
        test.add(watch)
        return broker

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
def odradek_cluster(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Cluster]]:
    """Makes running clusters of several nodes; takes what `odradek.Cluster` takes."""
    from odradek.embedding.embedded_cluster import Cluster

    test = _test_of(request.node)
    clusters: list[Cluster] = []

    def make(nodes: int = 3, **arguments: Any) -> Cluster:
        cluster = Cluster(nodes, **arguments)
        clusters.append(cluster)
        watches = [_watch(pytestconfig, node) for node in cluster.nodes]
        cluster.start()
        for watch in watches:
            test.add(watch)
        return cluster

    try:
        yield make
    finally:
        for cluster in reversed(clusters):
            cluster.close()
