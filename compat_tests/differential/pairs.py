"""Apache Kafka and Odradek with the same settings, as a pair that is asked the same."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping

from compat_tests import reference, reference_container
from compat_tests.differential.harness import (
    PACKED_OTHERWISE,
    Pair,
    Side,
    common_versions,
    served_versions,
    side_of,
)
from odradek.coordinator.cluster.changes import MIN_INSYNC_REPLICAS
from odradek.coordinator.cluster.features import ELIGIBLE_LEADERS_VERSION
from odradek.wire.compression import Compression
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

BELOW_4_3 = {
    0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1, 38: 1,
    39: 1, 40: 1, 41: 1,
}  # fmt: skip
"""API key -> the lowest version that Kafka 4.3 serves, where not 0. What is below is compared with 3.9."""

IN_ZOOKEEPER = (8, 9)
"""OffsetCommit and OffsetFetch, whose version 0 keeps offsets in ZooKeeper: a KRaft node answers 35 to it."""


@contextlib.contextmanager
def pair_of(version: str, settings: Mapping[str, str]) -> Iterator[Pair]:
    """Two new brokers, for as long as the context lasts."""
    real = reference_container.real_kafka(version, settings)
    if isinstance(real, reference_container.KafkaInContainer):
        PACKED_OTHERWISE.update({Compression.GZIP, Compression.LZ4})
    with real as kafka, odradek(settings) as ours:
        theirs = side_of("kafka", kafka.bootstrap_servers)
        if version == reference.OLDER:
            _without_eligible_leaders(ours)
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
        yield Pair(theirs, ours, versions)
        theirs.close()


@contextlib.contextmanager
def odradek(settings: Mapping[str, str]) -> Iterator[Side]:
    """A new Odradek, for as long as the context lasts."""
    from odradek.embedding.embedded import Broker

    # A broker in a program has 0 otherwise; Kafka is told the same (`reference.ONLY_CURRENT`).
    streams = {"group.streams.initial.rebalance.delay.ms": 3000}
    options = {**streams, **settings, "group.initial.rebalance.delay.ms": 0}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-") as directory,
        Broker(process=True, data_dir=directory, options=options) as broker,
    ):
        side = side_of("odradek", broker.bootstrap_servers)
        yield side
        side.close()


def _without_eligible_leaders(side: Side) -> None:
    """Kafka 3.9 has no such feature, and no setting for all brokers that comes with it."""
    update = FeatureUpdateKey(feature=ELIGIBLE_LEADERS_VERSION, max_version_level=0, upgrade_type=2)
    answer = side.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == 0
    setting = AlterableConfig(name=MIN_INSYNC_REPLICAS, config_operation=1, value=None)
    for_all_brokers = AlterConfigsResource(resource_type=4, resource_name="", configs=[setting])
    answer = side.ask(IncrementalAlterConfigsRequest(resources=[for_all_brokers]), 1)
    assert answer.responses[0].error_code == 0


ACCESS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Settings with which nothing is forbidden as long as there is no rule."""
EVERYTHING = (2, 3, 4, 5, 6, 7)
"""Types of resources."""
CLUSTER, ALL, ALLOW = 4, 2, 3


@contextlib.contextmanager
def access_pair(version: str, settings: Mapping[str, str] = ACCESS) -> Iterator[Pair]:
    """Two new brokers that decide by rules. Clients from 127.0.0.1 may do everything, and so may Kafka's own
    controller, which comes from there; all others nothing."""
    with reference_container.from_jars(version, settings) as kafka, odradek(settings) as ours:
        theirs = side_of("kafka", kafka.bootstrap_servers)
        versions = common_versions(theirs, ours)
        for key, one in versions.items():
            first = max(one.start, 1 if key in IN_ZOOKEEPER else 0)
            first_of_4_3 = BELOW_4_3.get(key, 0)
            versions[key] = (
                range(first, min(first_of_4_3, one.stop))
                if version == reference.OLDER
                else range(max(first, first_of_4_3), one.stop)
            )
        pair = Pair(theirs, ours, versions)
        rules = [
            AclCreation(
                resource_type=kind,
                resource_name="kafka-cluster" if kind == CLUSTER else "*",
                resource_pattern_type=3,
                principal="User:*",
                host="127.0.0.1",
                operation=ALL,
                permission_type=ALLOW,
            )
            for kind in EVERYTHING
        ]
        for side in pair.sides:
            side.remember("cluster id", side.ask(DescribeClusterRequest(), 0).cluster_id)
            answer = side.ask(CreateAclsRequest(creations=rules), 3)
            assert not any(result.error_code for result in answer.results), (side.name, answer)
        yield pair
        theirs.close()
