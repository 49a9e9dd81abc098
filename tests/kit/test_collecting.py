"""A loop over cases tells each one that fails, and goes on."""

import pytest

from tests.kit.collecting import CASES_SHOWN, Failures, collected


def raised(body):
    with pytest.raises(pytest.fail.Exception) as found, collected() as failures:
        body(failures)
    return str(found.value)


def test_each_failing_case_is_told_by_its_name():
    tried = []

    def body(failures):
        for number in range(4):
            with failures.of(f"case {number}"):
                tried.append(number)
                assert number % 2, "it is even"
        with failures.of("an error"):
            {}["missing"]
        with failures.of("a promise"), pytest.raises(ValueError, match="never"):
            pass

    told = raised(body)
    assert tried == [0, 1, 2, 3]
    assert told.startswith("4 of 6 cases failed\n")
    for part in ("case 0: ", "case 2: ", "it is even", "an error: ", "KeyError: 'missing'", "a promise: "):
        assert part in told
    assert "case 1" not in told


def test_of_many_failures_the_first_are_told_in_full_and_the_others_by_name():
    def body(failures):
        for number in range(CASES_SHOWN + 5):
            with failures.of(f"case {number}"):
                raise ValueError("wrong")

    lines = raised(body).splitlines()
    assert len(lines) == 1 + CASES_SHOWN + 5
    assert lines[-1] == f"case {CASES_SHOWN + 4}"


def test_the_end_of_the_time_of_a_test_ends_its_loop():
    failures = Failures()
    with pytest.raises(pytest.fail.Exception, match="Timeout"), failures.of("a case"):
        pytest.fail("Timeout (>120.0s) from pytest-timeout.")


def test_a_loop_without_a_case_fails():
    with pytest.raises(AssertionError, match="no case"), collected():
        pass


def test_what_passes_is_quiet():
    with collected() as failures, failures.of("a case"):
        pass
