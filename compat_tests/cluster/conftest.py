"""The clusters that tests share (`sharing.py`), and which files run in one process for it."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

import odradek as package
from compat_tests.cluster.failing_disk import FailingDisk
from compat_tests.cluster.nodes import COMMIT_TIMEOUT_MS, Cluster, started
from compat_tests.cluster.sharing import Members, SharedControllers, Troubled
from compat_tests.kit.proxy import Proxy
from compat_tests.order import longest_first
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from odradek.storage import disk as disk_module
from tests.tiers import NIGHTLY, TEST_SECONDS_MAX

KILLS = 500 if NIGHTLY else 3
"""In each cluster; at night there are two: of our nodes alone, and with a broker of Kafka."""
SECONDS_A_KILL, SET_UP_AND_CHECK_SECONDS = 40, 900
"""On a busy machine."""

FOLDER = pathlib.Path(__file__).parent
SHARING = {
    "members": ("replication", "nearest_replica", "membership", "quotas", "api_versions", "forwarding"),
    "members, too": (
        *("tools", "elections", "retention_and_compaction", "log_directories", "throttles", "transactions"),
        *("settings", "busy_node", "topics_on_demand", "duplicate_node"),
    ),
    "troubled": (
        *("bad_days_cut", "bad_days_disks", "bad_days_failing", "bad_days_damage", "bad_days_pause"),
        *("bad_days_full", "in_sync"),
    ),
    "embedded": ("embedded", "spark_client"),
}
"""Files whose tests use one cluster: they run in one process, and so it is started once."""
GROUPS = {f"test_{file}": name for name, files in SHARING.items() for file in files}
ALONE = ("coordinators", "kills", "share_moves", "mixed_coordinators", "rolling")
"""The longest of the other files."""
ORDER = [f"test_{name}" for name in (*(file for files in SHARING.values() for file in files), *ALONE)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills",
        type=int,
        default=KILLS,
        help="how often nodes of each cluster are killed while a checked history is made (3; 500 nightly)",
    )

    parser.addoption(
        "--controllers",
        choices=("kafka", "odradek"),
        default="kafka",
        help="whose controller is behind clusters that have one of the current version",
    )


def pytest_configure(config: pytest.Config) -> None:
    Controllers.are_ours = config.getoption("--controllers", "kafka") == "odradek"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kills = config.getoption("--kills", KILLS)
    for item in items:
        if item.name.startswith("test_no_promise_is_broken_when_nodes_are_killed_and_paused"):
            seconds = kills * SECONDS_A_KILL + SET_UP_AND_CHECK_SECONDS
            item.add_marker(pytest.mark.timeout(max(TEST_SECONDS_MAX, seconds)))
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
    longest_first(items, ORDER)


def group_of(item: pytest.Item) -> str:
    if item.path.stem == "test_mixed_coordinators" or re.search(r"\[mixed[]-]", item.name):
        return "mixed"
    return GROUPS.get(item.path.stem, item.path.stem)


OF_GROUPS = ("controllers", "troubled_controllers", "mixed", "running")
"""The fixtures below that begin clusters, for all tests of a group."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the clusters of a group with its last test: a dozen idle nodes take a processor."""
    if item.path.parent != FOLDER or nextitem is None or group_of(nextitem) == group_of(item):
        return
    assert isinstance(item, pytest.Function)
    for name in OF_GROUPS:
        for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
            if fixture.scope == "session":
                fixture.finish(item._request)


@pytest.fixture(scope="session")
def controllers() -> Iterator[SharedControllers]:
    """Those of `members`. Nobody kills them."""
    with SharedControllers() as started:
        assert isinstance(started, SharedControllers)
        yield started


@pytest.fixture(scope="session")
def cluster_of_members(controllers: SharedControllers) -> Iterator[Members]:
    with Members(controllers) as started:
        yield started


@pytest.fixture
def members(cluster_of_members: Members) -> dict[str, OdradekMember | KafkaMember]:
    """By name: "ours", "other", "kafka"."""
    return cluster_of_members.named()


@pytest.fixture(scope="session")
def odradek(cluster_of_members: Members) -> OdradekMember:
    return cluster_of_members.ours


@pytest.fixture(scope="session")
def other(cluster_of_members: Members) -> OdradekMember:
    return cluster_of_members.other


@pytest.fixture(scope="session")
def kafka(cluster_of_members: Members) -> KafkaMember:
    return cluster_of_members.kafka


@pytest.fixture(scope="session")
def troubled_controllers() -> Iterator[SharedControllers]:
    """Those of `troubled`. Nobody kills them; their proxy is cut and mended."""
    with SharedControllers() as started:
        assert isinstance(started, SharedControllers)
        yield started


@pytest.fixture(scope="session")
def _troubled(troubled_controllers: SharedControllers) -> Iterator[Troubled]:
    with Troubled(troubled_controllers) as started:
        yield started


@pytest.fixture
def troubled(_troubled: Troubled) -> Iterator[Troubled]:
    yield _troubled
    _troubled.mend()


@pytest.fixture
def proxy(troubled: Troubled) -> Proxy:
    """In front of the listener at which the follower fetches from the leader."""
    return troubled.proxy


@pytest.fixture
def leader(troubled: Troubled) -> OdradekMember:
    return troubled.leader


@pytest.fixture
def follower(troubled: Troubled) -> OdradekMember:
    return troubled.follower


@pytest.fixture
def witness(troubled: Troubled) -> OdradekMember:
    return troubled.witness


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    """Of the nodes in this process."""
    made = FailingDisk()
    monkeypatch.setattr(disk_module, "OsDisk", lambda: made)
    return made


@pytest.fixture(scope="session")
def mixed() -> Iterator[Cluster]:
    """Two nodes of ours and a broker of Kafka, where everything has three replicas."""
    with started("mixed", {"offsets.commit.timeout.ms": str(COMMIT_TIMEOUT_MS)}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster that a test names as its parameter: one of its own, or `mixed`."""
    if request.param == "mixed":
        yield request.getfixturevalue("mixed")
    else:
        with started(request.param) as running:
            yield running


EMBEDDED = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 2_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "num.partitions": 6,
}
"""Changes of leaders and of the ISR come sooner than by default."""


@pytest.fixture(scope="session", params=["odradek", "kafka"] if NIGHTLY else ["odradek"])
def running(request: pytest.FixtureRequest) -> Iterator[package.Cluster]:
    """`odradek.Cluster`: three nodes as a program of Python starts them, under a controller of ours; at night
    also of Kafka."""
    with package.Cluster(nodes=3, controllers=request.param, options=EMBEDDED) as started:
        yield started
