"""confluent-kafka (librdkafka) against the broker: every story of `stories.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients import Client, wait_until
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.stories import ClientStories, topic_name

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    client = ConfluentClient(bootstrap)
    yield client
    client.close()


class TestConfluentClient(ClientStories):
    def test_who_asks_for_a_deleted_topic_sees_that_it_is_gone(self, bootstrap: str) -> None:
        """Though the question lets the broker create it."""
        topic = topic_name("gone")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        wait_until(lambda: admin.list_topics(topic).topics[topic].error is None, "the topic is there")
        admin.delete_topics([topic])[topic].result()

        def is_gone() -> bool:
            error = admin.list_topics(topic).topics[topic].error
            return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART

        wait_until(is_gone, "the topic is unknown")
