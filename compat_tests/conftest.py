"""The broker fixtures: every test takes `bootstrap` or `broker` and does not know whose it is.

Tests that are marked `nightly` are left out unless ODRADEK_NIGHTLY is set or `-m` names the mark.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator

import pytest

from tests.interrupts import hear_interrupts
from tests.kafka_python import refresh_metadata_soon
from tests.tiers import NIGHTLY

pytest.register_assert_rewrite("compat_tests.stories")

from compat_tests import reference  # noqa: E402
from compat_tests.brokers import ApacheBroker, OdradekBroker, TestBroker  # noqa: E402

hear_interrupts()
LOG_SHOWN = 6_000
"""Characters of the log of a node, its last ones."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if NIGHTLY or "nightly" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    refresh_metadata_soon()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the nodes of ours said that run: many tests share them."""
    report = yield
    quorum = sys.modules.get("compat_tests.quorum")
    if report.failed and quorum is not None:
        for node in sorted(quorum.ENTERED, key=lambda one: int(one.node_id)):
            report.sections.append((f"end of the log of node {node.node_id}", node.log[-LOG_SHOWN:]))
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=["odradek", "kafka"],
        default="odradek",
        help="what the clients talk to; kafka is Apache Kafka from its jars",
    )
    parser.addoption(
        "--kafka-version",
        choices=[reference.CURRENT, reference.OLDER],
        default=reference.CURRENT,
        help="of the broker of --broker=kafka",
    )


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """One broker for the whole session; tests use topics of their own."""
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(request.config.getoption("--kafka-version")) as kafka:
            yield ApacheBroker(kafka)
    else:
        yield OdradekBroker(request.getfixturevalue("odradek_broker"))


@pytest.fixture(scope="session")
def bootstrap(broker: TestBroker) -> str:
    """host:port of the broker under test."""
    return broker.bootstrap
