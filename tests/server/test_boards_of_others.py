"""Boards that people have for Kafka show this broker: each metric and label that they ask for is there.

Labels that Prometheus adds (`job`, `instance`) and that Kubernetes adds (`namespace`, `strimzi_io_cluster`)
are left out. The lists are of November 2026.
"""

import urllib.request

import pytest

import odradek
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.embedding.free_port import free_port
from odradek.server.metrics.families import FAMILY
from odradek.server.metrics.rules import ALIASES
from tests.client.topics import produce

GRAFANA_7589 = {
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": {"topic"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic"},
    "kafka_consumergroup_lag": {"consumergroup", "topic"},
}
"""Kafka Exporter Overview, of danielqsj/kafka_exporter."""

STRIMZI_EXPORTER = {
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_topic_partition_replicas": {"topic"},
    "kafka_topic_partition_in_sync_replica": {"topic"},
    "kafka_topic_partition_under_replicated_partition": {"topic"},
    "kafka_topic_partition_leader_is_preferred": {"topic"},
    "kafka_cluster_partition_atminisr": {"topic"},
    "kafka_cluster_partition_underminisr": {"topic"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
}
"""strimzi-kafka-exporter.json, of strimzi/strimzi-kafka-operator."""
BY_A_RULE = {"kafka_exporter_build_info"}
"""What Strimzi's board takes its variables from."""

ASKED = [
    pytest.param(name, labels, id=f"{board}-{name}")
    for board, metrics in (("7589", GRAFANA_7589), ("strimzi", STRIMZI_EXPORTER))
    for name, labels in metrics.items()
]


@pytest.fixture(scope="module")
def scrape():
    """The lines of a broker with a topic, a group and traffic."""
    port = free_port()
    with (
        odradek.Broker(options={"odradek.metrics.listen": str(port)}) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
    ):
        create_topic(cluster, "orders", 2, {})
        produce(cluster, "orders", 0, [b"v"] * 10)
        commit(cluster, "readers", {("orders", 0): (4, "")})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            yield answer.read().decode().splitlines()


@pytest.mark.parametrize(("name", "labels"), ASKED)
def test_each_metric_of_a_board_is_in_the_table_and_in_a_scrape_with_its_labels(scrape, name, labels):
    assert labels <= set(FAMILY[name].labels)
    series = [line for line in scrape if line.startswith(f"{name}{{")]
    of_topic = [line for line in series if 'topic="orders"' in line]
    assert of_topic
    assert all(f'{label}="' in line for line in of_topic for label in labels)


def test_the_values_are_those_of_the_topic_and_the_group(scrape):
    of_group = '{consumergroup="readers",topic="orders",partition="0"}'
    assert f"kafka_consumergroup_lag{of_group} 6" in scrape
    assert f"kafka_consumergroup_current_offset{of_group} 4" in scrape
    assert 'kafka_topic_partition_current_offset{topic="orders",partition="0"} 10' in scrape
    assert 'kafka_topic_partitions{topic="orders"} 2' in scrape


def test_what_no_scrape_has_is_made_by_a_rule():
    assert {rule.name for rule in ALIASES["kafka-exporter"]} == BY_A_RULE
