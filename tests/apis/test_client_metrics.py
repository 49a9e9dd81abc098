"""GetTelemetrySubscriptions and PushTelemetry: from a client's request to the values that it has sent."""

import tracemalloc
import zlib

import pytest

from odradek.coordinator.client_metrics.clients import ClientMetrics
from odradek.coordinator.cluster.changes import ClientMetricsOwner
from odradek.wire.compression import compress
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek.wire.messages.push_telemetry import PushTelemetryRequest
from odradek.wire.schema import ZERO_UUID, uuid_to_text
from tests.apis.conftest import FakeConnection
from tests.otlp_writer import gauge, metrics_data, point

DATA = metrics_data(gauge("org.apache.kafka.producer.count", point(5)), group_id="g")


class MeasuredNode:
    """A node with the subscription `all`, and its machine of client metrics."""

    def __init__(self, node):
        self.node = node
        self.metrics = node.client_metrics()
        node.set_configs(ClientMetricsOwner("all"), {"metrics": "*", "interval.ms": "1000"})

    def subscribe(self, instance_id=ZERO_UUID, **arguments):
        return self.node.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), **arguments)

    def push(self, told, data, compression=0, **changes):
        fields = {
            "client_instance_id": told.client_instance_id,
            "subscription_id": told.subscription_id,
            "terminating": False,
            **changes,
        }
        request = PushTelemetryRequest(metrics=data, compression_type=compression, **fields)
        return ErrorCode(self.node.ask(request).error_code).name

    @property
    def values(self):
        return self.metrics.values(self.node.loop.now_ms)


@pytest.fixture
def measured(node):
    return MeasuredNode(node)


def test_a_client_gets_an_id_and_is_told_what_to_push(measured):
    told = measured.subscribe()
    assert told.error_code == 0
    assert told.client_instance_id != ZERO_UUID
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.push_interval_ms, told.telemetry_max_bytes) == (1000, 1_048_576)
    assert (told.delta_temporality, told.requested_metrics) == (True, ["*"])


def test_who_asks_too_soon_learns_nothing(measured):
    told = measured.subscribe()
    again = measured.subscribe(told.client_instance_id)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (again.client_instance_id, again.accepted_compression_types) == (ZERO_UUID, [])


@pytest.mark.parametrize("compression", range(5))
def test_pushed_values_can_be_read(measured, compression):
    told = measured.subscribe(client_id="payments")
    assert measured.push(told, compress(compression, DATA), compression) == "NONE"
    (client,) = measured.values
    assert client.client_instance_id == uuid_to_text(told.client_instance_id)
    assert (client.client_id, client.labels) == ("payments", {"group_id": "g"})
    assert [(one.name, one.value) for one in client.metrics] == [("org.apache.kafka.producer.count", 5)]
    assert client.pushed_ms == measured.node.loop.now_ms


def test_pushed_values_are_in_the_log_for_those_who_want_them(measured, caplog):
    told = measured.subscribe()
    data = metrics_data(gauge("a\nforged line", point(5)), *[gauge("n" * 1000, point(n)) for n in range(20)])
    with caplog.at_level("DEBUG", "odradek.clients"):
        assert measured.push(told, data) == "NONE"
    (line,) = caplog.messages
    assert "{'a\\nforged line': 5," in line
    assert len(line) < 9000


def test_an_empty_push_is_fine_and_tells_nothing(measured):
    assert measured.push(measured.subscribe(), b"") == "NONE"
    assert measured.values == ()


@pytest.mark.parametrize(
    ("data", "compression"),
    [(b"\x0a", 0), (b"no zstd", 4), (b"no gzip", 1), (b"no lz4", 3), (b"\xff\xff", 2)],
)
def test_what_cannot_be_read_is_an_invalid_record(measured, data, compression):
    assert measured.push(measured.subscribe(), data, compression) == "INVALID_RECORD"
    assert measured.values == ()


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_a_small_push_that_decompresses_to_much_is_refused_within_the_limit(make_node, compression):
    """CVE-2026-111073: a thousand bytes must not take a gigabyte."""
    limit_bytes = 100_000
    measured = MeasuredNode(make_node(telemetry_max_bytes=limit_bytes))
    bomb = compress(compression, bytes(50 * limit_bytes))
    bomb = bomb if len(bomb) <= limit_bytes else compress(compression, bytes(limit_bytes + 1))
    told = measured.subscribe()
    assert measured.push(told, compress(compression, b""), compression) == "NONE"  # the codec is loaded
    measured.node.loop.advance(1000)
    tracemalloc.start()
    try:
        assert measured.push(told, bomb, compression) == "INVALID_RECORD"
        assert tracemalloc.get_traced_memory()[1] < 20 * limit_bytes
    finally:
        tracemalloc.stop()
    assert [one.metrics for one in measured.values] in ([], [()])


def test_a_push_over_the_limit_is_too_large_even_if_it_would_be_less_unpacked(make_node):
    measured = MeasuredNode(make_node(telemetry_max_bytes=100))
    assert measured.push(measured.subscribe(), bytes(101)) == "TELEMETRY_TOO_LARGE"


def test_decompression_is_done_by_a_worker(make_node):
    """The event loop gets the work as a function to be called elsewhere."""
    functions = []

    class Workers:
        def run(self, work, done, failed):
            try:
                step = next(work)
                while True:
                    functions.append(step)
                    step = work.send(step() if step is not None else None)
            except StopIteration as end:
                done(end.value)

    measured = MeasuredNode(make_node(conversions=Workers()))
    assert measured.push(measured.subscribe(), zlib.compress(DATA, wbits=31), 1) == "NONE"
    assert any(callable(one) for one in functions)


def test_client_metrics_are_advertised_while_there_is_a_subscription(node):
    def advertised():
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return {71, 72} & {one.api_key for one in node.ask(request, 4).api_keys}

    assert advertised() == set()
    node.set_configs(ClientMetricsOwner("s"), {"metrics": "*"})
    assert advertised() == {71, 72}
    node.set_configs(ClientMetricsOwner("s"), {})
    assert advertised() == set()


def test_clients_are_told_apart_by_their_address(measured):
    other = FakeConnection()
    other.peer_port += 1
    told = measured.subscribe()
    assert measured.subscribe(told.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert measured.subscribe(told.client_instance_id, connection=other).error_code == 0


def test_a_subscription_outlives_a_restart(node):
    from odradek.coordinator.controller.alone import LoneController

    node.set_configs(ClientMetricsOwner("a/b"), {"metrics": "org.a", "interval.ms": "500"})
    node.set_configs(ClientMetricsOwner("gone"), {"metrics": "org.a"})
    node.set_configs(ClientMetricsOwner("gone"), {})
    again = LoneController(node.metadata, node_id=1, cluster_id="test-cluster", new_id=lambda: b"")
    again.load()
    assert again.view.client_metrics_configs == {"a/b": {"metrics": "org.a", "interval.ms": "500"}}


def test_the_machine_is_made_when_it_is_first_needed(node):
    assert isinstance(node.client_metrics(), ClientMetrics)
    assert node.client_metrics() is node.client_metrics()
