"""Replicas that move are throttled: by a follower of ours, by a leader of ours, by Kafka's tool on both.

The bytes are counted in the follower's files. None of the bounds says how fast replication is; they say that
the limit is kept.
"""

from __future__ import annotations

import os
import pathlib
import threading
import time

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.test_log_directories import reassign
from compat_tests.cluster.test_replication import create, isr_of, partition
from compat_tests.cluster.test_settings import BROKER, TOPIC, altered
from compat_tests.differential.harness import Side
from compat_tests.quorum import KafkaMember, OdradekMember
from compat_tests.reference import CURRENT, run_java
from compat_tests.test_java_tools import Reassigning
from odradek.coordinator.replication.replication_quota import WindowedRate
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.tiers import rest_at_night

VALUE_BYTES = 100_000
MOVED_BYTES = 16_000_000
RATE = 3_000_000
"""Bytes in a second: a move takes five seconds."""
FIRST_WINDOW_S = 1
"""Of a rate that is measured for the first time: it counts as a whole one at once."""
ALL_WINDOWS_S = 12
"""What was not used of them may be used at once. A leader of Kafka counts each response to a follower, also
without records of throttled replicas, and so has all of its windows when a move begins."""
TOOL_RATE = 1_000_000
MOVED_BY_TOOL_BYTES = 20_000_000
"""More than all windows allow."""
PIECE_BYTES = 2 * 1_048_576
"""A fetch of one partition goes over the limit before it is known, on each side."""
MOVE_SECONDS = 120


