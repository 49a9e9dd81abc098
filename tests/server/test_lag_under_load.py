"""Lag while ten groups follow what producers write: no scrape has a commit past the end, and at rest lag and
counts are those of the clients. The load lasts two seconds, by night a minute.
"""

import re
import threading
import time
from collections import Counter

import odradek
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import LATEST, Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.embedding.free_port import free_port
from odradek.server.metrics.exposition import label_text
from tests.client.topics import produce
from tests.server.scrape import scraped
from tests.tiers import NIGHTLY

TOPIC = "loaded"
KEYS = [(TOPIC, number) for number in range(3)]
GROUPS = [f"follower-{number}" for number in range(10)]
PRODUCERS = 2
LOAD_S = 60 if NIGHTLY else 2
JMX = "kafka_server_brokertopicmetrics_"


class Load:
    """Producers and groups, each with a connection and a thread of its own."""

    def __init__(self, address):
        self.address = address
        self.appends = self.records = self.commits = 0
        self.committed = {}
        self.failures = []
        self._until = time.monotonic() + LOAD_S
        self._counting = threading.Lock()
        self.threads = [threading.Thread(target=self._running, args=(self.write,)) for _ in range(PRODUCERS)]
        self.threads += [threading.Thread(target=self._running, args=(self._follow, one)) for one in GROUPS]

    def _running(self, step, *arguments):
        try:
            with Cluster(ClientSettings(self.address, retry_ms=1)) as cluster:
                while time.monotonic() < self._until:
                    step(cluster, *arguments)
        except BaseException as error:
            self.failures.append(error)

    def write(self, cluster):
        for _, partition in KEYS:
            now_ms = time.time_ns() // 1_000_000
            produce(cluster, TOPIC, partition, [b"v" * 50] * (1 + partition), timestamp=now_ms)
            with self._counting:
                self.appends += 1
                self.records += 1 + partition

    def _follow(self, cluster, group):
        """The end that was just asked for: the highest commit that there can be."""
        ends = cluster.list_offsets(dict.fromkeys(KEYS, LATEST))
        commit(cluster, group, {key: (end, "") for key, end in ends.items()})
        with self._counting:
            self.commits += 1
            self.committed[group] = ends


def answered(samples):
    """Requests of the clients that change something."""
    found = Counter()
    for (name, labels), value in samples.items():
        request = re.search(r'request="(Produce|OffsetCommit)"', labels or "")
        if request and name == "kafka_network_requestmetrics_requests_total":
            found[request[1]] += value
    return found


def test_lag_is_never_negative_under_load_and_exact_at_rest(tmp_path):
    port = free_port()
    options = {"odradek.metrics.listen": str(port), "log.retention.ms": "-1"}
    with odradek.Broker(data_dir=str(tmp_path / "data"), options=options) as broker:
        with Cluster(ClientSettings(broker.bootstrap_servers)) as cluster:
            create_topic(cluster, TOPIC, len(KEYS), {})
            for group in GROUPS:
                commit(cluster, group, dict.fromkeys(KEYS, (0, "")))  # its coordinator is there now
            before = answered(scraped(port))
            load = Load(broker.bootstrap_servers)
            for thread in load.threads:
                thread.start()
            seen = 0
            while any(thread.is_alive() for thread in load.threads):
                seen += 1
                for (name, labels), value in scraped(port).items():
                    if "_consumergroup_lag" in name:
                        assert value >= 0, labels
                    elif name == "odradek_consumergroup_offsets_past_end":
                        # Such a commit would be the negative lag that others show.
                        assert value == 0, labels
            for thread in load.threads:
                thread.join()
            assert load.failures == []
            assert seen > 1
            load.write(cluster)  # now all groups are behind
            ends = cluster.list_offsets(dict.fromkeys(KEYS, LATEST))
            at_rest = scraped(port)
        for group in GROUPS:
            for topic, partition in KEYS:
                labels = label_text(consumergroup=group, topic=topic, partition=partition)
                committed = load.committed[group][topic, partition]
                assert at_rest["kafka_consumergroup_current_offset", labels] == committed
                assert at_rest["kafka_consumergroup_lag", labels] == ends[topic, partition] - committed > 0
        of_topic = label_text(topic=TOPIC)
        assert at_rest[f"{JMX}messagesin_total", of_topic] == load.records == sum(ends.values())
        assert at_rest[f"{JMX}totalproducerequests_total", of_topic] == load.appends
        assert answered(at_rest) - before == Counter(Produce=load.appends, OffsetCommit=load.commits)
