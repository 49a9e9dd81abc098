"""The ISR of a partition that a node of ours leads: a follower that stops leaves it, and comes back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from compat_tests.clients import wait_until
from compat_tests.cluster.test_replication import create, isr_of
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, OdradekMember
from odradek.server.free_port import free_port
from odradek.server.metrics.exposition import label_text
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch
from tests.server.scrape import scraped

LEADER, FOLLOWER = 41, 42
LAG = {"replica.lag.time.max.ms": "2000"}
METRICS = {LEADER: free_port(), FOLLOWER: free_port()}
POLL_SECONDS = 0.5
"""replica.fetch.wait.max.ms"""


def listening(node_id: int) -> dict[str, str]:
    return {"odradek.metrics.listen": f"127.0.0.1:{METRICS[node_id]}"}


def isr_metrics(topic: str) -> tuple[float, ...]:
    """Of the leader: shrinks, expands, and of a topic's only partition under and at the minimum."""
    samples = scraped(METRICS[LEADER])
    labels = label_text(topic=topic, partition=0)
    manager, partition = "kafka_server_replicamanager_", "kafka_cluster_partition_"
    return (
        samples[f"{manager}isrshrinks_total", None],
        samples[f"{manager}isrexpands_total", None],
        samples[f"{partition}underminisr", labels],
        samples[f"{partition}atminisr", labels],
    )


@pytest.fixture
def leader(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, LEADER, LAG | listening(LEADER)) as started:
        yield started


@pytest.fixture
def follower(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, FOLLOWER, LAG | listening(FOLLOWER)) as started:
        yield started


def produce(side: Side, topic: str, acks: int, timeout_ms: int = 30_000) -> ErrorCode:
    data = PartitionProduceData(index=0, records=build_batch([Record(0, 1_700_000_000_000, None, b"v")]))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return ErrorCode(side.ask(request, 9).responses[0].partition_responses[0].error_code)


def test_a_follower_that_stops_leaves_the_isr_and_comes_back(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    topic, both = "watched", {LEADER, FOLLOWER}
    create(leader.bootstrap_servers, topic, [LEADER, FOLLOWER], min_insync_replicas="2")
    side = Side("leader", leader.bootstrap_servers)
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == both, "both in sync", seconds=30)
    assert produce(side, topic, -1) is ErrorCode.NONE

    os.kill(follower.pid, signal.SIGSTOP)
    # It is in the ISR still: nobody may say that it has the record.
    assert produce(side, topic, -1, timeout_ms=200) is ErrorCode.REQUEST_TIMED_OUT
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == {LEADER}, "it has left", seconds=30)
    assert produce(side, topic, -1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(side, topic, 1) is ErrorCode.NONE

    os.kill(follower.pid, signal.SIGCONT)
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == both, "it is back", seconds=60)
    assert produce(side, topic, -1) is ErrorCode.NONE
    side.close()


def test_metrics_count_a_follower_that_leaves_the_isr_and_comes_back(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    topic, both = "counted", {LEADER, FOLLOWER}
    create(leader.bootstrap_servers, topic, [LEADER, FOLLOWER], min_insync_replicas="2")
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == both, "both in sync", seconds=30)
    shrinks, expands, *minimum = isr_metrics(topic)
    assert minimum == [0, 1]
    assert scraped(METRICS[LEADER])["kafka_server_replicamanager_atminisrpartitioncount", None] >= 1

    os.kill(follower.pid, signal.SIGSTOP)
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == {LEADER}, "it has left", seconds=30)
    wait_until(lambda: isr_metrics(topic)[0] > shrinks, "a shrink", seconds=30)
    wait_until(lambda: isr_metrics(topic)[2:] == (1, 0), "under the minimum", seconds=30)

    os.kill(follower.pid, signal.SIGCONT)
    wait_until(lambda: isr_metrics(topic)[1] > expands, "an expand", seconds=60)
    wait_until(lambda: isr_metrics(topic)[2:] == (0, 1), "at the minimum", seconds=30)

    side = Side("leader", leader.bootstrap_servers)
    assert produce(side, topic, -1) is ErrorCode.NONE
    side.close()
    follows = label_text(clientid=f"ReplicaFetcherThread-0-{LEADER}", topic=topic, partition=0)
    wait_until(
        lambda: scraped(METRICS[FOLLOWER]).get(("kafka_server_fetcherlagmetrics_consumerlag", follows)) == 0,
        "the follower has all",
        seconds=30,
    )
    largest = "kafka_server_replicafetchermanager_maxlag", label_text(clientid="Replica")
    assert largest in scraped(METRICS[FOLLOWER])
    samples = scraped(METRICS[LEADER])
    fetches = {
        labels: number
        for (name, labels), number in samples.items()
        if name == "kafka_network_requestmetrics_requests_total" and "FetchFollower" in labels
    }
    assert sum(fetches.values()) >= 1
    for labels, number in fetches.items():
        requests = "kafka_network_requestmetrics_requests_total"
        consumers = samples.get((requests, labels.replace("FetchFollower", "FetchConsumer")), 0)
        # One that is just being sent may be in the one and not in the other yet.
        assert 0 <= number + consumers - samples[requests, labels.replace("FetchFollower", "Fetch")] <= 1


def test_a_record_does_not_wait_for_the_partitions_beside_it(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    """A follower's fetch is one long poll for all that it follows of a leader. It tells of an append at once,
    and not only when the poll is over."""
    topics, both = ("busy", "idle"), {LEADER, FOLLOWER}
    for topic in topics:
        create(leader.bootstrap_servers, topic, [LEADER, FOLLOWER], min_insync_replicas="2")
        wait_until(lambda topic=topic: isr_of(leader.bootstrap_servers, topic) == both, "in sync", seconds=30)  # type: ignore[misc]
    side = Side("leader", leader.bootstrap_servers)
    answers = [produce(side, "busy", -1)]
    begin = time.monotonic()
    answers += [produce(side, "busy", -1) for _ in range(20)]
    seconds = time.monotonic() - begin
    assert set(answers) == {ErrorCode.NONE}
    assert seconds < 20 * POLL_SECONDS / 2, f"{seconds:.1f} s for 20 records"
    side.close()
