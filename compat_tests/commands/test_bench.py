"""`odradek bench` at any broker: it counts what the broker has, and leaves no topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import topic_name
from odradek.client.cluster import LATEST, Cluster
from odradek.client.settings import ClientSettings

Rows = list[dict[str, Any]]


@pytest.mark.parametrize("action", ["produce", "consume", "roundtrip"])
def test_a_topic_of_its_own_is_made_and_deleted(
    rows: Callable[..., Rows], bootstrap: str, action: str
) -> None:
    (row,) = rows("bench", action, "--records", "200", "--batch", "20", "--compression", "lz4")
    assert (row["test"], row["records"]) == (action, 200)
    assert row["latency_max_ms"] >= row["latency_p50_ms"] > 0
    with Cluster(ClientSettings(bootstrap)) as cluster:
        assert row["topic"] not in cluster.topics()


@pytest.mark.parametrize("acks", ["all", "1"])
def test_records_go_into_a_topic_that_is_named(rows: Callable[..., Rows], bootstrap: str, acks: str) -> None:
    topic = topic_name("bench")
    KafkaPythonClient(bootstrap).create_topic(topic, 3)
    (row,) = rows("bench", "produce", "--topic", topic, "--records", "95", "--batch", "10", "--acks", acks)
    assert (row["records"], row["latency_count"]) == (95, 10)
    with Cluster(ClientSettings(bootstrap)) as cluster:
        ends = cluster.list_offsets({(topic, number): LATEST for number in range(3)})
    assert sum(ends.values()) == 95
    (row,) = rows("bench", "consume", "--topic", topic, "--records", "95")
    assert row["records"] == 95
