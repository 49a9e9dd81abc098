"""The tiers of the tests: which folders `make check` runs, and how much of a test that could go on for ever
each tier runs.
"""

import os

import pytest

NIGHTLY = bool(os.environ.get("ODRADEK_NIGHTLY"))

TEST_SECONDS_MAX = 7200 if NIGHTLY else 900
"""A test that takes longer hangs. The longest ones take 90 s by day, and ten times as long beside others."""

PURE = (
    *("apis", "config", "coordinator", "kit", "offline"),
    *("replication", "security", "storage", "wire"),
)
"""The folders of tests/ without a socket and without a process; the files beside them are as pure."""


def examples(count: int) -> int:
    """How many examples hypothesis tries: `count` at night, a third by day, when they are always the same."""
    return count if NIGHTLY else count // 3


def seeds(count: int, *, fast: int) -> list:
    """So many seeds, of which the first `fast` are in the fast tier, and all others in the suite `log`."""
    return [*range(fast), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(fast, count))]


def rest_at_night(first: object, *others: object) -> list:
    """Parameters of which only the first is tried by day, in the tests of clients."""
    return [first, *(pytest.param(one, marks=pytest.mark.nightly) for one in others)]
