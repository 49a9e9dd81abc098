"""Brokers of these tests: each has as long to start as a busy machine may need."""

import pytest

import odradek

START_SECONDS = 120.0
"""By default a user is told after 30 s."""


@pytest.fixture(autouse=True, scope="session")
def brokers_have_time_to_start():
    """Changes the default of `odradek.Broker`, which nearly each test makes."""
    defaults = odradek.Broker.__init__.__kwdefaults__
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "start_timeout_s", START_SECONDS)
        yield
