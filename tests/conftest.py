"""How every test runs: with the same examples of hypothesis by day and new ones every night, and with the log
as it was, since a test that calls `serve` redirects it. Signals mean after a test what they meant before. The
tests of the pure layers open no socket and start no process: that is what keeps `make check` short.
"""

import asyncio
import logging
import pathlib
import signal
import sys

import pytest
from hypothesis import settings

from tests.interrupts import hear_interrupts
from tests.kafka_python import refresh_metadata_soon
from tests.tiers import NIGHTLY, PURE

# No deadline for an example: a busy machine is not a failure.
settings.register_profile("fast", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, print_blob=True)
settings.load_profile("nightly" if NIGHTLY else "fast")

hear_interrupts()

IMPURE = ("socket.connect", "socket.bind", "subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
"""What is forbidden to the tests of the pure layers, as audit events of Python."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
FOLDER = pathlib.Path(__file__).parent

_pure_test = ""


def _refuse_impure(event, _arguments):
    if _pure_test and event in IMPURE:
        raise AssertionError(f"{event} in {_pure_test}: such a test belongs into tests/server, or beside it")


sys.addaudithook(_refuse_impure)


def is_pure(path):
    """Whether a file of tests belongs to the suite `check`."""
    parts = path.relative_to(FOLDER).parts if path.is_relative_to(FOLDER) else ()
    return len(parts) == 1 or (len(parts) > 1 and parts[0] in PURE)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    refresh_metadata_soon()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Around set-up, test and teardown: fixtures are watched as well."""
    global _pure_test
    _pure_test = item.nodeid if is_pure(item.path) else ""
    try:
        return (yield)
    finally:
        _pure_test = ""


@pytest.fixture(autouse=True)
def log_as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def signals_as_before():
    """A handler that a command leaves behind would swallow the Ctrl-C of a test after it."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    after = [signal.getsignal(number) for number in SIGNALS]
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)
    # A closed loop of uvloop leaves its own, in a process that is about to end: findings/.
    assert [
        one for one, old in zip(after, before, strict=True) if one != old and not is_of_closed_loop(one)
    ] == []


def is_of_closed_loop(handler):
    loop = getattr(handler, "__self__", None)
    return isinstance(loop, asyncio.AbstractEventLoop) and loop.is_closed()
