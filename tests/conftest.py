"""How hypothesis runs: the same examples every time in the fast tier, new ones every night. And each test
finds the log as it was: a test that calls `serve` redirects it."""

import logging

import pytest
from hypothesis import settings

from tests.tiers import NIGHTLY

# No deadline for an example: a busy machine is not a failure.
settings.register_profile("fast", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, print_blob=True)
settings.load_profile("nightly" if NIGHTLY else "fast")


@pytest.fixture(autouse=True)
def log_as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
