"""The programs and tests in the pages of docs/ about tests, run as a user's project runs them.

Elsewhere are the story with Spark (`compat_tests/spark/test_testing_story.py`), the test in five languages
(`compat_tests/test_testing_page.py`) and those of docs/testing-requests.md (`test_pytest_plugin.py`).
"""

import os
import subprocess
import sys

import pytest

import odradek
from tests.kit.pages import block_with, blocks

pytest_plugins = ["pytester"]

PARENT = os.path.dirname(odradek.__path__[0])
PYTHON_PATH = os.pathsep.join([PARENT, os.environ.get("PYTHONPATH", "")])
SECONDS_MAX = 300


@pytest.mark.deep
def test_the_stories_of_the_page_pass(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PYTHON_PATH)
    # The other plugins of this environment take longer to import than a broker to start.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    stories = [block for block in blocks("testing-stories.md", "python") if "spark" not in block]
    assert len(stories) >= 7
    stories.append(block_with("testing-clock.md", "python", "def test_"))
    pytester.makepyfile(**{f"test_story_{number}": story for number, story in enumerate(stories)})
    count = sum(story.count("\ndef test_") for story in stories)
    more_by_parameters = 3
    plugin = ("-p", "odradek.embedding.pytest_plugin", "--odradek-in-thread")
    result = pytester.runpytest_subprocess(*plugin, timeout=SECONDS_MAX)
    result.assert_outcomes(passed=count + more_by_parameters)


def test_the_programs_of_the_pages_end_well():
    programs = [
        block_with("testing.md", "python", "with odradek.Broker() as broker:"),
        block_with("testing-snapshots.md", "python", "broker.fork()"),
    ]
    for program in programs:
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": PYTHON_PATH},
            timeout=SECONDS_MAX,
            check=True,
        )
