"""The ISR of a partition that a node of ours leads: a follower that is not heard leaves it and comes back."""

from __future__ import annotations

from compat_tests.cluster.bad_days import PRODUCE_VERSION, produce_request, produced, wait_for_isr, waits
from compat_tests.cluster.sharing import FOLLOWER, LEADER, Troubled
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import Side
from odradek.server.metrics.exposition import label_text
from odradek.wire.errors import ErrorCode
from tests.server.scrape import scraped


def isr_metrics(port: int, topic: str) -> tuple[float, ...]:
    """Of the leader: shrinks, expands, and of a topic's only partition under and at the minimum."""
    samples = scraped(port)
    labels = label_text(topic=topic, partition=0)
    manager, partition = "kafka_server_replicamanager_", "kafka_cluster_partition_"
    return (
        samples[f"{manager}isrshrinks_total", None],
        samples[f"{manager}isrexpands_total", None],
        samples[f"{partition}underminisr", labels],
        samples[f"{partition}atminisr", labels],
    )


def produce(side: Side, topic: str, acks: int, timeout_ms: int = 30_000) -> ErrorCode:
    return produced(side.ask(produce_request(topic, [b"v"], acks, timeout_ms), PRODUCE_VERSION))[0]


def test_a_follower_that_is_not_heard_leaves_the_isr_and_comes_back_and_metrics_count_it(
    troubled: Troubled,
) -> None:
    """Its requests wait on their way; the controllers hear it all the time."""
    topic, leader = "watched", troubled.leader
    port, followers_port = (troubled.metrics_ports[node_id] for node_id in (LEADER, FOLLOWER))
    create(leader.bootstrap_servers, topic, [LEADER, FOLLOWER], min_insync_replicas="2")
    side = Side("leader", leader.bootstrap_servers)
    wait_for_isr(leader.bootstrap_servers, topic, LEADER, FOLLOWER)
    assert produce(side, topic, -1) is ErrorCode.NONE
    shrinks, expands, *minimum = isr_metrics(port, topic)
    assert minimum == [0, 1]
    assert scraped(port)["kafka_server_replicamanager_atminisrpartitioncount", None] >= 1

    troubled.proxy.requests.cut()
    # It is in the ISR still: nobody may say that it has the record.
    assert produce(side, topic, -1, timeout_ms=200) is ErrorCode.REQUEST_TIMED_OUT
    wait_for_isr(leader.bootstrap_servers, topic, LEADER)
    waits(lambda: isr_metrics(port, topic)[0] > shrinks, "a shrink")
    waits(lambda: isr_metrics(port, topic)[2:] == (1, 0), "under the minimum")
    assert produce(side, topic, -1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(side, topic, 1) is ErrorCode.NONE

    troubled.proxy.requests.mend()
    wait_for_isr(leader.bootstrap_servers, topic, LEADER, FOLLOWER)
    waits(lambda: isr_metrics(port, topic)[1] > expands, "an expand")
    waits(lambda: isr_metrics(port, topic)[2:] == (0, 1), "at the minimum")
    assert produce(side, topic, -1) is ErrorCode.NONE
    side.close()
    follows = label_text(clientid=f"ReplicaFetcherThread-0-{LEADER}", topic=topic, partition=0)
    lag = "kafka_server_fetcherlagmetrics_consumerlag", follows
    waits(lambda: scraped(followers_port).get(lag) == 0, "the follower has all")
    largest = "kafka_server_replicafetchermanager_maxlag", label_text(clientid="Replica")
    assert largest in scraped(followers_port)
    check_fetches(scraped(port))


def check_fetches(samples: dict[tuple[str, str | None], float]) -> None:
    """Those of followers and of consumers are all that there are."""
    requests = "kafka_network_requestmetrics_requests_total"
    fetches = {
        labels: number
        for (name, labels), number in samples.items()
        if name == requests and labels is not None and "FetchFollower" in labels
    }
    assert sum(fetches.values()) >= 1
    for labels, number in fetches.items():
        consumers = samples.get((requests, labels.replace("FetchFollower", "FetchConsumer")), 0)
        # One that is just being sent may be in the one and not in the other yet.
        assert 0 <= number + consumers - samples[requests, labels.replace("FetchFollower", "Fetch")] <= 1
