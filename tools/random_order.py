"""A plugin of pytest that runs files, and the tests of each file, in a random order.

    python -m pytest -p tools.random_order --order-seed=7 ...

The same seed gives the same order in each process. A test that needs what another one has left fails in some
order. A module whose tests build on each other says so: `pytestmark = pytest.mark.in_order`. pytest itself
still brings tests together that share a parameter of a fixture of their file.
"""

from __future__ import annotations

import random
from itertools import groupby

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order-seed", type=int, help="a number; without it tests keep their order")


@pytest.hookimpl(tryfirst=True)  # before pytest brings parameters together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--order-seed")
    if seed is not None:
        items[:] = shuffled(items, random.Random(seed))


def shuffled(items: list[pytest.Item], chance: random.Random) -> list[pytest.Item]:
    """The same tests; those of a file stay together."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    chance.shuffle(files)
    for tests in files:
        if tests[0].get_closest_marker("in_order") is None:
            chance.shuffle(tests)
    return [test for tests in files for test in tests]
