"""The broker fixtures: every test takes `bootstrap` or `broker` and does not know whose it is.

Tests that are marked `nightly` are left out unless ODRADEK_NIGHTLY is set or `-m` names the mark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interrupts import hear_interrupts
from tests.tiers import NIGHTLY

pytest.register_assert_rewrite("compat_tests.stories")

from compat_tests import reference  # noqa: E402
from compat_tests.brokers import ApacheBroker, OdradekBroker, TestBroker  # noqa: E402

hear_interrupts()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if NIGHTLY or "nightly" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


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
