"""Topics that come to be because a Metadata request names them, and what is said of those that cannot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests import reference, reference_container
from compat_tests.clients import wait_until
from compat_tests.differential.harness import CLIENT_ID, Pair, Side, common_versions, side_of
from compat_tests.differential.test_client_quotas import (
    MUTATED,
    Entity,
    alone,
    alter_quotas,
    created,
    quota_entry,
)
from compat_tests.differential.topics import metadata_of
from odradek.embedding.embedded import Broker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

KINDS = {
    "creating": {},
    "refusing": {"auto.create.topics.enable": "false"},
    "too few brokers": {"default.replication.factor": "3"},
    "too many partitions": {"num.partitions": "10001"},
}
FEW_PARTITIONS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""Of the topics of coordinators, instead of 50 each: Kafka makes a log for every one."""
FIRST_VERSION_WITH_FLAG = 4
LAST_VERSION_OF_DELETION_BY_NAME = 5

UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pair(kind: str) -> Iterator[Pair]:
    settings = {**FEW_PARTITIONS, **KINDS[kind]}
    real = reference_container.real_kafka(reference.CURRENT, settings)
    with real as kafka, Broker(process=True, options=settings) as broker:
        sides = side_of("kafka", kafka.bootstrap_servers), side_of("odradek", broker.bootstrap_servers)
        yield Pair(*sides, common_versions(*sides))
        for side in sides:
            side.close()


def named(*names: str, may_create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)


def seen(side: Side, answer: Any) -> None:
    side.remember("cluster id", answer.cluster_id)
    for topic in answer.topics:
        if any(topic.topic_id):
            side.remember(f"id of {topic.name}", topic.topic_id)


def compare(pair: Pair, request: MetadataRequest, version: int, note: str, **how: Any) -> tuple[Any, Any]:
    return pair.ask(lambda _: request, version, note, see=seen, **how)


def finished(*names: str) -> Callable[[Any], bool]:
    return lambda answer: all(
        topic.error_code == 0 and topic.partitions and all(one.leader_id >= 0 for one in topic.partitions)
        for topic in answer.topics
        if topic.name in names
    )


def cases(pair: Pair) -> Iterator[tuple[int, bool]]:
    """Version, and whether the request lets topics be created."""
    for version in pair.versions(MetadataRequest):
        yield version, True
        if version >= FIRST_VERSION_WITH_FLAG:
            yield version, False


def test_topics_count_for_the_quota_of_partitions_of_their_client(pair: Pair, kind: str) -> None:
    if kind != "creating":
        pytest.skip("nothing is created")
    entity: Entity = [("client-id", CLIENT_ID)]
    pair.ask(lambda _: alter_quotas(quota_entry(entity, (MUTATED, 1.0))), 1, "set")
    for side in pair.sides:
        dry = created(f"burst-{side.name}", count=150, dry=True)
        wait_until(lambda: alone(side, dry, 7)[0] == [89], f"{side.name} refuses a topic")  # noqa: B023
    for version in pair.versions(MetadataRequest):
        for number in range(3):
            note = f"request {number} with a quota that is used up"
            answers = compare(pair, named("used-up"), version, note, connection=f"{version}-{number}")
            assert [one.topics[0].error_code for one in answers] == [UNKNOWN_TOPIC] * 2
    pair.ask(lambda _: alter_quotas(quota_entry(entity, (MUTATED, None))), 1, "removed")
    wait_until(lambda: alone(pair.kafka, created("free", dry=True), 7)[0] == [0], "no quota is left")


def test_a_topic_is_created_where_setting_and_request_allow_it(pair: Pair, kind: str) -> None:
    for version, may_create in cases(pair):
        name = f"fresh-{version}-{may_create}"
        asked = named(name, may_create=may_create)
        if kind == "creating" and may_create:
            first = [side.ask(asked, version).topics[0].error_code for side in pair.sides]
            assert first == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0], "see docs/differences.md"
            compare(pair, asked, version, name, settle=finished(name))
        else:
            for _ in range(2):
                compare(pair, asked, version, name)
        compare(pair, named(name, may_create=False), 12, f"{name}, in the end")


def new_topic(pair: Pair) -> str:
    """Unlike that of `topics`, on brokers whose defaults make no topic."""
    name = f"made-{next(_numbers)}"
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    for side in pair.sides:
        assert side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 2).topics[0].error_code == 0
    compare(pair, metadata_of(name), 12, name, settle=finished(name))
    return name


def delete(pair: Pair, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    pair.ask(lambda _: request, LAST_VERSION_OF_DELETION_BY_NAME)
    compare(pair, metadata_of(name), 12, "deleted", settle=lambda answer: answer.topics[0].error_code == 3)


def test_a_deleted_topic_is_unknown_to_the_first_who_asks(pair: Pair, kind: str) -> None:
    for version, may_create in cases(pair):
        name = new_topic(pair)
        for _ in range(2):
            delete(pair, name)
            compare(pair, named(name, may_create=may_create), version, "the first after a deletion")
            if kind != "creating" or not may_create:
                break
            # Created behind that answer: it is there without that anybody asks for it once more.
            compare(pair, metadata_of(name), 12, "created behind the answer", settle=finished(name))
        compare(pair, named(name, may_create=False), 12, "in the end")


def test_what_cannot_be_created_is_unknown_whatever_the_reason(pair: Pair) -> None:
    known = new_topic(pair).replace("-", "_") + ".x"
    topic = CreatableTopic(name=known, num_partitions=1, replication_factor=1)
    for side in pair.sides:
        side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 2)
    names = ["no good", "", ".", "..", "x" * 250, "ä", known.replace(".", "_"), "__cluster_metadata"]
    for version, may_create in cases(pair):
        for name in names:
            # What Kafka does behind the first answer would show in the second.
            for _ in range(2):
                compare(pair, named(name, may_create=may_create), version, f"topic {name[:20]!r}")


def test_the_topics_of_coordinators_are_created_as_they_have_to_be(pair: Pair, kind: str) -> None:
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        compare(pair, named(name, may_create=False), 12, f"{name}, not to be created")
        asked = named(name)
        if kind == "refusing":
            compare(pair, asked, 12, name)
        else:
            # The replication factor of these has a setting of its own.
            compare(pair, asked, 12, name, settle=finished(name))
