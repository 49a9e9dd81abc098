"""A controller, a broker of Kafka and a node of ours, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from tests.tiers import NIGHTLY

KAFKA_ID, ODRADEK_ID = 7, 1
KILLS = 500 if NIGHTLY else 5
"""In each cluster; at night there are two: of our nodes alone, and with a broker of Kafka."""
SECONDS_A_KILL, SET_UP_AND_CHECK_SECONDS = 40, 900
"""On a busy machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills",
        type=int,
        default=KILLS,
        help="how often nodes of each cluster are killed while a checked history is made (5; 500 nightly)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kills = config.getoption("--kills", KILLS)
    for item in items:
        if item.name.startswith("test_no_promise_is_broken_when_nodes_are_killed_and_paused"):
            item.add_marker(pytest.mark.timeout(kills * SECONDS_A_KILL + SET_UP_AND_CHECK_SECONDS))


@pytest.fixture(scope="module")
def controllers() -> Iterator[Controllers]:
    with Controllers() as started:
        assert isinstance(started, Controllers)
        yield started


@pytest.fixture(scope="module")
def odradek(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, ODRADEK_ID) as started:
        yield started


@pytest.fixture(scope="module")
def kafka(controllers: Controllers) -> Iterator[KafkaMember]:
    with KafkaMember(controllers, KAFKA_ID) as started:
        assert isinstance(started, KafkaMember)
        yield started
