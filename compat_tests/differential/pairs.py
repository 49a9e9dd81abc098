"""Apache Kafka and Odradek with the same settings, as a pair that is asked the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from compat_tests import reference, reference_container
from compat_tests.differential.harness import PACKED_OTHERWISE, Pair, Side, served_versions
from odradek.wire.compression import Compression

BELOW_4_3 = {0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 27: 1, 32: 1, 34: 1, 35: 1}
"""API key -> the lowest version that Kafka 4.3 serves, where not 0. What is below is compared with 3.9."""

IN_ZOOKEEPER = (8, 9)
"""OffsetCommit and OffsetFetch, whose version 0 keeps offsets in ZooKeeper: a KRaft node answers 35 to it."""


@contextlib.contextmanager
def pair_of(version: str, settings: Mapping[str, str]) -> Iterator[Pair]:
    """Two new brokers, for as long as the context lasts."""
    from odradek.server.embedded import Broker

    options = {**settings, "group.initial.rebalance.delay.ms": 0}
    real = reference_container.real_kafka(version, settings)
    if isinstance(real, reference_container.KafkaInContainer):
        PACKED_OTHERWISE.update({Compression.GZIP, Compression.LZ4})
    with real as kafka, Broker(process=True, options=options) as broker:
        theirs, ours = Side("kafka", kafka.bootstrap_servers), Side("odradek", broker.bootstrap_servers)
        for side in (theirs, ours):
            side.remember("port", side.port, "port")
            side.remember("host", side.host)
        served, wanted = served_versions(theirs), served_versions(ours)
        versions = {}
        for api_key in served.keys() & wanted.keys():
            stop = served[api_key].stop
            if version == reference.OLDER:
                stop = min(stop, BELOW_4_3.get(api_key, 0))
            start = max(served[api_key].start, wanted[api_key].start)
            if api_key in IN_ZOOKEEPER:
                start = max(start, 1)
            if version == reference.CURRENT:
                # It advertises Produce from 0 on for the sake of old librdkafka, and serves it from 3 on.
                start = max(start, BELOW_4_3.get(api_key, 0))
            versions[api_key] = range(start, min(stop, wanted[api_key].stop))
        pair = Pair(theirs, ours, versions)
        yield pair
        theirs.close()
        ours.close()
