"""The stories of docs/testing-stories.md, run by a pytest of their own, as a user's project runs them.

The one with Spark is run by `compat_tests/spark/test_testing_story.py`.
"""

import os

import odradek
from tests.kit.pages import blocks

pytest_plugins = ["pytester"]

PAGE = "testing-stories.md"


def test_the_stories_of_the_page_pass(pytester, monkeypatch):
    parent = os.path.dirname(odradek.__path__[0])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([parent, os.environ.get("PYTHONPATH", "")]))
    # The other plugins of this environment take longer to import than a broker to start.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    stories = [block for block in blocks(PAGE, "python") if "spark" not in block]
    assert len(stories) >= 7
    pytester.makepyfile(**{f"test_story_{number}": story for number, story in enumerate(stories)})
    count = sum(story.count("\ndef test_") for story in stories)
    more_by_parameters = 3
    result = pytester.runpytest_subprocess("-p", "odradek.embedding.pytest_plugin", "--odradek-in-thread")
    result.assert_outcomes(passed=count + more_by_parameters)
