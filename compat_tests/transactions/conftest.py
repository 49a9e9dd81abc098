"""Brokers for transactions, and how long the long tests are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.kit.transaction_brokers import Start, TransactionBroker, starting
from compat_tests.order import longest_first
from tests.tiers import NIGHTLY, TEST_SECONDS_MAX

SHORT_HISTORY_SECONDS = 25
HISTORY_SECONDS = 300 if NIGHTLY else SHORT_HISTORY_SECONDS
SET_UP_AND_CHECK_SECONDS = 600
LONGEST = ("test_history", "test_copiers", "test_streams", "test_loops", "test_versions")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--history-seconds",
        type=int,
        default=HISTORY_SECONDS,
        help="how long the clients work whose history is checked (25; 300 nightly)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = config.getoption("--history-seconds", HISTORY_SECONDS)
    for item in items:
        if item.name.startswith("test_no_promise"):
            item.add_marker(
                pytest.mark.timeout(max(TEST_SECONDS_MAX, seconds * 3 + SET_UP_AND_CHECK_SECONDS))
            )
    longest_first(items, LONGEST)


@pytest.fixture(scope="session")
def is_odradek(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--broker") == "odradek")


@pytest.fixture(scope="session")
def broker(is_odradek: bool) -> Iterator[TransactionBroker]:
    """One for all tests that do not say otherwise; each uses topics, groups and ids of its own."""
    with starting(is_odradek=is_odradek) as start:
        yield start()


@pytest.fixture(scope="session")
def bootstrap(broker: TransactionBroker) -> str:
    return broker.bootstrap


@pytest.fixture
def start_broker(is_odradek: bool) -> Iterator[Start]:
    """Starts brokers for one test alone."""
    with starting(is_odradek=is_odradek) as start:
        yield start
