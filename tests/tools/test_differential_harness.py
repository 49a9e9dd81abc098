"""A difference between the two brokers fails the test that compares them, where it compares them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.differential.harness import Pair, Side


@pytest.fixture
def pair() -> Pair:
    """Nobody listens there: these tests compare values and ask nothing."""
    return Pair(Side("kafka", "127.0.0.1:1"), Side("odradek", "127.0.0.1:1"), {})


def failure(act: Callable[[], None]) -> str:
    """What the test says that fails here, its last line shown being one of this file."""
    with pytest.raises(AssertionError) as caught:
        act()
    shown = [entry for entry in caught.traceback if not entry.ishidden(caught)]
    assert shown[-1].path.name == "test_differential_harness.py"
    return str(caught.value)


def test_a_difference_fails_where_it_is_found(pair: Pair) -> None:
    theirs, ours = {"error_code": 3, "topics": [{"name": "a"}]}, {"error_code": 0, "topics": [{"name": "a"}]}

    said = failure(lambda: pair.compare("Metadata v12 (sound)", theirs, ours))

    assert said.strip() == "Metadata v12 (sound).error_code: Kafka 3, Odradek 0"


def test_what_is_alike_or_allowed_fails_nothing(pair: Pair) -> None:
    pair.compare("Metadata v12", {"error_code": 3}, {"error_code": 3})
    pair.compare("CreateTopics v7", {"error_message": "in their words"}, {"error_message": "in ours"})


def test_a_sweep_fails_at_its_end_with_all_differences(pair: Pair) -> None:
    compared = []

    def sweep() -> None:
        with pair.collecting():
            for number in range(3):
                pair.compare(f"Heartbeat v{number}", {"error_code": number}, {"error_code": 1})
                compared.append(number)

    said = failure(sweep)

    assert compared == [0, 1, 2]
    assert said.split("\n")[1:] == [
        "Heartbeat v0.error_code: Kafka 0, Odradek 1",
        "Heartbeat v2.error_code: Kafka 2, Odradek 1",
    ]


def test_a_sweep_inside_a_sweep_leaves_its_differences_to_the_outer_one(pair: Pair) -> None:
    def sweep() -> None:
        with pair.collecting() as outer:
            with pair.collecting():
                pair.compare("inner", 1, 2)
            assert outer == ["inner: Kafka 1, Odradek 2"]

    failure(sweep)
    failure(lambda: pair.compare("later", 1, 2))  # nothing is collected any more


def test_another_failure_in_a_sweep_is_shown_with_the_differences_before_it(pair: Pair) -> None:
    def sweep() -> None:
        with pair.collecting():
            pair.compare("before", 1, 2)
            raise TimeoutError

    with pytest.raises(TimeoutError) as caught:
        sweep()

    assert caught.value.__notes__ == ["differences until then:\nbefore: Kafka 1, Odradek 2"]
