"""What clients push, in the scrape: names, labels, how long, and how many."""

import pytest

import odradek
from odradek.client.admin.configs import Change, Operation, Resource, ResourceKind, alter_configs
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.coordinator.client_metrics.clients import ClientMetrics, Sender
from odradek.embedding.free_port import free_port
from odradek.server.metrics.clients import SERIES_MAX, client_samples
from odradek.server.metrics.exposition import label_text, pieces
from odradek.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek.wire.messages.push_telemetry import PushTelemetryRequest
from odradek.wire.otlp import MetricPoint, MetricsPush
from odradek.wire.schema import ZERO_UUID, uuid_to_text
from tests import raw_client
from tests.otlp_writer import gauge, metrics_data, point
from tests.raw_client import RawClient
from tests.server.scrape import scraped

INTERVAL_MS = 1000
NOW_MS = 10 * INTERVAL_MS
SENDER = Sender("payments", "java", "4.3.1", "10.0.0.7", 4711)


def number(name, value, labels=None, observations=None):
    return MetricPoint(name, labels or {}, value, observations, False, 0)


def metrics_of(*pushes):
    """A machine in which one client for each has pushed these points at `NOW_MS`."""
    ids = iter(range(2, 100_000))
    metrics = ClientMetrics(lambda: next(ids).to_bytes(16, "big"))
    metrics.follow({"all": {"metrics": "*", "interval.ms": str(INTERVAL_MS)}})
    instances = []
    for points in pushes:
        wanted = metrics.subscribe(ZERO_UUID, SENDER, NOW_MS)
        metrics.end_push(wanted.instance_id, MetricsPush({}, tuple(points), 0, 0), NOW_MS)
        instances.append(uuid_to_text(wanted.instance_id))
    return metrics, instances


def samples(metrics, now_ms=NOW_MS):
    omitted = []
    found = [one for one in client_samples(metrics, now_ms, omitted) if one is not None]
    assert len({(name, labels) for name, labels, _ in found}) == len(found)
    return {(name, labels): value for name, labels, value in found}, omitted


def test_names_and_labels_have_the_form_of_prometheus():
    points = [
        number("org.apache.kafka.producer.record-send.rate", 2.5, {"node.id": "1", "9": "x", "-": "none"}),
        number("Eigene Zahl!", 3, {"client_id": "forged", "client-instance-id": "forged"}),
        number("org.apache.kafka.latency", 12.0, observations=4),
    ]
    metrics, (instance,) = metrics_of(points)
    who = {"client_id": "payments", "client_instance_id": instance}
    found, omitted = samples(metrics)
    assert found == {
        ("kafka_client_producer_record_send_rate", label_text(**who, node_id="1", _9="x")): 2.5,
        ("kafka_client_eigene_zahl", label_text(**who)): 3,
        ("kafka_client_latency_sum", label_text(**who)): 12.0,
        ("kafka_client_latency_count", label_text(**who)): 4,
    }
    assert omitted == []


def test_names_that_become_the_same_and_what_is_no_number_are_left_out():
    points = [
        number("a.b", 1),
        number("a-b", 2),
        number("nan", float("nan")),
        number("inf", float("inf")),
    ]
    metrics, (instance,) = metrics_of(points)
    found, _ = samples(metrics)
    labels = label_text(client_id="payments", client_instance_id=instance)
    assert found == {("kafka_client_a_b", labels): 1}


def test_values_are_told_for_two_intervals():
    metrics, _ = metrics_of([number("one", 1)])
    assert len(samples(metrics, NOW_MS + 2 * INTERVAL_MS - 1)[0]) == 1
    assert len(samples(metrics, NOW_MS + 2 * INTERVAL_MS)[0]) == 0


def test_a_family_of_many_clients_comes_in_one_piece_with_one_head():
    metrics, _ = metrics_of([number("a", 1), number("b", 1)], [number("a", 2), number("b", 2)])
    text = "".join(pieces(client_samples(metrics, NOW_MS, [])))
    names = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    assert names == ["kafka_client_a"] * 2 + ["kafka_client_b"] * 2
    assert text.count("# TYPE kafka_client_a untyped") == 1


def test_more_series_than_the_limit_are_counted_and_the_pace_is_kept():
    metrics, _ = metrics_of(*[[number(f"n{one}", one) for one in range(100)] for _ in range(60)])
    omitted, steps, in_step = [], [], 0
    found = 0
    for one in client_samples(metrics, NOW_MS, omitted):
        if one is None:
            steps.append(in_step)
            in_step = 0
        else:
            found, in_step = found + 1, in_step + 1
    assert found == SERIES_MAX
    assert omitted == [("kafka_client_*", 1000)]
    # While 6,000 points are gathered.
    assert len(steps) >= 50


@pytest.fixture
def port():
    return free_port()


def test_what_a_client_pushes_is_in_the_scrape(port):
    with (
        odradek.Broker(options={"odradek.metrics.listen": f"127.0.0.1:{port}"}) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as cluster,
        RawClient(broker.port) as client,
    ):
        subscribed = [Change("metrics", Operation.SET, "*"), Change("interval.ms", Operation.SET, "60000")]
        alter_configs(cluster, Resource(ResourceKind.CLIENT_METRICS, "all"), subscribed)
        told = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
        pushed = PushTelemetryRequest(
            client_instance_id=told.client_instance_id,
            subscription_id=told.subscription_id,
            terminating=False,
            compression_type=0,
            metrics=metrics_data(gauge("org.apache.kafka.producer.count", point(5, topic='a"b'))),
        )
        assert client.ask(pushed, 0).error_code == 0
        labels = label_text(
            client_id=raw_client.CLIENT_ID,
            client_instance_id=uuid_to_text(told.client_instance_id),
            topic='a"b',
        )
        assert scraped(port)["kafka_client_producer_count", labels] == 5
