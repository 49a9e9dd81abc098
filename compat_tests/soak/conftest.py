"""How long the soak lasts, and time enough for it."""

from __future__ import annotations

import pytest

from tests.tiers import TEST_SECONDS_MAX

SECONDS = 30
KILLS = 3
"""In so many seconds; a longer soak kills more often in proportion."""
SET_UP_AND_CHECK_SECONDS = 240


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-seconds", type=int, default=SECONDS, help="how long the soak lasts (30)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = config.getoption("--soak-seconds", SECONDS)
    for item in items:
        if item.name.startswith("test_nothing_promised"):
            item.add_marker(
                pytest.mark.timeout(max(TEST_SECONDS_MAX, seconds * 2 + SET_UP_AND_CHECK_SECONDS))
            )


@pytest.fixture
def soak_seconds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--soak-seconds", SECONDS))
