"""Where the seconds of a run of pytest went."""

import pytest

from tools import environment
from tools.durations import HEAD

pytest_plugins = ["pytester"]

TESTS = """
import time
import pytest

@pytest.fixture(scope="session")
def slow():
    time.sleep(0.2)

@pytest.fixture
def quick(slow):
    pass

def test_one(quick):
    time.sleep(0.1)

def test_two(quick):
    pass
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "1")])
def test_files_and_fixtures_have_their_own_seconds(pytester, monkeypatch, workers):
    pytester.makepyfile(test_it=TESTS)
    # What this environment has besides takes longer to import than all of it.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(environment.CHECKOUT))
    file = pytester.path / "reports" / "seconds.tsv"
    pytester.runpytest_subprocess("-p", "tools.durations", f"--seconds-to={file}", *workers)
    head, *rows = file.read_text().splitlines()
    assert head == HEAD
    found = {tuple(columns[:2]): columns[2:] for columns in (row.split("\t") for row in rows)}
    times, set_up, call, _ = found["file", "test_it.py"]
    assert times == "2"
    assert float(set_up) >= 0.2
    assert float(call) >= 0.1
    times, set_up, *_ = found["fixture", "test_it.py::slow"]
    assert (times, float(set_up) >= 0.2) == ("1", True)
    times, set_up, *_ = found["fixture", "test_it.py::quick"]
    assert (times, float(set_up) < 0.2) == ("2", True)
