"""kafka-python against the broker: every story of `stories.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.clients import Client
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import ClientStories

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    client = KafkaPythonClient(bootstrap)
    yield client
    client.close()


class TestKafkaPythonClient(ClientStories):
    pass
