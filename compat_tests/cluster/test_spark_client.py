"""Our client for Spark, and a leader that is cut off from the cluster and not from its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow
import pytest

import odradek
from compat_tests.clients import wait_until
from compat_tests.cluster.test_embedded import ALL, SECONDS, new_topic
from compat_tests.cluster.test_replication import values_in
from odradek.client.cluster import LATEST, Cluster
from odradek.client.fetching import Fetcher
from odradek.client.producing import Producer
from odradek.client.settings import ClientSettings
from odradek.spark.batching import Batches
from odradek.wire.records import iter_batches, iter_records

OLD = 3


@pytest.fixture
def client(running: odradek.Cluster) -> Iterator[Cluster]:
    """It has asked the old leader first."""
    nodes = sorted(running.nodes, key=lambda node: node.node_id != OLD)
    servers = [node.bootstrap_servers for node in nodes]
    with Cluster(ClientSettings(servers, request_timeout_ms=3_000, patience_ms=120_000)) as connected:
        yield connected
    running.heal()


def write(client: Cluster, topic: str, value: bytes) -> None:
    row = pyarrow.record_batch({"value": pyarrow.array([value])})
    batches = Batches(lambda _: 1, topic=topic)
    with Producer(client) as producer:
        for records in (*batches.add(row), *batches.drain()):
            producer.send(records)
        producer.flush()


def cut_off(running: odradek.Cluster, topic: str) -> None:
    """Returns when another node leads."""
    running.node(OLD).partition_from(*running.nodes, controllers=True)
    wait_until(lambda: running.leader_of(topic).node_id != OLD, "another leads", seconds=SECONDS)


def test_what_is_written_goes_to_the_next_leader(running: odradek.Cluster, client: Cluster) -> None:
    topic = new_topic(running, "written", OLD)
    write(client, topic, b"one")
    cut_off(running, topic)
    write(client, topic, b"two")
    running.heal()
    wait_until(lambda: running.in_sync(topic) == ALL, "all are in sync", seconds=SECONDS)
    assert values_in(running.bootstrap_servers, topic, 2) == [b"one", b"two"]


def test_what_the_next_leader_has_is_read(running: odradek.Cluster, client: Cluster) -> None:
    topic = new_topic(running, "read", OLD)
    write(client, topic, b"one")
    assert client.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 1}
    cut_off(running, topic)
    others = [node.bootstrap_servers for node in running.nodes if node.node_id != OLD]
    with Cluster(ClientSettings(others)) as another:
        write(another, topic, b"two")
    found = [
        record.value
        for fetched in Fetcher(client, topic, 0, 0, 2, read_committed=True)
        for position, header in iter_batches(fetched.buffer)
        for record in iter_records(fetched.buffer[position:], header)
    ]
    assert found == [b"one", b"two"]
