"""The bugs that the tests with real clients plant in a broker are about code that is there.

Those tests take minutes and need the clients; a method that has moved shows here, in every run.
"""

import os
import pathlib
import runpy
import subprocess
import sys

import pytest

PLANTED = pathlib.Path(__file__).parents[2] / "compat_tests" / "transactions" / "planted"
BUGS = runpy.run_path(str(PLANTED / "sitecustomize.py"))["BUGS"]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_can_be_planted(bug):
    module, _ = BUGS[bug]
    environment = {**os.environ, "ODRADEK_PLANTED_BUG": bug, "PYTHONPATH": str(PLANTED)}
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
