"""A pair of brokers for each reference version; a test fails with every difference that it found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import reference, reference_container
from compat_tests.differential.harness import PACKED_OTHERWISE, Pair, Side, served_versions
from odradek.wire.compression import Compression

BELOW_4_3 = {0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 27: 1, 32: 1, 34: 1, 35: 1}
"""API key -> the lowest version that Kafka 4.3 serves, where not 0. What is below is compared with 3.9."""

IN_ZOOKEEPER = (8, 9)
"""OffsetCommit and OffsetFetch, whose version 0 keeps offsets in ZooKeeper: a KRaft node answers 35 to it."""

SETTINGS = {
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "producer.id.expiration.check.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # Retention is looked at soon and often.
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
}


OPTIONS = {**SETTINGS, "group.initial.rebalance.delay.ms": 0}
"""Those of Odradek; Kafka has the second one anyway."""


@pytest.fixture(scope="session", params=[reference.CURRENT, reference.OLDER])
def brokers(request: pytest.FixtureRequest) -> Iterator[Pair]:
    from odradek.server.embedded import Broker

    real = reference_container.real_kafka(request.param, SETTINGS)
    if isinstance(real, reference_container.KafkaInContainer):
        PACKED_OTHERWISE.update({Compression.GZIP, Compression.LZ4})
    with real as kafka, Broker(process=True, options=OPTIONS) as broker:
        theirs, ours = Side("kafka", kafka.bootstrap_servers), Side("odradek", broker.bootstrap_servers)
        for side in (theirs, ours):
            side.remember("port", side.port, "port")
            side.remember("host", side.host)
        served, wanted = served_versions(theirs), served_versions(ours)
        versions = {}
        for api_key in served.keys() & wanted.keys():
            stop = served[api_key].stop
            if request.param == reference.OLDER:
                stop = min(stop, BELOW_4_3.get(api_key, 0))
            start = max(served[api_key].start, wanted[api_key].start)
            if api_key in IN_ZOOKEEPER:
                start = max(start, 1)
            if request.param == reference.CURRENT:
                # It advertises Produce from 0 on for the sake of old librdkafka, and serves it from 3 on.
                start = max(start, BELOW_4_3.get(api_key, 0))
            versions[api_key] = range(start, min(stop, wanted[api_key].stop))
        pair = Pair(theirs, ours, versions)
        yield pair
        theirs.close()
        ours.close()


@pytest.fixture
def pair(brokers: Pair, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both brokers; the differences found are the test's failure."""
    brokers.found.clear()
    yield brokers
    assert not brokers.found, "\n" + "\n".join(brokers.found)
