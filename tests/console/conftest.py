"""Brokers with something to see, and browsers."""

import json

import pytest

import odradek
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.wire.records import build_batch
from tests.client.topics import create_topic, produce_batch
from tests.console.browsers import browser_of

NOW_MS = 1_764_500_000_000
"""Time of the first record."""
NO_RETENTION = {"log.initial.task.delay.ms": str(30 * 86_400_000)}
"""Options of a broker whose old records stay as long as tests run."""


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(num_partitions=2, options=NO_RETENTION) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker):
    with Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as connected:
        yield connected


@pytest.fixture(scope="module")
def browser(broker):
    with browser_of(broker.bootstrap_servers) as opened:
        yield opened


def order(number):
    state = "refund" if number % 10 == 3 else "paid"
    return json.dumps({"id": number, "state": state, "lines": [{"sku": f"A{number % 7}"}]}).encode()


def write_orders(cluster, topic, count, partitions=3):
    """Orders in turn over the partitions, a second apart, in batches of 20."""
    for partition in range(partitions):
        records = [
            (NOW_MS + 1000 * number, b"o-%d" % number, order(number), (("trace", b"t%d" % number),))
            for number in range(partition, count, partitions)
        ]
        for first in range(0, len(records), 20):
            some = records[first : first + 20]
            produce_batch(
                cluster,
                topic,
                partition,
                build_batch([(at, *record) for at, record in enumerate(some)]),
            )


@pytest.fixture(scope="module")
def orders(cluster):
    """A topic of 3 partitions with 300 orders, and the group `billing` at 10 of partition 0 and 90 of 1."""
    topic = create_topic(cluster, partitions=3, name="orders")
    write_orders(cluster, topic, 300)
    commit(cluster, "billing", {(topic, 0): (10, ""), (topic, 1): (90, "")})
    return topic
