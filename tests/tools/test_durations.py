"""Where the seconds of a run of pytest went."""

import pytest

from tools import environment
from tools.durations import HEAD, seconds_of_files

pytest_plugins = ["pytester"]

CLOCKS = """
import pytest
from tools import durations

SECONDS = {"setup": 5, "call": 3, "teardown": 1}

class Clock:
    now = 0.0

durations.clock = lambda: Clock.now

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    report.duration = SECONDS[report.when]

@pytest.fixture(scope="session")
def slow():
    Clock.now += 2

@pytest.fixture
def quick(slow):
    Clock.now += 0.25
"""
TESTS = "def test_one(quick): pass\ndef test_two(quick): pass\n"


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "1")])
def test_files_and_fixtures_have_their_own_seconds(pytester, monkeypatch, workers):
    pytester.makeconftest(CLOCKS)
    pytester.makepyfile(test_it=TESTS)
    # What this environment has besides takes longer to import than all of it.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(environment.CHECKOUT))
    file = pytester.path / "reports" / "seconds.tsv"
    pytester.runpytest_subprocess("-p", "tools.durations", f"--seconds-to={file}", *workers)
    head, *rows = file.read_text().splitlines()
    assert head == HEAD
    found = {tuple(columns[:2]): columns[2:] for columns in (row.split("\t") for row in rows)}
    assert found["file", "test_it.py"] == ["2", "10.00", "6.00", "2.00"]
    fixtures = {
        name.partition("::")[2]: columns for (kind, name), columns in found.items() if kind == "fixture"
    }
    assert fixtures["slow"] == ["1", "2.00", "", ""]
    assert fixtures["quick"] == ["2", "0.50", "", ""]
    assert list(seconds_of_files(file)) == [("test_it.py", 18.0)]
