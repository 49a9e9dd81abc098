"""aiokafka against the broker: every story of `stories.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.clients import Client
from compat_tests.clients.aio import AiokafkaClient
from compat_tests.stories import ClientStories

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    client = AiokafkaClient(bootstrap)
    yield client
    client.close()


class TestAiokafkaClient(ClientStories):
    pass
