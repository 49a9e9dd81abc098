"""confluent-kafka (librdkafka) against the broker: every story of `stories.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.clients import Client
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.stories import ClientStories


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    client = ConfluentClient(bootstrap)
    yield client
    client.close()


class TestConfluentClient(ClientStories):
    pass
