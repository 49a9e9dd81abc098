"""Flushes, compaction and throttled clients, as the metrics tell them of a whole broker."""

import os

import pytest

import odradek
from odradek.client.admin.configs import Change, Operation, Resource, ResourceKind, alter_configs
from odradek.client.admin.quotas import CLIENT_ID, alter_quotas
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.embedding.free_port import free_port
from odradek.server.metrics.exposition import label_text
from odradek.server.network.group_flush import TIME_BUCKETS, FlushTimes
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch
from tests import raw_client
from tests.client.topics import produce
from tests.raw_client import RawClient
from tests.server.scrape import scraped, until

OPTIONS = {
    "log.cleaner.backoff.ms": 50,
    "log.segment.delete.delay.ms": 0,
    "log.flush.interval.messages": 1,
}


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def broker(port):
    with odradek.Broker(options={**OPTIONS, "odradek.metrics.listen": f"127.0.0.1:{port}"}) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker):
    with Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as connected:
        yield connected


def test_a_flush_is_timed(port, cluster):
    create_topic(cluster, "flushed", 1, {})

    def flushes():
        samples = scraped(port)
        count = samples["odradek_flush_seconds_count", None]
        assert samples["odradek_flush_seconds_bucket", label_text(le="+Inf")] == count
        return count, samples["odradek_flush_seconds_sum", None]

    before, seconds_before = flushes()
    for _ in range(3):
        # Each answer waits for its flush.
        produce(cluster, "flushed", 0, [b"v"])
    after, seconds_after = flushes()
    assert after - before >= 3
    assert seconds_after > seconds_before


@pytest.mark.parametrize(
    ("seconds", "place"),
    [(0, 0), (1.023e-6, 0), (1.025e-6, 1), (0.001, 10), (1.0, 20), (3600.0, TIME_BUCKETS - 1)],
)
def test_the_buckets_of_flushes_are_those_of_requests(seconds, place):
    times = FlushTimes()
    times.add(seconds)
    assert times.counts[place] == sum(times.counts) == 1
    assert times.seconds == seconds


def test_compaction_tells_what_is_to_be_done_and_what_it_has_done(port, cluster):
    compacted = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "1"}
    create_topic(cluster, "compacted", 1, compacted)
    values = [os.urandom(900) for _ in range(900)]
    for _ in range(4):
        produce(cluster, "compacted", 0, values)
    samples = scraped(port)
    assert samples["odradek_compaction_dirty_ratio_max", None] == 1
    assert samples["odradek_compaction_bytes_total", None] == 0
    resource = Resource(ResourceKind.TOPIC, "compacted")
    alter_configs(cluster, resource, [Change("min.cleanable.dirty.ratio", Operation.SET, "0.01")])
    samples = until(
        lambda: scraped(port), lambda samples: samples["odradek_compaction_bytes_total", None] > 0
    )
    # Three closed segments, read for the index and again for the copy.
    assert samples["odradek_compaction_bytes_total", None] > 3 * 900 * 900
    assert samples["odradek_compaction_seconds_total", None] > 0
    until(lambda: scraped(port), lambda samples: samples["odradek_compaction_dirty_ratio_max", None] == 0)


def told(port, quota):
    return scraped(port)["odradek_throttle_seconds_total", label_text(quota=quota)]


def throttle_seconds(broker, request, version):
    with RawClient(broker.port) as client:
        return client.ask(request, version).throttle_time_ms / 1000


@pytest.mark.parametrize(
    ("quota", "key"),
    [
        ("produce", "producer_byte_rate"),
        ("fetch", "consumer_byte_rate"),
        ("request", "request_percentage"),
        ("controller", "controller_mutation_rate"),
    ],
)
def test_what_clients_are_told_to_wait_is_counted_by_quota(port, cluster, broker, quota, key):
    topic = f"for-{quota}"
    create_topic(cluster, topic, 1, {})
    produce(cluster, topic, 0, [os.urandom(30_000)])
    data = PartitionProduceData(index=0, records=build_batch([Record(0, 1, None, os.urandom(30_000))]))
    fetched = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
    requests = {
        "produce": (
            ProduceRequest(
                acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
            ),
            9,
        ),
        "fetch": (FetchRequest(topics=[FetchTopic(topic=topic, partitions=[fetched])]), 11),
        "request": (MetadataRequest(topics=[]), 9),
        "controller": (
            CreateTopicsRequest(
                topics=[CreatableTopic(name=f"{topic}-more", num_partitions=20, replication_factor=1)],
                timeout_ms=10_000,
            ),
            5,
        ),
    }
    entity = {CLIENT_ID: raw_client.CLIENT_ID}
    alter_quotas(cluster, entity, {key: 0.01 if quota == "request" else 1.0})
    others = {one: told(port, one) for one in requests if one != quota}
    before, seconds = told(port, quota), 0.0
    for _ in range(100):
        seconds += throttle_seconds(broker, *requests[quota])
        if seconds:
            break
    assert seconds > 0
    assert told(port, quota) - before == pytest.approx(seconds, abs=0.002)
    # What is counted stays when the quota goes.
    alter_quotas(cluster, entity, {key: None})
    assert told(port, quota) - before == pytest.approx(seconds, abs=0.002)
    assert {one: told(port, one) for one in others} == others
