"""Brokers for share groups: Odradek, or Apache Kafka (`--broker=kafka`) to prove that the tests are right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.kit.transaction_brokers import Start, TransactionBroker, starting
from compat_tests.share_groups.brokers import SETTINGS


@pytest.fixture(scope="session")
def is_odradek(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--broker") == "odradek")


@pytest.fixture(scope="session")
def broker(is_odradek: bool) -> Iterator[TransactionBroker]:
    """One for all tests that do not kill it; each uses topics and groups of its own."""
    with starting(is_odradek=is_odradek) as start:
        yield start(SETTINGS)


@pytest.fixture(scope="session")
def bootstrap(broker: TransactionBroker) -> str:
    return broker.bootstrap


@pytest.fixture
def start_broker(is_odradek: bool) -> Iterator[Start]:
    """Starts brokers for one test alone, which kills them."""
    with starting(is_odradek=is_odradek) as start:
        yield lambda **more: start({**SETTINGS, **more})
