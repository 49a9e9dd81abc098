"""Brokers with traffic, and a Prometheus that reads them."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import confluent_kafka
import pytest

import odradek
from compat_tests.monitoring.prometheus import DAY_MS, PATIENCE_S, Prometheus, missing, until
from compat_tests.monitoring.sharing import BROKER_OPTIONS, Sharing
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.embedding.free_port import free_port
from tests.client.topics import produce

TOPIC, GROUP, SLOW, AHEAD = "orders", "readers", "slow", "ahead"
PAYMENTS = "payments"
SYNCED = "synced"
"""Each of its appends is synced."""
LATE_MS = 3_600_000
"""Age of the records that `SLOW` has not committed: too late from the first scrape on."""
BOUNDS = {
    "connections.max.idle.ms": f"{DAY_MS}",  # share sessions end with their connections
    "transaction.max.timeout.ms": f"{DAY_MS}",
}


@dataclass
class Watched:
    """What the tests ask."""

    prometheus: Prometheus
    targets: list[str]
    cluster: Cluster
    consumer: confluent_kafka.Consumer
    producer: confluent_kafka.Producer
    sharing: Sharing

    def traffic(self) -> None:
        """Some of each kind."""
        now_ms = time.time_ns() // 1_000_000
        produce(self.cluster, TOPIC, 0, [b"v" * 100] * 10, timestamp=now_ms)
        # More than were written, so that a consumer that was slow to join gets to the end.
        self.consumer.consume(100, timeout=0.1)
        self.cluster.partitions_of(["there-is-no-such-topic"])
        produce(self.cluster, SYNCED, 0, [b"v"])
        self.producer.commit_transaction(PATIENCE_S)
        self.begin()
        self.sharing.traffic()

    def begin(self) -> None:
        """A transaction is open from one traffic to the next."""
        self.producer.begin_transaction()
        self.producer.produce(PAYMENTS, b"v")
        self.producer.flush(PATIENCE_S)

    def scrape(self, target: str) -> bytes:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=30) as answer:
            text: bytes = answer.read()
        return text

    def wait_for_data(self, expression: str) -> None:
        """Until there is a number; fails when there is none in time."""

        def ask() -> list[float]:
            found = self.prometheus.query(expression)
            if not found:
                self.traffic()
            return found

        until(ask, bool, f"{expression} gives data")


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def watched(_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A broker with topics, groups, share groups, errors and an open transaction, one that leaves series out,
    and their Prometheus."""
    ports = [free_port(), free_port()]
    options = [{"odradek.metrics.listen": str(port)} for port in ports]
    options[0] |= BOUNDS | BROKER_OPTIONS
    options[1]["odradek.metrics.series.max"] = "0"
    targets = [f"127.0.0.1:{port}" for port in ports]
    with (
        odradek.Broker(process=True, options=options[0]) as broker,
        odradek.Broker(process=True, options=options[1]) as other,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
        Cluster(ClientSettings(other.bootstrap_servers)) as of_other,
        Prometheus(tmp_path_factory.mktemp("prometheus"), targets) as prometheus,
    ):
        create_topic(of_other, TOPIC, 1, {})
        create_topic(cluster, TOPIC, 2, {})
        create_topic(cluster, PAYMENTS, 1, {})
        create_topic(cluster, SYNCED, 1, {"flush.messages": "1"})
        produce(cluster, TOPIC, 1, [b"v"] * 10, timestamp=time.time_ns() // 1_000_000 - LATE_MS)
        commit(cluster, SLOW, {(TOPIC, 1): (4, "")})
        commit(cluster, AHEAD, {(TOPIC, 1): (99, "")})
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": "payer",
                "transaction.timeout.ms": DAY_MS,
            }
        )
        producer.init_transactions(PATIENCE_S)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "max.poll.interval.ms": DAY_MS,
            }
        )
        with closing(consumer), Sharing(broker.bootstrap_servers, cluster) as sharing:
            consumer.subscribe([TOPIC])
            watched = Watched(prometheus, targets, cluster, consumer, producer, sharing)
            watched.begin()
            yield watched
            producer.abort_transaction(PATIENCE_S)
