"""What is said of suites that were run."""

import pathlib
import sys

import pytest

from tools import environment, suites
from tools.durations import HEAD
from tools.suites import Outcome, Suite

REPORT = f"""{HEAD}
file\tcompat_tests/test_slow.py\t2\t20.0\t12.0\t0.2
file\tcompat_tests/test_fast.py\t1\t0.1\t0.3\t0.0
fixture\tcompat_tests/conftest.py::broker\t1\t20.0\t\t
"""


@pytest.fixture(autouse=True)
def reports(monkeypatch, tmp_path):
    monkeypatch.setattr(suites, "REPORTS", tmp_path)
    monkeypatch.setattr(environment, "prepare", lambda pieces: [])
    return tmp_path


def test_what_the_suites_of_a_run_need_is_made_at_once(monkeypatch):
    wanted = []
    monkeypatch.setattr(environment, "prepare", wanted.append)
    monkeypatch.setattr(suites, "run", lambda suite, name: Outcome(True))
    assert suites.main(["check", "streams", "transactions"]) == 0
    assert wanted == [["venv:test", "jars:kafka-4.4.0", "jars:kafka-3.9.2"]]


@pytest.fixture
def seconds(monkeypatch):
    """Suite -> the seconds of its set-up and of its tests; nothing is run."""
    took = {}
    monkeypatch.setattr(suites, "run", lambda suite, name: Outcome(True, *took.get(name, (0.0, 0.0))))
    monkeypatch.setattr(suites, "skipped_for", lambda suite: [])
    monkeypatch.setattr(suites, "slowness", lambda: 1.0)
    return took


def test_the_slowest_files_of_a_suite_are_told(seconds, capsys, reports):
    (reports / "log-0.tsv").write_text(REPORT)
    # Of another suite, whose name begins with the same word.
    (reports / "log-of-others-0.tsv").write_text(REPORT)
    assert suites.main(["log"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "seconds of log: slow 32, fast 0"


def test_a_tier_that_takes_longer_than_it_may_is_told_with_its_seconds_and_passes(seconds, capsys):
    seconds |= {"check": (0.0, 91.0), "node": (0.0, 110.0), "smoke": (0.0, 110.4)}
    assert suites.main(["--tier", "test"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "warning: the tests of this tier took 311 s, 300 s are allowed"
    )


@pytest.mark.parametrize(
    ("took", "what"), [((0.0, 500.0), "tests"), ((300.0, 0.0), "set-up")], ids=["tests", "set-up"]
)
def test_a_tier_that_takes_half_as_long_again_has_failed(took, what, seconds, capsys):
    seconds["node"] = took
    assert suites.main(["--tier", "test"]) == 1
    assert f"error: the {what} of this tier took" in capsys.readouterr().out


def test_a_budget_is_longer_on_a_machine_that_was_slow_most_of_the_time(seconds, monkeypatch, capsys):
    seconds["check"] = (0.0, 90.0 * 1.5 * 1.9)
    measured = iter([1.0, 2.0])
    monkeypatch.setattr(suites, "slowness", lambda: next(measured))
    assert suites.main(["--tier", "check"]) == 1, "the median is 1.5"
    measured = iter([2.0, 2.0])
    assert suites.main(["--tier", "check"]) == 0
    assert "this machine was 2.00 times as slow" in capsys.readouterr().out


def test_how_slow_a_machine_is_follows_from_what_the_same_work_takes(monkeypatch):
    monkeypatch.setattr(suites, "YARDSTICK", "print(9.0)")
    assert suites.slowness() == 9 / suites.YARDSTICK_SECONDS
    monkeypatch.setattr(suites, "YARDSTICK", "print(0.001)")
    assert suites.slowness() == 1


def test_suites_by_their_names_have_no_budget(seconds, capsys):
    seconds["check"] = (0.0, 5000.0)
    assert suites.main(["check"]) == 0
    assert "allowed" not in capsys.readouterr().out


def test_each_suite_is_in_a_tier_that_somebody_runs():
    in_tiers = {name for tier in suites.TIERS.values() for name in tier.suites}
    assert set(suites.SUITES) - in_tiers == {"check-transactions"}
    assert not set(suites.TIERS["test"].suites) & set(suites.TIERS["ci"].suites)


def test_both_smoke_suites_with_java_have_tests():
    for of_spark in (False, True):
        assert suites.smoke(of_spark=of_spark)


def test_no_test_of_smoke_is_run_by_the_tier_after_it():
    assert suites.without_smoke(suites.SUITES["groups"]).commands[0][-2:] == ["-m", "not smoke"]
    assert suites.without_smoke(suites.SUITES["log"]) == suites.SUITES["log"]


def test_suites_with_programs_in_java_are_left_out_where_there_is_no_java(monkeypatch, capsys):
    monkeypatch.setattr(suites, "run", lambda suite, name: Outcome(True))
    monkeypatch.setattr(environment, "missing_for_java", lambda: ["Maven"])
    monkeypatch.delenv("CI", raising=False)
    assert suites.main(["check", "smoke", "smoke-kafka", "spark"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "not run, because Maven is missing: smoke-kafka, spark"


def test_ci_leaves_nothing_out(monkeypatch, capsys):
    monkeypatch.setattr(suites, "run", lambda suite, name: Outcome(True))
    monkeypatch.setattr(environment, "missing_for_java", lambda: ["Maven"])
    monkeypatch.setenv("CI", "true")
    assert suites.main(["smoke-kafka"]) == 0
    assert "not run" not in capsys.readouterr().out


FAILS_FIRST = """
import pathlib

def test_it():
    mark = pathlib.Path(__file__).with_name("mark")
    there = mark.exists()
    mark.touch()
    assert there, "the first try"

def test_steady():
    pass
"""


@pytest.fixture
def suite_of(monkeypatch, tmp_path):
    """Makes the suite `soak` one of a single file."""
    # What this environment has besides takes longer to import than all of it.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "tools").symlink_to(environment.CHECKOUT / "tools")
    monkeypatch.setattr(environment, "CHECKOUT", tmp_path)
    monkeypatch.setattr(environment, "venv", lambda _: pathlib.Path(sys.prefix))

    def suite(content, *options):
        (tmp_path / "test_some.py").write_text(content)
        monkeypatch.setitem(suites.SUITES, "soak", Suite([suites.pytest(*options, "test_some.py")]))

    return suite


def test_a_test_that_fails_by_chance_fails_its_suite_and_is_told_again_at_the_end(suite_of, capfd):
    suite_of(FAILS_FIRST)
    assert suites.main(["soak"]) == 1
    said = capfd.readouterr().out
    assert said.count("1 failed, 1 passed") == 1
    assert "\n-- soak: test_some::test_it" in said
    assert "the first try" in said
    assert "\nsoak                    FAILED" in said
    assert said.splitlines()[-1] == "failed in soak: test_some::test_it", "CI's output is cut in the middle"


GROUPED = """
import pytest

@pytest.mark.xdist_group("alike")
@pytest.mark.parametrize("number", range(6))
def test_one(number, worker_id):
    print(f"{worker_id} has one")
"""


def test_tests_of_a_group_stay_in_one_process(suite_of, capfd):
    """A release of pytest for which pytest-xdist was not made took each for itself, and said nothing: each
    process began each cluster."""
    suite_of(GROUPED, "-p", "xdist.plugin", "-n", "2", "--dist", "loadgroup", "-rP")
    assert suites.main(["soak"]) == 0
    said = capfd.readouterr().out
    assert sorted(said.count(f"gw{worker} has one") for worker in range(2)) == [0, 6]