def fill(bootstrap: str, topic: str, size_bytes: int = MOVED_BYTES) -> None:
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "none", "linger.ms": 5})
    for _ in range(size_bytes // VALUE_BYTES):
        producer.produce(
            topic,
            os.urandom(VALUE_BYTES),
            partition=0,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures


def log_bytes(node: OdradekMember | KafkaMember, topic: str) -> int:
    return sum(file.stat().st_size for file in pathlib.Path(node.data_dir, f"{topic}-0").glob("*.log"))


def setting(node: OdradekMember | KafkaMember, kind: int, owner: str, name: str) -> str | None:
    """As that node has it; a rate that is not set is not told."""
    side = Side("broker", node.bootstrap_servers)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=owner, configuration_keys=[name])
    try:
        (found,) = side.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    finally:
        side.close()
    return found.configs[0].value if found.configs else None


def wait_for_setting(
    node: OdradekMember | KafkaMember, kind: int, owner: str, name: str, value: str | None
) -> None:
    wait_until(
        lambda: (setting(node, kind, owner, name) or None) == value,
        f"{name} is {value} at {node.node_id}",
        seconds=DEADLINE_SECONDS,
    )


class Watch:
    """How a replica grows, until it has all: (monotonic seconds, bytes)."""

    def __init__(self, node: OdradekMember | KafkaMember, topic: str, size_bytes: int = MOVED_BYTES) -> None:
        self.growth: list[tuple[float, int]] = []
        self._node, self._topic, self._size_bytes = node, topic, size_bytes
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._ending.set()
        self._thread.join(MOVE_SECONDS + 10)

    def _run(self) -> None:
        size, ends_at = 0, time.monotonic() + MOVE_SECONDS
        while size < self._size_bytes and time.monotonic() < ends_at:
            size = log_bytes(self._node, self._topic)
            self.growth.append((time.monotonic(), size))
            if self._ending.wait(0.05):
                break

    def check(self, rate: int, window_s: int) -> None:
        """At no time more than the limit and the windows allow; and the move has ended."""
        begin = max((at for at, size in self.growth if size == 0), default=self.growth[0][0])
        ended, size = self.growth[-1]
        assert size >= self._size_bytes, f"{size} bytes after {ended - begin:.1f} s"
        print(f"{size} bytes in {ended - begin:.1f} s at a limit of {rate} a second")
        for at, size in self.growth:
            if at < begin:
                continue
            allowed = rate * (at - begin + window_s) + PIECE_BYTES
            assert size <= allowed, f"{size} bytes after {at - begin:.2f} s, {allowed:.0f} are allowed"


SIDES = ["follower", "leader"]


@pytest.mark.parametrize("side", rest_at_night(*SIDES))
def test_our_side_alone_keeps_the_limit_of_a_move(
    odradek: OdradekMember, kafka: KafkaMember, side: str
) -> None:
    """Only the settings of one side are there: Kafka, on the other one, sends and asks as fast as it can. Our
    side measures its rate for the first time."""
    topic = f"moves-by-our-{side}"
    leads, follows = (kafka, odradek) if side == "follower" else (odradek, kafka)
    create(leads.bootstrap_servers, topic, [leads.node_id])
    fill(leads.bootstrap_servers, topic)
    admin = Side("odradek", odradek.bootstrap_servers)
    owner = str(odradek.node_id)
    rate, replicas = f"{side}.replication.throttled.rate", f"{side}.replication.throttled.replicas"
    assert altered(admin, BROKER, owner, **{rate: str(RATE)})[0] is ErrorCode.NONE
    assert altered(admin, TOPIC, topic, **{replicas: f"0:{owner}"})[0] is ErrorCode.NONE
    wait_for_setting(odradek, BROKER, owner, rate, str(RATE))
    wait_for_setting(odradek, TOPIC, topic, replicas, f"0:{owner}")
    with Watch(follows, topic) as watch:
        reassign(admin, topic, leads.node_id, follows.node_id)
    watch.check(RATE, FIRST_WINDOW_S)
    both = {leads.node_id, follows.node_id}
    wait_until(lambda: isr_of(odradek.bootstrap_servers, topic) == both, "in sync", seconds=DEADLINE_SECONDS)
    assert altered(admin, BROKER, owner, **{rate: None})[0] is ErrorCode.NONE
    admin.close()


@pytest.mark.nightly
def test_the_tool_throttles_a_move_onto_a_node_of_ours_and_from_it_to_another(
    odradek: OdradekMember, other: OdradekMember, kafka: KafkaMember, tmp_path: pathlib.Path
) -> None:
    topic = "moves-throttled"
    create(kafka.bootstrap_servers, topic, [kafka.node_id])
    fill(kafka.bootstrap_servers, topic, MOVED_BY_TOOL_BYTES)
    tool = Reassigning(odradek.bootstrap_servers, topic, CURRENT, tmp_path)
    for leads, follows in ((kafka, odradek), (odradek, other)):
        plan = tool.plan(to="any", replicas=(follows.node_id,))
        with Watch(follows, topic, MOVED_BY_TOOL_BYTES) as watch:
            told = tool("--execute", *plan, "--throttle", str(TOOL_RATE))
            assert f"The inter-broker throttle limit was set to {TOOL_RATE} B/s" in told
        watch.check(TOOL_RATE, ALL_WINDOWS_S)
        told = ""
        deadline = time.monotonic() + MOVE_SECONDS
        while f"Reassignment of partition {topic}-0 is completed." not in told:
            assert time.monotonic() < deadline, told
            told = tool("--verify", *plan)
        assert "Clearing broker-level throttles on brokers " in told
        assert f"Clearing topic-level throttles on topic {topic}" in told
        assert partition(kafka.bootstrap_servers, topic).replica_nodes == [follows.node_id]
        for one in SIDES:
            for node in (leads, follows):
                owner = str(node.node_id)
                wait_for_setting(node, BROKER, owner, f"{one}.replication.throttled.rate", None)
            wait_for_setting(follows, TOPIC, topic, f"{one}.replication.throttled.replicas", None)


def test_a_replica_in_sync_is_not_throttled(odradek: OdradekMember, other: OdradekMember) -> None:
    topic, both = "in-sync", {odradek.node_id, other.node_id}
    create(odradek.bootstrap_servers, topic, [odradek.node_id, other.node_id], min_insync_replicas="2")
    wait_until(lambda: isr_of(odradek.bootstrap_servers, topic) == both, "both in sync", seconds=30)
    admin = Side("odradek", odradek.bootstrap_servers)
    rates = {f"{one}.replication.throttled.rate": "1" for one in SIDES}
    sides = [(node, Side("broker", node.bootstrap_servers)) for node in (odradek, other)]
    for node, side in sides:
        # Only the broker itself takes them, as with Kafka.
        assert altered(side, BROKER, str(node.node_id), **rates)[0] is ErrorCode.NONE
    stars = {f"{one}.replication.throttled.replicas": "*" for one in SIDES}
    assert altered(admin, TOPIC, topic, **stars)[0] is ErrorCode.NONE
    for node in (odradek, other):
        for name in stars:
            wait_for_setting(node, TOPIC, topic, name, "*")
        for name in rates:
            wait_for_setting(node, BROKER, str(node.node_id), name, "1")
    # With acks=all each record has to be on both.
    fill(odradek.bootstrap_servers, topic, 4_000_000)
    assert isr_of(odradek.bootstrap_servers, topic) == both
    for node, side in sides:
        assert altered(side, BROKER, str(node.node_id), **dict.fromkeys(rates))[0] is ErrorCode.NONE
        side.close()
    admin.close()


RATE_PROGRAM = """
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.SimpleRate;
import java.util.concurrent.TimeUnit;

public class KafkaRate {
    public static void main(String[] arguments) {
        MetricConfig config = new MetricConfig().timeWindow(1, TimeUnit.SECONDS).samples(11);
        SimpleRate rate = new SimpleRate();
        java.util.Scanner scanner = new java.util.Scanner(System.in);
        while (scanner.hasNextLong()) {
            long now = scanner.nextLong();
            long bytes = scanner.nextLong();
            if (bytes > 0) rate.record(config, bytes, now);
            System.out.println(rate.measure(config, now));
        }
    }
}
"""


def test_the_rate_is_measured_as_kafkas_own_class_measures_it(tmp_path: pathlib.Path) -> None:
    import random

    rng, now_ms = random.Random(1), 1_000_000
    steps = []
    for _ in range(3_000):
        now_ms += rng.choice((0, 1, 30, 400, 999, 1_000, 1_001, 10_999, 11_000, 25_000))
        steps.append((now_ms, rng.choice((0, 1, 1_000, 1 << 20))))
    source = tmp_path / "KafkaRate.java"
    source.write_text(RATE_PROGRAM)
    asked = "\n".join(f"{now} {size}" for now, size in steps)
    told = run_java(source, stdin=asked)
    rate, ours = WindowedRate(11, 1_000), []
    for now, size in steps:
        if size:
            rate.record(size, now)
        ours.append(rate.bytes_per_second(now))
    assert ours == pytest.approx([float(line) for line in told.split()])
