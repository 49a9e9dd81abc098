"""Whose brokers are under Kafka's tests: ours, or Apache Kafka's with `--broker=kafka`."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def is_odradek(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--broker") == "odradek")
