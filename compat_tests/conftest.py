"""The broker fixtures: every test takes `bootstrap` or `broker` and does not know whose it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("compat_tests.stories")

from compat_tests import reference  # noqa: E402
from compat_tests.brokers import ApacheBroker, OdradekBroker, TestBroker  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=["odradek", "kafka"],
        default="odradek",
        help="what the clients talk to; kafka is Apache Kafka from its jars",
    )


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """One broker for the whole session; tests use topics of their own."""
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka() as kafka:
            yield ApacheBroker(kafka)
    else:
        yield OdradekBroker(request.getfixturevalue("odradek_broker"))


@pytest.fixture(scope="session")
def bootstrap(broker: TestBroker) -> str:
    """host:port of the broker under test."""
    return broker.bootstrap
