"""Runs Kafka's own tests that want a cluster against our brokers, and holds their outcome against
`not_passed.toml`, both ways: what is not listed there must pass, and what is listed must fail so (`unsteady`
ones may)."""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any

import pytest

from compat_tests.kafkas_own import suite
from compat_tests.outcomes import Outcome, complaints

pytestmark = pytest.mark.nightly

NOT_PASSED: dict[str, Any] = tomllib.loads((pathlib.Path(__file__).parent / "not_passed.toml").read_text())
RUN: dict[str, int] = NOT_PASSED["run"]
"""Classes of tests -> in how many parts they run, beside one another."""
LEFT_OUT = {name for group in NOT_PASSED["left_out"] for name in group["classes"]}


def listed(kind: str, name: str) -> dict[str, str]:
    """The tests of a class that are listed so -> what their failure says, or why they are not run."""
    return {
        test: entry.get("says", entry["reason"])
        for entry in NOT_PASSED.get(kind, ())
        for test in entry["tests"].get(name, ())
    }


def test_each_class_of_kafka_is_run_or_named() -> None:
    assert RUN.keys() | LEFT_OUT == set(suite.suites())
    assert not RUN.keys() & LEFT_OUT


@pytest.mark.parametrize(
    ("name", "part", "parts"),
    [(name, part, parts) for name, parts in RUN.items() for part in range(parts)],
)
def test_kafkas_own_tests(name: str, part: int, parts: int, is_odradek: bool) -> None:
    not_run = listed("not_run", name)
    with suite.program() as started:
        there = suite.tests_of(started, name)
        assert not_run.keys() <= {test.name for test in there}
        chosen = [test for test in there if test.name not in not_run][part::parts]
        found = suite.run_all(started, chosen, is_odradek=is_odradek)
    assert_only_listed(name, found, {test.name for test in there} - {test.name for test in chosen})


def assert_only_listed(name: str, found: dict[str, Outcome], others: set[str]) -> None:
    """`others` are tests of the class that were not run here."""
    unsteady = listed("unsteady", name)
    fails = listed("fails", name)
    assert (unsteady.keys() | fails.keys()) <= found.keys() | others
    steady = {
        test: outcome
        for test, outcome in found.items()
        if test not in unsteady or outcome.what != "failed" or unsteady[test] not in outcome.why
    }
    wrong = complaints(steady, "failed", {test: says for test, says in fails.items() if test not in others})
    assert not wrong, "\n\n".join(wrong)
