"""What is said of suites that were run."""

import pytest

from tools import suites

REPORT = """<testsuites><testsuite>
<testcase classname="compat_tests.test_fast" name="a" time="0.4"/>
<testcase classname="compat_tests.test_slow" name="b" time="20.0"/>
<testcase classname="compat_tests.test_slow" name="c" time="12.2"/>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def reports(monkeypatch, tmp_path):
    monkeypatch.setattr(suites, "REPORTS", tmp_path)
    return tmp_path


def test_the_slowest_files_of_a_suite_are_told(monkeypatch, capsys, reports):
    (reports / "log-0.xml").write_text(REPORT)
    monkeypatch.setattr(suites, "run", lambda name: (True, 0.0, 33.0))
    assert suites.main(["log"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "seconds of log: slow 32, fast 0"


def test_a_suite_that_takes_longer_than_it_may_is_told_with_its_seconds_and_passes(monkeypatch, capsys):
    took = {"check": 131.4, "log": 500.0}
    monkeypatch.setattr(suites, "run", lambda name: (True, 40.0, took[name]))
    assert suites.main(["check", "log"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "warning: the tests of check took 131 s, 120 s are allowed"
    assert said.count("warning") == 1


def test_the_set_up_of_a_suite_does_not_count(monkeypatch, capsys):
    monkeypatch.setattr(suites, "run", lambda name: (True, 600.0, 119.0))
    assert suites.main(["check"]) == 0
    assert "warning" not in capsys.readouterr().out
