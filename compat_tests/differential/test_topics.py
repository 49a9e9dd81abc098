"""Metadata and the administration of topics: create, grow, delete, describe."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.test_settings import ONLY_NEWER, is_older
from compat_tests.differential.topics import id_of, metadata_of, new_topic
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

UNKNOWN_ID = bytes(range(16))
TOPIC, BROKER = 2, 4


def seen_cluster(side: Side, answer: Any) -> None:
    if answer.cluster_id:
        side.remember("cluster id", answer.cluster_id)


def test_metadata_answers_alike(pair: Pair) -> None:
    topic, other = new_topic(pair, "metadata", 3), new_topic(pair, "metadata")
    for version in pair.versions(MetadataRequest):
        one = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic), MetadataRequestTopic(name=other)],
            allow_auto_topic_creation=version < 4,
            include_topic_authorized_operations=version >= 8,
            include_cluster_authorized_operations=8 <= version <= 10,
        )
        pair.ask(lambda _: one, version, "two topics", see=seen_cluster)
        for name in ("not-there", "bad/name", "", ".", "x" * 250):
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=version < 4
            )
            pair.ask(lambda _: asked, version, f"topic {name[:20]!r}", see=seen_cluster)
        if version >= 1:
            none = MetadataRequest(topics=[], allow_auto_topic_creation=version < 4)
            pair.ask(lambda _: none, version, "no topics", see=seen_cluster)
        if version >= 12:
            for what in ("known", "unknown"):
                pair.ask(
                    lambda side: MetadataRequest(
                        topics=[
                            MetadataRequestTopic(
                                name=None,
                                topic_id=id_of(side, topic) if what == "known" else UNKNOWN_ID,
                            )
                        ],
                        allow_auto_topic_creation=False,
                    ),
                    version,
                    f"{what} id",
                    see=seen_cluster,
                )


def test_describe_cluster_answers_alike(pair: Pair) -> None:
    for endpoint in (1, 2, 3):
        for version in pair.versions(DescribeClusterRequest):
            if version == 0 and endpoint != 1:
                continue
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=True, endpoint_type=endpoint if version else 1
            )
            pair.ask(lambda _: request, version, f"endpoint type {endpoint}", see=seen_cluster)


def creatable(name: str, partitions: int = 1, factor: int = 1, **settings: str | None) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=v) for key, v in settings.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=configs)


def assigned(name: str, *replicas: list[int], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    topic = creatable(name, partitions, factor)
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
        for index, ids in enumerate(replicas)
    ]
    return topic


def test_topics_are_created_and_refused_alike(pair: Pair) -> None:
    known = new_topic(pair, "create")

    def seen(side: Side, answer: Any) -> None:
        for topic in answer.topics:
            if any(topic.topic_id):
                side.remember(f"id of {topic.name}", topic.topic_id)

    for version in pair.versions(CreateTopicsRequest):
        cases = {
            "plain": creatable(f"created-{version}", 3),
            "with settings": creatable(
                f"created-set-{version}", retention_ms="5000", cleanup_policy="compact"
            ),
            "exists": creatable(known),
            "bad name": creatable("bad/name"),
            "empty name": creatable(""),
            "long name": creatable("x" * 250),
            "no partitions": creatable("none", 0),
            "partitions below zero": creatable("none", -2),
            "factor 0": creatable("none", 1, 0),
            "factor 3": creatable("none", 1, 3),
            "unknown setting": creatable("none", no_such_thing="1"),
            "bad value": creatable("none", retention_ms="soon"),
            "value out of range": creatable("none", max_message_bytes="-5"),
            "null value": creatable("none", retention_ms=None),
            "assigned": assigned(f"created-assigned-{version}", [1], [1]),
            "assigned to nobody": assigned("none", [99]),
            "assigned twice": assigned("none", [1, 1]),
            "assigned and counted": assigned("none", [1], partitions=4, factor=1),
            "dots and underscores": creatable(f"created_{version}.{'x'}"),
        }
        if version >= 4:
            cases["defaults"] = creatable(f"created-default-{version}", -1, -1)
        for note, topic in cases.items():
            request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            if version >= 1:
                dry = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True)
                pair.ask(lambda _: dry, version, f"{note}, validate only", see=seen)
            pair.ask(lambda _: request, version, note, see=seen)
        twice = CreateTopicsRequest(topics=[creatable("none"), creatable("none")], timeout_ms=30_000)
        pair.ask(lambda _: twice, version, "twice in one request")


def test_topics_are_deleted_alike(pair: Pair) -> None:
    for version in pair.versions(DeleteTopicsRequest):
        topic, other = new_topic(pair, "delete"), new_topic(pair, "delete")
        if version >= 6:
            cases: dict[str, Any] = {
                "by name": lambda _: [DeleteTopicState(name=topic)],
                "by id": lambda side: [DeleteTopicState(topic_id=id_of(side, other))],
                "unknown name": lambda _: [DeleteTopicState(name="not-there")],
                "unknown id": lambda _: [DeleteTopicState(topic_id=UNKNOWN_ID)],
            }
            for note, states in cases.items():
                pair.ask(
                    lambda side: DeleteTopicsRequest(topics=states(side), timeout_ms=30_000),
                    version,
                    note,
                )
        else:
            for names in ([topic], ["not-there"], [other, "not-there"]):
                request = DeleteTopicsRequest(topic_names=names, timeout_ms=30_000)
                pair.ask(lambda _: request, version, str(len(names)))
        for name in (topic, other):
            pair.ask(
                lambda _: metadata_of(name),
                9,
                "after deletion",
                settle=lambda answer: answer.topics[0].error_code == 3,
                see=seen_cluster,
            )


def test_topics_grow_alike(pair: Pair) -> None:
    for version in pair.versions(CreatePartitionsRequest):
        topic = new_topic(pair, "grow", 2)
        cases = {
            "same": CreatePartitionsTopic(name=topic, count=2, assignments=None),
            "fewer": CreatePartitionsTopic(name=topic, count=1, assignments=None),
            "below zero": CreatePartitionsTopic(name=topic, count=-1, assignments=None),
            "unknown": CreatePartitionsTopic(name="not-there", count=3, assignments=None),
            "assigned to nobody": CreatePartitionsTopic(
                name=topic, count=3, assignments=[CreatePartitionsAssignment(broker_ids=[77])]
            ),
            "too few assigned": CreatePartitionsTopic(
                name=topic, count=4, assignments=[CreatePartitionsAssignment(broker_ids=[1])]
            ),
            "more": CreatePartitionsTopic(name=topic, count=5, assignments=None),
        }
        for note, wanted in cases.items():
            for dry in (True, False):
                request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=dry)
                pair.ask(lambda _: request, version, f"{note}, validate only {dry}")
        pair.ask(
            lambda _: metadata_of(topic),
            9,
            "grown",
            settle=lambda answer: (
                len(answer.topics[0].partitions) == 5
                and all(p.leader_id == 1 for p in answer.topics[0].partitions)
            ),
            see=seen_cluster,
        )


def test_topics_grow_by_so_many_partitions_at_once_alike(pair: Pair) -> None:
    """All topics of a request count together: those that exist and grow. Nothing is created."""
    if is_older(pair):
        pytest.skip("Kafka 3.9 has no such limit")
    one, other = new_topic(pair, "grow-much", 2), new_topic(pair, "grow-much", 3)
    cases = {
        "as many as may be": [(one, 10_002)],
        "one too many": [(one, 10_003)],
        "as many of two": [(one, 5_002), (other, 5_003)],
        "too many of two": [(one, 5_002), (other, 5_004)],
        "too many with a topic that is not there": [("not-there", 9_000), (one, 10_003)],
        "as many with a topic that is not there": [("not-there", 20_000), (one, 10_002)],
        "as many with one that gets fewer": [(other, 1), (one, 10_002)],
        "too many with one that gets fewer": [(other, 1), (one, 10_003)],
        "most of all": [(one, 2**31 - 1), (other, 2**31 - 1)],
    }
    version = max(pair.versions(CreatePartitionsRequest))
    with pair.collecting():
        for note, wanted in cases.items():
            topics = [
                CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in wanted
            ]
            request = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
            pair.ask(lambda _, request=request: request, version, note, any_order=True)


def test_settings_of_a_topic_are_described_alike(pair: Pair) -> None:
    topic = new_topic(pair, "configs", retention_ms="5000", cleanup_policy="compact")
    for version in pair.versions(DescribeConfigsRequest):
        for note, resource_type, name, keys in [
            ("all", TOPIC, topic, None),
            ("some", TOPIC, topic, ["retention.ms", "segment.bytes", "no.such"]),
            ("none", TOPIC, topic, []),
            ("unknown topic", TOPIC, "not-there", None),
            ("bad name", TOPIC, "bad/name", None),
            ("no such broker", BROKER, "99", None),
            ("broker that is no number", BROKER, "one", None),
            ("unknown type", 77, "x", None),
        ]:
            resource = DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys
            )
            request = DescribeConfigsRequest(
                resources=[resource], include_synonyms=version >= 1, include_documentation=version >= 3
            )
            if version == 0 and note in ("all", "none"):
                compare_with_older_settings(pair, request)
            else:
                pair.ask(lambda _: request, version, note)


ONLY_OLDER = {
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
}
"""Settings of a topic that Kafka 3.9 has and 4.0 took away."""
OTHER_DEFAULTS: dict[str, tuple[str, str]] = {"message.timestamp.after.max.ms": (str(2**63 - 1), "3600000")}
"""What 4.0 changed (KIP-1030): in 3.9, and since."""


def compare_with_older_settings(pair: Pair, request: DescribeConfigsRequest) -> None:
    """Version 0, which 3.9 alone serves, names all settings of a topic: the same but for what 4.0 changed."""
    theirs, ours = (
        {config["name"]: config for config in side.plain(side.ask(request, 0), 0)["results"][0]["configs"]}
        for side in pair.sides
    )
    for name in ONLY_OLDER:
        theirs.pop(name)
    for name in ONLY_NEWER:
        ours.pop(name)
    for name, (before, since) in OTHER_DEFAULTS.items():
        pair.compare(
            f"DescribeConfigs v0 {name}", [before, since], [theirs[name]["value"], ours[name]["value"]]
        )
        theirs[name]["value"] = ours[name]["value"] = "changed"
    pair.compare("DescribeConfigs v0 (all)", theirs, ours)


def test_partitions_are_described_alike(pair: Pair) -> None:
    topics = sorted(new_topic(pair, "described", 3) for _ in range(2))

    def ask(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
        return DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )

    for version in pair.versions(DescribeTopicPartitionsRequest):
        pair.ask(lambda _: ask(*topics), version)
        pair.ask(lambda _: ask("not-there"), version, "no such topic")
        pair.ask(lambda _: ask("bad/name"), version, "bad name")
        pair.ask(lambda _: ask(*topics, limit=4), version, "limit 4")
        pair.ask(
            lambda _: ask(*topics, limit=2, cursor=Cursor(topic_name=topics[0], partition_index=2)),
            version,
            "from a cursor",
        )


def test_log_directories_are_described_alike(pair: Pair) -> None:
    topic = new_topic(pair, "directories", 2)
    for version in pair.versions(DescribeLogDirsRequest):
        for note, topics in [
            ("one topic", [DescribableLogDirTopic(topic=topic, partitions=[0, 1])]),
            ("unknown", [DescribableLogDirTopic(topic="not-there", partitions=[0])]),
            ("no topics", []),
        ]:
            request = DescribeLogDirsRequest(topics=topics)
            pair.ask(lambda _: request, version, note)
