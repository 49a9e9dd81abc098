"""Kafka's Java clients of 4.4 and of 3.9 against the broker: every story of `stories.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.clients import Client
from compat_tests.clients.java import JavaClient
from compat_tests.stories import ClientStories

CURRENT = pytest.param(reference.CURRENT, marks=pytest.mark.smoke)


@pytest.fixture(scope="module", params=[CURRENT, reference.OLDER])
def client(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    client = JavaClient(bootstrap, request.param)
    yield client
    client.close()


class TestJavaClient(ClientStories):
    pass
