"""Topics for tests, made and visible."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients import wait_until
from compat_tests.kit.history import Partition


def create_topics(bootstrap: str, topics: dict[str, int], replicas: int = 1) -> list[Partition]:
    """Topic -> number of partitions; all partitions, once every client can find them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, count, replicas) for name, count in topics.items()]
    for made in admin.create_topics(new).values():
        made.result(30)

    def are_visible() -> bool:
        known = admin.list_topics(timeout=30).topics
        return all(name in known and len(known[name].partitions) == topics[name] for name in topics)

    wait_until(are_visible, "the topics are visible")
    return [(name, number) for name, count in topics.items() for number in range(count)]
